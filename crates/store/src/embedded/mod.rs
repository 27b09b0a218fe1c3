//! The embedded store: the ledger's [`Store`] kept by the journal (truth) and sled (index), for one node.
//!
//! Owns the data folder: `journal/` (the chain of entries, one for each commit), `content/` (the bytes that entries name by
//! digest), `checkpoints/` (what a start needs of older entries: sorted tables of all records, and what was open), `index/` (sled:
//! what has changed since the checkpoint; rebuilt from the journal whenever it disagrees, the old one kept as
//! `index.damaged-<epoch>`), `tree/` (the Merkle tree over the entries), `archive/` (old segments, on request), `store-id`.
//! Not here: what a record means (`placet-ledger`), the bytes of the journal ([`crate::journal`]).
//!
//! Invariants: an acknowledged commit survives `kill -9` (and a power cut, as far as `fdatasync` is honest); readers see only
//! what is as durable as it asked to be, and claims; the index is never believed where the journal knows better; after the
//! first fault nothing is answered and [`EmbeddedStore::died`] says so.
//!
//! Look-ups read index and journal on the caller's thread: they are in memory, or two pages away, and handing them to another
//! thread would cost more than they do. Lists and contents can take longer and go to blocking threads, so the store needs a runtime.

mod archive;
mod backup;
mod beside;
mod checkpoint;
mod claims;
mod codec;
mod delta;
mod directives;
mod floor;
mod fsck;
mod generation;
mod identity;
mod index;
mod keeper;
mod kept;
mod keys;
mod log;
mod machine;
mod newest;
mod offline;
mod open;
mod query;
mod recent;
mod records;
mod settle;
mod slip;
mod stamps;
mod state;
mod store;
mod transfer;

#[cfg(test)]
#[expect(
    clippy::arithmetic_side_effects,
    clippy::wildcard_enum_match_arm,
    reason = "small numbers, and matches that name only what the test is about"
)]
pub(crate) mod tests;

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use placet_ledger::store::StoreError;
use placet_types::clock::{Clock, Timestamp};

pub use codec::{DecodeError, ENTRY_VERSION, EffectEntry, Entry};
pub(crate) use codec::{decode_entry, encode_entry};
pub use fsck::{FsckReport, fsck};
pub use identity::{KnownHead, check_finished};
pub use keeper::{Archived, BackupMade, CheckpointMade};
pub use kept::imported_logs;
pub use log::LOG;
pub use offline::{
    CONTENTS_LISTED_MAX, ContentVerdict, IndexVerdict, JournalEntry, VerifyReport, archived_tree,
    read_audit, rebuild, rebuild_with, verify, verify_with,
};
pub use open::{IndexFate, OpenError, RecoveryReport};
pub use transfer::{export, export_as, import};

use tokio::sync::oneshot;

use crate::content::ContentReader;
use crate::journal::JournalReader;
use crate::journal::medium::{Disk, Medium};
use crate::journal::writer::{
    self, WriterConfig, WriterEnd, WriterHandle, WriterStats, WriterWatch,
};
use crate::tree::LogTreeReader;
use keeper::{Bodies, Command, Keeper, Places};
use machine::Machine;
use open::{INDEX, JOURNAL, Opened, Rest, open};
use state::State;

const SEGMENT_BYTES: u64 = 64 << 20;
const FREE_SPACE_WATERMARK_BYTES: u64 = 256 << 20;
const INDEX_CACHE_BYTES: u64 = 32 << 20;
const CHECKPOINT_ENTRIES: u64 = 20_000;
const RECOVERY_BYTES_MAX: usize = 16 << 20;

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
    /// After how many entries a checkpoint is made: what a start has to read at most, and what is held in memory of the index.
    pub checkpoint_entries: u64,
    /// How many bytes of changes a start gathers in memory before it puts them into tables.
    pub recovery_bytes_max: usize,
    /// Where old segments of the journal are moved to on request; without it the folder `archive` beside the journal's.
    pub archive: Option<PathBuf>,
    /// A head of the log that is known from elsewhere: a ledger that does not hold it is an old copy, and is refused.
    pub known_head: Option<KnownHead>,
    /// Who is told of every sync of the journal.
    pub on_sync: Option<SyncObserver>,
    /// The file operations of journal and content; the real ones but in tests.
    pub medium: Arc<dyn Medium>,
}

impl EmbeddedConfig {
    /// A store in this folder with the defaults: segments of 64 MiB, watermark at 256 MiB, index pages in 32 MiB,
    /// a checkpoint after 20,000 entries.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            segment_bytes: SEGMENT_BYTES,
            free_space_watermark_bytes: FREE_SPACE_WATERMARK_BYTES,
            index_cache_bytes: INDEX_CACHE_BYTES,
            checkpoint_entries: CHECKPOINT_ENTRIES,
            recovery_bytes_max: RECOVERY_BYTES_MAX,
            archive: None,
            known_head: None,
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
    content: ContentReader,
    keeper: Mutex<Option<KeeperThread>>,
    store_id: String,
    tree: LogTreeReader,
    room: Room,
}

/// The space that the store has for new work.
struct Room {
    medium: Arc<dyn Medium>,
    directory: PathBuf,
    watermark_bytes: u64,
}

impl Room {
    /// Where the operating system does not say how much is free, there is none for certain.
    fn is_low(&self) -> bool {
        let free = self.medium.free_bytes(&self.directory);
        free.map_or(true, |free| free < self.watermark_bytes)
    }
}

/// The thread that keeps the index, makes checkpoints and backups; ends when `commands` is dropped.
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
        let Opened { journal, content, index, tree, rest, report } = open(&config, None)?;
        let (index, bodies) = (Arc::new(index), Bodies::new(rest.bodies.clone()));
        let state = Arc::new(State::new(
            Arc::clone(&index),
            (journal.reader(), bodies.clone()),
            Arc::clone(&clock),
            (journal.epoch(), journal.last_at_ms()),
        ));
        let (reader, store_id) = (content.reader(), rest.store_id.clone());
        let room = Room {
            medium: Arc::clone(&config.medium),
            directory: config.directory.join(JOURNAL),
            watermark_bytes: config.free_space_watermark_bytes,
        };
        let keeper = keeper(
            &config,
            rest,
            (Arc::clone(&index), journal.reader()),
            (reader.clone(), bodies),
            tree.reader(),
        );
        let keeper = start_keeper(keeper, Arc::clone(&state))
            .map_err(OpenError::io("start the keeper of", &config.directory))?;
        let proofs = tree.reader();
        let machine = Machine::new(Arc::clone(&state), index, (tree, config.on_sync));
        let present = Arc::<crate::present::Present>::clone(&state.present);
        let (writer, watch) = writer::spawn(journal, content, machine, WriterConfig::new(present))?;
        let keeper = Mutex::new(Some(keeper));
        let (content, tree) = (reader, proofs);
        Ok((Arc::new(Self { writer, watch, state, content, keeper, store_id, tree, room }), report))
    }

    /// The name of this ledger, the same in all its copies.
    pub fn store_id(&self) -> &str {
        &self.store_id
    }

    /// Makes a checkpoint of everything that is durable now. They are made without being asked for, too.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`] when there is no room for it; [`StoreError::Stopped`] when the store has failed.
    pub async fn checkpoint(&self) -> Result<CheckpointMade, StoreError> {
        self.ask(Command::Checkpoint).await
    }

    /// Moves segments of which all entries are older than `before` to the archive folder. Records stay readable; nothing is deleted.
    ///
    /// # Errors
    /// As [`EmbeddedStore::checkpoint`].
    pub async fn archive(&self, before: Timestamp) -> Result<Archived, StoreError> {
        self.ask(|reply| Command::Archive(before, reply)).await
    }

    /// Copies everything that is durable now into an empty folder, while the store serves on: a store that can be opened and
    /// verified.
    ///
    /// # Errors
    /// [`StoreError::Unreachable`] when the copy cannot be written; the store itself is as sound as before.
    pub async fn backup(&self, to: impl Into<PathBuf>) -> Result<BackupMade, StoreError> {
        let to = to.into();
        self.ask(|reply| Command::Backup(to, reply)).await
    }

    /// Writes packs of content anew of which most is deleted; answers how many bytes were given back.
    ///
    /// # Errors
    /// As [`EmbeddedStore::checkpoint`].
    pub async fn compact_content(&self) -> Result<u64, StoreError> {
        self.ask(Command::CompactContent).await
    }

    async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Command,
    ) -> Result<T, StoreError> {
        drop(self.state.index()?);
        let (reply, answer) = oneshot::channel();
        let gone = || StoreError::Stopped("the keeper has ended".to_owned());
        {
            let keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
            let keeper = keeper.as_ref().ok_or_else(gone)?;
            match keeper.commands.try_send(command(reply)) {
                Ok(()) => {}
                Err(mpsc::TrySendError::Full(_)) => {
                    return Err(StoreError::Unreachable("the keeper is busy".to_owned()));
                }
                Err(mpsc::TrySendError::Disconnected(_)) => return Err(gone()),
            }
        }
        answer.await.unwrap_or_else(|_ended| Err(gone()))
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

fn keeper(
    config: &EmbeddedConfig,
    rest: Rest,
    (index, journal): (Arc<index::Index>, JournalReader),
    (content, bodies): (ContentReader, Bodies),
    tree: LogTreeReader,
) -> Keeper {
    let places = Places {
        medium: Arc::clone(&config.medium),
        directory: config.directory.clone(),
        index: config.directory.join(INDEX),
        index_cache_bytes: config.index_cache_bytes,
        checkpoint_entries: config.checkpoint_entries.max(1),
        store_id: rest.store_id,
    };
    Keeper {
        places,
        checkpoints: rest.checkpoints,
        index,
        journal,
        content,
        bodies,
        footing: rest.footing,
        tree,
        next_table: rest.next_table,
        next_generation: rest.next_generation,
        covered_seq: rest.covered_seq,
        covered_before_seq: 0,
        frozen: None,
    }
}

fn start_keeper(keeper: Keeper, state: Arc<State>) -> std::io::Result<KeeperThread> {
    let (commands, waiting) = mpsc::sync_channel(COMMANDS_MAX);
    let thread = std::thread::Builder::new()
        .name("placet-keeper".to_owned())
        .spawn(move || keeper.run(&waiting, &state))?;
    Ok(KeeperThread { commands, thread })
}
