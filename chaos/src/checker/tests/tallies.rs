//! How much was judged, and that what was not is said.

use super::{
    good, judged,
    script::{Key, Script},
};
use crate::{
    checker::{Part, Tally, Verdict},
    history::{
        Event, Phase, What,
        node::{NodeChange, NodeEvent},
        request::{Answer, Loss, Lost, Why},
    },
};

fn tally(verdict: &Verdict, of: Part) -> Tally {
    verdict.tallies.get(&of).cloned().unwrap_or_default()
}

fn unjudged(verdict: &Verdict, of: Part) -> Vec<(String, u64)> {
    tally(verdict, of).unjudged.into_iter().collect()
}

fn clock_moves(script: &mut Script) {
    script.node(NodeChange::ClockShifted { by_ms: 3_600_000 });
    script.node(NodeChange::ClockShifted { by_ms: 0 });
}

fn database_clock_moves(script: &mut Script) {
    script.say(What::DatabaseClock { by_ms: 3_600_000 });
    script.say(What::DatabaseClock { by_ms: 0 });
}

#[test]
fn every_part_is_of_the_promise_that_its_name_begins_with() {
    for part in Part::ALL {
        let (promise, _) = part.name().split_once(' ').unwrap();
        assert_eq!(promise, part.of().name());
        assert_eq!(Part::ALL.iter().filter(|other| other.name() == part.name()).count(), 1);
    }
}

#[test]
fn a_good_history_is_judged_as_a_whole() {
    let verdict = judged(&good());
    for part in [
        Part::Recorded,
        Part::RecordedFirst,
        Part::Visible,
        Part::VisibleFirst,
        Part::PolicyOfThen,
        Part::Answered,
        Part::Settled,
    ] {
        let tally = tally(&verdict, part);
        assert!(tally.judged > 0 && tally.unjudged.is_empty(), "{part}: {tally:?}");
    }
}

#[test]
fn what_two_clocks_say_is_not_compared_where_one_was_moved_and_that_is_said() {
    let as_it_is = judged(&good());
    let mut script = good();
    clock_moves(&mut script);
    let verdict = judged(&script);
    assert!(verdict.is_clean(), "{verdict:#?}");
    for part in [Part::Recorded, Part::Visible] {
        assert_eq!(tally(&verdict, part), tally(&as_it_is, part), "{part}");
    }
    for part in [Part::RecordedFirst, Part::VisibleFirst] {
        let left_out = tally(&as_it_is, part).judged;
        assert_eq!(tally(&verdict, part).judged, 0, "{part}");
        assert_eq!(unjudged(&verdict, part), [("clocks moved".to_owned(), left_out)], "{part}");
    }
}

#[test]
fn which_policy_was_active_is_not_judged_where_the_databases_clock_was_moved_and_that_is_said() {
    let dispatches = tally(&judged(&good()), Part::PolicyOfThen).judged;
    let mut script = good();
    database_clock_moves(&mut script);
    let verdict = judged(&script);
    assert!(verdict.is_clean(), "{verdict:#?}");
    assert_eq!(tally(&verdict, Part::PolicyOfThen).judged, 0);
    let expected = [("clocks moved".to_owned(), dispatches)];
    assert_eq!(unjudged(&verdict, Part::PolicyOfThen), expected);
}

/// A node is asked to stop and starts again, while calls go on.
fn stops_under_load(script: &mut Script) {
    let is_quiet = |event: &Event| event.what == What::Phase(Phase::Quiet);
    let place = script.events.iter().position(is_quiet).unwrap();
    let at = script.events[place - 1].at;
    let changes = [
        NodeChange::StopAsked,
        NodeChange::Stopped { code: Some(0) },
        NodeChange::Started { pid: 3 },
        NodeChange::Ready { after_ms: 40 },
    ];
    let events =
        changes.map(|change| Event { at, what: What::Node(NodeEvent { node: 0, change }) });
    script.events.splice(place..place, events);
}

#[test]
fn a_stop_is_judged_by_two_clocks() {
    let mut script = good();
    stops_under_load(&mut script);
    assert_eq!(tally(&judged(&script), Part::IdleOnceStopped).judged, 1);
    clock_moves(&mut script);
    let verdict = judged(&script);
    assert_eq!(tally(&verdict, Part::IdleOnceStopped).judged, 0);
    assert_eq!(unjudged(&verdict, Part::IdleOnceStopped), [("clocks moved".to_owned(), 1)]);
}

#[test]
fn a_stop_after_which_nobody_calls_counts_for_nothing() {
    let mut script = good();
    script.node(NodeChange::StopAsked);
    script.node(NodeChange::Stopped { code: Some(0) });
    assert_eq!(tally(&judged(&script), Part::IdleOnceStopped), Tally::default());
    clock_moves(&mut script);
    assert_eq!(tally(&judged(&script), Part::IdleOnceStopped), Tally::default());
}

#[test]
fn one_part_of_a_promise_does_not_stand_for_another() {
    let mut script = good();
    stops_under_load(&mut script);
    database_clock_moves(&mut script);
    let verdict = judged(&script);
    // Who was shut out is said by the nodes then; what was dispatched after a stop is not known.
    assert!(!tally(&verdict, Part::StruckBefore).is_gap());
    assert!(tally(&verdict, Part::IdleOnceStopped).is_gap());
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
        unjudged(&judged(&script), Part::TakenUp)
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
fn an_agreement_that_ran_shows_nothing_where_one_that_did_not_would_not_either() {
    let counts = |moved: bool| {
        let mut script = good();
        agreed(&mut script);
        script.each_entry(|entry| {
            let own = entry.approvals.iter_mut().filter(|one| one.approval_id == "apr_agreed");
            own.for_each(|one| one.state = "consumed".to_owned());
        });
        if moved {
            clock_moves(&mut script);
        }
        let tally = tally(&judged(&script), Part::TakenUp);
        (tally.judged, tally.unjudged.values().sum::<u64>())
    };
    assert_eq!(counts(false), (1, 0));
    assert_eq!(counts(true), (0, 1));
}

#[test]
fn who_waited_without_success_where_nobody_says_what_struck_the_nodes_is_not_judged() {
    let mut script = good();
    let reply = |event: &Event| {
        if let What::Reply(reply) = &event.what { Some(reply.request) } else { None }
    };
    let place = script.events.iter().position(|event| reply(event).is_some()).unwrap();
    let request = reply(&script.events[place]).unwrap();
    script.events[place].what = What::Lost(Lost { request, how: Loss::TimedOut });
    assert_eq!(unjudged(&judged(&script), Part::Answered), []);
    script.events.retain(|event| !matches!(event.what, What::Node(NodeEvent { .. })));
    let verdict = judged(&script);
    let expected = [("nobody says what struck the nodes".to_owned(), 1)];
    assert_eq!(unjudged(&verdict, Part::Answered), expected);
}
