//! A piece in two records: one counts, and nothing is left of the other.

use super::damaged::{is_anywhere, rot};
use super::places::{copy, everything, is_missing, mostly_dead, with_ending};
use super::*;

/// A folder as a kill leaves it between a pack's coming into place and the manifest that says so; with what is in the first pack and
/// lives, and those of its bytes that are there.
fn killed_between(rots: bool) -> (tempfile::TempDir, Vec<Digest>, Vec<u8>) {
    let [folder, after] = [(); 2].map(|()| tempdir().unwrap());
    let (mut store, _) = ContentStore::open(folder.path()).unwrap();
    let (contents, digests) = mostly_dead(&mut store);
    drop(store);
    let bytes = if rots { rot(folder.path(), &contents[0]) } else { contents[0].clone() };
    copy(folder.path(), after.path());
    let (store, _) = ContentStore::open(after.path()).unwrap();
    assert!(store.reader().compact().unwrap() > 0);
    drop(store);
    let made = with_ending(after.path(), "pack").pop().unwrap();
    fs::copy(&made, folder.path().join(made.strip_prefix(after.path()).unwrap())).unwrap();
    (folder, digests, bytes)
}

fn how_often(folder: &Path, bytes: &[u8]) -> usize {
    let all = with_ending(folder, "pack").into_iter().map(|path| fs::read(path).unwrap());
    all.map(|pack| pack.windows(bytes.len()).filter(|at| *at == bytes).count()).sum()
}

#[test]
fn a_rotted_piece_that_a_kill_left_in_both_packs_is_in_one_and_goes_with_its_deletion() {
    let (folder, digests, rotten) = killed_between(true);
    assert_eq!(how_often(folder.path(), &rotten), 2);
    for start in 0..2 {
        let (store, report) = ContentStore::open(folder.path()).unwrap();
        assert_eq!((how_often(folder.path(), &rotten), report.blobs), (1, 29), "start {start}");
        let read = store.reader().get("acme", digests[0]);
        assert!(matches!(read, Err(ContentError::Altered { .. })), "{read:?}");
    }
    let (mut store, _) = ContentStore::open(folder.path()).unwrap();
    store.forget("acme", digests[0]).unwrap();
    store.sync().unwrap();
    assert!(!is_anywhere(folder.path(), &rotten));
    drop(store);
    fs::remove_dir_all(folder.path().join("places")).unwrap();
    let (store, _) = ContentStore::open(folder.path()).unwrap();
    assert!(is_missing(&store, digests[0]), "it does not come back as altered");
    assert_eq!(everything(&store).len(), 28);
}

/// It rotted in the old pack after it was carried into the new one: the whole one counts.
#[test]
fn of_a_rotted_record_and_a_whole_one_the_whole_one_counts() {
    let (folder, digests, whole) = killed_between(false);
    let rotten = rot(folder.path(), &whole);
    let aside = tempdir().unwrap();
    let (store, _) = ContentStore::open_to_look(folder.path(), aside.path()).unwrap();
    assert_eq!(store.reader().get("acme", digests[0]).unwrap(), whole);
    drop(store);
    assert_eq!(how_often(folder.path(), &rotten), 1, "whoever only looks changes nothing");
    let (mut store, report) = ContentStore::open(folder.path()).unwrap();
    assert_eq!(report.blobs, 29);
    assert_eq!(store.reader().get("acme", digests[0]).unwrap(), whole);
    assert_eq!(how_often(folder.path(), &rotten), 0);
    assert_eq!(everything(&store).len(), 29);
    store.forget("acme", digests[0]).unwrap();
    store.sync().unwrap();
    drop(store);
    fs::remove_dir_all(folder.path().join("places")).unwrap();
    let (store, _) = ContentStore::open(folder.path()).unwrap();
    assert!(is_missing(&store, digests[0]) && !is_anywhere(folder.path(), &whole));
}

#[test]
fn a_record_that_cannot_be_read_for_the_moment_is_taken_for_neither_rotted_nor_lost() {
    let (folder, digests, whole) = killed_between(false);
    let all = || -> Vec<_> {
        with_ending(folder.path(), "pack").into_iter().map(|path| fs::read(path).unwrap()).collect()
    };
    let before = all();
    for error in [24, 5] {
        let disk = FaultyDisk::default();
        disk.refuse_reading(Some((".pack", error)));
        let refused = ContentStore::open_on(Arc::new(disk), folder.path()).unwrap_err();
        assert!(matches!(refused, ContentError::Io { .. }), "{refused}");
        assert_eq!(all(), before);
    }
    let disk = FaultyDisk::default();
    let (store, _) = ContentStore::open_on(Arc::new(disk.clone()), folder.path()).unwrap();
    assert_eq!(how_often(folder.path(), &whole), 1);
    // Nor is it for deleted, or lost, where that is asked.
    disk.refuse_reading(Some((".pack", 24)));
    let told = store.reader().was_deleted("acme", digests[0]);
    assert!(matches!(told, Err(ContentError::Io { .. })), "{told:?}");
    let mended = store.reader().remake_places();
    assert!(matches!(mended, Err(ContentError::Io { .. })), "{mended:?}");
    disk.refuse_reading(None);
    assert_eq!(everything(&store).len(), 29);
}
