//! The audit log of the embedded store: one log over the whole journal, and its Merkle tree.
//!
//! Owns the answers about entries and proofs. Not here: how proofs are made (`merkle`), signing (`notary`). Invariant: only durable
//! entries are shown, and a proof is about entries that were durable before it was asked for.

use std::time::Duration;

use async_trait::async_trait;

use placet_ledger::audit::Subject;
use placet_ledger::log::{AuditLog, LogEntry, TreeHead};
use placet_ledger::proof::{TreeView, ViewError};
use placet_ledger::store::{Store as _, StoreError};
use placet_types::digest::Digest;
use placet_types::ids::RecordId;

use super::merkle::{self, StateTiles};
use super::state::State;
use super::tree::{List, Order, TreeFault};
use super::{EmbeddedStore, keys};
use crate::journal::JournalError;

/// The name of the one log.
pub const LOG: &str = "journal";

impl EmbeddedStore {
    async fn proof(
        &self,
        log: &str,
        prove: impl FnOnce(&View<'_, '_>) -> Result<Vec<Digest>, ViewError<TreeFault>> + Send + 'static,
    ) -> Result<Vec<[u8; 32]>, StoreError> {
        check_log(log)?;
        let proof = self.blocking(move |state| {
            let tree = state.tree()?;
            let proof = merkle::view(&tree, prove);
            proof.map_err(|error| StoreError::Damaged(error.to_string()))
        });
        Ok(proof.await?.iter().map(|hash| *hash.as_bytes()).collect())
    }
}

/// The current Merkle tree.
type View<'t, 's> = TreeView<'t, StateTiles<'s>>;

#[async_trait]
impl AuditLog for EmbeddedStore {
    async fn heads(&self) -> Result<Vec<TreeHead>, StoreError> {
        let meta = self.state.tree()?.meta();
        let tree = meta.frontier.head();
        Ok(vec![TreeHead {
            log: LOG.to_owned(),
            size: tree.size,
            root: *tree.root.as_bytes(),
            head: meta.head,
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
            drop(state.tree()?);
            let frames = state.journal.read_from(from).take(limit);
            frames
                .map(|frame| frame.map(|frame| frame.entry).map_err(|error| unread(&error)))
                .collect()
        })
        .await
    }

    async fn entries_about(&self, subject: &Subject) -> Result<Vec<(String, u64)>, StoreError> {
        let list = List { prefix: keys::subject(subject, None), after: None };
        self.blocking(move |state| {
            let mut found = Vec::new();
            let mut visit = |rest: &[u8], _: &[u8]| {
                let seq = <[u8; 8]>::try_from(rest).ok().map(u64::from_be_bytes);
                found.extend(seq.map(|seq| (LOG.to_owned(), seq)));
                true
            };
            let listed = state.tree()?.merge(&[list], Order::Ascending, &mut visit);
            listed.map_err(|fault| state.fail_tree(&fault))?;
            Ok(found)
        })
        .await
    }

    async fn entry_of(&self, record_id: RecordId) -> Result<Option<(String, u64)>, StoreError> {
        let tree = self.state.tree()?;
        let stored =
            tree.record(&keys::effect(&record_id)).map_err(|fault| self.state.fail_tree(&fault))?;
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

/// How many entries are read before yielding the processor.
const LOOK_ENTRIES: u64 = 256;
/// How long to pause.
const LOOK_PAUSE: Duration = Duration::from_millis(2);

impl EmbeddedStore {
    /// Reads every entry that was not archived, each against its checksum and the one before it; answers how many. A start looks at
    /// the part of the journal that the state does not cover; what is older is verified by this, while calls are served. A disk that cannot be read stops the store.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when an entry is not what was written; [`StoreError::Stopped`] when the store was closed or has failed.
    pub async fn scrub(&self) -> Result<u64, StoreError> {
        self.blocking(scrub).await
    }
}

fn scrub(state: &State) -> Result<u64, StoreError> {
    let journal = &state.journal;
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
                // It was archived, and taken off the machine, since this check began.
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
            drop(state.tree()?);
            std::thread::park_timeout(LOOK_PAUSE);
        }
    }
    Ok(seen)
}

fn check_log(log: &str) -> Result<(), StoreError> {
    if log == LOG { Ok(()) } else { Err(StoreError::Damaged(format!("there is no log `{log}`"))) }
}

fn unread(error: &JournalError) -> StoreError {
    StoreError::Damaged(error.to_string())
}
