//! The trait [`Store`] on the embedded store.
//!
//! Owns routing queries to the state and the journal. Not here: how the answers are built (`state`, `query`), the writing (`machine`).
//! Invariant: look-ups and small contents are read on the caller's thread, lists and large contents on blocking threads.

use async_trait::async_trait;

use placet_ledger::approval::ApprovalRecord;
use placet_ledger::directive::Directive;
use placet_ledger::outbox::Outbox;
use placet_ledger::policies::PolicyState;
use placet_ledger::record::{EffectRecord, EffectState};
use placet_ledger::run::{RunKey, RunRecord};
use placet_ledger::store::{
    ApprovalQuery, Changes, ClaimAnswer, Committed, DirectiveQuery, EffectQuery, Store, StoreError,
};
use placet_types::clock::Timestamp;
use placet_types::digest::Digest;
use placet_types::ids::{ApprovalId, DirectiveId, RecordId, TenantId, ToolCallId};

use super::machine::Request;
use super::{EmbeddedStore, KeeperThread, directives, keys, query, read, trust};
use crate::claims::Take;

/// Contents up to this size are read on the caller's thread.
const SMALL_BYTES: u32 = 64 << 10;

#[async_trait]
impl Store for EmbeddedStore {
    fn now(&self) -> Timestamp {
        self.state.now()
    }

    fn age_ms(&self, at: Timestamp) -> Option<i64> {
        self.state.age_ms(at)
    }

    fn epoch(&self) -> u64 {
        self.state.epoch
    }

    fn space_is_low(&self) -> bool {
        let files = self.state.journal.files();
        let free = files.medium.free_bytes(&files.directory);
        // If the operating system does not report free space, assume there is none.
        free.map_or(true, |free| free < self.watermark_bytes)
    }

    async fn claim(&self, record: EffectRecord) -> Result<ClaimAnswer, StoreError> {
        let own =
            matches!(record.state, EffectState::Claimed { epoch } if epoch == self.state.epoch);
        if !own {
            return Err(StoreError::Conflict);
        }
        let tree = self.state.tree()?;
        loop {
            let since = self.state.claims.count();
            let stored = self.state.record(&tree, &keys::effect(&record.record_id))?;
            if let Some(stored) = stored {
                return Ok(ClaimAnswer::Taken(Box::new(stored)));
            }
            match self.state.claims.take(&record, since) {
                Take::Taken => return Ok(ClaimAnswer::Claimed),
                Take::Claimed(claimed) => {
                    return Ok(ClaimAnswer::Taken(Box::new(EffectRecord::clone(&claimed))));
                }
                Take::AskAgain => {}
            }
        }
    }

    async fn release(&self, record_id: RecordId) {
        self.state.claims.release(&record_id);
    }

    async fn commit(&self, changes: Changes) -> Result<Committed, StoreError> {
        let committed = self.writer.submit(Request::new(changes)?).await?;
        self.state.note_written(committed.seq);
        Ok(committed)
    }

    async fn commit_later(&self, changes: Changes) -> Result<(), StoreError> {
        self.writer.submit_later(Request::new(changes)?).await
    }

    async fn effect(&self, record_id: RecordId) -> Result<Option<EffectRecord>, StoreError> {
        let tree = self.state.tree()?;
        // Claims first: a record leaves them only once the state has it.
        match self.state.claims.get(&record_id) {
            Some(claimed) => Ok(Some(claimed)),
            None => self.state.record(&tree, &keys::effect(&record_id)),
        }
    }

    async fn effect_of_call(
        &self,
        call_id: &ToolCallId,
    ) -> Result<Option<EffectRecord>, StoreError> {
        let tree = self.state.tree()?;
        if let Some(claimed) = self.state.claims.of_call(call_id) {
            return Ok(Some(claimed));
        }
        let found = tree.get(&keys::call(call_id)).map_err(|fault| self.state.fail_tree(&fault))?;
        let Some(record_id) = found.and_then(|bytes| keys::record_id(&bytes)) else {
            return Ok(None);
        };
        let record: Option<EffectRecord> = self.state.record(&tree, &keys::effect(&record_id))?;
        Ok(record.filter(|record| record.call_id == *call_id))
    }

    async fn approval(
        &self,
        approval_id: &ApprovalId,
    ) -> Result<Option<ApprovalRecord>, StoreError> {
        let tree = self.state.tree()?;
        self.state.record(&tree, &keys::approval(approval_id))
    }

    async fn approval_of_call(
        &self,
        call_id: &ToolCallId,
    ) -> Result<Option<ApprovalRecord>, StoreError> {
        let call_id = call_id.clone();
        self.blocking(move |state| query::approval_of_call(state, &call_id)).await
    }

    async fn policy(&self) -> Result<Option<PolicyState>, StoreError> {
        drop(self.state.tree()?);
        Ok(self.state.policy())
    }

    async fn restriction_version(&self) -> Result<u64, StoreError> {
        drop(self.state.tree()?);
        Ok(self.state.restriction_version())
    }

    async fn outbox(&self) -> Result<Outbox, StoreError> {
        self.blocking(query::outbox).await
    }

    fn is_shared(&self) -> bool {
        false
    }

    async fn fence_dead(&self) -> Result<Vec<u64>, StoreError> {
        Ok(Vec::new())
    }

    async fn run(&self, key: &RunKey) -> Result<Option<RunRecord>, StoreError> {
        let tree = self.state.tree()?;
        self.state.run(&tree, key)
    }

    async fn content(&self, tenant: &TenantId, digest: Digest) -> Result<Vec<u8>, StoreError> {
        let tree = self.state.tree()?;
        let place = read::place(&tree, tenant, digest);
        let place = place.map_err(|fault| self.state.fail_tree(&fault))?;
        if place.is_none_or(|place| place.bytes <= SMALL_BYTES) {
            return self.state.content(&tree, tenant, digest);
        }
        let tenant = tenant.clone();
        self.blocking(move |state| state.content(&tree, &tenant, digest)).await
    }

    async fn effects(&self, query: &EffectQuery) -> Result<Vec<EffectRecord>, StoreError> {
        let query = query.clone();
        self.blocking(move |state| query::effects(state, &query)).await
    }

    async fn approvals(&self, query: &ApprovalQuery) -> Result<Vec<ApprovalRecord>, StoreError> {
        let query = query.clone();
        self.blocking(move |state| query::approvals(state, &query)).await
    }

    async fn directive(&self, directive_id: &DirectiveId) -> Result<Option<Directive>, StoreError> {
        let tree = self.state.tree()?;
        self.state.record(&tree, &keys::directive(directive_id))
    }

    async fn directives(&self, query: &DirectiveQuery) -> Result<Vec<Directive>, StoreError> {
        let query = query.clone();
        self.blocking(move |state| directives::entries(state, &query)).await
    }

    async fn close(&self) -> Result<(), StoreError> {
        let keeper = self.keeper.lock().take();
        let Some(KeeperThread { commands, thread }) = keeper else { return Ok(()) };
        let closed = self.writer.close().await;
        drop(commands);
        let tree = self.state.take_tree();
        let sound = closed.is_ok() && self.state.health.borrow().is_none();
        let folder = self.directory.clone();
        let ending = tokio::task::spawn_blocking(move || {
            if thread.join().is_err() {
                tracing::error!("the keeper of the state panicked");
            }
            let Some(tree) = tree.filter(|_| sound) else { return };
            // What is not on disk is replayed from the journal at the next start.
            if let Err(error) = trust::close(&tree, &folder) {
                tracing::warn!(%error, "the state could not be synced");
            }
        });
        ending.await.map_err(|error| StoreError::Stopped(error.to_string()))?;
        closed.map_err(|error| StoreError::Stopped(error.to_string()))
    }
}
