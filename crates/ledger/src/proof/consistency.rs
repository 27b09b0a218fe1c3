//! The proof that a later log only added to an earlier one.
//!
//! Owns making and verifying it. Not here: where the hashes come from. Invariant: what verifies shows that the first entries of
//! the newer log are the entries of the older one, all of them, in their order.

use placet_types::digest::Digest;
use serde::{Deserialize, Serialize};

use super::inclusion::{half, is_odd};
use super::{Nodes, ProofError, empty_root, node_hash, range, split};

/// The hashes that lead to the roots of two sizes of one log (RFC 9162, 2.1.4).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Consistency {
    /// How many entries the older log has.
    pub from: u64,
    /// How many the newer one has.
    pub to: u64,
    /// The hashes; none where the older log is empty or both are the same.
    pub path: Vec<Digest>,
}

impl Consistency {
    /// Makes the proof that the first `to` entries begin with the first `from`.
    ///
    /// # Errors
    /// `to` is less than `from`, or a hash could not be read.
    pub fn build<N: Nodes>(nodes: &mut N, from: u64, to: u64) -> Result<Self, N::Error> {
        if from > to {
            return Err(ProofError::NotOlder { from, to }.into());
        }
        let mut path = Vec::new();
        if from == 0 {
            return Ok(Self { from, to, path });
        }
        let (mut start, mut len, mut old) = (0_u64, to, from);
        while old < len {
            let left = split(len);
            let middle = start.saturating_add(left);
            let right = len.saturating_sub(left);
            if old <= left {
                path.push(range(nodes, middle, right)?);
                len = left;
            } else {
                path.push(range(nodes, start, left)?);
                (start, len, old) = (middle, right, old.saturating_sub(left));
            }
        }
        // Only where the older root itself is the node that is left does the verifier have it already.
        if start > 0 {
            path.push(range(nodes, start, len)?);
        }
        path.reverse();
        Ok(Self { from, to, path })
    }

    /// Checks that the log with root `newer` begins with the log with root `older`.
    ///
    /// # Errors
    /// It does not, or the proof is not valid for it.
    pub fn verify(&self, older: &Digest, newer: &Digest) -> Result<(), ProofError> {
        let (from, to) = (self.from, self.to);
        if from > to {
            return Err(ProofError::NotOlder { from, to });
        }
        if from == 0 {
            return self.verify_from_empty(older, newer);
        }
        if from == to {
            self.expect_no_path()?;
            return if older == newer { Ok(()) } else { Err(ProofError::Mismatch) };
        }
        let (older_found, newer_found) = self.roots_from(older)?;
        if newer_found != *newer {
            return Err(ProofError::Mismatch);
        }
        if older_found == *older { Ok(()) } else { Err(ProofError::OlderMismatch) }
    }

    fn verify_from_empty(&self, older: &Digest, newer: &Digest) -> Result<(), ProofError> {
        self.expect_no_path()?;
        if *older != empty_root() {
            return Err(ProofError::OlderMismatch);
        }
        // Every log begins with the empty one; but the empty one is only itself.
        if self.to == 0 && older != newer { Err(ProofError::Mismatch) } else { Ok(()) }
    }

    fn expect_no_path(&self) -> Result<(), ProofError> {
        if self.path.is_empty() { Ok(()) } else { Err(self.length()) }
    }

    /// The two roots that the hashes lead to; `older` is the first hash where the older tree is complete.
    fn roots_from(&self, older: &Digest) -> Result<(Digest, Digest), ProofError> {
        let mut hashes = self.path.iter();
        let mut node = self.from.saturating_sub(1);
        let mut last = self.to.saturating_sub(1);
        let first = if self.from.is_power_of_two() { Some(older) } else { hashes.next() };
        let first = *first.ok_or(self.length())?;
        while is_odd(node) {
            (node, last) = (half(node), half(last));
        }
        let (mut older_found, mut newer_found) = (first, first);
        for hash in hashes {
            if last == 0 {
                return Err(self.length());
            }
            if is_odd(node) || node == last {
                older_found = node_hash(hash, &older_found);
                newer_found = node_hash(hash, &newer_found);
                while !is_odd(node) && node != 0 {
                    (node, last) = (half(node), half(last));
                }
            } else {
                newer_found = node_hash(&newer_found, hash);
            }
            (node, last) = (half(node), half(last));
        }
        if last == 0 { Ok((older_found, newer_found)) } else { Err(self.length()) }
    }

    fn length(&self) -> ProofError {
        ProofError::Length { found: self.path.len() }
    }
}
