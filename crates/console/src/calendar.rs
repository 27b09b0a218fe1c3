//! The calendar: a month with its freezes.
//!
//! Owns the dates of it. All times are UTC, as everywhere in the console.

use std::collections::BTreeMap;

use axum::{extract::State, response::Response};
use maud::{Markup, html};
use placet_approvals::views::{DirectiveView, EntriesQuery};
use placet_types::{clock::Timestamp, directive::DirectiveKind, ids::DirectiveId};

use super::{
    ConsoleState, entries,
    grant::{lasts, reason_field},
    page::{Frame, Place, token},
    session::Visitor,
    visitor::{PageQuery, Trouble},
    words,
};

const DAY_MS: i64 = 86_400_000;
/// How many freezes are asked for at a time.
const READ: usize = 200;
/// How often at most for those that are on or to come: there is no room for more.
const OPEN_ROUNDS: usize = 20;
/// How often at most for those that are over.
const PAST_ROUNDS: usize = 3;
/// How long before its end a freeze was entered at most: a year and a day before it begins, and it lasts at most 31 days.
const ENTERED_MS_MAX: i64 = (366 + 31) * DAY_MS;
const WEEK: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const MONTHS: &str =
    "January February March April May June July August September October November December";

/// A month of a year.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Month {
    year: i64,
    month: i64,
}

impl Month {
    /// The month that a time lies in.
    fn of(at: Timestamp) -> Self {
        let text = at.to_string();
        Self::parse(text.get(..7).unwrap_or_default()).unwrap_or(Self { year: 1970, month: 1 })
    }

    /// `2026-11`.
    fn parse(text: &str) -> Option<Self> {
        let (year, month) = text.split_once('-')?;
        let (year, month) = (digits(year, 4)?, digits(month, 2)?);
        (year >= 1970 && (1..=12).contains(&month)).then_some(Self { year, month })
    }

    fn text(self) -> String {
        format!("{:04}-{:02}", self.year, self.month)
    }

    fn next(self) -> Self {
        if self.month == 12 {
            Self { year: self.year.saturating_add(1), month: 1 }
        } else {
            Self { month: self.month.saturating_add(1), ..self }
        }
    }

    fn previous(self) -> Self {
        if self.month == 1 {
            Self { year: self.year.saturating_sub(1), month: 12 }
        } else {
            Self { month: self.month.saturating_sub(1), ..self }
        }
    }

    /// Its first day, counted from 1970-01-01.
    fn first_day(self) -> i64 {
        days(self.year, self.month, 1)
    }

    fn name(self) -> String {
        let index = usize::try_from(self.month.saturating_sub(1)).unwrap_or_default();
        format!("{} {}", MONTHS.split(' ').nth(index).unwrap_or_default(), self.year)
    }
}

/// A number of exactly so many digits.
fn digits(text: &str, count: usize) -> Option<i64> {
    let plain = text.len() == count && text.bytes().all(|b| b.is_ascii_digit());
    if plain { text.parse().ok() } else { None }
}

/// A day of the Gregorian calendar, counted from 1970-01-01: whole years and months before it, with their leap days.
fn days(year: i64, month: i64, day: i64) -> i64 {
    const BEFORE: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let past = year.saturating_sub(1);
    let leaps = |year: i64| {
        year.div_euclid(4).saturating_sub(year.div_euclid(100)).saturating_add(year.div_euclid(400))
    };
    let whole = past.saturating_mul(365).saturating_add(leaps(past)).saturating_sub(719_162);
    let is_leap = leaps(year) > leaps(past);
    let index = usize::try_from(month.saturating_sub(1)).unwrap_or_default();
    let before = BEFORE.get(index).copied().unwrap_or_default();
    let before = if is_leap && month > 2 { before.saturating_add(1) } else { before };
    whole.saturating_add(before).saturating_add(day.saturating_sub(1))
}

/// `2026-11-22T06:04`, as a browser writes it, taken as UTC.
pub(super) fn parse_minute(text: &str) -> Option<Timestamp> {
    let (date, time) = text.split_once('T')?;
    let (month, day) = date.rsplit_once('-')?;
    let (month, day) = (Month::parse(month)?, digits(day, 2)?);
    let (hour, rest) = time.split_once(':')?;
    let (hour, minute) = (digits(hour, 2)?, digits(rest.get(..2)?, 2)?);
    let at = days(month.year, month.month, day);
    let fits = (1..=31).contains(&day) && at < month.next().first_day() && hour < 24 && minute < 60;
    let minutes = hour.checked_mul(60)?.checked_add(minute)?;
    let ms = at.checked_mul(DAY_MS)?.checked_add(minutes.checked_mul(60_000)?)?;
    fits.then_some(Timestamp::from_ms(ms))
}

/// `GET /calendar`.
pub(super) async fn show(
    State(app): State<ConsoleState>,
    visitor: Visitor,
    query: PageQuery,
) -> Result<Response, Trouble> {
    let now = app.console.now();
    let month = query.get("month").and_then(Month::parse).unwrap_or_else(|| Month::of(now));
    let (freezes, is_whole) = freezes(&app, &visitor, month).await?;
    let title = "Calendar of freezes";
    let content = html! {
        h1 { (title) }
        p.lede { "In a freeze no standing grant counts and no rule lets a write pass by itself: people decide on each one. In a lockdown no call runs. All times are UTC." }
        div #month data-live {
            (table(month, &freezes, now))
            @if !is_whole {
                p.small.soft {
                    "Every freeze that is on or to come is here. Of those that are over, only the " (READ.saturating_mul(PAST_ROUNDS))
                    " that were entered last before the end of this month were looked through; " code { "placet directives list --kind freeze --all" }
                    " lists the others."
                }
            }
        }
        section.card aria-labelledby="new-title" {
            h2 #new-title { "A new freeze" }
            form method="post" action="/calendar" {
                (token(&visitor))
                div.fields {
                    div.field { label for="name" { "Name" } input #name name="name" required maxlength="200" placeholder="Year-end close"; }
                    div.field { label for="starts" { "From when on, UTC (empty: now)" } input #starts type="datetime-local" name="starts"; }
                    div.field { label for="adapters" { "Only these adapters (may be empty)" } input #adapters name="adapters" maxlength="1000"; }
                }
                (lasts("2", "days"))
                label.choice { input type="checkbox" name="lockdown" value="1"; " Lockdown: no call runs, reads neither, and no approval helps" }
                (reason_field())
                button.yes type="submit" { "Set the freeze" }
            }
        }
    };
    Ok(Frame { title, place: Place::Calendar, now }.page(&visitor, &content))
}

/// The freezes of a month: all that are on or to come, and of those that are over as many as are looked through; and whether these are all.
async fn freezes(
    app: &ConsoleState,
    visitor: &Visitor,
    month: Month,
) -> Result<(Vec<DirectiveView>, bool), Trouble> {
    let (start, weeks) = shown_days(month);
    let from = Timestamp::from_ms(start.saturating_mul(DAY_MS));
    let until = from.plus_ms(weeks.saturating_mul(7).saturating_mul(DAY_MS));
    let mut found: BTreeMap<DirectiveId, DirectiveView> = BTreeMap::new();
    let every = EntriesQuery {
        kind: Some(DirectiveKind::Freeze),
        newest_first: true,
        limit: READ,
        ..EntriesQuery::default()
    };
    // None begins before it is entered.
    let past = EntriesQuery { made_before: Some(until), ..every.clone() };
    let open = EntriesQuery { only_open: true, ..every };
    let mut is_whole = true;
    for (mut query, rounds) in [(open, OPEN_ROUNDS), (past, PAST_ROUNDS)] {
        let mut is_through = false;
        for _ in 0..rounds {
            let page = entries::read(app, visitor, &query).await?;
            let last = page.entries.last().map(|last| last.created_at);
            let here = page.entries.into_iter().filter(|entry| is_on(entry, from, until));
            found.extend(here.map(|entry| (entry.directive_id.clone(), entry)));
            is_through = page.next_after.is_none()
                || last.is_some_and(|at| at.plus_ms(ENTERED_MS_MAX) < from);
            if is_through {
                break;
            }
            query.after = page.next_after;
        }
        is_whole = is_whole && is_through;
    }
    let mut found: Vec<DirectiveView> = found.into_values().collect();
    found.sort_by_key(|entry| entry.starts_at);
    Ok((found, is_whole))
}

/// The first day that is shown with a month, and how many weeks are.
fn shown_days(month: Month) -> (i64, i64) {
    let first = month.first_day();
    // 1970-01-01 was a Thursday; weeks begin on Monday.
    let start = first.saturating_sub(first.saturating_add(3).rem_euclid(7));
    let end = month.next().first_day();
    (start, end.saturating_sub(start).saturating_add(6).div_euclid(7))
}

/// Whether a freeze is on at some moment of a time.
fn is_on(entry: &DirectiveView, from: Timestamp, until: Timestamp) -> bool {
    let ended = entry.note.as_ref().map_or(entry.expires_at, |note| note.at.min(entry.expires_at));
    entry.starts_at < until && from < ended && entry.state != "denied"
}

fn table(month: Month, freezes: &[DirectiveView], now: Timestamp) -> Markup {
    let (first, end) = (month.first_day(), month.next().first_day());
    let (start, weeks) = shown_days(month);
    html! {
        nav.row.spread aria-label="Months" {
            a.button href={ "/calendar?month=" (month.previous().text()) } { "Earlier" }
            h2 { (month.name()) }
            a.button href={ "/calendar?month=" (month.next().text()) } { "Later" }
        }
        table.table.month {
            caption.unseen { "Freezes in " (month.name()) }
            thead { tr { @for day in WEEK { th scope="col" { (day) } } } }
            tbody {
                @for week in 0..weeks {
                    tr {
                        @for day in 0..7_i64 {
                            @let at = start.saturating_add(week.saturating_mul(7)).saturating_add(day);
                            (cell(at, first, end, freezes, now))
                        }
                    }
                }
            }
        }
    }
}

fn cell(day: i64, first: i64, end: i64, freezes: &[DirectiveView], now: Timestamp) -> Markup {
    let from = Timestamp::from_ms(day.saturating_mul(DAY_MS));
    let until = from.plus_ms(DAY_MS);
    let is_today = from <= now && now < until;
    let here: Vec<&DirectiveView> =
        freezes.iter().filter(|entry| is_on(entry, from, until)).collect();
    let other = day < first || day >= end;
    let number: String = from.to_string().chars().skip(8).take(2).collect();
    html! {
        td.other[other].today[is_today] aria-current=[is_today.then_some("date")] {
            time datetime=(words::minute(from).split(' ').next().unwrap_or_default()) { (number.trim_start_matches('0')) }
            @if !here.is_empty() {
                ul {
                    @for entry in here {
                        li { a href={ "/entries/" (entry.directive_id) } { (entries::name(&entry.body)) } }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use placet_types::clock::Timestamp;

    use super::{Month, days, parse_minute};

    #[test]
    fn days_are_counted_as_timestamps_print_them() {
        for (year, month, day) in
            [(1970, 1, 1), (2000, 2, 29), (2024, 12, 31), (2026, 11, 22), (2100, 3, 1)]
        {
            let printed = Timestamp::from_ms(days(year, month, day) * 86_400_000).to_string();
            assert_eq!(printed, format!("{year:04}-{month:02}-{day:02}T00:00:00.000Z"));
        }
    }

    #[test]
    fn months_follow_each_other_over_the_year_s_end() {
        let december = Month::parse("2026-12").unwrap();
        assert_eq!(december.next().text(), "2027-01");
        assert_eq!(december.next().previous(), december);
        assert_eq!(
            (december.name().as_str(), Month::parse("2026-13"), Month::parse("26-1")),
            ("December 2026", None, None)
        );
    }

    #[test]
    fn a_time_of_a_form_is_read_as_utc_and_only_if_it_exists() {
        assert_eq!(
            parse_minute("2026-11-22T06:04").unwrap().to_string(),
            "2026-11-22T06:04:00.000Z"
        );
        for text in [
            "2026-02-30T00:00",
            "2026-11-22",
            "2026-11-22T24:00",
            "2026-11-22T06:60",
            "x",
            "2026-11-00T00:00",
        ] {
            assert_eq!(parse_minute(text), None, "{text}");
        }
    }
}
