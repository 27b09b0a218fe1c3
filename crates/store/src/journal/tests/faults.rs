//! What a journal does when the operating system says no.

use std::fs;
use std::sync::Arc;

use tempfile::tempdir;

use super::{Failure, FaultyDisk, Op, Target, fill, on, open, payloads, small, verify};
use crate::journal::{Base, JournalError, SegmentFiles};

#[test]
fn after_a_failed_write_or_sync_nothing_more_is_taken_and_nothing_is_tried_again() {
    for (op, failure) in
        [(Op::Write, Failure::Eio), (Op::Write, Failure::HalfThenEnospc), (Op::Sync, Failure::Eio)]
    {
        let (folder, disk) = (tempdir().unwrap(), FaultyDisk::default());
        let (mut journal, ..) = open(on(folder.path(), &disk)).unwrap();
        journal.append(1, 0, b"durable").unwrap();
        journal.sync().unwrap();
        journal.append(1, 0, &[5; 300]).unwrap();
        disk.fail_next(op, Target::Segment, failure);
        assert!(matches!(journal.sync(), Err(JournalError::Io { .. })), "{op:?}");
        let operations = disk.total();
        assert!(matches!(journal.sync(), Err(JournalError::Poisoned)));
        assert!(matches!(journal.write(), Err(JournalError::Poisoned)));
        assert!(matches!(journal.append(1, 0, b""), Err(JournalError::Poisoned)));
        assert!(matches!(journal.record_witness(), Err(JournalError::Poisoned)));
        assert_eq!(journal.reader().durable_seq(), 1);
        assert!(matches!(journal.close(), Err(JournalError::Poisoned)));
        assert_eq!(disk.total(), operations, "a poisoned journal leaves the disk alone");
        let (_, seen, _) = open(small(folder.path())).unwrap();
        assert_eq!(seen[0].payload, b"durable");
    }
}

#[test]
fn a_full_disk_at_a_new_segment_is_an_error_and_loses_nothing() {
    let (folder, disk) = (tempdir().unwrap(), FaultyDisk::default());
    let (mut journal, ..) = open(on(folder.path(), &disk)).unwrap();
    disk.fail_next(Op::Allocate, Target::Segment, Failure::Enospc);
    let mut taken = 0;
    let error = loop {
        match journal.append(1, 0, &[9; 200]) {
            Ok(_) => taken += 1,
            Err(error) => break error,
        }
    };
    assert!(
        matches!(&error, JournalError::Io { source, .. } if source.raw_os_error() == Some(28)),
        "{error}"
    );
    assert!(matches!(journal.append(1, 0, b""), Err(JournalError::Poisoned)));
    drop(journal);
    let (_, seen, _) = open(small(folder.path())).unwrap();
    assert_eq!((seen.len(), taken > 3), (taken, true));
}

#[test]
fn short_writes_are_completed() {
    let (folder, disk) = (tempdir().unwrap(), FaultyDisk::default());
    disk.write_short();
    let (mut journal, ..) = open(on(folder.path(), &disk)).unwrap();
    for number in 0..40 {
        journal.append(number, 0, &[number; 120]).unwrap();
    }
    journal.close().unwrap();
    let (_, seen, _) = open(small(folder.path())).unwrap();
    assert_eq!(seen.len(), 40);
}

/// Runs the same work and lets the machine stop at each of its operations in turn.
#[test]
fn a_stop_at_any_operation_loses_nothing_that_was_durable_and_can_be_opened_again() {
    for failure in [Failure::Eio, Failure::HalfThenEnospc] {
        for stop in 1.. {
            let (folder, disk) = (tempdir().unwrap(), FaultyDisk::default());
            disk.crash_at(stop, failure);
            let mut durable = Vec::new();
            let finished = work(folder.path(), &disk, &mut durable);
            let (mut journal, seen, _) = open(small(folder.path()))
                .unwrap_or_else(|error| panic!("stopped at {stop}: {error}"));
            let found = payloads(&seen);
            assert_eq!(found.get(..durable.len()), Some(durable.as_slice()), "stopped at {stop}");
            assert!(found.len() <= durable.len() + 3, "stopped at {stop}");
            journal.append(1, 0, b"goes on").unwrap();
            journal.close().unwrap();
            verify(folder.path()).unwrap();
            if finished.is_ok() {
                assert!(
                    stop > 40,
                    "the work has to touch the disk often for this to show anything: {stop}"
                );
                break;
            }
        }
    }
}

fn work(
    folder: &std::path::Path,
    disk: &FaultyDisk,
    durable: &mut Vec<Vec<u8>>,
) -> Result<(), JournalError> {
    for round in 0..2_u8 {
        let (mut journal, ..) = open(on(folder, disk))?;
        let mut waiting = Vec::new();
        for number in 0..18_u8 {
            let payload = vec![number | (round << 6) | 32; 150];
            journal.append(number, 0, &payload)?;
            waiting.push(payload);
            if number % 3 == 2 {
                journal.sync()?;
                durable.append(&mut waiting);
            }
        }
        if round == 0 {
            journal.close()?;
        }
    }
    Ok(())
}

/// Two ledgers that name the same archive.
#[test]
fn a_segment_in_the_archive_is_never_replaced_by_another() {
    let (folder, archive) = (tempdir().unwrap(), tempdir().unwrap());
    fill(folder.path(), 30);
    let files =
        SegmentFiles::new(Arc::new(FaultyDisk::default()), folder.path(), Some(archive.path()));
    let name = "000000000001.segment";
    let (here, there) = (folder.path().join(name), archive.path().join(name));
    let moved = || files.finish_archiving(&Base { segment: 2, first_seq: 2, ..Base::START });
    let own = fs::read(&here).unwrap();
    for other in [&b"of another ledger"[..], &own[1..]] {
        fs::write(&there, other).unwrap();
        let refused = moved().unwrap_err().to_string();
        assert!(refused.contains("is there and differs"), "{refused}");
        assert_eq!(
            (fs::read(&there).unwrap(), fs::read(&here).unwrap()),
            (other.to_vec(), own.clone())
        );
    }
    // As after a crash between the copy and the removal.
    fs::copy(&here, &there).unwrap();
    assert!(matches!(moved(), Ok(1)));
    assert!(!here.try_exists().unwrap() && fs::read(&there).unwrap() == own);
}

/// The archive is on another file system, so that segments are copied to it.
#[test]
fn a_segment_that_cannot_be_moved_stays_where_it_is() {
    let moved = |prepare: &dyn Fn(&SegmentFiles)| {
        let (folder, archive) = (tempdir().unwrap(), tempdir().unwrap());
        fill(folder.path(), 30);
        let disk = FaultyDisk::default();
        let medium = Arc::new(disk.clone());
        let files = SegmentFiles::new(medium, folder.path(), Some(archive.path()));
        prepare(&files);
        disk.fail_next(Op::Rename, Target::Segment, Failure::Exdev);
        files.finish_archiving(&Base { segment: 2, first_seq: 2, ..Base::START })
    };
    assert!(matches!(moved(&|_| {}), Ok(1)));
    let unreadable = moved(&|files| {
        let segment = files.directory.join("000000000001.segment");
        fs::remove_file(&segment).unwrap();
        // It can be opened, and reading it is refused.
        fs::create_dir(&segment).unwrap();
    });
    assert!(matches!(unreadable, Err(JournalError::Io { .. })), "{unreadable:?}");
    let in_the_way = moved(&|files| {
        fs::create_dir(files.archive.join("000000000001.tmp")).unwrap();
    });
    assert!(matches!(in_the_way, Err(JournalError::Io { .. })), "{in_the_way:?}");
}
