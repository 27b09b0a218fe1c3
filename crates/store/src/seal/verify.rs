//! Verifying a log entry by entry, wherever it is kept.
//!
//! Owns the order of the checks and the report of the first that fails. Not here: the form (`export`), signatures, and comparing the result
//! with what was signed. Invariant: an entry is accepted only if its hash is computed from its own bytes and the next one names it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, Read as _};

use placet_ledger::log::LogEntry;
use placet_ledger::proof::Frontier;
use placet_ledger::proof::note::NoteName;
use placet_types::digest::Digest;

use super::export::{EXPORT_VERSION, ExportHeader, entry_hash};

/// A payload of the largest size, with each byte escaped.
const LINE_BYTES_MAX: u64 = 8 << 20;

/// Why an export does not verify, and where.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct VerifyLogError {
    /// The line of the export, from 1; 0: it is not about a line.
    pub line: u64,
    /// What is wrong.
    pub fault: LogFault,
}

/// What is wrong with an export.
#[derive(Debug, thiserror::Error)]
pub enum LogFault {
    /// It cannot be read.
    #[error("cannot read the export: {0}")]
    Read(io::Error),
    /// A line is longer than any can be.
    #[error("the line is too long")]
    TooLong,
    /// A line is malformed.
    #[error("the line cannot be read: {0}")]
    Malformed(serde_json::Error),
    /// The export has no first line.
    #[error("the export is empty")]
    Empty,
    /// It is in another form.
    #[error("the export is of version {0}, which is not known here")]
    Version(u16),
    /// It is only a part of a log.
    #[error("the export begins with entry {0}: only a whole log is verified here")]
    Part(u64),
    /// An entry is missing, doubled or out of order.
    #[error("entry {found} stands where entry {expected} is due")]
    Sequence {
        /// The expected one.
        expected: u64,
        /// The one found.
        found: u64,
    },
    /// An entry does not follow the one before it.
    #[error("entry {seq} does not name the hash of the entry before it: the chain is broken there")]
    Chain {
        /// The entry.
        seq: u64,
    },
    /// An entry was changed.
    #[error("entry {seq} is not what its hash says: it was changed")]
    Hash {
        /// The entry.
        seq: u64,
    },
    /// Time or epoch went back, or an entry vouches for one after it.
    #[error("entry {seq} has a {what} that cannot follow the entry before it")]
    Order {
        /// The entry.
        seq: u64,
        /// Which of these.
        what: &'static str,
    },
    /// The log differs from the one that was signed.
    #[error("the first {size} entries do not have the {what} that {whose} says")]
    Signed {
        /// The size of the checkpoint.
        size: u64,
        /// What differs.
        what: &'static str,
        /// The checkpoint.
        whose: &'static str,
    },
    /// The log does not end where it says that it does.
    #[error("there are {found} entries, and its end says {size}")]
    End {
        /// How many there are.
        found: u64,
        /// How many there should be.
        size: u64,
    },
}

/// A whole log of which every entry and every link was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WholeLog {
    /// The log, as it calls itself.
    pub origin: NoteName,
    /// How many entries it has.
    pub entries: u64,
    /// The chain hash of the last one.
    pub head: [u8; 32],
    /// The root and the last hash at each of the sizes that were asked for and that the log has.
    pub seen: BTreeMap<u64, (Digest, [u8; 32])>,
}

/// Verifies the chain of an export from its first entry on, for comparison with what was signed.
///
/// # Errors
/// The first thing that is wrong, with its line.
pub fn verify_whole(
    export: &mut dyn BufRead,
    sizes: &BTreeSet<u64>,
) -> Result<WholeLog, VerifyLogError> {
    let mut lines = Lines { export, number: 0 };
    let header = lines.next().and_then(|line| {
        let line = line.ok_or(LogFault::Empty)?;
        serde_json::from_slice::<ExportHeader>(&line).map_err(LogFault::Malformed)
    });
    let header = header.map_err(|fault| VerifyLogError { line: lines.number, fault })?;
    if header.placet_log != EXPORT_VERSION || header.first_seq != 1 || !header.peaks.is_empty() {
        let fault = match header.placet_log {
            EXPORT_VERSION => LogFault::Part(header.first_seq),
            other => LogFault::Version(other),
        };
        return Err(VerifyLogError { line: 1, fault });
    }
    let (mut walk, mut seen) = (Walk::default(), BTreeMap::new());
    loop {
        let step = match lines.next() {
            Ok(None) => break,
            Ok(Some(line)) => serde_json::from_slice::<LogEntry>(&line)
                .map_err(LogFault::Malformed)
                .and_then(|entry| walk.entry(&entry)),
            Err(fault) => Err(fault),
        };
        step.map_err(|fault| VerifyLogError { line: lines.number, fault })?;
        let size = walk.frontier().size();
        if sizes.contains(&size) {
            seen.insert(size, (walk.frontier().root(), walk.head()));
        }
    }
    let (entries, head) = (walk.frontier().size(), walk.head());
    Ok(WholeLog { origin: header.origin, entries, head, seen })
}

/// How far a log has been verified, entry by entry.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    frontier: Frontier,
    /// The last entry; none before the first.
    last: Option<Last>,
}

/// What the next entry has to follow.
#[derive(Debug, Clone, Copy)]
struct Last {
    epoch: u64,
    at_ms: i64,
    hash: [u8; 32],
}

impl Walk {
    /// The tree over the entries so far.
    pub(crate) const fn frontier(&self) -> &Frontier {
        &self.frontier
    }

    /// The hash of the last entry; zeros before the first.
    pub(crate) fn head(&self) -> [u8; 32] {
        self.last.map_or([0; 32], |last| last.hash)
    }

    /// Verifies the next entry.
    pub(crate) fn entry(&mut self, entry: &LogEntry) -> Result<(), LogFault> {
        let seq = entry.seq;
        let expected = self.frontier.size().saturating_add(1);
        if seq != expected {
            return Err(LogFault::Sequence { expected, found: seq });
        }
        if entry.prev != self.head() {
            return Err(LogFault::Chain { seq });
        }
        if entry_hash(entry) != entry.hash {
            return Err(LogFault::Hash { seq });
        }
        self.check_order(entry)?;
        self.frontier.append(&entry.hash, &mut |_node, _hash| {});
        self.last = Some(Last { epoch: entry.epoch, at_ms: entry.at_ms, hash: entry.hash });
        Ok(())
    }

    fn check_order(&self, entry: &LogEntry) -> Result<(), LogFault> {
        let wrong = |what| Err(LogFault::Order { seq: entry.seq, what });
        if entry.durable_seq >= entry.seq {
            return wrong("number of durable entries");
        }
        match &self.last {
            Some(last) if entry.epoch < last.epoch => wrong("epoch"),
            Some(last) if entry.at_ms < last.at_ms => wrong("time"),
            Some(_) | None => Ok(()),
        }
    }
}

/// The lines of an export, none longer than the limit.
struct Lines<'a> {
    export: &'a mut dyn BufRead,
    number: u64,
}

impl Lines<'_> {
    fn next(&mut self) -> Result<Option<Vec<u8>>, LogFault> {
        self.number = self.number.saturating_add(1);
        let mut line = Vec::new();
        let mut limited = (&mut *self.export).take(LINE_BYTES_MAX);
        limited.read_until(b'\n', &mut line).map_err(LogFault::Read)?;
        if line.is_empty() {
            return Ok(None);
        }
        if limited.limit() == 0 { Err(LogFault::TooLong) } else { Ok(Some(line)) }
    }
}
