//! Any actor may die at any moment, under load: nobody hangs, nothing is done twice, nothing accepted is lost.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use placet_engine::answer::Answer;
use placet_ledger::{
    record::EffectState,
    store::{EffectQuery, Store},
};
use placet_types::{approval::VoteChoice, error::ErrorCode};

use crate::fake::Behaviour;
use crate::world::{World, finished, held, plan};

/// Waits until the actor of a path is up and another than before.
async fn comes_back(world: &World, path: &str, before: Option<String>) {
    for _ in 0..500 {
        let now = world.engine.actor_id(path);
        if now.is_some() && now != before {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("`{path}` does not come back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_list_of_actors_is_the_tree_that_runs() {
    let world = World::new().await;
    let names = world.engine.actors();
    assert_eq!(names.len(), world.engine.actor_count(), "{names:?}");
    for part in [
        "root",
        "root/policy",
        "root/approvals",
        "root/identity",
        "root/build/0",
        "root/broker/1",
        "root/gate/0",
        "root/invoke/fake",
        "root/invoke/1",
        "root/return/0",
    ] {
        assert!(names.contains(&part.to_owned()), "{part} is not in {names:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killing_any_one_actor_under_load_strands_nobody_and_loses_nothing() {
    let world = Arc::new(World::new().await);
    world.witness.behave("note", Behaviour::Slow(Duration::from_millis(5)));
    let mut outcomes: BTreeMap<String, usize> = BTreeMap::new();
    let mut succeeded = 0_usize;
    for (round, path) in world.engine.actors().into_iter().enumerate() {
        let before = world.engine.actor_id(&path);
        let load = (0..40).map(|number| {
            let world = Arc::clone(&world);
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(number % 20)).await;
                let tool = if number % 4 == 0 { "look" } else { "note" };
                world.call(plan(tool, &format!("{round}-{number}"), "a")).await
            })
        });
        let load: Vec<_> = load.collect();
        tokio::time::sleep(Duration::from_millis(8)).await;
        assert!(world.engine.inject_fault(&path), "{path}");
        for call in load {
            let outcome = match call.await.expect("a caller panicked or hung") {
                Answer::Finished(result) => {
                    assert!(result.error.is_none(), "{path}: {:?}", result.error);
                    if result.idempotency_key.is_some() {
                        succeeded += 1;
                    }
                    "finished".to_owned()
                }
                Answer::Refused(refused) => refused.refusal.code.to_string(),
                other @ (Answer::InProgress(_) | Answer::Held(_)) => panic!("{path}: {other:?}"),
            };
            *outcomes.entry(outcome).or_default() += 1;
        }
        comes_back(&world, &path, before).await;
    }
    println!("{outcomes:?}");
    // Every caller was told success, a fault, or that the outcome is unknown; nothing else.
    for outcome in outcomes.keys() {
        assert!(
            ["finished", "INTERNAL", "OUTCOME_UNKNOWN", "ADAPTER_UNAVAILABLE"]
                .contains(&outcome.as_str()),
            "{outcomes:?}"
        );
    }
    // The witness agrees with the ledger: no token twice, and every success is recorded.
    let effects = world.witness.effects("note");
    let distinct: std::collections::BTreeSet<_> = effects.iter().collect();
    assert_eq!(distinct.len(), effects.len(), "an effect happened twice");
    let query = EffectQuery { limit: 100_000, ..EffectQuery::default() };
    let records = world.store.effects(&query).await.unwrap();
    let recorded = records
        .iter()
        .filter(|record| matches!(record.state, EffectState::Succeeded { .. }))
        .count();
    assert!(recorded >= succeeded, "{recorded} recorded, {succeeded} acknowledged");
    assert!(records.iter().all(|record| !record.state.is_open()), "a record was left open");
    // And the tree is whole again.
    assert_eq!(world.engine.actors().len(), world.engine.actor_count());
    finished(world.call(plan("note", "after", "a")).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approval_service_that_dies_as_people_decide_still_runs_the_call() {
    let world = World::new().await;
    for round in 0..5 {
        let asked = held(world.call(plan("erase", &format!("s{round}"), "a")).await);
        let before = world.engine.actor_id("root/approvals");
        assert!(world.engine.inject_fault("root/approvals"));
        world.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
        finished(world.end_of(&asked).await);
        comes_back(&world, "root/approvals", before).await;
    }
    assert_eq!(world.witness.effects("erase").len(), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_was_under_way_when_the_process_ended_is_unknown_afterwards() {
    let world = World::new().await;
    world.witness.behave("note", Behaviour::Slow(Duration::from_secs(3_600)));
    let caller = world.agent().await;
    let submission = serde_json::from_value(plan("note", "s1", "a")).unwrap();
    let ticket = world.engine.submit(caller, submission, Default::default()).unwrap();
    let record = loop {
        let record = world.store.effect_of_call(ticket.call_id()).await.unwrap();
        if let Some(record) = record
            && matches!(record.state, EffectState::Dispatched(_))
        {
            break record;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    // Another engine over the same records: the first is as good as dead.
    let next = World::over(Arc::clone(&world.store), Arc::default()).await;
    let after = next.store.effect(record.record_id).await.unwrap().unwrap();
    assert_eq!(after.state.name(), "indeterminate");
    let Answer::Refused(refused) = next.call(plan("note", "s1", "a")).await else {
        panic!("not refused")
    };
    assert_eq!(refused.refusal.code, ErrorCode::OutcomeUnknown);
    assert!(next.witness.effects("note").is_empty());
    let ben = next.person("ben").await;
    let request = serde_json::from_value(
        serde_json::json!({"outcome": "happened", "evidence": "seen in the target"}),
    )
    .unwrap();
    let view = next.engine.resolve(&ben, record.record_id, request).await.unwrap();
    assert_eq!(view.state, "succeeded");
    assert!(finished(next.call(plan("note", "s1", "a")).await).replayed);
}
