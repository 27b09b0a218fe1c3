//! The counting.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{Asked, Outcome, Replay, Spread, Trouble, length, share};
use crate::{
    checker::KeyId,
    history::{
        Event, RunInfo, What,
        fault::FaultKind,
        node::NodeChange,
        request::{Answer, Reply, Sent, Why},
    },
    witness::log::{Line, Seen},
};
use placet_testkit::moment::Moment;

/// What was counted.
#[derive(Debug, Default)]
pub(super) struct Counted<'a> {
    pub(super) run: Option<&'a RunInfo>,
    pub(super) lasted_ms: u64,
    pub(super) trouble: Trouble,
    pub(super) asked: Asked,
    pub(super) outcome: Outcome,
    pub(super) recovery: Spread,
    pub(super) latency: Spread,
}

/// What became of one key.
#[derive(Debug, Default)]
struct Key<'a> {
    /// The first success: its arguments and its digest.
    done: Option<(Moment, &'a str, &'a str)>,
    /// How many for each token: another token is another arm, which operators asked for.
    effects: BTreeMap<String, u64>,
    unknown: bool,
}

impl Key<'_> {
    fn is_single(&self) -> bool {
        self.effects.values().all(|effects| *effects <= 1)
    }
}

fn add(count: &mut u64) {
    *count = count.saturating_add(1);
}

pub(super) fn count<'a>(events: &'a [Event], witness: &[Line]) -> Counted<'a> {
    let mut counted = Counted::default();
    let (mut sent, mut recovery, mut latency) = (HashMap::new(), Vec::new(), Vec::new());
    let mut keys: BTreeMap<KeyId, Key<'a>> = BTreeMap::new();
    for event in events {
        match &event.what {
            What::Run(run) => counted.run = Some(run),
            What::Sent(one) => {
                ask(&mut counted.asked, one);
                if let Some(id) = KeyId::of(one) {
                    keys.entry(id).or_default();
                }
                sent.insert(one.request, (event.at, &**one));
            }
            What::Reply(reply) => {
                if let Some((at, one)) = sent.get(&reply.request) {
                    latency.push(event.at.ms_since(*at));
                    answered(&mut counted.outcome, one, reply);
                    if let Some(key) = KeyId::of(one).and_then(|id| keys.get_mut(&id)) {
                        learn(key, event.at, one, reply);
                    }
                }
            }
            What::Lost(lost) => {
                add(&mut counted.asked.unanswered);
                add(counted.asked.losses.entry(lost.how).or_default());
            }
            What::VoteSent(_) => add(&mut counted.asked.votes),
            What::GrantAsked(_) => add(&mut counted.asked.grants),
            What::Node(node) => hurt(&mut counted.trouble, &node.change, &mut recovery),
            What::Fault(fault) => add(counted.trouble.faults.entry(fault.kind).or_default()),
            What::VoteReply(_)
            | What::ApprovalSeen(_)
            | What::Operator(_)
            | What::DatabaseClock { .. }
            | What::Phase(_)
            | What::Injecting
            | What::Probe(_) => {}
        }
    }
    seen(&mut counted.outcome, &mut keys, witness);
    counted.asked.keys = length(keys.len());
    of_keys(&mut counted.outcome, &keys);
    counted.outcome.replay = replays(events, &sent, &keys);
    counted.trouble.never = never(counted.run, &counted.trouble);
    (counted.recovery, counted.latency) = (Spread::of(recovery), Spread::of(latency));
    counted.lasted_ms = match (events.first(), events.last()) {
        (Some(first), Some(last)) => last.at.ms_since(first.at),
        _ => 0,
    };
    counted
}

fn ask(asked: &mut Asked, sent: &Sent) {
    if sent.why == Why::Poll {
        return;
    }
    add(&mut asked.calls);
    add(asked.classes.entry(sent.class).or_default());
    if sent.why.is_duplicate() {
        add(&mut asked.duplicates);
        add(asked.kinds.entry(sent.why).or_default());
    }
}

fn answered(outcome: &mut Outcome, sent: &Sent, reply: &Reply) {
    if sent.why != Why::Poll {
        add(outcome.answers.entry(reply.answer).or_default());
    }
}

fn learn<'a>(key: &mut Key<'a>, at: Moment, sent: &'a Sent, reply: &'a Reply) {
    key.unknown |= reply.answer == Answer::Unknown;
    if let (Answer::Succeeded, Some(result), None) = (reply.answer, &reply.result, &key.done) {
        key.done = Some((at, &sent.args, &result.digest));
    }
}

fn hurt(trouble: &mut Trouble, change: &NodeChange, recovery: &mut Vec<u64>) {
    match change {
        NodeChange::Killed => add(&mut trouble.kills),
        NodeChange::Paused => add(&mut trouble.pauses),
        NodeChange::Refused { rightly: true, .. } => add(&mut trouble.refusals),
        NodeChange::Exited { .. } => add(&mut trouble.exits),
        NodeChange::Ready { after_ms } => recovery.push(*after_ms),
        NodeChange::Refused { rightly: false, .. } => add(&mut trouble.failed_starts),
        NodeChange::Started { .. }
        | NodeChange::Resumed
        | NodeChange::StopAsked
        | NodeChange::Stopped { .. }
        | NodeChange::ClockShifted { .. } => {}
    }
}

/// Effects; those of a key are found by the caller's key where that is one principal's.
fn seen(outcome: &mut Outcome, keys: &mut BTreeMap<KeyId, Key<'_>>, witness: &[Line]) {
    let mut by_name: HashMap<(String, String), Option<KeyId>> = HashMap::new();
    for id in keys.keys() {
        let tool = id.capability.rsplit('/').next().unwrap_or_default().to_owned();
        let name = by_name.entry((tool, id.key.clone()));
        name.and_modify(|known| *known = None).or_insert_with(|| Some(id.clone()));
    }
    for line in witness {
        let Seen::Effect { arrival, .. } = &line.what else { continue };
        add(&mut outcome.effects);
        let id = by_name.get(&(arrival.tool.clone(), arrival.key.clone())).cloned().flatten();
        if let Some(key) = id.and_then(|id| keys.get_mut(&id)) {
            add(key.effects.entry(arrival.token.clone()).or_default());
        }
    }
}

fn of_keys(outcome: &mut Outcome, keys: &BTreeMap<KeyId, Key<'_>>) {
    let count =
        |wanted: fn(&Key<'_>) -> bool| length(keys.values().filter(|key| wanted(key)).count());
    outcome.acknowledged = count(|key| key.done.is_some());
    outcome.indeterminate = count(|key| key.unknown);
    outcome.indeterminate_rate = share(outcome.indeterminate, length(keys.len()), 0.0);
}

/// How duplicates were answered that were sent after a success was acknowledged.
/// When a request was sent, and which.
type SentAt<'a> = (Moment, &'a Sent);

fn replays(
    events: &[Event],
    sent: &HashMap<u64, SentAt<'_>>,
    keys: &BTreeMap<KeyId, Key<'_>>,
) -> Replay {
    let mut replay = Replay::default();
    for event in events {
        let What::Reply(reply) = &event.what else { continue };
        let Some((at, one)) = sent.get(&reply.request).filter(|(_, one)| one.why.is_duplicate())
        else {
            continue;
        };
        let key = KeyId::of(one).and_then(|id| keys.get(&id));
        let Some((key, (since, args, digest))) = key.and_then(|key| Some((key, key.done?))) else {
            continue;
        };
        // Refusals that are about the moment, and not about the call, say nothing about replays.
        if *at <= since || matches!(reply.answer, Answer::Refused | Answer::Expired) {
            continue;
        }
        add(&mut replay.judged);
        let same = reply.result.as_ref().is_some_and(|result| result.digest == digest);
        let replayed =
            reply.answer == Answer::Succeeded && reply.replayed && same && key.is_single();
        let refused = reply.answer == Answer::Conflict && one.args != args;
        if if one.args == args { replayed } else { refused } {
            add(&mut replay.correct);
        }
    }
    replay.rate = share(replay.correct, replay.judged, 1.0);
    replay
}

fn never(run: Option<&RunInfo>, trouble: &Trouble) -> Vec<FaultKind> {
    let applicable: BTreeSet<FaultKind> =
        run.into_iter().flat_map(|run| run.applicable.iter().copied()).collect();
    applicable.into_iter().filter(|kind| !trouble.faults.contains_key(kind)).collect()
}
