//! What is done with a data folder that no process serves: verify, rebuild the index, read the audit chain.
//!
//! Owns the offline commands' work. Not here: how they are called and printed. Invariants: verifying and reading change
//! nothing in journal and content; rebuilding sets the old index aside before it makes a new one.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use placet_ledger::approval::ApprovalRecord;
use placet_ledger::proof::Frontier;
use placet_ledger::record::{EffectRecord, EffectState};
use placet_types::clock::Timestamp;
use placet_types::digest::Digest;
use placet_types::ids::TenantId;

use super::EmbeddedConfig;
use super::checkpoint::Checkpoints;
use super::codec::{EffectEntry, Entry, Meta, decode_entry};
use super::delta::{Delta, Ground, Spill};
use super::generation::{self, Generation};
use super::open::{CHECKPOINTS, CONTENT, INDEX, JOURNAL, OpenError, RecoveryReport, open};
use crate::content::{ContentError, ContentReader, ContentStore};
use crate::journal::lock::Lock;
use crate::journal::medium::{Disk, Medium as _};
use crate::journal::{Frame, VerifyReport as JournalReport, VisitError, verify_each};
use crate::sorted::TableSet;

/// One entry of the audit chain, read back.
#[derive(Debug, Clone)]
pub struct JournalEntry {
    /// Its place.
    pub seq: u64,
    /// The epoch of the process that wrote it.
    pub epoch: u64,
    /// When.
    pub at: Timestamp,
    /// Its hash.
    pub hash: [u8; 32],
    /// The hash of the entry before it.
    pub prev: [u8; 32],
    /// What it records.
    pub entry: Entry,
}

impl JournalEntry {
    pub(super) fn decode(frame: &Frame) -> Result<Self, String> {
        let entry = decode_entry(frame.kind, &frame.payload)
            .map_err(|error| format!("entry {} cannot be read: {error}", frame.seq))?;
        Ok(Self {
            seq: frame.seq,
            epoch: frame.epoch,
            at: Timestamp::from_ms(frame.at_ms),
            hash: frame.hash,
            prev: frame.prev,
            entry,
        })
    }
}

/// Reads the whole chain in order, verifying it, and hands each entry to `visit`. Takes no lock and changes nothing: it may be
/// used beside a running store, and ends where that had come to.
///
/// # Errors
/// The first thing that is wrong with the journal, with its place; or what `visit` refuses.
pub fn read_audit(
    directory: &Path,
    visit: &mut dyn FnMut(JournalEntry) -> Result<(), VisitError>,
) -> Result<JournalReport, OpenError> {
    let report = verify_each(&directory.join(JOURNAL), None, &mut |frame| {
        visit(JournalEntry::decode(frame)?)
    })?;
    Ok(report)
}

/// Sets the index aside and makes it anew from the journal. Begins a new epoch, like any opening.
///
/// # Errors
/// [`OpenError`], as opening the store; the folder must not be in use.
pub fn rebuild(directory: &Path) -> Result<RecoveryReport, OpenError> {
    rebuild_with(&EmbeddedConfig::new(directory))
}

/// The same for a store that is configured otherwise: with its archive in another folder.
///
/// # Errors
/// As [`rebuild`].
pub fn rebuild_with(config: &EmbeddedConfig) -> Result<RecoveryReport, OpenError> {
    // A mistyped name must not make a new store.
    let journal = config.directory.join(JOURNAL);
    std::fs::metadata(&journal).map_err(OpenError::io("find the journal", &journal))?;
    let opened = open(config, Some("asked for"))?;
    opened.index.close().map_err(|fault| OpenError::Index(fault.to_string()))?;
    opened.journal.close()?;
    Ok(opened.report)
}

/// The tree over the entries that were archived, as the newest checkpoint of the index keeps it; none where nothing was archived, or no
/// checkpoint verifies. Changes nothing, and may be used beside a running store. It is not signed: compare what it leads to.
#[must_use]
pub fn archived_tree(directory: &Path) -> Option<Frontier> {
    let checkpoints = Checkpoints::new(Arc::new(Disk), directory.join(CHECKPOINTS));
    let (found, _) = checkpoints.newest().ok()?;
    Some(found?.checkpoint.floor()?.frontier)
}

/// What [`verify`] found. The journal itself is sound, else there is an error instead.
#[derive(Debug, Clone)]
pub struct VerifyReport {
    /// The journal.
    pub journal: JournalReport,
    /// The index.
    pub index: IndexVerdict,
    /// The content.
    pub content: ContentVerdict,
    /// The last entry that a checkpoint covers; 0: there is none.
    pub checkpoint_seq: u64,
    /// Checkpoints that do not verify, with why: the next start sets them aside.
    pub damaged_checkpoints: Vec<(u64, String)>,
}

impl VerifyReport {
    /// Whether nothing is wrong. Missing content may have been deleted for retention, so it is not counted as wrong; a damaged
    /// index or checkpoint costs nothing but a rebuild, but something has damaged it.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.content.altered.is_empty()
            && self.content.damaged_places.is_none()
            && self.damaged_checkpoints.is_empty()
            && !matches!(self.index, IndexVerdict::Disagrees { .. })
    }
}

/// How the index stands to the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IndexVerdict {
    /// It holds what the journal says.
    Agrees,
    /// It is behind, as after a crash; the next start lets it catch up.
    Behind {
        /// How many entries it has to take over.
        entries: u64,
    },
    /// There is none; the next start makes it.
    Absent,
    /// It does not hold what the journal says; the next start makes it anew.
    Disagrees {
        /// In what.
        why: String,
    },
}

/// How the content stands to the entries that name it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContentVerdict {
    /// How many contents the entries name.
    pub named: u64,
    /// How many of them were deleted for retention.
    pub deleted: u64,
    /// Contents that are not there, though nothing says that they were deleted: the first thousand.
    pub missing: Vec<(TenantId, Digest)>,
    /// Contents that are not what their digest says: the first thousand.
    pub altered: Vec<(TenantId, Digest)>,
    /// What is wrong with the tables that say where contents lie, if anything: the packs themselves were read instead. The next start
    /// that comes upon it, or a rebuild, makes them anew.
    pub damaged_places: Option<String>,
}

/// Verifies journal, index and content of a folder that is not in use.
///
/// # Errors
/// [`OpenError`]: the folder is in use, or the journal is damaged (the first thing that is wrong, with its place).
pub fn verify(directory: &Path) -> Result<VerifyReport, OpenError> {
    verify_with(&EmbeddedConfig::new(directory))
}

/// The same for a store that is configured otherwise: with its archive in another folder.
///
/// # Errors
/// As [`verify`].
pub fn verify_with(config: &EmbeddedConfig) -> Result<VerifyReport, OpenError> {
    let directory = &config.directory;
    let journal_directory = directory.join(JOURNAL);
    let _lock = Lock::take(&journal_directory)?;
    let scratch = Scratch::new(directory)?;
    let checkpoints = Checkpoints::new(Arc::new(Disk), directory.join(CHECKPOINTS));
    let (found, damaged_checkpoints) = checkpoints.newest()?;
    let ground = found.map_or_else(Ground::empty, Ground::of);
    let (checkpoint, tables) = (ground.meta, ground.tables.clone());
    let generation = find_generation(config, &checkpoint);
    let watched = generation.iter().map(|(_, meta)| meta.applied_seq).collect();
    let spill = Spill::new(Arc::new(Disk), scratch.path.clone(), SCRATCH_TABLES);
    let spill = Spill { bytes_max: VERIFY_BYTES_MAX, ..spill };
    let mut delta = Delta::new(ground, spill, &watched);
    let (content, _) = ContentStore::open_to_look(directory.join(CONTENT))?;
    content.reader().check_places()?;
    let mut contents = Contents::new(content.reader());
    let mut broken = None;
    let journal = verify_each(&journal_directory, config.archive.as_deref(), &mut |frame| {
        if frame.seq == checkpoint.applied_seq && frame.hash != checkpoint.head {
            return Err("the checkpoint saw another entry here".into());
        }
        if broken.is_none() {
            match delta.visit(frame) {
                Err(error) if delta.damaged_table().is_some() => broken = Some(error.to_string()),
                visited => visited?,
            }
        }
        contents.check(&JournalEntry::decode(frame)?.entry)
    })?;
    let index = match (generation, broken) {
        (_, Some(why)) => IndexVerdict::Disagrees { why },
        (Ok((generation, meta)), None) => compare(&generation, &meta, &delta, &tables),
        (Err(verdict), None) => verdict,
    };
    let checkpoint_seq = checkpoint.applied_seq;
    let content =
        ContentVerdict { damaged_places: contents.reader.damaged_places(), ..contents.verdict };
    Ok(VerifyReport { journal, index, content, checkpoint_seq, damaged_checkpoints })
}

/// How many bytes of changes are gathered in memory before they are put into scratch tables.
const VERIFY_BYTES_MAX: usize = 512 << 20;
/// Scratch tables are numbered from here on.
const SCRATCH_TABLES: u64 = 1;

/// A folder for what is too much for memory; removed in the end.
pub(super) struct Scratch {
    pub(super) path: PathBuf,
}

impl Scratch {
    pub(super) fn new(directory: &Path) -> Result<Self, OpenError> {
        let path = directory.join("verify.tmp");
        if matches!(path.try_exists(), Ok(true)) {
            std::fs::remove_dir_all(&path).map_err(OpenError::io("remove", &path))?;
        }
        Disk.create_dir(&path).map_err(OpenError::io("make the folder", &path))?;
        Ok(Self { path })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            tracing::warn!(%error, "the scratch folder could not be removed");
        }
    }
}

/// Opens the generation of the index that goes on from the checkpoint, and reads how far it goes.
pub(super) fn find_generation(
    config: &EmbeddedConfig,
    checkpoint: &Meta,
) -> Result<(Generation, Meta), IndexVerdict> {
    let path = config.directory.join(INDEX);
    if !matches!(path.try_exists(), Ok(true)) {
        return Err(IndexVerdict::Absent);
    }
    let disagrees = |why: String| IndexVerdict::Disagrees { why };
    let generations = generation::find(&path).map_err(|error| disagrees(error.to_string()))?;
    let mut verdict = disagrees("it does not go on from the checkpoint".to_owned());
    for path in generations.values() {
        let generation = match Generation::open(path, config.index_cache_bytes) {
            Ok(generation) => generation,
            Err(error) => {
                verdict = disagrees(error.to_string());
                continue;
            }
        };
        match (generation.base(), generation.meta()) {
            (Ok(Some(base)), Ok(Some(meta))) if base == *checkpoint => {
                return Ok((generation, meta));
            }
            (Ok(_), Ok(_)) => {}
            (Err(fault), _) | (_, Err(fault)) => verdict = disagrees(fault.to_string()),
        }
    }
    Err(verdict)
}

fn compare(generation: &Generation, meta: &Meta, delta: &Delta, tables: &TableSet) -> IndexVerdict {
    for table in tables.tables() {
        if let Err(error) = table.verify() {
            return IndexVerdict::Disagrees { why: error.to_string() };
        }
    }
    if delta.has_spilled() {
        return IndexVerdict::Behind { entries: delta.last().applied_seq };
    }
    let checked = delta.check_place(meta);
    if let Err(why) = checked.and_then(|()| generation.compare(delta, meta.applied_seq)) {
        return IndexVerdict::Disagrees { why };
    }
    match delta.last().applied_seq.saturating_sub(meta.applied_seq) {
        0 => IndexVerdict::Agrees,
        entries => IndexVerdict::Behind { entries },
    }
}

/// How many contents are remembered as looked at.
const REMEMBERED_MAX: usize = 100_000;
const LISTED_MAX: usize = 1_000;

/// Looks at the contents that entries name.
struct Contents {
    reader: ContentReader,
    remembered: HashSet<(TenantId, Digest)>,
    verdict: ContentVerdict,
}

impl Contents {
    fn new(reader: ContentReader) -> Self {
        Self { reader, remembered: HashSet::new(), verdict: ContentVerdict::default() }
    }

    fn check(&mut self, entry: &Entry) -> Result<(), VisitError> {
        for effect in &entry.effects {
            if let EffectEntry::Put(record) = effect {
                for digest in contents_of(record) {
                    self.look_at(&record.scope.tenant, digest)?;
                }
            }
        }
        for ApprovalRecord { chain, proposal, .. } in &entry.approvals {
            self.look_at(chain.tenant(), *proposal)?;
        }
        Ok(())
    }

    fn look_at(&mut self, tenant: &TenantId, digest: Digest) -> Result<(), VisitError> {
        if self.remembered.len() >= REMEMBERED_MAX {
            self.remembered.clear();
        }
        if !self.remembered.insert((tenant.clone(), digest)) {
            return Ok(());
        }
        let verdict = &mut self.verdict;
        verdict.named = verdict.named.saturating_add(1);
        let list = match self.reader.get(tenant.as_str(), digest) {
            Ok(_) => return Ok(()),
            Err(ContentError::Missing { .. })
                if self.reader.was_deleted(tenant.as_str(), digest) =>
            {
                verdict.deleted = verdict.deleted.saturating_add(1);
                return Ok(());
            }
            Err(ContentError::Missing { .. }) => &mut verdict.missing,
            Err(ContentError::Altered { .. }) => &mut verdict.altered,
            Err(error) => return Err(error.into()),
        };
        if list.len() < LISTED_MAX {
            list.push((tenant.clone(), digest));
        }
        Ok(())
    }
}

/// The contents that a record names.
pub(super) fn contents_of(record: &EffectRecord) -> impl Iterator<Item = Digest> + use<> {
    // The contents of a tombstone were deleted when it became one.
    let is_buried = matches!(record.state, EffectState::Tombstone { .. });
    let parked = (!is_buried).then_some(record.parked);
    parked.into_iter().chain(record.state.result())
}
