//! The index catches up with the journal.
//!
//! Owns the way of an entry that is in the journal already into an index that has not seen it. Not here: the checks of new
//! changes, which an entry has passed when it was written; only its revisions are checked again.
//! Invariant: an index that has caught up is the same as one that was never behind.

use std::collections::HashMap;
use std::sync::Arc;

use placet_ledger::approval::ApprovalRecord;
use placet_ledger::record::EffectRecord;
use placet_ledger::run::{RunKey, RunRecord};
use placet_ledger::store::StoreError;
use placet_types::ids::{ApprovalId, RecordId};

use super::codec::{EffectEntry, Entry, Meta, Stored, decode_entry};
use super::decide::{Base, Transaction};
use super::index::{BATCH_ENTRIES, Change, Index};
use super::keys;
use super::records::{Records, decode_run};
use crate::journal::{Frame, Journal, JournalReader};

/// Takes all entries after `applied_seq` over; answers how many.
pub(super) fn replay(index: &Index, journal: &Journal, applied_seq: u64) -> Result<u64, String> {
    let mut replay = Replay::new(index, journal.reader());
    let mut replayed: u64 = 0;
    for frame in journal.read_from(applied_seq.saturating_add(1)) {
        let frame = frame.map_err(|error| error.to_string())?;
        replay.take(&frame)?;
        replayed = replayed.saturating_add(1);
    }
    replay.flush()?;
    Ok(replayed)
}

struct Replay<'a> {
    index: &'a Index,
    records: Records,
    effects: HashMap<RecordId, Option<Arc<EffectRecord>>>,
    approvals: HashMap<ApprovalId, Arc<ApprovalRecord>>,
    runs: HashMap<RunKey, Arc<RunRecord>>,
    changes: Vec<Change>,
    meta: Option<Meta>,
}

impl<'a> Replay<'a> {
    fn new(index: &'a Index, journal: JournalReader) -> Self {
        Self {
            index,
            records: Records::new(journal),
            effects: HashMap::new(),
            approvals: HashMap::new(),
            runs: HashMap::new(),
            changes: Vec::new(),
            meta: None,
        }
    }

    fn take(&mut self, frame: &Frame) -> Result<(), String> {
        let seq = frame.seq;
        let entry = decode_entry(frame.kind, &frame.payload)
            .map_err(|error| format!("entry {seq} cannot be read: {error}"))?;
        let mut transaction = Transaction::new(self, None);
        redo(&mut transaction, entry).map_err(|error| {
            format!("entry {seq} does not follow from those before it: {error}")
        })?;
        let Transaction { effects, approvals, runs, ops, .. } = transaction;
        self.effects.extend(effects);
        self.approvals.extend(approvals);
        self.runs.extend(runs);
        self.changes.push(Change { seq, ops });
        self.meta = Some(Meta { applied_seq: seq, head: frame.hash });
        if self.changes.len() >= BATCH_ENTRIES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), String> {
        if let Some(meta) = self.meta.take() {
            self.records.remember(&self.changes);
            self.index.catch_up(&self.changes, &meta).map_err(|fault| fault.to_string())?;
        }
        self.changes.clear();
        self.effects.clear();
        self.approvals.clear();
        self.runs.clear();
        Ok(())
    }

    fn stored(&self, key: &[u8]) -> Result<Option<Stored>, StoreError> {
        self.index.read_unchecked(key).map_err(|fault| StoreError::Damaged(fault.to_string()))
    }
}

fn redo(transaction: &mut Transaction<'_>, entry: Entry) -> Result<(), StoreError> {
    transaction.open_runs(entry.runs)?;
    if let Some(reservation) = &entry.reserve {
        transaction.reserve(reservation)?;
    }
    if let Some(reservation) = &entry.refund {
        transaction.refund(reservation)?;
    }
    for effect in entry.effects {
        match effect {
            EffectEntry::Put(record) => transaction.put_effect(*record, &[])?,
            EffectEntry::Removed { record_id, rev } => {
                transaction.remove_effect(record_id, rev)?;
            }
            EffectEntry::Forgotten { record_id, rev } => {
                transaction.forget_effect(record_id, rev)?;
            }
        }
    }
    for approval in entry.approvals {
        transaction.put_approval(approval)?;
    }
    Ok(())
}

impl Base for Replay<'_> {
    fn effect(&self, record_id: &RecordId) -> Result<Option<Arc<EffectRecord>>, StoreError> {
        if let Some(changed) = self.effects.get(record_id) {
            return Ok(changed.clone());
        }
        let stored = self.stored(&keys::effect(record_id))?;
        let record = stored.map(|stored| self.records.effect(record_id, stored.seq));
        record.transpose().map_err(StoreError::Damaged)
    }

    fn approval(
        &self,
        approval_id: &ApprovalId,
    ) -> Result<Option<Arc<ApprovalRecord>>, StoreError> {
        if let Some(changed) = self.approvals.get(approval_id) {
            return Ok(Some(Arc::clone(changed)));
        }
        let stored = self.stored(&keys::approval(approval_id))?;
        let record = stored.map(|stored| self.records.approval(approval_id, stored.seq));
        record.transpose().map_err(StoreError::Damaged)
    }

    fn run(&self, key: &RunKey) -> Result<Option<Arc<RunRecord>>, StoreError> {
        if let Some(changed) = self.runs.get(key) {
            return Ok(Some(Arc::clone(changed)));
        }
        let stored = self.stored(&keys::run(key))?;
        let run = stored.map(|stored| decode_run(&stored).map(Arc::new));
        run.transpose().map_err(StoreError::Damaged)
    }
}
