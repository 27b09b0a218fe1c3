//! Ends of an approval that no person decided: what was approved is no longer what would run, or its call ended without it.
//!
//! Owns those ends. Invariant: nothing is ended here that was sent; the ledger lets only one of two ends through.

use placet_ledger::{
    approval::{ApprovalRecord, ApprovalState},
    record::EffectRecord,
    store::StoreError,
};
use placet_types::{error::ErrorCode, ids::ApprovalId};

use crate::{audit, service::Approvals};

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

    /// An approval that is open, and the record of the call that waits for it.
    pub(crate) async fn open(
        &self,
        approval_id: &ApprovalId,
    ) -> Result<Option<(ApprovalRecord, EffectRecord)>, StoreError> {
        let store = self.ledger.store();
        let approval = store.approval(approval_id).await?;
        let Some(approval) = approval.filter(|approval| approval.state.is_open()) else {
            return Ok(None);
        };
        let record = store.effect(approval.record_id).await?;
        let record = record.filter(|record| record.state.approval_id() == Some(approval_id));
        Ok(record.map(|record| (approval, record)))
    }
}
