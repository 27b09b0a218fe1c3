//! Which records are being worked on in this process, and which approvals and records are being taken up.
//!
//! Owns the counts and the guards. Not here: what is done about an orphaned record, which is recovery's.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use parking_lot::Mutex;

use placet_ledger::record::EffectRecord;
use placet_types::ids::{ApprovalId, RecordId};

/// How many unowned records of the last round are remembered.
const SUSPECTS_MAX: usize = 1_000;

type Counts = Arc<Mutex<HashMap<RecordId, usize>>>;

/// The records that are being worked on.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    held: Counts,
    /// Records that were unowned in the last round, with their revisions.
    suspects: Mutex<HashMap<RecordId, u64>>,
}

/// Marks a record as being worked on.
#[derive(Debug)]
pub(crate) struct InFlightGuard {
    held: Counts,
    record_id: RecordId,
}

impl InFlight {
    /// Marks a record as being worked on until the guard is dropped.
    pub(crate) fn take(&self, record_id: RecordId) -> InFlightGuard {
        let count = &mut *self.held.lock();
        let count = count.entry(record_id).or_insert(0);
        *count = count.saturating_add(1);
        InFlightGuard { held: Arc::clone(&self.held), record_id }
    }

    fn is_held(&self, record_id: RecordId) -> bool {
        self.held.lock().contains_key(&record_id)
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

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        let mut held = self.held.lock();
        if let Some(count) = held.get_mut(&self.record_id) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                held.remove(&self.record_id);
            }
        }
    }
}

/// What is being taken up, each by one task at a time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum TakenUp {
    Approval(ApprovalId),
    Record(RecordId),
}

/// Calls that are being taken up.
#[derive(Debug, Default)]
pub(crate) struct Resuming {
    held: Arc<Mutex<HashSet<TakenUp>>>,
}

/// The right to take up a call, released on drop.
#[derive(Debug)]
pub(crate) struct ResumeGuard {
    held: Arc<Mutex<HashSet<TakenUp>>>,
    taken: TakenUp,
}

impl Resuming {
    /// The right to take up the call of an approval.
    pub(crate) fn enter(&self, approval_id: &ApprovalId) -> Option<ResumeGuard> {
        self.take(TakenUp::Approval(approval_id.clone()))
    }

    /// The right to take up a record that has no approval.
    pub(crate) fn enter_record(&self, record_id: RecordId) -> Option<ResumeGuard> {
        self.take(TakenUp::Record(record_id))
    }

    fn take(&self, taken: TakenUp) -> Option<ResumeGuard> {
        let mut held = self.held.lock();
        held.insert(taken.clone()).then(|| ResumeGuard { held: Arc::clone(&self.held), taken })
    }
}

impl Drop for ResumeGuard {
    fn drop(&mut self) {
        self.held.lock().remove(&self.taken);
    }
}
