//! Deciding on an approval, or on several at once.
//!
//! Owns what a decision does. Invariants: a decision names the digest of what was shown, and is recorded with it; one that comes late or
//! twice changes nothing and says so; of several decided together each is asked about, counted and recorded by itself.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use placet_identity::VerifiedCaller;
use placet_ledger::{
    approval::{ApprovalRecord, ApprovalState, VoteError},
    audit::AuditKind,
    ledger::LedgerError,
    refusal::ledger_refusal,
    store::StoreError,
};
use placet_policy::review::{ReviewAction, ReviewRefusal};
use placet_types::{
    approval::Vote,
    digest::Digest,
    error::{ErrorCode, Problem, Refusal},
    ids::{ApprovalId, CapabilityId},
};
use serde_json::Value;

use crate::{
    audit,
    ballot::{action_of, noted, vote_of},
    external, listing,
    refusals::{check_reason, crowded, not_counted, revoked},
    reviewer::{self, Capacity, why_not},
    service::Approvals,
    views::{
        ApprovalView, BULK_MAX, BulkDecisionRequest, BulkDecisionView, BulkItem, BulkRefusal,
        DecisionRequest,
    },
};

/// How long people wait for what is in force in the approval service to be read.
pub(crate) const KNOWN_WITHIN: Duration = Duration::from_secs(10);
/// How often a decision is tried again when another one came first.
const TRIES: usize = 8;

impl Approvals {
    /// Takes a person's decision on an approval.
    ///
    /// # Errors
    /// [`Refusal`] when the person may not decide, decided before, or was shown something else.
    pub async fn decide(
        self: &Arc<Self>,
        caller: &VerifiedCaller,
        approval_id: &ApprovalId,
        request: DecisionRequest,
    ) -> Result<ApprovalView, Refusal> {
        may_decide_at_all(self, caller, &request.reason).await?;
        for _ in 0..TRIES {
            let approval = listing::visible(self, caller, approval_id).await?;
            let capacity = review(self, caller, &approval, action_of(request.decision)).await?;
            // An external approver names the digest of their part; what the vote counts for is the proposal that it is a part of.
            let (named, part) = external::digest_for(self, caller, &approval).await?;
            if request.digest != named {
                return Err(not_counted(&VoteError::Stale));
            }
            let mut vote = vote_of(
                caller,
                &capacity,
                request.decision,
                &request.reason,
                approval.proposal,
                self.ledger.store().now(),
            );
            vote.part_digest = part;
            match cast(self, caller, &approval, vote).await {
                // It moved on between reading and voting: how, the next look says.
                Err(LedgerError::Store(StoreError::Conflict) | LedgerError::WrongState(_)) => {}
                Err(LedgerError::Vote(error)) => return Err(not_counted(&error)),
                Err(error) => {
                    self.node.noticed(&error);
                    return Err(ledger_refusal(&error));
                }
                Ok(next) => {
                    self.decided(&next).await;
                    return Ok(external::view_for(self, caller, &next).await);
                }
            }
        }
        Err(crowded())
    }
}

/// Refuses anyone who cannot decide on anything here and now: also whose duty or token is over by what another node has acknowledged.
pub(crate) async fn may_decide_at_all(
    service: &Arc<Approvals>,
    caller: &VerifiedCaller,
    reason: &str,
) -> Result<(), Refusal> {
    check_reason(reason, "/reason")?;
    reviewer::must_be_person(caller)?;
    service.node.health().cannot_decide().map_or(Ok(()), Err)?;
    service.must_be_current(KNOWN_WITHIN).await?;
    if service.is_revoked(caller) { Err(revoked()) } else { Ok(()) }
}

async fn cast(
    service: &Approvals,
    caller: &VerifiedCaller,
    approval: &ApprovalRecord,
    vote: Vote,
) -> Result<ApprovalRecord, LedgerError> {
    let part = vote.part_digest;
    let mut event = audit::of_decision(AuditKind::Voted, caller, approval);
    event.note = Some(noted(&vote));
    event.digests.insert("shown".to_owned(), part.unwrap_or(approval.proposal));
    if part.is_some() {
        event.digests.insert("proposal".to_owned(), approval.proposal);
    }
    service.ledger.vote(approval, vote, event).await
}

/// Asks Cedar whether the caller may do this, and says in words why not.
pub(crate) async fn review(
    service: &Approvals,
    caller: &VerifiedCaller,
    approval: &ApprovalRecord,
    action: ReviewAction,
) -> Result<Capacity, Refusal> {
    // What is over, or decided by the same person before, is said as such: nothing is given away by it.
    if approval.state != ApprovalState::Pending {
        return Err(not_counted(&VoteError::Late { state: approval.state.name() }));
    }
    let own = reviewer::voice_of(caller, approval.chain.tenant());
    let refused = match reviewer::capacity(service, caller, approval, action) {
        Ok(capacity) => return Ok(capacity),
        Err(refusal) => refusal,
    };
    if reviewer::deciders(approval).any(|decider| decider == own) {
        return Err(not_counted(&VoteError::Twice));
    }
    let mut event = audit::of_decision(AuditKind::Security, caller, approval);
    event.code = Some(refused.code);
    event.note = Some(refused.to_string());
    service.note(event).await;
    let now = service.ledger.store().now();
    Err(not_entitled(&refused, &why_not(service, caller, approval, now)))
}

fn not_entitled(refusal: &ReviewRefusal, why: &str) -> Refusal {
    let message = format!("you may not decide on this approval: {why}");
    Refusal::new(refusal.code, message).with_detail(refusal)
}

impl Approvals {
    /// Takes one decision on several approvals. Only those are decided together that the same policies hold, of the same operation and with
    /// arguments of the same shape: the first one that can be seen says which. Each is decided and recorded by itself.
    ///
    /// # Errors
    /// [`Refusal`] when nothing can be decided at all. What single approvals are refused for is in the answer.
    pub async fn decide_bulk(
        self: &Arc<Self>,
        caller: &VerifiedCaller,
        request: BulkDecisionRequest,
    ) -> Result<BulkDecisionView, Refusal> {
        may_decide_at_all(self, caller, &request.reason).await?;
        if request.approvals.is_empty() || request.approvals.len() > BULK_MAX {
            let problem = format!("must be 1 to {BULK_MAX} approvals");
            return Err(Refusal::new(ErrorCode::ValidationError, "too many or too few at once")
                .with_problems(vec![Problem { pointer: "/approvals".to_owned(), problem }]));
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
    service: &Approvals,
    caller: &VerifiedCaller,
    approval: &ApprovalRecord,
) -> Result<(Digest, Kind), Refusal> {
    let proposal = service.ledger.proposal(approval).await;
    let evidence = proposal.map_err(|error| ledger_refusal(&error))?.evidence;
    let (digest, requirement) = if reviewer::is_external(caller, approval) {
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
    service: &Arc<Approvals>,
    caller: &VerifiedCaller,
    request: &BulkDecisionRequest,
    item: &BulkItem,
    kind: &mut Option<Kind>,
) -> Result<ApprovalView, Refusal> {
    let approval = listing::visible(service, caller, &item.approval_id).await?;
    let (shown, own) = shown_of(service, caller, &approval).await?;
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
    service.decide(caller, &item.approval_id, decision).await
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
