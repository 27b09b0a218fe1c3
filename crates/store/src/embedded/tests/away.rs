//! What is not where it was: an archive that is full, away, or taken off the machine; deletions that no table of places says yet.

use std::fs;

use tempfile::tempdir;

use super::checkpoints::{check, files, filled};
use super::*;
use crate::embedded::{archived_tree, export, rebuild_with, verify};
use crate::journal::tests::{Failure, Op, Target};
use crate::journal::unmoved_segments;
use placet_ledger::log::AuditLog as _;
use placet_types::digest::Digest;

const LATER: Timestamp = Timestamp::from_ms(NOW_MS + 1);

fn small(folder: &Path) -> EmbeddedConfig {
    EmbeddedConfig { segment_bytes: 4 << 10, ..config(folder) }
}

async fn deleted(store: &EmbeddedStore, bytes: &[u8]) {
    let mut changes = synced();
    changes.forget_content.push((tenant("acme"), Digest::of(bytes)));
    store.commit(changes).await.unwrap();
}

#[tokio::test]
async fn a_checkpoint_that_covers_a_deletion_leaves_nothing_to_be_missed() {
    let (folder, killed) = (tempdir().unwrap(), tempdir().unwrap());
    let config = config(folder.path());
    let (store, _) = open(&config);
    let mut changes = synced();
    for bytes in [&b"first"[..], b"second", b"stays"] {
        changes.content.push((tenant("acme"), bytes.to_vec()));
    }
    store.commit(changes).await.unwrap();
    // From here on there is a table that says where the second one is.
    deleted(&store, b"first").await;
    store.close().await.unwrap();
    let (store, _) = open(&config);
    deleted(&store, b"second").await;
    store.checkpoint().await.unwrap();
    copy_folder(folder.path(), killed.path());
    let config = super::config(killed.path());
    let written = export(&config, &mut Vec::new()).unwrap();
    assert_eq!(written.contents, 1);
    let found = verify(killed.path()).unwrap();
    assert!(found.is_sound() && found.content.missing.is_empty(), "{found:?}");
    let (content, report) =
        crate::content::ContentStore::open(killed.path().join("content")).unwrap();
    assert_eq!(report.blobs, 1, "how much is dead is known, too");
    assert!(content.reader().was_deleted("acme", Digest::of(b"second")).unwrap());
}

#[tokio::test]
async fn damaged_places_are_told_by_verifying_and_made_anew_by_a_rebuild() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let (store, _) = open(&config);
    let mut changes = synced();
    changes.content.push((tenant("acme"), b"stays".to_vec()));
    changes.content.push((tenant("acme"), b"goes".to_vec()));
    store.commit(changes).await.unwrap();
    deleted(&store, b"goes").await;
    store.close().await.unwrap();
    let table = files(&folder.path().join("content/places"), "table").remove(0);
    let mut bytes = fs::read(&table).unwrap();
    bytes[20] ^= 1;
    fs::write(&table, bytes).unwrap();
    let found = verify(folder.path()).unwrap();
    assert!(!found.is_sound() && found.content.damaged_places.is_some(), "{found:?}");
    rebuild_with(&config).unwrap();
    assert!(verify(folder.path()).unwrap().is_sound());
    let (store, _) = open(&config);
    assert_eq!(store.content(&tenant("acme"), Digest::of(b"stays")).await.unwrap(), b"stays");
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
    records.sort_by_key(|record| record.record_id);
    store.checkpoint().await.unwrap();
    check(&store, &records).await;
    store.close().await.unwrap();
    let journal = folder.path().join("journal");
    let waiting = unmoved_segments(&journal).unwrap();
    assert!(waiting > 3, "{waiting}");
    let (store, _) = open(&config);
    check(&store, &records).await;
    assert_eq!(unmoved_segments(&journal).unwrap(), waiting);
    // Mended: they are moved the next time.
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
    records.sort_by_key(|record| record.record_id);
    assert!(store.scrub().await.unwrap() >= 30, "what is here is looked over");
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
async fn a_rebuild_reads_the_archive_that_is_named() {
    let (folder, elsewhere) = (tempdir().unwrap(), tempdir().unwrap());
    let archive = Some(elsewhere.path().join("archive"));
    let config = EmbeddedConfig { archive, ..small(folder.path()) };
    let (store, _) = open(&config);
    let records = filled(&store, 5).await;
    assert!(store.archive(LATER).await.unwrap().segments > 3);
    store.close().await.unwrap();
    rebuild_with(&config).unwrap();
    let (store, _) = open(&config);
    check(&store, &records).await;
}

#[tokio::test]
async fn a_disk_that_cannot_be_read_is_found_when_the_journal_is_looked_over() {
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

/// At the tables, at either of the two checkpoints, at the file `base`: until that is in place, nothing is moved.
#[tokio::test]
async fn an_archiving_that_finds_no_room_moves_nothing_that_the_journal_does_not_know_of() {
    const NEVER: u64 = 1_000_000;
    let mut refusals = 0;
    // Checkpoints are told apart from segments by nothing but their ending.
    let places = [Target::Content, Target::Segment].into_iter();
    for (at, nth) in places.flat_map(|target| (1..=6).map(move |nth| ((Op::Create, target), nth))) {
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
    assert!(refusals >= 4, "the tables, the checkpoints and the base at least: {refusals}");
}
