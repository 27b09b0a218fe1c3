//! I13 and I8 during the faults: requests that hang at a node that no fault affected, and calls begun after a stop was requested.

use super::{caught, fine, only, script::Script};
use crate::{
    checker::Invariant,
    history::{
        Event, What,
        fault::{FaultEvent, FaultKind},
        journal::{JournalEntry, RecordChange},
        node::{NodeChange, NodeEvent},
        probe::Probe,
        request::{Loss, Lost},
    },
};

/// Makes the first answer in the history never come; returns its place.
fn first_answer_never_comes(script: &mut Script) -> usize {
    let request_of = |event: &Event| {
        if let What::Reply(reply) = &event.what { Some(reply.request) } else { None }
    };
    let place = script.events.iter().position(|event| request_of(event).is_some()).unwrap();
    let request = request_of(&script.events[place]).unwrap();
    let lost = Lost { request, how: Loss::TimedOut };
    script.events[place].what = What::Lost(lost);
    place
}

fn insert(script: &mut Script, place: usize, what: What) {
    let at = script.events[place].at;
    script.events.insert(place, Event { at, what });
}

fn of_node(node: u32, change: NodeChange) -> What {
    What::Node(NodeEvent { node, change })
}

fn of_fault(kind: FaultKind, node: Option<u32>) -> What {
    What::Fault(FaultEvent { kind, node, detail: "here".to_owned() })
}

#[test]
fn i13_who_waits_without_success_at_a_node_that_nothing_struck_is_caught_during_the_faults_too() {
    let why = caught(Invariant::I13, |script| {
        first_answer_never_comes(script);
    });
    assert!(why.len() == 1 && why[0].contains("nothing struck"), "{why:?}");
    for elsewhere in [
        of_node(1, NodeChange::Killed),
        of_fault(FaultKind::F11, Some(1)),
        of_fault(FaultKind::F1, Some(0)),
        of_fault(FaultKind::F8, None),
        of_node(0, NodeChange::ClockShifted { by_ms: 5_000 }),
    ] {
        only(Invariant::I13, |script| {
            let place = first_answer_never_comes(script);
            insert(script, place, elsewhere);
        });
    }
}

#[test]
fn i13_a_node_that_was_struck_may_keep_somebody_waiting() {
    for struck in [
        of_node(0, NodeChange::Paused),
        of_fault(FaultKind::F11, Some(0)),
        of_fault(FaultKind::F8, Some(0)),
        of_fault(FaultKind::F20, None),
    ] {
        fine(|script| {
            let place = first_answer_never_comes(script);
            insert(script, place, struck);
            insert(script, place + 2, of_node(0, NodeChange::Resumed));
        });
    }
}

#[test]
fn i13_what_was_injected_excuses_nobody_before_its_injector_began() {
    let waits = |began: usize| {
        let mut script = super::good();
        let place = first_answer_never_comes(&mut script);
        let last = script.events.len() - 1;
        insert(&mut script, last, of_fault(FaultKind::F11, Some(0)));
        insert(&mut script, [place, last][began], What::Injecting);
        super::judged(&script).of(Invariant::I13).count()
    };
    assert_eq!((waits(0), waits(1)), (0, 1));
}

/// The node is asked to stop this long before the last dispatch of the history, and is gone after it.
fn asked_to_stop(script: &mut Script, before_ms: i64) {
    let dispatches = |entry: &&JournalEntry| {
        let sends = |one: &RecordChange| matches!(one, RecordChange::Put(image) if image.state == "dispatched");
        entry.changes.iter().any(sends)
    };
    let last = script.entries.last().unwrap().at_ms;
    let last_dispatch =
        script.entries.iter().filter(dispatches).map(|entry| entry.at_ms).max().unwrap();
    let at = |wall_ms: i64, script: &Script| {
        let mut at = script.events[0].at;
        at.wall_ms = wall_ms;
        at
    };
    let (asked, gone) = (at(last_dispatch - before_ms, script), at(last + 10, script));
    let place = script
        .events
        .iter()
        .position(
            |event| matches!(&event.what, What::Node(node) if node.change == NodeChange::Killed),
        )
        .unwrap();
    script
        .events
        .insert(place, Event { at: gone, what: of_node(0, NodeChange::Stopped { code: Some(0) }) });
    script.events.insert(place, Event { at: asked, what: of_node(0, NodeChange::StopAsked) });
}

#[test]
fn i8_a_dispatch_after_the_node_was_asked_to_stop_is_caught() {
    let why = caught(Invariant::I8, |script| asked_to_stop(script, 2_000));
    assert!(why.iter().all(|why| why.contains("asked to stop")), "{why:?}");
    fine(|script| asked_to_stop(script, 100));
}

#[test]
fn i8_of_several_nodes_only_the_one_that_was_asked_is_meant() {
    let three = |script: &mut Script, node: u32| {
        for event in &mut script.events {
            if let What::Run(run) = &mut event.what {
                run.nodes = 3;
            }
        }
        asked_to_stop(script, 2_000);
        for epoch in [1, 2] {
            let probe = Probe::Epoch { epoch, node };
            let at = script.now();
            script.events.push(Event { at, what: What::Probe(Box::new(probe)) });
        }
    };
    let why = caught(Invariant::I8, |script| three(script, 0));
    assert!(why.iter().all(|why| why.contains("node 0")), "{why:?}");
    let mut script = super::good();
    three(&mut script, 2);
    assert_eq!(super::judged(&script).of(Invariant::I8).count(), 0);
}
