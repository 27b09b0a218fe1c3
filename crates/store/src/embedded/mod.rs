//! The embedded store: the ledger's [`Store`] kept by the journal (truth) and sled (index), for one node.
//!
//! Owns the data folder: `journal/` (the chain of entries, one for each commit), `content/` (the bytes that entries name by
//! digest), `index/` (sled; made anew from the journal whenever it disagrees, the old one kept as `index.damaged-<epoch>`).
//! Not here: what a record means (`placet-ledger`), the bytes of the journal ([`crate::journal`]).
//!
//! Invariants: an acknowledged commit survives `kill -9` (and a power cut, as far as `fdatasync` is honest); readers see only
//! what is as durable as it asked to be, and claims; the index is never believed where the journal knows better; after the
//! first fault nothing is answered and [`EmbeddedStore::died`] says so.
//!
//! Look-ups read index and journal on the caller's thread: they are in memory, or two pages away, and handing them to another
//! thread would cost more than they do. Lists and contents can take longer and go to blocking threads, so the store needs a runtime.

mod claims;
mod codec;
mod decide;
mod index;
mod keys;
mod machine;
mod offline;
mod open;
mod query;
mod recent;
mod records;
mod replay;
mod state;

#[cfg(test)]
#[expect(
    clippy::arithmetic_side_effects,
    clippy::wildcard_enum_match_arm,
    reason = "small numbers, and matches that name only what the test is about"
)]
mod tests;

use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use async_trait::async_trait;

use placet_ledger::approval::ApprovalRecord;
use placet_ledger::record::{EffectRecord, EffectState};
use placet_ledger::run::{RunKey, RunRecord};
use placet_ledger::store::{
    ApprovalQuery, Changes, ClaimAnswer, Committed, EffectQuery, PolicyState, Store, StoreError,
};
use placet_types::clock::{Clock, Timestamp};
use placet_types::digest::Digest;
use placet_types::ids::{ApprovalId, RecordId, TenantId, ToolCallId};

pub use codec::{DecodeError, ENTRY_VERSION, EffectEntry, Entry};
pub use offline::{
    ContentVerdict, IndexVerdict, JournalEntry, VerifyReport, read_audit, rebuild, verify,
};
pub use open::{IndexFate, OpenError, RecoveryReport};

use crate::content::{ContentError, ContentReader};
use crate::journal::medium::{Disk, Medium};
use crate::journal::writer::{
    self, WriterConfig, WriterEnd, WriterHandle, WriterStats, WriterWatch,
};
use machine::{Machine, Request};
use open::{Opened, open};
use state::State;

const SEGMENT_BYTES: u64 = 64 << 20;
const FREE_SPACE_WATERMARK_BYTES: u64 = 256 << 20;
const INDEX_CACHE_BYTES: u64 = 64 << 20;

/// Where the store is and what it may use.
#[derive(Debug, Clone)]
pub struct EmbeddedConfig {
    /// The data folder, made where it is missing.
    pub directory: PathBuf,
    /// The size in which segments of the journal are allocated.
    pub segment_bytes: u64,
    /// Below this much free space new work is refused, so that work in hand can still be completed.
    pub free_space_watermark_bytes: u64,
    /// The memory that the index may use for its pages.
    pub index_cache_bytes: u64,
    /// Who is told of every sync of the journal.
    pub on_sync: Option<SyncObserver>,
    /// The file operations of journal and content; the real ones but in tests.
    pub medium: Arc<dyn Medium>,
}

impl EmbeddedConfig {
    /// A store in this folder with the defaults: segments of 64 MiB, watermark at 256 MiB, index pages in 64 MiB.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            segment_bytes: SEGMENT_BYTES,
            free_space_watermark_bytes: FREE_SPACE_WATERMARK_BYTES,
            index_cache_bytes: INDEX_CACHE_BYTES,
            on_sync: None,
            medium: Arc::new(Disk),
        }
    }
}

/// Is told of every sync of the journal: how many entries it made durable, and how long it took. It is called on the writer's
/// thread and must not wait for anything.
#[derive(Clone)]
pub struct SyncObserver(Arc<dyn Fn(u32, Duration) + Send + Sync>);

impl SyncObserver {
    /// An observer that calls `observe`.
    pub fn new(observe: impl Fn(u32, Duration) + Send + Sync + 'static) -> Self {
        Self(Arc::new(observe))
    }

    fn call(&self, entries: usize, took: Duration) {
        (self.0)(u32::try_from(entries).unwrap_or(u32::MAX), took);
    }
}

impl fmt::Debug for SyncObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SyncObserver").finish_non_exhaustive()
    }
}

/// The store of one node.
pub struct EmbeddedStore {
    writer: WriterHandle<Machine>,
    watch: WriterWatch,
    state: Arc<State>,
    content: ContentReader,
    flusher: Mutex<Option<Flusher>>,
}

/// The thread that flushes the index now and then; ends when `stop` is dropped.
struct Flusher {
    stop: mpsc::Sender<Infallible>,
    thread: JoinHandle<()>,
}

impl fmt::Debug for EmbeddedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedStore").field("epoch", &self.state.epoch).finish_non_exhaustive()
    }
}

impl EmbeddedStore {
    /// Takes the folder, verifies the journal, brings the index up to it and starts the writer. Blocks; with a large journal for
    /// some time.
    ///
    /// # Errors
    /// [`OpenError`]: the folder is in use (with its holder's process number), the journal is damaged or an old copy, or the
    /// operating system refused something. Nothing is served then.
    pub fn open(
        config: EmbeddedConfig,
        clock: Arc<dyn Clock>,
    ) -> Result<(Arc<Self>, RecoveryReport), OpenError> {
        let Opened { journal, content, index, report } = open(&config, None)?;
        let index = Arc::new(index);
        let state = Arc::new(State::new(
            Arc::clone(&index),
            journal.reader(),
            Arc::clone(&clock),
            (journal.epoch(), journal.last_at_ms()),
        ));
        let reader = content.reader();
        let flusher = start_flusher(&state, Arc::clone(&index))
            .map_err(OpenError::io("start the flusher of", &config.directory))?;
        let machine = Machine::new(Arc::clone(&state), index, config.on_sync);
        let (writer, watch) = writer::spawn(journal, content, machine, WriterConfig::new(clock))?;
        let flusher = Mutex::new(Some(flusher));
        Ok((Arc::new(Self { writer, watch, state, content: reader, flusher }), report))
    }

    /// Waits until the store has failed, and answers why: the process must end and recover then. Never ends after an orderly
    /// close.
    pub fn died(&self) -> impl Future<Output = String> + Send + 'static + use<> {
        let mut watch = self.watch.clone();
        let mut health = self.state.health.subscribe();
        async move {
            let writer = async {
                match watch.ended().await {
                    WriterEnd::Failed(error) => error.to_string(),
                    WriterEnd::Panicked => "the journal writer panicked".to_owned(),
                    WriterEnd::Closed => std::future::pending().await,
                }
            };
            let fault = async {
                let reason = match health.wait_for(Option::is_some).await {
                    Ok(reason) => reason.clone(),
                    Err(_closed) => None,
                };
                match reason {
                    Some(reason) => reason,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                reason = writer => reason,
                reason = fault => reason,
            }
        }
    }

    /// What the writer has done so far.
    pub fn stats(&self) -> WriterStats {
        self.writer.stats()
    }

    /// Durable entries from `seq` on, for exports and tails of the audit chain. Reads the disk.
    pub fn entries_from(
        &self,
        seq: u64,
    ) -> impl Iterator<Item = Result<JournalEntry, StoreError>> + use<> {
        self.state.records.journal.read_from(seq).map(|frame| {
            let frame = frame.map_err(|error| StoreError::Damaged(error.to_string()))?;
            JournalEntry::decode(&frame).map_err(StoreError::Damaged)
        })
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&State) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let state = Arc::clone(&self.state);
        let answer = tokio::task::spawn_blocking(move || work(&state)).await;
        answer.unwrap_or_else(|error| Err(StoreError::Stopped(error.to_string())))
    }
}

#[async_trait]
impl Store for EmbeddedStore {
    fn now(&self) -> Timestamp {
        self.state.now()
    }

    fn epoch(&self) -> u64 {
        self.state.epoch
    }

    async fn claim(&self, record: EffectRecord) -> Result<ClaimAnswer, StoreError> {
        let own =
            matches!(record.state, EffectState::Claimed { epoch } if epoch == self.state.epoch);
        if !own {
            return Err(StoreError::Conflict);
        }
        let index = self.state.index()?;
        let (record_id, key) = (record.record_id, keys::effect(&record.record_id));
        let stored = || {
            let stored = self.state.effect(&index, &record_id);
            stored.map(|stored| stored.map(Arc::unwrap_or_clone))
        };
        let taken = self.state.claims.take(record, stored, || index.knows(&key))?;
        Ok(taken.map_or(ClaimAnswer::Claimed, |taken| ClaimAnswer::Taken(Box::new(taken))))
    }

    async fn release(&self, record_id: RecordId) {
        self.state.claims.release(&record_id);
    }

    async fn commit(&self, changes: Changes) -> Result<Committed, StoreError> {
        let committed = self.writer.submit(Request::new(changes)?).await?;
        self.state.note_written(committed.seq);
        Ok(committed)
    }

    async fn effect(&self, record_id: RecordId) -> Result<Option<EffectRecord>, StoreError> {
        let index = self.state.index()?;
        // Claims first: a record leaves them only once the index has it.
        match self.state.claims.get(&record_id) {
            Some(claimed) => Ok(Some(claimed)),
            None => Ok(self.state.effect(&index, &record_id)?.map(Arc::unwrap_or_clone)),
        }
    }

    async fn effect_of_call(
        &self,
        call_id: &ToolCallId,
    ) -> Result<Option<EffectRecord>, StoreError> {
        let index = self.state.index()?;
        if let Some(claimed) = self.state.claims.of_call(call_id) {
            return Ok(Some(claimed));
        }
        let found = index
            .record_of_call(&keys::call(call_id))
            .map_err(|fault| self.state.fail(&fault.to_string()))?;
        let Some(record_id) = found.and_then(|bytes| query::record_id(&bytes)) else {
            return Ok(None);
        };
        let record = self.state.effect(&index, &record_id)?;
        Ok(record.filter(|record| record.call_id == *call_id).map(Arc::unwrap_or_clone))
    }

    async fn approval(
        &self,
        approval_id: &ApprovalId,
    ) -> Result<Option<ApprovalRecord>, StoreError> {
        let index = self.state.index()?;
        Ok(self.state.approval(&index, approval_id)?.map(Arc::unwrap_or_clone))
    }

    async fn approval_of_call(
        &self,
        call_id: &ToolCallId,
    ) -> Result<Option<ApprovalRecord>, StoreError> {
        let call_id = call_id.clone();
        self.blocking(move |state| query::approval_of_call(state, &call_id)).await
    }

    async fn policy(&self) -> Result<Option<PolicyState>, StoreError> {
        drop(self.state.index()?);
        Ok(self.state.policy())
    }

    fn is_shared(&self) -> bool {
        false
    }

    async fn fence_dead(&self) -> Result<Vec<u64>, StoreError> {
        Ok(Vec::new())
    }

    async fn run(&self, key: &RunKey) -> Result<Option<RunRecord>, StoreError> {
        let index = self.state.index()?;
        self.state.run(&index, key)
    }

    async fn content(&self, tenant: &TenantId, digest: Digest) -> Result<Vec<u8>, StoreError> {
        let (reader, tenant) = (self.content.clone(), tenant.clone());
        let read = move |state: &State| {
            drop(state.index()?);
            reader.get(tenant.as_str(), digest).map_err(|error| match error {
                ContentError::Missing { digest } => StoreError::ContentMissing(digest),
                ContentError::Altered { digest } => StoreError::ContentAltered(digest),
                ContentError::TooLarge { .. }
                | ContentError::Io { .. }
                | ContentError::Poisoned => StoreError::Damaged(error.to_string()),
            })
        };
        self.blocking(read).await
    }

    async fn effects(&self, query: &EffectQuery) -> Result<Vec<EffectRecord>, StoreError> {
        let query = query.clone();
        self.blocking(move |state| query::effects(state, &query)).await
    }

    async fn approvals(&self, query: &ApprovalQuery) -> Result<Vec<ApprovalRecord>, StoreError> {
        let query = query.clone();
        self.blocking(move |state| query::approvals(state, &query)).await
    }

    async fn close(&self) -> Result<(), StoreError> {
        let flusher = self.flusher.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Flusher { stop, thread }) = flusher else { return Ok(()) };
        let closed = self.writer.close().await;
        drop(stop);
        let index = self.state.take_index();
        let sound = closed.is_ok() && self.state.health.borrow().is_none();
        let ending = tokio::task::spawn_blocking(move || {
            if thread.join().is_err() {
                tracing::error!("the flusher of the index panicked");
            }
            let Some(index) = index.filter(|_| sound) else { return };
            // What is not on disk is taken over from the journal at the next start.
            if let Err(fault) = index.close() {
                tracing::warn!(%fault, "the index could not be synced");
            }
        });
        ending.await.map_err(|error| StoreError::Stopped(error.to_string()))?;
        Ok(closed?)
    }
}

fn start_flusher(state: &Arc<State>, index: Arc<index::Index>) -> std::io::Result<Flusher> {
    let (stop, stopped) = mpsc::channel();
    let state = Arc::clone(state);
    let thread =
        std::thread::Builder::new().name("placet-index-flush".to_owned()).spawn(move || {
            index::flush_until(&index, &stopped, |reason| drop(state.fail(&reason)));
        })?;
    Ok(Flusher { stop, thread })
}
