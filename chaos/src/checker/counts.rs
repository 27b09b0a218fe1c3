//! I11, I13 and I16: what was accepted is accounted for, everything settles, and nothing grows without bound.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Findings, Invariant,
    causes::Causes,
    story::{End, KeyId, Op, Written},
    world::World,
};
use crate::history::{
    probe::{Probe, RecordRow},
    request::{Answer, Loss, Why},
};

pub(super) fn check(world: &World<'_>, causes: &Causes, findings: &mut Findings) {
    conserved(world, findings);
    budgets(world, findings);
    hung(world, causes, findings);
    settled(world, findings);
    for probe in &world.probes {
        if let Probe::Gauge { node, name, value, cap } = probe
            && value > cap
        {
            let why = format!("{name} reached {value}, its cap is {cap}");
            findings.broken(Invariant::I16, format!("node {node}"), why, Vec::new());
        }
    }
}

/// The records of a tenant, from whichever node listed them first.
fn listings<'a>(world: &World<'a>) -> BTreeMap<&'a str, &'a [RecordRow]> {
    let mut listings = BTreeMap::new();
    for probe in &world.probes {
        if let Probe::Records { tenant, records, .. } = probe {
            listings.entry(tenant.as_str()).or_insert(records.as_slice());
        }
    }
    listings
}

/// I11: a record for every call that was accepted, and for no other.
fn conserved(world: &World<'_>, findings: &mut Findings) {
    let listings = listings(world);
    for (tenant, rows) in &listings {
        let mut owners: BTreeMap<&KeyId, usize> = BTreeMap::new();
        let records: BTreeMap<&str, &KeyId> = world
            .keys
            .iter()
            .flat_map(|(id, story)| {
                story.written.iter().map(move |written| (written.change.record_id(), id))
            })
            .collect();
        for row in *rows {
            let id = records.get(row.record_id.as_str());
            let asked =
                id.filter(|id| world.keys.get(**id).is_some_and(|story| !story.ops.is_empty()));
            match asked {
                Some(id) => {
                    let count = owners.entry(id).or_default();
                    *count = count.saturating_add(1);
                }
                None => {
                    let why = format!(
                        "it is listed as {} for {}, and nobody asked for it",
                        row.state, row.capability
                    );
                    findings.broken(Invariant::I11, &row.record_id, why, Vec::new());
                }
            }
        }
        for (id, story) in world.keys.iter().filter(|(id, _)| id.tenant == *tenant) {
            let count = owners.get(id).copied().unwrap_or_default();
            let gone = matches!(story.last().map(Written::state), Some("absent" | "forgotten"));
            let accepted = story.ops.iter().find(|op| was_accepted(op));
            if let (Some(op), 0, false) = (accepted, count, gone) {
                let why = format!(
                    "request {} was accepted, and the key has no record in the end",
                    op.sent.request
                );
                findings.broken(Invariant::I11, id, why, story.told());
            }
            if count > 1 {
                let why = format!("the key has {count} records");
                findings.broken(Invariant::I11, id, why, story.told());
            }
        }
    }
}

fn was_accepted(op: &Op<'_>) -> bool {
    let accepted = [Answer::Succeeded, Answer::Failed, Answer::Unknown, Answer::Pending];
    op.is_call() && op.answer().is_some_and(|answer| accepted.contains(&answer))
}

/// I11 for costs: a run is charged for what it did, and neither is charged nor does more than it may.
fn budgets(world: &World<'_>, findings: &mut Findings) {
    let mut done: BTreeMap<RunName<'_>, BTreeSet<&str>> = BTreeMap::new();
    for (id, story) in &world.keys {
        let Some(first) = story.ops.first() else { continue };
        let user = id.user.as_deref();
        let tokens = done.entry((&id.tenant, &id.agent, user, &first.sent.run_id)).or_default();
        tokens.extend(story.effects.iter().map(|effect| effect.arrival.token.as_str()));
    }
    for probe in &world.probes {
        let Probe::Budget { tenant, agent, user, run_id, used, limit } = probe else { continue };
        let run = (tenant.as_str(), agent.as_str(), user.as_deref(), run_id.as_str());
        let effects = done.get(&run).map_or(0, BTreeSet::len);
        let effects = u64::try_from(effects).unwrap_or(u64::MAX);
        let why = if used > limit {
            format!("{used} calls of at most {limit} were charged")
        } else if effects > *limit {
            format!("{effects} effects, and it may have {limit}")
        } else if effects > *used {
            format!("{effects} effects, and only {used} calls were charged")
        } else {
            continue;
        };
        findings.broken(Invariant::I11, format!("run {run_id} of {agent}"), why, Vec::new());
    }
}

/// A run: its tenant, agent, user and name.
type RunName<'a> = (&'a str, &'a str, Option<&'a str>, &'a str);

/// I13 for clients: no request hangs for ever, nor during the faults at a node that no fault affected.
fn hung(world: &World<'_>, causes: &Causes, findings: &mut Findings) {
    let of_keys = world
        .keys
        .iter()
        .flat_map(|(id, story)| story.ops.iter().map(move |op| (Some((id, story)), op)));
    for (of, op) in of_keys.chain(world.reads.iter().map(|op| (None, op))) {
        let how = match op.end {
            None if world.ended => "was never answered",
            Some((until, End::Lost(Loss::TimedOut))) => {
                if world.quiet.is_some_and(|quiet| op.at >= quiet) {
                    "waited without success, though the faults were over"
                } else if causes.is_calm(op.sent.node, op.at, until) {
                    "waited without success at a node that nothing struck"
                } else {
                    continue;
                }
            }
            None | Some((_, End::Lost(_) | End::Reply(_))) => continue,
        };
        let subject = of.map_or_else(|| "a read".to_owned(), |(id, _)| id.to_string());
        let told = of.map(|(_, story)| story.told()).unwrap_or_default();
        findings.broken(
            Invariant::I13,
            subject,
            format!("request {} {how}", op.sent.request),
            told,
        );
    }
}

/// Answers that mean «not yet».
const NOT_YET: [&str; 5] =
    ["IN_PROGRESS", "LEDGER_UNAVAILABLE", "OVERLOADED", "INTERNAL", "RATE_LIMITED"];

/// I13 for records and nodes: at the end nothing is in flight, and every node accepts calls.
fn settled(world: &World<'_>, findings: &mut Findings) {
    for (id, story) in &world.keys {
        let last = story.ops.iter().filter(|op| op.sent.why == Why::Final).max_by_key(|op| op.at);
        let code = last.and_then(|op| op.reply()).and_then(|(_, reply)| reply.code.as_deref());
        if let Some(code) = code.filter(|code| NOT_YET.contains(code)) {
            let why = format!("in the end it still answers {code}");
            findings.broken(Invariant::I13, id, why, story.told());
        }
        let state = story.last().map(Written::state);
        if let Some(state @ ("dispatched" | "claimed" | "approved" | "rearmed")) = state {
            let why = format!("in the end the log still says {state}");
            findings.broken(Invariant::I13, id, why, story.told());
        }
    }
    let nodes = world.run.map_or(0, |run| run.nodes);
    if let Some(running) = &world.probing {
        for node in (0..nodes).filter(|node| !running.contains(node)) {
            findings.broken(
                Invariant::I13,
                format!("node {node}"),
                "it takes no calls in the end",
                Vec::new(),
            );
        }
    }
}
