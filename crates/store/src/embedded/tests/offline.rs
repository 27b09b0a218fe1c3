//! The offline commands, and reading the chain beside a running store.

use std::fs;

use placet_types::digest::Digest;
use tempfile::tempdir;

use super::*;
use crate::embedded::open::IndexFate;
use crate::embedded::{EffectEntry, IndexVerdict, JournalEntry, keys, read_audit, rebuild, verify};

#[tokio::test]
async fn the_chain_is_read_back_beside_a_running_store() {
    let folder = tempdir().unwrap();
    let (store, _) = open(&config(folder.path()));
    let done = make(&*store, "key", true).await;
    let mut changes = synced();
    changes.audit.push(event("something happened"));
    let kept = store.commit(changes).await.unwrap();
    let mut entries: Vec<JournalEntry> = Vec::new();
    let report = read_audit(folder.path(), &mut |entry| {
        entries.push(entry);
        Ok(())
    })
    .unwrap();
    assert_eq!((report.frames, entries.len()), (3, 3));
    assert_eq!(entries[1].entry.effects, [EffectEntry::Put(Box::new(done))]);
    assert_eq!((entries[2].seq, entries[2].at), (kept.seq, kept.at));
    assert_eq!(entries[2].entry.audit, [event("something happened")]);
    assert_eq!(entries[2].prev, entries[1].hash);
    let live: Vec<u64> = store.entries_from(2).map(|entry| entry.unwrap().seq).collect();
    assert_eq!(live, [2, 3]);
    let stopped = read_audit(folder.path(), &mut |_| Err("enough".into())).unwrap_err();
    assert!(stopped.to_string().contains("enough"), "{stopped}");
}

#[tokio::test]
async fn a_sound_folder_verifies_and_verifying_changes_no_answer() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let (store, _) = open(&config);
    let sent = make(&*store, "key", false).await;
    let done = succeeded(&sent);
    let mut changes = puts(&[&done]);
    changes.content =
        ["parked", "result"].map(|text| (tenant("acme"), text.as_bytes().to_vec())).to_vec();
    store.commit(changes).await.unwrap();
    let in_use = verify(folder.path()).unwrap_err();
    assert!(in_use.to_string().contains("by process"), "{in_use}");
    store.close().await.unwrap();
    let report = verify(folder.path()).unwrap();
    assert!(report.is_sound());
    assert_eq!((report.journal.frames, &report.index), (2, &IndexVerdict::Agrees));
    assert_eq!((report.content.named, report.content.missing.len()), (2, 0));
    let (store, report) = open(&config);
    assert_eq!((report.index, report.epoch), (IndexFate::Kept, 2));
    assert_eq!(store.effect(done.record_id).await.unwrap(), Some(done));
}

#[tokio::test]
async fn what_is_wrong_is_told_by_verifying() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let (store, _) = open(&config);
    let sent = make(&*store, "key", false).await;
    let mut changes = puts(&[&succeeded(&sent)]);
    changes.content.push((tenant("acme"), b"result".to_vec()));
    store.commit(changes).await.unwrap();
    let index = store.state.index().unwrap();
    index.active().db().remove(keys::effect(&sent.record_id)).unwrap();
    drop(index);
    store.close().await.unwrap();
    let pack = pack_of(folder.path(), "acme");
    let mut bytes = fs::read(&pack).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&pack, bytes).unwrap();

    let report = verify(folder.path()).unwrap();
    assert!(!report.is_sound());
    assert!(matches!(report.index, IndexVerdict::Disagrees { .. }));
    assert_eq!(report.content.missing, [(tenant("acme"), Digest::of(b"parked"))]);
    assert_eq!(report.content.altered, [(tenant("acme"), Digest::of(b"result"))]);
    fs::remove_dir_all(folder.path().join("index")).unwrap();
    assert_eq!(verify(folder.path()).unwrap().index, IndexVerdict::Absent);
}

#[tokio::test]
async fn a_ledger_that_lost_a_result_is_not_sound_and_is_not_exported() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let (store, _) = open(&config);
    let mut changes = synced();
    changes.content = named_contents(&tenant("acme"));
    store.commit(changes).await.unwrap();
    make(&*store, "key", true).await;
    store.close().await.unwrap();
    assert!(verify(folder.path()).unwrap().is_sound());
    crate::embedded::export(&config, &mut Vec::new()).unwrap();
    fs::remove_file(pack_of(folder.path(), "acme")).unwrap();
    let report = verify(folder.path()).unwrap();
    assert_eq!((report.content.missing.len(), &report.index), (2, &IndexVerdict::Agrees));
    assert!(!report.is_sound());
    let refused = crate::embedded::export(&config, &mut Vec::new()).unwrap_err();
    let is_lost = matches!(refused, crate::transfer::TransferError::Lost { missing: 2, .. });
    assert!(is_lost, "{refused}");
}

/// What the operating system refuses of the index is no verdict about it, and the rest is looked at.
#[tokio::test]
async fn an_index_that_cannot_be_read_is_neither_sound_nor_wrong() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let (store, _) = open(&config);
    let mut changes = synced();
    changes.content = named_contents(&tenant("acme"));
    store.commit(changes).await.unwrap();
    make(&*store, "key", true).await;
    store.close().await.unwrap();
    let generation = fs::read_dir(folder.path().join("index")).unwrap().next().unwrap().unwrap();
    let (there, away) = (generation.path().join("db"), generation.path().join("away"));
    fs::rename(&there, &away).unwrap();
    // A link to itself: ELOOP, which says as little about the file as a full disk.
    std::os::unix::fs::symlink("db", &there).unwrap();
    let report = verify(folder.path()).unwrap();
    assert!(matches!(report.index, IndexVerdict::Unread { .. }), "{:?}", report.index);
    assert!(report.is_sound() && !report.is_whole());
    let thorough = crate::embedded::fsck(&config).unwrap();
    assert!(thorough.differences.is_empty() && !thorough.verify.is_whole(), "{thorough:?}");
    fs::remove_file(&there).unwrap();
    fs::rename(&away, &there).unwrap();
    let report = verify(folder.path()).unwrap();
    assert_eq!(report.index, IndexVerdict::Agrees);
    assert!(report.is_whole());
}

#[tokio::test]
async fn rebuilding_sets_the_index_aside_and_makes_another() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let (store, _) = open(&config);
    let done = make(&*store, "key", true).await;
    assert!(rebuild(folder.path()).is_err());
    let mistyped = folder.path().join("mistyped");
    assert!(rebuild(&mistyped).is_err());
    assert!(!mistyped.try_exists().unwrap());
    store.close().await.unwrap();
    let report = rebuild(folder.path()).unwrap();
    assert_eq!(report.index, IndexFate::Rebuilt { why: "asked for".to_owned() });
    assert_eq!((report.replayed, report.effects, report.epoch), (2, 1, 2));
    assert!(folder.path().join("index.damaged-2").is_dir());
    let (store, report) = open(&config);
    assert_eq!((report.index, report.replayed), (IndexFate::Kept, 0));
    assert_eq!(store.effect(done.record_id).await.unwrap(), Some(done));
}

#[tokio::test]
async fn an_index_that_is_behind_is_not_wrong() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let (store, _) = open(&config);
    let mut changes = synced();
    changes.content = named_contents(&tenant("acme"));
    store.commit(changes).await.unwrap();
    make(&*store, "key", true).await;
    let index = store.state.index().unwrap();
    let early = index.active().db().get(keys::META).unwrap().unwrap();
    make(&*store, "other", true).await;
    index.active().db().insert(keys::META, early).unwrap();
    index.flush().unwrap();
    drop((index, store));
    // The writer of a store that was dropped may still be at its end.
    let report = loop {
        match verify(folder.path()) {
            Err(OpenError::Journal(JournalError::Locked { .. })) => std::thread::yield_now(),
            report => break report.unwrap(),
        }
    };
    assert_eq!(report.index, IndexVerdict::Behind { entries: 2 });
    assert!(report.is_sound());
}
