//! What can go wrong with the journal, told precisely enough for an operator to act on it.
//!
//! Not here: what the caller of a tool is told; the layers above translate.
//! Invariant: an error never repairs, hides or retries anything; a failed write or sync is final for the process.

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

/// What exactly is wrong with a journal's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A segment file is missing from the sequence.
    #[error("segment {missing} is missing")]
    Hole {
        /// The number of the missing segment.
        missing: u64,
    },
    /// A segment's own header does not verify.
    #[error("the segment header does not verify")]
    SegmentHeader,
    /// A segment's header belongs to another place in the chain.
    #[error("the segment belongs elsewhere in the chain")]
    SegmentMisplaced,
    /// A segment file is shorter or longer than it was allocated.
    #[error("the file has {found_bytes} bytes where {expected_bytes} were allocated")]
    SegmentLength {
        /// The allocated size, from the segment's header.
        expected_bytes: u64,
        /// The size found.
        found_bytes: u64,
    },
    /// No frame begins where one must.
    #[error("no frame begins here, yet bytes follow")]
    Magic,
    /// A frame of a version that this build does not know.
    #[error("unknown frame version {0}")]
    Version(u8),
    /// Flags that this build does not know.
    #[error("unknown frame flags {0}")]
    Flags(u16),
    /// A payload length over the limit, or past the end of the file.
    #[error("a payload of {0} bytes is impossible here")]
    Length(u64),
    /// The header's checksum is wrong.
    #[error("the header's checksum is wrong")]
    HeaderChecksum,
    /// The frame's checksum is wrong.
    #[error("the frame's checksum is wrong")]
    Checksum,
    /// The frame does not continue the hash chain.
    #[error("the hash chain is broken: the previous entry's hash is not the one named here")]
    Chain,
    /// The sequence is not contiguous.
    #[error("the sequence is broken: found entry {found}")]
    Sequence {
        /// The sequence number found.
        found: u64,
    },
    /// The epoch went backwards.
    #[error("the epoch goes backwards to {found}")]
    EpochBackwards {
        /// The epoch found.
        found: u64,
    },
    /// The time went backwards.
    #[error("the time goes backwards to {found_ms} ms")]
    TimeBackwards {
        /// The time found, in milliseconds since 1970.
        found_ms: i64,
    },
    /// The base file, which says what was archived, does not verify.
    #[error("the base of the journal does not verify")]
    Base,
    /// The first segment is not the one that the base says follows the archived ones.
    #[error("the segment is not the one that follows the archived ones")]
    BaseHead,
    /// The witness file is missing although there are segments.
    #[error("the high-water witness is missing")]
    WitnessMissing,
    /// The witness file does not verify.
    #[error("the high-water witness does not verify")]
    Witness,
    /// The witness names another hash for an entry: this is another history.
    #[error("the entry is not the one that the high-water witness saw")]
    WitnessHead,
    /// Entries have a later epoch than the witness: the witness is an old copy.
    #[error("the entry's epoch {found} is later than the high-water witness")]
    WitnessEpoch {
        /// The epoch found.
        found: u64,
    },
}

/// The source of a refusal by the visitor of [`super::verify_each`].
pub type VisitError = Box<dyn std::error::Error + Send + Sync>;

impl JournalError {
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what, path: path.to_owned(), source: Arc::new(source) }
    }
}

fn holder_text(holder: &Option<u32>) -> String {
    holder.map_or_else(String::new, |pid| format!(" by process {pid}"))
}
