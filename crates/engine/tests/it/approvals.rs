//! Held calls: asked, decided, executed once, or ended without an effect.

use std::{sync::Arc, time::Duration};

use serde_json::json;

use placet_engine::answer::Answer;
use placet_types::{
    approval::VoteChoice,
    digest::Digest,
    error::{ErrorCode, Execution},
};

use crate::fake::Behaviour;
use crate::world::{Make, World, bundle, finished, held, plan, refused, waits};

#[tokio::test]
async fn a_destructive_call_waits_for_a_person_and_then_runs_once() {
    let world = World::new().await;
    let asked = held(world.call(plan("erase", "s1", "a")).await);
    assert_eq!(waits(&asked).state, "pending");
    assert!(world.witness.effects("erase").is_empty());
    let again = held(world.call(plan("erase", "s1", "a")).await);
    assert_eq!(again.approval_id, asked.approval_id, "a retry attaches to the same approval");
    assert_eq!(world.vote("ben", &asked, VoteChoice::Approve).await.unwrap(), "approved");
    let result = finished(world.end_of(&asked).await);
    assert_eq!(result.approval_id.as_ref(), Some(&asked.approval_id));
    assert!(finished(world.call(plan("erase", "s1", "a")).await).replayed);
    assert_eq!(world.witness.effects("erase").len(), 1);
}

#[tokio::test]
async fn a_denied_call_never_runs_and_says_so_again() {
    let world = World::new().await;
    let asked = held(world.call(plan("erase", "s1", "a")).await);
    assert_eq!(world.vote("ben", &asked, VoteChoice::Deny).await.unwrap(), "denied");
    assert_eq!(refused(world.end_of(&asked).await).code, ErrorCode::ApprovalDenied);
    assert_eq!(refused(world.call(plan("erase", "s1", "a")).await).code, ErrorCode::ApprovalDenied);
    assert!(world.witness.effects("erase").is_empty());
}

#[tokio::test]
async fn nobody_decides_on_their_own_call() {
    let world = World::new().await;
    let asked = held(world.call(plan("erase", "s1", "a")).await);
    // ana owns the agent and is no approver; the agent itself is no person.
    assert!(world.vote("ana", &asked, VoteChoice::Approve).await.is_err());
    let agent = world.agent().await;
    let digest = world
        .engine
        .approvals()
        .approval(&agent, &asked.approval_id)
        .await
        .unwrap()
        .approval
        .digest;
    let request = placet_approvals::views::DecisionRequest {
        decision: VoteChoice::Approve,
        reason: "me".to_owned(),
        digest,
    };
    assert!(world.engine.approvals().decide(&agent, &asked.approval_id, request).await.is_err());
    assert!(world.witness.effects("erase").is_empty());
}

#[tokio::test]
async fn a_decision_on_something_else_than_what_is_shown_does_not_count() {
    let world = World::new().await;
    let asked = held(world.call(plan("erase", "s1", "a")).await);
    let request = placet_approvals::views::DecisionRequest {
        decision: VoteChoice::Approve,
        reason: "looks good".to_owned(),
        digest: Digest::of(b"another view"),
    };
    let ben = world.person("ben").await;
    let refusal =
        world.engine.approvals().decide(&ben, &asked.approval_id, request).await.unwrap_err();
    assert_eq!(
        (refusal.code, refusal.problems[0].pointer.as_str()),
        (ErrorCode::ValidationError, "/digest")
    );
    assert!(world.witness.effects("erase").is_empty());
}

#[tokio::test]
async fn a_second_decision_changes_nothing_and_says_so() {
    let world = World::new().await;
    let asked = held(world.call(plan("erase", "s1", "a")).await);
    world.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    let late = world.vote("cy", &asked, VoteChoice::Deny).await.unwrap_err();
    assert_eq!(late.code, ErrorCode::ValidationError);
    finished(world.end_of(&asked).await);
}

#[tokio::test]
async fn sensitive_arguments_are_masked_for_approvers_and_run_in_full() {
    let world = World::new().await;
    let mut call = plan("erase", "s1", "a");
    call["args"]["pin"] = json!("4711-secret");
    let asked = held(world.call(call).await);
    let detail = world
        .engine
        .approvals()
        .approval(&world.person("ben").await, &asked.approval_id)
        .await
        .unwrap();
    let shown = serde_json::to_string(&detail).unwrap();
    assert!(!shown.contains("4711-secret"), "{shown}");
    world.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    assert_eq!(finished(world.end_of(&asked).await).output["args"]["pin"], "4711-secret");
}

/// The tool repeats its arguments. What of them is masked was frozen with what people were shown, and does not hang on the tool.
#[tokio::test]
async fn a_result_is_masked_for_approvers_also_once_the_tool_is_gone() {
    let world = World::new().await;
    let mut call = plan("erase", "s1", "a note");
    call["args"]["pin"] = json!("4711-secret");
    let asked = held(world.call(call).await);
    world.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    finished(world.end_of(&asked).await);
    let outcome = async |world: &World| {
        let ben = world.person("ben").await;
        let detail = world.engine.approvals().approval(&ben, &asked.approval_id).await.unwrap();
        detail.outcome.unwrap().output
    };
    let shown = json!({ "did": "erase", "args": { "what": "a note", "pin": "[sensitive]" } });
    assert_eq!(outcome(&world).await, Some(shown.clone()));
    let make = Make {
        store: Arc::new(world.store.restarted()),
        witness: Arc::clone(&world.witness),
        is_bare: true,
        ..Make::default()
    };
    let next = World::with(make).await;
    assert_eq!(outcome(&next).await, Some(shown));
    // Where nobody can tell any more which values were masked, nothing is shown.
    let record = placet_ledger::store::Store::effect_of_call(world.store.as_ref(), &asked.call_id)
        .await
        .unwrap()
        .unwrap();
    next.store.tamper(&record.scope.tenant, record.parked, b"{}".to_vec());
    assert_eq!(outcome(&next).await, None);
}

#[tokio::test]
async fn an_approval_expires_and_its_call_never_runs() {
    let world = World::new().await;
    let asked = held(world.call(plan("erase", "s1", "a")).await);
    world.store.advance_ms(waits(&asked).expires_at.since_ms(world.now()).saturating_add(1));
    assert_eq!(refused(world.end_of(&asked).await).code, ErrorCode::ApprovalExpired);
    assert!(world.vote("ben", &asked, VoteChoice::Approve).await.is_err());
    assert!(world.witness.effects("erase").is_empty());
}

#[tokio::test]
async fn an_approved_call_survives_a_restart_and_runs() {
    let world = World::new().await;
    let asked = held(world.call(plan("erase", "s1", "a")).await);
    world.witness.refuses_connections.store(true, std::sync::atomic::Ordering::SeqCst);
    let next = World::over(Arc::clone(&world.store), Arc::clone(&world.witness)).await;
    let again = held(next.call(plan("erase", "s1", "a")).await);
    assert_eq!(again.approval_id, asked.approval_id);
    next.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(world.witness.effects("erase").is_empty(), "the adapter is down");
    next.witness.refuses_connections.store(false, std::sync::atomic::Ordering::SeqCst);
    finished(next.end_of(&asked).await);
    assert_eq!(world.witness.effects("erase").len(), 1);
}

#[tokio::test]
async fn a_parked_payload_that_was_altered_is_void_and_does_not_run() {
    let world = World::new().await;
    let asked = held(world.call(plan("erase", "s1", "a")).await);
    let record = placet_ledger::store::Store::effect_of_call(world.store.as_ref(), &asked.call_id)
        .await
        .unwrap()
        .unwrap();
    world.store.tamper(&record.scope.tenant, record.parked, b"{\"envelope\":{}}".to_vec());
    world.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    assert_eq!(refused(world.end_of(&asked).await).code, ErrorCode::ApprovalVoid);
    assert!(world.witness.effects("erase").is_empty());
    held(world.call(plan("erase", "s1", "a")).await);
}

#[tokio::test]
async fn a_tool_that_drifts_while_people_think_makes_the_approval_void() {
    let world = World::new().await;
    let asked = held(world.call(plan("erase", "s1", "a")).await);
    world.witness.drifted.store(true, std::sync::atomic::Ordering::SeqCst);
    world.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    assert_eq!(refused(world.end_of(&asked).await).code, ErrorCode::ApprovalVoid);
    assert!(world.witness.effects("erase").is_empty());
    // Nobody is asked again before somebody has reviewed it.
    let again = refused(world.call(plan("erase", "s1", "a")).await);
    assert_eq!((again.code, again.execution), (ErrorCode::ToolChanged, Execution::NotExecuted));
}

#[tokio::test]
async fn a_policy_that_forbids_meanwhile_wins_over_the_approval() {
    let world = World::new().await;
    let asked = held(world.call(plan("erase", "s1", "a")).await);
    let mut source = bundle();
    source.files.push(placet_policy::bundle::PolicyFile {
        name: "99-never.cedar".to_owned(),
        text: "@id(\"no-erasing\") @approval(\"never\") @reason(\"Erasing is over.\")\nforbid (principal, action == Placet::Action::\"fake/erase\", resource);\n".to_owned(),
    });
    world.activate(source).await.unwrap();
    world.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    assert_eq!(refused(world.end_of(&asked).await).code, ErrorCode::ApprovalVoid);
    assert!(world.witness.effects("erase").is_empty());
}

#[tokio::test]
async fn a_lockdown_keeps_an_approved_call_waiting_and_it_runs_afterwards() {
    let world = World::new().await;
    let asked = held(world.call(plan("erase", "s1", "a")).await);
    let lockdown = world.lock_down().await;
    world.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert!(matches!(
        world.engine.call(&world.agent().await, &asked.call_id).await.unwrap(),
        Answer::Held(_)
    ));
    world.lift(&lockdown).await;
    finished(world.end_of(&asked).await);
    assert_eq!(world.witness.effects("erase").len(), 1);
}

#[tokio::test]
async fn two_decisions_at_once_lead_to_one_effect() {
    let world = World::new().await;
    world.witness.behave("erase", Behaviour::Slow(Duration::from_millis(50)));
    let asked = held(world.call(plan("erase", "s1", "a")).await);
    let (one, two) = tokio::join!(
        world.vote("ben", &asked, VoteChoice::Approve),
        world.vote("cy", &asked, VoteChoice::Approve)
    );
    assert!(one.is_ok() || two.is_ok());
    finished(world.end_of(&asked).await);
    assert_eq!(world.witness.effects("erase").len(), 1);
}

#[tokio::test]
async fn a_held_read_has_a_record_and_runs_when_people_agree() {
    let world = World::new().await;
    let asked = held(world.call(plan("fetch", "s1", "a")).await);
    world.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    finished(world.end_of(&asked).await);
    assert_eq!(world.witness.effects("fetch").len(), 1);
}
