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
    store::StoreError,
};
use placet_types::{
    error::{ErrorCode, Refusal},
    ids::ApprovalId,
};

use super::{decide, external, outcome, people, resume, reviewer};
use crate::{
    context::{Context, ledger_refusal},
    stages::{broker, recorded},
    views::{ApprovalView, WithdrawalRequest},
};

/// How often a withdrawal is tried again when something else moved the approval first.
const TRIES: usize = 8;

/// Withdraws the call of an approval.
pub(crate) async fn withdraw(
    context: &Arc<Context>,
    caller: &VerifiedCaller,
    approval_id: &ApprovalId,
    request: WithdrawalRequest,
) -> Result<ApprovalView, Refusal> {
    people::check_reason(&request.reason, "/reason")?;
    context.standing.cannot_decide().map_or(Ok(()), Err)?;
    context.desk.must_be_current(context, decide::KNOWN_WITHIN).await?;
    if context.is_revoked(caller) {
        return Err(broker::revoked());
    }
    for _ in 0..TRIES {
        let approval = people::visible(context, caller, approval_id).await?;
        must_be_open(context, caller, &approval).await?;
        may_withdraw(context, caller, &approval).await?;
        match end(context, caller, &approval, &request.reason).await {
            Ok(view) => return Ok(view),
            // It moved on between reading and writing: how, the next look says.
            Err(LedgerError::Store(StoreError::Conflict) | LedgerError::WrongState(_)) => {}
            Err(error) => {
                context.noticed(&error);
                return Err(ledger_refusal(&error));
            }
        }
    }
    Err(decide::crowded())
}

async fn must_be_open(
    context: &Context,
    caller: &VerifiedCaller,
    approval: &ApprovalRecord,
) -> Result<(), Refusal> {
    if matches!(approval.state, ApprovalState::Pending | ApprovalState::Approved) {
        return Ok(());
    }
    let state = outcome::seen(context, caller, approval).await;
    let message = format!("the call is {state}; only a call that was not sent can be withdrawn");
    Err(Refusal::new(ErrorCode::ValidationError, message))
}

async fn may_withdraw(
    context: &Context,
    caller: &VerifiedCaller,
    approval: &ApprovalRecord,
) -> Result<(), Refusal> {
    let Err(refused) = reviewer::may_withdraw(context, caller, approval) else { return Ok(()) };
    let mut event = people::event_of(AuditKind::Security, caller, approval);
    event.code = Some(refused.code);
    event.note = Some(refused.to_string());
    context.note(event).await;
    let message = "you may not withdraw this call: its agent, the agent's owner and operators may, where the policies let them";
    Err(Refusal::new(refused.code, message).with_detail(refused))
}

async fn end(
    context: &Arc<Context>,
    caller: &VerifiedCaller,
    approval: &ApprovalRecord,
    reason: &str,
) -> Result<ApprovalView, LedgerError> {
    let now = context.ledger.store().now();
    let mut event = people::event_of(AuditKind::ApprovalEnded, caller, approval);
    event.code = Some(ErrorCode::ApprovalWithdrawn);
    event.note = Some("withdrawn".to_owned());
    let end = ApprovalState::Withdrawn {
        by: caller.actor.principal().id.clone(),
        reason: reason.to_owned(),
        at: now,
    };
    let ended = context.ledger.end_approval(approval, end, event).await?;
    context.desk.moved(context, &ended);
    context.routes.approval_over(&approval.approval_id);
    context.metrics.approval_ended("withdrawn", approval, now.as_ms());
    if let Ok(Some(record)) = context.ledger.store().effect(approval.record_id).await {
        let refusal = recorded::denied(ErrorCode::ApprovalWithdrawn);
        resume::publish_end(context, &record, refusal).await;
    }
    Ok(external::view_for(context, caller, &ended).await)
}
