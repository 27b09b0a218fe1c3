//! The people's side of an approval: list, show, decide.
//!
//! Owns what an approver sees and what a decision does. Every click is a Cedar request; an approval that somebody may not see
//! answers as one that does not exist.

use std::{collections::BTreeSet, sync::Arc};

use placet_identity::VerifiedCaller;
use placet_ledger::{
    approval::{ApprovalRecord, ApprovalState, VoteError},
    audit::{AuditEvent, AuditKind},
    ledger::LedgerError,
    store::{ApprovalQuery, StoreError},
};
use placet_policy::review::{Review, ReviewRefusal, ReviewedRequest, Reviewer};
use placet_types::{
    approval::{Vote, VoteChoice},
    error::{ErrorCode, Problem, Refusal},
    ids::{ApprovalId, GroupId, PrincipalId},
};

use crate::{
    context::{Context, known_state, ledger_refusal},
    registry::Owner,
    stages::recorded,
    views::{
        ApprovalDetail, ApprovalView, DecisionRequest,
        desk::{GroupProgress, OutcomeView, ReviewStanding},
    },
};

/// The longest reason, in bytes.
const REASON_BYTES_MAX: usize = 2_000;
/// How often a decision is tried again when another one came first.
const TRIES: usize = 8;
/// How many approvals are read at a time.
const PAGE: usize = 200;

/// The approvals that the caller may see, oldest first.
pub(crate) async fn list(
    context: &Context,
    caller: &VerifiedCaller,
    (state, after, limit): (Option<&str>, Option<&ApprovalId>, usize),
) -> Result<Vec<ApprovalView>, Refusal> {
    known_state(state, &ApprovalState::NAMES)?;
    let mut query = ApprovalQuery {
        tenant: Some(caller.tenant().clone()),
        state: state.map(str::to_owned),
        after: after.cloned(),
        limit: PAGE,
    };
    let mut seen = Vec::new();
    loop {
        let page = context
            .ledger
            .store()
            .approvals(&query)
            .await
            .map_err(|error| ledger_refusal(&error.into()))?;
        let Some(last) = page.last() else { return Ok(seen) };
        query.after = Some(last.approval_id.clone());
        for approval in &page {
            if may_view(context, caller, approval) {
                seen.push(view_of(approval));
                if seen.len() >= limit {
                    return Ok(seen);
                }
            }
        }
    }
}

/// One approval with what its approvers are shown.
pub(crate) async fn show(
    context: &Context,
    caller: &VerifiedCaller,
    approval_id: &ApprovalId,
) -> Result<ApprovalDetail, Refusal> {
    let approval = visible(context, caller, approval_id).await?;
    let mut proposal =
        context.ledger.proposal(&approval).await.map_err(|error| ledger_refusal(&error))?;
    // What is shown is masked; the digests cover the real values.
    proposal.call.args = proposal.evidence.preview.as_object().cloned().unwrap_or_default();
    let standing = standing_of(context, caller, &approval);
    let outcome = outcome_of(context, &approval).await?;
    Ok(ApprovalDetail { approval: view_of(&approval), proposal, standing, outcome })
}

async fn outcome_of(
    context: &Context,
    approval: &ApprovalRecord,
) -> Result<Option<OutcomeView>, Refusal> {
    let store = context.ledger.store();
    let record = store.effect(approval.record_id).await;
    let record = record.map_err(|error| ledger_refusal(&error.into()))?;
    // The key may have been taken by a later call since.
    let record = record.filter(|record| record.call_id == approval.call_id);
    Ok(record.map(|record| OutcomeView {
        state: record.state.name().to_owned(),
        code: record.state.code(),
        output: None,
        updated_at: record.updated_at,
    }))
}

/// What the caller may do with an approval, as policy sees it now.
fn standing_of(
    context: &Context,
    caller: &VerifiedCaller,
    approval: &ApprovalRecord,
) -> ReviewStanding {
    let decided_by = decided_by(approval);
    let over = approval.state != ApprovalState::Pending;
    let may = |choice| {
        let review = Review {
            reviewer: Reviewer {
                principal: caller.actor.principal(),
                groups: caller.actor.groups(),
            },
            request: reviewed(approval, &decided_by),
            choice,
            now: context.ledger.store().now(),
        };
        !over && context.policy.load().may_review(&review).is_ok()
    };
    let may_approve = may(VoteChoice::Approve);
    ReviewStanding {
        may_approve,
        may_deny: may(VoteChoice::Deny),
        may_edit: false,
        why_not: (!may_approve).then(|| "you may not decide on this approval".to_owned()),
        stands_for: None,
        needs_fresh_auth: false,
        completes: false,
        progress: progress_of(approval),
        next_escalation: None,
        grantable: false,
    }
}

fn progress_of(approval: &ApprovalRecord) -> Vec<GroupProgress> {
    let ballot = approval.ballot();
    let of = |(group, wanted): (&GroupId, &u32)| GroupProgress {
        group: group.clone(),
        wanted: *wanted,
        agreed: u32::try_from(ballot.agreed_of(group)).unwrap_or(u32::MAX),
        escalated: false,
    };
    approval.requirement.groups.iter().map(of).collect()
}

/// Takes a decision.
pub(crate) async fn decide(
    context: &Arc<Context>,
    caller: &VerifiedCaller,
    approval_id: &ApprovalId,
    request: DecisionRequest,
) -> Result<ApprovalView, Refusal> {
    check_reason(&request.reason)?;
    if caller.delegation.is_some() {
        return Err(Refusal::new(
            ErrorCode::PolicyDenied,
            "a person decides in their own name, not through an agent",
        ));
    }
    if let Some(refusal) = context.standing.cannot_decide() {
        return Err(refusal);
    }
    for _ in 0..TRIES {
        let approval = visible(context, caller, approval_id).await?;
        review(context, caller, &approval, request.decision).await?;
        match cast(context, caller, &approval, &request).await {
            // It moved on between reading and voting: how, the next look says.
            Err(LedgerError::Store(StoreError::Conflict) | LedgerError::WrongState(_)) => {}
            Err(LedgerError::Vote(error)) => return Err(not_counted(&error)),
            Err(error) => {
                context.noticed(&error);
                return Err(ledger_refusal(&error));
            }
            Ok(next) => {
                after_vote(context, &next).await;
                return Ok(view_of(&next));
            }
        }
    }
    Err(Refusal::new(
        ErrorCode::InProgress,
        "others are deciding at this moment; look at the approval again",
    ))
}

async fn cast(
    context: &Context,
    caller: &VerifiedCaller,
    approval: &ApprovalRecord,
    request: &DecisionRequest,
) -> Result<ApprovalRecord, LedgerError> {
    let person = &caller.actor;
    let mut groups = person.groups().clone();
    if let Some(entry) = context.directory.user(person.tenant(), &person.principal().id) {
        groups.extend(entry.groups.iter().cloned());
    }
    let vote = Vote {
        approver: person.principal().id.clone(),
        stands_for: None,
        authenticated_at: None,
        groups,
        groups_as_of: person.groups_as_of(),
        choice: request.decision,
        reason: request.reason.clone(),
        at: context.ledger.store().now(),
        shown_digest: request.digest,
    };
    let mut event = event_of(AuditKind::Voted, caller, approval);
    event.note = Some(match request.decision {
        VoteChoice::Approve => "approved".to_owned(),
        VoteChoice::Deny => "denied".to_owned(),
    });
    event.digests.insert("shown".to_owned(), request.digest);
    context.ledger.vote(approval, vote, event).await
}

/// What a vote leads to.
async fn after_vote(context: &Arc<Context>, approval: &ApprovalRecord) {
    match approval.state {
        ApprovalState::Approved => {
            context.metrics.approval_ended(
                "approved",
                approval,
                context.ledger.store().now().as_ms(),
            );
            if let Ok(Some(record)) = context.ledger.store().effect(approval.record_id).await {
                let standing = recorded::answer(context, &record, false).await;
                context.registry.publish(&approval.call_id, standing);
            }
            context.routes.approved(&approval.approval_id);
        }
        ApprovalState::Denied => {
            context.routes.approval_over(&approval.approval_id, approval.expires_at);
            context.metrics.approval_ended(
                "denied",
                approval,
                context.ledger.store().now().as_ms(),
            );
            if let Ok(Some(record)) = context.ledger.store().effect(approval.record_id).await {
                let refusal = recorded::denied(ErrorCode::ApprovalDenied);
                super::resume::publish_end(context, &record, refusal).await;
            }
        }
        ApprovalState::Pending
        | ApprovalState::Expired
        | ApprovalState::Void { .. }
        | ApprovalState::Consumed { .. } => {}
    }
}

fn not_counted(error: &VoteError) -> Refusal {
    let refusal = Refusal::new(ErrorCode::ValidationError, error.to_string());
    match error {
        VoteError::Stale => refusal.with_problems(vec![Problem {
            pointer: "/digest".to_owned(),
            problem: "is not the digest of the current proposal".to_owned(),
        }]),
        VoteError::Late { .. } | VoteError::Twice | VoteError::Full | VoteError::Unchanged => {
            refusal
        }
    }
}

fn check_reason(reason: &str) -> Result<(), Refusal> {
    if reason.trim().is_empty() || reason.len() > REASON_BYTES_MAX {
        return Err(Refusal::new(ErrorCode::ValidationError, "a decision needs a reason")
            .with_problems(vec![Problem {
                pointer: "/reason".to_owned(),
                problem: format!("must be 1 to {REASON_BYTES_MAX} bytes of text"),
            }]));
    }
    Ok(())
}

async fn visible(
    context: &Context,
    caller: &VerifiedCaller,
    approval_id: &ApprovalId,
) -> Result<ApprovalRecord, Refusal> {
    let unknown = || Refusal::new(ErrorCode::NotFound, "there is no such approval");
    let approval = context
        .ledger
        .store()
        .approval(approval_id)
        .await
        .map_err(|error| ledger_refusal(&error.into()))?
        .ok_or_else(unknown)?;
    if may_view(context, caller, &approval) { Ok(approval) } else { Err(unknown()) }
}

fn may_view(context: &Context, caller: &VerifiedCaller, approval: &ApprovalRecord) -> bool {
    if approval.chain.tenant() != caller.tenant() {
        return false;
    }
    // Whoever waits for a call may see what it waits for.
    if Owner::of(&approval.chain) == Owner::of(&caller.chain()) {
        return true;
    }
    let decided_by = decided_by(approval);
    let reviewer = Reviewer { principal: caller.actor.principal(), groups: caller.actor.groups() };
    let now = context.ledger.store().now();
    context.policy.load().may_view(&reviewer, &reviewed(approval, &decided_by), now).is_ok()
}

async fn review(
    context: &Context,
    caller: &VerifiedCaller,
    approval: &ApprovalRecord,
    choice: VoteChoice,
) -> Result<(), Refusal> {
    let decided_by = decided_by(approval);
    let review = Review {
        reviewer: Reviewer { principal: caller.actor.principal(), groups: caller.actor.groups() },
        request: reviewed(approval, &decided_by),
        choice,
        now: context.ledger.store().now(),
    };
    // What is over, or decided by the same person before, is said as such: nothing is given away by it.
    if approval.state != ApprovalState::Pending {
        return Err(not_counted(&VoteError::Late { state: approval.state.name() }));
    }
    if decided_by.contains(&caller.actor.principal().id) {
        return Err(not_counted(&VoteError::Twice));
    }
    let refused = context.policy.load().may_review(&review);
    match refused {
        Ok(()) => Ok(()),
        Err(refusal) => {
            let mut event = event_of(AuditKind::Security, caller, approval);
            event.code = Some(refusal.code);
            event.note = Some(refusal.to_string());
            context.note(event).await;
            Err(not_entitled(&refusal))
        }
    }
}

fn not_entitled(refusal: &ReviewRefusal) -> Refusal {
    Refusal::new(refusal.code, "you may not decide on this approval").with_detail(refusal)
}

fn decided_by(approval: &ApprovalRecord) -> BTreeSet<PrincipalId> {
    approval.votes.iter().map(|vote| vote.approver.clone()).collect()
}

fn reviewed<'a>(
    approval: &'a ApprovalRecord,
    decided_by: &'a BTreeSet<PrincipalId>,
) -> ReviewedRequest<'a> {
    ReviewedRequest {
        chain: &approval.chain,
        capability: &approval.capability,
        mode: approval.mode,
        requirement: &approval.requirement,
        expires_at: approval.expires_at,
        decided_by,
    }
}

fn event_of(kind: AuditKind, caller: &VerifiedCaller, approval: &ApprovalRecord) -> AuditEvent {
    let mut event = AuditEvent::new(kind);
    event.tenant = Some(caller.tenant().clone());
    event.call_id = Some(approval.call_id.clone());
    event.capability = Some(approval.capability.clone());
    event.chain = Some(caller.chain());
    event.record_id = Some(approval.record_id);
    event.approval_id = Some(approval.approval_id.clone());
    event.digests.insert("request".to_owned(), approval.request_digest);
    event
}

fn view_of(approval: &ApprovalRecord) -> ApprovalView {
    let void_reason = match &approval.state {
        ApprovalState::Void { reason } => Some(reason.clone()),
        ApprovalState::Pending
        | ApprovalState::Approved
        | ApprovalState::Denied
        | ApprovalState::Expired
        | ApprovalState::Consumed { .. } => None,
    };
    ApprovalView {
        approval_id: approval.approval_id.clone(),
        state: approval.state.name().to_owned(),
        void_reason,
        call_id: approval.call_id.clone(),
        capability_id: approval.capability.clone(),
        principal_chain: approval.chain.clone(),
        requirement: approval.requirement.clone(),
        votes: approval.votes.clone(),
        created_at: approval.created_at,
        expires_at: approval.expires_at,
        mode: approval.mode,
        edits: u32::try_from(approval.edits.len()).unwrap_or(u32::MAX),
        escalated: approval.escalated,
        digest: approval.proposal,
    }
}
