//! Entries of the journal applied to the state.
//!
//! Owns applying journal entries to a state that lacks them. The records are derived by the same rules as when the entry was written; what
//! was refused then is not in it. Invariant: a state is the same however it was built.

use std::collections::HashMap;
use std::sync::Arc;

use placet_ledger::approval::ApprovalRecord;
use placet_ledger::audit::subjects_of;
use placet_ledger::directive::Directive;
use placet_ledger::record::EffectRecord;
use placet_ledger::run::{RunKey, RunRecord};
use placet_ledger::store::{Changes, StoreError};
use placet_types::clock::Timestamp;
use placet_types::digest::Digest;
use placet_types::ids::{ApprovalId, DirectiveId, RecordId, TenantId};

use super::codec::{Entry, Meta, decode_entry};
use super::edits::{Change, edits_of};
use super::overlay::Overlay;
use super::tree::{Rebuilding, Tree, TreeFault};
use super::{keys, merkle, read};
use crate::journal::{Frame, Placed, VisitError};
use crate::rules::{Base, Claimants, Op, Rules, Transaction};

/// After how many entries their edits are written to the state.
const BATCH_ENTRIES: usize = 256;

/// Applies entries, in order.
pub(super) struct Replay<'a> {
    tree: &'a Tree,
    overlay: Overlay,
    runs: HashMap<RunKey, Arc<RunRecord>>,
    changes: Vec<Change>,
    hashes: Vec<[u8; 32]>,
    last_seq: u64,
    /// Where there was nothing in the tree.
    rebuilding: Option<Rebuilding>,
    /// Collects transitions that the state machines do not allow; without it they are trusted, since they were checked when written.
    judge: Option<&'a mut Judge>,
}

/// Transitions of the records, checked again.
#[derive(Debug, Default)]
pub(super) struct Judge {
    /// How many there were.
    pub(super) moves: u64,
    /// The first illegal ones.
    pub(super) illegal: Vec<String>,
}

/// How many illegal transitions are listed.
const LISTED_MAX: usize = 100;

impl<'a> Replay<'a> {
    /// Continues from what is in the tree.
    pub(super) fn new(tree: &'a Tree, judge: Option<&'a mut Judge>) -> Self {
        let last_seq = tree.meta().applied_seq;
        Self {
            tree,
            overlay: Overlay::default(),
            runs: HashMap::new(),
            changes: Vec::new(),
            hashes: Vec::new(),
            last_seq,
            rebuilding: (last_seq == 0).then(Rebuilding::default),
            judge,
        }
    }

    /// Applies an entry, unless it is in the state already.
    pub(super) fn take(&mut self, frame: &Frame) -> Result<(), VisitError> {
        if frame.seq <= self.last_seq {
            return Ok(());
        }
        let mut entry = decode_entry(frame.kind, &frame.payload)
            .map_err(|error| format!("entry {} cannot be read: {error}", frame.seq))?;
        let deleted = entry.forget_content.clone();
        let (subjects, outbox) = (subjects_of(&entry.audit), entry.outbox.take());
        let ops = self.ops(frame, entry).map_err(|error| {
            format!("entry {} does not follow from those before it: {error}", frame.seq)
        })?;
        let contents = frame.contents.clone();
        let place = |placed: &Placed| (placed.tenant.clone(), placed.digest);
        let kept = contents.iter().map(|placed| (place(placed), Some(())));
        let gone = deleted.iter().map(|place| (place.clone(), None));
        self.overlay.contents.extend(frame.seq, kept.chain(gone));
        self.changes.push(Change { seq: frame.seq, ops, contents, deleted, subjects, outbox });
        self.hashes.push(frame.hash);
        self.last_seq = frame.seq;
        if self.changes.len() >= BATCH_ENTRIES { Ok(self.flush()?) } else { Ok(()) }
    }

    /// Writes the pending edits to the state, and all that is gathered of a new one.
    pub(super) fn finish(&mut self) -> Result<(), TreeFault> {
        self.flush()?;
        self.rebuilding.as_mut().map_or(Ok(()), |rebuilding| rebuilding.finish(self.tree))
    }

    fn flush(&mut self) -> Result<(), TreeFault> {
        let Some(head) = self.hashes.last().copied() else { return Ok(()) };
        let mut edits = edits_of(self.tree, &self.changes)?;
        let frontier = merkle::append(self.tree, self.hashes.drain(..), &mut edits)?;
        let applied_seq = self.last_seq;
        let advance = |meta: &mut Meta| {
            (meta.applied_seq, meta.head, meta.frontier) = (applied_seq, head, frontier);
        };
        match &mut self.rebuilding {
            Some(rebuilding) => rebuilding.apply(self.tree, edits, advance)?,
            None => self.tree.apply(&edits, advance)?,
        }
        self.changes.clear();
        self.overlay.arrived(self.last_seq);
        self.runs.clear();
        Ok(())
    }

    /// Whether a content is kept, according to the entries applied.
    pub(super) fn has_content(&self, tenant: &TenantId, digest: Digest) -> Result<bool, TreeFault> {
        let place = (tenant.clone(), digest);
        let stored = || read::place(self.tree, tenant, digest).map(|place| place.map(drop));
        Ok(self.overlay.contents.or(&place, stored)?.is_some())
    }

    /// The last entry that was applied.
    pub(super) fn last_seq(&self) -> u64 {
        self.last_seq
    }

    fn ops(&mut self, frame: &Frame, entry: Entry) -> Result<Vec<Op>, StoreError> {
        let mut changes = entry.into_changes();
        if let Some(illegal) = self.illegal(frame, &changes)
            && let Some(judge) = &mut self.judge
            && judge.illegal.len() < LISTED_MAX
        {
            judge.illegal.push(illegal);
        }
        let mut transaction = Transaction::new(self, None);
        transaction.take_in(&mut changes)?;
        let changed = transaction.changed;
        self.overlay.effects.extend(frame.seq, changed.effects);
        self.overlay.approvals.extend(frame.seq, changed.approvals);
        self.overlay.directives.extend(frame.seq, changed.directives);
        self.runs.extend(changed.runs);
        Ok(changed.ops)
    }

    /// What is wrong with the transitions of an entry, where they are checked again.
    fn illegal(&mut self, frame: &Frame, changes: &Changes) -> Option<String> {
        let moves = changes.effects.len().saturating_add(changes.approvals.len());
        let moves = u64::try_from(moves).unwrap_or(u64::MAX);
        let judge = self.judge.as_mut()?;
        judge.moves = judge.moves.saturating_add(moves);
        let now = Timestamp::from_ms(frame.at_ms);
        let rules = Rules { epoch: frame.epoch, now, claims: &Nobody };
        let judged = Transaction::new(self, Some(rules)).take_in(&mut changes.clone());
        judged.err().map(|error| format!("entry {}: {error}", frame.seq))
    }
}

/// Nobody has taken a key.
struct Nobody;

impl Claimants for Nobody {
    fn is_foreign(&self, _record: &EffectRecord) -> bool {
        false
    }
}

impl Base for Replay<'_> {
    fn effect(&self, id: &RecordId) -> Result<Option<Arc<EffectRecord>>, StoreError> {
        Ok(self
            .overlay
            .effects
            .or(id, || read::record::<EffectRecord>(self.tree, &keys::effect(id)))?)
    }

    fn approval(&self, id: &ApprovalId) -> Result<Option<Arc<ApprovalRecord>>, StoreError> {
        Ok(self
            .overlay
            .approvals
            .or(id, || read::record::<ApprovalRecord>(self.tree, &keys::approval(id)))?)
    }

    fn directive(&self, id: &DirectiveId) -> Result<Option<Arc<Directive>>, StoreError> {
        Ok(self
            .overlay
            .directives
            .or(id, || read::record::<Directive>(self.tree, &keys::directive(id)))?)
    }

    fn run(&self, key: &RunKey) -> Result<Option<Arc<RunRecord>>, StoreError> {
        match self.runs.get(key) {
            Some(run) => Ok(Some(Arc::clone(run))),
            None => Ok(read::record(self.tree, &keys::run(key))?.map(Arc::new)),
        }
    }
}
