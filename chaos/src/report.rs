//! The report of a run: what was done to it, what it did, and whether it kept its promises.
//!
//! Owns the numbers and their two forms: text and JSON. Invariant: a run passes only if every promise was checked and kept,
//! and every fault that can happen did. A whole run passes only if each part of a promise that came up on a store was judged there once.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    checker::{Invariant, Part, Tally, Unchecked, Verdict, Violation},
    history::{
        Class, Event, RunInfo,
        fault::FaultKind,
        request::{Answer, Loss, Why},
    },
    witness::log::Line,
};

mod count;
mod gaps;
mod merge;
mod spread;
mod text;

pub use gaps::NeverJudged;
pub use spread::Spread;

/// What helps where a part of a promise was never judged.
const JUDGED_BY: &str =
    "run it for longer (--minutes), or again: without --seed each run draws other rounds";

/// The numbers of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Whether it passed.
    pub passed: bool,
    /// What was run; of several rounds, the first.
    pub run: Option<RunInfo>,
    /// How many rounds it is about.
    pub rounds: u64,
    /// Rounds beside these that came to nothing before their load began, as when a database server took too long to start.
    pub unplayed: u64,
    /// On what, such as «embedded, 1 node».
    pub set_ups: Vec<String>,
    /// From the first event to the last, in milliseconds.
    pub lasted_ms: u64,
    /// What was done to it.
    pub trouble: Trouble,
    /// What was asked of it.
    pub asked: Asked,
    /// What came of it.
    pub outcome: Outcome,
    /// How long nodes took to take calls again, in milliseconds.
    pub recovery: Spread,
    /// How long answers took, in milliseconds.
    pub latency: Spread,
    /// Broken promises by name, zeros too.
    pub broken: BTreeMap<&'static str, u64>,
    /// How much was judged, and how much was not and why, of each part that may have to be left out, by its name.
    pub tallies: BTreeMap<&'static str, Tally>,
    /// Parts that came up on a store, and of which nothing was judged there.
    pub never_judged: Vec<NeverJudged>,
    /// Whether it is about a whole run, which these make fail; of one schedule, or of chosen rounds, they are only told.
    pub is_whole_run: bool,
    /// Broken promises.
    pub violations: Vec<Violation>,
    /// What could not be checked.
    pub unchecked: Vec<Unchecked>,
    /// What else is wrong, as the one who ran it says.
    pub findings: Vec<String>,
}

/// What was done to the system.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Trouble {
    /// Processes killed.
    pub kills: u64,
    /// Processes paused.
    pub pauses: u64,
    /// Starts that were refused, rightly.
    pub refusals: u64,
    /// Starts that came to nothing under a fault that explains it.
    pub failed_starts: u64,
    /// Processes that ended by themselves.
    pub exits: u64,
    /// Faults by kind.
    pub faults: BTreeMap<FaultKind, u64>,
    /// Faults that can happen in this set-up and did not.
    pub never: Vec<FaultKind>,
}

/// What was asked of the system.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Asked {
    /// Requests, looks aside.
    pub calls: u64,
    /// Keys they were about.
    pub keys: u64,
    /// Calls by class.
    pub classes: BTreeMap<Class, u64>,
    /// Duplicates.
    pub duplicates: u64,
    /// Duplicates by why they were sent.
    pub kinds: BTreeMap<Why, u64>,
    /// Requests whose answer was lost.
    pub unanswered: u64,
    /// Of these, by how it was lost.
    pub losses: BTreeMap<Loss, u64>,
    /// Votes.
    pub votes: u64,
    /// Standing grants that were asked for.
    pub grants: u64,
}

/// What came of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// Answers by what they say.
    pub answers: BTreeMap<Answer, u64>,
    /// Keys of which a success was acknowledged.
    pub acknowledged: u64,
    /// Effects at the witness.
    pub effects: u64,
    /// Acknowledged results that were lost.
    pub lost: u64,
    /// Answers about effects that are not true.
    pub phantom: u64,
    /// Effects that happened twice.
    pub double: u64,
    /// Requests, records or nodes that never came to an end.
    pub hung: u64,
    /// Keys of which somebody was told that the outcome is unknown.
    pub indeterminate: u64,
    /// Their share of all keys.
    pub indeterminate_rate: f64,
    /// How duplicates of settled calls were answered (TM-21).
    pub replay: Replay,
}

/// Correctness of replays under injected duplicates.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Replay {
    /// Duplicates that were answered and could be judged.
    pub judged: u64,
    /// Those that were answered as they had to be, without another effect.
    pub correct: u64,
    /// Their share; 1 when there were none.
    pub rate: f64,
}

impl Report {
    /// The report of a run.
    #[must_use]
    pub fn of(events: &[Event], witness: &[Line], verdict: &Verdict) -> Self {
        let counted = count::count(events, witness);
        let trouble = counted.trouble;
        let run = counted.run.cloned();
        let passed = verdict.is_clean() && trouble.never.is_empty() && run.is_some();
        let set_ups = run.iter().map(set_up).collect();
        let broken = Invariant::ALL
            .iter()
            .map(|invariant| (invariant.name(), length(verdict.of(*invariant).count())))
            .collect();
        let tallies =
            verdict.tallies.iter().map(|(of, tally)| (of.name(), tally.clone())).collect();
        let outcome = Outcome {
            lost: length(verdict.of(Invariant::I3).count()),
            phantom: length(verdict.of(Invariant::I12).chain(verdict.of(Invariant::Real)).count()),
            double: length(verdict.of(Invariant::I1).count()),
            hung: length(verdict.of(Invariant::I13).count()),
            ..counted.outcome
        };
        let mut report = Self {
            passed,
            run,
            rounds: 1,
            unplayed: 0,
            set_ups,
            lasted_ms: counted.lasted_ms,
            trouble,
            asked: counted.asked,
            outcome,
            recovery: counted.recovery,
            latency: counted.latency,
            broken,
            tallies,
            never_judged: Vec::new(),
            is_whole_run: false,
            violations: verdict.violations.clone(),
            unchecked: verdict.unchecked.clone(),
            findings: Vec::new(),
        };
        report.never_judged = NeverJudged::among(std::slice::from_ref(&report));
        report
    }

    /// The report with what else is wrong, which makes it fail.
    #[must_use]
    pub fn with_findings(mut self, findings: impl IntoIterator<Item = String>) -> Self {
        self.findings.extend(findings);
        self.passed &= self.findings.is_empty();
        self
    }

    /// The report with the rounds that could not be played.
    #[must_use]
    pub const fn with_unplayed(mut self, rounds: u64) -> Self {
        self.unplayed = rounds;
        self
    }

    /// The report of a whole run, which fails where something was never judged though it came up.
    #[must_use]
    pub fn of_whole_run(mut self) -> Self {
        self.is_whole_run = true;
        self.passed &= self.never_judged.is_empty();
        self
    }

    /// On which store it was run; of several rounds, the first.
    #[must_use]
    pub fn store(&self) -> &str {
        self.run.as_ref().map_or("a store that is not named", |run| run.store.as_str())
    }

    /// How much a part of a promise was held against.
    #[must_use]
    pub fn judged(&self, part: Part) -> u64 {
        self.tallies.get(part.name()).map_or(0, |tally| tally.judged)
    }

    /// Several rounds as one report. `never` are the faults that could happen in some round and did in none.
    #[must_use]
    pub fn merged(rounds: &[Self], never: &[FaultKind]) -> Self {
        merge::merged(rounds, never)
    }

    /// Whether the run passed.
    #[must_use]
    pub const fn passed(&self) -> bool {
        self.passed
    }

    /// For people at a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        text::render(self)
    }

    /// For programs.
    ///
    /// # Errors
    /// When a figure is no number that JSON knows.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self)
    }

    /// Why it did not pass, a line for each reason.
    #[must_use]
    pub fn reasons(&self) -> Vec<String> {
        let broken = self.broken.iter().filter(|(_, count)| **count > 0);
        let mut reasons: Vec<String> =
            broken.map(|(name, count)| format!("{name} was broken {count} times")).collect();
        reasons.extend(
            self.unchecked
                .iter()
                .map(|one| format!("{} was not checked: {}", one.invariant, one.missing)),
        );
        reasons.extend(
            self.trouble
                .never
                .iter()
                .map(|kind| format!("{kind} never happened: {}", kind.title())),
        );
        if self.run.is_none() {
            reasons.push("the history does not say what was run".to_owned());
        }
        reasons.extend(self.findings.iter().cloned());
        if self.is_whole_run {
            reasons.extend(self.never_judged.iter().map(|gap| format!("{gap}; {JUDGED_BY}")));
        }
        reasons
    }

    /// What was never judged though it came up, where that fails nothing, a line for each.
    fn notes(&self) -> impl Iterator<Item = String> {
        let told = self.never_judged.iter().filter(move |_| !self.is_whole_run);
        told.map(|gap| format!("{gap}; a whole run would fail"))
    }
}

fn set_up(run: &RunInfo) -> String {
    let nodes = if run.nodes == 1 { "node" } else { "nodes" };
    format!("{}, {} {nodes}", run.store, run.nodes)
}

fn length(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// A share of a whole; `empty` where there is no whole.
fn share(part: u64, whole: u64, empty: f64) -> f64 {
    let number = |count: u64| u32::try_from(count).map_or(f64::from(u32::MAX), f64::from);
    if whole == 0 { empty } else { number(part) / number(whole) }
}

#[cfg(test)]
mod tests;
