//! The calendar: a month with its freezes.
//!
//! Owns the dates of it. All times are UTC, as everywhere in the console.

use std::collections::BTreeMap;

use axum::{extract::State, response::Response};
use chrono::{Datelike as _, Months, NaiveDate, NaiveDateTime};
use maud::{Markup, html};
use placet_approvals::views::{DirectiveView, EntriesQuery};
use placet_types::{clock::Timestamp, directive::DirectiveKind, ids::DirectiveId};

use super::{
    ConsoleState, entries,
    grant::{lasts, reason_field},
    page::{Frame, token},
    session::Visitor,
    visitor::{PageQuery, Trouble},
    words,
};

const DAY_MS: i64 = 86_400_000;
/// How many freezes are asked for at a time.
const READ: usize = 200;
/// The most requests for those in force or to come: there cannot be more.
const OPEN_ROUNDS: usize = 20;
/// The most requests for those that have ended.
const PAST_ROUNDS: usize = 3;
/// The longest time from entering a freeze to its end: a year and a day until it begins, and 31 days that it lasts.
const ENTERED_MS_MAX: i64 = (366 + 31) * DAY_MS;
const WEEK: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// The month that was requested, as its first day; by default the one that contains `now`.
fn month_of(asked: Option<&str>, now: Timestamp) -> NaiveDate {
    let first = |month: &str| NaiveDate::parse_from_str(&format!("{month}-01"), "%Y-%m-%d").ok();
    let asked = asked.and_then(first).filter(|month| (1970..=9999).contains(&month.year()));
    asked.or_else(|| first(now.to_string().get(..7)?)).unwrap_or_default()
}

fn next(month: NaiveDate) -> NaiveDate {
    month.checked_add_months(Months::new(1)).unwrap_or(month)
}

fn previous(month: NaiveDate) -> NaiveDate {
    month.checked_sub_months(Months::new(1)).unwrap_or(month)
}

/// A day, counted from 1970-01-01.
fn number_of(day: NaiveDate) -> i64 {
    day.signed_duration_since(NaiveDate::default()).num_days()
}

/// The address of a month's page.
fn address(month: NaiveDate) -> String {
    format!("/calendar?month={}", month.format("%Y-%m"))
}

/// `2026-11-22T06:04`, the form in which browsers send it, taken as UTC.
pub(super) fn parse_minute(text: &str) -> Option<Timestamp> {
    let at = NaiveDateTime::parse_from_str(text, "%Y-%m-%dT%H:%M").ok()?;
    Some(Timestamp::from_ms(at.and_utc().timestamp_millis()))
}

/// `GET /calendar`.
pub(super) async fn show(
    State(app): State<ConsoleState>,
    visitor: Visitor,
    query: PageQuery,
) -> Result<Response, Trouble> {
    let now = app.console.now();
    let month = month_of(query.get("month"), now);
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
    Ok(Frame { title, place: "/calendar", now }.page(&visitor, &content))
}

/// The freezes of a month: all that are in force or to come, and as many ended ones as are searched; and whether these are all.
async fn freezes(
    app: &ConsoleState,
    visitor: &Visitor,
    month: NaiveDate,
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
            let page = app.api.engine.approvals().entries(&visitor.caller, &query).await?;
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

/// The first day shown with a month, and the number of weeks.
fn shown_days(month: NaiveDate) -> (i64, i64) {
    let first = number_of(month);
    // 1970-01-01 was a Thursday; weeks begin on Monday.
    let start = first.saturating_sub(first.saturating_add(3).rem_euclid(7));
    let end = number_of(next(month));
    (start, end.saturating_sub(start).saturating_add(6).div_euclid(7))
}

/// Whether a freeze is in force at some moment of this period.
fn is_on(entry: &DirectiveView, from: Timestamp, until: Timestamp) -> bool {
    let ended = entry.end.as_ref().map_or(entry.expires_at, |note| note.at.min(entry.expires_at));
    entry.starts_at < until && from < ended && entry.state != "denied"
}

fn table(month: NaiveDate, freezes: &[DirectiveView], now: Timestamp) -> Markup {
    let (first, end) = (number_of(month), number_of(next(month)));
    let (start, weeks) = shown_days(month);
    html! {
        nav.row.spread aria-label="Months" {
            a.button href=(address(previous(month))) { "Earlier" }
            h2 { (month.format("%B %Y")) }
            a.button href=(address(next(month))) { "Later" }
        }
        table.table.month {
            caption.unseen { "Freezes in " (month.format("%B %Y")) }
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

    use super::{address, month_of, next, number_of, parse_minute, previous};

    #[test]
    fn months_follow_each_other_over_the_year_s_end() {
        let now = Timestamp::from_ms(1_795_000_000_000);
        let december = month_of(Some("2026-12"), now);
        assert_eq!(address(next(december)), "/calendar?month=2027-01");
        assert_eq!(previous(next(december)), december);
        assert_eq!(december.format("%B %Y").to_string(), "December 2026");
        assert_eq!(number_of(december) * 86_400_000, 1_796_083_200_000);
        for text in ["2026-13", "26-1", "1969-12", "+12026-01", "x"] {
            assert_eq!(address(month_of(Some(text), now)), "/calendar?month=2026-11", "{text}");
        }
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
