//! The tree on a real file system, whole, interrupted, damaged and taken up again.

#![expect(clippy::arithmetic_side_effects, reason = "small numbers in tests")]

use std::fs;
use std::path::Path;
use std::sync::Arc;

use placet_ledger::proof::{Frontier, ProofError, leaf_hash};
use placet_types::digest::Digest;
use tempfile::tempdir;

use super::{Floor, LogTree, TreeCheck, TreeError, TreeVerdict};
use crate::journal::medium::Disk;
use crate::journal::tests::{Failure, FaultyDisk};

/// Beyond one full tile of level 0, and with a right edge of every kind.
const LONG: u64 = 256 * 5 + 77;

fn entry(seq: u64) -> [u8; 32] {
    *Digest::of(&seq.to_le_bytes()).as_bytes()
}

fn hash_of(seq: u64) -> Result<Option<[u8; 32]>, TreeError> {
    Ok(Some(entry(seq)))
}

fn open(directory: &Path) -> LogTree {
    LogTree::open(directory, Arc::new(FaultyDisk::default())).unwrap()
}

/// Feeds a tree up to `size`, flushing now and then.
fn feed(tree: &mut LogTree, size: u64) -> Result<(), TreeError> {
    let from = tree.resume(size, &mut hash_of)?;
    for seq in from..=size {
        tree.append(&entry(seq));
        if seq % 100 == 0 {
            tree.flush()?;
        }
    }
    tree.flush()
}

fn expected(size: u64) -> Frontier {
    let mut frontier = Frontier::new();
    for seq in 1..=size {
        frontier.append(&entry(seq), &mut |_, _| {});
    }
    frontier
}

/// Everything that is proved is right.
fn assert_proves(tree: &LogTree, size: u64) {
    let reader = tree.reader();
    let head = reader.head();
    assert_eq!((head.head, head.chain), (expected(size).head(), entry(size)));
    let sizes = [1, 2, 255, 256, 257, 1023, size - 1, size];
    for at in sizes.into_iter().filter(|at| (1..=size).contains(at)) {
        let root = reader.root(at).unwrap();
        for seq in [1, at / 2 + 1, at] {
            let (proof, leaf) = reader.inclusion(seq, at).unwrap();
            assert_eq!(leaf, leaf_hash(&entry(seq)));
            assert_eq!(proof.verify(&entry(seq), &root), Ok(()), "{seq} of {at}");
        }
        let proof = reader.consistency(at, size).unwrap();
        assert_eq!(proof.verify(&root, &head.head.root), Ok(()), "{at} to {size}");
    }
}

fn check(directory: &Path, size: u64) -> TreeVerdict {
    let mut check = TreeCheck::open(directory, Arc::new(Disk)).unwrap();
    for seq in 1..=size {
        check.entry(&entry(seq)).unwrap();
    }
    check.finish().unwrap()
}

#[test]
fn a_tree_proves_what_was_appended_and_goes_on_after_a_restart() {
    let folder = tempdir().unwrap();
    assert_eq!(check(&folder.path().join("none"), 3), TreeVerdict::Absent);
    let mut tree = open(folder.path());
    assert_eq!((tree.size(), tree.last(), tree.discarded()), (0, [0; 32], None));
    for size in [1, 2, 255, 256, 257, 700, LONG] {
        feed(&mut tree, size).unwrap();
        assert_proves(&tree, size);
        tree.sync().unwrap();
        assert_eq!(tree.synced_size(), size);
        drop(tree);
        tree = open(folder.path());
        assert_eq!((tree.size(), tree.discarded()), (size, None));
        assert_proves(&tree, size);
        assert_eq!(check(folder.path(), size), TreeVerdict::Agrees);
        assert_eq!(check(folder.path(), size + 9), TreeVerdict::Behind { entries: 9 });
        let short = check(folder.path(), size - 1);
        assert_eq!(short, if size > 1 { TreeVerdict::Ahead { entries: 1 } } else { short.clone() });
    }
}

#[test]
fn what_was_not_flushed_is_not_shown() {
    let folder = tempdir().unwrap();
    let mut tree = open(folder.path());
    feed(&mut tree, 10).unwrap();
    tree.append(&entry(11));
    let reader = tree.reader();
    assert_eq!((tree.size(), reader.head().head.size), (11, 10));
    let beyond = reader.inclusion(11, 11);
    assert!(matches!(beyond, Err(TreeError::Proof(ProofError::NotOlder { from: 11, to: 10 }))));
    tree.flush().unwrap();
    assert!(reader.inclusion(11, 11).is_ok());
}

#[test]
fn what_was_not_synced_is_fed_again() {
    let folder = tempdir().unwrap();
    let mut tree = open(folder.path());
    feed(&mut tree, 300).unwrap();
    tree.sync().unwrap();
    feed(&mut tree, 600).unwrap();
    drop(tree);
    let mut tree = open(folder.path());
    assert_eq!(tree.resume(600, &mut hash_of).unwrap(), 301);
    // Another future than the one that was flushed and lost.
    feed(&mut tree, 540).unwrap();
    assert_proves(&tree, 540);
    tree.sync().unwrap();
    assert_eq!(check(folder.path(), 540), TreeVerdict::Agrees);
}

#[test]
fn a_tree_of_another_journal_is_made_anew() {
    let folder = tempdir().unwrap();
    let mut tree = open(folder.path());
    for seq in 1..=400 {
        tree.append(&entry(seq + 9_000));
    }
    tree.sync().unwrap();
    assert!(matches!(check(folder.path(), 400), TreeVerdict::Disagrees { .. }));
    drop(tree);
    let mut tree = open(folder.path());
    assert_eq!(tree.size(), 400);
    assert_eq!(tree.resume(450, &mut hash_of).unwrap(), 1);
    assert_eq!(tree.discarded(), Some("it belongs to another journal"));
    feed(&mut tree, 300).unwrap();
    assert_proves(&tree, 300);
    tree.sync().unwrap();
    drop(tree);
    assert_proves(&open(folder.path()), 300);
}

#[test]
fn an_entry_that_cannot_be_read_for_the_moment_says_nothing_against_the_tree() {
    let folder = tempdir().unwrap();
    let mut tree = open(folder.path());
    feed(&mut tree, 400).unwrap();
    tree.sync().unwrap();
    drop(tree);
    let mut tree = open(folder.path());
    let mut refused = |seq: u64| -> Result<Option<[u8; 32]>, TreeError> {
        let path = folder.path().join(seq.to_string());
        Err(TreeError::io("read", &path)(std::io::Error::from_raw_os_error(24)))
    };
    let error = tree.resume(450, &mut refused).unwrap_err();
    assert!(matches!(error, TreeError::Io { .. }), "{error}");
    drop(tree);
    let mut tree = open(folder.path());
    assert_eq!((tree.resume(450, &mut hash_of).unwrap(), tree.discarded()), (401, None));
}

#[test]
fn a_journal_that_has_forgotten_is_noticed() {
    let folder = tempdir().unwrap();
    let mut tree = open(folder.path());
    feed(&mut tree, 20).unwrap();
    tree.sync().unwrap();
    let mut tree = open(folder.path());
    let error = tree.resume(19, &mut hash_of).unwrap_err();
    assert!(matches!(error, TreeError::Ahead { tree: 20, journal: 19 }));
    assert_eq!(
        error.to_string(),
        "the journal ends at entry 19, but its tree has 20: the journal has forgotten"
    );
}

#[test]
fn a_damaged_head_or_right_edge_is_made_anew() {
    let folder = tempdir().unwrap();
    let mut tree = open(folder.path());
    feed(&mut tree, LONG).unwrap();
    tree.sync().unwrap();
    drop(tree);
    let head = folder.path().join("head");
    let sound = fs::read(&head).unwrap();
    for bit in (0..sound.len() * 8).step_by(29) {
        let mut changed = sound.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        fs::write(&head, &changed).unwrap();
        let tree = open(folder.path());
        assert_eq!((tree.size(), tree.discarded()), (0, Some("its head file is damaged")), "{bit}");
    }
    for length in [0, 1, sound.len() - 1] {
        fs::write(&head, &sound[..length]).unwrap();
        assert_eq!(open(folder.path()).size(), 0);
    }
    fs::write(&head, vec![7; 5_000]).unwrap();
    assert_eq!(open(folder.path()).size(), 0);
    fs::write(&head, &sound).unwrap();
    for (file, keep) in [("0/000000000", LONG * 32 - 1), ("1/000000000", 100), ("1/000000000", 0)] {
        let path = folder.path().join(file);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..usize::try_from(keep).unwrap()]).unwrap();
        let mut tree = open(folder.path());
        let why = Some("its tiles do not lead to its root");
        assert_eq!((tree.size(), tree.discarded()), (0, why), "{file}");
        assert!(matches!(check(folder.path(), LONG), TreeVerdict::Disagrees { .. }));
        // It is fed again and all is well.
        feed(&mut tree, LONG).unwrap();
        tree.sync().unwrap();
        assert_proves(&open(folder.path()), LONG);
        assert_eq!(fs::read(&path).unwrap(), whole);
    }
}

#[test]
fn a_flipped_bit_in_the_middle_is_found_by_the_check_and_never_proved_from() {
    let folder = tempdir().unwrap();
    let mut tree = open(folder.path());
    feed(&mut tree, LONG).unwrap();
    tree.sync().unwrap();
    let path = folder.path().join("0/000000000");
    let sound = fs::read(&path).unwrap();
    let place = 300 * 32 + 5;
    let mut changed = sound.clone();
    changed[place] ^= 4;
    fs::write(&path, &changed).unwrap();
    let why = "its `tile/0/001` is not what the entries come to".to_owned();
    assert_eq!(check(folder.path(), LONG), TreeVerdict::Disagrees { why });
    let reader = tree.reader();
    // Entry 301 itself, a neighbour whose proof goes over it, and a root in the middle of its tile.
    for result in [
        reader.inclusion(301, LONG).map(drop),
        reader.inclusion(302, LONG).map(drop),
        reader.root(301).map(drop),
        reader.consistency(301, LONG).map(drop),
    ] {
        assert!(matches!(result, Err(TreeError::Damaged { size: LONG })), "{result:?}");
    }
    // What does not touch that tile is as good as ever.
    assert!(reader.inclusion(1000, LONG).is_ok());
}

#[test]
fn a_tree_that_failed_to_write_takes_nothing_more_and_a_restart_mends_it() {
    let operations = {
        let folder = tempdir().unwrap();
        let medium = FaultyDisk::default();
        let mut tree = LogTree::open(folder.path(), Arc::new(medium.clone())).unwrap();
        feed(&mut tree, 200).unwrap();
        tree.sync().unwrap();
        feed(&mut tree, 520).unwrap();
        tree.sync().unwrap();
        medium.total()
    };
    assert!(operations > 10, "{operations}");
    for number in 1..=operations {
        for failure in [Failure::Eio, Failure::HalfThenEnospc] {
            let folder = tempdir().unwrap();
            let medium = FaultyDisk::default();
            medium.crash_at(number, failure);
            let mut tree = LogTree::open(folder.path(), Arc::new(medium)).unwrap();
            let work = |tree: &mut LogTree| {
                feed(tree, 200)?;
                tree.sync()?;
                feed(tree, 520)?;
                tree.sync()
            };
            let failed = work(&mut tree);
            assert!(matches!(failed, Err(TreeError::Io { .. })), "{number}: {failed:?}");
            assert!(matches!(tree.sync(), Err(TreeError::Poisoned)), "{number}");
            drop(tree);
            let mut tree = open(folder.path());
            feed(&mut tree, 520).unwrap();
            assert_eq!(tree.frontier(), &expected(520));
            tree.sync().unwrap();
            assert_eq!(check(folder.path(), 520), TreeVerdict::Agrees, "{number}");
        }
    }
}

#[test]
fn the_files_are_tiles_beside_each_other() {
    let folder = tempdir().unwrap();
    let mut tree = open(folder.path());
    // One more than a file of level 0 holds.
    feed(&mut tree, 65_537).unwrap();
    tree.sync().unwrap();
    let length = |file: &str| fs::metadata(folder.path().join(file)).unwrap().len();
    assert_eq!(length("0/000000000"), 65_536 * 32);
    assert_eq!(length("0/000000001"), 32);
    assert_eq!(length("1/000000000"), 256 * 32);
    assert_eq!(length("2/000000000"), 32);
    let bytes = fs::read(folder.path().join("0/000000000")).unwrap();
    assert_eq!(bytes[32 * 4_000..][..32], *leaf_hash(&entry(4_001)).as_bytes());
    assert_eq!(tree.reader().inclusion(65_537, 65_537).unwrap().0.path.len(), 1);
    drop(tree);
    assert_eq!(open(folder.path()).frontier(), &expected(65_537));
}

#[test]
fn a_tree_whose_first_entries_are_gone_goes_on_from_its_floor() {
    for under in [1, 2, 255, 256, 257, 512, 1000, LONG - 1] {
        let folder = tempdir().unwrap();
        let medium = || Arc::new(FaultyDisk::default());
        let floor = Floor { frontier: expected(under), last: entry(under) };
        let again = || LogTree::open_on(folder.path(), medium(), Some(floor.clone())).unwrap();
        let mut tree = again();
        assert_eq!(tree.stand_on_floor().unwrap(), Some(under + 1));
        assert_eq!((tree.size(), tree.last()), (under, entry(under)));
        for seq in under + 1..=LONG {
            tree.append(&entry(seq));
        }
        tree.sync().unwrap();
        // Once as it was made, once as it is taken up.
        for mut tree in [tree, again()] {
            assert_eq!(tree.resume(LONG, &mut hash_of).unwrap(), LONG + 1);
            let reader = tree.reader();
            assert_eq!(reader.head().head, expected(LONG).head());
            for from in [under, under + 1, (under + LONG) / 2, LONG - 1, LONG] {
                assert_eq!(reader.frontier(from).unwrap(), expected(from), "{from} on {under}");
                let proof = reader.consistency(from, LONG).unwrap();
                proof.verify(&expected(from).root(), &expected(LONG).root()).unwrap();
            }
            let (inclusion, leaf) = reader.inclusion(LONG, LONG).unwrap();
            assert_eq!(leaf, leaf_hash(&entry(LONG)));
            inclusion.verify(&entry(LONG), &expected(LONG).root()).unwrap();
            // Of what is gone, nothing is proved; least of all something wrong.
            if under > 2 {
                assert!(reader.inclusion(1, LONG).is_err());
            }
        }
    }
}

#[test]
fn a_floor_of_another_log_proves_nothing() {
    let folder = tempdir().unwrap();
    let mut tree = open(folder.path());
    feed(&mut tree, LONG).unwrap();
    tree.sync().unwrap();
    let mut other = Frontier::new();
    for seq in 1..=300_u64 {
        other.append(&entry(seq + 7), &mut |_, _| {});
    }
    let floor = Some(Floor { frontier: other, last: entry(307) });
    let medium = Arc::new(FaultyDisk::default());
    let tree = LogTree::open_on(folder.path(), medium, floor).unwrap();
    assert!(tree.discarded().is_some() || tree.reader().consistency(300, LONG).is_err());
}
