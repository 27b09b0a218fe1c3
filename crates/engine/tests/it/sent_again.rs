//! Keyed calls that were under way in a process that is over: what passes by itself does not make their outcome unknown.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use serde_json::{Value, json};

use placet_ledger::{
    audit::AuditKind,
    record::{EffectRecord, EffectState},
    run::RunKey,
    store::{Store, StoreError},
    testing::Fault,
};
use placet_types::approval::VoteChoice;

use crate::fake::{Behaviour, Probing, Witness};
use crate::world::{Make, World, directory, finished, held, plan};

const A_WHILE: Duration = Duration::from_millis(600);

fn sent(tool: &str) -> Value {
    let mut call = plan(tool, "s1", "a");
    call["run"]["run_budget"] = json!({"tool_latency_ms_max": 5_000, "calls_max": 1});
    call
}

/// A world that ends while a call is under way.
async fn interrupted() -> (World, EffectRecord) {
    let world = World::new().await;
    world.witness.behave("send", Behaviour::Slow(Duration::from_secs(3_600)));
    drop(world.send(sent("send")).await);
    let record = world.reaches("dispatched").await;
    (world, record)
}

async fn next(world: &World, witness: &Arc<Witness>) -> World {
    World::over(Arc::clone(&world.store), Arc::clone(witness)).await
}

/// It is sent once, with the token of the first try, and cost its run one call.
async fn was_sent_again(next: &World, before: &EffectRecord) {
    next.reaches("succeeded").await;
    assert_eq!(next.witness.effects("send"), [before.state.attempt().unwrap().token.clone()]);
    assert!(finished(next.call(sent("send")).await).replayed);
    let key = RunKey {
        tenant: before.scope.tenant.clone(),
        agent: before.scope.agent.clone(),
        on_behalf_of: None,
        run_id: before.run_id.clone(),
    };
    assert_eq!(next.store.run(&key).await.unwrap().unwrap().calls_used, 1);
}

#[tokio::test]
async fn a_target_that_is_away_at_the_restart_is_waited_for() {
    let (world, before) = interrupted().await;
    let witness = Arc::new(Witness::default());
    witness.refuses_connections.store(true, Ordering::SeqCst);
    let next = next(&world, &witness).await;
    tokio::time::sleep(A_WHILE).await;
    assert_eq!(next.record().await.state.name(), "dispatched");
    let told = |event: &&placet_ledger::audit::AuditEvent| {
        event.kind == AuditKind::Refused && event.call_id.as_ref() == Some(&before.call_id)
    };
    assert_eq!(next.store.audit().iter().filter(told).count(), 1, "the chain says it once");
    witness.refuses_connections.store(false, Ordering::SeqCst);
    was_sent_again(&next, &before).await;
}

#[tokio::test]
async fn a_target_that_does_not_answer_the_first_tries_is_asked_again() {
    for behaviour in [Behaviour::NotExecuted, Behaviour::Slow(Duration::from_secs(60))] {
        let (world, before) = interrupted().await;
        let witness = Arc::new(Witness::default());
        witness.behave("send", behaviour);
        let next = next(&world, &witness).await;
        tokio::time::sleep(A_WHILE).await;
        assert_eq!(next.record().await.state.name(), "dispatched");
        witness.behave_well();
        was_sent_again(&next, &before).await;
    }
}

#[tokio::test]
async fn a_lockdown_does_not_make_a_keyed_call_unknown() {
    let (world, before) = interrupted().await;
    let witness = Arc::new(Witness::default());
    witness.refuses_connections.store(true, Ordering::SeqCst);
    let next = next(&world, &witness).await;
    let lockdown = next.lock_down().await;
    witness.refuses_connections.store(false, Ordering::SeqCst);
    tokio::time::sleep(A_WHILE).await;
    assert_eq!(next.record().await.state.name(), "dispatched");
    assert!(witness.effects("send").is_empty());
    next.lift(&lockdown).await;
    was_sent_again(&next, &before).await;
}

#[tokio::test]
async fn a_directory_that_is_reloaded_meanwhile_does_not_keep_it_from_being_sent_again() {
    let (world, before) = interrupted().await;
    let witness = Arc::new(Witness::default());
    witness.refuses_connections.store(true, Ordering::SeqCst);
    let next = next(&world, &witness).await;
    tokio::time::sleep(A_WHILE).await;
    let agent = "bot".parse().unwrap();
    let mut directory = directory();
    let own = directory.tenants.values_mut().find_map(|tenant| tenant.agents.get_mut(&agent));
    own.unwrap().display = Some("Robot".to_owned());
    next.appoint(directory).await.unwrap();
    witness.refuses_connections.store(false, Ordering::SeqCst);
    was_sent_again(&next, &before).await;
}

/// It has a record, since people agreed to it.
#[tokio::test]
async fn an_approved_read_waits_for_a_target_that_is_away_at_the_restart() {
    let world = World::new().await;
    let call = plan("fetch", "s1", "a");
    let waiting = held(world.call(call.clone()).await);
    world.witness.behave("fetch", Behaviour::Slow(Duration::from_secs(3_600)));
    world.vote("ben", &waiting, VoteChoice::Approve).await.unwrap();
    world.reaches("dispatched").await;
    let witness = Arc::new(Witness::default());
    witness.refuses_connections.store(true, Ordering::SeqCst);
    let next = next(&world, &witness).await;
    tokio::time::sleep(A_WHILE).await;
    assert_eq!(next.record().await.state.name(), "dispatched");
    witness.refuses_connections.store(false, Ordering::SeqCst);
    next.reaches("succeeded").await;
    assert!(finished(next.call(call).await).replayed);
}

#[tokio::test]
async fn a_run_without_calls_left_does_not_keep_its_last_one_from_being_sent_again() {
    let (world, before) = interrupted().await;
    let next = next(&world, &Arc::default()).await;
    was_sent_again(&next, &before).await;
}

#[tokio::test]
async fn a_ledger_that_is_away_for_a_moment_is_waited_for() {
    for fault in [
        Fault::Refuse(StoreError::Unreachable("gone".to_owned())),
        Fault::Refuse(StoreError::NoSpace),
        Fault::Unconfirmed,
    ] {
        let (world, before) = interrupted().await;
        world.store.fail_once_on(AuditKind::Dispatched, fault);
        let next = next(&world, &Arc::default()).await;
        was_sent_again(&next, &before).await;
    }
}

#[tokio::test]
async fn a_repeat_neither_counts_as_a_call_nor_takes_from_the_rate() {
    let world = World::with(Make { per_minute: 1, ..Make::default() }).await;
    world.witness.behave("send", Behaviour::Flaky(2));
    assert_eq!(finished(world.call(sent("send")).await).retries, 2);
    assert_eq!(world.witness.effects("send").len(), 3);
}

#[tokio::test]
async fn a_window_that_closes_while_the_target_is_away_ends_the_tries() {
    let (world, before) = interrupted().await;
    let witness = Arc::new(Witness::default());
    *witness.probing.lock() = Probing::Unknown;
    witness.refuses_connections.store(true, Ordering::SeqCst);
    let next = next(&world, &witness).await;
    tokio::time::sleep(A_WHILE).await;
    next.store.advance_ms(86_400_000);
    let after = next.reaches("indeterminate").await;
    let EffectState::Indeterminate { reason, .. } = &after.state else { panic!("{after:?}") };
    assert!(reason.contains("no longer remembers"), "{reason}");
    witness.refuses_connections.store(false, Ordering::SeqCst);
    tokio::time::sleep(A_WHILE).await;
    assert!(witness.effects("send").is_empty());
    assert_eq!(next.record().await.rev, after.rev, "{before:?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_window_closes_stays_in_the_hand_that_put_it_off_until_its_end_is_kept() {
    let (world, _) = interrupted().await;
    let witness = Arc::new(Witness::default());
    witness.refuses_connections.store(true, Ordering::SeqCst);
    let next = next(&world, &witness).await;
    tokio::time::sleep(A_WHILE).await;
    next.store.hold_content(true);
    let read = next.store.content_reads();
    next.store.advance_ms(86_400_000);
    // Those who look for calls that nobody is at work on come by many times meanwhile.
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(next.store.content_reads(), read.saturating_add(1), "somebody else took it too");
    next.store.hold_content(false);
    next.reaches("indeterminate").await;
}
