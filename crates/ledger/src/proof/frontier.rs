//! The right edge of a tree: all that is needed to append to it and to know its root.
//!
//! Owns its growth and its bytes. Not here: the nodes it has passed (`tiles`). Invariant: it holds exactly one hash for each one
//! in the binary form of its size, from the largest complete subtree to the smallest.

use placet_types::digest::Digest;

use super::{NodeId, TreeHead, fold, leaf_hash, node_hash};

const MAGIC: [u8; 8] = *b"PLTREEF\x01";
const HASH_BYTES: usize = 32;

/// A tree that can be appended to, in memory that grows with the logarithm of its size.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Frontier {
    size: u64,
    peaks: Vec<Digest>,
}

impl Frontier {
    /// The frontier of an empty log.
    pub const fn new() -> Self {
        Self { size: 0, peaks: Vec::new() }
    }

    /// The frontier of a log of `size` entries with these peaks, the largest first; `None` if their number does not fit the size.
    pub(super) fn from_peaks(size: u64, peaks: Vec<Digest>) -> Option<Self> {
        let fits = u32::try_from(peaks.len()) == Ok(size.count_ones());
        fits.then_some(Self { size, peaks })
    }

    /// Appends an entry by its chain hash, and passes every node that is now complete to `made`: the leaf first, then its parents.
    pub fn append(&mut self, entry: &[u8; 32], made: &mut dyn FnMut(NodeId, Digest)) {
        let mut node = NodeId { height: 0, index: self.size };
        let mut hash = leaf_hash(entry);
        made(node, hash);
        while node.index & 1 == 1 {
            let Some(left) = self.peaks.pop() else { break };
            hash = node_hash(&left, &hash);
            node =
                NodeId { height: node.height.saturating_add(1), index: node.index.wrapping_shr(1) };
            made(node, hash);
        }
        self.peaks.push(hash);
        // At a million entries a second this takes half a million years.
        self.size = self.size.saturating_add(1);
    }

    /// How many entries.
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// The root over them.
    pub fn root(&self) -> Digest {
        fold(&self.peaks)
    }

    /// Size and root.
    pub fn head(&self) -> TreeHead {
        TreeHead { size: self.size, root: self.root() }
    }

    /// The roots of the complete subtrees, the largest first.
    pub fn peaks(&self) -> &[Digest] {
        &self.peaks
    }

    /// The frontier as bytes for a file: magic, size (little-endian), peaks, and the SHA-256 of all before it.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&self.size.to_le_bytes());
        for peak in &self.peaks {
            bytes.extend_from_slice(peak.as_bytes());
        }
        let check = Digest::of(&bytes);
        bytes.extend_from_slice(check.as_bytes());
        bytes
    }

    /// Reads [`Frontier::to_bytes`] back; `None` if bytes are missing, added or changed.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (body, check) = bytes.split_last_chunk::<HASH_BYTES>()?;
        if Digest::of(body).as_bytes() != check {
            return None;
        }
        let (magic, body) = body.split_first_chunk::<8>()?;
        let (size, body) = body.split_first_chunk::<8>()?;
        let (peaks, rest) = body.as_chunks::<HASH_BYTES>();
        if *magic != MAGIC || !rest.is_empty() {
            return None;
        }
        let peaks = peaks.iter().map(|peak| Digest::from_bytes(*peak)).collect();
        Self::from_peaks(u64::from_le_bytes(*size), peaks)
    }
}
