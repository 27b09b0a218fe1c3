//! Holding, voting and ending: an approval and its effect move together.

use std::collections::BTreeSet;

use placet_types::{approval::VoteChoice, error::ErrorCode, ids::PrincipalId};

use super::world::{World, event, store_error, vote, yes};
use crate::{
    approval::{ApprovalState, VoteError},
    ledger::LedgerError,
    record::EffectState,
    store::{Store, StoreError},
    testing::ready,
};

#[test]
fn a_held_call_can_be_read_back_as_it_was() {
    let world = World::new();
    let call = world.call("erase", "a.txt", "k1");
    let approval = world.held(&call, 1);
    assert_eq!(ready(world.ledger.parked(&world.record(&call))).unwrap(), world.parked(&call));
    assert_eq!(ready(world.ledger.proposal(&approval)).unwrap(), world.proposal(&call, 1));
}

#[test]
fn a_parked_call_that_was_altered_is_noticed() {
    let world = World::new();
    let call = world.call("erase", "a.txt", "k1");
    world.held(&call, 1);
    let record = world.record(&call);
    let bytes = ready(world.store.content(&record.scope.tenant, record.parked)).unwrap();
    let altered = String::from_utf8(bytes).unwrap().replace("a.txt", "b.txt").into_bytes();
    world.store.tamper(&record.scope.tenant, record.parked, altered);
    assert_eq!(
        store_error(ready(world.ledger.parked(&record))),
        StoreError::ContentAltered(record.parked)
    );
}

#[test]
fn a_claim_that_is_gone_is_not_held_twice() {
    let world = World::new();
    let call = world.call("erase", "a.txt", "k1");
    let claimed = world.claim(&call);
    let (parked, proposal) = (world.parked(&call), world.proposal(&call, 1));
    ready(world.ledger.hold(&claimed, &parked, &proposal, event())).unwrap();
    let again = ready(world.ledger.hold(&claimed, &parked, &proposal, event()));
    assert_eq!(store_error(again), StoreError::Conflict);
}

#[test]
fn the_vote_that_completes_the_quorum_moves_the_effect() {
    let world = World::new();
    let call = world.call("erase", "a.txt", "k1");
    let held = world.held(&call, 2);
    let one = ready(world.ledger.vote(&held, yes(&held, "ann"), event())).unwrap();
    assert_eq!(one.state, ApprovalState::Pending);
    assert!(matches!(world.record(&call).state, EffectState::PendingApproval { .. }));
    let two = ready(world.ledger.vote(&one, yes(&one, "bob"), event())).unwrap();
    assert_eq!((&two.state, two.votes.len()), (&ApprovalState::Approved, 2));
    assert!(matches!(world.record(&call).state, EffectState::Approved { .. }));
    assert_eq!(world.approval(&held), two);
}

#[test]
fn of_two_votes_on_the_same_reading_the_second_has_to_read_again() {
    let world = World::new();
    let call = world.call("erase", "a.txt", "k1");
    let held = world.held(&call, 2);
    ready(world.ledger.vote(&held, yes(&held, "ann"), event())).unwrap();
    let second = ready(world.ledger.vote(&held, yes(&held, "bob"), event()));
    assert_eq!(store_error(second), StoreError::Conflict);
    assert_eq!(world.approval(&held).votes.len(), 1);
}

#[test]
fn a_denial_ends_the_key_for_good() {
    let world = World::new();
    let call = world.call("erase", "a.txt", "k1");
    let held = world.held(&call, 1);
    let denied =
        ready(world.ledger.vote(&held, vote(&held, "ann", VoteChoice::Deny), event())).unwrap();
    assert_eq!(denied.state, ApprovalState::Denied);
    let record = world.record(&call);
    assert!(matches!(record.state, EffectState::Denied { code: ErrorCode::ApprovalDenied, .. }));
    let late = ready(world.ledger.vote(&denied, yes(&denied, "bob"), event()));
    assert!(matches!(late, Err(LedgerError::Vote(VoteError::Late { state: "denied" }))));
    assert!(matches!(store_error(world.dispatch(&call, &record, None)), StoreError::Illegal(_)));
}

#[test]
fn an_expired_approval_ends_the_key_for_good() {
    let world = World::new();
    let call = world.call("erase", "a.txt", "k1");
    let held = world.held(&call, 1);
    ready(world.ledger.end_approval(&held, ApprovalState::Expired, event())).unwrap();
    assert!(matches!(
        world.record(&call).state,
        EffectState::Denied { code: ErrorCode::ApprovalExpired, .. }
    ));
}

#[test]
fn a_void_approval_returns_the_key_to_absent() {
    let world = World::new();
    for (key, approved) in [("k1", false), ("k2", true)] {
        let call = world.call("erase", "a.txt", key);
        let approval = if approved { world.approved(&call).1 } else { world.held(&call, 1) };
        let (void, parked) =
            (ApprovalState::Void { reason: "altered".to_owned() }, world.record(&call).parked);
        let ended = ready(world.ledger.end_approval(&approval, void.clone(), event())).unwrap();
        let read = ready(world.store.content(approval.chain.tenant(), parked));
        assert!(matches!(read, Err(StoreError::ContentMissing(_))), "nothing names its arguments");
        assert_eq!((world.approval(&approval), &ended.state), (ended.clone(), &void));
        assert!(world.is_absent(&call));
        assert!(ready(world.store.effect_of_call(&call.call_id)).unwrap().is_none());
        world.claim(&call);
    }
}

#[test]
fn an_approval_whose_effect_was_dispatched_is_not_ended() {
    let world = World::new();
    let call = world.call("erase", "a.txt", "k1");
    let (record, approval) = world.approved(&call);
    world.dispatch(&call, &record, Some(&approval)).unwrap();
    let consumed = world.approval(&approval);
    for end in [ApprovalState::Expired, ApprovalState::Void { reason: "late".to_owned() }] {
        let outcome = ready(world.ledger.end_approval(&consumed, end.clone(), event()));
        assert!(matches!(outcome, Err(LedgerError::WrongState(_))), "{end:?}");
        let stale = ready(world.ledger.end_approval(&approval, end, event()));
        assert!(matches!(stale, Err(LedgerError::WrongState(_))));
    }
    assert!(matches!(world.record(&call).state, EffectState::Dispatched(_)));
}

#[test]
fn an_approval_is_not_ended_as_something_that_is_no_end() {
    let world = World::new();
    let call = world.call("erase", "a.txt", "k1");
    let held = world.held(&call, 1);
    for end in [ApprovalState::Pending, ApprovalState::Approved, ApprovalState::Denied] {
        let outcome = ready(world.ledger.end_approval(&held, end, event()));
        assert!(matches!(outcome, Err(LedgerError::WrongState(_))));
    }
    assert_eq!(world.approval(&held), held);
}

#[test]
fn a_reopened_approval_waits_again_and_keeps_its_votes() {
    let world = World::new();
    let call = world.call("erase", "a.txt", "k1");
    let (_, approval) = world.approved(&call);
    let more = placet_types::approval::Requirement { quorum: 2, ..approval.requirement.clone() };
    let reopened = ready(world.ledger.reopen_approval(
        &approval,
        more,
        &BTreeSet::new(),
        &BTreeSet::new(),
        event(),
    ))
    .unwrap();
    assert_eq!((&reopened.state, reopened.votes.len()), (&ApprovalState::Pending, 1));
    assert!(matches!(world.record(&call).state, EffectState::PendingApproval { .. }));
    let again = ready(world.ledger.vote(&reopened, yes(&reopened, "ann"), event()));
    assert!(matches!(again, Err(LedgerError::Vote(VoteError::Twice))));
    let done = ready(world.ledger.vote(&reopened, yes(&reopened, "bob"), event())).unwrap();
    let voters: Vec<_> = done.votes.iter().map(|vote| vote.approver.clone()).collect();
    assert_eq!(voters, ["ann", "bob"].map(|name| PrincipalId::new(name).unwrap()));
    assert!(world.dispatch(&call, &world.record(&call), Some(&done)).is_ok());
}

#[test]
fn a_recounted_approval_is_approved_by_the_votes_it_has() {
    let world = World::new();
    let call = world.call("erase", "a.txt", "k1");
    let held = world.held(&call, 2);
    let held = ready(world.ledger.vote(&held, yes(&held, "ann"), event())).unwrap();
    let asked = |quorum| placet_types::approval::Requirement { quorum, ..held.requirement.clone() };
    let (no_votes, no_taint) = (BTreeSet::new(), BTreeSet::new());
    let still =
        ready(world.ledger.recount_approval(&held, asked(3), &no_votes, &no_taint, event()));
    let still = still.unwrap();
    assert_eq!(still.state, ApprovalState::Pending);
    let first = BTreeSet::from([0]);
    let lapsed = ready(world.ledger.recount_approval(&held, asked(1), &first, &no_taint, event()));
    assert!(lapsed.is_err(), "it moved meanwhile");
    let done =
        ready(world.ledger.recount_approval(&still, asked(1), &no_votes, &no_taint, event()));
    let done = done.unwrap();
    assert_eq!(done.state, ApprovalState::Approved);
    assert!(matches!(world.record(&call).state, EffectState::Approved { .. }));
    assert!(world.dispatch(&call, &world.record(&call), Some(&done)).is_ok());
}

#[test]
fn a_released_approval_is_approved_and_an_ended_one_is_not() {
    let world = World::new();
    let call = world.call("erase", "a.txt", "k1");
    let held = world.held(&call, 1);
    let released = ready(world.ledger.release_approval(&held, event())).unwrap();
    assert_eq!((&released.state, released.votes.len()), (&ApprovalState::Approved, 0));
    assert!(world.dispatch(&call, &world.record(&call), Some(&released)).is_ok());
    let over = ready(world.ledger.release_approval(&world.approval(&held), event()));
    assert!(matches!(over, Err(LedgerError::WrongState(_))));
}
