//! Proofs for other threads, while the writer goes on.
//!
//! Owns what is shared between them. Not here: writing. Invariant: a proof is about entries that were flushed before it was asked
//! for, and leads to the root that the writer had then.

use std::sync::{Arc, PoisonError, RwLock};

use placet_ledger::proof::{Consistency, Inclusion, TreeView, ViewError};
use placet_types::digest::Digest;

use super::files::TileReader;
use super::{LogHead, TreeError};

/// Reads a tree; cheap to clone.
#[derive(Debug, Clone)]
pub struct LogTreeReader(Arc<Shared>);

#[derive(Debug)]
pub(super) struct Shared {
    tiles: TileReader,
    head: RwLock<LogHead>,
}

impl Shared {
    pub(super) fn new(tiles: TileReader, head: LogHead) -> Self {
        Self { tiles, head: RwLock::new(head) }
    }

    pub(super) fn publish(&self, head: LogHead) {
        // A copy is put in place whole: nothing half done can be behind a poisoned lock.
        *self.head.write().unwrap_or_else(PoisonError::into_inner) = head;
    }
}

impl LogTreeReader {
    pub(super) const fn new(shared: Arc<Shared>) -> Self {
        Self(shared)
    }

    /// The log as far as it was flushed.
    #[must_use]
    pub fn head(&self) -> LogHead {
        *self.0.head.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The root of the first `size` entries.
    ///
    /// # Errors
    /// There are not so many, or the files could not be read or are damaged.
    pub fn root(&self, size: u64) -> Result<Digest, TreeError> {
        self.with(|view| view.root(size))
    }

    /// The proof that entry `seq` is among the first `size`, and the leaf hash it is about: compare it with that of the entry
    /// (`placet_ledger::proof::leaf_hash`).
    ///
    /// # Errors
    /// There is no such entry, or the files could not be read or are damaged.
    pub fn inclusion(&self, seq: u64, size: u64) -> Result<(Inclusion, Digest), TreeError> {
        self.with(|view| view.inclusion(seq, size))
    }

    /// The proof that the first `to` entries begin with the first `from`.
    ///
    /// # Errors
    /// There are not so many, or the files could not be read or are damaged.
    pub fn consistency(&self, from: u64, to: u64) -> Result<Consistency, TreeError> {
        self.with(|view| view.consistency(from, to))
    }

    fn with<T>(
        &self,
        work: impl FnOnce(&TreeView<'_, TileReader>) -> Result<T, ViewError<TreeError>>,
    ) -> Result<T, TreeError> {
        let head = self.head().head;
        work(&TreeView::new(&self.0.tiles, head))
            .map_err(|error| TreeError::of_view(error, head.size))
    }
}
