//! Start-up: the newest checkpoint taken, the journal after it verified, the index kept or rebuilt, the writer started.
//!
//! Owns the order of start-up. Not here: the bytes of the journal, the tables, what becomes of the index (`settle`).
//! Invariants: nothing is served before the index agrees with the journal; an index that does not is set aside, never deleted
//! first; everything is looked at and changed only by whoever holds the journal's lock.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use placet_types::digest::Digest;
use placet_types::ids::TenantId;

use super::EmbeddedConfig;
use super::checkpoint::Checkpoints;
use super::floor::{Floors, Footing};
use super::identity::{check_finished, check_known_head, store_id};
use super::index::{Applied, Index};
use super::settle::{Ready, Settling};
use crate::content::{ContentError, ContentReport, ContentStore};
use crate::journal::medium::{Disk, Medium as _};
use crate::journal::{Base, Journal, JournalConfig, JournalError};
use crate::sorted::{TableError, TableSet};
use crate::tree::{Floor, LogTree, TreeError};

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
    /// A checkpoint cannot be written, or is not one of this store.
    #[error("the checkpoint cannot be used: {0}")]
    Checkpoint(String),
    /// A table of a checkpoint is damaged, and could not be set aside.
    #[error("the table `{}` is damaged", .path.display())]
    DamagedTable {
        /// The table.
        path: PathBuf,
    },
    /// The Merkle tree cannot be opened, or knows entries that the journal has forgotten.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// Neither a checkpoint nor the tree's files say what the tree over the archived entries was, and these are not at hand.
    #[error(
        "the Merkle tree over the archived entries before entry {first_seq} is not known, and they are not at hand: put the archive back"
    )]
    NoFloor {
        /// The first entry that is not archived.
        first_seq: u64,
    },
    /// The ledger is an older copy than the one that is known from elsewhere.
    #[error(
        "this is an old copy of the ledger: entry {known_seq} is known from elsewhere, and it is not the one that is here"
    )]
    OldCopy {
        /// The entry that is known.
        known_seq: u64,
    },
    /// It is a backup whose making was cut short: a part of it may be missing, and nothing in it would say so.
    #[error(
        "`{}` is a backup that was not finished: make another one, and remove it",
        .directory.display()
    )]
    UnfinishedCopy {
        /// The folder.
        directory: PathBuf,
    },
    /// There is no ledger yet, and one was being imported: whatever that one did would be done once more by an empty one.
    #[error(
        "an import into `{}` was cut short, or is still under way: run it again, or remove `{}`",
        .directory.display(),
        .beside.display()
    )]
    UnfinishedImport {
        /// Where the ledger was to be.
        directory: PathBuf,
        /// What there is of it.
        beside: PathBuf,
    },
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
    /// It was rebuilt from the journal.
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
    /// The entry up to which a checkpoint was believed; those after it were read and verified. 0: all were.
    pub checkpoint_seq: u64,
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
    pub(super) tree: LogTree,
    pub(super) rest: Rest,
    pub(super) report: RecoveryReport,
}

/// What the keeper goes on with.
pub(super) struct Rest {
    pub(super) checkpoints: Checkpoints,
    pub(super) bodies: TableSet,
    pub(super) footing: Footing,
    pub(super) next_table: u64,
    pub(super) next_generation: u64,
    pub(super) covered_seq: u64,
    pub(super) store_id: String,
}

/// The names of what is in the data folder.
pub(super) const JOURNAL: &str = "journal";
pub(super) const CONTENT: &str = "content";
pub(super) const INDEX: &str = "index";
pub(super) const CHECKPOINTS: &str = "checkpoints";
pub(super) const TREE: &str = "tree";

/// How the journal of a store is configured.
pub(super) fn journal_config(config: &EmbeddedConfig) -> JournalConfig {
    JournalConfig {
        segment_bytes: config.segment_bytes,
        free_space_watermark_bytes: config.free_space_watermark_bytes,
        archive: config.archive.clone(),
        medium: Arc::clone(&config.medium),
        ..JournalConfig::new(config.directory.join(JOURNAL))
    }
}

/// How many damaged tables are set aside in one start.
const DAMAGED_TABLES_MAX: usize = 16;

/// Opens everything. `rebuild` says why the index is to be rebuilt in any case.
pub(super) fn open(config: &EmbeddedConfig, rebuild: Option<&str>) -> Result<Opened, OpenError> {
    check_finished(&config.directory)?;
    for _ in 0..DAMAGED_TABLES_MAX {
        match try_open(config, rebuild) {
            // Without it the checkpoints that name it do not count; what they covered is read from the journal again.
            Err(OpenError::DamagedTable { path }) => {
                tracing::warn!(path = %path.display(), "a damaged table is set aside");
                let aside = path.with_extension("damaged");
                Disk.rename(&path, &aside).map_err(OpenError::io("set aside", &path))?;
            }
            opened => return opened,
        }
    }
    try_open(config, rebuild)
}

fn try_open(config: &EmbeddedConfig, rebuild: Option<&str>) -> Result<Opened, OpenError> {
    let directory = &config.directory;
    Disk.create_dir(directory).map_err(OpenError::io("make the folder", directory))?;
    let began = Instant::now();
    let lock = Journal::lock(&journal_config(config))?;
    let checkpoints = Checkpoints::new(Arc::clone(&config.medium), directory.join(CHECKPOINTS));
    let found = checkpoints.take_newest()?;
    let store_id =
        store_id(config, found.as_ref().map(|found| found.checkpoint.store_id.as_str()))?;
    let mut settling = Settling::new(config, checkpoints, rebuild);
    if let Some(found) = &found {
        settling.next_table = found.checkpoint.next_table;
        settling.replaces_checkpoint = rebuild.is_some();
    }
    let found = found.filter(|_| rebuild.is_none());
    settling.look_for_generation(found.as_ref())?;
    let Ready { begin, mut delta, bodies, covered_seq } = settling.ready(found);
    let recovered =
        Journal::open_locked(journal_config(config), lock, &begin, &mut |frame| delta.visit(frame));
    let recovered = recovered.map_err(|error| match delta.damaged_table() {
        Some(path) => OpenError::DamagedTable { path },
        None => error.into(),
    })?;
    let journal = recovered.journal;
    check_known_head(config, &journal)?;
    let (mut content, content_report) =
        ContentStore::open_on(Arc::clone(&config.medium), directory.join(CONTENT))?;
    if rebuild.is_some() {
        content.reader().remake_places()?;
    }
    forget(&mut content, delta.forgotten())?;
    let (tree, footing) = stand(config, &settling.checkpoints, (&journal, recovered.base))?;
    let journal_took = began.elapsed();

    let began = Instant::now();
    let at_ms = journal.last_at_ms().unwrap_or(i64::MIN);
    let applied =
        Applied { meta: delta.last(), counts: delta.counts(), at_ms, epoch: journal.epoch() };
    let rest = Rest {
        checkpoints: settling.checkpoints.clone(),
        bodies,
        footing,
        next_table: delta.next_table(),
        next_generation: 0,
        covered_seq,
        store_id,
    };
    let settled = settling.settle(&journal, delta, (applied, rest))?;
    let counts = settled.index.applied().counts;
    let report = RecoveryReport {
        frames: recovered.report.frames,
        checkpoint_seq: covered_seq,
        torn_bytes: recovered.report.torn_bytes,
        epoch: recovered.report.epoch,
        head: recovered.report.head,
        index: settled.fate,
        replayed: settled.replayed,
        effects: counts.effects,
        approvals: counts.approvals,
        runs: counts.runs,
        open: settled.open,
        content: content_report,
        journal_took,
        index_took: began.elapsed(),
    };
    Ok(Opened { journal, content, index: settled.index, tree, rest: settled.rest, report })
}

/// How many entries the tree is fed before it gives them to the operating system.
const TREE_FEED_ENTRIES: u64 = 4096;

/// Opens the Merkle tree, and finds out what checkpoints are to say of the entries that were archived.
fn stand(
    config: &EmbeddedConfig,
    checkpoints: &Checkpoints,
    (journal, base): (&Journal, Base),
) -> Result<(LogTree, Footing), OpenError> {
    let floors = Floors::of(checkpoints, &base)?;
    let mut tree = open_tree(config, journal, floors.floor())?;
    if let Some(footing) = floors.footing(base, &tree)? {
        return Ok((tree, footing));
    }
    // Its files are damaged where they are not looked at otherwise. With the archive at hand they are rebuilt.
    tree.discard("it cannot show the tree over the archived entries")?;
    let no_floor = OpenError::NoFloor { first_seq: base.first_seq };
    match feed(&mut tree, journal, 1) {
        Err(OpenError::Journal(JournalError::Archived { .. } | JournalError::Absent { .. })) => {
            return Err(no_floor);
        }
        fed => fed?,
    }
    tree.sync()?;
    let footing = floors.footing(base, &tree)?.ok_or(no_floor)?;
    Ok((tree, footing))
}

/// Opens the Merkle tree, and feeds it what it has not seen.
fn open_tree(
    config: &EmbeddedConfig,
    journal: &Journal,
    floor: Option<Floor>,
) -> Result<LogTree, OpenError> {
    let folder = config.directory.join(TREE);
    let mut tree = LogTree::open_on(folder, Arc::clone(&config.medium), floor)?;
    let last_seq = journal.head().0;
    // An entry that is not there is one that the tree knows and the journal cannot show: the tree is fed anew, or refused. One that
    // cannot be read now says nothing: without it, what was archived could not be proved any more.
    let mut hash_of = |seq| match journal.read(seq) {
        Ok(frame) => Ok(Some(frame.hash)),
        Err(JournalError::Io { what, path, source }) => Err(TreeError::Io { what, path, source }),
        Err(_) => Ok(None),
    };
    let from = tree.resume(last_seq, &mut hash_of)?;
    match feed(&mut tree, journal, from) {
        Err(
            error @ OpenError::Journal(JournalError::Archived { .. } | JournalError::Absent { .. }),
        ) => {
            let Some(from) = tree.stand_on_floor()? else { return Err(error) };
            tracing::warn!(
                from,
                "the Merkle tree was lost, and so were archived entries: nothing can be proved of those before"
            );
            feed(&mut tree, journal, from)?;
        }
        fed => fed?,
    }
    tree.sync()?;
    Ok(tree)
}

fn feed(tree: &mut LogTree, journal: &Journal, from: u64) -> Result<(), OpenError> {
    for frame in journal.read_from(from) {
        let frame = frame?;
        tree.append(&frame.hash);
        if frame.seq.is_multiple_of(TREE_FEED_ENTRIES) {
            tree.flush()?;
        }
    }
    Ok(())
}

/// What the entries after the checkpoint say was deleted is deleted, should a crash have come between.
fn forget(
    content: &mut ContentStore,
    forgotten: &BTreeSet<(TenantId, Digest)>,
) -> Result<(), OpenError> {
    for (tenant, digest) in forgotten {
        content.forget(tenant.as_str(), *digest)?;
    }
    content.sync()?;
    // A checkpoint that is made now, with or without a life of the store, may leave these entries behind.
    Ok(content.reader().settle()?)
}

impl From<TableError> for OpenError {
    fn from(error: TableError) -> Self {
        match error {
            TableError::Io { what, path, source } => {
                Self::Io { what, path, source: io::Error::new(source.kind(), source) }
            }
            TableError::Damaged { .. } | TableError::Source(_) => Self::Index(error.to_string()),
        }
    }
}
