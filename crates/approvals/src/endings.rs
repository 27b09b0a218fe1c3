//! Ends without a decision: of an approval that expired or no longer matches what would run, and of an approved call. Also escalation:
//! another group is asked because the first ones are silent.
//!
//! Owns those ends, and whether they are news. The pending index knows when something is due; the engine decides how often it is checked.
//! Invariants: nothing that was sent is ended here; of two ends the ledger lets only one through; each end of a call is reported once, and
//! one that may not be the last is reported as provisional.

use placet_ledger::{
    approval::{ApprovalRecord, ApprovalState},
    ledger::LedgerError,
    record::{EffectRecord, EffectState},
    store::StoreError,
};
use placet_policy::decision::Decision;
use placet_types::{
    error::ErrorCode,
    ids::{ApprovalId, ToolCallId},
};

use crate::{audit, service::Approvals, views::ApprovalEventKind};

impl Approvals {
    /// Ends an approval because what was approved no longer is what would run. The reason is shown to those who may see the approval.
    pub async fn void(&self, approval: &ApprovalRecord, record: &EffectRecord, reason: &str) {
        self.void_by(approval, record, reason, None).await;
    }

    /// As [`Self::void`], by a decision of the active policies.
    pub(crate) async fn void_by(
        &self,
        approval: &ApprovalRecord,
        record: &EffectRecord,
        reason: &str,
        decision: Option<&Decision>,
    ) {
        let mut event = audit::of_end(approval, record);
        event.decision = decision.and_then(|decision| serde_json::to_value(decision).ok());
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

    /// The end of a call became known while its approval was still open, which ended it too.
    pub async fn called_off(&self, approval_id: &ApprovalId) {
        match self.ledger.store().approval(approval_id).await {
            Ok(Some(ended)) => {
                self.moved(&ended);
                self.count_ended("void", &ended);
            }
            Ok(None) => self.pending.forget(approval_id),
            // The next round finds it.
            Err(error) => self.node.noticed(&error.into()),
        }
    }

    /// An open approval, and the record of the call that waits for it; updates the index.
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

    /// Does what is due for an approval: ends it if it has expired, else escalates it.
    pub async fn act_on(&self, approval_id: &ApprovalId) {
        match self.do_due(approval_id).await {
            Ok(()) => {}
            // A decision or another node was faster; the index is updated by that.
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

    /// The call of an approval has ended; an unknown outcome is a provisional end.
    pub fn call_ended(&self, approval: &ApprovalRecord, is_unknown: bool) {
        if self.sent_calls.ends(&approval.approval_id, is_unknown) {
            let at = self.ledger.store().now();
            let mut used = approval.clone();
            if !used.is_consumed() {
                // Its caller has it as it was before the call was sent.
                used.state = ApprovalState::Consumed { arm: 0, at };
            }
            self.events.approval(ApprovalEventKind::Settled, &used, at);
        }
    }

    /// The outcome of a call has become known.
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

    /// A call that was in flight in a process that has ended continues in this one, which reports its end.
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

    /// One round: reports the calls whose records have ended, here or on another node.
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

/// Whether a record is in a final state that may still change.
pub(crate) const fn is_provisional(state: &EffectState) -> bool {
    matches!(state, EffectState::Indeterminate { .. } | EffectState::FailedRetriable { .. })
}
