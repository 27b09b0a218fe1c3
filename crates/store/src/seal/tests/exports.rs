//! Exported logs: what verifies elsewhere, and what is said of one that was changed.

use std::collections::BTreeSet;

use placet_ledger::log::LogEntry;
use proptest::prelude::*;

use super::super::{
    ExportHeader, LogFault, SealError, VerifyLogError, WholeLog, entry_hash, export_line,
    verify_whole,
};
use super::{Log, origin};

fn verify(lines: &[String]) -> Result<WholeLog, VerifyLogError> {
    let text: String = lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
    verify_whole(&mut text.as_bytes(), &(0..=40).collect::<BTreeSet<u64>>())
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
        let whole = verify(&log.export()).unwrap();
        assert_eq!((whole.origin, whole.entries), (origin(), size));
        assert_eq!(whole.head, log.statement().chain);
        for (size, seen) in whole.seen {
            let then = Log::of(size).statement();
            assert_eq!(seen, (then.head.root, then.chain));
        }
    }
    assert_eq!(verify(&Log::of(0).export()).unwrap().entries, 0);
}

#[test]
fn a_part_and_another_form_are_refused() {
    let mut lines = Log::of(9).export();
    let whole = lines[0].clone();
    lines[0] = whole.replace("\"first_seq\":1", "\"first_seq\":2");
    assert!(matches!(verify(&lines).unwrap_err().fault, LogFault::Part(2)));
    lines[0] = whole.replace("\"placet_log\":1", "\"placet_log\":2");
    assert!(matches!(verify(&lines).unwrap_err().fault, LogFault::Version(2)));
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
        let named = matches!(error.fault, LogFault::Hash { seq: 12 } | LogFault::Chain { seq: 12 });
        assert!(named && error.line == 13, "{what}: {error}");
        if what == "hash" {
            continue;
        }
        // With its own hash made right, the next entry does not follow it.
        lines[12] = text(&rehashed(line));
        let error = verify(&lines).unwrap_err();
        let expected = if what == "prev" { 12 } else { 13 };
        let broken = matches!(error.fault, LogFault::Chain { seq } if seq == expected);
        assert!(broken, "{what}: {error}");
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
        let seen = verify(&forged.export()).unwrap().seen;
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
    assert_eq!(fault(&missing), "line 6: entry 6 stands where entry 5 is due");
    let mut doubled = log.export();
    doubled.insert(5, doubled[5].clone());
    assert_eq!(fault(&doubled), "line 7: entry 5 stands where entry 6 is due");
    let mut swapped = log.export();
    swapped.swap(5, 6);
    assert_eq!(fault(&swapped), "line 6: entry 6 stands where entry 5 is due");
    assert!(fault(&log.export()[1..]).starts_with("line 1: the line cannot be read"));
    assert_eq!(fault(&[]), "line 1: the export is empty");
}

#[test]
fn time_and_epoch_do_not_go_back_and_nothing_vouches_for_itself() {
    let changes: [(&str, Change); 3] = [
        ("epoch", |line| line.epoch = 0),
        ("time", |line| line.at_ms -= 1_000),
        ("number of durable entries", |line| line.durable_seq = line.seq),
    ];
    for (expected, change) in changes {
        let mut lines = Log::of(20).export();
        let mut line = line_of(&lines, 12);
        change(&mut line);
        lines[12] = text(&rehashed(line));
        let error = verify(&lines).unwrap_err();
        let found = matches!(error.fault, LogFault::Order { seq: 12, what } if what == expected);
        assert!(found, "{expected}: {error}");
    }
}

#[test]
fn what_cannot_be_exported_is_refused() {
    let mut entry = Log::of(1).entries[0].clone();
    entry.payload = vec![0xff];
    assert!(matches!(export_line(&entry), Err(SealError::Export(_))));
}

#[test]
fn a_line_without_end_is_refused() {
    let log = Log::of(3);
    let mut lines = log.export();
    lines[2] = "x".repeat((8 << 20) + 1);
    let error = verify(&lines).unwrap_err();
    assert!(matches!(error.fault, LogFault::TooLong) && error.line == 3, "{error}");
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
        let mut bytes = log.export().join("\n").into_bytes();
        let place = place.index(bytes.len());
        bytes[place] ^= 1 << bit;
        if verify_whole(&mut bytes.as_slice(), &BTreeSet::new()).is_ok_and(|whole| whole.origin == origin()) {
            // Only JSON in another spelling: every value is the same.
            let lines: Vec<_> = bytes.split(|byte| *byte == b'\n').collect();
            let header: ExportHeader = serde_json::from_slice(lines[0]).unwrap();
            prop_assert_eq!(serde_json::to_string(&header).unwrap(), log.export()[0].clone());
            for (line, sound) in lines[1..].iter().zip(&log.export()[1..]) {
                let line: LogEntry = serde_json::from_slice(line).unwrap();
                prop_assert_eq!(&text(&line), sound);
            }
        }
    }
}
