//! Which keys the journal says a generation of the index holds.
//!
//! Owns [`Stamps`]: in memory, bounded by how much is changed between two checkpoints. Not here: the keys (`keys`), the tree
//! (`generation`). Invariant: stamps come from the journal alone, so that what sled has forgotten, or has in an older form, shows.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{PoisonError, RwLock};

const SHARDS: usize = 64;

/// In halves, so that an entry takes sixteen bytes.
type Print = [u32; 2];
type Shard = RwLock<HashMap<Print, Stamp>>;

/// What the journal says about a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    /// The low 32 bits of the number of the entry that last wrote the key.
    pub(super) seq: u32,
    /// It wrote that the key is gone.
    pub(super) gone: bool,
}

/// 64 bits of a keyed hash of each key, and its stamp. Two keys that meet in one hash (about one in 10^13 for a new key among a
/// million) are taken for damage, which stops the store and rebuilds the generation; a key is never taken for absent.
#[derive(Debug)]
pub(super) struct Stamps {
    hasher: RandomState,
    shards: Vec<Shard>,
}

impl Default for Stamps {
    fn default() -> Self {
        let shards = (0..SHARDS).map(|_| RwLock::default()).collect();
        Self { hasher: RandomState::new(), shards }
    }
}

impl Stamps {
    /// What the journal says about `key`; `None`: nothing has touched it in this generation.
    pub(super) fn get(&self, key: &[u8]) -> Option<Stamp> {
        let (shard, print) = self.slot(key)?;
        // Nothing can panic while the lock is held, so a poisoned lock still guards sound values.
        shard.read().unwrap_or_else(PoisonError::into_inner).get(&print).copied()
    }

    /// Entry `seq` has written `key`, or (`gone`) that there is no such key any more.
    pub(super) fn set(&self, key: &[u8], seq: u64, gone: bool) {
        let Some((shard, print)) = self.slot(key) else { return };
        let stamp = Stamp { seq: low(seq), gone };
        shard.write().unwrap_or_else(PoisonError::into_inner).insert(print, stamp);
    }

    fn slot(&self, key: &[u8]) -> Option<(&Shard, Print)> {
        let [a, b, c, d, e, f, g, h] = self.hasher.hash_one(key).to_le_bytes();
        let print = [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])];
        let shard = usize::from(a).checked_rem(SHARDS)?;
        Some((self.shards.get(shard)?, print))
    }
}

/// The low 32 bits of a sequence number.
pub(super) fn low(seq: u64) -> u32 {
    let [a, b, c, d, ..] = seq.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// Whether what entry `seq` wrote is at least as new as a stamp.
pub(super) fn is_current(seq: u64, wanted: u32) -> bool {
    low(seq).wrapping_sub(wanted) < (1 << 31)
}
