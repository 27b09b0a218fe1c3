//! The report of a run: what was done to it, the results, and whether the promises were kept.
//!
//! Owns the numbers of all rounds and their text. Invariant: a run passes only if every promise was checked and kept in every round,
//! and nothing else was found.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt::Write as _,
};

use placet_testkit::moment::Moment;

use crate::{
    checker::{Invariant, KeyId, Verdict, Violation},
    history::{
        Event, What,
        fault::FaultKind,
        node::NodeChange,
        request::{Answer, Reply, Sent, Why},
    },
    witness::log::{Line, Seen},
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

/// The numbers of a run.
#[derive(Debug, Default)]
pub struct Report {
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

/// When a request was sent, and which.
type SentAt<'a> = (Moment, &'a Sent);

/// The results for one key.
#[derive(Debug, Default)]
struct Key<'a> {
    /// The first success: its arguments and its digest.
    done: Option<(Moment, &'a str, &'a str)>,
    /// Effects by token: another token is another arm, which operators requested.
    effects: BTreeMap<&'a str, u64>,
    unknown: bool,
}

impl Report {
    /// Adds a round.
    pub fn take(&mut self, events: &[Event], witness: &[Line], verdict: &Verdict) {
        self.rounds = self.rounds.saturating_add(1);
        if let (Some(first), Some(last)) = (events.first(), events.last()) {
            self.lasted_ms = self.lasted_ms.saturating_add(last.at.ms_since(first.at));
        }
        let mut sent: HashMap<u64, SentAt<'_>> = HashMap::new();
        let mut keys: BTreeMap<KeyId, Key<'_>> = BTreeMap::new();
        for event in events {
            match &event.what {
                What::Sent(one) => {
                    self.asked(one);
                    sent.insert(one.request, (event.at, one));
                    if let Some(id) = KeyId::of(one) {
                        keys.entry(id).or_default();
                    }
                }
                What::Reply(reply) => {
                    let Some((at, one)) = sent.get(&reply.request) else { continue };
                    self.latency.push(event.at.ms_since(*at));
                    if let Some(key) = KeyId::of(one).and_then(|id| keys.get_mut(&id)) {
                        learn(key, event.at, one, reply);
                    }
                }
                What::Lost(_) => self.count("unanswered", 1),
                What::VoteSent(_) => self.count("votes", 1),
                What::GrantAsked(_) => self.count("grants", 1),
                What::Node(node) => self.became(&node.change),
                What::Fault(fault) => {
                    let count = self.faults.entry(fault.kind).or_default();
                    *count = count.saturating_add(1);
                }
                What::Run(_)
                | What::VoteReply(_)
                | What::Operator(_)
                | What::Injecting
                | What::Phase(_)
                | What::Probe(_) => {}
            }
        }
        self.effects(&mut keys, witness);
        self.count("keys", keys.len());
        self.count("acknowledged", keys.values().filter(|key| key.done.is_some()).count());
        self.count("unknown keys", keys.values().filter(|key| key.unknown).count());
        self.replays(events, &sent, &keys);
        for violation in &verdict.violations {
            let count = self.broken.entry(violation.invariant).or_default();
            *count = count.saturating_add(1);
        }
        self.violations.extend(verdict.violations.iter().cloned());
        let unchecked = verdict.unchecked.iter();
        self.unchecked.extend(unchecked.map(|one| format!("{}: {}", one.invariant, one.missing)));
    }

    /// Adds further findings of the run.
    pub fn find(&mut self, findings: impl IntoIterator<Item = String>) {
        self.findings.extend(findings);
    }

    fn count(&mut self, what: &'static str, by: usize) {
        let count = self.counts.entry(what).or_default();
        *count = count.saturating_add(u64::try_from(by).unwrap_or(u64::MAX));
    }

    fn counted(&self, what: &str) -> u64 {
        self.counts.get(what).copied().unwrap_or_default()
    }

    fn asked(&mut self, sent: &Sent) {
        if sent.why != Why::Poll {
            self.count("calls", 1);
            self.count("duplicates", usize::from(sent.why.is_duplicate()));
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

    /// Counts effects; their key is found by the caller's key if only one principal uses it.
    fn effects<'a>(&mut self, keys: &mut BTreeMap<KeyId, Key<'a>>, witness: &'a [Line]) {
        let mut owners: HashMap<(String, String), Option<KeyId>> = HashMap::new();
        for id in keys.keys() {
            let tool = id.capability.rsplit('/').next().unwrap_or_default().to_owned();
            let owner = owners.entry((tool, id.key.clone()));
            owner.and_modify(|known| *known = None).or_insert_with(|| Some(id.clone()));
        }
        for line in witness {
            let Seen::Effect { arrival, .. } = &line.what else { continue };
            self.count("effects", 1);
            let owner = owners.get(&(arrival.tool.clone(), arrival.key.clone())).cloned();
            if let Some(key) = owner.flatten().and_then(|id| keys.get_mut(&id)) {
                let count = key.effects.entry(&arrival.token).or_default();
                *count = count.saturating_add(1);
            }
        }
    }

    /// How duplicates were answered that were sent after a success was acknowledged (TM-21).
    fn replays(
        &mut self,
        events: &[Event],
        sent: &HashMap<u64, SentAt<'_>>,
        keys: &BTreeMap<KeyId, Key<'_>>,
    ) {
        for event in events {
            let What::Reply(reply) = &event.what else { continue };
            let duplicates = sent.get(&reply.request).filter(|(_, one)| one.why.is_duplicate());
            let Some((at, one)) = duplicates else { continue };
            let Some(key) = KeyId::of(one).and_then(|id| keys.get(&id)) else { continue };
            let Some((since, args, digest)) = key.done else { continue };
            // Refusals that are about the moment, and not about the call, say nothing about replays.
            if *at <= since || matches!(reply.answer, Answer::Refused | Answer::Expired) {
                continue;
            }
            self.count("replays judged", 1);
            let same = reply.result.as_ref().is_some_and(|result| result.digest == digest);
            let is_single = key.effects.values().all(|effects| *effects <= 1);
            let replayed = reply.answer == Answer::Succeeded && reply.replayed && same && is_single;
            let refused = reply.answer == Answer::Conflict;
            let is_correct = if one.args == args { replayed } else { refused };
            self.count("replays correct", usize::from(is_correct));
        }
    }

    /// Whether all is well.
    pub fn passed(&self) -> bool {
        self.rounds > 0
            && self.violations.is_empty()
            && self.unchecked.is_empty()
            && self.findings.is_empty()
    }

    /// The report as text.
    pub fn text(&self) -> String {
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

fn learn<'a>(key: &mut Key<'a>, at: Moment, sent: &'a Sent, reply: &'a Reply) {
    key.unknown |= reply.answer == Answer::Unknown;
    if let (Answer::Succeeded, Some(result), None) = (reply.answer, &reply.result, &key.done) {
        key.done = Some((at, &sent.args, &result.digest));
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
