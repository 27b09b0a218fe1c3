//! Exported logs: what verifies elsewhere, and what is said of one that was changed.

use std::collections::BTreeMap;
use std::fmt;

use placet_ledger::log::LogEntry;
use placet_types::digest::Digest;
use proptest::prelude::*;

use super::super::{ExportHeader, SealError, Walk, entry_hash, export_line};
use super::{Log, origin};
use crate::journal::Fault;

/// The root and the last hash at each size.
type Seen = BTreeMap<u64, (Digest, [u8; 32])>;

/// What is wrong, and in which line.
#[derive(Debug)]
struct Wrong {
    line: usize,
    fault: Fault,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.fault)
    }
}

/// Verifies the entries of a whole log.
fn verify(lines: &[String]) -> Result<Seen, Wrong> {
    let (mut walk, mut seen) = (Walk::new(), Seen::new());
    for (at, line) in lines.iter().enumerate().skip(1) {
        let entry: LogEntry = serde_json::from_str(line).unwrap();
        walk.entry(&entry).map_err(|fault| Wrong { line: at + 1, fault })?;
        seen.insert(walk.frontier().size(), (walk.frontier().root(), walk.head()));
    }
    Ok(seen)
}

fn line_of(lines: &[String], place: usize) -> LogEntry {
    serde_json::from_str(&lines[place]).unwrap()
}

/// What a test does to an entry.
type Change = fn(&mut LogEntry);

/// The line with its hash made right again, as a forger would.
fn rehashed(mut line: LogEntry) -> LogEntry {
    line.hash = entry_hash(&line);
    line
}

fn text(line: &LogEntry) -> String {
    serde_json::to_string(line).unwrap()
}

#[test]
fn a_whole_log_verifies_and_shows_what_stood_at_every_size() {
    for size in [1, 2, 20, 33] {
        let log = Log::of(size);
        let lines = log.export();
        let header: ExportHeader = serde_json::from_str(&lines[0]).unwrap();
        assert_eq!((header.origin, header.first_seq, header.peaks), (origin(), 1, Vec::new()));
        let seen = verify(&lines).unwrap();
        assert!(seen.keys().copied().eq(1..=size), "{seen:?}");
        for (size, seen) in seen {
            let then = Log::of(size).statement();
            assert_eq!(seen, (then.head.root, then.chain));
        }
    }
    assert!(verify(&Log::of(0).export()).unwrap().is_empty());
}

#[test]
fn a_changed_entry_is_named() {
    let log = Log::of(20);
    for place in [1, 7, 20] {
        let mut lines = log.export();
        let mut line = line_of(&lines, place);
        let payload = String::from_utf8(line.payload).unwrap();
        line.payload = payload.replace("nº", "no").into_bytes();
        lines[place] = text(&line);
        let error = verify(&lines).unwrap_err();
        let line_number = place + 1;
        assert_eq!(
            error.to_string(),
            format!("line {line_number}: entry {place} is not what its hash says: it was changed")
        );
    }
}

#[test]
fn every_field_of_an_entry_is_covered() {
    let log = Log::of(20);
    let changes: [(&str, Change); 6] = [
        ("epoch", |line| line.epoch += 1),
        ("at_ms", |line| line.at_ms += 1),
        ("kind", |line| line.kind ^= 1),
        ("durable_seq", |line| line.durable_seq -= 1),
        ("prev", |line| line.prev[0] ^= 1),
        ("hash", |line| line.hash[31] ^= 1),
    ];
    for (what, change) in changes {
        let mut lines = log.export();
        let mut line = line_of(&lines, 12);
        change(&mut line);
        lines[12] = text(&line);
        let error = verify(&lines).unwrap_err();
        let named = "line 13: entry 12 is not what its hash says: it was changed";
        assert_eq!(error.to_string(), named, "{what}");
        if what == "hash" {
            continue;
        }
        // With its own hash made right, the next entry does not follow it.
        lines[12] = text(&rehashed(line));
        let error = verify(&lines).unwrap_err();
        let expected = if what == "prev" { 12 } else { 13 };
        let broken = format!("where entry {expected} is due: the hash chain is broken");
        assert!(error.to_string().contains(&broken), "{what}: {error}");
    }
}

#[test]
fn a_log_made_again_from_a_changed_entry_on_has_another_root_from_there_on() {
    let log = Log::of(20);
    for changed in 1..=20 {
        let forged = Log::from_payloads(log.entries.iter().map(|entry| {
            if entry.seq == changed {
                "\"nothing happened\"".to_owned()
            } else {
                String::from_utf8(entry.payload.clone()).unwrap()
            }
        }));
        let seen = verify(&forged.export()).unwrap();
        for size in 1..=20 {
            let then = Log::of(size).statement();
            assert_eq!(seen[&size] == (then.head.root, then.chain), size < changed);
        }
    }
}

#[test]
fn a_missing_doubled_or_swapped_entry_is_named() {
    let log = Log::of(20);
    let fault = |lines: &[String]| verify(lines).unwrap_err().to_string();
    let mut missing = log.export();
    missing.remove(5);
    assert_eq!(
        fault(&missing),
        "line 6: where entry 5 is due: the sequence is broken: found entry 6"
    );
    let mut doubled = log.export();
    doubled.insert(5, doubled[5].clone());
    assert_eq!(
        fault(&doubled),
        "line 7: where entry 6 is due: the sequence is broken: found entry 5"
    );
    let mut swapped = log.export();
    swapped.swap(5, 6);
    assert_eq!(
        fault(&swapped),
        "line 6: where entry 5 is due: the sequence is broken: found entry 6"
    );
}

#[test]
fn time_and_epoch_do_not_go_back_and_nothing_vouches_for_itself() {
    let changes: [(&str, Change); 3] = [
        ("where entry 12 is due: the epoch goes backwards", |line| line.epoch = 0),
        ("where entry 12 is due: the time goes backwards", |line| line.at_ms -= 1_000),
        ("entry 12 says of itself", |line| line.durable_seq = line.seq),
    ];
    for (expected, change) in changes {
        let mut lines = Log::of(20).export();
        let mut line = line_of(&lines, 12);
        change(&mut line);
        lines[12] = text(&rehashed(line));
        let error = verify(&lines).unwrap_err();
        assert!(error.to_string().contains(expected), "{expected}: {error}");
    }
}

#[test]
fn what_cannot_be_exported_is_refused() {
    let mut entry = Log::of(1).entries[0].clone();
    entry.payload = vec![0xff];
    assert!(matches!(export_line(&entry), Err(SealError::Export(_))));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_payload_survives_the_export(payloads in prop::collection::vec(any::<String>(), 1..20)) {
        let log = Log::from_payloads(payloads);
        verify(&log.export()).unwrap();
    }

    #[test]
    fn a_byte_changed_anywhere_is_refused_or_means_the_same(place: prop::sample::Index, bit in 0..8_u32) {
        let log = Log::of(12);
        let sound = &log.export()[1..];
        let mut bytes = sound.join("\n").into_bytes();
        let place = place.index(bytes.len());
        bytes[place] ^= 1 << bit;
        let lines = bytes.split(|byte| *byte == b'\n');
        let entries: Result<Vec<LogEntry>, _> = lines.map(serde_json::from_slice).collect();
        let mut walk = Walk::new();
        if let Ok(entries) = entries && entries.iter().all(|entry| walk.entry(entry).is_ok()) {
            // Only JSON in another spelling: every value is the same.
            let spelled: Vec<String> = entries.iter().map(text).collect();
            prop_assert_eq!(&spelled, sound);
        }
    }
}
