//! What can go wrong with content.
//!
//! Not here: what the caller of a tool is told. Invariant: bytes that cannot be proven to be the ones asked for are an
//! error, never an answer.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use placet_types::digest::Digest;

use crate::journal::JournalError;
use crate::sorted::TableError;

/// Why content could not be kept or given.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ContentError {
    /// There are no bytes of this digest for this tenant: never kept, deleted, or lost.
    #[error("there is no content `{digest}`")]
    Missing {
        /// The digest asked for.
        digest: Digest,
    },
    /// The bytes on disk are not those of the digest.
    #[error("the content `{digest}` has been altered on disk")]
    Altered {
        /// The digest asked for.
        digest: Digest,
    },
    /// The bytes are too many.
    #[error("content of {bytes} bytes is over the limit of {limit_bytes}")]
    TooLarge {
        /// How many.
        bytes: u64,
        /// The limit.
        limit_bytes: u64,
    },
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
    /// The table of places cannot be read or written.
    #[error("the places of content: {0}")]
    Places(String),
    /// An earlier write or sync failed; the process has to end and recover.
    #[error("the content store failed earlier and takes nothing more")]
    Poisoned,
}

impl ContentError {
    pub(crate) fn places(error: TableError) -> Self {
        match error {
            TableError::Io { what, path, source } => Self::Io { what, path, source },
            TableError::Damaged { .. } | TableError::Source(_) => Self::Places(error.to_string()),
        }
    }

    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what, path: path.to_owned(), source: Arc::new(source) }
    }
}

impl From<ContentError> for JournalError {
    fn from(error: ContentError) -> Self {
        match error {
            ContentError::Io { what, path, source } => Self::Io { what, path, source },
            ContentError::TooLarge { bytes, limit_bytes } => Self::TooLarge { bytes, limit_bytes },
            ContentError::Poisoned => Self::Poisoned,
            ContentError::Missing { .. }
            | ContentError::Altered { .. }
            | ContentError::Places(_) => Self::Content { reason: error.to_string() },
        }
    }
}
