//! What callers and approvers are told where nobody knows yet: never that nothing was executed.

use std::sync::Arc;

use placet_ledger::{audit::AuditKind, store::StoreError, testing::Fault};
use placet_types::{
    approval::VoteChoice,
    error::{ErrorCode, Execution, Refusal},
};

use crate::fake::Behaviour;
use crate::world::{World, finished, held, plan, refused};

fn says_unknown(refusal: &Refusal) {
    assert_eq!(
        (refusal.code, refusal.execution),
        (ErrorCode::LedgerUnavailable, Execution::Unknown),
        "{refusal:?}"
    );
    assert!(!refusal.message.contains("nothing was executed"), "{refusal:?}");
}

async fn next(world: &World) -> World {
    World::over(Arc::clone(&world.store), Arc::clone(&world.witness)).await
}

#[tokio::test]
async fn an_intent_that_may_be_kept_is_not_called_unexecuted() {
    let world = World::new().await;
    world.store.fail_once_on(AuditKind::Dispatched, Fault::Uncertain);
    says_unknown(&refused(world.call(plan("note", "s1", "a")).await));
    assert!(world.witness.effects("note").is_empty());
    assert_eq!(world.record().await.state.name(), "dispatched");
    // The next process finds it, and nobody sends it a second time by mistake.
    let next = next(&world).await;
    let refusal = refused(next.call(plan("note", "s1", "a")).await);
    assert_eq!((refusal.code, refusal.execution), (ErrorCode::OutcomeUnknown, Execution::Unknown));
    assert!(next.witness.effects("note").is_empty());
}

#[tokio::test]
async fn unknown_outcomes_are_counted_until_resolved() {
    let world = World::new().await;
    world.store.fail_once_on(AuditKind::Dispatched, Fault::Uncertain);
    says_unknown(&refused(world.call(plan("note", "s1", "a")).await));
    let next = next(&world).await;
    let shows = async |count: u32| {
        let line = format!("placet_outcomes_unknown {count}\n");
        for _ in 0..1_000 {
            if next.engine.metrics().encode().contains(&line) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        panic!("never {line}");
    };
    shows(1).await;
    let request = serde_json::from_value(serde_json::json!({
        "outcome": "did_not_happen", "evidence": "the log of the target",
    }));
    let record_id = next.record().await.record_id;
    next.engine.resolve(&next.person("ben").await, record_id, request.unwrap()).await.unwrap();
    shows(0).await;
}

#[tokio::test]
async fn a_call_that_may_be_held_is_not_called_unexecuted_and_its_retry_finds_the_approval() {
    let world = World::new().await;
    world.store.fail_once_on(AuditKind::Held, Fault::Uncertain);
    says_unknown(&refused(world.call(plan("erase", "s1", "a")).await));
    let next = next(&world).await;
    let asked = held(next.call(plan("erase", "s1", "a")).await);
    next.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    finished(next.end_of(&asked).await);
    assert_eq!(next.witness.effects("erase").len(), 1);
}

#[tokio::test]
async fn an_approver_whose_agreement_may_be_kept_is_not_told_that_nothing_runs() {
    let world = World::new().await;
    let asked = held(world.call(plan("erase", "s1", "a")).await);
    world.store.fail_once_on(AuditKind::Voted, Fault::Uncertain);
    says_unknown(&world.vote("ben", &asked, VoteChoice::Approve).await.unwrap_err());
    let next = next(&world).await;
    finished(next.end_of(&asked).await);
    assert_eq!(next.witness.effects("erase").len(), 1);
}

#[tokio::test]
async fn a_failure_after_an_attempt_that_nobody_knows_of_is_not_called_the_end() {
    let world = World::new().await;
    world.witness.behave("note", Behaviour::Unknown);
    refused(world.call(plan("note", "s1", "a")).await);
    world.witness.behave("note", Behaviour::Fails);
    world.rearm("ben").await.unwrap();
    world.rearm("dora").await.unwrap();
    let record = world.reaches("indeterminate").await;
    assert_eq!((record.arm, record.attempts), (1, 2));
    let asked = world.engine.call(&world.agent().await, &record.call_id).await.unwrap();
    for answer in [asked, world.call(plan("note", "s1", "a")).await] {
        let refusal = refused(answer);
        assert_eq!(
            (refusal.code, refusal.execution),
            (ErrorCode::OutcomeUnknown, Execution::Unknown)
        );
    }
}

#[tokio::test]
async fn a_result_that_finds_no_space_is_kept_when_there_is_some() {
    let world = World::new().await;
    world.store.fail_once_on(AuditKind::Settled, Fault::Refuse(StoreError::NoSpace));
    says_unknown(&refused(world.call(plan("note", "s1", "a")).await));
    world.reaches("succeeded").await;
    let again = finished(world.call(plan("note", "s1", "a")).await);
    assert!(again.replayed && again.output["did"] == "note");
    assert_eq!(world.witness.effects("note").len(), 1);
}

#[tokio::test]
async fn an_unknown_outcome_that_finds_no_space_is_kept_when_there_is_some() {
    let world = World::new().await;
    world.store.fail_once_on(AuditKind::Dispatched, Fault::Uncertain);
    refused(world.call(plan("note", "s1", "a")).await);
    world.store.fail_once_on(AuditKind::Settled, Fault::Refuse(StoreError::NoSpace));
    let next = next(&world).await;
    next.reaches("indeterminate").await;
    assert!(!next.store.audit().is_empty());
}
