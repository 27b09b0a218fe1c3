//! The report of a run: what was done to it, the results, and whether the promises were kept.
//!
//! Owns the numbers of all rounds and their text. Invariant: a run passes only if every promise was checked and kept in every round,
//! and nothing else was found.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use crate::{
    checker::{End, Invariant, Op, Story, Verdict, Violation, World},
    history::{Event, fault::FaultKind, node::NodeChange, request::Answer},
    witness::log::Line,
};

/// How many violations are shown in full.
const TOLD_MAX: usize = 20;
/// The counters, in the order in which they are shown.
const COUNTED: [&str; 15] = [
    "kills",
    "pauses",
    "ends by themselves",
    "failed starts",
    "calls",
    "keys",
    "duplicates",
    "unanswered",
    "votes",
    "grants",
    "effects",
    "acknowledged",
    "unknown keys",
    "replays judged",
    "replays correct",
];

#[derive(Debug, Default)]
pub(crate) struct Report {
    rounds: u64,
    lasted_ms: u64,
    counts: BTreeMap<&'static str, u64>,
    faults: BTreeMap<FaultKind, u64>,
    recovery: Vec<u64>,
    latency: Vec<u64>,
    broken: BTreeMap<Invariant, u64>,
    violations: Vec<Violation>,
    unchecked: BTreeSet<String>,
    findings: Vec<String>,
}

impl Report {
    /// Adds a round.
    pub(crate) fn take(&mut self, events: &[Event], witness: &[Line], verdict: &Verdict) {
        self.rounds = self.rounds.saturating_add(1);
        if let (Some(first), Some(last)) = (events.first(), events.last()) {
            self.lasted_ms = self.lasted_ms.saturating_add(last.at.ms_since(first.at));
        }
        let world = World::of(events, witness);
        let requested = world.keys.values().flat_map(|story| &story.ops);
        requested.chain(&world.reads).for_each(|op| self.request(op));
        self.count("votes", world.votes.len());
        self.count("grants", world.grants.len());
        world.changes.iter().for_each(|(_, _, change)| self.became(change));
        for (_, fault) in &world.faults {
            let count = self.faults.entry(fault.kind).or_default();
            *count = count.saturating_add(1);
        }
        self.count("effects", world.by_token.values().map(Vec::len).sum());
        for story in world.keys.values().filter(|story| !story.ops.is_empty()) {
            self.key(&world, story);
        }
        for violation in &verdict.violations {
            let count = self.broken.entry(violation.invariant).or_default();
            *count = count.saturating_add(1);
        }
        self.violations.extend(verdict.violations.iter().cloned());
        let unchecked = verdict.unchecked.iter();
        self.unchecked.extend(unchecked.map(|one| format!("{}: {}", one.invariant, one.missing)));
    }

    /// Adds further findings of the run.
    pub(crate) fn find(&mut self, findings: impl IntoIterator<Item = String>) {
        self.findings.extend(findings);
    }

    fn count(&mut self, what: &'static str, by: usize) {
        let count = self.counts.entry(what).or_default();
        *count = count.saturating_add(u64::try_from(by).unwrap_or(u64::MAX));
    }

    fn counted(&self, what: &str) -> u64 {
        self.counts.get(what).copied().unwrap_or_default()
    }

    fn request(&mut self, op: &Op<'_>) {
        if op.is_call() {
            self.count("calls", 1);
            self.count("duplicates", usize::from(op.sent.why.is_duplicate()));
        }
        match op.end {
            Some((at, End::Reply(_))) => self.latency.push(at.ms_since(op.at)),
            Some((_, End::Lost(_))) => self.count("unanswered", 1),
            None => {}
        }
    }

    fn became(&mut self, change: &NodeChange) {
        match change {
            NodeChange::Killed => self.count("kills", 1),
            NodeChange::Paused => self.count("pauses", 1),
            NodeChange::Exited { .. } => self.count("ends by themselves", 1),
            NodeChange::Refused { .. } => self.count("failed starts", 1),
            NodeChange::Ready { after_ms } => self.recovery.push(*after_ms),
            NodeChange::Started { .. }
            | NodeChange::Resumed
            | NodeChange::StopAsked
            | NodeChange::Stopped { .. }
            | NodeChange::ClockShifted { .. } => {}
        }
    }

    /// How a key ended, and how duplicates were answered that were sent after a success was acknowledged (TM-21).
    fn key(&mut self, world: &World<'_>, story: &Story<'_>) {
        self.count("keys", 1);
        let is_unknown = story.ops.iter().any(|op| op.answer() == Some(Answer::Unknown));
        self.count("unknown keys", usize::from(is_unknown));
        let Some((done, since)) = story.first_success() else { return };
        self.count("acknowledged", 1);
        let is_same = |op: &Op<'_>| {
            let (Some(one), Some(first)) = (op.success(), done.success()) else { return false };
            let (one, first) = (one.1, first.1);
            // Each protocol gives a result a form of its own.
            let is_one_form = op.sent.over == done.sent.over;
            if is_one_form { one.digest == first.digest } else { one.token == first.token }
        };
        // Another token is another arm, which operators requested.
        let is_single = story.effects.iter().all(|effect| {
            world.by_token.get(effect.arrival.token.as_str()).is_none_or(|all| all.len() <= 1)
        });
        for op in story.ops.iter().filter(|op| op.sent.why.is_duplicate() && op.at > since) {
            let Some((_, reply)) = op.reply() else { continue };
            // Refusals that are about the moment, and not about the call, say nothing about replays.
            if matches!(reply.answer, Answer::Refused | Answer::Expired) {
                continue;
            }
            self.count("replays judged", 1);
            let is_correct = if op.sent.args == done.sent.args {
                reply.replayed && is_same(op) && is_single
            } else {
                reply.answer == Answer::Conflict
            };
            self.count("replays correct", usize::from(is_correct));
        }
    }

    pub(crate) fn passed(&self) -> bool {
        self.rounds > 0
            && self.violations.is_empty()
            && self.unchecked.is_empty()
            && self.findings.is_empty()
    }

    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |words: String| {
            text.push_str(&words);
            text.push('\n');
        };
        line(format!("{} rounds, {} s", self.rounds, self.lasted_ms / 1_000));
        for what in COUNTED {
            line(format!("{what:<20}{:>9}", self.counted(what)));
        }
        let double = self.broken_of(&[Invariant::I1]);
        let lost = self.broken_of(&[Invariant::I3]);
        let hung = self.broken_of(&[Invariant::I13]);
        let phantom = self.broken_of(&[Invariant::I12, Invariant::Real]);
        line(format!("double {double}, lost {lost}, hung {hung}, phantom {phantom}"));
        for (name, times) in [("recovery", &self.recovery), ("answers", &self.latency)] {
            line(format!("{name:<12}p50 {} ms, p99 {} ms", at(times, 50), at(times, 99)));
        }
        for kind in FaultKind::ALL {
            let count = self.faults.get(kind).copied().unwrap_or_default();
            line(format!("{:<4}{count:>9}  {}", kind.name(), kind.title()));
        }
        for invariant in Invariant::ALL {
            let broken = self.broken.get(invariant).copied().unwrap_or_default();
            let verdict =
                if broken == 0 { "kept".to_owned() } else { format!("BROKEN {broken} times") };
            line(format!("{:<5}{verdict:<18} {}", invariant.name(), invariant.title()));
        }
        for violation in self.violations.iter().take(TOLD_MAX) {
            line(format!("\n{violation}"));
        }
        for missing in &self.unchecked {
            line(format!("NOT CHECKED {missing}"));
        }
        for finding in &self.findings {
            line(format!("FOUND {finding}"));
        }
        let end = if self.passed() { "PASSED" } else { "FAILED" };
        // Writing to a string cannot fail.
        write!(text, "{end}").unwrap_or_default();
        text
    }

    fn broken_of(&self, promises: &[Invariant]) -> u64 {
        promises.iter().filter_map(|one| self.broken.get(one)).sum()
    }
}

/// The smallest time that at least this many percent do not exceed.
fn at(times: &[u64], hundredths: usize) -> u64 {
    let mut times = times.to_vec();
    times.sort_unstable();
    let place = times.len().saturating_mul(hundredths).div_ceil(100).saturating_sub(1);
    times.get(place).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests;
