//! A process that ends in the middle of something in the approval service, and the next one: nothing is lost, and nothing is done twice.

use std::{sync::Arc, time::Duration};

use serde_json::json;

use placet_approvals::views::{ApprovalEventKind, BulkDecisionRequest, BulkItem, EntriesQuery};
use placet_engine::answer::Held;
use placet_ledger::{audit::AuditKind, testing::Fault};
use placet_policy::bundle::BundleSource;
use placet_types::{approval::VoteChoice, error::ErrorCode};

use super::{gated, of, ran, send, two_groups, world};
use crate::{
    fake::{Behaviour, Probing},
    world::{Make, World, bundle, finished, held, plan},
};

/// The next process over what an earlier one has kept.
async fn next(world: &World, bundle: BundleSource) -> World {
    let (store, witness) = (Arc::new(world.store.restarted()), Arc::clone(&world.witness));
    World::with(Make { store, witness, bundle, ..Make::default() }).await
}

async fn all_of(world: &World, person: &str, calls: &[&Held]) -> BulkDecisionRequest {
    let mut approvals = Vec::new();
    for asked in calls {
        let digest = world.seen(person, asked).await.approval.digest;
        approvals.push(BulkItem { approval_id: asked.approval_id.clone(), digest });
    }
    BulkDecisionRequest {
        decision: VoteChoice::Approve,
        reason: "all of them".to_owned(),
        approvals,
    }
}

/// Some of the decisions are kept when the process ends, and the one who took them hears of none.
#[tokio::test]
async fn what_was_being_decided_together_is_gone_on_with_and_nothing_counts_twice() {
    let world = world(two_groups()).await;
    let mut calls = Vec::new();
    for step in ["s1", "s2", "s3"] {
        calls.push(held(world.call(send(step, step)).await));
    }
    let calls: Vec<&Held> = calls.iter().collect();
    let request = all_of(&world, "ben", &calls).await;
    let ben = world.person("ben").await;
    // The first is kept, of the second nobody knows whether it is, and then the process is gone.
    let first =
        BulkDecisionRequest { approvals: request.approvals[..1].to_vec(), ..request.clone() };
    assert_eq!(world.engine.approvals().decide_bulk(&ben, first).await.unwrap().decided.len(), 1);
    world.store.fail_once_on(AuditKind::Voted, Fault::Unconfirmed);
    let second =
        BulkDecisionRequest { approvals: request.approvals[1..2].to_vec(), ..request.clone() };
    assert_eq!(world.engine.approvals().decide_bulk(&ben, second).await.unwrap().decided.len(), 0);

    let next = next(&world, two_groups()).await;
    let ben = next.person("ben").await;
    let view = next.engine.approvals().decide_bulk(&ben, request).await.unwrap();
    let decided: Vec<_> = view.decided.iter().map(|one| &one.approval_id).collect();
    assert_eq!(decided, [&calls[2].approval_id]);
    assert_eq!(view.refused.len(), 2, "{view:?}");
    for refused in &view.refused {
        assert!(refused.message.contains("decided on this approval already"), "{view:?}");
    }
    for asked in &calls {
        assert_eq!(next.seen("eve", asked).await.approval.votes.len(), 1);
    }
    let finn = next.person("finn").await;
    let request = all_of(&next, "finn", &calls).await;
    assert_eq!(next.engine.approvals().decide_bulk(&finn, request).await.unwrap().decided.len(), 3);
    for asked in &calls {
        finished(next.end_of(asked).await);
    }
    assert_eq!(next.witness.effects("send").len(), 3);
}

#[tokio::test]
async fn a_delegation_outlives_its_process_and_so_does_its_end() {
    let first = world(two_groups()).await;
    let asked = held(first.call(send("s1", "a")).await);
    let later = held(first.call(send("s2", "b")).await);
    let duty = json!({ "kind": "delegation", "to": "leo", "groups": ["finance"] });
    // It is kept, and the one who arranges it does not hear so.
    first.store.fail_once_on(AuditKind::Directive, Fault::Unconfirmed);
    let unheard = first.arrange("finn", duty.clone(), 3_600_000).await.unwrap_err();
    assert_eq!(unheard.code, ErrorCode::LedgerUnavailable);

    let second = next(&first, two_groups()).await;
    let standing = second.seen("leo", &asked).await.standing;
    assert_eq!(standing.stands_for.as_ref().map(|id| id.as_str()), Some("finn"));
    second.vote("leo", &asked, VoteChoice::Approve).await.unwrap();
    let finn = second.person("finn").await;
    let open = EntriesQuery { only_open: true, ..EntriesQuery::default() };
    let mut entries = second.entries(&finn, open).await;
    let delegation = entries.pop().unwrap();
    assert!(entries.is_empty(), "there is one");
    second.end("finn", &delegation).await.unwrap();

    let third = next(&second, two_groups()).await;
    assert!(third.vote("leo", &later, VoteChoice::Approve).await.is_err(), "it was taken back");
    // What was decided under it stays, as one voice.
    let twice = third.vote("finn", &asked, VoteChoice::Approve).await.unwrap_err();
    assert!(twice.message.contains("already"), "{twice:?}");
    third.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    finished(third.end_of(&asked).await);
    assert_eq!(third.witness.effects("send").len(), 1);
}

#[tokio::test]
async fn a_grant_that_half_of_its_people_agreed_to_waits_for_the_others_after_a_restart() {
    let first = world(two_groups()).await;
    let asked = held(first.call(send("s1", "report")).await);
    let proposed = first.grant("ben", &asked, 1).await.unwrap();
    assert_eq!(proposed.state, "proposed");

    let second = next(&first, two_groups()).await;
    held(second.call(send("s2", "report")).await);
    assert!(second.agree("ben", &proposed).await.is_err(), "not twice, whichever process");
    // The last agreement is kept, and the process ends before anybody hears of it.
    second.store.fail_once_on(AuditKind::Directive, Fault::Unconfirmed);
    assert!(second.agree("finn", &proposed).await.is_err());

    let third = next(&second, two_groups()).await;
    let eve = third.person("eve").await;
    let grant = third.engine.approvals().entry(&eve, &proposed.directive_id).await.unwrap();
    assert_eq!((grant.state.as_str(), grant.in_force, grant.votes.len()), ("active", true, 2));
    assert!(ran(&third.call(send("s3", "report")).await));
    held(third.call(send("s4", "report")).await);
    assert_eq!(third.witness.effects("send").len(), 1, "once, as it says");
}

/// Between the two steps of a proposal, the entry and its proposer's agreement.
#[tokio::test]
async fn a_grant_whose_proposer_was_cut_off_counts_for_nothing_until_people_agree() {
    let first = world(bundle()).await;
    let asked = held(first.call(plan("erase", "s1", "x")).await);
    first.store.fail_once_on(AuditKind::Directive, Fault::Unconfirmed);
    assert!(first.grant("ben", &asked, 5).await.is_err());
    let second = next(&first, bundle()).await;
    held(second.call(plan("erase", "s2", "x")).await);
    let cy = second.person("cy").await;
    let open = EntriesQuery { only_open: true, ..EntriesQuery::default() };
    let entries = second.entries(&cy, open).await;
    assert_eq!((entries.len(), entries[0].votes.len(), entries[0].in_force), (1, 0, false));
    assert_eq!(second.agree("cy", &entries[0]).await.unwrap().state, "active");
    assert!(ran(&second.call(plan("erase", "s3", "x")).await));
}

/// The next process sends nothing: it asks what became of the call, and says so in the approval service.
#[tokio::test]
async fn the_end_of_a_call_that_was_under_way_is_told_by_the_next_process() {
    let asks_one = || {
        let agreed = format!("context.req.approval.total >= 1 && {}", of("approvers", 1));
        gated("book", "@approver_group(\"approvers\") @quorum(\"1\") @expires(\"24h\")", &agreed)
    };
    let first = world(asks_one()).await;
    // For as long as its deadline is not over by the store's clock, which stands still, this says nothing.
    *first.witness.probing.lock() = Probing::NotFound;
    first.witness.behave("book", Behaviour::Slow(Duration::from_secs(3_600)));
    let asked = held(first.call(plan("book", "s1", "a")).await);
    first.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    first.reaches("dispatched").await;

    let second = next(&first, asks_one()).await;
    let mut news = second.engine.approvals().listen(&second.person("ben").await);
    *second.witness.probing.lock() = Probing::Committed;
    second.reaches("succeeded").await;
    let settled = async {
        loop {
            let told = news.next().await.expect("some were missed");
            if told.kind == ApprovalEventKind::Settled {
                return told.approval_id;
            }
        }
    };
    let told = tokio::time::timeout(Duration::from_secs(60), settled).await;
    assert_eq!(told.expect("its end is never told"), Some(asked.approval_id));
}
