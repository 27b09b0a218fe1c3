//! I3 to I6: an answer stays true, is the same for everybody, is the asker's own, and is recorded.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Findings, Invariant,
    story::{KeyId, Op, Story, short},
    world::World,
};
use crate::history::request::{Answer, Protocol, Reply, Why};

/// How much later than an answer the entry it depends on may be dated: clocks are read in milliseconds.
const CLOCK_MS: i64 = 20;

pub(super) fn check(world: &World<'_>, findings: &mut Findings) {
    for (id, story) in &world.keys {
        lost_for_clients(id, story, findings);
        lost_in_the_log(id, story, findings);
        invisible(world, id, story, findings);
        unstable(id, story, findings);
        of_others(world, id, story, findings);
    }
    calls_of_others(world, findings);
    if world.run.is_some_and(|run| run.store == "embedded") {
        reads_are_recorded(world, findings);
    }
}

/// I3, as clients see it: after a success, nobody gets another answer.
fn lost_for_clients(id: &KeyId, story: &Story<'_>, findings: &mut Findings) {
    let Some((done, at)) = story.first_success() else {
        return;
    };
    let same = |op: &&Op<'_>| op.at > at && op.sent.args == done.sent.args;
    for op in story.ops.iter().filter(same) {
        let otherwise = match op.answer() {
            Some(
                Answer::Pending
                | Answer::InProgress
                | Answer::Unknown
                | Answer::Failed
                | Answer::Denied,
            ) => true,
            Some(Answer::Refused) => op.says_call_did_not_happen(),
            Some(
                Answer::Succeeded | Answer::Conflict | Answer::Expired | Answer::InvalidResponse,
            )
            | None => false,
        };
        let again = op.reply().is_some_and(|(_, reply)| {
            reply.answer == Answer::Succeeded && !reply.replayed && op.sent.why != Why::Poll
        });
        if otherwise || again {
            let said = op.answer();
            let why = format!(
                "request {} was told that it is done; request {}, sent later, got {said:?}{}",
                done.sent.request,
                op.sent.request,
                if again { " as if for the first time" } else { "" }
            );
            findings.broken(Invariant::I3, id, why, story.told());
            return;
        }
    }
}

/// I3 in the log: a success that was answered is there, and nothing else follows it.
fn lost_in_the_log(id: &KeyId, story: &Story<'_>, findings: &mut Findings) {
    let Some((done, _)) = story.first_success() else {
        return;
    };
    let last = story.last().map(super::story::Written::state);
    if !matches!(last, Some("succeeded" | "tombstone" | "forgotten")) {
        let why = format!(
            "request {} was told that it is done; in the end the log says {}",
            done.sent.request,
            last.unwrap_or("nothing")
        );
        findings.broken(Invariant::I3, id, why, story.told());
    }
    let results: BTreeSet<&str> = story
        .written
        .iter()
        .filter(|written| written.state() == "succeeded")
        .filter_map(|written| written.image()?.result.as_deref())
        .collect();
    if results.len() > 1 {
        let why = format!("the log has {} different results", results.len());
        findings.broken(Invariant::I3, id, why, story.told());
    }
}

/// I4: one result for a key, in the form of each protocol, and of the same dispatch in all of them.
fn unstable(id: &KeyId, story: &Story<'_>, findings: &mut Findings) {
    let results = || story.ops.iter().filter_map(|op| Some((op.sent.over, op.success()?.1)));
    let over = |protocol| {
        let its = results().filter(move |(over, _)| *over == protocol);
        its.map(|(_, result)| short(&result.digest)).collect::<BTreeSet<String>>()
    };
    let dispatches: BTreeSet<String> =
        results().filter_map(|(_, result)| result.token.clone()).collect();
    for differing in [over(Protocol::Http), over(Protocol::Mcp), over(Protocol::Batch), dispatches]
    {
        if differing.len() > 1 {
            let named: Vec<String> = differing.into_iter().collect();
            let why = format!("{} different results were given: {}", named.len(), named.join(", "));
            findings.broken(Invariant::I4, id, why, story.told());
            return;
        }
    }
}

/// I5: the result is for these arguments and for this key; a conflict is one.
fn of_others(world: &World<'_>, id: &KeyId, story: &Story<'_>, findings: &mut Findings) {
    let mut broken = |op: &Op<'_>, why: &str| {
        let why = format!("request {} {why}", op.sent.request);
        findings.broken(Invariant::I5, id, why, story.told());
    };
    let asked: BTreeSet<&str> = story.ops.iter().map(|op| op.sent.args.as_str()).collect();
    let answered = story.ops.iter().find_map(|op| op.success().map(|_| op.sent.args.as_str()));
    for op in &story.ops {
        if let Some((_, result)) = op.success() {
            if result.args.as_ref().is_some_and(|args| *args != op.sent.args)
                || answered != Some(op.sent.args.as_str())
            {
                broken(op, "got the result of other arguments");
            }
            let owner = result.token.as_deref().and_then(|token| world.owners.get(token));
            if owner.is_some_and(|owner| owner != id) {
                broken(op, "got the result of another key");
            }
        }
        if op.answer() == Some(Answer::Conflict)
            && (asked.len() == 1 || answered == Some(op.sent.args.as_str()))
        {
            broken(op, "was refused as a conflict, though it is the same call");
        }
    }
}

/// I5: no answer names a call that belongs to another key.
fn calls_of_others(world: &World<'_>, findings: &mut Findings) {
    let mut owners: BTreeMap<&str, &KeyId> = BTreeMap::new();
    for (id, op, _, reply) in world.replies() {
        let Some(call) = reply.call_id.as_deref() else {
            continue;
        };
        let owner = owners.entry(call).or_insert(id);
        if *owner != id {
            let why = format!("request {} was told of {call}, a call of {owner}", op.sent.request);
            let told = world.keys.get(id).map(Story::told).unwrap_or_default();
            findings.broken(Invariant::I5, id, why, told);
        }
    }
}

/// I6: what an answer depends on is in the log, and was there when the answer came.
fn invisible(world: &World<'_>, id: &KeyId, story: &Story<'_>, findings: &mut Findings) {
    for op in &story.ops {
        let Some((at, reply)) = op.reply() else {
            continue;
        };
        let Some(states) = depends_on(reply) else {
            continue;
        };
        let recorded: Vec<i64> = story
            .written
            .iter()
            .filter(|written| states.contains(&written.state()))
            .filter(|written| fits(reply, written))
            .map(|written| written.entry.at_ms)
            .collect();
        let in_time = |at_ms: &i64| *at_ms <= at.wall_ms.saturating_add(CLOCK_MS);
        if !recorded.is_empty() && !world.clocks_agree() {
            continue;
        }
        let why = if recorded.is_empty() && refused_in_the_log(world, reply) {
            continue;
        } else if recorded.is_empty() {
            "depends on what the log does not have"
        } else if !recorded.iter().any(in_time) {
            "depends on what was recorded only later"
        } else {
            continue;
        };
        let why = format!("the answer {:?} to request {} {why}", reply.answer, op.sent.request);
        findings.broken(Invariant::I6, id, why, story.told());
        return;
    }
}

/// A retry of a call whose approval has expired by then is refused as a call of its own: its record stays unchanged,
/// and the refusal is an event.
fn refused_in_the_log(world: &World<'_>, reply: &Reply) -> bool {
    let mut events = world.entries.iter().flat_map(|entry| &entry.audit);
    reply.answer == Answer::Denied
        && reply.call_id.is_some()
        && events.any(|event| {
            event.kind == "refused" && event.call_id == reply.call_id && event.code == reply.code
        })
}

/// The states that an answer depends on; one of them is needed.
const fn depends_on(reply: &Reply) -> Option<&'static [&'static str]> {
    match reply.answer {
        Answer::Succeeded => Some(&["succeeded"]),
        Answer::Failed => Some(&["failed_final", "failed_retriable"]),
        Answer::Pending => Some(&["pending_approval"]),
        Answer::Unknown => Some(&["indeterminate"]),
        Answer::Denied => Some(&["denied"]),
        Answer::InProgress
        | Answer::Conflict
        | Answer::Expired
        | Answer::Refused
        | Answer::InvalidResponse => None,
    }
}

fn fits(reply: &Reply, written: &super::story::Written<'_>) -> bool {
    let held = written.image().and_then(|image| image.approval_id.as_deref());
    reply.answer != Answer::Pending || reply.approval_id.as_deref() == held
}

/// I6 for reads: they leave a line in the log before they are answered.
fn reads_are_recorded(world: &World<'_>, findings: &mut Findings) {
    let known: BTreeSet<&str> = world
        .entries
        .iter()
        .flat_map(|entry| &entry.audit)
        .filter_map(|audit| audit.call_id.as_deref())
        .collect();
    for op in &world.reads {
        let Some((_, reply)) = op.reply().filter(|(_, reply)| reply.answer == Answer::Succeeded)
        else {
            continue;
        };
        if !reply.call_id.as_deref().is_some_and(|call| known.contains(call)) {
            let subject = reply.call_id.clone().unwrap_or_else(|| "a read".to_owned());
            let why = format!(
                "read request {} was answered, and the log does not have it",
                op.sent.request
            );
            findings.broken(Invariant::I6, subject, why, Vec::new());
        }
    }
}
