//! Seeds that failed once: they are played first in every run.
//!
//! Owns the reading of their file. A seed is only kept with the reason that it is kept for.

use anyhow::{Context as _, Result, bail};

use crate::schedule::Store;

/// The kept seeds.
const KEPT: &str = include_str!("../seeds/regression.txt");

/// A kept seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kept {
    /// On which store.
    pub(crate) store: Store,
    /// On how many nodes.
    pub(crate) nodes: usize,
    /// The seed.
    pub(crate) seed: u64,
}

/// Every kept seed.
pub(crate) fn kept() -> Result<Vec<Kept>> {
    read(KEPT)
}

fn read(text: &str) -> Result<Vec<Kept>> {
    let mut seeds = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let place = || format!("line {number} of the kept seeds");
        let (fields, reason) =
            line.split_once('#').with_context(|| format!("{} has no reason", place()))?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let [store, nodes, seed] = fields.as_slice() else {
            bail!("{} is not `store nodes seed # reason`", place())
        };
        if reason.trim().is_empty() {
            bail!("{} has no reason", place());
        }
        let store = match *store {
            "embedded" => Store::Embedded,
            "postgres" => Store::Postgres,
            other => bail!("{}: `{other}` is no store", place()),
        };
        let nodes = nodes.parse().with_context(place)?;
        seeds.push(Kept { store, nodes, seed: seed.parse().with_context(place)? });
    }
    Ok(seeds)
}

#[cfg(test)]
mod tests {
    use super::{Kept, kept, read};
    use crate::schedule::Store;

    #[test]
    fn the_kept_seeds_can_be_read() {
        kept().unwrap();
    }

    #[test]
    fn a_seed_is_kept_with_its_reason_or_not_at_all() {
        let seeds = read("# a remark\n\npostgres 3 17 # the fence was ignored\n").unwrap();
        assert_eq!(seeds, [Kept { store: Store::Postgres, nodes: 3, seed: 17 }]);
        for wrong in [
            "embedded 1 17",
            "embedded 1 17 # ",
            "embedded 17 # x",
            "sled 1 17 # x",
            "embedded 1 x # x",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
