//! What all parts of the store share: claims, health, the database's time, the head of this node's log.
//!
//! Owns nothing that lasts. Invariants: after the first fault nothing is answered any more but that fault; the time is the
//! database's, as the [`Present`] believes it: never before an entry that this node knows of, and never back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use placet_ledger::store::StoreError;
use placet_types::clock::{Clock, Timestamp};

use crate::claims::Claims;
use crate::present::Present;

/// The end of this node's log, as the database has acknowledged it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) seq: u64,
    pub(super) hash: [u8; 32],
}

impl Head {
    pub(super) const NONE: Self = Self { seq: 0, hash: [0; 32] };
}

/// This node's lease, by its own clock.
#[derive(Debug, Clone, Copy)]
struct Lease {
    until: Instant,
    /// Since when it never ran low: the database was never away for long enough to cost another live node its lease.
    steady_since: Instant,
}

/// The database's clock: what it said last, and what has passed since.
#[derive(Debug)]
struct DatabaseClock(Mutex<(Instant, i64)>);

impl DatabaseClock {
    fn set(&self, now_ms: i64) {
        *self.0.lock() = (Instant::now(), now_ms);
    }
}

impl Clock for DatabaseClock {
    fn now(&self) -> Timestamp {
        let (taken, ms) = *self.0.lock();
        let passed = i64::try_from(taken.elapsed().as_millis()).unwrap_or(i64::MAX);
        Timestamp::from_ms(ms.saturating_add(passed))
    }
}

/// Shared state.
#[derive(Debug)]
pub(super) struct State {
    pub(super) epoch: u64,
    pub(super) claims: Claims,
    clock: Arc<DatabaseClock>,
    present: Present,
    head: Mutex<Head>,
    /// The most entries that the logs of all nodes were seen to have.
    entries: AtomicU64,
    lease: Mutex<Lease>,
    closed: Mutex<Option<Instant>>,
    health: watch::Sender<Option<StoreError>>,
    #[cfg(test)]
    pub(super) hold: watch::Sender<bool>,
    #[cfg(test)]
    pub(super) hold_commit: watch::Sender<bool>,
}

impl State {
    pub(super) fn new(epoch: u64, now_ms: i64, floor_ms: i64) -> Self {
        let started = Instant::now();
        let clock = Arc::new(DatabaseClock(Mutex::new((started, now_ms))));
        let present = Present::after(Some(floor_ms), Arc::<DatabaseClock>::clone(&clock));
        Self {
            epoch,
            claims: Claims::default(),
            clock,
            present,
            head: Mutex::new(Head::NONE),
            entries: AtomicU64::new(0),
            lease: Mutex::new(Lease { until: started, steady_since: started }),
            closed: Mutex::new(None),
            health: watch::Sender::new(None),
            #[cfg(test)]
            hold: watch::Sender::new(false),
            #[cfg(test)]
            hold_commit: watch::Sender::new(false),
        }
    }

    /// Refuses after a fault and after the end.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        if let Some(fault) = self.health.borrow().as_ref() {
            return Err(fault.clone());
        }
        if self.is_closed() {
            return Err(StoreError::Stopped("it was closed".to_owned()));
        }
        Ok(())
    }

    /// The fault that the store stopped at.
    pub(super) fn fault(&self) -> Option<StoreError> {
        self.health.borrow().clone()
    }

    /// Waits while a test holds this node's tasks, as a stopped process would be held.
    pub(super) async fn held(&self) {
        #[cfg(test)]
        drop(self.hold.subscribe().wait_for(|held| !held).await);
        #[cfg(not(test))]
        std::future::ready(()).await;
    }

    /// The same, between a transaction and its commit.
    pub(super) async fn held_at_commit(&self) {
        #[cfg(test)]
        drop(self.hold_commit.subscribe().wait_for(|held| !held).await);
        #[cfg(not(test))]
        std::future::ready(()).await;
    }

    /// A fault: the store answers nothing from here on, and the process is told to end.
    pub(super) fn fail(&self, fault: StoreError) -> StoreError {
        self.health.send_if_modified(|health| {
            let first = health.is_none();
            if first {
                tracing::error!(reason = %fault, "the store stops; the process has to end and recover");
                *health = Some(fault.clone());
            }
            first
        });
        self.health.borrow().clone().unwrap_or(fault)
    }

    pub(super) fn health(&self) -> watch::Receiver<Option<StoreError>> {
        self.health.subscribe()
    }

    /// Nothing is taken any more; answers whether this is the first to say so.
    pub(super) fn close(&self) -> bool {
        self.closed.lock().replace(Instant::now()).is_none()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.lock().is_some()
    }

    /// How long ago the store was closed.
    pub(super) fn closed_for(&self) -> Duration {
        self.closed.lock().map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// The database's time now, in this process never before what it was.
    pub(super) fn now(&self) -> Timestamp {
        self.present.now()
    }

    /// The time by the database's clock, which may be behind what was recorded.
    pub(super) fn database_now(&self) -> Timestamp {
        self.clock.now()
    }

    /// How long ago that was; `None` where the database's clock has gone back since and nobody can know.
    pub(super) fn age_ms(&self, at: Timestamp) -> Option<i64> {
        self.present.age_ms(at)
    }

    /// The database has just said what time it is.
    pub(super) fn note_clock(&self, now_ms: i64) {
        self.clock.set(now_ms);
    }

    /// There is an entry of this time.
    pub(super) fn note_entry(&self, at_ms: i64) {
        self.present.note(Timestamp::from_ms(at_ms));
    }

    /// Notes how many entries the logs of all nodes have; `false`: they had more.
    pub(super) fn note_entries(&self, entries: u64) -> bool {
        self.entries.fetch_max(entries, Ordering::SeqCst) <= entries
    }

    /// The most entries that the logs of all nodes were seen to have.
    pub(super) fn entries(&self) -> u64 {
        self.entries.load(Ordering::SeqCst)
    }

    pub(super) fn head(&self) -> Head {
        *self.head.lock()
    }

    pub(super) fn set_head(&self, head: Head) {
        *self.head.lock() = head;
    }

    /// The lease was renewed by a request that was sent at `sent`: it holds from then on, since the database counts from later.
    pub(super) fn renewed(&self, sent: Instant, lease: Duration) {
        let mut held = self.lease.lock();
        let now = Instant::now();
        if held.until.saturating_duration_since(now) < low(lease) {
            held.steady_since = now;
        }
        held.until = held.until.max(sent + lease);
    }

    /// For how long the lease has never run low.
    pub(super) fn steady_for(&self, lease: Duration) -> Duration {
        let held = *self.lease.lock();
        let has_run_low = held.until.saturating_duration_since(Instant::now()) < low(lease);
        if has_run_low { Duration::ZERO } else { held.steady_since.elapsed() }
    }

    /// How long no other node may take this one's work over.
    pub(super) fn lease_left(&self) -> Duration {
        self.lease.lock().until.saturating_duration_since(Instant::now())
    }
}

/// A lease has run low when less than a third of it is left: it is renewed when two thirds are.
fn low(lease: Duration) -> Duration {
    lease.checked_div(3).unwrap_or(lease)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use placet_types::clock::Timestamp;
    use tokio::time::Instant;

    use super::State;

    const NOON: i64 = 1_800_000_000_000;
    const HOUR: i64 = 3_600_000;

    #[tokio::test(start_paused = true)]
    async fn a_database_clock_that_is_set_back_opens_no_window_again() {
        let state = State::new(1, NOON, NOON);
        let sent = state.now();
        tokio::time::advance(Duration::from_secs(120)).await;
        state.note_clock(NOON - HOUR);
        assert_eq!(state.age_ms(sent), Some(120_000));
        tokio::time::advance(Duration::from_secs(60)).await;
        state.note_clock(NOON - HOUR + 60_000);
        assert_eq!(state.age_ms(sent), Some(180_000));
        assert_eq!(state.now().as_ms(), NOON + 180_000);
        // It has caught up, and is believed again.
        state.note_clock(NOON + HOUR);
        assert_eq!(state.age_ms(sent), Some(HOUR));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_was_long_on_its_way_does_not_turn_time_back() {
        let state = State::new(1, NOON, NOON);
        tokio::time::advance(Duration::from_millis(800)).await;
        let before = state.now();
        state.note_clock(NOON + 500);
        assert_eq!((state.now(), state.age_ms(before)), (before, Some(0)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_starts_before_the_last_entry_claims_no_age_across_it() {
        let state = State::new(2, NOON - HOUR, NOON);
        assert_eq!(state.age_ms(Timestamp::from_ms(NOON - 10)), None);
        tokio::time::advance(Duration::from_secs(1)).await;
        let sent = state.now();
        assert!(sent.as_ms() > NOON);
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(state.age_ms(sent), Some(5_000));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_ran_low_is_steady_only_from_its_next_renewal_on() {
        let lease = Duration::from_secs(9);
        let (state, ms) = (State::new(1, NOON, NOON), Duration::from_millis);
        state.renewed(Instant::now(), lease);
        for (passed, is_renewed, steady) in [
            (3_000, true, 3_000),
            (6_000, true, 9_000),
            (6_000, false, 15_000),
            (1, false, 0),
            (0, true, 0),
            (3_000, true, 3_000),
        ] {
            tokio::time::advance(ms(passed)).await;
            if is_renewed {
                state.renewed(Instant::now(), lease);
            }
            assert_eq!(state.steady_for(lease), ms(steady));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_is_never_before_another_nodes_entry() {
        let state = State::new(1, NOON, NOON);
        state.note_entry(NOON + 5_000);
        assert_eq!(state.now().as_ms(), NOON + 5_000);
    }
}
