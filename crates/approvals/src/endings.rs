//! Ends that no person decided: of an approval that expired or is no longer what would run, and of the call that people agreed to. And what
//! else is due of an approval: another group is asked because the first ones are silent.
//!
//! Owns those ends, and when one is news. When something is due is the pending index's to say; how often that is asked is the engine's.
//! Invariants: nothing is ended here that was sent; the ledger lets only one of two ends through; each end of a call is told once, and one that
//! may not be the last as one for the time being.

use placet_ledger::{
    approval::{ApprovalRecord, ApprovalState},
    ledger::LedgerError,
    record::{EffectRecord, EffectState},
    store::StoreError,
};
use placet_types::{
    error::ErrorCode,
    ids::{ApprovalId, ToolCallId},
};

use crate::{audit, service::Approvals, views::ApprovalEventKind};

impl Approvals {
    /// Ends an approval because what was approved is no longer what would run. The reason is shown to those who may see the approval.
    pub async fn void(&self, approval: &ApprovalRecord, record: &EffectRecord, reason: &str) {
        let mut event = audit::of_end(approval, record);
        event.code = Some(ErrorCode::ApprovalVoid);
        event.note = Some(reason.to_owned());
        let end = ApprovalState::Void { reason: reason.to_owned() };
        match self.ledger.end_approval(approval, end, event).await {
            Ok(ended) => self.ended(&ended, record).await,
            Err(error) => {
                tracing::warn!(%error, approval_id = %approval.approval_id, "an approval could not be made void");
                if let Some(calls) = self.calls() {
                    calls.retry_later(&approval.approval_id);
                }
            }
        }
    }

    /// As [`Self::void`], by the approval's id, if it is open.
    pub async fn void_if_open(&self, approval_id: &ApprovalId, reason: &str) {
        match self.open(approval_id).await {
            Ok(Some((approval, record))) => self.void(&approval, &record, reason).await,
            Ok(None) => {}
            Err(error) => {
                self.node.noticed(&error.clone().into());
                tracing::warn!(%error, %approval_id, "an approval that is to be ended could not be read");
            }
        }
    }

    /// It has come to light how a call ended whose approval was still open: so did that.
    pub async fn called_off(&self, approval_id: &ApprovalId) {
        match self.ledger.store().approval(approval_id).await {
            Ok(Some(ended)) => {
                self.moved(&ended);
                self.count_ended("void", &ended);
            }
            Ok(None) => self.pending.forget(approval_id),
            // The next reading finds it.
            Err(error) => self.node.noticed(&error.into()),
        }
    }

    /// An approval that is open, and the record of the call that waits for it; the index follows what was read.
    pub(crate) async fn open(
        &self,
        approval_id: &ApprovalId,
    ) -> Result<Option<(ApprovalRecord, EffectRecord)>, StoreError> {
        let store = self.ledger.store();
        let Some(approval) = store.approval(approval_id).await? else {
            self.pending.forget(approval_id);
            return Ok(None);
        };
        self.moved(&approval);
        if !approval.state.is_open() {
            return Ok(None);
        }
        let record = store.effect(approval.record_id).await?;
        let record = record.filter(|record| record.state.approval_id() == Some(approval_id));
        Ok(record.map(|record| (approval, record)))
    }

    /// Does what is due of an approval: it ends where it has expired, else another group is asked.
    pub async fn act_on(&self, approval_id: &ApprovalId) {
        match self.do_due(approval_id).await {
            Ok(()) => {}
            // Somebody decided at this moment, or another node did this; the index hears of it.
            Err(LedgerError::Vote(_) | LedgerError::Store(StoreError::Conflict)) => {}
            Err(error) => {
                self.node.noticed(&error);
                // It stays due.
                tracing::warn!(%error, %approval_id, "what is due of an approval could not be done");
            }
        }
    }

    async fn do_due(&self, approval_id: &ApprovalId) -> Result<(), LedgerError> {
        let Some((approval, record)) = self.open(approval_id).await? else {
            // No call waits for it any more.
            self.pending.forget(approval_id);
            return Ok(());
        };
        let now = self.ledger.store().now();
        if approval.expires_at <= now {
            let mut event = audit::of_end(&approval, &record);
            event.code = Some(ErrorCode::ApprovalExpired);
            let ended = self.ledger.end_approval(&approval, ApprovalState::Expired, event).await?;
            self.ended(&ended, &record).await;
        } else if approval.escalation_due().is_some_and(|due| due <= now) {
            let event = audit::of_escalation(&approval);
            let next = self.ledger.escalate_approval(&approval, event).await?;
            self.decided(&next).await;
        }
        Ok(())
    }

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
pub(crate) const fn is_provisional(state: &EffectState) -> bool {
    matches!(state, EffectState::Indeterminate { .. } | EffectState::FailedRetriable { .. })
}
