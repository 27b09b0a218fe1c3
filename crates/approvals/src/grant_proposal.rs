//! Proposing a standing grant from a held call.
//!
//! Owns what a grant may cover. Cedar is asked as for an approval of that call. Invariants: a standing grant is approved under the
//! requirement of the very call it was proposed from, and covers that call; a proposer who has it cover more does not count as an approver,
//! like an editor who changes arguments; neither a grant nor an answer about one reveals a masked value.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::Value;

use placet_identity::VerifiedCaller;
use placet_ledger::approval::{ApprovalRecord, ApprovalState, VoteError};
use placet_policy::review::ReviewAction;
use placet_types::{
    approval::{Requirement, VoteChoice},
    clock::Timestamp,
    digest::Digest,
    directive::{
        DirectiveBody, DirectiveKind, GRANT_USES_MAX, Grant,
        pattern::{ArgumentPattern, PatternError},
    },
    error::{ErrorCode, Refusal},
    ids::{ApprovalId, PrincipalId},
};

use crate::{
    decision, entries,
    entry_draft::{self, Terms},
    listing,
    refusals::{crowded, invalid, not_counted, read},
    reviewer::{self, Capacity},
    service::Approvals,
    views::{DirectiveRequest, DirectiveView},
};

/// The grant that is asked for.
pub(crate) struct Wanted {
    pub(crate) approval_id: ApprovalId,
    pub(crate) pattern: Option<ArgumentPattern>,
    pub(crate) uses_max: u32,
    pub(crate) digest: Digest,
}

/// Proposes a grant. Proposing one for exactly the call's arguments counts as agreeing to it.
pub(crate) async fn grant(
    service: &Arc<Approvals>,
    caller: &VerifiedCaller,
    request: DirectiveRequest,
    wanted: Wanted,
) -> Result<DirectiveView, Refusal> {
    check_form(&request, &wanted, service.ledger.store().now())?;
    let approval = listing::visible(service, caller, &wanted.approval_id).await?;
    if reviewer::is_external(caller, &approval) {
        let told = "people of another tenant agree to single calls, and to nothing that stands";
        return Err(Refusal::new(ErrorCode::PolicyDenied, told));
    }
    if wanted.digest != approval.shown() {
        return Err(not_counted(&VoteError::Stale));
    }
    let capacity = decision::review(service, caller, &approval, ReviewAction::Approve).await?;
    let terms = terms(service, caller, &capacity, &approval, wanted).await?;
    let proposed = entry_draft::drafted(service, caller, &request, terms)?;
    entry_draft::make(service, caller, &proposed).await?;
    if proposed.is_of_an_author(&caller.actor.principal().id) {
        return Ok(entries::view_of(service, caller, &proposed));
    }
    let now = service.ledger.store().now();
    let (agrees, shown) = (VoteChoice::Approve, proposed.terms());
    let vote = service.vote_of(caller, &capacity, agrees, &request.reason, shown);
    let said = decision::noted(&vote);
    let agreed = proposed.cast(vote, now).map_err(|error| not_counted(&error))?;
    let kept = entry_draft::keep(service, caller, &agreed, &said).await;
    service.written(kept)?.ok_or_else(crowded)?;
    service.arranged(agreed.clone()).await;
    Ok(entries::view_of(service, caller, &agreed))
}

/// Checks the whole form: all errors in it are reported before anything is compared with the arguments.
fn check_form(request: &DirectiveRequest, wanted: &Wanted, now: Timestamp) -> Result<(), Refusal> {
    entry_draft::window_of(request, DirectiveKind::Grant, now)?;
    if !(1..=GRANT_USES_MAX).contains(&wanted.uses_max) {
        return Err(invalid("/arrange/uses_max", format!("must be 1 to {GRANT_USES_MAX}")));
    }
    wanted.pattern.as_ref().map_or(Ok(()), |pattern| pattern.check().map_err(no_pattern))
}

fn no_pattern(error: PatternError) -> Refusal {
    invalid("/arrange/pattern", error.to_string())
}

async fn terms(
    service: &Approvals,
    caller: &VerifiedCaller,
    capacity: &Capacity,
    approval: &ApprovalRecord,
    wanted: Wanted,
) -> Result<Terms, Refusal> {
    if approval.requirement.once_only {
        return Err(Refusal::new(
            ErrorCode::PolicyDenied,
            "a policy that holds this call has people decide on every single one: no standing grant covers it",
        ));
    }
    if approval.state != ApprovalState::Pending {
        return Err(not_counted(&VoteError::Late { state: approval.state.name() }));
    }
    let record = service.read_record(approval).await?;
    let record = record.ok_or_else(|| not_counted(&VoteError::Late { state: "over" }))?;
    let parked = read(service.ledger.parked(&record).await)?;
    // Read after the approval: what was written in between is not what the digest covers.
    let waits = record.state.approval_id() == Some(&approval.approval_id);
    if !waits || parked.binding.digest() != approval.request_digest {
        return Err(not_counted(&VoteError::Stale));
    }
    let target = service.policies().catalog.resolve(approval.chain.tenant(), &approval.capability);
    let schema = target.as_ref().and_then(|target| target.capability.arguments.as_ref().ok());
    // Without the schema it is unknown what is masked.
    let schema = schema
        .ok_or_else(|| Refusal::new(ErrorCode::ApprovalVoid, "the tool is not offered any more"))?;
    let args = Value::Object(parked.envelope.args.clone());
    let sensitive = schema.sensitive_pointers(&args);
    let pattern = wanted.pattern.unwrap_or_else(|| ArgumentPattern::exactly(&args));
    // Before anything is compared, so that nobody finds out a masked value by trying.
    pattern.check_masked(&sensitive, &args).map_err(no_pattern)?;
    pattern.check().map_err(no_pattern)?;
    if !pattern.covers(&args) {
        let problem = "does not cover the call it is proposed from";
        return Err(invalid("/arrange/pattern", problem));
    }
    let mut authors: BTreeSet<PrincipalId> = approval.authors().cloned().collect();
    if !pattern.is_only(&args) {
        authors.insert(caller.actor.principal().id.clone());
        authors.extend(capacity.stands_for.clone());
    }
    Ok(Terms {
        body: DirectiveBody::Grant(Box::new(Grant {
            approval_id: approval.approval_id.clone(),
            chain: approval.chain.clone(),
            capability: approval.capability.clone(),
            mode: approval.mode,
            contract_digest: parked.binding.contract_digest,
            pattern,
            uses_max: wanted.uses_max,
            authors,
        })),
        // The same people, without those who are asked only by escalation.
        requirement: Requirement { escalations: Vec::new(), ..approval.requirement.clone() },
    })
}
