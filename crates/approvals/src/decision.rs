//! Deciding on an approval or on several at once, and withdrawing a held call.
//!
//! Owns what a decision does and what a vote records. Invariants: a decision names the digest of what was shown, and is recorded with it; a
//! late or repeated one changes nothing and is reported as such; in a bulk decision each approval is checked, counted and recorded by
//! itself; a call that was sent is not withdrawn: if both are attempted at the same time, the ledger lets only one of them through.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use placet_identity::VerifiedCaller;
use placet_ledger::{
    approval::{ApprovalRecord, ApprovalState, VoteError},
    audit::{AuditEvent, AuditKind},
};
use placet_policy::review::{ReviewAction, ReviewRefusal};
use placet_types::{
    approval::{Vote, VoteChoice},
    digest::Digest,
    error::{ErrorCode, Refusal},
    ids::{ApprovalId, CapabilityId},
};
use serde_json::Value;

use crate::{
    audit, listing, outcome, presentation,
    refusals::{check_reason, crowded, not_counted, read, refused, revoked},
    reviewer::{self, Capacity, why_not},
    service::Approvals,
    views::{
        ApprovalView, BULK_MAX, BulkDecisionRequest, BulkDecisionView, BulkItem, BulkRefusal,
        DecisionRequest, WithdrawalRequest,
    },
};

/// How long a decision waits for the directives in force to be read.
const KNOWN_WITHIN: Duration = Duration::from_secs(10);
/// How often a decision is tried again when another one was faster.
pub(crate) const TRIES: usize = 8;
/// How much of a client's name is recorded.
const CLIENT_CHARS_MAX: usize = 128;

impl Approvals {
    /// Records a person's decision on an approval.
    ///
    /// # Errors
    /// [`Refusal`] when the person may not decide, decided before, or was shown something else.
    pub async fn decide(
        self: &Arc<Self>,
        caller: &VerifiedCaller,
        approval_id: &ApprovalId,
        request: DecisionRequest,
    ) -> Result<ApprovalView, Refusal> {
        may_decide_at_all(self, caller, &request.reason, "/reason").await?;
        for _ in 0..TRIES {
            let approval = listing::visible(self, caller, approval_id).await?;
            let capacity = review(self, caller, &approval, action_of(request.decision)).await?;
            // An external approver names the digest of their part; the vote counts for the proposal that it is part of.
            let (named, part) = presentation::digest_for(self, caller, &approval).await?;
            if request.digest != named {
                return Err(not_counted(&VoteError::Stale));
            }
            let vote = Vote {
                part_digest: part,
                ..self.vote_of(
                    caller,
                    &capacity,
                    request.decision,
                    &request.reason,
                    approval.proposal,
                )
            };
            let event = voted(caller, &approval, &vote);
            if let Some(next) = self.written(self.ledger.vote(&approval, vote, event).await)? {
                self.decided(&next).await;
                return Ok(presentation::view_for(self, caller, &next).await);
            }
        }
        Err(crowded())
    }

    /// Withdraws a held call, so that it ends without running.
    ///
    /// # Errors
    /// [`Refusal`] when policy does not permit it, or the call was sent or has ended.
    pub async fn withdraw(
        self: &Arc<Self>,
        caller: &VerifiedCaller,
        approval_id: &ApprovalId,
        request: WithdrawalRequest,
    ) -> Result<ApprovalView, Refusal> {
        may_act_at_all(self, caller, &request.reason, "/reason").await?;
        for _ in 0..TRIES {
            let approval = listing::visible(self, caller, approval_id).await?;
            if !approval.state.is_open() {
                let state = outcome::seen(self, caller, &approval).await;
                let message =
                    format!("the call is {state}; only a call that was not sent can be withdrawn");
                return Err(Refusal::new(ErrorCode::ValidationError, message));
            }
            if let Err(refused) = reviewer::may_withdraw(self, caller, &approval) {
                let message = "you may not withdraw this call: its agent, the agent's owner and operators may, where the policies let them";
                return Err(not_entitled(self, caller, &approval, &refused, message).await);
            }
            let mut event = audit::of_decision(AuditKind::ApprovalEnded, caller, &approval);
            event.code = Some(ErrorCode::ApprovalWithdrawn);
            event.note = Some(format!("withdrawn; why: {}", request.reason));
            let end = ApprovalState::Withdrawn {
                by: caller.actor.principal().id.clone(),
                reason: request.reason.clone(),
                at: self.ledger.store().now(),
            };
            let ended = self.ledger.end_approval(&approval, end, event).await;
            if let Some(ended) = self.written(ended)? {
                self.decided(&ended).await;
                return Ok(presentation::view_for(self, caller, &ended).await);
            }
        }
        Err(crowded())
    }

    /// The vote of a caller in a capacity.
    pub(crate) fn vote_of(
        &self,
        caller: &VerifiedCaller,
        capacity: &Capacity,
        choice: VoteChoice,
        reason: &str,
        shown: Digest,
    ) -> Vote {
        // The client of an external approver concerns only their own tenant.
        let client = caller.actor.client().filter(|_| capacity.external_of.is_none());
        let legible = |client: &str| {
            client.chars().filter(|c| !c.is_control()).take(CLIENT_CHARS_MAX).collect()
        };
        Vote {
            approver: caller.actor.principal().id.clone(),
            tenant: capacity.external_of.clone(),
            stands_for: capacity.stands_for.clone(),
            authenticated_at: caller.actor.authenticated_at(),
            groups: capacity.groups.clone(),
            groups_as_of: capacity.groups_as_of,
            claimed: capacity.claimed.clone(),
            client: client.map(legible),
            token_ref: Some(caller.actor.token_ref()),
            choice,
            reason: reason.to_owned(),
            at: self.ledger.store().now(),
            shown_digest: shown,
            part_digest: None,
        }
    }
}

/// The action that Cedar is asked about.
pub(crate) const fn action_of(choice: VoteChoice) -> ReviewAction {
    match choice {
        VoteChoice::Approve => ReviewAction::Approve,
        VoteChoice::Deny => ReviewAction::Deny,
    }
}

/// The audit note of a decision.
pub(crate) fn noted(vote: &Vote) -> String {
    let word = match vote.choice {
        VoteChoice::Approve => "approved",
        VoteChoice::Deny => "denied",
    };
    let word = match &vote.stands_for {
        Some(colleague) => format!("{word} for {colleague}"),
        None => word.to_owned(),
    };
    // The token of an external approver concerns only their own tenant.
    match &vote.tenant {
        Some(tenant) => format!("{word} as an external approver of {tenant}"),
        None => format!("{word}{}", vote.with_token()),
    }
}

/// Refuses callers who cannot decide on anything here and now.
pub(crate) async fn may_decide_at_all(
    service: &Arc<Approvals>,
    caller: &VerifiedCaller,
    reason: &str,
    pointer: &str,
) -> Result<(), Refusal> {
    if !reviewer::is_person(caller) {
        let message = "a person decides in their own name, not through an agent";
        return Err(Refusal::new(ErrorCode::PolicyDenied, message));
    }
    may_act_at_all(service, caller, reason, pointer).await
}

/// Also refuses those whose duty or token has ended according to another node.
async fn may_act_at_all(
    service: &Arc<Approvals>,
    caller: &VerifiedCaller,
    reason: &str,
    pointer: &str,
) -> Result<(), Refusal> {
    check_reason(reason, pointer)?;
    service.node.health().cannot_decide().map_or(Ok(()), Err)?;
    service.must_be_current(KNOWN_WITHIN).await?;
    if service.is_revoked(caller) { Err(revoked()) } else { Ok(()) }
}

fn voted(caller: &VerifiedCaller, approval: &ApprovalRecord, vote: &Vote) -> AuditEvent {
    let mut event = audit::of_decision(AuditKind::Voted, caller, approval);
    event.note = Some(noted(vote));
    event.digests.insert("shown".to_owned(), vote.part_digest.unwrap_or(approval.proposal));
    if vote.part_digest.is_some() {
        event.digests.insert("proposal".to_owned(), approval.proposal);
    }
    event
}

/// Asks Cedar whether the caller may do this; a refusal says why.
pub(crate) async fn review(
    service: &Approvals,
    caller: &VerifiedCaller,
    approval: &ApprovalRecord,
    action: ReviewAction,
) -> Result<Capacity, Refusal> {
    // That it has ended, or was decided by the same person before, may be said: it gives nothing away.
    if approval.state != ApprovalState::Pending {
        return Err(not_counted(&VoteError::Late { state: approval.state.name() }));
    }
    let own = reviewer::voice_of(caller, approval.chain.tenant());
    let refused = match reviewer::capacity(service, caller, approval, action) {
        Ok(capacity) => return Ok(capacity),
        Err(refusal) => refusal,
    };
    if approval.deciders().any(|decider| decider == own) {
        return Err(not_counted(&VoteError::Twice));
    }
    let why = why_not(service, caller, approval, refused.needs_fresh_auth);
    let message = format!("you may not decide on this approval: {why}");
    Err(not_entitled(service, caller, approval, &refused, &message).await)
}

/// A refusal by policy: its cause for the audit, one sentence for the caller.
async fn not_entitled(
    service: &Approvals,
    caller: &VerifiedCaller,
    approval: &ApprovalRecord,
    refused: &ReviewRefusal,
    message: &str,
) -> Refusal {
    let mut event = audit::of_decision(AuditKind::Security, caller, approval);
    event.code = Some(refused.code);
    event.note = Some(refused.to_string());
    service.note(event).await;
    Refusal::new(refused.code, message).with_detail(refused)
}

impl Approvals {
    /// Takes one decision on several approvals. They must be held by the same policies, be of the same operation and have arguments of the
    /// same shape: the first visible one sets the standard. Each is decided and recorded by itself.
    ///
    /// # Errors
    /// [`Refusal`] when nothing can be decided at all. Refusals of single approvals are in the answer.
    pub async fn decide_bulk(
        self: &Arc<Self>,
        caller: &VerifiedCaller,
        request: BulkDecisionRequest,
    ) -> Result<BulkDecisionView, Refusal> {
        may_decide_at_all(self, caller, &request.reason, "/reason").await?;
        if request.approvals.is_empty() || request.approvals.len() > BULK_MAX {
            let problem = format!("must be 1 to {BULK_MAX} approvals");
            return Err(refused("too many or too few at once", "/approvals", problem));
        }
        let mut view = BulkDecisionView { decided: Vec::new(), refused: Vec::new() };
        let mut kind = None;
        let mut named = BTreeSet::new();
        for item in &request.approvals {
            let outcome = if named.insert(item.approval_id.clone()) {
                one_of(self, caller, &request, item, &mut kind).await
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
}

/// What all approvals of a bulk decision have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Kind {
    capability: CapabilityId,
    policies: BTreeSet<String>,
    shape: BTreeSet<String>,
}

/// The digest of what the caller is shown of an approval, and what of it must be equal for a bulk decision: no value that is masked for the
/// caller, and no policy that is hidden from them.
async fn shown_of(
    service: &Approvals,
    caller: &VerifiedCaller,
    approval: &ApprovalRecord,
) -> Result<(Digest, Kind), Refusal> {
    let evidence = read(service.ledger.proposal(approval).await)?.evidence;
    let (digest, requirement) = if reviewer::is_external(caller, approval) {
        let part = presentation::part_of(approval, Some(&evidence), caller.tenant());
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
    service: &Arc<Approvals>,
    caller: &VerifiedCaller,
    request: &BulkDecisionRequest,
    item: &BulkItem,
    kind: &mut Option<Kind>,
) -> Result<ApprovalView, Refusal> {
    let approval = listing::visible(service, caller, &item.approval_id).await?;
    let (shown, own) = shown_of(service, caller, &approval).await?;
    // What the caller was not shown is not compared.
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
    service.decide(caller, &item.approval_id, decision).await
}

/// The paths of a value and the type at each; the items of a list count as one.
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
    use crate::pending::tests::vote;

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
