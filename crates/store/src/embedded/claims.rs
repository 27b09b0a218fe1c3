//! Claims: keys taken in memory until their record is durable (decisions.md 24).
//!
//! Owns the table of claims. Not here: whether a record is stored, which the caller asks while the claim's lock is held.
//! Invariants: of two claims of one key one wins; a claim stays until the index has its record or its owner gives it back, and it
//! cannot be given back once its record is on the way to the journal.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use placet_ledger::record::EffectRecord;
use placet_types::ids::{RecordId, ToolCallId};

const SHARDS: usize = 64;

#[derive(Debug)]
struct Claim {
    record: Arc<EffectRecord>,
    /// Its record is prepared for the journal.
    riding: bool,
}

/// The claims of this process.
#[derive(Debug)]
pub(super) struct Claims {
    shards: Vec<Mutex<HashMap<RecordId, Claim>>>,
    by_call: Mutex<HashMap<ToolCallId, RecordId>>,
}

impl Default for Claims {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            by_call: Mutex::default(),
        }
    }
}

/// What the writer found about a claim when its record came.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Boarding {
    /// Nobody has claimed the key, or the call that brings the record has.
    Own,
    /// Another call holds the key.
    Foreign,
}

impl Claims {
    /// Takes the key of `record` unless it is claimed or, as `stored` says, stored. Answers what it is taken by.
    pub(super) fn take<E>(
        &self,
        record: EffectRecord,
        stored: impl FnOnce() -> Result<Option<EffectRecord>, E>,
    ) -> Result<Option<EffectRecord>, E> {
        let record = Arc::new(record);
        {
            let mut shard = self.shard(&record.record_id);
            if let Some(claim) = shard.get(&record.record_id) {
                return Ok(Some(EffectRecord::clone(&claim.record)));
            }
            // Asked with the lock held: a record leaves the claims only after the index has it.
            if let Some(stored) = stored()? {
                return Ok(Some(stored));
            }
            let claim = Claim { record: Arc::clone(&record), riding: false };
            shard.insert(record.record_id, claim);
        }
        self.calls().insert(record.call_id.clone(), record.record_id);
        Ok(None)
    }

    /// Gives a claim back, unless its record is on the way.
    pub(super) fn release(&self, record_id: &RecordId) {
        let mut shard = self.shard(record_id);
        if shard.get(record_id).is_some_and(|claim| !claim.riding) {
            let claim = shard.remove(record_id);
            drop(shard);
            self.forget_call(claim);
        }
    }

    /// Whether `record` may be put where nothing is stored.
    pub(super) fn may_board(&self, record: &EffectRecord) -> Boarding {
        match self.shard(&record.record_id).get(&record.record_id) {
            Some(claim) if claim.record.call_id != record.call_id => Boarding::Foreign,
            Some(_) | None => Boarding::Own,
        }
    }

    /// The record is prepared: its key stays taken until [`Claims::arrived`]. `claimed` is the record as claims show it,
    /// for a record that nobody claimed.
    pub(super) fn board(&self, claimed: EffectRecord) {
        let record_id = claimed.record_id;
        let mut shard = self.shard(&record_id);
        shard
            .entry(record_id)
            .or_insert_with(|| Claim { record: Arc::new(claimed), riding: true })
            .riding = true;
    }

    /// The record is in the index.
    pub(super) fn arrived(&self, record_id: &RecordId) {
        let claim = self.shard(record_id).remove(record_id);
        self.forget_call(claim);
    }

    /// The claim of a key.
    pub(super) fn get(&self, record_id: &RecordId) -> Option<EffectRecord> {
        self.shard(record_id).get(record_id).map(|claim| EffectRecord::clone(&claim.record))
    }

    /// The claim of a call.
    pub(super) fn of_call(&self, call_id: &ToolCallId) -> Option<EffectRecord> {
        let record_id = self.calls().get(call_id).copied()?;
        self.get(&record_id).filter(|record| record.call_id == *call_id)
    }

    fn forget_call(&self, claim: Option<Claim>) {
        if let Some(claim) = claim {
            self.calls().remove(&claim.record.call_id);
        }
    }

    // Nothing can panic while these locks are held but the look-up given to `take`, before it changes anything.
    fn shard(&self, record_id: &RecordId) -> MutexGuard<'_, HashMap<RecordId, Claim>> {
        let first = record_id.digest().as_bytes().first().copied().unwrap_or_default();
        let at = usize::from(first).checked_rem(SHARDS).unwrap_or_default();
        self.shards.get(at).map_or_else(
            || self.first_shard(),
            |shard| shard.lock().unwrap_or_else(PoisonError::into_inner),
        )
    }

    fn calls(&self) -> MutexGuard<'_, HashMap<ToolCallId, RecordId>> {
        self.by_call.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
