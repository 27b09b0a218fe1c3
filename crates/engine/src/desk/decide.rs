//! Deciding on an approval, alone or on several together.
//!
//! Owns what a decision does. Invariants: a decision names the digest of what was shown, and is recorded with it; one that comes late or
//! twice changes nothing and says so; of several decided together each is asked about, counted and recorded by itself.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use placet_identity::VerifiedCaller;
use placet_ledger::{
    approval::{ApprovalRecord, ApprovalState, VoteError},
    audit::AuditKind,
    ledger::LedgerError,
    store::StoreError,
};
use placet_policy::review::{ReviewAction, ReviewRefusal};
use placet_types::{
    approval::{Vote, VoteChoice},
    clock::Timestamp,
    digest::Digest,
    error::{ErrorCode, Problem, Refusal},
    ids::{ApprovalId, CapabilityId},
};
use serde_json::Value;

use super::{
    external, people, resume,
    reviewer::{self, Capacity},
    show,
};
use crate::{
    context::{Context, ledger_refusal},
    stages::{broker, recorded},
    views::{
        ApprovalView, DecisionRequest,
        desk::{BulkDecisionRequest, BulkDecisionView, BulkItem, BulkRefusal, TOGETHER_MAX},
    },
};

/// How long people wait for what is in force in the approval service to be read.
pub(crate) const KNOWN_WITHIN: Duration = Duration::from_secs(10);
/// How often a decision is tried again when another one came first.
const TRIES: usize = 8;
/// How much of a client's name is recorded.
const CLIENT_CHARS_MAX: usize = 128;

/// Takes a decision.
pub(crate) async fn decide(
    context: &Arc<Context>,
    caller: &VerifiedCaller,
    approval_id: &ApprovalId,
    request: DecisionRequest,
) -> Result<ApprovalView, Refusal> {
    may_decide_at_all(context, caller, &request.reason).await?;
    for _ in 0..TRIES {
        let approval = people::visible(context, caller, approval_id).await?;
        let capacity = review(context, caller, &approval, action_of(request.decision)).await?;
        // An external approver names the digest of their part; what the vote counts for is the proposal that it is a part of.
        let (named, part) = external::digest_for(context, caller, &approval).await?;
        if request.digest != named {
            return Err(not_counted(&VoteError::Stale));
        }
        let mut vote = vote_of(
            caller,
            &capacity,
            request.decision,
            &request.reason,
            approval.proposal,
            context.ledger.store().now(),
        );
        vote.part_digest = part;
        match self::cast(context, caller, &approval, vote).await {
            // It moved on between reading and voting: how, the next look says.
            Err(LedgerError::Store(StoreError::Conflict) | LedgerError::WrongState(_)) => {}
            Err(LedgerError::Vote(error)) => return Err(not_counted(&error)),
            Err(error) => {
                context.noticed(&error);
                return Err(ledger_refusal(&error));
            }
            Ok(next) => {
                after_vote(context, &next).await;
                return Ok(external::view_for(context, caller, &next).await);
            }
        }
    }
    Err(crowded())
}

/// Refuses anyone who cannot decide on anything here and now: also whose duty or token is over by what another node has acknowledged.
pub(crate) async fn may_decide_at_all(
    context: &Arc<Context>,
    caller: &VerifiedCaller,
    reason: &str,
) -> Result<(), Refusal> {
    people::check_reason(reason, "/reason")?;
    reviewer::must_be_person(caller)?;
    context.standing.cannot_decide().map_or(Ok(()), Err)?;
    context.desk.must_be_current(context, KNOWN_WITHIN).await?;
    if context.is_revoked(caller) { Err(broker::revoked()) } else { Ok(()) }
}

/// So many decide at the same time that this one did not come through.
pub(crate) fn crowded() -> Refusal {
    Refusal::new(
        ErrorCode::InProgress,
        "others are deciding at this moment; look at the approval again",
    )
}

/// What Cedar is asked of a decision.
pub(crate) const fn action_of(choice: VoteChoice) -> ReviewAction {
    match choice {
        VoteChoice::Approve => ReviewAction::Approve,
        VoteChoice::Deny => ReviewAction::Deny,
    }
}

/// The vote of somebody in a capacity.
pub(crate) fn vote_of(
    caller: &VerifiedCaller,
    capacity: &Capacity,
    choice: VoteChoice,
    reason: &str,
    shown: Digest,
    at: Timestamp,
) -> Vote {
    Vote {
        approver: caller.actor.principal().id.clone(),
        tenant: capacity.external_of.clone(),
        stands_for: capacity.stands_for.clone(),
        authenticated_at: capacity.authenticated_at,
        groups: capacity.groups.clone(),
        groups_as_of: capacity.groups_as_of,
        claimed: capacity.claimed.clone(),
        // An external approver's client is the business of their own tenant.
        client: caller.actor.client().filter(|_| capacity.external_of.is_none()).map(legible),
        token_ref: Some(caller.actor.token_ref()),
        choice,
        reason: reason.to_owned(),
        at,
        shown_digest: shown,
        part_digest: None,
    }
}

async fn cast(
    context: &Context,
    caller: &VerifiedCaller,
    approval: &ApprovalRecord,
    vote: Vote,
) -> Result<ApprovalRecord, LedgerError> {
    let part = vote.part_digest;
    let mut event = people::event_of(AuditKind::Voted, caller, approval);
    event.note = Some(noted(&vote));
    event.digests.insert("shown".to_owned(), part.unwrap_or(approval.proposal));
    if part.is_some() {
        event.digests.insert("proposal".to_owned(), approval.proposal);
    }
    context.ledger.vote(approval, vote, event).await
}

/// A client's name as it stands in records that people read.
fn legible(client: &str) -> String {
    client.chars().filter(|c| !c.is_control()).take(CLIENT_CHARS_MAX).collect()
}

/// What the audit says of a decision.
pub(crate) fn noted(vote: &Vote) -> String {
    let word = match vote.choice {
        VoteChoice::Approve => "approved",
        VoteChoice::Deny => "denied",
    };
    let word = match &vote.stands_for {
        Some(colleague) => format!("{word} for {colleague}"),
        None => word.to_owned(),
    };
    // By which token an external approver is known is the business of their own tenant.
    match &vote.tenant {
        Some(tenant) => format!("{word} as an external approver of {tenant}"),
        None => format!("{word}{}", vote.with_token()),
    }
}

/// What a vote, or an edit, leads to.
pub(crate) async fn after_vote(context: &Arc<Context>, approval: &ApprovalRecord) {
    context.desk.moved(context, approval);
    let now_ms = context.ledger.store().now().as_ms();
    match approval.state {
        ApprovalState::Approved => {
            context.metrics.approval_ended("approved", approval, now_ms);
            if let Ok(Some(record)) = context.ledger.store().effect(approval.record_id).await {
                let standing = recorded::answer(context, &record, false).await;
                context.registry.publish(&approval.call_id, standing);
            }
            context.routes.approved(&approval.approval_id);
        }
        ApprovalState::Denied => {
            context.routes.approval_over(&approval.approval_id);
            context.metrics.approval_ended("denied", approval, now_ms);
            if let Ok(Some(record)) = context.ledger.store().effect(approval.record_id).await {
                let refusal = recorded::denied(ErrorCode::ApprovalDenied);
                resume::publish_end(context, &record, refusal).await;
            }
        }
        ApprovalState::Pending
        | ApprovalState::Expired
        | ApprovalState::Withdrawn { .. }
        | ApprovalState::Void { .. }
        | ApprovalState::Consumed { .. } => {}
    }
}

/// A decision that does not count.
pub(crate) fn not_counted(error: &VoteError) -> Refusal {
    let refusal = Refusal::new(ErrorCode::ValidationError, error.to_string());
    match error {
        VoteError::Stale => refusal.with_problems(vec![Problem {
            pointer: "/digest".to_owned(),
            problem: "is not the digest of the current proposal".to_owned(),
        }]),
        VoteError::Elsewhere => refusal.with_problems(vec![Problem {
            pointer: "/args".to_owned(),
            problem: "would have other tenants asked than those that are".to_owned(),
        }]),
        VoteError::Late { .. }
        | VoteError::Twice
        | VoteError::Author
        | VoteError::Full
        | VoteError::NotAsked
        | VoteError::Unchanged => refusal,
    }
}

/// Asks Cedar whether the caller may do this, and says in words why not.
pub(crate) async fn review(
    context: &Context,
    caller: &VerifiedCaller,
    approval: &ApprovalRecord,
    action: ReviewAction,
) -> Result<Capacity, Refusal> {
    // What is over, or decided by the same person before, is said as such: nothing is given away by it.
    if approval.state != ApprovalState::Pending {
        return Err(not_counted(&VoteError::Late { state: approval.state.name() }));
    }
    let own = reviewer::voice_of(caller, approval.chain.tenant());
    let refused = match reviewer::capacity(context, caller, approval, action) {
        Ok(capacity) => return Ok(capacity),
        Err(refusal) => refusal,
    };
    if reviewer::deciders(approval).any(|decider| decider == own) {
        return Err(not_counted(&VoteError::Twice));
    }
    let mut event = people::event_of(AuditKind::Security, caller, approval);
    event.code = Some(refused.code);
    event.note = Some(refused.to_string());
    context.note(event).await;
    let now = context.ledger.store().now();
    Err(not_entitled(&refused, &show::why_not(context, caller, approval, now)))
}

fn not_entitled(refusal: &ReviewRefusal, why: &str) -> Refusal {
    let message = format!("you may not decide on this approval: {why}");
    Refusal::new(refusal.code, message).with_detail(refusal)
}

/// Takes one decision on several approvals. Only those are decided together that the same policies hold, of the same operation and with
/// arguments of the same shape: the first one that can be seen says which.
pub(crate) async fn together(
    context: &Arc<Context>,
    caller: &VerifiedCaller,
    request: BulkDecisionRequest,
) -> Result<BulkDecisionView, Refusal> {
    may_decide_at_all(context, caller, &request.reason).await?;
    if request.approvals.is_empty() || request.approvals.len() > TOGETHER_MAX {
        let problem = format!("must be 1 to {TOGETHER_MAX} approvals");
        return Err(Refusal::new(ErrorCode::ValidationError, "too many or too few at once")
            .with_problems(vec![Problem { pointer: "/approvals".to_owned(), problem }]));
    }
    let mut view = BulkDecisionView { decided: Vec::new(), refused: Vec::new() };
    let mut kind = None;
    let mut named = BTreeSet::new();
    for item in &request.approvals {
        let outcome = if named.insert(item.approval_id.clone()) {
            one_of(context, caller, &request, item, &mut kind).await
        } else {
            Err(Refusal::new(ErrorCode::ValidationError, "it is named twice"))
        };
        match outcome {
            Ok(decided) => view.decided.push(decided),
            Err(refusal) => view.refused.push(BulkRefusal {
                approval_id: item.approval_id.clone(),
                code: refusal.code,
                message: refusal.message,
            }),
        }
    }
    Ok(view)
}

/// What is equal of all approvals that are decided together.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Kind {
    capability: CapabilityId,
    policies: BTreeSet<String>,
    shape: BTreeSet<String>,
}

/// The digest of what the caller is shown of an approval, and what of it has to be equal to be decided together: nothing that is masked
/// for them, and no policy that they are not told of.
async fn shown_of(
    context: &Context,
    caller: &VerifiedCaller,
    approval: &ApprovalRecord,
) -> Result<(Digest, Kind), Refusal> {
    let proposal = context.ledger.proposal(approval).await;
    let evidence = proposal.map_err(|error| ledger_refusal(&error))?.evidence;
    let (digest, requirement) = if external::is_external(caller, approval) {
        let part = external::part_of(approval, Some(&evidence), caller.tenant());
        (part.digest(), part.requirement)
    } else {
        (approval.shown(), approval.requirement.clone())
    };
    let mut shape = BTreeSet::new();
    shape_of(&evidence.preview, "", &mut shape);
    let policies = requirement.reasons.into_iter().map(|reason| reason.policy).collect();
    Ok((digest, Kind { capability: approval.capability.clone(), policies, shape }))
}

async fn one_of(
    context: &Arc<Context>,
    caller: &VerifiedCaller,
    request: &BulkDecisionRequest,
    item: &BulkItem,
    kind: &mut Option<Kind>,
) -> Result<ApprovalView, Refusal> {
    let approval = people::visible(context, caller, &item.approval_id).await?;
    let (shown, own) = shown_of(context, caller, &approval).await?;
    // What somebody was not shown is compared with nothing.
    if item.digest != shown {
        return Err(not_counted(&VoteError::Stale));
    }
    let differs = match kind.get_or_insert_with(|| own.clone()) {
        first if first.capability != own.capability => Some("it is for another operation"),
        first if first.policies != own.policies => Some("other policies hold it"),
        first if first.shape != own.shape => Some("its arguments have another shape"),
        _ => None,
    };
    if let Some(differs) = differs {
        let message = format!("{differs} than the first; decide on it by itself");
        return Err(Refusal::new(ErrorCode::ValidationError, message));
    }
    let decision = DecisionRequest {
        decision: request.decision,
        reason: request.reason.clone(),
        digest: item.digest,
    };
    decide(context, caller, &item.approval_id, decision).await
}

/// The places of a value and what kind of thing stands there; the items of a list count as one.
fn shape_of(value: &Value, place: &str, shape: &mut BTreeSet<String>) {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "text",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    };
    shape.insert(format!("{place}:{kind}"));
    match value {
        Value::Object(fields) => {
            for (name, inner) in fields {
                shape_of(inner, &format!("{place}/{name}"), shape);
            }
        }
        Value::Array(items) => {
            for inner in items {
                shape_of(inner, &format!("{place}/*"), shape);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desk::board::tests::vote;

    #[test]
    fn the_token_of_an_external_approver_is_in_no_note_of_the_host_whomever_they_decide_for() {
        let known = Vote { token_ref: Some("tok_1".to_owned()), ..vote("gil", VoteChoice::Deny) };
        for (tenant, colleague, said) in [
            (None, None, "denied with tok_1"),
            (None, Some("ben"), "denied for ben with tok_1"),
            (Some("globex"), None, "denied as an external approver of globex"),
            (Some("globex"), Some("gus"), "denied for gus as an external approver of globex"),
        ] {
            let tenant = tenant.map(|tenant| tenant.parse().unwrap());
            let stands_for = colleague.map(|colleague| colleague.parse().unwrap());
            assert_eq!(noted(&Vote { tenant, stands_for, ..known.clone() }), said);
        }
    }
}
