//! When a message goes out: at once, with a digest, or after the quiet hours.
//!
//! Owns the arithmetic of digests and quiet hours. Does not own a clock. Invariant: the time at which a message is due follows from the
//! time of its event alone, so that a restart gathers the same digest again.

use std::{fmt::Display, str::FromStr};

use chrono::{FixedOffset, NaiveTime, Offset as _, Timelike as _, Utc};
use placet_types::clock::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

const DAY_MS: i64 = 86_400_000;

fn read<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    let text = String::deserialize(from)?;
    text.parse().map_err(|error| {
        let wanted = "a time such as `22:00`, or a distance from UTC such as `+02:00`";
        D::Error::custom(format!("`{text}` is not {wanted}: {error}"))
    })
}

fn write<S: Serializer>(time: &impl Display, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(time)
}

fn utc() -> FixedOffset {
    Utc.fix()
}

/// Hours in which nothing is sent but the events in `at_once`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Quiet {
    /// The start, such as `22:00`.
    #[serde(deserialize_with = "read", serialize_with = "write")]
    #[schemars(with = "String", extend("pattern" = "^([01][0-9]|2[0-3]):[0-5][0-9]$"))]
    pub from: NaiveTime,
    /// The end, such as `07:00`. If it is before `from`, it is on the next day.
    #[serde(deserialize_with = "read", serialize_with = "write")]
    #[schemars(with = "String", extend("pattern" = "^([01][0-9]|2[0-3]):[0-5][0-9]$"))]
    pub to: NaiveTime,
    /// The offset of these times from UTC, such as `+02:00`. It does not follow daylight saving time.
    #[serde(default = "utc", deserialize_with = "read", serialize_with = "write")]
    #[schemars(with = "String", extend("pattern" = "^[+-]([01][0-9]|2[0-3]):[0-5][0-9]$"))]
    pub utc_offset: FixedOffset,
}

impl Quiet {
    /// When the quiet hours around `at` end; `None` when `at` is outside of them.
    fn end_after(&self, at: Timestamp) -> Option<Timestamp> {
        let in_ms = |seconds: i64| seconds.saturating_mul(1_000);
        let of_day = |time: NaiveTime| in_ms(i64::from(time.num_seconds_from_midnight()));
        let east = in_ms(i64::from(self.utc_offset.local_minus_utc()));
        let in_day = at.as_ms().saturating_add(east).rem_euclid(DAY_MS);
        let (from, to) = (of_day(self.from), of_day(self.to));
        let is_quiet =
            if from <= to { (from..to).contains(&in_day) } else { in_day >= from || in_day < to };
        let left = to.saturating_sub(in_day).rem_euclid(DAY_MS);
        is_quiet.then(|| at.plus_ms(left))
    }
}

/// When a message about an event at `at` goes out; `None`: at once, by itself. Messages with the same due time go out together.
pub(crate) fn due(every_ms: Option<u64>, quiet: Option<Quiet>, at: Timestamp) -> Option<Timestamp> {
    let every = every_ms.and_then(|every| i64::try_from(every).ok());
    let gathered = every.filter(|every| *every > 0).map(|every| {
        let into = at.as_ms().rem_euclid(every);
        at.plus_ms(every.saturating_sub(into))
    });
    let quiet_at = gathered.unwrap_or(at);
    quiet.and_then(|quiet| quiet.end_after(quiet_at)).or(gathered)
}

#[cfg(test)]
mod tests {
    use placet_types::clock::Timestamp;
    use serde_json::json;

    use super::{Quiet, due};

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
        let both = |at| due(Some(1_800_000), Some(night("+00:00")), at);
        assert_eq!(both(at(9, 1)), Some(at(9, 30)));
        assert_eq!(both(at(9, 29)), Some(at(9, 30)));
        assert_eq!(both(at(9, 30)), Some(at(10, 0)));
        assert_eq!(both(at(21, 45)), Some(at(31, 0)), "it would be due as the quiet begins");
        assert_eq!(both(at(2, 0)), Some(at(7, 0)));
        let only_quiet = |at| due(None, Some(night("+00:00")), at);
        assert_eq!(only_quiet(at(9, 1)), None);
        assert_eq!(only_quiet(at(23, 1)), Some(at(31, 0)));
        assert_eq!(due(None, None, at(23, 1)), None);
    }

    #[test]
    fn what_is_no_time_is_refused() {
        let quiet = |from: &str, offset: &str| {
            let quiet = json!({ "from": from, "to": "07:00", "utc_offset": offset });
            serde_json::from_value::<Quiet>(quiet)
        };
        assert_eq!(json!(quiet("00:00", "-05:30").unwrap())["utc_offset"], "-05:30");
        for (from, offset) in [
            ("24:00", "+00:00"),
            ("07:60", "+00:00"),
            ("07.00", "+00:00"),
            ("+7:00", "+00:00"),
            ("", "+00:00"),
            ("07:00", "02:00"),
        ] {
            assert!(quiet(from, offset).is_err(), "{from} {offset}");
        }
    }
}
