//! A dispatch is settled once, and "nothing happened" is recorded only where that is known.

use placet_types::{
    envelope::result::{ResultError, ResultStatus, ToolResultEnvelope},
    error::{ErrorCode, Execution},
    ids::{PrincipalId, RunId},
    taint::Taint,
};

use super::world::{Call, World, event, result, store_error};
use crate::{
    approval::ApprovalState,
    audit::{AuditEvent, AuditKind},
    dispatch::DispatchGuard,
    ledger::{LedgerError, Outcome},
    record::{EffectRecord, EffectState, Resolution},
    run::{RunKey, RunRecord},
    store::{Store, StoreError},
    testing::{Fault, ready},
};

fn dispatched(world: &World, call: &Call) -> DispatchGuard {
    let claimed = world.claim(call);
    world.dispatch(call, &claimed, None).unwrap()
}

/// What is recorded when the outcome is given up as unknown.
fn given_up() -> Outcome {
    Outcome::Unknown("lost".to_owned())
}

fn settled(world: &World, call: &Call, armed: DispatchGuard, outcome: Outcome) -> EffectRecord {
    let envelope = result(call, ResultStatus::Failed);
    ready(world.ledger.settle(armed.settlement, outcome, &envelope)).unwrap().unwrap()
}

#[test]
fn a_settled_result_is_kept_as_it_was() {
    let world = World::new();
    let call = world.call("erase", "a.txt", "k1");
    let armed = dispatched(&world, &call);
    let done = result(&call, ResultStatus::Succeeded);
    let record =
        ready(world.ledger.settle(armed.settlement, Outcome::Succeeded, &done)).unwrap().unwrap();
    let EffectState::Succeeded { result: digest, .. } = record.state else {
        panic!("not succeeded")
    };
    assert_eq!(ready(world.ledger.result(&record, digest)).unwrap(), done);
    assert_eq!(world.record(&call), record);
}

#[test]
fn each_outcome_has_its_state() {
    let world = World::new();
    for (key, outcome, state) in [
        ("k1", Outcome::FailedFinal(ErrorCode::AdapterFailed), "failed_final"),
        ("k2", Outcome::FailedRetriable(ErrorCode::AdapterUnavailable), "failed_retriable"),
        ("k3", Outcome::Unknown("reset".to_owned()), "indeterminate"),
    ] {
        let call = world.call("erase", "a.txt", key);
        let armed = dispatched(&world, &call);
        assert_eq!(settled(&world, &call, armed, outcome).state.name(), state);
    }
}

#[test]
fn only_a_dispatched_record_is_settled() {
    let world = World::new();
    let call = world.call("erase", "a.txt", "k1");
    let claimed = world.claim(&call);
    let lost = result(&call, ResultStatus::Unknown);
    let outcome = ready(world.ledger.settle_recorded(&claimed, given_up(), None, &lost));
    assert!(matches!(outcome, Err(LedgerError::WrongState("claimed"))));
}

#[test]
fn a_settlement_that_comes_after_the_record_moved_changes_nothing() {
    let world = World::new();
    let call = world.call("erase", "a.txt", "k1");
    let armed = dispatched(&world, &call);
    let lost = result(&call, ResultStatus::Unknown);
    let record = world.record(&call);
    let ended = ready(world.ledger.settle_recorded(&record, given_up(), None, &lost)).unwrap();
    let done = result(&call, ResultStatus::Succeeded);
    let late = ready(world.ledger.settle(armed.settlement, Outcome::Succeeded, &done));
    assert_eq!(store_error(late), StoreError::Conflict);
    assert_eq!(world.record(&call), ended);
}

#[test]
fn a_settlement_that_is_not_kept_leaves_the_record_dispatched() {
    let world = World::new();
    let call = world.call("erase", "a.txt", "k1");
    let armed = dispatched(&world, &call);
    world.store.refuse_next(StoreError::Stopped("disk".to_owned()));
    let done = result(&call, ResultStatus::Succeeded);
    let outcome = ready(world.ledger.settle(armed.settlement, Outcome::Succeeded, &done));
    assert!(matches!(store_error(outcome), StoreError::Stopped(_)));
    assert!(matches!(world.record(&call).state, EffectState::Dispatched(_)));
}

#[test]
fn a_declared_failure_is_tried_again_within_the_same_agreement() {
    let world = World::new();
    let call = world.call("erase", "a.txt", "k1");
    let (record, approval) = world.approved(&call);
    let armed = world.dispatch(&call, &record, Some(&approval)).unwrap();
    let first = armed.dispatch.token().to_owned();
    let failed =
        settled(&world, &call, armed, Outcome::FailedRetriable(ErrorCode::AdapterUnavailable));
    let again = world.dispatch(&call, &failed, Some(&world.approval(&approval))).unwrap();
    assert_eq!((again.dispatch.token(), again.dispatch.attempt()), (first.as_str(), 2));
    assert!(matches!(world.approval(&approval).state, ApprovalState::Consumed { arm: 1, .. }));
}

#[test]
fn a_declined_call_is_not_sent_again_under_its_approval() {
    let code = ErrorCode::AdapterFailed;
    for outcome in [
        Outcome::Declined(code),
        Outcome::Declined(ErrorCode::CredentialRefused),
        // In words of the target: it was reached, whatever its adapter reports.
        Outcome::FailedRetriable(code),
    ] {
        let world = World::new();
        let call = world.call("erase", "a.txt", "k1");
        let (record, approval) = world.approved(&call);
        let armed = world.dispatch(&call, &record, Some(&approval)).unwrap();
        let failed = settled(&world, &call, armed, outcome);
        assert_eq!((failed.state.name(), failed.state.approval_id()), ("failed_retriable", None));
        assert_eq!(world.calls_used(), 0, "it counts as not executed");
        let again = world.dispatch(&call, &failed, Some(&world.approval(&approval)));
        assert!(again.is_err(), "one agreement was enough for two dispatches");
        assert!(matches!(world.record(&call).state, EffectState::FailedRetriable { .. }));
    }
}

#[test]
fn a_consumed_approval_serves_only_the_record_that_names_it() {
    let world = World::new();
    let call = world.call("erase", "a.txt", "k1");
    let (record, approval) = world.approved(&call);
    let armed = world.dispatch(&call, &record, Some(&approval)).unwrap();
    let failed =
        settled(&world, &call, armed, Outcome::FailedRetriable(ErrorCode::AdapterUnavailable));
    let code = ErrorCode::AdapterUnavailable;
    let result = failed.state.result().unwrap();
    let state = EffectState::FailedRetriable { code, result, approval_id: None };
    let forgetful = EffectRecord { state, ..failed };
    let again = world.dispatch(&call, &forgetful, Some(&world.approval(&approval)));
    assert!(again.is_err(), "{again:?}");
}

#[test]
fn what_was_not_sent_costs_nothing_anyone_who_finds_that_out() {
    let nothing = || Outcome::FailedRetriable(ErrorCode::AdapterUnavailable);
    for by in [None, Some(Resolution::Probe { attempt: 1 })] {
        let world = World::new();
        let call = world.call("erase", "a.txt", "k1");
        drop(dispatched(&world, &call));
        assert_eq!(world.calls_used(), 1);
        let refused = result(&call, ResultStatus::Refused);
        let record = world.record(&call);
        ready(world.ledger.settle_recorded(&record, nothing(), by, &refused)).unwrap();
        assert_eq!(world.calls_used(), 0);
    }
    let world = World::new();
    let call = world.call("erase", "a.txt", "k1");
    drop(dispatched(&world, &call));
    let unknown = result(&call, ResultStatus::Unknown);
    let record = world.record(&call);
    ready(world.ledger.settle_recorded(&record, given_up(), None, &unknown)).unwrap();
    assert_eq!(world.calls_used(), 1, "it may have happened");
}

/// A result that says why it has no output.
fn said(call: &Call, execution: Execution) -> ToolResultEnvelope {
    let code = ErrorCode::AdapterFailed;
    ToolResultEnvelope {
        error: Some(ResultError {
            error_code: code,
            message: "looked".to_owned(),
            retryable: false,
            remediation: String::new(),
            execution,
            problems: Vec::new(),
            retry_after_ms: None,
        }),
        ..result(call, ResultStatus::Refused)
    }
}

#[test]
fn an_unknown_outcome_costs_nothing_once_it_is_known_that_nothing_happened() {
    let code = ErrorCode::AdapterFailed;
    let person = || Resolution::Operator { operator: PrincipalId::new("olga").unwrap() };
    for ((outcome, by), execution, used) in [
        ((Outcome::FailedFinal(code), person()), Execution::NotExecuted, 0),
        ((Outcome::FailedFinal(code), Resolution::Probe { attempt: 1 }), Execution::NotExecuted, 0),
        (
            (Outcome::FailedRetriable(code), Resolution::LateAnswer { attempt: 1 }),
            Execution::NotExecuted,
            0,
        ),
        // It was executed, whether or not it succeeded.
        (
            (Outcome::FailedFinal(code), Resolution::LateAnswer { attempt: 1 }),
            Execution::ExecutedAndFailed,
            1,
        ),
        ((Outcome::Succeeded, person()), Execution::Unknown, 1),
    ] {
        let world = World::new();
        let call = world.call("erase", "a.txt", "k1");
        let armed = dispatched(&world, &call);
        let unknown = settled(&world, &call, armed, Outcome::Unknown("reset".to_owned()));
        assert_eq!(world.calls_used(), 1, "it may have happened");
        let found = said(&call, execution);
        ready(world.ledger.resolve(&unknown, outcome.clone(), by.clone(), &found, event()))
            .unwrap();
        assert_eq!(world.calls_used(), used, "{outcome:?} {by:?}");
        let twice = ready(world.ledger.resolve(
            &world.record(&call),
            outcome.clone(),
            by.clone(),
            &found,
            event(),
        ));
        assert!(matches!(twice, Err(LedgerError::WrongState(_))));
        assert_eq!(world.calls_used(), used, "it goes back once");
    }
}

#[test]
fn nothing_happened_in_the_last_attempt_does_not_speak_for_an_earlier_one() {
    let world = World::new();
    let call = world.call("push", "x", "k1");
    let unanswered = dispatched(&world, &call);
    drop(unanswered);
    world.store.advance_ms(1);
    let again = world.dispatch(&call, &world.record(&call), None).unwrap();
    let record =
        settled(&world, &call, again, Outcome::FailedRetriable(ErrorCode::AdapterUnavailable));
    assert_eq!(record.state.name(), "indeterminate");
}

#[test]
fn an_unknown_outcome_is_resolved_by_evidence_only() {
    let world = World::new();
    let call = world.call("erase", "a.txt", "k1");
    let armed = dispatched(&world, &call);
    let record = settled(&world, &call, armed, Outcome::Unknown("reset".to_owned()));
    let envelope = result(&call, ResultStatus::Succeeded);
    let operator = || crate::record::Resolution::Operator {
        operator: placet_types::ids::PrincipalId::new("olga").unwrap(),
    };
    let outcome = ready(world.ledger.resolve(
        &record,
        Outcome::Unknown("still".to_owned()),
        operator(),
        &envelope,
        event(),
    ));
    assert!(matches!(outcome, Err(LedgerError::WrongState(_))));
    let outcome = ready(world.ledger.resolve(
        &record,
        Outcome::Succeeded,
        crate::record::Resolution::LateAnswer { attempt: 7 },
        &envelope,
        event(),
    ));
    assert!(matches!(outcome, Err(LedgerError::Store(StoreError::Illegal(_)))));
    let resolved =
        ready(world.ledger.resolve(&record, Outcome::Succeeded, operator(), &envelope, event()))
            .unwrap();
    assert_eq!((world.record(&call), resolved.state.name()), (resolved.clone(), "succeeded"));
    let EffectState::Succeeded { result: digest, .. } = &resolved.state else { panic!() };
    let told = world.store.audit().pop().unwrap();
    assert_eq!((told.kind, told.digests.get("result")), (AuditKind::Resolved, Some(digest)));
    let twice =
        ready(world.ledger.resolve(&resolved, Outcome::Succeeded, operator(), &envelope, event()));
    assert!(matches!(twice, Err(LedgerError::WrongState("succeeded"))));
}

/// Sends a call of the world's run by an attempt of another run, whose result carries a secret; returns both runs.
fn sent_by_another_run(world: &World, call: &Call) -> (DispatchGuard, [RunKey; 2]) {
    let claimed = world.claim(call);
    let mut intent = world.intent(call);
    let own = intent.reserve.run.clone();
    let other = RunKey { run_id: RunId::new("run_2").unwrap(), ..own.clone() };
    let run = ready(world.store.run(&own)).unwrap().unwrap();
    ready(world.ledger.open_run(RunRecord { key: other.clone(), ..run })).unwrap();
    intent.reserve.run = other.clone();
    intent.reserve.brings = [Taint::Secret].into();
    let (permit, dedup) = (world.permit(call, None), world.dedup(call));
    let armed = ready(world.ledger.dispatch(permit, intent, &claimed, None, dedup)).unwrap();
    (armed, [own, other])
}

fn has_the_secret(world: &World, run: &RunKey) -> bool {
    ready(world.store.run(run)).unwrap().unwrap().taint.contains(&Taint::Secret)
}

fn tainting(world: &World) -> Vec<AuditEvent> {
    let events = world.store.audit().into_iter();
    events.filter(|event| event.kind == AuditKind::RunTainted).collect()
}

#[test]
fn another_run_that_is_damaged_keeps_no_outcome_from_being_recorded() {
    let world = World::new();
    let call = world.call("erase", "a.txt", "k1");
    let (armed, [own, other]) = sent_by_another_run(&world, &call);
    world.store.damage_run(Some(own.clone()));
    let done = result(&call, ResultStatus::Succeeded);
    let kept = ready(world.ledger.settle(armed.settlement, Outcome::Succeeded, &done));
    assert_eq!(kept.unwrap().unwrap().state.name(), "succeeded");
    world.store.damage_run(None);
    assert!(has_the_secret(&world, &other) && !has_the_secret(&world, &own));
    let said = tainting(&world);
    assert_eq!(said.len(), 1, "{said:?}");
    assert_eq!(said[0].run_id.as_ref(), Some(&own.run_id));
    assert!(said[0].note.as_ref().unwrap().contains("unknown form"), "{said:?}");
}

#[test]
fn an_outcome_and_what_it_brings_another_run_are_kept_together_or_not_at_all() {
    let world = World::new();
    let call = world.call("erase", "a.txt", "k1");
    let (armed, [own, other]) = sent_by_another_run(&world, &call);
    let away = StoreError::Unreachable("gone".to_owned());
    world.store.fail_once_on(AuditKind::RunTainted, Fault::Refuse(away));
    let done = result(&call, ResultStatus::Succeeded);
    let kept = ready(world.ledger.settle(armed.settlement, Outcome::Succeeded, &done));
    assert!(kept.unwrap_err().is_transient());
    let record = world.record(&call);
    assert_eq!(record.state.name(), "dispatched");
    assert!(!has_the_secret(&world, &own) && !has_the_secret(&world, &other));
    ready(world.ledger.settle_recorded(&record, Outcome::Succeeded, None, &done)).unwrap();
    assert_eq!(world.record(&call).state.name(), "succeeded");
    assert!(has_the_secret(&world, &own) && has_the_secret(&world, &other));
    let said = tainting(&world);
    assert_eq!(said.len(), 1, "{said:?}");
    assert_eq!((said[0].run_id.as_ref(), said[0].taint.len()), (Some(&own.run_id), 1));
}
