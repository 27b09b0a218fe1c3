//! An unknown outcome is sent again only by operators, and a key outlives its result.

use placet_types::{
    approval::VoteChoice, clock::Timestamp, envelope::result::ResultStatus, ids::PrincipalId,
};

use super::world::{Call, World, event, result, store_error, vote};
use crate::{
    approval::{ApprovalRecord, ApprovalState},
    audit::AuditKind,
    dispatch::DispatchGuard,
    ledger::{LedgerError, Outcome},
    record::{EffectRecord, EffectState, Rearm, Resolution},
    store::{EffectQuery, Store, StoreError},
    testing::ready,
};

fn settled(world: &World, call: &Call, outcome: Outcome) -> EffectRecord {
    let DispatchGuard { settlement, .. } = world.dispatch(call, &world.claim(call), None).unwrap();
    let envelope = result(call, ResultStatus::Succeeded);
    ready(world.ledger.settle(settlement, outcome, &envelope)).unwrap().unwrap()
}

fn lost(world: &World, call: &Call) -> EffectRecord {
    settled(world, call, Outcome::Unknown("reset".to_owned()))
}

fn rearm(
    world: &World,
    record: &EffectRecord,
    operator: &str,
    two_people: bool,
) -> Result<EffectRecord, LedgerError> {
    let word = Rearm {
        operator: PrincipalId::new(operator).unwrap(),
        evidence: "the statement does not show it".to_owned(),
        at: world.now(),
    };
    ready(world.ledger.rearm(record, word, two_people, event()))
}

#[test]
fn two_people_re_arm_and_one_of_them_alone_does_not() {
    let world = World::new();
    let call = world.call("erase", "a.txt", "k1");
    let asked = rearm(&world, &lost(&world, &call), "olga", true).unwrap();
    assert_eq!(asked.state.name(), "indeterminate");
    assert!(matches!(rearm(&world, &asked, "olga", true), Err(LedgerError::SamePerson)));
    assert!(matches!(rearm(&world, &asked, "olga", false), Err(LedgerError::SamePerson)));
    let rearmed = rearm(&world, &asked, "piet", true).unwrap();
    assert_eq!((rearmed.state.name(), rearmed.arm), ("rearmed", 2));
    assert_eq!(world.store.audit().last().unwrap().kind, AuditKind::Rearmed);
}

#[test]
fn a_re_armed_call_is_sent_under_a_new_token_and_only_its_success_ends_the_doubt() {
    let world = World::new();
    let call = world.call("erase", "a.txt", "k1");
    let unknown = lost(&world, &call);
    let first_token = unknown.state.attempt().unwrap().token.clone();
    let rearmed = rearm(&world, &unknown, "olga", false).unwrap();
    let armed = world.dispatch(&call, &rearmed, None).unwrap();
    assert_ne!(armed.dispatch.token(), first_token);
    assert_eq!(armed.dispatch.attempt(), 2);
    let envelope = result(&call, ResultStatus::Failed);
    let refused = Outcome::FailedRetriable(placet_types::error::ErrorCode::AdapterUnavailable);
    let after = ready(world.ledger.settle(armed.settlement, refused, &envelope)).unwrap().unwrap();
    assert_eq!(after.state.name(), "indeterminate", "the first arm may have had its effect");
}

#[test]
fn a_re_armed_call_that_people_deny_is_unknown_again() {
    let world = World::new();
    let call = world.call("erase", "a.txt", "k1");
    let unknown = lost(&world, &call);
    let rearmed = rearm(&world, &unknown, "olga", false).unwrap();
    let proposal = world.proposal(&call, 1);
    let approval =
        ready(world.ledger.hold(&rearmed, &world.parked(&call), &proposal, event())).unwrap();
    let no = super::world::vote(&approval, "ann", placet_types::approval::VoteChoice::Deny);
    ready(world.ledger.vote(&approval, no, event())).unwrap();
    assert_eq!(world.record(&call).state, unknown.state);
}

#[test]
fn a_late_answer_counts_for_its_own_attempt_once() {
    let world = World::new();
    let call = world.call("erase", "a.txt", "k1");
    let unknown = lost(&world, &call);
    let envelope = result(&call, ResultStatus::Succeeded);
    let late = |attempt| Resolution::LateAnswer { attempt };
    let other =
        ready(world.ledger.resolve(&unknown, Outcome::Succeeded, late(2), &envelope, event()));
    assert!(matches!(store_error(other), StoreError::Illegal(_)));
    let known =
        ready(world.ledger.resolve(&unknown, Outcome::Succeeded, late(1), &envelope, event()))
            .unwrap();
    let EffectState::Succeeded { resolved_by, .. } = &known.state else { panic!("not succeeded") };
    assert_eq!(*resolved_by, Some(Resolution::LateAnswer { attempt: 1 }));
    let again =
        ready(world.ledger.resolve(&unknown, Outcome::Succeeded, late(1), &envelope, event()));
    assert_eq!(store_error(again), StoreError::Conflict);
}

#[test]
fn a_buried_result_leaves_a_key_that_is_still_taken() {
    let world = World::new();
    let call = world.call("erase", "a.txt", "k1");
    let done = settled(&world, &call, Outcome::Succeeded);
    let EffectState::Succeeded { result, .. } = done.state else { panic!("not succeeded") };
    ready(world.ledger.bury(std::slice::from_ref(&done))).unwrap();
    let buried = world.record(&call);
    let EffectState::Tombstone { was, settled_at, .. } = &buried.state else {
        panic!("no tombstone")
    };
    assert_eq!((was.as_str(), *settled_at), ("succeeded", done.updated_at));
    let gone = ready(world.ledger.result(&buried, result));
    assert_eq!(store_error(gone), StoreError::ContentMissing(result));
    let forgotten = ready(world.ledger.forget(&[buried]));
    assert_eq!(store_error(forgotten), StoreError::Conflict, "the key does not tell its age");
}

#[test]
fn what_approvers_were_shown_is_buried_with_the_result() {
    let world = World::new();
    let call = world.call("erase", "a.txt", "k1");
    let approval = world.held(&call, 1);
    let no = vote(&approval, "ada", VoteChoice::Deny);
    ready(world.ledger.vote(&approval, no, event())).unwrap();
    let denied = world.record(&call);
    assert!(ready(world.ledger.proposal(&approval)).is_ok());
    ready(world.ledger.bury(std::slice::from_ref(&denied))).unwrap();
    let gone = ready(world.ledger.proposal(&approval));
    assert_eq!(store_error(gone), StoreError::ContentMissing(approval.proposal));
}

/// Each commit that replaces a content drops the old one, and what an arm left is dropped with the record.
#[test]
fn nothing_that_a_record_ever_named_outlives_it() {
    let world = World::new();
    let call = world.call("erase", "a.txt", "k1");
    let of_time = |ms| {
        world.store.advance_ms(ms);
        let mut envelope = result(&call, ResultStatus::Failed);
        envelope.trace_id = format!("{:032x}", world.now().as_ms());
        envelope
    };
    // A retry takes the place of what failed.
    let later = || Outcome::FailedRetriable(placet_types::error::ErrorCode::AdapterUnavailable);
    let DispatchGuard { settlement, .. } =
        world.dispatch(&call, &world.claim(&call), None).unwrap();
    let failed = ready(world.ledger.settle(settlement, later(), &of_time(1))).unwrap().unwrap();
    let tenant = failed.scope.tenant.clone();
    let content = |digest| ready(world.store.content(&tenant, digest));
    let first = failed.state.result().unwrap();
    assert!(content(first).is_ok());
    let armed = world.dispatch(&call, &failed, None).unwrap();
    assert_eq!(content(first), Err(StoreError::ContentMissing(first)));

    // The result of an unknown arm is kept as long as the record.
    let lost = Outcome::Unknown("reset".to_owned());
    let unknown = ready(world.ledger.settle(armed.settlement, lost, &of_time(1))).unwrap().unwrap();
    let second = unknown.state.result().unwrap();
    let rearmed = rearm(&world, &unknown, "olga", false).unwrap();
    let armed = world.dispatch(&call, &rearmed, None).unwrap();
    let done = ready(world.ledger.settle(armed.settlement, Outcome::Succeeded, &of_time(1)));
    let done = done.unwrap().unwrap();
    assert!(content(second).is_ok(), "the earlier arm is part of the record");
    let third = done.state.result().unwrap();
    ready(world.ledger.bury(std::slice::from_ref(&done))).unwrap();
    for digest in [second, third] {
        assert_eq!(content(digest), Err(StoreError::ContentMissing(digest)));
    }
}

#[test]
fn a_resolution_takes_the_place_of_what_said_that_it_is_unknown() {
    let world = World::new();
    let call = world.call("erase", "a.txt", "k1");
    let unknown = lost(&world, &call);
    let before = unknown.state.result().unwrap();
    let mut envelope = result(&call, ResultStatus::Succeeded);
    envelope.trace_id = "another".to_owned();
    let known = ready(world.ledger.resolve(
        &unknown,
        Outcome::Succeeded,
        Resolution::LateAnswer { attempt: 1 },
        &envelope,
        event(),
    ))
    .unwrap();
    let tenant = &known.scope.tenant;
    let gone = ready(world.store.content(tenant, before));
    assert_eq!(gone, Err(StoreError::ContentMissing(before)));
    assert!(ready(world.store.content(tenant, known.state.result().unwrap())).is_ok());
}

#[test]
fn a_call_that_is_held_again_takes_the_place_of_what_was_parked() {
    let world = World::new();
    let call = world.call("erase", "a.txt", "k1");
    let (approved, approval) = world.approved(&call);
    let parked_at = |record: &EffectRecord| {
        ready(world.store.content(&record.scope.tenant, record.parked)).map(drop)
    };
    assert_eq!(parked_at(&approved), Ok(()));
    let armed = world.dispatch(&call, &approved, Some(&approval)).unwrap();
    let envelope = result(&call, ResultStatus::Failed);
    let reset = Outcome::Unknown("reset".to_owned());
    let unknown = ready(world.ledger.settle(armed.settlement, reset, &envelope)).unwrap().unwrap();
    let rearmed = rearm(&world, &unknown, "olga", false).unwrap();
    assert_eq!(parked_at(&rearmed), Ok(()), "what the first arm sent is needed to ask about it");
    let (mut parked, mut proposal) = (world.parked(&call), world.proposal(&call, 1));
    parked.accepted_at = parked.accepted_at.plus_ms(1);
    proposal.approval_id = placet_types::ids::ApprovalId::new("apr-again").unwrap();
    ready(world.ledger.hold(&rearmed, &parked, &proposal, event())).unwrap();
    assert_eq!(parked_at(&rearmed), Err(StoreError::ContentMissing(rearmed.parked)));
    assert_eq!(parked_at(&world.record(&call)), Ok(()));
}

/// A call with one unknown arm, held for approval to be sent again.
fn asked_again(world: &World, call: &Call) -> (EffectRecord, ApprovalRecord) {
    let rearmed = rearm(world, &lost(world, call), "olga", false).unwrap();
    let approval =
        ready(world.ledger.hold(&rearmed, &world.parked(call), &world.proposal(call, 1), event()))
            .unwrap();
    (world.record(call), approval)
}

#[test]
fn an_approval_ends_with_the_call_that_it_waited_to_send_again() {
    for is_agreed in [false, true] {
        let world = World::new();
        let call = world.call("erase", "a.txt", "k1");
        let (mut record, mut approval) = asked_again(&world, &call);
        if is_agreed {
            let yes = vote(&approval, "ada", VoteChoice::Approve);
            approval = ready(world.ledger.vote(&approval, yes, event())).unwrap();
            record = world.record(&call);
            assert_eq!(record.state.name(), "approved");
        }
        let commits = world.store.commits();
        let envelope = result(&call, ResultStatus::Succeeded);
        ready(world.ledger.resolve(
            &record,
            Outcome::Succeeded,
            Resolution::LateAnswer { attempt: 1 },
            &envelope,
            event(),
        ))
        .unwrap();
        assert_eq!(world.store.commits(), commits.saturating_add(1), "both or neither");
        let ended = ready(world.store.approval(&approval.approval_id)).unwrap().unwrap();
        let ApprovalState::Void { reason } = &ended.state else { panic!("{:?}", ended.state) };
        assert!(reason.contains("succeeded"), "{reason}");
        assert_eq!(world.record(&call).state.name(), "succeeded");
        let told = world.store.audit();
        let [.., resolved, over] = &told[..] else { panic!("{told:?}") };
        assert_eq!((resolved.kind, over.kind), (AuditKind::Resolved, AuditKind::ApprovalEnded));
        assert_eq!(over.approval_id.as_ref(), Some(&approval.approval_id));
        let late_vote = vote(&ended, "ada", VoteChoice::Approve);
        assert!(ready(world.ledger.vote(&ended, late_vote, event())).is_err());
    }
}

/// A call that failed before its effect, and is held when it is tried again.
fn failed_and_held(world: &World, call: &Call) -> ApprovalRecord {
    let later = Outcome::FailedRetriable(placet_types::error::ErrorCode::AdapterUnavailable);
    let failed = settled(world, call, later);
    let (parked, proposal) = (world.parked(call), world.proposal(call, 1));
    let approval = ready(world.ledger.hold(&failed, &parked, &proposal, event())).unwrap();
    let gone = ready(world.store.content(&failed.scope.tenant, failed.state.result().unwrap()));
    assert!(matches!(gone, Err(StoreError::ContentMissing(_))), "nobody finds it again");
    approval
}

#[test]
fn a_call_that_failed_is_held_and_goes_on_with_its_next_attempt() {
    let world = World::new();
    let call = world.call("erase", "a.txt", "k1");
    let approval = failed_and_held(&world, &call);
    assert_eq!(world.record(&call).state.name(), "pending_approval");
    let yes = vote(&approval, "ada", VoteChoice::Approve);
    let approval = ready(world.ledger.vote(&approval, yes, event())).unwrap();
    let approved = world.record(&call);
    let armed = world.dispatch(&call, &approved, Some(&approval)).unwrap();
    let sent = world.record(&call);
    assert_eq!((sent.attempts, sent.arm), (2, approved.arm), "attempts go on");
    let envelope = result(&call, ResultStatus::Succeeded);
    ready(world.ledger.settle(armed.settlement, Outcome::Succeeded, &envelope)).unwrap();
    assert_eq!(world.record(&call).state.name(), "succeeded");
}

#[test]
fn an_approval_of_a_call_that_failed_ends_as_that_of_a_new_one() {
    let world = World::new();
    let call = world.call("erase", "a.txt", "k1");
    let approval = failed_and_held(&world, &call);
    let void = ApprovalState::Void { reason: "the tool changed".to_owned() };
    ready(world.ledger.end_approval(&approval, void, event())).unwrap();
    assert!(world.is_absent(&call), "nothing has happened, so the key is free");

    for deny in [true, false] {
        let world = World::new();
        let call = world.call("erase", "a.txt", "k1");
        let approval = failed_and_held(&world, &call);
        if deny {
            let no = vote(&approval, "ada", VoteChoice::Deny);
            ready(world.ledger.vote(&approval, no, event())).unwrap();
        } else {
            ready(world.ledger.end_approval(&approval, ApprovalState::Expired, event())).unwrap();
        }
        assert_eq!(world.record(&call).state.name(), "denied");
    }
}

#[test]
fn evidence_that_crosses_a_vote_is_brought_again() {
    let world = World::new();
    let call = world.call("erase", "a.txt", "k1");
    let (record, approval) = asked_again(&world, &call);
    let no = vote(&approval, "ada", VoteChoice::Deny);
    ready(world.ledger.vote(&approval, no, event())).unwrap();
    let late = || Resolution::LateAnswer { attempt: 1 };
    let envelope = result(&call, ResultStatus::Succeeded);
    let crossed =
        ready(world.ledger.resolve(&record, Outcome::Succeeded, late(), &envelope, event()));
    assert_eq!(store_error(crossed), StoreError::Conflict);
    let after = world.record(&call);
    ready(world.ledger.resolve(&after, Outcome::Succeeded, late(), &envelope, event())).unwrap();
    let denied = ready(world.store.approval(&approval.approval_id)).unwrap().unwrap();
    assert_eq!(denied.state, ApprovalState::Denied);
}

#[test]
fn what_approvers_were_shown_of_a_call_that_came_to_nothing_is_dropped_by_itself() {
    let world = World::new();
    let call = world.call("erase", "a.txt", "k1");
    let pending = world.held(&call, 1);
    let early = ready(world.ledger.forget_proposals(std::slice::from_ref(&pending)));
    assert!(matches!(early, Err(LedgerError::WrongState("pending"))), "{early:?}");
    let void = ApprovalState::Void { reason: "the tool changed".to_owned() };
    let void = ready(world.ledger.end_approval(&pending, void, event())).unwrap();
    assert!(ready(world.ledger.proposal(&void)).is_ok(), "it is kept for its time");
    ready(world.ledger.forget_proposals(std::slice::from_ref(&void))).unwrap();
    assert!(matches!(
        store_error(ready(world.ledger.proposal(&void))),
        StoreError::ContentMissing(_)
    ));
}

#[test]
fn an_unknown_outcome_is_not_buried() {
    let world = World::new();
    let call = world.call("erase", "a.txt", "k1");
    let unknown = lost(&world, &call);
    let outcome = ready(world.ledger.bury(&[unknown]));
    assert!(matches!(store_error(outcome), StoreError::Illegal(_)));
}

#[test]
fn a_tombstone_whose_key_tells_its_age_is_forgotten() {
    let world = World::new();
    let call = world.call("erase", "a.txt", "01ARZ3NDEKTSV4RRFFQ69G5FAV");
    let done = settled(&world, &call, Outcome::Succeeded);
    ready(world.ledger.bury(&[done])).unwrap();
    ready(world.ledger.forget(&[world.record(&call)])).unwrap();
    assert!(world.is_absent(&call));
}

#[test]
fn retention_finds_what_ended_before_a_time_and_nothing_open() {
    let world = World::new();
    let early = world.call("erase", "a.txt", "k1");
    settled(&world, &early, Outcome::Succeeded);
    world.store.advance_ms(1_000);
    let cut = world.now();
    settled(&world, &world.call("erase", "b.txt", "k2"), Outcome::Succeeded);
    lost(&world, &world.call("erase", "c.txt", "k3"));
    let found = |before: Timestamp| {
        let query =
            EffectQuery { settled_before: Some(before), limit: 10, ..EffectQuery::default() };
        ready(world.store.effects(&query)).unwrap().into_iter().map(|record| record.record_id)
    };
    assert_eq!(found(cut).collect::<Vec<_>>(), [world.record(&early).record_id]);
    assert_eq!(found(cut.plus_ms(1)).count(), 2);
}

#[test]
fn what_was_reserved_for_a_call_that_did_not_happen_goes_back_to_the_run() {
    let world = World::new();
    let call = world.call("erase", "a.txt", "k1");
    let refused = placet_types::error::ErrorCode::AdapterUnavailable;
    settled(&world, &call, Outcome::FailedRetriable(refused));
    assert_eq!(world.calls_used(), 0);
    lost(&world, &world.call("erase", "b.txt", "k2"));
    assert_eq!(world.calls_used(), 1, "what may have happened is paid for");
}
