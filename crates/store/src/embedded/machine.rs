//! The state machine that the journal's writer runs.
//!
//! Owns what is prepared and not yet in the state, and applying entries to the state. Not here: the checks (`rules`), the tree (`tree`).
//! Invariant: a commit is decided against everything prepared before it, and readers see it only once it is as durable as it asked to be
//! (I6).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use placet_ledger::approval::ApprovalRecord;
use placet_ledger::audit::subjects_of;
use placet_ledger::directive::Directive;
use placet_ledger::policies::PastPolicies;
use placet_ledger::record::{EffectRecord, EffectState};
use placet_ledger::run::{RunKey, RunRecord};
use placet_ledger::store::{Admission, Changes, Committed, Durability, StoreError};
use placet_types::clock::Timestamp;
use placet_types::ids::{ApprovalId, DirectiveId, RecordId};

use super::codec::encode_entry;
use super::edits::{self, Change, edits_of};
use super::overlay::Overlay;
use super::state::State;
use super::tree::{Tree, TreeFault};
use super::{SyncObserver, keys, merkle, read};
use crate::journal::writer::{AppliedFrame, Apply, Effort, Staged};
use crate::journal::{Content, JournalError, Place};
use crate::rules::{
    Base, Changed, Op, Rules, Transaction, check_directives, directives_rev_after, policy_after,
};

/// Changes with their entry and the digests of their contents, made on the caller's thread.
pub(super) struct Request {
    changes: Changes,
    contents: Vec<Content>,
    kind: u8,
    payload: Vec<u8>,
    durability: Durability,
}

impl Request {
    /// Boxed: it is handed over several times on its way into the journal.
    pub(super) fn new(mut changes: Changes) -> Result<Box<Self>, StoreError> {
        let (kind, payload) = encode_entry(&mut changes)
            .map_err(|error| StoreError::Damaged(format!("an entry has no JSON form: {error}")))?;
        let durability = durability(&changes);
        let contents = std::mem::take(&mut changes.content).into_iter();
        let contents = contents.map(|(tenant, bytes)| Content::of(tenant, bytes)).collect();
        Ok(Box::new(Self { changes, contents, kind, payload, durability }))
    }
}

/// Records are always synced before anybody is answered; only runs, budgets and events may ask for less.
fn durability(changes: &Changes) -> Durability {
    let has_records = !changes.effects.is_empty()
        || !changes.approvals.is_empty()
        || !changes.directives.is_empty()
        || changes.spend.is_some()
        || !changes.forget_content.is_empty();
    match changes.durability {
        Durability::Written if !has_records => Durability::Written,
        Durability::Written | Durability::Synced => Durability::Synced,
    }
}

/// The machine.
pub(super) struct Machine {
    state: Arc<State>,
    tree: Arc<Tree>,
    overlay: Overlay,
    /// How often what is in force has become stricter, prepared entries included.
    restriction_version: u64,
    /// The changes of prepared entries, without the places of their contents.
    queue: VecDeque<Change>,
    /// The contents that are to be erased, because durable entries say so.
    to_erase: Vec<Place>,
    on_sync: Option<SyncObserver>,
}

/// How many entries are applied in one batch: enough to be quick, few enough that readers hardly wait.
const BATCH_ENTRIES: usize = 64;

/// How large an entry may be with its contents for its caller to write and sync it.
const LITTLE_BYTES_MAX: usize = 64 << 10;

impl Machine {
    pub(super) fn new(state: Arc<State>, tree: Arc<Tree>, on_sync: Option<SyncObserver>) -> Self {
        Self {
            state,
            tree,
            overlay: Overlay::default(),
            restriction_version: 0,
            queue: VecDeque::new(),
            to_erase: Vec::new(),
            on_sync,
        }
    }

    fn decide(&self, request: &mut Request, now: Timestamp) -> Result<Changed, StoreError> {
        let rules = Rules { epoch: self.state.epoch, now, claims: &self.state.claims };
        let mut transaction = Transaction::new(self, Some(rules));
        transaction.take_in(&mut request.changes)?;
        Ok(transaction.changed)
    }

    /// The contents of a request that are not kept yet, or are damaged.
    fn missing(&self, contents: Vec<Content>) -> Result<Vec<Content>, StoreError> {
        let mut missing = Vec::new();
        for content in contents {
            if !self.has(&content)? && !missing.contains(&content) {
                missing.push(content);
            }
        }
        Ok(missing)
    }

    fn has(&self, content: &Content) -> Result<bool, StoreError> {
        let place = (content.tenant.clone(), content.digest);
        let stored = || -> Result<Option<()>, StoreError> {
            let place = read::place(&self.tree, &content.tenant, content.digest);
            let place = place.map_err(|fault| self.state.fail_tree(&fault))?;
            // What an earlier process wrote may have been damaged since.
            let found = place.and_then(|place| self.state.journal.content(&place).ok());
            Ok(found.filter(|found| *found == content.bytes).map(drop))
        };
        Ok(self.overlay.contents.or(&place, stored)?.is_some())
    }

    /// Adds a decision to what is prepared: later commits are decided against it.
    fn board(&mut self, seq: u64, decided: Changed, changes: Changes) {
        let deleted = changes.forget_content;
        for op in &decided.ops {
            if let Op::Effect { before: None, after: Some(after) } = op {
                let claimed = EffectState::Claimed { epoch: self.state.epoch };
                let claimed = EffectRecord { state: claimed, rev: 0, ..EffectRecord::clone(after) };
                self.state.claims.board(claimed);
            }
        }
        self.overlay.effects.extend(seq, decided.effects);
        self.overlay.approvals.extend(seq, decided.approvals);
        self.overlay.directives.extend(seq, decided.directives);
        for run in decided.runs.into_values() {
            self.state.board_run(seq, &run);
        }
        self.overlay.contents.extend(seq, deleted.iter().map(|place| (place.clone(), None)));
        self.restriction_version = directives_rev_after(self.restriction_version, &decided.ops);
        let subjects = subjects_of(&changes.audit);
        let (ops, contents, outbox) = (decided.ops, Vec::new(), changes.outbox);
        self.queue.push_back(Change { seq, ops, contents, deleted, subjects, outbox });
    }

    /// The state now contains the changes of an entry.
    fn arrived(&self, change: &Change) {
        for op in &change.ops {
            match op {
                // Only a record that was absent had a claim.
                Op::Effect { before: None, after: Some(after) } => {
                    self.state.claims.arrived(&after.record_id);
                }
                Op::Run(run) => self.state.run_arrived(change.seq, &run.key),
                Op::Effect { .. } | Op::Approval { .. } | Op::Directive { .. } => {}
            }
        }
        self.state.note_directives(&change.ops);
    }

    /// The changes of these entries, which are next in the queue.
    fn take_changes(&mut self, frames: &[AppliedFrame]) -> Result<Vec<Change>, JournalError> {
        let mut changes = Vec::with_capacity(frames.len());
        for frame in frames {
            let prepared = self.queue.pop_front().filter(|prepared| prepared.seq == frame.seq);
            let Some(mut change) = prepared else {
                let reason = format!("entry {} was not prepared", frame.seq);
                return Err(JournalError::Apply { reason });
            };
            change.contents.clone_from(&frame.contents);
            changes.push(change);
        }
        Ok(changes)
    }

    fn take_over(&mut self, frames: &[AppliedFrame]) -> Result<(), JournalError> {
        let Some(last) = frames.last() else { return Ok(()) };
        let changes = self.take_changes(frames)?;
        let applied = self.apply(&changes, frames);
        applied.map_err(|fault| failed(&self.state, &fault))?;
        changes.iter().for_each(|change| self.arrived(change));
        self.overlay.arrived(last.seq);
        Ok(())
    }

    fn apply(&mut self, changes: &[Change], frames: &[AppliedFrame]) -> Result<(), TreeFault> {
        let Some(last) = frames.last() else { return Ok(()) };
        let mut edits = edits_of(&self.tree, changes)?;
        self.to_erase.extend(edits::to_erase(&edits));
        let hashes = frames.iter().map(|frame| frame.hash);
        let frontier = merkle::append(&self.tree, hashes, &mut edits)?;
        self.tree.apply(&edits, |meta| {
            (meta.applied_seq, meta.head, meta.frontier) = (last.seq, last.hash, frontier);
        })
    }
}

fn failed(state: &State, fault: &TreeFault) -> JournalError {
    drop(state.fail_tree(fault));
    JournalError::Apply { reason: fault.to_string() }
}

impl Base for Machine {
    fn effect(&self, id: &RecordId) -> Result<Option<Arc<EffectRecord>>, StoreError> {
        self.overlay
            .effects
            .or(id, || self.state.record::<EffectRecord>(&self.tree, &keys::effect(id)))
    }

    fn approval(&self, id: &ApprovalId) -> Result<Option<Arc<ApprovalRecord>>, StoreError> {
        self.overlay
            .approvals
            .or(id, || self.state.record::<ApprovalRecord>(&self.tree, &keys::approval(id)))
    }

    fn directive(&self, id: &DirectiveId) -> Result<Option<Arc<Directive>>, StoreError> {
        self.overlay
            .directives
            .or(id, || self.state.record::<Directive>(&self.tree, &keys::directive(id)))
    }

    fn run(&self, key: &RunKey) -> Result<Option<Arc<RunRecord>>, StoreError> {
        match self.state.riding_run(key) {
            Some(run) => Ok(Some(run)),
            None => Ok(self.state.run(&self.tree, key)?.map(Arc::new)),
        }
    }
}

impl Apply for Machine {
    type Request = Box<Request>;
    type Error = StoreError;

    fn admission(request: &Box<Request>) -> Admission {
        request.changes.admission
    }

    fn effort(request: &Box<Request>) -> Effort {
        let contents = request.contents.iter().map(Content::stored_bytes);
        let bytes = contents.fold(request.payload.len(), usize::saturating_add);
        let is_little = bytes <= LITTLE_BYTES_MAX && request.changes.forget_content.is_empty();
        match request.durability {
            Durability::Written => Effort::Write,
            Durability::Synced if is_little => Effort::Sync,
            Durability::Synced => Effort::Much,
        }
    }

    fn prepare(
        &mut self,
        mut request: Box<Request>,
        place: Committed,
    ) -> Result<Staged, StoreError> {
        let Committed { seq, at } = place;
        // Refuses after a fault, whichever thread found it.
        drop(self.state.tree()?);
        check_directives(self.restriction_version, at, &request.changes)?;
        let decided = self.decide(&mut request, at)?;
        let policy = policy_after(self.state.policy(), &PastPolicies::default(), &request.changes)?;
        let contents = self.missing(request.contents)?;
        let place = |content: &Content| (content.tenant.clone(), content.digest);
        let kept: Vec<_> = contents.iter().map(|content| (place(content), Some(()))).collect();
        let staged = Staged::new(request.kind, request.payload, contents, request.durability)?;
        self.overlay.contents.extend(seq, kept);
        self.state.note_time(at);
        self.board(seq, decided, request.changes);
        self.state.set_policy(policy);
        Ok(staged)
    }

    fn applied(&mut self, batch: &[AppliedFrame]) -> Result<(), JournalError> {
        if let Err(error) = self.state.tree() {
            return Err(JournalError::Apply { reason: error.to_string() });
        }
        batch.chunks(BATCH_ENTRIES).try_for_each(|frames| self.take_over(frames))
    }

    fn owes_erasures(&self) -> bool {
        !self.to_erase.is_empty()
    }

    fn to_erase(&mut self) -> Vec<Place> {
        if self.state.erasing.is_held() { Vec::new() } else { std::mem::take(&mut self.to_erase) }
    }

    fn erased(&mut self, places: &[Place]) -> Result<(), JournalError> {
        let done = self.tree.apply(&edits::erased(places), |_| {});
        done.map_err(|fault| failed(&self.state, &fault))
    }

    fn synced(&mut self, entries: usize, took: Duration) {
        if let Some(observer) = &self.on_sync {
            observer.call(entries, took);
        }
    }
}

impl From<JournalError> for StoreError {
    fn from(error: JournalError) -> Self {
        match error {
            JournalError::NoSpace { .. } => Self::NoSpace,
            JournalError::TooLarge { .. } => Self::TooLarge(error.to_string()),
            JournalError::Locked { .. }
            | JournalError::Corrupt { .. }
            | JournalError::Forgotten { .. }
            | JournalError::Poisoned
            | JournalError::Absent { .. }
            | JournalError::Archived { .. }
            | JournalError::Visit { .. }
            | JournalError::Closed => Self::Stopped(error.to_string()),
            // The bytes may be on the disk all the same, or are there but not applied to the state.
            JournalError::Io { .. } | JournalError::Apply { .. } | JournalError::Unanswered => {
                Self::Uncertain(error.to_string())
            }
        }
    }
}
