//! A disk for the simulation: a store whose every commit takes time, and of which a crash leaves what was synced.
//!
//! Owns what survives a process. A commit is visible and durable at one moment; around that moment time passes, so that a
//! crash can come before it, or after it and before anybody is told. [`Missing`] takes one guard out of the store, so that the checker
//! can show that it would notice.

use std::{fmt, sync::Arc, time::Duration};

use parking_lot::Mutex;

use async_trait::async_trait;
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};

use placet_ledger::{
    approval::ApprovalRecord,
    directive::Directive,
    outbox::Outbox,
    policies::PolicyState,
    record::{EffectRecord, EffectState},
    run::{RunKey, RunRecord},
    store::{
        ApprovalQuery, Changes, ClaimAnswer, Committed, DirectiveQuery, EffectChange, EffectQuery,
        Store, StoreError,
    },
    testing::{Kept, MemoryStore, ready},
};
use placet_types::{
    clock::{Clock, Timestamp},
    digest::Digest,
    ids::{ApprovalId, DirectiveId, RecordId, TenantId, ToolCallId},
};

/// A guard that is taken out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// The intent is acknowledged before it is durable.
    DispatchNotDurable,
    /// The outcome is acknowledged before it is durable.
    OutcomeNotDurable,
    /// Readers see what is not durable yet.
    VisibilityGate,
    /// A duplicate is matched by its key alone.
    Fingerprint,
    /// An approval is consumed after the dispatch, by itself.
    ApprovalInTransaction,
    /// The revision that a change was made from is not compared.
    Revision,
}

/// What outlives a process.
#[derive(Debug)]
pub(crate) struct Disk {
    synced: Mutex<Kept>,
    pub(crate) missing: Option<Missing>,
}

impl Disk {
    pub(crate) fn new(beginning: Timestamp, missing: Option<Missing>) -> Self {
        Self { synced: Mutex::new(MemoryStore::new(beginning).kept()), missing }
    }

    /// What would be found after a power cut at this moment.
    pub(crate) fn survived(&self) -> MemoryStore {
        MemoryStore::reopened(&self.synced.lock())
    }
}

/// The store of one process over a disk.
pub(crate) struct SimStore {
    memory: MemoryStore,
    disk: Arc<Disk>,
    clock: Arc<dyn Clock>,
    dice: Mutex<StdRng>,
}

impl fmt::Debug for SimStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimStore").finish_non_exhaustive()
    }
}

impl SimStore {
    pub(crate) fn open(disk: Arc<Disk>, clock: Arc<dyn Clock>, seed: u64) -> Self {
        let memory = disk.survived();
        Self { memory, disk, clock, dice: Mutex::new(StdRng::seed_from_u64(seed)) }
    }

    pub(crate) fn commits(&self) -> u64 {
        self.memory.commits()
    }

    fn is_missing(&self, guard: Missing) -> bool {
        self.disk.missing == Some(guard)
    }

    async fn moment(&self, most_ms: u64) {
        let ms = self.dice.lock().random_range(0..=most_ms);
        tokio::time::sleep(Duration::from_millis(ms)).await;
        self.memory.set_now(self.clock.now());
    }

    fn sync(&self) {
        *self.disk.synced.lock() = self.memory.kept();
    }

    /// Whether this commit reaches the disk before it is acknowledged.
    fn reaches_the_disk(&self, changes: &Changes) -> bool {
        let moves_to = |wanted: fn(&EffectState) -> bool| {
            changes
                .effects
                .iter()
                .any(|change| matches!(change, EffectChange::Put(record) if wanted(&record.state)))
        };
        if self.is_missing(Missing::DispatchNotDurable) {
            return !moves_to(|state| matches!(state, EffectState::Dispatched(_)));
        }
        if self.is_missing(Missing::OutcomeNotDurable) {
            return !moves_to(EffectState::is_settled);
        }
        true
    }

    /// What a change looks like once its revision fits whatever is stored.
    async fn forced(&self, changes: &mut Changes) -> Result<(), StoreError> {
        for change in &mut changes.effects {
            if let EffectChange::Put(record) = change {
                let stored = self.memory.effect(record.record_id).await?;
                let stored =
                    stored.filter(|stored| stored.rev > 0 && stored.state.name() != "claimed");
                record.rev = stored.map_or(0, |stored| stored.rev) + 1;
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Store for SimStore {
    fn now(&self) -> Timestamp {
        self.memory.set_now(self.clock.now());
        self.memory.now()
    }

    fn epoch(&self) -> u64 {
        self.memory.epoch()
    }

    async fn claim(&self, record: EffectRecord) -> Result<ClaimAnswer, StoreError> {
        let wanted = record.requested_digest;
        let answer = self.memory.claim(record).await?;
        Ok(match answer {
            ClaimAnswer::Taken(mut taken) if self.is_missing(Missing::Fingerprint) => {
                taken.requested_digest = wanted;
                ClaimAnswer::Taken(taken)
            }
            other @ (ClaimAnswer::Taken(_) | ClaimAnswer::Claimed) => other,
        })
    }

    async fn release(&self, record_id: RecordId) {
        self.memory.release(record_id).await;
    }

    async fn commit(&self, mut changes: Changes) -> Result<Committed, StoreError> {
        self.moment(4).await;
        if self.is_missing(Missing::Revision) {
            self.forced(&mut changes).await?;
        }
        let later =
            if self.is_missing(Missing::ApprovalInTransaction) && !changes.effects.is_empty() {
                std::mem::take(&mut changes.approvals)
            } else {
                Vec::new()
            };
        let durable = self.reaches_the_disk(&changes);
        let mut apart = Changes::new(changes.durability, changes.admission);
        let committed = self.memory.commit(changes).await?;
        if self.is_missing(Missing::VisibilityGate) {
            self.moment(400).await;
        }
        if durable {
            self.sync();
        }
        if !later.is_empty() {
            self.moment(400).await;
            apart.approvals = later;
            self.memory.commit(apart).await?;
            self.sync();
        }
        self.moment(4).await;
        Ok(committed)
    }

    async fn effect(&self, record_id: RecordId) -> Result<Option<EffectRecord>, StoreError> {
        self.memory.effect(record_id).await
    }

    async fn effect_of_call(
        &self,
        call_id: &ToolCallId,
    ) -> Result<Option<EffectRecord>, StoreError> {
        self.memory.effect_of_call(call_id).await
    }

    async fn approval(&self, id: &ApprovalId) -> Result<Option<ApprovalRecord>, StoreError> {
        self.memory.approval(id).await
    }

    async fn approval_of_call(
        &self,
        call_id: &ToolCallId,
    ) -> Result<Option<ApprovalRecord>, StoreError> {
        self.memory.approval_of_call(call_id).await
    }

    async fn policy(&self) -> Result<Option<PolicyState>, StoreError> {
        self.memory.policy().await
    }

    async fn outbox(&self) -> Result<Outbox, StoreError> {
        self.memory.outbox().await
    }

    async fn restriction_version(&self) -> Result<u64, StoreError> {
        self.memory.restriction_version().await
    }

    fn is_shared(&self) -> bool {
        false
    }

    async fn fence_dead(&self) -> Result<Vec<u64>, StoreError> {
        Ok(Vec::new())
    }

    async fn run(&self, key: &RunKey) -> Result<Option<RunRecord>, StoreError> {
        self.memory.run(key).await
    }

    async fn content(&self, tenant: &TenantId, digest: Digest) -> Result<Vec<u8>, StoreError> {
        self.memory.content(tenant, digest).await
    }

    async fn effects(&self, query: &EffectQuery) -> Result<Vec<EffectRecord>, StoreError> {
        self.memory.effects(query).await
    }

    async fn approvals(&self, query: &ApprovalQuery) -> Result<Vec<ApprovalRecord>, StoreError> {
        self.memory.approvals(query).await
    }

    async fn directive(&self, directive_id: &DirectiveId) -> Result<Option<Directive>, StoreError> {
        self.memory.directive(directive_id).await
    }

    async fn directives(&self, query: &DirectiveQuery) -> Result<Vec<Directive>, StoreError> {
        self.memory.directives(query).await
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.memory.close().await
    }
}

/// All approvals that a power cut at this moment would leave.
pub(crate) fn approvals(disk: &Disk) -> Vec<ApprovalRecord> {
    let query = ApprovalQuery { limit: usize::MAX, ..ApprovalQuery::default() };
    ready(disk.survived().approvals(&query)).unwrap()
}

/// All records that a power cut at this moment would leave.
pub(crate) fn records(disk: &Disk) -> Vec<EffectRecord> {
    let query = EffectQuery { limit: usize::MAX, ..EffectQuery::default() };
    ready(disk.survived().effects(&query)).unwrap()
}
