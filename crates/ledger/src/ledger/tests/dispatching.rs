//! A permit becomes a dispatch once, for its own call, under the policies that gave it.

use std::sync::{Arc, Barrier};

use placet_types::envelope::result::ResultStatus;
use serde_json::json;

use super::world::{EPOCH, World, capability_id, event, result, store_error};
use crate::{
    approval::ApprovalState,
    audit::AuditKind,
    dispatch::DispatchGuard,
    ledger::{LedgerError, Outcome},
    record::EffectState,
    store::{Admission, Changes, Durability, Store as _, StoreError},
    testing::ready,
};

#[test]
fn a_permit_becomes_a_dispatch_of_exactly_its_call() {
    let world = World::new();
    let call = world.call("erase", "a.txt", "k1");
    let claimed = world.claim(&call);
    let DispatchGuard { dispatch, settlement, .. } = world.dispatch(&call, &claimed, None).unwrap();
    assert_eq!(dispatch.args(), &call.args);
    assert_eq!(dispatch.capability(), &capability_id("erase"));
    assert_eq!(dispatch.contract_digest(), call.binding.contract_digest);
    assert_eq!((dispatch.attempt(), dispatch.key()), (1, Some(&call.key)));
    let stored = world.record(&call);
    assert_eq!(settlement.record(), Some(&stored));
    let EffectState::Dispatched(attempt) = stored.state else { panic!("not dispatched") };
    assert_eq!(attempt.token, dispatch.token());
    assert_eq!(attempt.request_digest, call.binding.digest());
    assert_eq!(world.calls_used(), 1);
    assert_eq!(world.store.audit().last().unwrap().kind, AuditKind::Dispatched);
}

#[test]
fn a_permit_from_before_a_freeze_dispatches_nothing() {
    let world = World::new();
    let call = world.call("erase", "a.txt", "k1");
    let claimed = world.claim(&call);
    let permit = world.permit(&call, None);
    let mut changes = Changes::new(Durability::Synced, Admission::New);
    changes.directives.push(world.freeze());
    ready(world.store.commit(changes)).unwrap();
    let commits = world.store.commits();
    let outcome = ready(world.ledger.dispatch(
        permit,
        world.intent(&call),
        &claimed,
        None,
        world.dedup(&call),
    ));
    assert!(matches!(outcome, Err(LedgerError::Store(StoreError::DirectiveMoved))));
    assert_eq!(world.store.commits(), commits);
    assert!(matches!(world.record(&call).state, EffectState::Claimed { .. }));
    // A read is not exempt.
    let look = world.call("look", "a.txt", "k2");
    let reading = world.ledger.dispatch_read(
        world.permit(&look, None),
        world.intent(&look),
        Durability::Written,
    );
    assert!(matches!(ready(reading), Err(LedgerError::Store(StoreError::DirectiveMoved))));
}

#[test]
fn a_permit_of_other_policies_dispatches_nothing() {
    let world = World::new();
    let call = world.call("erase", "a.txt", "k1");
    let claimed = world.claim(&call);
    let (permit, commits) = (world.permit(&call, None), world.store.commits());
    world.store.set_policy(crate::policies::PolicyState {
        epoch: EPOCH + 1,
        digests: crate::testing::policy_digests("others"),
    });
    let outcome = ready(world.ledger.dispatch(
        permit,
        world.intent(&call),
        &claimed,
        None,
        world.dedup(&call),
    ));
    assert!(matches!(outcome, Err(LedgerError::Store(StoreError::PolicyMoved))));
    assert_eq!(world.store.commits(), commits);
    assert!(matches!(world.record(&call).state, EffectState::Claimed { .. }));
}

#[test]
fn a_permit_dispatches_no_other_arguments() {
    let world = World::new();
    let call = world.call("erase", "a.txt", "k1");
    let claimed = world.claim(&call);
    let mut swapped = world.intent(&call);
    swapped.args.insert("note".to_owned(), json!("b.txt"));
    let outcome = ready(world.ledger.dispatch(
        world.permit(&call, None),
        swapped,
        &claimed,
        None,
        world.dedup(&call),
    ));
    assert!(matches!(outcome, Err(LedgerError::PermitMismatch)));

    let other = world.call("erase", "b.txt", "k1");
    let outcome = ready(world.ledger.dispatch(
        world.permit(&call, None),
        world.intent(&other),
        &claimed,
        None,
        world.dedup(&call),
    ));
    assert!(matches!(outcome, Err(LedgerError::PermitMismatch)));
    assert_eq!(world.calls_used(), 0);
}

#[test]
fn a_permit_dispatches_no_other_record() {
    let world = World::new();
    let (call, other) = (world.call("erase", "a.txt", "k1"), world.call("erase", "a.txt", "k2"));
    let claimed = world.claim(&other);
    let outcome = ready(world.ledger.dispatch(
        world.permit(&call, None),
        world.intent(&call),
        &claimed,
        None,
        world.dedup(&call),
    ));
    assert!(matches!(outcome, Err(LedgerError::PermitMismatch)));
}

#[test]
fn a_write_is_not_dispatched_as_a_read() {
    let world = World::new();
    let call = world.call("erase", "a.txt", "k1");
    let outcome = ready(world.ledger.dispatch_read(
        world.permit(&call, None),
        world.intent(&call),
        Durability::Synced,
    ));
    assert!(matches!(outcome, Err(LedgerError::PermitMismatch)));
}

#[test]
fn a_read_is_dispatched_once_its_event_is_kept_and_makes_no_record() {
    let world = World::new();
    let call = world.call("look", "a.txt", "k1");
    let permit = world.permit(&call, None);
    let armed = ready(world.ledger.dispatch_read(permit, world.intent(&call), Durability::Written))
        .unwrap();
    assert!(armed.settlement.record().is_none() && armed.dispatch.key().is_none());
    assert!(world.is_absent(&call));
    assert_eq!(
        (world.calls_used(), world.store.audit().last().unwrap().kind),
        (1, AuditKind::ReadDispatched)
    );
    let done = result(&call, ResultStatus::Succeeded);
    assert!(
        ready(world.ledger.settle(armed.settlement, Outcome::Succeeded, &done)).unwrap().is_none()
    );
    assert_eq!(world.store.audit().last().unwrap().kind, AuditKind::ReadSettled);
}

#[test]
fn a_read_whose_event_is_not_kept_is_not_dispatched() {
    let world = World::new();
    let call = world.call("look", "a.txt", "k1");
    world.store.refuse_next(StoreError::NoSpace);
    let permit = world.permit(&call, None);
    let outcome =
        ready(world.ledger.dispatch_read(permit, world.intent(&call), Durability::Written));
    assert_eq!(store_error(outcome), StoreError::NoSpace);
}

#[test]
fn an_approved_call_consumes_its_approval_with_the_dispatch() {
    let world = World::new();
    let call = world.call("erase", "a.txt", "k1");
    let (record, approval) = world.approved(&call);
    world.dispatch(&call, &record, Some(&approval)).unwrap();
    assert!(matches!(world.approval(&approval).state, ApprovalState::Consumed { arm: 1, .. }));
}

#[test]
fn an_approved_call_is_not_dispatched_around_its_approval() {
    let world = World::new();
    let call = world.call("erase", "a.txt", "k1");
    let (record, approval) = world.approved(&call);
    assert!(matches!(world.dispatch(&call, &record, None), Err(LedgerError::PermitMismatch)));
    assert_eq!(world.approval(&approval).state, ApprovalState::Approved);
}

#[test]
fn an_approval_of_another_record_is_not_consumed() {
    let world = World::new();
    // The same arguments under another key: everything is the same but the record.
    let (call, other) = (world.call("erase", "a.txt", "k1"), world.call("erase", "a.txt", "k2"));
    let (_, approval) = world.approved(&call);
    let claimed = world.claim(&other);
    assert!(matches!(
        world.dispatch(&other, &claimed, Some(&approval)),
        Err(LedgerError::PermitMismatch)
    ));
    assert_eq!(world.approval(&approval).state, ApprovalState::Approved);
    assert!(matches!(world.record(&other).state, EffectState::Claimed { .. }));
}

#[test]
fn an_approval_of_other_arguments_is_not_consumed() {
    let world = World::new();
    let call = world.call("erase", "a.txt", "k1");
    let (record, approval) = world.approved(&call);
    let altered = world.call("erase", "b.txt", "k1");
    assert!(matches!(
        world.dispatch(&altered, &record, Some(&approval)),
        Err(LedgerError::PermitMismatch)
    ));
    assert_eq!(world.approval(&approval).state, ApprovalState::Approved);
}

#[test]
fn an_expired_approval_is_not_consumed() {
    let world = World::new();
    let call = world.call("erase", "a.txt", "k1");
    let (record, approval) = world.approved(&call);
    let left_ms = approval.expires_at.since_ms(world.now());
    world.store.advance_ms(left_ms);
    assert!(matches!(
        world.dispatch(&call, &record, Some(&approval)),
        Err(LedgerError::WrongState("expired"))
    ));
    assert!(matches!(world.record(&call).state, EffectState::Approved { .. }));
}

#[test]
fn a_pending_approval_dispatches_nothing() {
    let world = World::new();
    let call = world.call("erase", "a.txt", "k1");
    let approval = world.held(&call, 2);
    let outcome = world.dispatch(&call, &world.record(&call), Some(&approval));
    assert!(matches!(store_error(outcome), StoreError::Illegal(_)));
}

#[test]
fn of_two_racing_dispatches_one_consumes_the_approval() {
    for _ in 0..100 {
        let world = Arc::new(World::new());
        let call = world.call("erase", "a.txt", "k1");
        let (record, approval) = world.approved(&call);
        let barrier = Arc::new(Barrier::new(2));
        let racers: Vec<_> = (0..2)
            .map(|_| {
                let (world, call, barrier) =
                    (Arc::clone(&world), call.clone(), Arc::clone(&barrier));
                let (record, approval) = (record.clone(), approval.clone());
                std::thread::spawn(move || {
                    barrier.wait();
                    world
                        .dispatch(&call, &record, Some(&approval))
                        .map(|armed| armed.dispatch.token().to_owned())
                })
            })
            .collect();
        let outcomes: Vec<_> = racers.into_iter().map(|racer| racer.join().unwrap()).collect();
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1, "{outcomes:?}");
        assert_eq!((world.record(&call).attempts, world.calls_used()), (1, 1));
        assert_eq!(
            world.store.audit().iter().filter(|event| event.kind == AuditKind::Dispatched).count(),
            1
        );
    }
}

#[test]
fn a_refused_commit_leaves_everything_as_it_was() {
    let world = World::new();
    let call = world.call("erase", "a.txt", "k1");
    let (record, approval) = world.approved(&call);
    let before = world.store.audit().len();
    world.store.refuse_next(StoreError::NoSpace);
    assert_eq!(store_error(world.dispatch(&call, &record, Some(&approval))), StoreError::NoSpace);
    assert_eq!(
        (world.record(&call), world.approval(&approval)),
        (record.clone(), approval.clone())
    );
    assert_eq!((world.calls_used(), world.store.audit().len()), (0, before));
    assert!(world.dispatch(&call, &record, Some(&approval)).is_ok());
}

#[test]
fn a_run_without_budget_dispatches_nothing_and_keeps_its_approval() {
    let world = World::new();
    for key in ["k1", "k2", "k3"] {
        let call = world.call("push", "x", key);
        let claimed = world.claim(&call);
        world.dispatch(&call, &claimed, None).unwrap();
    }
    let call = world.call("erase", "a.txt", "k4");
    let (record, approval) = world.approved(&call);
    assert_eq!(
        store_error(world.dispatch(&call, &record, Some(&approval))),
        StoreError::BudgetExhausted
    );
    assert_eq!((world.record(&call), world.approval(&approval)), (record, approval));
    assert_eq!(world.calls_used(), 3);
}

#[test]
fn what_is_dispatched_and_unanswered_is_not_dispatched_again_unless_it_is_keyed() {
    let world = World::new();
    for (name, repeats) in [("erase", false), ("push", true)] {
        let call = world.call(name, "x", "k1");
        let claimed = world.claim(&call);
        let first = world.dispatch(&call, &claimed, None).unwrap().dispatch.token().to_owned();
        let again = world.dispatch(&call, &world.record(&call), None);
        assert_eq!(again.is_ok(), repeats, "{name}");
        if let Ok(armed) = again {
            assert_eq!((armed.dispatch.token(), armed.dispatch.attempt()), (first.as_str(), 2));
        }
    }
}

#[test]
fn a_keyed_call_is_not_sent_again_after_its_window() {
    let world = World::new();
    let call = world.call("push", "x", "k1");
    let claimed = world.claim(&call);
    world.dispatch(&call, &claimed, None).unwrap();
    world.store.advance_ms(10_000);
    let outcome = world.dispatch(&call, &world.record(&call), None);
    assert!(matches!(outcome, Err(LedgerError::WrongState(_))));
}

#[test]
fn a_keyed_call_is_not_sent_again_so_late_that_its_window_may_close_on_the_way() {
    let world = World::new();
    let call = world.call("push", "x", "k1");
    let claimed = world.claim(&call);
    world.dispatch(&call, &claimed, None).unwrap();
    let sent = world.record(&call);
    let left_ms = || world.ledger.may_repeat_for_ms(sent.state.attempt().unwrap());
    assert_eq!(left_ms(), 5_000, "half of its ten seconds is kept back");
    world.store.advance_ms(4_999);
    assert_eq!(left_ms(), 1);
    world.store.advance_ms(1);
    assert_eq!(left_ms(), 0);
    let outcome = world.dispatch(&call, &sent, None);
    assert!(matches!(outcome, Err(LedgerError::WrongState(_))));
}

#[test]
fn a_released_claim_frees_its_key() {
    let world = World::new();
    let call = world.call("erase", "a.txt", "k1");
    world.claim(&call);
    ready(world.ledger.release(call.record_id, event())).unwrap();
    assert!(world.is_absent(&call));
    world.claim(&call);
}
