//! Clocks for tests: one that a test sets, and the time of the operating system.
//!
//! Owns both. Neither is part of the product, whose clock is in `placet`.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use placet_types::clock::{Clock, Timestamp};

/// A clock that stands still until a test moves it.
#[derive(Debug, Default)]
pub struct TestClock(AtomicI64);

impl TestClock {
    /// A clock that shows so many milliseconds since 1970.
    pub const fn new(ms: i64) -> Self {
        Self(AtomicI64::new(ms))
    }

    /// The same, shared.
    pub fn at(ms: i64) -> Arc<Self> {
        Arc::new(Self::new(ms))
    }

    /// Sets it, forwards or back.
    pub fn set(&self, ms: i64) {
        self.0.store(ms, Ordering::SeqCst);
    }

    /// Moves it on by so many milliseconds.
    pub fn advance(&self, ms: i64) {
        self.0.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_ms(self.0.load(Ordering::SeqCst))
    }
}

/// The time of the operating system, moved by so many milliseconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock {
    /// By how much.
    pub moved_ms: i64,
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one look at the time of tests")]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_ms(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
            .plus_ms(self.moved_ms)
    }
}
