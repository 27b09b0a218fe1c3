//! How the hashes of a tree are kept: in tiles, as C2SP tlog-tiles lays them out.
//!
//! A tile of level L holds up to 256 hashes of adjacent nodes of height 8 × L; a full tile of level L becomes one hash in a tile of
//! level L + 1. Tiles only grow at their end, and a full one never changes. The nodes in between are computed from a tile, so any node costs
//! one read, and a proof about n entries costs about log₂₅₆ n tiles.
//!
//! Owns: which hash stands where, [`Appender`] and the reading side [`TileNodes`]. Not here: the files or the table.
//! Invariant: a tile that is shorter than its tree demands is an error, never padding.

use std::collections::BTreeMap;
use std::convert::Infallible;

use placet_types::digest::Digest;

use super::{Frontier, NodeId, Nodes, ViewError, node_hash};

/// How many hashes a full tile holds.
pub const TILE_HASHES: usize = 256;

/// How many heights of the tree one level of tiles spans.
pub const TILE_HEIGHT: u8 = 8;

const TILE_BITS: u32 = 8;

/// The position of a tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TileId {
    /// The level: 0 holds leaves, 1 nodes of height 8, and so on.
    pub level: u8,
    /// The index at that level, from 0.
    pub index: u64,
}

impl TileId {
    /// How many hashes the tile has in a tree of `size` entries; 0: there is no such tile.
    pub fn width(self, size: u64) -> usize {
        let there = hashes_at(self.level, size);
        let before = self.index.saturating_mul(1 << TILE_BITS);
        let from_here = there.saturating_sub(before);
        usize::try_from(from_here).unwrap_or(usize::MAX).min(TILE_HASHES)
    }
}

/// How many hashes a level of tiles has in a tree of `size` entries.
pub fn hashes_at(level: u8, size: u64) -> u64 {
    size.checked_shr(u32::from(level).saturating_mul(TILE_BITS)).unwrap_or(0)
}

/// How many levels of tiles a tree of `size` entries has.
pub fn levels(size: u64) -> u8 {
    (0..TILE_HEIGHT).find(|level| hashes_at(*level, size) == 0).unwrap_or(TILE_HEIGHT)
}

/// Hashes to append to a tile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TilePart {
    /// Which tile.
    pub tile: TileId,
    /// After how many hashes.
    pub offset: usize,
    /// The hashes.
    pub hashes: Vec<Digest>,
}

/// The writing side: takes entries and returns what to write into which tile.
#[derive(Debug, Clone, Default)]
pub struct Appender {
    frontier: Frontier,
    /// By level, what was made since the last [`Self::take`].
    pending: Vec<Vec<TilePart>>,
}

impl Appender {
    /// Continues after a frontier, all of whose hashes have been written.
    pub const fn new(frontier: Frontier) -> Self {
        Self { frontier, pending: Vec::new() }
    }

    /// Appends an entry by its chain hash.
    pub fn append(&mut self, entry: &[u8; 32]) {
        let pending = &mut self.pending;
        self.frontier.append(entry, &mut |node, hash| {
            if node.height.is_multiple_of(TILE_HEIGHT) {
                push(pending, node, hash);
            }
        });
    }

    /// The tree with everything appended.
    pub const fn frontier(&self) -> &Frontier {
        &self.frontier
    }

    /// What has to be written for the tree as it is, level by level in ascending order; each part is returned once.
    pub fn take(&mut self) -> Vec<TilePart> {
        self.pending.iter_mut().flat_map(std::mem::take).collect()
    }
}

fn push(pending: &mut Vec<Vec<TilePart>>, node: NodeId, hash: Digest) {
    let level = node.height.checked_div(TILE_HEIGHT).unwrap_or(0);
    let place = usize::from(level);
    if pending.len() <= place {
        pending.resize(place.saturating_add(1), Vec::new());
    }
    let Some(parts) = pending.get_mut(place) else { return };
    let (tile, offset) = place_of(level, node.index);
    match parts.last_mut().filter(|part| part.tile == tile) {
        Some(part) => part.hashes.push(hash),
        None => parts.push(TilePart { tile, offset, hashes: vec![hash] }),
    }
}

/// The tile of a level's hash number `index`, and its offset there.
fn place_of(level: u8, index: u64) -> (TileId, usize) {
    let [offset, ..] = index.to_le_bytes();
    (TileId { level, index: index.wrapping_shr(TILE_BITS) }, usize::from(offset))
}

/// A source of tiles.
pub trait Tiles {
    /// Why a tile could not be read.
    type Error;

    /// At least the first `width` hashes of a tile. Fewer mean that the others do not exist.
    ///
    /// # Errors
    /// It could not be read.
    fn tile(&self, tile: TileId, width: usize) -> Result<Vec<Digest>, Self::Error>;
}

/// The nodes of a tree of `size` entries, from its tiles; each tile is read once.
#[derive(Debug)]
pub struct TileNodes<'t, T> {
    tiles: &'t T,
    size: u64,
    read: BTreeMap<TileId, Vec<Digest>>,
}

impl<'t, T: Tiles> TileNodes<'t, T> {
    /// For proofs about the first `size` entries.
    pub const fn new(tiles: &'t T, size: u64) -> Self {
        Self { tiles, size, read: BTreeMap::new() }
    }

    fn hashes(&mut self, tile: TileId) -> Result<&[Digest], ViewError<T::Error>> {
        match self.read.entry(tile) {
            std::collections::btree_map::Entry::Occupied(read) => Ok(read.into_mut()),
            std::collections::btree_map::Entry::Vacant(place) => {
                let width = tile.width(self.size);
                let hashes = self.tiles.tile(tile, width).map_err(ViewError::Source)?;
                if width == 0 || hashes.len() < width {
                    return Err(ViewError::Short(tile));
                }
                Ok(place.insert(hashes))
            }
        }
    }
}

impl<T: Tiles> Nodes for TileNodes<'_, T> {
    type Error = ViewError<T::Error>;

    fn node(&mut self, node: NodeId) -> Result<Digest, Self::Error> {
        let level = node.height.checked_div(TILE_HEIGHT).unwrap_or(0);
        let above = u32::from(node.height.checked_rem(TILE_HEIGHT).unwrap_or(0));
        let (tile, offset) = place_of(level, node.index.wrapping_shl(above));
        let end = offset.saturating_add(1_usize.wrapping_shl(above));
        let hashes = self.hashes(tile)?;
        hashes.get(offset..end).and_then(root_of).ok_or(ViewError::Short(tile))
    }
}

/// The hash above a row of hashes whose number is a power of two, as in a full tile.
pub fn root_of(hashes: &[Digest]) -> Option<Digest> {
    let mut row = hashes.to_vec();
    while row.len() > 1 {
        let (pairs, _none) = row.as_chunks::<2>();
        row = pairs.iter().map(|[left, right]| node_hash(left, right)).collect();
    }
    row.first().copied()
}

/// Tiles in memory: all of a small log, or the few that a proof needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryTiles(BTreeMap<TileId, Vec<Digest>>);

impl MemoryTiles {
    /// No tiles.
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Puts a whole tile in place, as far as it exists.
    pub fn insert(&mut self, tile: TileId, hashes: Vec<Digest>) {
        self.0.insert(tile, hashes);
    }

    /// Writes a part that an [`Appender`] returned.
    ///
    /// # Errors
    /// The tile does not end where the part begins.
    pub fn write(&mut self, part: TilePart) -> Result<(), ViewError<Infallible>> {
        let hashes = self.0.entry(part.tile).or_default();
        if hashes.len() != part.offset {
            return Err(ViewError::Short(part.tile));
        }
        hashes.extend(part.hashes);
        Ok(())
    }
}

impl Tiles for MemoryTiles {
    type Error = Infallible;

    fn tile(&self, tile: TileId, _width: usize) -> Result<Vec<Digest>, Infallible> {
        Ok(self.0.get(&tile).cloned().unwrap_or_default())
    }
}
