//! Where the rounds stand that the engine makes again and again: over records in a state, unknown outcomes, and what is past its
//! retention.
//!
//! Owns how far each has come, so that the next goes on there. In memory alone: after a restart each begins at the front.

use std::{collections::HashMap, time::Duration};

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use placet_ledger::{
    ledger::Ledger,
    record::{Attempt, EffectRecord},
    store::{EffectQuery, StoreError},
};
use placet_types::ids::{ApprovalId, DirectiveId, RecordId, TenantId};

use crate::adapters::ports::backoff;

/// How many unknown outcomes the times of the last question are kept of.
const ASKED_KEPT: usize = 10_000;
/// How many attempts are remembered by when they came to be known; a forgotten one is waited for again.
const KNOWN_KEPT: usize = 100_000;
/// How many batches a list is given in one turn.
pub(crate) const BATCHES_MAX: usize = 200;
/// The pause between two batches, in which calls come first.
pub(crate) const PAUSE: Duration = Duration::from_millis(20);
/// A list that took longer than this rests for a multiple of the time it took: much of it is not due, and stays.
const LONG: Duration = Duration::from_secs(60);
const RESTS: u32 = 4;

/// Where every round stands.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    pub(crate) asked: Asked,
    pub(crate) asking: Cursor,
    pub(crate) overdue: Cursor,
    pub(crate) rearmed: Cursor,
    pub(crate) swept: Swept,
}

/// Where the look at the records in a state stands: each round goes on where the one before stopped, so that none is left out.
#[derive(Debug, Default)]
pub(crate) struct Cursor(Mutex<Option<RecordId>>);

impl Cursor {
    /// The next records, at most so many; after the last of them the next round begins at the front.
    pub(crate) async fn next(
        &self,
        ledger: &Ledger,
        state: &str,
        limit: usize,
    ) -> Result<Vec<EffectRecord>, StoreError> {
        let after = *self.0.lock();
        let query =
            EffectQuery { state: Some(state.to_owned()), after, limit, ..EffectQuery::default() };
        let page = ledger.store().effects(&query).await?;
        let last = page.last().filter(|_| page.len() >= limit);
        *self.0.lock() = last.map(|last| last.record_id);
        Ok(page)
    }
}

/// When which unknown outcome was last asked about, and how often.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    state: Mutex<AskedState>,
}

#[derive(Debug, Default)]
struct AskedState {
    due: HashMap<RecordId, (Instant, u32)>,
    /// Since when this process has known which attempt of a record.
    known: HashMap<RecordId, (u32, Instant)>,
}

impl Asked {
    /// Whether the record's time has come; if so its next time is later.
    pub(crate) fn is_due(&self, record_id: RecordId) -> bool {
        let mut state = self.state.lock();
        if state.due.len() >= ASKED_KEPT {
            state.due.clear();
        }
        let now = Instant::now();
        let (due, times) = state.due.get(&record_id).copied().unwrap_or((now, 0));
        if due > now {
            return false;
        }
        // From half a minute to an hour, whatever the interval of the rounds.
        let pause =
            backoff(times.saturating_add(8)).max(Duration::from_secs(u64::from(times) * 60));
        let pause = pause.min(Duration::from_secs(3_600));
        state.due.insert(record_id, (now + pause, times.saturating_add(1)));
        true
    }

    /// For how long this process has known the attempt, by a clock that nobody sets.
    pub(crate) fn known_for(&self, record_id: RecordId, attempt: &Attempt) -> Duration {
        let mut state = self.state.lock();
        if state.known.len() >= KNOWN_KEPT {
            state.known.clear();
        }
        let known = state.known.entry(record_id).or_insert((attempt.number, Instant::now()));
        if known.0 != attempt.number {
            *known = (attempt.number, Instant::now());
        }
        known.1.elapsed()
    }
}

/// One list.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum List {
    /// Records in a state: of a tenant whose time is shorter than everybody's, or all that are past everybody's.
    Records(&'static str, Option<TenantId>),
    /// Approvals that are void.
    Void,
    /// Approvals that are over.
    Approvals,
    /// Entries of the approval service that are over.
    Entries,
}

/// The last thing that was looked at in a list, and stayed.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    Record(RecordId),
    Approval(ApprovalId),
    Entry(DirectiveId),
}

/// Where a list stands.
#[derive(Debug, Default)]
struct Stand {
    /// Nothing: the next turn begins at the front.
    place: Option<Place>,
    /// How long it has taken since it was begun at the front.
    took: Duration,
    rests_until: Option<Instant>,
}

/// Where the lists stand.
#[derive(Debug, Default)]
pub(crate) struct Swept {
    lists: Mutex<HashMap<List, Stand>>,
}

impl Swept {
    fn lists(&self) -> MutexGuard<'_, HashMap<List, Stand>> {
        self.lists.lock()
    }

    fn place<T>(&self, list: &List, as_own: impl FnOnce(&Place) -> Option<T>) -> Option<T> {
        self.lists().get(list)?.place.as_ref().and_then(as_own)
    }

    pub(crate) fn record(&self, list: &List) -> Option<RecordId> {
        self.place(list, |place| match place {
            Place::Record(id) => Some(*id),
            Place::Approval(_) | Place::Entry(_) => None,
        })
    }

    pub(crate) fn approval(&self, list: &List) -> Option<ApprovalId> {
        self.place(list, |place| match place {
            Place::Approval(id) => Some(id.clone()),
            Place::Record(_) | Place::Entry(_) => None,
        })
    }

    pub(crate) fn entry(&self, list: &List) -> Option<DirectiveId> {
        self.place(list, |place| match place {
            Place::Entry(id) => Some(id.clone()),
            Place::Record(_) | Place::Approval(_) => None,
        })
    }

    /// Says where the next turn of a list begins.
    pub(crate) fn goes_on(&self, list: List, place: Option<Place>) {
        self.lists().entry(list).or_default().place = place;
    }

    /// The next turn of a list begins at the front, and so does the count of the time it takes.
    pub(crate) fn begins_again(&self, list: &List) {
        let mut lists = self.lists();
        let stand = lists.entry(list.clone()).or_default();
        (stand.place, stand.took) = (None, Duration::ZERO);
    }

    pub(crate) fn rests(&self, list: &List) -> bool {
        let lists = self.lists();
        let until = lists.get(list).and_then(|stand| stand.rests_until);
        until.is_some_and(|until| Instant::now() < until)
    }

    pub(crate) fn took(&self, list: &List, took: Duration) {
        let mut lists = self.lists();
        let stand = lists.entry(list.clone()).or_default();
        stand.took = stand.took.saturating_add(took);
    }

    /// A list was gone through to its end.
    pub(crate) fn is_through(&self, list: &List) {
        let mut lists = self.lists();
        let stand = lists.entry(list.clone()).or_default();
        let took = std::mem::take(&mut stand.took);
        let rest = if took > LONG { took.saturating_mul(RESTS) } else { Duration::ZERO };
        stand.rests_until = Instant::now().checked_add(rest);
    }
}
