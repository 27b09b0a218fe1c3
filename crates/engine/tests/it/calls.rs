//! The way of a call, and what its duplicates get.

use std::time::Duration;

use serde_json::json;

use placet_types::{
    envelope::result::ResultStatus,
    error::{ErrorCode, Execution},
};

use placet_engine::answer::Answer;

use crate::fake::Behaviour;
use crate::world::{World, finished, plan, refused};

#[tokio::test]
async fn a_read_is_executed_and_audited_without_a_record() {
    let world = World::new().await;
    let result = finished(world.call(plan("look", "s1", "a")).await);
    assert_eq!(result.status, ResultStatus::Succeeded);
    assert_eq!(result.output["did"], "look");
    assert_eq!(result.citations.len(), 1);
    assert!(result.idempotency_key.is_none());
    let kinds: Vec<String> = world
        .store
        .audit()
        .iter()
        .map(|e| serde_json::to_value(e.kind).unwrap().to_string())
        .collect();
    assert!(
        kinds.contains(&"\"read_dispatched\"".to_owned())
            && kinds.contains(&"\"read_settled\"".to_owned()),
        "{kinds:?}"
    );
}

#[tokio::test]
async fn a_write_happens_once_however_often_it_is_sent() {
    let world = World::new().await;
    let first = finished(world.call(plan("note", "s1", "a")).await);
    assert!(!first.replayed && !first.mutations.is_empty() && first.idempotency_key.is_some());
    for _ in 0..5 {
        let again = finished(world.call(plan("note", "s1", "a")).await);
        assert!(again.replayed);
        assert_eq!(
            (again.tool_call_id, again.output),
            (first.tool_call_id.clone(), first.output.clone())
        );
    }
    assert_eq!(world.witness.effects("note").len(), 1);
}

#[tokio::test]
async fn duplicates_in_flight_attach_to_the_same_outcome() {
    let world = World::new().await;
    world.witness.behave("note", Behaviour::Slow(Duration::from_millis(200)));
    let calls = (0..50).map(|_| world.call(plan("note", "s1", "a")));
    let results: Vec<_> =
        futures::future::join_all(calls).await.into_iter().map(finished).collect();
    assert_eq!(world.witness.effects("note").len(), 1);
    assert_eq!(results.iter().filter(|result| !result.replayed).count(), 1);
}

#[tokio::test]
async fn the_same_key_with_other_arguments_is_a_conflict() {
    let world = World::new().await;
    finished(world.call(plan("note", "s1", "a")).await);
    let refusal = refused(world.call(plan("note", "s1", "b")).await);
    assert_eq!(refusal.code, ErrorCode::IdempotencyConflict);
    assert_eq!(world.witness.effects("note").len(), 1);
}

#[tokio::test]
async fn a_claim_that_comes_to_nothing_is_in_conflict_with_nothing() {
    for (drifts, code) in [(true, ErrorCode::InProgress), (false, ErrorCode::IdempotencyConflict)] {
        let world = World::new().await;
        world.witness.list_slowly(Duration::from_millis(200));
        world.witness.drifted.store(drifts, std::sync::atomic::Ordering::SeqCst);
        let other = async {
            // The claim of the first call is there, and nothing of it is in the ledger.
            tokio::time::sleep(Duration::from_millis(60)).await;
            refused(world.call(plan("note", "s1", "b")).await).code
        };
        let (first, other) = tokio::join!(world.call(plan("note", "s1", "a")), other);
        assert_eq!(matches!(first, Answer::Refused(_)), drifts);
        let status = if drifts { ResultStatus::Failed } else { ResultStatus::Succeeded };
        assert_eq!(first.envelope().status, status);
        assert_eq!(other, code);
        assert_eq!(world.witness.effects("note").len(), usize::from(!drifts));
    }
}

#[tokio::test]
async fn bad_arguments_are_refused_with_the_place_to_repair() {
    let world = World::new().await;
    let mut plan = plan("note", "s1", "a");
    plan["args"] = json!({"what": 7, "more": true});
    let refusal = refused(world.call(plan).await);
    assert_eq!(refusal.code, ErrorCode::ValidationError);
    let pointers: Vec<&str> =
        refusal.problems.iter().map(|problem| problem.pointer.as_str()).collect();
    assert!(pointers.contains(&"/args/what"), "{pointers:?}");
    assert!(world.witness.effects("note").is_empty());
}

#[tokio::test]
async fn an_unknown_tool_and_one_outside_the_surface_answer_alike() {
    let world = World::new().await;
    let unknown = refused(world.call(plan("nothing", "s1", "a")).await);
    let stranger = world.caller(placet_types::principal::PrincipalKind::Agent, "stranger").await;
    let hidden = refused(world.call_as(stranger, plan("note", "s1", "a")).await);
    assert_eq!(
        (unknown.code, &unknown.message, &unknown.problems),
        (hidden.code, &hidden.message, &hidden.problems)
    );
    assert_eq!(unknown.code, ErrorCode::ToolNotFound);
}

#[tokio::test]
async fn a_write_without_anything_stable_to_key_it_by_is_refused() {
    let world = World::new().await;
    let mut plan = plan("note", "s1", "a");
    plan.as_object_mut().unwrap().remove("request_id");
    let refusal = refused(world.call(plan).await);
    assert_eq!(
        (refusal.code, refusal.problems[0].pointer.as_str()),
        (ErrorCode::ValidationError, "/request_id")
    );
}

#[tokio::test]
async fn a_call_stronger_than_the_run_is_refused_and_a_run_cannot_be_reopened_stronger() {
    let world = World::new().await;
    let mut weak = plan("note", "s1", "a");
    weak["run"] = json!({"run_id": "weak", "safety_mode": "read_only"});
    assert_eq!(refused(world.call(weak.clone()).await).code, ErrorCode::PolicyDenied);
    weak["run"]["safety_mode"] = json!("destructive");
    let refusal = refused(world.call(weak).await);
    assert_eq!(
        (refusal.code, refusal.problems[0].pointer.as_str()),
        (ErrorCode::ValidationError, "/run/safety_mode")
    );
}

#[tokio::test]
async fn a_call_stronger_than_it_says_is_refused_as_upgraded() {
    let world = World::new().await;
    let mut plan = plan("erase", "s1", "a");
    plan["approval_mode_requested"] = json!("read_only");
    assert_eq!(refused(world.call(plan).await).code, ErrorCode::ModeUpgraded);
}

#[tokio::test]
async fn a_budget_ends() {
    let world = World::new().await;
    let call = |step: &str| {
        let mut plan = plan("look", step, "a");
        plan["run"] = json!({"run_id": "small", "run_budget": {"calls_max": 2}});
        plan
    };
    finished(world.call(call("s1")).await);
    finished(world.call(call("s2")).await);
    assert_eq!(refused(world.call(call("s3")).await).code, ErrorCode::BudgetExhausted);
}

#[tokio::test]
async fn a_read_that_reaches_nobody_costs_its_run_nothing() {
    let world = World::new().await;
    world.witness.behave("look", Behaviour::NotExecuted);
    let mut call = plan("look", "s1", "a");
    call["run"] = json!({"run_id": "small", "run_budget": {"calls_max": 1}});
    assert_eq!(refused(world.call(call.clone()).await).code, ErrorCode::AdapterUnavailable);
    world.witness.behave_well();
    finished(world.call(call.clone()).await);
    assert_eq!(refused(world.call(call).await).code, ErrorCode::BudgetExhausted);
}

#[tokio::test]
async fn an_unknown_outcome_is_said_and_never_repeated() {
    let world = World::new().await;
    world.witness.behave("note", Behaviour::Unknown);
    for _ in 0..3 {
        let refusal = refused(world.call(plan("note", "s1", "a")).await);
        assert_eq!(
            (refusal.code, refusal.execution),
            (ErrorCode::OutcomeUnknown, Execution::Unknown)
        );
    }
    assert_eq!(world.witness.effects("note").len(), 1);
}

#[tokio::test]
async fn a_read_without_a_usable_answer_may_be_made_again() {
    let world = World::new().await;
    world.witness.behave("look", Behaviour::Unknown);
    let result = finished(world.call(plan("look", "s1", "a")).await);
    let error = result.error.unwrap();
    assert_eq!((error.error_code, error.retryable), (ErrorCode::AdapterFailed, true));
    assert!(error.remediation.starts_with("Make the call again; it changes nothing. If it ends"));
    assert!(error.message.contains("answer: connection reset;"), "{}", error.message);
    world.witness.behave("look", Behaviour::Slow(Duration::from_secs(5)));
    let mut slow = plan("look", "s2", "a");
    slow["run"] = json!({"run_id": "hasty", "run_budget": {"tool_latency_ms_max": 200}});
    let error = finished(world.call(slow).await).error.unwrap();
    assert!(error.message.contains("200 ms, which is `tool_latency_ms_max`"), "{}", error.message);
    world.witness.behave_well();
    assert!(finished(world.call(plan("look", "s1", "a")).await).error.is_none());
}

#[tokio::test]
async fn a_panicking_adapter_leaves_an_unknown_outcome_and_the_engine_goes_on() {
    let world = World::new().await;
    world.witness.behave("note", Behaviour::Panics);
    assert_eq!(refused(world.call(plan("note", "s1", "a")).await).code, ErrorCode::OutcomeUnknown);
    finished(world.call(plan("look", "s2", "a")).await);
}

#[tokio::test]
async fn a_declared_failure_before_any_effect_may_be_repeated_with_the_same_key() {
    let world = World::new().await;
    world.witness.behave("note", Behaviour::NotExecuted);
    let refusal = refused(world.call(plan("note", "s1", "a")).await);
    assert_eq!(
        (refusal.code, refusal.execution),
        (ErrorCode::AdapterUnavailable, Execution::NotExecuted)
    );
    world.witness.behave_well();
    let result = finished(world.call(plan("note", "s1", "a")).await);
    assert!(!result.replayed);
    assert_eq!(world.witness.effects("note").len(), 1);
}

#[tokio::test]
async fn an_executed_failure_is_recorded_and_replayed() {
    let world = World::new().await;
    world.witness.behave("note", Behaviour::Fails);
    let first = finished(world.call(plan("note", "s1", "a")).await);
    assert_eq!(first.status, ResultStatus::Failed);
    assert_eq!(first.error.as_ref().unwrap().execution, Execution::ExecutedAndFailed);
    world.witness.behave_well();
    assert!(finished(world.call(plan("note", "s1", "a")).await).replayed);
    assert_eq!(world.witness.effects("note").len(), 1);
}

#[tokio::test]
async fn a_drifted_tool_is_not_called() {
    let world = World::new().await;
    finished(world.call(plan("note", "s1", "a")).await);
    world.witness.drifted.store(true, std::sync::atomic::Ordering::SeqCst);
    for tool in ["note", "look"] {
        let refusal = refused(world.call(plan(tool, "s2", "a")).await);
        assert_eq!(
            (refusal.code, refusal.execution),
            (ErrorCode::ToolChanged, Execution::NotExecuted)
        );
        assert!(refusal.message.contains("changed upstream"), "{refusal}");
    }
    assert_eq!(world.witness.effects("note").len(), 1);
}

#[tokio::test]
async fn an_adapter_that_is_down_is_said_to_be_and_comes_back() {
    let world = World::new().await;
    let witness = std::sync::Arc::clone(&world.witness);
    witness.refuses_connections.store(true, std::sync::atomic::Ordering::SeqCst);
    let down = World::over(std::sync::Arc::clone(&world.store), witness).await;
    let refusal = refused(down.call(plan("note", "s9", "a")).await);
    assert_eq!(
        (refusal.code, refusal.execution),
        (ErrorCode::AdapterUnavailable, Execution::NotExecuted)
    );
    down.witness.refuses_connections.store(false, std::sync::atomic::Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(500)).await;
    finished(down.call(plan("note", "s9", "a")).await);
}

#[tokio::test]
async fn calls_of_others_do_not_exist() {
    let world = World::new().await;
    let mine = finished(world.call(plan("note", "s1", "a")).await);
    let other = world.caller(placet_types::principal::PrincipalKind::Agent, "other").await;
    let refusal = world.engine.call(&other, &mine.tool_call_id).await.unwrap_err();
    let absent = world.engine.call(&other, &"call_nothing".parse().unwrap()).await.unwrap_err();
    assert_eq!(refusal, absent);
    assert!(world.engine.call(&world.agent().await, &mine.tool_call_id).await.is_ok());
}
