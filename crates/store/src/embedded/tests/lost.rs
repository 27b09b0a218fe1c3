//! What is lost or damaged beside the journal, and what is deleted while a copy is made.

use std::fs;

use placet_ledger::log::AuditLog as _;
use placet_ledger::store::EffectQuery;
use placet_types::digest::Digest;
use tempfile::tempdir;

use super::checkpoints::{check, files, filled, spoil};
use super::*;

/// A store with archived segments that are not on this machine any more.
async fn cut_loose(config: &EmbeddedConfig) -> (Vec<EffectRecord>, placet_ledger::log::TreeHead) {
    let (store, _) = open(config);
    let records = filled(&store, 5).await;
    let archived = store.archive(Timestamp::from_ms(NOW_MS + 1)).await.unwrap();
    assert!(archived.segments > 3 && archived.records > 10, "{archived:?}");
    let head = store.heads().await.unwrap().remove(0);
    store.close().await.unwrap();
    fs::remove_dir_all(config.directory.join("archive")).unwrap();
    (records, head)
}

#[tokio::test]
async fn either_checkpoint_has_the_records_that_were_carried_over() {
    let folder = tempdir().unwrap();
    let config = EmbeddedConfig { segment_bytes: 4 << 10, ..config(folder.path()) };
    let (records, _) = cut_loose(&config).await;
    let checkpoints = files(&folder.path().join("checkpoints"), "checkpoint");
    spoil(checkpoints.last().unwrap());
    let (store, _) = open(&config);
    check(&store, &records).await;
}

#[tokio::test]
async fn a_lost_tree_is_made_anew_without_the_archive() {
    let folder = tempdir().unwrap();
    let config = EmbeddedConfig { segment_bytes: 4 << 10, ..config(folder.path()) };
    let (mut records, mut before) = cut_loose(&config).await;
    let tree = folder.path().join("tree");
    for round in 0..3_u32 {
        match round {
            0 => fs::remove_dir_all(&tree).unwrap(),
            1 => spoil(&tree.join("head")),
            // The tiles alone: the head is there, and they do not lead to it.
            _ => fs::remove_dir_all(tree.join("0")).unwrap(),
        }
        let (store, _) = open(&config);
        check(&store, &records).await;
        records.push(make(&*store, &format!("later-{round}"), true).await);
        records.sort_by_key(|record| record.record_id);
        let now = store.heads().await.unwrap().remove(0);
        let path = store.consistency("journal", before.size, now.size).await.unwrap();
        let path = path.into_iter().map(Digest::from_bytes).collect();
        let (old, new) = (Digest::from_bytes(before.root), Digest::from_bytes(now.root));
        let proof = placet_ledger::proof::Consistency { from: before.size, to: now.size, path };
        proof.verify(&old, &new).unwrap();
        assert!(store.inclusion("journal", 1, now.size).await.is_err(), "its leaf is gone");
        store.checkpoint().await.unwrap();
        // What is left can be archived in its turn. It is signed before, so nobody asks for what lies under it.
        before = now;
        store.archive(Timestamp::from_ms(NOW_MS + 1)).await.unwrap();
        store.close().await.unwrap();
        let archive = folder.path().join("archive");
        if archive.try_exists().unwrap() {
            fs::remove_dir_all(archive).unwrap();
        }
    }
}

#[tokio::test]
async fn the_furthest_generation_tells_how_far_the_journal_went() {
    let (folder, old) = (tempdir().unwrap(), tempdir().unwrap());
    let config = config(folder.path());
    let (store, _) = open(&config);
    make(&*store, "first", true).await;
    store.checkpoint().await.unwrap();
    make(&*store, "second", true).await;
    store.close().await.unwrap();
    copy_folder(folder.path(), old.path());
    // The generation after it, which waits for its checkpoint.
    let (store, _) = open(&config);
    store.checkpoint().await.unwrap();
    make(&*store, "third", true).await;
    store.close().await.unwrap();
    let later: Vec<_> =
        fs::read_dir(folder.path().join("index")).unwrap().map(|entry| entry.unwrap()).collect();
    assert_eq!(later.len(), 1, "{later:?}");
    let beside = old.path().join("index").join(later[0].file_name());
    fs::create_dir(&beside).unwrap();
    copy_folder(&later[0].path(), &beside);
    let refused = try_open(&super::config(old.path())).unwrap_err();
    let forgotten = OpenError::Journal(JournalError::Forgotten { witness_seq: 0, found_seq: 0 });
    assert_eq!(std::mem::discriminant(&refused), std::mem::discriminant(&forgotten), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_backup_has_the_content_of_its_records_whatever_is_buried_meanwhile() {
    let (folder, target) = (tempdir().unwrap(), tempdir().unwrap());
    let config = config(folder.path());
    let (store, _) = open(&config);
    let mut done = Vec::new();
    for number in 0..400_u32 {
        let sent = make(&*store, &format!("key-{number}"), false).await;
        let bytes = format!("result {number}").into_bytes();
        let result = Digest::of(&bytes);
        let settled = moved(&sent, EffectState::Succeeded { result, resolved_by: None });
        let mut changes = puts(&[&settled]);
        changes.content.push((tenant("acme"), bytes));
        store.commit(changes).await.unwrap();
        done.push((settled, result));
    }
    let burying = tokio::spawn({
        let (store, done) = (Arc::clone(&store), done.clone());
        async move {
            for (record, result) in &done {
                let tombstone = EffectState::Tombstone {
                    was: "succeeded".to_owned(),
                    code: None,
                    settled_at: record.updated_at,
                };
                let mut changes = puts(&[&moved(record, tombstone)]);
                changes.forget_content.push((tenant("acme"), *result));
                store.commit(changes).await.unwrap();
            }
        }
    });
    let mut copies = Vec::new();
    while !burying.is_finished() {
        let to = target.path().join(format!("copy-{}", copies.len()));
        store.backup(&to).await.unwrap();
        copies.push(to);
    }
    burying.await.unwrap();
    // What was held is deleted once the copy is made.
    let gone = async {
        for (_, result) in &done {
            while store.content(&tenant("acme"), *result).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), gone).await.unwrap();
    let mut looked_at = 0;
    for to in copies {
        let (copy, _) = open(&on(&to, &FaultyDisk::default()));
        let whole = EffectQuery {
            state: Some("succeeded".to_owned()),
            limit: usize::MAX,
            ..EffectQuery::default()
        };
        for record in copy.effects(&whole).await.unwrap() {
            let result = record.state.result().unwrap();
            assert!(copy.content(&tenant("acme"), result).await.is_ok(), "{}", record.key.as_str());
            looked_at += 1;
        }
        copy.close().await.unwrap();
    }
    assert!(looked_at > 0, "every backup came too late");
}

/// Whether any file below `folder` has these bytes in it.
fn is_somewhere(folder: &Path, bytes: &[u8]) -> bool {
    fs::read_dir(folder).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return is_somewhere(&path, bytes);
        }
        fs::read(&path).unwrap().windows(bytes.len()).any(|window| window == bytes)
    })
}

#[tokio::test]
async fn what_was_put_off_is_deleted_by_the_next_start_whenever_the_process_dies() {
    let (folder, after) = (tempdir().unwrap(), tempdir().unwrap());
    let config = config(folder.path());
    let (store, _) = open(&config);
    let secret = b"the result that nobody may keep".to_vec();
    let result = Digest::of(&secret);
    let sent = make(&*store, "key", false).await;
    let settled = moved(&sent, EffectState::Succeeded { result, resolved_by: None });
    let mut changes = puts(&[&settled]);
    changes.content.push((tenant("acme"), secret.clone()));
    store.commit(changes).await.unwrap();
    // As while a backup copies.
    store.content.hold();
    let (was, settled_at) = ("succeeded".to_owned(), settled.updated_at);
    let tombstone = EffectState::Tombstone { was, code: None, settled_at };
    let mut changes = puts(&[&moved(&settled, tombstone)]);
    changes.forget_content.push((tenant("acme"), result));
    store.commit(changes).await.unwrap();
    assert!(store.content(&tenant("acme"), result).await.is_ok(), "it is put off");
    // A start looks only at what comes after the checkpoint, so there is none before it is done; and nothing is broken.
    let made = store.checkpoint().await;
    assert!(matches!(made, Err(StoreError::Unreachable(_))), "{made:?}");
    // The process dies here.
    copy_folder(folder.path(), after.path());
    assert!(is_somewhere(&after.path().join("content"), &secret));
    let (next, _) = open(&on(after.path(), &FaultyDisk::default()));
    let gone = Err(StoreError::ContentMissing(result));
    assert_eq!(next.content(&tenant("acme"), result).await, gone);
    assert!(!is_somewhere(&after.path().join("content"), &secret));
    // This one lives on: it deletes, and then makes its checkpoint.
    store.content.release();
    let covered = store.checkpoint().await.unwrap();
    assert!(covered.seq >= 3, "{covered:?}");
    assert_eq!(store.content(&tenant("acme"), result).await, gone);
    assert!(!is_somewhere(&folder.path().join("content"), &secret));
}

/// A call that has come to this result, which is kept.
pub(super) async fn settled(store: &EmbeddedStore, key: &str, bytes: &[u8]) -> EffectRecord {
    let result = Digest::of(bytes);
    let sent = make(store, key, false).await;
    let settled = moved(&sent, EffectState::Succeeded { result, resolved_by: None });
    let mut changes = puts(&[&settled]);
    changes.content.push((tenant("acme"), bytes.to_vec()));
    store.commit(changes).await.unwrap();
    settled
}

async fn buried(store: &EmbeddedStore, record: &EffectRecord) {
    let (was, settled_at) = ("succeeded".to_owned(), record.updated_at);
    let tombstone = EffectState::Tombstone { was, code: None, settled_at };
    let mut changes = puts(&[&moved(record, tombstone)]);
    changes.forget_content.push((tenant("acme"), record.state.result().unwrap()));
    store.commit(changes).await.unwrap();
}

#[tokio::test]
async fn what_was_kept_anew_after_its_deletion_outlives_restarts_until_it_is_deleted_again() {
    let (folder, killed) = (tempdir().unwrap(), tempdir().unwrap());
    let bytes = b"what two calls came to";
    let content = |store: Arc<EmbeddedStore>| async move {
        store.content(&tenant("acme"), Digest::of(bytes)).await
    };
    let (store, _) = open(&config(folder.path()));
    let first = settled(&store, "first", bytes).await;
    buried(&store, &first).await;
    let second = settled(&store, "second", bytes).await;
    // No checkpoint covers the deletion: a start does it once more, and not to what was kept since.
    copy_folder(folder.path(), killed.path());
    let (store, _) = open(&config(killed.path()));
    assert_eq!(content(Arc::clone(&store)).await.as_deref(), Ok(&bytes[..]));
    store.close().await.unwrap();
    let rebuilt = crate::embedded::rebuild(killed.path()).unwrap();
    assert!(matches!(rebuilt.index, crate::embedded::IndexFate::Rebuilt { .. }), "{rebuilt:?}");
    let (store, _) = open(&config(killed.path()));
    assert_eq!(content(Arc::clone(&store)).await.as_deref(), Ok(&bytes[..]));
    buried(&store, &second).await;
    store.close().await.unwrap();
    let (store, _) = open(&config(killed.path()));
    assert!(matches!(content(store).await, Err(StoreError::ContentMissing(_))));
    assert!(!is_somewhere(&killed.path().join("content"), bytes));
}

/// A large piece leaves no trace of itself, and neither does a pack that went, once the table of places is lost: the entries tell.
#[tokio::test]
async fn what_entries_say_was_deleted_is_not_taken_for_lost() {
    let folder = tempdir().unwrap();
    let (store, _) = open(&config(folder.path()));
    let large = vec![b'x'; 300 << 10];
    let mut gone = Vec::new();
    for (key, bytes) in [("small", &b"small and deleted"[..]), ("large", &large)] {
        let record = settled(&store, key, bytes).await;
        buried(&store, &record).await;
        gone.push((tenant("acme"), Digest::of(bytes)));
    }
    settled(&store, "lost", b"nobody deleted it").await;
    store.close().await.unwrap();
    fs::remove_file(pack_of(folder.path(), "acme")).unwrap();
    fs::remove_dir_all(folder.path().join("content/places")).unwrap();
    let found = crate::embedded::verify(folder.path()).unwrap().content;
    assert_eq!(found.deleted, 2, "{found:?}");
    assert!(gone.iter().all(|gone| !found.missing.contains(gone)), "{found:?}");
    let lost = (tenant("acme"), Digest::of(b"nobody deleted it"));
    assert!(found.missing.contains(&lost), "{found:?}");
}

#[tokio::test]
async fn what_a_kill_left_half_erased_is_not_taken_for_altered() {
    let (folder, killed) = (tempdir().unwrap(), tempdir().unwrap());
    let (store, _) = open(&config(folder.path()));
    let record = settled(&store, "half", b"half erased by a kill").await;
    settled(&store, "whole", b"altered by nobody knows").await;
    let pack = pack_of(folder.path(), "acme");
    let before = fs::read(&pack).unwrap();
    buried(&store, &record).await;
    // The zeros are there, and no header says so; the other piece is harmed, and nothing says that it was deleted.
    let mut bytes = fs::read(&pack).unwrap();
    bytes[..44].copy_from_slice(&before[..44]);
    *bytes.last_mut().unwrap() ^= 1;
    copy_folder(folder.path(), killed.path());
    fs::write(pack_of(killed.path(), "acme"), bytes).unwrap();
    let found = crate::embedded::verify(killed.path()).unwrap().content;
    let altered = (tenant("acme"), Digest::of(b"altered by nobody knows"));
    assert_eq!((found.altered, found.deleted), (vec![altered], 1));
}
