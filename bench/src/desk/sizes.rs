//! The tables about the approval service.
//!
//! Owns layout and rounding. What a held call weighs is the memory that came since the first line of the same run.

use super::{Memory, Report, Weight, party::looks::PAGE};
use crate::{
    stats::Numbers,
    table::{exact, machine, table, whole},
};

/// The whole report.
pub(super) fn render(report: &Report) -> String {
    let parts = [
        format!(
            "{}\n- ledger: {}\n- load after the run: {}",
            machine(&report.machine),
            report.ledger,
            report.load_after
        ),
        weights(report),
        decisions(report),
        looks(report),
        starts(report),
    ];
    parts.join("\n\n")
}

/// One weight, while the next one is taken.
pub(super) fn line(weight: &Weight) -> String {
    let Weight { held, per_second, memory } = weight;
    format!(
        "{held} held: {} MiB resident, {} held a second",
        mib(memory.resident),
        whole(*per_second)
    )
}

fn weights(report: &Report) -> String {
    let header =
        ["held", "held /s", "resident MiB", "of it no file", "bytes a held call", "of it no file"];
    let first = report.grown.first();
    let rows = report.grown.iter().map(|weight| {
        let each = |of: fn(&Memory) -> u64| {
            let before = first.filter(|first| first.held < weight.held)?;
            let more = of(&weight.memory).saturating_sub(of(&before.memory));
            let calls = weight.held.checked_sub(before.held)?;
            more.checked_div(u64::try_from(calls).ok()?)
        };
        let or_none =
            |bytes: Option<u64>| bytes.map_or_else(|| "–".to_owned(), |bytes| bytes.to_string());
        [
            weight.held.to_string(),
            if weight.per_second > 0.0 { whole(weight.per_second) } else { "–".to_owned() },
            mib(weight.memory.resident),
            mib(weight.memory.own),
            or_none(each(|memory| memory.resident)),
            or_none(each(|memory| memory.own)),
        ]
    });
    format!(
        "Resident memory of `placet serve`, and what of it came with each held call since the first line:\n\n{}",
        table(header, 0, rows)
    )
}

fn decisions(report: &Report) -> String {
    let header = [
        "held",
        "decisions",
        "to the dispatch: p50 ms",
        "p99 ms",
        "to the answer: p50 ms",
        "p99 ms",
        "a page of the inbox: p50 ms",
        "p99 ms",
    ];
    let pair = |counts: &Numbers| [exact(counts.p50_ms), exact(counts.p99_ms)];
    let rows = report.decided.iter().map(|one| {
        let ([d50, d99], [a50, a99]) = (pair(&one.dispatch), pair(&one.answer));
        let [p50, p99] = pair(&one.page);
        [one.held.to_string(), one.dispatch.calls.to_string(), d50, d99, a50, a99, p50, p99]
    });
    format!("From sending the decision that completes an approval:\n\n{}", table(header, 0, rows))
}

fn looks(report: &Report) -> String {
    let rows = report.looked.iter().map(|one| {
        [
            one.look.name().to_owned(),
            one.held.to_string(),
            one.took.calls.to_string(),
            exact(one.took.p50_ms),
            exact(one.took.p99_ms),
        ]
    });
    let header = ["a page", "held", "looks", "p50 ms", "p99 ms"];
    format!("Pages of {PAGE}, until their last byte:\n\n{}", table(header, 1, rows))
}

fn starts(report: &Report) -> String {
    let header = ["held", "after", "listens, ms", "all in the inbox, ms", "resident MiB"];
    let rows = report.starts.iter().map(|start| {
        [
            start.held.to_string(),
            if start.killed { "kill -9" } else { "an orderly stop" }.to_owned(),
            whole(start.listens_ms),
            whole(start.waits_ms),
            mib(start.memory.resident),
        ]
    });
    format!("A start with all of them:\n\n{}", table(header, 0, rows))
}

fn mib(bytes: u64) -> String {
    bytes.div_ceil(1 << 20).to_string()
}
