//! A ledger as an export, an export as a ledger, and the thorough check of both.

use std::fs;

use tempfile::tempdir;

use super::checkpoints::{check, files, filled};
use super::*;
use crate::embedded::{export, fsck, import, keys, verify};
use crate::transfer::{ExportItem, ExportWriter, ExportedLog};
use placet_types::digest::Digest;

/// Everything that happened, for an export: records of all kinds, archived ones, content, and content that was deleted.
async fn full(config: &EmbeddedConfig) -> Vec<EffectRecord> {
    let (store, _) = open(config);
    let records = filled(&store, 3).await;
    let mut changes = synced();
    for bytes in [b"one".to_vec(), b"two".to_vec(), vec![9; 300 << 10]] {
        changes.content.push((tenant("acme"), bytes));
    }
    store.commit(changes).await.unwrap();
    let mut changes = synced();
    changes.forget_content.push((tenant("acme"), Digest::of(b"two")));
    store.commit(changes).await.unwrap();
    store.archive(Timestamp::from_ms(NOW_MS + 1)).await.unwrap();
    store.close().await.unwrap();
    records
}

#[tokio::test]
async fn an_export_becomes_the_same_ledger_and_the_same_export() {
    let (folder, other) = (tempdir().unwrap(), tempdir().unwrap());
    let config = EmbeddedConfig { segment_bytes: 4 << 10, ..config(folder.path()) };
    let records = full(&config).await;
    let mut first = Vec::new();
    let written = export(&config, &mut first).unwrap();
    assert_eq!((written.records, written.contents), (u64::try_from(records.len()).unwrap(), 2));
    let target = EmbeddedConfig {
        segment_bytes: 32 << 10,
        ..on(&other.path().join("ledger"), &FaultyDisk::default())
    };
    let read = import(&target, first.as_slice()).unwrap();
    assert_eq!(read, written);
    assert!(import(&target, first.as_slice()).is_err(), "a ledger is never written over");
    let (store, _) = open(&target);
    check(&store, &records).await;
    assert_eq!(store.content(&tenant("acme"), Digest::of(b"one")).await.unwrap(), b"one");
    let gone = store.content(&tenant("acme"), Digest::of(b"two")).await;
    assert!(matches!(gone, Err(StoreError::ContentMissing(_))));
    store.close().await.unwrap();
    assert!(verify(&target.directory).unwrap().is_sound());
    let mut second = Vec::new();
    export(&target, &mut second).unwrap();
    assert!(first == second, "the second export differs from the first");
}

#[tokio::test]
async fn an_export_that_was_changed_or_cut_becomes_nothing() {
    let (folder, other) = (tempdir().unwrap(), tempdir().unwrap());
    let config = config(folder.path());
    full(&config).await;
    let mut whole = Vec::new();
    export(&config, &mut whole).unwrap();
    let target = on(&other.path().join("ledger"), &FaultyDisk::default());
    let lines: Vec<&[u8]> = whole.split_inclusive(|byte| *byte == b'\n').collect();
    let without = |left_out: usize| -> Vec<u8> {
        let kept = lines.iter().enumerate().filter(|(at, _)| *at != left_out);
        kept.flat_map(|(_, line)| line.to_vec()).collect()
    };
    for at in [0, 1, lines.len() / 2, lines.len() - 2, lines.len() - 1] {
        assert!(import(&target, without(at).as_slice()).is_err(), "line {at}");
    }
    for at in (0..whole.len()).step_by(whole.len() / 25) {
        let mut bytes = whole.clone();
        bytes[at] = if bytes[at] == b'7' { b'8' } else { b'7' };
        assert!(import(&target, bytes.as_slice()).is_err(), "byte {at}");
    }
    let mut longer = whole.clone();
    longer.extend_from_slice(lines[1]);
    assert!(import(&target, longer.as_slice()).is_err());
    assert!(!target.directory.try_exists().unwrap());
    import(&target, whole.as_slice()).unwrap();
}

#[tokio::test]
async fn the_logs_of_another_store_are_kept_beside_the_own_one() {
    let (folder, other) = (tempdir().unwrap(), tempdir().unwrap());
    let config = config(folder.path());
    let records = full(&config).await;
    let mut whole = Vec::new();
    export(&config, &mut whole).unwrap();
    // As a store with a log for each epoch would write it.
    let mut writer: Option<ExportWriter<Vec<u8>>> = None;
    crate::transfer::read_export(whole.as_slice(), &mut |item| {
        match (item, &mut writer) {
            (ExportItem::Header(header), _) => {
                let logs = header
                    .logs
                    .into_iter()
                    .map(|log| ExportedLog { log: "node-a/1".to_owned(), ..log });
                writer = Some(ExportWriter::new(Vec::new(), "ledger_elsewhere", logs.collect())?);
            }
            (ExportItem::Entry { entry, .. }, Some(writer)) => {
                writer.put(&ExportItem::Entry { log: "node-a/1".to_owned(), entry })?;
            }
            (item, Some(writer)) => writer.put(&item)?,
            (_, None) => panic!("no header"),
        }
        Ok(())
    })
    .unwrap();
    let (foreign, _) = writer.unwrap().finish().unwrap();
    let target = on(&other.path().join("ledger"), &FaultyDisk::default());
    import(&target, foreign.as_slice()).unwrap();
    let (store, _) = open(&target);
    check(&store, &records).await;
    let waiting = records.iter().find(|record| record.state.name() == "dispatched").unwrap();
    put(&*store, &succeeded(waiting)).await.unwrap();
    store.close().await.unwrap();
    assert_eq!(files(&target.directory.join("imported"), "jsonl").len(), 1);
    assert!(verify(&target.directory).unwrap().is_sound());
    open(&target);
}

#[tokio::test]
async fn the_thorough_check_replays_every_move_and_compares_everything() {
    let folder = tempdir().unwrap();
    let config = EmbeddedConfig { segment_bytes: 4 << 10, ..config(folder.path()) };
    full(&config).await;
    let report = fsck(&config).unwrap();
    assert!(report.is_sound() && report.is_complete, "{report:?}");
    assert!(report.moves > 25, "{}", report.moves);
    assert!(matches!(report.tree, Some(crate::tree::TreeVerdict::Agrees)));
    // Content without a record, which a crash may leave.
    assert_eq!(report.orphans, 1);

    // The index tells something else.
    let (store, _) = open(&config);
    make(&*store, "another", true).await;
    let index = store.state.index().unwrap();
    let key = keys::call(&claim(&*store, "another").call_id);
    index.active().db().insert(key, vec![3; 32]).unwrap();
    drop(index);
    store.close().await.unwrap();
    let report = fsck(&config).unwrap();
    assert_eq!(report.differences.len(), 1, "{:?}", report.differences);
    assert!(!report.is_sound());
    open(&config).0.close().await.unwrap();
    assert!(fsck(&config).unwrap().is_sound());

    fs::remove_dir_all(folder.path().join("archive")).unwrap();
    assert!(!fsck(&config).unwrap().is_complete);
}

/// A journal in which a record goes where none may: made by a writer that checks nothing.
#[tokio::test]
async fn an_illegal_move_in_a_sound_chain_is_found() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let (store, _) = open(&config);
    let done = make(&*store, "key", true).await;
    store.close().await.unwrap();
    let journal_config = crate::embedded::open::journal_config(&config);
    let recovered = crate::journal::Journal::open(journal_config, &mut |_| Ok(())).unwrap();
    let mut journal = recovered.journal;
    let again = dispatched(&*store, &done);
    let (kind, payload) = crate::embedded::codec::encode_entry(&puts(&[&again])).unwrap();
    journal.append(kind, NOW_MS, &payload).unwrap();
    journal.close().unwrap();
    let report = fsck(&config).unwrap();
    assert_eq!(report.illegal.len(), 1, "{report:?}");
    assert!(report.illegal[0].contains("from succeeded to dispatched"), "{:?}", report.illegal);
}
