//! The run, indexed by subject.
//!
//! Owns joining history, witness and ledger. Judges only whether the input is complete.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{
    Findings, Invariant, order,
    story::{Came, Effect, End, KeyId, Op, Story, Written},
};
use crate::{
    history::{
        Event, Phase, RunInfo, What,
        fault::FaultEvent,
        journal::{JournalEntry, RecordChange},
        node::NodeChange,
        people::{GrantAsked, OperatorAct, VoteReply, VoteSent},
        probe::Probe,
        request::{Reply, Sent},
    },
    witness::log::{Line, Seen},
};
use placet_testkit::moment::Moment;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Voted<'a> {
    pub(crate) at: Moment,
    pub(crate) sent: &'a VoteSent,
    pub(crate) reply: Option<&'a VoteReply>,
}

#[derive(Debug, Default)]
pub(crate) struct World<'a> {
    pub(crate) run: Option<&'a RunInfo>,
    pub(crate) keys: BTreeMap<KeyId, Story<'a>>,
    /// Requests without a key.
    pub(crate) reads: Vec<Op<'a>>,
    /// Effects whose token no record names.
    pub(crate) strangers: Vec<Effect<'a>>,
    /// Effects by token.
    pub(crate) by_token: BTreeMap<&'a str, Vec<Effect<'a>>>,
    /// The key that each token belongs to, according to the ledger.
    pub(crate) owners: BTreeMap<&'a str, KeyId>,
    /// Entries of all logs, each log in its order, and the logs by time.
    pub(crate) entries: Vec<&'a JournalEntry>,
    pub(crate) votes: Vec<Voted<'a>>,
    pub(crate) operators: Vec<&'a OperatorAct>,
    pub(crate) grants: Vec<&'a GrantAsked>,
    pub(crate) probes: Vec<&'a Probe>,
    pub(crate) faults: Vec<(Moment, &'a FaultEvent)>,
    /// The changes of nodes, in order.
    pub(crate) changes: Vec<(Moment, u32, &'a NodeChange)>,
    /// When an injector began to inject.
    pub(crate) injecting: Vec<Moment>,
    pub(crate) quiet: Option<Moment>,
    pub(crate) ended: bool,
    /// Whether some node's clock was not the machine's.
    pub(crate) clock_shifted: bool,
    /// The machine's two clocks at the beginning.
    began: Option<Moment>,
    running: BTreeSet<u32>,
    /// Nodes that took calls when nothing was sent any more.
    pub(crate) probing: Option<BTreeSet<u32>>,
}

impl<'a> World<'a> {
    pub(crate) fn of(events: &'a [Event], witness: &'a [Line]) -> Self {
        let mut world = Self::default();
        world.take_requests(events);
        world.take_rest(events);
        world.take_ledger();
        world.take_witness(witness);
        world
    }

    fn take_requests(&mut self, events: &'a [Event]) {
        let mut ends: HashMap<u64, (Moment, End<'a>)> = HashMap::new();
        for event in events {
            if let What::Reply(reply) = &event.what {
                ends.entry(reply.request).or_insert((event.at, End::Reply(reply)));
            } else if let What::Lost(lost) = &event.what {
                ends.entry(lost.request).or_insert((event.at, End::Lost(lost.how)));
            }
        }
        for event in events {
            let What::Sent(sent) = &event.what else { continue };
            let sent: &Sent = sent;
            let op = Op { at: event.at, sent, end: ends.get(&sent.request).copied() };
            match KeyId::of(sent) {
                Some(id) => self.keys.entry(id).or_default().ops.push(op),
                None => self.reads.push(op),
            }
        }
    }

    fn take_rest(&mut self, events: &'a [Event]) {
        self.began = events.first().map(|event| event.at);
        for event in events {
            match &event.what {
                What::Run(run) => self.run = Some(run),
                What::VoteSent(sent) => self.votes.push(Voted { at: event.at, sent, reply: None }),
                What::VoteReply(reply) => {
                    let sent = self.votes.iter_mut().rfind(|vote| vote.sent.vote == reply.vote);
                    if let Some(vote) = sent {
                        vote.reply = Some(reply);
                    }
                }
                What::Operator(act) => self.operators.push(act),
                What::GrantAsked(asked) => self.grants.push(asked),
                What::Phase(Phase::Quiet) => self.quiet = Some(event.at),
                What::Phase(Phase::Probing) => self.probing = Some(self.running.clone()),
                What::Phase(Phase::Ended) => self.ended = true,
                What::Node(node) => {
                    self.changes.push((event.at, node.node, &node.change));
                    self.take_node(node.node, &node.change);
                }
                What::Injecting => self.injecting.push(event.at),
                What::Fault(fault) => self.faults.push((event.at, fault)),
                What::Probe(probe) => self.probes.push(probe),
                What::Sent(_) | What::Reply(_) | What::Lost(_) | What::Phase(_) => {}
            }
        }
    }

    fn take_node(&mut self, node: u32, change: &NodeChange) {
        match change {
            NodeChange::Ready { .. } => {
                self.running.insert(node);
            }
            NodeChange::Killed | NodeChange::Stopped { .. } | NodeChange::Exited { .. } => {
                self.running.remove(&node);
            }
            NodeChange::ClockShifted { .. } => self.clock_shifted = true,
            NodeChange::Started { .. }
            | NodeChange::Refused { .. }
            | NodeChange::Paused
            | NodeChange::Resumed
            | NodeChange::StopAsked => {}
        }
    }

    fn take_ledger(&mut self) {
        self.entries = self
            .probes
            .iter()
            .filter_map(|probe| if let Probe::Entry(entry) = probe { Some(&**entry) } else { None })
            .collect();
        order::by_time(&mut self.entries);
        let mut ids: HashMap<&'a str, KeyId> = HashMap::new();
        for entry in &self.entries {
            for change in &entry.changes {
                if let RecordChange::Put(image) = change {
                    let id = KeyId::of_record(image);
                    for attempt in image.attempt.iter().chain(&image.unknown) {
                        self.owners.entry(&attempt.token).or_insert_with(|| id.clone());
                    }
                    ids.insert(&image.record_id, id);
                }
            }
        }
        for entry in &self.entries {
            for change in &entry.changes {
                if let Some(id) = ids.get(change.record_id()) {
                    self.keys
                        .entry(id.clone())
                        .or_default()
                        .written
                        .push(Written { entry, change });
                }
            }
        }
        for story in self.keys.values_mut() {
            order::at_one_moment(&mut story.written);
        }
    }

    fn take_witness(&mut self, witness: &'a [Line]) {
        let refused: BTreeSet<(&str, u64, u64)> = witness
            .iter()
            .filter_map(
                |line| if let Seen::Refused(arrival) = &line.what { Some(arrival) } else { None },
            )
            .map(|arrival| (arrival.token.as_str(), arrival.attempt, arrival.arrival))
            .collect();
        let guessed = self.guesses();
        for line in witness {
            match &line.what {
                Seen::Effect { arrival, started, effect } => {
                    let effect =
                        Effect { started: *started, at: line.at, arrival, number: *effect };
                    self.by_token.entry(&arrival.token).or_default().push(effect);
                    let owner = self.owners.get(arrival.token.as_str()).cloned();
                    if owner.is_none() {
                        self.strangers.push(effect);
                    }
                    let owner = owner.or_else(|| guess(&guessed, &arrival.tool, &arrival.key));
                    if let Some(story) = owner.and_then(|id| self.keys.get_mut(&id)) {
                        story.effects.push(effect);
                    }
                }
                Seen::Arrived(arrival) => {
                    let refused = refused.contains(&(
                        arrival.token.as_str(),
                        arrival.attempt,
                        arrival.arrival,
                    ));
                    let came = Came { at: line.at, arrival, refused };
                    let owner = self.owners.get(arrival.token.as_str()).cloned();
                    let owner = owner.or_else(|| guess(&guessed, &arrival.tool, &arrival.key));
                    if let Some(story) = owner.and_then(|id| self.keys.get_mut(&id)) {
                        story.came.push(came);
                    }
                }
                Seen::Asked { token, state } if state == "not_found" => {
                    let owner = self.owners.get(token.as_str());
                    if let Some(story) = owner.and_then(|id| self.keys.get_mut(id)) {
                        story.not_found.push((line.at, token));
                    }
                }
                Seen::Asked { .. }
                | Seen::Booted { .. }
                | Seen::Read { .. }
                | Seen::Repeated(_)
                | Seen::Refused(_)
                | Seen::Misbehaved { .. } => {}
            }
        }
    }

    /// Keys by tool and caller's key, where only one principal has used it: enough to place a token that no record names.
    fn guesses(&self) -> HashMap<(String, String), Option<KeyId>> {
        let mut guesses = HashMap::new();
        for id in self.keys.keys() {
            let tool = id.capability.rsplit('/').next().unwrap_or_default().to_owned();
            guesses
                .entry((tool, id.key.clone()))
                .and_modify(|known| *known = None)
                .or_insert_with(|| Some(id.clone()));
        }
        guesses
    }

    /// Answers to calls, with the key they are about.
    pub(crate) fn replies(&self) -> impl Iterator<Item = (&KeyId, &Op<'a>, Moment, &'a Reply)> {
        self.keys.iter().flat_map(|(id, story)| {
            story.ops.iter().filter_map(move |op| op.reply().map(|(at, reply)| (id, op, at, reply)))
        })
    }

    /// Whether the ledger's clock can be compared with the machine's.
    pub(crate) const fn clocks_agree(&self) -> bool {
        !self.clock_shifted
    }

    /// Whether an entry was written before another one, or is the same.
    pub(crate) fn is_before(&self, entry: &JournalEntry, other: &JournalEntry) -> bool {
        if entry.log == other.log { entry.seq <= other.seq } else { entry.at_ms <= other.at_ms }
    }

    /// The machine's moment for a wall-clock time, in microseconds.
    pub(crate) fn us_of(&self, wall_ms: i64) -> Option<u64> {
        let began = self.began?;
        let after_us = wall_ms.saturating_sub(began.wall_ms).saturating_mul(1_000);
        Some(began.us.saturating_add_signed(after_us))
    }

    /// The node of each start, if the database names it.
    pub(crate) fn nodes_of_starts(&self) -> BTreeMap<u64, u32> {
        let named = |probe: &&Probe| {
            if let Probe::Epoch { epoch, node } = probe { Some((*epoch, *node)) } else { None }
        };
        self.probes.iter().filter_map(named).collect()
    }

    /// Reports what cannot be checked with this input.
    pub(super) fn check_inputs(&self, findings: &mut Findings) {
        use Invariant as I;
        let has = |wanted: fn(&Probe) -> bool| self.probes.iter().any(|probe| wanted(probe));
        let mut needs = |present: bool, missing: &str, invariants: &[Invariant]| {
            if !present {
                invariants.iter().for_each(|invariant| findings.unchecked(*invariant, missing));
            }
        };
        needs(
            self.run.is_some() && self.ended,
            "the history has no beginning or no end",
            &[I::I13],
        );
        needs(
            !self.entries.is_empty(),
            "the ledger's log was not exported",
            &[I::I2, I::I3, I::I6, I::I7, I::I8, I::I9, I::I10],
        );
        needs(
            has(|probe| matches!(probe, Probe::Records { .. })),
            "the records were not listed",
            &[I::I11, I::I14],
        );
        needs(
            has(|probe| matches!(probe, Probe::Budget { .. })),
            "nobody asked what the runs were charged",
            &[I::I11],
        );
        needs(
            has(|probe| matches!(probe, Probe::Verified { .. })),
            "nothing was verified",
            &[I::I14],
        );
        needs(
            has(|probe| matches!(probe, Probe::Secrets { .. })),
            "nobody looked for secrets",
            &[I::I15],
        );
        needs(
            has(|probe| matches!(probe, Probe::Gauge { .. })),
            "no queue was measured",
            &[I::I16],
        );
        needs(
            self.quiet.is_some() && self.probing.is_some(),
            "the faults or the load never ended",
            &[I::I13],
        );
    }
}

fn guess(
    guesses: &HashMap<(String, String), Option<KeyId>>,
    tool: &str,
    key: &str,
) -> Option<KeyId> {
    guesses.get(&(tool.to_owned(), key.to_owned())).cloned().flatten()
}
