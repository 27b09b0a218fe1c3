//! The tree itself: roots, inclusion, consistency, and what is refused.

use std::cell::Cell;

use proptest::prelude::*;

use super::super::{Consistency, Frontier, Inclusion, NodeId, Nodes, ProofError, root};
use super::{All, Digest, SIZES, entry, naive, turned};

#[test]
fn the_root_is_that_of_the_definition_at_every_size() {
    let mut frontier = Frontier::new();
    let (mut all, _) = All::of(SIZES);
    for size in 0..=SIZES {
        assert_eq!(frontier.size(), size);
        assert_eq!(frontier.root(), naive(0, size), "{size}");
        assert_eq!(root(&mut all, size), Ok(naive(0, size)), "{size}");
        assert_eq!(frontier.peaks().len(), usize::try_from(size.count_ones()).unwrap());
        frontier.append(&entry(size + 1), &mut |_, _| {});
    }
}

#[test]
fn every_entry_is_proved_at_every_size_and_no_other_entry_is() {
    let (mut all, _) = All::of(SIZES);
    for size in 1..=SIZES {
        let root = naive(0, size);
        for seq in 1..=size {
            let proof = Inclusion::build(&mut all, seq, size).unwrap();
            assert_eq!(proof.verify(&entry(seq), &root), Ok(()), "{seq} of {size}");
            assert!(proof.path.len() <= 8, "{seq} of {size}");
            for other in [seq - 1, seq + 1] {
                let error = proof.verify(&entry(other), &root);
                assert_eq!(error, Err(ProofError::Mismatch), "{other} for {seq} of {size}");
            }
        }
    }
}

#[test]
fn an_inclusion_proof_holds_for_no_other_place_and_no_other_root() {
    let (mut all, _) = All::of(40);
    let roots: Vec<_> = (0..=40).map(|size| naive(0, size)).collect();
    for size in 1..=40_u64 {
        for seq in 1..=size {
            let proof = Inclusion::build(&mut all, seq, size).unwrap();
            for elsewhere in (0..=size + 1).filter(|elsewhere| *elsewhere != seq) {
                let moved = Inclusion { seq: elsewhere, ..proof.clone() };
                let root = &roots[usize::try_from(size).unwrap()];
                assert!(moved.verify(&entry(seq), root).is_err(), "{seq} as {elsewhere} of {size}");
            }
            for (other, root) in (0..).zip(&roots).filter(|(other, _)| *other != size) {
                assert!(proof.verify(&entry(seq), root).is_err(), "{seq} of {size} as {other}");
            }
        }
    }
}

#[test]
fn every_turned_bit_of_an_inclusion_proof_is_refused() {
    let (mut all, _) = All::of(70);
    for (seq, size) in [(1, 1), (1, 2), (2, 3), (3, 3), (7, 11), (64, 65), (65, 65), (70, 70)] {
        let root = naive(0, size);
        let proof = Inclusion::build(&mut all, seq, size).unwrap();
        for place in 0..proof.path.len() {
            for bit in 0..256 {
                let mut forged = proof.clone();
                forged.path[place] = turned(&forged.path[place], bit);
                assert_eq!(forged.verify(&entry(seq), &root), Err(ProofError::Mismatch));
            }
        }
        for bit in 0..256 {
            let wrong = proof.verify(&entry(seq), &turned(&root, bit));
            assert_eq!(wrong, Err(ProofError::Mismatch));
            let other = turned(&Digest::from_bytes(entry(seq)), bit);
            assert_eq!(proof.verify(other.as_bytes(), &root), Err(ProofError::Mismatch));
        }
    }
}

#[test]
fn an_inclusion_proof_with_a_hash_too_many_too_few_or_out_of_place_is_refused() {
    let (mut all, _) = All::of(SIZES);
    for size in 1..=SIZES {
        let root = naive(0, size);
        for seq in [1, size / 2 + 1, size] {
            let proof = Inclusion::build(&mut all, seq, size).unwrap();
            let refused = |path: Vec<Digest>| {
                let forged = Inclusion { path, ..proof.clone() };
                assert!(forged.verify(&entry(seq), &root).is_err(), "{seq} of {size}");
            };
            for place in 0..=proof.path.len() {
                let mut longer = proof.path.clone();
                longer.insert(place, Digest::of(b"more"));
                refused(longer);
            }
            for place in 0..proof.path.len() {
                let mut shorter = proof.path.clone();
                shorter.remove(place);
                refused(shorter);
            }
            if proof.path.len() > 1 {
                refused(proof.path.iter().rev().copied().collect());
            }
        }
    }
}

#[test]
fn every_two_sizes_are_proved_consistent() {
    let (mut all, _) = All::of(SIZES);
    let roots: Vec<_> = (0..=SIZES).map(|size| naive(0, size)).collect();
    for (to, newer) in (0..).zip(&roots) {
        for (from, older) in (0..=to).zip(&roots) {
            let proof = Consistency::build(&mut all, from, to).unwrap();
            assert_eq!(proof.verify(older, newer), Ok(()), "{from} to {to}");
            assert!(proof.path.len() <= 9, "{from} to {to}");
        }
    }
}

#[test]
fn a_consistency_proof_holds_for_no_other_roots() {
    let (mut all, _) = All::of(40);
    let roots: Vec<_> = (0..=40).map(|size| naive(0, size)).collect();
    for to in 1..=40_u64 {
        for from in 1..=to {
            let proof = Consistency::build(&mut all, from, to).unwrap();
            let at = |size: u64| roots[usize::try_from(size).unwrap()];
            let (older, newer) = (at(from), at(to));
            for (size, root) in (0..).zip(&roots) {
                if size != from {
                    assert!(proof.verify(root, &newer).is_err(), "{size} as {from} to {to}");
                }
                if size != to {
                    assert!(proof.verify(&older, root).is_err(), "{from} to {size} as {to}");
                }
            }
        }
    }
}

#[test]
fn every_turned_bit_of_a_consistency_proof_is_refused() {
    let (mut all, _) = All::of(70);
    for (from, to) in [(1, 2), (2, 3), (3, 4), (3, 7), (4, 7), (6, 8), (33, 70), (64, 70), (69, 70)]
    {
        let (older, newer) = (naive(0, from), naive(0, to));
        let proof = Consistency::build(&mut all, from, to).unwrap();
        assert!(!proof.path.is_empty());
        for place in 0..proof.path.len() {
            for bit in 0..256 {
                let mut forged = proof.clone();
                forged.path[place] = turned(&forged.path[place], bit);
                assert!(forged.verify(&older, &newer).is_err(), "{from} to {to}: {place}, {bit}");
            }
        }
        for bit in 0..256 {
            assert!(proof.verify(&turned(&older, bit), &newer).is_err());
            assert_eq!(proof.verify(&older, &turned(&newer, bit)), Err(ProofError::Mismatch));
        }
    }
}

#[test]
fn a_consistency_proof_with_a_hash_too_many_too_few_or_out_of_place_is_refused() {
    let (mut all, _) = All::of(33);
    for to in 1..=33_u64 {
        for from in 0..=to {
            let (older, newer) = (naive(0, from), naive(0, to));
            let proof = Consistency::build(&mut all, from, to).unwrap();
            let refused = |path: Vec<Digest>| {
                let forged = Consistency { path, ..proof.clone() };
                assert!(forged.verify(&older, &newer).is_err(), "{from} to {to}");
            };
            for place in 0..=proof.path.len() {
                let mut longer = proof.path.clone();
                longer.insert(place, Digest::of(b"more"));
                refused(longer);
            }
            for place in 0..proof.path.len() {
                let mut shorter = proof.path.clone();
                shorter.remove(place);
                refused(shorter);
            }
        }
    }
}

#[test]
fn a_log_whose_past_was_changed_is_not_consistent() {
    let honest = naive(0, 20);
    for changed in 1..=20_u64 {
        let (mut all, mut frontier) = (All::default(), Frontier::new());
        for seq in 1..=33 {
            let entry = if seq == changed { entry(1_000 + seq) } else { entry(seq) };
            frontier.append(&entry, &mut |node, hash| {
                all.0.insert(node, hash);
            });
        }
        let proof = Consistency::build(&mut all, 20, 33).unwrap();
        assert_eq!(proof.verify(&honest, &frontier.root()), Err(ProofError::OlderMismatch));
    }
}

#[test]
fn what_is_not_in_the_log_is_refused_with_its_numbers() {
    let (mut all, _) = All::of(5);
    for (seq, size) in [(0, 5), (6, 5), (u64::MAX, 5), (1, 0)] {
        let error = ProofError::NoSuchEntry { seq, size };
        assert_eq!(Inclusion::build(&mut all, seq, size), Err(error));
        let proof = Inclusion { seq, size, path: Vec::new() };
        assert_eq!(proof.verify(&entry(1), &naive(0, 5)), Err(error));
    }
    let error = ProofError::NotOlder { from: 5, to: 4 };
    assert_eq!(Consistency::build(&mut all, 5, 4), Err(error));
    let proof = Consistency { from: 5, to: 4, path: Vec::new() };
    assert_eq!(proof.verify(&naive(0, 5), &naive(0, 4)), Err(error));
}

#[test]
fn a_frontier_survives_its_bytes_and_goes_on_the_same() {
    for size in 0..=SIZES {
        let (_, mut frontier) = All::of(size);
        let mut read = Frontier::from_bytes(&frontier.to_bytes()).unwrap();
        assert_eq!(read, frontier);
        frontier.append(&entry(size + 1), &mut |_, _| {});
        read.append(&entry(size + 1), &mut |_, _| {});
        assert_eq!(read.head(), frontier.head());
    }
}

#[test]
fn bytes_that_are_not_exactly_a_frontier_are_refused() {
    let (_, frontier) = All::of(11);
    let bytes = frontier.to_bytes();
    for bit in 0..bytes.len() * 8 {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(Frontier::from_bytes(&changed), None, "bit {bit}");
    }
    for length in 0..bytes.len() {
        assert_eq!(Frontier::from_bytes(&bytes[..length]), None);
    }
    let longer = [bytes.as_slice(), &[0]].concat();
    assert_eq!(Frontier::from_bytes(&longer), None);
    let peaks = frontier.peaks()[..2].to_vec();
    assert_eq!(Frontier::from_peaks(11, peaks), None);
}

/// Counts reads and makes up hashes, so that trees of any size cost nothing.
#[derive(Default)]
struct Counted(Cell<u32>);

impl Nodes for Counted {
    type Error = ProofError;

    fn node(&mut self, node: NodeId) -> Result<Digest, Self::Error> {
        self.0.set(self.0.get() + 1);
        Ok(Digest::of(&[node.index.to_le_bytes(), u64::from(node.height).to_le_bytes()].concat()))
    }
}

proptest! {
    #[test]
    fn a_proof_reads_no_more_than_two_nodes_for_each_height(size in 1..=u64::MAX, share in 0.0..1.0_f64) {
        #[expect(clippy::as_conversions, reason = "a share of a number needs no exactness")]
        let seq = ((size as f64 * share) as u64).clamp(1, size);
        let height = size.ilog2() + 1;
        let mut nodes = Counted::default();
        let proof = Inclusion::build(&mut nodes, seq, size).unwrap();
        prop_assert!(nodes.0.get() <= 2 * height, "{} for {size}", nodes.0.get());
        prop_assert!(u32::try_from(proof.path.len()).unwrap() <= height);
        let mut nodes = Counted::default();
        let proof = Consistency::build(&mut nodes, seq, size).unwrap();
        prop_assert!(nodes.0.get() <= 2 * height, "{} for {size}", nodes.0.get());
        prop_assert!(u32::try_from(proof.path.len()).unwrap() <= height + 1);
    }

    #[test]
    fn proofs_out_of_nowhere_are_refused_and_never_panic(
        (seq, size) in (any::<u64>(), any::<u64>()),
        (from, to) in (any::<u64>(), any::<u64>()),
        hashes in prop::collection::vec(any::<[u8; 32]>(), 0..70),
    ) {
        let path: Vec<_> = hashes.into_iter().map(Digest::from_bytes).collect();
        let root = naive(0, 7);
        let inclusion = Inclusion { seq, size, path: path.clone() };
        prop_assert!(inclusion.verify(&entry(1), &root).is_err());
        let consistency = Consistency { from, to, path };
        prop_assert!(consistency.verify(&naive(0, 3), &root).is_err());
    }

    #[test]
    fn bytes_out_of_nowhere_are_no_frontier(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(Frontier::from_bytes(&bytes).is_none());
    }
}
