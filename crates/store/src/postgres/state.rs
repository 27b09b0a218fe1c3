//! What all parts of the store share: claims, health, the database's time, the head of this node's log.
//!
//! Owns nothing that lasts. Invariants: after the first fault nothing is answered any more but that fault; the time is the
//! database's and never before an entry that this node knows of.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use placet_ledger::store::StoreError;
use placet_types::clock::Timestamp;

use super::claims::Claims;

/// The end of this node's log, as the database has acknowledged it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) seq: u64,
    pub(super) hash: [u8; 32],
}

impl Head {
    pub(super) const NONE: Self = Self { seq: 0, hash: [0; 32] };
}

#[derive(Debug, Clone, Copy)]
struct Reading {
    taken: Instant,
    ms: i64,
}

/// Shared state.
#[derive(Debug)]
pub(super) struct State {
    pub(super) epoch: u64,
    pub(super) claims: Claims,
    reading: Mutex<Reading>,
    floor: AtomicI64,
    head: Mutex<Head>,
    lease_until: Mutex<Instant>,
    closed: Mutex<Option<Instant>>,
    health: watch::Sender<Option<StoreError>>,
    #[cfg(test)]
    pub(super) hold: watch::Sender<bool>,
    #[cfg(test)]
    pub(super) hold_commit: watch::Sender<bool>,
}

impl State {
    pub(super) fn new(epoch: u64, now_ms: i64, floor_ms: i64, lease: Duration) -> Self {
        let taken = Instant::now();
        Self {
            epoch,
            claims: Claims::default(),
            reading: Mutex::new(Reading { taken, ms: now_ms }),
            floor: AtomicI64::new(floor_ms),
            head: Mutex::new(Head::NONE),
            lease_until: Mutex::new(taken + lease),
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
        lock(&self.closed).replace(Instant::now()).is_none()
    }

    pub(super) fn is_closed(&self) -> bool {
        lock(&self.closed).is_some()
    }

    /// How long ago the store was closed.
    pub(super) fn closed_for(&self) -> Duration {
        lock(&self.closed).map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// The database's time now: what it said last, and what has passed since; never before the last entry.
    pub(super) fn now(&self) -> Timestamp {
        let Reading { taken, ms } = *lock(&self.reading);
        let passed = i64::try_from(taken.elapsed().as_millis()).unwrap_or(i64::MAX);
        let now = ms.saturating_add(passed).max(self.floor.load(Ordering::Acquire));
        Timestamp::from_ms(now)
    }

    /// The database has just said what time it is.
    pub(super) fn note_clock(&self, now_ms: i64) {
        *lock(&self.reading) = Reading { taken: Instant::now(), ms: now_ms };
    }

    /// There is an entry of this time.
    pub(super) fn note_entry(&self, at_ms: i64) {
        self.floor.fetch_max(at_ms, Ordering::AcqRel);
    }

    pub(super) fn floor_ms(&self) -> i64 {
        self.floor.load(Ordering::Acquire)
    }

    pub(super) fn head(&self) -> Head {
        *lock(&self.head)
    }

    pub(super) fn set_head(&self, head: Head) {
        *lock(&self.head) = head;
    }

    /// The lease was renewed by a request that was sent at `sent`: it holds from then on, since the database counts from later.
    pub(super) fn renewed(&self, sent: Instant, lease: Duration) {
        let mut until = lock(&self.lease_until);
        *until = (*until).max(sent + lease);
    }

    /// How long no other node may take this one's work over.
    pub(super) fn lease_left(&self) -> Duration {
        lock(&self.lease_until).saturating_duration_since(Instant::now())
    }
}

// Nothing can panic while a lock is held, so a poisoned lock still guards sound values.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
