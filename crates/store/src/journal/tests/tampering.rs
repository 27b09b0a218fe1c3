//! What a journal does with bytes that are not what was written.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use tempfile::tempdir;

use super::{fill, open, payloads, small, verify};
use crate::journal::scan::BROKEN_CHAIN;
use crate::journal::{JournalConfig, JournalError};

const HEADER: usize = 64;
/// Every frame of `fill` has a payload of 100 bytes.
const FRAME: usize = 185;

fn segment(folder: &Path, number: u32) -> PathBuf {
    folder.join(format!("{number:012}.segment"))
}

fn alter(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    // Not `fs::write`: some file systems wait for the disk when a file is cut to nothing and rewritten.
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(u64::try_from(bytes.len()).unwrap()).unwrap();
    file.write_all_at(&bytes, 0).unwrap();
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// Both the offline proof and the opening must say the same, and say it without changing anything.
fn refusal(folder: &Path) -> JournalError {
    let before = snapshot(folder);
    let offline = verify(folder).expect_err("the damage is not noticed offline");
    let online = open(small(folder)).map(|_| ()).expect_err("the damage is not noticed at opening");
    assert_eq!(offline.to_string(), online.to_string());
    assert!(snapshot(folder) == before, "a refused journal must stay as it was found");
    online
}

fn is_corrupt(refused: &JournalError, what: &str) -> bool {
    matches!(refused, JournalError::Corrupt { fault, .. } if fault.to_string() == what)
}

fn snapshot(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = paths
        .filter(|path| !path.ends_with("lock"))
        .map(|p| (p.clone(), fs::read(p).unwrap()))
        .collect();
    files.sort();
    files
}

/// A journal of one segment with five entries, killed after the last sync.
fn five() -> (tempfile::TempDir, Vec<Vec<u8>>) {
    let folder = tempdir().unwrap();
    let all = fill(folder.path(), 5);
    (folder, all)
}

#[test]
fn a_last_frame_torn_at_any_byte_is_cut_off_and_nothing_else() {
    let (folder, all) = five();
    let start = HEADER + 4 * FRAME;
    for kept in 0..FRAME {
        let torn = tempdir().unwrap();
        copy(folder.path(), torn.path());
        alter(&segment(torn.path(), 1), |bytes| bytes[start + kept..].fill(0));
        let found = verify(torn.path()).unwrap();
        assert_eq!((found.frames, found.torn_bytes > 0), (4, kept > 0), "{kept} bytes kept");
        let (mut journal, seen, torn_bytes) = open(small(torn.path())).unwrap();
        assert_eq!(payloads(&seen), all[..4]);
        assert_eq!(torn_bytes, found.torn_bytes);
        assert_eq!(journal.append(1, 9, b"instead").unwrap().seq, 5);
        journal.close().unwrap();
        let (_, seen, torn_bytes) = open(small(torn.path())).unwrap();
        assert_eq!((seen.len(), torn_bytes), (5, 0));
        assert_eq!(seen[4].payload, b"instead");
    }
}

#[test]
fn any_flipped_bit_in_any_frame_is_refused_even_in_the_last_one() {
    let (folder, _) = five();
    let path = segment(folder.path(), 1);
    for at in 0..HEADER + 5 * FRAME {
        let bit = 1 << (at % 8);
        alter(&path, |bytes| bytes[at] ^= bit);
        let refused = verify(folder.path()).expect_err("a flipped bit");
        let JournalError::Corrupt { segment: 1, offset, seq, .. } = refused else {
            panic!("{at}: {refused}")
        };
        let index = at.checked_sub(HEADER).map(|inside| inside / FRAME);
        let expected = index.map_or((0, 1), |index| (HEADER + index * FRAME, index + 1));
        assert_eq!(
            (usize::try_from(offset).unwrap(), usize::try_from(seq).unwrap()),
            expected,
            "byte {at}"
        );
        if at % 37 == 0 {
            refusal(folder.path());
        }
        alter(&path, |bytes| bytes[at] ^= bit);
    }
    verify(folder.path()).unwrap();
}

#[test]
fn zeroed_bytes_before_a_later_frame_are_refused() {
    let folder = tempdir().unwrap();
    let config = JournalConfig { segment_bytes: 64 << 10, ..small(folder.path()) };
    let (mut journal, ..) = open(config.clone()).unwrap();
    for number in 0..100 {
        journal.append(1, number, &[7; 100]).unwrap();
        journal.sync().unwrap();
    }
    drop(journal);
    alter(&segment(folder.path(), 1), |bytes| bytes[4096..8192].fill(0));
    let refused = open(config).map(|_| ()).unwrap_err();
    let index = (4096 - HEADER) / FRAME;
    assert!(
        matches!(refused, JournalError::Corrupt { segment: 1, seq, .. } if usize::try_from(seq).unwrap() == index + 1),
        "{refused}"
    );
}

/// A disk may write the sectors of one unsynced batch in any order before the power goes.
#[test]
fn a_lost_sector_in_a_batch_that_never_became_durable_is_a_torn_tail() {
    let folder = tempdir().unwrap();
    let config = JournalConfig { segment_bytes: 64 << 10, ..small(folder.path()) };
    let (mut journal, ..) = open(config.clone()).unwrap();
    let append = |journal: &mut super::Journal, count| {
        for _ in 0..count {
            journal.append(1, 0, &[7; 100]).unwrap();
        }
    };
    append(&mut journal, 10);
    journal.sync().unwrap();
    append(&mut journal, 40);
    journal.write().unwrap();
    drop(journal);
    let path = segment(folder.path(), 1);
    alter(&path, |bytes| bytes[4096..4608].fill(0));
    let whole_before = (4096 - HEADER) / FRAME;
    let found = verify(folder.path()).unwrap();
    assert_eq!(usize::try_from(found.frames).unwrap(), whole_before);
    let (mut journal, seen, torn_bytes) = open(config.clone()).unwrap();
    assert_eq!((seen.len(), torn_bytes), (whole_before, found.torn_bytes));

    // The same loss with a later batch behind it is damage: the later frames say that these had been durable.
    append(&mut journal, 10);
    journal.sync().unwrap();
    append(&mut journal, 1);
    journal.sync().unwrap();
    drop(journal);
    alter(&path, |bytes| bytes[4608..5120].fill(0));
    let refused = open(config).map(|_| ()).unwrap_err();
    assert!(matches!(refused, JournalError::Corrupt { .. }), "{refused}");
}

#[test]
fn a_cut_file_and_a_grown_file_are_refused() {
    for length in [0, 10, HEADER, HEADER + FRAME, HEADER + 5 * FRAME, 2047, 4096] {
        let (folder, _) = five();
        alter(&segment(folder.path(), 1), |bytes| bytes.resize(length, 0));
        let refused = refusal(folder.path());
        let JournalError::Corrupt { segment: 1, fault, .. } = refused else {
            panic!("{length}: {refused}")
        };
        let fault = fault.to_string();
        let named = fault == "the segment header does not verify"
            || fault.contains(" bytes where 2048 were allocated");
        assert!(named, "{length}: {fault}");
    }
}

#[test]
fn a_missing_segment_is_a_hole_wherever_it_was() {
    let folder = tempdir().unwrap();
    fill(folder.path(), 60);
    let segments = u32::try_from(verify(folder.path()).unwrap().segments).unwrap();
    for missing in 1..=segments {
        let damaged = tempdir().unwrap();
        copy(folder.path(), damaged.path());
        fs::remove_file(segment(damaged.path(), missing)).unwrap();
        let refused = refusal(damaged.path());
        assert!(is_corrupt(&refused, &format!("segment {missing} is missing")), "{refused}");
    }
}

#[test]
fn swapped_segments_are_refused() {
    let folder = tempdir().unwrap();
    fill(folder.path(), 60);
    let (a, b, aside) =
        (segment(folder.path(), 2), segment(folder.path(), 3), folder.path().join("aside"));
    fs::rename(&a, &aside).unwrap();
    fs::rename(&b, &a).unwrap();
    fs::rename(&aside, &b).unwrap();
    let refused = refusal(folder.path());
    assert!(is_corrupt(&refused, "the segment belongs elsewhere in the chain"), "{refused}");
    assert!(matches!(refused, JournalError::Corrupt { segment: 2, .. }), "{refused}");
}

#[test]
fn bytes_after_the_last_frame_of_a_full_segment_are_refused() {
    let folder = tempdir().unwrap();
    fill(folder.path(), 60);
    alter(&segment(folder.path(), 1), |bytes| *bytes.last_mut().unwrap() = 1);
    let refused = refusal(folder.path());
    assert!(is_corrupt(&refused, "no frame begins here, yet bytes follow"), "{refused}");
    assert!(matches!(refused, JournalError::Corrupt { segment: 1, .. }), "{refused}");
}

/// Somebody who knows the format rewrites an entry and all its checksums, but not everything after it.
#[test]
fn a_rewritten_entry_with_good_checksums_breaks_the_chain() {
    let (folder, _) = five();
    alter(&segment(folder.path(), 1), |bytes| {
        let frame = &mut bytes[HEADER + FRAME..HEADER + 2 * FRAME];
        frame[80] = b'!';
        let crc = crc32c::crc32c(&frame[..180]);
        frame[180..184].copy_from_slice(&crc.to_le_bytes());
    });
    let refused = refusal(folder.path());
    assert!(is_corrupt(&refused, BROKEN_CHAIN), "{refused}");
    assert!(matches!(refused, JournalError::Corrupt { seq: 3, .. }), "{refused}");
}

#[test]
fn a_removed_entry_breaks_the_sequence() {
    let (folder, _) = five();
    alter(&segment(folder.path(), 1), |bytes| {
        let length = bytes.len();
        bytes.drain(HEADER + FRAME..HEADER + 2 * FRAME);
        bytes.resize(length, 0);
    });
    let refused = refusal(folder.path());
    assert!(is_corrupt(&refused, "the sequence is broken: found entry 3"), "{refused}");
    assert!(matches!(refused, JournalError::Corrupt { seq: 2, .. }), "{refused}");
}

#[test]
fn an_epoch_and_a_time_that_go_backwards_are_named() {
    for (at, size, is_epoch) in [(20, 8, true), (28, 8, false)] {
        let (folder, _) = five();
        alter(&segment(folder.path(), 1), |bytes| {
            // The last frame, so that the chain is not what breaks first.
            let frame = &mut bytes[HEADER + 4 * FRAME..HEADER + 5 * FRAME];
            frame[at..at + size].fill(0);
            let crc = crc32c::crc32c(&frame[..76]);
            frame[76..80].copy_from_slice(&crc.to_le_bytes());
            let crc = crc32c::crc32c(&frame[..180]);
            frame[180..184].copy_from_slice(&crc.to_le_bytes());
        });
        let refused = refusal(folder.path());
        let JournalError::Corrupt { seq: 5, fault, .. } = refused else { panic!("{refused}") };
        let what = if is_epoch {
            "the epoch goes backwards to 0"
        } else {
            "the time goes backwards to 0 ms"
        };
        assert_eq!(fault.to_string(), what);
    }
}

#[test]
fn a_journal_that_once_went_further_has_forgotten() {
    let (folder, _) = five();
    open(small(folder.path())).unwrap();
    for frames in 0..5 {
        let cut = tempdir().unwrap();
        copy(folder.path(), cut.path());
        alter(&segment(cut.path(), 1), |bytes| bytes[HEADER + frames * FRAME..].fill(0));
        let refused = refusal(cut.path());
        let expected = u64::try_from(frames).unwrap();
        assert!(
            matches!(refused, JournalError::Forgotten { witness_seq: 5, found_seq } if found_seq == expected),
            "{refused}"
        );
    }
}

#[test]
fn an_old_copy_of_the_segments_is_caught_by_the_witness() {
    let folder = tempdir().unwrap();
    fill(folder.path(), 3);
    let backup = tempdir().unwrap();
    copy(folder.path(), backup.path());
    fill(folder.path(), 4);
    open(small(folder.path())).unwrap().0.close().unwrap();
    fs::copy(segment(backup.path(), 1), segment(folder.path(), 1)).unwrap();
    let refused = refusal(folder.path());
    assert!(
        matches!(refused, JournalError::Forgotten { witness_seq: 7, found_seq: 3 }),
        "{refused}"
    );
}

#[test]
fn another_history_of_the_same_length_is_caught_by_the_witness() {
    let (folder, other) = (five().0, tempdir().unwrap());
    let (mut journal, ..) = open(small(other.path())).unwrap();
    for _ in 0..5 {
        journal.append(1, 0, b"another history").unwrap();
    }
    journal.close().unwrap();
    open(small(folder.path())).unwrap();
    fs::copy(segment(other.path(), 1), segment(folder.path(), 1)).unwrap();
    let refused = refusal(folder.path());
    let other = "the entry is not the one that the high-water witness saw";
    assert!(is_corrupt(&refused, other), "{refused}");
    assert!(matches!(refused, JournalError::Corrupt { seq: 5, .. }), "{refused}");
}

#[test]
fn a_witness_that_is_missing_damaged_or_old_is_refused() {
    let (folder, _) = five();
    let witness = folder.path().join("high-water");
    let old = fs::read(&witness).unwrap();
    fill(folder.path(), 1);
    let sound = fs::read(&witness).unwrap();
    for at in 0..sound.len() {
        alter(&witness, |bytes| bytes[at] ^= 1);
        let refused = verify(folder.path()).unwrap_err();
        assert!(is_corrupt(&refused, "the high-water witness does not verify"), "{refused}");
        assert!(matches!(refused, JournalError::Corrupt { segment: 0, .. }), "{refused}");
        alter(&witness, |bytes| bytes[at] ^= 1);
    }
    fs::write(&witness, old).unwrap();
    let refused = refusal(folder.path());
    let later = "the entry's epoch 2 is later than the high-water witness";
    assert!(is_corrupt(&refused, later), "{refused}");
    assert!(matches!(refused, JournalError::Corrupt { seq: 6, .. }), "{refused}");
    fs::remove_file(&witness).unwrap();
    let refused = refusal(folder.path());
    assert!(is_corrupt(&refused, "the high-water witness is missing"), "{refused}");
}

#[test]
fn a_journal_whose_segments_are_all_gone_is_not_a_new_one() {
    let (folder, _) = five();
    fs::remove_file(segment(folder.path(), 1)).unwrap();
    let refused = refusal(folder.path());
    assert!(is_corrupt(&refused, "segment 1 is missing"), "{refused}");
}
