//! The Merkle tree over the entries, in tiles that are keys of the state.
//!
//! Owns which edits entries make, and reading tiles for proofs. A tile that is not full is a key as well, written again as it grows. Not
//! here: what the hashes mean and how proofs are built (`placet_ledger::proof`), signatures (`seal`). Invariant: a state has every tile of
//! the frontier in its metadata, since both are written at once.

use placet_ledger::proof::tiles::{Appender, TileId, Tiles};
use placet_ledger::proof::{Frontier, TreeView, ViewError};
use placet_types::digest::Digest;

use super::edits::Edits;
use super::keys;
use super::tree::{Tree, TreeFault};

const HASH_BYTES: usize = 32;

/// Appends entries by their hashes: adds the tiles that change to the edits, and answers the frontier to be applied with these.
pub(super) fn append(
    tree: &Tree,
    entries: impl Iterator<Item = [u8; 32]>,
    edits: &mut Edits,
) -> Result<Frontier, TreeFault> {
    let mut appender = Appender::new(tree.meta().frontier);
    entries.for_each(|entry| appender.append(&entry));
    for part in appender.take() {
        let key = keys::tile(part.tile);
        let mut hashes = tree.get(&key)?.map_or_else(Vec::new, |held| held.to_vec());
        if hashes.len() != part.offset.saturating_mul(HASH_BYTES) {
            return Err(TreeFault::Altered);
        }
        hashes.extend(part.hashes.iter().flat_map(|hash| *hash.as_bytes()));
        edits.insert(key, Some(hashes));
    }
    Ok(appender.frontier().clone())
}

/// Calls a function with the tree over the entries in the state.
pub(super) fn view<T>(
    tree: &Tree,
    work: impl FnOnce(&TreeView<'_, StateTiles<'_>>) -> Result<T, ViewError<TreeFault>>,
) -> Result<T, ViewError<TreeFault>> {
    // A tile that grows meanwhile is longer, and begins as before.
    let head = tree.meta().frontier.head();
    work(&TreeView::new(&StateTiles(tree), head))
}

/// The tiles in a state.
pub(super) struct StateTiles<'a>(&'a Tree);

impl Tiles for StateTiles<'_> {
    type Error = TreeFault;

    fn tile(&self, tile: TileId, _width: usize) -> Result<Vec<Digest>, TreeFault> {
        let Some(bytes) = self.0.get(&keys::tile(tile))? else { return Ok(Vec::new()) };
        let (hashes, _rest) = bytes.as_chunks::<HASH_BYTES>();
        Ok(hashes.iter().map(|hash| Digest::from_bytes(*hash)).collect())
    }
}
