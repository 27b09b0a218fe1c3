//! How long things are kept: results, tombstones, keys that tell their age.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use placet_engine::settings::{LedgerSettings, Retention, TenantRetention};
use placet_ledger::{
    approval::{ApprovalRecord, ApprovalState},
    audit::AuditKind,
    directive::{DIRECTIVE_VERSION, Directive},
    store::{Admission, Changes, Durability, EffectQuery, Store, StoreError},
    testing::Fault,
};
use placet_types::{
    approval::{Requirement, VoteChoice},
    clock::Timestamp,
    digest::Digest,
    directive::{BreakGlass, Delegation, DirectiveBody},
    error::{ErrorCode, Execution},
    ids::{ApprovalId, DirectiveId, PrincipalId, TenantId},
    principal::PrincipalKind,
};

use crate::fake::Behaviour;
use crate::world::{Make, World, finished, held, plan, quick, refused, unhurried};

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
    assert_eq!((&kept.votes, kept.proposal), (&approval.votes, approval.proposal));
    let ben = world.person("ben").await;
    let seen = world.engine.approvals().approval(&ben, &asked.approval_id).await.unwrap();
    assert!(seen.proposal.is_none() && seen.preview().is_null(), "{seen:?}");
    assert_eq!((seen.approval.votes, seen.approval.state.as_str()), (kept.votes, "succeeded"));
}

/// Something that is over, but for break-glass records.
fn entry(id: &str, body: DirectiveBody, now: Timestamp) -> Directive {
    let requirement = Requirement::new(BTreeMap::new(), 0, 1_000);
    Directive {
        version: DIRECTIVE_VERSION,
        directive_id: DirectiveId::new(id).unwrap(),
        tenant: TenantId::new("acme").unwrap(),
        by: PrincipalId::new("fia").unwrap(),
        reason: "away".to_owned(),
        created_at: now,
        starts_at: now,
        expires_at: now.plus_ms(60_000),
        body,
        state: Directive::first_state(&requirement),
        requirement,
        rev: 1,
        votes: Vec::new(),
        uses: 0,
        claimed: None,
    }
}

#[tokio::test]
async fn what_is_over_in_approvals_goes_with_its_tenant_s_tombstones_and_the_chain_says_so() {
    let world = World::new().await;
    let mut ids = Vec::new();
    for (step, choice) in [("s1", VoteChoice::Approve), ("s2", VoteChoice::Deny)] {
        let asked = held(world.call(plan("erase", step, "a")).await);
        world.vote("ben", &asked, choice).await.unwrap();
        world.end_of(&asked).await;
        ids.push(asked.approval_id);
    }
    let now = world.store.now();
    let delegation = Delegation { to: PrincipalId::new("ben").unwrap(), groups: BTreeSet::new() };
    let glass = BreakGlass { ticket: "INC-1".to_owned(), agent: None, capability: None };
    let mut changes = Changes::new(Durability::Synced, Admission::New);
    changes.directives = vec![
        entry("directive_delegation", DirectiveBody::Delegation(delegation), now),
        entry("dir_glass", DirectiveBody::BreakGlass(glass), now),
    ];
    world.store.commit(changes).await.unwrap();
    let (handed, glass) =
        (DirectiveId::new("directive_delegation").unwrap(), DirectiveId::new("dir_glass").unwrap());
    let are_there = async || {
        let mut there = 0_usize;
        for id in &ids {
            there += usize::from(world.store.approval(id).await.unwrap().is_some());
        }
        there + usize::from(world.store.directive(&handed).await.unwrap().is_some())
    };
    world.store.advance_ms(395 * DAY_MS);
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    assert_eq!(are_there().await, 3, "in the time of the tombstones they are kept");
    world.store.advance_ms(10 * DAY_MS);
    for _ in 0..500 {
        if are_there().await == 0 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(are_there().await, 0);
    assert!(world.store.directive(&glass).await.unwrap().is_some(), "nobody has reviewed it");
    let audit = world.store.audit();
    let told = |id: &ApprovalId| {
        audit.iter().any(|event| {
            event.kind == AuditKind::Forgotten && event.approval_id.as_ref() == Some(id)
        })
    };
    assert!(ids.iter().all(told));
    let handed = audit.iter().any(|event| {
        event.kind == AuditKind::Forgotten
            && event.note.as_deref() == Some("delegation `directive_delegation`")
    });
    assert!(handed);
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

#[tokio::test]
async fn what_was_shown_of_void_approvals_goes_however_many_older_ones_there_are() {
    // More than one round looks at, with a batch of one.
    const OLDER: usize = 210;
    let retention = Retention { batch: 1, ..quick().retention };
    let ledger = LedgerSettings { retention, ..quick() };
    let world = World::with(Make { ledger, ..Make::default() }).await;
    let asked = held(world.call(plan("erase", "s1", "x")).await);
    let first = world.store.approval(&asked.approval_id).await.unwrap().unwrap();
    let tenant = first.chain.tenant().clone();
    let mut last = first.proposal;
    for number in 0..OLDER {
        let shown = format!("shown {number}").into_bytes();
        last = Digest::of(&shown);
        let approval_id = ApprovalId::new(format!("apr_{number:04}")).unwrap();
        let pending = ApprovalRecord { approval_id, proposal: last, rev: 1, ..first.clone() };
        let void = pending.moved(ApprovalState::Void { reason: "drifted".to_owned() }).unwrap();
        let mut changes = Changes::new(Durability::Synced, Admission::New);
        changes.content.push((tenant.clone(), shown));
        changes.approvals = vec![pending, void];
        world.store.commit(changes).await.unwrap();
    }
    world.store.advance_ms(40 * DAY_MS);
    for _ in 0..2_000 {
        if world.store.content(&tenant, last).await.is_err() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("what was shown of the youngest of them is there still");
}

/// Seeds a world with this many records of `acme`, and settings under which a turn is short.
async fn many(tenants: BTreeMap<TenantId, TenantRetention>, of_acme: usize) -> World {
    let retention = Retention { tenants, batch: 1, sweep_every_ms: 300_000, ..quick().retention };
    let ledger = LedgerSettings { retention, ..unhurried() };
    let world = World::with(Make { ledger, is_quiet: true, ..Make::default() }).await;
    for step in 0..of_acme {
        finished(world.call(plan("note", &format!("s{step}"), "a")).await);
    }
    world
}

/// How many records there are in a state, of a tenant.
async fn count(world: &World, tenant: &str, state: &str) -> usize {
    let query = EffectQuery {
        tenant: Some(TenantId::new(tenant).unwrap()),
        state: Some(state.to_owned()),
        limit: 10_000,
        ..EffectQuery::default()
    };
    world.store.effects(&query).await.unwrap().len()
}

/// A turn is 200 batches.
const MORE_THAN_A_TURN: usize = 230;

#[tokio::test(start_paused = true)]
async fn a_round_goes_on_until_everything_that_is_due_was_moved() {
    let world = many(BTreeMap::new(), MORE_THAN_A_TURN).await;
    world.store.advance_ms(31 * DAY_MS);
    while count(&world, "acme", "succeeded").await == MORE_THAN_A_TURN {
        tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    }
    // Much less than the time until the next round.
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    assert_eq!(count(&world, "acme", "succeeded").await, 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_due_keeps_nothing_behind_it_waiting() {
    const DUE: usize = 40;
    let longer =
        TenantRetention { results_ms: Some((1_000 * DAY_MS).unsigned_abs()), tombstones_ms: None };
    let tenants = BTreeMap::from([(TenantId::new("acme").unwrap(), longer)]);
    let world = many(tenants, MORE_THAN_A_TURN).await;
    for step in 0..DUE {
        let caller = world.caller(PrincipalKind::Agent, "bot@globex").await;
        finished(world.call_as(caller, plan("note", &format!("s{step}"), "a")).await);
    }
    world.store.advance_ms(31 * DAY_MS);
    tokio::time::sleep(std::time::Duration::from_secs(900)).await;
    assert_eq!(count(&world, "globex", "tombstone").await, DUE);
    assert_eq!(count(&world, "acme", "succeeded").await, MORE_THAN_A_TURN);
}

#[tokio::test(start_paused = true)]
async fn tombstones_that_stay_for_ever_keep_no_others_waiting() {
    const DATED: usize = 40;
    let world = many(BTreeMap::new(), MORE_THAN_A_TURN).await;
    for number in 0..DATED {
        let key = format!("01a3185c-5000-7000-8000-{number:012}");
        let mut call = plan("note", &format!("d{number}"), "a");
        call["idempotency_key"] = json!(key);
        finished(world.call(call).await);
    }
    world.store.advance_ms(31 * DAY_MS);
    tokio::time::sleep(std::time::Duration::from_secs(900)).await;
    assert_eq!(count(&world, "acme", "tombstone").await, MORE_THAN_A_TURN + DATED);
    world.store.advance_ms(410 * DAY_MS);
    tokio::time::sleep(std::time::Duration::from_secs(900)).await;
    assert_eq!(count(&world, "acme", "tombstone").await, MORE_THAN_A_TURN);
}

#[tokio::test]
async fn what_cannot_be_moved_leaves_the_rest_of_the_round_alone() {
    let world = World::new().await;
    finished(world.call(keyed(KEY)).await);
    let record_id = world.record().await.record_id;
    world.store.advance_ms(31 * DAY_MS);
    world.reaches("tombstone").await;
    let mut other = plan("note", "s2", "a");
    other["idempotency_key"] = json!("order-2");
    finished(world.call(other).await);
    // The round that made the tombstone is over, and those after it find nothing.
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    let bad = || Fault::Refuse(StoreError::Damaged("a bad row".to_owned()));
    world.store.fail_once_on(AuditKind::Buried, bad());
    world.store.advance_ms(410 * DAY_MS);
    for _ in 0..200 {
        if world.store.effect(record_id).await.unwrap().is_none() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        // No round moves all of its results at once.
        world.store.fail_once_on(AuditKind::Buried, bad());
    }
    panic!("the tombstone is not dropped");
}
