//! Tests of the content store.

mod copies;
mod damaged;
mod manifest;
mod places;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use placet_types::digest::Digest;
use tempfile::tempdir;

use super::{BLOB_BYTES_MAX, ContentError, ContentReport, ContentStore, PACKED_BYTES_MAX};
use crate::journal::tests::{Failure, FaultyDisk, Op, Target};

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files.extend(self::files(&path)) } else { files.push(path) }
    }
    files.sort();
    files
}

fn pack(folder: &Path) -> PathBuf {
    files(folder).into_iter().next().unwrap()
}

fn kept(folder: &Path, contents: &[&[u8]]) -> Vec<Digest> {
    let (mut store, _) = ContentStore::open(folder).unwrap();
    let digests = contents.iter().map(|bytes| store.put("acme", bytes.to_vec()).unwrap()).collect();
    store.sync().unwrap();
    digests
}

#[test]
fn content_is_found_again_after_a_restart() {
    let folder = tempdir().unwrap();
    let large = vec![5; PACKED_BYTES_MAX + 1];
    let digests = kept(folder.path(), &[b"one", b"", &large, &large[1..]]);
    let (store, report) = ContentStore::open(folder.path()).unwrap();
    assert_eq!(report, ContentReport { blobs: 4, torn_bytes: 0, damaged_bytes: 0 });
    let reader = store.reader();
    assert_eq!(digests[0], Digest::of(b"one"));
    assert_eq!(reader.get("acme", digests[0]).unwrap(), b"one");
    assert_eq!(reader.get("acme", digests[1]).unwrap(), b"");
    assert_eq!(reader.get("acme", digests[2]).unwrap(), large);
    assert_eq!(reader.get("acme", digests[3]).unwrap(), large[1..]);
    assert_eq!(files(folder.path()).len(), 2, "one pack and one file");
}

#[test]
fn content_of_one_tenant_is_not_there_for_another() {
    let folder = tempdir().unwrap();
    let digest = kept(folder.path(), &[b"secret of acme"])[0];
    let (mut store, _) = ContentStore::open(folder.path()).unwrap();
    let reader = store.reader();
    for tenant in ["other", "", "ACME", "acme/", "../acme"] {
        assert!(!reader.contains(tenant, digest));
        assert!(
            matches!(reader.get(tenant, digest), Err(ContentError::Missing { .. })),
            "{tenant}"
        );
    }
    store.put("../../escape", b"x".to_vec()).unwrap();
    store.sync().unwrap();
    assert_eq!(files(folder.path()).len(), 2, "a tenant's name never leads out of the folder");
}

#[test]
fn content_is_visible_only_once_it_is_durable() {
    let folder = tempdir().unwrap();
    let (mut store, _) = ContentStore::open(folder.path()).unwrap();
    let reader = store.reader();
    let digest = store.put("acme", b"soon".to_vec()).unwrap();
    assert!(matches!(reader.get("acme", digest), Err(ContentError::Missing { .. })));
    store.sync().unwrap();
    assert_eq!(reader.get("acme", digest).unwrap(), b"soon");
}

#[test]
fn the_same_content_is_kept_once_also_across_a_restart() {
    let folder = tempdir().unwrap();
    let large = vec![1; PACKED_BYTES_MAX + 1];
    kept(folder.path(), &[b"same", b"same", &large]);
    let before: Vec<_> =
        files(folder.path()).iter().map(|path| fs::metadata(path).unwrap().len()).collect();
    kept(folder.path(), &[b"same", &large, b"same"]);
    let after: Vec<_> =
        files(folder.path()).iter().map(|path| fs::metadata(path).unwrap().len()).collect();
    assert_eq!(before, after);
}

#[test]
fn altered_content_is_reported_and_never_answered() {
    let folder = tempdir().unwrap();
    let large = vec![1; PACKED_BYTES_MAX + 1];
    let digests = kept(folder.path(), &[b"first content", b"second content", &large]);
    for path in files(folder.path()) {
        let mut bytes = fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 0x40;
        fs::write(&path, bytes).unwrap();
    }
    let (store, report) = ContentStore::open(folder.path()).unwrap();
    assert_eq!(
        report.damaged_bytes, 0,
        "headers are sound; the content itself is proven when it is read"
    );
    let reader = store.reader();
    assert_eq!(reader.get("acme", digests[0]).unwrap(), b"first content");
    assert!(
        matches!(reader.get("acme", digests[1]), Err(ContentError::Altered { digest }) if digest == digests[1])
    );
    assert!(matches!(reader.get("acme", digests[2]), Err(ContentError::Altered { .. })));
}

/// After a power loss a header may be on disk without its content; the same content put again must not be skipped then.
#[test]
fn content_that_an_earlier_process_left_altered_is_written_again() {
    let folder = tempdir().unwrap();
    let digest = kept(folder.path(), &[b"half on disk"])[0];
    let path = pack(folder.path());
    let mut bytes = fs::read(&path).unwrap();
    bytes[44..].fill(0);
    fs::write(&path, bytes).unwrap();
    assert_eq!(kept(folder.path(), &[b"half on disk"])[0], digest);
    let (store, _) = ContentStore::open(folder.path()).unwrap();
    assert_eq!(store.reader().get("acme", digest).unwrap(), b"half on disk");
}

#[test]
fn a_pack_torn_at_any_byte_keeps_the_records_before_and_takes_more() {
    let folder = tempdir().unwrap();
    let digests = kept(folder.path(), &[b"stays", b"is torn"]);
    let whole = fs::read(pack(folder.path())).unwrap();
    let second = 44 + 5;
    for length in second..whole.len() {
        let torn = tempdir().unwrap();
        kept(torn.path(), &[b"stays"]);
        fs::write(pack(torn.path()), &whole[..length]).unwrap();
        let (mut store, report) = ContentStore::open(torn.path()).unwrap();
        assert_eq!(
            (report.blobs, usize::try_from(report.torn_bytes).unwrap()),
            (1, length - second)
        );
        let reader = store.reader();
        assert_eq!(reader.get("acme", digests[0]).unwrap(), b"stays");
        assert!(matches!(reader.get("acme", digests[1]), Err(ContentError::Missing { .. })));
        store.put("acme", b"is torn".to_vec()).unwrap();
        store.sync().unwrap();
        drop(store);
        let (store, _) = ContentStore::open(torn.path()).unwrap();
        assert_eq!(store.reader().get("acme", digests[1]).unwrap(), b"is torn");
    }
}

#[test]
fn a_damaged_header_is_reported_and_costs_only_its_own_record() {
    let folder = tempdir().unwrap();
    let digests = kept(folder.path(), &[b"first", b"second", b"third"]);
    let path = pack(folder.path());
    for at in 0..44 {
        let mut bytes = fs::read(&path).unwrap();
        bytes[49 + at] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let (store, report) = ContentStore::open(folder.path()).unwrap();
        assert_eq!(report, ContentReport { blobs: 2, torn_bytes: 0, damaged_bytes: 44 + 6 });
        let reader = store.reader();
        assert_eq!(reader.get("acme", digests[0]).unwrap(), b"first");
        assert!(matches!(reader.get("acme", digests[1]), Err(ContentError::Missing { .. })));
        assert_eq!(reader.get("acme", digests[2]).unwrap(), b"third");
        bytes[49 + at] ^= 1;
        fs::write(&path, &bytes).unwrap();
    }
}

#[test]
fn a_full_pack_is_followed_by_another() {
    let folder = tempdir().unwrap();
    let (mut store, _) = ContentStore::open(folder.path()).unwrap();
    store.pack_bytes = 500;
    let contents: Vec<Vec<u8>> = (0..40).map(|number| vec![number; 100]).collect();
    for (index, bytes) in contents.iter().enumerate() {
        store.put("acme", bytes.clone()).unwrap();
        if index % 7 == 6 {
            store.sync().unwrap();
        }
    }
    store.put("acme", vec![99; 1_000]).unwrap();
    store.sync().unwrap();
    assert!(files(folder.path()).len() > 10);
    let (store, report) = ContentStore::open(folder.path()).unwrap();
    assert_eq!(report.blobs, 41);
    for bytes in &contents {
        assert_eq!(&store.reader().get("acme", Digest::of(bytes)).unwrap(), bytes);
    }
}

#[test]
fn content_over_the_limit_is_refused_and_the_store_goes_on() {
    let folder = tempdir().unwrap();
    let (mut store, _) = ContentStore::open(folder.path()).unwrap();
    let refused = store.put("acme", vec![0; BLOB_BYTES_MAX + 1]).unwrap_err();
    assert!(matches!(refused, ContentError::TooLarge { .. }));
    let digest = store.put("acme", vec![0; BLOB_BYTES_MAX]).unwrap();
    assert_eq!(store.reader().get("acme", digest).unwrap().len(), BLOB_BYTES_MAX);
}

#[test]
fn after_a_failure_nothing_more_is_taken() {
    for op in [Op::Write, Op::Sync, Op::Create] {
        let (folder, disk) = (tempdir().unwrap(), FaultyDisk::default());
        let (mut store, _) = ContentStore::open_on(Arc::new(disk.clone()), folder.path()).unwrap();
        let digest = store.put("acme", b"content".to_vec()).unwrap();
        disk.fail_next(op, Target::Content, Failure::Enospc);
        assert!(matches!(store.sync(), Err(ContentError::Io { .. })), "{op:?}");
        assert!(matches!(store.sync(), Err(ContentError::Poisoned)));
        assert!(matches!(store.put("acme", b"more".to_vec()), Err(ContentError::Poisoned)));
        assert!(!store.reader().contains("acme", digest));
    }
}

#[test]
fn many_pieces_of_a_batch_share_one_sync_for_each_tenant() {
    let (folder, disk) = (tempdir().unwrap(), FaultyDisk::default());
    let (mut store, _) = ContentStore::open_on(Arc::new(disk.clone()), folder.path()).unwrap();
    for number in 0..50 {
        store.put("acme", vec![number; 50]).unwrap();
        store.put("other", vec![number; 50]).unwrap();
    }
    store.sync().unwrap();
    assert_eq!(disk.count(Op::Sync, Target::Content), 2);
    store.sync().unwrap();
    assert_eq!(disk.count(Op::Sync, Target::Content), 2);
}

#[test]
fn only_the_owner_may_look() {
    let folder = tempdir().unwrap();
    let inside = folder.path().join("content");
    let large = vec![1; PACKED_BYTES_MAX + 1];
    kept(&inside, &[b"small", &large]);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for file in files(&inside) {
        assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
    }
    assert_eq!(mode(&inside), 0o700);
}

#[test]
fn reading_goes_on_while_more_is_kept() {
    let folder = tempdir().unwrap();
    let (mut store, _) = ContentStore::open(folder.path()).unwrap();
    let reader = store.reader();
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let reader = reader.clone();
            std::thread::spawn(move || {
                let mut found = 0;
                for number in (0..200_u8).cycle().take(20_000) {
                    let bytes = vec![number; 64];
                    match reader.get("acme", Digest::of(&bytes)) {
                        Ok(read) => found += usize::from(read == bytes),
                        Err(error) => {
                            assert!(matches!(error, ContentError::Missing { .. }), "{error}")
                        }
                    }
                }
                found
            })
        })
        .collect();
    for number in 0..200_u8 {
        store.put("acme", vec![number; 64]).unwrap();
        if number % 5 == 0 {
            store.sync().unwrap();
        }
    }
    store.sync().unwrap();
    for reader in readers {
        reader.join().unwrap();
    }
    assert_eq!(reader.get("acme", Digest::of(&[199; 64])).unwrap(), [199; 64]);
}

#[test]
fn deleted_content_is_overwritten_and_stays_deleted() {
    let folder = tempdir().unwrap();
    let contents: Vec<Vec<u8>> = (0..6_u8).map(|n| vec![b'a' + n; 50]).collect();
    let slices: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
    let digests = kept(folder.path(), &slices);
    let (mut store, _) = ContentStore::open(folder.path()).unwrap();
    for digest in [digests[1], digests[4], Digest::of(b"never kept")] {
        store.forget("acme", digest).unwrap();
    }
    store.forget("other", digests[0]).unwrap();
    store.sync().unwrap();
    // A piece that was put and deleted before it was synced.
    let brief = store.put("acme", b"brief".to_vec()).unwrap();
    store.forget("acme", brief).unwrap();
    store.sync().unwrap();
    for round in 0..3 {
        let reader = store.reader();
        for (at, digest) in digests.iter().enumerate() {
            let read = reader.get("acme", *digest);
            if at == 1 || at == 4 {
                assert!(matches!(read, Err(ContentError::Missing { .. })), "{round} {at} {read:?}");
                assert!(reader.was_deleted("acme", *digest).unwrap());
            } else {
                assert_eq!(read.unwrap(), contents[at]);
            }
        }
        assert!(matches!(reader.get("acme", brief), Err(ContentError::Missing { .. })));
        if round == 1 {
            reader.places.flush().unwrap();
        }
        drop(store);
        store = ContentStore::open(folder.path()).unwrap().0;
    }
    let bytes = fs::read(pack(folder.path())).unwrap();
    assert!(!bytes.windows(50).any(|window| window == contents[1] || window == contents[4]));
    // Kept again, it is there again.
    store.put("acme", contents[1].clone()).unwrap();
    store.sync().unwrap();
    drop(store);
    let (store, _) = ContentStore::open(folder.path()).unwrap();
    assert_eq!(store.reader().get("acme", digests[1]).unwrap(), contents[1]);
}

/// The places are in tables, in memory, or nowhere: the answers are the same.
#[test]
fn places_are_found_in_tables_and_without_them() {
    let folder = tempdir().unwrap();
    let (mut store, _) = ContentStore::open(folder.path()).unwrap();
    store.pack_bytes = 2_000;
    let mut digests = Vec::new();
    for number in 0..300_u32 {
        digests.push(store.put("acme", number.to_le_bytes().to_vec()).unwrap());
        if number % 50 == 49 {
            store.sync().unwrap();
            store.reader().places.flush().unwrap();
        }
    }
    store.put("acme", b"after the last table".to_vec()).unwrap();
    store.sync().unwrap();
    drop(store);
    for lost in ["", "manifest", "table"] {
        for path in files(&folder.path().join("places")) {
            let name = path.file_name().unwrap().to_str().unwrap();
            if !lost.is_empty() && name.ends_with(lost) {
                fs::remove_file(path).unwrap();
            }
        }
        let (store, report) = ContentStore::open(folder.path()).unwrap();
        assert_eq!(report.blobs, 301, "{lost}");
        for (number, digest) in (0_u32..).zip(&digests) {
            assert_eq!(store.reader().get("acme", *digest).unwrap(), number.to_le_bytes());
        }
        store.reader().places.flush().unwrap();
    }
}

#[test]
fn packs_are_written_anew_under_readers_and_no_piece_is_missed() {
    let folder = tempdir().unwrap();
    let (mut store, _) = ContentStore::open(folder.path()).unwrap();
    store.pack_bytes = 4_000;
    let contents: Vec<Vec<u8>> = (0..400_u32).map(|n| n.to_le_bytes().repeat(20)).collect();
    let digests: Vec<Digest> =
        contents.iter().map(|bytes| store.put("acme", bytes.clone()).unwrap()).collect();
    store.sync().unwrap();
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (reader, stop) = (store.reader(), Arc::clone(&stop));
            let (contents, digests) = (contents.clone(), digests.clone());
            std::thread::spawn(move || {
                let mut rounds = 0;
                while !stop.load(std::sync::atomic::Ordering::SeqCst) {
                    for at in (0..400).step_by(5) {
                        assert_eq!(reader.get("acme", digests[at]).unwrap(), contents[at]);
                    }
                    rounds += 1;
                }
                rounds
            })
        })
        .collect();
    let packs = || -> u64 {
        let packs = files(folder.path()).into_iter();
        let packs = packs.filter(|path| path.extension().is_some_and(|found| found == "pack"));
        packs.map(|path| fs::metadata(path).unwrap().len()).sum()
    };
    let before = packs();
    for round in 0..4_usize {
        for at in (0..400).filter(|at| at % 5 == round + 1) {
            store.forget("acme", digests[at]).unwrap();
        }
        store.sync().unwrap();
        store.reader().compact().unwrap();
        store.put("acme", vec![round.to_le_bytes()[0]; 99]).unwrap();
        store.sync().unwrap();
    }
    stop.store(true, std::sync::atomic::Ordering::SeqCst);
    for reader in readers {
        assert!(reader.join().unwrap() > 0);
    }
    assert!(packs() < before / 2, "{} of {before} bytes are left", packs());
    drop(store);
    let (store, report) = ContentStore::open(folder.path()).unwrap();
    assert_eq!((report.blobs, report.damaged_bytes), (84, 0));
    for at in 0..400 {
        let read = store.reader().get("acme", digests[at]);
        if at % 5 == 0 {
            assert_eq!(read.unwrap(), contents[at]);
        } else {
            assert!(matches!(read, Err(ContentError::Missing { .. })), "{at} {read:?}");
        }
    }
}

#[test]
fn what_is_deleted_while_content_is_held_is_deleted_afterwards() {
    let folder = tempdir().unwrap();
    let large = vec![5; PACKED_BYTES_MAX + 1];
    let digests = kept(folder.path(), &[b"one", b"two", &large]);
    let (mut store, _) = ContentStore::open(folder.path()).unwrap();
    let reader = store.reader();
    reader.hold();
    for digest in &digests {
        store.forget("acme", *digest).unwrap();
    }
    store.sync().unwrap();
    assert!(store.owes() && reader.is_unsettled());
    assert_eq!(reader.get("acme", digests[0]).unwrap(), b"one");
    assert_eq!(reader.get("acme", digests[2]).unwrap(), large);
    // Kept anew in the meantime: it stays.
    store.put("acme", b"two".to_vec()).unwrap();
    reader.release();
    assert!(store.owes(), "nobody has deleted it yet");
    store.sync().unwrap();
    assert!(!store.owes() && !reader.is_unsettled());
    for digest in [digests[0], digests[2]] {
        assert!(matches!(reader.get("acme", digest), Err(ContentError::Missing { .. })));
    }
    assert_eq!(reader.get("acme", digests[1]).unwrap(), b"two");
    reader.hold();
    store.forget("acme", digests[1]).unwrap();
    drop(store);
    assert!(!reader.is_unsettled(), "nobody waits for a writer that is gone");
    assert!(reader.owes(), "and nobody takes it for done");
}
