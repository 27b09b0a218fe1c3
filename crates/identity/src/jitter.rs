//! How long to wait after something failed, and how waits are spread.
//!
//! Owns the arithmetic and its randomness. Invariant: no wait is longer than what it is a part of, and none is nothing.

use std::time::Duration;

use rand::Rng as _;

const BACKOFF_FIRST: Duration = Duration::from_millis(500);
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// The pause after this many failures in a row.
pub(crate) fn backoff(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(8);
    let pause = BACKOFF_FIRST.saturating_mul(2_u32.saturating_pow(doublings));
    less_a_tenth(pause.min(BACKOFF_MAX))
}

/// A time, less up to a tenth of it.
pub(crate) fn less_a_tenth(whole: Duration) -> Duration {
    whole.mul_f64(rand::rng().random_range(0.9..=1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_half_a_minute_and_no_further() {
        assert!(backoff(1) <= Duration::from_millis(500));
        assert!(backoff(3) > backoff(1));
        for failures in [20, u32::MAX] {
            assert!((Duration::from_secs(27)..=BACKOFF_MAX).contains(&backoff(failures)));
        }
    }
}
