//! Numbers from samples: rates, percentiles, medians.
//!
//! Owns the arithmetic. Invariant: a number that the samples do not support is absent, never zero.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Latencies of calls that ended, and how long it took to make them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    /// One for each call.
    pub(crate) latencies: Vec<Duration>,
    /// The time over which they were made.
    pub(crate) elapsed: Duration,
}

impl Sample {
    /// Adds one call, made after the others.
    pub(crate) fn add(&mut self, latency: Duration) {
        self.latencies.push(latency);
        self.elapsed = self.elapsed.saturating_add(latency);
    }

    /// Adds the sample of another round.
    pub(crate) fn join(&mut self, other: Self) {
        self.latencies.extend(other.latencies);
        self.elapsed = self.elapsed.saturating_add(other.elapsed);
    }

    /// The numbers, if there were any calls.
    pub(crate) fn counts(&self) -> Option<Numbers> {
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        Some(Numbers {
            calls: sorted.len(),
            per_second: rate(sorted.len(), self.elapsed)?,
            p50_ms: milliseconds(percentile(&sorted, 50)?),
            p99_ms: milliseconds(percentile(&sorted, 99)?),
        })
    }
}

/// The numbers of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Numbers {
    /// How many calls.
    pub(crate) calls: usize,
    /// Calls per second.
    pub(crate) per_second: f64,
    /// The latency that half of them kept below.
    pub(crate) p50_ms: f64,
    /// The latency that 99 of 100 kept below.
    pub(crate) p99_ms: f64,
}

/// The smallest sample that at least `percent` of all samples do not exceed (nearest rank).
fn percentile(sorted: &[Duration], percent: usize) -> Option<Duration> {
    let rank = sorted.len().checked_mul(percent)?.div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied()
}

/// The number per second.
fn rate(count: usize, elapsed: Duration) -> Option<f64> {
    let seconds = elapsed.as_secs_f64();
    (seconds > 0.0).then(|| number(u64::try_from(count).unwrap_or(u64::MAX)) / seconds)
}

/// The middle value; for an even number of values, the mean of the two middle ones.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len().div_euclid(2))?;
    let lower = *sorted.get(sorted.len().saturating_sub(1).div_euclid(2))?;
    Some(f64::midpoint(lower, upper))
}

/// A duration in milliseconds.
pub(crate) fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}

/// A count as a number to divide; exact up to 2⁵².
pub(crate) fn number(count: u64) -> f64 {
    let high = u32::try_from(count >> 32).map_or(f64::INFINITY, f64::from);
    let low = u32::try_from(count & u64::from(u32::MAX)).map_or(0.0, f64::from);
    high * 4_294_967_296.0 + low
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Sample, median, number, percentile, rate};

    fn ms(values: &[u64]) -> Vec<Duration> {
        values.iter().copied().map(Duration::from_millis).collect()
    }

    #[test]
    fn a_percentile_is_a_value_that_was_measured() {
        let hundred: Vec<Duration> = (1..=100).map(Duration::from_millis).collect();
        assert_eq!(percentile(&hundred, 50), Some(Duration::from_millis(50)));
        assert_eq!(percentile(&hundred, 99), Some(Duration::from_millis(99)));
        assert_eq!(percentile(&hundred, 100), Some(Duration::from_millis(100)));
        assert_eq!(percentile(&ms(&[7]), 99), Some(Duration::from_millis(7)));
        assert_eq!(percentile(&ms(&[1, 2]), 99), Some(Duration::from_millis(2)));
        assert_eq!(percentile(&ms(&[1, 2, 3]), 50), Some(Duration::from_millis(2)));
    }

    #[test]
    fn of_nothing_there_are_no_counts() {
        assert_eq!(percentile(&[], 50), None);
        assert_eq!(median(&[]), None);
        assert_eq!(rate(5, Duration::ZERO), None);
        assert_eq!(Sample::default().counts(), None);
        assert_eq!(Sample { elapsed: Duration::from_secs(1), latencies: vec![] }.counts(), None);
    }

    #[test]
    fn a_median_lies_between_the_two_in_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&[9.0]), Some(9.0));
    }

    #[test]
    fn rounds_are_joined_before_anything_is_computed() {
        let mut sample = Sample { latencies: ms(&[30, 10]), elapsed: Duration::from_secs(1) };
        sample.join(Sample { latencies: ms(&[20]), elapsed: Duration::from_secs(2) });
        let counts = sample.counts().unwrap();
        assert_eq!((counts.calls, counts.per_second), (3, 1.0));
        assert!((counts.p50_ms - 20.0).abs() < 1e-9, "{counts:?}");
        assert!((counts.p99_ms - 30.0).abs() < 1e-9, "{counts:?}");
    }

    #[test]
    fn large_counts_stay_exact() {
        assert_eq!(number(0), 0.0);
        assert_eq!(number(25_000_000_001), 25_000_000_001.0);
    }
}
