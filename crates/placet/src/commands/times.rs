//! The notation of times on the command line, and in its output.
//!
//! Owns the wording that several commands share.

use chrono::DateTime;
use placet_types::clock::{Clock as _, Timestamp};

use crate::clock::SystemClock;

/// The time, for views.
pub(crate) fn now_ms() -> i64 {
    SystemClock.now().as_ms()
}

/// A moment relative to now.
pub(crate) fn from_now(at: Timestamp) -> String {
    in_words(at.as_ms().saturating_sub(now_ms()))
}

/// A time from now, in words.
fn in_words(ms: i64) -> String {
    let minutes = ms.div_euclid(60_000);
    match minutes {
        i64::MIN..=-1 => "over".to_owned(),
        0..=119 => format!("in {minutes} min"),
        120..=2_879 => format!("in {} h", minutes.div_euclid(60)),
        _ => format!("in {} d", minutes.div_euclid(1_440)),
    }
}

/// The help for a length of time.
const LASTING: &str = "write it as 30m, 8h or 2d";

/// A length of time such as `30m`, `8h` or `2d`, in milliseconds.
pub(crate) fn lasting(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let factor: u64 = match text.strip_prefix(digits).unwrap_or_default() {
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(LASTING.to_owned()),
    };
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number: Option<u64> = if plain { digits.parse().ok() } else { None };
    number
        .and_then(|number| number.checked_mul(factor))
        .filter(|ms| *ms > 0)
        .ok_or_else(|| LASTING.to_owned())
}

/// A moment as RFC 3339 writes it; the seconds may be left out.
pub(crate) fn moment(text: &str) -> Result<Timestamp, String> {
    let read = |text: &str| DateTime::parse_from_rfc3339(text).ok();
    let without_seconds = || {
        let (minute, zone) = text.split_at_checked("2026-12-24T18:00".len())?;
        read(&format!("{minute}:00{zone}"))
    };
    let at = read(text).or_else(without_seconds).map(|at| at.timestamp_millis());
    at.map(Timestamp::from_ms)
        .ok_or_else(|| "write it as 2026-12-24T18:00Z or 2026-12-24T18:00+01:00".to_owned())
}

#[cfg(test)]
mod tests {
    use super::{in_words, lasting, moment};

    #[test]
    fn a_time_is_told_in_words() {
        assert_eq!(in_words(-1), "over");
        assert_eq!(in_words(90_000), "in 1 min");
        assert_eq!(in_words(7_200_000), "in 2 h");
        assert_eq!(in_words(3 * 86_400_000), "in 3 d");
    }

    #[test]
    fn a_length_of_time_is_a_number_with_a_unit() {
        assert_eq!(lasting("90s"), Ok(90_000));
        assert_eq!(lasting("30m"), Ok(1_800_000));
        assert_eq!(lasting("8h"), Ok(28_800_000));
        assert_eq!(lasting("2d"), Ok(172_800_000));
        for wrong in
            ["", "8", "h", "0h", "-1h", "+1h", "1.5h", "8 h", "8H", "1w", "99999999999999999999d"]
        {
            assert!(lasting(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_moment_is_read_in_its_zone() {
        let of = |text: &str| moment(text).map(|at| at.to_string());
        assert_eq!(of("2026-12-24T18:00Z"), Ok("2026-12-24T18:00:00.000Z".to_owned()));
        assert_eq!(of("2026-12-24T18:00+01:00"), Ok("2026-12-24T17:00:00.000Z".to_owned()));
        assert_eq!(of("2026-12-31T23:30-01:30"), Ok("2027-01-01T01:00:00.000Z".to_owned()));
        assert_eq!(of("2000-02-29T00:00:01Z"), Ok("2000-02-29T00:00:01.000Z".to_owned()));
        assert_eq!(of("1970-01-01T00:00:00.007Z"), Ok("1970-01-01T00:00:00.007Z".to_owned()));
    }

    #[test]
    fn a_moment_that_does_not_exist_is_refused() {
        for wrong in [
            "",
            "tomorrow",
            "2026-12-24",
            "2026-12-24T18:00",
            "2026-02-29T18:00Z",
            "2026-13-01T18:00Z",
            "2026-00-01T18:00Z",
            "2026-01-00T18:00Z",
            "2026-01-32T18:00Z",
            "2026-1-1T18:00Z",
            "2026-01-01T24:00Z",
            "2026-01-01T18:60Z",
            "2026-01-01T18Z",
            "2026-01-01T18:00+0100",
            "2026-01-01-01T18:00Z",
            "+026-01-01T18:00Z",
        ] {
            assert!(moment(wrong).is_err(), "{wrong}");
        }
    }
}
