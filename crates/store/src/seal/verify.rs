//! Verifying an exported log away from where it is kept: with the public key and a checkpoint, nothing else.
//!
//! Owns the order of the checks and what is said of the first that fails. Not here: the form (`export`), proofs and signatures.
//! Invariants: an entry is taken only if its hash is computed from its own bytes and the next one names it; a log verifies only if
//! its tree has the root that was signed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, Read as _};

use placet_ledger::log::LogEntry;
use placet_ledger::proof::checkpoint::Checkpoint;
use placet_ledger::proof::note::NoteName;
use placet_ledger::proof::{Consistency, Frontier};
use placet_types::digest::Digest;

use super::checkpoint::{verify_checkpoint, verify_consistency};
use super::export::{EXPORT_VERSION, ExportHeader, ExportLine, entry_hash};
use super::{SealError, SealPublic};

/// A payload of the largest size, each byte of it escaped.
const LINE_BYTES_MAX: u64 = 8 << 20;

/// What to verify an export against.
#[derive(Debug, Clone, Copy)]
pub struct VerifyLog<'a> {
    /// The key that the checkpoints are signed with.
    pub key: &'a SealPublic,
    /// A signed checkpoint that the export covers.
    pub checkpoint: &'a str,
    /// An older one that was kept elsewhere.
    pub older: Option<&'a str>,
    /// The proof that joins the two; needed only if the export begins after the older one.
    pub consistency: Option<&'a Consistency>,
}

/// What was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogReport {
    /// The log.
    pub origin: NoteName,
    /// The first entry of the export.
    pub first_seq: u64,
    /// The last one.
    pub last_seq: u64,
    /// The chain hash of the last one.
    pub head: [u8; 32],
    /// Up to which entry the checkpoint vouches; what comes after is chained to it, but not signed.
    pub sealed_seq: u64,
    /// The signed root.
    pub root: Digest,
    /// The size of the older checkpoint, if one was given.
    pub older_size: Option<u64>,
}

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
    /// A line is not of its form.
    #[error("the line cannot be read: {0}")]
    Malformed(serde_json::Error),
    /// The export has no first line.
    #[error("the export is empty")]
    Empty,
    /// It is of another form.
    #[error("the export is of version {0}, which is not known here")]
    Version(u16),
    /// The peaks do not fit the first entry.
    #[error("the peaks do not fit a log that begins with entry {first_seq}")]
    Peaks {
        /// The first entry.
        first_seq: u64,
    },
    /// An entry is missing, doubled or out of order.
    #[error("entry {found} stands where entry {expected} is due")]
    Sequence {
        /// The one that is due.
        expected: u64,
        /// The one that is there.
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
        /// Of what.
        what: &'static str,
    },
    /// The log that was signed is another one.
    #[error("the first {size} entries do not have the {what} that {whose} says")]
    Signed {
        /// The size of the checkpoint.
        size: u64,
        /// What differs.
        what: &'static str,
        /// Of which checkpoint.
        whose: &'static str,
    },
    /// The export does not go as far as the checkpoint.
    #[error(
        "the export goes from entry {first} to {last}, but the checkpoint is about {size} entries"
    )]
    Short {
        /// The first entry.
        first: u64,
        /// The last entry.
        last: u64,
        /// The size of the checkpoint.
        size: u64,
    },
    /// A checkpoint or proof does not verify.
    #[error("{whose}: {error}")]
    Seal {
        /// Of which checkpoint.
        whose: &'static str,
        /// What is wrong.
        error: SealError,
    },
    /// The log does not end where it says that it does.
    #[error("there are {found} entries, and its end says {size}")]
    End {
        /// How many there are.
        found: u64,
        /// How many there should be.
        size: u64,
    },
    /// The export begins after the older checkpoint.
    #[error(
        "the export begins after the older checkpoint of {size} entries: a consistency proof is needed"
    )]
    Unjoined {
        /// The size of the older checkpoint.
        size: u64,
    },
}

const NEWER: &str = "the checkpoint";
const OLDER: &str = "the older checkpoint";

/// Verifies an export: every entry, the chain, the root that was signed, and that the log comes after an older checkpoint.
///
/// # Errors
/// The first thing that is wrong, with its line.
pub fn verify_log(
    export: &mut dyn BufRead,
    against: &VerifyLog<'_>,
) -> Result<LogReport, VerifyLogError> {
    let whole = |fault| VerifyLogError { line: 0, fault };
    let signed = Signed::read(against).map_err(whole)?;
    let mut lines = Lines { export, number: 0 };
    let mut walk = lines.next().and_then(|line| Walk::begin(line.as_deref(), &signed));
    walk = walk.and_then(|walk| walk.compare(&signed));
    let mut walk = walk.map_err(|fault| VerifyLogError { line: lines.number, fault })?;
    loop {
        let step = match lines.next() {
            Ok(None) => break,
            Ok(Some(line)) => walk.take(&line).and_then(|walk| walk.compare(&signed)),
            Err(fault) => Err(fault),
        };
        walk = step.map_err(|fault| VerifyLogError { line: lines.number, fault })?;
    }
    walk.finish(&signed, against).map_err(whole)
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

/// Verifies the chain of an export from its first entry on, to be compared with whatever was signed of it.
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
            EXPORT_VERSION => LogFault::Peaks { first_seq: header.first_seq },
            other => LogFault::Version(other),
        };
        return Err(VerifyLogError { line: 1, fault });
    }
    let (mut walk, mut seen) = (Walk::from_start(), BTreeMap::new());
    loop {
        let step = match lines.next() {
            Ok(None) => break,
            Ok(Some(line)) => walk.take(&line),
            Err(fault) => Err(fault),
        };
        walk = step.map_err(|fault| VerifyLogError { line: lines.number, fault })?;
        let size = walk.frontier().size();
        if sizes.contains(&size) {
            seen.insert(size, (walk.frontier().root(), walk.head()));
        }
    }
    let (entries, head) = (walk.frontier().size(), walk.head());
    Ok(WholeLog { origin: header.origin, entries, head, seen })
}

/// The checkpoints, their signatures checked.
#[derive(Debug)]
struct Signed {
    newer: Checkpoint,
    older: Option<Checkpoint>,
}

impl Signed {
    fn read(against: &VerifyLog<'_>) -> Result<Self, LogFault> {
        let newer = verify_checkpoint(against.checkpoint, against.key, None);
        let newer = newer.map_err(|error| LogFault::Seal { whose: NEWER, error })?;
        let older = match against.older {
            Some(older) => {
                let older = verify_checkpoint(older, against.key, Some(&newer.origin));
                Some(older.map_err(|error| LogFault::Seal { whose: OLDER, error })?)
            }
            None => None,
        };
        let sizes = older.as_ref().map(|older| (older.head.size, newer.head.size));
        if let Some((from, to)) = sizes.filter(|(from, to)| from > to) {
            let why = "it has fewer entries".to_owned();
            let error = SealError::NotAfter { from, to, why };
            return Err(LogFault::Seal { whose: NEWER, error });
        }
        Ok(Self { newer, older })
    }
}

/// How far a log has been verified, entry by entry.
#[derive(Debug)]
pub(crate) struct Walk {
    first_seq: u64,
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
    fn begin(line: Option<&[u8]>, signed: &Signed) -> Result<Self, LogFault> {
        let line = line.ok_or(LogFault::Empty)?;
        let header: ExportHeader = serde_json::from_slice(line).map_err(LogFault::Malformed)?;
        if header.placet_log != EXPORT_VERSION {
            return Err(LogFault::Version(header.placet_log));
        }
        if header.origin != signed.newer.origin {
            let (expected, found) = (header.origin.to_string(), signed.newer.origin.to_string());
            let error = SealError::Log { expected, found };
            return Err(LogFault::Seal { whose: NEWER, error });
        }
        let first_seq = header.first_seq;
        let peaks = |_error| LogFault::Peaks { first_seq };
        let before = first_seq.checked_sub(1).ok_or(LogFault::Peaks { first_seq })?;
        let frontier = Frontier::from_peaks(before, header.peaks).map_err(peaks)?;
        Ok(Self { first_seq, frontier, last: None })
    }

    fn take(mut self, line: &[u8]) -> Result<Self, LogFault> {
        let line: ExportLine = serde_json::from_slice(line).map_err(LogFault::Malformed)?;
        self.entry(&LogEntry::from(line))?;
        Ok(self)
    }

    /// Of a log that is read from its first entry on.
    pub(crate) fn from_start() -> Self {
        Self { first_seq: 1, frontier: Frontier::new(), last: None }
    }

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
        // The entry before the first one of a part is not there; that the peaks hold it is shown by the signed root.
        let prev = match &self.last {
            Some(last) => Some(last.hash),
            None if seq == 1 => Some([0; 32]),
            None => None,
        };
        if prev.is_some_and(|prev| prev != entry.prev) {
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

    /// Compares with what was signed, when just as many entries have been seen.
    fn compare(self, signed: &Signed) -> Result<Self, LogFault> {
        let older = signed.older.iter().map(|older| (older, OLDER));
        for (checkpoint, whose) in older.chain([(&signed.newer, NEWER)]) {
            let size = checkpoint.head.size;
            if size != self.frontier.size() {
                continue;
            }
            let differs = |what| Err(LogFault::Signed { size, what, whose });
            if self.frontier.root() != checkpoint.head.root {
                return differs("root");
            }
            let Some(last) = &self.last else { continue };
            if last.hash != checkpoint.chain {
                return differs("last chain hash");
            }
            // It may have been signed after a restart that added nothing.
            if last.epoch > checkpoint.epoch {
                return differs("epoch");
            }
        }
        Ok(self)
    }

    fn finish(self, signed: &Signed, against: &VerifyLog<'_>) -> Result<LogReport, LogFault> {
        let (first, last) = (self.first_seq, self.frontier.size());
        let size = signed.newer.head.size;
        // One less than the first: the root over the peaks has been compared.
        let before = first.saturating_sub(1);
        if !(before..=last).contains(&size) {
            return Err(LogFault::Short { first, last, size });
        }
        if let Some(older) = signed.older.as_ref().filter(|older| older.head.size < before) {
            let unjoined = LogFault::Unjoined { size: older.head.size };
            let proof = against.consistency.ok_or(unjoined)?;
            verify_consistency(older, &signed.newer, proof)
                .map_err(|error| LogFault::Seal { whose: OLDER, error })?;
        }
        Ok(LogReport {
            origin: signed.newer.origin.clone(),
            first_seq: first,
            last_seq: last,
            head: self.head(),
            sealed_seq: size,
            root: signed.newer.head.root,
            older_size: signed.older.as_ref().map(|older| older.head.size),
        })
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
