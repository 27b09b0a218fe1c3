//! What is done with a data folder that no process serves: verify, rebuild the index, read the audit chain.
//!
//! Owns the offline commands' work. Not here: how they are called and printed; what is looked at beside journal and index (`beside`). Invariants: verifying and reading change
//! nothing in journal and content; rebuilding sets the old index aside before it makes a new one.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use placet_ledger::approval::{ApprovalRecord, ApprovalState};
use placet_ledger::proof::Frontier;
use placet_ledger::record::{EffectRecord, EffectState};
use placet_types::clock::Timestamp;
use placet_types::digest::Digest;
use placet_types::ids::TenantId;

use super::EmbeddedConfig;
use super::beside::{Carried, damaged_before, first_damage};
use super::checkpoint::Checkpoints;
use super::codec::{EffectEntry, Entry, Meta, decode_entry};
use super::delta::{Delta, Ground, Spill};
use super::floor::Floors;
use super::generation::{self, Generation};
use super::identity::check_finished;
use super::index::IndexFault;
use super::open::{CHECKPOINTS, CONTENT, INDEX, JOURNAL, OpenError, RecoveryReport, open};
use super::settle::open_with_range;
use crate::content::{ContentError, ContentReader, ContentStore};
use crate::journal::lock::Lock;
use crate::journal::medium::{Disk, Medium as _};
use crate::journal::{Base, Frame, VerifyReport as JournalReport, VisitError, verify_each};
use crate::sorted::SpillMap;

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

/// Sets the index aside and rebuilds it from the journal. Begins a new epoch, like any opening.
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

/// The tree over the entries that were archived, as a checkpoint of the index keeps it; none where nothing was archived, or no
/// checkpoint verifies. While an archiving is under way, or was cut short, it may be one over entries that are not moved yet, too. Changes nothing, and may be used beside a running store. It is not signed: compare what it leads to.
#[must_use]
pub fn archived_tree(directory: &Path) -> Option<Frontier> {
    let checkpoints = Checkpoints::new(Arc::new(Disk), directory.join(CHECKPOINTS));
    let base = Base::read(&Disk, &directory.join(JOURNAL)).ok()?;
    Some(Floors::of(&checkpoints, &base).ok()?.floor()?.frontier)
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
    /// Checkpoints before the one that counts that do not verify, with why: a start could not fall back on them. Once another checkpoint
    /// is made they are gone.
    pub damaged_fallbacks: Vec<(u64, String)>,
    /// What is wrong with the records that a checkpoint has of archived entries, if anything: the first that was come upon.
    pub damaged_records: Option<String>,
}

impl VerifyReport {
    /// Whether nothing is wrong as far as it was looked at. What was deleted is told apart from what is lost; a damaged index or
    /// checkpoint costs nothing but a rebuild, but something has damaged it.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.content.altered.is_empty()
            && self.content.missing.is_empty()
            && self.content.damaged_places.is_none()
            && self.damaged_checkpoints.is_empty()
            && self.damaged_fallbacks.is_empty()
            && self.damaged_records.is_none()
            && !matches!(self.index, IndexVerdict::Disagrees { .. })
    }

    /// Whether everything was looked at: not where archived entries are not at hand, or the index could not be read.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.journal.first_seq <= 1 && !matches!(self.index, IndexVerdict::Unread { .. })
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
    /// It does not hold what the journal says; the next start rebuilds it.
    Disagrees {
        /// In what.
        why: String,
    },
    /// The operating system refused something, as on a disk that is full: it may be sound.
    Unread {
        /// What it answered.
        why: String,
    },
}

impl IndexVerdict {
    fn unread(why: &impl std::fmt::Display) -> Self {
        Self::Unread { why: why.to_string() }
    }
}

/// How the content stands to the entries that name it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContentVerdict {
    /// How many contents the entries name.
    pub named: u64,
    /// How many of them were deleted for retention, as the content folder or an entry says.
    pub deleted: u64,
    /// Contents that are not there, though nothing says that they were deleted: [`CONTENTS_LISTED_MAX`] at most.
    pub missing: Vec<(TenantId, Digest)>,
    /// Contents that are not what their digest says, and that no entry says were deleted: as many at most.
    pub altered: Vec<(TenantId, Digest)>,
    /// What is wrong with the tables that say where contents lie, if anything: the packs themselves were read instead. The next start
    /// that comes upon it, or a rebuild, rebuilds them.
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
    check_finished(directory)?;
    let journal_directory = directory.join(JOURNAL);
    let _lock = Lock::take(&journal_directory)?;
    let scratch = Scratch::new(directory)?;
    let checkpoints = Checkpoints::new(Arc::new(Disk), directory.join(CHECKPOINTS));
    let (found, damaged_checkpoints) = checkpoints.newest()?;
    let (number, bodies) =
        found.as_ref().map(|found| (found.checkpoint.number, found.bodies.clone())).unzip();
    let ground = found.map_or_else(Ground::empty, Ground::of);
    let (checkpoint, tables) = (ground.meta, ground.tables.clone());
    let generation = or_unread(find_generation(config, &checkpoint))?;
    let watched = generation.iter().map(|(_, meta)| meta.applied_seq).collect();
    let spill = Spill::new(Arc::new(Disk), scratch.path.clone(), SCRATCH_TABLES);
    let spill = Spill { bytes_max: VERIFY_BYTES_MAX, ..spill };
    let mut delta = Delta::new(ground, spill, &watched);
    let (content, _) =
        ContentStore::open_to_look(directory.join(CONTENT), &scratch.path.join(PLACES))?;
    content.reader().check_places()?;
    let mut contents = Contents::new(content.reader(), &scratch)?;
    let bodies = bodies.unwrap_or_default();
    let damaged_records = Carried { tables: &tables, bodies: &bodies }.look_at(&mut contents)?;
    let mut broken = first_damage(&tables)?;
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
        (Ok((generation, meta)), None) => compare(&generation, &meta, &delta),
        (Err(verdict), None) => verdict,
    };
    let checkpoint_seq = checkpoint.applied_seq;
    let content = contents.verdict()?;
    let damaged_fallbacks = damaged_before(&checkpoints, number.unwrap_or(0))?;
    Ok(VerifyReport {
        journal,
        index,
        content,
        checkpoint_seq,
        damaged_checkpoints,
        damaged_fallbacks,
        damaged_records,
    })
}

/// How many bytes of changes are gathered in memory before they are put into scratch tables.
const VERIFY_BYTES_MAX: usize = 512 << 20;
/// The scratch folder for places of contents.
pub(super) const PLACES: &str = "places";
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
///
/// # Errors
/// What the operating system answers: that it cannot be read now is no verdict.
pub(super) fn find_generation(
    config: &EmbeddedConfig,
    checkpoint: &Meta,
) -> Result<Result<(Generation, Meta), IndexVerdict>, OpenError> {
    let path = config.directory.join(INDEX);
    if !path.try_exists().map_err(OpenError::io("look for", &path))? {
        return Ok(Err(IndexVerdict::Absent));
    }
    let disagrees = |why: String| IndexVerdict::Disagrees { why };
    let generations = generation::find(&path).map_err(OpenError::io("list the folder", &path))?;
    let mut verdict = disagrees("it does not go on from the checkpoint".to_owned());
    for path in generations.values() {
        match open_with_range(path, config.index_cache_bytes)? {
            Ok((generation, base, meta)) if base == *checkpoint => {
                return Ok(Ok((generation, meta)));
            }
            Ok(_) => {}
            Err(why) => verdict = disagrees(why),
        }
    }
    Ok(Err(verdict))
}

/// What the operating system refused is no reason to say nothing of everything else.
pub(super) fn or_unread<T>(
    found: Result<Result<T, IndexVerdict>, OpenError>,
) -> Result<Result<T, IndexVerdict>, OpenError> {
    match found {
        Err(error @ OpenError::Io { .. }) => Ok(Err(IndexVerdict::unread(&error))),
        found => found,
    }
}

fn compare(generation: &Generation, meta: &Meta, delta: &Delta) -> IndexVerdict {
    if delta.has_spilled() {
        return IndexVerdict::Behind { entries: delta.last().applied_seq };
    }
    if let Err(why) = delta.check_place(meta) {
        return IndexVerdict::Disagrees { why };
    }
    match generation.difference(delta, meta.applied_seq) {
        Ok(None) => {}
        Ok(Some(why)) => return IndexVerdict::Disagrees { why },
        Err(fault @ IndexFault::Refused(_)) => return IndexVerdict::unread(&fault),
        Err(fault) => return IndexVerdict::Disagrees { why: fault.to_string() },
    }
    match delta.last().applied_seq.saturating_sub(meta.applied_seq) {
        0 => IndexVerdict::Agrees,
        entries => IndexVerdict::Behind { entries },
    }
}

/// How many contents are remembered as looked at.
const REMEMBERED_MAX: usize = 100_000;
/// How many contents are listed at most that are missing, and as many that are altered.
pub const CONTENTS_LISTED_MAX: usize = 1_000;

/// Looks at the contents that entries name.
pub(super) struct Contents {
    reader: ContentReader,
    remembered: HashSet<(TenantId, Digest)>,
    /// What is not there, or is not what its digest says, with its tenant, until an entry says that it was deleted: a file of its own
    /// leaves nothing behind, neither does a pack that was rewritten, once the table of places is lost; and a piece that a kill left
    /// half erased is finished by the next start.
    harmed: SpillMap,
    /// Records that were taken over from another store, and had their contents still.
    taken_over: SpillMap,
    verdict: ContentVerdict,
}

/// How a piece is harmed, before its tenant in [`Contents::harmed`].
const MISSING: u8 = b'm';
const ALTERED: u8 = b'a';

impl Contents {
    pub(super) fn new(reader: ContentReader, scratch: &Scratch) -> Result<Self, OpenError> {
        let harmed = SpillMap::new(&scratch.path.join("harmed"))?;
        let taken_over = SpillMap::new(&scratch.path.join("taken-over"))?;
        let (remembered, verdict) = (HashSet::new(), ContentVerdict::default());
        Ok(Self { reader, remembered, harmed, taken_over, verdict })
    }

    pub(super) fn verdict(self) -> Result<ContentVerdict, OpenError> {
        let mut verdict = self.verdict;
        verdict.damaged_places = self.reader.damaged_places();
        for pair in self.harmed.iter() {
            let (key, value) = pair?;
            let Some((how, tenant)) = value.split_first() else { continue };
            let list = if *how == ALTERED { &mut verdict.altered } else { &mut verdict.missing };
            let digest = key.last_chunk::<32>().map(|digest| Digest::from_bytes(*digest));
            let tenant = std::str::from_utf8(tenant).ok().and_then(|name| TenantId::new(name).ok());
            if list.len() < CONTENTS_LISTED_MAX {
                list.extend(tenant.zip(digest));
            }
        }
        Ok(verdict)
    }

    /// An entry says that it was deleted. Named again, it was kept again.
    fn deleted(&mut self, tenant: &TenantId, digest: Digest) -> Result<(), VisitError> {
        self.remembered.remove(&(tenant.clone(), digest));
        let key = piece_key(tenant, digest);
        if self.harmed.get(&key)?.is_some() {
            self.harmed.put(key, Vec::new())?;
            self.verdict.deleted = self.verdict.deleted.saturating_add(1);
        }
        Ok(())
    }

    pub(super) fn check(&mut self, entry: &Entry) -> Result<(), VisitError> {
        for effect in &entry.effects {
            if let EffectEntry::Put(record) = effect {
                for digest in contents_of(record) {
                    self.look_at(&record.scope.tenant, digest)?;
                }
                if entry.imported && !is_buried(record) {
                    let id = record.record_id.digest();
                    self.taken_over.put(id.as_bytes().to_vec(), vec![1])?;
                }
            }
        }
        for approval in &entry.approvals {
            if !entry.imported || self.came_with_proposal(approval)? {
                self.look_at(approval.chain.tenant(), approval.proposal)?;
            }
        }
        for (tenant, digest) in &entry.forget_content {
            self.deleted(tenant, *digest)?;
        }
        Ok(())
    }

    /// Whether what approvers were shown was there still when an approval was taken over, after the records: it goes before the approval
    /// does, with the result of the call, or because nothing came of the approval, and only the other store's log says so.
    fn came_with_proposal(&self, approval: &ApprovalRecord) -> Result<bool, OpenError> {
        let is_void = matches!(approval.state, ApprovalState::Void { .. });
        let id = approval.record_id.digest();
        Ok(!is_void && self.taken_over.get(id.as_bytes())?.is_some())
    }

    pub(super) fn look_at(&mut self, tenant: &TenantId, digest: Digest) -> Result<(), OpenError> {
        if self.remembered.len() >= REMEMBERED_MAX {
            self.remembered.clear();
        }
        if !self.remembered.insert((tenant.clone(), digest)) {
            return Ok(());
        }
        let verdict = &mut self.verdict;
        verdict.named = verdict.named.saturating_add(1);
        match self.reader.get(tenant.as_str(), digest) {
            Ok(_) => {}
            Err(ContentError::Missing { .. }) => {
                if self.reader.was_deleted(tenant.as_str(), digest)? {
                    verdict.deleted = verdict.deleted.saturating_add(1);
                } else {
                    self.note_harm(MISSING, tenant, digest)?;
                }
            }
            Err(ContentError::Altered { .. }) => self.note_harm(ALTERED, tenant, digest)?,
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn note_harm(&mut self, how: u8, tenant: &TenantId, digest: Digest) -> Result<(), OpenError> {
        let value = [&[how][..], tenant.as_str().as_bytes()].concat();
        Ok(self.harmed.put(piece_key(tenant, digest), value)?)
    }
}

fn piece_key(tenant: &TenantId, digest: Digest) -> Vec<u8> {
    [Digest::of(tenant.as_str().as_bytes()).as_bytes().as_slice(), digest.as_bytes()].concat()
}

/// The contents that a record names: what is parked, its result, and that of an earlier arm.
pub(super) fn contents_of(record: &EffectRecord) -> impl Iterator<Item = Digest> + use<> {
    // The contents of a tombstone were deleted when it became one.
    let kept = !is_buried(record);
    let of_arm = record.unknown.as_deref().map(|unknown| unknown.result);
    let parked = kept.then_some(record.parked);
    parked.into_iter().chain(record.state.result()).chain(of_arm.filter(|_| kept))
}

const fn is_buried(record: &EffectRecord) -> bool {
    matches!(record.state, EffectState::Tombstone { .. })
}
