//! Parts of promises that came up on a store, and were never judged there.
//!
//! Owns the finding of them, over all rounds on a store: what one round has to leave out, another one judges. Not here: whether that
//! fails a run.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;

use super::Report;
use crate::checker::{Part, Tally};

/// A part of a promise that came up on a store, and of which nothing was judged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NeverJudged {
    /// The part, by its name.
    pub part: &'static str,
    /// What it says.
    pub title: &'static str,
    /// On which store.
    pub store: String,
    /// How much it could not be held against, by why.
    pub unjudged: BTreeMap<String, u64>,
}

impl NeverJudged {
    /// Those of some rounds. What is judged on one store says nothing of another.
    #[must_use]
    pub fn among(rounds: &[Report]) -> Vec<Self> {
        let mut sums: BTreeMap<(&str, Part), Tally> = BTreeMap::new();
        for round in rounds {
            for part in Part::ALL {
                if let Some(tally) = round.tallies.get(part.name()) {
                    sums.entry((round.store(), *part)).or_default().add(tally);
                }
            }
        }
        let gaps = sums.into_iter().filter(|(_, tally)| tally.is_gap());
        let told = |((store, part), tally): ((&str, Part), Tally)| Self {
            part: part.name(),
            title: part.title(),
            store: store.to_owned(),
            unjudged: tally.unjudged,
        };
        gaps.map(told).collect()
    }
}

impl fmt::Display for NeverJudged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whys = self.unjudged.iter().map(|(why, count)| format!("{count} × {why}"));
        let whys: Vec<String> = whys.collect();
        let Self { part, title, store, .. } = self;
        write!(f, "{part} ({title}) was never judged on {store}: {}", whys.join(", "))
    }
}
