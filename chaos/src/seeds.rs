//! The schedules of rounds that showed a fault once, and of those that every run has to have: they are played first in every run.
//!
//! Owns their list, with the reason for keeping each.

use anyhow::{Context as _, Result};

use crate::schedule::Schedule;

/// Each with its reason, in `seeds/README.md`.
const KEPT: [(&str, &str); 4] = [
    ("clock-and-window", include_str!("../seeds/clock-and-window.json")),
    ("erasure", include_str!("../seeds/erasure.json")),
    ("failover", include_str!("../seeds/failover.json")),
    ("not-found", include_str!("../seeds/not-found.json")),
];

pub(crate) fn kept() -> Result<Vec<Schedule>> {
    KEPT.iter()
        .map(|(name, text)| {
            serde_json::from_str(text).with_context(|| format!("the kept schedule `{name}`"))
        })
        .collect()
}

#[cfg(test)]
mod tests {

    use super::{KEPT, kept};
    use crate::{
        history::fault::FaultKind,
        schedule::{Act, Schedule, Store, faults_of},
    };

    #[test]
    fn every_kept_schedule_can_be_read_and_says_why_it_is_kept() {
        assert_eq!(kept().unwrap().len(), KEPT.len());
        let reasons = include_str!("../seeds/README.md");
        for (name, _) in KEPT {
            assert!(reasons.contains(&format!("`{name}.json`")), "{name}");
        }
    }

    #[test]
    fn every_store_has_one_that_moves_no_clock_and_stops_a_node_under_load() {
        let is_calm = |one: &&Schedule| !faults_of(one).contains(&FaultKind::F10);
        let stops = |one: &Schedule| one.steps.iter().any(|step| step.act == Act::Stop);
        let kept = kept().unwrap();
        for store in [Store::Embedded, Store::Postgres] {
            let own = kept.iter().filter(|one| one.store == store);
            assert!(own.filter(is_calm).any(stops), "{store:?}");
        }
    }
}
