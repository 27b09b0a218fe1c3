//! Contents that are deleted: while a copy is made, before a kill, and kept again.

use std::fs;

use placet_ledger::store::EffectQuery;
use placet_types::digest::Digest;
use tempfile::tempdir;

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_backup_has_the_content_of_its_records_whatever_is_buried_meanwhile() {
    let (folder, target) = (tempdir().unwrap(), tempdir().unwrap());
    let config = config(folder.path());
    let (store, _) = open(&config);
    let mut done = Vec::new();
    for number in 0..150_u32 {
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
        if copies.len() >= 4 {
            break;
        }
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
async fn what_may_not_be_erased_yet_is_erased_by_the_next_start_whenever_the_process_dies() {
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
    store.state.erasing.hold();
    let (was, settled_at) = ("succeeded".to_owned(), settled.updated_at);
    let tombstone = EffectState::Tombstone { was, code: None, settled_at };
    let mut changes = puts(&[&moved(&settled, tombstone)]);
    changes.forget_content.push((tenant("acme"), result));
    store.commit(changes).await.unwrap();
    let gone = Err(StoreError::ContentMissing(result));
    assert_eq!(store.content(&tenant("acme"), result).await, gone);
    assert!(is_somewhere(&folder.path().join("journal"), &secret), "it is not erased yet");
    // The process dies here.
    copy_folder(folder.path(), after.path());
    assert!(is_somewhere(&after.path().join("journal"), &secret));
    let (next, _) = open(&on(after.path(), &FaultyDisk::default()));
    assert_eq!(next.content(&tenant("acme"), result).await, gone);
    assert!(!is_somewhere(&after.path().join("journal"), &secret));
    // This one lives on.
    store.state.erasing.release();
    let erased = async {
        while is_somewhere(&folder.path().join("journal"), &secret) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), erased).await.unwrap();
    store.close().await.unwrap();
    assert!(
        crate::embedded::verify(&EmbeddedConfig::new(folder.path()))
            .unwrap()
            .content
            .altered
            .is_empty()
    );
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
async fn what_was_kept_again_after_its_deletion_outlives_restarts_until_it_is_deleted_again() {
    let (folder, killed) = (tempdir().unwrap(), tempdir().unwrap());
    let bytes = b"what two calls came to";
    let content = |store: Arc<EmbeddedStore>| async move {
        store.content(&tenant("acme"), Digest::of(bytes)).await
    };
    let (store, _) = open(&config(folder.path()));
    let first = settled(&store, "first", bytes).await;
    buried(&store, &first).await;
    let second = settled(&store, "second", bytes).await;
    copy_folder(folder.path(), killed.path());
    let (store, _) = open(&config(killed.path()));
    assert_eq!(content(Arc::clone(&store)).await.as_deref(), Ok(&bytes[..]));
    store.close().await.unwrap();
    let rebuilt = crate::embedded::rebuild(&EmbeddedConfig::new(killed.path())).unwrap();
    assert!(matches!(rebuilt.state, crate::embedded::StateFate::Rebuilt { .. }), "{rebuilt:?}");
    let (store, _) = open(&config(killed.path()));
    assert_eq!(content(Arc::clone(&store)).await.as_deref(), Ok(&bytes[..]));
    buried(&store, &second).await;
    store.close().await.unwrap();
    let (store, _) = open(&config(killed.path()));
    assert!(matches!(content(store).await, Err(StoreError::ContentMissing(_))));
    assert!(!is_somewhere(&killed.path().join("journal"), bytes));
}

#[tokio::test]
async fn verifying_tells_what_was_deleted_from_what_was_altered() {
    let folder = tempdir().unwrap();
    let (store, _) = open(&config(folder.path()));
    let record = settled(&store, "gone", b"deleted, as an entry says").await;
    buried(&store, &record).await;
    settled(&store, "harmed", b"altered, and nobody knows").await;
    store.close().await.unwrap();
    let segment = folder.path().join("journal/000000000001.segment");
    let mut bytes = fs::read(&segment).unwrap();
    let at = bytes.windows(7).position(|bytes| bytes == b"altered").unwrap();
    bytes[at] ^= 1;
    fs::write(&segment, bytes).unwrap();
    let found = crate::embedded::verify(&EmbeddedConfig::new(folder.path())).unwrap().content;
    let altered = (tenant("acme"), Digest::of(b"altered, and nobody knows"));
    assert_eq!((&found.altered, found.deleted), (&vec![altered], 1), "{found:?}");
    // Kept again, it is written again.
    let (store, _) = open(&config(folder.path()));
    settled(&store, "again", b"altered, and nobody knows").await;
    store.close().await.unwrap();
    assert!(
        crate::embedded::verify(&EmbeddedConfig::new(folder.path()))
            .unwrap()
            .content
            .altered
            .is_empty()
    );
}
