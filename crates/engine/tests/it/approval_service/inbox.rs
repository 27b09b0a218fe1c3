//! The inbox, its events, and what is seen by whom.

use std::sync::Arc;

use serde_json::json;

use placet_approvals::views::{ApprovalEventKind, InboxOrder, InboxQuery, InboxView, Whose};
use placet_ledger::{
    approval::ApprovalRecord,
    store::{Admission, Changes, Durability, Store as _},
};
use placet_types::{approval::VoteChoice, error::ErrorCode, mode::ApprovalMode};

use super::{send, two_groups, world};
use crate::world::{Make, World, bundle, finished, held, plan};

async fn inbox(world: &World, person: &str, query: InboxQuery) -> InboxView {
    world.engine.approvals().inbox(&world.person(person).await, query).await.unwrap()
}

fn ids(view: &InboxView) -> Vec<&str> {
    view.approvals.iter().map(|item| item.approval.approval_id.as_str()).collect()
}

#[tokio::test]
async fn what_is_mine_to_decide_comes_first_and_is_counted() {
    let world = world(two_groups()).await;
    let erase = held(world.call(plan("erase", "s1", "a")).await);
    world.store.advance_ms(1_000);
    let both = held(world.call(send("s2", "b")).await);
    world.store.advance_ms(1_000);
    let fetch = held(world.call(plan("fetch", "s3", "c")).await);
    let seen = inbox(&world, "ben", InboxQuery::default()).await;
    assert_eq!((seen.total, seen.mine), (Some(3), 3));
    assert_eq!(ids(&seen), [&erase, &both, &fetch].map(|held| held.approval_id.as_str()));
    world.vote("ben", &both, VoteChoice::Approve).await.unwrap();
    let seen = inbox(&world, "ben", InboxQuery::default()).await;
    assert_eq!((seen.total, seen.mine), (Some(3), 2));
    assert_eq!(ids(&seen), [&erase, &fetch, &both].map(|held| held.approval_id.as_str()));
    let finance = inbox(&world, "finn", InboxQuery::default()).await;
    assert_eq!(ids(&finance), [both.approval_id.as_str()]);
    assert_eq!(
        finance.approvals[0].progress.iter().map(|of| of.agreed).collect::<Vec<_>>(),
        [1, 0]
    );
    let owner = inbox(&world, "ana", InboxQuery::default()).await;
    assert_eq!((owner.total, owner.mine), (Some(3), 0));
    let auditor = inbox(&world, "eve", InboxQuery::default()).await;
    assert_eq!((auditor.total, auditor.mine), (Some(3), 0));
    assert_eq!(inbox(&world, "leo", InboxQuery::default()).await.total, Some(0));
    let load = seen.load;
    assert_eq!(load.waiting_by_age[0], 3);
    assert_eq!(load.waiting_by_group.values().copied().collect::<Vec<_>>(), [3, 1]);
}

#[tokio::test]
async fn filters_search_order_and_pages_hold() {
    let world = world(bundle()).await;
    let erase = held(world.call(plan("erase", "s1", "a")).await);
    let fetch = held(world.call(plan("fetch", "s2", "b")).await);
    let for_leo = held(world.call_as(world.agent_for("leo").await, plan("erase", "s3", "c")).await);
    let found = async |query: InboxQuery| {
        ids(&inbox(&world, "ben", query).await).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let id = |held: &placet_engine::answer::Held| held.approval_id.to_string();
    let network = InboxQuery { mode: Some(ApprovalMode::Network), ..InboxQuery::default() };
    assert_eq!(found(network).await, [id(&fetch)]);
    let text = |text: &str| InboxQuery { search: Some(text.to_owned()), ..InboxQuery::default() };
    assert_eq!(found(text("LEO")).await, [id(&for_leo)]);
    assert_eq!(found(text("fake/FETCH")).await, [id(&fetch)]);
    assert_eq!(found(text(erase.approval_id.as_str())).await, [id(&erase)]);
    let newest = InboxQuery { order: InboxOrder::Newest, limit: 1, ..InboxQuery::default() };
    assert_eq!(found(newest).await, [id(&for_leo)]);
    let risk = InboxQuery { order: InboxOrder::Risk, offset: 2, ..InboxQuery::default() };
    assert_eq!(found(risk).await, [id(&fetch)]);
    let asked = InboxQuery { whose: Whose::Asked, ..InboxQuery::default() };
    let mine = inbox(&world, "leo", asked).await;
    assert_eq!(ids(&mine), [for_leo.approval_id.as_str()]);
    world.vote("ben", &erase, VoteChoice::Deny).await.unwrap();
    let denied = InboxQuery { state: Some("denied".to_owned()), ..InboxQuery::default() };
    assert_eq!(found(denied).await, [id(&erase)]);
    let wrong = InboxQuery { state: Some("lost".to_owned()), ..InboxQuery::default() };
    let ben = world.person("ben").await;
    assert_eq!(
        world.engine.approvals().inbox(&ben, wrong).await.unwrap_err().code,
        ErrorCode::ValidationError
    );
}

/// So many calls that were denied, each asked for after the one before; and those of them, newest first, that are of another agent.
async fn with_denied(many: usize) -> (World, Vec<String>) {
    let world = world(bundle()).await;
    let asked = held(world.call(plan("erase", "s0", "x")).await);
    let pending = world.store.approval(&asked.approval_id).await.unwrap().unwrap();
    world.vote("ben", &asked, VoteChoice::Deny).await.unwrap();
    let denied = world.store.approval(&asked.approval_id).await.unwrap().unwrap();
    let is_scarce = |number: usize| number.is_multiple_of(100);
    for like in [pending, denied] {
        let mut changes = Changes::new(Durability::Written, Admission::New);
        for number in 0..many {
            let mut one = like.clone();
            one.approval_id = format!("apr_{number:05}").parse().unwrap();
            one.call_id = format!("call_{number:05}").parse().unwrap();
            one.created_at = like.created_at.plus_ms(i64::try_from(number).unwrap());
            if is_scarce(number) {
                one.chain.actor.id = "scarce".parse().unwrap();
            }
            changes.approvals.push(one);
        }
        world.store.commit(changes).await.unwrap();
    }
    let scarce = (0..many).rev().filter(|number| is_scarce(*number));
    let scarce = scarce.map(|number| format!("apr_{number:05}")).collect();
    (world, scarce)
}

#[tokio::test]
async fn what_has_ended_is_found_however_many_others_there_are_and_nothing_is_counted() {
    let (world, wanted) = with_denied(2_500).await;
    let denied = InboxQuery { state: Some("denied".to_owned()), ..InboxQuery::default() };
    let first = inbox(&world, "ben", denied.clone()).await;
    assert_eq!((first.approvals.len(), first.total, first.incomplete), (50, None, false));
    assert_eq!(ids(&first)[0], "apr_02499");
    // A search that little fits looks through all of them, page by page, and says so.
    let search = InboxQuery { search: Some("SCARCE".to_owned()), ..denied.clone() };
    let (mut found, mut after, mut incomplete) = (Vec::new(), None, Vec::new());
    loop {
        let page = inbox(&world, "ben", InboxQuery { after, ..search.clone() }).await;
        found.extend(ids(&page).iter().map(ToString::to_string));
        incomplete.push(page.incomplete);
        after = page.next_after;
        if after.is_none() {
            break;
        }
    }
    assert_eq!((found, incomplete), (wanted.clone(), vec![true, true, false]));
    // Full pages follow each other without a gap, in both orders.
    let oldest = InboxQuery { order: InboxOrder::Oldest, limit: 7, ..search };
    let mut expected = wanted;
    expected.reverse();
    let page = inbox(&world, "ben", oldest.clone()).await;
    assert_eq!(
        (ids(&page), page.incomplete),
        (expected[..7].iter().map(String::as_str).collect(), false)
    );
    let page = inbox(&world, "ben", InboxQuery { after: page.next_after, ..oldest }).await;
    assert_eq!(ids(&page), expected[7..14].iter().map(String::as_str).collect::<Vec<_>>());
    // What cannot be done with a list of unknown length is refused.
    let ben = world.person("ben").await;
    for wrong in [
        InboxQuery { offset: 50, ..denied.clone() },
        InboxQuery { order: InboxOrder::Risk, ..denied.clone() },
        InboxQuery { after: Some("apr_gone".parse().unwrap()), ..denied.clone() },
        InboxQuery { after: Some("apr_00001".parse().unwrap()), ..InboxQuery::default() },
    ] {
        let refused = world.engine.approvals().inbox(&ben, wrong).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::ValidationError);
    }
    assert!(
        inbox(&world, "ben", InboxQuery { whose: Whose::Mine, ..denied })
            .await
            .approvals
            .is_empty()
    );
}

#[tokio::test]
async fn news_reach_those_who_may_see_them_and_nobody_else() {
    let world = world(bundle()).await;
    let mut ben = world.engine.approvals().listen(&world.person("ben").await);
    let mut leo = world.engine.approvals().listen(&world.person("leo").await);
    let asked = held(world.call(plan("erase", "s1", "a")).await);
    world.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    finished(world.end_of(&asked).await);
    let mut kinds = Vec::new();
    while kinds.last() != Some(&ApprovalEventKind::Settled) {
        let next = tokio::time::timeout(std::time::Duration::from_secs(20), ben.next()).await;
        let event = next.unwrap().unwrap();
        assert_eq!(event.approval_id.as_ref(), Some(&asked.approval_id));
        kinds.push(event.kind);
        let ended = event.kind == ApprovalEventKind::Settled;
        assert_eq!(event.outcome.as_deref(), ended.then_some("succeeded"));
    }
    use ApprovalEventKind as K;
    assert_eq!(kinds, [K::Asked, K::Approved, K::Dispatched, K::Settled]);
    let quiet = tokio::time::timeout(std::time::Duration::from_millis(100), leo.next()).await;
    assert!(quiet.is_err(), "{quiet:?}");
}

#[tokio::test]
async fn anyone_who_may_see_an_approval_sees_what_became_of_it_without_its_secrets() {
    let world = world(bundle()).await;
    let mut call = plan("erase", "s1", "a");
    call["args"]["pin"] = json!("4711-secret");
    let asked = held(world.call(call).await);
    let line = inbox(&world, "ben", InboxQuery::default()).await.approvals.remove(0).summary;
    assert!(line.contains("what: a") && line.contains("pin: [sensitive]"), "{line}");
    world.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    finished(world.end_of(&asked).await);
    let outcome = world.seen("cy", &asked).await.outcome.unwrap();
    assert_eq!(outcome.state, "succeeded");
    let output = outcome.output.unwrap();
    assert_eq!(output["args"]["pin"], "[sensitive]", "{output}");
    assert_eq!(output["args"]["what"], "a");
}

/// So many approvals like one that waits, in the store alone.
async fn many_like(world: &World, one: &placet_engine::answer::Held, many: usize) {
    let like = world.store.approval(&one.approval_id).await.unwrap().unwrap();
    let mut changes = Changes::new(Durability::Synced, Admission::Completion);
    changes.approvals = (0..many)
        .map(|number| ApprovalRecord {
            approval_id: format!("apr_many{number:08}").parse().unwrap(),
            call_id: format!("call_many{number:08}").parse().unwrap(),
            rev: 1,
            created_at: like.created_at.plus_ms(1),
            ..like.clone()
        })
        .collect();
    world.store.commit(changes).await.unwrap();
}

#[tokio::test]
async fn calls_are_taken_in_while_what_waits_is_read_and_the_inbox_says_so_until_it_is_whole() {
    let before = World::new().await;
    let one = held(before.call(plan("erase", "s1", "a")).await);
    many_like(&before, &one, 6_500).await;
    before.engine.shutdown().await;
    let store = Arc::new(before.store.restarted());
    // What is read first is answered, and nothing after it.
    store.answer_lists(Some(6));
    let make = Make { store, witness: Arc::clone(&before.witness), ..Make::default() };
    let world = World::with(make).await;
    let readiness = world.engine.readiness();
    assert!(!readiness.ready, "{readiness:?}");
    assert!(readiness.notes.iter().any(|note| note.contains("still being read")), "{readiness:?}");
    let refused =
        world.engine.approvals().inbox(&world.person("ben").await, InboxQuery::default()).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code, ErrorCode::Overloaded);
    assert!(refused.code.retryable() && refused.retry_after_ms.is_some(), "{refused:?}");
    // Decisions and calls do not wait for that.
    world.vote("ben", &one, VoteChoice::Approve).await.unwrap();
    finished(world.end_of(&one).await);
    finished(world.call(plan("note", "s2", "b")).await);
    world.store.answer_lists(None);
    let ready = async {
        while !world.engine.readiness().ready {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), ready).await.unwrap();
    assert_eq!(inbox(&world, "ben", InboxQuery::default()).await.total, Some(6_500));
}

#[tokio::test]
async fn who_sees_nothing_of_much_that_waits_keeps_nobody_else_waiting() {
    let world = world(bundle()).await;
    for number in 0..80 {
        held(world.call(plan("erase", &format!("s{number}"), "x")).await);
    }
    let leo = world.person("leo").await;
    let turns = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let others = tokio::spawn({
        let turns = std::sync::Arc::clone(&turns);
        async move {
            loop {
                turns.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                tokio::task::yield_now().await;
            }
        }
    });
    tokio::task::yield_now().await;
    let before = turns.load(std::sync::atomic::Ordering::SeqCst);
    assert!(world.engine.approvals().approvals(&leo, None, None, 20).await.unwrap().is_empty());
    let turns = turns.load(std::sync::atomic::Ordering::SeqCst).saturating_sub(before);
    others.abort();
    assert!(turns >= 4, "others had {turns} turns");
}
