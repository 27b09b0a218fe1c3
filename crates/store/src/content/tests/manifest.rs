//! A manifest of the places that is damaged or lost: what its tables say was deleted is known still, and nothing comes back.

use super::super::places::{Located, Place};
use super::super::reader::tenant_key;
use super::damaged::{is_anywhere, knows_all, two_tables};
use super::places::{copy, everything, is_missing, mostly_dead, with_ending};
use super::*;

fn manifest(folder: &Path) -> PathBuf {
    folder.join("places/manifest")
}

/// Damages the manifest, or removes it; answers whether it is there.
fn spoil(folder: &Path, way: &str) -> bool {
    let path = manifest(folder);
    let mut bytes = fs::read(&path).unwrap();
    match way {
        "lost" => fs::remove_file(&path).unwrap(),
        "cut short" => fs::write(&path, &bytes[..bytes.len() / 2]).unwrap(),
        "empty" => fs::write(&path, b"").unwrap(),
        _ => {
            bytes[30] ^= 1;
            fs::write(&path, bytes).unwrap();
        }
    }
    way != "lost"
}

const WAYS: [&str; 4] = ["a bit flipped", "cut short", "empty", "lost"];

#[test]
fn a_damaged_manifest_leaves_what_its_tables_say_was_deleted() {
    for way in WAYS {
        let folder = tempdir().unwrap();
        let (living, gone) = two_tables(folder.path());
        let last = with_ending(folder.path(), "table").pop().unwrap();
        let is_there = spoil(folder.path(), way);
        let (store, report) = ContentStore::open(folder.path()).unwrap();
        assert_eq!(report.blobs, 93, "{way}: each is counted once");
        // Without a manifest it may have been the first table, and a kill before its manifest.
        assert_eq!(store.reader().damaged_places().is_some(), is_there, "{way}");
        assert!(knows_all(&store, (&living, &gone)), "{way}");
        assert!(store.reader().places.held() < 128, "{way}");
        store.reader().places.flush().unwrap();
        let tables = with_ending(folder.path(), "table");
        assert!(tables.iter().all(|table| *table > last), "{way}: no number is given twice");
        drop(store);
        let (store, _) = ContentStore::open(folder.path()).unwrap();
        assert_eq!(store.reader().damaged_places(), None, "{way}");
        assert!(knows_all(&store, (&living, &gone)), "{way}");
    }
}

#[test]
fn whoever_only_looks_knows_what_the_tables_of_a_damaged_manifest_say() {
    for way in WAYS {
        let (folder, aside) = (tempdir().unwrap(), tempdir().unwrap());
        let (living, gone) = two_tables(folder.path());
        let is_there = spoil(folder.path(), way);
        let all = || -> Vec<_> {
            files(folder.path())
                .into_iter()
                .map(|path| (path.clone(), fs::read(path).unwrap()))
                .collect()
        };
        let before = all();
        let (store, _) = ContentStore::open_to_look(folder.path(), aside.path()).unwrap();
        store.reader().check_places().unwrap();
        assert!(knows_all(&store, (&living, &gone)), "{way}");
        assert_eq!(store.reader().damaged_places().is_some(), is_there, "{way}");
        assert_eq!(all(), before, "{way}");
    }
}

#[test]
fn a_kill_at_any_step_of_the_start_after_the_manifest_was_damaged_forgets_no_deletion() {
    let origin = tempdir().unwrap();
    let (living, gone) = two_tables(origin.path());
    spoil(origin.path(), WAYS[0]);
    let whole = FaultyDisk::default();
    let dry = tempdir().unwrap();
    copy(origin.path(), dry.path());
    drop(ContentStore::open_on(Arc::new(whole.clone()), dry.path()).unwrap());
    assert!(whole.total() > 8, "{}", whole.total());
    for at in 1..=whole.total() {
        let (folder, disk) = (tempdir().unwrap(), FaultyDisk::default());
        copy(origin.path(), folder.path());
        disk.crash_at(at, Failure::HalfThenEnospc);
        drop(ContentStore::open_on(Arc::new(disk), folder.path()));
        for start in 0..2 {
            let (store, _) = ContentStore::open(folder.path()).unwrap();
            assert!(knows_all(&store, (&living, &gone)), "{at}, start {start}");
        }
    }
}

#[test]
fn a_manifest_that_cannot_be_read_for_the_moment_stops_the_start_and_nothing_is_removed() {
    let folder = tempdir().unwrap();
    let (living, gone) = two_tables(folder.path());
    let before = files(folder.path());
    for (name, error) in [("manifest", 24), ("manifest", 5), ("manifest", 13)] {
        let disk = FaultyDisk::default();
        disk.refuse_reading(Some((name, error)));
        let refused = ContentStore::open_on(Arc::new(disk), folder.path()).unwrap_err();
        assert!(matches!(refused, ContentError::Io { .. }), "{refused}");
        assert_eq!(files(folder.path()), before);
    }
    // Nor do its tables go, where it is damaged, and they cannot be read.
    spoil(folder.path(), WAYS[0]);
    let disk = FaultyDisk::default();
    disk.refuse_reading(Some((".table", 5)));
    let refused = ContentStore::open_on(Arc::new(disk), folder.path()).unwrap_err();
    assert!(matches!(refused, ContentError::Io { .. }), "{refused}");
    assert_eq!(files(folder.path()), before);
    let (store, _) = ContentStore::open(folder.path()).unwrap();
    assert!(knows_all(&store, (&living, &gone)));
}

/// The manifest knew that a pack counts no more, whose file is still there: a piece of it was deleted in the pack that it was written
/// into. What the entries after the last checkpoint say, a start does once more; an earlier one has no such pack left.
#[test]
fn what_was_deleted_does_not_come_back_from_a_pack_of_which_the_damaged_manifest_knew() {
    let [folder, before, aside] = [(); 3].map(|()| tempdir().unwrap());
    let (mut store, _) = ContentStore::open(folder.path()).unwrap();
    let (contents, digests) = mostly_dead(&mut store);
    copy(folder.path(), before.path());
    assert!(store.reader().compact().unwrap() > 0);
    store.forget("acme", digests[0]).unwrap();
    store.sync().unwrap();
    drop(store);
    let old = with_ending(before.path(), "pack").remove(0);
    let again = folder.path().join(old.strip_prefix(before.path()).unwrap());
    fs::copy(&old, &again).unwrap();
    spoil(folder.path(), WAYS[0]);
    let (looker, _) = ContentStore::open_to_look(folder.path(), aside.path()).unwrap();
    assert_eq!(everything(&looker).len(), 29, "each is there once");
    drop(looker);
    let (mut store, _) = ContentStore::open(folder.path()).unwrap();
    // As a start does it, of what its journal says.
    store.forget("acme", digests[0]).unwrap();
    store.sync().unwrap();
    store.reader().settle().unwrap();
    let settled = || {
        assert!(!is_anywhere(folder.path(), &contents[0]));
        let (store, _) = ContentStore::open(folder.path()).unwrap();
        assert!(is_missing(&store, digests[0]));
        assert!(store.reader().was_deleted("acme", digests[0]).unwrap());
        assert!(digests[12..].iter().all(|digest| store.reader().get("acme", *digest).is_ok()));
        assert_eq!(everything(&store).len(), 28);
        store.reader().compact().unwrap();
        assert_eq!(everything(&store).len(), 28);
    };
    drop(store);
    settled();
    spoil(folder.path(), WAYS[0]);
    settled();
}

#[test]
fn a_piece_that_was_kept_anew_after_its_deletion_lives_without_the_manifest() {
    let folder = tempdir().unwrap();
    let (living, gone) = two_tables(folder.path());
    let (mut store, _) = ContentStore::open(folder.path()).unwrap();
    let again = store.put("acme", format!("{:0100}", 3).into_bytes()).unwrap();
    assert!(gone.contains(&again));
    store.sync().unwrap();
    drop(store);
    for way in WAYS {
        spoil(folder.path(), way);
        let (store, _) = ContentStore::open(folder.path()).unwrap();
        assert!(store.reader().get("acme", again).is_ok(), "{way}");
        let places = store.reader().places;
        let located = places.locate(tenant_key("acme"), again).unwrap();
        assert!(matches!(located, Some(Located::At { place: Place { .. }, .. })), "{way}");
        assert_eq!(everything(&store).len(), living.len() + 1, "{way}");
        places.flush().unwrap();
    }
}
