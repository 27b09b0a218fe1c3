//! What happens when the disk fails, fills up, or gives back other bytes.

use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::PathBuf;

use placet_types::digest::Digest;
use tempfile::tempdir;
use tokio::time::timeout;

use super::*;
use crate::embedded::generation::Generation;
use crate::embedded::index::IndexFault;
use crate::journal::tests::{Failure, Op, Target};

const SOON: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_disk_that_fails_stops_the_store_and_loses_nothing_that_was_acknowledged() {
    for (op, failure) in [
        (Op::Write, Failure::Enospc),
        (Op::Write, Failure::HalfThenEnospc),
        (Op::Sync, Failure::Eio),
    ] {
        let (folder, disk) = (tempdir().unwrap(), FaultyDisk::default());
        let (store, _) = open(&on(folder.path(), &disk));
        let kept = make(&*store, "kept", true).await;
        let sent = make(&*store, "sent", false).await;
        let died = tokio::spawn(store.died());
        disk.fail_next(op, Target::Segment, failure);
        let refused = put(&*store, &succeeded(&sent)).await;
        // It may be on the disk, and nobody is told otherwise; what comes after it certainly is not.
        assert!(matches!(refused, Err(StoreError::Uncertain(_))), "{refused:?}");
        let reason = timeout(SOON, died).await.unwrap().unwrap();
        assert!(reason.contains("the segment"), "{reason}");
        let later = put(&*store, &dispatched(&*store, &claim(&*store, "later"))).await;
        assert!(matches!(later, Err(StoreError::Stopped(_))));
        // What was not acknowledged is not seen.
        assert_eq!(store.effect(sent.record_id).await.unwrap(), Some(sent.clone()));
        drop(store);

        let (store, _) = open(&config(folder.path()));
        assert_eq!(store.effect(kept.record_id).await.unwrap(), Some(kept));
        let found = store.effect(sent.record_id).await.unwrap().unwrap();
        assert!(found == sent || found == succeeded(&sent));
    }
}

#[tokio::test]
async fn content_that_cannot_be_kept_takes_its_commit_with_it() {
    let (folder, disk) = (tempdir().unwrap(), FaultyDisk::default());
    let (store, _) = open(&on(folder.path(), &disk));
    let sent = make(&*store, "sent", false).await;
    let mut changes = puts(&[&succeeded(&sent)]);
    changes.content.push((tenant("acme"), b"result".to_vec()));
    disk.fail_next(Op::Sync, Target::Content, Failure::Eio);
    assert!(matches!(store.commit(changes).await, Err(StoreError::Uncertain(_))));
    timeout(SOON, store.died()).await.unwrap();
    drop(store);
    let (store, _) = open(&config(folder.path()));
    assert_eq!(store.effect(sent.record_id).await.unwrap(), Some(sent));
}

#[tokio::test]
async fn an_orderly_close_is_not_a_death() {
    let folder = tempdir().unwrap();
    let (store, _) = open(&config(folder.path()));
    let died = store.died();
    store.close().await.unwrap();
    assert!(timeout(Duration::from_millis(50), died).await.is_err());
}

#[tokio::test]
async fn low_space_refuses_what_is_new_and_takes_what_completes() {
    let (folder, disk) = (tempdir().unwrap(), FaultyDisk::default());
    let (store, _) = open(&on(folder.path(), &disk));
    let sent = make(&*store, "sent", false).await;
    disk.set_free_bytes(1_000);
    // Space that was ample is not asked for at every commit.
    tokio::time::sleep(Duration::from_millis(150)).await;
    let claimed = claim(&*store, "new");
    store.claim(claimed.clone()).await.unwrap();
    let mut changes = puts(&[&dispatched(&*store, &claimed)]);
    changes.admission = Admission::New;
    assert_eq!(store.commit(changes).await, Err(StoreError::NoSpace));
    put(&*store, &succeeded(&sent)).await.unwrap();
    disk.set_free_bytes(1 << 30);
    let mut changes = puts(&[&dispatched(&*store, &claimed)]);
    changes.admission = Admission::New;
    store.commit(changes).await.unwrap();
}

fn segments(folder: &std::path::Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> =
        fs::read_dir(folder.join("journal")).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.extension().is_some_and(|extension| extension == "segment"));
    found.sort();
    found
}

#[tokio::test]
async fn an_append_that_a_crash_cut_short_is_cut_off() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let (store, _) = open(&config);
    let done = make(&*store, "done", true).await;
    store.close().await.unwrap();
    let last = segments(folder.path()).pop().unwrap();
    let mut file = fs::OpenOptions::new().read(true).write(true).open(&last).unwrap();
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    file.seek(SeekFrom::Start(u64::try_from(end).unwrap())).unwrap();
    file.write_all(b"PLJF\x01\x01").unwrap();
    let (store, report) = open(&config);
    assert_eq!((report.frames, report.torn_bytes), (2, 6));
    assert_eq!(store.effect(done.record_id).await.unwrap(), Some(done));
    make(&*store, "after", true).await;
}

#[tokio::test]
async fn a_journal_with_a_flipped_bit_is_refused() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let (store, _) = open(&config);
    make(&*store, "done", true).await;
    store.close().await.unwrap();
    let first = segments(folder.path()).remove(0);
    let mut bytes = fs::read(&first).unwrap();
    bytes[300] ^= 1;
    fs::write(&first, bytes).unwrap();
    let refused = try_open(&config).unwrap_err();
    assert!(matches!(refused, OpenError::Journal(JournalError::Corrupt { .. })), "{refused}");
}

#[tokio::test]
async fn a_flipped_bit_before_the_checkpoint_is_found_when_the_journal_is_looked_over() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let (store, _) = open(&config);
    for number in 0..8 {
        make(&*store, &format!("done-{number}"), true).await;
    }
    store.checkpoint().await.unwrap();
    assert!(store.scrub().await.unwrap() >= 8, "a sound journal is read to its end");
    store.close().await.unwrap();
    let first = segments(folder.path()).remove(0);
    let mut bytes = fs::read(&first).unwrap();
    bytes[300] ^= 1;
    fs::write(&first, bytes).unwrap();
    let (store, _) = open(&config);
    let found = store.scrub().await.unwrap_err();
    assert!(matches!(found, StoreError::Damaged(_)), "{found}");
}

#[tokio::test]
async fn altered_content_is_never_answered() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let (store, _) = open(&config);
    let mut changes = synced();
    changes.content.push((tenant("acme"), b"a result to be altered".to_vec()));
    store.commit(changes).await.unwrap();
    let digest = Digest::of(b"a result to be altered");
    let pack = pack_of(folder.path(), "acme");
    let mut bytes = fs::read(&pack).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&pack, bytes).unwrap();
    let altered = store.content(&tenant("acme"), digest).await;
    assert_eq!(altered, Err(StoreError::ContentAltered(digest)));
    // One altered content does not stop the rest.
    make(&*store, "key", true).await;
}

#[tokio::test]
async fn a_checkpoint_waits_until_what_entries_say_is_deleted_is() {
    let folder = tempdir().unwrap();
    let (store, _) = open(&config(folder.path()));
    make(&*store, "sent", true).await;
    let index = store.state.index().unwrap();
    index.deleting(true);
    let made = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.checkpoint().await })
    };
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!made.is_finished(), "a start from it would not finish the deletion");
    index.deleting(false);
    let made = timeout(SOON, made).await.unwrap().unwrap().unwrap();
    assert!(made.seq > 0);
}

#[tokio::test]
async fn nobody_waits_for_deletions_once_the_writer_that_had_them_in_hand_has_ended() {
    let (folder, disk) = (tempdir().unwrap(), FaultyDisk::default());
    let (store, _) = open(&on(folder.path(), &disk));
    let mut changes = synced();
    changes.content.push((tenant("acme"), b"to be deleted".to_vec()));
    store.commit(changes).await.unwrap();
    let index = store.state.index().unwrap();
    disk.fail_next(Op::Write, Target::Content, Failure::Eio);
    let mut changes = synced();
    changes.forget_content.push((tenant("acme"), Digest::of(b"to be deleted")));
    assert!(store.commit(changes).await.is_err());
    let next = folder.path().join("index/00000099");
    let frozen = tokio::task::spawn_blocking(move || {
        index.freeze(Generation::open(&next, 1 << 20).unwrap()).map(drop)
    });
    let frozen = timeout(SOON, frozen).await.unwrap().unwrap();
    assert!(matches!(frozen, Err(IndexFault::GivenUp)), "{frozen:?}");
}
