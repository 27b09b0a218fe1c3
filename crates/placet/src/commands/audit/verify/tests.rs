//! Tests of the comparison with signed checkpoints.

use placet_ledger::proof::{Frontier, TreeHead, checkpoint::Checkpoint, note::NoteName};
use placet_store::journal::{Frame, VerifyReport};
use placet_types::{clock::Timestamp, digest::Digest};

use super::{Against, Signed, Walk};

const ENTRIES: u64 = 12;

fn hash(seq: u64) -> [u8; 32] {
    *Digest::of(&seq.to_le_bytes()).as_bytes()
}

fn frame(seq: u64) -> Frame {
    let (epoch, at_ms, kind, durable_seq) = (1, 1, 1, 0);
    let (prev, hash) = (hash(seq.saturating_sub(1)), hash(seq));
    Frame { seq, epoch, at_ms, kind, durable_seq, prev, payload: Vec::new(), hash }
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
    Signed { origin: format!("the one of {size}"), log: "journal".to_owned(), checkpoint }
}

/// How a chain of which entries from `first` on are here stands to checkpoints of these sizes.
fn stands(first: u64, floor: Option<Frontier>, sizes: &[u64]) -> Vec<Against> {
    let mut walk = Walk { floor, ..Walk::default() };
    (first..=ENTRIES).for_each(|seq| walk.take(sizes, &frame(seq)));
    let report = VerifyReport {
        frames: ENTRIES,
        segments: 3,
        first_seq: first,
        archived_segments: 0,
        torn_bytes: 0,
        epoch: 1,
        last_seq: ENTRIES,
        head: hash(ENTRIES),
        witness_seq: ENTRIES,
        first_at_ms: Some(1),
        last_at_ms: Some(1),
    };
    sizes.iter().map(|size| walk.against(&report, &signed(*size))).collect()
}

#[test]
fn a_chain_without_its_archive_goes_on_from_the_tree_over_that() {
    let sizes = [3, 5, 7, 12, 13];
    for (first, floor) in [(6, 5), (3, 5)] {
        let found = stands(first, Some(tree(floor)), &sizes);
        assert!(matches!(found[0], Against::NotCompared(_)), "{found:?}");
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
