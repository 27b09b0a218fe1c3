//! Calls of one key by different chains of actors: who may lend a held call their authority.

use std::time::Duration;

use placet_types::{approval::VoteChoice, error::ErrorCode};

use super::{gated, of, world};
use crate::world::{World, finished, held, plan, refused, upon};

/// A call with a user's authority that has run out by the time that people agree.
async fn waiting(prior: &[&str]) -> (World, placet_engine::answer::Held) {
    let gate = gated(
        "pay",
        "@approver_group(\"approvers\") @quorum(\"1\") @expires(\"24h\")",
        &format!("context.req.approval.total >= 1 && {}", of("approvers", 1)),
    );
    let world = world(gate).await;
    let agent = world.agent_by(prior, "leo").await;
    let looked = finished(world.call_as(agent.clone(), plan("look", "s0", "x")).await);
    let asked = held(world.call_as(agent, upon(plan("pay", "s1", "x"), &looked)).await);
    world.store.advance_ms(2 * 3_600_000);
    world.tell_time();
    assert_eq!(world.vote("ben", &asked, VoteChoice::Approve).await.unwrap(), "approved");
    (world, asked)
}

/// The same plan, by a chain: how the call stands after it.
async fn repeated(world: &World, prior: &[&str]) -> usize {
    let caller = world.agent_by(prior, "leo").await;
    let submission = serde_json::from_value(plan("pay", "s1", "x")).unwrap();
    let ticket = world.engine.submit(caller, submission, Default::default()).unwrap();
    tokio::time::sleep(Duration::from_millis(400)).await;
    drop(ticket);
    world.witness.effects("pay").len()
}

#[tokio::test]
async fn anyone_who_was_approved_brings_fresh_authority_and_the_call_runs() {
    let (world, asked) = waiting(&["approvals"]).await;
    assert_eq!(repeated(&world, &["approvals"]).await, 1);
    assert_eq!(world.seen("eve", &asked).await.approval.state, "succeeded");
}

/// The key is the same, for it is the same agent and user; what people agreed to was asked for by another way.
#[tokio::test]
async fn a_caller_by_another_chain_of_actors_gives_a_held_call_nothing() {
    let (world, asked) = waiting(&["approvals"]).await;
    for other in [&["approvals", "gateway"][..], &["gateway"], &[]] {
        assert_eq!(repeated(&world, other).await, 0, "{other:?}");
        let state = world.seen("eve", &asked).await.approval.state;
        assert_eq!(state, "approved", "{other:?}: it waits on, and is not spoilt either");
    }
    // Whom people agreed to still can.
    assert_eq!(repeated(&world, &["approvals"]).await, 1);
}

#[tokio::test]
async fn a_caller_by_another_chain_leases_nothing_before_people_have_agreed_either() {
    let gate = gated(
        "pay",
        "@approver_group(\"approvers\") @quorum(\"1\") @expires(\"24h\")",
        &format!("context.req.approval.total >= 1 && {}", of("approvers", 1)),
    );
    let world = world(gate).await;
    let agent = world.agent_for("leo").await;
    let looked = finished(world.call_as(agent.clone(), plan("look", "s0", "x")).await);
    let asked = held(world.call_as(agent, upon(plan("pay", "s1", "x"), &looked)).await);
    world.store.advance_ms(2 * 3_600_000);
    world.tell_time();
    let other = world.agent_by(&["gateway"], "leo").await;
    assert_eq!(
        held(world.call_as(other, plan("pay", "s1", "x")).await).approval_id,
        asked.approval_id
    );
    world.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(world.seen("eve", &asked).await.approval.state, "approved");
    assert!(world.witness.effects("pay").is_empty());
    // With other arguments there is nothing to join at all.
    let other = world.agent_by(&["gateway"], "leo").await;
    let conflict = refused(world.call_as(other, plan("pay", "s1", "y")).await);
    assert_eq!(conflict.code, ErrorCode::IdempotencyConflict);
}
