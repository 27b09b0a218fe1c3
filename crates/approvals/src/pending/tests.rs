//! What the index counts, filters and orders.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use placet_ledger::{
    approval::{APPROVAL_VERSION, ApprovalRecord, ApprovalState},
    store::ApprovalMark,
};
use placet_types::{
    approval::{Escalation, Requirement, Vote, VoteChoice},
    clock::Timestamp,
    digest::Digest,
    directory::Directory,
    ids::ApprovalId,
    mode::ApprovalMode,
    principal::PrincipalChain,
};

use super::{PendingIndex, query::Viewer};
use crate::views::{ApprovalEventKind, InboxOrder, InboxQuery};

fn directory() -> Directory {
    serde_json::from_value(json!({"tenants": {"acme": {
        "users": {"ana": {}}, "agents": {"bot": {"owner": "ana"}}
    }}}))
    .unwrap()
}

fn chain(kind: &str, id: &str, tenant: &str) -> PrincipalChain {
    serde_json::from_value(json!({"actor": {"kind": kind, "id": id, "tenant_id": tenant}})).unwrap()
}

pub(crate) fn approval(number: i64) -> ApprovalRecord {
    let groups = BTreeMap::from([("approvers".parse().unwrap(), 1)]);
    let mut requirement = Requirement::new(groups, 1, 10_000);
    requirement.escalations.push(Escalation {
        after_ms: 4_000,
        group: "directors".parse().unwrap(),
        people: 1,
        stands_in_for: ["approvers".parse().unwrap()].into(),
    });
    let created_at = Timestamp::from_ms(number);
    ApprovalRecord {
        version: APPROVAL_VERSION,
        approval_id: ApprovalId::new(format!("apr_{number:026}")).unwrap(),
        record_id: serde_json::from_value(json!(Digest::of(b"record"))).unwrap(),
        call_id: format!("call_{number}").parse().unwrap(),
        chain: chain("agent", "bot", "acme"),
        capability: "fake/erase".parse().unwrap(),
        mode: ApprovalMode::Destructive,
        request_digest: Digest::of(b"request"),
        proposal: Digest::of(b"shown"),
        bundle_digest: Digest::of(b"bundle"),
        requirement,
        created_at,
        expires_at: created_at.plus_ms(10_000),
        rev: 1,
        votes: Vec::new(),
        escalated: 0,
        external_tenants: BTreeSet::new(),
        taint: BTreeSet::new(),
        lapsed: BTreeSet::new(),
        reopened: 0,
        reopened_at: None,
        edits: Vec::new(),
        callback: None,
        state: ApprovalState::Pending,
    }
}

#[test]
fn a_look_in_short_finds_what_moved_elsewhere_and_nothing_that_is_known() {
    let (board, now) = (PendingIndex::default(), Timestamp::from_ms(10));
    for number in 1..=3 {
        board.moved(&approval(number), &directory(), now);
    }
    let over = ApprovalRecord { rev: 2, state: ApprovalState::Denied, ..approval(3) };
    board.moved(&over, &directory(), now);
    board.begin_sweep();
    let mark = |number, rev| ApprovalMark { approval_id: approval(number).approval_id, rev };
    // The first is known, the second has moved, the third has ended since, the fourth is new.
    let moved = board.moved_of(&[mark(1, 1), mark(2, 2), mark(3, 1), mark(4, 1)]);
    assert_eq!(moved, [approval(2).approval_id, approval(4).approval_id]);
    assert_eq!(board.unseen(9), [approval(2).approval_id], "the first one was seen");
}

fn viewer(id: &str, tenant: &str, groups: &[&str]) -> Viewer {
    Viewer {
        tenant: tenant.parse().unwrap(),
        chain: chain("user", id, tenant),
        groups: groups.iter().map(|group| group.parse().unwrap()).collect(),
        is_person: true,
        is_auditor: false,
        duties: Vec::new(),
    }
}

pub(crate) fn vote(by: &str, choice: VoteChoice) -> Vote {
    Vote {
        approver: by.parse().unwrap(),
        tenant: None,
        part_digest: None,
        client: None,
        token_ref: None,
        stands_for: None,
        authenticated_at: None,
        groups: ["approvers".parse().unwrap()].into(),
        groups_as_of: Timestamp::from_ms(0),
        claimed: BTreeSet::new(),
        choice,
        reason: "because".to_owned(),
        at: Timestamp::from_ms(1),
        shown_digest: Digest::of(b"shown"),
    }
}

fn now(ms: i64) -> Timestamp {
    Timestamp::from_ms(ms)
}

#[test]
fn every_move_is_news_once_and_an_older_reading_is_none() {
    let (board, people) = (PendingIndex::default(), directory());
    let asked = approval(1);
    assert_eq!(board.moved(&asked, &people, now(1)), Some(ApprovalEventKind::Asked));
    assert_eq!(board.moved(&asked, &people, now(1)), None);
    let mut wants_two = asked.clone();
    wants_two.requirement.quorum = 2;
    let voted = wants_two.cast(vote("ben", VoteChoice::Approve), now(2)).unwrap();
    assert_eq!(board.moved(&voted, &people, now(2)), Some(ApprovalEventKind::Voted));
    assert_eq!(board.moved(&asked, &people, now(2)), None, "older");
    let escalated = voted.escalate(now(4_001)).unwrap();
    assert_eq!(board.moved(&escalated, &people, now(4_001)), Some(ApprovalEventKind::Escalated));
    let denied = escalated.cast(vote("cy", VoteChoice::Deny), now(5_000)).unwrap();
    assert_eq!(board.moved(&denied, &people, now(5_000)), Some(ApprovalEventKind::Denied));
    assert_eq!(board.pending(), 0);
    for old in [&asked, &voted, &escalated, &denied] {
        assert_eq!(board.moved(old, &people, now(5_001)), None, "it is over");
    }
    assert_eq!(board.pending(), 0);
    assert_eq!(board.load(&"acme".parse().unwrap(), now(0)).decided_in_ms, [4_999]);
    assert!(board.load(&"other".parse().unwrap(), now(0)).decided_in_ms.is_empty());
}

#[test]
fn how_long_decisions_took_is_kept_of_the_last_thousand_of_each_tenant() {
    let (board, people) = (PendingIndex::default(), directory());
    for number in 0..1_100 {
        let asked = approval(number);
        board.moved(&asked, &people, now(number));
        let denied = asked.cast(vote("ben", VoteChoice::Deny), now(number + 7)).unwrap();
        board.moved(&denied, &people, now(number + 7));
    }
    assert_eq!(board.load(&"acme".parse().unwrap(), now(0)).decided_in_ms, [7; 1_000]);
    assert!(board.load(&"other".parse().unwrap(), now(0)).decided_in_ms.is_empty());
}

#[test]
fn what_is_due_is_told_and_told_again_until_it_moves() {
    let (board, people) = (PendingIndex::default(), directory());
    let asked = approval(0);
    board.moved(&asked, &people, now(0));
    assert!(board.due(now(3_999), 10).is_empty());
    let due = vec![asked.approval_id.clone()];
    assert_eq!(board.due(now(4_000), 10), due);
    assert!(board.due(now(5_999), 10).is_empty(), "told");
    assert_eq!(board.due(now(6_000), 10), due, "nothing came of it");
    let escalated = asked.escalate(now(6_001)).unwrap();
    board.moved(&escalated, &people, now(6_001));
    assert!(board.due(now(9_999), 10).is_empty());
    assert_eq!(board.due(now(10_000), 10), due, "it has expired");
    board.forget(&asked.approval_id);
    assert!(board.due(now(20_000), 10).is_empty());
}

#[test]
fn an_agent_has_so_many_places_and_each_is_free_again() {
    let (board, people) = (PendingIndex::default(), directory());
    let place = || board.place_for(&"acme".parse().unwrap(), &"bot".parse().unwrap(), 2);
    let first = place().unwrap();
    board.moved(&approval(1), &people, now(0));
    assert!(place().is_none(), "one row, and one that is coming");
    drop(first);
    let _second = place().unwrap();
    assert!(place().is_none());
    board.forget(&approval(1).approval_id);
    assert!(place().is_some());
}

#[test]
fn of_what_is_due_at_once_only_so_much_is_told_at_a_time() {
    let (board, people) = (PendingIndex::default(), directory());
    for number in 0..10 {
        board.moved(&approval(number), &people, now(0));
    }
    assert_eq!(board.due(now(20_000), 4).len(), 4);
    assert_eq!(board.due(now(20_000), 100).len(), 6);
}

#[test]
fn what_a_reading_does_not_come_upon_is_found() {
    let (board, people) = (PendingIndex::default(), directory());
    let (stays, goes) = (approval(1), approval(2));
    board.moved(&stays, &people, now(0));
    board.moved(&goes, &people, now(0));
    board.begin_sweep();
    board.moved(&stays, &people, now(1));
    let asked_meanwhile = approval(3);
    board.moved(&asked_meanwhile, &people, now(1));
    assert_eq!(board.unseen(10), [goes.approval_id]);
}

#[test]
fn nothing_is_shown_across_tenants_or_to_whom_it_does_not_concern() {
    let (board, people) = (PendingIndex::default(), directory());
    board.moved(&approval(1), &people, now(0));
    let seen = |id: &str, tenant: &str, groups: &[&str]| {
        let found = board.look(&viewer(id, tenant, groups), &InboxQuery::default(), 10);
        (found.total, found.mine)
    };
    assert_eq!(seen("ben", "acme", &["approvers"]), (1, 1));
    assert_eq!(seen("ben", "other", &["approvers"]), (0, 0));
    assert_eq!(seen("ben", "acme", &["directors"]), (0, 0), "not asked yet");
    assert_eq!(seen("ana", "acme", &["approvers"]), (1, 0), "answers for the agent");
    assert_eq!(seen("bot", "acme", &[]), (0, 0), "a person of the agent's name");
    assert_eq!(seen("nobody", "acme", &[]), (0, 0));
    let mut auditor = viewer("eve", "other", &[]);
    auditor.is_auditor = true;
    assert_eq!(board.look(&auditor, &InboxQuery::default(), 10).total, 0);
}

#[test]
fn a_page_of_very_many_is_the_right_one_in_every_order() {
    let (board, people) = (PendingIndex::default(), directory());
    for number in 0..5_000 {
        board.moved(&approval(number), &people, now(0));
    }
    let ben = viewer("ben", "acme", &["approvers"]);
    let first = |order: InboxOrder, offset: usize| {
        let query = InboxQuery { order, offset, ..InboxQuery::default() };
        let found = board.look(&ben, &query, 3);
        assert_eq!((found.total, found.mine), (5_000, 5_000));
        let numbers = found
            .page
            .iter()
            .map(|(id, _)| id.as_str().trim_start_matches("apr_").parse::<i64>().unwrap());
        numbers.collect::<Vec<_>>()
    };
    assert_eq!(first(InboxOrder::Urgent, 0), [0, 1, 2]);
    assert_eq!(first(InboxOrder::Oldest, 4_998), [4_998, 4_999]);
    assert_eq!(first(InboxOrder::Newest, 10), [4_989, 4_988, 4_987]);
    assert_eq!(first(InboxOrder::Risk, 100), [100, 101, 102]);
    assert!(first(InboxOrder::Newest, 5_000).is_empty());
    let load = board.load(&"acme".parse().unwrap(), now(16 * 60_000));
    assert_eq!(load.waiting_by_age.iter().sum::<u32>(), 5_000);
    assert_eq!(load.waiting_by_group.into_values().collect::<Vec<_>>(), [5_000]);
}
