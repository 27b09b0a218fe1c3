//! The logs of a database, verified entry by entry while nodes may go on.
//!
//! Owns reading them in order. Not here: what makes an entry wrong (`crate::seal`). Invariants: all logs are read as of one moment; nothing
//! is changed; a fault in one log does not hide the others; memory is bounded by a page of entries.

use std::collections::BTreeMap;
use std::io;

use placet_ledger::log::LogEntry;
use placet_ledger::proof::Frontier;
use placet_ledger::store::StoreError;
use placet_types::digest::Digest;

use super::config::PostgresConfig;
use super::connect::Connector;
use super::error::OpenError;
use super::snapshot::{Snapshot, SnapshotLog};
use crate::journal::Fault;
use crate::seal::Walk;

/// How many entries are read at a time.
const PAGE: usize = 500;

/// Why the logs could not be read to their ends.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogsError {
    /// The configuration is wrong.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The database cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The visitor could not continue.
    #[error("{0}")]
    Visit(#[from] io::Error),
}

/// The result for one log.
#[derive(Debug)]
#[non_exhaustive]
pub struct LogVerdict {
    /// The log.
    pub log: String,
    /// How many entries were verified.
    pub entries: u64,
    /// The hash of the last of them.
    pub head: [u8; 32],
    /// When the first one was made.
    pub first_at_ms: Option<i64>,
    /// When the last one was made.
    pub last_at_ms: Option<i64>,
    /// The root and the last hash at each of the sizes that were asked for and that the log has.
    pub seen: BTreeMap<u64, (Digest, [u8; 32])>,
    /// What is wrong with it; what follows the fault was not checked.
    pub fault: Option<Fault>,
}

impl LogVerdict {
    const fn of(log: String) -> Self {
        Self {
            log,
            entries: 0,
            head: [0; 32],
            first_at_ms: None,
            last_at_ms: None,
            seen: BTreeMap::new(),
            fault: None,
        }
    }

    fn took(&mut self, entry: &LogEntry, tree: &Frontier, sizes: &[u64]) {
        self.entries = entry.seq;
        self.head = entry.hash;
        self.first_at_ms = self.first_at_ms.or(Some(entry.at_ms));
        self.last_at_ms = Some(entry.at_ms);
        if sizes.contains(&entry.seq) {
            self.seen.insert(entry.seq, (tree.root(), entry.hash));
        }
    }
}

/// Visits each log before its first entry, and each of its entries once it is verified.
pub trait LogVisitor: Send {
    /// A log begins; `false`: skip it.
    ///
    /// # Errors
    /// It cannot go on.
    fn log(&mut self, log: &str) -> io::Result<bool>;

    /// An entry of it.
    ///
    /// # Errors
    /// It cannot go on.
    fn entry(&mut self, entry: &LogEntry) -> io::Result<()>;
}

/// Visits every log and does nothing.
impl LogVisitor for () {
    fn log(&mut self, _log: &str) -> io::Result<bool> {
        Ok(true)
    }

    fn entry(&mut self, _entry: &LogEntry) -> io::Result<()> {
        Ok(())
    }
}

/// The logs of a database that have entries, in the order of their epochs.
///
/// # Errors
/// [`LogsError`]: the database cannot be read.
pub async fn log_names(config: &PostgresConfig) -> Result<Vec<String>, LogsError> {
    config.check()?;
    let connector = Connector::new(config.url.clone(), config.wait);
    let logs = Snapshot::take(&connector).await?.logs().await?;
    Ok(logs.into_iter().map(|log| log.log).collect())
}

/// Verifies the logs of a database: every entry, every link of their chains, and that each ends as the database says. `sizes` are the log
/// sizes whose roots are wanted.
///
/// # Errors
/// [`LogsError`]: they could not be read to their ends. A fault in a log is in its verdict.
pub async fn verify_logs(
    config: &PostgresConfig,
    sizes: &BTreeMap<String, Vec<u64>>,
    visitor: &mut dyn LogVisitor,
) -> Result<Vec<LogVerdict>, LogsError> {
    config.check()?;
    let connector = Connector::new(config.url.clone(), config.wait);
    let mut snapshot = Snapshot::take(&connector).await?;
    let mut verdicts = Vec::new();
    for end in snapshot.ends().await? {
        if !visitor.log(&end.log)? {
            continue;
        }
        let sizes = sizes.get(&end.log).map_or(&[][..], Vec::as_slice);
        verdicts.push(verify(&mut snapshot, &end, sizes, visitor).await?);
    }
    Ok(verdicts)
}

async fn verify(
    snapshot: &mut Snapshot,
    end: &SnapshotLog,
    sizes: &[u64],
    visitor: &mut dyn LogVisitor,
) -> Result<LogVerdict, LogsError> {
    let mut verdict = LogVerdict::of(end.log.clone());
    let mut walk = Walk::new();
    loop {
        let next = walk.frontier().size().saturating_add(1);
        let page = snapshot.entries(&end.log, next, PAGE).await?;
        if page.is_empty() {
            verdict.fault = ends_otherwise(&walk, end);
            return Ok(verdict);
        }
        for entry in &page {
            if let Err(fault) = walk.entry(entry) {
                verdict.fault = Some(fault);
                return Ok(verdict);
            }
            verdict.took(entry, walk.frontier(), sizes);
            visitor.entry(entry)?;
        }
    }
}

fn ends_otherwise(walk: &Walk, end: &SnapshotLog) -> Option<Fault> {
    let (found, size) = (walk.frontier().size(), end.size);
    let differs = |what| {
        let fault = format!(
            "the first {size} entries do not have the {what} that its end in the database says"
        );
        Some(Fault::new(fault))
    };
    if found != size {
        let fault = format!("there are {found} entries, and its end says {size}");
        return Some(Fault::new(fault));
    }
    if walk.frontier().root() != end.root {
        return differs("root");
    }
    if walk.head() != end.head { differs("last chain hash") } else { None }
}
