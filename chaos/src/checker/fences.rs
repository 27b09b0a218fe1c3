//! I8 the other way round: no node is shut out that no fault affected.
//!
//! Owns who was shut out when: the database records it for the starts that it keeps. Not here: what may be a cause (`causes`).

use super::{Findings, Invariant, causes::Causes, world::World};
use crate::history::probe::Probe;

pub(super) fn check(world: &World<'_>, causes: &Causes, findings: &mut Findings) {
    for (node, at_us, who) in kept(world) {
        if causes.is_untouched(node, at_us) {
            let why = format!("{who} was shut out, though nothing had struck it");
            findings.broken(Invariant::I8, format!("node {node}"), why, told(world, node));
        }
    }
}

/// The node, the time in microseconds, and a description of the start.
type ShutOut = (u32, u64, String);

/// Starts that another node shut out, according to the database. A start that was taken over by the next one of the same node had ended,
/// which is the affair of those who run the nodes.
fn kept(world: &World<'_>) -> Vec<ShutOut> {
    let nodes = world.nodes_of_starts();
    let mut shut_out = Vec::new();
    for probe in &world.probes {
        let Probe::Fenced { epoch, at_ms, by: Some(by) } = probe else { continue };
        let known = (nodes.get(epoch), nodes.get(by), world.us_of(*at_ms));
        let (Some(node), Some(other), Some(at_us)) = known else { continue };
        if node != other {
            let who = format!("start {epoch} of node {node} (by start {by} of node {other})");
            shut_out.push((*node, at_us, who));
        }
    }
    shut_out
}

/// The changes of the node, in order.
fn told(world: &World<'_>, node: u32) -> Vec<String> {
    let own = world.changes.iter().filter(|(_, of, _)| *of == node);
    own.map(|(at, _, change)| format!("{} ms: {change:?}", at.wall_ms)).collect()
}
