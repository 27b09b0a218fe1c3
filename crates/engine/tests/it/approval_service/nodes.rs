//! Two nodes over the same records: what one does, the other sees, and nothing happens twice.

use std::{sync::Arc, time::Duration};

use serde_json::json;
use tokio::sync::Semaphore;

use placet_approvals::{
    feed::EventFeed,
    views::{ApprovalEventKind, InboxQuery},
};
use placet_engine::{
    answer::{Answer, Held},
    settings::LedgerSettings,
};
use placet_ledger::store::Store as _;
use placet_types::approval::VoteChoice;

use super::ran;
use crate::fake::Behaviour;
use crate::world::{Make, World, finished, held, plan, quick};

/// Waits until something holds.
pub(super) async fn soon(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..400 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("never: {what}");
}

async fn waiting(world: &World) -> usize {
    world
        .engine
        .approvals()
        .inbox(&world.person("ben").await, InboxQuery::default())
        .await
        .unwrap()
        .total
        .unwrap()
}

#[tokio::test]
async fn the_inbox_of_one_node_follows_what_happens_on_the_other() {
    let one = World::new().await;
    let two = one.node().await;
    let mut news = two.engine.approvals().listen(&two.person("ben").await);
    let asked = held(one.call(plan("erase", "s1", "a")).await);
    soon("the other node sees it", async || waiting(&two).await == 1).await;
    let next = tokio::time::timeout(Duration::from_secs(20), news.next()).await.unwrap().unwrap();
    assert_eq!(
        (next.kind, next.approval_id.as_ref()),
        (ApprovalEventKind::Asked, Some(&asked.approval_id))
    );
    two.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    finished(one.end_of(&asked).await);
    soon("it leaves the inbox of the first", async || waiting(&one).await == 0).await;
    assert_eq!(one.witness.effects("erase").len(), 1);
}

/// The kinds of news of an approval up to one of a kind.
async fn news_until(news: &mut EventFeed, last: ApprovalEventKind) -> Vec<ApprovalEventKind> {
    let mut kinds = Vec::new();
    while kinds.last() != Some(&last) {
        let next = tokio::time::timeout(Duration::from_secs(20), news.next()).await;
        kinds.push(next.unwrap_or_else(|_| panic!("only {kinds:?}")).unwrap().kind);
    }
    kinds
}

#[tokio::test]
async fn what_became_of_a_call_is_told_on_every_node_and_again_once_it_is_resolved() {
    let one = World::new().await;
    let two = one.node().await;
    let ben = two.person("ben").await;
    let mut news = (one.engine.approvals().listen(&ben), two.engine.approvals().listen(&ben));
    one.witness.behave("erase", Behaviour::Slow(Duration::from_secs(3_600)));
    let mut call = plan("erase", "s1", "a");
    call["run"] = json!({"run_id": "hasty", "safety_mode": "destructive", "run_budget": {"tool_latency_ms_max": 200}});
    let asked = held(one.call(call).await);
    soon("the other node sees it", async || waiting(&two).await == 1).await;
    one.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    let record = one.reaches("indeterminate").await;
    for feed in [&mut news.0, &mut news.1] {
        let kinds = news_until(feed, ApprovalEventKind::Settled).await;
        assert!(kinds.contains(&ApprovalEventKind::Dispatched), "{kinds:?}");
    }
    let request = json!({"outcome": "happened", "evidence": "seen", "output": {"by": "hand"}});
    let request = serde_json::from_value(request).unwrap();
    one.engine.resolve(&one.person("ben").await, record.record_id, request).await.unwrap();
    for feed in [&mut news.0, &mut news.1] {
        assert_eq!(
            news_until(feed, ApprovalEventKind::Settled).await,
            [ApprovalEventKind::Settled]
        );
    }
    // Once each.
    for feed in [&mut news.0, &mut news.1] {
        let quiet = tokio::time::timeout(Duration::from_millis(700), feed.next()).await;
        assert!(quiet.is_err(), "{quiet:?}");
    }
}

#[tokio::test]
async fn who_opens_a_call_on_a_node_that_knows_nothing_of_it_is_told_when_it_ends() {
    let one = World::new().await;
    let leave = Arc::new(Semaphore::new(0));
    one.witness.behave("erase", Behaviour::OnLeave(Arc::clone(&leave)));
    let asked = held(one.call(plan("erase", "s1", "a")).await);
    one.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    one.reaches("dispatched").await;
    let two = one.node().await;
    let mut news = two.engine.approvals().listen(&two.person("ben").await);
    drop(two.seen("ben", &asked).await);
    leave.add_permits(1);
    assert_eq!(
        news_until(&mut news, ApprovalEventKind::Settled).await,
        [ApprovalEventKind::Settled]
    );
    finished(one.end_of(&asked).await);
}

#[tokio::test]
async fn an_agreement_is_carried_out_however_many_older_ones_cannot_be() {
    // Five of them are one round's reading.
    let page = || LedgerSettings { approvals_page: 1, ..quick() };
    let one = World::with(Make { ledger: page(), ..Make::default() }).await;
    let stuck = |tool: &str, step: &str| {
        let mut call = plan(tool, step, "a");
        call["run"] = json!({"run_id": "small", "safety_mode": "destructive", "run_budget": {"calls_max": 1}});
        call
    };
    let mut older = Vec::new();
    for number in 0..7 {
        older.push(held(one.call(stuck("erase", &format!("s{number}"))).await));
    }
    finished(one.call(stuck("note", "last")).await);
    for asked in &older {
        one.vote("ben", asked, VoteChoice::Approve).await.unwrap();
    }
    let asked = held(one.call(plan("erase", "s1", "a")).await);
    // The node that hears of the last vote comes no further than to a session for it.
    let two = World::with(Make { witness: Arc::default(), ..one.beside() }).await;
    two.witness.begin_slowly(Duration::from_secs(3_600));
    two.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    finished(one.end_of(&asked).await);
    assert_eq!(one.witness.effects("erase").len(), 1);
    let of = async |asked: &Held| one.store.approval(&asked.approval_id).await.unwrap().unwrap();
    for asked in &older {
        assert_eq!(of(asked).await.state.name(), "approved", "its run has nothing left");
    }
}

#[tokio::test]
async fn two_nodes_that_decide_and_edit_at_once_lead_to_one_effect() {
    let one = World::new().await;
    let two = one.node().await;
    let mut call = plan("erase", "s1", "all");
    call["args"]["most"] = json!(9);
    let asked = held(one.call(call).await);
    soon("both see it", async || waiting(&two).await == 1).await;
    let (vote, edit) = tokio::join!(
        one.vote("ben", &asked, VoteChoice::Approve),
        two.edit("cy", &asked, json!({ "what": "all", "most": 3 })),
    );
    assert!(vote.is_ok() || edit.is_ok(), "{vote:?} {edit:?}");
    let result = finished(one.end_of(&asked).await);
    let edited = result.edited_args.is_some();
    assert_eq!(result.output["args"]["most"], if edited { 3 } else { 9 });
    assert_eq!(one.witness.effects("erase").len(), 1);
}

#[tokio::test]
async fn a_grant_and_a_freeze_of_one_node_count_on_the_other_and_uses_are_shared() {
    let one = World::new().await;
    let two = one.node().await;
    let asked = held(one.call(plan("erase", "s0", "x")).await);
    let grant = one.grant("ben", &asked, 3).await.unwrap();
    let mut passed = 0_usize;
    soon("the grant is used up on both", async || {
        let (first, second) = tokio::join!(
            one.call(plan("erase", &format!("a{passed}{}", one.store.commits()), "x")),
            two.call(plan("erase", &format!("b{passed}{}", one.store.commits()), "x"))
        );
        let now = [&first, &second].into_iter().filter(|answer| ran(answer)).count();
        passed = passed.saturating_add(now);
        let both_held = matches!((&first, &second), (Answer::Held(_), Answer::Held(_)));
        passed == 3 && both_held
    })
    .await;
    assert_eq!(one.witness.effects("erase").len(), 3);
    let spent =
        two.engine.approvals().entry(&two.person("ben").await, &grant.directive_id).await.unwrap();
    assert_eq!(spent.uses, 3);
    one.arrange("dora", json!({"kind": "freeze", "name": "now"}), 60_000).await.unwrap();
    let mut step = 0_u32;
    soon("the freeze holds on the other node", async || {
        step = step.saturating_add(1);
        !ran(&two.call(plan("note", &format!("n{step}"), "x")).await)
    })
    .await;
}
