//! Time and fresh identifiers as inputs, so that tests and replays can determine them.
//!
//! Owns the traits and [`Timestamp`]. Does not read a clock: the binary hands one in (ARCHITECTURE.md).

use std::fmt;

use chrono::{DateTime, SecondsFormat};
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
    /// RFC 3339 in UTC with milliseconds; beyond the calendar, which ends after 262,000 years, the milliseconds alone.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match DateTime::from_timestamp_millis(self.0) {
            Some(moment) => f.write_str(&moment.to_rfc3339_opts(SecondsFormat::Millis, true)),
            None => write!(f, "{} ms", self.0),
        }
    }
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
            (253_402_300_800_000, "+10000-01-01T00:00:00.000Z"),
            (i64::MIN, "-9223372036854775808 ms"),
        ] {
            assert_eq!(Timestamp::from_ms(ms).to_string(), text);
        }
    }
}
