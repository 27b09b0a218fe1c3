//! Tiles: what is written where, and that damage is detected.

use std::collections::BTreeSet;
use std::convert::Infallible;

use proptest::prelude::*;

use super::super::tiles::{
    Appender, MemoryTiles, TILE_HASHES, TileId, TileNodes, Tiles, hashes_at, levels,
};
use super::super::{
    Consistency, Frontier, Inclusion, ProofError, TreeHead, TreeView, ViewError, leaf_hash, root,
};
use super::{All, Digest, entry, turned};

/// Beyond the first full tile of level 1 there is nothing new, so a log goes a little beyond some tiles of level 0.
const LONG: u64 = 3 * 256 + 5;

fn tiles_of(size: u64, taken_after: u64) -> (MemoryTiles, Frontier) {
    let (mut appender, mut tiles) = (Appender::default(), MemoryTiles::new());
    for seq in 1..=size {
        appender.append(&entry(seq));
        if seq % taken_after == 0 || seq == size {
            for part in appender.take() {
                assert!(part.offset + part.hashes.len() <= TILE_HASHES);
                tiles.write(part).unwrap();
            }
        }
    }
    assert_eq!(appender.take(), Vec::new());
    (tiles, appender.frontier().clone())
}

#[test]
fn the_tiles_are_the_same_however_often_they_are_taken() {
    let (expected, _) = tiles_of(LONG, LONG);
    for taken_after in [1, 2, 7, 255, 256, 257] {
        assert_eq!(tiles_of(LONG, taken_after).0, expected, "{taken_after}");
    }
}

#[test]
fn proofs_out_of_tiles_are_those_of_the_tree() {
    let (mut all, _) = All::of(LONG);
    let (tiles, frontier) = tiles_of(LONG, 100);
    let view = TreeView::new(&tiles, frontier.head());
    let sizes = [1, 2, 3, 130, 255, 256, 257, 511, 512, 513, 700, LONG - 1, LONG];
    for size in sizes {
        assert_eq!(view.root(size), Ok(root(&mut all, size).unwrap()), "{size}");
        for seq in [1, 2, 128, 255, 256, 257, 512, size - 1, size] {
            if (1..=size).contains(&seq) {
                let expected = Inclusion::build(&mut all, seq, size).unwrap();
                let proved = Ok((expected, leaf_hash(&entry(seq))));
                assert_eq!(view.inclusion(seq, size), proved, "{seq} of {size}");
            }
        }
        for from in sizes.into_iter().filter(|from| *from <= size) {
            let expected = Consistency::build(&mut all, from, size).unwrap();
            assert_eq!(view.consistency(from, size), Ok(expected), "{from} to {size}");
        }
    }
}

#[test]
fn what_a_log_does_not_have_is_not_proved() {
    let (tiles, frontier) = tiles_of(300, 300);
    let view = TreeView::new(&tiles, frontier.head());
    let beyond = ViewError::Proof(ProofError::NotOlder { from: 301, to: 300 });
    assert_eq!(view.root(301), Err(beyond.clone()));
    assert_eq!(view.inclusion(5, 301), Err(beyond.clone()));
    assert_eq!(view.consistency(5, 301), Err(beyond));
    let absent = |seq, size| ViewError::Proof(ProofError::NoSuchEntry { seq, size });
    assert_eq!(view.inclusion(0, 300), Err(absent(0, 300)));
    assert_eq!(view.inclusion(299, 298), Err(absent(299, 298)));
    let turned_round = ViewError::Proof(ProofError::NotOlder { from: 9, to: 8 });
    assert_eq!(view.consistency(9, 8), Err(turned_round));
}

#[test]
fn tiles_of_another_log_are_damage() {
    let (tiles, frontier) = tiles_of(300, 300);
    let head = TreeHead { root: turned(&frontier.root(), 7), ..frontier.head() };
    let view = TreeView::new(&tiles, head);
    let damaged = ViewError::Damaged { size: 300 };
    assert_eq!(view.root(300), Err(damaged.clone()));
    assert_eq!(view.root(17), Err(damaged.clone()));
    assert_eq!(view.inclusion(17, 200), Err(damaged.clone()));
    assert_eq!(view.consistency(17, 200), Err(damaged));
}

/// Tiles in which one hash differs from what was written.
struct Changed<'t> {
    tiles: &'t MemoryTiles,
    tile: TileId,
    place: usize,
}

impl Tiles for Changed<'_> {
    type Error = Infallible;

    fn tile(&self, tile: TileId, width: usize) -> Result<Vec<Digest>, Infallible> {
        let mut hashes = self.tiles.tile(tile, width)?;
        if tile == self.tile {
            hashes[self.place] = turned(&hashes[self.place], 100);
        }
        Ok(hashes)
    }
}

#[test]
fn a_changed_hash_never_becomes_part_of_a_proof() {
    let (tiles, frontier) = tiles_of(520, 520);
    let sound = TreeView::new(&tiles, frontier.head());
    let mut found = 0;
    for (level, index, places) in [(0, 0, 256), (0, 1, 256), (0, 2, 8), (1, 0, 2)] {
        for place in (0..places).step_by(if places > 8 { 19 } else { 1 }) {
            let changed = Changed { tiles: &tiles, tile: TileId { level, index }, place };
            let view = TreeView::new(&changed, frontier.head());
            for (seq, size) in [(1, 520), (300, 519), (515, 518), (77, 256)] {
                let proof = view.inclusion(seq, size);
                assert!(
                    proof == Err(ViewError::Damaged { size: 520 })
                        || proof == sound.inclusion(seq, size)
                );
                found += u32::from(proof.is_err());
            }
            for (from, to) in [(5, 520), (255, 256), (300, 515)] {
                let proof = view.consistency(from, to);
                assert!(
                    proof == Err(ViewError::Damaged { size: 520 })
                        || proof == sound.consistency(from, to)
                );
                found += u32::from(proof.is_err());
            }
        }
    }
    assert!(found > 80, "only {found} were noticed");
}

#[test]
fn a_short_or_missing_tile_is_an_error_and_never_padding() {
    let (tiles, frontier) = tiles_of(300, 300);
    for (level, index) in [(0, 0), (0, 1), (1, 0)] {
        let tile = TileId { level, index };
        let whole = tiles.tile(tile, 0).unwrap();
        for kept in [0, whole.len() - 1] {
            let mut short = tiles.clone();
            short.insert(tile, whole[..kept].to_vec());
            let view = TreeView::new(&short, frontier.head());
            let error = Err(ViewError::Short(tile));
            assert_eq!(view.consistency(10, 260).map(drop), error);
        }
    }
    let mut part = Appender::default();
    part.append(&entry(1));
    part.append(&entry(2));
    let mut part = part.take().remove(0);
    part.offset = 1;
    let error = ViewError::Short(TileId { level: 0, index: 0 });
    assert_eq!(MemoryTiles::new().write(part), Err(error));
}

/// The tiles that a proof reads, when each is fetched only once it is missing.
fn fetched<T>(
    head: TreeHead,
    source: impl Fn(TileId) -> Vec<Digest>,
    prove: impl Fn(&TreeView<'_, MemoryTiles>) -> Result<T, ViewError<Infallible>>,
) -> (BTreeSet<TileId>, Result<T, ViewError<Infallible>>) {
    let (mut tiles, mut ids) = (MemoryTiles::new(), BTreeSet::new());
    loop {
        match prove(&TreeView::new(&tiles, head)) {
            Err(ViewError::Short(tile)) if ids.insert(tile) => tiles.insert(tile, source(tile)),
            proof => return (ids, proof),
        }
    }
}

#[test]
fn a_proof_is_made_of_the_tiles_that_it_misses() {
    let (tiles, frontier) = tiles_of(LONG, LONG);
    let source = |id| tiles.tile(id, 0).unwrap();
    let (head, whole) = (frontier.head(), TreeView::new(&tiles, frontier.head()));
    for size in [1, 2, 255, 256, 257, 512, 600, 769, LONG] {
        for seq in [1, 200, 256, 257, 513, 769, size] {
            if seq <= size {
                let (_, proof) = fetched(head, source, |view| view.inclusion(seq, size));
                assert_eq!(proof, whole.inclusion(seq, size));
                assert!(proof.is_ok(), "{seq} of {size}");
                let (_, proof) = fetched(head, source, |view| view.consistency(seq, size));
                assert_eq!(proof, whole.consistency(seq, size));
                assert!(proof.is_ok(), "{seq} to {size}");
            }
        }
    }
    let (ids, beyond) = fetched(head, source, |view| view.inclusion(9, LONG + 1));
    assert!(ids.is_empty() && beyond.is_err(), "{ids:?}");
}

#[test]
fn a_proof_in_a_log_of_a_billion_reads_a_handful_of_tiles() {
    // Of zeros, every root is wrong: a proof ends at the first one, so each root is asked for by itself.
    let zeros = |size: u64| move |id: TileId| vec![Digest::from_bytes([0; 32]); id.width(size)];
    let reads = |seq: u64, to: u64, size: u64| {
        let head = TreeHead { size, root: Digest::from_bytes([0; 32]) };
        let (mut ids, _) = fetched(head, zeros(size), |view| view.inclusion(seq, to));
        ids.extend(fetched(head, zeros(size), |view| view.consistency(seq, to)).0);
        for size_of_root in [seq, to] {
            ids.extend(fetched(head, zeros(size), |view| view.root(size_of_root)).0);
        }
        ids.len()
    };
    let size = 1_000_000_007;
    for seq in [1, 999, size / 2, size - 1, size] {
        let count = reads(seq, size, size);
        assert!(count <= 12, "{seq}: {count} tiles");
        let count = reads(seq.min(size - 1), size - 1, size + 9);
        assert!(count <= 12, "{seq}: {count} tiles");
    }
}

#[test]
fn a_tile_is_as_wide_as_its_tree_demands() {
    let tile = |level, index| TileId { level, index };
    assert_eq!(tile(0, 0).width(5), 5);
    assert_eq!(tile(0, 1).width(256), 0);
    assert_eq!(tile(1, 0).width(256), 1);
    assert_eq!(tile(0, 3).width(u64::MAX), 256);
    assert_eq!(tile(7, 0).width(u64::MAX), 255);
    assert_eq!(tile(7, 1).width(u64::MAX), 0);
    assert_eq!(hashes_at(1, 511), 1);
    let sizes = [(0, 0), (1, 1), (255, 1), (256, 2), (65_535, 2), (65_536, 3), (u64::MAX, 8)];
    for (size, expected) in sizes {
        assert_eq!(levels(size), expected, "{size}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_log_written_in_any_pieces_proves_the_same(
        pieces in prop::collection::vec(1..300_u64, 1..8),
        (seq, size) in (any::<prop::sample::Index>(), any::<prop::sample::Index>()),
    ) {
        let total: u64 = pieces.iter().sum();
        let (mut tiles, mut frontier, mut next) = (MemoryTiles::new(), Frontier::new(), 1);
        for piece in pieces {
            // As after a restart: only the frontier is left.
            let mut appender = Appender::new(Frontier::from_bytes(&frontier.to_bytes()).unwrap());
            for _ in 0..piece {
                appender.append(&entry(next));
                next += 1;
            }
            for part in appender.take() {
                tiles.write(part).unwrap();
            }
            frontier = appender.frontier().clone();
        }
        let (mut all, whole) = All::of(total);
        prop_assert_eq!(&frontier, &whole);
        let size = u64::try_from(size.index(usize::try_from(total).unwrap())).unwrap() + 1;
        let seq = u64::try_from(seq.index(usize::try_from(size).unwrap())).unwrap() + 1;
        let mut nodes = TileNodes::new(&tiles, total);
        prop_assert_eq!(Inclusion::build(&mut nodes, seq, size).unwrap(), Inclusion::build(&mut all, seq, size).unwrap());
        prop_assert_eq!(Consistency::build(&mut nodes, seq, size).unwrap(), Consistency::build(&mut all, seq, size).unwrap());
    }
}
