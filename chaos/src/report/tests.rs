//! The report's numbers and its three forms.

use super::{
    NeverJudged, Report,
    text::{grouped, percent, seconds},
};
use crate::{
    checker::{Invariant, Part, Tally, Unchecked, Verdict, Violation},
    history::{
        Class, Event, Phase, RunInfo, What,
        fault::{FaultEvent, FaultKind},
        node::{NodeChange, NodeEvent},
        request::{Answer, Loss, Lost, Reply, ResultSeen, Sent, Why},
    },
    witness::log::{Arrival, Line, Seen},
};
use placet_testkit::moment::Moment;

fn event(ms: u64, what: What) -> Event {
    Event { at: Moment { us: ms.saturating_mul(1_000), wall_ms: 0 }, what }
}

fn sent(request: u64, key: &str, args: &str, why: Why) -> What {
    What::Sent(Box::new(Sent {
        request,
        client: 0,
        node: 0,
        tenant: "acme".to_owned(),
        agent: "scribe".to_owned(),
        user: None,
        tool: "w__put".to_owned(),
        class: Class::Keyed,
        needs_approval: false,
        run_id: "run".to_owned(),
        key: Some(key.to_owned()),
        args: args.to_owned(),
        why,
    }))
}

fn reply(request: u64, answer: Answer, digest: &str, replayed: bool) -> What {
    let result = ResultSeen { digest: digest.to_owned(), token: None, args: None, bytes: 1 };
    What::Reply(Box::new(Reply {
        request,
        status: 200,
        answer,
        code: None,
        execution: None,
        replayed,
        call_id: None,
        approval_id: None,
        result: Some(result).filter(|_| answer == Answer::Succeeded),
        leaks: Vec::new(),
    }))
}

fn node(change: NodeChange) -> What {
    What::Node(NodeEvent { node: 0, change })
}

fn fault(kind: FaultKind) -> What {
    What::Fault(FaultEvent { kind, node: None, detail: "<b>x</b>".to_owned() })
}

fn run() -> What {
    What::Run(Box::new(RunInfo {
        seed: 42,
        commit: "abc".to_owned(),
        machine: "2 cores, <fast> disk".to_owned(),
        store: "embedded".to_owned(),
        nodes: 1,
        applicable: vec![FaultKind::F1, FaultKind::F4],
        keyed_window_ms: 1,
        settle_delay_ms: 1,
        settle_within_ms: 1,
    }))
}

fn history() -> Vec<Event> {
    vec![
        event(0, run()),
        event(1, node(NodeChange::Ready { after_ms: 30 })),
        event(10, sent(1, "a", "A", Why::New)),
        event(20, reply(1, Answer::Succeeded, "d", false)),
        event(30, sent(2, "a", "A", Why::AfterSuccess)),
        event(31, reply(2, Answer::Succeeded, "d", true)),
        event(32, sent(3, "a", "B", Why::ChangedArgs)),
        event(33, reply(3, Answer::Conflict, "", false)),
        event(34, fault(FaultKind::F1)),
        event(40, sent(4, "b", "A", Why::New)),
        event(41, node(NodeChange::Killed)),
        event(41, fault(FaultKind::F4)),
        event(42, What::Lost(Lost { request: 4, how: Loss::Broken })),
        event(90, node(NodeChange::Ready { after_ms: 45 })),
        event(95, sent(5, "b", "A", Why::AfterLoss)),
        event(99, reply(5, Answer::Unknown, "", false)),
        event(100, What::Phase(Phase::Ended)),
    ]
}

fn effects() -> Vec<Line> {
    let arrival = Arrival {
        tool: "put".to_owned(),
        class: Class::Keyed,
        token: "plc_1".to_owned(),
        attempt: 1,
        key: "a".to_owned(),
        arrival: 1,
        args: "A".to_owned(),
    };
    let started = Moment { us: 15_000, wall_ms: 0 };
    vec![Line { at: started, what: Seen::Effect { arrival, started, effect: 1 } }]
}

fn report() -> Report {
    Report::of(&history(), &effects(), &Verdict::default())
}

fn broken() -> Verdict {
    let violation = Violation {
        invariant: Invariant::I1,
        subject: "token <1>".to_owned(),
        why: "two effects".to_owned(),
        events: vec!["+0 ms <first>".to_owned(), "+1 ms second".to_owned()],
    };
    let unchecked = Unchecked { invariant: Invariant::I15, missing: "nobody looked".to_owned() };
    Verdict { violations: vec![violation], unchecked: vec![unchecked], ..Verdict::default() }
}

/// A verdict that leaves something of a promise out.
fn partial() -> Verdict {
    let unjudged = [("clocks moved".to_owned(), 12)].into();
    let tallies = [(Part::TakenUp, Tally { judged: 1_204, unjudged })].into();
    Verdict { tallies, ..Verdict::default() }
}

/// A round on a store, in which so many nodes that were asked to stop were judged, and so many were not.
fn stopped(store: &str, judged: u64, left_out: u64) -> Report {
    let unjudged = [("clocks moved".to_owned(), left_out)];
    let unjudged = unjudged.into_iter().filter(|(_, count)| *count > 0).collect();
    let fenced = Tally { judged: 7, ..Tally::default() };
    let tallies =
        [(Part::IdleOnceStopped, Tally { judged, unjudged }), (Part::StruckBefore, fenced)];
    let verdict = Verdict { tallies: tallies.into(), ..Verdict::default() };
    let mut events = history();
    for event in &mut events {
        if let What::Run(run) = &mut event.what {
            run.store = store.to_owned();
        }
    }
    Report::of(&events, &effects(), &verdict)
}

#[test]
fn everything_is_counted() {
    let report = report();
    assert!(report.passed(), "{:?}", report.reasons());
    let (trouble, asked, outcome) = (&report.trouble, &report.asked, &report.outcome);
    assert_eq!((trouble.kills, trouble.faults[&FaultKind::F4]), (1, 1));
    assert_eq!((asked.calls, asked.keys, asked.duplicates, asked.unanswered), (5, 2, 3, 1));
    assert_eq!((outcome.acknowledged, outcome.effects, outcome.indeterminate), (1, 1, 1));
    assert!((outcome.indeterminate_rate - 0.5).abs() < f64::EPSILON);
    assert_eq!((report.recovery.count, report.recovery.max_ms, report.latency.max_ms), (2, 45, 10));
    assert_eq!(report.lasted_ms, 100);
}

#[test]
fn replays_are_judged_by_digest_and_conflicts_by_being_one() {
    let replay = report().outcome.replay;
    assert_eq!((replay.judged, replay.correct), (2, 2));
    for (request, doctored) in [
        (2, reply(2, Answer::Succeeded, "other", true)),
        (2, reply(2, Answer::Succeeded, "d", false)),
        (3, reply(3, Answer::Succeeded, "d", true)),
    ] {
        let mut events = history();
        let is = |event: &&mut Event| matches!(&event.what, What::Reply(reply) if reply.request == request);
        events.iter_mut().find(is).unwrap().what = doctored;
        let replay = Report::of(&events, &effects(), &Verdict::default()).outcome.replay;
        assert_eq!((replay.judged, replay.correct), (2, 1), "{request}");
    }
    let twice = [effects(), effects()].concat();
    assert_eq!(Report::of(&history(), &twice, &Verdict::default()).outcome.replay.correct, 1);
}

#[test]
fn a_fault_that_applies_and_never_happened_fails_the_run() {
    let mut events = history();
    events
        .retain(|event| !matches!(&event.what, What::Fault(fault) if fault.kind == FaultKind::F4));
    let report = Report::of(&events, &effects(), &Verdict::default());
    assert!(!report.passed());
    assert_eq!(report.trouble.never, [FaultKind::F4]);
    assert!(report.text().contains("F4 never happened"), "{}", report.text());
}

#[test]
fn a_broken_or_unchecked_promise_or_another_finding_fails_the_run() {
    let report = Report::of(&history(), &effects(), &broken());
    assert!(!report.passed());
    assert_eq!((report.outcome.double, report.broken["I1"], report.broken["I2"]), (1, 1, 0));
    let text = report.text();
    for said in [
        "BROKEN 1 times",
        "I15 was not checked: nobody looked",
        "FAILED",
        "I1 broken for token <1>: two effects",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
    let only_unchecked = Verdict { violations: Vec::new(), ..broken() };
    assert!(!Report::of(&history(), &effects(), &only_unchecked).passed());
    let found = self::report().with_findings(["a node did not start".to_owned()]);
    assert!(!found.passed() && found.text().contains("a node did not start"));
    assert!(self::report().with_findings([]).passed());
}

#[test]
fn what_was_not_judged_is_said_in_every_form_and_fails_nothing_where_something_was() {
    let partial = Report::of(&history(), &effects(), &partial());
    assert!(partial.passed(), "{:?}", partial.reasons());
    let said = "I13 agreements: 1,204 judged, 12 not judged (clocks moved)";
    assert!(partial.text().contains(said), "{}", partial.text());
    let json: serde_json::Value = serde_json::from_str(&partial.json().unwrap()).unwrap();
    assert_eq!(json["tallies"]["I13 agreements"]["judged"], 1_204);
    assert_eq!(json["tallies"]["I13 agreements"]["unjudged"]["clocks moved"], 12);
    let whole = Report::merged(&[partial.clone(), report(), partial], &[]).of_whole_run();
    assert!(whole.passed(), "{:?}", whole.reasons());
    assert!(whole.text().contains("2,408 judged, 24 not judged (clocks moved)"));
    assert!(!report().text().contains("judged"), "{}", report().text());
}

#[test]
fn what_came_up_and_was_never_judged_fails_a_whole_run_and_is_told_of_one_round() {
    let said = "I8 stop (nothing is dispatched after a stop was asked for) was never judged on postgres: 3 × clocks moved";
    let round = stopped("postgres", 0, 3);
    assert!(round.passed(), "{:?}", round.reasons());
    let told = format!("NOTE {said}; a whole run would fail");
    assert!(round.text().contains(&told), "{}", round.text());
    let replayed = Report::merged(std::slice::from_ref(&round), &[]);
    assert!(replayed.passed() && replayed.text().contains(&told), "{}", replayed.text());
    let whole = replayed.of_whole_run();
    assert!(!whole.passed());
    let text = whole.text();
    assert!(
        text.contains(&format!("{said}; run it for longer")) && !text.contains("NOTE"),
        "{text}"
    );
    let json: serde_json::Value = serde_json::from_str(&whole.json().unwrap()).unwrap();
    assert_eq!(json["never_judged"][0]["part"], "I8 stop");
    assert_eq!(json["never_judged"][0]["unjudged"]["clocks moved"], 3);
}

#[test]
fn what_one_round_leaves_out_another_one_on_the_same_store_judges() {
    let never = |rounds: &[Report]| NeverJudged::among(rounds).len();
    let moved = || stopped("postgres", 0, 3);
    assert_eq!(never(&[moved(), stopped("postgres", 1, 0)]), 0);
    assert_eq!(never(&[moved(), stopped("postgres", 0, 0)]), 1);
    // Another store judges nothing of this one, and other parts of the promise were judged all the time.
    assert_eq!(never(&[moved(), stopped("embedded", 1, 0)]), 1);
    assert_eq!(never(&[moved(), stopped("embedded", 0, 2)]), 2);
    // What never came up is no gap; that a fault never happened is told elsewhere.
    assert_eq!(never(&[stopped("postgres", 0, 0)]), 0);
    let whole = Report::merged(&[moved(), stopped("postgres", 1, 0)], &[]).of_whole_run();
    assert!(whole.passed(), "{:?}", whole.reasons());
    assert_eq!(whole.judged(Part::IdleOnceStopped), 1);
}

#[test]
fn a_history_without_a_beginning_does_not_pass() {
    let events = history().split_off(1);
    assert!(!Report::of(&events, &effects(), &Verdict::default()).passed());
}

#[test]
fn rounds_add_up_and_what_was_wrong_in_one_is_wrong_in_all() {
    let whole = Report::merged(&[report(), report()], &[]);
    assert!(whole.passed());
    assert_eq!(
        (whole.rounds, whole.trouble.kills, whole.asked.calls, whole.lasted_ms),
        (2, 2, 10, 200)
    );
    assert_eq!(
        (whole.recovery.count, whole.outcome.replay.judged, whole.outcome.replay.correct),
        (4, 4, 4)
    );
    assert_eq!(whole.set_ups, ["embedded, 1 node"]);
    assert!(
        !Report::merged(&[report(), Report::of(&history(), &effects(), &broken())], &[]).passed()
    );
    let never = Report::merged(&[report()], &[FaultKind::F9]);
    assert!(!never.passed() && never.text().contains("F9 never happened"));
    assert!(!Report::merged(&[report().with_findings(["x".to_owned()])], &[]).passed());
    assert!(!Report::merged(&[], &[]).passed());
}

#[test]
fn the_json_has_every_figure() {
    let json: serde_json::Value = serde_json::from_str(&report().json().unwrap()).unwrap();
    assert_eq!(json["passed"], true);
    assert_eq!(json["run"]["seed"], 42);
    assert_eq!(json["trouble"]["faults"]["F4"], 1);
    assert_eq!(json["outcome"]["replay"]["rate"], 1.0);
    assert_eq!(json["outcome"]["answers"]["succeeded"], 2);
    assert_eq!(json["broken"]["REAL"], 0);
}

#[test]
fn numbers_read_well() {
    assert_eq!(
        [grouped(0), grouped(999), grouped(1_000), grouped(1_234_567)],
        ["0", "999", "1,000", "1,234,567"]
    );
    assert_eq!([percent(1.0), percent(0.0), percent(0.999_999_9)], ["100 %", "0.00 %", "99.99 %"]);
    assert_eq!([seconds(1_500), seconds(61_000)], ["1.5 s", "1 min 1 s"]);
}
