//! F23 and I8: a node that was asked to stop ends what it has begun, and begins nothing more.
//!
//! Owns whose entry is whose: in an embedded ledger all are the one node's, in a shared one the database names the node of each epoch.

use std::collections::BTreeMap;

use super::{CLOCK_MOVED, Findings, Invariant, story::Written, world::World};
use crate::history::{moment::Moment, node::NodeChange};

/// What was on its way to the ledger when the signal came, in milliseconds.
const ON_ITS_WAY_MS: i64 = 1_500;

pub(super) fn check(world: &World<'_>, findings: &mut Findings) {
    let stops = stops(world);
    if !world.clocks_agree() {
        return findings.unjudged(Invariant::I8, stops.len(), CLOCK_MOVED);
    }
    findings.judged(Invariant::I8, stops.len());
    let nodes = world.nodes_of_starts();
    let is_alone = world.run.is_some_and(|run| run.nodes == 1);
    for (id, story) in &world.keys {
        let mut before: Option<&Written<'_>> = None;
        for written in &story.written {
            let node = nodes.get(&written.entry.epoch).copied().or(is_alone.then_some(0));
            let at_ms = written.entry.at_ms;
            let late = |(of, from, to): &&(u32, i64, i64)| {
                node == Some(*of) && at_ms > from.saturating_add(ON_ITS_WAY_MS) && at_ms <= *to
            };
            if let (true, Some((node, from, _))) =
                (begins(before, written), stops.iter().find(late))
            {
                let after = at_ms.saturating_sub(*from);
                let why =
                    format!("it was dispatched {after} ms after node {node} was asked to stop");
                findings.broken(Invariant::I8, id, why, story.told());
            }
            before = Some(written);
        }
    }
}

/// Which node was asked to stop when, and when it was gone, by the wall clock in milliseconds.
fn stops(world: &World<'_>) -> Vec<(u32, i64, i64)> {
    let mut asked: BTreeMap<u32, Moment> = BTreeMap::new();
    let mut stops = Vec::new();
    for (at, node, change) in &world.changes {
        if *change == &NodeChange::StopAsked {
            asked.insert(*node, *at);
        } else if let Some(from) = asked.remove(node) {
            stops.push((*node, from.wall_ms, at.wall_ms));
        }
    }
    stops
}

/// Whether this entry sends the call: not where somebody else takes over what was sent.
fn begins(before: Option<&Written<'_>>, written: &Written<'_>) -> bool {
    let sent = |written: &Written<'_>| {
        let image = written.image().filter(|image| image.state == "dispatched")?;
        image.attempt.as_ref().map(|attempt| (attempt.number, attempt.token.clone()))
    };
    let now = sent(written);
    now.is_some() && before.and_then(sent) != now
}
