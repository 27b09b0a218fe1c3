//! The tables about the ledger's size.
//!
//! Owns layout and rounding. Every latency stands beside its ratio to that of the smallest size, which is what carries over to
//! another machine.

use super::{Report, Size, claims::Claims, part::Said};
use crate::{
    stats::Numbers,
    table::{exact, machine, table, whole},
};

/// The whole report.
pub(super) fn render(report: &Report) -> String {
    let parts = [
        format!("{}\n- load after the run: {}", machine(&report.machine), report.load_after),
        claims(report),
        starts(report),
        memory(report),
        bytes(report),
    ];
    parts.join("\n\n")
}

/// One size, while the next one is measured.
pub(super) fn line(size: &Size) -> String {
    let known = size.claims.claims.and_then(|claims| claims.known);
    let known = known.map_or(f64::NAN, |known| known.p50_ms);
    format!(
        "  {} records: {} written a second, known key {} µs, start {} s, rebuild {} s",
        size.records,
        whole(per_second(size)),
        exact(known * 1_000.0),
        seconds(size.claims.open_ms),
        seconds(size.rebuild.open_ms),
    )
}

/// What is claimed, by name, with its numbers in each store.
fn kinds(size: &Size) -> Vec<(&'static str, Numbers, Numbers)> {
    let of = |said: &Said, counts: fn(&Claims) -> Option<Numbers>| {
        let large = said.claims.as_ref().and_then(counts)?;
        Some((large, said.reference.as_ref().and_then(counts)?))
    };
    let (warm, cold) = (&size.claims, &size.cold);
    let rows = [
        ("new key, durable", of(warm, |claims| claims.durable)),
        ("new key, in memory", of(warm, |claims| claims.new)),
        ("known key, of the last 10,000", of(warm, |claims| claims.recent)),
        ("known key, of all", of(warm, |claims| claims.known)),
        ("known key, of all, files in no cache", of(cold, |claims| claims.known)),
        ("the machine: 4 KiB at random", of(warm, |claims| claims.page)),
        ("the machine: 4 KiB at random, files in no cache", of(cold, |claims| claims.page)),
    ];
    rows.into_iter().filter_map(|(name, both)| both.map(|(one, two)| (name, one, two))).collect()
}

fn claims(report: &Report) -> String {
    let smallest = report.sizes.first().map_or(0, |size| size.records);
    let beside = [format!("{smallest} records: p50 µs"), "p99 µs".to_owned()];
    let [beside_p50, beside_p99] = &beside;
    let header =
        ["records", "claim", "p50 µs", "p99 µs", beside_p50, beside_p99, "ratio of p50", "of p99"];
    let rows = report.sizes.iter().flat_map(|size| {
        kinds(size).into_iter().map(|(name, now, first)| {
            let micros = |ms: f64| exact(ms * 1_000.0);
            [
                size.records.to_string(),
                name.to_owned(),
                micros(now.p50_ms),
                micros(now.p99_ms),
                micros(first.p50_ms),
                micros(first.p99_ms),
                format!("{:.2}", now.p50_ms / first.p50_ms),
                format!("{:.2}", now.p99_ms / first.p99_ms),
            ]
        })
    });
    format!(
        "Claims by one caller, in a store that has just been opened, alternately with one of {smallest} records, and reads of 4 KiB at random places of the\nsame journal and tables. \"In no cache\": before each claim, and each read, the operating system gives up what it holds of them:\n\n{}",
        table::<8>(header, 2, rows)
    )
}

fn starts(report: &Report) -> String {
    let header = [
        "records",
        "taken over /s",
        "written /s",
        "start after a stop, s",
        "after a kill, s",
        "entries read",
        "without an index, s",
        "rebuild from the whole journal, s",
        "entries /s",
    ];
    let rows = report.sizes.iter().map(|size| {
        let rebuild_s = size.rebuild.open_ms / 1_000.0;
        [
            size.records.to_string(),
            size.import.as_ref().map_or_else(
                || "–".to_owned(),
                |import| whole(float(size.imported) / import.grow_s),
            ),
            whole(per_second(size)),
            seconds(size.claims.open_ms),
            seconds(size.after_kill.open_ms),
            size.after_kill.read.to_string(),
            seconds(size.without_index.open_ms),
            seconds(size.rebuild.open_ms),
            whole(float(size.rebuild.read) / rebuild_s),
        ]
    });
    format!("Starting and rebuilding:\n\n{}", table(header, 0, rows))
}

fn memory(report: &Report) -> String {
    let header = [
        "records",
        "taking over: peak MiB",
        "writing at full rate: peak MiB",
        "start after a kill: peak MiB",
        "open, after the claims (two stores): MiB",
        "rebuild: peak MiB",
    ];
    let rows = report.sizes.iter().map(|size| {
        [
            size.records.to_string(),
            size.import
                .as_ref()
                .map_or_else(|| "–".to_owned(), |import| import.memory.peak_mib.to_string()),
            size.grow.memory.peak_mib.to_string(),
            size.after_kill.memory.peak_mib.to_string(),
            size.claims.memory.now_mib.to_string(),
            size.rebuild.memory.peak_mib.to_string(),
        ]
    });
    format!("Resident memory of the process:\n\n{}", table(header, 0, rows))
}

fn bytes(report: &Report) -> String {
    let header =
        ["records", "journal", "index", "contents", "tree", "bytes a record", "in all, MiB"];
    let rows = report.sizes.iter().map(|size| {
        let each = |bytes: u64| whole(float(bytes) / float(size.records));
        let bytes = size.bytes;
        [
            size.records.to_string(),
            each(bytes.journal),
            each(bytes.index),
            each(bytes.contents),
            each(bytes.tree),
            each(bytes.all()),
            bytes.all().div_euclid(1 << 20).to_string(),
        ]
    });
    format!("Bytes a record on disk, by part:\n\n{}", table(header, 0, rows))
}

fn per_second(size: &Size) -> f64 {
    float(size.grown) / size.grow.grow_s
}

fn seconds(milliseconds: f64) -> String {
    exact(milliseconds / 1_000.0)
}

/// A number to divide; exact up to 2⁵², which is more than any disk holds.
fn float(number: u64) -> f64 {
    let high = u32::try_from(number >> 32).map_or(f64::INFINITY, f64::from);
    let low = u32::try_from(number & u64::from(u32::MAX)).map_or(0.0, f64::from);
    high * 4_294_967_296.0 + low
}

#[cfg(test)]
mod tests {
    use super::{Report, Size, float, line, render};
    use crate::{
        ledger::{
            Bytes,
            claims::Claims,
            part::{Memory, Said},
        },
        machine::Machine,
        stats::Numbers,
    };

    fn size(records: u64, p50_ms: f64, bytes: Bytes) -> Size {
        let counts = |p50_ms| Numbers { calls: 9, per_second: 1.0, p50_ms, p99_ms: 2.0 * p50_ms };
        let claims = |p50_ms| {
            let counts = Some(counts(p50_ms));
            let all = Claims { new: counts, recent: counts, known: counts, ..Claims::default() };
            Some(Claims { durable: counts, page: counts, ..all })
        };
        let said = Said {
            open_ms: 250.0,
            read: 4_000,
            grow_s: 2.0,
            memory: Memory { peak_mib: 321, now_mib: 123 },
            claims: claims(p50_ms),
            reference: claims(0.004),
            ..Said::default()
        };
        Size {
            records,
            imported: 0,
            import: None,
            grown: records,
            grow: said.clone(),
            after_kill: said.clone(),
            claims: said.clone(),
            without_index: said.clone(),
            rebuild: said.clone(),
            cold: said,
            bytes,
        }
    }

    #[test]
    fn every_size_stands_beside_the_smallest() {
        let machine = Machine::look(std::path::Path::new("."));
        let bytes = Bytes { journal: 2_000_000, index: 300_000, contents: 0, tree: 0 };
        let sizes = vec![size(1_000, 0.004, bytes), size(2_000, 0.005, bytes)];
        let text = render(&Report { machine, load_after: "0.77".to_owned(), sizes });
        for needed in
            ["4.00", "1.00", "1.25", "10.00", "2300", "16000", "321", "123", "0.77", "0.25"]
        {
            assert!(text.contains(needed), "{needed} is missing in\n{text}");
        }
        assert_eq!(text.matches("known key, of all, files in no cache").count(), 2, "{text}");
        assert_eq!(text.matches("the machine: 4 KiB").count(), 4, "{text}");
        assert!(line(&size(1_000, 0.004, Bytes::default())).contains("500 written a second"));
    }

    #[test]
    fn large_numbers_stay_exact() {
        assert_eq!(float(0), 0.0);
        assert_eq!(float(25_000_000_001), 25_000_000_001.0);
    }
}
