//! How far the periodic rounds have come: over records in a state, and over unknown outcomes.
//!
//! Owns the cursors, so that each round continues where the previous one stopped. In memory only: after a restart each begins at the front.

use std::{collections::HashMap, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use placet_ledger::{
    ledger::Ledger,
    record::{Attempt, EffectRecord},
    store::{EffectQuery, StoreError},
};
use placet_types::ids::{RecordId, RecordPlace};

use crate::adapters::ports::backoff;

/// For how many unknown outcomes the time of the last question is remembered.
const ASKED_KEPT: usize = 10_000;
/// For how many attempts it is remembered when this process first knew of them; after that the wait begins again.
const KNOWN_KEPT: usize = 100_000;

/// The state of every round.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    pub(crate) asked: Asked,
    pub(crate) asking: Cursor,
    pub(crate) overdue: Cursor,
    pub(crate) rearmed: Cursor,
}

/// The cursor over the records in a state: each round continues where the previous one stopped, so that none is left out.
#[derive(Debug, Default)]
pub(crate) struct Cursor(Mutex<Option<RecordPlace>>);

impl Cursor {
    /// The next records, `limit` at most; after the last of them the next round begins at the front.
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
        *self.0.lock() = last.map(EffectRecord::place);
        Ok(page)
    }
}

/// When each unknown outcome was last asked about, and how often.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    due: Mutex<HashMap<RecordId, (Instant, u32)>>,
    /// The attempt of each record that this process knows of, and since when.
    known: Mutex<HashMap<RecordId, (u32, Instant)>>,
}

impl Asked {
    /// Whether the record is due; if so, sets when it is due next.
    pub(crate) fn is_due(&self, record_id: RecordId) -> bool {
        let mut asked = self.due.lock();
        if asked.len() >= ASKED_KEPT {
            asked.clear();
        }
        let now = Instant::now();
        let (due, times) = asked.get(&record_id).copied().unwrap_or((now, 0));
        if due > now {
            return false;
        }
        // From half a minute to an hour, whatever the interval of the rounds.
        let pause =
            backoff(times.saturating_add(8)).max(Duration::from_secs(u64::from(times) * 60));
        let pause = pause.min(Duration::from_secs(3_600));
        asked.insert(record_id, (now + pause, times.saturating_add(1)));
        true
    }

    /// How long this process has known of the attempt, by the monotonic clock.
    pub(crate) fn known_for(&self, record_id: RecordId, attempt: &Attempt) -> Duration {
        let mut all = self.known.lock();
        if all.len() >= KNOWN_KEPT {
            all.clear();
        }
        let known = all.entry(record_id).or_insert((attempt.number, Instant::now()));
        if known.0 != attempt.number {
            *known = (attempt.number, Instant::now());
        }
        known.1.elapsed()
    }
}
