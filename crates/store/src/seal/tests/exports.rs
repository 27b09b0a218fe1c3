//! Exported logs: what verifies elsewhere, and what is said of one that was changed.

use placet_ledger::proof::{Consistency, Frontier};
use placet_types::digest::Digest;
use proptest::prelude::*;

use super::super::{
    ExportHeader, ExportLine, LogFault, LogReport, SealError, Sealer, VerifyLog, VerifyLogError,
    entry_hash, export_header, export_line, verify_log,
};
use super::{AT, Log, key, name, origin, other_key};

fn verify(lines: &[String], checkpoint: &str) -> Result<LogReport, VerifyLogError> {
    verify_with(lines, checkpoint, None, None)
}

fn verify_with(
    lines: &[String],
    checkpoint: &str,
    older: Option<&str>,
    consistency: Option<&Consistency>,
) -> Result<LogReport, VerifyLogError> {
    let key = key();
    let text: String = lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
    let against = VerifyLog { key: key.public(), checkpoint, older, consistency };
    verify_log(&mut text.as_bytes(), &against)
}

fn line_of(lines: &[String], place: usize) -> ExportLine {
    serde_json::from_str(&lines[place]).unwrap()
}

/// What a test does to an entry.
type Change = fn(&mut ExportLine);

/// The line with its hash made right again, as a forger would.
fn rehashed(mut line: ExportLine) -> ExportLine {
    line.hash = entry_hash(&line.clone().into());
    line
}

fn text(line: &ExportLine) -> String {
    serde_json::to_string(line).unwrap()
}

#[test]
fn a_whole_log_verifies_and_the_report_says_how_far() {
    for size in [1, 2, 20, 33] {
        let log = Log::of(size);
        let report = verify(&log.export(1), &log.checkpoint()).unwrap();
        let expected = LogReport {
            origin: origin(),
            first_seq: 1,
            last_seq: size,
            head: log.head().chain,
            sealed_seq: size,
            root: log.frontier().root(),
            older_size: None,
        };
        assert_eq!(report, expected);
    }
    let empty = Log::of(0);
    assert_eq!(verify(&empty.export(1), &empty.checkpoint()).unwrap().last_seq, 0);
}

#[test]
fn a_log_that_went_on_after_the_checkpoint_verifies_and_says_what_is_sealed() {
    let log = Log::of(33);
    let report = verify(&log.export(1), &Log::of(20).checkpoint()).unwrap();
    assert_eq!((report.sealed_seq, report.last_seq), (20, 33));
    assert_eq!(report.root, Log::of(20).frontier().root());
}

#[test]
fn an_older_checkpoint_is_found_on_the_way() {
    let log = Log::of(33);
    for older in [0, 1, 16, 32, 33] {
        let older_note = Log::of(older).checkpoint();
        let report =
            verify_with(&log.export(1), &log.checkpoint(), Some(&older_note), None).unwrap();
        assert_eq!(report.older_size, Some(older));
    }
    let other = Log::from_payloads((0..16).map(|number| format!("\"other {number}\"")));
    let error = verify_with(&log.export(1), &log.checkpoint(), Some(&other.checkpoint()), None);
    let error = error.unwrap_err();
    assert_eq!(
        error.to_string(),
        "line 17: the first 16 entries do not have the root that the older checkpoint says"
    );
    let newer = Log::of(34).checkpoint();
    let error = verify_with(&log.export(1), &log.checkpoint(), Some(&newer), None).unwrap_err();
    assert!(matches!(error.fault, LogFault::Seal { error: SealError::NotAfter { .. }, .. }));
}

#[test]
fn a_part_of_a_log_verifies_with_the_peaks_before_it() {
    let log = Log::of(33);
    for first in [1, 2, 9, 17, 32, 33, 34] {
        let report = verify(&log.export(first), &log.checkpoint()).unwrap();
        assert_eq!((report.first_seq, report.last_seq), (first, 33));
    }
    let older = Log::of(5).checkpoint();
    let error = verify_with(&log.export(9), &log.checkpoint(), Some(&older), None).unwrap_err();
    assert!(matches!(error.fault, LogFault::Unjoined { size: 5 }), "{error}");
    let proof = log.view().consistency(5, 33).unwrap();
    verify_with(&log.export(9), &log.checkpoint(), Some(&older), Some(&proof)).unwrap();
    let wrong = log.view().consistency(6, 33).unwrap();
    let error = verify_with(&log.export(9), &log.checkpoint(), Some(&older), Some(&wrong));
    assert!(matches!(error.unwrap_err().fault, LogFault::Seal { .. }));
    // Right before the first line: the peaks are compared themselves.
    let older = Log::of(8).checkpoint();
    verify_with(&log.export(9), &log.checkpoint(), Some(&older), None).unwrap();
}

#[test]
fn forged_peaks_do_not_verify() {
    let log = Log::of(33);
    let mut lines = log.export(8);
    let mut header: ExportHeader = serde_json::from_str(&lines[0]).unwrap();
    header.peaks[1] = Digest::of(b"other");
    lines[0] = serde_json::to_string(&header).unwrap();
    let error = verify(&lines, &log.checkpoint()).unwrap_err();
    assert!(matches!(error.fault, LogFault::Signed { size: 33, what: "root", .. }), "{error}");
    header.peaks.pop();
    lines[0] = serde_json::to_string(&header).unwrap();
    let error = verify(&lines, &log.checkpoint()).unwrap_err();
    assert!(matches!(error.fault, LogFault::Peaks { first_seq: 8 }));
    let header = ExportHeader { first_seq: 0, peaks: Vec::new(), ..header };
    lines[0] = serde_json::to_string(&header).unwrap();
    assert!(matches!(verify(&lines, &log.checkpoint()).unwrap_err().fault, LogFault::Peaks { .. }));
}

#[test]
fn a_changed_entry_is_named() {
    let log = Log::of(20);
    for place in [1, 7, 20] {
        let mut lines = log.export(1);
        let mut line = line_of(&lines, place);
        line.payload = line.payload.replace("nº", "no");
        lines[place] = text(&line);
        let error = verify(&lines, &log.checkpoint()).unwrap_err();
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
        let mut lines = log.export(1);
        let mut line = line_of(&lines, 12);
        change(&mut line);
        lines[12] = text(&line);
        let error = verify(&lines, &log.checkpoint()).unwrap_err();
        let named = matches!(error.fault, LogFault::Hash { seq: 12 } | LogFault::Chain { seq: 12 });
        assert!(named && error.line == 13, "{what}: {error}");
        if what == "hash" {
            continue;
        }
        // With its own hash made right, the next entry does not follow it.
        lines[12] = text(&rehashed(line));
        let error = verify(&lines, &log.checkpoint()).unwrap_err();
        let expected = if what == "prev" { 12 } else { 13 };
        let broken = matches!(error.fault, LogFault::Chain { seq } if seq == expected);
        assert!(broken, "{what}: {error}");
    }
}

#[test]
fn a_log_made_again_from_a_changed_entry_on_does_not_have_the_signed_root() {
    let log = Log::of(20);
    for changed in 1..=20 {
        let forged = Log::from_payloads(log.entries.iter().map(|entry| {
            if entry.seq == changed {
                "\"nothing happened\"".to_owned()
            } else {
                String::from_utf8(entry.payload.clone()).unwrap()
            }
        }));
        let error = verify(&forged.export(1), &log.checkpoint()).unwrap_err();
        assert!(matches!(error.fault, LogFault::Signed { size: 20, what: "root", .. }), "{error}");
        assert_eq!(error.line, 21);
    }
}

#[test]
fn a_missing_doubled_or_swapped_entry_is_named() {
    let log = Log::of(20);
    let checkpoint = log.checkpoint();
    let fault = |lines: &[String]| verify(lines, &checkpoint).unwrap_err().to_string();
    let mut missing = log.export(1);
    missing.remove(5);
    assert_eq!(fault(&missing), "line 6: entry 6 stands where entry 5 is due");
    let mut doubled = log.export(1);
    doubled.insert(5, doubled[5].clone());
    assert_eq!(fault(&doubled), "line 7: entry 5 stands where entry 6 is due");
    let mut swapped = log.export(1);
    swapped.swap(5, 6);
    assert_eq!(fault(&swapped), "line 6: entry 6 stands where entry 5 is due");
    let mut cut = log.export(1);
    cut.truncate(15);
    assert_eq!(
        fault(&cut),
        "line 0: the export goes from entry 1 to 14, but the checkpoint is about 20 entries"
    );
    assert!(fault(&log.export(1)[1..]).starts_with("line 1: the line cannot be read"));
    assert_eq!(fault(&[]), "line 1: the export is empty");
    let late = Log::of(30).export(25);
    let fault = verify(&late, &checkpoint).unwrap_err().fault;
    assert!(matches!(fault, LogFault::Short { first: 25, last: 30, size: 20 }));
}

#[test]
fn time_and_epoch_do_not_go_back_and_nothing_vouches_for_itself() {
    let changes: [(&str, Change); 3] = [
        ("epoch", |line| line.epoch = 0),
        ("time", |line| line.at_ms -= 1_000),
        ("number of durable entries", |line| line.durable_seq = line.seq),
    ];
    for (expected, change) in changes {
        let mut lines = Log::of(20).export(1);
        let mut line = line_of(&lines, 12);
        change(&mut line);
        lines[12] = text(&rehashed(line));
        let error = verify(&lines, &Log::of(20).checkpoint()).unwrap_err();
        let found = matches!(error.fault, LogFault::Order { seq: 12, what } if what == expected);
        assert!(found, "{expected}: {error}");
    }
}

#[test]
fn a_checkpoint_of_another_key_log_or_chain_does_not_vouch() {
    let log = Log::of(9);
    let (other, checkpoint) = (other_key(), log.checkpoint());
    let against_other =
        VerifyLog { key: other.public(), checkpoint: &checkpoint, older: None, consistency: None };
    let export = log.export(1).join("\n");
    let error = verify_log(&mut export.as_bytes(), &against_other).unwrap_err();
    let not_signed =
        matches!(error.fault, LogFault::Seal { error: SealError::NotSigned { .. }, .. });
    assert!(not_signed && error.line == 0, "{error}");
    let mut lines = log.export(1);
    lines[0] = export_header(&name("elsewhere"), 1, &Frontier::new()).unwrap();
    let error = verify(&lines, &log.checkpoint()).unwrap_err();
    assert!(matches!(error.fault, LogFault::Seal { error: SealError::Log { .. }, .. }), "{error}");
    lines[0] = lines[0].replace("\"placet_log\":1", "\"placet_log\":2");
    let error = verify(&lines, &log.checkpoint()).unwrap_err();
    assert!(matches!(error.fault, LogFault::Version(2)), "{error}");
}

#[test]
fn a_checkpoint_may_be_of_a_later_epoch_than_the_last_entry_but_not_of_an_earlier_one() {
    let log = Log::of(9);
    let signed_in = |epoch| {
        let mut sealer = Sealer::new(key(), origin(), None).unwrap();
        sealer.seal(&log.head(), epoch, AT, |_, _| panic!("nothing to join")).unwrap().to_string()
    };
    verify(&log.export(1), &signed_in(log.epoch() + 5)).unwrap();
    let error = verify(&log.export(1), &signed_in(log.epoch() - 1)).unwrap_err();
    assert!(matches!(error.fault, LogFault::Signed { size: 9, what: "epoch", .. }), "{error}");
}

#[test]
fn what_cannot_be_exported_is_refused() {
    let mut entry = Log::of(1).entries[0].clone();
    entry.payload = vec![0xff];
    assert!(matches!(export_line(&entry), Err(SealError::Export(_))));
    assert!(matches!(export_header(&origin(), 2, &Frontier::new()), Err(SealError::Export(_))));
}

#[test]
fn a_line_without_end_is_refused() {
    let log = Log::of(3);
    let mut lines = log.export(1);
    lines[2] = "x".repeat((8 << 20) + 1);
    let error = verify(&lines, &log.checkpoint()).unwrap_err();
    assert!(matches!(error.fault, LogFault::TooLong) && error.line == 3, "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_payload_survives_the_export(payloads in prop::collection::vec(any::<String>(), 1..20)) {
        let log = Log::from_payloads(payloads);
        verify(&log.export(1), &log.checkpoint()).unwrap();
    }

    #[test]
    fn a_byte_changed_anywhere_is_refused_or_means_the_same(place: prop::sample::Index, bit in 0..8_u32) {
        let log = Log::of(12);
        let mut bytes = log.export(1).join("\n").into_bytes();
        let place = place.index(bytes.len());
        bytes[place] ^= 1 << bit;
        let key = key();
        let checkpoint = log.checkpoint();
        let against = VerifyLog { key: key.public(), checkpoint: &checkpoint, older: None, consistency: None };
        if verify_log(&mut bytes.as_slice(), &against).is_ok() {
            // Only JSON in another spelling: every value is the same.
            let lines: Vec<_> = bytes.split(|byte| *byte == b'\n').collect();
            let header: ExportHeader = serde_json::from_slice(lines[0]).unwrap();
            prop_assert_eq!(serde_json::to_string(&header).unwrap(), log.export(1)[0].clone());
            for (line, sound) in lines[1..].iter().zip(&log.export(1)[1..]) {
                let line: ExportLine = serde_json::from_slice(line).unwrap();
                prop_assert_eq!(&text(&line), sound);
            }
        }
    }
}
