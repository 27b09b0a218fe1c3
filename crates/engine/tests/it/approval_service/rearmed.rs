//! Calls that operators have sent again: what a client that repeats them can do about it, and whose arguments they run.

use std::time::Duration;

use serde_json::{Value, json};

use placet_engine::{answer::Held, ticket::Ticket};
use placet_ledger::{
    audit::AuditKind,
    store::{Store, StoreError},
    testing::Fault,
};
use placet_policy::bundle::{BundleSource, PolicyFile};
use placet_types::{
    approval::VoteChoice,
    error::{ErrorCode, Execution, Refusal},
};

use super::gated;
use crate::fake::{Behaviour, Probing};
use crate::world::{Make, World, bundle, finished, held, plan, quick, refused};

/// Policies that ask people about large notes.
fn large() -> BundleSource {
    large_calls_of("note")
}

fn large_calls_of(tool: &str) -> BundleSource {
    let mut source = bundle();
    source.files.push(PolicyFile {
        name: "99-large.cedar".to_owned(),
        text: format!("@id(\"large\") @approval(\"custom\") @approver_group(\"approvers\") @quorum(\"1\") @expires(\"24h\") @reason(\"Much is looked at.\")\n\
             forbid (principal, action == Placet::Action::\"fake/{tool}\", resource is Placet::Tool)\n\
             when {{ context.input has most && context.input.most >= 5 }}\n\
             unless {{ context.req has approval && !context.req.approval.denied &&\n\
               context.req.approval.request_digest == context.req.evidence.request_digest &&\n\
               context.req.now < context.req.approval.expires_at && context.req.approval.total >= 1 }};\n"),
    });
    source
}

/// Where one operator is enough, and one failure opens the breaker of the target for five seconds.
async fn world(bundle: BundleSource) -> World {
    let ledger = placet_engine::settings::LedgerSettings { rearm_people: 1, ..quick() };
    World::with(Make { bundle, ledger, breaker_failures: 1, ..Make::default() }).await
}

/// A large note.
fn much() -> Value {
    much_of("note")
}

fn much_of(tool: &str) -> Value {
    let mut call = plan(tool, "s1", "a");
    call["args"]["most"] = json!(9);
    call["idempotency_key"] = json!("order-1");
    call
}

/// A call that an approver made smaller, that was sent, and of which nobody knows what became.
async fn edited_and_unknown(world: &World) {
    world.witness.behave("note", Behaviour::Unknown);
    let asked = held(world.call(much()).await);
    world.edit("ben", &asked, json!({ "what": "a", "most": 2 })).await.unwrap();
    assert_eq!(refused(world.end_of(&asked).await).code, ErrorCode::OutcomeUnknown);
    world.witness.behave_well();
}

#[tokio::test(start_paused = true)]
async fn a_client_that_repeats_a_re_armed_call_for_less_does_not_undo_what_operators_decided() {
    let world = world(bundle()).await;
    let mut call = plan("note", "s1", "a");
    call["idempotency_key"] = json!("order-1");
    world.witness.behave("note", Behaviour::Unknown);
    refused(world.call(call.clone()).await);
    world.witness.behave_well();
    world.rearm("ben").await.unwrap();
    world.reaches("rearmed").await;
    let mut weaker = call.clone();
    weaker["approval_mode_requested"] = json!("read_only");
    let mut lower = call.clone();
    lower["run"] = json!({"run_id": "other", "safety_mode": "read_only"});
    for (repeat, code) in [(weaker, ErrorCode::ModeUpgraded), (lower, ErrorCode::PolicyDenied)] {
        let told = refused(world.call(repeat).await);
        assert_eq!((told.code, told.execution), (code, Execution::Unknown), "{told:?}");
        assert!(told.message.contains("which stands"), "{told:?}");
        assert_eq!(world.record().await.state.name(), "rearmed");
    }
    // The target is tried again once its breaker lets a call through.
    let record = world.reaches("succeeded").await;
    assert_eq!((record.arm, world.witness.effects("note").len()), (1, 2));
    assert!(finished(world.call(call).await).replayed);
}

#[tokio::test(start_paused = true)]
async fn a_re_armed_call_runs_what_its_approvers_made_of_it_and_says_so() {
    let world = world(large()).await;
    edited_and_unknown(&world).await;
    world.rearm("ben").await.unwrap();
    world.reaches("rearmed").await;
    // Its agent sends what it sent at first: found by that, and no reason to take the re-arm back.
    let told = refused(world.call(much()).await);
    assert_eq!(told.execution, Execution::Unknown, "{told:?}");
    assert_eq!(world.record().await.state.name(), "rearmed");
    world.reaches("succeeded").await;
    let result = finished(world.call(much()).await);
    assert_eq!(result.output["args"], json!({ "what": "a", "most": 2 }));
    assert_eq!(result.edited_args, Some(json!({ "what": "a", "most": 2 })));
    assert!(result.replayed);
    assert_eq!(world.witness.effects("note").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_drives_a_re_armed_call_sends_what_its_approvers_made_of_it() {
    let world = world(large()).await;
    edited_and_unknown(&world).await;
    let lockdown = world.lock_down().await;
    world.rearm("ben").await.unwrap();
    world.reaches("rearmed").await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    world.lift(&lockdown).await;
    let result = finished(world.call(much()).await);
    assert_eq!(result.output["args"], json!({ "what": "a", "most": 2 }));
    assert_eq!(result.edited_args, Some(json!({ "what": "a", "most": 2 })));
}

#[tokio::test(start_paused = true)]
async fn what_an_operator_says_happened_is_what_the_approvers_made_of_it() {
    for outcome in ["happened", "did_not_happen"] {
        let world = world(large()).await;
        edited_and_unknown(&world).await;
        let record = world.reaches("indeterminate").await;
        let request = json!({"outcome": outcome, "evidence": "looked", "output": {"by": "hand"}});
        let request = serde_json::from_value(request).unwrap();
        let dora = world.person("dora").await;
        let view = world.engine.resolve(&dora, record.record_id, request).await.unwrap();
        let result = view.result.unwrap();
        assert_eq!(result.edited_args, Some(json!({ "what": "a", "most": 2 })), "{outcome}");
        assert!(result.approval_id.is_some() && result.policy_decision_id.is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn however_many_arms_ran_edited_arguments_they_are_not_put_before_people_as_the_agents_own() {
    let world = world(large()).await;
    edited_and_unknown(&world).await;
    // Small as it is now nobody need agree to it, and the second arm has no approval.
    world.witness.behave("note", Behaviour::Unknown);
    world.rearm("ben").await.unwrap();
    let second = async {
        loop {
            let record = world.reaches("indeterminate").await;
            if record.attempts == 2 {
                return record;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let second = tokio::time::timeout(Duration::from_secs(60), second).await.unwrap();
    assert_eq!((second.arm, second.state.approval_id()), (1, None));
    world.witness.behave_well();
    let all = gated(
        "note",
        "@approver_group(\"approvers\") @quorum(\"1\") @expires(\"24h\")",
        "context.req.approval.total >= 1",
    );
    world.activate(all).await.unwrap();
    world.rearm("ben").await.unwrap();
    let record = world.reaches("indeterminate").await;
    assert_eq!((record.arm, world.witness.effects("note").len()), (2, 2));
    let again = refused(world.call(much()).await);
    assert_eq!(again.code, ErrorCode::OutcomeUnknown);
}

#[tokio::test(start_paused = true)]
async fn an_edited_call_that_failed_after_its_approval_is_gone_asks_about_what_its_agent_sends() {
    let world = world(large()).await;
    world.witness.behave("note", Behaviour::NotExecuted);
    let asked = held(world.call(much()).await);
    world.edit("ben", &asked, json!({ "what": "a", "most": 8 })).await.unwrap();
    refused(world.end_of(&asked).await);
    world.witness.behave_well();
    let more = gated(
        "note",
        "@approver_group(\"approvers\") @quorum(\"2\") @expires(\"24h\")",
        "context.req.approval.total >= 2",
    );
    world.activate(more).await.unwrap();
    let again = held(world.call(much()).await);
    assert_ne!(again.approval_id, asked.approval_id);
    let shown = world.seen("cy", &again).await.proposal.unwrap();
    assert_eq!(shown.call.args["most"], json!(9));
    for person in ["ben", "cy"] {
        world.vote(person, &again, VoteChoice::Approve).await.unwrap();
    }
    let result = finished(world.end_of(&again).await);
    assert_eq!((&result.output["args"]["most"], result.edited_args), (&json!(9), None));
}

/// A call whose first arm had an effect that nobody knows of, re-armed, and held for people.
async fn rearmed_and_held() -> (World, Held, Ticket) {
    let world = world(bundle()).await;
    world.witness.behave("note", Behaviour::Unknown);
    refused(world.call(much()).await);
    world.witness.behave_well();
    world.activate(large()).await.unwrap();
    world.rearm("ben").await.unwrap();
    world.reaches("pending_approval").await;
    let asked = held(world.call(much()).await);
    let ticket = world.engine.follow(&world.agent().await, &asked.call_id).await.unwrap();
    (world, asked, ticket)
}

/// What a waiter of a held call is told once people agree to it.
async fn told_when_agreed(world: &World, asked: &Held, mut ticket: Ticket) -> Refusal {
    world.vote("ben", asked, VoteChoice::Approve).await.unwrap();
    let told = async {
        loop {
            let answer = ticket.current();
            if answer.is_final() {
                return refused(answer);
            }
            ticket.changed().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), told).await.expect("nobody is told")
}

#[tokio::test(start_paused = true)]
async fn a_rearmed_approved_call_that_ends_is_told_unknown() {
    let (world, asked, ticket) = rearmed_and_held().await;
    let mut never = bundle();
    never.files.push(PolicyFile {
        name: "99-never.cedar".to_owned(),
        text: "@id(\"no-notes\") @approval(\"never\") @reason(\"Over.\")\nforbid (principal, action == Placet::Action::\"fake/note\", resource);\n".to_owned(),
    });
    world.activate(never).await.unwrap();
    let told = told_when_agreed(&world, &asked, ticket).await;
    assert_eq!((told.code, told.execution), (ErrorCode::OutcomeUnknown, Execution::Unknown));
    assert_eq!(world.record().await.state.name(), "indeterminate");
    assert_eq!(world.witness.effects("note").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_rearmed_call_awaiting_its_caller_is_not_called_unexecuted() {
    let (world, asked, ticket) = rearmed_and_held().await;
    let subject = world.agent().await.actor.subject().to_owned();
    let revocation = json!({"kind": "revocation", "subject": subject});
    let lasts = placet_types::directive::REVOCATION_MS_MIN;
    world.arrange("dora", revocation, lasts).await.unwrap();
    let told = told_when_agreed(&world, &asked, ticket).await;
    assert_eq!((told.code, told.execution), (ErrorCode::CredentialExpired, Execution::Unknown));
    assert_eq!(world.record().await.state.name(), "approved");
}

/// What is recorded of a call of `tool` that an approver made smaller, whose node died, and of which the next one cannot read at first
/// what was sent.
async fn taken_over_unread(tool: &'static str, probing: Probing) -> (String, Value) {
    let world = world(large_calls_of(tool)).await;
    let bundle = large_calls_of(tool);
    let next = World::with(Make { bundle, breaker_failures: 1, ..world.beside() }).await;
    *world.witness.probing.lock() = probing;
    world.witness.behave(tool, Behaviour::Slow(Duration::from_secs(3_600)));
    let asked = held(world.call(much_of(tool)).await);
    world.edit("ben", &asked, json!({ "what": "a", "most": 2 })).await.unwrap();
    world.reaches("dispatched").await;
    next.store.hide_content(true);
    world.store.fall_silent();
    tokio::time::sleep(Duration::from_secs(20)).await;
    let taken_over = next.record().await;
    assert!(taken_over.state.attempt().unwrap().adopted_by.is_some(), "{taken_over:?}");
    assert_eq!(taken_over.state.name(), "dispatched", "nothing is recorded that says too little");
    next.store.hide_content(false);
    tokio::time::sleep(Duration::from_secs(20)).await;
    let record = next.record().await;
    let kept = next.store.content(&record.scope.tenant, record.state.result().unwrap()).await;
    (record.state.name().to_owned(), serde_json::from_slice(&kept.unwrap()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_read_that_fails_for_a_moment_does_not_hide_that_other_arguments_ran() {
    let (state, result) = taken_over_unread("note", Probing::Unknown).await;
    assert_eq!(state, "indeterminate");
    assert_eq!(result["edited_args"], json!({ "what": "a", "most": 2 }));
}

#[tokio::test(start_paused = true)]
async fn what_a_tool_says_afterwards_is_kept_with_the_arguments_that_ran_once_they_can_be_read() {
    let (state, result) = taken_over_unread("book", Probing::Committed).await;
    assert_eq!((state.as_str(), &result["output"]), ("succeeded", &json!({ "found": true })));
    assert_eq!(result["edited_args"], json!({ "what": "a", "most": 2 }));
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_the_ledger_refuses_takes_no_rearm_back() {
    for fault in [StoreError::NoSpace, StoreError::Unreachable("away".to_owned())] {
        let world = world(bundle()).await;
        world.witness.behave("note", Behaviour::Unknown);
        refused(world.call(much()).await);
        world.witness.behave_well();
        world.activate(large()).await.unwrap();
        world.store.fail_once_on(AuditKind::Held, Fault::Refuse(fault));
        world.rearm("ben").await.unwrap();
        assert_eq!(world.reaches("pending_approval").await.arm, 1);
        assert_eq!(world.witness.effects("note").len(), 1);
    }
}
