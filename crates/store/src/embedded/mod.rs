//! The embedded store: the ledger's [`Store`] kept by the journal (truth) and sled (state), for one node.
//!
//! Owns the data folder: `journal/` (the chain of entries, one for each commit, and the contents that they name), `state/` (sled: every
//! record's current version, the lists that contain it, where each content is, and the Merkle tree over the entries; rebuilt from a
//! snapshot and the journal whenever it is not trusted), `snapshots/` (the state as of an entry), `archive/` (old segments, on request),
//! `trusted`. Not here: what a record means (`placet-ledger`), the bytes of the journal ([`crate::journal`]).
//!
//! Invariants: an acknowledged commit survives `kill -9` (and a power cut, as far as `fdatasync` is honest); readers see only what is as
//! durable as it asked to be, and claims; the journal overrides the state; after the first fault nothing is answered and
//! [`EmbeddedStore::died`] says so.
//!
//! Look-ups read the state on the caller's thread: they are in memory, or a page away, and handing them to another thread would cost more
//! than the look-up. Lists and large contents can take longer and go to blocking threads, so the store needs a runtime.

mod archive;
mod backup;
mod check;
mod codec;
mod directives;
mod edits;
mod fresh;
mod identity;
mod keeper;
mod keys;
mod log;
mod machine;
mod merkle;
mod open;
mod overlay;
mod query;
mod read;
mod replay;
mod snapshot;
mod state;
mod stats;
mod store;
mod sums;
mod transfer;
mod tree;
mod trust;

#[cfg(test)]
#[expect(
    clippy::arithmetic_side_effects,
    clippy::wildcard_enum_match_arm,
    reason = "small numbers, and matches that name only what the test is about"
)]
pub(crate) mod tests;

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use placet_ledger::store::StoreError;
use placet_types::clock::{Clock, Timestamp};

pub use check::{
    CONTENTS_LISTED_MAX, ContentVerdict, StateVerdict, VerifyReport, archived_tree, rebuild, verify,
};
pub(crate) use codec::encode_entry;
pub use codec::{DecodeError, ENTRY_VERSION, Entry, decode_entry};
pub use identity::check_finished;
pub use keeper::{Archived, BackupMade};
pub use log::LOG;
pub use open::{OpenError, RecoveryReport, StateFate};
pub use stats::stats;
pub use transfer::{export, import};

use tokio::sync::oneshot;

use crate::journal::JournalError;
use crate::journal::medium::{Disk, Medium};
use crate::journal::writer::{self, WriterEnd, WriterHandle, WriterWatch};
use crate::progress::Progress;
use keeper::{Command, KeepError, Keeper};
use machine::Machine;
use open::{Opened, open};
use snapshot::Snapshots;
use state::State;

/// The size of a segment unless configured: allocated at once, so a start needs that much room.
pub const SEGMENT_BYTES: u64 = 64 << 20;
const FREE_SPACE_WATERMARK_BYTES: u64 = 256 << 20;
const STATE_CACHE_BYTES: u64 = 64 << 20;
const SNAPSHOT_ENTRIES: u64 = 100_000;

/// Where the store is and what it may use.
#[derive(Debug, Clone)]
pub struct EmbeddedConfig {
    /// The data folder, made where it is missing.
    pub directory: PathBuf,
    /// The allocation size of the journal's segments.
    pub segment_bytes: u64,
    /// Below this much free space new work is refused, so that work in hand can still be completed.
    pub free_space_watermark_bytes: u64,
    /// The memory that the state may use for its pages.
    pub state_cache_bytes: u64,
    /// After how many entries a snapshot is made at the earliest; for a large state, after as many as a quarter of its keys.
    pub snapshot_entries: u64,
    /// Where old segments of the journal are moved to on request; without it the folder `archive` beside the journal's.
    pub archive: Option<PathBuf>,
    /// Called at every sync of the journal.
    pub on_sync: Option<SyncObserver>,
    /// Receives the progress of a check or a rebuild.
    pub progress: Progress,
    /// The file operations of journal and snapshots; real ones except in tests.
    pub medium: Arc<dyn Medium>,
}

impl EmbeddedConfig {
    /// A store in this folder with the defaults: segments of 64 MiB, watermark at 256 MiB, pages of the state in 64 MiB,
    /// a snapshot after 100,000 entries.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            segment_bytes: SEGMENT_BYTES,
            free_space_watermark_bytes: FREE_SPACE_WATERMARK_BYTES,
            state_cache_bytes: STATE_CACHE_BYTES,
            snapshot_entries: SNAPSHOT_ENTRIES,
            archive: None,
            on_sync: None,
            progress: Progress::default(),
            medium: Arc::new(Disk),
        }
    }
}

/// Called at every sync of the journal, with how many entries it made durable, and how long it took. It runs on the thread that
/// synced, and must not block.
#[derive(Clone)]
pub struct SyncObserver(Arc<dyn Fn(u32, Duration) + Send + Sync>);

impl SyncObserver {
    /// An observer that calls `observe`.
    pub fn new(observe: impl Fn(u32, Duration) + Send + Sync + 'static) -> Self {
        Self(Arc::new(observe))
    }

    pub(crate) fn call(&self, entries: usize, took: Duration) {
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
    keeper: Mutex<Option<KeeperThread>>,
    directory: PathBuf,
    /// Below this much free space new work is refused.
    watermark_bytes: u64,
}

/// The thread that flushes the state, makes snapshots and backups; ends when `commands` is dropped.
struct KeeperThread {
    commands: mpsc::SyncSender<Command>,
    thread: JoinHandle<()>,
}

/// How many commands may wait for the keeper.
const COMMANDS_MAX: usize = 16;

impl fmt::Debug for EmbeddedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedStore").field("epoch", &self.state.epoch).finish_non_exhaustive()
    }
}

impl EmbeddedStore {
    /// Locks the folder, verifies the journal, brings the state up to it and starts the writer. Blocks; with a large journal for some time.
    ///
    /// # Errors
    /// [`OpenError`]: the folder is in use (with its holder's process number), the journal is damaged or an old copy, or the
    /// operating system refused something. Nothing is served then.
    pub fn open(
        config: EmbeddedConfig,
        clock: Arc<dyn Clock>,
    ) -> Result<(Arc<Self>, RecoveryReport), OpenError> {
        let Opened { journal, tree, base, report } = open(&config, None)?;
        let tree = Arc::new(tree);
        let state = Arc::new(State::new(Arc::clone(&tree), &journal, clock));
        let keeper = start_keeper(Keeper {
            medium: Arc::clone(&config.medium),
            snapshot_entries: config.snapshot_entries,
            tree: Arc::clone(&tree),
            journal: journal.reader(),
            state: Arc::clone(&state),
            snapshots: Snapshots::new(Arc::clone(&config.medium), &config.directory),
            base,
        });
        let keeper = keeper.map_err(JournalError::io("start the keeper of", &config.directory))?;
        let machine = Machine::new(Arc::clone(&state), tree, config.on_sync);
        let present = Arc::<crate::present::Present>::clone(&state.present);
        let (writer, watch) = writer::spawn(journal, machine, present)?;
        let EmbeddedConfig { directory, free_space_watermark_bytes: watermark_bytes, .. } = config;
        let keeper = Mutex::new(Some(keeper));
        let store = Self { writer, watch, state, keeper, directory, watermark_bytes };
        Ok((Arc::new(store), report))
    }

    /// Makes a snapshot of the state, from which a later start can rebuild it; answers the snapshot's last entry.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`] when there is no room for it; [`StoreError::Stopped`] when the store has failed.
    pub async fn snapshot(&self) -> Result<u64, StoreError> {
        self.ask(Keeper::snapshot).await
    }

    /// Makes a snapshot if enough has changed since the last one. The store also does this by itself.
    ///
    /// # Errors
    /// As [`EmbeddedStore::snapshot`].
    pub async fn snapshot_if_due(&self) -> Result<(), StoreError> {
        self.ask(Keeper::snapshot_if_due).await
    }

    /// Moves segments of which all entries are older than `before`, and all contents deleted, to the archive folder. Records stay
    /// readable; nothing is deleted.
    ///
    /// # Errors
    /// As [`EmbeddedStore::snapshot`].
    pub async fn archive(&self, before: Timestamp) -> Result<Archived, StoreError> {
        self.ask(move |keeper| keeper.archive(before)).await
    }

    /// Copies everything that is durable now into an empty folder, while the store serves on: a store that can be opened and
    /// verified.
    ///
    /// # Errors
    /// [`StoreError::Unreachable`] when the copy cannot be written; the store itself is as sound as before.
    pub async fn backup(&self, to: impl Into<PathBuf>) -> Result<BackupMade, StoreError> {
        let to = to.into();
        self.ask(move |keeper| keeper.backup(&to).map_err(|error| KeepError::Backup(error.into())))
            .await
    }

    async fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Keeper) -> Result<T, KeepError> + Send + 'static,
    ) -> Result<T, StoreError> {
        drop(self.state.tree()?);
        let (reply, answer) = oneshot::channel();
        let command: Command = Box::new(move |keeper| {
            let done = work(keeper);
            keeper.answer(reply, done)
        });
        let gone = || StoreError::Stopped("the keeper has ended".to_owned());
        {
            let keeper = self.keeper.lock();
            let keeper = keeper.as_ref().ok_or_else(gone)?;
            match keeper.commands.try_send(command) {
                Ok(()) => {}
                Err(mpsc::TrySendError::Full(_)) => {
                    return Err(StoreError::Unreachable("the keeper is busy".to_owned()));
                }
                Err(mpsc::TrySendError::Disconnected(_)) => return Err(gone()),
            }
        }
        answer.await.unwrap_or_else(|_ended| Err(gone()))
    }

    /// Waits until the store has failed, and answers why: the process must end and recover then. Pending forever after an orderly close.
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

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&State) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let state = Arc::clone(&self.state);
        let answer = tokio::task::spawn_blocking(move || work(&state)).await;
        answer.unwrap_or_else(|error| Err(StoreError::Stopped(error.to_string())))
    }
}

fn start_keeper(keeper: Keeper) -> std::io::Result<KeeperThread> {
    let (commands, waiting) = mpsc::sync_channel(COMMANDS_MAX);
    let thread = std::thread::Builder::new()
        .name("placet-keeper".to_owned())
        .spawn(move || keeper.run(&waiting))?;
    Ok(KeeperThread { commands, thread })
}
