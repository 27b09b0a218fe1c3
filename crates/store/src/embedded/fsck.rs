//! The thorough check: everything that was ever recorded, once more, and everything that stands, against it.
//!
//! Owns the replay of every move by the record machine, and the comparison of index, tree and content with what comes of it. Not here:
//! the chain itself (`journal`), the quick check (`offline`). Invariants: nothing is changed but a scratch folder; memory is
//! bounded, however much there is.

use placet_ledger::approval::ApprovalRecord;
use placet_ledger::directive::Directive;
use placet_ledger::record::{EffectRecord, EffectState, RECORD_VERSION};
use placet_types::digest::Digest;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use super::EmbeddedConfig;
use super::checkpoint::Checkpoints;
use super::codec::{EffectEntry, Entry};
use super::delta::{Delta, Ground, Spill, used_once_more};
use super::offline::{
    IndexVerdict, JournalEntry, PLACES, Scratch, VerifyReport, contents_of, find_generation,
    or_unread, verify_with,
};
use super::open::{CHECKPOINTS, CONTENT, JOURNAL, OpenError, TREE};
use super::{generation::Generation, keys};
use crate::content::ContentStore;
use crate::journal::lock::Lock;
use crate::journal::medium::Disk;
use crate::journal::{VisitError, verify_each};
use crate::sorted::{Merged, SpillMap, TableSet};
use crate::tree::{TreeCheck, TreeVerdict};

/// What [`fsck`] found. The journal itself is sound, else there is an error instead.
#[derive(Debug, Clone)]
pub struct FsckReport {
    /// What the quick check found.
    pub verify: VerifyReport,
    /// Whether everything was replayed: not where archived segments are not at hand.
    pub is_complete: bool,
    /// How many moves of records and approvals were replayed.
    pub moves: u64,
    /// Moves that the machines do not know: the first hundred.
    pub illegal: Vec<String>,
    /// In what the index is not what the entries come to: the first hundred differences.
    pub differences: Vec<String>,
    /// The Merkle tree.
    pub tree: Option<TreeVerdict>,
    /// Pieces of content that no entry names: of commits that a crash cut short. They do no harm.
    pub orphans: u64,
}

impl FsckReport {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let tree = matches!(
            self.tree,
            None | Some(TreeVerdict::Agrees | TreeVerdict::Behind { .. } | TreeVerdict::Absent)
        );
        self.verify.is_sound() && self.illegal.is_empty() && self.differences.is_empty() && tree
    }
}

const LISTED_MAX: usize = 100;

/// Checks a ledger that no process serves: the chain, the legality of every move, and that index, tree and content are what the
/// entries come to. Takes as long as making the index anew.
///
/// # Errors
/// [`OpenError`]: the folder is in use, the journal is damaged, or the operating system refused something.
pub fn fsck(config: &EmbeddedConfig) -> Result<FsckReport, OpenError> {
    let verify = verify_with(config)?;
    let mut report = FsckReport {
        is_complete: verify.journal.first_seq <= 1,
        verify,
        moves: 0,
        illegal: Vec::new(),
        differences: Vec::new(),
        tree: None,
        orphans: 0,
    };
    if !report.is_complete {
        return Ok(report);
    }
    let journal = config.directory.join(JOURNAL);
    let _lock = Lock::take(&journal)?;
    let scratch = Scratch::new(&config.directory)?;
    let folder = |name: &str| scratch.path.join(name);
    crate::journal::medium::Medium::create_dir(&Disk, &folder("index"))
        .map_err(OpenError::io("make the folder", &scratch.path))?;
    let spill = Spill::new(Arc::new(Disk), folder("index"), 1);
    let mut delta = Delta::new(Ground::empty(), spill, &BTreeSet::new());
    let mut replay = Replay {
        bodies: SpillMap::new(&folder("bodies"))?,
        named: SpillMap::new(&folder("named"))?,
        moves: 0,
        illegal: Vec::new(),
    };
    let mut tree = TreeCheck::open(&config.directory.join(TREE), Arc::new(Disk))?;
    verify_each(&journal, config.archive.as_deref(), &mut |frame| {
        delta.visit(frame)?;
        tree.entry(&frame.hash)?;
        replay.take(&JournalEntry::decode(frame)?)
    })?;
    report.tree = Some(tree.finish()?);
    report.moves = replay.moves;
    report.differences = differences(config, &delta)?;
    report.orphans = orphans(config, &replay.named, &folder(PLACES))?;
    report.illegal = replay.illegal;
    Ok(report)
}

/// The records as they were, move by move.
struct Replay {
    bodies: SpillMap,
    named: SpillMap,
    moves: u64,
    illegal: Vec<String>,
}

impl Replay {
    fn take(&mut self, entry: &JournalEntry) -> Result<(), VisitError> {
        let Entry { effects, approvals, directives, spend, imported, .. } = &entry.entry;
        self.forget(entry)?;
        for effect in effects {
            self.moves = self.moves.saturating_add(1);
            match effect {
                EffectEntry::Put(record) => self.put(entry, record, *imported)?,
                EffectEntry::Removed { record_id, .. } => {
                    let key = keys::effect(record_id);
                    let legal = self.before(&key)?.is_some_and(|before| before.may_be_removed());
                    self.end(entry.seq, key, legal, "removed")?;
                }
                EffectEntry::Forgotten { record_id, .. } => {
                    let key = keys::effect(record_id);
                    let legal = self.before(&key)?.is_some_and(|before| before.may_be_forgotten());
                    self.end(entry.seq, key, legal, "forgotten")?;
                }
            }
        }
        for approval in approvals {
            self.moves = self.moves.saturating_add(1);
            self.approval(entry.seq, approval, *imported)?;
        }
        for after in directives {
            let before = self.directive(&keys::directives(&after.directive_id))?;
            let begins = *imported && before.is_none();
            let legal = begins || after.may_follow(before.as_ref());
            self.directives(entry.seq, (before.as_ref(), after), legal)?;
        }
        if let Some(directive_id) = spend {
            // The time is that of the entry: it was decided by it.
            let before = self.directive(&keys::directives(directive_id))?;
            let Some(before) = before else { return Ok(()) };
            if before.spent(entry.at).is_none() {
                self.note(
                    entry.seq,
                    &format!("a use of `{directive_id}`, which is no grant in force"),
                );
            }
            self.directives(entry.seq, (Some(&before), &used_once_more(&before)), true)?;
        }
        Ok(())
    }

    /// An entry that forgets a directive does nothing else, so its place among what an entry does is free.
    fn forget(&mut self, entry: &JournalEntry) -> Result<(), VisitError> {
        for (approval_id, _) in &entry.entry.forget_approvals {
            self.moves = self.moves.saturating_add(1);
            let key = keys::approval(approval_id);
            let before = self.bodies.get(&key)?;
            let before: Option<ApprovalRecord> =
                before.map(|body| serde_json::from_slice(&body)).transpose()?;
            let legal = before.is_some_and(|before| before.may_be_forgotten());
            self.end(entry.seq, key, legal, "forgotten")?;
        }
        for (directive_id, _) in &entry.entry.forget_directive {
            self.moves = self.moves.saturating_add(1);
            let key = keys::directives(directive_id);
            let legal = self.directive(&key)?.is_some_and(|before| !before.is_open(entry.at));
            self.end(entry.seq, key, legal, "forgotten")?;
        }
        Ok(())
    }

    fn directives(
        &mut self,
        seq: u64,
        (before, after): (Option<&Directive>, &Directive),
        legal: bool,
    ) -> Result<(), VisitError> {
        self.moves = self.moves.saturating_add(1);
        if !legal {
            let from = before.map_or("absent", |before| before.state.name());
            let to = after.state.name();
            self.note(seq, &format!("directive `{}` from {from} to {to}", after.directive_id));
        }
        Ok(self.bodies.put(keys::directives(&after.directive_id), serde_json::to_vec(after)?)?)
    }

    fn directive(&self, key: &[u8]) -> Result<Option<Directive>, VisitError> {
        match self.bodies.get(key)? {
            Some(body) => Ok(Some(serde_json::from_slice(&body)?)),
            None => Ok(None),
        }
    }

    fn put(
        &mut self,
        entry: &JournalEntry,
        record: &EffectRecord,
        imported: bool,
    ) -> Result<(), VisitError> {
        let key = keys::effect(&record.record_id);
        let before = self.before(&key)?;
        let moves = match &before {
            Some(before) => before.may_move_to(record),
            None => {
                imported || EffectState::Claimed { epoch: entry.epoch }.may_become(&record.state)
            }
        };
        let is_own = match &record.state {
            EffectState::Dispatched(attempt) => imported || attempt.duty() == entry.epoch,
            EffectState::Claimed { .. } => false,
            EffectState::PendingApproval { .. }
            | EffectState::Approved { .. }
            | EffectState::Succeeded { .. }
            | EffectState::FailedFinal { .. }
            | EffectState::FailedRetriable { .. }
            | EffectState::Indeterminate { .. }
            | EffectState::Rearmed { .. }
            | EffectState::Denied { .. }
            | EffectState::Tombstone { .. } => true,
        };
        if !moves || !is_own || record.version != RECORD_VERSION {
            let from = before.as_ref().map_or("absent", |before| before.state.name());
            let to = record.state.name();
            self.note(entry.seq, &format!("record `{}` from {from} to {to}", record.record_id));
        }
        for digest in contents_of(record) {
            self.name(record.scope.tenant.as_str(), digest)?;
        }
        Ok(self.bodies.put(key, serde_json::to_vec(record)?)?)
    }

    fn approval(
        &mut self,
        seq: u64,
        approval: &ApprovalRecord,
        imported: bool,
    ) -> Result<(), VisitError> {
        let key = keys::approval(&approval.approval_id);
        let before: Option<ApprovalRecord> = match self.bodies.get(&key)? {
            Some(body) => Some(serde_json::from_slice(&body)?),
            None => None,
        };
        let begins = imported && before.is_none();
        if !begins && !approval.may_follow(before.as_ref()) {
            let from = before.as_ref().map_or("absent", |before| before.state.name());
            let to = approval.state.name();
            self.note(seq, &format!("approval `{}` from {from} to {to}", approval.approval_id));
        }
        self.name(approval.chain.tenant().as_str(), approval.proposal)?;
        Ok(self.bodies.put(key, serde_json::to_vec(approval)?)?)
    }

    fn end(&mut self, seq: u64, key: Vec<u8>, legal: bool, how: &str) -> Result<(), VisitError> {
        if !legal {
            self.note(seq, &format!("a record was {how} that may not be"));
        }
        Ok(self.bodies.put(key, Vec::new())?)
    }

    fn before(&self, key: &[u8]) -> Result<Option<EffectRecord>, VisitError> {
        match self.bodies.get(key)? {
            Some(body) => Ok(Some(serde_json::from_slice(&body)?)),
            None => Ok(None),
        }
    }

    fn name(&mut self, tenant: &str, digest: Digest) -> Result<(), VisitError> {
        let key = [Digest::of(tenant.as_bytes()).as_bytes().as_slice(), digest.as_bytes()].concat();
        Ok(self.named.put(key, vec![1])?)
    }

    fn note(&mut self, seq: u64, what: &str) {
        if self.illegal.len() < LISTED_MAX {
            self.illegal.push(format!("entry {seq}: {what}"));
        }
    }
}

/// In what the index is not what the entries come to; nothing where it is behind, or not there.
fn differences(config: &EmbeddedConfig, delta: &Delta) -> Result<Vec<String>, OpenError> {
    let checkpoints = Checkpoints::new(Arc::new(Disk), config.directory.join(CHECKPOINTS));
    let (found, _) = checkpoints.newest()?;
    let ground = found.map_or_else(Ground::empty, Ground::of);
    match or_unread(find_generation(config, &ground.meta))? {
        Ok((generation, meta)) if meta == delta.last() => {
            compare(delta, &generation, &ground.tables)
        }
        Ok(_) | Err(IndexVerdict::Absent) => Ok(Vec::new()),
        Err(verdict) => Ok(match verdict {
            IndexVerdict::Disagrees { why } => vec![why],
            IndexVerdict::Agrees
            | IndexVerdict::Behind { .. }
            | IndexVerdict::Absent
            | IndexVerdict::Unread { .. } => Vec::new(),
        }),
    }
}

fn compare(
    delta: &Delta,
    generation: &Generation,
    tables: &TableSet,
) -> Result<Vec<String>, OpenError> {
    let expected = delta.everything();
    let found =
        Merged::new(std::iter::once(generation.source(&[])).chain(tables.cursors(&[])).collect());
    let is_there =
        |pair: &Result<(Vec<u8>, Vec<u8>), _>| !matches!(pair, Ok((_, value)) if value.is_empty());
    let (mut expected, mut found) = (expected.filter(is_there), found.filter(is_there));
    let mut differences = Vec::new();
    let (mut wanted, mut held) = (expected.next().transpose()?, found.next().transpose()?);
    while differences.len() < LISTED_MAX {
        let order = match (&wanted, &held) {
            (None, None) => break,
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some(wanted), Some(held)) => wanted.0.cmp(&held.0),
        };
        let mut note = |what: &str, pair: &Option<(Vec<u8>, Vec<u8>)>| {
            let key = pair.as_ref().map_or(&[][..], |pair| pair.0.as_slice());
            differences.push(format!("{what}: key {}", hex::encode(key)));
        };
        match order {
            std::cmp::Ordering::Less => {
                note("the index has forgotten it", &wanted);
                wanted = expected.next().transpose()?;
            }
            std::cmp::Ordering::Greater => {
                note("no entry says so", &held);
                held = found.next().transpose()?;
            }
            std::cmp::Ordering::Equal => {
                if wanted != held {
                    note("the index holds something else", &wanted);
                }
                wanted = expected.next().transpose()?;
                held = found.next().transpose()?;
            }
        }
    }
    Ok(differences)
}

/// How many pieces of content no entry names.
fn orphans(config: &EmbeddedConfig, named: &SpillMap, aside: &Path) -> Result<u64, OpenError> {
    let (content, _) = ContentStore::open_to_look(config.directory.join(CONTENT), aside)?;
    content.reader().check_places()?;
    let mut orphans: u64 = 0;
    let mut named = named.iter().peekable();
    for placed in content.reader().placed() {
        let (tenant, digest, _) = placed?;
        let key = [tenant.as_slice(), digest.as_bytes()].concat();
        while named.next_if(|pair| matches!(pair, Ok((name, _)) if *name < key)).is_some() {}
        match named.peek() {
            Some(Ok((name, _))) if *name == key => {}
            Some(Err(error)) => return Err(error.clone().into()),
            Some(Ok(_)) | None => orphans = orphans.saturating_add(1),
        }
    }
    Ok(orphans)
}
