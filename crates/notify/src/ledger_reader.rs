//! The sender's interface to the ledger, and nothing more.
//!
//! Owns the interface. Does not own the ledger. Invariant: only the outbox is ever written, with the results of its messages.

use std::{collections::BTreeMap, fmt, sync::Arc};

use async_trait::async_trait;
use placet_ledger::{
    approval::{ApprovalRecord, ApprovalState},
    audit::AuditEvent,
    log::{AuditLog, LogEntry},
    outbox::{Outbox, OutboxChange},
    store::{Admission, ApprovalQuery, Changes, Durability, Store, StoreError},
};
use placet_types::{
    clock::Timestamp,
    digest::Digest,
    envelope::proposal::ToolProposalEnvelope,
    ids::{ApprovalId, TenantId, ToolCallId},
};

use crate::message::Preview;

/// How many approvals are read at a time.
const PAGE: usize = 200;

/// The ledger, as the sender sees it.
#[async_trait]
pub(crate) trait LedgerReader: Send + Sync + fmt::Debug {
    /// The ledger's time.
    fn now(&self) -> Timestamp;
    /// Whether this process is the sending one.
    async fn leads(&self) -> Result<bool, StoreError>;
    /// The last entry of each log.
    async fn heads(&self) -> Result<BTreeMap<String, u64>, StoreError>;
    /// Up to `limit` entries of a log, beginning with `from`.
    async fn entries(
        &self,
        log: &str,
        from: u64,
        limit: usize,
    ) -> Result<Vec<LogEntry>, StoreError>;
    /// An approval.
    async fn approval(&self, id: &ApprovalId) -> Result<Option<ApprovalRecord>, StoreError>;
    /// The approval that a call waited for.
    async fn approval_of_call(
        &self,
        call_id: &ToolCallId,
    ) -> Result<Option<ApprovalRecord>, StoreError>;
    /// Some of the pending approvals, oldest first.
    async fn waiting(&self, after: Option<ApprovalId>) -> Result<Vec<ApprovalRecord>, StoreError>;
    /// The arguments of a proposal as approvers see them.
    async fn preview(&self, tenant: &TenantId, proposal: Digest) -> Result<Preview, StoreError>;
    /// The waiting messages, and how far the log was read.
    async fn outbox(&self) -> Result<Outbox, StoreError>;
    /// Stores a change of the outbox, with an event about the result of a message.
    async fn keep(&self, change: OutboxChange, event: Option<AuditEvent>)
    -> Result<(), StoreError>;
}

/// The ledger itself.
pub(crate) struct LedgerBook {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) log: Arc<dyn AuditLog>,
}

impl fmt::Debug for LedgerBook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LedgerBook").field("store", &self.store).finish_non_exhaustive()
    }
}

#[async_trait]
impl LedgerReader for LedgerBook {
    fn now(&self) -> Timestamp {
        self.store.now()
    }

    async fn leads(&self) -> Result<bool, StoreError> {
        self.store.leads().await
    }

    async fn heads(&self) -> Result<BTreeMap<String, u64>, StoreError> {
        let heads = self.log.heads().await?;
        Ok(heads.into_iter().map(|head| (head.log, head.size)).collect())
    }

    async fn entries(
        &self,
        log: &str,
        from: u64,
        limit: usize,
    ) -> Result<Vec<LogEntry>, StoreError> {
        self.log.entries(log, from, limit).await
    }

    async fn approval(&self, id: &ApprovalId) -> Result<Option<ApprovalRecord>, StoreError> {
        self.store.approval(id).await
    }

    async fn approval_of_call(
        &self,
        call_id: &ToolCallId,
    ) -> Result<Option<ApprovalRecord>, StoreError> {
        self.store.approval_of_call(call_id).await
    }

    async fn waiting(&self, after: Option<ApprovalId>) -> Result<Vec<ApprovalRecord>, StoreError> {
        let query = ApprovalQuery {
            state: Some(ApprovalState::Pending.name().to_owned()),
            after,
            limit: PAGE,
            ..ApprovalQuery::default()
        };
        self.store.approvals(&query).await
    }

    async fn preview(&self, tenant: &TenantId, proposal: Digest) -> Result<Preview, StoreError> {
        let bytes = self.store.content(tenant, proposal).await?;
        let envelope: ToolProposalEnvelope = serde_json::from_slice(&bytes)
            .map_err(|error| StoreError::Damaged(format!("a proposal cannot be read: {error}")))?;
        Ok(Preview {
            arguments: envelope.evidence.preview,
            masked: envelope.evidence.preview_masked,
        })
    }

    async fn outbox(&self) -> Result<Outbox, StoreError> {
        self.store.outbox().await
    }

    async fn keep(
        &self,
        change: OutboxChange,
        event: Option<AuditEvent>,
    ) -> Result<(), StoreError> {
        let mut changes = Changes::new(Durability::Written, Admission::Completion);
        changes.outbox = Some(Box::new(change));
        changes.audit.extend(event);
        self.store.commit(changes).await.map(|_| ())
    }
}
