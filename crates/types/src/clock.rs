//! Time and fresh identifiers as inputs, so that tests and replays can determine them.
//!
//! Owns the traits and [`Timestamp`]. Does not read a clock: the binary hands one in (ARCHITECTURE.md).

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Milliseconds since the Unix epoch (UTC).
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Default,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The moment `ms` milliseconds after the Unix epoch.
    pub const fn from_ms(ms: i64) -> Self {
        Self(ms)
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_ms(self) -> i64 {
        self.0
    }

    /// This moment and `ms` milliseconds more; stays at the end of time instead of wrapping.
    #[must_use]
    pub const fn plus_ms(self, ms: i64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to this moment; negative when `earlier` is later.
    pub const fn since_ms(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC with milliseconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let days = self.0.div_euclid(86_400_000);
        let ms = self.0.rem_euclid(86_400_000);
        let (year, month, day) = civil_from_days(days);
        let (hour, minute) =
            (ms.div_euclid(3_600_000), ms.rem_euclid(3_600_000).div_euclid(60_000));
        let (second, milli) = (ms.rem_euclid(60_000).div_euclid(1_000), ms.rem_euclid(1_000));
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
    }
}

/// The proleptic Gregorian date of a day counted from 1970-01-01, by counting 400-year eras that start on 1 March.
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days.saturating_add(719_468);
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let leap_days = day_of_era
        .div_euclid(1_460)
        .saturating_neg()
        .saturating_add(day_of_era.div_euclid(36_524))
        .saturating_sub(day_of_era.div_euclid(146_096));
    let year_of_era = day_of_era.saturating_add(leap_days).div_euclid(365);
    let day_of_year = day_of_era.saturating_sub(
        year_of_era
            .saturating_mul(365)
            .saturating_add(year_of_era.div_euclid(4))
            .saturating_sub(year_of_era.div_euclid(100)),
    );
    let month_from_march = day_of_year.saturating_mul(5).saturating_add(2).div_euclid(153);
    let day = day_of_year
        .saturating_sub(month_from_march.saturating_mul(153).saturating_add(2).div_euclid(5))
        .saturating_add(1);
    let month = if month_from_march < 10 {
        month_from_march.saturating_add(3)
    } else {
        month_from_march.saturating_sub(9)
    };
    let year =
        year_of_era.saturating_add(era.saturating_mul(400)).saturating_add(i64::from(month <= 2));
    (year, month, day)
}

/// The source of the time.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The present moment. Deadlines inside one process use the runtime's monotonic clock instead.
    fn now(&self) -> Timestamp;
}

/// The source of fresh identifiers.
pub trait IdSource: Send + Sync + fmt::Debug {
    /// A fresh text of 26 letters and digits, never returned before, later ones sorting after earlier ones.
    fn fresh(&self) -> String;
}

#[cfg(test)]
mod tests {
    use super::Timestamp;

    #[test]
    fn a_timestamp_reads_as_rfc_3339() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_795_305_599_999, "2026-11-21T23:59:59.999Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(Timestamp::from_ms(ms).to_string(), text);
        }
    }
}
