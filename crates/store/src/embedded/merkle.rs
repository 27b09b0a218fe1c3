//! The Merkle tree over the entries, in tiles that are keys of the state.
//!
//! Owns which hashes are in the state (full tiles of 256) and which in memory (those of the tiles that are not full yet), and proofs. Not
//! here: what the hashes mean and how proofs are built (`placet_ledger::proof`), signatures (`seal`). Invariant: every proof leads to the
//! root of the frontier, which is updated with every batch.

use parking_lot::RwLock;

use placet_ledger::proof::tiles::{Appender, TILE_HASHES, TileId, Tiles, hashes_at, levels};
use placet_ledger::proof::{Frontier, TreeHead, TreeView, ViewError, leaf_hash, node_hash};
use placet_types::digest::Digest;

use super::edits::Edits;
use super::keys;
use super::tree::{Tree, TreeFault};

/// The right edge: the hashes that are in no full tile.
#[derive(Debug, Clone, Default)]
pub(super) struct Edge {
    pub(super) frontier: Frontier,
    /// By level, the hashes of the tile that is not full yet.
    partial: Vec<Vec<Digest>>,
    /// The hash of the last entry; zeros before the first.
    last: [u8; 32],
}

/// The tree.
#[derive(Debug)]
pub(super) struct Merkle {
    edge: RwLock<Edge>,
}

/// Why there is no proof.
#[derive(Debug, thiserror::Error)]
pub(super) enum MerkleError {
    /// The state cannot be read.
    #[error(transparent)]
    Tree(#[from] TreeFault),
    /// There is no such entry, or the tree is damaged.
    #[error(transparent)]
    View(#[from] ViewError<TreeFault>),
    /// The tiles do not hash to the frontier.
    #[error("the Merkle tree in the state is damaged: it is rebuilt at the next start")]
    Damaged,
}

impl Merkle {
    /// Before the first entry.
    pub(super) fn empty() -> Self {
        Self { edge: RwLock::new(Edge::default()) }
    }

    /// The tree of a state; `leaves` are the hashes of the entries after the last full tile.
    pub(super) fn open(tree: &Tree, leaves: &[[u8; 32]]) -> Result<Self, MerkleError> {
        let meta = tree.meta();
        let size = meta.frontier.size();
        let mut partial = vec![leaves.iter().map(leaf_hash).collect::<Vec<_>>()];
        for level in 1..levels(size) {
            let there = hashes_at(level, size);
            let full = u64::try_from(TILE_HASHES).unwrap_or(u64::MAX);
            let first = there.saturating_sub(there.checked_rem(full).unwrap_or(0));
            let below = level.saturating_sub(1);
            let roots = (first..there).map(|index| {
                let tile = read_tile(tree, TileId { level: below, index })?;
                tile.and_then(|hashes| root_of_tile(&hashes)).ok_or(MerkleError::Damaged)
            });
            partial.push(roots.collect::<Result<_, _>>()?);
        }
        let edge = Edge { frontier: meta.frontier, partial, last: meta.head };
        let found = EdgeTiles { tree, edge: &edge };
        let view = TreeView::new(&found, edge.frontier.head());
        view.root(size)?;
        Ok(Self { edge: RwLock::new(edge) })
    }

    /// The first entry whose hash is needed to open a tree of this size.
    pub(super) fn first_leaf(size: u64) -> u64 {
        let full = u64::try_from(TILE_HASHES).unwrap_or(u64::MAX);
        size.saturating_sub(size.checked_rem(full).unwrap_or(0)).saturating_add(1)
    }

    /// Appends entries by their hashes, and adds the tiles that they fill to the edits. Answers the new edge, to be put in place once the
    /// edits are applied.
    pub(super) fn append(
        &self,
        entries: impl Iterator<Item = [u8; 32]>,
        edits: &mut Edits,
    ) -> Edge {
        let mut edge = self.edge.read().clone();
        let mut appender = Appender::new(std::mem::take(&mut edge.frontier));
        for entry in entries {
            appender.append(&entry);
            edge.last = entry;
        }
        for part in appender.take() {
            let level = usize::from(part.tile.level);
            if edge.partial.len() <= level {
                edge.partial.resize(level.saturating_add(1), Vec::new());
            }
            let Some(tile) = edge.partial.get_mut(level) else { continue };
            tile.extend(part.hashes);
            if tile.len() >= TILE_HASHES {
                let bytes = tile.iter().flat_map(|hash| *hash.as_bytes()).collect();
                edits.insert(keys::tile(part.tile), Some(bytes));
                tile.clear();
            }
        }
        edge.frontier = appender.frontier().clone();
        edge
    }

    /// Makes an appended edge current: it is in the state now.
    pub(super) fn put(&self, grown: Edge) {
        *self.edge.write() = grown;
    }

    /// The tree over the entries in the state, and the hash of the last one.
    pub(super) fn head(&self) -> (TreeHead, [u8; 32]) {
        let edge = self.edge.read();
        (edge.frontier.head(), edge.last)
    }

    /// Calls a function with the current tree.
    pub(super) fn view<T>(
        &self,
        tree: &Tree,
        work: impl FnOnce(&TreeView<'_, EdgeTiles<'_>>) -> Result<T, ViewError<TreeFault>>,
    ) -> Result<T, MerkleError> {
        let edge = self.edge.read().clone();
        let tiles = EdgeTiles { tree, edge: &edge };
        Ok(work(&TreeView::new(&tiles, edge.frontier.head()))?)
    }
}

/// Tiles from the state, and from memory where they are not full.
pub(super) struct EdgeTiles<'a> {
    tree: &'a Tree,
    edge: &'a Edge,
}

impl Tiles for EdgeTiles<'_> {
    type Error = TreeFault;

    fn tile(&self, tile: TileId, _width: usize) -> Result<Vec<Digest>, TreeFault> {
        if let Some(hashes) = read_tile(self.tree, tile)? {
            return Ok(hashes);
        }
        let size = self.edge.frontier.size();
        let is_edge = hashes_at(tile.level.saturating_add(1), size) == tile.index;
        let partial = self.edge.partial.get(usize::from(tile.level)).filter(|_| is_edge);
        Ok(partial.cloned().unwrap_or_default())
    }
}

/// The hash of a full tile in the level above.
fn root_of_tile(hashes: &[Digest]) -> Option<Digest> {
    let mut row = hashes.to_vec();
    while row.len() > 1 {
        let (pairs, _none) = row.as_chunks::<2>();
        row = pairs.iter().map(|[left, right]| node_hash(left, right)).collect();
    }
    row.first().copied()
}

fn read_tile(tree: &Tree, tile: TileId) -> Result<Option<Vec<Digest>>, TreeFault> {
    let Some(bytes) = tree.get(&keys::tile(tile))? else { return Ok(None) };
    let (hashes, _rest) = bytes.as_chunks::<32>();
    Ok(Some(hashes.iter().map(|hash| Digest::from_bytes(*hash)).collect()))
}
