//! Charts, drawn here as SVG: how long calls wait, how long decisions take, which groups are busy.
//!
//! Owns the drawing. Each chart says in words what it shows, and has its numbers in a table. Styled by classes only, so that no inline
//! style is needed.

use maud::{Markup, html};
use placet_approvals::views::{GroupProgress, QueueMetrics};

use super::words;

/// The bars of a chart, each with its name.
pub(super) struct Bars {
    pub(super) title: &'static str,
    /// What a bar stands for, and what it counts.
    pub(super) columns: (&'static str, &'static str),
    pub(super) bars: Vec<(String, u32)>,
    /// The chart in words.
    pub(super) words: String,
}

/// A whole number of units of a bar.
const WIDTH: u32 = 640;
const NAME_WIDTH: u32 = 170;
const ROW: u32 = 30;

impl Bars {
    /// The chart, its words and its table.
    pub(super) fn draw(&self, id: &str) -> Markup {
        let most = self.bars.iter().map(|(_, count)| *count).max().unwrap_or_default().max(1);
        let rows = u32::try_from(self.bars.len()).unwrap_or_default();
        let height = rows.saturating_mul(ROW).saturating_add(8);
        let room = WIDTH.saturating_sub(NAME_WIDTH).saturating_sub(60);
        html! {
            figure #(id).card {
                figcaption { h2 { (self.title) } p.soft.small { (self.words) } }
                svg.chart viewBox={ "0 0 " (WIDTH) " " (height) } role="img" aria-label={ (self.title) ": " (self.words) } {
                    line.axis x1=(NAME_WIDTH) y1="2" x2=(NAME_WIDTH) y2=(height.saturating_sub(2)) {}
                    @for (at, (name, count)) in (0_u32..).zip(&self.bars) {
                        @let top = at.saturating_mul(ROW).saturating_add(6);
                        @let long = part(*count, most, room);
                        text x=(NAME_WIDTH.saturating_sub(10)) y=(top.saturating_add(15)) text-anchor="end" { (shortened(name)) }
                        rect.bar x=(NAME_WIDTH) y=(top) width=(long) height="20" rx="3" {}
                        text x=(NAME_WIDTH.saturating_add(long).saturating_add(8)) y=(top.saturating_add(15)) { (count) }
                    }
                }
                details #{ (id) "-table" } {
                    summary { "As a table" }
                    table.table {
                        thead { tr { th scope="col" { (self.columns.0) } th.number scope="col" { (self.columns.1) } } }
                        tbody {
                            @for (name, count) in &self.bars {
                                tr { th scope="row" { (name) } td.number { (count) } }
                            }
                        }
                    }
                }
            }
        }
    }

    /// Bars of calls, summarised in words by their sum and the largest.
    fn of_calls(title: &'static str, column: &'static str, bars: Vec<(String, u32)>) -> Self {
        let most = bars.iter().max_by_key(|(_, count)| *count).filter(|(_, count)| *count > 0);
        let sum = bars.iter().fold(0_u32, |sum, (_, count)| sum.saturating_add(*count));
        let words = most.map_or_else(
            || "none at present".to_owned(),
            |(name, count)| format!("{sum} in all; most, {count}, with “{name}”"),
        );
        Self { title, columns: (column, "Calls"), bars, words }
    }
}

/// `count` of `most`, scaled to a width; a bar that is not zero is never invisible.
fn part(count: u32, most: u32, room: u32) -> u32 {
    let long = u64::from(count).saturating_mul(u64::from(room)).checked_div(u64::from(most));
    let long = u32::try_from(long.unwrap_or_default()).unwrap_or(room);
    if count > 0 { long.max(2) } else { 0 }
}

fn shortened(name: &str) -> String {
    const CHARS_MAX: usize = 22;
    if name.chars().count() <= CHARS_MAX {
        return name.to_owned();
    }
    let cut: String = name.chars().take(CHARS_MAX.saturating_sub(1)).collect();
    format!("{cut}…")
}

/// How long the pending calls have waited.
pub(super) fn by_age(load: &QueueMetrics) -> Bars {
    let names = ["under 15 min", "15 min to 1 h", "1 h to 4 h", "4 h to 24 h", "over 24 h"];
    let bars = names.into_iter().map(str::to_owned).zip(load.waiting_by_age);
    Bars::of_calls("Waiting, by age", "Age", bars.collect())
}

/// Which groups the pending calls wait for.
pub(super) fn by_group(load: &QueueMetrics) -> Bars {
    let bars = load.waiting_by_group.iter().map(|(group, count)| (group.to_string(), *count));
    Bars::of_calls("Waiting, by group", "Group", bars.collect())
}

/// How long decisions took.
pub(super) fn to_decision(load: &QueueMetrics) -> Bars {
    const EDGES: [(&str, u64); 5] = [
        ("under 1 min", 60_000),
        ("1 to 15 min", 900_000),
        ("15 min to 1 h", 3_600_000),
        ("1 to 4 h", 14_400_000),
        ("over 4 h", u64::MAX),
    ];
    let mut from = 0;
    let mut bars = Vec::new();
    for (name, until) in EDGES {
        let within = load.decided_in_ms.iter().filter(|ms| (from..until).contains(*ms)).count();
        bars.push((name.to_owned(), u32::try_from(within).unwrap_or(u32::MAX)));
        from = until;
    }
    Bars::of_calls("Time to decision", "Time", bars)
}

/// The middle and the slow end of the times to decision, in words.
pub(super) fn decision_words(load: &QueueMetrics) -> Option<String> {
    let at = |share: usize| {
        let last = load.decided_in_ms.len().checked_sub(1)?;
        load.decided_in_ms.get(last.checked_mul(share)?.checked_div(100)?)
    };
    let (half, most) = (at(50)?, at(90)?);
    Some(format!(
        "Half of the last {} decisions took at most {}, nine of ten at most {}.",
        load.decided_in_ms.len(),
        words::length(*half),
        words::length(*most)
    ))
}

/// A group's progress, as a bar and in words.
pub(super) fn progress(group: &GroupProgress) -> Markup {
    const LONG: u32 = 60;
    let agreed = group.agreed.min(group.wanted);
    let done = part(agreed, group.wanted.max(1), LONG);
    html! {
        div.progress {
            svg width=(LONG) height="10" viewBox="0 0 60 10" aria-hidden="true" {
                rect.track x="0" y="1" width=(LONG) height="8" rx="4" {}
                rect.done x="0" y="1" width=(done) height="8" rx="4" {}
            }
            span.small {
                (group.agreed) " of " (group.wanted) " from " strong { (group.group) }
                @if group.escalated { " " span.soft { "(asked in the place of others)" } }
            }
        }
    }
}
