//! What is told and what is kept: truth for callers, nothing that is not theirs, a whole audit.

use std::sync::{Arc, atomic::Ordering};

use serde_json::{Value, json};

use placet_ledger::{
    audit::{AuditEvent, AuditKind},
    store::Store,
};
use placet_types::{approval::VoteChoice, error::ErrorCode, principal::PrincipalKind};

use crate::world::{World, finished, held, plan, refused, waits};

fn events(world: &World, kind: AuditKind) -> Vec<AuditEvent> {
    world.store.audit().into_iter().filter(|event| event.kind == kind).collect()
}

fn figure(world: &World, name: &str) -> f64 {
    let text = world.engine.metrics().encode();
    let line =
        text.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')));
    line.and_then(|line| line.rsplit(' ').next())
        .and_then(|value| value.parse().ok())
        .unwrap_or(0.0)
}

#[tokio::test]
async fn a_drifted_tool_is_a_security_event_that_names_it() {
    let world = World::new().await;
    let asked = held(world.call(plan("erase", "s1", "a")).await);
    world.witness.drifted.store(true, Ordering::SeqCst);
    refused(world.call(plan("note", "s2", "a")).await);
    world.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    assert_eq!(refused(world.end_of(&asked).await).code, ErrorCode::ApprovalVoid);
    let seen = events(&world, AuditKind::Security);
    for tool in ["fake/note", "fake/erase"] {
        let named = seen.iter().any(|event| {
            event.capability.as_ref().is_some_and(|id| id.to_string() == tool)
                && event.code == Some(ErrorCode::ToolChanged)
        });
        assert!(named, "{tool}: {seen:?}");
    }
    let ended = events(&world, AuditKind::ApprovalEnded);
    assert_eq!(ended.len(), 1);
    // Why it is void is told without what only the log may know.
    let view = world
        .engine
        .approvals()
        .approval(&world.agent().await, &asked.approval_id)
        .await
        .unwrap()
        .approval;
    let reason = view.void_reason.unwrap();
    assert!(!reason.contains("sha256") && !reason.contains("live"), "{reason}");
}

#[tokio::test]
async fn anyone_who_waits_for_an_approval_sees_it_whatever_it_is_called() {
    let world = World::new().await;
    let asked = held(world.call(plan("erase", "s1", "a")).await);
    assert!(
        world.engine.approvals().approval(&world.agent().await, &asked.approval_id).await.is_ok()
    );
    let other = world.caller(PrincipalKind::Agent, "other").await;
    assert_eq!(
        world.engine.approvals().approval(&other, &asked.approval_id).await.unwrap_err().code,
        ErrorCode::NotFound
    );
}

#[tokio::test]
async fn a_person_named_like_an_agent_is_somebody_else() {
    let world = World::new().await;
    let first = finished(world.call(plan("note", "s1", "a")).await);
    let asked = held(world.call(plan("erase", "s2", "a")).await);
    let namesake = world.caller(PrincipalKind::User, "bot").await;
    assert_eq!(
        world.engine.call(&namesake, &first.tool_call_id).await.unwrap_err().code,
        ErrorCode::NotFound
    );
    assert!(world.engine.approvals().approval(&namesake, &asked.approval_id).await.is_err());
    let record =
        placet_ledger::store::Store::effect_of_call(world.store.as_ref(), &first.tool_call_id)
            .await
            .unwrap()
            .unwrap();
    assert_eq!(
        world.engine.record(&namesake, record.record_id).await.unwrap_err().code,
        ErrorCode::NotFound
    );
    assert!(world.engine.record(&world.agent().await, record.record_id).await.is_ok());
}

#[tokio::test]
async fn a_held_call_names_its_trace_after_a_restart_too() {
    let capture = placet_telemetry::testing::Capture::start(
        &placet_telemetry::export::TelemetryConfig::default(),
    )
    .unwrap();
    let world = World::new().await;
    let _active = tracing::dispatcher::set_default(&capture.dispatch);
    let asked = held(world.call(plan("erase", "s1", "a")).await);
    assert_eq!(asked.result.trace_id.len(), 32);
    let next = World::over(Arc::clone(&world.store), Arc::default()).await;
    assert_eq!(held(next.engine.call(&next.agent().await, &asked.call_id).await.unwrap()), asked);
    next.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    assert_eq!(finished(next.end_of(&asked).await).trace_id, asked.result.trace_id);
}

#[tokio::test]
async fn a_denied_call_names_its_trace_its_decision_and_its_approval_whenever_it_is_asked_about() {
    let world = World::new().await;
    let asked = held(world.call(plan("erase", "s1", "a")).await);
    world.vote("ben", &asked, VoteChoice::Deny).await.unwrap();
    world.end_of(&asked).await;
    let next = World::over(Arc::clone(&world.store), Arc::default()).await;
    for answer in [
        next.engine.call(&next.agent().await, &asked.call_id).await.unwrap(),
        next.call(plan("erase", "s1", "a")).await,
    ] {
        let told = answer.envelope();
        assert_eq!(told.error.as_ref().unwrap().error_code, ErrorCode::ApprovalDenied);
        assert_eq!(told.trace_id, asked.result.trace_id);
        assert_eq!(told.approval_id.as_ref(), Some(&asked.approval_id));
        assert_eq!(told.policy_decision_id, asked.result.policy_decision_id);
        assert!(told.policy_decision_id.is_some());
    }
}

#[tokio::test]
async fn every_span_is_below_the_call_and_says_how_it_ended() {
    let capture = placet_telemetry::testing::Capture::start(
        &placet_telemetry::export::TelemetryConfig::default(),
    )
    .unwrap();
    let world = World::new().await;
    let _active = tracing::dispatcher::set_default(&capture.dispatch);
    finished(world.call(plan("look", "s1", "a")).await);
    let asked = held(world.call(plan("erase", "s2", "very-secret-argument")).await);
    world.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    finished(world.end_of(&asked).await);
    refused(world.call(plan("nothing", "s3", "a")).await);
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    capture.guard.flush().await.unwrap();
    let spans = capture.spans.all();
    assert!(!format!("{spans:?}").contains("very-secret-argument"));
    let text = |span: &opentelemetry_sdk::trace::SpanData, key: &str| {
        span.attributes.iter().find(|kv| kv.key.as_str() == key).map(|kv| kv.value.to_string())
    };
    for span in &spans {
        if span.name == "placet.call" {
            assert!(
                text(span, "placet.status").is_some() || text(span, "approval.id").is_some(),
                "{span:?}"
            );
            continue;
        }
        let parent = spans.iter().find(|other| other.span_context.span_id() == span.parent_span_id);
        let parent = parent.unwrap_or_else(|| panic!("{} has no parent", span.name));
        assert!(
            parent.end_time >= span.end_time || span.name == "placet.approval",
            "{} ends after {}",
            span.name,
            parent.name
        );
    }
    let calls: Vec<_> = spans.iter().filter(|span| span.name == "placet.call").collect();
    assert_eq!(calls.len(), 3);
    assert!(
        calls
            .iter()
            .any(|span| text(span, "placet.error_code").as_deref() == Some("TOOL_NOT_FOUND"))
    );
    assert!(
        calls.iter().any(|span| text(span, "gen_ai.tool.name").as_deref() == Some("fake__look"))
    );
    let adapters: Vec<_> = spans.iter().filter(|span| span.name == "placet.adapter").collect();
    assert_eq!(adapters.len(), 2);
    for adapter in adapters {
        let invoke = spans
            .iter()
            .find(|other| other.span_context.span_id() == adapter.parent_span_id)
            .unwrap();
        assert_eq!(invoke.name, "placet.invoke");
    }
}

#[tokio::test]
async fn a_state_that_does_not_exist_is_refused_with_those_that_do() {
    let world = World::new().await;
    let ben = world.person("ben").await;
    let refusal = world.engine.records(&ben, Some("sucess"), None, 10).await.unwrap_err();
    assert_eq!(refusal.code, ErrorCode::ValidationError);
    assert!(refusal.problems[0].problem.contains("succeeded"), "{refusal:?}");
    assert_eq!(refusal.problems[0].pointer, "/state");
    assert!(world.engine.records(&ben, Some("succeeded"), None, 10).await.is_ok());
    let refusal =
        world.engine.approvals().approvals(&ben, Some("open"), None, 10).await.unwrap_err();
    assert_eq!(refusal.code, ErrorCode::ValidationError);
    assert!(refusal.problems[0].problem.contains("pending"), "{refusal:?}");
    assert!(world.engine.approvals().approvals(&ben, Some("pending"), None, 10).await.is_ok());
}

#[tokio::test]
async fn people_who_are_not_active_neither_operate_nor_decide() {
    let world = World::new().await;
    let gone = world.person("gone").await;
    assert_eq!(
        world.engine.records(&gone, None, None, 10).await.unwrap_err().code,
        ErrorCode::PolicyDenied
    );
    let asked = held(world.call(plan("erase", "s1", "a")).await);
    assert!(world.vote("gone", &asked, VoteChoice::Approve).await.is_err());
    assert!(world.engine.approvals().approvals(&gone, None, None, 10).await.unwrap().is_empty());
    let call = placet_ledger::store::Store::effect_of_call(world.store.as_ref(), &asked.call_id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        world.engine.record(&gone, call.record_id).await.unwrap_err().code,
        ErrorCode::NotFound
    );
}

#[tokio::test]
async fn stages_approvals_and_calls_with_the_adapter_are_counted() {
    let world = World::new().await;
    let asked = held(world.call(plan("erase", "s1", "a")).await);
    tokio::time::sleep(std::time::Duration::from_millis(400)).await;
    assert!(
        (figure(&world, "placet_approvals_pending") - 1.0).abs() < 0.1,
        "{}",
        world.engine.metrics().encode()
    );
    world.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    finished(world.end_of(&asked).await);
    tokio::time::sleep(std::time::Duration::from_millis(400)).await;
    assert!(
        figure(&world, "placet_approvals_pending") < 0.1,
        "a decided approval does not wait any more"
    );
    for stage in ["build", "broker", "gate", "invoke", "return"] {
        assert!(
            figure(&world, &format!("placet_stage_seconds_count{{stage=\"{stage}\"}}")) > 0.5,
            "{stage}"
        );
    }
    let text = world.engine.metrics().encode();
    assert!(text.contains("placet_inflight{adapter=\"fake\"} 0"), "{text}");
    assert!(text.contains("result=\"approved\""), "{text}");
}

#[tokio::test]
async fn a_call_that_is_decided_several_times_is_misclassified_once() {
    let world = World::new().await;
    let mut call = plan("look", "s1", "a");
    call["approval_mode_requested"] = json!("destructive");
    finished(world.call(call).await);
    let before = figure(&world, "placet_mode_misclassified_total");
    assert!((before - 1.0).abs() < 0.1);
    let mut held_call = plan("fetch", "s2", "a");
    held_call["approval_mode_requested"] = json!("destructive");
    let asked = held(world.call(held_call).await);
    let lockdown = world.lock_down().await;
    world.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(800)).await;
    world.lift(&lockdown).await;
    finished(world.end_of(&asked).await);
    assert!((figure(&world, "placet_mode_misclassified_total") - before - 1.0).abs() < 0.1);
}

#[tokio::test]
async fn the_audit_holds_no_argument() {
    let world = World::new().await;
    let secret = "4711-very-secret";
    for tool in ["look", "note", "erase", "fetch", "nothing"] {
        drop(world.call(plan(tool, tool, secret)).await);
        let mut bad = plan(tool, tool, "a");
        bad["args"] = json!({"what": {"deep": secret}});
        drop(world.call(bad).await);
    }
    let kept: Value = serde_json::to_value(world.store.audit()).unwrap();
    assert!(!kept.to_string().contains(secret), "{kept:#}");
    let decided = world.store.audit().iter().filter(|event| event.decision.is_some()).count();
    assert!(decided >= 4, "{decided}");
}

#[tokio::test]
async fn a_call_is_told_of_after_a_restart_whatever_became_of_it() {
    use crate::fake::Behaviour;
    use placet_types::error::Execution;

    let world = World::new().await;
    let done = finished(world.call(plan("note", "s1", "a")).await).tool_call_id;
    world.witness.behave("note", Behaviour::Fails);
    let failed = finished(world.call(plan("note", "s2", "a")).await).tool_call_id;
    world.witness.behave("note", Behaviour::Unknown);
    let unknown = world.send(plan("note", "s3", "a")).await.call_id().clone();
    refused(world.call(plan("note", "s3", "a")).await);
    world.witness.behave("note", Behaviour::NotExecuted);
    let retriable = world.send(plan("note", "s4", "a")).await.call_id().clone();
    refused(world.call(plan("note", "s4", "a")).await);
    let denied = held(world.call(plan("erase", "s5", "a")).await);
    world.vote("ben", &denied, VoteChoice::Deny).await.unwrap();
    let void = held(world.call(plan("erase", "s6", "a")).await);
    let record = Store::effect_of_call(world.store.as_ref(), &void.call_id).await;
    let record = record.unwrap().unwrap();
    world.store.tamper(&record.scope.tenant, record.parked, b"{\"envelope\":{}}".to_vec());
    world.vote("ben", &void, VoteChoice::Approve).await.unwrap();
    refused(world.end_of(&void).await);
    let pending = held(world.call(plan("erase", "s7", "a")).await);
    let approved = held(world.call(plan("erase", "s8", "a")).await);
    world.lock_down().await;
    world.vote("ben", &approved, VoteChoice::Approve).await.unwrap();

    let witness = Arc::new(crate::fake::Witness::default());
    witness.refuses_connections.store(true, Ordering::SeqCst);
    let next = World::over(Arc::clone(&world.store), witness).await;
    let me = next.agent().await;
    assert_eq!(finished(next.engine.call(&me, &done).await.unwrap()).tool_call_id, done);
    assert!(finished(next.engine.call(&me, &failed).await.unwrap()).error.is_some());
    let refusal = refused(next.engine.call(&me, &unknown).await.unwrap());
    assert_eq!((refusal.code, refusal.execution), (ErrorCode::OutcomeUnknown, Execution::Unknown));
    let refusal = refused(next.engine.call(&me, &retriable).await.unwrap());
    assert_eq!(
        (refusal.code, refusal.execution),
        (ErrorCode::AdapterUnavailable, Execution::NotExecuted)
    );
    let refusal = refused(next.engine.call(&me, &denied.call_id).await.unwrap());
    assert_eq!(refusal.code, ErrorCode::ApprovalDenied);
    assert_eq!(
        waits(&held(next.engine.call(&me, &pending.call_id).await.unwrap())).state,
        "pending"
    );
    assert_eq!(
        waits(&held(next.engine.call(&me, &approved.call_id).await.unwrap())).state,
        "approved"
    );
    // A void approval returns its key to absent: the approval still says what became of the call.
    let refusal = refused(next.engine.call(&me, &void.call_id).await.unwrap());
    assert_eq!(
        (refusal.code, refusal.execution),
        (ErrorCode::ApprovalVoid, Execution::NotExecuted)
    );
    let other = next.caller(PrincipalKind::Agent, "other").await;
    let refusal = next.engine.call(&other, &void.call_id).await.unwrap_err();
    assert_eq!(refusal.code, ErrorCode::NotFound);
    let view = next.engine.approvals().approval(&me, &void.approval_id).await.unwrap().approval;
    assert_eq!(view.state, "void");
}
