//! When a node had nothing to excuse a long silence.
//!
//! Owns which events trouble whom, and for how long. Invariant: what was injected excuses the nodes that it struck and nobody else,
//! and only around the time at which it did.

use std::collections::BTreeMap;

use super::world::World;
use crate::history::{fault::FaultKind, moment::Moment, node::NodeChange};

/// A fault is noted when it is over; for so long before that it may have been at work, in microseconds.
const BEFORE_US: u64 = 40_000_000;
/// For so long what it struck may need to find its way back, in microseconds.
const AFTER_US: u64 = 15_000_000;

/// The times at which nodes were troubled.
#[derive(Debug, Default)]
pub(super) struct Calm {
    spans: Vec<Span>,
    /// Whether the history says what became of nodes: a deployment that is seen from outside only may have its own troubles.
    is_known: bool,
}

#[derive(Debug)]
struct Span {
    /// Which node; none: all of them.
    node: Option<u32>,
    from_us: u64,
    to_us: u64,
}

impl Calm {
    /// As the history tells it.
    pub(super) fn of(world: &World<'_>) -> Self {
        let mut calm = Self { is_known: !world.changes.is_empty(), ..Self::default() };
        calm.take_nodes(world);
        for (at, fault) in &world.faults {
            let of_all = fault.kind == FaultKind::F20;
            let of_one = matches!(fault.kind, FaultKind::F8 | FaultKind::F11);
            if !(of_all || of_one && fault.node.is_some()) {
                continue;
            }
            let node = fault.node.filter(|_| !of_all);
            let from_us = at.us.saturating_sub(BEFORE_US);
            calm.spans.push(Span { node, from_us, to_us: at.us.saturating_add(AFTER_US) });
        }
        calm
    }

    /// Whether a node was untroubled from one moment to another.
    pub(super) fn is_calm(&self, node: u32, (from, to): (Moment, Moment)) -> bool {
        let strikes = |span: &Span| {
            let here = span.node.is_none_or(|struck| struck == node);
            here && span.from_us <= to.us && from.us <= span.to_us
        };
        self.is_known && !self.spans.iter().any(strikes)
    }

    fn take_nodes(&mut self, world: &World<'_>) {
        let mut since: BTreeMap<u32, Moment> = BTreeMap::new();
        for (at, node, change) in &world.changes {
            match change {
                NodeChange::Killed
                | NodeChange::Paused
                | NodeChange::StopAsked
                | NodeChange::Stopped { .. }
                | NodeChange::Exited { .. }
                | NodeChange::Refused { .. } => {
                    since.entry(*node).or_insert(*at);
                }
                NodeChange::Ready { .. } | NodeChange::Resumed => {
                    if let Some(from) = since.remove(node) {
                        let to_us = at.us.saturating_add(AFTER_US);
                        self.spans.push(Span { node: Some(*node), from_us: from.us, to_us });
                    }
                }
                NodeChange::Started { .. } | NodeChange::ClockShifted { .. } => {}
            }
        }
        for (node, from) in since {
            self.spans.push(Span { node: Some(node), from_us: from.us, to_us: u64::MAX });
        }
    }
}
