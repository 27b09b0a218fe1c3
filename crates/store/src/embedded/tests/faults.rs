//! What happens when the disk fails, fills up, or returns other bytes.

use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::PathBuf;

use placet_ledger::log::LogEntry;
use placet_types::digest::Digest;
use tempfile::tempdir;
use tokio::time::timeout;

use super::*;
use crate::journal::frame::encode;
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
        // It may be on the disk, and nobody is told otherwise; what comes after it is not.
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
async fn a_flipped_bit_in_a_segment_that_a_start_does_not_read_is_found_by_reading_the_journal() {
    let folder = tempdir().unwrap();
    let config = EmbeddedConfig { segment_bytes: 4 << 10, ..config(folder.path()) };
    let (store, _) = open(&config);
    // More than one tile of the Merkle tree.
    for number in 0..140 {
        make(&*store, &format!("done-{number}"), true).await;
    }
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

/// Changes the bytes of a content in the first segment.
pub(super) fn change(folder: &std::path::Path, content: &[u8], change: impl Fn(&mut [u8])) {
    let first = segments(folder).remove(0);
    let mut bytes = fs::read(&first).unwrap();
    let at = bytes.windows(content.len()).position(|bytes| bytes == content).unwrap();
    change(&mut bytes[at..at + content.len()]);
    fs::write(&first, bytes).unwrap();
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
    change(folder.path(), b"a result to be altered", |bytes| bytes[3] ^= 1);
    let altered = store.content(&tenant("acme"), digest).await;
    assert_eq!(altered, Err(StoreError::ContentAltered(digest)));
    // One altered content does not stop the rest.
    make(&*store, "key", true).await;
}

/// What the folder of a store is whose last entry brought a content, after the machine went down: the high-water mark does not know
/// that entry.
async fn last_with_content(content: &[u8]) -> (tempfile::TempDir, EffectRecord) {
    let folder = tempdir().unwrap();
    let (store, _) = open(&config(folder.path()));
    let sent = make(&*store, "key", false).await;
    let witness = folder.path().join("journal/high-water");
    let before = fs::read(&witness).unwrap();
    let mut changes = puts(&[&succeeded(&sent)]);
    changes.content.push((tenant("acme"), content.to_vec()));
    store.commit(changes).await.unwrap();
    store.close().await.unwrap();
    fs::write(&witness, before).unwrap();
    fs::remove_dir_all(folder.path().join("state")).unwrap();
    (folder, sent)
}

#[tokio::test]
async fn an_entry_whose_content_did_not_reach_the_disk_is_cut_off() {
    let content = vec![b'x'; 5_000];
    for lost in [700..1_100, 1_024..3_000, 0..5_000] {
        let (folder, sent) = last_with_content(&content).await;
        // Whole sectors hold the zeros of the allocation still.
        change(folder.path(), &content, |bytes| bytes[lost.clone()].fill(0));
        let (store, report) = open(&config(folder.path()));
        if lost.len() < 1_023 {
            // No sector was lost as a whole: the content was altered, and the entry is there.
            assert_eq!(report.torn_bytes, 0, "{lost:?}");
            continue;
        }
        assert!(report.torn_bytes > 5_000, "{lost:?}: {report:?}");
        assert_eq!(store.effect(sent.record_id).await.unwrap(), Some(sent.clone()));
        put(&*store, &succeeded(&sent)).await.unwrap();
        store.close().await.unwrap();
        assert!(
            crate::embedded::verify(&EmbeddedConfig::new(folder.path()))
                .unwrap()
                .content
                .altered
                .is_empty()
        );
    }
}

#[tokio::test]
async fn an_entry_that_is_cut_off_is_shown_to_nobody() {
    let content = vec![b'x'; 5_000];
    let (folder, _) = last_with_content(&content).await;
    change(folder.path(), &content, |bytes| bytes.fill(0));
    let mut shown = Vec::new();
    let report = read_audit(folder.path(), &mut |frame, _| shown.push(frame.seq));
    assert_eq!((report.frames, shown), (1, vec![1]));
    let found = crate::embedded::verify(&EmbeddedConfig::new(folder.path())).unwrap();
    assert!(found.journal.torn_bytes > 5_000 && found.content.altered.is_empty(), "{found:?}");
}

#[tokio::test]
async fn an_entry_that_was_durable_stays_whatever_became_of_its_content() {
    let content = vec![b'x'; 5_000];
    let (folder, sent) = last_with_content(&content).await;
    // A later entry says that it was durable.
    let (store, _) = open(&config(folder.path()));
    make(&*store, "later", true).await;
    store.close().await.unwrap();
    change(folder.path(), &content, |bytes| bytes.fill(0));
    fs::remove_dir_all(folder.path().join("state")).unwrap();
    let (store, report) = open(&config(folder.path()));
    assert_eq!(report.torn_bytes, 0);
    assert_eq!(store.effect(sent.record_id).await.unwrap(), Some(succeeded(&sent)));
    let digest = Digest::of(&content);
    let altered = store.content(&tenant("acme"), digest).await;
    assert_eq!(altered, Err(StoreError::ContentAltered(digest)));
}

#[tokio::test]
async fn a_journal_that_ends_in_contents_without_their_entry_is_cut_there() {
    // It looks like a later entry, which knows that this one was durable.
    let mut content = Vec::new();
    let later = LogEntry {
        seq: 9,
        epoch: 1,
        at_ms: 0,
        kind: 1,
        durable_seq: 8,
        prev: [0; 32],
        hash: [0; 32],
        payload: b"{}".to_vec(),
    };
    encode(&later, &mut content);
    content.resize(5_000, b'x');
    let (folder, sent) = last_with_content(&content).await;
    let first = segments(folder.path()).remove(0);
    let sound = fs::read(&first).unwrap();
    let at = sound.windows(content.len()).position(|bytes| bytes == content).unwrap();
    // In the header of the content, in the content, right behind it, and in the entry.
    for end in [at - 20, at - 1, at + 700, at + 5_000, at + 5_040] {
        let mut bytes = sound.clone();
        bytes[end..].fill(0);
        fs::write(&first, bytes).unwrap();
        let (store, report) = open(&config(folder.path()));
        assert!(report.torn_bytes > 0, "{end}: {report:?}");
        assert_eq!(store.effect(sent.record_id).await.unwrap(), Some(sent.clone()));
        store.close().await.unwrap();
    }
}
