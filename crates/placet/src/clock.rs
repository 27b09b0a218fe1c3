//! The clock and the source of identifiers: the only module that asks the operating system for the time.
//!
//! Owns reading the time. Everything else takes a [`Clock`]. Invariant: identifiers of one process are strictly increasing.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use placet_types::clock::{Clock, IdSource, Timestamp};

/// The time of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SystemClock;

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one clock that all others stand for"
    )]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_ms(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}

/// ULIDs over a clock, increasing within the process.
#[derive(Debug)]
pub(crate) struct UlidSource<C> {
    clock: C,
    generator: Mutex<ulid::Generator>,
}

impl<C: Clock> UlidSource<C> {
    /// Identifiers by this clock.
    pub(crate) fn new(clock: C) -> Self {
        Self { clock, generator: Mutex::new(ulid::Generator::new()) }
    }
}

impl<C: Clock> IdSource for UlidSource<C> {
    fn fresh(&self) -> String {
        let now_ms = u64::try_from(self.clock.now().as_ms()).unwrap_or(0);
        let at = UNIX_EPOCH.checked_add(Duration::from_millis(now_ms)).unwrap_or(UNIX_EPOCH);
        let mut generator = self.generator.lock();
        // 2^80 identifiers of one millisecond are never used up; were they, the next millisecond's come early.
        generator
            .generate_from_datetime(at)
            .unwrap_or_else(ulid::Overflow::commit_overflow_increment)
            .to_string()
    }
}

#[cfg(test)]
mod tests {
    use placet_testkit::clock::TestClock;
    use placet_types::clock::{Clock as _, IdSource as _, Timestamp};

    use super::{SystemClock, UlidSource};

    #[test]
    fn identifiers_increase_even_within_a_millisecond() {
        let ids = UlidSource::new(TestClock::new(1_767_225_600_000));
        let made: Vec<String> = (0..1_000).map(|_| ids.fresh()).collect();
        assert!(made.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(made.iter().all(|id| id.len() == 26));
    }

    #[test]
    fn the_clock_is_in_this_century() {
        assert!(SystemClock.now() > Timestamp::from_ms(1_700_000_000_000));
    }
}
