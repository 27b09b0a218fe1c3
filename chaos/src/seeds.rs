//! Seeds that failed once: they are played first in every run.
//!
//! Owns the reading of their file. A seed is only kept with the reason that it is kept for.

use anyhow::{Context as _, Result, bail};

use crate::schedule::{Schedule, Store};

/// The kept seeds.
const KEPT: &str = include_str!("../seeds/regression.txt");
/// The schedules of seeds that meant something else when they were kept, and those that every run has to have.
const SCHEDULES: [(&str, &str); 5] = [
    ("clock-and-window.json", include_str!("../seeds/clock-and-window.json")),
    ("database-clock.json", include_str!("../seeds/database-clock.json")),
    ("erasure.json", include_str!("../seeds/erasure.json")),
    ("failover.json", include_str!("../seeds/failover.json")),
    ("not-found.json", include_str!("../seeds/not-found.json")),
];

/// A kept seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kept {
    /// On which store.
    pub(crate) store: Store,
    /// On how many nodes.
    pub(crate) nodes: usize,
    /// What is played.
    pub(crate) what: Played,
}

/// What is played of a kept seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Played {
    /// What is drawn from it now.
    Seed(u64),
    /// What was drawn from it then.
    Schedule(Box<Schedule>),
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
            bail!("{} is not `store nodes seed-or-schedule # reason`", place())
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
        let kept = SCHEDULES.iter().find(|(name, _)| name == seed);
        let what = match kept {
            Some((_, schedule)) => {
                Played::Schedule(serde_json::from_str(schedule).with_context(place)?)
            }
            None => Played::Seed(seed.parse().with_context(place)?),
        };
        seeds.push(Kept { store, nodes, what });
    }
    Ok(seeds)
}

#[cfg(test)]
mod tests {
    use super::{Kept, Played, SCHEDULES, kept, read};
    use crate::schedule::Store;

    #[test]
    fn the_kept_seeds_can_be_read_and_every_kept_schedule_is_one_of_them() {
        let all = kept().unwrap();
        let is_schedule = |kept: &&Kept| matches!(kept.what, Played::Schedule(_));
        assert_eq!(all.iter().filter(is_schedule).count(), SCHEDULES.len());
    }

    #[test]
    fn a_seed_is_kept_with_its_reason_or_not_at_all() {
        let seeds = read("# a remark\n\npostgres 3 17 # the fence was ignored\n").unwrap();
        assert_eq!(seeds, [Kept { store: Store::Postgres, nodes: 3, what: Played::Seed(17) }]);
        for wrong in [
            "embedded 1 17",
            "embedded 1 17 # ",
            "embedded 17 # x",
            "sled 1 17 # x",
            "embedded 1 x # x",
            "embedded 1 none.json # x",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
