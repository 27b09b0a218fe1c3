//! Schedules that have gone wrong once: a step between two others, and what it must not lead to.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use serde_json::json;

use placet_engine::{answer::Answer, ticket::Ticket};
use placet_ledger::{
    audit::AuditKind,
    record::{EffectRecord, EffectState},
    store::{EffectQuery, Store, StoreError},
    testing::Fault,
};
use placet_types::{
    approval::VoteChoice,
    error::{ErrorCode, Execution},
};

use crate::fake::{Behaviour, Probing};
use crate::world::{Make, World, bundle, finished, held, plan, refused, unhurried, waits};

const A_WHILE: Duration = Duration::from_millis(300);

async fn end(mut ticket: Ticket) -> Answer {
    tokio::time::timeout(Duration::from_secs(10), ticket.settled(0))
        .await
        .expect("the caller hangs")
}

async fn pause() {
    tokio::time::sleep(Duration::from_millis(100)).await;
}

async fn records(world: &World) -> Vec<EffectRecord> {
    world.store.effects(&EffectQuery { limit: 1_000, ..EffectQuery::default() }).await.unwrap()
}

/// Sends a call and waits until it is with the adapter.
async fn dispatched(world: &World, tool: &str) -> EffectRecord {
    let ticket = world.send(long(tool)).await;
    for _ in 0..1_000 {
        let record = world.store.effect_of_call(ticket.call_id()).await.unwrap();
        if let Some(record) = record
            && matches!(record.state, EffectState::Dispatched(_))
        {
            return record;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the call is not dispatched");
}

fn long(tool: &str) -> serde_json::Value {
    let mut call = plan(tool, "s1", "a");
    // Longer than any test, so that nobody but the next process ends it.
    call["run"]["run_budget"] = json!({"tool_latency_ms_max": 600_000});
    call
}

/// Waits until a record has left `DISPATCHED`.
async fn settled(world: &World, record: &EffectRecord) -> EffectRecord {
    for _ in 0..1_000 {
        let now = world.store.effect(record.record_id).await.unwrap().unwrap();
        if !now.state.is_open() {
            return now;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the record stays open");
}

#[tokio::test]
async fn a_promotion_between_decision_and_dispatch_strands_nobody() {
    let world = World::new().await;
    world.witness.list_slowly(A_WHILE);
    for tool in ["note", "look"] {
        let call = world.send(plan(tool, "s1", "a")).await;
        pause().await;
        world.activate(bundle()).await.unwrap();
        finished(end(call).await);
        assert_eq!(world.witness.effects(tool).len(), 1);
    }
}

#[tokio::test]
async fn a_lockdown_between_decision_and_dispatch_stops_the_call() {
    let world = World::new().await;
    world.witness.list_slowly(A_WHILE);
    let call = world.send(plan("note", "s1", "a")).await;
    pause().await;
    world.lock_down().await;
    assert_eq!(refused(end(call).await).code, ErrorCode::PolicyDenied);
    assert!(world.witness.effects("note").is_empty());
}

#[tokio::test]
async fn a_refused_call_does_not_reply_the_key_of_another() {
    let world = World::new().await;
    world.witness.list_slowly(A_WHILE);
    let first = world.send(plan("note", "s1", "a")).await;
    pause().await;
    let mut other_run = plan("note", "s1", "a");
    other_run["run"]["safety_mode"] = json!("network");
    assert_eq!(refused(world.call(other_run).await).code, ErrorCode::ValidationError);
    let third = finished(world.call(plan("note", "s1", "a")).await);
    let first = finished(end(first).await);
    assert_eq!((first.replayed, third.replayed), (false, true));
    assert_eq!(world.witness.effects("note").len(), 1);
}

#[tokio::test]
async fn duplicates_of_a_retry_wait_for_the_retry_and_not_for_the_failed_try() {
    let world = World::new().await;
    world.witness.behave("note", Behaviour::NotExecuted);
    refused(world.call(plan("note", "s1", "a")).await);
    world.witness.behave("note", Behaviour::Slow(A_WHILE));
    let retry = world.send(plan("note", "s1", "a")).await;
    pause().await;
    let duplicate = finished(world.call(plan("note", "s1", "a")).await);
    let retry = finished(end(retry).await);
    assert_eq!((retry.replayed, duplicate.replayed), (false, true));
    assert_eq!(retry.tool_call_id, duplicate.tool_call_id);
    assert_eq!(world.witness.effects("note").len(), 1);
    // The record is the first call's, so that is the id under which the outcome is found, now and after a restart.
    let record = records(&world).await.remove(0);
    assert_eq!(retry.tool_call_id, record.call_id);
    finished(world.engine.call(&world.agent().await, &record.call_id).await.unwrap());
    let next = World::over(Arc::clone(&world.store), Arc::default()).await;
    finished(next.engine.call(&next.agent().await, &record.call_id).await.unwrap());
}

#[tokio::test]
async fn two_retries_at_once_have_one_effect_and_one_outcome() {
    let world = World::new().await;
    world.witness.behave("note", Behaviour::NotExecuted);
    refused(world.call(plan("note", "s1", "a")).await);
    world.witness.behave("note", Behaviour::Slow(A_WHILE));
    let retries =
        futures::future::join_all((0..8).map(|_| world.call(plan("note", "s1", "a")))).await;
    let results: Vec<_> = retries.into_iter().map(finished).collect();
    assert_eq!(results.iter().filter(|result| !result.replayed).count(), 1);
    assert_eq!(world.witness.effects("note").len(), 1);
}

#[tokio::test]
async fn a_retry_whose_settlement_breaks_is_unknown_and_not_denied() {
    let world = World::new().await;
    world.witness.behave("note", Behaviour::NotExecuted);
    refused(world.call(plan("note", "s1", "a")).await);
    world.witness.behave_well();
    world.store.fail_once_on(AuditKind::Settled, Fault::Panic);
    let refusal = refused(world.call(plan("note", "s1", "a")).await);
    assert_eq!(world.witness.effects("note").len(), 1);
    assert_eq!((refusal.code, refusal.execution), (ErrorCode::OutcomeUnknown, Execution::Unknown));
    assert_eq!(records(&world).await[0].state.name(), "indeterminate");
}

#[tokio::test]
async fn a_read_whose_settlement_breaks_is_not_called_unexecuted() {
    let world = World::new().await;
    world.store.fail_once_on(AuditKind::ReadSettled, Fault::Panic);
    let refusal = refused(world.call(plan("look", "s1", "a")).await);
    assert_eq!(world.witness.effects("look").len(), 1);
    assert_eq!((refusal.code, refusal.execution), (ErrorCode::Internal, Execution::Unknown));
}

#[tokio::test]
async fn an_outcome_that_cannot_be_kept_leaves_no_record_open() {
    let world = World::new().await;
    world
        .store
        .fail_once_on(AuditKind::Settled, Fault::Refuse(StoreError::TooLarge("result".to_owned())));
    let result = finished(world.call(plan("note", "s1", "a")).await);
    assert!(result.output.is_null(), "the result is too large to be kept, and so to be told");
    let record = records(&world).await.remove(0);
    assert_eq!(record.state.name(), "succeeded");
    assert!(finished(world.call(plan("note", "s1", "a")).await).replayed);
    assert_eq!(world.witness.effects("note").len(), 1);
}

#[tokio::test]
async fn an_approved_call_whose_part_of_the_engine_dies_runs_all_the_same() {
    let world = World::new().await;
    let asked = held(world.call(plan("erase", "s1", "a")).await);
    world.store.fail_once_on(AuditKind::Dispatched, Fault::Panic);
    world.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    finished(world.end_of(&asked).await);
    assert_eq!(world.witness.effects("erase").len(), 1);
}

#[tokio::test]
async fn an_approval_that_cannot_be_ended_at_first_ends_later() {
    let world = World::new().await;
    let asked = held(world.call(plan("erase", "s1", "a")).await);
    world.store.fail_once_on(AuditKind::ApprovalEnded, Fault::Refuse(StoreError::Conflict));
    world.store.advance_ms(waits(&asked).expires_at.since_ms(world.now()).saturating_add(1));
    // What is due is tried again after a while of the ledger's own time.
    let time_goes_on = async {
        loop {
            tokio::time::sleep(Duration::from_millis(50)).await;
            world.store.advance_ms(500);
        }
    };
    let end = tokio::select! {
        end = world.end_of(&asked) => end,
        () = time_goes_on => unreachable!("it goes on for ever"),
    };
    assert_eq!(refused(end).code, ErrorCode::ApprovalExpired);
}

#[tokio::test]
async fn duplicates_of_a_held_call_take_no_place_and_learn_the_end() {
    let world = World::bounded(4).await;
    let asked = held(world.call(plan("erase", "s1", "a")).await);
    for _ in 0..20 {
        let again = held(world.call(plan("erase", "s1", "a")).await);
        assert_eq!(
            (again.approval_id, again.call_id),
            (asked.approval_id.clone(), asked.call_id.clone())
        );
    }
    finished(world.call(plan("look", "s2", "a")).await);
    let mut waiting = world.send(plan("erase", "s1", "a")).await;
    let end = tokio::spawn(async move { waiting.settled(10_000).await });
    pause().await;
    world.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    let result = finished(end.await.unwrap());
    assert!(result.replayed && result.tool_call_id == asked.call_id);
}

#[tokio::test]
async fn a_held_read_that_could_not_be_sent_may_be_sent_again_under_its_approval() {
    let world = World::new().await;
    world.witness.behave("fetch", Behaviour::NotExecuted);
    let asked = held(world.call(plan("fetch", "s1", "a")).await);
    world.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    assert_eq!(refused(world.end_of(&asked).await).code, ErrorCode::AdapterUnavailable);
    world.witness.behave_well();
    assert!(!finished(world.call(plan("fetch", "s1", "a")).await).replayed);
    assert_eq!(world.witness.effects("fetch").len(), 1);
}

#[tokio::test]
async fn a_failed_approved_call_may_be_repeated_within_its_approval_and_not_after_it() {
    let world = World::new().await;
    world.witness.behave("erase", Behaviour::NotExecuted);
    let asked = held(world.call(plan("erase", "s1", "a")).await);
    world.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    assert_eq!(refused(world.end_of(&asked).await).code, ErrorCode::AdapterUnavailable);
    assert_eq!(
        refused(world.call(plan("erase", "s1", "a")).await).code,
        ErrorCode::AdapterUnavailable
    );
    world.store.advance_ms(waits(&asked).expires_at.since_ms(world.now()).saturating_add(1));
    world.witness.behave_well();
    assert_eq!(
        refused(world.call(plan("erase", "s1", "a")).await).code,
        ErrorCode::ApprovalExpired
    );
    assert!(world.witness.effects("erase").is_empty());
}

#[tokio::test]
async fn a_keyed_call_that_was_under_way_is_sent_again_with_the_same_token() {
    let world = World::new().await;
    world.witness.behave("send", Behaviour::Slow(Duration::from_secs(3_600)));
    let before = dispatched(&world, "send").await;
    let next = World::over(Arc::clone(&world.store), Arc::default()).await;
    assert_eq!(settled(&next, &before).await.state.name(), "succeeded");
    let token = before.state.attempt().unwrap().token.clone();
    assert_eq!(next.witness.effects("send"), vec![token]);
    assert!(finished(next.call(long("send")).await).replayed);
}

#[tokio::test]
async fn a_keyed_call_that_may_not_be_sent_again_is_unknown_and_not_refused() {
    let world = World::new().await;
    world.witness.behave("send", Behaviour::Slow(Duration::from_secs(3_600)));
    let before = dispatched(&world, "send").await;
    let witness = Arc::new(crate::fake::Witness::default());
    witness.drifted.store(true, Ordering::SeqCst);
    let next = World::over(Arc::clone(&world.store), witness).await;
    assert_eq!(settled(&next, &before).await.state.name(), "indeterminate");
    let refusal = refused(next.call(long("send")).await);
    assert_eq!((refusal.code, refusal.execution), (ErrorCode::OutcomeUnknown, Execution::Unknown));
    let own = next.engine.call(&next.agent().await, &before.call_id).await.unwrap();
    assert_eq!(refused(own).execution, Execution::Unknown);
}

#[tokio::test]
async fn a_second_attempt_that_had_no_effect_does_not_speak_for_the_first() {
    let world = World::new().await;
    world.witness.behave("send", Behaviour::Slow(Duration::from_secs(3_600)));
    let before = dispatched(&world, "send").await;
    // The clock of this store stands still, as after a jump backwards.
    let witness = Arc::new(crate::fake::Witness::default());
    witness.behave("send", Behaviour::Drifts);
    let next = World::over(Arc::clone(&world.store), witness).await;
    assert_eq!(settled(&next, &before).await.state.name(), "indeterminate");
    assert_eq!(refused(next.call(long("send")).await).execution, Execution::Unknown);
}

#[tokio::test]
async fn a_second_attempt_that_failed_does_not_speak_for_the_first() {
    let world = World::new().await;
    world.witness.behave("send", Behaviour::Slow(Duration::from_secs(3_600)));
    let before = dispatched(&world, "send").await;
    let witness = Arc::new(crate::fake::Witness::default());
    witness.behave("send", Behaviour::Fails);
    let next = World::over(Arc::clone(&world.store), witness).await;
    assert_eq!(settled(&next, &before).await.state.name(), "indeterminate");
    let told = refused(next.call(long("send")).await);
    assert_eq!((told.code, told.execution), (ErrorCode::OutcomeUnknown, Execution::Unknown));
}

#[tokio::test]
async fn a_key_is_not_sent_again_when_its_window_closes_while_the_dispatch_is_kept() {
    const WINDOW_MS: i64 = 86_400_000;
    let world = World::new().await;
    world.witness.behave("send", Behaviour::Slow(Duration::from_secs(3_600)));
    let before = dispatched(&world, "send").await;
    world.store.advance_ms(WINDOW_MS - 6_000);
    world.store.fail_once_on(AuditKind::Dispatched, Fault::Slow(7_000));
    let next = World::over(Arc::clone(&world.store), Arc::default()).await;
    let after = settled(&next, &before).await;
    assert_eq!((after.state.name(), after.attempts), ("indeterminate", 2));
    assert!(next.witness.effects("send").is_empty());
}

/// The next process over the records of a world, for hours of a paused clock.
async fn unhurried_over(world: &World, witness: Arc<crate::fake::Witness>) -> World {
    let store = Arc::new(world.store.restarted());
    World::with(Make { store, witness, ledger: unhurried(), ..Make::default() }).await
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_jumped_forward_does_not_make_not_found_count() {
    let world = World::with(Make { ledger: unhurried(), ..Make::default() }).await;
    world.witness.behave("book", Behaviour::Slow(Duration::from_secs(3_600)));
    let before = dispatched(&world, "book").await;
    world.store.advance_ms(24 * 3_600_000);
    let witness = Arc::new(crate::fake::Witness::default());
    *witness.probing.lock() = Probing::NotFound;
    let next = unhurried_over(&world, witness).await;
    tokio::time::sleep(Duration::from_secs(590)).await;
    let state = async || next.store.effect(before.record_id).await.unwrap().unwrap().state;
    assert_eq!(state().await.name(), "dispatched", "its ten minutes are not over");
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(state().await.name(), "failed_retriable");
}

#[tokio::test]
async fn a_retry_under_a_new_contract_is_kept_as_it_was_sent() {
    let world = World::new().await;
    world.witness.behave("send", Behaviour::NotExecuted);
    refused(world.call(long("send")).await);
    world.witness.behave("send", Behaviour::Slow(Duration::from_secs(3_600)));
    let with_another_contract = async |store: &Arc<placet_ledger::testing::MemoryStore>,
                                       witness| {
        let store = Arc::new(store.restarted());
        World::with(Make { store, witness, breaker_failures: 999, ..Make::default() }).await
    };
    let witness = Arc::clone(&world.witness);
    let second = with_another_contract(&world.store, witness).await;
    // It goes on under the id of the call that made the record.
    drop(second.send(long("send")).await);
    let sent = second.reaches("dispatched").await;
    let third = with_another_contract(&second.store, Arc::default()).await;
    assert_eq!(settled(&third, &sent).await.state.name(), "succeeded");
    assert_eq!(third.witness.effects("send"), [sent.state.attempt().unwrap().token.clone()]);
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_breaks_or_hangs_leaves_an_unknown_outcome() {
    for (probing, state) in [
        (Probing::Panics, "indeterminate"),
        (Probing::Hangs, "indeterminate"),
        (Probing::Unknown, "indeterminate"),
        (Probing::NotFound, "failed_retriable"),
    ] {
        let world = World::with(Make { ledger: unhurried(), ..Make::default() }).await;
        world.witness.behave("book", Behaviour::Slow(Duration::from_secs(3_600)));
        let before = dispatched(&world, "book").await;
        let witness = Arc::new(crate::fake::Witness::default());
        *witness.probing.lock() = probing;
        world.store.advance_ms(3_600_000);
        let next = unhurried_over(&world, witness).await;
        // "Not found" counts once as much time has passed as the call had.
        let waiting = tokio::time::timeout(Duration::from_secs(660), async {
            while next.store.effect(before.record_id).await.unwrap().unwrap().state.is_open() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        waiting.await.expect("the record stays open");
        let after = next.store.effect(before.record_id).await.unwrap().unwrap();
        assert_eq!(after.state.name(), state, "{probing:?}");
    }
}

#[tokio::test]
async fn a_connector_that_panics_is_tried_again() {
    let witness = Arc::new(crate::fake::Witness::default());
    witness.connector_panics.store(true, Ordering::SeqCst);
    let world = World::with(Make { witness, ..Make::default() }).await;
    for step in 0..100 {
        let mut call = plan("look", &format!("s{step}"), "a");
        call["run"]["run_budget"] = json!({"tool_latency_ms_max": 2_000, "calls_max": 1_000});
        if matches!(world.call(call).await, Answer::Finished(_)) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the connector is not tried again");
}

#[tokio::test]
async fn short_budgets_of_one_caller_do_not_close_the_tool_for_all() {
    let world = World::touchy(3).await;
    world.witness.behave("look", Behaviour::Slow(Duration::from_secs(2)));
    for step in 0..10 {
        let mut call = plan("look", &format!("s{step}"), "a");
        call["run"] = json!({"run_id": "hasty", "run_budget": {"tool_latency_ms_max": 1, "calls_max": 100_000}});
        drop(world.send(call).await);
    }
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    world.witness.behave_well();
    finished(world.call(plan("look", "s", "a")).await);
}

#[tokio::test]
async fn what_a_session_leaves_of_a_budget_is_no_fair_time_for_the_tool() {
    let world = World::touchy(3).await;
    world.witness.behave("look", Behaviour::Slow(Duration::from_secs(2)));
    world.witness.begin_slowly(Duration::from_millis(900));
    for step in 0..10 {
        let mut call = plan("look", &format!("s{step}"), "a");
        call["run"] = json!({"run_id": "hasty", "run_budget": {"tool_latency_ms_max": 1_300, "calls_max": 100_000}});
        drop(world.send(call).await);
    }
    tokio::time::sleep(Duration::from_millis(4_000)).await;
    assert!(world.witness.seated.load(Ordering::SeqCst) >= 3);
    world.witness.behave_well();
    world.witness.begin_slowly(Duration::ZERO);
    finished(world.call(plan("look", "s", "a")).await);
}

#[tokio::test]
async fn sessions_that_end_for_one_caller_do_not_close_the_tool_for_all() {
    let world = World::touchy(3).await;
    world.witness.behave("note", Behaviour::NoSession);
    for step in 0..5 {
        let refusal = refused(world.call(plan("note", &format!("s{step}"), "a")).await);
        assert_eq!(refusal.code, ErrorCode::AdapterUnavailable);
        assert_eq!(refusal.execution, Execution::NotExecuted);
    }
    finished(world.call(plan("look", "s", "a")).await);
}

#[tokio::test]
async fn a_stop_waits_for_what_is_under_way_and_not_for_what_is_held() {
    let world = World::new().await;
    held(world.call(plan("erase", "s1", "a")).await);
    for _ in 0..3 {
        held(world.call(plan("erase", "s1", "a")).await);
    }
    world.witness.behave("note", Behaviour::Slow(A_WHILE));
    let note = world.send(plan("note", "s2", "a")).await;
    pause().await;
    let stop = tokio::time::timeout(Duration::from_secs(5), world.engine.shutdown());
    stop.await.expect("the stop hangs");
    finished(end(note).await);
}
