//! What a sound journal does.

use std::os::unix::fs::PermissionsExt;

use sha2::{Digest, Sha256};
use tempfile::tempdir;

use super::{FaultyDisk, fill, on, open, payloads, small, verify};
use crate::journal::{Journal, JournalConfig, JournalError, PAYLOAD_BYTES_MAX, verify_each};

#[test]
fn what_was_appended_is_found_again_in_order() {
    let folder = tempdir().unwrap();
    let (mut journal, seen, _) = open(small(folder.path())).unwrap();
    assert!(seen.is_empty());
    assert_eq!((journal.epoch(), journal.segment.number), (1, 1));
    assert_eq!(journal.head(), (0, [0; 32]));
    let first = journal.append(7, 1_000, b"one").unwrap();
    let second = journal.append(8, 1_001, b"").unwrap();
    assert_eq!((first.seq, second.seq), (1, 2));
    journal.close().unwrap();

    let (journal, seen, torn_bytes) = open(small(folder.path())).unwrap();
    assert_eq!(payloads(&seen), [b"one".to_vec(), Vec::new()]);
    assert_eq!((seen[0].kind, seen[0].at_ms, seen[0].epoch), (7, 1_000, 1));
    assert_eq!((seen[0].hash, seen[1].prev, seen[1].hash), (first.hash, first.hash, second.hash));
    assert_eq!((journal.head(), torn_bytes), ((2, second.hash), 0));
    assert_eq!(journal.epoch(), 2);
}

#[test]
fn what_was_only_buffered_is_gone_and_what_was_written_survives_the_process() {
    let folder = tempdir().unwrap();
    let (mut journal, ..) = open(small(folder.path())).unwrap();
    journal.append(1, 0, b"written").unwrap();
    journal.write().unwrap();
    journal.append(1, 0, b"buffered").unwrap();
    drop(journal);
    let (mut journal, seen, torn_bytes) = open(small(folder.path())).unwrap();
    assert_eq!(payloads(&seen), [b"written".to_vec()]);
    assert_eq!(torn_bytes, 0);
    assert_eq!(journal.append(1, 0, b"next").unwrap().seq, 2);
}

#[test]
fn the_time_of_an_entry_is_never_before_the_last_one_not_even_after_a_restart() {
    let folder = tempdir().unwrap();
    let (mut journal, ..) = open(small(folder.path())).unwrap();
    assert_eq!(journal.last_at_ms(), None);
    assert_eq!(journal.append(1, 5_000, b"").unwrap().at_ms, 5_000);
    assert_eq!(journal.append(1, 4_000, b"").unwrap().at_ms, 5_000);
    journal.close().unwrap();
    let (mut journal, ..) = open(small(folder.path())).unwrap();
    assert_eq!(journal.append(1, 3_000, b"").unwrap().at_ms, 5_000);
    assert_eq!(journal.last_at_ms(), Some(5_000));
}

#[test]
fn every_opening_begins_a_new_epoch_even_without_an_entry() {
    let folder = tempdir().unwrap();
    for epoch in 1..=4 {
        let (journal, ..) = open(small(folder.path())).unwrap();
        assert_eq!(journal.epoch(), epoch);
    }
    assert_eq!(verify(folder.path()).unwrap().epoch, 4);
}

#[test]
fn a_second_opening_is_refused_and_told_who_holds_it() {
    let folder = tempdir().unwrap();
    let (journal, ..) = open(small(folder.path())).unwrap();
    let refused = open(small(folder.path())).unwrap_err();
    assert!(
        refused.to_string().contains(&format!("by process {}", std::process::id())),
        "{refused}"
    );
    assert!(
        matches!(refused, JournalError::Locked { holder_pid: Some(pid), .. } if pid == std::process::id())
    );
    drop(journal);
    open(small(folder.path())).unwrap();
}

#[test]
fn entries_run_over_into_further_segments_without_a_gap() {
    let folder = tempdir().unwrap();
    let all = fill(folder.path(), 60);
    let (journal, seen, _) = open(small(folder.path())).unwrap();
    assert_eq!(payloads(&seen), all);
    assert!(journal.segment.number >= 5, "{}", journal.segment.number);
    for (index, payload) in all.iter().enumerate() {
        let frame = journal.reader().read(u64::try_from(index).unwrap() + 1).unwrap();
        assert_eq!(&frame.payload, payload);
    }
    let from_30: Vec<_> = journal.reader().read_from(30).map(|frame| frame.unwrap().seq).collect();
    assert_eq!(from_30, (30..=60).collect::<Vec<_>>());
}

/// Each read may have to wait for the disk: the way from a note to the entry is one of them, wherever the entry is.
#[test]
fn one_entry_is_one_read_of_its_segment() {
    let (folder, medium) = (tempdir().unwrap(), FaultyDisk::default());
    let config = || JournalConfig { segment_bytes: 1 << 18, ..on(folder.path(), &medium) };
    let (mut journal, ..) = open(config()).unwrap();
    // Of the size that entries of a call have: no more than eight of them are read at once.
    let payload = |seq: u64| vec![1 | u8::try_from(seq % 251).unwrap(); 1_500];
    for seq in 1..=400 {
        journal.append(1, 0, &payload(seq)).unwrap();
    }
    journal.sync().unwrap();
    let read_all = |journal: &Journal| {
        // The notes of closed segments are in memory from the first look on.
        journal.reader().read(1).unwrap();
        for seq in 1..=400 {
            let before = medium.reads();
            assert_eq!(journal.reader().read(seq).unwrap().payload, payload(seq));
            assert_eq!(medium.reads() - before, 1, "entry {seq}");
        }
    };
    read_all(&journal);
    journal.close().unwrap();
    let (journal, ..) = open(config()).unwrap();
    assert!(journal.segment.number >= 3, "{}", journal.segment.number);
    (1..=400).for_each(|seq| drop(journal.reader().read(seq).unwrap()));
    read_all(&journal);
}

#[test]
fn an_entry_larger_than_a_segment_gets_a_segment_of_its_own_size() {
    let folder = tempdir().unwrap();
    let (mut journal, ..) = open(small(folder.path())).unwrap();
    let large = vec![3; PAYLOAD_BYTES_MAX];
    journal.append(1, 0, b"small").unwrap();
    journal.append(1, 0, &large).unwrap();
    journal.append(1, 0, b"small again").unwrap();
    journal.close().unwrap();
    let (journal, seen, _) = open(small(folder.path())).unwrap();
    assert_eq!(payloads(&seen), [b"small".to_vec(), large, b"small again".to_vec()]);
    assert_eq!(journal.segment.number, 3);
}

#[test]
fn a_payload_over_the_limit_is_refused_and_the_journal_goes_on() {
    let folder = tempdir().unwrap();
    let (mut journal, ..) = open(small(folder.path())).unwrap();
    let refused = journal.append(1, 0, &vec![1; PAYLOAD_BYTES_MAX + 1]).unwrap_err();
    assert!(matches!(refused, JournalError::TooLarge { bytes: 1_048_577, limit_bytes: 1_048_576 }));
    assert_eq!(journal.append(1, 0, b"fits").unwrap().seq, 1);
}

#[test]
fn a_reader_sees_durable_entries_only() {
    let folder = tempdir().unwrap();
    let (mut journal, ..) = open(small(folder.path())).unwrap();
    let reader = journal.reader();
    journal.append(1, 0, b"a").unwrap();
    journal.write().unwrap();
    assert!(matches!(reader.read(1), Err(JournalError::Absent { seq: 1 })));
    assert_eq!(reader.durable_seq(), 0);
    journal.sync().unwrap();
    assert_eq!(reader.read(1).unwrap().payload, b"a");
    assert!(matches!(reader.read(0), Err(JournalError::Absent { seq: 0 })));
    assert_eq!(reader.read_from(2).count(), 0);
}

#[test]
fn a_reader_notices_bytes_that_changed_after_they_were_written() {
    let folder = tempdir().unwrap();
    let (mut journal, ..) = open(small(folder.path())).unwrap();
    journal.append(1, 0, b"to be altered").unwrap();
    journal.append(1, 0, b"sound").unwrap();
    journal.sync().unwrap();
    let path = folder.path().join("000000000001.segment");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[64 + 80] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let Err(JournalError::Corrupt { seq: 1, fault, .. }) = journal.reader().read(1) else {
        panic!("it is read")
    };
    assert_eq!(fault.to_string(), "the frame's checksum is wrong");
    assert_eq!(journal.reader().read(2).unwrap().payload, b"sound");
    let read: Vec<_> = journal.reader().read_from(1).collect();
    assert_eq!(read.len(), 1, "reading on ends at the first error");
}

#[test]
fn the_folder_holds_nothing_but_the_journal_and_only_its_owner_may_look() {
    let parent = tempdir().unwrap();
    let folder = parent.path().join("deep/journal");
    open(small(&folder)).unwrap();
    let mut names: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["000000000001.segment", "high-water", "lock"]);
    assert_eq!(std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    for name in names {
        assert_eq!(
            std::fs::metadata(folder.join(name)).unwrap().permissions().mode() & 0o777,
            0o600
        );
    }
}

#[test]
fn what_the_visitor_refuses_ends_the_verification() {
    let folder = tempdir().unwrap();
    fill(folder.path(), 3);
    let mut visited = 0;
    let refused = verify_each(folder.path(), None, &mut |frame| {
        visited += 1;
        if frame.seq == 2 { Err("cannot make sense of it".into()) } else { Ok(()) }
    });
    let refused = refused.unwrap_err();
    assert!(
        matches!(&refused, JournalError::Visit { seq: 2, reason } if reason == "cannot make sense of it")
    );
    assert_eq!(visited, 2);
}

#[test]
fn verifying_needs_no_lock_and_changes_nothing() {
    let folder = tempdir().unwrap();
    let all = fill(folder.path(), 40);
    let (journal, ..) = open(small(folder.path())).unwrap();
    let path = folder.path().join("high-water");
    let before = std::fs::read(&path).unwrap();
    let report = verify(folder.path()).unwrap();
    assert_eq!(usize::try_from(report.frames).unwrap(), all.len());
    assert_eq!((report.last_seq, report.head), journal.head());
    assert_eq!((report.first_at_ms, report.last_at_ms), (Some(0), Some(39)));
    assert_eq!((report.epoch, report.witness_seq, report.torn_bytes), (2, 40, 0));
    assert_eq!(std::fs::read(&path).unwrap(), before);
    assert!(verify(&folder.path().join("nowhere")).is_err());
}

#[test]
fn verifying_while_entries_are_written_raises_no_false_alarm() {
    let folder = tempdir().unwrap();
    let config =
        JournalConfig { segment_bytes: 256 << 10, ..on(folder.path(), &FaultyDisk::default()) };
    let (mut journal, ..) = open(config).unwrap();
    let path = folder.path().to_owned();
    let writing = std::thread::spawn(move || {
        for number in 0..20_000_u32 {
            journal.append(1, 0, &number.to_le_bytes().repeat(50)).unwrap();
            if number % 7 == 0 {
                journal.write().unwrap();
            }
            if number % 70 == 0 {
                journal.sync().unwrap();
            }
        }
        journal.close().unwrap();
    });
    let mut verified = 0;
    while !writing.is_finished() {
        verified += u32::from(verify(&path).unwrap().frames > 0);
    }
    writing.join().unwrap();
    assert_eq!(verify(&path).unwrap().frames, 20_000);
    assert!(verified > 0);
}

/// The page of code of an auditor who has nothing but the module's description of the bytes.
#[test]
fn an_auditor_can_verify_the_chain_from_the_description_alone() {
    let folder = tempdir().unwrap();
    let all = fill(folder.path(), 30);
    let (mut prev, mut seq, mut audited) = ([0_u8; 32], 0_u64, Vec::new());
    let u64_at =
        |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let u32_at =
        |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    for number in 1_u32.. {
        let Ok(bytes) = std::fs::read(folder.path().join(format!("{number:012}.segment"))) else {
            break;
        };
        assert_eq!((&bytes[0..8], u32_at(&bytes, 8)), (b"PLSEGMT\x01".as_slice(), number));
        assert_eq!(
            (u64_at(&bytes, 12), usize::try_from(u64_at(&bytes, 20)).unwrap()),
            (seq + 1, bytes.len())
        );
        assert_eq!(
            (&bytes[28..60], u32_at(&bytes, 60)),
            (prev.as_slice(), crc32c::crc32c(&bytes[0..60]))
        );
        let mut at = 64;
        while bytes.get(at..at + 4) == Some(b"PLJF") {
            let frame = &bytes[at..];
            let n = usize::try_from(u32_at(frame, 8)).unwrap();
            assert_eq!(
                (frame[4], &frame[6..8], u64_at(frame, 12)),
                (1, [0, 0].as_slice(), seq + 1)
            );
            assert_eq!(&frame[44..76], prev);
            assert_eq!(u32_at(frame, 76), crc32c::crc32c(&frame[0..76]));
            assert_eq!(u32_at(frame, 80 + n), crc32c::crc32c(&frame[0..80 + n]));
            assert_eq!(frame[84 + n], 0xED);
            audited.push(frame[80..80 + n].to_vec());
            prev = Sha256::digest(&frame[0..80 + n]).into();
            seq += 1;
            at += 85 + n;
        }
        assert!(bytes[at..].iter().all(|byte| *byte == 0));
    }
    assert_eq!(audited, all);
    assert_eq!(verify(folder.path()).unwrap().head, prev);
    let witness = std::fs::read(folder.path().join("high-water")).unwrap();
    assert!(u64_at(&witness, 16) <= seq);
}
