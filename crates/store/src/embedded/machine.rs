//! The state machine that the journal's writer runs.
//!
//! Owns what is prepared and not yet in the index, and the way of an entry into the index. Not here: the checks (`rules`),
//! the tree (`index`). Invariant: a commit is decided against everything prepared before it, and readers see it only once it
//! is as durable as it asked to be (I6).

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use placet_ledger::approval::ApprovalRecord;
use placet_ledger::directive::Directive;
use placet_ledger::policies::PastPolicies;
use placet_ledger::record::{EffectRecord, EffectState};
use placet_ledger::run::{RunKey, RunRecord};
use placet_ledger::store::{self, Changes, Committed, StoreError};
use placet_types::clock::Timestamp;
use placet_types::ids::{ApprovalId, DirectiveId, RecordId};

use super::SyncObserver;
use super::codec::{Meta, encode_entry};
use super::index::{BATCH_ENTRIES, Change, Index};
use super::state::State;
use crate::journal::JournalError;
use crate::journal::writer::{Admission, AppliedFrame, Apply, ApplyFailed, Durability, Staged};
use crate::rules::{
    Base, Op, Rules, Transaction, check_directives, directives_rev_after, policy_after,
};
use crate::tree::LogTree;

/// Changes with their entry, which the caller's thread has encoded.
pub(super) struct Request {
    changes: Changes,
    kind: u8,
    payload: Vec<u8>,
    durability: Durability,
}

impl Request {
    pub(super) fn new(changes: Changes) -> Result<Self, StoreError> {
        let (kind, payload) = encode_entry(&changes)
            .map_err(|error| StoreError::Damaged(format!("an entry has no JSON form: {error}")))?;
        let durability = durability(&changes);
        Ok(Self { changes, kind, payload, durability })
    }
}

/// Records are always synced before anybody is told; only runs, budgets and events may ask for less.
fn durability(changes: &Changes) -> Durability {
    let has_records = !changes.effects.is_empty()
        || !changes.approvals.is_empty()
        || !changes.directives.is_empty()
        || changes.spend.is_some()
        || !changes.forget_content.is_empty();
    match changes.durability {
        store::Durability::Written if !has_records => Durability::Written,
        store::Durability::Written | store::Durability::Synced => Durability::Synced,
    }
}

/// What is prepared, by the entry that does it.
struct Riding<T> {
    seq: u64,
    record: T,
}

/// The machine.
pub(super) struct Machine {
    state: Arc<State>,
    index: Arc<Index>,
    effects: HashMap<RecordId, Riding<Option<Arc<EffectRecord>>>>,
    approvals: HashMap<ApprovalId, Riding<Option<Arc<ApprovalRecord>>>>,
    directives: HashMap<DirectiveId, Riding<Option<Arc<Directive>>>>,
    /// How often what is in force has become stricter, with everything that is prepared.
    restriction_version: u64,
    queue: VecDeque<Change>,
    tree: LogTree,
    on_sync: Option<SyncObserver>,
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.index.deleter_ends();
    }
}

/// After how many entries the tree is made durable: what a start has to feed to it at most.
const TREE_SYNC_ENTRIES: u64 = 50_000;

impl Machine {
    pub(super) fn new(
        state: Arc<State>,
        index: Arc<Index>,
        (tree, on_sync): (LogTree, Option<SyncObserver>),
    ) -> Self {
        let (effects, approvals, directives) = (HashMap::new(), HashMap::new(), HashMap::new());
        let queue = VecDeque::new();
        Self {
            state,
            index,
            effects,
            approvals,
            directives,
            restriction_version: 0,
            queue,
            tree,
            on_sync,
        }
    }

    /// The tree follows the journal.
    fn grow(&mut self, frames: &[AppliedFrame]) -> Result<(), ApplyFailed> {
        for frame in frames {
            self.tree.append(&frame.hash);
        }
        let unsynced = self.tree.size().saturating_sub(self.tree.synced_size());
        let grown =
            if unsynced >= TREE_SYNC_ENTRIES { self.tree.sync() } else { self.tree.flush() };
        grown.map_err(|error| ApplyFailed(error.to_string()))
    }

    fn decide(&self, request: &mut Request, now: Timestamp) -> Result<Transaction<'_>, StoreError> {
        let rules = Rules { epoch: self.state.epoch, now, claims: &self.state.claims };
        let mut transaction = Transaction::new(self, Some(rules));
        transaction.take_in(&mut request.changes)?;
        Ok(transaction)
    }

    /// Puts what was decided on its way: from here on it counts for everything that is prepared later.
    fn board(&mut self, seq: u64, decided: Decided) {
        for op in &decided.ops {
            if let Op::Effect { before: None, after } = op {
                let claimed = EffectState::Claimed { epoch: self.state.epoch };
                let claimed = EffectRecord { state: claimed, rev: 0, ..EffectRecord::clone(after) };
                self.state.claims.board(claimed);
            }
        }
        for (record_id, record) in decided.effects {
            self.effects.insert(record_id, Riding { seq, record });
        }
        for (approval_id, record) in decided.approvals {
            self.approvals.insert(approval_id, Riding { seq, record });
        }
        for (directive_id, record) in decided.directives {
            self.directives.insert(directive_id, Riding { seq, record });
        }
        for run in decided.runs.into_values() {
            self.state.board_run(seq, &run);
        }
        self.restriction_version = directives_rev_after(self.restriction_version, &decided.ops);
        self.queue.push_back(Change { seq, ops: decided.ops });
    }

    /// The index has what an entry did.
    fn arrived(&mut self, change: &Change) {
        for op in &change.ops {
            match op {
                Op::Effect { before, after } => {
                    self.effect_arrived(&after.record_id, change.seq);
                    // Only a record that was absent has ridden on a claim.
                    if before.is_none() {
                        self.state.claims.arrived(&after.record_id);
                    }
                }
                Op::Removed(before) => self.effect_arrived(&before.record_id, change.seq),
                Op::Approval { after: gone, .. } | Op::ApprovalGone(gone) => {
                    let id = &gone.approval_id;
                    if self.approvals.get(id).is_some_and(|riding| riding.seq <= change.seq) {
                        self.approvals.remove(id);
                    }
                }
                Op::Directive { after: gone, .. } | Op::DirectiveGone(gone) => {
                    let id = &gone.directive_id;
                    if self.directives.get(id).is_some_and(|riding| riding.seq <= change.seq) {
                        self.directives.remove(id);
                    }
                }
                Op::Run(run) => self.state.run_arrived(change.seq, &run.key),
            }
        }
    }

    fn effect_arrived(&mut self, record_id: &RecordId, seq: u64) {
        if self.effects.get(record_id).is_some_and(|riding| riding.seq <= seq) {
            self.effects.remove(record_id);
        }
    }

    /// The changes of these entries, which are the next ones in the queue.
    fn take_changes(&mut self, frames: &[AppliedFrame]) -> Result<Vec<Change>, ApplyFailed> {
        let mut changes = Vec::with_capacity(frames.len());
        for frame in frames {
            match self.queue.pop_front() {
                Some(change) if change.seq == frame.seq => changes.push(change),
                _ => return Err(ApplyFailed(format!("entry {} was not prepared", frame.seq))),
            }
        }
        Ok(changes)
    }

    fn take_over(&mut self, frames: &[AppliedFrame]) -> Result<(), ApplyFailed> {
        let Some(last) = frames.last() else { return Ok(()) };
        let changes = self.take_changes(frames)?;
        let meta = Meta { applied_seq: last.seq, head: last.hash };
        let applied = (meta, last.at_ms, last.epoch);
        // First, so that whoever finds the entry in the index need not read it.
        self.state.records.remember(&changes);
        self.index.apply(&changes, applied).map_err(|fault| {
            drop(self.state.fail_index(&fault));
            ApplyFailed(fault.to_string())
        })?;
        for change in &changes {
            self.arrived(change);
            self.state.note_directives(&change.ops);
        }
        Ok(())
    }
}

/// A [`Transaction`] that has come to its end.
struct Decided {
    effects: HashMap<RecordId, Option<Arc<EffectRecord>>>,
    approvals: HashMap<ApprovalId, Option<Arc<ApprovalRecord>>>,
    directives: HashMap<DirectiveId, Option<Arc<Directive>>>,
    runs: HashMap<RunKey, Arc<RunRecord>>,
    ops: Vec<Op>,
}

impl Base for Machine {
    fn effect(&self, record_id: &RecordId) -> Result<Option<Arc<EffectRecord>>, StoreError> {
        match self.effects.get(record_id) {
            Some(riding) => Ok(riding.record.clone()),
            None => Ok(self.state.effect(&self.index, record_id)?),
        }
    }

    fn approval(
        &self,
        approval_id: &ApprovalId,
    ) -> Result<Option<Arc<ApprovalRecord>>, StoreError> {
        match self.approvals.get(approval_id) {
            Some(riding) => Ok(riding.record.clone()),
            None => Ok(self.state.approval(&self.index, approval_id)?),
        }
    }

    fn directive(&self, directive_id: &DirectiveId) -> Result<Option<Arc<Directive>>, StoreError> {
        match self.directives.get(directive_id) {
            Some(riding) => Ok(riding.record.clone()),
            None => Ok(self.state.directive(&self.index, directive_id)?.map(Arc::new)),
        }
    }

    fn run(&self, key: &RunKey) -> Result<Option<Arc<RunRecord>>, StoreError> {
        match self.state.riding_run(key) {
            Some(run) => Ok(Some(run)),
            None => Ok(self.state.run(&self.index, key)?.map(Arc::new)),
        }
    }
}

impl Apply for Machine {
    type Request = Request;
    type Reply = Committed;
    type Error = StoreError;

    fn admission(request: &Request) -> Admission {
        match request.changes.admission {
            store::Admission::New => Admission::New,
            store::Admission::Completion => Admission::Completion,
        }
    }

    fn is_only_written(request: &Request) -> bool {
        request.durability == Durability::Written
    }

    fn prepare(&mut self, mut request: Request, out: &mut Staged) -> Result<Committed, StoreError> {
        // Refuses after a fault, whoever found it.
        drop(self.state.index()?);
        check_directives(self.restriction_version, out.now(), &request.changes)?;
        let transaction = self.decide(&mut request, out.now())?;
        let Transaction { effects, approvals, directives, runs, ops, .. } = transaction;
        let decided = Decided { effects, approvals, directives, runs, ops };
        let policy = policy_after(self.state.policy(), &PastPolicies::default(), &request.changes)?;
        out.answer_when(request.durability);
        for (tenant, bytes) in request.changes.content {
            out.blob(tenant.as_str(), bytes)?;
        }
        for (tenant, digest) in request.changes.forget_content {
            out.forget(tenant.as_str(), digest);
        }
        let seq = out.frame(request.kind, request.payload)?;
        let at = out.now();
        self.state.note_time(at);
        self.board(seq, decided);
        self.state.set_policy(policy);
        Ok(Committed { seq, at })
    }

    fn applied(&mut self, batch: &[AppliedFrame]) -> Result<(), ApplyFailed> {
        if let Err(error) = self.state.index() {
            return Err(ApplyFailed(error.to_string()));
        }
        for frames in batch.chunks(BATCH_ENTRIES) {
            self.take_over(frames)?;
        }
        self.grow(batch)
    }

    fn deleting(&mut self, in_hand: bool) {
        // A store that is at fault makes no checkpoints any more.
        if let Ok(index) = self.state.index() {
            index.deleting(in_hand);
        }
    }

    fn closing(&mut self) -> Result<(), ApplyFailed> {
        self.tree.sync().map_err(|error| ApplyFailed(error.to_string()))
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
            | JournalError::Content { .. }
            | JournalError::Closed => Self::Stopped(error.to_string()),
            // The bytes may be on the disk all the same, or are there and the index is not.
            JournalError::Io { .. } | JournalError::Apply { .. } | JournalError::Unanswered => {
                Self::Uncertain(error.to_string())
            }
        }
    }
}
