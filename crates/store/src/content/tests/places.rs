//! Where content lies, and that it stays deleted: over kills, damaged tables and packs that were being rewritten.

use std::collections::BTreeSet;

use super::super::places::Located;
use super::super::reader::tenant_key;
use super::*;

pub(super) fn with_ending(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let all = files(folder).into_iter();
    all.filter(|path| path.extension().is_some_and(|found| found == ending)).collect()
}

/// Flips a bit of the only table.
fn damage(folder: &Path) {
    let table = with_ending(folder, "table").remove(0);
    let mut bytes = fs::read(&table).unwrap();
    bytes[20] ^= 1;
    fs::write(&table, bytes).unwrap();
}

pub(super) fn copy(from: &Path, to: &Path) {
    for path in files(from) {
        let copy = to.join(path.strip_prefix(from).unwrap());
        fs::create_dir_all(copy.parent().unwrap()).unwrap();
        fs::copy(path, copy).unwrap();
    }
}

pub(super) fn is_missing(store: &ContentStore, digest: Digest) -> bool {
    matches!(store.reader().get("acme", digest), Err(ContentError::Missing { .. }))
}

/// What there is, as an export sees it.
pub(super) fn everything(store: &ContentStore) -> Vec<Vec<u8>> {
    let mut seen = Vec::new();
    store
        .reader()
        .each(&mut |_, _, bytes| {
            seen.push(bytes.to_vec());
            Ok::<_, ContentError>(())
        })
        .unwrap();
    seen.sort();
    seen
}

#[test]
fn what_was_deleted_is_gone_whatever_older_tables_say() {
    let folder = tempdir().unwrap();
    let digests = kept(folder.path(), &[b"stays", b"goes", b"too"]);
    let (mut store, _) = ContentStore::open(folder.path()).unwrap();
    store.reader().places.flush().unwrap();
    store.forget("acme", digests[1]).unwrap();
    store.sync().unwrap();
    // Killed: the table still says where it was.
    drop(store);
    let (mut store, _) = ContentStore::open(folder.path()).unwrap();
    let reader = store.reader();
    let located = reader.places.locate(tenant_key("acme"), digests[1]).unwrap();
    assert!(matches!(located, Some(Located::At { .. })), "{located:?}");
    assert!(
        reader.was_deleted("acme", digests[1]).unwrap()
            && !reader.was_deleted("acme", digests[0]).unwrap()
    );
    assert_eq!(everything(&store), [b"stays".to_vec(), b"too".to_vec()]);
    // A start deletes once more what entries say; in good order it is known from then on.
    store.forget("acme", digests[1]).unwrap();
    store.forget("acme", digests[2]).unwrap();
    store.sync().unwrap();
    store.close();
    let (store, _) = ContentStore::open(folder.path()).unwrap();
    let places = store.reader().places;
    for digest in &digests[1..] {
        assert_eq!(places.locate(tenant_key("acme"), *digest).unwrap(), Some(Located::Gone));
    }
    assert_eq!(places.pack(tenant_key("acme"), 1).dead_bytes, 44 + 4 + 44 + 3);
    assert_eq!(everything(&store), [b"stays".to_vec()]);
}

#[test]
fn a_damaged_table_of_places_is_made_anew_from_the_packs() {
    for way in 0..3 {
        let folder = tempdir().unwrap();
        let digests = kept(folder.path(), &[b"content", b"deleted", b"to be deleted"]);
        let (mut store, _) = ContentStore::open(folder.path()).unwrap();
        store.forget("acme", digests[1]).unwrap();
        store.sync().unwrap();
        store.reader().places.flush().unwrap();
        damage(folder.path());
        let reader = store.reader();
        match way {
            0 => assert_eq!(reader.get("acme", digests[0]).unwrap(), b"content"),
            1 => {
                store.forget("acme", digests[2]).unwrap();
                store.sync().unwrap();
                assert!(reader.was_deleted("acme", digests[2]).unwrap());
            }
            _ => assert_eq!(everything(&store).len(), 2),
        }
        assert_eq!(reader.get("acme", digests[0]).unwrap(), b"content");
        assert!(reader.was_deleted("acme", digests[1]).unwrap());
        assert!(reader.damaged_places().is_some(), "way {way}");
        assert_eq!(with_ending(folder.path(), "damaged").len(), 1, "it is set aside");
        drop(store);
        let (store, report) = ContentStore::open(folder.path()).unwrap();
        assert_eq!(report.damaged_bytes, 0);
        let reader = store.reader();
        reader.check_places().unwrap();
        assert_eq!(reader.damaged_places(), None, "there is a sound one again");
        assert_eq!(reader.get("acme", digests[0]).unwrap(), b"content");
    }
}

#[test]
fn many_places_are_made_anew_a_table_at_a_time() {
    let folder = tempdir().unwrap();
    let pieces: Vec<Vec<u8>> = (0..300).map(|n| format!("content {n}").into_bytes()).collect();
    let borrowed: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
    // Packs of some ten pieces, so that tables are made between them.
    let (mut store, _) = ContentStore::open(folder.path()).unwrap();
    store.pack_bytes = 600;
    let mut digests = Vec::new();
    for piece in &borrowed {
        digests.push(store.put("acme", piece.to_vec()).unwrap());
        store.sync().unwrap();
    }
    store.forget("acme", digests[7]).unwrap();
    store.sync().unwrap();
    let reader = store.reader();
    let tables = with_ending(folder.path(), "table");
    reader.remake_places().unwrap();
    let anew = with_ending(folder.path(), "table");
    assert!(!anew.is_empty() && anew.iter().all(|path| !tables.contains(path)), "{anew:?}");
    assert!(reader.places.held() < 64, "{} places are in memory", reader.places.held());
    let mut found = everything(&store);
    found.sort();
    let mut wanted: Vec<Vec<u8>> = pieces.clone();
    wanted.remove(7);
    wanted.sort();
    assert_eq!(found, wanted);
    assert!(reader.was_deleted("acme", digests[7]).unwrap());
}

#[test]
fn whoever_only_looks_finds_damaged_places_and_changes_nothing() {
    let (folder, aside) = (tempdir().unwrap(), tempdir().unwrap());
    let digest = kept(folder.path(), &[b"content"])[0];
    let (store, _) = ContentStore::open(folder.path()).unwrap();
    store.reader().places.flush().unwrap();
    drop(store);
    damage(folder.path());
    let all = || -> Vec<_> {
        let paths = files(folder.path()).into_iter();
        paths.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
    };
    let before = all();
    let (store, _) = ContentStore::open_to_look(folder.path(), aside.path()).unwrap();
    store.reader().check_places().unwrap();
    assert_eq!(store.reader().get("acme", digest).unwrap(), b"content");
    assert!(store.reader().damaged_places().is_some_and(|why| why.contains("damaged")));
    store.close();
    assert_eq!(all(), before);
}

/// With the manifest lost, a start reads the places of all packs; whoever only looks does too, and whoever finds a table damaged.
#[test]
fn however_many_places_are_read_from_packs_few_are_in_memory() {
    let folder = tempdir().unwrap();
    let (mut store, _) = ContentStore::open(folder.path()).unwrap();
    store.pack_bytes = 600;
    let pieces = (0..300).map(|n| format!("content {n}").into_bytes());
    let digests: Vec<Digest> = pieces.map(|piece| store.put("acme", piece).unwrap()).collect();
    store.sync().unwrap();
    let first = digests[0];
    store.forget("acme", first).unwrap();
    store.sync().unwrap();
    drop(store);
    let held = |store: &ContentStore, how: &str| {
        let held = store.reader().places.held();
        assert!(held < 80, "{how}: {held} places are in memory");
        assert!(digests[1..].iter().all(|digest| store.reader().get("acme", *digest).is_ok()));
        assert!(
            is_missing(store, first) && store.reader().was_deleted("acme", first).unwrap(),
            "{how}"
        );
        assert_eq!(everything(store).len(), 299, "{how}");
    };
    for how in ["looked at", "mended by whoever looks", "opened"] {
        let aside = tempdir().unwrap();
        fs::remove_dir_all(folder.path().join("places")).unwrap();
        let before = files(folder.path());
        let (store, _) = if how == "opened" {
            ContentStore::open(folder.path()).unwrap()
        } else {
            ContentStore::open_to_look(folder.path(), aside.path()).unwrap()
        };
        if how.starts_with("mended") {
            store.reader().remake_places().unwrap();
        }
        held(&store, how);
        assert_eq!(files(folder.path()) == before, how != "opened", "{how}");
    }
}

#[test]
fn a_kill_while_a_pack_is_written_anew_brings_nothing_back() {
    let origin = tempdir().unwrap();
    let contents: Vec<Vec<u8>> =
        (0..40_u8).map(|number| vec![number.saturating_add(b'A'); 100]).collect();
    let (mut store, _) = ContentStore::open(origin.path()).unwrap();
    store.pack_bytes = 2_000;
    let digests: Vec<Digest> =
        contents.iter().map(|bytes| store.put("acme", bytes.clone()).unwrap()).collect();
    store.sync().unwrap();
    for digest in &digests[1..12] {
        store.forget("acme", *digest).unwrap();
    }
    store.sync().unwrap();
    store.reader().places.flush().unwrap();
    let before = tempdir().unwrap();
    copy(origin.path(), before.path());
    assert!(store.reader().compact().unwrap() > 0);
    drop(store);
    let packs = |root: &Path| -> BTreeSet<PathBuf> {
        let all = with_ending(root, "pack").into_iter();
        all.map(|path| path.strip_prefix(root).unwrap().to_owned()).collect()
    };
    let (old, new) = (packs(before.path()), packs(origin.path()));
    let (gone, made) = (old.difference(&new).next().unwrap(), new.difference(&old).next().unwrap());
    // The new pack is in place and no table says so; or the tables say so and the old one is still there.
    let kills = [(before.path(), origin.path(), made), (origin.path(), before.path(), gone)];
    for (at, (root, other, both)) in kills.into_iter().enumerate() {
        let folder = tempdir().unwrap();
        copy(root, folder.path());
        fs::copy(other.join(both), folder.path().join(both)).unwrap();
        let (mut store, _) = ContentStore::open(folder.path()).unwrap();
        assert_eq!(store.reader().get("acme", digests[0]).unwrap(), contents[0]);
        assert_eq!(everything(&store).len(), 29, "each is there once");
        store.forget("acme", digests[0]).unwrap();
        store.sync().unwrap();
        drop(store);
        fs::remove_dir_all(folder.path().join("places")).unwrap();
        let (store, _) = ContentStore::open(folder.path()).unwrap();
        let read = store.reader().get("acme", digests[0]);
        assert!(matches!(read, Err(ContentError::Missing { .. })), "{at}: {read:?}");
        assert_eq!(everything(&store).len(), 28);
        for path in files(folder.path()) {
            let bytes = fs::read(&path).unwrap();
            assert!(!bytes.windows(100).any(|window| window == contents[0]), "{}", path.display());
        }
    }
}

/// Forty pieces in packs of some thirteen; in the first pack the first and the last live. Answers all.
pub(super) fn mostly_dead(store: &mut ContentStore) -> (Vec<Vec<u8>>, Vec<Digest>) {
    let contents: Vec<Vec<u8>> =
        (0..40_u8).map(|number| vec![number.saturating_add(b'A'); 100]).collect();
    store.pack_bytes = 2_000;
    let digests: Vec<Digest> =
        contents.iter().map(|bytes| store.put("acme", bytes.clone()).unwrap()).collect();
    store.sync().unwrap();
    for digest in &digests[1..12] {
        store.forget("acme", *digest).unwrap();
    }
    store.sync().unwrap();
    store.reader().places.flush().unwrap();
    (contents, digests)
}

#[test]
fn what_is_deleted_after_a_pack_found_no_room_to_be_written_anew_stays_deleted() {
    let kinds = [
        (Op::Create, Target::Content),
        (Op::Write, Target::Content),
        (Op::Rename, Target::Content),
        (Op::SyncDir, Target::Segment),
    ];
    for kind in kinds {
        let mut refusals = 0;
        for nth in 1.. {
            let (folder, disk) = (tempdir().unwrap(), FaultyDisk::default());
            let medium = Arc::new(disk.clone());
            let (mut store, _) = ContentStore::open_on(medium, folder.path()).unwrap();
            let (contents, digests) = mostly_dead(&mut store);
            disk.fail_nth(nth, kind, Failure::Enospc);
            let compacted = store.reader().compact();
            if compacted.is_ok() {
                break;
            }
            refusals = nth;
            let at = format!("{kind:?} {nth}: {compacted:?}");
            assert_eq!(store.reader().get("acme", digests[0]).unwrap(), contents[0], "{at}");
            store.forget("acme", digests[0]).unwrap();
            // More is kept meanwhile, in packs with numbers of their own.
            let more: Vec<Digest> =
                (0..30_u8).map(|number| store.put("acme", vec![number; 101]).unwrap()).collect();
            store.sync().unwrap();
            // As a checkpoint does.
            store.reader().settle().unwrap();
            drop(store);
            let (store, _) = ContentStore::open(folder.path()).unwrap();
            let reader = store.reader();
            let read = reader.get("acme", digests[0]);
            assert!(matches!(read, Err(ContentError::Missing { .. })), "{at}: {read:?}");
            assert!(reader.was_deleted("acme", digests[0]).unwrap(), "{at}");
            assert_eq!(everything(&store).len(), 28 + 30, "{at}");
            assert!(more.iter().all(|digest| reader.get("acme", *digest).is_ok()), "{at}");
            for path in files(folder.path()) {
                let bytes = fs::read(&path).unwrap();
                let is_there = bytes.windows(100).any(|window| window == contents[0]);
                assert!(!is_there, "{at}: {}", path.display());
            }
            reader.compact().unwrap();
            assert_eq!(everything(&store).len(), 28 + 30, "{at}");
        }
        assert!(refusals > 0, "{kind:?}");
    }
}

/// The manifest names a pack that was rewritten, and its file is still there, or again.
#[test]
fn a_pack_that_was_written_anew_is_never_read_again() {
    let [folder, before, aside] = [(); 3].map(|()| tempdir().unwrap());
    let (mut store, _) = ContentStore::open(folder.path()).unwrap();
    let (_, digests) = mostly_dead(&mut store);
    copy(folder.path(), before.path());
    assert!(store.reader().compact().unwrap() > 0);
    store.forget("acme", digests[0]).unwrap();
    store.sync().unwrap();
    drop(store);
    // Killed between the manifest and the removing.
    let old = with_ending(before.path(), "pack").remove(0);
    let again = folder.path().join(old.strip_prefix(before.path()).unwrap());
    assert!(!again.try_exists().unwrap(), "it was removed");
    fs::copy(&old, &again).unwrap();
    let (looker, _) = ContentStore::open_to_look(folder.path(), aside.path()).unwrap();
    assert!(is_missing(&looker, digests[0]) && again.try_exists().unwrap());
    assert_eq!(everything(&looker).len(), 28);
    drop(looker);
    let (store, _) = ContentStore::open(folder.path()).unwrap();
    assert!(!again.try_exists().unwrap(), "it goes at a start");
    assert!(is_missing(&store, digests[0]));
}

/// A start would take the new pack for the one that went.
#[test]
fn the_number_of_a_pack_that_went_is_not_given_again_while_a_manifest_names_it() {
    for is_opened_again in [false, true] {
        let folder = tempdir().unwrap();
        let (mut store, _) = ContentStore::open(folder.path()).unwrap();
        let (_, digests) = mostly_dead(&mut store);
        // The pack with the highest number comes about, and goes.
        assert!(store.reader().compact().unwrap() > 0);
        store.forget("acme", digests[0]).unwrap();
        store.forget("acme", digests[12]).unwrap();
        store.sync().unwrap();
        assert!(store.reader().compact().unwrap() > 0);
        if is_opened_again {
            drop(store);
            store = ContentStore::open(folder.path()).unwrap().0;
        }
        store.pack_bytes = 500;
        let more: Vec<Digest> =
            (0..30_u8).map(|number| store.put("acme", vec![number; 101]).unwrap()).collect();
        store.sync().unwrap();
        drop(store);
        let (store, _) = ContentStore::open(folder.path()).unwrap();
        assert!(more.iter().all(|digest| store.reader().get("acme", *digest).is_ok()));
        assert_eq!(everything(&store).len(), 27 + 30, "{is_opened_again}");
    }
}

#[test]
fn what_was_deleted_is_known_as_deleted_after_its_pack_is_gone_and_the_places_are_made_anew() {
    let folder = tempdir().unwrap();
    let (mut store, _) = ContentStore::open(folder.path()).unwrap();
    let (contents, digests) = mostly_dead(&mut store);
    assert!(store.reader().compact().unwrap() > 0);
    for round in 0..2 {
        let reader = store.reader();
        reader.remake_places().unwrap();
        for digest in &digests[1..12] {
            assert!(reader.was_deleted("acme", *digest).unwrap(), "{round}");
        }
        assert!(!reader.was_deleted("acme", Digest::of(b"never there")).unwrap());
        assert_eq!(reader.get("acme", digests[0]).unwrap(), contents[0]);
        assert_eq!(everything(&store).len(), 29, "{round}");
        drop(store);
        store = ContentStore::open(folder.path()).unwrap().0;
    }
}

#[test]
fn that_places_are_being_made_anew_can_be_asked() {
    let folder = tempdir().unwrap();
    let (store, _) = ContentStore::open(folder.path()).unwrap();
    let reader = store.reader();
    assert!(!reader.is_mending());
    let mending = reader.places.mending();
    assert!(reader.is_mending());
    drop(mending);
    assert!(!reader.is_mending());
}
