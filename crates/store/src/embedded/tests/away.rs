//! What is not where it was: an archive that is full, away, or taken off the machine.

use std::fs;

use tempfile::tempdir;

use super::snapshots::{check, delete_contents, files};
use super::*;
use crate::embedded::{archived_tree, export};
use crate::journal::tests::{Failure, Op, Target};
use crate::journal::unmoved_segments;
use placet_ledger::log::AuditLog as _;

const LATER: Timestamp = Timestamp::from_ms(NOW_MS + 1);

/// Records whose contents are deleted, so that their segments may go.
async fn filled(store: &EmbeddedStore, rounds: u32) -> Vec<EffectRecord> {
    let records = super::snapshots::filled(store, rounds).await;
    delete_contents(store).await;
    records
}

fn small(folder: &Path) -> EmbeddedConfig {
    EmbeddedConfig { segment_bytes: 4 << 10, ..config(folder) }
}

#[tokio::test]
async fn an_archive_that_takes_nothing_stops_neither_a_start_nor_a_running_store() {
    let (folder, elsewhere) = (tempdir().unwrap(), tempdir().unwrap());
    let archive = elsewhere.path().join("archive");
    // Not a folder: nothing can be written there, nor read.
    fs::write(&archive, b"in the way").unwrap();
    let config = EmbeddedConfig { archive: Some(archive.clone()), ..small(folder.path()) };
    let (store, _) = open(&config);
    let mut records = filled(&store, 5).await;
    let refused = store.archive(LATER).await;
    assert!(matches!(refused, Err(StoreError::Unreachable(_))), "{refused:?}");
    records.push(make(&*store, "meanwhile", true).await);
    records.sort_by_key(EffectRecord::place);
    store.snapshot().await.unwrap();
    check(&store, &records).await;
    store.close().await.unwrap();
    let journal = folder.path().join("journal");
    let waiting = unmoved_segments(&journal).unwrap();
    assert!(waiting > 3, "{waiting}");
    let (store, _) = open(&config);
    check(&store, &records).await;
    assert_eq!(unmoved_segments(&journal).unwrap(), waiting);
    // Repaired: they are moved the next time.
    fs::remove_file(&archive).unwrap();
    let moved = store.archive(Timestamp::from_ms(0)).await.unwrap();
    assert_eq!((moved.segments, unmoved_segments(&journal).unwrap()), (waiting, 0));
    check(&store, &records).await;
}

#[tokio::test]
async fn archived_segments_may_leave_the_machine_under_a_running_store() {
    let folder = tempdir().unwrap();
    let config = small(folder.path());
    let (store, _) = open(&config);
    let mut records = filled(&store, 5).await;
    let before = store.archive(LATER).await.unwrap();
    assert!(before.segments > 3, "{before:?}");
    fs::remove_dir_all(folder.path().join("archive")).unwrap();
    for number in 0..30 {
        records.push(make(&*store, &format!("later-{number}"), true).await);
    }
    records.sort_by_key(EffectRecord::place);
    assert!(store.scrub().await.unwrap() >= 30, "what is here is read");
    let again = store.archive(LATER).await.unwrap();
    assert!(again.first_seq > before.first_seq, "{again:?}");
    fs::remove_dir_all(folder.path().join("archive")).unwrap();
    store.scrub().await.unwrap();
    check(&store, &records).await;
    let head = store.heads().await.unwrap().remove(0);
    store.close().await.unwrap();
    // What a verifier goes on from leads to what was signed.
    let mut tree = archived_tree(folder.path()).unwrap();
    let rest = crate::journal::verify_each(&folder.path().join("journal"), None, &mut |frame| {
        assert_eq!(frame.seq, tree.size() + 1);
        tree.append(&frame.hash, &mut |_, _| {});
        Ok(())
    });
    assert!(rest.unwrap().first_seq > 1 && tree.size() >= head.size);
    if tree.size() == head.size {
        assert_eq!(*tree.root().as_bytes(), head.root);
    }
    let refused = export(&config, &mut Vec::new()).unwrap_err().to_string();
    assert!(refused.contains("archived"), "{refused}");
}

#[tokio::test]
async fn a_disk_that_cannot_be_read_is_found_when_the_journal_is_read() {
    let folder = tempdir().unwrap();
    let (store, _) = open(&small(folder.path()));
    filled(&store, 5).await;
    let first = files(&folder.path().join("journal"), "segment").remove(0);
    fs::remove_file(&first).unwrap();
    // It can be opened, and reading it is refused.
    fs::create_dir(&first).unwrap();
    let found = store.scrub().await.unwrap_err();
    assert!(matches!(found, StoreError::Stopped(_)), "{found}");
    let why = store.died().await;
    assert!(why.contains("000000000001.segment"), "{why}");
}

/// At the snapshot, at the file `base`: until that is in place, nothing is moved.
#[tokio::test]
async fn an_archiving_that_finds_no_room_moves_nothing_that_the_journal_does_not_know_of() {
    const NEVER: u64 = 1_000_000;
    let mut refusals = 0;
    for nth in 1..=3 {
        let at = (Op::Create, Target::Other);
        let (folder, disk) = (tempdir().unwrap(), FaultyDisk::default());
        let config = EmbeddedConfig { segment_bytes: 4 << 10, ..on(folder.path(), &disk) };
        let (store, _) = open(&config);
        let records = filled(&store, 3).await;
        disk.fail_nth(nth, at, Failure::Enospc);
        let archived = store.archive(LATER).await;
        disk.fail_nth(NEVER, at, Failure::Enospc);
        if let Err(refused) = archived {
            assert_eq!(refused, StoreError::NoSpace, "{at:?} {nth}");
            refusals += 1;
            // Nothing more may go; what the failed try was about stays as well.
            let again = store.archive(Timestamp::from_ms(0)).await.unwrap();
            assert_eq!((again.segments, again.first_seq), (0, 1), "{at:?} {nth}");
        }
        check(&store, &records).await;
        store.close().await.unwrap();
        let (store, _) = open(&config);
        check(&store, &records).await;
        let archived = store.archive(LATER).await.unwrap();
        assert!(archived.first_seq > 1, "{at:?} {nth}: {archived:?}");
        store.close().await.unwrap();
        check(&open(&config).0, &records).await;
    }
    assert!(refusals >= 2, "the snapshot and the base at least: {refusals}");
}
