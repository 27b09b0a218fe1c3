//! The evaluation report of the last day, week or month, in charts and as a table (TM-21).
//!
//! Owns the page; the drawing is [`super::charts`]'s, the counting the engine's.

use axum::{extract::State, response::Response};
use maud::{Markup, html};
use placet_engine::report::{ReportNumbers, ReportRange, ReportRow, ReportView};

use super::{
    ConsoleState,
    charts::Bars,
    page::Frame,
    session::Visitor,
    visitor::{PageQuery, Trouble},
};

/// The ranges to choose from: the name in the query, the label, and milliseconds.
const RANGES: [(&str, &str, i64); 3] = [
    ("day", "Last 24 hours", 86_400_000),
    ("week", "Last 7 days", 7 * 86_400_000),
    ("month", "Last 31 days", 31 * 86_400_000),
];
/// The most capabilities in one chart.
const BARS_MAX: usize = 20;

/// `GET /report`.
pub(super) async fn show(
    State(app): State<ConsoleState>,
    visitor: Visitor,
    query: PageQuery,
) -> Result<Response, Trouble> {
    let chosen = RANGES.into_iter().find(|(name, _, _)| query.get("range") == Some(*name));
    let (chosen, _, length_ms) = chosen.unwrap_or(RANGES[0]);
    let (title, now) = ("Report", app.console.now());
    let from = now.plus_ms(length_ms.saturating_neg());
    let range = ReportRange { from: Some(from), to: Some(now) };
    let report = app.api.engine.report(&visitor.caller, range).await?;
    let content = html! {
        h1 { (title) }
        p.lede { "How the calls of your tenant went, by adapter and capability, from the audit chain." }
        nav.row.small aria-label="Range" {
            @for (name, words, _) in RANGES {
                a href={ "/report?range=" (name) } aria-current=[(name == chosen).then_some("true")] { (words) }
            }
        }
        @if report.incomplete {
            p.card role="note" { "Not everything in this range was read: a report reads a bounded number of entries. Take a shorter range." }
        }
        (summary(&report.total))
        div #charts.tiles {
            @for metric in &METRICS { (metric.bars(&report).draw(metric.id)) }
        }
        (table(&report))
    };
    Ok(Frame { title, place: "/report", now }.page(&visitor, &content))
}

/// One of the evaluation metrics, as a chart shows it.
struct Metric {
    id: &'static str,
    title: &'static str,
    unit: &'static str,
    of: fn(&ReportNumbers) -> Option<u64>,
}

const METRICS: [Metric; 6] = [
    metric("success", "Success rate", "Percent", |n| percent(n.succeeded, executed(n))),
    metric("modes", "Misclassified approval modes", "Percent", |n| {
        percent(n.misclassified, n.decided)
    }),
    metric("violations", "Permission violations", "Percent", |n| percent(n.violations, n.calls)),
    metric("latency-mean", "Mean latency", "Milliseconds", |n| n.latency_mean_ms),
    metric("latency-p99", "99th percentile of latency", "Milliseconds", |n| n.latency_p99_ms),
    metric("replays", "Correct replays", "Percent", |n| percent(n.replayed, repeated(n))),
];

const fn metric(
    id: &'static str,
    title: &'static str,
    unit: &'static str,
    of: fn(&ReportNumbers) -> Option<u64>,
) -> Metric {
    Metric { id, title, unit, of }
}

const fn executed(numbers: &ReportNumbers) -> u64 {
    numbers.succeeded.saturating_add(numbers.failed).saturating_add(numbers.unknown)
}

const fn repeated(numbers: &ReportNumbers) -> u64 {
    numbers.replayed.saturating_add(numbers.replays_differed)
}

fn percent(part: u64, whole: u64) -> Option<u64> {
    part.saturating_mul(100).checked_div(whole)
}

impl Metric {
    fn bars(&self, report: &ReportView) -> Bars {
        let known = report.rows.iter().filter_map(|row| {
            let value = (self.of)(&row.numbers)?;
            Some((name(row), u32::try_from(value).unwrap_or(u32::MAX)))
        });
        let words = match (self.of)(&report.total) {
            Some(value) => format!("{} over all capabilities: {value}", self.unit),
            None => "nothing to show in this range".to_owned(),
        };
        Bars {
            title: self.title,
            columns: ("Capability", self.unit),
            bars: known.take(BARS_MAX).collect(),
            words,
        }
    }
}

fn name(row: &ReportRow) -> String {
    format!("{}/{}", row.adapter, row.capability)
}

fn summary(total: &ReportNumbers) -> Markup {
    html! {
        p.card {
            (total.calls) " calls: " (total.succeeded) " succeeded, " (total.failed) " failed, " (total.unknown)
            " with an unknown outcome, " (total.not_executed) " sent without effect, " (total.refused) " refused. "
            (total.misclassified) " asked for another approval mode than they have. "
            (total.violations) " violated permissions. "
            (total.replayed) " replays, " (total.replays_differed) " of results that differ from what was recorded, "
            (total.conflicts) " keys with other arguments."
        }
    }
}

/// Everything in the charts, and the numbers they are computed from.
fn table(report: &ReportView) -> Markup {
    html! {
        section.card {
            h2 { "By adapter and capability" }
            @if report.rows.is_empty() {
                p { "No calls in this range." }
            } @else {
                div.scroll tabindex="0" role="region" aria-label="By adapter and capability" {
                    table.table {
                        thead {
                            tr {
                                th scope="col" { "Capability" }
                                @for column in ["Calls", "Refused", "Success", "Misclassified", "Violations", "Mean ms", "p99 ms", "Replays", "Conflicts"] {
                                    th.number scope="col" { (column) }
                                }
                            }
                        }
                        tbody { @for row in &report.rows { (line(row)) } }
                    }
                }
            }
        }
    }
}

fn line(row: &ReportRow) -> Markup {
    let numbers = &row.numbers;
    let shown = |value: Option<u64>, unit: &str| {
        value.map_or_else(|| "–".to_owned(), |value| format!("{value}{unit}"))
    };
    html! {
        tr {
            th scope="row" { (name(row)) }
            td.number { (numbers.calls) }
            td.number { (numbers.refused) }
            td.number { (shown(percent(numbers.succeeded, executed(numbers)), " %")) }
            td.number { (shown(percent(numbers.misclassified, numbers.decided), " %")) }
            td.number { (shown(percent(numbers.violations, numbers.calls), " %")) }
            td.number { (shown(numbers.latency_mean_ms, "")) }
            td.number { (shown(numbers.latency_p99_ms, "")) }
            td.number { (numbers.replayed) " of " (repeated(numbers)) }
            td.number { (numbers.conflicts) }
        }
    }
}
