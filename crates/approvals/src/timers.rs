//! What is due of an approval: it expires, or another group is asked because the first ones are silent.
//!
//! Owns what happens then. When something is due is the pending index's to say; how often that is asked is the engine's.

use placet_ledger::{
    approval::{ApprovalRecord, ApprovalState},
    ledger::LedgerError,
    store::StoreError,
};
use placet_types::{error::ErrorCode, ids::ApprovalId};

use crate::{audit, pending::Due, service::Approvals};

impl Approvals {
    /// Does what is due.
    pub async fn act_on(&self, due: Due) {
        match due {
            Due::Expiry(approval_id) => {
                if let Err(error) = self.expire(&approval_id).await {
                    // It stays due, whether it moved on meanwhile or the ledger could not be asked.
                    tracing::info!(%error, %approval_id, "an approval could not be ended as it expired");
                }
            }
            Due::Escalation(approval_id) => match self.escalate(&approval_id).await {
                Ok(()) => {}
                // Somebody decided at this moment, or another node asked them; the index hears of it.
                Err(LedgerError::Vote(_) | LedgerError::Store(StoreError::Conflict)) => {}
                Err(error) => {
                    self.node.noticed(&error);
                    tracing::warn!(%error, %approval_id, "the next group could not be asked");
                }
            },
        }
    }

    async fn expire(&self, approval_id: &ApprovalId) -> Result<(), LedgerError> {
        let store = self.ledger.store();
        let Some(approval) = self.read_due(approval_id).await? else { return Ok(()) };
        if !approval.state.is_open() || approval.expires_at > store.now() {
            return Ok(());
        }
        let record = store.effect(approval.record_id).await?;
        let record = record.filter(|record| record.state.approval_id() == Some(approval_id));
        let Some(record) = record else {
            self.pending.forget(approval_id);
            return Ok(());
        };
        let mut event = audit::of_end(&approval, &record);
        event.code = Some(ErrorCode::ApprovalExpired);
        let ended = self.ledger.end_approval(&approval, ApprovalState::Expired, event).await?;
        self.ended(&ended, &record).await;
        Ok(())
    }

    async fn escalate(&self, approval_id: &ApprovalId) -> Result<(), LedgerError> {
        let Some(approval) = self.read_due(approval_id).await? else { return Ok(()) };
        let now = self.ledger.store().now();
        let is_due = approval.escalation_due().is_some_and(|due| due <= now);
        if approval.state != ApprovalState::Pending || !is_due {
            return Ok(());
        }
        let event = audit::of_escalation(&approval);
        let next = self.ledger.escalate_approval(&approval, event).await?;
        self.decided(&next).await;
        Ok(())
    }

    /// An approval of which something is due, as the ledger has it now.
    async fn read_due(
        &self,
        approval_id: &ApprovalId,
    ) -> Result<Option<ApprovalRecord>, StoreError> {
        let approval = self.ledger.store().approval(approval_id).await?;
        match &approval {
            Some(approval) => self.moved(approval),
            None => self.pending.forget(approval_id),
        }
        Ok(approval)
    }
}
