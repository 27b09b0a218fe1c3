//! F23 and I8: a node that was asked to stop ends what it has begun, and begins nothing more.
//!
//! Owns whose entry is whose: in an embedded ledger all are the one node's, in a shared one the database names the node of each epoch.

use std::collections::BTreeMap;

use super::{Findings, Invariant, story::Written, world::World};
use crate::history::node::NodeChange;
use placet_testkit::moment::Moment;

/// How long after the signal a dispatch may still be written, in milliseconds: it was on its way.
const ON_ITS_WAY_MS: i64 = 1_500;

pub(super) fn check(world: &World<'_>, findings: &mut Findings) {
    let stops = stops(world);
    if !world.clocks_agree() {
        return;
    }
    let nodes = world.nodes_of_starts();
    let is_alone = world.run.is_some_and(|run| run.nodes == 1);
    for (id, story) in &world.keys {
        let mut before: Option<&Written<'_>> = None;
        for written in &story.written {
            let node = nodes.get(&written.entry.epoch).copied().or(is_alone.then_some(0));
            let at_ms = written.entry.at_ms;
            let late = |stop: &&Stop| {
                let from_ms = stop.asked.wall_ms.saturating_add(ON_ITS_WAY_MS);
                node == Some(stop.node) && at_ms > from_ms && at_ms <= stop.gone.wall_ms
            };
            if let (true, Some(stop)) = (begins(before, written), stops.iter().find(late)) {
                let after = at_ms.saturating_sub(stop.asked.wall_ms);
                let node = stop.node;
                let why =
                    format!("it was dispatched {after} ms after node {node} was asked to stop");
                findings.broken(Invariant::I8, id, why, story.told());
            }
            before = Some(written);
        }
    }
}

/// A node that was asked to stop.
#[derive(Debug, Clone, Copy)]
struct Stop {
    node: u32,
    asked: Moment,
    gone: Moment,
}

/// Which node was asked to stop when, and when it was gone.
fn stops(world: &World<'_>) -> Vec<Stop> {
    let mut asked: BTreeMap<u32, Moment> = BTreeMap::new();
    let mut stops = Vec::new();
    for (at, node, change) in &world.changes {
        if *change == &NodeChange::StopAsked {
            asked.insert(*node, *at);
        } else if let Some(asked) = asked.remove(node) {
            stops.push(Stop { node: *node, asked, gone: *at });
        }
    }
    stops
}

/// Whether this entry sends the call, rather than taking over what was sent.
fn begins(before: Option<&Written<'_>>, written: &Written<'_>) -> bool {
    let sent = |written: &Written<'_>| {
        let image = written.image().filter(|image| image.state == "dispatched")?;
        image.attempt.as_ref().map(|attempt| (attempt.number, attempt.token.clone()))
    };
    let now = sent(written);
    now.is_some() && before.and_then(sent) != now
}
