//! What can go wrong with the journal, told precisely enough for an operator to act on it.
//!
//! Not here: what the caller of a tool is told; the layers above translate.
//! Invariant: an error never repairs, hides or retries anything; a failed write or sync is final for the process.

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why the journal could not be opened, read or written.
///
/// Cloneable, because one failed sync is the answer to every request that waited for it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum JournalError {
    /// Another process (or another handle in this one) holds the journal.
    #[error("the folder `{}` is in use{}", .directory.display(), holder_text(.holder_pid))]
    Locked {
        /// The folder of the journal.
        directory: PathBuf,
        /// The process that holds it, where its lock file says so.
        holder_pid: Option<u32>,
    },
    /// Bytes that were once durable are not what was written: nothing is repaired, nothing is served.
    #[error("the journal is damaged in segment {segment} at byte {offset}, entry {seq}: {fault}")]
    Corrupt {
        /// The number of the segment, from 1; 0 stands for the witness or the base.
        segment: u64,
        /// The byte in the segment's file at which the damaged thing begins.
        offset: u64,
        /// The sequence number that was expected there.
        seq: u64,
        /// What is wrong.
        fault: Fault,
    },
    /// The journal is sound as far as it goes, but it once went further: an old copy, or a cut file.
    #[error(
        "the journal ends at entry {found_seq}, but entry {witness_seq} was durable: it has forgotten"
    )]
    Forgotten {
        /// The last entry that the witness knows to have been durable.
        witness_seq: u64,
        /// The last entry found.
        found_seq: u64,
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
    /// An earlier write or sync failed; the process has to end and recover.
    #[error("the journal failed earlier and takes nothing more")]
    Poisoned,
    /// An entry is larger than the journal accepts.
    #[error("an entry of {bytes} bytes is over the limit of {limit_bytes}")]
    TooLarge {
        /// The size asked for.
        bytes: u64,
        /// The limit.
        limit_bytes: u64,
    },
    /// There is no such entry (yet).
    #[error("the journal has no entry {seq}")]
    Absent {
        /// The sequence number asked for.
        seq: u64,
    },
    /// A segment was moved away, and is not in the archive folder either.
    #[error("segment {segment} was archived and is not in the archive folder")]
    Archived {
        /// The number of the segment.
        segment: u64,
    },
    /// Free space is below the watermark: new work is refused so that work in hand can be completed.
    #[error("free space is below {watermark_bytes} bytes: new work is refused")]
    NoSpace {
        /// The configured watermark.
        watermark_bytes: u64,
    },
    /// The caller's visitor refused an entry.
    #[error("entry {seq} could not be taken over: {reason}")]
    Visit {
        /// The entry that was refused.
        seq: u64,
        /// The visitor's reason.
        reason: String,
    },
    /// The state could not follow the journal.
    #[error("the state could not follow the journal: {reason}")]
    Apply {
        /// The state machine's reason.
        reason: String,
    },
    /// The writer has been closed, or its thread is gone; nothing of the request was accepted.
    #[error("the journal writer is closed")]
    Closed,
    /// The writer stopped while it was handling the request.
    #[error("the journal writer went away without an answer")]
    Unanswered,
}

/// What exactly is wrong with the bytes of a journal, or with a log: for a person to read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Fault(Cow<'static, str>);

impl Fault {
    pub(crate) fn new(what: impl Into<Cow<'static, str>>) -> Self {
        Self(what.into())
    }
}

/// The source of a refusal by the visitor of [`super::verify_each`].
pub type VisitError = Box<dyn std::error::Error + Send + Sync>;

impl JournalError {
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what, path: path.to_owned(), source: Arc::new(source) }
    }

    /// What a small file, or the header of a segment, holds is not what was written.
    pub(crate) fn unsound(segment: u64, what: &'static str) -> Self {
        Self::Corrupt { segment, offset: 0, seq: 0, fault: Fault::new(what) }
    }
}

fn holder_text(holder: &Option<u32>) -> String {
    holder.map_or_else(String::new, |pid| format!(" by process {pid}"))
}
