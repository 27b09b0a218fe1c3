//! A blocked Bloom filter: whether a key may be in a table.
//!
//! Not here: where it is kept. Invariant: a key that was added is never said to be absent. With two bytes for each key about
//! one absent key in a thousand is said to be possibly there, which costs a look at one block.

use std::sync::Arc;

const BLOCK_BYTES: usize = 64;
/// How many 64-bit words a block has.
const WORDS: usize = 8;
/// How many bits each key sets in its block; each takes nine bits of a hash to name.
const BITS: u32 = 7;
const BYTES_PER_KEY: usize = 2;

/// A key as it is looked for in any filter: which block it has there, and which bits of that block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Probe {
    hash: u64,
    bits: [u64; WORDS],
}

impl Probe {
    /// Of the hash of a key.
    pub(super) fn of(hash: u64) -> Self {
        let spread = mix(hash ^ 0x9E37_79B9_7F4A_7C15);
        let mut bits = [0; WORDS];
        for at in 0..BITS {
            let bit = (spread >> at.saturating_mul(9)) & 0x1FF;
            let word = usize::try_from(bit >> 6).unwrap_or(0);
            if let Some(word) = bits.get_mut(word) {
                *word |= 1_u64 << (bit & 0x3F);
            }
        }
        Self { hash, bits }
    }
}

/// The filter of one table; cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bloom {
    bytes: Arc<[u8]>,
}

impl Bloom {
    /// A filter made of the hashes of keys.
    pub(super) fn of(hashes: &[u64]) -> Self {
        let wanted = hashes.len().saturating_mul(BYTES_PER_KEY);
        let blocks = wanted.div_ceil(BLOCK_BYTES).max(1);
        let mut bytes = vec![0; blocks.saturating_mul(BLOCK_BYTES)];
        for hash in hashes {
            add(&mut bytes, &Probe::of(*hash));
        }
        Self { bytes: bytes.into() }
    }

    /// A filter as it was written; its length must be a whole number of blocks.
    pub(super) fn from_bytes(bytes: Vec<u8>) -> Option<Self> {
        let whole = bytes.len().checked_rem(BLOCK_BYTES) == Some(0) && !bytes.is_empty();
        whole.then(|| Self { bytes: bytes.into() })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether this key may have been added. All bits are looked at whatever the first ones say: without a branch for each of them
    /// the processor is at the next table's filter while it waits for this one's memory.
    pub(super) fn may_contain(&self, probe: &Probe) -> bool {
        let block = self.bytes.get(block_start(&self.bytes, probe)..);
        let Some(block) = block.and_then(<[u8]>::first_chunk::<BLOCK_BYTES>) else { return true };
        let (held, _) = block.as_chunks();
        let missing = held
            .iter()
            .zip(&probe.bits)
            .fold(0, |missing, (held, wanted)| missing | (wanted & !u64::from_le_bytes(*held)));
        missing == 0
    }
}

fn add(bytes: &mut [u8], probe: &Probe) {
    let start = block_start(bytes, probe);
    let block = bytes.get_mut(start..).and_then(<[u8]>::first_chunk_mut::<BLOCK_BYTES>);
    let Some(block) = block else { return };
    for (held, wanted) in block.as_chunks_mut().0.iter_mut().zip(&probe.bits) {
        *held = (u64::from_le_bytes(*held) | wanted).to_le_bytes();
    }
}

fn block_start(bytes: &[u8], probe: &Probe) -> usize {
    let blocks = bytes.len().checked_div(BLOCK_BYTES).unwrap_or(1);
    let blocks = u64::try_from(blocks).unwrap_or(1);
    // The upper half of the hash, spread evenly over the blocks.
    let block = (probe.hash >> 32).wrapping_mul(blocks) >> 32;
    usize::try_from(block).unwrap_or(0).saturating_mul(BLOCK_BYTES)
}

/// The hash of a key: the same in every process, since it is kept.
pub(super) fn hash(key: &[u8]) -> u64 {
    let mut hash: u64 = 0xCBF2_9CE4_8422_2325;
    for chunk in key.chunks(8) {
        let mut word = [0; 8];
        for (to, from) in word.iter_mut().zip(chunk) {
            *to = *from;
        }
        hash = mix(hash ^ u64::from_le_bytes(word)).wrapping_mul(0x0000_0100_0000_01B3);
    }
    mix(hash ^ u64::try_from(key.len()).unwrap_or(u64::MAX))
}

fn mix(mut word: u64) -> u64 {
    word ^= word >> 30;
    word = word.wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word ^= word >> 27;
    word = word.wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}
