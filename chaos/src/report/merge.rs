//! Several rounds as one report.
//!
//! Owns the adding up. Invariant: nothing that was wrong in a round is right in the whole; only a fault that did not happen in one
//! round may have happened in another.

use std::collections::BTreeMap;

use super::{Asked, NeverJudged, Outcome, Report, Spread, Trouble, share};
use crate::{checker::Tally, history::fault::FaultKind};

pub(super) fn merged(rounds: &[Report], never: &[FaultKind]) -> Report {
    let sum = |of: fn(&Report) -> u64| total(rounds.iter().map(of));
    let run = rounds.iter().find_map(|round| round.run.clone()).map(|mut run| {
        let all = rounds.iter().filter_map(|round| round.run.as_ref());
        run.applicable = all.flat_map(|run| run.applicable.iter().copied()).collect();
        run.applicable.sort_unstable();
        run.applicable.dedup();
        run
    });
    let mut set_ups: Vec<String> = rounds.iter().flat_map(|round| round.set_ups.clone()).collect();
    set_ups.sort();
    set_ups.dedup();
    let violations = rounds.iter().flat_map(|round| round.violations.clone()).collect::<Vec<_>>();
    let mut unchecked: Vec<_> = rounds.iter().flat_map(|round| round.unchecked.clone()).collect();
    unchecked.sort_by(|a, b| (a.invariant, &a.missing).cmp(&(b.invariant, &b.missing)));
    unchecked.dedup();
    let findings: Vec<String> = rounds.iter().flat_map(|round| round.findings.clone()).collect();
    let fine = [violations.is_empty(), unchecked.is_empty(), findings.is_empty(), never.is_empty()];
    Report {
        passed: run.is_some() && fine.into_iter().all(|fine| fine),
        run,
        rounds: sum(|round| round.rounds),
        unplayed: sum(|round| round.unplayed),
        set_ups,
        lasted_ms: sum(|round| round.lasted_ms),
        trouble: trouble(rounds, never),
        asked: asked(rounds),
        outcome: outcome(rounds),
        recovery: spread(rounds, |round| &round.recovery),
        latency: spread(rounds, |round| &round.latency),
        broken: counts(rounds.iter().map(|round| &round.broken)),
        tallies: tallies(rounds),
        never_judged: NeverJudged::among(rounds),
        is_whole_run: false,
        violations,
        unchecked,
        findings,
    }
}

fn total(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

fn counts<'a, K: Ord + Copy + 'a>(
    all: impl Iterator<Item = &'a BTreeMap<K, u64>>,
) -> BTreeMap<K, u64> {
    let mut counts = BTreeMap::new();
    for (key, count) in all.flatten() {
        let known: &mut u64 = counts.entry(*key).or_default();
        *known = known.saturating_add(*count);
    }
    counts
}

fn tallies(rounds: &[Report]) -> BTreeMap<&'static str, Tally> {
    let mut tallies: BTreeMap<&'static str, Tally> = BTreeMap::new();
    for (name, tally) in rounds.iter().flat_map(|round| &round.tallies) {
        tallies.entry(name).or_default().add(tally);
    }
    tallies
}

fn trouble(rounds: &[Report], never: &[FaultKind]) -> Trouble {
    let sum = |of: fn(&Trouble) -> u64| total(rounds.iter().map(|round| of(&round.trouble)));
    Trouble {
        kills: sum(|trouble| trouble.kills),
        pauses: sum(|trouble| trouble.pauses),
        refusals: sum(|trouble| trouble.refusals),
        failed_starts: sum(|trouble| trouble.failed_starts),
        exits: sum(|trouble| trouble.exits),
        faults: counts(rounds.iter().map(|round| &round.trouble.faults)),
        never: never.to_vec(),
    }
}

fn asked(rounds: &[Report]) -> Asked {
    let sum = |of: fn(&Asked) -> u64| total(rounds.iter().map(|round| of(&round.asked)));
    Asked {
        calls: sum(|asked| asked.calls),
        keys: sum(|asked| asked.keys),
        classes: counts(rounds.iter().map(|round| &round.asked.classes)),
        duplicates: sum(|asked| asked.duplicates),
        kinds: counts(rounds.iter().map(|round| &round.asked.kinds)),
        unanswered: sum(|asked| asked.unanswered),
        losses: counts(rounds.iter().map(|round| &round.asked.losses)),
        votes: sum(|asked| asked.votes),
        grants: sum(|asked| asked.grants),
    }
}

fn outcome(rounds: &[Report]) -> Outcome {
    let sum = |of: fn(&Outcome) -> u64| total(rounds.iter().map(|round| of(&round.outcome)));
    let keys = total(rounds.iter().map(|round| round.asked.keys));
    let mut outcome = Outcome {
        answers: counts(rounds.iter().map(|round| &round.outcome.answers)),
        acknowledged: sum(|outcome| outcome.acknowledged),
        effects: sum(|outcome| outcome.effects),
        lost: sum(|outcome| outcome.lost),
        phantom: sum(|outcome| outcome.phantom),
        double: sum(|outcome| outcome.double),
        hung: sum(|outcome| outcome.hung),
        indeterminate: sum(|outcome| outcome.indeterminate),
        ..Outcome::default()
    };
    outcome.indeterminate_rate = share(outcome.indeterminate, keys, 0.0);
    outcome.replay.judged = sum(|outcome| outcome.replay.judged);
    outcome.replay.correct = sum(|outcome| outcome.replay.correct);
    outcome.replay.rate = share(outcome.replay.correct, outcome.replay.judged, 1.0);
    outcome
}

fn spread(rounds: &[Report], of: fn(&Report) -> &Spread) -> Spread {
    Spread::of(rounds.iter().flat_map(|round| of(round).times.iter().copied()).collect())
}
