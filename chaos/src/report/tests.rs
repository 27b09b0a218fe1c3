//! The report's numbers and its text.

use super::{Report, at};
use crate::{
    checker::{Invariant, Unchecked, Verdict, Violation},
    history::{
        Class, Event, Phase, What,
        fault::{FaultEvent, FaultKind},
        node::{NodeChange, NodeEvent},
        request::{Answer, Loss, Lost, Protocol, Reply, ResultSeen, Sent, Why},
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
        over: Protocol::Http,
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
    let result = ResultSeen { digest: digest.to_owned(), token: None, args: None };
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

fn history() -> Vec<Event> {
    vec![
        event(0, What::Phase(Phase::Load)),
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

fn report_of(events: &[Event], lines: &[Line], verdict: &Verdict) -> Report {
    let mut report = Report::default();
    report.take(events, lines, verdict);
    report
}

fn report() -> Report {
    report_of(&history(), &effects(), &Verdict::default())
}

fn broken() -> Verdict {
    let violation = Violation {
        invariant: Invariant::I1,
        subject: "token <1>".to_owned(),
        why: "two effects".to_owned(),
        events: vec!["+0 ms <first>".to_owned(), "+1 ms second".to_owned()],
    };
    let unchecked = Unchecked { invariant: Invariant::I15, missing: "nobody looked".to_owned() };
    Verdict { violations: vec![violation], unchecked: vec![unchecked] }
}

#[test]
fn everything_is_counted() {
    let report = report();
    assert!(report.passed(), "{}", report.text());
    for (what, count) in [
        ("kills", 1),
        ("calls", 5),
        ("keys", 2),
        ("duplicates", 3),
        ("unanswered", 1),
        ("acknowledged", 1),
        ("effects", 1),
        ("unknown keys", 1),
    ] {
        assert_eq!(report.counted(what), count, "{what}");
    }
    assert_eq!((report.faults[&FaultKind::F4], report.lasted_ms), (1, 100));
    assert_eq!(
        (report.recovery.len(), at(&report.recovery, 99), at(&report.latency, 99)),
        (2, 45, 10)
    );
}

#[test]
fn replays_are_judged_by_digest_and_conflicts_by_being_one() {
    let replays = |events: &[Event], lines: &[Line]| {
        let report = report_of(events, lines, &Verdict::default());
        (report.counted("replays judged"), report.counted("replays correct"))
    };
    assert_eq!(replays(&history(), &effects()), (2, 2));
    for (request, doctored) in [
        (2, reply(2, Answer::Succeeded, "other", true)),
        (2, reply(2, Answer::Succeeded, "d", false)),
        (3, reply(3, Answer::Succeeded, "d", true)),
    ] {
        let mut events = history();
        let is = |event: &&mut Event| matches!(&event.what, What::Reply(reply) if reply.request == request);
        events.iter_mut().find(is).unwrap().what = doctored;
        assert_eq!(replays(&events, &effects()), (2, 1), "{request}");
    }
    assert_eq!(replays(&history(), &[effects(), effects()].concat()).1, 1);
}

#[test]
fn a_broken_or_unchecked_promise_or_another_finding_fails_the_run_and_is_told() {
    let report = report_of(&history(), &effects(), &broken());
    assert!(!report.passed());
    let text = report.text();
    for said in [
        "BROKEN 1 times",
        "NOT CHECKED I15: nobody looked",
        "FAILED",
        "double 1, lost 0",
        "I1 broken for token <1>: two effects",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
    let only_unchecked = Verdict { violations: Vec::new(), ..broken() };
    assert!(!report_of(&history(), &effects(), &only_unchecked).passed());
    let mut found = self::report();
    found.find(["a node did not start".to_owned()]);
    assert!(!found.passed() && found.text().contains("FOUND a node did not start"));
    assert!(!Report::default().passed(), "a run without a round shows nothing");
}

#[test]
fn rounds_add_up_and_what_was_wrong_in_one_is_wrong_in_all() {
    let mut whole = report();
    whole.take(&history(), &effects(), &Verdict::default());
    assert!(whole.passed());
    assert_eq!((whole.rounds, whole.counted("kills"), whole.lasted_ms), (2, 2, 200));
    whole.take(&history(), &effects(), &broken());
    whole.take(&history(), &effects(), &Verdict::default());
    assert!(!whole.passed() && whole.text().ends_with("FAILED"));
}

#[test]
fn the_middle_and_the_hundredth_of_some_times() {
    let times: Vec<u64> = (1..=200).rev().collect();
    assert_eq!((at(&times, 50), at(&times, 99), at(&[7], 99), at(&[], 50)), (100, 198, 7, 0));
}
