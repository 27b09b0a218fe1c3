//! Proofs about an audit log: that an entry is in it, and that a later log only added to an earlier one.
//!
//! A log is a chain of entries, each naming the hash of the one before it. Over the same entries there is a Merkle tree in the manner of
//! RFC 9162: leaf number `seq - 1` holds the 32 bytes of the chain hash of entry `seq`, the hash of a leaf is SHA-256(00, leaf), that of a
//! node is SHA-256(01, left, right), and a log without entries has the root SHA-256 of nothing.
//!
//! Owns: the hashes, the compact [`Frontier`] that a log is appended to, proofs ([`Inclusion`], [`Consistency`]) and their
//! verification, how the nodes are kept in [`tiles`], the text of a [`checkpoint`] and what a [`receipt`] claims.
//! Not here: keys and signatures, files and tables (`placet-store`). Invariant: no proof is made from what was read back without checking
//! it against a trusted root ([`TreeView`]).

pub mod checkpoint;
mod consistency;
mod frontier;
mod inclusion;
pub mod note;
pub mod receipt;
pub mod tiles;
mod view;

#[cfg(test)]
mod tests;

pub use consistency::Consistency;
pub use frontier::Frontier;
pub use inclusion::Inclusion;
pub use view::{TreeView, ViewError};

use placet_types::digest::Digest;
use serde::{Deserialize, Serialize};

/// A tree's node over the leaves from `index * 2^height` to before `(index + 1) * 2^height`, all of which exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId {
    /// The height above the leaves; 0 is a leaf.
    pub height: u8,
    /// The index at that height, from 0.
    pub index: u64,
}

/// The head of a log: how many entries, and the root over them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TreeHead {
    /// How many entries; also the sequence number of the last one.
    pub size: u64,
    /// The root of the tree over them.
    pub root: Digest,
}

/// A source of the hashes of complete nodes.
pub trait Nodes {
    /// Why a hash could not be read, or there is no such proof.
    type Error: From<ProofError>;

    /// The hash of a node, all of whose leaves are in the log.
    ///
    /// # Errors
    /// It could not be read.
    fn node(&mut self, node: NodeId) -> Result<Digest, Self::Error>;
}

/// Why a proof is invalid, or cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    /// The entry is not in the log.
    #[error("a log of {size} entries has no entry {seq}")]
    NoSuchEntry {
        /// The entry asked for.
        seq: u64,
        /// The size of the log.
        size: u64,
    },
    /// The two sizes are in the wrong order.
    #[error("a log of {from} entries is not the beginning of one of {to}")]
    NotOlder {
        /// The size that should be the smaller.
        from: u64,
        /// The size that should be the larger.
        to: u64,
    },
    /// The proof has too few or too many hashes for the sizes that it names.
    #[error("the proof has {found} hashes, which does not fit the sizes it names")]
    Length {
        /// How many it has.
        found: usize,
    },
    /// The hashes do not lead to the root.
    #[error("the proof does not lead to the root")]
    Mismatch,
    /// The proof leads to the newer root, but from another older one.
    #[error("the proof does not lead from the older root")]
    OlderMismatch,
}

/// The hash of a leaf: of the chain hash of an entry.
pub fn leaf_hash(entry: &[u8; 32]) -> Digest {
    let mut bytes = [0; 33];
    if let Some(rest) = bytes.get_mut(1..) {
        rest.copy_from_slice(entry);
    }
    Digest::of(&bytes)
}

/// The hash of a node over two others.
pub fn node_hash(left: &Digest, right: &Digest) -> Digest {
    let mut bytes = [1; 65];
    let halves = bytes.get_mut(1..).and_then(|rest| rest.split_first_chunk_mut::<32>());
    if let Some((first, second)) = halves {
        first.copy_from_slice(left.as_bytes());
        second.copy_from_slice(right.as_bytes());
    }
    Digest::of(&bytes)
}

/// The root of a log without entries.
pub fn empty_root() -> Digest {
    Digest::of(&[])
}

/// The root of the first `size` entries.
///
/// # Errors
/// The reader's error.
pub fn root<N: Nodes>(nodes: &mut N, size: u64) -> Result<Digest, N::Error> {
    if size == 0 { Ok(empty_root()) } else { range(nodes, 0, size) }
}

/// The root over `len` leaves from `start` on, which is a multiple of the smallest power of two that is not below `len`.
fn range<N: Nodes>(nodes: &mut N, start: u64, len: u64) -> Result<Digest, N::Error> {
    let (mut start, mut len) = (start, len);
    let mut peaks = Vec::new();
    while let Some(height) = len.checked_ilog2() {
        let whole = 1u64.wrapping_shl(height);
        let node = NodeId {
            height: u8::try_from(height).unwrap_or(u8::MAX),
            index: start.wrapping_shr(height),
        };
        peaks.push(nodes.node(node)?);
        start = start.saturating_add(whole);
        len = len.saturating_sub(whole);
    }
    Ok(fold(&peaks))
}

/// The root over peaks from left to right.
fn fold(peaks: &[Digest]) -> Digest {
    let joined = peaks.iter().rev().copied().reduce(|right, left| node_hash(&left, &right));
    joined.unwrap_or_else(empty_root)
}

/// The largest power of two below `len`, which is at least 2: where a tree is split.
fn split(len: u64) -> u64 {
    len.saturating_sub(1).checked_ilog2().map_or(0, |bits| 1u64.wrapping_shl(bits))
}
