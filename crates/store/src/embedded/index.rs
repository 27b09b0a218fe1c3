//! The index: sled behind guards, and never believed alone.
//!
//! Owns the tree, the batches that follow the journal, and the check of everything read against [`Stamps`].
//! Not here: opening and rebuilding (`open`), what a commit means (`machine`).
//! Invariants: a batch holds whole entries and the number of the last of them; what the journal knows is never answered as
//! absent or in an older form; an error or a panic of sled is an error of the store.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use sled::{Batch, Db, IVec};

use placet_ledger::approval::ApprovalRecord;
use placet_ledger::record::EffectRecord;
use placet_ledger::run::RunRecord;
use placet_types::ids::RecordId;

use super::codec::{Meta, Stored, decode_value, encode_value};
use super::keys::{self, Stamps};

/// How often what sled holds in memory is given to the operating system. sled's own flusher is not used: it ignores errors.
/// What a crash takes with it is taken over from the journal again.
pub(super) const FLUSH_EVERY: Duration = Duration::from_secs(2);

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
}

impl From<sled::Error> for IndexFault {
    fn from(error: sled::Error) -> Self {
        Self::Sled(error.to_string())
    }
}

/// A change that an entry makes.
#[derive(Debug)]
pub(super) enum Op {
    /// An effect record, as it was and as it is.
    Effect { before: Option<Arc<EffectRecord>>, after: Arc<EffectRecord> },
    /// An effect record that is gone.
    Removed(Arc<EffectRecord>),
    /// An approval, as it was and as it is.
    Approval { before: Option<Arc<ApprovalRecord>>, after: Arc<ApprovalRecord> },
    /// A run, with its JSON.
    Run(Arc<RunRecord>, Vec<u8>),
}

/// All that one entry changes.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) seq: u64,
    pub(super) ops: Vec<Op>,
}

/// The tree, and what the journal says must be in it.
#[derive(Debug)]
pub(super) struct Index {
    db: Db,
    directory: PathBuf,
    stamps: Stamps,
    /// Open effect records, from the journal: recovery must not depend on a list that sled may have forgotten.
    open: RwLock<BTreeSet<RecordId>>,
    /// Held for writing while a batch is taken over: readers that saw something impossible look again under it.
    applying: RwLock<()>,
}

impl Index {
    pub(super) fn new(db: Db, directory: &Path, known: Known) -> Self {
        Self {
            db,
            directory: directory.to_owned(),
            stamps: known.stamps,
            open: RwLock::new(known.open),
            applying: RwLock::new(()),
        }
    }

    /// Lets the tree go and gives back what the journal says, for another tree.
    pub(super) fn into_known(self) -> Known {
        let Self { db, stamps, open, .. } = self;
        let let_go = guarded(|| {
            drop(db);
            Ok(())
        });
        if let Err(fault) = let_go {
            tracing::warn!(%fault, "while the index was let go");
        }
        Known { stamps, open: open.into_inner().unwrap_or_else(PoisonError::into_inner) }
    }

    /// The same tree, held against what the journal says.
    pub(super) fn with_known(self, known: Known) -> Self {
        Self { stamps: known.stamps, open: RwLock::new(known.open), ..self }
    }

    /// Whether there is nothing in it.
    pub(super) fn is_empty(&self) -> Result<bool, IndexFault> {
        guarded(|| Ok(self.db.is_empty()))
    }

    /// What is stored under a primary key, checked against what the journal knows.
    pub(super) fn read(&self, key: &[u8]) -> Result<Option<Stored>, IndexFault> {
        let Some(wanted) = self.stamps.get(key) else { return Ok(None) };
        if let Ok(Some(stored)) = self.read_unchecked(key)
            && keys::is_current(stored.seq, wanted)
        {
            return Ok(Some(stored));
        }
        // A batch may have been on its way between the two look-ups.
        let _quiet = self.applying.read().unwrap_or_else(PoisonError::into_inner);
        let Some(wanted) = self.stamps.get(key) else { return Ok(None) };
        match self.read_unchecked(key)? {
            Some(stored) if keys::is_current(stored.seq, wanted) => Ok(Some(stored)),
            Some(_) | None => Err(IndexFault::Forgotten),
        }
    }

    /// What is stored under a primary key, while the index still follows the journal.
    pub(super) fn read_unchecked(&self, key: &[u8]) -> Result<Option<Stored>, IndexFault> {
        match guarded(|| self.db.get(key))? {
            Some(bytes) => decode_value(key, &bytes).map(Some).ok_or(IndexFault::Altered),
            None => Ok(None),
        }
    }

    /// The record that a call made.
    pub(super) fn record_of_call(&self, key: &[u8]) -> Result<Option<IVec>, IndexFault> {
        guarded(|| self.db.get(key))
    }

    /// Whether the journal knows a primary key.
    pub(super) fn knows(&self, key: &[u8]) -> bool {
        self.stamps.get(key).is_some()
    }

    /// What the index says about itself.
    pub(super) fn meta(&self) -> Result<Option<Meta>, IndexFault> {
        match guarded(|| self.db.get(keys::META))? {
            Some(bytes) => Meta::decode(keys::META, &bytes).map(Some).ok_or(IndexFault::Altered),
            None => Ok(None),
        }
    }

    /// Takes over entries that the journal is known to have, all or none: while the index catches up at the start.
    pub(super) fn catch_up(&self, changes: &[Change], meta: &Meta) -> Result<(), IndexFault> {
        let mut batch = Batch::default();
        for change in changes {
            for op in &change.ops {
                stage(&mut batch, change.seq, op);
            }
        }
        batch.insert(keys::META, meta.encode(keys::META));
        guarded(|| self.db.apply_batch(batch))
    }

    /// Takes over new entries, all or none.
    pub(super) fn apply(&self, changes: &[Change], meta: &Meta) -> Result<(), IndexFault> {
        let _applying = self.applying.write().unwrap_or_else(PoisonError::into_inner);
        self.catch_up(changes, meta)?;
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        for change in changes {
            for op in &change.ops {
                self.note(change.seq, op, &mut open);
            }
        }
        Ok(())
    }

    fn note(&self, seq: u64, op: &Op, open: &mut BTreeSet<RecordId>) {
        match op {
            Op::Effect { after, .. } => {
                self.stamps.set(&keys::effect(&after.record_id), seq);
                if after.state.is_open() {
                    open.insert(after.record_id);
                } else {
                    open.remove(&after.record_id);
                }
            }
            Op::Removed(before) => {
                self.stamps.remove(&keys::effect(&before.record_id));
                open.remove(&before.record_id);
            }
            Op::Approval { after, .. } => {
                self.stamps.set(&keys::approval(&after.approval_id), seq);
            }
            Op::Run(run, _) => self.stamps.set(&keys::run(&run.key), seq),
        }
    }

    /// The next open effect records after one, in order.
    pub(super) fn open_after(&self, after: Option<RecordId>, most: usize) -> Vec<RecordId> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        open.range((from, Bound::Unbounded)).take(most).copied().collect()
    }

    /// Keys and values of several lists at once, merged by the part of the key after each list's own beginning; `visit`
    /// says whether to go on. No batch is taken over meanwhile.
    pub(super) fn merge(
        &self,
        lists: &[List],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), IndexFault> {
        let _quiet = self.applying.read().unwrap_or_else(PoisonError::into_inner);
        guarded(|| {
            let mut cursors = Vec::new();
            let mut heads: BTreeMap<(Vec<u8>, usize), IVec> = BTreeMap::new();
            for (at, list) in lists.iter().enumerate() {
                let mut cursor = self.db.range(list.from.clone()..);
                list.advance(at, &mut cursor, &mut heads)?;
                cursors.push((list, cursor));
            }
            while let Some(((rest, at), value)) = heads.pop_first() {
                // The place to go on from is listed itself; it is left out.
                let skip = lists.get(at).is_some_and(|list| list.is_start(&rest));
                if !skip && !visit(&rest, &value) {
                    break;
                }
                if let Some((list, cursor)) = cursors.get_mut(at) {
                    list.advance(at, cursor, &mut heads)?;
                }
            }
            Ok(())
        })
    }

    /// Reads everything and compares it with what the journal knows: every record is there in its last form, and the
    /// lists have as many entries as there are records.
    pub(super) fn agrees(&self, freshness: Freshness) -> Result<(), String> {
        let mut counts: BTreeMap<u8, u64> = BTreeMap::new();
        let read = guarded(|| {
            for pair in self.db.iter() {
                let (key, value) = pair?;
                let prefix = key.first().copied().unwrap_or_default();
                let count = counts.entry(prefix).or_default();
                *count = count.saturating_add(1);
                let is_record = matches!(prefix, keys::EFFECT | keys::APPROVAL | keys::RUN);
                if is_record && !self.is_last_form(&key, &value) {
                    return Ok(false);
                }
            }
            Ok(true)
        });
        match read {
            Ok(true) => {}
            Ok(false) => return Err("a record is not the one of the journal".to_owned()),
            Err(fault) => return Err(fault.to_string()),
        }
        let found = |prefix| counts.get(&prefix).copied().unwrap_or(0);
        let expected = |prefix| self.stamps.count(prefix);
        for (what, found, expected) in [
            ("effects", found(keys::EFFECT), expected(keys::EFFECT)),
            ("approvals", found(keys::APPROVAL), expected(keys::APPROVAL)),
            ("runs", found(keys::RUN), expected(keys::RUN)),
            ("effects by state", found(keys::EFFECT_STATE), expected(keys::EFFECT)),
            ("approvals by state", found(keys::APPROVAL_STATE), expected(keys::APPROVAL)),
            ("approvals by tenant", found(keys::APPROVAL_TENANT), expected(keys::APPROVAL)),
        ] {
            if found != expected {
                return Err(format!("{found} {what} where the journal has {expected}"));
            }
        }
        // A call makes one record; where two records named one call after all, an index just made may have fewer calls.
        let (calls, effects) = (found(keys::CALL), expected(keys::EFFECT));
        if calls > effects || (calls < effects && freshness == Freshness::Kept) {
            return Err(format!("{calls} calls where the journal has {effects} effects"));
        }
        Ok(())
    }

    fn is_last_form(&self, key: &[u8], value: &[u8]) -> bool {
        let wanted = self.stamps.get(key);
        let stored = decode_value(key, value);
        stored.is_some_and(|stored| wanted == Some(keys::stamp(stored.seq)))
    }

    /// How many records of a kind the journal knows.
    pub(super) fn count(&self, prefix: u8) -> u64 {
        self.stamps.count(prefix)
    }

    /// Gives what sled holds in memory to the operating system.
    pub(super) fn flush(&self) -> Result<(), IndexFault> {
        guarded(|| self.db.flush()).map(drop)
    }

    /// Makes all of it durable. sled's `flush` does not sync: that is done on its file.
    pub(super) fn close(&self) -> Result<(), IndexFault> {
        self.flush()?;
        File::open(self.directory.join("db"))
            .and_then(|file| file.sync_all())
            .map_err(|error| IndexFault::Sled(error.to_string()))
    }

    /// For tests: the tree, to be damaged behind the store's back.
    #[cfg(test)]
    pub(super) fn db(&self) -> &Db {
        &self.db
    }
}

/// Where an index comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Freshness {
    /// It was found.
    Kept,
    /// It has just been made.
    New,
}

/// What the journal says there is.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) stamps: Stamps,
    pub(super) open: BTreeSet<RecordId>,
}

/// A part of the tree in which to list, and where to begin.
#[derive(Debug, Clone)]
pub(super) struct List {
    /// What all its keys begin with.
    pub(super) prefix: Vec<u8>,
    /// The key to begin after; the prefix itself: at the beginning.
    pub(super) from: Vec<u8>,
}

impl List {
    fn is_start(&self, rest: &[u8]) -> bool {
        !rest.is_empty() && self.from.strip_prefix(self.prefix.as_slice()) == Some(rest)
    }

    fn advance(
        &self,
        at: usize,
        cursor: &mut sled::Iter,
        heads: &mut BTreeMap<(Vec<u8>, usize), IVec>,
    ) -> sled::Result<()> {
        if let Some(pair) = cursor.next() {
            let (key, value) = pair?;
            if let Some(rest) = key.strip_prefix(self.prefix.as_slice()) {
                heads.insert((rest.to_vec(), at), value);
            }
        }
        Ok(())
    }
}

fn stage(batch: &mut Batch, seq: u64, op: &Op) {
    match op {
        Op::Effect { before, after } => {
            let key = keys::effect(&after.record_id);
            if let Some(before) = before {
                batch.remove(keys::effect_state(&before.state, &before.record_id));
            }
            batch.insert(
                keys::effect_state(&after.state, &after.record_id),
                after.scope.tenant.as_str(),
            );
            if before.as_ref().is_none_or(|before| before.call_id != after.call_id) {
                batch.insert(keys::call(&after.call_id), after.record_id.digest().as_bytes());
            }
            let value = encode_value(&key, seq, &[]);
            batch.insert(key, value);
        }
        Op::Removed(before) => {
            batch.remove(keys::effect_state(&before.state, &before.record_id));
            batch.remove(keys::call(&before.call_id));
            batch.remove(keys::effect(&before.record_id));
        }
        Op::Approval { before, after } => {
            let key = keys::approval(&after.approval_id);
            let tenant = after.chain.tenant();
            if let Some(before) = before {
                let (code, place) = place_of(before);
                batch.remove(keys::approval_list(None, code, place));
                batch.remove(keys::approval_list(Some(before.chain.tenant()), code, place));
            }
            let (code, place) = place_of(after);
            batch.insert(keys::approval_list(None, code, place), tenant.as_str());
            batch.insert(keys::approval_list(Some(tenant), code, place), tenant.as_str());
            let value = encode_value(&key, seq, &[]);
            batch.insert(key, value);
        }
        Op::Run(run, body) => {
            let key = keys::run(&run.key);
            let value = encode_value(&key, seq, body);
            batch.insert(key, value);
        }
    }
}

fn place_of(approval: &ApprovalRecord) -> (u8, Option<keys::ApprovalPlace<'_>>) {
    (keys::approval_code(&approval.state), Some((approval.created_at, &approval.approval_id)))
}

/// Runs something of sled, which panics on damaged pages instead of answering an error.
pub(super) fn guarded<T>(work: impl FnOnce() -> sled::Result<T>) -> Result<T, IndexFault> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(answer) => Ok(answer?),
        Err(_panic) => Err(IndexFault::Panicked),
    }
}

/// Flushes the index now and then until the other end of `stop` is gone; `failed` is told of the first fault.
pub(super) fn flush_until(
    index: &Index,
    stop: &Receiver<std::convert::Infallible>,
    failed: impl Fn(String),
) {
    while let Err(RecvTimeoutError::Timeout) = stop.recv_timeout(FLUSH_EVERY) {
        if let Err(fault) = index.flush() {
            failed(fault.to_string());
            return;
        }
    }
}

/// The number of entries that are taken over in one batch: enough to be quick, few enough that readers hardly wait.
pub(super) const BATCH_ENTRIES: usize = 64;
