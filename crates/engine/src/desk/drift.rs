//! Contracts that drift while people think: what waits for a capability that is no longer what was held ends as void.
//!
//! Owns the look for such approvals. That a live definition differs from its pin is found in `adapters::pins`; that a contract is another
//! one, in `redecide`. Invariant: nothing is ended here that could still run; what this misses the redemption finds.

use std::sync::Arc;

use placet_ledger::{
    approval::{ApprovalRecord, ApprovalState},
    audit::{AuditEvent, AuditKind},
    store::StoreError,
};
use placet_types::{
    error::ErrorCode,
    ids::{ApprovalId, CapabilityId},
};

use super::resume;
use crate::{adapters::ports::Connection, context::Context};

/// The live definition of a capability is not the one that was reviewed: everything that waits for it ends.
pub(crate) fn drifted(context: &Arc<Context>, capability: &CapabilityId) {
    let waiting = context.desk.board.of_capability(capability);
    if waiting.is_empty() {
        return;
    }
    let (owner, capability) = (Arc::clone(context), capability.clone());
    context.registry.spawn(async move {
        let mut event = AuditEvent::new(AuditKind::Security);
        event.capability = Some(capability);
        event.code = Some(ErrorCode::ApprovalVoid);
        event.note = Some(format!(
            "the tool is not what its contract says: {} approvals that wait for it end",
            waiting.len()
        ));
        owner.note(event).await;
        for approval_id in waiting {
            end(
                &owner,
                &approval_id,
                "the tool changed upstream since it was reviewed; an operator has to review it",
            )
            .await;
        }
    });
}

/// Compares the live definitions of every adapter that something waits for.
pub(crate) async fn round(context: &Arc<Context>) {
    for capability in context.desk.board.capabilities() {
        if context.stopping() {
            return;
        }
        let active = context.active();
        let Some(port) = active.ports.of(capability.adapter()) else { continue };
        let Connection::Up(connection) = port.connection() else { continue };
        let Some(known) = port.contract.capabilities.get(capability.capability()) else { continue };
        if port.is_drifted(connection.as_ref(), known, context.settings.live_list_ms_max).await {
            drifted(context, &capability);
        }
    }
}

pub(super) async fn end(context: &Arc<Context>, approval_id: &ApprovalId, reason: &str) {
    match read(context, approval_id).await {
        Ok(Some((approval, record))) => resume::void(context, &approval, &record, reason).await,
        Ok(None) => {}
        Err(error) => {
            context.noticed(&error.clone().into());
            tracing::warn!(%error, %approval_id, "an approval of a drifted tool could not be read");
        }
    }
}

pub(super) async fn read(
    context: &Context,
    approval_id: &ApprovalId,
) -> Result<Option<(ApprovalRecord, placet_ledger::record::EffectRecord)>, StoreError> {
    let store = context.ledger.store();
    let Some(approval) = store.approval(approval_id).await? else { return Ok(None) };
    if !matches!(approval.state, ApprovalState::Pending | ApprovalState::Approved) {
        return Ok(None);
    }
    let record = store.effect(approval.record_id).await?;
    let record = record.filter(|record| record.state.approval_id() == Some(approval_id));
    Ok(record.map(|record| (approval, record)))
}
