//! Tests of the comparison with signed checkpoints.

use placet_ledger::log::LogEntry;
use placet_ledger::proof::{Frontier, TreeHead, checkpoint::Checkpoint, note::NoteName};
use placet_store::journal::{Frame, VerifyReport};
use placet_types::{clock::Timestamp, digest::Digest};

use super::{Against, Compared, Signed, Walk};

const ENTRIES: u64 = 12;

fn hash(seq: u64) -> [u8; 32] {
    *Digest::of(&seq.to_le_bytes()).as_bytes()
}

fn frame(seq: u64) -> Frame {
    let (epoch, at_ms, kind, durable_seq) = (1, 1, 1, 0);
    let (prev, hash) = (hash(seq.saturating_sub(1)), hash(seq));
    let payload = Vec::new();
    let entry = LogEntry { seq, epoch, at_ms, kind, durable_seq, prev, hash, payload };
    Frame { entry, contents: Vec::new() }
}

fn tree(size: u64) -> Frontier {
    let mut tree = Frontier::new();
    (1..=size).for_each(|seq| tree.append(&hash(seq), &mut |_, _| {}));
    tree
}

fn signed(size: u64) -> Signed {
    let head = TreeHead { size, root: tree(size.min(ENTRIES)).root() };
    let origin = NoteName::new("placet/journal").unwrap();
    let at = Timestamp::from_ms(1);
    let checkpoint = Checkpoint { origin, head, chain: hash(size), epoch: 1, at };
    Signed {
        origin: format!("the one of {size}"),
        log: "journal".to_owned(),
        checkpoint,
        is_named: false,
    }
}

/// Compares a chain that has its entries from `first` on with checkpoints of these sizes.
fn stands(first: u64, floor: Option<Frontier>, sizes: &[u64]) -> Vec<Against> {
    let signed: Vec<Signed> = sizes.iter().map(|size| signed(*size)).collect();
    stands_to(first, floor, &signed)
}

fn stands_to(first: u64, floor: Option<Frontier>, signed: &[Signed]) -> Vec<Against> {
    let sizes: Vec<u64> = signed.iter().map(|signed| signed.checkpoint.head.size).collect();
    let mut walk = Walk::on(floor);
    (first..=ENTRIES).for_each(|seq| walk.take(&sizes, &frame(seq)));
    let report = VerifyReport {
        frames: ENTRIES,
        segments: 3,
        first_seq: first,
        torn_bytes: 0,
        epoch: 1,
        last_seq: ENTRIES,
        head: hash(ENTRIES),
        witness_seq: ENTRIES,
        first_at_ms: Some(1),
        last_at_ms: Some(1),
    };
    walk.finish(&sizes, &report);
    signed.iter().map(|signed| walk.against(&report, signed)).collect()
}

#[test]
fn a_chain_without_its_archive_goes_on_from_the_tree_over_that() {
    let sizes = [3, 5, 7, 12, 13];
    for (first, floor) in [(6, 5), (3, 5)] {
        let found = stands(first, Some(tree(floor)), &sizes);
        assert!(matches!(found[0], Against::Archived(_)), "{found:?}");
        let agrees = |at: usize| matches!(found[at], Against::Agrees(size) if size == sizes[at]);
        assert!(agrees(1) && agrees(2) && agrees(3), "{found:?}");
        assert!(matches!(found[4], Against::Wrong(_)), "{found:?}");
    }
    let whole = stands(1, None, &sizes);
    assert!(whole[..4].iter().all(|one| matches!(one, Against::Agrees(_))), "{whole:?}");
}

#[test]
fn another_tree_over_the_archive_is_found_wrong_and_none_compares_nothing() {
    let mut other = Frontier::new();
    (1..=5).for_each(|seq| other.append(&hash(seq + 1), &mut |_, _| {}));
    let found = stands(6, Some(other), &[5, 7, 12]);
    assert!(found.iter().all(|one| matches!(one, Against::Wrong(_))), "{found:?}");
    for floor in [None, Some(tree(4))] {
        let found = stands(6, floor, &[5, 7, 12]);
        assert!(found.iter().all(|one| matches!(one, Against::NotCompared(_))), "{found:?}");
    }
}

#[test]
fn a_named_checkpoint_after_the_archive_that_cannot_be_compared_is_found() {
    let named: Vec<Signed> =
        [3, 5, 7, 12].map(|size| Signed { is_named: true, ..signed(size) }).into();
    for floor in [None, Some(tree(4))] {
        let found = stands_to(6, floor, &named);
        assert!(matches!(found[0], Against::Archived(_)), "it is of the archive: {found:?}");
        assert!(found[1..].iter().all(|one| matches!(one, Against::Wrong(_))), "{found:?}");
    }
    let found = stands_to(6, Some(tree(5)), &named);
    assert!(found[1..].iter().all(|one| matches!(one, Against::Agrees(_))), "{found:?}");
}

#[test]
fn where_nothing_of_what_was_signed_could_be_compared_it_is_not_sound() {
    let compared = |floor: Option<Frontier>, sizes: &[u64]| {
        let mut compared = Compared::default();
        stands(6, floor, sizes).into_iter().for_each(|against| compared.take(against));
        compared.finish();
        compared
    };
    let none = compared(None, &[2, 7]);
    assert!(none.sealed.is_none() && none.left_out.len() == 2, "{none:?}");
    assert!(none.findings.len() == 1 && none.findings[0].contains("none of them"), "{none:?}");
    // With the archive away nothing is known about checkpoints that end within it, and that is not wrong.
    for floor in [None, Some(tree(5))] {
        let none = compared(floor, &[2, 3]);
        assert!(none.sealed.is_none() && none.left_out.len() == 2, "{none:?}");
        assert!(none.findings.is_empty() && none.is_out_of_reach, "{none:?}");
    }
    assert!(!compared(None, &[]).is_out_of_reach);
    let some = compared(Some(tree(5)), &[3, 7]);
    assert!(some.sealed == Some(7) && some.findings.is_empty(), "{some:?}");
    assert!(compared(None, &[]).findings.is_empty(), "nothing was ever signed");
}

/// Of the archive only the oldest segments are gone; or an archiving was cut short, and the tree covers more than was moved.
#[test]
fn what_is_signed_between_the_first_entry_here_and_the_tree_is_not_wrong() {
    let named: Vec<Signed> =
        [2, 3, 4, 8, 12].map(|size| Signed { is_named: true, ..signed(size) }).into();
    let found = stands_to(3, Some(tree(8)), &named);
    assert!(found[..3].iter().all(|one| matches!(one, Against::Archived(_))), "{found:?}");
    assert!(found[3..].iter().all(|one| matches!(one, Against::Agrees(_))), "{found:?}");
    // The tree covers everything.
    let found = stands_to(3, Some(tree(ENTRIES)), &named);
    assert!(found[..4].iter().all(|one| matches!(one, Against::Archived(_))), "{found:?}");
    assert!(matches!(found[4], Against::Agrees(ENTRIES)), "{found:?}");
    // One over more than that is of another chain, and excuses nothing.
    let found = stands_to(3, Some(tree(ENTRIES + 1)), &named);
    assert!(found.iter().all(|one| matches!(one, Against::Wrong(_))), "{found:?}");
}
