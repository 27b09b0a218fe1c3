//! Charts as inline SVG: drawn here, with the page's own colours, so that they follow light and dark.
//!
//! Owns the geometry. Colours are classes; the page's style says what they are.

use std::fmt::Write as _;

use super::{Slice, Spread, text::grouped};

const WIDTH: u32 = 760;
const ROW: u32 = 26;
const LABELS: u32 = 330;
const NUMBERS: u32 = 80;

/// A bar of a chart.
#[derive(Debug, Clone)]
pub(super) struct Bar {
    pub(super) label: String,
    pub(super) value: u64,
    /// The class of its colour.
    pub(super) tone: &'static str,
    /// What stands at its end, instead of the value.
    pub(super) note: Option<String>,
}

/// `part` of `whole`, in `units` of length.
fn length(part: u64, whole: u64, units: u32) -> f64 {
    super::share(part, whole.max(1), 0.0) * f64::from(units)
}

fn begin(height: u32, title: &str) -> String {
    format!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\">")
}

/// Bars that lie, longest value at full width.
pub(super) fn bars(title: &str, bars: &[Bar]) -> String {
    let rows = u32::try_from(bars.len()).unwrap_or_default();
    let mut svg = begin(rows.saturating_mul(ROW).max(ROW), title);
    let most = bars.iter().map(|bar| bar.value).max().unwrap_or_default();
    let room = WIDTH.saturating_sub(LABELS).saturating_sub(NUMBERS);
    for (bar, row) in bars.iter().zip(0_u32..) {
        let top = row.saturating_mul(ROW);
        let (middle, y) = (top.saturating_add(17), top.saturating_add(5));
        // A bar of one among thousands is still to be seen.
        let wide = if bar.value == 0 { 0.0 } else { length(bar.value, most, room).max(2.0) };
        let end = f64::from(LABELS) + wide + 6.0;
        let shown = bar.note.clone().unwrap_or_else(|| grouped(bar.value));
        write!(
            svg,
            "<text x=\"0\" y=\"{middle}\">{}</text>\
             <rect x=\"{LABELS}\" y=\"{y}\" width=\"{wide:.1}\" height=\"16\" rx=\"2\" class=\"{}\"/>\
             <text x=\"{end:.1}\" y=\"{middle}\" class=\"number\">{}</text>",
            escape(&bar.label),
            bar.tone,
            escape(&shown)
        )
        .unwrap_or_default();
    }
    svg.push_str("</svg>");
    svg
}

/// How times are spread, as columns by powers of two.
pub(super) fn spread(title: &str, spread: &Spread) -> String {
    let from = spread.up_to.iter().position(|(_, count)| *count > 0).unwrap_or_default();
    let columns = spread.up_to.get(from..).unwrap_or_default();
    let most = columns.iter().map(|(_, count)| *count).max().unwrap_or_default();
    let mut svg = begin(190, title);
    let width = f64::from(WIDTH) / f64::from(u32::try_from(columns.len().max(6)).unwrap_or(6));
    for ((bound, count), place) in columns.iter().zip(0_u32..) {
        let x = f64::from(place) * width;
        let tall = if *count == 0 { 0.0 } else { length(*count, most, 125).max(1.0) };
        let (top, centre) = (150.0 - tall, x + width / 2.0);
        write!(
            svg,
            "<rect x=\"{:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{tall:.1}\" rx=\"2\" class=\"calm\"/>\
             <text x=\"{centre:.1}\" y=\"{:.1}\" class=\"number mid\">{}</text>\
             <text x=\"{centre:.1}\" y=\"168\" class=\"axis mid\">≤ {}</text>",
            x + 4.0,
            width - 8.0,
            top - 5.0,
            grouped(*count),
            span(*bound)
        )
        .unwrap_or_default();
    }
    write!(svg, "<line x1=\"0\" y1=\"150.5\" x2=\"{WIDTH}\" y2=\"150.5\" class=\"rule\"/></svg>")
        .unwrap_or_default();
    svg
}

fn span(ms: u64) -> String {
    if ms < 1_000 { format!("{ms} ms") } else { format!("{}.{} s", ms / 1_000, ms % 1_000 / 100) }
}

/// The run as it went: answers as stacked columns, trouble below them.
pub(super) fn course(title: &str, slices: &[Slice]) -> String {
    const BASE: f64 = 190.0;
    let whole =
        |slice: &Slice| slice.succeeded.saturating_add(slice.other).saturating_add(slice.lost);
    let most = slices.iter().map(whole).max().unwrap_or_default();
    let hardest = slices
        .iter()
        .map(|slice| slice.kills.saturating_add(slice.faults))
        .max()
        .unwrap_or_default();
    let mut svg = begin(272, title);
    let width = f64::from(WIDTH) / f64::from(u32::try_from(slices.len().max(1)).unwrap_or(1));
    for (slice, place) in slices.iter().zip(0_u32..) {
        let x = f64::from(place) * width;
        let (left, wide) = (x + width * 0.1, width * 0.8);
        let mut top = BASE;
        for (count, tone) in
            [(slice.succeeded, "good"), (slice.other, "calm"), (slice.lost, "faint")]
        {
            let tall = length(count, most, 170);
            top -= tall;
            if count > 0 {
                column(&mut svg, (left, top, wide, tall), tone);
            }
        }
        let kills = length(slice.kills, hardest, 44);
        let faults = length(slice.faults, hardest, 44);
        if slice.kills > 0 {
            column(&mut svg, (left, 200.0, wide, kills), "bad");
        }
        if slice.faults > 0 {
            column(&mut svg, (left, 200.0 + kills, wide, faults), "warn");
        }
    }
    axis(&mut svg, slices);
    write!(
        svg,
        "<text x=\"0\" y=\"12\" class=\"axis\">{} answers in the busiest slice</text></svg>",
        grouped(most)
    )
    .unwrap_or_default();
    svg
}

fn column(svg: &mut String, (x, y, width, height): (f64, f64, f64, f64), tone: &str) {
    write!(svg, "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" class=\"{tone}\"/>")
        .unwrap_or_default();
}

fn axis(svg: &mut String, slices: &[Slice]) {
    write!(svg, "<line x1=\"0\" y1=\"195\" x2=\"{WIDTH}\" y2=\"195\" class=\"rule\"/>")
        .unwrap_or_default();
    let last = slices.len().saturating_sub(1);
    for (place, at, anchor) in [(0, 0, ""), (last / 2, WIDTH / 2, " mid"), (last, WIDTH, " end")] {
        let ms = slices.get(place).map_or(0, |slice| slice.from_ms);
        write!(
            svg,
            "<text x=\"{at}\" y=\"266\" class=\"axis{anchor}\">{}</text>",
            super::text::seconds(ms)
        )
        .unwrap_or_default();
    }
}

/// Text as it may stand in a page.
pub(super) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}
