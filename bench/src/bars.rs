//! The bars that the design sets, each with what was measured.
//!
//! Owns the bars and the tables. The tables are Markdown, so that the output can be published as it is. Invariant: what
//! was not measured is shown as not measured, never as met.

use anyhow::Result;
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use crate::{
    decisions::DecisionCost,
    fleet::Fleet,
    governed::{AllGoverned, Governed, READ, READ_FILE, READ_MCP, REPLAY, WRITE},
    ledger::Size,
    machine::Machine,
};

/// The syncs per second that the disk needs for the bar of 256 writers to apply.
const SYNCS_NEEDED: f64 = 2_000.0;

/// The numbers of one run.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Report {
    /// The machine they were taken on.
    pub(crate) machine: Machine,
    /// Governed calls.
    pub(crate) governed: AllGoverned,
    /// Decisions.
    pub(crate) decisions: Vec<DecisionCost>,
    /// Durable writes to a database.
    pub(crate) fleets: Vec<Fleet>,
    /// Ledgers, by size.
    pub(crate) ledgers: Vec<Size>,
}

/// Which side of the bar is the good one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Side {
    AtLeast,
    AtMost,
}

/// One bar.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Bar {
    work: String,
    unit: &'static str,
    side: Side,
    bar: f64,
    /// Absent: not measured in this run, or not applicable on this disk.
    measured: Option<f64>,
}

impl Bar {
    fn is_met(&self) -> Option<bool> {
        self.measured.map(|measured| match self.side {
            Side::AtLeast => measured >= self.bar,
            Side::AtMost => measured <= self.bar,
        })
    }
}

impl Report {
    /// One JSON document.
    pub(crate) fn json(&self) -> Result<String> {
        #[derive(Serialize)]
        struct Document<'a> {
            #[serde(flatten)]
            report: &'a Report,
            bars: Vec<Bar>,
        }
        Ok(serde_json::to_string_pretty(&Document { report: self, bars: self.bars() })?)
    }

    /// The tables.
    pub(crate) fn text(&self) -> String {
        let mut parts = vec![self.machine.to_string(), self.bar_table(), self.call_table()];
        parts.extend((!self.fleets.is_empty()).then(|| self.fleet_table()));
        parts.join("\n\n")
    }

    fn call(&self, name: &str, callers: usize) -> Option<&Governed> {
        self.governed.calls.iter().find(|one| one.call == name && one.callers == callers)
    }

    fn bars(&self) -> Vec<Bar> {
        let mut bars = self.read_bars();
        bars.extend(self.write_bars());
        bars.extend(self.decisions.iter().map(|one| {
            let work = format!("decision, {} policies of which 20 concern the tool", one.policies);
            at_most(work, "µs", 70.0, Some(one.p50_us))
        }));
        let held = self.governed.held;
        let calls = held.map_or(100_000, |held| held.calls);
        let each = held.map(|held| held.bytes_each);
        bars.push(at_most(
            format!("memory for each of {calls} held calls"),
            "bytes",
            4_096.0,
            each,
        ));
        bars.extend(self.ledger_bars());
        bars
    }

    fn read_bars(&self) -> Vec<Bar> {
        let read = |callers| self.call(READ, callers);
        let ratio = |callers| read(callers).and_then(|one| one.ratio);
        let cpu = |name| self.call(name, 32).map(|one| one.cpu_us);
        let added = read(1).and_then(Governed::added_ms);
        let over_mcp = |callers| self.call(READ_MCP, callers);
        let mcp_ratio = |callers| over_mcp(callers).and_then(|one| one.ratio);
        vec![
            at_least("read, calls/s ÷ direct, 1 caller", "", 0.35, ratio(1)),
            at_least("read, calls/s ÷ direct, 32 callers", "", 0.25, ratio(32)),
            at_most("read of a file, CPU of placet, 32 callers", "µs", 200.0, cpu(READ_FILE)),
            at_most("read over HTTP, CPU of placet, 32 callers", "µs", 260.0, cpu(READ)),
            at_most("read, added p50, 1 caller", "ms", 0.4, added),
            at_least("read over /mcp, calls/s ÷ direct, 1 caller", "", 0.35, mcp_ratio(1)),
            at_least("read over /mcp, calls/s ÷ direct, 32 callers", "", 0.35, mcp_ratio(32)),
            at_most(
                "read over /mcp, CPU of placet, 32 callers",
                "µs",
                260.0,
                over_mcp(32).map(|one| one.cpu_us),
            ),
            at_most(
                "read over /mcp, added p50, 1 caller",
                "ms",
                0.4,
                over_mcp(1).and_then(Governed::added_ms),
            ),
        ]
    }

    fn write_bars(&self) -> Vec<Bar> {
        let disk = &self.governed.disk;
        let direct = self.call(READ, 1).and_then(|one| one.direct);
        let added = self.call(WRITE, 1).zip(direct);
        let added = added.map(|(one, direct)| one.numbers.p50_ms - direct.p50_ms);
        let fast_disk = disk.per_second >= SYNCS_NEEDED;
        let writes = self.call(WRITE, 256).filter(|_| fast_disk);
        let replays = self.call(REPLAY, 32);
        let one_node = self.fleets.iter().find(|one| one.nodes == 1 && one.callers == 256);
        vec![
            at_most("durable write, added p50, 1 caller", "ms", 2.0 * disk.p50_ms + 0.5, added),
            at_least(
                "durable writes, 256 callers, disk ≥ 2000 fsyncs/s",
                "/s",
                5_000.0,
                writes.map(|one| one.numbers.per_second),
            ),
            at_least(
                "durable writes to PostgreSQL, 1 node, 256 callers",
                "/s",
                1_500.0,
                one_node.map(|one| one.numbers.per_second),
            ),
            at_least(
                "replays, 32 callers",
                "/s",
                12_000.0,
                replays.map(|one| one.numbers.per_second),
            ),
            at_most(
                "replay, CPU of placet, 32 callers",
                "µs",
                120.0,
                replays.map(|one| one.cpu_us),
            ),
        ]
    }

    fn ledger_bars(&self) -> Vec<Bar> {
        let size = |records: u64| self.ledgers.iter().find(|one| one.records == records).copied();
        let claim = |one: Size| one.new_p50_us.max(one.known_p50_us);
        let (one_million, ten_million) = (size(1_000_000), size(10_000_000));
        vec![
            at_most(
                "claim, p50 without the fsync, 1,000,000 records",
                "µs",
                30.0,
                one_million.map(claim),
            ),
            at_most(
                "claim, p50 without the fsync, 10,000,000 records",
                "µs",
                100.0,
                ten_million.map(claim),
            ),
            at_most("clean start, 1,000,000 records", "s", 5.0, one_million.map(|one| one.start_s)),
            at_most("rebuild, 1,000,000 records", "s", 60.0, one_million.map(|one| one.rebuild_s)),
        ]
    }

    fn bar_table(&self) -> String {
        let rows = self.bars().into_iter().map(|bar| {
            let sign = if bar.side == Side::AtLeast { "≥" } else { "≤" };
            let value = |value: f64| format!("{} {}", rounded(value), bar.unit).trim().to_owned();
            let met = match bar.is_met() {
                Some(true) => "yes",
                Some(false) => "no",
                None => "not measured",
            };
            let measured = bar.measured.map_or_else(|| "–".to_owned(), value);
            [bar.work.clone(), measured, format!("{sign} {}", value(bar.bar)), met.to_owned()]
        });
        table(["work", "measured", "bar", "met"], rows)
    }

    fn call_table(&self) -> String {
        let header = [
            "call",
            "callers",
            "calls/s",
            "p50 ms",
            "p99 ms",
            "CPU of placet, µs",
            "waits",
            "direct calls/s",
            "p50 ms",
        ];
        let rows = self.governed.calls.iter().map(|one| {
            let direct = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), rounded);
            [
                one.call.to_owned(),
                one.callers.to_string(),
                rounded(one.numbers.per_second),
                rounded(one.numbers.p50_ms),
                rounded(one.numbers.p99_ms),
                rounded(one.cpu_us),
                rounded(one.waits),
                direct(one.direct.map(|direct| direct.per_second)),
                direct(one.direct.map(|direct| direct.p50_ms)),
            ]
        });
        let disk = &self.governed.disk;
        format!(
            "{}\n\nThe disk alone, 4 KiB appended and `fdatasync`: {} /s, p50 {} ms, p99 {} ms.",
            table(header, rows),
            rounded(disk.per_second),
            rounded(disk.p50_ms),
            rounded(disk.p99_ms)
        )
    }

    fn fleet_table(&self) -> String {
        let header = [
            "writes to PostgreSQL",
            "callers",
            "calls/s",
            "p50 ms",
            "p99 ms",
            "CPU of the nodes, µs",
            "CPU of the database, µs",
        ];
        let rows = self.fleets.iter().map(|one| {
            [
                format!("{} node{}", one.nodes, if one.nodes == 1 { "" } else { "s" }),
                one.callers.to_string(),
                rounded(one.numbers.per_second),
                rounded(one.numbers.p50_ms),
                rounded(one.numbers.p99_ms),
                rounded(one.nodes_cpu_us),
                one.database_cpu_us.map_or_else(|| "–".to_owned(), rounded),
            ]
        });
        table(header, rows)
    }
}

fn at_least(work: impl Into<String>, unit: &'static str, bar: f64, measured: Option<f64>) -> Bar {
    Bar { work: work.into(), unit, side: Side::AtLeast, bar, measured }
}

fn at_most(work: impl Into<String>, unit: &'static str, bar: f64, measured: Option<f64>) -> Bar {
    Bar { work: work.into(), unit, side: Side::AtMost, bar, measured }
}

impl Governed {
    /// How much longer than the direct call the median call takes, in milliseconds.
    fn added_ms(&self) -> Option<f64> {
        self.direct.map(|direct| self.numbers.p50_ms - direct.p50_ms)
    }
}

/// A Markdown table whose first column is text; the others are numbers.
fn table<const N: usize>(header: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(header);
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

/// Three significant digits, as far as there are that many.
fn rounded(value: f64) -> String {
    let text = match value.abs() {
        size if size < 10.0 => format!("{value:.2}"),
        size if size < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    };
    if text == "-0.00" { "0.00".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::{Report, at_least, at_most, rounded, table};
    use crate::{
        decisions::DecisionCost,
        fleet::Fleet,
        governed::{AllGoverned, Governed, Held, READ, READ_FILE, REPLAY, WRITE},
        ledger::Size,
        machine::Machine,
        stats::Numbers,
    };

    fn report(syncs: f64) -> Report {
        let numbers = |per_second| Numbers { calls: 10, per_second, p50_ms: 1.0, p99_ms: 2.5 };
        let call = |call, callers| Governed {
            call,
            callers,
            numbers: numbers(7_000.0),
            cpu_us: 150.0,
            waits: 3.0,
            direct: (call == READ).then(|| Numbers { p50_ms: 0.7, ..numbers(20_000.0) }),
            ratio: (call == READ).then_some(0.3),
        };
        let calls =
            [(READ, 1), (READ, 32), (READ_FILE, 32), (WRITE, 1), (WRITE, 256), (REPLAY, 32)];
        Report {
            machine: Machine::look(std::path::Path::new(".")),
            governed: AllGoverned {
                calls: calls.map(|(name, callers)| call(name, callers)).to_vec(),
                disk: numbers(syncs),
                held: Some(Held { calls: 10_000, bytes_each: 5_000.0 }),
            },
            decisions: vec![DecisionCost {
                policies: 60,
                compile_ms: 9.0,
                p50_us: 60.0,
                p99_us: 70.0,
            }],
            fleets: vec![Fleet {
                nodes: 1,
                callers: 256,
                numbers: numbers(1_600.0),
                nodes_cpu_us: 450.0,
                database_cpu_us: None,
            }],
            ledgers: vec![Size { records: 1_000_000, start_s: 0.2, ..Size::default() }],
        }
    }

    fn met(report: &Report, work: &str) -> Option<bool> {
        let bars = report.bars();
        bars.iter().find(|bar| bar.work.starts_with(work)).unwrap().is_met()
    }

    #[test]
    fn every_bar_is_compared_on_its_own_side() {
        let report = report(3_000.0);
        assert_eq!(met(&report, "read, calls/s ÷ direct, 1 "), Some(false));
        assert_eq!(met(&report, "read, calls/s ÷ direct, 32"), Some(true));
        assert_eq!(met(&report, "read of a file, CPU"), Some(true));
        assert_eq!(met(&report, "read, added p50"), Some(true));
        assert_eq!(met(&report, "durable writes, 256"), Some(true));
        assert_eq!(met(&report, "durable writes to PostgreSQL"), Some(true));
        assert_eq!(met(&report, "replays, 32"), Some(false));
        assert_eq!(met(&report, "replay, CPU"), Some(false));
        assert_eq!(met(&report, "decision, 60"), Some(true));
        assert_eq!(met(&report, "memory for each of 10000"), Some(false));
        assert_eq!(met(&report, "clean start"), Some(true));
    }

    #[test]
    fn what_was_not_measured_is_not_met() {
        assert_eq!(met(&report(3_000.0), "claim, p50 without the fsync, 10,000,000"), None);
        assert_eq!(met(&report(300.0), "durable writes, 256"), None, "the disk is too slow");
        assert!(report(300.0).text().contains("not measured"));
    }

    #[test]
    fn the_document_says_the_same_as_the_tables() {
        let report = report(3_000.0);
        let value: serde_json::Value = serde_json::from_str(&report.json().unwrap()).unwrap();
        assert_eq!(value["governed"]["disk"]["per_second"], 3_000.0);
        assert_eq!(value["bars"].as_array().unwrap().len(), report.bars().len());
        let text = report.text();
        for needed in ["cores", "20000", "7000", "0.30", "5000 bytes"] {
            assert!(text.contains(needed), "{needed} is missing in\n{text}");
        }
    }

    #[test]
    fn a_bar_itself_is_met() {
        assert_eq!(at_least("a", "", 0.25, Some(0.25)).is_met(), Some(true));
        assert_eq!(at_most("a", "", 0.25, Some(0.25)).is_met(), Some(true));
    }

    #[test]
    fn a_table_is_markdown() {
        let text = table(["a", "b"], [["x".to_owned(), "1".to_owned()]].into_iter());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines.iter().all(|line| line.starts_with('|') && line.ends_with('|')), "{text}");
    }

    #[test]
    fn small_numbers_keep_their_digits() {
        let all = [9.546, 12.34, 1_234.5, -0.001].map(rounded);
        assert_eq!(all, ["9.55", "12.3", "1234", "0.00"]);
    }
}
