//! What can go wrong with a tree.
//!
//! Not here: what follows. A tree that fails costs proofs until it is rebuilt from the journal; the caller decides.
//! Invariant: an error is passed on, never retried.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use placet_ledger::proof::tiles::TileError;
use placet_ledger::proof::{ProofError, ViewError};

/// Why a tree could not be opened, written, or proved from.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TreeError {
    /// The operating system refused an operation.
    #[error("cannot {what} `{}`: {source}", .path.display())]
    Io {
        /// What was attempted, as a verb phrase.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The operating system's answer.
        source: Arc<io::Error>,
    },
    /// The journal has forgotten: the tree, which is written after it, knows more entries.
    #[error(
        "the journal ends at entry {journal}, but its tree has {tree}: the journal has forgotten"
    )]
    Ahead {
        /// How many entries the tree has.
        tree: u64,
        /// The journal's last entry.
        journal: u64,
    },
    /// An earlier write failed.
    #[error("the tree failed earlier and takes nothing more")]
    Poisoned,
    /// There is no such entry or size.
    #[error(transparent)]
    Proof(ProofError),
    /// Its files do not lead to its root.
    #[error("the tree of {size} entries is damaged; it can be rebuilt from the journal")]
    Damaged {
        /// How many entries it has.
        size: u64,
    },
}

impl TreeError {
    /// Puts an operating-system error in words; for `map_err`.
    pub(super) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io { what, path, source: Arc::new(source) }
    }

    pub(super) fn of_view(error: ViewError<Self>, size: u64) -> Self {
        match error {
            ViewError::Proof(error) => Self::Proof(error),
            ViewError::Damaged { .. } | ViewError::Tiles(TileError::Short(_)) => {
                Self::Damaged { size }
            }
            ViewError::Tiles(TileError::Source(error)) => error,
        }
    }
}
