//! How times are spread.

use serde::Serialize;

/// Times in milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Spread {
    /// How many.
    pub count: u64,
    /// The middle one.
    pub p50_ms: u64,
    /// All but one in a hundred are no longer.
    pub p99_ms: u64,
    /// The longest.
    pub max_ms: u64,
    /// All of them, in order.
    #[serde(skip)]
    pub times: Vec<u64>,
}

impl Spread {
    /// Sums times up.
    #[must_use]
    pub fn of(mut times: Vec<u64>) -> Self {
        times.sort_unstable();
        let count = times.len();
        // The smallest time that so many hundredths do not exceed.
        let at = |hundredths: usize| {
            let place = count.saturating_mul(hundredths).div_ceil(100).saturating_sub(1);
            times.get(place).copied().unwrap_or_default()
        };
        Self {
            count: u64::try_from(count).unwrap_or(u64::MAX),
            p50_ms: at(50),
            p99_ms: at(99),
            max_ms: times.last().copied().unwrap_or_default(),
            times,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Spread;

    #[test]
    fn the_middle_the_hundredth_and_the_longest() {
        let spread = Spread::of((1..=200).rev().collect());
        assert_eq!(
            (spread.count, spread.p50_ms, spread.p99_ms, spread.max_ms),
            (200, 100, 198, 200)
        );
    }

    #[test]
    fn no_times_are_no_trouble() {
        assert_eq!(Spread::of(Vec::new()), Spread::default());
        assert_eq!(Spread::of(vec![7]).p99_ms, 7);
    }
}
