//! The keeper: a thread that flushes the state, makes snapshots and runs long operations.
//!
//! Owns when a snapshot is made. Not here: its form (`snapshot`), the store's public operations (`mod`). Invariants: the writer never waits
//! for a snapshot, an archive or a backup; where space is short they are retried, any other failure stops the store.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use rustix::io::Errno;
use tokio::sync::oneshot;
use tokio::time::Instant;

use placet_ledger::store::StoreError;

use super::open::{OF_ANOTHER, is_of};
use super::snapshot::{SnapshotError, Snapshots};
use super::state::State;
use super::tree::{Tree, TreeFault};
use crate::journal::medium::Medium;
use crate::journal::{Base, JournalError, JournalReader};

/// How often sled's memory is flushed to the operating system. What a crash loses is replayed from the journal.
const FLUSH_EVERY: Duration = Duration::from_secs(2);
/// How often to check whether many keys are waiting for sled.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// A snapshot is due once the entries since the last one exceed this part of the keys: it takes as long as there are keys.
const KEYS_PER_ENTRY: u64 = 4;

/// A request to the keeper; an error stops the keeper.
pub(super) type Command = Box<dyn FnOnce(&mut Keeper) -> Result<(), KeepError> + Send>;

/// The result of archiving.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Archived {
    /// How many segments were moved.
    pub segments: u64,
    /// The first entry that is still in the journal's folder.
    pub first_seq: u64,
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

/// Why the keeper failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum KeepError {
    #[error(transparent)]
    Tree(#[from] TreeFault),
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error("segments wait to be moved to the archive: {0}")]
    Unmoved(JournalError),
    #[error("nothing is archived, since the tree over it cannot be shown: {0}")]
    Merkle(String),
    #[error(transparent)]
    Backup(Box<Self>),
}

impl KeepError {
    /// The error for the caller where nothing is broken and a retry is possible.
    fn is_transient(&self) -> Option<StoreError> {
        let source = match self {
            Self::Unmoved(_) => return Some(StoreError::Unreachable(self.to_string())),
            Self::Journal(JournalError::Io { source, .. })
            | Self::Snapshot(SnapshotError::Journal(JournalError::Io { source, .. })) => source,
            Self::Tree(_)
            | Self::Snapshot(_)
            | Self::Journal(_)
            | Self::Merkle(_)
            | Self::Backup(_) => return None,
        };
        // Connections may take all that this process may have open, for a while.
        if matches!(Errno::from_io_error(source), Some(Errno::MFILE | Errno::NFILE)) {
            return Some(StoreError::Unreachable(self.to_string()));
        }
        (source.kind() == io::ErrorKind::StorageFull).then_some(StoreError::NoSpace)
    }
}

/// The keeper's state.
#[derive(Debug)]
pub(super) struct Keeper {
    pub(super) medium: Arc<dyn Medium>,
    /// After how many entries a snapshot is due at the earliest.
    pub(super) snapshot_entries: u64,
    pub(super) tree: Arc<Tree>,
    pub(super) journal: JournalReader,
    pub(super) state: Arc<State>,
    pub(super) snapshots: Snapshots,
    /// Where the journal begins.
    pub(super) base: Base,
}

impl Keeper {
    /// Works until the sender of `commands` is dropped.
    pub(super) fn run(mut self, commands: &Receiver<Command>) {
        let mut tended = Instant::now();
        loop {
            let done = match commands.recv_timeout(LOOK_EVERY) {
                Ok(command) => command(&mut self),
                Err(RecvTimeoutError::Timeout) if tended.elapsed() < FLUSH_EVERY => {
                    self.tree.give_much().map_err(KeepError::from)
                }
                Err(RecvTimeoutError::Timeout) => {
                    tended = Instant::now();
                    self.tend()
                }
                Err(RecvTimeoutError::Disconnected) => return,
            };
            match done {
                Ok(()) => {}
                Err(error) if error.is_transient().is_some() => {
                    tracing::warn!(%error, "it cannot be done for the moment, and is tried again");
                }
                Err(error) => {
                    drop(self.state.fail(&error.to_string()));
                    return;
                }
            }
        }
    }

    fn tend(&mut self) -> Result<(), KeepError> {
        self.tree.flush()?;
        self.snapshot_if_due()
    }

    /// Makes a snapshot if enough has changed since the last one.
    pub(super) fn snapshot_if_due(&mut self) -> Result<(), KeepError> {
        let meta = self.tree.meta();
        let covered = self.snapshots.list()?.last().copied().unwrap_or(0);
        let due = self.snapshot_entries.max(meta.keys.checked_div(KEYS_PER_ENTRY).unwrap_or(0));
        if meta.applied_seq.saturating_sub(covered) < due {
            return Ok(());
        }
        self.snapshot().map(drop)
    }

    /// Makes a snapshot of the state as it is now.
    pub(super) fn snapshot(&mut self) -> Result<u64, KeepError> {
        let covered = self.newest_sound()?.unwrap_or(0);
        if self.tree.meta().applied_seq <= covered {
            return Ok(covered);
        }
        let seq = self.snapshots.write(&self.tree)?;
        tracing::info!(seq, "snapshot");
        Ok(seq)
    }

    /// The newest snapshot that is sound and of this journal. Others are set aside: they do not count as covering anything.
    pub(super) fn newest_sound(&self) -> Result<Option<u64>, KeepError> {
        while let Some(seq) = self.snapshots.list()?.last().copied() {
            let why = match self.snapshots.check(seq) {
                Ok(meta) if is_of(&meta, &self.journal, &self.base)? => return Ok(Some(seq)),
                Ok(_) => OF_ANOTHER.to_owned(),
                Err(error @ SnapshotError::Journal(_)) => return Err(error.into()),
                Err(error) => error.to_string(),
            };
            tracing::warn!(seq, why, "a snapshot cannot be used, and is set aside");
            self.snapshots.set_aside(seq)?;
        }
        Ok(None)
    }

    /// Sends the answer, and returns any error that must stop the keeper.
    pub(super) fn answer<T>(
        &self,
        reply: oneshot::Sender<Result<T, StoreError>>,
        done: Result<T, KeepError>,
    ) -> Result<(), KeepError> {
        match done {
            Ok(done) => {
                send(reply, Ok(done));
                Ok(())
            }
            // Nothing was changed.
            Err(error @ KeepError::Merkle(_)) => {
                send(reply, Err(StoreError::Damaged(error.to_string())));
                Ok(())
            }
            // A copy that cannot be written leaves the store as sound as it was.
            Err(error @ KeepError::Backup(_)) => {
                send(reply, Err(StoreError::Unreachable(error.to_string())));
                Ok(())
            }
            Err(error) => {
                let told = error.is_transient();
                send(reply, Err(told.unwrap_or_else(|| self.state.fail(&error.to_string()))));
                Err(error)
            }
        }
    }
}

fn send<T>(reply: oneshot::Sender<T>, answer: T) {
    if reply.send(answer).is_err() {
        tracing::debug!("a caller of the keeper has gone before its answer");
    }
}
