//! Proofs for other threads, while the writer goes on.
//!
//! Owns what is shared between them. Not here: writing. Invariant: a proof is about entries that were flushed before it was asked
//! for, and leads to the root that the writer had then.

use std::sync::{Arc, PoisonError, RwLock};

use placet_ledger::proof::{Consistency, Frontier, Inclusion, TreeView, ViewError};
use placet_types::digest::Digest;

use super::files::TileReader;
use super::{Floor, LogHead, TreeError};

/// Reads a tree; cheap to clone.
#[derive(Debug, Clone)]
pub struct LogTreeReader(Arc<Shared>);

#[derive(Debug)]
pub(super) struct Shared {
    tiles: TileReader,
    head: RwLock<LogHead>,
    floor: Option<Floor>,
}

impl Shared {
    pub(super) fn new(tiles: TileReader, head: LogHead, floor: Option<Floor>) -> Self {
        Self { tiles, head: RwLock::new(head), floor }
    }

    pub(super) const fn floor(&self) -> Option<&Floor> {
        self.floor.as_ref()
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

    /// The frontier of the first `size` entries.
    ///
    /// # Errors
    /// There are not so many, or the files could not be read or are damaged.
    pub fn frontier(&self, size: u64) -> Result<Frontier, TreeError> {
        self.with(|view| view.frontier(size))
    }

    fn with<T>(
        &self,
        work: impl FnOnce(&TreeView<'_, TileReader>) -> Result<T, ViewError<TreeError>>,
    ) -> Result<T, TreeError> {
        let head = self.head().head;
        let floor = self.0.floor().map(|floor| &floor.frontier);
        let floor = floor.filter(|floor| floor.size() <= head.size);
        work(&TreeView::new(&self.0.tiles, head).on(floor))
            .map_err(|error| TreeError::of_view(error, head.size))
    }
}
