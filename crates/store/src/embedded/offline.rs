//! What is done with a data folder that no process serves: verify, rebuild the index, read the audit chain.
//!
//! Owns the offline commands' work. Not here: how they are called and printed. Invariants: verifying and reading change
//! nothing in journal and content; rebuilding sets the old index aside before it makes a new one.

use std::collections::BTreeSet;
use std::path::Path;

use placet_ledger::approval::ApprovalRecord;
use placet_ledger::record::{EffectRecord, EffectState};
use placet_types::clock::Timestamp;
use placet_types::digest::Digest;
use placet_types::ids::TenantId;

use super::EmbeddedConfig;
use super::codec::{EffectEntry, Entry, Meta, decode_entry};
use super::index::{Freshness, Index, Known};
use super::open::{CONTENT, INDEX, JOURNAL, OpenError, RecoveryReport, Survey, open, open_tree};
use crate::content::{ContentError, ContentStore};
use crate::journal::lock::Lock;
use crate::journal::{Frame, VerifyReport as JournalReport, VisitError, verify_each};

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
    let report =
        verify_each(&directory.join(JOURNAL), &mut |frame| visit(JournalEntry::decode(frame)?))?;
    Ok(report)
}

/// Sets the index aside and makes it anew from the journal. Begins a new epoch, like any opening.
///
/// # Errors
/// [`OpenError`], as opening the store; the folder must not be in use.
pub fn rebuild(directory: &Path) -> Result<RecoveryReport, OpenError> {
    // A mistyped name must not make a new store.
    let journal = directory.join(JOURNAL);
    std::fs::metadata(&journal).map_err(OpenError::io("find the journal", &journal))?;
    let config = EmbeddedConfig::new(directory);
    let opened = open(&config, Some("asked for"))?;
    opened.index.close().map_err(|fault| OpenError::Index(fault.to_string()))?;
    opened.journal.close()?;
    Ok(opened.report)
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
}

impl VerifyReport {
    /// Whether nothing is wrong. Missing content may have been deleted for retention, so it is not counted as wrong; a damaged
    /// index costs nothing but a rebuild, but something has damaged it.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.content.altered.is_empty() && !matches!(self.index, IndexVerdict::Disagrees { .. })
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
    /// How many different contents the entries name.
    pub named: u64,
    /// Contents that are not there: deleted for retention, or lost.
    pub missing: Vec<(TenantId, Digest)>,
    /// Contents that are not what their digest says.
    pub altered: Vec<(TenantId, Digest)>,
}

/// Verifies journal, index and content of a folder that is not in use.
///
/// # Errors
/// [`OpenError`]: the folder is in use, or the journal is damaged (the first thing that is wrong, with its place).
pub fn verify(directory: &Path) -> Result<VerifyReport, OpenError> {
    let journal_directory = directory.join(JOURNAL);
    let _lock = Lock::take(&journal_directory)?;
    let found = find_index(directory);
    let mut survey = Survey::default();
    let mut named: BTreeSet<(TenantId, Digest)> = BTreeSet::new();
    let mut hash_there = None;
    let journal = verify_each(&journal_directory, &mut |frame| {
        survey.visit(frame)?;
        if matches!(&found, Ok((_, meta)) if meta.applied_seq == frame.seq) {
            hash_there = Some(frame.hash);
        }
        name_contents(&JournalEntry::decode(frame)?.entry, &mut named);
        Ok(())
    })?;
    let content = verify_content(directory, named)?;
    let index = match found {
        Ok((index, meta)) => {
            let index = index.with_known(survey.into_known());
            compare(&index, &meta, hash_there, journal.last_seq)
        }
        Err(verdict) => verdict,
    };
    Ok(VerifyReport { journal, index, content })
}

/// Opens the index and reads how far it goes.
fn find_index(directory: &Path) -> Result<(Index, Meta), IndexVerdict> {
    let path = directory.join(INDEX);
    if !matches!(path.try_exists(), Ok(true)) {
        return Err(IndexVerdict::Absent);
    }
    let disagrees = |why: String| IndexVerdict::Disagrees { why };
    let db = open_tree(&path, EmbeddedConfig::new(directory).index_cache_bytes)
        .map_err(|error| disagrees(error.to_string()))?;
    let index = Index::new(db, &path, Known::default());
    let meta = index.meta().map_err(|fault| disagrees(fault.to_string()))?;
    let empty = Meta { applied_seq: 0, head: [0; 32] };
    Ok((index, meta.unwrap_or(empty)))
}

fn compare(
    index: &Index,
    meta: &Meta,
    hash_there: Option<[u8; 32]>,
    last_seq: u64,
) -> IndexVerdict {
    if meta.applied_seq > 0 && hash_there != Some(meta.head) {
        return IndexVerdict::Disagrees { why: "it belongs to another journal".to_owned() };
    }
    match last_seq.saturating_sub(meta.applied_seq) {
        0 => match index.agrees(Freshness::Kept) {
            Ok(()) => IndexVerdict::Agrees,
            Err(why) => IndexVerdict::Disagrees { why },
        },
        entries => IndexVerdict::Behind { entries },
    }
}

fn verify_content(
    directory: &Path,
    named: BTreeSet<(TenantId, Digest)>,
) -> Result<ContentVerdict, OpenError> {
    let (store, _) = ContentStore::open(directory.join(CONTENT))?;
    let reader = store.reader();
    let mut verdict = ContentVerdict {
        named: crate::journal::medium::to_u64(named.len()),
        ..ContentVerdict::default()
    };
    for (tenant, digest) in named {
        match reader.get(tenant.as_str(), digest) {
            Ok(_) => {}
            Err(ContentError::Missing { .. }) => verdict.missing.push((tenant, digest)),
            Err(ContentError::Altered { .. }) => verdict.altered.push((tenant, digest)),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(verdict)
}

fn name_contents(entry: &Entry, named: &mut BTreeSet<(TenantId, Digest)>) {
    for effect in &entry.effects {
        if let EffectEntry::Put(record) = effect {
            named.extend(contents_of(record).map(|digest| (record.scope.tenant.clone(), digest)));
        }
    }
    for ApprovalRecord { chain, proposal, .. } in &entry.approvals {
        named.insert((chain.tenant().clone(), *proposal));
    }
}

/// The contents that a record names.
fn contents_of(record: &EffectRecord) -> impl Iterator<Item = Digest> + use<> {
    let result = match &record.state {
        // Its contents were deleted when it became one.
        EffectState::Tombstone { .. } => return None.into_iter().chain(None),
        state => state.result(),
    };
    Some(record.parked).into_iter().chain(result)
}
