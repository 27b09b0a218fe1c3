//! Which records somebody in this process is at work on, so that those nobody is at work on can be found.
//!
//! Owns the counts and the search. Not here: what is done about a record, which is recovery's. Invariant I13: a dispatch whose duty is
//! this process's and that no task holds any more is found, whatever became of its task: a commit that was kept though nobody could be
//! told, a part of the engine that failed, a read that the ledger refused.

use std::{collections::HashMap, sync::Arc};

use parking_lot::{Mutex, MutexGuard};

use placet_ledger::{
    record::{EffectRecord, EffectState},
    store::EffectQuery,
};
use placet_types::ids::RecordId;

use crate::{context::Context, fleet, recovery};

/// How many dispatched records are looked at in one round.
const PAGE: usize = 1_000;
/// How long after its deadline a dispatch may be without a task before it is looked at, in milliseconds.
const OVERDUE_MS: i64 = 2_000;

type Counts = Arc<Mutex<HashMap<RecordId, usize>>>;

/// The records that somebody is at work on.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    held: Counts,
    search: Mutex<Search>,
}

/// Where the search stands, and which records it found that nothing owns, with their revisions.
#[derive(Debug, Default)]
struct Search {
    after: Option<RecordId>,
    suspects: HashMap<RecordId, u64>,
}

/// One who is at work on a record.
#[derive(Debug)]
pub(crate) struct InFlightGuard {
    held: Counts,
    record_id: RecordId,
}

impl InFlight {
    /// Says that somebody is at work on a record until the hand is dropped.
    pub(crate) fn take(&self, record_id: RecordId) -> InFlightGuard {
        let count = &mut *lock(&self.held);
        let count = count.entry(record_id).or_insert(0);
        *count = count.saturating_add(1);
        InFlightGuard { held: Arc::clone(&self.held), record_id }
    }

    fn is_held(&self, record_id: RecordId) -> bool {
        lock(&self.held).contains_key(&record_id)
    }

    /// Those that nobody holds and nobody held at the last look either. A record on its way from one hand to another is
    /// held at one of the two.
    fn dropped(&self, overdue: impl Iterator<Item = EffectRecord>) -> Vec<EffectRecord> {
        let mut search = lock(&self.search);
        if search.suspects.len() > PAGE {
            search.suspects.clear();
        }
        let mut dropped = Vec::new();
        for record in overdue {
            if self.is_held(record.record_id) {
                search.suspects.remove(&record.record_id);
            } else if search.suspects.get(&record.record_id) == Some(&record.rev) {
                search.suspects.remove(&record.record_id);
                dropped.push(record);
            } else {
                search.suspects.insert(record.record_id, record.rev);
            }
        }
        dropped
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        let mut held = lock(&self.held);
        if let Some(count) = held.get_mut(&self.record_id) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                held.remove(&self.record_id);
            }
        }
    }
}
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

/// One look for dispatches of this process that nobody is at work on; they are recovered by class.
pub(crate) async fn look(context: &Arc<Context>) {
    if context.is_ending() || context.node.health().is_ledger_lost() {
        return;
    }
    let query = EffectQuery {
        state: Some("dispatched".to_owned()),
        after: lock(&context.hands.search).after,
        limit: PAGE,
        ..EffectQuery::default()
    };
    let page = match context.ledger.store().effects(&query).await {
        Ok(page) => page,
        Err(error) => return context.noticed(&error.into()),
    };
    let next = page.last().filter(|_| page.len() >= PAGE).map(|last| last.record_id);
    lock(&context.hands.search).after = next;
    let overdue = page.into_iter().filter(|record| is_overdue(context, record));
    let dropped = context.hands.dropped(overdue);
    if dropped.is_empty() {
        return;
    }
    tracing::warn!(
        calls = dropped.len(),
        "calls under way that nobody was at work on are recovered"
    );
    recovery::recover(context, dropped).await;
}

/// Whether it is this process's to settle, and it has expired.
fn is_overdue(context: &Context, record: &EffectRecord) -> bool {
    let EffectState::Dispatched(attempt) = &record.state else { return false };
    let over = attempt.deadline_at.plus_ms(OVERDUE_MS) < context.ledger.store().now();
    over && fleet::is_ours(context, record)
}
