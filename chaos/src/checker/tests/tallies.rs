//! How much was judged, and that what was not is said.

use super::{
    good, judged,
    script::{Key, Script},
};
use crate::{
    checker::{Invariant, Tally, Verdict},
    history::{
        Event, What,
        node::{NodeChange, NodeEvent},
        request::{Answer, Loss, Lost, Why},
    },
};

fn tally(verdict: &Verdict, of: Invariant) -> Tally {
    verdict.tallies.get(&of).cloned().unwrap_or_default()
}

fn unjudged(verdict: &Verdict, of: Invariant) -> Vec<(String, u64)> {
    tally(verdict, of).unjudged.into_iter().collect()
}

fn clock_moves(script: &mut Script) {
    script.node(NodeChange::ClockShifted { by_ms: 3_600_000 });
    script.node(NodeChange::ClockShifted { by_ms: 0 });
}

#[test]
fn a_good_history_is_judged_as_a_whole() {
    let verdict = judged(&good());
    for invariant in [Invariant::I2, Invariant::I6, Invariant::I13] {
        let tally = tally(&verdict, invariant);
        assert!(tally.judged > 0 && tally.unjudged.is_empty(), "{invariant}: {tally:?}");
    }
}

#[test]
fn what_two_clocks_say_is_not_compared_where_one_was_moved_and_that_is_said() {
    let as_it_is = judged(&good());
    let mut script = good();
    clock_moves(&mut script);
    let verdict = judged(&script);
    assert!(verdict.is_clean(), "{verdict:#?}");
    for invariant in [Invariant::I2, Invariant::I6] {
        let judged = tally(&as_it_is, invariant).judged;
        assert_eq!(tally(&verdict, invariant).judged, judged, "{invariant}");
        let expected = [("when it was recorded: clocks moved".to_owned(), judged)];
        assert_eq!(unjudged(&verdict, invariant), expected, "{invariant}");
    }
}

#[test]
fn a_stop_is_judged_by_two_clocks() {
    let stop = |script: &mut Script| {
        script.node(NodeChange::StopAsked);
        script.node(NodeChange::Stopped { code: Some(0) });
    };
    let mut script = good();
    stop(&mut script);
    assert_eq!(tally(&judged(&script), Invariant::I8).judged, 1);
    clock_moves(&mut script);
    let verdict = judged(&script);
    assert_eq!(tally(&verdict, Invariant::I8).judged, 0);
    assert_eq!(unjudged(&verdict, Invariant::I8), [("clocks moved".to_owned(), 1)]);
}

/// Ben agrees when the faults are over.
fn agreed(script: &mut Script) {
    let mut key = Key::new("erase", "agreed", "scribe");
    let request = script.send(&key, "G", Why::New);
    script.holds(&mut key);
    script.reply(request, &key, Answer::Pending);
    let before = script.entries.len();
    script.votes(&mut key, true);
    for entry in script.entries.split_off(before) {
        script.probe(crate::history::probe::Probe::Entry(Box::new(entry)));
    }
}

#[test]
fn an_agreement_that_cannot_be_judged_is_counted_by_why() {
    let why = |change: fn(&mut Script)| {
        let mut script = good();
        agreed(&mut script);
        change(&mut script);
        unjudged(&judged(&script), Invariant::I13)
    };
    assert_eq!(why(|_| {}), []);
    assert_eq!(why(clock_moves), [("clocks moved".to_owned(), 1)]);
    let nearly_over = |script: &mut Script| {
        script.each_entry(|entry| {
            let own = entry.approvals.iter_mut().filter(|one| one.approval_id == "apr_agreed");
            own.for_each(|one| one.expires_ms = entry.at_ms + 1_000);
        });
    };
    assert_eq!(why(nearly_over), [("an agreement that was nearly over".to_owned(), 1)]);
    let unknown = |script: &mut Script| {
        script.each_entry(|entry| entry.approvals.retain(|one| one.approval_id != "apr_agreed"));
    };
    assert_eq!(why(unknown), [("the log does not have the approval".to_owned(), 1)]);
}

#[test]
fn who_waited_in_vain_where_nobody_says_what_struck_the_nodes_is_not_judged() {
    let mut script = good();
    let reply = |event: &Event| {
        if let What::Reply(reply) = &event.what { Some(reply.request) } else { None }
    };
    let place = script.events.iter().position(|event| reply(event).is_some()).unwrap();
    let request = reply(&script.events[place]).unwrap();
    script.events[place].what = What::Lost(Lost { request, how: Loss::TimedOut });
    assert_eq!(unjudged(&judged(&script), Invariant::I13), []);
    script.events.retain(|event| !matches!(event.what, What::Node(NodeEvent { .. })));
    let verdict = judged(&script);
    let expected = [("nobody says what struck the nodes".to_owned(), 1)];
    assert_eq!(unjudged(&verdict, Invariant::I13), expected);
}
