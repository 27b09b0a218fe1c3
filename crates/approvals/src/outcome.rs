//! The state of a held call in one word: that of the approval until the call is sent, then its outcome.
//!
//! Owns the words and the stored state in which each is searched. Invariant: a call is never called a success unless its outcome is known
//! to be one.

use placet_identity::VerifiedCaller;
use placet_ledger::{
    approval::ApprovalRecord,
    record::{EffectRecord, EffectState},
    refusal::known_state,
};
use placet_types::error::Refusal;

use crate::{
    reviewer::is_external,
    service::Approvals,
    views::{APPROVAL_STATES, FINISHED},
};

/// The call was sent, and its outcome is not known to the reader: the record is no longer kept, or belongs to another tenant.
pub(crate) const SENT: &str = "sent";

/// Refuses a state that does not exist.
pub(crate) fn check(state: Option<&str>) -> Result<(), Refusal> {
    if state == Some(FINISHED) { Ok(()) } else { known_state(state, &APPROVAL_STATES) }
}

/// The stored approval state that contains the state `wanted`; `None` where there are several.
pub(crate) fn stored(wanted: &str) -> Option<&str> {
    match wanted {
        "running" | "succeeded" | "failed" | "unknown" | SENT => Some("consumed"),
        FINISHED => None,
        other => Some(other),
    }
}

/// Whether an approval that is stored in the right state is in the wanted one.
pub(crate) async fn is_wanted(
    service: &Approvals,
    caller: &VerifiedCaller,
    approval: &ApprovalRecord,
    wanted: Option<&str>,
) -> bool {
    match wanted {
        None => true,
        Some(FINISHED) => !approval.state.is_open(),
        Some(wanted) => seen(service, caller, approval).await == wanted,
    }
}

/// The state as the caller may know it: what became of a call is known only to its tenant.
pub(crate) async fn seen(
    service: &Approvals,
    caller: &VerifiedCaller,
    approval: &ApprovalRecord,
) -> &'static str {
    if !approval.is_consumed() || is_external(caller, approval) {
        return of(approval, None);
    }
    let record = service.ledger.store().effect(approval.record_id).await;
    let record = record.inspect_err(|error| tracing::info!(%error, "an outcome cannot be read"));
    of(approval, record.ok().flatten().as_ref())
}

/// The state, given the call's record if there is one.
pub(crate) fn of(approval: &ApprovalRecord, record: Option<&EffectRecord>) -> &'static str {
    if !approval.is_consumed() {
        return approval.state.name();
    }
    // A later call may have taken the key since.
    let Some(record) = record.filter(|record| record.call_id == approval.call_id) else {
        return SENT;
    };
    match &record.state {
        EffectState::Claimed { .. } | EffectState::Dispatched(_) => "running",
        // Operators have it sent again, which says nothing about what was sent under this approval.
        EffectState::Rearmed { .. } => "unknown",
        EffectState::PendingApproval { .. } | EffectState::Approved { .. }
            if record.unknown.is_some() =>
        {
            "unknown"
        }
        EffectState::Succeeded { .. } => "succeeded",
        EffectState::Indeterminate { .. } => "unknown",
        EffectState::FailedFinal { .. }
        | EffectState::FailedRetriable { .. }
        // It failed, and was tried again under another approval.
        | EffectState::PendingApproval { .. }
        | EffectState::Approved { .. }
        | EffectState::Denied { .. } => "failed",
        EffectState::Tombstone { was, .. } => match was.as_str() {
            "succeeded" => "succeeded",
            "failed_final" | "failed_retriable" => "failed",
            "indeterminate" => "unknown",
            _ => SENT,
        },
    }
}
