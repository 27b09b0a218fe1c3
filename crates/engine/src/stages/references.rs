//! References: the evidence that a call offers, resolved and frozen by digest before the decision (TM-08, TM-09).
//!
//! Owns what may be referred to, and what a delegated call must offer. Invariants: an unresolved reference refuses the call; it resolves
//! only to results of the same caller in the same run; a recorded call keeps the evidence of its first decision.

use std::{collections::BTreeSet, sync::Arc};

use placet_types::{
    envelope::result::{ResultStatus, ToolResultEnvelope},
    error::{ErrorCode, Problem, Refusal},
    evidence::{EvidenceItem, EvidenceKind},
    ids::{RunId, ToolCallId},
    json::canonical_digest,
};

use crate::{
    answer::Answer,
    call::{Brokered, Built},
    outcome::{Outcomes, recorded},
    registry::Owner,
};

/// Refuses a call without a user to a tool that acts with a user's authority.
pub(crate) fn check_user(built: &Built, has_user: bool) -> Result<(), Refusal> {
    if has_user || !built.target.capability.is_delegated() {
        return Ok(());
    }
    Err(Refusal::new(
        ErrorCode::CredentialRefused,
        "the tool acts with a user's authority; send the user's token in Placet-Delegation",
    ))
}

/// Resolves the references of the call.
pub(crate) async fn resolve(outcomes: &Outcomes, stage: &mut Brokered) -> Result<(), Refusal> {
    if let Some(resumed) = &stage.built.resumed {
        stage.evidence.clone_from(&resumed.parked.evidence);
        return Ok(());
    }
    if stage.evidence.is_empty() && !stage.built.evidence_refs.is_empty() {
        stage.evidence = Box::pin(found(outcomes, stage)).await?;
    }
    if stage.evidence.is_empty() && stage.built.target.capability.is_delegated() {
        let problem = "a tool that acts with a user's authority needs the id of at least one earlier call of this run";
        return Err(refused("the call offers no evidence", [(None, problem)]));
    }
    Ok(())
}

async fn found(outcomes: &Outcomes, stage: &Brokered) -> Result<Vec<EvidenceItem>, Refusal> {
    let (mut items, mut lost) = (BTreeSet::new(), Vec::new());
    for (place, reference) in stage.built.evidence_refs.iter().enumerate() {
        match result_of(outcomes, stage, reference).await? {
            Some(item) => {
                items.insert(item);
            }
            None => lost.push((
                Some(place),
                "it is not the id of a call of this run, by the same caller, that succeeded and whose result is kept",
            )),
        }
    }
    if lost.is_empty() {
        return Ok(items.into_iter().collect());
    }
    Err(refused("a reference to evidence leads nowhere", lost))
}

fn refused(
    message: &str,
    problems: impl IntoIterator<Item = (Option<usize>, &'static str)>,
) -> Refusal {
    let located = |(place, problem): (Option<usize>, &str)| Problem {
        pointer: place
            .map_or_else(|| "/evidence_refs".to_owned(), |place| format!("/evidence_refs/{place}")),
        problem: problem.to_owned(),
    };
    Refusal::new(ErrorCode::ValidationError, message)
        .with_problems(problems.into_iter().map(located).collect())
}

/// The result that a reference resolves to: of this caller, in this run, and successful.
async fn result_of(
    outcomes: &Outcomes,
    stage: &Brokered,
    reference: &str,
) -> Result<Option<EvidenceItem>, Refusal> {
    let Ok(call_id) = reference.parse::<ToolCallId>() else { return Ok(None) };
    let owner = Owner::of(&stage.identity.chain);
    let live = outcomes.registry.follow(&call_id, &owner).map(|live| live.borrow().clone());
    let answer = match live {
        Some(finished @ Answer::Finished(_)) => finished,
        _ => {
            let record = outcomes.ledger.store().effect_of_call(&call_id).await;
            let record = record.map_err(|error| outcomes.lookup_failed(error))?;
            match record.filter(|record| Owner::of_scope(&record.scope) == owner) {
                Some(record) => recorded::answer(outcomes, &record, false).await,
                None => return Ok(None),
            }
        }
    };
    match answer {
        Answer::Finished(result) => Ok(item(Arc::unwrap_or_clone(result), &stage.run.run_id)),
        Answer::Refused(refused) if refused.refusal.code == ErrorCode::LedgerUnavailable => {
            Err(refused.refusal)
        }
        Answer::Refused(_) | Answer::Held(_) | Answer::InProgress(_) => Ok(None),
    }
}

fn item(result: ToolResultEnvelope, run_id: &RunId) -> Option<EvidenceItem> {
    let ToolResultEnvelope { status, run_id: of, tool_call_id, capability_id, output, .. } = result;
    if status != ResultStatus::Succeeded || of.as_ref() != Some(run_id) {
        return None;
    }
    Some(EvidenceItem {
        kind: EvidenceKind::Result,
        call_id: tool_call_id,
        capability_id: capability_id?,
        digest: canonical_digest(&output),
    })
}
