//! The audit log of the embedded store: one log over the whole journal, and its Merkle tree.
//!
//! Owns the answers about entries and proofs. Not here: how proofs are made (`tree`), signing (`notary`). Invariant: only durable
//! entries are shown, and a proof is about entries that were durable before it was asked for.

use std::time::Duration;

use async_trait::async_trait;

use placet_ledger::log::{AuditLog, LogEntry, TreeHead};
use placet_ledger::store::{Store as _, StoreError};
use placet_types::digest::Digest;
use placet_types::ids::RecordId;

use super::state::State;
use super::{EmbeddedStore, keys};
use crate::journal::{Frame, JournalError};
use crate::tree::{LogTreeReader, TreeError};

/// The name of the one log.
pub const LOG: &str = "journal";

impl EmbeddedStore {
    async fn proof(
        &self,
        log: &str,
        prove: impl FnOnce(&LogTreeReader) -> Result<Vec<Digest>, TreeError> + Send + 'static,
    ) -> Result<Vec<[u8; 32]>, StoreError> {
        check_log(log)?;
        let tree = self.tree.clone();
        let proof = self.blocking(move |_| prove(&tree).map_err(|error| damaged(&error))).await?;
        Ok(proof.iter().map(|hash| *hash.as_bytes()).collect())
    }
}

#[async_trait]
impl AuditLog for EmbeddedStore {
    async fn heads(&self) -> Result<Vec<TreeHead>, StoreError> {
        drop(self.state.index()?);
        let head = self.tree.head();
        Ok(vec![TreeHead {
            log: LOG.to_owned(),
            size: head.head.size,
            root: *head.head.root.as_bytes(),
            head: head.chain,
            epoch: self.epoch(),
            at: self.now(),
        }])
    }

    async fn entries(
        &self,
        log: &str,
        from: u64,
        limit: usize,
    ) -> Result<Vec<LogEntry>, StoreError> {
        check_log(log)?;
        self.blocking(move |state| {
            drop(state.index()?);
            let frames = state.records.journal.read_from(from).take(limit);
            frames.map(|frame| frame.map(entry).map_err(|error| unread(&error))).collect()
        })
        .await
    }

    async fn entry_of(&self, record_id: RecordId) -> Result<Option<(String, u64)>, StoreError> {
        let index = self.state.index()?;
        let stored =
            index.read(&keys::effect(&record_id)).map_err(|fault| self.state.fail_index(&fault))?;
        Ok(stored.map(|stored| (LOG.to_owned(), stored.seq)))
    }

    async fn inclusion(&self, log: &str, seq: u64, size: u64) -> Result<Vec<[u8; 32]>, StoreError> {
        self.proof(log, move |tree| Ok(tree.inclusion(seq, size)?.0.path)).await
    }

    async fn consistency(
        &self,
        log: &str,
        from: u64,
        to: u64,
    ) -> Result<Vec<[u8; 32]>, StoreError> {
        self.proof(log, move |tree| Ok(tree.consistency(from, to)?.path)).await
    }
}

/// How many entries are looked over before others get the processor.
const LOOK_ENTRIES: u64 = 256;
/// How long they get it.
const LOOK_PAUSE: Duration = Duration::from_millis(2);

impl EmbeddedStore {
    /// Reads every entry that was not archived, each against its checksum and the one before it; answers how many. A start looks at the
    /// whole journal only where no checkpoint covers it; what is older than the checkpoint is looked over by this, while calls are
    /// served. A disk that cannot be read stops the store.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when an entry is not what was written; [`StoreError::Stopped`] when the store was closed or has failed.
    pub async fn scrub(&self) -> Result<u64, StoreError> {
        self.blocking(scrub).await
    }
}

fn scrub(state: &State) -> Result<u64, StoreError> {
    let journal = &state.records.journal;
    let unreadable = |error: JournalError| {
        if matches!(error, JournalError::Corrupt { .. }) {
            return unread(&error);
        }
        let is_disk = matches!(error, JournalError::Io { .. });
        if is_disk { state.fail(&error.to_string()) } else { error.into() }
    };
    let mut next = journal.first_kept().map_err(unreadable)?;
    let mut frames = journal.read_from(next);
    let mut seen: u64 = 0;
    while let Some(frame) = frames.next() {
        match frame {
            Ok(frame) => next = frame.seq.saturating_add(1),
            Err(error @ JournalError::Archived { .. }) => {
                // It was archived, and taken off the machine, since this began.
                let kept = journal.first_kept().map_err(unreadable)?;
                if kept <= next {
                    return Err(unread(&error));
                }
                (next, frames) = (kept, journal.read_from(kept));
                continue;
            }
            Err(error) => return Err(unreadable(error)),
        }
        seen = seen.saturating_add(1);
        if seen.is_multiple_of(LOOK_ENTRIES) {
            drop(state.index()?);
            std::thread::park_timeout(LOOK_PAUSE);
        }
    }
    Ok(seen)
}

fn check_log(log: &str) -> Result<(), StoreError> {
    if log == LOG { Ok(()) } else { Err(StoreError::Damaged(format!("there is no log `{log}`"))) }
}

fn damaged(error: &TreeError) -> StoreError {
    StoreError::Damaged(error.to_string())
}

fn unread(error: &JournalError) -> StoreError {
    StoreError::Damaged(error.to_string())
}

/// An entry as others see it.
pub(crate) fn entry(frame: Frame) -> LogEntry {
    LogEntry {
        seq: frame.seq,
        epoch: frame.epoch,
        at_ms: frame.at_ms,
        kind: frame.kind,
        durable_seq: frame.durable_seq,
        prev: frame.prev,
        payload: frame.payload,
        hash: frame.hash,
    }
}
