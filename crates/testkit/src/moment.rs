//! When something was observed.
//!
//! Owns the two clocks of an observation. Invariant: the monotonic one counts from the machine's start, so that what different
//! processes of one machine note is in one order; the wall clock is there to be compared with what a ledger notes.

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// One moment on this machine.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Moment {
    /// Microseconds since the machine started.
    pub us: u64,
    /// Milliseconds since 1970.
    pub wall_ms: i64,
}

impl Moment {
    /// This moment.
    pub fn now() -> Self {
        let (mono, wall) = (clock_gettime(ClockId::Monotonic), clock_gettime(ClockId::Realtime));
        let us = mono.tv_sec.saturating_mul(1_000_000).saturating_add(mono.tv_nsec / 1_000);
        let wall_ms = wall.tv_sec.saturating_mul(1_000).saturating_add(wall.tv_nsec / 1_000_000);
        Self { us: u64::try_from(us).unwrap_or_default(), wall_ms }
    }

    /// How many milliseconds lie between `earlier` and this one; zero when it is not earlier.
    pub const fn ms_since(self, earlier: Self) -> u64 {
        self.us.saturating_sub(earlier.us) / 1_000
    }
}

#[cfg(test)]
mod tests {
    use super::Moment;

    #[test]
    fn time_goes_forward() {
        let first = Moment::now();
        let second = Moment::now();
        assert!(second.us >= first.us && first.us > 0);
        assert!(first.wall_ms > 1_700_000_000_000, "{first:?}");
    }

    #[test]
    fn a_span_is_never_negative() {
        let (early, late) = (Moment { us: 1_000, wall_ms: 0 }, Moment { us: 9_500, wall_ms: 0 });
        assert_eq!((late.ms_since(early), early.ms_since(late)), (8, 0));
    }
}
