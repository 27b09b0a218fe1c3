//! Archiving that is cut short, after the tree was lost and the archive had left the machine: whatever is started next has a tree to stand
//! on, and so has the start after that.

use std::fs;

use placet_ledger::log::AuditLog as _;
use placet_ledger::proof::Frontier;
use placet_types::digest::Digest;
use tempfile::{TempDir, tempdir};

use super::checkpoints::{check, files, filled};
use super::*;
use crate::embedded::checkpoint::Checkpoints;
use crate::embedded::floor::Footing;
use crate::journal::Base;
use crate::journal::medium::Disk;
use crate::journal::tests::Failure;

const LATER: Timestamp = Timestamp::from_ms(NOW_MS + 1);

fn small(folder: &Path, disk: &FaultyDisk) -> EmbeddedConfig {
    EmbeddedConfig { segment_bytes: 4 << 10, ..on(folder, disk) }
}

fn base(folder: &Path) -> Base {
    Base::read(&Disk, &folder.join("journal")).unwrap()
}

fn checkpoints(folder: &Path) -> Checkpoints {
    Checkpoints::new(Arc::new(Disk), folder.join("checkpoints"))
}

/// The archive leaves the machine.
fn cut_loose(folder: &Path) {
    let archive = folder.join("archive");
    if archive.try_exists().unwrap() {
        fs::remove_dir_all(archive).unwrap();
    }
}

/// A store that stands on its first base: the archive has left the machine, and the tree was lost. More can be archived.
async fn standing() -> (TempDir, Vec<EffectRecord>) {
    let folder = tempdir().unwrap();
    let config = small(folder.path(), &FaultyDisk::default());
    let (store, _) = open(&config);
    let mut records = filled(&store, 2).await;
    assert!(store.archive(LATER).await.unwrap().segments > 1);
    store.close().await.unwrap();
    cut_loose(folder.path());
    fs::remove_dir_all(folder.path().join("tree")).unwrap();
    let (store, _) = open(&config);
    for number in 0..12 {
        records.push(make(&*store, &format!("later-{number}"), true).await);
    }
    records.sort_by_key(|record| record.record_id);
    store.close().await.unwrap();
    (folder, records)
}

/// Archives until the medium takes no more, `at` operations from here; answers the folder as a kill leaves it, or nothing once archiving
/// came to its end before.
async fn cut_short(origin: &Path, at: u64) -> Option<TempDir> {
    let (folder, killed, disk) = (tempdir().unwrap(), tempdir().unwrap(), FaultyDisk::default());
    copy_folder(origin, folder.path());
    let (store, _) = open(&small(folder.path(), &disk));
    disk.crash_at(disk.total() + at, Failure::Eio);
    let archived = store.archive(LATER).await;
    if archived.is_ok() {
        return None;
    }
    copy_folder(folder.path(), killed.path());
    Some(killed)
}

#[tokio::test]
async fn an_archiving_that_is_cut_short_anywhere_leaves_every_start_a_tree_to_stand_on() {
    let (origin, records) = standing().await;
    let first_base = base(origin.path()).first_seq;
    let (mut points, mut ahead) = (0, 0);
    for at in 1.. {
        let Some(killed) = cut_short(origin.path(), at).await else { break };
        points = at;
        let folder = killed.path();
        let here = base(folder);
        let kept = checkpoints(folder).floors().unwrap();
        let is_ahead = kept.iter().all(|(named, _)| named.first_seq > here.first_seq);
        ahead += u32::from(is_ahead);
        let config = small(folder, &FaultyDisk::default());
        let (store, _) = open(&config);
        check(&store, &records).await;
        let head = store.heads().await.unwrap().remove(0);
        // Two, so that all that is kept was made by this start.
        store.checkpoint().await.unwrap();
        store.checkpoint().await.unwrap();
        store.close().await.unwrap();
        let kept = files(&folder.join("checkpoints"), "checkpoint").len();
        assert_eq!(checkpoints(folder).floors().unwrap().len(), kept, "{at}: each has a floor");
        if base(folder).first_seq > first_base {
            cut_loose(folder);
        }
        // The start after that, with a tree that is lost once more where only a checkpoint knows it.
        if is_ahead || at % 4 == 0 {
            fs::remove_dir_all(folder.join("tree")).unwrap();
        }
        let (store, _) = open(&config);
        check(&store, &records).await;
        let again = store.heads().await.unwrap().remove(0);
        assert!(again.size >= head.size, "{at}");
        if is_ahead || at % 4 == 0 {
            // What was begun is brought to its end, also where nothing more is asked for.
            let asked = if is_ahead { Timestamp::from_ms(0) } else { LATER };
            let archived = store.archive(asked).await.unwrap();
            assert!(archived.first_seq > first_base, "{at}: {archived:?}");
            store.close().await.unwrap();
            cut_loose(folder);
            let (store, _) = open(&config);
            check(&store, &records).await;
        }
    }
    assert!(points > 20 && ahead > 0, "{points} points, {ahead} with no checkpoint of the base");
}

/// As a build left them that did not know of the tree.
fn without_floors(folder: &Path) {
    for path in files(&folder.join("checkpoints"), "checkpoint") {
        let text = fs::read_to_string(&path).unwrap();
        let mut body: serde_json::Value =
            serde_json::from_str(text.lines().next().unwrap()).unwrap();
        assert!(body.as_object_mut().unwrap().remove("frontier").is_some());
        let body = serde_json::to_string(&body).unwrap();
        let digest = Digest::of(body.as_bytes()).to_string();
        let digest = digest.trim_start_matches("sha256:");
        fs::write(&path, format!("{body}\n{digest}\n")).unwrap();
    }
    assert!(checkpoints(folder).floors().unwrap().is_empty());
}

#[tokio::test]
async fn the_next_checkpoint_names_the_tree_also_where_none_did_before() {
    for is_at_hand in [true, false] {
        let folder = tempdir().unwrap();
        let config = small(folder.path(), &FaultyDisk::default());
        let (store, _) = open(&config);
        let records = filled(&store, 2).await;
        assert!(store.archive(LATER).await.unwrap().segments > 1);
        store.close().await.unwrap();
        let kept = checkpoints(folder.path()).floors().unwrap();
        without_floors(folder.path());
        if is_at_hand {
            fs::remove_dir_all(folder.path().join("tree")).unwrap();
        } else {
            cut_loose(folder.path());
        }
        let (store, _) = open(&config);
        check(&store, &records).await;
        store.checkpoint().await.unwrap();
        assert_eq!(checkpoints(folder.path()).floors().unwrap()[0], kept[0]);
    }
}

#[test]
fn no_checkpoint_names_archived_entries_without_the_tree_over_them() {
    let base = Base { segment: 3, first_seq: 9, prev: [1; 32] };
    let lost = Footing { base, floor: None, ahead: None };
    assert!(matches!(lost.named(), Err(OpenError::NoFloor { first_seq: 9 })));
    let whole = Footing { base: Base::START, ..lost.clone() };
    assert_eq!(whole.named().unwrap(), (Base::START, None));
    let further = Base { segment: 4, first_seq: 12, ..base };
    let ahead = Footing { ahead: Some((further, Frontier::new())), ..lost };
    assert_eq!(ahead.named().unwrap(), (further, Some(Frontier::new())));
}
