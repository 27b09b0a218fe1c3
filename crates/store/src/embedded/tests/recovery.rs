//! Starts that find less than they could: the archive away, a snapshot of no use, an earlier start that failed.

use std::fs;

use placet_ledger::proof::Frontier;
use placet_types::digest::Digest;
use tempfile::tempdir;

use super::faults::change as alter;
use super::snapshots::{files, spoil};
use super::*;
use crate::embedded::edits::Edits;
use crate::embedded::merkle;
use crate::embedded::tree::Tree;
use crate::embedded::{StateFate, rebuild};

const LATER: Timestamp = Timestamp::from_ms(NOW_MS + 1);

fn small(folder: &Path) -> EmbeddedConfig {
    EmbeddedConfig { segment_bytes: 4 << 10, ..config(folder) }
}

async fn write_events(store: &EmbeddedStore, count: u32) {
    for number in 0..count {
        let mut changes = synced();
        changes.audit.push(event(&format!("number {number} {}", "x".repeat(200))));
        store.commit(changes).await.unwrap();
    }
}

async fn keep(store: &EmbeddedStore, bytes: &[u8]) {
    let mut changes = synced();
    changes.content.push((tenant("acme"), bytes.to_vec()));
    store.commit(changes).await.unwrap();
}

async fn forget(store: &EmbeddedStore, bytes: &[u8]) {
    let mut changes = synced();
    changes.forget_content.push((tenant("acme"), Digest::of(bytes)));
    store.commit(changes).await.unwrap();
}

/// Closes the store, and removes its state and what it archived.
async fn lose(store: Arc<EmbeddedStore>, folder: &Path) {
    store.close().await.unwrap();
    fs::remove_dir_all(folder.join("state")).unwrap();
    fs::remove_dir_all(folder.join("archive")).unwrap();
}

#[tokio::test]
async fn a_deletion_is_replayed_though_its_segment_was_archived() {
    for is_away in [false, true] {
        let folder = tempdir().unwrap();
        let config = small(folder.path());
        let (store, _) = open(&config);
        keep(&store, b"secret").await;
        write_events(&store, 60).await;
        store.snapshot().await.unwrap();
        forget(&store, b"secret").await;
        assert!(store.archive(LATER).await.unwrap().segments > 1);
        store.close().await.unwrap();
        fs::remove_dir_all(folder.path().join("state")).unwrap();
        let gone = if is_away { "archive" } else { "snapshots" };
        fs::remove_dir_all(folder.path().join(gone)).unwrap();
        let (_, report) = open(&config);
        assert_eq!(report.snapshot_seq > 0, is_away);
    }
}

#[tokio::test]
async fn entries_that_a_snapshot_proves_with_may_be_archived() {
    let folder = tempdir().unwrap();
    let config = small(folder.path());
    let (store, _) = open(&config);
    write_events(&store, 510).await;
    store.snapshot().await.unwrap();
    // From here on the tile of the snapshot's last entries is full.
    write_events(&store, 2).await;
    let archived = store.archive(LATER).await.unwrap();
    assert!(archived.first_seq > 400, "{archived:?}");
    lose(store, folder.path()).await;
    assert_eq!(open(&config).1.snapshot_seq, 510);
}

#[tokio::test]
async fn a_snapshot_older_than_the_archived_entries_keeps_nothing_from_starting() {
    let folder = tempdir().unwrap();
    let config = small(folder.path());
    let (store, _) = open(&config);
    write_events(&store, 10).await;
    store.snapshot().await.unwrap();
    write_events(&store, 100).await;
    let archived = store.archive(LATER).await.unwrap();
    assert!(archived.first_seq > 20, "{archived:?}");
    lose(store, folder.path()).await;
    let (store, report) = open(&config);
    assert_eq!(report.snapshot_seq, 110);
    store.close().await.unwrap();
    // Without the newer one there is nothing to begin from.
    fs::remove_dir_all(folder.path().join("state")).unwrap();
    spoil(files(&folder.path().join("snapshots"), "snapshot").last().unwrap());
    let refused = try_open(&config).unwrap_err();
    assert!(matches!(refused, OpenError::NoGround { .. }), "{refused}");
}

#[tokio::test]
async fn an_old_journal_is_refused_while_state_or_snapshots_know_more() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let (store, _) = open(&config);
    make(&*store, "early", true).await;
    store.close().await.unwrap();
    let (journal, copy) = (folder.path().join("journal"), folder.path().join("copy"));
    copy_folder(&journal, &copy);
    let (store, _) = open(&config);
    make(&*store, "later", true).await;
    store.snapshot().await.unwrap();
    store.close().await.unwrap();
    fs::remove_dir_all(&journal).unwrap();
    fs::rename(&copy, &journal).unwrap();
    // Its snapshot tells, too.
    for _ in 0..2 {
        let refused = try_open(&config).unwrap_err();
        assert!(matches!(refused, OpenError::Journal(JournalError::Forgotten { .. })), "{refused}");
        let refused = rebuild(&config).unwrap_err();
        assert!(matches!(refused, OpenError::Journal(JournalError::Forgotten { .. })), "{refused}");
        drop(fs::remove_dir_all(folder.path().join("state")));
    }
    fs::remove_dir_all(folder.path().join("snapshots")).unwrap();
    let (store, report) = open(&config);
    assert_eq!((report.frames, counted(&store)[0]), (2, 1));
    make(&*store, "instead", true).await;
    assert_eq!(store.snapshot().await.unwrap(), 4);
    store.close().await.unwrap();
    fs::remove_dir_all(folder.path().join("state")).unwrap();
    assert_eq!(open(&config).1.snapshot_seq, 4);
}

#[tokio::test]
async fn a_damaged_snapshot_is_replaced_after_a_rebuild() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let (store, _) = open(&config);
    make(&*store, "key", true).await;
    let seq = store.snapshot().await.unwrap();
    store.close().await.unwrap();
    spoil(&files(&folder.path().join("snapshots"), "snapshot")[0]);
    for snapshot_seq in [0, seq] {
        fs::remove_dir_all(folder.path().join("state")).unwrap();
        let (store, report) = open(&config);
        assert_eq!(report.snapshot_seq, snapshot_seq);
        assert_eq!(store.snapshot().await.unwrap(), seq);
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn what_a_killed_process_left_of_a_snapshot_is_removed() {
    let folder = tempdir().unwrap();
    let (store, _) = open(&config(folder.path()));
    make(&*store, "key", true).await;
    let left = folder.path().join("snapshots/00000000000000000001.tmp");
    fs::create_dir(left.parent().unwrap()).unwrap();
    fs::write(&left, b"half").unwrap();
    store.snapshot().await.unwrap();
    assert!(!left.try_exists().unwrap());
}

#[tokio::test]
async fn a_state_in_doubt_stays_so_when_a_start_fails() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let (store, _) = open(&config);
    make(&*store, "key", true).await;
    store.close().await.unwrap();
    let mark = "{\"boot_id\":\"another\",\"closed\":false}";
    fs::write(folder.path().join("trusted"), mark).unwrap();
    // It cannot be set aside.
    fs::create_dir_all(folder.path().join("state.damaged-2/in-the-way")).unwrap();
    assert!(matches!(try_open(&config), Err(OpenError::Journal(JournalError::Io { .. }))));
    let (_, report) = open(&config);
    assert!(matches!(report.state, StateFate::Rebuilt { .. }), "{:?}", report.state);
}

#[tokio::test]
async fn every_copy_of_a_deleted_content_is_erased() {
    let folder = tempdir().unwrap();
    let (store, _) = open(&config(folder.path()));
    let secret = b"a very secret result, of which one letter is altered";
    keep(&store, secret).await;
    store.close().await.unwrap();
    alter(folder.path(), secret, |bytes| bytes[50] ^= 1);
    let (store, _) = open(&config(folder.path()));
    // It is not what it should be, so it is written once more.
    keep(&store, secret).await;
    assert_eq!(store.content(&tenant("acme"), Digest::of(secret)).await.unwrap(), secret);
    forget(&store, secret).await;
    store.close().await.unwrap();
    let bytes = fs::read(folder.path().join("journal/000000000001.segment")).unwrap();
    assert!(!bytes.windows(20).any(|found| found == &secret[..20]));
}

#[test]
fn the_tree_grows_over_three_levels_of_tiles() {
    let folder = tempdir().unwrap();
    let tree = Tree::open(folder.path(), 8 << 20).unwrap();
    let hash = |seq: u64| *Digest::of(&seq.to_be_bytes()).as_bytes();
    let (mut expected, mut size) = (Frontier::new(), 0_u64);
    for step in [1, 254, 1, 1, 255, 65_022, 1, 1, 300, 65_000, 1_000] {
        let hashes: Vec<_> = (size + 1..=size + step).map(hash).collect();
        size += step;
        hashes.iter().for_each(|hash| expected.append(hash, &mut |_, _| {}));
        let mut edits = Edits::new();
        let frontier = merkle::append(&tree, hashes.into_iter(), &mut edits).unwrap();
        tree.apply(&edits, |meta| meta.frontier = frontier).unwrap();
        assert_eq!(merkle::view(&tree, |view| view.root(size)).unwrap(), expected.root(), "{size}");
        for seq in [1, size / 2 + 1, size] {
            merkle::view(&tree, |view| view.inclusion(seq, size)).unwrap();
            merkle::view(&tree, |view| view.consistency(seq, size)).unwrap();
        }
    }
}

/// sled has forgotten everything, and what it was made of first is not at hand: the snapshot has it.
#[tokio::test]
async fn an_empty_state_is_not_believed_where_the_journal_begins_later() {
    let folder = tempdir().unwrap();
    let config = small(folder.path());
    let (store, _) = open(&config);
    write_events(&store, 60).await;
    let done = make(&*store, "key", true).await;
    assert!(store.archive(LATER).await.unwrap().segments > 1);
    store.close().await.unwrap();
    fs::remove_dir_all(folder.path().join("archive")).unwrap();
    let tree = Tree::open(&folder.path().join("state"), 8 << 20).unwrap();
    tree.sled().clear().unwrap();
    drop(tree);
    let (store, report) = open(&config);
    assert!(report.snapshot_seq > 0, "{report:?}");
    assert_eq!(store.effect(done.record_id).await.unwrap(), Some(done));
}

/// What a copy, or an archiving, rests on is read first.
#[tokio::test]
async fn a_damaged_snapshot_covers_nothing() {
    let (folder, target) = (tempdir().unwrap(), tempdir().unwrap());
    let config = small(folder.path());
    let (store, _) = open(&config);
    write_events(&store, 60).await;
    let seq = store.snapshot().await.unwrap();
    let newest = || files(&folder.path().join("snapshots"), "snapshot").pop().unwrap();
    spoil(&newest());
    assert!(store.archive(LATER).await.unwrap().segments > 1);
    assert_eq!(files(&folder.path().join("snapshots"), "damaged").len(), 1);
    spoil(&newest());
    let copy = target.path().join("copy");
    assert!(store.backup(&copy).await.unwrap().seq >= seq);
    let (copied, report) = open(&on(&copy, &FaultyDisk::default()));
    assert_eq!(report.snapshot_seq, seq);
    copied.close().await.unwrap();
}

#[tokio::test]
async fn a_snapshot_of_another_ledger_is_not_used() {
    let (folder, other) = (tempdir().unwrap(), tempdir().unwrap());
    let (elsewhere, _) = open(&small(other.path()));
    keep(&elsewhere, b"of the other one").await;
    let seq = elsewhere.snapshot().await.unwrap();
    elsewhere.close().await.unwrap();
    let config = small(folder.path());
    let (store, _) = open(&config);
    write_events(&store, 3).await;
    store.close().await.unwrap();
    fs::remove_dir_all(folder.path().join("state")).unwrap();
    fs::rename(other.path().join("snapshots"), folder.path().join("snapshots")).unwrap();
    let told = crate::embedded::verify(&EmbeddedConfig::new(folder.path())).unwrap();
    let [(at, why)] = told.damaged_snapshots.as_slice() else { panic!("{told:?}") };
    assert!(*at == seq && why.contains("another journal"), "{told:?}");
    let (store, report) = open(&config);
    assert_eq!(report.snapshot_seq, 0);
    assert!(matches!(report.state, StateFate::Rebuilt { .. }), "{report:?}");
    store.snapshot().await.unwrap();
    store.close().await.unwrap();
    let told = crate::embedded::verify(&EmbeddedConfig::new(folder.path())).unwrap();
    assert!(told.damaged_snapshots.is_empty(), "{told:?}");
}
