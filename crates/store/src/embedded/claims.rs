//! Claims: keys taken in memory until their record is durable.
//!
//! Owns the table of claims. Not here: what is stored, which the caller tells.
//! Invariants: of two claims of one key one wins; a claim stays until the index has its record or its owner gives it back, and it
//! cannot be given back once its record is on the way to the journal.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use placet_ledger::record::EffectRecord;
use placet_types::ids::{RecordId, ToolCallId};

use crate::rules::Claimants;

#[derive(Debug)]
struct Claim {
    record: Arc<EffectRecord>,
    /// Its record is prepared for the journal.
    riding: bool,
}

#[derive(Debug, Default)]
struct Table {
    claims: HashMap<RecordId, Claim>,
    by_call: HashMap<ToolCallId, RecordId>,
}

/// The claims of this process.
#[derive(Debug, Default)]
pub(super) struct Claims {
    table: Mutex<Table>,
}

impl Claims {
    /// Takes the key of `record`, unless it is claimed or stored. Answers what it is taken by.
    ///
    /// `stored` reads what is stored, `known` says from memory whether anything is: it is asked with the lock held.
    pub(super) fn take<E>(
        &self,
        record: EffectRecord,
        stored: impl Fn() -> Result<Option<EffectRecord>, E>,
        known: impl Fn() -> bool,
    ) -> Result<Option<EffectRecord>, E> {
        loop {
            if let Some(stored) = stored()? {
                return Ok(Some(stored));
            }
            let mut table = self.lock();
            if let Some(claim) = table.claims.get(&record.record_id) {
                return Ok(Some(EffectRecord::clone(&claim.record)));
            }
            // A record leaves the claims only after it is known, so a caller that sees neither is the first.
            if !known() {
                table.insert(record, false);
                return Ok(None);
            }
        }
    }

    /// Gives a claim back, unless its record is on the way.
    pub(super) fn release(&self, record_id: &RecordId) {
        let mut table = self.lock();
        if table.claims.get(record_id).is_some_and(|claim| !claim.riding) {
            table.remove(record_id);
        }
    }

    /// The record is prepared: its key stays taken until [`Claims::arrived`]. `claimed` is what shows where nobody had
    /// claimed the key.
    pub(super) fn board(&self, claimed: EffectRecord) {
        let mut table = self.lock();
        match table.claims.get_mut(&claimed.record_id) {
            Some(claim) => claim.riding = true,
            None => table.insert(claimed, true),
        }
    }

    /// The record is in the index.
    pub(super) fn arrived(&self, record_id: &RecordId) {
        self.lock().remove(record_id);
    }

    /// The claim of a key.
    pub(super) fn get(&self, record_id: &RecordId) -> Option<EffectRecord> {
        let table = self.lock();
        table.claims.get(record_id).map(|claim| EffectRecord::clone(&claim.record))
    }

    /// The claim of a call.
    pub(super) fn of_call(&self, call_id: &ToolCallId) -> Option<EffectRecord> {
        let table = self.lock();
        let claim = table.claims.get(table.by_call.get(call_id)?)?;
        Some(EffectRecord::clone(&claim.record))
    }

    // Nothing can panic while the lock is held, so a poisoned lock still guards sound values.
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Claimants for Claims {
    fn is_foreign(&self, record: &EffectRecord) -> bool {
        let table = self.lock();
        let claim = table.claims.get(&record.record_id);
        claim.is_some_and(|claim| claim.record.call_id != record.call_id)
    }
}

impl Table {
    fn insert(&mut self, record: EffectRecord, riding: bool) {
        self.by_call.insert(record.call_id.clone(), record.record_id);
        self.claims.insert(record.record_id, Claim { record: Arc::new(record), riding });
    }

    fn remove(&mut self, record_id: &RecordId) {
        if let Some(claim) = self.claims.remove(record_id) {
            self.by_call.remove(&claim.record.call_id);
        }
    }
}
