//! Withdrawing a held call: it ends and does not run.
//!
//! Owns what a withdrawal does. Who may is Cedar's answer. Invariant: a call that was sent is not withdrawn; where both are tried at the same
//! moment, the ledger lets only one of them through.

use std::sync::Arc;

use placet_identity::VerifiedCaller;
use placet_ledger::{
    approval::{ApprovalRecord, ApprovalState},
    audit::AuditKind,
    ledger::LedgerError,
    refusal::ledger_refusal,
    store::StoreError,
};
use placet_types::{
    error::{ErrorCode, Refusal},
    ids::ApprovalId,
};

use crate::{
    audit, decision, external, listing, outcome,
    refusals::{check_reason, crowded, revoked},
    reviewer,
    service::Approvals,
    views::{ApprovalView, WithdrawalRequest},
};

/// How often a withdrawal is tried again when something else moved the approval first.
const TRIES: usize = 8;

impl Approvals {
    /// Withdraws a held call, so that it ends and does not run.
    ///
    /// # Errors
    /// [`Refusal`] when policy does not let the caller, or the call was sent or has ended.
    pub async fn withdraw(
        self: &Arc<Self>,
        caller: &VerifiedCaller,
        approval_id: &ApprovalId,
        request: WithdrawalRequest,
    ) -> Result<ApprovalView, Refusal> {
        check_reason(&request.reason, "/reason")?;
        self.node.health().cannot_decide().map_or(Ok(()), Err)?;
        self.must_be_current(decision::KNOWN_WITHIN).await?;
        if self.is_revoked(caller) {
            return Err(revoked());
        }
        for _ in 0..TRIES {
            let approval = listing::visible(self, caller, approval_id).await?;
            must_be_open(self, caller, &approval).await?;
            may_withdraw(self, caller, &approval).await?;
            match end(self, caller, &approval, &request.reason).await {
                Ok(view) => return Ok(view),
                // It moved on between reading and writing: how, the next look says.
                Err(LedgerError::Store(StoreError::Conflict) | LedgerError::WrongState(_)) => {}
                Err(error) => {
                    self.node.noticed(&error);
                    return Err(ledger_refusal(&error));
                }
            }
        }
        Err(crowded())
    }
}

async fn must_be_open(
    service: &Approvals,
    caller: &VerifiedCaller,
    approval: &ApprovalRecord,
) -> Result<(), Refusal> {
    if approval.state.is_open() {
        return Ok(());
    }
    let state = outcome::seen(service, caller, approval).await;
    let message = format!("the call is {state}; only a call that was not sent can be withdrawn");
    Err(Refusal::new(ErrorCode::ValidationError, message))
}

async fn may_withdraw(
    service: &Approvals,
    caller: &VerifiedCaller,
    approval: &ApprovalRecord,
) -> Result<(), Refusal> {
    let Err(refused) = reviewer::may_withdraw(service, caller, approval) else { return Ok(()) };
    let mut event = audit::of_decision(AuditKind::Security, caller, approval);
    event.code = Some(refused.code);
    event.note = Some(refused.to_string());
    service.note(event).await;
    let message = "you may not withdraw this call: its agent, the agent's owner and operators may, where the policies let them";
    Err(Refusal::new(refused.code, message).with_detail(refused))
}

async fn end(
    service: &Arc<Approvals>,
    caller: &VerifiedCaller,
    approval: &ApprovalRecord,
    reason: &str,
) -> Result<ApprovalView, LedgerError> {
    let now = service.ledger.store().now();
    let mut event = audit::of_decision(AuditKind::ApprovalEnded, caller, approval);
    event.code = Some(ErrorCode::ApprovalWithdrawn);
    event.note = Some("withdrawn".to_owned());
    let end = ApprovalState::Withdrawn {
        by: caller.actor.principal().id.clone(),
        reason: reason.to_owned(),
        at: now,
    };
    let ended = service.ledger.end_approval(approval, end, event).await?;
    service.decided(&ended).await;
    Ok(external::view_for(service, caller, &ended).await)
}
