//! The journal's segments, and the entries in them. The frames are made from the description of their layout, not by the store.

use std::cell::RefCell;
use std::fs;
use std::path::Path;

use placet_store::embedded::{Entry, decode_entry};
use placet_store::journal::verify_each;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::fuzz;

const SEGMENT_BYTES: usize = 8 << 10;
const HEADER_BYTES: usize = 64;

/// Entries as the store writes them; the first two forms hold everything that an entry can.
const ENTRIES: [&str; 5] = [
    r#"{"version":1,"audit":[]}"#,
    r#"{"version":2,"effects":[],"approvals":[],"runs":[],"audit":[]}"#,
    r#"{"version":1,"effects":[{"put":{"record":{"version":1,"record_id":"sha256:9020d78ef66e40014e2da76935891a5fe2f1d482453207324005f5dec3afedb2"}}}]}"#,
    r#"{"version":1,"effects":[{"removed":{"record_id":"sha256:9020d78ef66e40014e2da76935891a5fe2f1d482453207324005f5dec3afedb2","rev":1}}],"reserve":{"run":{"tenant":"acme","agent":"scribe","run_id":"r"},"cents":0}}"#,
    r#"{"version":1,"directives":[{"version":1,"directive_id":"dir_1","tenant":"acme","by":"ada","reason":"r","created_at":"2026-01-01T00:00:00.000Z","starts_at":"2026-01-01T00:00:00.000Z","expires_at":"2026-01-02T00:00:00.000Z","body":{"kind":"freeze","name":"year end"},"requirement":{"groups":{},"quorum":1,"expires_in_ms":1000,"reasons":[]},"rev":1,"votes":[],"state":{"state":"proposed"}}],"spend":"dir_2"}"#,
];

/// One journal with these payloads, each with its kind.
fn journal(payloads: &[(u8, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(b"PLSEGMT\x01");
    bytes.extend(1_u32.to_le_bytes());
    bytes.extend(1_u64.to_le_bytes());
    let frames: usize = payloads.iter().map(|(_, payload)| payload.len().saturating_add(85)).sum();
    let allocated = SEGMENT_BYTES.max(frames.saturating_add(HEADER_BYTES));
    bytes.extend(u64::try_from(allocated).unwrap().to_le_bytes());
    bytes.extend([0; 32]);
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    let mut prev = [0; 32];
    for (seq, (kind, payload)) in (1_u64..).zip(payloads) {
        let mut frame = b"PLJF\x01".to_vec();
        frame.extend([*kind, 0, 0]);
        frame.extend(u32::try_from(payload.len()).unwrap().to_le_bytes());
        for number in [seq, 1, 1_000, seq.saturating_sub(1)] {
            frame.extend(number.to_le_bytes());
        }
        frame.extend(prev);
        frame.extend(crc32c::crc32c(&frame).to_le_bytes());
        frame.extend(*payload);
        prev = Sha256::digest(&frame).into();
        frame.extend(crc32c::crc32c(&frame).to_le_bytes());
        frame.push(0xED);
        bytes.extend(frame);
    }
    bytes.resize(allocated, 0);
    bytes
}

/// A folder whose journal holds this segment; the witness knows of its epoch and of nothing else.
fn put(folder: &Path, segment: &[u8]) {
    let journal = folder.join("journal");
    fs::create_dir_all(&journal).unwrap();
    fs::write(journal.join("000000000001.segment"), segment).unwrap();
    let mut witness = b"PLWITN\x00\x01".to_vec();
    for number in [1_u64, 0, 1] {
        witness.extend(number.to_le_bytes());
    }
    witness.extend([0; 32]);
    witness.extend(crc32c::crc32c(&witness).to_le_bytes());
    fs::write(journal.join("high-water"), witness).unwrap();
}

fn scratch() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// The payloads that verifying hands out.
fn payloads(folder: &Path) -> Option<Vec<Vec<u8>>> {
    let mut found = Vec::new();
    let each = &mut |frame: &placet_store::journal::Frame| {
        found.push(frame.payload.clone());
        Ok(())
    };
    verify_each(&folder.join("journal"), None, each).ok().map(|_| found)
}

#[test]
fn an_altered_segment_is_refused_or_ends_earlier() {
    let (folder, payload) = (scratch(), b"payload".as_slice());
    let sound = journal(&[(1, payload), (2, b""), (1, &[0; 300]), (1, payload)]);
    put(folder.path(), &sound);
    let whole = payloads(folder.path()).unwrap();
    assert_eq!(whole.len(), 4);
    fuzz!(5_000, move |input| {
        put(folder.path(), &input.apply(&[&sound]));
        if let Some(found) = payloads(folder.path()) {
            assert!(whole.starts_with(&found), "an entry is not what was written");
        }
    });
}

#[test]
fn an_entry_of_any_form_is_read_or_refused() {
    let folder = RefCell::new(scratch());
    let folder = std::panic::AssertUnwindSafe(folder);
    fuzz!(5_000, move |input| {
        let payload = input.apply(&ENTRIES);
        let folder = folder.borrow();
        put(folder.path(), &journal(&[(input.choice() % 4, &payload)]));
        let mut read = 0_u32;
        let report = verify_each(&folder.path().join("journal"), None, &mut |frame| {
            // What was read can be written, and reads the same.
            let entry = decode_entry(frame.kind, &frame.payload)?;
            let written = serde_json::to_vec(&entry).unwrap();
            assert_eq!(serde_json::from_slice::<Entry>(&written).unwrap(), entry);
            read = read.saturating_add(1);
            Ok(())
        });
        if let Ok(report) = report {
            assert_eq!(u64::from(read), report.frames);
        }
    });
}

#[test]
fn the_entries_that_are_edited_can_be_read() {
    let folder = scratch();
    put(folder.path(), &journal(&[(2, ENTRIES[0].as_bytes())]));
    let read = verify_each(&folder.path().join("journal"), None, &mut |frame| {
        decode_entry(frame.kind, &frame.payload)?;
        Ok(())
    });
    read.unwrap();
}
