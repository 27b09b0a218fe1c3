//! What the operating system refuses for the moment is no damage: the start is stopped, and nothing is thrown away for it.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::tempdir;
use tokio::time::timeout;

use super::checkpoints::{check, files, filled, spoil};
use super::*;
use crate::embedded::checkpoint::Checkpoints;
use crate::embedded::{IndexFate, verify};

/// Too many open files; an error of the disk; no permission.
const ERRORS: [i32; 3] = [24, 5, 13];

fn names(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

#[tokio::test]
async fn a_checkpoint_that_cannot_be_read_for_the_moment_stops_the_start_and_counts_at_the_next() {
    let (folder, disk) = (tempdir().unwrap(), FaultyDisk::default());
    let (store, _) = open(&on(folder.path(), &disk));
    let records = filled(&store, 4).await;
    store.close().await.unwrap();
    let checkpoints = folder.path().join("checkpoints");
    let (before, beside) = (names(&checkpoints), names(folder.path()));
    let mut tried = 0;
    for ending in [".checkpoint", ".table"] {
        for error in ERRORS {
            disk.refuse_reading(Some((ending, error)));
            let refused = try_open(&on(folder.path(), &disk)).unwrap_err();
            assert!(matches!(refused, OpenError::Io { .. }), "{ending}: {refused:?}");
            assert_eq!(
                (names(&checkpoints), names(folder.path())),
                (before.clone(), beside.clone())
            );
            tried += 1;
        }
    }
    assert_eq!(tried, 6);
    disk.refuse_reading(None);
    let (store, report) = open(&on(folder.path(), &disk));
    assert!(report.checkpoint_seq > 0 && report.replayed == 0, "{report:?}");
    assert_eq!(report.index, IndexFate::Kept);
    check(&store, &records).await;
    store.close().await.unwrap();
    assert!(verify(folder.path()).unwrap().is_sound());
}

#[tokio::test]
async fn what_a_checkpoint_names_that_cannot_be_read_for_the_moment_is_not_removed() {
    let (folder, disk) = (tempdir().unwrap(), FaultyDisk::default());
    let (store, _) = open(&on(folder.path(), &disk));
    let mut records = filled(&store, 4).await;
    disk.refuse_reading(Some((".checkpoint", 24)));
    records.push(make(&*store, "between", true).await);
    records.sort_by_key(|record| record.record_id);
    store.checkpoint().await.unwrap();
    disk.refuse_reading(None);
    let checkpoints = folder.path().join("checkpoints");
    let kept = Checkpoints::new(Arc::new(disk.clone()), checkpoints.clone());
    let numbers = kept.numbers().unwrap();
    assert_eq!(numbers.len(), 3, "the oldest stays until it is known what the others name");
    assert!(numbers.iter().all(|number| kept.load(*number).is_ok()));
    records.push(make(&*store, "after", true).await);
    records.sort_by_key(|record| record.record_id);
    store.checkpoint().await.unwrap();
    assert_eq!(kept.numbers().unwrap().len(), 2);
    store.close().await.unwrap();
    // The older one is as good as the newer.
    spoil(files(&checkpoints, "checkpoint").last().unwrap());
    let (store, report) = open(&on(folder.path(), &disk));
    assert!(report.checkpoint_seq > 0);
    check(&store, &records).await;
}

/// Whatever deletions wait for: they are not given up, so the checkpoint is only put off.
#[tokio::test]
async fn deletions_that_take_long_put_a_checkpoint_off_and_stop_nothing() {
    let (folder, disk) = (tempdir().unwrap(), FaultyDisk::default());
    let (store, _) = open(&on(folder.path(), &disk));
    make(&*store, "sent", true).await;
    let generations = || names(&folder.path().join("index")).len();
    let index = store.state.index().unwrap();
    index.deleting(true);
    for _ in 0..2 {
        let put_off = store.checkpoint().await;
        assert!(matches!(put_off, Err(StoreError::Unreachable(_))), "{put_off:?}");
        assert_eq!(generations(), 1, "what was not begun is not left behind");
    }
    let died = timeout(Duration::from_millis(50), store.died()).await;
    assert!(died.is_err(), "the store goes on: {died:?}");
    make(&*store, "meanwhile", true).await;
    index.deleting(false);
    assert!(store.checkpoint().await.unwrap().seq > 0);
    store.close().await.unwrap();
}
