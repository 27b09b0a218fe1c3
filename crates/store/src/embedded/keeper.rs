//! The keeper: one thread that flushes the index, makes checkpoints and does what takes long.
//!
//! Owns when a checkpoint is made, and the order of its steps. Not here: the file (`checkpoint`), what is asked of the store from
//! outside (`mod`). Invariants: a generation is let go only when a durable checkpoint holds all of it; a checkpoint is in place only
//! when the generation that goes on from it is durable; the writer never waits for more than the change of generations; too little space puts a checkpoint off, any other failure stops the store.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::oneshot;

use placet_ledger::store::StoreError;
use placet_types::clock::Timestamp;
use placet_types::ids::RecordId;

use super::checkpoint::{Checkpoint, Checkpoints, Draft};
use super::delta::Spill;
use super::floor::Footing;
use super::generation::{self, Generation};
use super::index::{Applied, Frozen, Index, IndexFault};
use super::open::OpenError;
use super::state::State;
use crate::content::{ContentError, ContentReader};
use crate::journal::medium::Medium;
use crate::journal::{JournalError, JournalReader};
use crate::sorted::{TableError, TableSet};
use crate::tree::{LogTreeReader, TreeError};

/// How often what sled holds in memory is given to the operating system. sled's own flusher is not used: it ignores errors.
/// What a crash takes with it is taken over from the journal again.
const FLUSH_EVERY: Duration = Duration::from_secs(2);

/// What is asked of the keeper.
#[derive(Debug)]
pub(super) enum Command {
    /// A checkpoint now.
    Checkpoint(oneshot::Sender<Result<CheckpointMade, StoreError>>),
    /// Old segments are moved to the archive.
    Archive(Timestamp, oneshot::Sender<Result<Archived, StoreError>>),
    /// A copy of everything.
    Backup(PathBuf, oneshot::Sender<Result<BackupMade, StoreError>>),
    /// Packs that are mostly dead are rewritten.
    CompactContent(oneshot::Sender<Result<u64, StoreError>>),
}

/// A checkpoint that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointMade {
    /// Its number.
    pub number: u64,
    /// The last entry that it covers.
    pub seq: u64,
}

/// What was archived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Archived {
    /// How many segments were moved.
    pub segments: u64,
    /// The first entry that is still in the journal's folder.
    pub first_seq: u64,
    /// Records of which the last form was carried over into the checkpoint.
    pub records: u64,
}

/// A backup that was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackupMade {
    /// The last entry that it holds.
    pub seq: u64,
    /// The hash of that entry.
    pub head: [u8; 32],
    /// How many bytes were copied.
    pub bytes: u64,
}

/// Why the keeper could not do it.
#[derive(Debug, thiserror::Error)]
pub(super) enum KeepError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Index(#[from] IndexFault),
    #[error(transparent)]
    Table(#[from] TableError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Content(#[from] ContentError),
    #[error("segments wait to be moved to the archive: {0}")]
    Unmoved(JournalError),
    #[error("nothing is archived, since the tree over it could not be rebuilt later: {0}")]
    Tree(#[from] TreeError),
    #[error("the next generation of the index cannot be opened: {0}")]
    Generation(String),
    #[error("content is to be deleted still, and what says so is not left behind before")]
    Owing,
    #[error("the places of content are being rebuilt, and a deletion waits for that")]
    Mending,
    #[error("{0}")]
    Deleting(IndexFault),
    #[error("{0}")]
    Damaged(String),
    #[error("cannot {what} `{}`: {source}", .path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
}

impl KeepError {
    pub(super) fn io(what: &'static str, path: &std::path::Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what, path: path.to_owned(), source }
    }

    /// Whether there was no room: nothing is broken, and it can be tried again.
    fn is_no_room(&self) -> bool {
        let full = |error: &io::Error| error.kind() == io::ErrorKind::StorageFull;
        match self {
            Self::Open(OpenError::Io { source, .. }) | Self::Io { source, .. } => full(source),
            Self::Table(TableError::Io { source, .. })
            | Self::Content(ContentError::Io { source, .. })
            | Self::Journal(JournalError::Io { source, .. }) => full(source),
            Self::Open(_)
            | Self::Index(_)
            | Self::Table(_)
            | Self::Journal(_)
            | Self::Unmoved(_)
            | Self::Content(_)
            | Self::Tree(_)
            | Self::Generation(_)
            | Self::Owing
            | Self::Mending
            | Self::Deleting(_)
            | Self::Damaged(_) => false,
        }
    }

    /// What whoever asks is told where nothing is broken, and it can be tried again.
    fn is_transient(&self) -> Option<StoreError> {
        if matches!(self, Self::Owing | Self::Mending | Self::Deleting(_) | Self::Unmoved(_)) {
            return Some(StoreError::Unreachable(self.to_string()));
        }
        self.is_no_room().then_some(StoreError::NoSpace)
    }
}

/// Where everything is.
#[derive(Debug, Clone)]
pub(super) struct Places {
    pub(super) medium: Arc<dyn Medium>,
    pub(super) directory: PathBuf,
    pub(super) index: PathBuf,
    pub(super) index_cache_bytes: u64,
    /// After how many entries a checkpoint is due.
    pub(super) checkpoint_entries: u64,
    pub(super) store_id: String,
}

/// The tables with the records of archived entries, shared with the readers of records.
#[derive(Debug, Clone, Default)]
pub(super) struct Bodies(Arc<RwLock<TableSet>>);

impl Bodies {
    pub(super) fn new(tables: TableSet) -> Self {
        Self(Arc::new(RwLock::new(tables)))
    }

    pub(super) fn get(&self) -> TableSet {
        // Nothing can panic while the lock is held, so a poisoned lock still guards sound values.
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set(&self, tables: TableSet) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = tables;
    }
}

/// The keeper's state.
#[derive(Debug)]
pub(super) struct Keeper {
    pub(super) places: Places,
    pub(super) checkpoints: Checkpoints,
    pub(super) index: Arc<Index>,
    pub(super) journal: JournalReader,
    pub(super) content: ContentReader,
    pub(super) bodies: Bodies,
    /// What was archived, and what checkpoints say of it.
    pub(super) footing: Footing,
    pub(super) tree: LogTreeReader,
    pub(super) next_table: u64,
    pub(super) next_generation: u64,
    /// The last entry that a checkpoint covers.
    pub(super) covered_seq: u64,
    /// The entry that the checkpoint before that covers: nothing after it may be archived.
    pub(super) covered_before_seq: u64,
    /// A generation that waits for its checkpoint: an earlier try found no room.
    pub(super) frozen: Option<Frozen>,
}

impl Keeper {
    /// Works until the other end of `commands` is gone.
    pub(super) fn run(mut self, commands: &Receiver<Command>, state: &State) {
        loop {
            let done = match commands.recv_timeout(FLUSH_EVERY) {
                Ok(command) => self.serve(command, state),
                Err(RecvTimeoutError::Timeout) => self.tend(),
                Err(RecvTimeoutError::Disconnected) => return,
            };
            match done {
                Ok(()) => {}
                Err(error) if error.is_transient().is_some() => {
                    tracing::warn!(%error, "it cannot be done for the moment, and is tried again");
                }
                Err(error) => {
                    drop(state.fail(&error.to_string()));
                    return;
                }
            }
        }
    }

    fn tend(&mut self) -> Result<(), KeepError> {
        self.index.flush()?;
        self.content.tend()?;
        let applied_seq = self.index.applied().meta.applied_seq;
        let due = applied_seq.saturating_sub(self.covered_seq) >= self.places.checkpoint_entries;
        if due || self.frozen.is_some() { self.checkpoint().map(drop) } else { Ok(()) }
    }

    fn serve(&mut self, command: Command, state: &State) -> Result<(), KeepError> {
        match command {
            Command::Checkpoint(reply) => {
                let made = self.checkpoint();
                answer(reply, made, state)
            }
            Command::Archive(before, reply) => {
                let archived = self.archive(before);
                if let Err(error @ KeepError::Tree(_)) = &archived {
                    // Nothing was changed; the next start makes the tree anew.
                    send(reply, Err(StoreError::Damaged(error.to_string())));
                    return Ok(());
                }
                answer(reply, archived, state)
            }
            Command::Backup(to, reply) => {
                // A copy that cannot be written leaves the store as sound as it was.
                let made = self.backup(&to);
                let told = made.map_err(|error| StoreError::Unreachable(error.to_string()));
                send(reply, told);
                Ok(())
            }
            Command::CompactContent(reply) => {
                let compacted = self.content.compact().map_err(KeepError::from);
                answer(reply, compacted, state)
            }
        }
    }

    /// Makes a checkpoint of everything that is applied now.
    pub(super) fn checkpoint(&mut self) -> Result<CheckpointMade, KeepError> {
        let frozen = match self.frozen.take() {
            Some(frozen) => frozen,
            None => self.freeze()?,
        };
        // Content that entries which are left behind say is deleted is known as such without them.
        let settled = self.content.settle().map_err(KeepError::from);
        let written = settled.and_then(|()| self.index.begun().map_err(KeepError::from));
        let tables = match written.and_then(|()| self.write_table(&frozen)) {
            Ok(tables) => tables,
            Err(error) => {
                self.frozen = Some(frozen);
                return Err(error);
            }
        };
        let made = match self.write_checkpoint((&frozen.applied, &frozen.open), &tables) {
            Ok(made) => made,
            Err(error) => {
                self.frozen = Some(frozen);
                return Err(error);
            }
        };
        self.index.thawed(tables.clone());
        let Frozen { generation, applied, open, .. } = frozen;
        let folder = generation.directory().to_owned();
        drop(generation);
        // Readers may hold it for a moment still; what is left of it is swept at the next start.
        if let Err(error) = std::fs::remove_dir_all(&folder) {
            tracing::warn!(%error, "an old generation of the index could not be removed");
        }
        Ok(self.merge((&applied, &open), &tables)?.unwrap_or(made))
    }

    /// Makes fewer tables of many, where that is due, and a checkpoint that names them. It takes long where there is much.
    fn merge(
        &mut self,
        covered: (&Applied, &BTreeMap<RecordId, u8>),
        tables: &TableSet,
    ) -> Result<Option<CheckpointMade>, KeepError> {
        if tables.due_for_merge().is_none() {
            return Ok(None);
        }
        let mut spill = self.spill();
        let merged = spill.merge(tables.clone())?;
        self.next_table = spill.next_table;
        let made = self.write_checkpoint(covered, &merged)?;
        self.index.replace_tables(merged);
        Ok(Some(made))
    }

    fn freeze(&mut self) -> Result<Frozen, KeepError> {
        // A start deletes what the entries after the checkpoint say; what was put off and forgotten here would stay for ever. Deletions
        // are put off by this thread alone, so none comes in between.
        self.settle_deletions();
        if self.content.owes() {
            return Err(KeepError::Owing);
        }
        // A deletion in hand may have to wait for that, and whoever asks is told at once.
        if self.content.is_mending() {
            return Err(KeepError::Mending);
        }
        let folder = generation::folder(&self.places.index, self.next_generation);
        self.next_generation = self.next_generation.saturating_add(1);
        if matches!(folder.try_exists(), Ok(true)) {
            std::fs::remove_dir_all(&folder).map_err(KeepError::io("remove", &folder))?;
        }
        let next = Generation::open(&folder, self.places.index_cache_bytes)
            .map_err(|error| KeepError::Generation(error.to_string()))?;
        let frozen = self.index.freeze(next);
        if frozen.is_err()
            && let Err(error) = std::fs::remove_dir_all(&folder)
        {
            // Nothing goes on in it. It is swept at the next start.
            tracing::warn!(%error, "a generation of the index that was not begun could not be removed");
        }
        match frozen {
            // Whatever they wait for, and for how long: what was said is still to be done, and will be.
            Err(fault @ IndexFault::Deleting) => Err(KeepError::Deleting(fault)),
            frozen => Ok(frozen?),
        }
    }

    fn write_table(&mut self, frozen: &Frozen) -> Result<TableSet, KeepError> {
        let is_lowest = frozen.tables.tables().is_empty();
        let mut spill = self.spill();
        let mut writer = spill.writer()?;
        let mut wrote_any = false;
        for pair in frozen.generation.source(&[]) {
            let (key, value) = pair?;
            if !is_lowest || !value.is_empty() {
                writer.put(&key, &value, super::keys::is_filtered(&key))?;
                wrote_any = true;
            }
        }
        self.next_table = spill.next_table;
        Ok(if wrote_any { frozen.tables.with(writer.finish()?) } else { frozen.tables.clone() })
    }

    fn write_checkpoint(
        &mut self,
        (applied, open): (&Applied, &BTreeMap<RecordId, u8>),
        tables: &TableSet,
    ) -> Result<CheckpointMade, KeepError> {
        if applied.meta.applied_seq == 0 {
            return Ok(CheckpointMade { number: 0, seq: 0 });
        }
        let (base, frontier) = self.footing.named()?;
        let draft = Draft {
            store_id: self.places.store_id.clone(),
            meta: applied.meta,
            epoch: applied.epoch,
            at_ms: applied.at_ms,
            start: self.journal.start_after(applied.meta.applied_seq)?,
            counts: applied.counts,
            open: open.clone(),
            frontier,
            tables: tables.clone(),
            bodies: self.bodies.get(),
            base,
            next_table: self.next_table,
        };
        let Checkpoint { number, seq, .. } = self.checkpoints.write(draft)?;
        self.covered_before_seq = self.covered_seq;
        self.covered_seq = seq;
        tracing::info!(number, seq, "checkpoint");
        Ok(CheckpointMade { number, seq })
    }

    pub(super) fn spill(&self) -> Spill {
        let directory = self.checkpoints.directory.clone();
        Spill::new(Arc::clone(&self.places.medium), directory, self.next_table)
    }
}

/// Answers, and passes on what keeps the keeper from going on.
fn answer<T>(
    reply: oneshot::Sender<Result<T, StoreError>>,
    done: Result<T, KeepError>,
    state: &State,
) -> Result<(), KeepError> {
    match done {
        Ok(done) => {
            send(reply, Ok(done));
            Ok(())
        }
        Err(error) => {
            if let Some(passing) = error.is_transient() {
                send(reply, Err(passing));
                return Err(error);
            }
            send(reply, Err(state.fail(&error.to_string())));
            Err(error)
        }
    }
}

fn send<T>(reply: oneshot::Sender<T>, answer: T) {
    if reply.send(answer).is_err() {
        tracing::debug!("a caller of the keeper has gone before its answer");
    }
}
