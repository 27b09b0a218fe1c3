//! Claims: keys taken in this process's memory until their record is durable.
//!
//! Owns the table of claims, and the memory of records that became durable recently. Other nodes do not see a claim: two nodes that claim
//! one key meet at the first durable change, where one wins. Invariants: of two claims in this process one wins; a claim stays until the
//! store has its record or its owner releases it; it cannot be released once its record is being written.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use parking_lot::Mutex;

use placet_ledger::record::EffectRecord;
use placet_types::ids::{RecordId, ToolCallId};

use crate::rules::Claimants;

/// How many recently durable records are remembered. Where more became durable during a query, the query is repeated.
const ARRIVED_MAX: usize = 4096;

#[derive(Debug)]
struct Claim {
    record: Arc<EffectRecord>,
    /// How many of its changes are being written.
    riding: u32,
    /// Nobody held the key before the change was submitted: if that fails, the key is free.
    unclaimed: bool,
}

#[derive(Debug, Default)]
struct Table {
    claims: HashMap<RecordId, Claim>,
    by_call: HashMap<ToolCallId, RecordId>,
    /// Counts the records that became durable.
    count: u64,
    /// The last of those records.
    arrived: VecDeque<RecordId>,
}

/// The claims of this process.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    table: Mutex<Table>,
}

/// The outcome of an attempt to take a key.
#[derive(Debug)]
pub(crate) enum Take {
    /// The caller has the key.
    Taken,
    /// Somebody has claimed it.
    Claimed(Arc<EffectRecord>),
    /// Its record became durable since the store was asked: ask again.
    AskAgain,
}

impl Claims {
    /// How many records have become durable. Read it before querying the store.
    pub(crate) fn count(&self) -> u64 {
        self.table.lock().count
    }

    /// Takes the key of `record`, which the store did not have when it was queried, after the count was `since`.
    pub(crate) fn take(&self, record: &EffectRecord, since: u64) -> Take {
        let mut table = self.table.lock();
        if let Some(claim) = table.claims.get(&record.record_id) {
            return Take::Claimed(Arc::clone(&claim.record));
        }
        let later = usize::try_from(table.count.saturating_sub(since)).unwrap_or(usize::MAX);
        let mut arrived = table.arrived.iter().rev().take(later);
        if later > table.arrived.len() || arrived.any(|arrived| *arrived == record.record_id) {
            return Take::AskAgain;
        }
        table.insert(record.clone(), 0);
        Take::Taken
    }

    /// Releases a claim, unless its record is being written.
    pub(crate) fn release(&self, record_id: &RecordId) {
        let mut table = self.table.lock();
        if table.claims.get(record_id).is_some_and(|claim| claim.riding == 0) {
            table.remove(record_id);
        }
    }

    /// The record is being written: its key stays taken until the write succeeds or fails. `claimed` is what readers see where nobody had
    /// claimed the key.
    pub(crate) fn board(&self, claimed: EffectRecord) {
        let mut table = self.table.lock();
        match table.claims.get_mut(&claimed.record_id) {
            Some(claim) => claim.riding = claim.riding.saturating_add(1),
            None => table.insert(claimed, 1),
        }
    }

    /// The record did not become durable; its key is claimed, or free, as before.
    pub(crate) fn turn_back(&self, record_id: &RecordId) {
        let mut table = self.table.lock();
        let Some(claim) = table.claims.get_mut(record_id) else { return };
        claim.riding = claim.riding.saturating_sub(1);
        if claim.riding == 0 && claim.unclaimed {
            table.remove(record_id);
        }
    }

    /// The store has the record.
    pub(crate) fn arrived(&self, record_id: &RecordId) {
        self.table.lock().arrive(*record_id);
    }

    /// The database has a record of the key that this process did not write: a claim of it is void.
    pub(crate) fn found(&self, record_id: &RecordId) {
        let mut table = self.table.lock();
        if table.claims.get(record_id).is_some_and(|claim| claim.riding == 0) {
            table.arrive(*record_id);
        }
    }

    /// The claim of a key.
    pub(crate) fn get(&self, record_id: &RecordId) -> Option<EffectRecord> {
        let table = self.table.lock();
        table.claims.get(record_id).map(|claim| EffectRecord::clone(&claim.record))
    }

    /// The claim of a call.
    pub(crate) fn of_call(&self, call_id: &ToolCallId) -> Option<EffectRecord> {
        let table = self.table.lock();
        let claim = table.claims.get(table.by_call.get(call_id)?)?;
        Some(EffectRecord::clone(&claim.record))
    }
}

impl Claimants for Claims {
    fn is_foreign(&self, record: &EffectRecord) -> bool {
        let table = self.table.lock();
        let claim = table.claims.get(&record.record_id);
        claim.is_some_and(|claim| claim.record.call_id != record.call_id)
    }
}

impl Table {
    fn insert(&mut self, record: EffectRecord, riding: u32) {
        self.by_call.insert(record.call_id.clone(), record.record_id);
        let claim = Claim { record: Arc::new(record), riding, unclaimed: riding > 0 };
        self.claims.insert(claim.record.record_id, claim);
    }

    fn remove(&mut self, record_id: &RecordId) {
        if let Some(claim) = self.claims.remove(record_id) {
            self.by_call.remove(&claim.record.call_id);
        }
    }

    fn arrive(&mut self, record_id: RecordId) {
        self.remove(&record_id);
        self.count = self.count.saturating_add(1);
        if self.arrived.len() >= ARRIVED_MAX {
            self.arrived.pop_front();
        }
        self.arrived.push_back(record_id);
    }
}

#[cfg(test)]
mod tests {
    use super::{Claims, Take};
    use crate::testing::claim_of;

    #[test]
    fn a_claim_whose_record_is_on_its_way_cannot_be_given_back() {
        let claims = Claims::default();
        let record = claim_of("acme", "key", 1);
        let take = || claims.take(&record, claims.count());
        assert!(matches!(take(), Take::Taken));
        claims.board(record.clone());
        claims.release(&record.record_id);
        assert!(matches!(take(), Take::Claimed(claimed) if *claimed == record));
        assert_eq!(claims.of_call(&record.call_id).as_ref(), Some(&record));
        claims.arrived(&record.record_id);
        assert_eq!(claims.get(&record.record_id), None);
        assert_eq!(claims.of_call(&record.call_id), None);
    }

    #[test]
    fn a_record_that_turns_back_leaves_its_key_as_it_was() {
        let claims = Claims::default();
        let (claimed, free) = (claim_of("acme", "claimed", 1), claim_of("acme", "free", 1));
        assert!(matches!(claims.take(&claimed, 0), Take::Taken));
        for record in [&claimed, &free] {
            claims.board(record.clone());
            claims.turn_back(&record.record_id);
        }
        assert_eq!(claims.get(&claimed.record_id).as_ref(), Some(&claimed));
        assert_eq!(claims.get(&free.record_id), None);
    }

    #[test]
    fn who_looked_before_a_record_arrived_looks_again() {
        let claims = Claims::default();
        let record = claim_of("acme", "key", 1);
        let since = claims.count();
        claims.board(record.clone());
        claims.arrived(&record.record_id);
        assert!(matches!(claims.take(&record, since), Take::AskAgain));
    }
}
