//! Duplicates of a call that is under way: how long they wait, and that they hold back nobody else.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use placet_engine::answer::{Answer, RefusedCall};
use placet_types::error::{ErrorCode, Execution};

use crate::fake::Behaviour;
use crate::world::{World, finished, plan};

fn lasting(wait_ms: Option<u64>) -> Value {
    let mut call = plan("note", "s1", "a");
    call["run"]["run_budget"] = json!({"tool_latency_ms_max": 120_000});
    if let Some(wait_ms) = wait_ms {
        call["wait_ms"] = wait_ms.into();
    }
    call
}

async fn pause(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

fn under_way(answer: Answer) -> RefusedCall {
    let Answer::Refused(refused) = answer else { panic!("not refused: {answer:?}") };
    let refusal = &refused.refusal;
    assert_eq!((refusal.code, refusal.execution), (ErrorCode::InProgress, Execution::Unknown));
    assert!(refusal.retry_after_ms.is_some());
    *refused
}

#[tokio::test]
async fn a_duplicate_waits_for_as_long_as_it_says() {
    let world = World::new().await;
    world.witness.behave("note", Behaviour::Slow(Duration::from_millis(1_500)));
    let original = world.send(lasting(None)).await;
    pause(100).await;
    for wait_ms in [0, 300] {
        let began = Instant::now();
        let told = under_way(world.call(lasting(Some(wait_ms))).await);
        assert_eq!(told.result.tool_call_id, *original.call_id(), "that is the one to ask about");
        let waited = began.elapsed();
        assert!(waited >= Duration::from_millis(wait_ms), "{waited:?}");
        assert!(waited < Duration::from_millis(wait_ms.saturating_add(500)), "{waited:?}");
    }
    assert!(finished(world.call(lasting(Some(10_000))).await).replayed);
    assert_eq!(world.witness.effects("note").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_that_does_not_say_waits_for_half_a_minute() {
    let world = World::new().await;
    world.witness.behave("note", Behaviour::Slow(Duration::from_secs(60)));
    let mut original = world.send(lasting(None)).await;
    pause(1_000).await;
    let caller = world.agent().await;
    let duplicate = serde_json::from_value(lasting(None)).unwrap();
    let mut ticket = world.engine.submit(caller, duplicate, Default::default()).unwrap();
    let began = Instant::now();
    under_way(ticket.settled(0).await);
    let waited = began.elapsed().as_secs();
    assert!((29..=31).contains(&waited), "{waited}");
    finished(original.settled(0).await);
}

#[tokio::test]
async fn duplicates_that_wait_hold_back_no_other_call() {
    let world = World::bounded(2).await;
    world.witness.behave("note", Behaviour::Slow(Duration::from_secs(5)));
    let original = world.send(lasting(None)).await;
    pause(100).await;
    let mut waiting = Vec::new();
    for _ in 0..2 {
        waiting.push(world.send(lasting(Some(60_000))).await);
        pause(50).await;
    }
    under_way(world.call(lasting(Some(60_000))).await);
    let mut other = plan("look", "s2", "a");
    other["run"]["run_id"] = json!("other");
    finished(world.call(other).await);
    drop((original, waiting));
}

#[tokio::test]
async fn a_duplicate_that_nobody_waits_for_ends() {
    let world = World::bounded(2).await;
    world.witness.behave("note", Behaviour::Slow(Duration::from_secs(3)));
    let mut original = world.send(lasting(None)).await;
    pause(100).await;
    for _ in 0..2 {
        drop(world.send(lasting(Some(60_000))).await);
        pause(50).await;
    }
    pause(600).await;
    assert!(finished(world.call(lasting(Some(60_000))).await).replayed, "there is a place for it");
    finished(original.settled(0).await);
}
