//! The tables people read.
//!
//! Owns layout and rounding. The tables are Markdown, so that what is printed can be published as it is.

use comfy_table::{CellAlignment, Table, presets};

use crate::{machine::Machine, policy, report::Report};

/// The whole report.
pub(crate) fn render(report: &Report) -> String {
    let parts = [
        machine(&report.machine),
        overhead(report),
        writes(report),
        replays(report),
        decisions(report),
    ];
    parts.join("\n\n")
}

/// What the numbers were taken on.
pub(crate) fn machine(machine: &Machine) -> String {
    let mut lines = vec![
        format!(
            "- machine: {} cores, {}, {}; load before the run: {}",
            machine.cores, machine.processor, machine.kernel, machine.load
        ),
        format!("- data folder: {}", machine.file_system),
        format!("- fsync: {}", machine.fsync),
        format!("- read audit: {}", machine.read_audit),
        format!(
            "- policies: the {} shipped ones; profile: {}",
            policy::shipped_count(),
            machine.profile
        ),
    ];
    if machine.in_memory {
        lines.push("- NOTE: the data folder is in memory, so the numbers about writes say nothing about a disk".to_owned());
    }
    if machine.profile == "debug" {
        lines.push("- NOTE: this is a debug build, so the numbers say nothing".to_owned());
    }
    lines.join("\n")
}

fn overhead(report: &Report) -> String {
    let header = [
        "call",
        "transport",
        "callers",
        "direct /s",
        "p50 ms",
        "p99 ms",
        "governed /s",
        "p50 ms",
        "p99 ms",
        "p50 ratio",
        "(range)",
        "added ms",
    ];
    let rows = report.overhead.iter().map(|one| {
        [
            one.call.to_owned(),
            one.transport.to_string(),
            one.concurrency.to_string(),
            whole(one.direct.per_second),
            exact(one.direct.p50_ms),
            exact(one.direct.p99_ms),
            whole(one.governed.per_second),
            exact(one.governed.p50_ms),
            exact(one.governed.p99_ms),
            format!("{:.1}", one.ratio.median),
            format!("{:.1}–{:.1}", one.ratio.least, one.ratio.most),
            exact(one.added_ms()),
        ]
    });
    format!(
        "A governed call against the same call made directly, in turns:\n\n{}",
        table(header, 2, rows)
    )
}

fn writes(report: &Report) -> String {
    let disk = &report.writes.disk;
    let header = [
        "callers",
        "writes /s",
        "p50 ms",
        "p99 ms",
        "journal syncs /s",
        "entries a sync",
        "writes by disk syncs",
    ];
    let rows = report.writes.rates.iter().map(|one| {
        [
            one.concurrency.to_string(),
            whole(one.counts.per_second),
            exact(one.counts.p50_ms),
            exact(one.counts.p99_ms),
            whole(one.syncs_per_second),
            one.batch.map_or_else(|| "–".to_owned(), |batch| format!("{batch:.1}")),
            format!("{:.2}", one.counts.per_second / disk.per_second),
        ]
    });
    format!(
        "Durable writes over stdio. The disk alone, 4 KiB appended and `fdatasync`: {} /s, p50 {} ms, p99 {} ms:\n\n{}",
        whole(disk.per_second),
        exact(disk.p50_ms),
        exact(disk.p99_ms),
        table(header, 0, rows)
    )
}

fn replays(report: &Report) -> String {
    let rows = report.replays.iter().map(|one| {
        let counts = &one.counts;
        [
            one.concurrency.to_string(),
            whole(counts.per_second),
            exact(counts.p50_ms),
            exact(counts.p99_ms),
        ]
    });
    format!(
        "Replays of a recorded result:\n\n{}",
        table(["callers", "replays /s", "p50 ms", "p99 ms"], 0, rows)
    )
}

fn decisions(report: &Report) -> String {
    let header = [
        "policies",
        "all about the tool: p50 µs",
        "p99 µs",
        "about another tool: p50 µs",
        "p99 µs",
        "compiled once, ms",
    ];
    let rows = report.decisions.iter().map(|one| {
        [
            one.policies.to_string(),
            whole(one.concerned.p50_us),
            whole(one.concerned.p99_us),
            whole(one.elsewhere.p50_us),
            whole(one.elsewhere.p99_us),
            whole(one.compile_ms),
        ]
    });
    format!(
        "One policy decision, `placet-policy` alone, on one core:\n\n{}",
        table(header, 0, rows)
    )
}

/// A Markdown table whose first `words` columns are text; the others are numbers.
pub(crate) fn table<const N: usize>(
    header: [&str; N],
    words: usize,
    rows: impl Iterator<Item = [String; N]>,
) -> String {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(header);
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(words) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

pub(crate) fn whole(value: f64) -> String {
    if value < 10.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}

pub(crate) fn exact(value: f64) -> String {
    let text = format!("{value:.2}");
    if text == "-0.00" { "0.00".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::{exact, render, table, whole};
    use crate::{
        machine::Machine,
        overhead::{Comparison, Ratio},
        peer::Transport,
        policy::{DecisionCost, DecisionTime},
        report::Report,
        stats::Numbers,
        writes::{ReplayRate, WriteRate, Writes},
    };

    fn report() -> Report {
        let counts = |per_second| Numbers { calls: 10, per_second, p50_ms: 1.0, p99_ms: 2.5 };
        let time = DecisionTime { p50_us: 40.0, p99_us: 80.0 };
        let ratio = Ratio { median: 3.0, least: 2.0, most: 4.0 };
        Report {
            machine: Machine::look(std::path::Path::new(".")),
            overhead: vec![Comparison {
                call: "read",
                transport: Transport::Stdio,
                concurrency: 32,
                direct: counts(9_000.0),
                governed: Numbers { p50_ms: 1.25, ..counts(3_000.0) },
                ratio,
            }],
            writes: Writes {
                disk: counts(500.0),
                rates: vec![WriteRate {
                    concurrency: 256,
                    counts: counts(1_000.0),
                    syncs_per_second: 400.0,
                    batch: None,
                }],
            },
            replays: vec![ReplayRate { concurrency: 1, counts: counts(700.0) }],
            decisions: vec![DecisionCost {
                policies: 200,
                compile_ms: 9.0,
                concerned: time,
                elsewhere: time,
            }],
        }
    }

    #[test]
    fn every_figure_stands_with_what_it_depends_on() {
        let text = render(&report());
        for needed in [
            "cores",
            "data folder",
            "fsync",
            "shipped ones",
            "9000",
            "3000",
            "2.0–4.0",
            "0.25",
            "2.00",
            "700",
            "200",
        ] {
            assert!(text.contains(needed), "{needed} is missing in\n{text}");
        }
        assert!(text.contains("–"), "an unknown batch is a dash\n{text}");
    }

    #[test]
    fn the_json_document_says_the_same() {
        let value: serde_json::Value = serde_json::from_str(&report().json().unwrap()).unwrap();
        assert_eq!(value["overhead"][0]["transport"], "stdio");
        assert_eq!(value["writes"]["disk"]["per_second"], 500.0);
        assert_eq!(value["writes"]["rates"][0]["batch"], serde_json::Value::Null);
        assert_eq!(value["decisions"][0]["policies"], 200);
    }

    #[test]
    fn a_table_is_markdown() {
        let text = table(["a", "b"], 1, [["x".to_owned(), "1".to_owned()]].into_iter());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines.iter().all(|line| line.starts_with('|') && line.ends_with('|')), "{text}");
        assert!(lines[1].chars().all(|c| "|-: ".contains(c)), "{text}");
    }

    #[test]
    fn small_numbers_keep_a_digit() {
        assert_eq!(
            (whole(9.54).as_str(), whole(1_234.5).as_str(), exact(0.126).as_str()),
            ("9.5", "1234", "0.13")
        );
    }
}
