//! How long things are kept: results, tombstones, keys that tell their age.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use placet_ledger::store::{Store, StoreError};
use placet_pipeline::settings::{LedgerSettings, Retention, TenantRetention};
use placet_types::{
    approval::VoteChoice,
    error::{ErrorCode, Execution},
    ids::TenantId,
};

use crate::fake::Behaviour;
use crate::world::{Make, World, finished, held, plan, quick, refused};

const DAY_MS: i64 = 24 * 60 * 60 * 1_000;
/// A UUID of version 7 that was made when the world begins.
const KEY: &str = "01a3185c-5000-7000-8000-000000000001";

fn keyed(key: &str) -> Value {
    let mut call = plan("note", "s1", "a");
    call["idempotency_key"] = json!(key);
    call
}

#[tokio::test]
async fn a_result_past_its_retention_is_gone_and_its_key_stays_taken() {
    let world = World::new().await;
    finished(world.call(keyed("order-1")).await);
    let before = world.record().await;
    world.store.advance_ms(31 * DAY_MS);
    world.reaches("tombstone").await;
    let refusal = refused(world.call(keyed("order-1")).await);
    assert_eq!((refusal.code, refusal.execution), (ErrorCode::ResultExpired, Execution::Unknown));
    assert!(refusal.message.contains("succeeded"), "{}", refusal.message);
    let mut other = keyed("order-1");
    other["args"]["what"] = json!("b");
    assert_eq!(refused(world.call(other).await).code, ErrorCode::IdempotencyConflict);
    let result = before.state.result().unwrap();
    assert!(world.store.content(&before.scope.tenant, result).await.is_err());
    assert!(world.store.content(&before.scope.tenant, before.parked).await.is_err());
    let told = world.engine.call(&world.agent().await, &before.call_id).await.unwrap();
    assert_eq!(refused(told).code, ErrorCode::ResultExpired);
    // A key that tells no age is remembered for ever.
    world.store.advance_ms(4_000 * DAY_MS);
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    assert_eq!(refused(world.call(keyed("order-1")).await).code, ErrorCode::ResultExpired);
    assert_eq!(world.witness.effects("note").len(), 1);
}

#[tokio::test]
async fn a_key_whose_tombstone_is_gone_is_refused_as_too_old() {
    let world = World::new().await;
    finished(world.call(keyed(KEY)).await);
    let record_id = world.record().await.record_id;
    world.store.advance_ms(31 * DAY_MS);
    world.reaches("tombstone").await;
    world.store.advance_ms(380 * DAY_MS);
    // Too old to be taken, but known still: what is known is told.
    assert_eq!(refused(world.call(keyed(KEY)).await).code, ErrorCode::ResultExpired);
    world.store.advance_ms(30 * DAY_MS);
    for _ in 0..500 {
        if world.store.effect(record_id).await.unwrap().is_none() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert!(world.store.effect(record_id).await.unwrap().is_none(), "the tombstone is not dropped");
    let refusal = refused(world.call(keyed(KEY)).await);
    assert_eq!((refusal.code, refusal.execution), (ErrorCode::KeyTooOld, Execution::NotExecuted));
    assert_eq!(world.witness.effects("note").len(), 1);
    assert!(world.store.effect(record_id).await.unwrap().is_none(), "the key is not taken");
}

#[tokio::test]
async fn a_key_from_the_future_is_refused() {
    let world = World::new().await;
    // Made 30 days after the world begins.
    let refusal = refused(world.call(keyed("01a3b1c0-0000-7000-8000-000000000001")).await);
    assert_eq!(refusal.code, ErrorCode::ValidationError);
    assert_eq!(refusal.problems[0].pointer, "/idempotency_key");
    assert!(world.witness.effects("note").is_empty());
}

#[tokio::test]
async fn a_tenant_may_keep_its_results_for_another_time() {
    let own = TenantRetention { results_ms: Some(1_000), tombstones_ms: None };
    let tenants = BTreeMap::from([(TenantId::new("acme").unwrap(), own)]);
    let retention = Retention { tenants, ..quick().retention };
    let ledger = LedgerSettings { retention, ..quick() };
    let world = World::with(Make { ledger, ..Make::default() }).await;
    finished(world.call(keyed("order-1")).await);
    assert!(finished(world.call(keyed("order-1")).await).replayed);
    world.store.advance_ms(1_500);
    world.reaches("tombstone").await;
}

#[tokio::test]
async fn what_approvers_were_shown_goes_with_the_result_in_the_time_of_its_tenant() {
    let own = TenantRetention { results_ms: Some(DAY_MS.unsigned_abs()), tombstones_ms: None };
    let tenants = BTreeMap::from([(TenantId::new("acme").unwrap(), own)]);
    let retention = Retention { tenants, ..quick().retention };
    let ledger = LedgerSettings { retention, ..quick() };
    let world = World::with(Make { ledger, ..Make::default() }).await;
    let asked = held(world.call(plan("erase", "s1", "a")).await);
    world.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    finished(world.end_of(&asked).await);
    let approval = world.store.approval(&asked.approval_id).await.unwrap().unwrap();
    let tenant = approval.chain.tenant().clone();
    assert!(world.store.content(&tenant, approval.proposal).await.is_ok());
    world.store.advance_ms(DAY_MS + DAY_MS / 2);
    world.reaches("tombstone").await;
    let shown = world.store.content(&tenant, approval.proposal).await;
    assert!(matches!(shown, Err(StoreError::ContentMissing(_))), "{shown:?}");
    // That it was approved, by whom and on what digest, stays.
    let kept = world.store.approval(&asked.approval_id).await.unwrap().unwrap();
    assert_eq!((kept.votes, kept.proposal), (approval.votes, approval.proposal));
}

#[tokio::test]
async fn an_unknown_outcome_is_never_dropped() {
    let world = World::new().await;
    world.witness.behave("note", Behaviour::Unknown);
    refused(world.call(keyed(KEY)).await);
    world.store.advance_ms(4_000 * DAY_MS);
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    assert_eq!(world.record().await.state.name(), "indeterminate");
    assert_eq!(refused(world.call(keyed(KEY)).await).code, ErrorCode::OutcomeUnknown);
    assert_eq!(world.witness.effects("note").len(), 1);
}
