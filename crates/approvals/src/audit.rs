//! Audit events of approvals and arrangements.
//!
//! Owns which fields an event has. Records nothing itself.

use placet_identity::VerifiedCaller;
use placet_ledger::{
    approval::ApprovalRecord,
    audit::{AuditEvent, AuditKind},
    record::EffectRecord,
};

/// An event of an approval that moves without a decision.
fn of_approval(kind: AuditKind, approval: &ApprovalRecord) -> AuditEvent {
    let mut event = AuditEvent::new(kind);
    event.tenant = Some(approval.chain.tenant().clone());
    event.call_id = Some(approval.call_id.clone());
    event.capability = Some(approval.capability.clone());
    event.chain = Some(approval.chain.clone());
    event.record_id = Some(approval.record_id);
    event.approval_id = Some(approval.approval_id.clone());
    event.digests.insert("request".to_owned(), approval.request_digest);
    event
}

/// An event of an approval that the caller acts on: it belongs to the asking tenant, whatever the caller's tenant.
pub(crate) fn of_decision(
    kind: AuditKind,
    caller: &VerifiedCaller,
    approval: &ApprovalRecord,
) -> AuditEvent {
    let mut event = of_approval(kind, approval);
    event.chain = Some(caller.chain());
    // The other audiences of an external approver's token concern only their own tenant.
    if caller.tenant() == approval.chain.tenant() {
        event.audiences = caller.several_audiences();
    }
    event
}

/// An event of an approval that ends.
pub(crate) fn of_end(approval: &ApprovalRecord, record: &EffectRecord) -> AuditEvent {
    let mut event = of_approval(AuditKind::ApprovalEnded, approval);
    event.run_id = Some(record.run_id.clone());
    event
}

/// An event for asking the next group.
pub(crate) fn of_escalation(approval: &ApprovalRecord) -> AuditEvent {
    let mut event = of_approval(AuditKind::Escalated, approval);
    let next = usize::try_from(approval.escalated).ok();
    let escalation = next.and_then(|next| approval.requirement.escalations.get(next));
    event.note = escalation.map(|escalation| format!("{} is asked", escalation.group));
    event
}

/// An event of something else that the caller does.
pub fn of_caller(kind: AuditKind, caller: &VerifiedCaller) -> AuditEvent {
    let mut event = AuditEvent::new(kind);
    event.tenant = Some(caller.tenant().clone());
    event.chain = Some(caller.chain());
    event.audiences = caller.several_audiences();
    event
}
