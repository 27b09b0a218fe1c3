//! Tool drift during approval: what waits for a capability that no longer matches its reviewed definition becomes void.
//!
//! Owns the search for such approvals. That a live definition differs from its pin is detected in `adapters::pins`; that a contract has
//! changed, in `placet_approvals::redecision`. Invariant: nothing is ended here that could still run; what this misses is caught at
//! redemption.

use std::sync::Arc;

use placet_ledger::audit::{AuditEvent, AuditKind};
use placet_types::{error::ErrorCode, ids::CapabilityId, mode::ApprovalMode};

use crate::{adapters::ports::Connection, context::Context, outcome::Outcomes};

/// The live definition of a capability is not the reviewed one: its alias is withdrawn, and every approval that waits for it ends.
pub(crate) fn drifted(outcomes: &Arc<Outcomes>, capability: &CapabilityId) {
    outcomes.aliases.withdraw(&outcomes.current.active(), capability);
    let waiting = outcomes.approvals.pending.of_capability(capability);
    if waiting.is_empty() {
        return;
    }
    let (owner, capability) = (Arc::clone(outcomes), capability.clone());
    outcomes.registry.spawn(async move {
        let mut event = AuditEvent::new(AuditKind::Security);
        event.capability = Some(capability);
        event.code = Some(ErrorCode::ApprovalVoid);
        event.note = Some(format!(
            "the tool is not what its contract says: {} approvals that wait for it end",
            waiting.len()
        ));
        owner.note(event).await;
        for approval_id in waiting {
            let reason =
                "the tool changed upstream since it was reviewed; an operator has to review it";
            owner.approvals.void_if_open(&approval_id, reason).await;
        }
    });
}

/// Compares the live definition of every capability that an approval waits for.
pub(crate) async fn round(context: &Arc<Context>) {
    for capability in context.approvals.pending.capabilities() {
        if context.node.is_stopping() {
            return;
        }
        if is_drifted(context, &capability, Asked::InPassing).await {
            drifted(&context.outcomes, &capability);
        }
    }
}

/// What a comparison is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// People are about to be asked: a destructive tool is listed at this moment.
    ForPeople,
    /// A list that is not too old will do.
    InPassing,
}

/// Whether the live definition of a capability differs from its pin, as far as that can be determined now.
pub(crate) async fn is_drifted(context: &Context, capability: &CapabilityId, asked: Asked) -> bool {
    let active = context.current.active();
    let Some(port) = active.ports.of(capability.adapter()) else { return false };
    let Connection::Up(connection) = port.connection() else { return false };
    let Some(known) = port.contract.capabilities.get(capability.capability()) else { return false };
    let at_once = asked == Asked::ForPeople && known.mode_highest == ApprovalMode::Destructive;
    let fresh_ms = if at_once { 0 } else { context.settings.live_list_ms_max };
    port.is_drifted(connection.as_ref(), known, fresh_ms).await
}
