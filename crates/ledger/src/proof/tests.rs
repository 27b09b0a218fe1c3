//! Proofs against a tree that is built by definition, for every size and position up to a limit.

#![expect(clippy::arithmetic_side_effects, reason = "small numbers of a test")]

mod known;
mod text;
mod tiled;
mod tree;

use std::collections::BTreeMap;

use placet_types::digest::Digest;

use super::{Frontier, NodeId, Nodes, ProofError, empty_root, leaf_hash, node_hash};

/// More than two full binary levels above a hundred, so that every shape of right edge occurs.
const SIZES: u64 = 131;

/// The chain hash of entry `seq`: anything, but different for each.
fn entry(seq: u64) -> [u8; 32] {
    *Digest::of(&seq.to_le_bytes()).as_bytes()
}

/// The root by the definition in RFC 9162, 2.1.1, over entries `from` (counted from 0) to before `to`.
fn naive(from: u64, to: u64) -> Digest {
    match to - from {
        0 => empty_root(),
        1 => leaf_hash(&entry(from + 1)),
        len => {
            let mut left = 1;
            while left * 2 < len {
                left *= 2;
            }
            node_hash(&naive(from, from + left), &naive(from + left, to))
        }
    }
}

/// All nodes of a tree, as a frontier makes them.
#[derive(Debug, Clone, Default)]
struct All(BTreeMap<NodeId, Digest>);

impl All {
    fn of(size: u64) -> (Self, Frontier) {
        let (mut all, mut frontier) = (Self::default(), Frontier::new());
        for seq in 1..=size {
            frontier.append(&entry(seq), &mut |node, hash| {
                assert_eq!(all.0.insert(node, hash), None, "{node:?} was made twice");
            });
        }
        (all, frontier)
    }
}

impl Nodes for All {
    type Error = ProofError;

    fn node(&mut self, node: NodeId) -> Result<Digest, ProofError> {
        Ok(self.0[&node])
    }
}

/// The digest with one bit flipped.
fn turned(digest: &Digest, bit: usize) -> Digest {
    let mut bytes = *digest.as_bytes();
    bytes[bit / 8] ^= 1 << (bit % 8);
    Digest::from_bytes(bytes)
}
