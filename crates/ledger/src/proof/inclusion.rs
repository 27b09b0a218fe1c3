//! The proof that an entry is in a log.
//!
//! Owns making and verifying it. Not here: where the hashes come from. Invariant: what verifies leads from exactly this entry at
//! exactly this place to exactly this root.

use placet_types::digest::Digest;
use serde::{Deserialize, Serialize};

use super::{Nodes, ProofError, leaf_hash, node_hash, range, split};

/// The hashes that lead from an entry to the root (RFC 9162, 2.1.3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inclusion {
    /// The entry, from 1; the leaf's index is one less.
    pub seq: u64,
    /// How many entries the log has.
    pub size: u64,
    /// The hashes of the siblings, from the leaf up.
    pub path: Vec<Digest>,
}

impl Inclusion {
    /// Makes the proof that entry `seq` is in the log of the first `size` entries.
    ///
    /// # Errors
    /// There is no such entry, or a hash could not be read.
    pub fn build<N: Nodes>(nodes: &mut N, seq: u64, size: u64) -> Result<Self, N::Error> {
        let index = index_of(seq, size)?;
        let (mut start, mut len) = (0_u64, size);
        let mut path = Vec::new();
        while len > 1 {
            let left = split(len);
            let middle = start.saturating_add(left);
            let right = len.saturating_sub(left);
            if index < middle {
                path.push(range(nodes, middle, right)?);
                len = left;
            } else {
                path.push(range(nodes, start, left)?);
                (start, len) = (middle, right);
            }
        }
        path.reverse();
        Ok(Self { seq, size, path })
    }

    /// Checks that the entry with this chain hash is in the log with this root.
    ///
    /// # Errors
    /// It is not, or the proof is not valid for it.
    pub fn verify(&self, entry: &[u8; 32], root: &Digest) -> Result<(), ProofError> {
        if self.root_from(&leaf_hash(entry))? == *root { Ok(()) } else { Err(ProofError::Mismatch) }
    }

    /// The root that the proof leads to from a leaf hash.
    ///
    /// # Errors
    /// The proof does not fit the sizes that it names.
    pub fn root_from(&self, leaf: &Digest) -> Result<Digest, ProofError> {
        let mut node = index_of(self.seq, self.size)?;
        let mut last = self.size.saturating_sub(1);
        let mut hash = *leaf;
        for sibling in &self.path {
            if last == 0 {
                return Err(self.length());
            }
            if is_odd(node) || node == last {
                hash = node_hash(sibling, &hash);
                // Where the right edge has no sibling, the same node stands for its parents too.
                while !is_odd(node) && node != 0 {
                    (node, last) = (half(node), half(last));
                }
            } else {
                hash = node_hash(&hash, sibling);
            }
            (node, last) = (half(node), half(last));
        }
        if last == 0 { Ok(hash) } else { Err(self.length()) }
    }

    fn length(&self) -> ProofError {
        ProofError::Length { found: self.path.len() }
    }
}

fn index_of(seq: u64, size: u64) -> Result<u64, ProofError> {
    let index = seq.checked_sub(1).filter(|index| *index < size);
    index.ok_or(ProofError::NoSuchEntry { seq, size })
}

pub(super) fn is_odd(number: u64) -> bool {
    number & 1 == 1
}

pub(super) fn half(number: u64) -> u64 {
    number.wrapping_shr(1)
}
