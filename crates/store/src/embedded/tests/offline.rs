//! The offline commands, and reading the chain beside a running store.

use std::fs;

use placet_types::digest::Digest;
use tempfile::tempdir;

use super::*;
use crate::embedded::{StateFate, StateVerdict, keys, rebuild, verify};

/// Changes a content in the first segment.
fn alter(folder: &Path, content: &[u8]) {
    let segment = folder.join("journal/000000000001.segment");
    let mut bytes = fs::read(&segment).unwrap();
    let header = Digest::of(content);
    // The digest in the header of the content, a checksum, the tenant, the content.
    let at = bytes.windows(32).position(|bytes| bytes == header.as_bytes()).unwrap();
    bytes[at + 32 + 4 + "acme".len()] ^= 1;
    fs::write(&segment, bytes).unwrap();
}

#[tokio::test]
async fn a_ledger_with_an_altered_result_is_not_sound_and_is_not_exported() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let (store, _) = open(&config);
    let mut changes = synced();
    changes.content = named_contents(&tenant("acme"));
    store.commit(changes).await.unwrap();
    make(&*store, "key", true).await;
    store.close().await.unwrap();
    assert!(verify(&EmbeddedConfig::new(folder.path())).unwrap().is_sound());
    crate::embedded::export(&config, &mut Vec::new()).unwrap();
    alter(folder.path(), b"result");
    let report = verify(&EmbeddedConfig::new(folder.path())).unwrap();
    assert_eq!((report.content.altered.len(), &report.state), (1, &StateVerdict::Agrees));
    assert!(!report.is_sound());
    let refused = crate::embedded::export(&config, &mut Vec::new()).unwrap_err();
    let is_lost = matches!(refused, crate::transfer::TransferError::Lost { altered: 1, .. });
    assert!(is_lost, "{refused}");
}

#[tokio::test]
async fn the_chain_is_read_back_beside_a_running_store() {
    let folder = tempdir().unwrap();
    let (store, _) = open(&config(folder.path()));
    let done = make(&*store, "key", true).await;
    let mut changes = synced();
    changes.audit.push(event("something happened"));
    let kept = store.commit(changes).await.unwrap();
    let mut entries = Vec::new();
    let report =
        read_audit(folder.path(), &mut |frame, entry| entries.push((frame.clone(), entry)));
    assert_eq!((report.frames, entries.len()), (3, 3));
    assert_eq!(entries[1].1.effects, [EffectChange::Put(Box::new(done))]);
    assert_eq!((entries[2].0.seq, entries[2].0.at_ms), (kept.seq, kept.at.as_ms()));
    assert_eq!(entries[2].1.audit, [event("something happened")]);
    assert_eq!(entries[2].0.prev, entries[1].0.hash);
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
    let in_use = verify(&EmbeddedConfig::new(folder.path())).unwrap_err();
    assert!(in_use.to_string().contains("by process"), "{in_use}");
    store.close().await.unwrap();
    let report = verify(&EmbeddedConfig::new(folder.path())).unwrap();
    assert!(report.is_sound());
    assert_eq!((report.journal.frames, &report.state), (2, &StateVerdict::Agrees));
    assert_eq!((report.content.named, report.content.missing.len()), (3, 0));
    let (store, report) = open(&config);
    assert_eq!((report.state, report.epoch), (StateFate::Kept, 2));
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
    let tree = store.state.tree().unwrap();
    tree.sled().remove(keys::effect(&sent.record_id)).unwrap();
    drop(tree);
    store.close().await.unwrap();
    alter(folder.path(), b"result");

    let report = verify(&EmbeddedConfig::new(folder.path())).unwrap();
    assert!(!report.is_sound());
    assert!(matches!(report.state, StateVerdict::Disagrees { .. }));
    assert_eq!(report.content.missing, [(tenant("acme"), Digest::of(b"parked"))]);
    assert_eq!(report.content.altered, [(tenant("acme"), Digest::of(b"result"))]);
    fs::remove_dir_all(folder.path().join("state")).unwrap();
    assert_eq!(verify(&EmbeddedConfig::new(folder.path())).unwrap().state, StateVerdict::Absent);
}

/// What the operating system refuses of the state is no verdict about it, and the rest is looked at.
#[tokio::test]
async fn a_state_that_cannot_be_read_is_neither_sound_nor_wrong() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let (store, _) = open(&config);
    let mut changes = synced();
    changes.content = named_contents(&tenant("acme"));
    store.commit(changes).await.unwrap();
    make(&*store, "key", true).await;
    store.close().await.unwrap();
    let state = folder.path().join("state");
    let (there, away) = (state.join("db"), state.join("away"));
    fs::rename(&there, &away).unwrap();
    // A link to itself: ELOOP, which says as little about the file as a full disk.
    std::os::unix::fs::symlink("db", &there).unwrap();
    let report = verify(&EmbeddedConfig::new(folder.path())).unwrap();
    assert!(matches!(report.state, StateVerdict::Unread { .. }), "{:?}", report.state);
    assert!(report.is_sound() && !report.is_whole());
    fs::remove_file(&there).unwrap();
    fs::rename(&away, &there).unwrap();
    let report = verify(&EmbeddedConfig::new(folder.path())).unwrap();
    assert_eq!(report.state, StateVerdict::Agrees);
    assert!(report.is_whole());
}

#[tokio::test]
async fn rebuilding_sets_the_state_aside_and_makes_another() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let (store, _) = open(&config);
    let done = make(&*store, "key", true).await;
    assert!(rebuild(&EmbeddedConfig::new(folder.path())).is_err());
    let mistyped = folder.path().join("mistyped");
    assert!(rebuild(&EmbeddedConfig::new(&mistyped)).is_err());
    assert!(!mistyped.try_exists().unwrap());
    store.close().await.unwrap();
    let report = rebuild(&EmbeddedConfig::new(folder.path())).unwrap();
    assert_eq!(report.state, StateFate::Rebuilt { why: "asked for".to_owned() });
    assert_eq!((report.replayed, report.epoch), (2, 2));
    assert!(folder.path().join("state.damaged-2").is_dir());
    let (store, report) = open(&config);
    assert_eq!((report.state, report.replayed), (StateFate::Kept, 0));
    assert_eq!(counted(&store)[0], 1);
    assert_eq!(store.effect(done.record_id).await.unwrap(), Some(done));
}

#[tokio::test]
async fn a_state_that_is_behind_is_not_wrong() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let (store, _) = open(&config);
    let mut changes = synced();
    changes.content = named_contents(&tenant("acme"));
    store.commit(changes).await.unwrap();
    make(&*store, "key", true).await;
    store.close().await.unwrap();
    let (state, early) = (folder.path().join("state"), folder.path().join("early"));
    copy_folder(&state, &early);
    let (store, _) = open(&config);
    make(&*store, "other", true).await;
    store.close().await.unwrap();
    fs::remove_dir_all(&state).unwrap();
    fs::rename(&early, &state).unwrap();
    let report = verify(&EmbeddedConfig::new(folder.path())).unwrap();
    assert_eq!(report.state, StateVerdict::Behind { entries: 2 });
    assert!(report.is_sound());
}
