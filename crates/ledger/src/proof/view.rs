//! Proofs from untrusted tiles.
//!
//! Owns [`TreeView`]: it makes a proof, and returns it only once it verifies against a trusted root. Not here: how the tiles are stored.
//! Invariant: a changed, missing or misplaced hash in a tile leads to an error, never to a proof or a root.

use placet_types::digest::Digest;

use super::tiles::{TileId, TileNodes, Tiles};
use super::{Consistency, Frontier, Inclusion, NodeId, Nodes as _, ProofError, TreeHead, root};

/// A tree with a trusted head and untrusted tiles.
#[derive(Debug)]
pub struct TreeView<'t, T> {
    tiles: &'t T,
    head: TreeHead,
}

/// Why there is no proof.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ViewError<E> {
    /// There is no such entry or size in this log.
    #[error(transparent)]
    Proof(#[from] ProofError),
    /// What was read does not lead to the trusted root.
    #[error("the tree of a log of {size} entries does not lead to its root: it is damaged")]
    Damaged {
        /// How many entries the log has.
        size: u64,
    },
    /// A tile has fewer hashes than its tree demands.
    #[error("tile {} of level {} is missing or too short", .0.index, .0.level)]
    Short(TileId),
    /// A tile could not be read.
    #[error("{0}")]
    Source(E),
}

impl<'t, T: Tiles> TreeView<'t, T> {
    /// A view of the tiles that supposedly belong to this head.
    pub const fn new(tiles: &'t T, head: TreeHead) -> Self {
        Self { tiles, head }
    }

    /// The trusted head.
    pub const fn head(&self) -> TreeHead {
        self.head
    }

    /// The root of the first `size` entries.
    ///
    /// # Errors
    /// [`ViewError`].
    pub fn root(&self, size: u64) -> Result<Digest, ViewError<T::Error>> {
        self.root_with(&mut self.nodes(), size)
    }

    /// The proof that entry `seq` is among the first `size`, and the leaf hash that it is about: the caller compares it with
    /// [`super::leaf_hash`] of the entry it has.
    ///
    /// # Errors
    /// [`ViewError`].
    pub fn inclusion(
        &self,
        seq: u64,
        size: u64,
    ) -> Result<(Inclusion, Digest), ViewError<T::Error>> {
        self.check_size(size)?;
        let mut nodes = self.nodes();
        let proof = Inclusion::build(&mut nodes, seq, size)?;
        let leaf = NodeId { height: 0, index: seq.saturating_sub(1) };
        let leaf = nodes.node(leaf)?;
        let root = self.root_with(&mut nodes, size)?;
        if proof.root_from(&leaf)? != root {
            return Err(self.damaged());
        }
        Ok((proof, leaf))
    }

    /// The proof that the first `to` entries begin with the first `from`.
    ///
    /// # Errors
    /// [`ViewError`].
    pub fn consistency(&self, from: u64, to: u64) -> Result<Consistency, ViewError<T::Error>> {
        self.check_size(to)?;
        let mut nodes = self.nodes();
        let proof = Consistency::build(&mut nodes, from, to)?;
        let newer = self.root_with(&mut nodes, to)?;
        let older = self.root_with(&mut nodes, from)?;
        proof.verify(&older, &newer).map_err(|_mismatch| self.damaged())?;
        Ok(proof)
    }

    /// The frontier of the first `size` entries.
    ///
    /// # Errors
    /// [`ViewError`].
    pub fn frontier(&self, size: u64) -> Result<Frontier, ViewError<T::Error>> {
        self.check_size(size)?;
        let mut nodes = self.nodes();
        let trusted = self.root_with(&mut nodes, size)?;
        let mut peaks = Vec::new();
        let mut begin = 0_u64;
        for height in (0..u64::BITS).rev() {
            let width = 1_u64.wrapping_shl(height);
            if size & width == 0 {
                continue;
            }
            let index = begin.wrapping_shr(height);
            let height = u8::try_from(height).unwrap_or(u8::MAX);
            peaks.push(nodes.node(NodeId { height, index })?);
            begin = begin.saturating_add(width);
        }
        let found = Frontier::from_peaks(size, peaks).ok_or_else(|| self.damaged())?;
        if found.root() == trusted { Ok(found) } else { Err(self.damaged()) }
    }

    fn check_size(&self, size: u64) -> Result<(), ViewError<T::Error>> {
        if size <= self.head.size {
            return Ok(());
        }
        Err(ViewError::Proof(ProofError::NotOlder { from: size, to: self.head.size }))
    }

    fn nodes(&self) -> TileNodes<'t, T> {
        TileNodes::new(self.tiles, self.head.size)
    }

    /// An older root is trusted because it is proved to be a prefix of the trusted one.
    fn root_with(
        &self,
        nodes: &mut TileNodes<'t, T>,
        size: u64,
    ) -> Result<Digest, ViewError<T::Error>> {
        let proof = Consistency::build(nodes, size, self.head.size)?;
        let found = root(nodes, size)?;
        proof.verify(&found, &self.head.root).map_err(|_mismatch| self.damaged())?;
        Ok(found)
    }

    const fn damaged(&self) -> ViewError<T::Error> {
        ViewError::Damaged { size: self.head.size }
    }
}
