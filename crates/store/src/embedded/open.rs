//! Start-up: the journal verified, the index kept or rebuilt, the writer started.
//!
//! Owns the order of start-up and the guards around sled's opening. Not here: the bytes of the journal.
//! Invariants: nothing is served before the index agrees with the journal; an index that does not is set aside, never deleted
//! first; the index is opened only by whoever holds the journal's lock.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use placet_types::ids::RecordId;

use super::EmbeddedConfig;
use super::codec::{EffectOutline, Meta, Outline, outline};
use super::index::{Freshness, Index, Known};
use super::keys;
use super::replay::replay;
use crate::content::{ContentError, ContentReport, ContentStore};
use crate::journal::medium::{Disk, Medium as _};
use crate::journal::{Frame, Journal, JournalConfig, JournalError, VisitError};

/// Why the store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The journal refuses: it is in use, damaged, or an old copy.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The content folder cannot be read.
    #[error(transparent)]
    Content(#[from] ContentError),
    /// The index cannot be opened, nor rebuilt.
    #[error("the index cannot be built: {0}")]
    Index(String),
    /// A folder cannot be made, listed or renamed.
    #[error("cannot {what} `{}`: {source}", .path.display())]
    Io {
        /// What was attempted, as a verb phrase.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },
}

impl OpenError {
    pub(super) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what, path: path.to_owned(), source }
    }
}

/// What became of the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IndexFate {
    /// It agreed with the journal.
    Kept,
    /// It was made anew from the journal.
    Rebuilt {
        /// Why.
        why: String,
    },
}

/// What start-up found and did.
#[derive(Debug, Clone)]
pub struct RecoveryReport {
    /// How many entries the journal has.
    pub frames: u64,
    /// How many bytes of an interrupted append were cut off.
    pub torn_bytes: u64,
    /// The epoch that has begun.
    pub epoch: u64,
    /// The last entry's hash.
    pub head: [u8; 32],
    /// What became of the index.
    pub index: IndexFate,
    /// How many entries the index had to take over.
    pub replayed: u64,
    /// Effect records.
    pub effects: u64,
    /// Approvals.
    pub approvals: u64,
    /// Runs.
    pub runs: u64,
    /// Effect records that recovery has to look at, by the name of their state.
    pub open: BTreeMap<&'static str, u64>,
    /// What the content folder holds.
    pub content: ContentReport,
    /// How long verifying the journal took.
    pub journal_took: Duration,
    /// How long the index took.
    pub index_took: Duration,
}

/// What start-up hands to the store.
pub(super) struct Opened {
    pub(super) journal: Journal,
    pub(super) content: ContentStore,
    pub(super) index: Index,
    pub(super) report: RecoveryReport,
}

/// The names of what is in the data folder.
pub(super) const JOURNAL: &str = "journal";
pub(super) const CONTENT: &str = "content";
pub(super) const INDEX: &str = "index";
const DAMAGED: &str = "index.damaged-";
const DAMAGED_KEPT: usize = 2;

/// Opens everything. `rebuild` says why the index is to be made anew in any case.
pub(super) fn open(config: &EmbeddedConfig, rebuild: Option<&str>) -> Result<Opened, OpenError> {
    let directory = &config.directory;
    Disk.create_dir(directory).map_err(OpenError::io("make the folder", directory))?;
    let began = Instant::now();
    let mut survey = Survey::default();
    let journal_config = JournalConfig {
        segment_bytes: config.segment_bytes,
        free_space_watermark_bytes: config.free_space_watermark_bytes,
        medium: Arc::clone(&config.medium),
        ..JournalConfig::new(directory.join(JOURNAL))
    };
    let recovered = Journal::open(journal_config, &mut |frame| survey.visit(frame))?;
    let journal = recovered.journal;
    let (content, content_report) =
        ContentStore::open_on(Arc::clone(&config.medium), directory.join(CONTENT))?;
    let journal_took = began.elapsed();

    let began = Instant::now();
    let open = survey.count_open();
    let settled = Settling { config, journal: &journal, epoch: recovered.report.epoch }
        .settle(survey.into_known(), rebuild)?;
    let report = RecoveryReport {
        frames: recovered.report.frames,
        torn_bytes: recovered.report.torn_bytes,
        epoch: recovered.report.epoch,
        head: recovered.report.head,
        index: settled.fate,
        replayed: settled.replayed,
        effects: settled.index.count(keys::EFFECT),
        approvals: settled.index.count(keys::APPROVAL),
        runs: settled.index.count(keys::RUN),
        open,
        content: content_report,
        journal_took,
        index_took: began.elapsed(),
    };
    Ok(Opened { journal, content, index: settled.index, report })
}

/// What the entries say there must be, gathered while the journal is verified.
#[derive(Default)]
pub(super) struct Survey {
    known: Known,
    open: BTreeMap<RecordId, &'static str>,
}

impl Survey {
    /// Takes an entry into account.
    pub(super) fn visit(&mut self, frame: &Frame) -> Result<(), VisitError> {
        if let Some(outline) = outline(frame.kind, &frame.payload)? {
            self.take(frame.seq, &outline);
        }
        Ok(())
    }

    fn take(&mut self, seq: u64, outline: &Outline<'_>) {
        let stamps = &self.known.stamps;
        for effect in &outline.effects {
            match effect {
                EffectOutline::Put { record_id, state } => {
                    stamps.set(&keys::effect(record_id), seq);
                    match keys::open_state(&state.state) {
                        Some(name) => drop(self.open.insert(*record_id, name)),
                        None => drop(self.open.remove(record_id)),
                    }
                }
                EffectOutline::Removed { record_id } | EffectOutline::Forgotten { record_id } => {
                    stamps.remove(&keys::effect(record_id));
                    self.open.remove(record_id);
                }
            }
        }
        for approval in &outline.approvals {
            stamps.set(&keys::approval(&approval.approval_id), seq);
        }
        for run in &outline.runs {
            let key = keys::run(&run.key);
            // A run that was open already stayed as it was.
            if stamps.get(&key).is_none() {
                stamps.set(&key, seq);
            }
        }
        for reservation in outline.reserve.iter().chain(&outline.refund) {
            stamps.set(&keys::run(&reservation.run), seq);
        }
    }

    fn count_open(&self) -> BTreeMap<&'static str, u64> {
        let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
        for name in self.open.values() {
            let count = counts.entry(name).or_default();
            *count = count.saturating_add(1);
        }
        counts
    }

    pub(super) fn into_known(self) -> Known {
        Known { open: self.open.into_keys().collect(), ..self.known }
    }
}

/// Brings index and journal together.
struct Settling<'a> {
    config: &'a EmbeddedConfig,
    journal: &'a Journal,
    epoch: u64,
}

struct Settled {
    index: Index,
    fate: IndexFate,
    replayed: u64,
}

impl Settling<'_> {
    fn settle(&self, known: Known, rebuild: Option<&str>) -> Result<Settled, OpenError> {
        let path = self.config.directory.join(INDEX);
        let found = path.try_exists().map_err(OpenError::io("look for", &path))?;
        let (known, why) = match (found, rebuild) {
            (_, Some(why)) => (known, why.to_owned()),
            (false, None) => (known, "there was none".to_owned()),
            (true, None) => match open_tree(&path, self.config.index_cache_bytes) {
                Ok(db) => match self.keep(Index::new(db, &path, known)) {
                    Ok(settled) => return Ok(settled),
                    Err((known, why)) => (known, why),
                },
                Err(TreeError::Busy) => return Err(OpenError::Index(TreeError::Busy.to_string())),
                Err(error) => (known, error.to_string()),
            },
        };
        if found {
            tracing::warn!(why, "the index is set aside and made anew from the journal");
            self.set_aside(&path)?;
        }
        let db = open_tree(&path, self.config.index_cache_bytes)
            .map_err(|error| OpenError::Index(error.to_string()))?;
        let index = Index::new(db, &path, known);
        let built = replay(&index, self.journal, 0).and_then(|replayed| {
            index.agrees(Freshness::New)?;
            index.flush().map_err(|fault| fault.to_string())?;
            Ok(replayed)
        });
        let replayed = built.map_err(OpenError::Index)?;
        // A new store has no index to be missed.
        let fate = if replayed == 0 && !found && rebuild.is_none() {
            IndexFate::Kept
        } else {
            IndexFate::Rebuilt { why }
        };
        Ok(Settled { index, fate, replayed })
    }

    /// Lets the index catch up and keeps it if it agrees with the journal then.
    fn keep(&self, index: Index) -> Result<Settled, (Known, String)> {
        match self.catch_up(&index) {
            Ok(replayed) => Ok(Settled { index, fate: IndexFate::Kept, replayed }),
            Err(why) => Err((index.into_known(), why)),
        }
    }

    fn catch_up(&self, index: &Index) -> Result<u64, String> {
        let last_seq = self.journal.head().0;
        let meta = match index.meta().map_err(|fault| fault.to_string())? {
            Some(meta) => meta,
            // Made by a process that ended before its first entry.
            None if last_seq == 0 && index.is_empty().map_err(|fault| fault.to_string())? => {
                Meta { applied_seq: 0, head: [0; 32] }
            }
            None => return Err("it does not say how far it goes".to_owned()),
        };
        if meta.applied_seq > last_seq {
            return Err("it goes further than the journal".to_owned());
        }
        if meta.applied_seq > 0 {
            let frame = self.journal.read(meta.applied_seq).map_err(|error| error.to_string())?;
            if frame.hash != meta.head {
                return Err("it belongs to another journal".to_owned());
            }
        }
        let replayed = replay(index, self.journal, meta.applied_seq)?;
        // sled forgets without a word, so it is read through at every start.
        index.agrees(Freshness::Kept)?;
        Ok(replayed)
    }

    fn set_aside(&self, path: &Path) -> Result<(), OpenError> {
        let directory = &self.config.directory;
        let aside = directory.join(format!("{DAMAGED}{}", self.epoch));
        Disk.rename(path, &aside).map_err(OpenError::io("set aside", path))?;
        Disk.sync_dir(directory).map_err(OpenError::io("sync the folder", directory))?;
        let names = Disk.list(directory).map_err(OpenError::io("list the folder", directory))?;
        let mut epochs: Vec<u64> =
            names.iter().filter_map(|name| name.strip_prefix(DAMAGED)?.parse().ok()).collect();
        epochs.sort_unstable_by(|a, b| b.cmp(a));
        for epoch in epochs.into_iter().skip(DAMAGED_KEPT) {
            let old = directory.join(format!("{DAMAGED}{epoch}"));
            std::fs::remove_dir_all(&old).map_err(OpenError::io("remove", &old))?;
        }
        Ok(())
    }
}

/// Why sled did not open.
#[derive(Debug, thiserror::Error)]
pub(super) enum TreeError {
    #[error("it is still held by another handle")]
    Busy,
    #[error("opening it panicked")]
    Panicked,
    #[error("it cannot be opened: {0}")]
    Failed(String),
}

/// How long an earlier handle in this process may take to let go.
const BUSY_FOR: Duration = Duration::from_secs(10);
const BUSY_RETRY: Duration = Duration::from_millis(20);

/// Opens sled, guarded. The caller holds the journal's lock.
pub(super) fn open_tree(path: &Path, cache_bytes: u64) -> Result<sled::Db, TreeError> {
    let began = Instant::now();
    loop {
        match open_tree_once(path, cache_bytes) {
            Err(TreeError::Busy) if began.elapsed() < BUSY_FOR => {
                std::thread::park_timeout(BUSY_RETRY);
            }
            opened => return opened,
        }
    }
}

fn open_tree_once(path: &Path, cache_bytes: u64) -> Result<sled::Db, TreeError> {
    remove_unfinished_snapshots(path).map_err(|error| TreeError::Failed(error.to_string()))?;
    let config = sled::Config::new().path(path).cache_capacity(cache_bytes).flush_every_ms(None);
    // On a thread of its own: sled panics on damaged pages, and may leave anything behind on the stack that it panicked on.
    let opening = std::thread::Builder::new()
        .name("placet-index-open".to_owned())
        .spawn(move || config.open())
        .map_err(|error| TreeError::Failed(error.to_string()))?;
    match opening.join() {
        Ok(Ok(db)) => Ok(db),
        Ok(Err(error)) if error.to_string().contains("could not acquire lock") => {
            Err(TreeError::Busy)
        }
        Ok(Err(error)) => Err(TreeError::Failed(error.to_string())),
        Err(_panic) => Err(TreeError::Panicked),
    }
}

/// A kill during sled's recovery leaves a file behind that makes every later opening fail.
fn remove_unfinished_snapshots(path: &Path) -> io::Result<()> {
    Disk.create_dir(path)?;
    for name in Disk.list(path)? {
        if name.starts_with("snap.") && name.ends_with(".generating") {
            Disk.remove(&path.join(name))?;
        }
    }
    Ok(())
}
