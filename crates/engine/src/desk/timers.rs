//! What the approval service does when something is due: another group is asked.
//!
//! Owns the escalation of a silent approval. When it is due is the board's; how often the board is looked at is the approval service actor's.

use std::sync::Arc;

use placet_ledger::{
    approval::{ApprovalRecord, ApprovalState},
    audit::{AuditEvent, AuditKind},
    ledger::LedgerError,
    store::StoreError,
};
use placet_types::ids::ApprovalId;

use super::decide;
use crate::context::Context;

/// Asks the next group of an approval, if it is still due.
pub(crate) async fn escalate(context: &Arc<Context>, approval_id: &ApprovalId) {
    match try_escalate(context, approval_id).await {
        Ok(()) => {}
        // Somebody decided at this moment, or another node asked them; the board hears of it.
        Err(LedgerError::Vote(_) | LedgerError::Store(StoreError::Conflict)) => {}
        Err(error) => {
            context.noticed(&error);
            tracing::warn!(%error, %approval_id, "the next group could not be asked");
        }
    }
}

async fn try_escalate(context: &Arc<Context>, approval_id: &ApprovalId) -> Result<(), LedgerError> {
    let store = context.ledger.store();
    let Some(approval) = store.approval(approval_id).await? else {
        context.desk.board.forget(approval_id);
        return Ok(());
    };
    let due = approval.escalation_due().is_some_and(|due| due <= store.now());
    if approval.state != ApprovalState::Pending || !due {
        context.desk.moved(context, &approval);
        return Ok(());
    }
    let next = context.ledger.escalate_approval(&approval, event_of(&approval)).await?;
    decide::after_vote(context, &next).await;
    Ok(())
}

fn event_of(approval: &ApprovalRecord) -> AuditEvent {
    let mut event = AuditEvent::new(AuditKind::Escalated);
    event.tenant = Some(approval.chain.tenant().clone());
    event.call_id = Some(approval.call_id.clone());
    event.capability = Some(approval.capability.clone());
    event.chain = Some(approval.chain.clone());
    event.record_id = Some(approval.record_id);
    event.approval_id = Some(approval.approval_id.clone());
    event.digests.insert("request".to_owned(), approval.request_digest);
    let next = usize::try_from(approval.escalated).ok();
    let escalation = next.and_then(|next| approval.requirement.escalations.get(next));
    event.note = escalation.map(|escalation| format!("{} is asked", escalation.group));
    event
}
