//! I8: nodes that are shut out without a cause.

use super::{caught, fine, judged, only, script::Script};
use crate::{
    checker::Invariant,
    history::{
        What,
        fault::{FaultEvent, FaultKind},
        node::{NodeChange, NodeEvent},
        probe::Probe,
    },
};

fn of_node(node: u32, change: NodeChange) -> What {
    What::Node(NodeEvent { node, change })
}

fn of_fault(kind: FaultKind, node: Option<u32>) -> What {
    What::Fault(FaultEvent { kind, node, detail: "here".to_owned() })
}

/// Start 7 of node 1 is shut out now, by start 8 of this node.
fn shut_out_by(script: &mut Script, other: u32) {
    for (epoch, node) in [(7, 1), (8, other)] {
        script.probe(Probe::Epoch { epoch, node });
    }
    let at_ms = script.now().wall_ms;
    script.probe(Probe::Fenced { epoch: 7, at_ms, by: Some(8) });
}

fn shut_out(script: &mut Script) {
    shut_out_by(script, 2);
}

#[test]
fn i8_a_node_that_nothing_struck_is_not_shut_out() {
    only(Invariant::I8, shut_out);
    let why = caught(Invariant::I8, shut_out);
    assert!(why[0].contains("start 7 of node 1 (by start 8 of node 2)"), "{why:?}");
    // Faults of another node, a caller, the upstream or one of its own copies are not causes for it.
    for elsewhere in [
        of_node(2, NodeChange::Paused),
        of_fault(FaultKind::F8, Some(2)),
        of_fault(FaultKind::F8, None),
        of_fault(FaultKind::F22, Some(1)),
    ] {
        only(Invariant::I8, |script| {
            script.say(elsewhere);
            shut_out(script);
        });
    }
}

#[test]
fn i8_a_node_that_was_struck_may_be_shut_out() {
    for struck in [
        of_node(1, NodeChange::Paused),
        of_node(1, NodeChange::Killed),
        of_node(1, NodeChange::StopAsked),
        of_node(1, NodeChange::Exited { code: Some(1), why: String::new() }),
        of_node(1, NodeChange::ClockShifted { by_ms: 9_000 }),
        of_fault(FaultKind::F8, Some(1)),
        of_fault(FaultKind::F10, Some(1)),
        of_fault(FaultKind::F11, Some(1)),
        of_fault(FaultKind::F20, None),
    ] {
        let is_clock = matches!(&struck, What::Node(node) if matches!(node.change, NodeChange::ClockShifted { .. }));
        let told = format!("{struck:?}");
        fine(|script| {
            script.say(struck.clone());
            shut_out(script);
        });
        if is_clock {
            continue;
        }
        // A later fault is not a cause.
        let mut script = super::good();
        script.say(What::Injecting);
        shut_out(&mut script);
        script.say(What::Injecting);
        script.say(struck);
        assert_eq!(judged(&script).of(Invariant::I8).count(), 1, "{told}");
    }
}

#[test]
fn i8_a_cause_is_over_some_time_after_it() {
    let over = |resumed: NodeChange, back_ms: u64| {
        let mut script = super::good();
        script.say(of_node(1, NodeChange::Paused));
        script.say(of_node(1, NodeChange::ClockShifted { by_ms: 5 }));
        script.say(of_node(1, resumed));
        script.say(of_node(1, NodeChange::ClockShifted { by_ms: 0 }));
        script.wait(back_ms);
        shut_out(&mut script);
        judged(&script).of(Invariant::I8).count()
    };
    assert_eq!(over(NodeChange::Resumed, 14_000), 0);
    assert_eq!(over(NodeChange::Resumed, 16_000), 1);
    // Nor is one that continues.
    assert_eq!(over(NodeChange::Started { pid: 9 }, 60_000), 0);
}

#[test]
fn i8_who_takes_over_from_its_own_start_before_shuts_nobody_out() {
    fine(|script| shut_out_by(script, 1));
    fine(|script| {
        let at_ms = script.now().wall_ms;
        script.probe(Probe::Epoch { epoch: 7, node: 1 });
        script.probe(Probe::Fenced { epoch: 7, at_ms, by: None });
    });
}
