//! Other arguments for a held call.
//!
//! Owns the way from what an approver typed to a request that people decide on again. Invariants: the new arguments fit the schema and the
//! policies still hold the call for people with them; anyone who wrote arguments that are not narrower does not count among those who agree;
//! what the editor was shown masked and left alone keeps its value; the call stays the one its agent asked for, so that the agent's retry
//! finds it.

use std::sync::Arc;

use serde_json::{Map, Value};

use placet_identity::VerifiedCaller;
use placet_ledger::{
    approval::{ApprovalRecord, VoteError},
    audit::AuditKind,
    ledger::{LedgerError, Narrowed},
    parked::{ParkedCall, ParkedEdit},
    record::EffectRecord,
    run::RunRecord,
    store::StoreError,
};
use placet_policy::{decision::Decision, review::ReviewAction, verdict::Verdict};
use placet_types::{
    approval::{Requirement, Vote, VoteChoice},
    envelope::proposal::{EditedFrom, ToolProposalEnvelope},
    error::{ErrorCode, Problem, Refusal},
    ids::ApprovalId,
    json::canonical_digest,
    narrowing::Change,
};

use super::{
    decide::{self, crowded, not_counted},
    entries::MASK,
    outcome, people, resume,
    reviewer::Capacity,
};
use crate::{
    call::{Brokered, Target},
    context::{Context, ledger_refusal},
    stages::{
        broker, build,
        facts::{self, Circumstances},
        gate,
        hold::{self, Draft},
        run,
    },
    views::{ApprovalView, desk::EditRequest},
};

/// How often an edit is tried again when a decision came first.
const TRIES: usize = 4;

/// Puts other arguments in the place of those that people are asked about.
pub(crate) async fn edit(
    context: &Arc<Context>,
    caller: &VerifiedCaller,
    approval_id: &ApprovalId,
    request: EditRequest,
) -> Result<ApprovalView, Refusal> {
    decide::may_decide_at_all(context, caller, &request.reason).await?;
    for _ in 0..TRIES {
        let approval = people::visible(context, caller, approval_id).await?;
        let capacity = decide::review(context, caller, &approval, ReviewAction::Edit).await?;
        if request.digest != approval.shown() {
            return Err(not_counted(&VoteError::Stale));
        }
        let held = Held::read(context, &approval).await?;
        let Some(narrowed) = held.narrowed(context, &approval, &request.args)? else {
            return Err(unchanged(context, caller, &approval).await);
        };
        let written = write(context, caller, &capacity, &approval, &request, narrowed).await;
        // Nothing: it moved on between reading and writing; how, the next look says.
        if let Some(next) = written? {
            decide::after_vote(context, &next).await;
            return Ok(people::view_of(&next, outcome::of(&next, None)));
        }
    }
    Err(crowded())
}

/// A held call as it would run now.
struct Held {
    record: EffectRecord,
    parked: ParkedCall,
    proposal: ToolProposalEnvelope,
}

/// The call with other arguments, brokered.
struct Changed {
    stage: Brokered,
    change: Change,
    held: Held,
}

impl Held {
    async fn read(context: &Context, approval: &ApprovalRecord) -> Result<Self, Refusal> {
        let record = context.ledger.store().effect(approval.record_id).await;
        let record = record.map_err(|error| ledger_refusal(&error.into()))?;
        let waits =
            |record: &EffectRecord| record.state.approval_id() == Some(&approval.approval_id);
        let record = record.filter(waits).ok_or_else(crowded)?;
        let parked = context.ledger.parked(&record).await;
        let parked = parked.map_err(|error| ledger_refusal(&error))?;
        let proposal = context.ledger.proposal(approval).await;
        let proposal = proposal.map_err(|error| ledger_refusal(&error))?;
        Ok(Self { record, parked, proposal })
    }

    /// The call with these arguments: unmasked, validated, bound. Nothing: they are those that people decide on already.
    fn narrowed(
        self,
        context: &Context,
        approval: &ApprovalRecord,
        args: &Map<String, Value>,
    ) -> Result<Option<Changed>, Refusal> {
        let mut built = resume::restore(context, approval, &self.record, self.parked.clone(), None)
            .map_err(|reason| {
                Refusal::new(
                    ErrorCode::ApprovalVoid,
                    "what was asked for is no longer what would run",
                )
                .with_detail(reason)
            })?;
        let args = unmasked(&built.target, args, &self.parked.envelope.args)?;
        let args = build::validate(&built.target, &args)?;
        let change = change_of(&built.target, &self.parked.envelope.args, &args)?;
        built.args_digest = canonical_digest(&Value::Object(args.clone()));
        built.args = args;
        let stage = broker::broker(context, &self.parked.envelope.trace_id, built)?;
        if stage.request_digest == approval.request_digest {
            return Ok(None);
        }
        Ok(Some(Changed { stage, change, held: self }))
    }
}

/// An edit that changes nothing. It is noted: who names masked values, and is told that they are these, has found them out.
async fn unchanged(
    context: &Context,
    caller: &VerifiedCaller,
    approval: &ApprovalRecord,
) -> Refusal {
    let refusal = not_counted(&VoteError::Unchanged);
    let mut event = people::event_of(AuditKind::Security, caller, approval);
    event.code = Some(refusal.code);
    event.note = Some("an edit named the arguments as they are".to_owned());
    context.note(event).await;
    refusal
}

/// What the edit does to the arguments that people are asked about now.
fn change_of(
    target: &Target,
    before: &Map<String, Value>,
    after: &Map<String, Value>,
) -> Result<Change, Refusal> {
    let schema = target.capability.arguments.as_ref().map_err(not_offered)?;
    let whole = |args: &Map<String, Value>| Value::Object(args.clone());
    Ok(Change::of(schema, &whole(before), &whole(after)))
}

fn not_offered(why: impl std::fmt::Display) -> Refusal {
    Refusal::new(ErrorCode::ApprovalVoid, "the tool is not offered any more").with_detail(why)
}

/// The arguments with the values back that the editor was shown masked, and left so.
fn unmasked(
    target: &Target,
    given: &Map<String, Value>,
    real: &Map<String, Value>,
) -> Result<Map<String, Value>, Refusal> {
    let schema = target.capability.arguments.as_ref().map_err(not_offered)?;
    let real = Value::Object(real.clone());
    let mut given = Value::Object(given.clone());
    for place in schema.sensitive_pointers(&real) {
        if let Some(value) = given.pointer_mut(&place)
            && value.as_str() == Some(MASK)
            && let Some(kept) = real.pointer(&place)
        {
            value.clone_from(kept);
        }
    }
    let left = schema.sensitive_pointers(&given).into_iter().find(|place| {
        let is_mask = given.pointer(place).is_some_and(|value| value.as_str() == Some(MASK));
        is_mask && real.pointer(place).is_none_or(|kept| kept.as_str() != Some(MASK))
    });
    if let Some(place) = left {
        let problem = "is shown masked and has no earlier value that it could keep".to_owned();
        let problems = vec![Problem { pointer: format!("/args{place}"), problem }];
        return Err(Refusal::new(ErrorCode::ValidationError, "a masked value is not a value")
            .with_problems(problems));
    }
    match given {
        Value::Object(fields) => Ok(fields),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(Refusal::new(ErrorCode::ValidationError, "the arguments must be an object"))
        }
    }
}

/// Has policy decide upon the new arguments, and keeps them when people still have to agree. Nothing: the approval moved meanwhile.
async fn write(
    context: &Context,
    caller: &VerifiedCaller,
    capacity: &Capacity,
    approval: &ApprovalRecord,
    request: &EditRequest,
    changed: Changed,
) -> Result<Option<ApprovalRecord>, Refusal> {
    let Changed { mut stage, change, held } = changed;
    let run = run_of(context, &stage).await?;
    stage.taint.clone_from(&run.taint);
    let (decision, requirement) = decided(context, &stage, &run, approval, &held.record)?;
    if requirement.external_tenants() != approval.external_tenants {
        return Err(not_counted(&VoteError::Elsewhere));
    }
    // Shown as it will be counted: nothing that was asked before is asked no more.
    let requirement = approval.requirement.joined(requirement);
    let now = context.ledger.store().now();
    let vote = decide::vote_of(
        caller,
        capacity,
        VoteChoice::Approve,
        request.reason.as_str(),
        approval.proposal,
        now,
    );
    let edited = edited_from(approval, &held.proposal, &vote, &change);
    let editors = approval.edits.iter().map(|edit| &edit.by).chain([&vote.approver]);
    let kept = ParkedEdit { by: editors.cloned().collect(), masked: edited.masked.clone() };
    let mut envelope = held.parked.envelope.clone();
    envelope.args.clone_from(&stage.built.args);
    envelope.policy_decision_id = Some(decision.id.clone());
    // As where it goes back to its approvers: as long as is given now, and never longer than was given at first.
    let given_ms = requirement.expires_in_ms.clamp(1_000, hold::LIFETIME_MS_MAX);
    let given_ms = i64::try_from(given_ms).unwrap_or(i64::MAX);
    let expires_at = approval.expires_at.min(now.plus_ms(given_ms));
    let similar = held.proposal.evidence.similar.clone();
    let mut proposal = hold::proposal_from(Draft {
        stage: &stage,
        envelope,
        requirement,
        decision: &decision,
        budget: gate::budget_of(&run),
        approval_id: approval.approval_id.clone(),
        expires_at,
        similar,
    });
    proposal.evidence.edited = Some(edited);
    let parked = ParkedCall {
        envelope: proposal.call.clone(),
        binding: stage.binding.clone(),
        edited: Some(kept),
        ..held.parked
    };
    let mut event = people::event_of(AuditKind::Edited, caller, approval);
    event.decision = serde_json::to_value(&decision).ok();
    let narrowed = Narrowed { parked: &parked, proposal: &proposal, change: &change };
    match context.ledger.edit_approval(approval, narrowed, vote, event).await {
        Ok(next) => Ok(Some(next)),
        Err(LedgerError::Store(StoreError::Conflict) | LedgerError::WrongState(_)) => Ok(None),
        Err(LedgerError::Vote(error)) => Err(not_counted(&error)),
        Err(error) => {
            context.noticed(&error);
            Err(ledger_refusal(&error))
        }
    }
}

/// What the next approvers are shown of it: against what the agent asked for, however often it was edited since.
fn edited_from(
    approval: &ApprovalRecord,
    shown: &ToolProposalEnvelope,
    vote: &Vote,
    change: &Change,
) -> EditedFrom {
    let first = shown.evidence.edited.as_ref();
    let editors = vote.voices().map(|voice| voice.person).filter(|_| !change.narrower);
    let earlier = approval.edits.iter().flat_map(|edit| &edit.masked);
    EditedFrom {
        by: vote.approver.clone(),
        reason: vote.reason.clone(),
        at: vote.at,
        preview: first
            .map_or_else(|| shown.evidence.preview.clone(), |first| first.preview.clone()),
        preview_masked: first.map_or_else(
            || shown.evidence.preview_masked.clone(),
            |first| first.preview_masked.clone(),
        ),
        request_digest: first.map_or(approval.request_digest, |first| first.request_digest),
        authors: approval.authors().chain(editors).cloned().collect(),
        masked: earlier.chain(&change.masked).cloned().collect(),
    }
}

/// What policy says to the new arguments: people must still be asked, and a weaker answer does not waive what was asked for.
fn decided(
    context: &Context,
    stage: &Brokered,
    run: &RunRecord,
    approval: &ApprovalRecord,
    record: &EffectRecord,
) -> Result<(Decision, Requirement), Refusal> {
    let circumstances = Circumstances { run, record: Some(record.record_id), approval: None };
    let decided = facts::decide(context, stage, &circumstances)?;
    if decided.verdict.decision().mode_effective > approval.mode {
        return Err(Refusal::new(
            ErrorCode::ModeUpgraded,
            "with these arguments the call is stronger than the one that people are asked about",
        ));
    }
    match decided.verdict {
        Verdict::Hold(hold) => Ok((hold.decision, hold.requirement)),
        Verdict::Permit(permit) => Ok((permit.decision().clone(), approval.requirement.clone())),
        Verdict::Deny(denial) => Err(Refusal::new(
            denial.code,
            "the policies do not allow the call with these arguments, no matter who agrees",
        )
        .with_detail(denial.kind)),
    }
}

pub(super) async fn run_of(context: &Context, stage: &Brokered) -> Result<RunRecord, Refusal> {
    let run = context.ledger.store().run(&run::key_of(stage)).await;
    let run = run.map_err(|error| ledger_refusal(&error.into()))?;
    run.ok_or_else(|| crate::context::internal("a held call without its run"))
}
