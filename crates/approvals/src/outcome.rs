//! How a held call stands, in one word: while people are asked, the state of the approval; once the call was sent, its outcome.
//!
//! Owns the words and which stored state each is looked for in. Invariant: a call whose outcome is not known to have been a success is
//! never called one.

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

/// The call was sent, and how it ended is not known to the reader: the record is no longer kept, or it is of another tenant.
pub(crate) const SENT: &str = "sent";

/// Refuses a state that nothing can be in.
pub(crate) fn check(state: Option<&str>) -> Result<(), Refusal> {
    if state == Some(FINISHED) { Ok(()) } else { known_state(state, &APPROVAL_STATES) }
}

/// The state of an approval in which the store keeps what is in the state `wanted`; none where it is kept in several.
pub(crate) fn stored(wanted: &str) -> Option<&str> {
    match wanted {
        "running" | "succeeded" | "failed" | "unknown" | SENT => Some("consumed"),
        FINISHED => None,
        other => Some(other),
    }
}

/// Whether an approval that is stored in the right state is in the one that is wanted.
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

/// The state as the caller may know it: what became of a call is its tenant's own.
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

/// The state, with the call's record where there is one.
pub(crate) fn of(approval: &ApprovalRecord, record: Option<&EffectRecord>) -> &'static str {
    if !approval.is_consumed() {
        return approval.state.name();
    }
    // The key may have been taken by a later call since.
    let Some(record) = record.filter(|record| record.call_id == approval.call_id) else {
        return SENT;
    };
    match &record.state {
        EffectState::Claimed { .. }
        | EffectState::Dispatched(_)
        | EffectState::Rearmed { .. } => "running",
        EffectState::Succeeded { .. } => "succeeded",
        EffectState::Indeterminate { .. } => "unknown",
        EffectState::FailedFinal { .. }
        | EffectState::FailedRetriable { .. }
        // It failed, and was to be tried again under another approval.
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
