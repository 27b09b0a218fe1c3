//! Somebody asks the process to stop (F23): from that moment on nothing is sent, and nothing that was sent is given up.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};

use placet_engine::{answer::Answer, settings::LedgerSettings, ticket::Ticket};
use placet_types::{
    approval::VoteChoice,
    error::{ErrorCode, Execution},
};

use crate::fake::Behaviour;
use crate::world::{Make, World, finished, held, plan, quick, refused};

const A_WHILE: Duration = Duration::from_millis(500);

async fn end(mut ticket: Ticket) -> Answer {
    tokio::time::timeout(Duration::from_secs(10), ticket.settled(0))
        .await
        .expect("the caller hangs")
}

async fn pause() {
    tokio::time::sleep(Duration::from_millis(100)).await;
}

/// The next process, in which everything goes well.
async fn next(world: &World) -> World {
    World::over(Arc::clone(&world.store), Arc::default()).await
}

fn lasting(tool: &str, step: &str, ms: u64) -> Value {
    let mut call = plan(tool, step, "a");
    call["run"]["run_id"] = json!(step);
    call["run"]["run_budget"] = json!({"tool_latency_ms_max": ms});
    call
}

#[tokio::test]
async fn what_waits_for_its_turn_is_not_sent_any_more() {
    let world = World::with(Make { places: 1, ..Make::default() }).await;
    for tool in ["note", "look"] {
        world.witness.behave(tool, Behaviour::Slow(A_WHILE * 4));
    }
    let first = world.send(lasting("note", "s1", 30_000)).await;
    pause().await;
    let second = world.send(lasting("note", "s2", 30_000)).await;
    let third = world.send(lasting("look", "s3", 30_000)).await;
    pause().await;
    world.engine.begin_stop();
    for waiting in [second, third] {
        let refusal = refused(end(waiting).await);
        assert_eq!(
            (refusal.code, refusal.execution),
            (ErrorCode::Overloaded, Execution::NotExecuted)
        );
    }
    assert!(world.witness.effects("note").is_empty(), "they are told before their turn would come");
    finished(end(first).await);
    world.engine.shutdown().await;
    assert_eq!(world.witness.effects("note").len(), 1);
    assert!(world.witness.effects("look").is_empty());
    let next = next(&world).await;
    assert!(!finished(next.call(lasting("note", "s2", 30_000)).await).replayed);
}

#[tokio::test]
async fn a_call_that_was_decided_already_is_not_sent_any_more() {
    let world = World::new().await;
    world.witness.list_slowly(A_WHILE);
    let call = world.send(plan("note", "s1", "a")).await;
    pause().await;
    world.engine.begin_stop();
    assert_eq!(refused(end(call).await).execution, Execution::NotExecuted);
    assert!(world.witness.effects("note").is_empty());
}

#[tokio::test]
async fn an_approved_call_waits_for_the_next_start() {
    let world = World::new().await;
    let asked = held(world.call(plan("erase", "s1", "a")).await);
    world.engine.begin_stop();
    world.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    tokio::time::sleep(A_WHILE).await;
    assert_eq!(world.record().await.state.name(), "approved");
    world.engine.shutdown().await;
    assert!(world.witness.effects("erase").is_empty());
    let next = next(&world).await;
    finished(next.end_of(&asked).await);
    assert_eq!(next.witness.effects("erase").len(), 1);
}

#[tokio::test]
async fn an_approved_call_on_its_way_waits_for_the_next_start() {
    let world = World::new().await;
    let asked = held(world.call(plan("erase", "s1", "a")).await);
    world.witness.list_slowly(A_WHILE);
    world.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    pause().await;
    world.engine.begin_stop();
    tokio::time::sleep(A_WHILE * 2).await;
    assert_eq!(world.record().await.state.name(), "approved");
    world.engine.shutdown().await;
    assert!(world.witness.effects("erase").is_empty());
    finished(next(&world).await.end_of(&asked).await);
}

#[tokio::test]
async fn a_rearmed_call_waits_for_the_next_start() {
    let ledger = LedgerSettings { rearm_people: 1, ..quick() };
    let world = World::with(Make { ledger, ..Make::default() }).await;
    world.witness.behave("note", Behaviour::Unknown);
    refused(world.call(plan("note", "s1", "a")).await);
    world.engine.begin_stop();
    world.rearm("ben").await.unwrap();
    tokio::time::sleep(A_WHILE).await;
    assert_eq!(world.record().await.state.name(), "rearmed");
    world.engine.shutdown().await;
    assert_eq!(world.witness.effects("note").len(), 1);
    let next = next(&world).await;
    next.reaches("succeeded").await;
}

#[tokio::test]
async fn a_keyed_call_without_an_answer_is_left_to_the_next_start() {
    let world = World::new().await;
    world.witness.behave("send", Behaviour::Slow(Duration::from_secs(3_600)));
    let call = world.send(lasting("send", "s1", 400)).await;
    let sent = world.reaches("dispatched").await;
    world.engine.begin_stop();
    let refusal = refused(end(call).await);
    assert_eq!((refusal.code, refusal.execution), (ErrorCode::InProgress, Execution::Unknown));
    world.engine.shutdown().await;
    assert_eq!(world.record().await.state.name(), "dispatched");
    let next = next(&world).await;
    next.reaches("succeeded").await;
    assert_eq!(next.witness.effects("send"), [sent.state.attempt().unwrap().token.clone()]);
    assert!(finished(next.call(lasting("send", "s1", 400)).await).replayed);
}
