//! How the approval service is told in words, and how times are written on the command line.
//!
//! Owns the wording that several commands share.

use placet_approvals::views::{ApprovalView, GroupProgress};
use placet_types::{approval::VoteChoice, clock::Timestamp, principal::PrincipalChain};

use crate::{
    commands::call::now_ms,
    output::{StateAt, Tone},
};

/// Who calls, for whom.
pub(in crate::commands) fn chain(chain: &PrincipalChain) -> String {
    let actor = format!("{} {}", chain.actor.kind.as_str(), chain.actor.id);
    chain.on_behalf_of.as_ref().map_or(actor.clone(), |user| format!("{actor} for {}", user.id))
}

/// How many of how many, by group, as the votes say.
pub(super) fn votes_so_far(approval: &ApprovalView) -> String {
    let yes: Vec<_> =
        approval.votes.iter().filter(|vote| vote.choice == VoteChoice::Approve).collect();
    let groups = approval.requirement.groups.iter().map(|(group, needed)| {
        let have = yes.iter().filter(|vote| vote.is_of(group)).count();
        format!("{group} {have}/{needed}")
    });
    format!(
        "{}/{} ({})",
        yes.len(),
        approval.requirement.quorum,
        groups.collect::<Vec<_>>().join(", ")
    )
}

/// How far each group is.
pub(super) fn progress(groups: &[GroupProgress]) -> String {
    let groups = groups.iter().map(|group| {
        let instead = if group.escalated { " (asked instead)" } else { "" };
        format!("{} {}/{}{instead}", group.group, group.agreed, group.wanted)
    });
    groups.collect::<Vec<_>>().join(", ")
}

/// The state of an approval in words.
pub(super) fn state(name: &str) -> &str {
    match name {
        "approved" => "approved, not sent yet",
        "unknown" => "outcome unknown",
        "sent" => "was sent",
        other => other,
    }
}

/// What the state of an approval means.
pub(super) fn tone(state: &str) -> Tone {
    match state {
        "succeeded" => Tone::Good,
        "failed" | "denied" => Tone::Bad,
        "unknown" | "expired" | "void" => Tone::Warn,
        "pending" | "approved" | "running" => Tone::Note,
        _ => Tone::Plain,
    }
}

/// Where an approval shows its state on its own page, with what that means.
pub(super) fn states_of(name: &str) -> Vec<StateAt> {
    let labels = ["  state     ", "  outcome   ", "  approval  "];
    labels.map(|label| (format!("{label}{}", state(name)), tone(name))).into()
}

/// Whether a call in this state may still be approved or sent.
pub(super) fn is_open(state: &str) -> bool {
    matches!(state, "pending" | "approved")
}

/// What its caller does about the tool, of a call in this state.
pub(super) fn request(state: &str) -> &'static str {
    match state {
        "pending" | "approved" => "wants to call",
        "running" | "succeeded" | "failed" | "unknown" | "sent" => "called",
        _ => "wanted to call",
    }
}

/// A choice as a person says it.
pub(super) const fn choice(choice: VoteChoice) -> &'static str {
    match choice {
        VoteChoice::Approve => "yes",
        VoteChoice::Deny => "no",
    }
}

/// The word of a command that decides so.
pub(super) const fn verb(choice: VoteChoice) -> &'static str {
    match choice {
        VoteChoice::Approve => "approve",
        VoteChoice::Deny => "deny",
    }
}

/// A moment as seen from now.
pub(super) fn from_now(at: Timestamp) -> String {
    in_words(at.as_ms().saturating_sub(now_ms()))
}

/// A time from now, in words.
pub(super) fn in_words(ms: i64) -> String {
    let minutes = ms.div_euclid(60_000);
    match minutes {
        i64::MIN..=-1 => "over".to_owned(),
        0..=119 => format!("in {minutes} min"),
        120..=2_879 => format!("in {} h", minutes.div_euclid(60)),
        _ => format!("in {} d", minutes.div_euclid(1_440)),
    }
}

/// What can be written for a length of time.
const LASTING: &str = "write it as 30m, 8h or 2d";

/// A length of time such as `30m`, `8h` or `2d`, in milliseconds.
pub(in crate::commands) fn lasting(text: &str) -> Result<u64, String> {
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
pub(in crate::commands) fn moment(text: &str) -> Result<Timestamp, String> {
    let wrong = || "write it as 2026-12-24T18:00Z or 2026-12-24T18:00+01:00".to_owned();
    read_moment(text).ok_or_else(wrong)
}

fn read_moment(text: &str) -> Option<Timestamp> {
    let (date, rest) = text.split_once('T')?;
    let (clock, zone_ms) = match rest.strip_suffix('Z') {
        Some(clock) => (clock, 0),
        None => {
            let (clock, zone) = rest.split_at_checked(rest.rfind(['+', '-'])?)?;
            let ahead = zone.starts_with('+');
            let ms = clock_ms(zone.strip_prefix(['+', '-'])?)?;
            (clock, if ahead { ms } else { ms.saturating_neg() })
        }
    };
    let mut parts = date.split('-');
    let (year, month, day) =
        (number(parts.next()?, 4)?, number(parts.next()?, 2)?, number(parts.next()?, 2)?);
    if parts.next().is_some() || !(1..=12).contains(&month) {
        return None;
    }
    let midnight = Timestamp::from_ms(days_of(year, month, day).saturating_mul(86_400_000));
    // Only a day that exists is written as it was read.
    midnight.to_string().strip_prefix(date)?;
    Some(midnight.plus_ms(clock_ms(clock)?).plus_ms(zone_ms.saturating_neg()))
}

/// The time of day `18:00`, `18:00:30` or `18:00:30.250`, in milliseconds.
fn clock_ms(text: &str) -> Option<i64> {
    let (whole, milli) = match text.split_once('.') {
        Some((whole, milli)) if whole.len() == 8 => (whole, number(milli, 3)?),
        Some(_) => return None,
        None => (text, 0),
    };
    let mut parts = whole.split(':');
    let (hour, minute) = (number(parts.next()?, 2)?, number(parts.next()?, 2)?);
    let second = parts.next().map_or(Some(0), |second| number(second, 2))?;
    if parts.next().is_some() || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let seconds = hour.saturating_mul(3_600).saturating_add(minute.saturating_mul(60));
    Some(seconds.saturating_add(second).saturating_mul(1_000).saturating_add(milli))
}

fn number(text: &str, digits: usize) -> Option<i64> {
    let plain = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    if plain { text.parse().ok() } else { None }
}

/// The day counted from 1970-01-01, by counting 400-year eras whose years begin on 1 March.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year.saturating_sub(1) } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let month_from_march = month.saturating_add(9).rem_euclid(12);
    let before_month = month_from_march.saturating_mul(153).saturating_add(2).div_euclid(5);
    let day_of_year = before_month.saturating_add(day).saturating_sub(1);
    let leap_days = year_of_era.div_euclid(4).saturating_sub(year_of_era.div_euclid(100));
    let day_of_era =
        year_of_era.saturating_mul(365).saturating_add(leap_days).saturating_add(day_of_year);
    era.saturating_mul(146_097).saturating_add(day_of_era).saturating_sub(719_468)
}

#[cfg(test)]
mod tests {
    use super::{in_words, lasting, moment, request, state};

    #[test]
    fn a_time_is_told_in_words() {
        assert_eq!(in_words(-1), "over");
        assert_eq!(in_words(90_000), "in 1 min");
        assert_eq!(in_words(7_200_000), "in 2 h");
        assert_eq!(in_words(3 * 86_400_000), "in 3 d");
    }

    #[test]
    fn a_state_says_what_became_of_the_call() {
        for (name, said, asked) in [
            ("pending", "pending", "wants to call"),
            ("approved", "approved, not sent yet", "wants to call"),
            ("succeeded", "succeeded", "called"),
            ("failed", "failed", "called"),
            ("unknown", "outcome unknown", "called"),
            ("sent", "was sent", "called"),
            ("withdrawn", "withdrawn", "wanted to call"),
            ("void", "void", "wanted to call"),
        ] {
            assert_eq!((state(name), request(name)), (said, asked), "{name}");
        }
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
            "2026-01-01T18:00:00.5Z",
            "2026-01-01T18:00+0100",
            "2026-01-01-01T18:00Z",
            "+026-01-01T18:00Z",
        ] {
            assert!(moment(wrong).is_err(), "{wrong}");
        }
    }
}
