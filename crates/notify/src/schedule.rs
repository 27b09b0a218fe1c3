//! When a message goes out: at once, with a digest, or after the quiet hours.
//!
//! Owns the arithmetic of digests and quiet hours. Does not own a clock. Invariant: the time at which a message is due follows from the
//! time of what it tells of alone, so that a restart gathers the same digest again.

use std::{fmt, str::FromStr};

use placet_types::clock::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

const DAY_MS: i64 = 86_400_000;
const MINUTE_MS: i64 = 60_000;

/// A time of the day or a distance from UTC that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {wanted}")]
pub struct TimeError {
    text: String,
    wanted: &'static str,
}

fn two_digits(text: &str, below: i64) -> Option<i64> {
    let digits = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| digits && *number < below)
}

fn minutes(text: &str) -> Option<i64> {
    let (hours, minutes) = text.split_once(':')?;
    let (hours, minutes) = (two_digits(hours, 24)?, two_digits(minutes, 60)?);
    hours.checked_mul(60)?.checked_add(minutes)
}

/// A time of the day, such as `22:00`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String", extend("pattern" = "^([01][0-9]|2[0-3]):[0-5][0-9]$"))]
pub struct DayTime(i64);

impl FromStr for DayTime {
    type Err = TimeError;
    fn from_str(text: &str) -> Result<Self, TimeError> {
        let wanted = "a time of the day, such as `22:00`";
        minutes(text).map(Self).ok_or_else(|| TimeError { text: text.to_owned(), wanted })
    }
}

impl fmt::Display for DayTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}", self.0.div_euclid(60), self.0.rem_euclid(60))
    }
}

/// A distance from UTC, such as `+02:00`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String", extend("pattern" = "^[+-]([01][0-9]|2[0-3]):[0-5][0-9]$"))]
pub struct UtcOffset(i64);

impl FromStr for UtcOffset {
    type Err = TimeError;
    fn from_str(text: &str) -> Result<Self, TimeError> {
        let wanted = "a distance from UTC, such as `+02:00`";
        let east = text.strip_prefix('+').and_then(minutes);
        let west = text.strip_prefix('-').and_then(minutes).map(i64::saturating_neg);
        east.or(west).map(Self).ok_or_else(|| TimeError { text: text.to_owned(), wanted })
    }
}

impl fmt::Display for UtcOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { '-' } else { '+' };
        write!(f, "{sign}{}", DayTime(self.0.saturating_abs()))
    }
}

macro_rules! as_text {
    ($name:ident) => {
        impl TryFrom<String> for $name {
            type Error = TimeError;
            fn try_from(text: String) -> Result<Self, TimeError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(time: $name) -> Self {
                time.to_string()
            }
        }
    };
}
as_text!(DayTime);
as_text!(UtcOffset);

/// Hours in which nothing goes out but what cannot wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Quiet {
    /// When they begin.
    pub from: DayTime,
    /// When they end; before `from`: on the next day.
    pub to: DayTime,
    /// The distance of these times from UTC. It does not follow summer time.
    #[serde(default)]
    pub utc_offset: UtcOffset,
}

impl Quiet {
    /// When the quiet hours end in which `at` lies; nothing when it lies in none.
    #[must_use]
    pub fn end_after(&self, at: Timestamp) -> Option<Timestamp> {
        let local = at.as_ms().saturating_add(self.utc_offset.0.saturating_mul(MINUTE_MS));
        let in_day = local.rem_euclid(DAY_MS);
        let (from, to) =
            (self.from.0.saturating_mul(MINUTE_MS), self.to.0.saturating_mul(MINUTE_MS));
        let is_quiet =
            if from <= to { (from..to).contains(&in_day) } else { in_day >= from || in_day < to };
        let left = to.saturating_sub(in_day).rem_euclid(DAY_MS);
        is_quiet.then(|| at.plus_ms(left))
    }

    /// Whether they have a length.
    #[must_use]
    pub fn is_some_time(&self) -> bool {
        self.from != self.to
    }
}

/// When things are due on a channel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pace {
    /// How long messages are gathered.
    pub every_ms: Option<u64>,
    /// When nothing goes out.
    pub quiet: Option<Quiet>,
}

impl Pace {
    /// When a message goes out that tells of something at `at`; nothing: at once, by itself. Messages with the same answer go out together.
    #[must_use]
    pub fn due(&self, at: Timestamp) -> Option<Timestamp> {
        let every = self.every_ms.and_then(|every| i64::try_from(every).ok()).filter(|ms| *ms > 0);
        let gathered = every.map(|every| {
            let into = at.as_ms().rem_euclid(every);
            at.plus_ms(every.saturating_sub(into))
        });
        let quiet_at = gathered.unwrap_or(at);
        self.quiet.and_then(|quiet| quiet.end_after(quiet_at)).or(gathered)
    }
}

#[cfg(test)]
mod tests {
    use placet_types::clock::Timestamp;

    use super::{Pace, Quiet};

    /// 2026-11-22, so many minutes after midnight, in UTC.
    fn at(hour: i64, minute: i64) -> Timestamp {
        Timestamp::from_ms(1_795_305_600_000)
            .plus_ms(hour.saturating_mul(60).saturating_add(minute).saturating_mul(60_000))
    }

    fn night(offset: &str) -> Quiet {
        Quiet {
            from: "22:00".parse().unwrap(),
            to: "07:00".parse().unwrap(),
            utc_offset: offset.parse().unwrap(),
        }
    }

    #[test]
    fn quiet_hours_end_in_the_morning_of_their_own_zone() {
        for (offset, from, end) in [
            ("+00:00", at(23, 15), Some(at(31, 0))),
            ("+00:00", at(3, 0), Some(at(7, 0))),
            ("+00:00", at(7, 0), None),
            ("+00:00", at(21, 59), None),
            ("+02:00", at(20, 0), Some(at(29, 0))),
            ("+02:00", at(5, 0), None),
            ("-05:30", at(3, 30), Some(at(12, 30))),
        ] {
            assert_eq!(night(offset).end_after(from), end, "{offset} {from}");
        }
        let lunch = Quiet {
            from: "12:00".parse().unwrap(),
            to: "13:00".parse().unwrap(),
            ..night("+00:00")
        };
        assert_eq!(lunch.end_after(at(12, 30)), Some(at(13, 0)));
        assert_eq!(lunch.end_after(at(13, 0)), None);
    }

    #[test]
    fn a_digest_is_due_at_the_end_of_its_time_or_of_the_quiet_hours() {
        let pace = Pace { every_ms: Some(1_800_000), quiet: Some(night("+00:00")) };
        assert_eq!(pace.due(at(9, 1)), Some(at(9, 30)));
        assert_eq!(pace.due(at(9, 29)), Some(at(9, 30)));
        assert_eq!(pace.due(at(9, 30)), Some(at(10, 0)));
        assert_eq!(pace.due(at(21, 45)), Some(at(31, 0)), "it would be due as the quiet begins");
        assert_eq!(pace.due(at(2, 0)), Some(at(7, 0)));
        let only_quiet = Pace { every_ms: None, quiet: Some(night("+00:00")) };
        assert_eq!(only_quiet.due(at(9, 1)), None);
        assert_eq!(only_quiet.due(at(23, 1)), Some(at(31, 0)));
        assert_eq!(Pace::default().due(at(23, 1)), None);
    }

    #[test]
    fn times_are_read_as_they_are_written_and_nothing_else_is_one() {
        for text in ["00:00", "23:59", "07:05"] {
            assert_eq!(text.parse::<super::DayTime>().unwrap().to_string(), text);
        }
        for text in ["24:00", "7:00", "07:60", "07.00", "+7:00", ""] {
            assert!(text.parse::<super::DayTime>().is_err(), "{text}");
        }
        for text in ["+00:00", "-05:30", "+14:00"] {
            assert_eq!(text.parse::<super::UtcOffset>().unwrap().to_string(), text);
        }
        assert!("02:00".parse::<super::UtcOffset>().is_err());
    }
}
