//! Two nodes over the same records: what one does, the other sees, and nothing happens twice.

use std::time::Duration;

use serde_json::json;

use placet_pipeline::{
    answer::Answer,
    views::desk::{DeskEventKind, InboxQuery},
};
use placet_types::approval::VoteChoice;

use super::ran;
use crate::world::{World, finished, held, plan};

/// Waits until something holds.
async fn soon(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..400 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("never: {what}");
}

async fn waiting(world: &World) -> usize {
    world.engine.inbox(&world.person("ben").await, InboxQuery::default()).await.unwrap().total
}

#[tokio::test]
async fn the_inbox_of_one_node_follows_what_happens_on_the_other() {
    let one = World::new().await;
    let two = one.node().await;
    let mut news = two.engine.desk_events(&two.person("ben").await);
    let asked = held(one.call(plan("erase", "s1", "a")).await);
    soon("the other node sees it", async || waiting(&two).await == 1).await;
    let next = tokio::time::timeout(Duration::from_secs(20), news.next()).await.unwrap().unwrap();
    assert_eq!(
        (next.kind, next.approval_id.as_ref()),
        (DeskEventKind::Asked, Some(&asked.approval_id))
    );
    two.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    finished(one.end_of(&asked).await);
    soon("it leaves the inbox of the first", async || waiting(&one).await == 0).await;
    assert_eq!(one.witness.effects("erase").len(), 1);
}

#[tokio::test]
async fn two_nodes_that_decide_and_edit_at_once_lead_to_one_effect() {
    let one = World::new().await;
    let two = one.node().await;
    let asked = held(one.call(plan("erase", "s1", "all")).await);
    soon("both see it", async || waiting(&two).await == 1).await;
    let (vote, edit) = tokio::join!(
        one.vote("ben", &asked, VoteChoice::Approve),
        two.edit("cy", &asked, json!({ "what": "some" })),
    );
    assert!(vote.is_ok() || edit.is_ok(), "{vote:?} {edit:?}");
    let result = finished(one.end_of(&asked).await);
    let edited = result.edited_args.is_some();
    assert_eq!(result.output["args"]["what"], if edited { "some" } else { "all" });
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
    let spent = two.engine.desk_entry(&two.person("ben").await, &grant.desk_id).await.unwrap();
    assert_eq!(spent.uses, 3);
    one.arrange("dora", json!({"kind": "freeze", "name": "now"}), 60_000).await.unwrap();
    let mut step = 0_u32;
    soon("the freeze holds on the other node", async || {
        step = step.saturating_add(1);
        !ran(&two.call(plan("note", &format!("n{step}"), "x")).await)
    })
    .await;
}
