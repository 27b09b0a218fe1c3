//! Which records are being worked on in this process, and which approvals and records are being taken up.
//!
//! Owns the counts and the guards. Not here: what is done about an orphaned record, which is recovery's.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use parking_lot::Mutex;

use placet_ledger::record::EffectRecord;
use placet_types::ids::{ApprovalId, RecordId};

/// How many unowned records of the last round are remembered.
const SUSPECTS_MAX: usize = 1_000;

/// What tasks have in hand.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Work {
    /// A record that is being worked on.
    Record(RecordId),
    /// The call of an approval, which is being taken up.
    Approved(ApprovalId),
    /// A record without an approval, which is being taken up.
    Rearmed(RecordId),
}

type Counts = Arc<Mutex<HashMap<Work, usize>>>;

/// The work that is in hand.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    held: Counts,
    /// Records that were unowned in the last round, with their revisions.
    suspects: Mutex<HashMap<RecordId, u64>>,
}

/// Marks work as being in hand.
#[derive(Debug)]
pub(crate) struct WorkGuard {
    held: Counts,
    work: Work,
}

impl InFlight {
    /// Marks a record as being worked on until the guard is dropped.
    pub(crate) fn take(&self, record_id: RecordId) -> WorkGuard {
        let work = Work::Record(record_id);
        let mut held = self.held.lock();
        let count = held.entry(work.clone()).or_insert(0);
        *count = count.saturating_add(1);
        WorkGuard { held: Arc::clone(&self.held), work }
    }

    /// Marks work as being in hand, unless another task has it.
    pub(crate) fn take_alone(&self, work: Work) -> Option<WorkGuard> {
        let mut held = self.held.lock();
        let Entry::Vacant(place) = held.entry(work.clone()) else { return None };
        place.insert(1);
        Some(WorkGuard { held: Arc::clone(&self.held), work })
    }

    fn is_held(&self, record_id: RecordId) -> bool {
        self.held.lock().contains_key(&Work::Record(record_id))
    }

    /// The records that are unowned now and were in the last round. A record on its way from one task to another is held by one of the two.
    pub(crate) fn dropped(&self, overdue: impl Iterator<Item = EffectRecord>) -> Vec<EffectRecord> {
        let mut suspects = self.suspects.lock();
        if suspects.len() > SUSPECTS_MAX {
            suspects.clear();
        }
        let mut dropped = Vec::new();
        for record in overdue {
            if self.is_held(record.record_id) {
                suspects.remove(&record.record_id);
            } else if suspects.get(&record.record_id) == Some(&record.rev) {
                suspects.remove(&record.record_id);
                dropped.push(record);
            } else {
                suspects.insert(record.record_id, record.rev);
            }
        }
        dropped
    }
}

impl Drop for WorkGuard {
    fn drop(&mut self) {
        let mut held = self.held.lock();
        if let Some(count) = held.get_mut(&self.work) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                held.remove(&self.work);
            }
        }
    }
}
