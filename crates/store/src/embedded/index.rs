//! The index: a generation of sled for what has changed lately, sorted tables for all the rest.
//!
//! Owns the order of the levels (the active generation, the one a checkpoint is being made of, the tables), look-ups and lists through
//! all of them, and the change from one generation to the next. Not here: opening and rebuilding (`open`), what a commit means
//! (`machine`), the writing of checkpoints (`keeper`).
//! Invariants: the newest level that knows a key answers for it; a level is left out only when those under it hold what it held;
//! no answer comes from bytes that do not verify.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use placet_types::ids::RecordId;

use super::codec::{Meta, Stored, decode_value};
use super::generation::{Generation, Lookup, guarded};
use super::keys;
use super::slip::{Edit, edits_of, run_edit};
use crate::journal::medium::{is_refusal, to_u64};
use crate::rules::Op;
use crate::sorted::{Merged, TableError, TableSet};

/// How long a checkpoint waits for deletions before it is put off; on the slowest disk they take less, but they may have to wait for
/// the places of content, which are rebuilt.
const DELETED_WITHIN: Duration =
    if cfg!(test) { Duration::from_secs(3) } else { Duration::from_secs(40) };

/// Why the index cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum IndexFault {
    /// sled answered an error.
    #[error("the index failed: {0}")]
    Sled(String),
    /// sled panicked.
    #[error("the index panicked")]
    Panicked,
    /// The journal knows of something that the index has not, or has in an older form.
    #[error("the index has forgotten a record; it is rebuilt at the next start")]
    Forgotten,
    /// A value does not verify.
    #[error("the index holds a value that does not verify; it is rebuilt at the next start")]
    Altered,
    /// The operating system refused sled something: what is in it may be sound.
    #[error("the index failed: {0}")]
    Refused(Arc<std::io::Error>),
    /// Content that is to be deleted is not deleted yet: nothing is wrong, but that it takes long.
    #[error("deletions of content take long, and what says so is not left behind before")]
    Deleting,
    /// It will not be deleted any more by whoever had it in hand.
    #[error("deletions of content were given up")]
    GivenUp,
    /// A run cannot be written down.
    #[error("a run has no JSON form: {0}")]
    Run(String),
    /// A table cannot be read.
    #[error("the index failed: {0}")]
    Table(#[from] TableError),
}

impl From<sled::Error> for IndexFault {
    fn from(error: sled::Error) -> Self {
        match error {
            sled::Error::Io(error) if is_refusal(&error) => Self::Refused(Arc::new(error)),
            error @ (sled::Error::CollectionNotFound(_)
            | sled::Error::Unsupported(_)
            | sled::Error::ReportableBug(_)
            | sled::Error::Io(_)
            | sled::Error::Corruption { .. }) => Self::Sled(error.to_string()),
        }
    }
}

/// What becomes of content that entries say is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deletions {
    /// Nothing is left to be deleted.
    Done,
    InHand,
    /// Whoever deletes has ended before it was done: the next start does it.
    GivenUp,
}

/// All that one entry changes.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) seq: u64,
    pub(super) ops: Vec<Op>,
}

/// How many records there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Counts {
    pub(super) effects: u64,
    pub(super) approvals: u64,
    pub(super) runs: u64,
    #[serde(default)]
    pub(super) directives: u64,
}

/// The edits of runs: the last form of each, since every call changes several.
fn runs_of(changes: &[Change]) -> Result<Vec<(u64, Edit)>, IndexFault> {
    let mut last = HashMap::new();
    for change in changes {
        for op in &change.ops {
            if let Op::Run(run) = op {
                last.insert(&run.key, (change.seq, run));
            }
        }
    }
    let edit = |(key, (seq, run))| {
        let body = serde_json::to_vec(run).map_err(|error| IndexFault::Run(error.to_string()))?;
        Ok((seq, run_edit(keys::run(key), seq, &body)))
    };
    last.into_iter().map(edit).collect()
}

/// The levels as they are; never changed, only replaced.
#[derive(Debug, Clone)]
struct Levels {
    active: Arc<Generation>,
    frozen: Option<Arc<Generation>>,
    tables: TableSet,
}

impl Levels {
    fn generations(&self) -> impl Iterator<Item = &Arc<Generation>> {
        std::iter::once(&self.active).chain(&self.frozen)
    }
}

/// How far the index goes.
#[derive(Debug, Clone)]
pub(super) struct Applied {
    pub(super) meta: Meta,
    pub(super) counts: Counts,
    pub(super) at_ms: i64,
    pub(super) epoch: u64,
}

/// What a checkpoint is made of.
#[derive(Debug)]
pub(super) struct Frozen {
    pub(super) generation: Arc<Generation>,
    pub(super) tables: TableSet,
    pub(super) applied: Applied,
    pub(super) open: BTreeMap<RecordId, u8>,
}

/// The index.
#[derive(Debug)]
pub(super) struct Index {
    levels: RwLock<Levels>,
    applied: Mutex<Applied>,
    /// Open effect records with the codes of their states, from the journal: recovery must not depend on a list that sled may
    /// have forgotten.
    open: RwLock<BTreeMap<RecordId, u8>>,
    /// Held for writing while a batch is taken over: readers that saw something impossible look again under it.
    applying: RwLock<()>,
    /// How many batches were taken over since it was opened.
    batches: AtomicU64,
    /// Whether content that an entry says is deleted is being deleted: no checkpoint begins meanwhile, or a start from it would not
    /// finish what a crash cut short.
    deleting: Mutex<Deletions>,
    deleted: Condvar,
}

impl Index {
    pub(super) fn new(
        active: Generation,
        tables: TableSet,
        (applied, open): (Applied, BTreeMap<RecordId, u8>),
    ) -> Self {
        let levels = Levels { active: Arc::new(active), frozen: None, tables };
        Self {
            levels: RwLock::new(levels),
            applied: Mutex::new(applied),
            open: RwLock::new(open),
            applying: RwLock::new(()),
            batches: AtomicU64::new(0),
            deleting: Mutex::new(Deletions::Done),
            deleted: Condvar::new(),
        }
    }

    /// Deletions that entries speak of are in hand from now on, or done.
    pub(super) fn deleting(&self, in_hand: bool) {
        let deletions = if in_hand { Deletions::InHand } else { Deletions::Done };
        *self.deleting.lock().unwrap_or_else(PoisonError::into_inner) = deletions;
        self.deleted.notify_all();
    }

    /// Whoever deletes has ended: nobody is to wait for what it had in hand.
    pub(super) fn deleter_ends(&self) {
        let mut deletions = self.deleting.lock().unwrap_or_else(PoisonError::into_inner);
        if *deletions == Deletions::InHand {
            *deletions = Deletions::GivenUp;
        }
        drop(deletions);
        self.deleted.notify_all();
    }

    /// What is stored under a primary key, checked against what the journal knows.
    pub(super) fn read(&self, key: &[u8]) -> Result<Option<Stored>, IndexFault> {
        match self.look_up(key)? {
            Some(value) => decode_value(key, &value).map(Some).ok_or(IndexFault::Altered),
            None => Ok(None),
        }
    }

    /// The value of any key.
    pub(super) fn look_up(&self, key: &[u8]) -> Result<Option<Vec<u8>>, IndexFault> {
        let levels = self.levels();
        for generation in levels.generations() {
            match self.look_in(generation, key)? {
                Lookup::Found(value) => return Ok(Some(value)),
                Lookup::Gone => return Ok(None),
                Lookup::Untouched => {}
            }
        }
        let tables = &levels.tables;
        let found =
            if keys::is_filtered(key) { tables.get_filtered(key) } else { tables.get(key) }?;
        Ok(found.filter(|value| !value.is_empty()))
    }

    fn look_in(&self, generation: &Generation, key: &[u8]) -> Result<Lookup, IndexFault> {
        match generation.look_up(key) {
            Ok(lookup) => Ok(lookup),
            Err(_) => {
                // A batch may have been on its way between stamp and tree.
                let _quiet = self.applying.read().unwrap_or_else(PoisonError::into_inner);
                generation.look_up(key)
            }
        }
    }

    /// How many batches were taken over: as long as it stays the same, what was read once is not read again.
    pub(super) fn batches(&self) -> u64 {
        self.batches.load(Ordering::Acquire)
    }

    /// Whether the journal knows a primary key. Where that cannot be told, it is taken for known: who asks looks it up then.
    pub(super) fn knows(&self, key: &[u8]) -> bool {
        let levels = self.levels();
        if let Some(known) = levels.generations().find_map(|generation| generation.knows(key)) {
            return known;
        }
        let found = levels.tables.get_filtered(key);
        found.map_or(true, |value| value.is_some_and(|value| !value.is_empty()))
    }

    /// Takes over new entries, all or none.
    pub(super) fn apply(
        &self,
        changes: &[Change],
        (meta, at_ms, epoch): (Meta, i64, u64),
    ) -> Result<(), IndexFault> {
        let (mut edits, mut own) = (runs_of(changes)?, Vec::new());
        let counts = self.counts_after(changes, &edits);
        for change in changes {
            for op in &change.ops {
                edits_of(op, change.seq, &mut own);
                edits.extend(own.drain(..).map(|edit: Edit| (change.seq, edit)));
            }
        }
        let _applying = self.applying.write().unwrap_or_else(PoisonError::into_inner);
        let levels = self.levels();
        levels.active.apply(&edits, &meta)?;
        self.batches.fetch_add(1, Ordering::Release);
        self.note_open(changes);
        *self.applied() = Applied { meta, counts, at_ms, epoch };
        Ok(())
    }

    /// `runs`: the edits of runs.
    fn counts_after(&self, changes: &[Change], runs: &[(u64, Edit)]) -> Counts {
        let mut counts = self.applied().counts;
        let opened = runs.iter().filter(|(_, (key, _))| !self.knows(key)).count();
        counts.runs = counts.runs.saturating_add(to_u64(opened));
        for op in changes.iter().flat_map(|change| &change.ops) {
            match op {
                Op::Effect { before: None, .. } => {
                    counts.effects = counts.effects.saturating_add(1);
                }
                Op::Removed(_) => counts.effects = counts.effects.saturating_sub(1),
                Op::Approval { before: None, .. } => {
                    counts.approvals = counts.approvals.saturating_add(1);
                }
                Op::Directive { before: None, .. } => {
                    counts.directives = counts.directives.saturating_add(1)
                }
                Op::ApprovalGone(_) => counts.approvals = counts.approvals.saturating_sub(1),
                Op::DirectiveGone(_) => counts.directives = counts.directives.saturating_sub(1),
                Op::Run(_)
                | Op::Effect { before: Some(_), .. }
                | Op::Approval { before: Some(_), .. }
                | Op::Directive { before: Some(_), .. } => {}
            }
        }
        counts
    }

    fn note_open(&self, changes: &[Change]) {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        for op in changes.iter().flat_map(|change| &change.ops) {
            match op {
                Op::Effect { after, .. } if after.state.is_open() => {
                    open.insert(after.record_id, keys::effect_code(&after.state));
                }
                Op::Effect { after, .. } => drop(open.remove(&after.record_id)),
                Op::Removed(before) => drop(open.remove(&before.record_id)),
                Op::Approval { .. }
                | Op::ApprovalGone(_)
                | Op::Directive { .. }
                | Op::DirectiveGone(_)
                | Op::Run(_) => {}
            }
        }
    }

    /// The next open effect records after one, in order.
    pub(super) fn open_after(&self, after: Option<RecordId>, most: usize) -> Vec<RecordId> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        open.range((from, Bound::Unbounded)).take(most).map(|(record_id, _)| *record_id).collect()
    }

    /// Keys and values of several lists at once, merged by the part of the key after each list's own beginning; `visit`
    /// says whether to go on. No batch is taken over meanwhile.
    pub(super) fn merge(
        &self,
        lists: &[List],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), IndexFault> {
        let _quiet = self.applying.read().unwrap_or_else(PoisonError::into_inner);
        let levels = self.levels();
        let merged = guarded(|| {
            let cursor = |list| ListCursor::new(list, &levels);
            let mut cursors: Vec<ListCursor<'_>> = lists.iter().map(cursor).collect();
            let mut heads: BTreeMap<(Vec<u8>, usize), Vec<u8>> = BTreeMap::new();
            for (at, cursor) in cursors.iter_mut().enumerate() {
                match cursor.advance() {
                    Ok(head) => heads.extend(head.map(|(rest, value)| ((rest, at), value))),
                    Err(error) => return Ok(Err(error)),
                }
            }
            while let Some(((rest, at), value)) = heads.pop_first() {
                if !visit(&rest, &value) {
                    break;
                }
                match cursors.get_mut(at).map_or(Ok(None), ListCursor::advance) {
                    Ok(head) => heads.extend(head.map(|(rest, value)| ((rest, at), value))),
                    Err(error) => return Ok(Err(error)),
                }
            }
            Ok(Ok(()))
        });
        Ok(merged??)
    }

    /// Everything, in order, newest forms only; what is gone has an empty value.
    pub(super) fn everything(&self) -> Merged {
        merged(&self.levels(), &[])
    }

    /// How far it goes.
    pub(super) fn applied(&self) -> MutexGuard<'_, Applied> {
        self.applied.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets all further changes go into another generation, so that the present one can become a table.
    ///
    /// # Errors
    /// [`IndexFault`]; also when deletions are not done within [`DELETED_WITHIN`], or given up. Nothing is changed then.
    pub(super) fn freeze(&self, next: Generation) -> Result<Frozen, IndexFault> {
        let deleting = self.deleting.lock().unwrap_or_else(PoisonError::into_inner);
        let in_hand = |deletions: &mut Deletions| *deletions == Deletions::InHand;
        let waited = self.deleted.wait_timeout_while(deleting, DELETED_WITHIN, in_hand);
        let (deleting, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match *deleting {
            Deletions::Done => {}
            Deletions::InHand => return Err(IndexFault::Deleting),
            Deletions::GivenUp => return Err(IndexFault::GivenUp),
        }
        // Held to the end: none begins before the generation is frozen.
        let _none_in_hand = deleting;
        let _applying = self.applying.write().unwrap_or_else(PoisonError::into_inner);
        let applied = self.applied().clone();
        next.begin(&applied.meta)?;
        let mut levels = self.levels.write().unwrap_or_else(PoisonError::into_inner);
        let generation = Arc::clone(&levels.active);
        let tables = levels.tables.clone();
        levels.frozen = Some(std::mem::replace(&mut levels.active, Arc::new(next)));
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(Frozen { generation, tables, applied, open })
    }

    /// Makes durable that the active generation has begun, before a checkpoint is in place from which it goes on: sled writes when it
    /// likes to, and a crash would leave a checkpoint from which nothing goes on.
    pub(super) fn begun(&self) -> Result<(), IndexFault> {
        self.levels().active.close()
    }

    /// The frozen generation is in the tables.
    pub(super) fn thawed(&self, tables: TableSet) {
        let mut levels = self.levels.write().unwrap_or_else(PoisonError::into_inner);
        levels.frozen = None;
        levels.tables = tables;
    }

    /// The tables are others, which hold the same.
    pub(super) fn replace_tables(&self, tables: TableSet) {
        self.levels.write().unwrap_or_else(PoisonError::into_inner).tables = tables;
    }

    /// The tables.
    pub(super) fn tables(&self) -> TableSet {
        self.levels().tables
    }

    /// Gives what sled holds in memory to the operating system.
    pub(super) fn flush(&self) -> Result<(), IndexFault> {
        self.levels().generations().try_for_each(|generation| generation.flush())
    }

    /// Makes all of it durable.
    pub(super) fn close(&self) -> Result<(), IndexFault> {
        self.levels().generations().try_for_each(|generation| generation.close())
    }

    fn levels(&self) -> Levels {
        // Nothing can panic while the lock is held, so a poisoned lock still guards sound values.
        self.levels.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// For tests: the active generation, to be damaged behind the store's back.
    #[cfg(test)]
    pub(super) fn active(&self) -> Arc<Generation> {
        self.levels().active
    }
}

fn merged(levels: &Levels, from: &[u8]) -> Merged {
    let generations = levels.generations().map(|generation| generation.source(from));
    Merged::new(generations.chain(levels.tables.cursors(from)).collect())
}

/// A part of the index in which to list, and where to begin.
#[derive(Debug, Clone)]
pub(super) struct List {
    /// What all its keys begin with.
    pub(super) prefix: Vec<u8>,
    /// The rest of the key to begin after; nothing: at the beginning.
    pub(super) after: Vec<u8>,
}

struct ListCursor<'a> {
    list: &'a List,
    merged: Merged,
}

impl<'a> ListCursor<'a> {
    fn new(list: &'a List, levels: &Levels) -> Self {
        let from = [list.prefix.as_slice(), list.after.as_slice()].concat();
        Self { list, merged: merged(levels, &from) }
    }

    /// The next key's rest with its value.
    fn advance(&mut self) -> Result<Option<Edit>, TableError> {
        for pair in self.merged.by_ref() {
            let (key, value) = pair?;
            let Some(rest) = key.strip_prefix(self.list.prefix.as_slice()) else { break };
            // The place to go on from is in the list itself; it is left out.
            let is_start = !rest.is_empty() && rest == self.list.after;
            if !is_start && !value.is_empty() {
                return Ok(Some((rest.to_vec(), value)));
            }
        }
        Ok(None)
    }
}

/// The number of entries that are taken over in one batch: enough to be quick, few enough that readers hardly wait.
pub(super) const BATCH_ENTRIES: usize = 64;
