//! Start-up: verifies the journal, then checks or rebuilds the state and brings it up to the journal.
//!
//! Owns the order of start-up. Not here: the bytes of the journal, how an entry gets into the state (`replay`). Invariants: nothing is
//! served before the state agrees with the journal; a state that does not is set aside, not deleted, before a new one is made; only the
//! process that holds the journal's lock reads or changes anything.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::EmbeddedConfig;
use super::codec::{Meta, decode_place};
use super::edits;
use super::identity::check_finished;
use super::keys;
use super::replay::Replay;
use super::snapshot::{SnapshotError, Snapshots};
use super::tree::{List, Order, Tree, TreeFault};
use super::trust;
use crate::journal::lock::Lock;
use crate::journal::medium::{Disk, Medium as _};
use crate::journal::{
    Base, Begin, Journal, JournalConfig, JournalError, JournalReader, Place, SegmentFiles,
};
use crate::progress::Progress;

/// Why the store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The journal refuses: it is in use, damaged, or an old copy; or the operating system refuses a file or a folder.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The state cannot be opened, nor rebuilt.
    #[error("the state cannot be built: {0}")]
    State(String),
    /// The operating system refused something while the state was built, such as room on the disk.
    #[error("the state cannot be built: {0}")]
    Refused(Arc<io::Error>),
    /// The state has to be rebuilt, and entries that it needs are neither here nor in a snapshot.
    #[error(
        "the state has to be rebuilt ({why}), and the entries before entry {first_seq} are neither in a snapshot nor at hand: put the archive back"
    )]
    NoGround {
        /// Why it is not trusted.
        why: String,
        /// The first entry that is here.
        first_seq: u64,
    },
    /// It is an unfinished backup: a part of it may be missing, and nothing in it would say so.
    #[error(
        "`{}` is a backup that was not finished: make another one, and remove it",
        .directory.display()
    )]
    UnfinishedCopy {
        /// The folder.
        directory: PathBuf,
    },
    /// An import into this place is unfinished, and there is no ledger yet: an empty one would repeat everything the imported one did.
    #[error(
        "an import into `{}` was cut short, or is still under way: run it again, or remove `{}`",
        .directory.display(),
        .beside.display()
    )]
    UnfinishedImport {
        /// Where the ledger was to be.
        directory: PathBuf,
        /// The unfinished ledger.
        beside: PathBuf,
    },
}

impl OpenError {
    /// Whether something else than the ledger is in the way, which says nothing about it: another process has it, or the operating system
    /// refuses access, room or open files.
    pub fn is_hindered(&self) -> bool {
        match self {
            Self::Journal(JournalError::Locked { .. }) => true,
            Self::Journal(JournalError::Io { source, .. }) | Self::Refused(source) => {
                is_hindrance(source)
            }
            Self::Journal(_)
            | Self::State(_)
            | Self::NoGround { .. }
            | Self::UnfinishedCopy { .. }
            | Self::UnfinishedImport { .. } => false,
        }
    }
}

fn is_hindrance(error: &io::Error) -> bool {
    let is_kind = matches!(
        error.kind(),
        io::ErrorKind::PermissionDenied
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
    );
    let too_many_files = [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE];
    is_kind || too_many_files.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

impl From<TreeFault> for OpenError {
    fn from(fault: TreeFault) -> Self {
        match fault {
            TreeFault::Refused(error) => Self::Refused(error),
            fault @ (TreeFault::Sled(_)
            | TreeFault::Panicked
            | TreeFault::Altered
            | TreeFault::Busy) => Self::State(fault.to_string()),
        }
    }
}

impl From<SnapshotError> for OpenError {
    fn from(error: SnapshotError) -> Self {
        match error {
            SnapshotError::Journal(error) => Self::Journal(error),
            SnapshotError::Tree(_) | SnapshotError::Damaged { .. } => {
                Self::State(error.to_string())
            }
        }
    }
}

/// What became of the state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StateFate {
    /// It agreed with the journal.
    Kept,
    /// It was rebuilt from a snapshot and the journal.
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
    /// The last entry of the snapshot that the state was rebuilt from; 0: none.
    pub snapshot_seq: u64,
    /// How many bytes of an interrupted append were cut off.
    pub torn_bytes: u64,
    /// The epoch that has begun.
    pub epoch: u64,
    /// The last entry's hash.
    pub head: [u8; 32],
    /// What became of the state.
    pub state: StateFate,
    /// How many entries the state lacked.
    pub replayed: u64,
    /// Effect records that recovery has to look at, by the name of their state.
    pub open: BTreeMap<&'static str, u64>,
    /// Effect records whose outcome is unknown.
    pub indeterminate: u64,
    /// How long verifying the journal took.
    pub journal_took: Duration,
    /// How long checking or rebuilding the state took.
    pub state_took: Duration,
}

/// What start-up hands to the store.
pub(super) struct Opened {
    pub(super) journal: Journal,
    pub(super) tree: Tree,
    pub(super) base: Base,
    pub(super) report: RecoveryReport,
}

/// The names in the data folder.
pub(super) const JOURNAL: &str = "journal";
pub(super) const STATE: &str = "state";

/// How the journal of a store is configured.
pub(super) fn journal_config(config: &EmbeddedConfig) -> JournalConfig {
    JournalConfig {
        directory: config.directory.join(JOURNAL),
        segment_bytes: config.segment_bytes,
        free_space_watermark_bytes: config.free_space_watermark_bytes,
        archive: config.archive.clone(),
        medium: Arc::clone(&config.medium),
    }
}

/// Opens everything. `rebuild` says why the state is to be rebuilt in any case.
pub(super) fn open(config: &EmbeddedConfig, rebuild: Option<&str>) -> Result<Opened, OpenError> {
    let directory = &config.directory;
    check_finished(directory)?;
    Disk.create_dir(directory).map_err(JournalError::io("make the folder", directory))?;
    let began = Instant::now();
    let lock = Journal::lock(&journal_config(config))?;
    let snapshots = Snapshots::new(Arc::clone(&config.medium), directory);
    let mut start = Start::new(config, snapshots);
    let found = start.look(rebuild)?;
    let recovered =
        start.open_journal(lock, found.as_ref().map_or(0, |tree| tree.meta().applied_seq));
    let (mut journal, torn_bytes, base) = recovered?;
    start.refuse_a_forgetful_journal(&journal)?;
    let journal_took = began.elapsed();

    let began = Instant::now();
    let believed = match found {
        Some(tree) => start.believe(tree, &journal, &base)?,
        None => None,
    };
    let tree = match believed {
        Some(believed) => believed,
        None => start.rebuild(&journal, &base)?,
    };
    let replayed = catch_up(&tree, &journal, &config.progress)?;
    let open = count_open(&tree)?;
    let indeterminate = tree.count(&keys::effect_list("indeterminate"))?;
    erase(&tree, &mut journal, &base)?;
    let (frames, head) = journal.head();
    // A new store has no state that could be missing.
    let is_new = start.why.is_none() || (frames == 0 && rebuild.is_none());
    let state = match start.why {
        Some(why) if !is_new => StateFate::Rebuilt { why },
        Some(_) | None => StateFate::Kept,
    };
    let report = RecoveryReport {
        frames,
        snapshot_seq: start.snapshot_seq,
        torn_bytes,
        epoch: journal.epoch(),
        head,
        state,
        replayed,
        open,
        indeterminate,
        journal_took,
        state_took: began.elapsed(),
    };
    Ok(Opened { journal, tree, base, report })
}

/// A start in progress.
struct Start<'a> {
    config: &'a EmbeddedConfig,
    snapshots: Snapshots,
    folder: PathBuf,
    /// Why the state found is not trusted, if it is not.
    why: Option<String>,
    /// The last entry that the state or a snapshot knew, trusted or not.
    known_seq: u64,
    snapshot_seq: u64,
}

impl<'a> Start<'a> {
    fn new(config: &'a EmbeddedConfig, snapshots: Snapshots) -> Self {
        Self {
            config,
            snapshots,
            folder: config.directory.join(STATE),
            why: None,
            known_seq: 0,
            snapshot_seq: 0,
        }
    }

    /// The existing state, unless it is not trusted.
    fn look(&mut self, rebuild: Option<&str>) -> Result<Option<Tree>, OpenError> {
        self.known_seq = self.snapshots.list()?.last().copied().unwrap_or(0);
        let io = JournalError::io("look for the state in", &self.config.directory);
        if !self.folder.try_exists().map_err(io)? {
            self.why = Some("there was none".to_owned());
            return Ok(None);
        }
        let doubt = trust::doubt(&self.config.directory)
            .map_err(JournalError::io("read in", &self.config.directory))?;
        self.why = rebuild.or(doubt).map(str::to_owned);
        if self.why.is_none() {
            self.begin()?;
        }
        // It is opened all the same: it may know of entries that the journal has lost.
        let tree = match self.open_tree().map_err(|fault| self.doubt(fault)) {
            Ok(tree) => tree,
            Err(Doubt::Stop(error)) => return Err(error),
            Err(Doubt::Why(why)) => {
                self.why.get_or_insert(why);
                return Ok(None);
            }
        };
        self.known_seq = self.known_seq.max(tree.meta().applied_seq);
        Ok(Some(tree).filter(|_| self.why.is_none()))
    }

    /// Marks the state as in use, once it is trusted or made by this process; a distrusted one stays so until it is set aside.
    fn begin(&self) -> Result<(), OpenError> {
        let directory = &self.config.directory;
        Ok(trust::begin(directory).map_err(JournalError::io("write to the folder", directory))?)
    }

    fn open_tree(&self) -> Result<Tree, TreeFault> {
        Tree::open(&self.folder, self.config.state_cache_bytes)
    }

    /// Opens the journal, verifying what the state does not cover: from the segment of the state's last entry, or of the oldest snapshot's.
    fn open_journal(
        &self,
        lock: Lock,
        applied_seq: u64,
    ) -> Result<(Journal, u64, Base), OpenError> {
        let oldest = match applied_seq {
            0 => self.snapshots.list()?.first().copied().unwrap_or(0),
            applied_seq => applied_seq,
        };
        let begin = if oldest == 0 { Begin::Earliest } else { Begin::Segment(oldest) };
        let config = journal_config(self.config);
        let recovered = Journal::open_locked(config, lock, begin)?;
        Ok((recovered.journal, recovered.torn_bytes, recovered.base))
    }

    /// State and snapshots only contain durable entries: one that goes further than the journal proves that the journal is an older copy,
    /// and the missing entries may have had effects. No rebuild goes on from there.
    fn refuse_a_forgetful_journal(&self, journal: &Journal) -> Result<(), OpenError> {
        let (found_seq, _) = journal.head();
        if self.known_seq <= found_seq {
            return Ok(());
        }
        Err(JournalError::Forgotten { witness_seq: self.known_seq, found_seq }.into())
    }

    /// The state, if it agrees with the journal's entries.
    fn believe(
        &mut self,
        tree: Tree,
        journal: &Journal,
        base: &Base,
    ) -> Result<Option<Tree>, OpenError> {
        match self.check(&tree, journal, base) {
            Ok(()) => Ok(Some(tree)),
            Err(Doubt::Stop(error)) => Err(error),
            Err(Doubt::Why(why)) => {
                self.why = Some(why);
                Ok(None)
            }
        }
    }

    /// Checks that a state is whole, and agrees with the journal's entries.
    fn check(&self, tree: &Tree, journal: &Journal, base: &Base) -> Result<(), Doubt> {
        if let Some(why) = tree.check().map_err(|fault| self.doubt(fault))? {
            return Err(Doubt::Why(why));
        }
        if !is_of(&tree.meta(), &journal.reader(), base)? {
            return Err(Doubt::Why(OF_ANOTHER.to_owned()));
        }
        Ok(())
    }

    /// What a fault of the tree says about the state: an error of the operating system says nothing.
    fn doubt(&self, fault: TreeFault) -> Doubt {
        match fault {
            TreeFault::Refused(error) => {
                let path = self.folder.clone();
                let refused = JournalError::Io { what: "open the state", path, source: error };
                Doubt::Stop(refused.into())
            }
            fault @ (TreeFault::Sled(_)
            | TreeFault::Panicked
            | TreeFault::Altered
            | TreeFault::Busy) => Doubt::Why(fault.to_string()),
        }
    }

    /// Builds the state from the newest sound snapshot, or from nothing; the rest comes from the journal.
    fn rebuild(&mut self, journal: &Journal, base: &Base) -> Result<Tree, OpenError> {
        let why = self.why.clone().unwrap_or_default();
        let is_there = self.folder.try_exists().unwrap_or(true);
        if journal.head().0 > 0 && is_there {
            tracing::warn!(why, "the state is set aside and rebuilt");
        } else if journal.head().0 > 0 {
            tracing::warn!(why, "the state is rebuilt");
        }
        self.set_aside(journal.epoch())?;
        self.begin()?;
        for seq in self.snapshots.list()?.into_iter().rev() {
            let tree = self.open_tree()?;
            match self.snapshots.fill(seq, &tree) {
                Ok(()) => match self.check(&tree, journal, base) {
                    Ok(()) => {
                        self.snapshot_seq = seq;
                        return Ok(tree);
                    }
                    Err(Doubt::Stop(error)) => return Err(error),
                    Err(Doubt::Why(why)) => tracing::warn!(seq, why, "a snapshot cannot be used"),
                },
                Err(error @ SnapshotError::Journal(_)) => return Err(error.into()),
                Err(error) => {
                    tracing::warn!(seq, %error, "a snapshot cannot be used, and is set aside");
                    self.snapshots.set_aside(seq)?;
                }
            }
            drop(tree);
            let removed = std::fs::remove_dir_all(&self.folder);
            removed.map_err(JournalError::io("remove", &self.folder))?;
        }
        // From the first entry on, which has to be at hand then.
        if !is_at_hand(journal.reader().files(), base) {
            return Err(OpenError::NoGround { why, first_seq: base.first_seq });
        }
        Ok(self.open_tree()?)
    }

    fn set_aside(&self, epoch: u64) -> Result<(), OpenError> {
        if !self.folder.try_exists().map_err(JournalError::io("look for", &self.folder))? {
            return Ok(());
        }
        let directory = &self.config.directory;
        let aside = directory.join(format!("{DAMAGED}{epoch}"));
        Disk.rename(&self.folder, &aside).map_err(JournalError::io("set aside", &self.folder))?;
        Disk.sync_dir(directory).map_err(JournalError::io("sync the folder", directory))?;
        let names = Disk.list(directory).map_err(JournalError::io("list the folder", directory))?;
        let mut epochs: Vec<u64> =
            names.iter().filter_map(|name| name.strip_prefix(DAMAGED)?.parse().ok()).collect();
        epochs.sort_unstable_by(|a, b| b.cmp(a));
        for epoch in epochs.into_iter().skip(DAMAGED_KEPT) {
            let old = directory.join(format!("{DAMAGED}{epoch}"));
            std::fs::remove_dir_all(&old).map_err(JournalError::io("remove", &old))?;
        }
        Ok(())
    }
}

/// What is wrong with a state or a snapshot for which [`is_of`] answers no.
pub(super) const OF_ANOTHER: &str = "it belongs to another journal";

/// Whether a state's last entry is in the journal or, archived, the one before the journal's first.
pub(super) fn is_of(
    meta: &Meta,
    journal: &JournalReader,
    base: &Base,
) -> Result<bool, JournalError> {
    let head = match meta.applied_seq {
        0 => return Ok(base.first_seq <= 1),
        seq if seq.saturating_add(1) == base.first_seq => base.prev,
        seq => match journal.read(seq) {
            Ok(frame) => frame.hash,
            Err(JournalError::Archived { .. } | JournalError::Absent { .. }) => return Ok(false),
            Err(error) => return Err(error),
        },
    };
    Ok(head == meta.head)
}

/// Whether all segments that were archived are at hand.
pub(super) fn is_at_hand(files: &SegmentFiles, base: &Base) -> bool {
    (1..base.segment).all(|number| files.open_read(number).is_ok())
}

/// The name prefix of a distrusted state that was set aside.
const DAMAGED: &str = "state.damaged-";
const DAMAGED_KEPT: usize = 1;

/// Why a state is not used.
#[derive(Debug)]
enum Doubt {
    /// It is not what it should be: it is rebuilt.
    Why(String),
    /// It may be sound, and cannot be read.
    Stop(OpenError),
}

impl<E: Into<OpenError>> From<E> for Doubt {
    fn from(error: E) -> Self {
        Self::Stop(error.into())
    }
}

/// Applies the entries that are not in the state; answers how many.
pub(super) fn catch_up(
    tree: &Tree,
    journal: &Journal,
    progress: &Progress,
) -> Result<u64, OpenError> {
    let first = tree.meta().applied_seq.saturating_add(1);
    let mut replay = Replay::new(tree, None);
    for frame in journal.reader().read_from(first) {
        let frame = frame?;
        replay.take(&frame).map_err(|error| OpenError::State(error.to_string()))?;
        progress.at(frame.seq);
    }
    replay.finish()?;
    Ok(replay.last_seq().saturating_add(1).saturating_sub(first))
}

/// Erases contents that entries say are deleted, in case the process ended in between.
fn erase(tree: &Tree, journal: &mut Journal, base: &Base) -> Result<(), OpenError> {
    let mut places: Vec<Place> = Vec::new();
    let list = List { prefix: vec![keys::TO_ERASE], after: None };
    tree.merge(&[list], Order::Ascending, &mut |place, _| {
        places.extend(decode_place(place));
        true
    })?;
    if places.is_empty() {
        return Ok(());
    }
    // Those of archived segments were erased before these were archived.
    let here = places.iter().filter(|place| place.segment >= base.segment);
    journal.erase(&here.copied().collect::<Vec<_>>())?;
    Ok(tree.apply(&edits::erased(&places), |_| {})?)
}

/// How many records recovery has to look at, by the name of their state.
fn count_open(tree: &Tree) -> Result<BTreeMap<&'static str, u64>, OpenError> {
    let mut counts = BTreeMap::new();
    for name in keys::OPEN_STATES {
        let count = tree.count(&keys::effect_list(name))?;
        if count > 0 {
            counts.insert(name, count);
        }
    }
    Ok(counts)
}
