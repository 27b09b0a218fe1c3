//! Ends of calls that people agreed to: anyone who looks at one hears of it, wherever the call runs.
//!
//! Owns when such an end is news. Invariant: each end is told once; an end that may not be the last one is told as one for the time being.

use placet_ledger::{
    approval::{ApprovalRecord, ApprovalState},
    record::{EffectRecord, EffectState},
};
use placet_types::ids::ToolCallId;

use crate::{service::Approvals, views::ApprovalEventKind};

impl Approvals {
    /// The call of an approval has come to an end; that its outcome is unknown is one for the time being.
    pub fn call_ended(&self, approval: &ApprovalRecord, is_unknown: bool) {
        if self.sent_calls.ends(&approval.approval_id, is_unknown) {
            let now = self.ledger.store().now();
            self.events.approval(ApprovalEventKind::Settled, approval, now);
        }
    }

    /// What came of a call is known by now.
    pub async fn call_resolved(&self, call_id: &ToolCallId) {
        match self.ledger.store().approval_of_call(call_id).await {
            Ok(Some(approval)) if matches!(approval.state, ApprovalState::Consumed { .. }) => {
                self.call_ended(&approval, false);
            }
            Ok(_) => {}
            // The next round finds it.
            Err(error) => self.node.noticed(&error.into()),
        }
    }

    /// A call that was under way in a process that has ended goes on in this one, which tells how it ends.
    pub async fn call_taken_over(&self, record: &EffectRecord) {
        let Some(approval_id) = record.state.approval_id() else { return };
        match self.ledger.store().approval(approval_id).await {
            Ok(Some(approval)) => self.sent_calls.begin(&approval, false),
            Ok(None) => {}
            Err(error) => {
                tracing::info!(%error, record_id = %record.record_id, "nobody is told of the end of a call whose approval cannot be read");
                self.node.noticed(&error.into());
            }
        }
    }

    /// One round: those whose records have ended, here or on another node, are told.
    pub async fn tell_call_ends(&self) {
        for approval in self.sent_calls.due() {
            if self.node.is_stopping() || self.node.health().is_ledger_lost() {
                return;
            }
            match self.ledger.store().effect(approval.record_id).await {
                Ok(Some(record)) if record.call_id != approval.call_id => {
                    self.sent_calls.forget(&approval.approval_id);
                }
                // It may be tried again.
                Ok(Some(record)) if is_provisional(&record.state) => {
                    self.call_ended(&approval, true);
                }
                Ok(Some(record)) if record.state.is_settled() => self.call_ended(&approval, false),
                Ok(Some(_)) => {}
                Ok(None) => self.sent_calls.forget(&approval.approval_id),
                Err(error) => return self.node.noticed(&error.into()),
            }
        }
    }
}

/// Whether a record stands at an end that may not be the last one.
#[must_use]
pub const fn is_provisional(state: &EffectState) -> bool {
    matches!(state, EffectState::Indeterminate { .. } | EffectState::FailedRetriable { .. })
}
