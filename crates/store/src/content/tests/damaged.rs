//! Damaged tables of places, altered pieces and places that lead astray: what is sound stays, and is found.

use super::super::places::{Located, Place};
use super::super::reader::tenant_key;
use super::places::{copy, everything, is_missing, mostly_dead, with_ending};
use super::*;

/// A large table that knows of twelve deletions of which no pack says anything, and a small one on top of it. Answers what lives, and
/// what was deleted.
pub(super) fn two_tables(folder: &Path) -> (Vec<Digest>, Vec<Digest>) {
    let (mut store, _) = ContentStore::open(folder).unwrap();
    store.pack_bytes = 2_000;
    let mut put = |number: u32| store.put("acme", format!("{number:0100}").into_bytes()).unwrap();
    let mut living: Vec<Digest> = (0..100).map(&mut put).collect();
    store.sync().unwrap();
    let gone: Vec<Digest> = living.drain(..12).collect();
    for digest in &gone {
        store.forget("acme", *digest).unwrap();
    }
    store.sync().unwrap();
    assert!(store.reader().compact().unwrap() > 0);
    store.reader().places.flush().unwrap();
    for number in 200..205 {
        living.push(store.put("acme", format!("{number:0100}").into_bytes()).unwrap());
    }
    store.sync().unwrap();
    store.reader().places.flush().unwrap();
    assert_eq!(with_ending(folder, "table").len(), 2);
    assert!(knows_all(&store, (&living, &gone)));
    (living, gone)
}

pub(super) fn knows_all(store: &ContentStore, (living, gone): (&[Digest], &[Digest])) -> bool {
    let reader = store.reader();
    living.iter().all(|digest| reader.get("acme", *digest).is_ok())
        && gone.iter().all(|digest| reader.was_deleted("acme", *digest).unwrap())
        && everything(store).len() == living.len()
}

/// Flips a bit at the end of the newest table, so that it cannot be opened.
fn spoil_newest(folder: &Path) -> PathBuf {
    let newest = with_ending(folder, "table").pop().unwrap();
    let mut bytes = fs::read(&newest).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&newest, bytes).unwrap();
    newest
}

#[test]
fn a_table_that_cannot_be_opened_is_set_aside_alone_and_made_anew_once() {
    for is_missing_altogether in [false, true] {
        let folder = tempdir().unwrap();
        let (living, gone) = two_tables(folder.path());
        let newest = spoil_newest(folder.path());
        if is_missing_altogether {
            fs::remove_file(&newest).unwrap();
        }
        let (store, report) = ContentStore::open(folder.path()).unwrap();
        assert!(store.reader().damaged_places().is_some());
        assert_eq!(report.blobs, 93, "each is counted once");
        assert!(knows_all(&store, (&living, &gone)));
        assert!(store.reader().places.held() < 64, "{}", store.reader().places.held());
        let aside = usize::from(!is_missing_altogether);
        assert_eq!(with_ending(folder.path(), "damaged").len(), aside);
        // Killed here: what was rebuilt is durable, and the next start has nothing to mend.
        drop(store);
        let before = files(folder.path());
        let (store, _) = ContentStore::open(folder.path()).unwrap();
        assert_eq!(store.reader().damaged_places(), None);
        assert!(knows_all(&store, (&living, &gone)));
        assert_eq!(files(folder.path()), before);
    }
}

#[test]
fn a_table_that_cannot_be_read_for_the_moment_stops_the_start_and_nothing_is_removed() {
    let folder = tempdir().unwrap();
    let (living, gone) = two_tables(folder.path());
    let before = files(folder.path());
    // Too many open files; an error of the disk.
    for error in [24, 5] {
        let disk = FaultyDisk::default();
        disk.refuse_reading(Some(("table", error)));
        let refused = ContentStore::open_on(Arc::new(disk.clone()), folder.path()).unwrap_err();
        assert!(matches!(refused, ContentError::Io { .. }), "{refused}");
        assert_eq!(files(folder.path()), before);
        disk.refuse_reading(None);
        let (store, _) = ContentStore::open_on(Arc::new(disk), folder.path()).unwrap();
        assert_eq!(store.reader().damaged_places(), None);
        assert!(knows_all(&store, (&living, &gone)));
    }
}

#[test]
fn a_damaged_table_stays_in_its_place_until_a_manifest_does_without_it() {
    let origin = tempdir().unwrap();
    let (living, gone) = two_tables(origin.path());
    let name = spoil_newest(origin.path());
    let name = name.strip_prefix(origin.path()).unwrap();
    for (op, at) in [Op::Create, Op::Write, Op::Rename]
        .into_iter()
        .flat_map(|op| (1..=4).map(move |at| (op, at)))
    {
        let (folder, disk) = (tempdir().unwrap(), FaultyDisk::default());
        copy(origin.path(), folder.path());
        let manifest = fs::read(folder.path().join("places/manifest")).unwrap();
        disk.fail_nth(at, (op, Target::Content), Failure::Enospc);
        drop(ContentStore::open_on(Arc::new(disk), folder.path()));
        let is_named = fs::read(folder.path().join("places/manifest")).unwrap() == manifest;
        let is_there = folder.path().join(name).try_exists().unwrap();
        assert!(is_there || !is_named, "{op:?} {at}: the manifest names a table that is gone");
        for _ in 0..2 {
            let (store, _) = ContentStore::open(folder.path()).unwrap();
            assert!(knows_all(&store, (&living, &gone)), "{op:?} {at}");
        }
    }
}

#[test]
fn a_table_that_is_found_damaged_at_work_stays_in_its_place_until_there_is_room_for_another() {
    let (folder, disk) = (tempdir().unwrap(), FaultyDisk::default());
    let (living, gone) = two_tables(folder.path());
    let newest = with_ending(folder.path(), "table").pop().unwrap();
    let mut bytes = fs::read(&newest).unwrap();
    bytes[20] ^= 1;
    fs::write(&newest, bytes).unwrap();
    let (store, _) = ContentStore::open_on(Arc::new(disk.clone()), folder.path()).unwrap();
    disk.fail_next(Op::Rename, Target::Content, Failure::Enospc);
    // Whoever met the damage is told that there is no room, and nothing was set aside for what could not be made.
    let told = living.iter().find_map(|digest| store.reader().get("acme", *digest).err());
    assert!(matches!(told, Some(ContentError::Io { .. })), "{told:?}");
    assert!(newest.try_exists().unwrap() && with_ending(folder.path(), "damaged").is_empty());
    // With room again the next who asks has it made.
    assert!(knows_all(&store, (&living, &gone)));
    assert!(store.reader().damaged_places().is_some());
    drop(store);
    let (store, _) = ContentStore::open(folder.path()).unwrap();
    assert!(knows_all(&store, (&living, &gone)));
    store.reader().check_places().unwrap();
    assert_eq!(with_ending(folder.path(), "damaged").len(), 1);
}

/// Whether these bytes stand in any file.
pub(super) fn is_anywhere(folder: &Path, bytes: &[u8]) -> bool {
    let has = |path: &PathBuf| fs::read(path).unwrap().windows(bytes.len()).any(|at| at == bytes);
    files(folder).iter().any(has)
}

/// Flips a bit of a piece in the first pack.
pub(super) fn rot(folder: &Path, content: &[u8]) -> Vec<u8> {
    let first = with_ending(folder, "pack").remove(0);
    let mut bytes = fs::read(&first).unwrap();
    let at = bytes.windows(100).position(|window| window == content).unwrap();
    bytes[at] ^= 1;
    let rotten = bytes[at..][..100].to_vec();
    fs::write(&first, bytes).unwrap();
    rotten
}

#[test]
fn a_piece_that_rotted_stays_altered_when_its_pack_is_written_anew_and_can_be_deleted() {
    let folder = tempdir().unwrap();
    let (mut store, _) = ContentStore::open(folder.path()).unwrap();
    let (contents, digests) = mostly_dead(&mut store);
    let rotten = rot(folder.path(), &contents[0]);
    assert!(store.reader().compact().unwrap() > 0);
    for start in 0..2 {
        let reader = store.reader();
        let read = reader.get("acme", digests[0]);
        assert!(matches!(read, Err(ContentError::Altered { .. })), "{start}: {read:?}");
        assert!(!reader.was_deleted("acme", digests[0]).unwrap(), "{start}");
        drop(store);
        store = ContentStore::open(folder.path()).unwrap().0;
    }
    // Retention comes to it, and to nothing else.
    let more = store.put("acme", vec![b'!'; 101]).unwrap();
    store.forget("acme", digests[0]).unwrap();
    store.sync().unwrap();
    assert!(store.reader().was_deleted("acme", digests[0]).unwrap());
    assert!(!is_anywhere(folder.path(), &rotten));
    assert!(store.reader().get("acme", more).is_ok());
    assert_eq!(everything(&store).len(), 28 + 1);
}

#[test]
fn what_is_kept_anew_is_written_where_what_was_there_has_rotted() {
    let folder = tempdir().unwrap();
    let (mut store, _) = ContentStore::open(folder.path()).unwrap();
    let (contents, digests) = mostly_dead(&mut store);
    let rotten = rot(folder.path(), &contents[0]);
    assert!(store.reader().compact().unwrap() > 0);
    store.put("acme", contents[0].clone()).unwrap();
    store.sync().unwrap();
    assert_eq!(store.reader().get("acme", digests[0]).unwrap(), contents[0]);
    // What has rotted does not outlive it, nor come back in its place.
    assert!(!is_anywhere(folder.path(), &rotten));
    store.forget("acme", digests[0]).unwrap();
    store.sync().unwrap();
    store.reader().remake_places().unwrap();
    assert!(is_missing(&store, digests[0]));
    assert_eq!(everything(&store).len(), 28);
}

/// Flips a bit in the entries of the newest table: it can be opened, and not be read.
fn spoil_entries(folder: &Path) {
    let newest = with_ending(folder, "table").pop().unwrap();
    let mut bytes = fs::read(&newest).unwrap();
    bytes[20] ^= 1;
    fs::write(&newest, bytes).unwrap();
}

#[test]
fn a_table_that_is_met_damaged_while_another_is_made_is_made_anew_at_once() {
    for way in ["tend", "compact", "settle"] {
        let folder = tempdir().unwrap();
        let (mut living, gone) = two_tables(folder.path());
        let (mut store, _) = ContentStore::open(folder.path()).unwrap();
        store.pack_bytes = 2_000;
        spoil_entries(folder.path());
        // So many that a table is due, and the newest one merged with it.
        for number in 300..370 {
            living.push(store.put("acme", format!("{number:0100}").into_bytes()).unwrap());
        }
        store.sync().unwrap();
        let (reader, last) = (store.reader(), living.len() - 1);
        match way {
            "tend" => reader.tend().unwrap(),
            "settle" => {
                store.forget("acme", living.remove(last)).unwrap();
                store.sync().unwrap();
                reader.settle().unwrap();
            }
            _ => {
                // All of a pack but two pieces.
                for digest in living.drain(95..106) {
                    store.forget("acme", digest).unwrap();
                }
                store.sync().unwrap();
                let before = with_ending(folder.path(), "pack").len();
                assert!(reader.compact().unwrap() > 0);
                assert!(with_ending(folder.path(), "pack").len() <= before, "the old one is gone");
            }
        }
        assert!(reader.damaged_places().is_some(), "{way}: the damage was found, and mended");
        assert!(reader.places.held() < 64, "{way}: {} in memory", reader.places.held());
        assert!(knows_all(&store, (&living, &gone)), "{way}");
        reader.check_places().unwrap();
        drop(store);
        let (store, _) = ContentStore::open(folder.path()).unwrap();
        assert_eq!(store.reader().damaged_places(), None, "{way}");
        assert!(knows_all(&store, (&living, &gone)), "{way}");
    }
}

#[test]
fn a_table_that_is_cut_short_at_work_is_damaged_and_no_error_of_the_disk() {
    let folder = tempdir().unwrap();
    let (living, gone) = two_tables(folder.path());
    let (store, _) = ContentStore::open(folder.path()).unwrap();
    let newest = with_ending(folder.path(), "table").pop().unwrap();
    fs::OpenOptions::new().write(true).open(newest).unwrap().set_len(30).unwrap();
    assert!(knows_all(&store, (&living, &gone)));
    assert!(store.reader().damaged_places().is_some());
}

#[test]
fn what_cannot_be_written_for_the_moment_is_tried_again_with_little_more() {
    let (folder, disk) = (tempdir().unwrap(), FaultyDisk::default());
    let (mut store, _) = ContentStore::open_on(Arc::new(disk.clone()), folder.path()).unwrap();
    for number in 0..70_u8 {
        store.put("acme", vec![number; 100]).unwrap();
    }
    store.sync().unwrap();
    let reader = store.reader();
    disk.fail_next(Op::Rename, Target::Content, Failure::Enospc);
    assert!(reader.tend().is_err());
    assert_eq!(reader.places.held(), 70);
    reader.tend().unwrap();
    assert_eq!(reader.places.held(), 0);
}

/// A flush is under way that has taken the deletions with it: a checkpoint must not leave them behind before it is done.
#[test]
fn whoever_settles_waits_for_the_flush_that_is_under_way() {
    let (folder, disk) = (tempdir().unwrap(), FaultyDisk::default());
    let (mut store, _) = ContentStore::open_on(Arc::new(disk.clone()), folder.path()).unwrap();
    let digest = store.put("acme", b"to be deleted".to_vec()).unwrap();
    store.sync().unwrap();
    store.forget("acme", digest).unwrap();
    store.sync().unwrap();
    let held_up = disk.hold_up(Op::Rename, Target::Content);
    let reader = store.reader();
    let flushing = std::thread::spawn(move || reader.places.flush());
    held_up.wait();
    let reader = store.reader();
    let (settled, is_settled) = std::sync::mpsc::channel();
    let settling = std::thread::spawn(move || settled.send(reader.settle()).unwrap());
    let soon = std::time::Duration::from_millis(200);
    assert!(is_settled.recv_timeout(soon).is_err(), "nothing is durable yet");
    assert!(!folder.path().join("places/manifest").try_exists().unwrap());
    drop(held_up);
    is_settled.recv().unwrap().unwrap();
    assert!(folder.path().join("places/manifest").try_exists().unwrap());
    flushing.join().unwrap().unwrap();
    settling.join().unwrap();
}

#[test]
fn the_number_of_a_pack_is_given_once_also_over_restarts() {
    let folder = tempdir().unwrap();
    let (mut store, _) = ContentStore::open(folder.path()).unwrap();
    let (_, digests) = mostly_dead(&mut store);
    assert!(store.reader().compact().unwrap() > 0);
    let last = with_ending(folder.path(), "pack").pop().unwrap();
    let number: u32 = last.file_stem().unwrap().to_str().unwrap().parse().unwrap();
    // All that is in the newest pack goes, and the pack with it.
    for digest in [digests[0], digests[12]] {
        store.forget("acme", digest).unwrap();
    }
    store.sync().unwrap();
    assert!(store.reader().compact().unwrap() > 0);
    assert!(!last.try_exists().unwrap());
    for start in 0..3 {
        store.reader().places.flush().unwrap();
        drop(store);
        store = ContentStore::open(folder.path()).unwrap().0;
        assert!(store.reader().places.new_pack(tenant_key("acme")) > number, "start {start}");
    }
}

#[test]
fn what_belongs_to_another_record_is_not_erased_whatever_the_places_say() {
    let folder = tempdir().unwrap();
    let digests = kept(folder.path(), &[b"a result that somebody was told", b"another one"]);
    let (mut store, _) = ContentStore::open(folder.path()).unwrap();
    let stranger = Digest::of(b"stranger");
    let reader = store.reader();
    // At the other's place, and across two records.
    for (offset, length) in [(44, 31), (50, 60), (44, 8)] {
        let place = Place { pack: 1, offset, length };
        reader.places.publish(
            tenant_key("acme"),
            [(stranger, Located::At { place, proven: false })],
            None,
        );
        store.forget("acme", stranger).unwrap();
        store.sync().unwrap();
        assert!(is_missing(&store, stranger));
        assert_eq!(reader.get("acme", digests[0]).unwrap(), b"a result that somebody was told");
        assert_eq!(reader.get("acme", digests[1]).unwrap(), b"another one");
    }
    // A header that rotted keeps nothing of its content alive.
    let path = with_ending(folder.path(), "pack").remove(0);
    let mut bytes = fs::read(&path).unwrap();
    bytes[10] ^= 1;
    fs::write(&path, bytes).unwrap();
    store.forget("acme", digests[0]).unwrap();
    store.sync().unwrap();
    assert!(!is_anywhere(folder.path(), b"somebody was told"));
    assert_eq!(reader.get("acme", digests[1]).unwrap(), b"another one");
}
