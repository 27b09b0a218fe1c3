//! When escalations are due.

use std::collections::BTreeSet;

use placet_types::{
    approval::{Escalation, Requirement, Vote},
    clock::Timestamp,
    digest::Digest,
    narrowing::Change,
};

use super::{
    super::{ApprovalRecord, ApprovalState, Edited},
    pending, requirement, yes,
};

/// One person of `a` is asked, and after each of these silences one of another group instead.
fn later(steps: &[(u64, &str)]) -> Requirement {
    let escalation = |(after_ms, group): &(u64, &str)| Escalation {
        after_ms: *after_ms,
        group: group.parse().unwrap(),
        people: 1,
        stands_in_for: ["a".parse().unwrap()].into(),
    };
    Requirement {
        escalations: steps.iter().map(escalation).collect(),
        ..requirement(&[("a", 1)], 1)
    }
}

fn at(ms: i64) -> Timestamp {
    Timestamp::from_ms(ms)
}

fn back(agreed: &ApprovalRecord, asked: Requirement, now_ms: i64) -> ApprovalRecord {
    assert_eq!(agreed.state, ApprovalState::Approved);
    let back = agreed.back(asked, &BTreeSet::from([0]), at(now_ms)).unwrap();
    assert!(back.may_follow(Some(agreed)));
    back
}

fn asks(approval: &ApprovalRecord, group: &str) -> bool {
    approval.asked().iter().any(|asked| asked.to_string() == group)
}

#[test]
fn nobody_is_asked_without_a_silence_because_the_policies_come_to_ask_for_more() {
    let agreed = pending(requirement(&[("a", 1)], 1)).cast(yes("ann", &["a"]), at(5)).unwrap();
    let back = back(&agreed, later(&[(100, "leads")]), 500);
    assert_eq!(back.escalation_due(), Some(at(600)));
    assert!(back.escalate(at(599)).is_err());
    assert!(asks(&back.escalate(at(600)).unwrap(), "leads"));
}

#[test]
fn who_was_asked_after_a_silence_is_asked_still_when_a_call_goes_back() {
    let asked = pending(later(&[(100, "leads"), (200, "heads")]));
    let asked = asked.escalate(at(100)).unwrap();
    let agreed = asked.cast(yes("lea", &["leads"]), at(110)).unwrap();
    // Another group is now due sooner than the one that was already asked.
    let back = back(&agreed, later(&[(50, "others"), (100, "leads"), (200, "heads")]), 500);
    assert_eq!((back.escalated, asks(&back, "leads")), (1, true));
    assert!(!asks(&back, "others") && !asks(&back, "heads"));
    assert_eq!(back.escalation_due(), Some(at(550)));
    let next = back.escalate(at(550)).unwrap();
    assert!(asks(&next, "others") && !asks(&next, "heads"));
    assert_eq!(next.escalation_due(), Some(at(700)));
    // A group that policies no longer ask is not asked.
    let agreed = next.cast(yes("lea", &["leads"]), at(560)).unwrap();
    let gone = self::back(&agreed, later(&[(100, "heads")]), 570);
    assert_eq!((gone.escalated, asks(&gone, "leads")), (0, false));
}

#[test]
fn a_group_that_would_stand_in_for_more_than_when_it_was_asked_waits_for_a_silence_again() {
    let asked = pending(later(&[(100, "leads")])).escalate(at(100)).unwrap();
    let agreed = asked.cast(yes("lea", &["leads"]), at(110)).unwrap();
    let back = |change: fn(&mut Escalation)| {
        let mut asked = later(&[(100, "leads")]);
        change(&mut asked.escalations[0]);
        back(&agreed, asked, 500)
    };
    assert_eq!(back(|_| {}).escalated, 1);
    assert_eq!(back(|one| one.after_ms = 50).escalated, 1);
    assert_eq!(back(|one| one.stands_in_for.clear()).escalated, 1);
    let wider = back(|one| one.stands_in_for.extend(["b".parse().unwrap()]));
    assert_eq!((wider.escalated, asks(&wider, "leads")), (0, false));
    assert_eq!(wider.escalation_due(), Some(at(600)));
    assert_eq!(back(|one| one.people = 2).escalated, 0);
    assert_eq!(back(|one| one.after_ms = 101).escalated, 0);
}

/// An edit at 500 ms after which the policies ask for `requirement`.
fn edited(asked: &ApprovalRecord, requirement: Requirement) -> ApprovalRecord {
    let shown = Digest::of(b"edited");
    let edit = Edited {
        request_digest: Digest::of(b"another request"),
        proposal: shown,
        from_parked: Digest::of(b"parked"),
        requirement,
        change: Change { narrower: false, masked: BTreeSet::new() },
    };
    let vote = Vote { shown_digest: shown, ..yes("ann", &["a"]) };
    let edited = asked.edited(edit, vote, at(500)).unwrap();
    assert!(edited.may_follow(Some(asked)));
    edited
}

#[test]
fn an_edit_that_brings_an_escalation_does_not_make_it_at_once() {
    let asked = pending(requirement(&[("b", 1)], 1));
    let edited = edited(&asked, later(&[(100, "leads")]));
    assert_eq!(edited.escalation_due(), Some(at(600)));
}

#[test]
fn no_escalation_answers_for_a_gate_without_one() {
    // Neither a gate that an edit adds nor one that it leaves behind.
    let strict = || requirement(&[("a", 1)], 1);
    let added = edited(&pending(later(&[(100, "leads")])), strict());
    let left_behind = edited(&pending(strict()), later(&[(100, "leads")]));
    let asked_already = pending(later(&[(100, "leads")])).escalate(at(100)).unwrap();
    assert!(asks(&asked_already, "leads"));
    for edited in [added, left_behind, edited(&asked_already, strict())] {
        assert_eq!((edited.escalation_due(), edited.escalated), (None, 0));
        assert!(asks(&edited, "a") && !asks(&edited, "leads"));
        let agreed = edited.cast(yes("lea", &["leads"]), at(700));
        assert!(agreed.is_err() || agreed.unwrap().state == ApprovalState::Pending);
    }
}

#[test]
fn when_it_went_back_is_written_with_that_alone() {
    let agreed = pending(requirement(&[("a", 1)], 1)).cast(yes("ann", &["a"]), at(5)).unwrap();
    let moved = agreed.moved(ApprovalState::Pending).unwrap();
    let said = ApprovalRecord { reopened_at: Some(at(900)), ..moved };
    assert!(!said.may_follow(Some(&agreed)), "a silence that did not begin again");
    assert!(serde_json::to_value(&agreed).unwrap().get("reopened_at").is_none());
}
