//! The present: a wall clock that is trusted forward and never backward.
//!
//! Owns the time that entries carry and that ages are measured by. Not here: the clock itself, which is the program's, or a database's.
//!
//! Invariants: it is never before the last entry, and within a process it advances at least as fast as the monotonic clock: setting the
//! wall clock back cannot make a window look open that has closed at the target. Over a restart only the wall clock can tell how much time
//! passed; if it stands before the last entry it cannot, and no age across that point is claimed.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use placet_types::clock::{Clock, Timestamp};
use tokio::time::Instant;

/// How far the wall clock may fall behind the monotonic one before it is distrusted: clocks are slewed, and read one after the other.
const SLACK_MS: i64 = 1_000;

/// A known time with the instant at which it held, and the latest time returned.
struct Anchor {
    at: i64,
    since: Instant,
    told: i64,
}

/// The present of one process.
pub(crate) struct Present {
    clock: Arc<dyn Clock>,
    anchor: Mutex<Anchor>,
    /// Times up to this one come from a clock that has gone back since.
    unknown_until_ms: Option<i64>,
}

impl fmt::Debug for Present {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Present").finish_non_exhaustive()
    }
}

impl Present {
    /// The present after a last entry at `last_at_ms`.
    pub(crate) fn after(last_at_ms: Option<i64>, clock: Arc<dyn Clock>) -> Self {
        let wall = clock.now().as_ms();
        let last = last_at_ms.unwrap_or(wall);
        let unknown_until_ms = (wall < last).then_some(last);
        if unknown_until_ms.is_some() {
            tracing::warn!(
                behind_ms = last.saturating_sub(wall),
                "the clock stands before the last entry: how long ago earlier calls were sent is not known. Set it if it is behind; if it is \
                 right, it was ahead when that entry was made, and the ledger stays ahead until the clock has passed it"
            );
        }
        let at = wall.max(last);
        let anchor = Mutex::new(Anchor { at, since: Instant::now(), told: at });
        Self { clock, anchor, unknown_until_ms }
    }

    /// Now.
    pub(crate) fn now(&self) -> Timestamp {
        let wall = self.clock.now().as_ms();
        let mut anchor = self.anchor.lock();
        let passed = i64::try_from(anchor.since.elapsed().as_millis()).unwrap_or(i64::MAX);
        let monotonic = anchor.at.saturating_add(passed);
        let now = if wall >= monotonic {
            (anchor.at, anchor.since) = (wall, Instant::now());
            wall
        } else if wall.saturating_add(SLACK_MS) >= monotonic && wall >= anchor.at {
            wall
        } else {
            monotonic
        };
        anchor.told = anchor.told.max(now);
        Timestamp::from_ms(anchor.told)
    }

    /// Notes the time of an entry.
    pub(crate) fn note(&self, at: Timestamp) {
        let mut anchor = self.anchor.lock();
        if at.as_ms() > anchor.at {
            (anchor.at, anchor.since) = (at.as_ms(), Instant::now());
        }
    }

    /// How long ago `at` was; `None` where a clock that has gone back cannot tell.
    pub(crate) fn age_ms(&self, at: Timestamp) -> Option<i64> {
        let is_known = self.unknown_until_ms.is_none_or(|until| at.as_ms() > until);
        let now = self.now();
        // A time in the future comes from a clock that has gone back since.
        (is_known && now >= at).then(|| now.since_ms(at))
    }
}

impl Clock for Present {
    fn now(&self) -> Timestamp {
        Self::now(self)
    }
}

#[cfg(test)]
mod tests {
    use placet_testkit::clock::TestClock;
    use std::sync::Arc;
    use std::time::Duration;

    use placet_types::clock::Timestamp;

    use super::Present;

    const NOON: i64 = 1_800_000_000_000;
    const HOUR: i64 = 3_600_000;

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_set_back_does_not_stop_time() {
        let clock = TestClock::at(NOON);
        let present = Present::after(None, Arc::<TestClock>::clone(&clock));
        clock.set(NOON + HOUR);
        let sent = present.now();
        clock.set(NOON);
        tokio::time::advance(Duration::from_secs(120)).await;
        assert_eq!(present.age_ms(sent), Some(120_000));
        // Also where it does not fall behind the last entry.
        clock.set(NOON + 3 * HOUR);
        let sent = present.now();
        tokio::time::advance(Duration::from_secs(7_200)).await;
        clock.set(NOON + 3 * HOUR + 60_000);
        assert_eq!(present.age_ms(sent), Some(7_200_000));
    }

    #[tokio::test(start_paused = true)]
    async fn the_present_is_never_before_the_last_entry_and_follows_a_clock_that_goes_on() {
        let clock = TestClock::at(NOON);
        let present = Present::after(Some(NOON - 5), Arc::<TestClock>::clone(&clock));
        assert_eq!(present.now().as_ms(), NOON);
        present.note(Timestamp::from_ms(NOON + 7));
        assert_eq!(present.now().as_ms(), NOON + 7);
        clock.set(NOON + 50);
        assert_eq!(present.now().as_ms(), NOON + 50);
        // A clock that is read a little late, or slewed, is believed.
        tokio::time::advance(Duration::from_millis(300)).await;
        clock.set(NOON + 200);
        assert_eq!(present.now().as_ms(), NOON + 200);
    }

    #[tokio::test(start_paused = true)]
    async fn no_age_is_claimed_across_a_restart_with_a_clock_before_the_last_entry() {
        let present = Present::after(Some(NOON), TestClock::at(NOON - HOUR));
        let earlier = Timestamp::from_ms(NOON - 10);
        assert_eq!(present.age_ms(earlier), None);
        assert_eq!(present.age_ms(Timestamp::from_ms(NOON)), None);
        tokio::time::advance(Duration::from_secs(1)).await;
        let later = present.now();
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(present.age_ms(later), Some(5_000));
        let sound = Present::after(Some(NOON), TestClock::at(NOON + 1));
        assert_eq!(sound.age_ms(earlier), Some(11));
    }
}
