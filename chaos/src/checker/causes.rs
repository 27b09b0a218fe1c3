//! Which faults affected which node, and when.
//!
//! Owns which events affect which nodes. The caller says what the fault has to explain: a hung request, or being shut out. Invariant: an
//! injected fault excuses only the nodes that it affected, and only from when its injector began until some time after it.

use std::collections::BTreeMap;

use super::world::World;
use crate::history::{
    fault::{FaultEvent, FaultKind},
    node::NodeChange,
};
use placet_testkit::moment::Moment;

/// A fault is recorded when it has ended; if its beginning was not recorded, it may have lasted this long, in microseconds.
const BEFORE_US: u64 = 40_000_000;
/// How long an affected node may need to recover, in microseconds.
const AFTER_US: u64 = 15_000_000;

/// How a fault affects a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    /// The node did not run or progress: it, its disk or its database was stopped or delayed.
    Halted,
    /// Its clock was moved.
    Moved,
}

/// The times at which nodes were troubled.
#[derive(Debug, Default)]
pub(super) struct Causes {
    spans: Vec<Span>,
    /// Whether the history records node changes: a deployment that is observed only from outside may have its own troubles.
    is_known: bool,
}

#[derive(Debug)]
struct Span {
    trouble: Trouble,
    /// Which node; `None`: all of them.
    node: Option<u32>,
    from_us: u64,
    to_us: u64,
}

impl Causes {
    /// The causes in a history.
    pub(super) fn of(world: &World<'_>) -> Self {
        let mut causes = Self { is_known: !world.changes.is_empty(), ..Self::default() };
        causes.take_nodes(world);
        causes.take_clocks(world);
        for (at, fault) in &world.faults {
            let Some((trouble, node)) = effect_of(fault) else { continue };
            let began = world.injecting.iter().rfind(|began| *began <= at);
            let from_us = began.map_or(at.us.saturating_sub(BEFORE_US), |began| began.us);
            let to_us = at.us.saturating_add(AFTER_US);
            causes.spans.push(Span { trouble, node, from_us, to_us });
        }
        causes
    }

    /// Whether nothing prevented a node from making progress between two moments. A moved clock does not.
    pub(super) fn is_calm(&self, node: u32, from: Moment, to: Moment) -> bool {
        self.is_known
            && !self.of_node(node, from.us, to.us).any(|trouble| trouble == Trouble::Halted)
    }

    /// Whether nothing at all affected a node at this moment, or so shortly before that it might still matter.
    pub(super) fn is_untouched(&self, node: u32, at_us: u64) -> bool {
        self.is_known && self.of_node(node, at_us, at_us).next().is_none()
    }

    fn of_node(&self, node: u32, from_us: u64, to_us: u64) -> impl Iterator<Item = Trouble> {
        let meets = move |span: &&Span| {
            let here = span.node.is_none_or(|struck| struck == node);
            here && span.from_us <= to_us && from_us <= span.to_us
        };
        self.spans.iter().filter(meets).map(|span| span.trouble)
    }

    /// Adds the times during which nodes did not run.
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
                    self.end(&mut since, *node, *at, Trouble::Halted);
                }
                NodeChange::Started { .. } | NodeChange::ClockShifted { .. } => {}
            }
        }
        self.end_all(since, Trouble::Halted);
    }

    /// Adds the times during which nodes' clocks were moved.
    fn take_clocks(&mut self, world: &World<'_>) {
        let mut since: BTreeMap<u32, Moment> = BTreeMap::new();
        for (at, node, change) in &world.changes {
            let NodeChange::ClockShifted { by_ms } = change else { continue };
            if *by_ms == 0 {
                self.end(&mut since, *node, *at, Trouble::Moved);
            } else {
                since.entry(*node).or_insert(*at);
            }
        }
        self.end_all(since, Trouble::Moved);
    }

    fn end(&mut self, since: &mut BTreeMap<u32, Moment>, node: u32, at: Moment, trouble: Trouble) {
        if let Some(from) = since.remove(&node) {
            let to_us = at.us.saturating_add(AFTER_US);
            self.spans.push(Span { trouble, node: Some(node), from_us: from.us, to_us });
        }
    }

    fn end_all(&mut self, since: BTreeMap<u32, Moment>, trouble: Trouble) {
        let open = since.into_iter().map(|(node, from)| Span {
            trouble,
            node: Some(node),
            from_us: from.us,
            to_us: u64::MAX,
        });
        self.spans.extend(open);
    }
}

/// Which node a fault affects, and how; `None` for faults of callers, copies or the upstream, and for those that node changes show better.
fn effect_of(fault: &FaultEvent) -> Option<(Trouble, Option<u32>)> {
    let is = |kinds: &[FaultKind]| kinds.contains(&fault.kind);
    if is(&[FaultKind::F20]) {
        return Some((Trouble::Halted, None));
    }
    let node = fault.node?;
    if is(&[FaultKind::F8, FaultKind::F11]) {
        Some((Trouble::Halted, Some(node)))
    } else if is(&[FaultKind::F10]) {
        Some((Trouble::Moved, Some(node)))
    } else {
        None
    }
}
