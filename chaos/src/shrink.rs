//! Shrinking: a smaller schedule that fails in the same way.
//!
//! Owns the search, bounded in time: steps are taken out, the load is made less. What the operating system does is not drawn from a
//! seed, so that a smaller schedule is tried more than once before it counts as harmless.

use std::time::Duration;

use anyhow::Result;
use tokio::time::Instant;

use crate::{
    load::Doing,
    progress::Progress,
    round::{self, Workshop},
    schedule::Schedule,
};

/// How often a smaller schedule is tried.
const TRIES: u32 = 2;
/// How long the search takes at most.
const LIMIT: Duration = Duration::from_secs(240);

/// Looks for a smaller schedule that fails with the first of these, be it an invariant or what the harness says.
pub(crate) async fn shrink(
    shop: &mut Workshop,
    failed: &Schedule,
    wrong: &[String],
    progress: &Progress,
) -> Result<Schedule> {
    let until = Instant::now() + LIMIT;
    // The gravest stands first: a smaller schedule that only shows a lesser fault is none.
    let kind = wrong.first().map(|line| kind_of(line)).unwrap_or_default();
    let mut best = failed.clone();
    let mut number = 900_000_u64;
    loop {
        let mut smaller = None;
        for candidate in candidates(&best) {
            for _ in 0..TRIES {
                if Instant::now() >= until {
                    return Ok(best);
                }
                number = number.saturating_add(1);
                let round = round::play(shop, &candidate, number).await?;
                round::forget(&round.folder);
                if round.judgement.wrong.iter().any(|line| kind_of(line) == kind) {
                    smaller = Some(candidate.clone());
                    break;
                }
            }
            if smaller.is_some() {
                break;
            }
        }
        match smaller {
            Some(candidate) => {
                progress.line(&format!("  smaller: {}", describe(&candidate)));
                best = candidate;
            }
            None => return Ok(best),
        }
    }
}

/// What a violation is, without whom it concerns.
fn kind_of(line: &str) -> String {
    line.split(':')
        .next()
        .unwrap_or_default()
        .chars()
        .filter(|c| !c.is_ascii_digit() || line.starts_with('I'))
        .collect()
}

/// Schedules that are one thing smaller.
fn candidates(schedule: &Schedule) -> Vec<Schedule> {
    let mut all = Vec::new();
    for at in 0..schedule.steps.len() {
        let mut smaller = schedule.clone();
        smaller.steps.remove(at);
        all.push(smaller);
    }
    for (doing, weight) in &schedule.load.weights {
        if *weight > 0 && *doing != Doing::Call {
            let mut smaller = schedule.clone();
            smaller.load.weights.insert(*doing, 0);
            all.push(smaller);
        }
    }
    if schedule.load.clients > 1 {
        let mut smaller = schedule.clone();
        smaller.load.clients = schedule.load.clients.div_euclid(2);
        all.push(smaller);
    }
    if schedule.load.calls_max > 20 {
        let mut smaller = schedule.clone();
        smaller.load.calls_max = schedule.load.calls_max.div_euclid(3);
        all.push(smaller);
    }
    if schedule.nodes > 1 {
        let mut smaller = schedule.clone();
        smaller.nodes = 1;
        smaller.steps.iter_mut().for_each(|step| step.node = 0);
        all.push(smaller);
    }
    all
}

/// A schedule in a line.
pub(crate) fn describe(schedule: &Schedule) -> String {
    let steps: Vec<String> =
        schedule.steps.iter().map(|step| format!("{} {:?}", step.act.fault(), step.act)).collect();
    let doings: Vec<String> = schedule
        .load
        .weights
        .iter()
        .filter(|(_, weight)| **weight > 0)
        .map(|(doing, _)| format!("{doing:?}").to_lowercase())
        .collect();
    format!(
        "{} nodes, {} clients ({}), steps: {}",
        schedule.nodes,
        schedule.load.clients,
        doings.join(" "),
        if steps.is_empty() { "none".to_owned() } else { steps.join("; ") }
    )
}

#[cfg(test)]
mod tests {
    use placet_chaos::history::fault::FaultKind;

    use super::{candidates, kind_of};
    use crate::schedule::{Frame, Store, draw};

    #[test]
    fn every_candidate_is_smaller_in_one_thing_and_none_is_left_in_the_end() {
        let frame = Frame {
            store: Store::Embedded,
            nodes: 1,
            length_ms: 1_000,
            faults: FaultKind::ALL.iter().copied().collect(),
        };
        let mut schedule = draw(3, &frame);
        let mut steps = 0;
        while let Some(smaller) = candidates(&schedule).into_iter().next() {
            assert_ne!(smaller, schedule);
            schedule = smaller;
            steps += 1;
            assert!(steps < 100, "it never ends");
        }
        assert!(schedule.steps.is_empty());
    }

    #[test]
    fn the_same_invariant_is_the_same_kind_whomever_it_concerns() {
        assert_eq!(kind_of("I1: key a: twice"), kind_of("I1: key b: thrice"));
        assert_ne!(kind_of("I1: key a: twice"), kind_of("I12: key a: twice"));
        assert_eq!(kind_of("node 0 ended by itself"), kind_of("node 2 ended by itself"));
    }
}
