//! Unknown outcomes: late answers, repeated keyed calls, probes, and operators who have a call sent again.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use serde_json::json;

use placet_approvals::views::{ApprovalEventKind, InboxQuery};
use placet_engine::{settings::LedgerSettings, views::RearmRequest};
use placet_ledger::{
    audit::AuditKind,
    record::{EffectState, Resolution},
    store::{EffectQuery, Store},
    testing::Fault,
};
use placet_policy::bundle::PolicyFile;
use placet_types::{
    approval::VoteChoice,
    error::{ErrorCode, Execution},
};

use crate::fake::{Behaviour, Probing};
use crate::world::{Make, World, bundle, finished, held, plan, quick, refused, unhurried};

fn hasty(tool: &str) -> serde_json::Value {
    let mut call = plan(tool, "s1", "a");
    call["run"]["run_budget"] = json!({"tool_latency_ms_max": 200});
    call
}

#[tokio::test]
async fn an_answer_that_comes_late_settles_the_call_after_all() {
    let world = World::new().await;
    world.witness.behave("note", Behaviour::Slow(Duration::from_millis(2_000)));
    let refusal = refused(world.call(hasty("note")).await);
    assert_eq!(refusal.code, ErrorCode::OutcomeUnknown);
    let record = world.reaches("succeeded").await;
    let EffectState::Succeeded { resolved_by, .. } = &record.state else { panic!("{record:?}") };
    assert_eq!(*resolved_by, Some(Resolution::LateAnswer { attempt: 1 }));
    let again = finished(world.call(hasty("note")).await);
    assert!(again.replayed);
    assert_eq!(again.output["did"], "note");
    let told = world.engine.call(&world.agent().await, &record.call_id).await.unwrap();
    assert_eq!(finished(told).output, again.output);
    assert_eq!(world.witness.effects("note").len(), 1);
}

#[tokio::test]
async fn a_late_answer_that_nothing_was_sent_is_final_and_says_what_to_do() {
    let world = World::new().await;
    world.witness.behave("note", Behaviour::NothingAfter(Duration::from_millis(2_000)));
    assert_eq!(refused(world.call(hasty("note")).await).code, ErrorCode::OutcomeUnknown);
    world.reaches("failed_final").await;
    world.witness.behave_well();
    // It is not sent again under this key, so nobody is told to repeat it.
    let again = refused(world.call(hasty("note")).await);
    assert_eq!(again.code, ErrorCode::AdapterFailed);
    assert_eq!(again.execution, Execution::NotExecuted);
    assert!(!again.code.retryable() && again.message.contains("with a new key"), "{again:?}");
    assert!(world.witness.effects("note").is_empty());
}

/// Those who wait for the call are told how it ended, and are not left to ask again and again.
#[tokio::test]
async fn a_late_answer_reaches_those_who_wait_for_a_re_armed_call() {
    let ledger = LedgerSettings { rearm_people: 1, ..quick() };
    let world = World::with(Make { ledger, ..Make::default() }).await;
    world.witness.behave("note", Behaviour::Slow(Duration::from_millis(2_000)));
    refused(world.call(hasty("note")).await);
    let lockdown = world.lock_down().await;
    world.rearm("ben").await.unwrap();
    let record = world.reaches("rearmed").await;
    let agent = Arc::new(world.agent().await);
    let mut ticket = world.engine.follow(&agent, &record.call_id).await.unwrap();
    let told = tokio::time::timeout(Duration::from_secs(10), async {
        loop {
            let answer = ticket.changed().await;
            if answer.is_final() {
                break answer;
            }
        }
    });
    assert_eq!(finished(told.await.unwrap()).output["did"], "note");
    world.lift(&lockdown).await;
    assert_eq!(world.witness.effects("note").len(), 1);
}

#[tokio::test]
async fn a_late_refusal_that_says_to_repeat_the_call_is_final_and_does_not_say_so() {
    let world = World::new().await;
    world.witness.behave("note", Behaviour::BusyAfter(Duration::from_millis(2_000)));
    assert_eq!(refused(world.call(hasty("note")).await).code, ErrorCode::OutcomeUnknown);
    world.reaches("failed_final").await;
    world.witness.behave_well();
    let again = refused(world.call(hasty("note")).await);
    assert!(!again.code.retryable() && again.message.contains("with a new key"), "{again:?}");
}

#[tokio::test]
async fn a_late_answer_changes_nothing_when_an_operator_was_faster() {
    let world = World::new().await;
    world.witness.behave("note", Behaviour::Slow(Duration::from_millis(2_000)));
    refused(world.call(hasty("note")).await);
    let record = world.reaches("indeterminate").await;
    let request = json!({"outcome": "happened", "evidence": "seen", "output": {"by": "hand"}});
    let ben = world.person("ben").await;
    let request = serde_json::from_value(request).unwrap();
    world.engine.resolve(&ben, record.record_id, request).await.unwrap();
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert_eq!(world.witness.effects("note").len(), 1, "the answer has come meanwhile");
    assert_eq!(finished(world.call(hasty("note")).await).output["by"], "hand");
}

#[tokio::test]
async fn a_keyed_call_without_an_answer_is_sent_again_with_the_same_token() {
    let world = World::new().await;
    world.witness.behave("send", Behaviour::Flaky(1));
    let result = finished(world.call(plan("send", "s1", "a")).await);
    assert_eq!(result.retries, 1);
    let tokens = world.witness.effects("send");
    assert_eq!(tokens.len(), 2);
    assert_eq!(tokens[0], tokens[1]);
    assert_eq!(world.record().await.attempts, 2);
}

#[tokio::test]
async fn a_keyed_call_is_sent_again_a_few_times_only() {
    let world = World::new().await;
    world.witness.behave("send", Behaviour::Unknown);
    assert_eq!(refused(world.call(plan("send", "s1", "a")).await).code, ErrorCode::OutcomeUnknown);
    assert_eq!(world.witness.effects("send").len(), 3);
}

#[tokio::test]
async fn an_opaque_call_without_an_answer_is_not_sent_again() {
    let world = World::new().await;
    world.witness.behave("note", Behaviour::Flaky(1));
    assert_eq!(refused(world.call(plan("note", "s1", "a")).await).code, ErrorCode::OutcomeUnknown);
    assert_eq!(world.witness.effects("note").len(), 1);
}

#[tokio::test]
async fn what_a_probe_finds_out_later_ends_the_unknown() {
    let world = World::new().await;
    *world.witness.probing.lock() = Probing::Committed;
    world.witness.behave("book", Behaviour::Unknown);
    refused(world.call(plan("book", "s1", "a")).await);
    let record = world.reaches("succeeded").await;
    let EffectState::Succeeded { resolved_by, .. } = &record.state else { panic!("{record:?}") };
    assert_eq!(*resolved_by, Some(Resolution::Probe { attempt: 1 }));
    let again = finished(world.call(plan("book", "s1", "a")).await);
    assert_eq!(again.output["found"], true);
    assert_eq!(world.witness.effects("book").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn not_found_counts_only_once_the_attempts_time_is_over() {
    let world = World::with(Make { ledger: unhurried(), ..Make::default() }).await;
    *world.witness.probing.lock() = Probing::NotFound;
    world.witness.behave("book", Behaviour::Unknown);
    refused(world.call(plan("book", "s1", "a")).await);
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!(world.record().await.state.name(), "indeterminate");
    world.store.advance_ms(24 * 3_600_000);
    tokio::time::sleep(Duration::from_secs(2 * 3_600)).await;
    let record = world.record().await;
    assert_eq!(record.state.name(), "failed_final", "asked again, and now it counts");
    let refusal = refused(world.call(plan("book", "s1", "a")).await);
    assert_eq!(refusal.execution, Execution::NotExecuted);
}

#[tokio::test(start_paused = true)]
async fn a_target_that_hangs_keeps_only_its_own_calls_waiting() {
    const CALLS: usize = 30;
    let ledger = LedgerSettings { ask_every_ms: 60_000, ..quick() };
    let world = World::with(Make { also: Some("slow"), ledger, ..Make::default() }).await;
    *world.witness.probing.lock() = Probing::Committed;
    *world.witness.mute.lock() = Some("slow");
    world.witness.behave("book", Behaviour::Unknown);
    for step in 0..CALLS {
        for adapter in ["slow", "fake"] {
            let mut call = plan("book", &format!("{adapter}{step}"), "a");
            call["tool"] = json!(format!("{adapter}__book"));
            refused(world.call(call).await);
        }
    }
    // One question to a target that hangs takes half a minute. All of them, a few at a time, would be over by then.
    tokio::time::sleep(Duration::from_secs(330)).await;
    let query = EffectQuery { limit: 1_000, ..EffectQuery::default() };
    for record in world.store.effects(&query).await.unwrap() {
        let known = record.scope.capability.adapter().as_str() == "fake";
        assert_eq!(record.state.name(), if known { "succeeded" } else { "indeterminate" });
    }
    let asked = world.witness.asked_without_success.load(Ordering::SeqCst);
    assert!((1..=20).contains(&asked), "{asked}: it is left alone until the next round");
}

#[tokio::test]
async fn a_call_is_sent_again_when_two_operators_agree_and_not_before() {
    let world = World::new().await;
    world.witness.behave("note", Behaviour::Unknown);
    refused(world.call(plan("note", "s1", "a")).await);
    world.witness.behave_well();
    let first = world.rearm("ben").await.unwrap();
    assert_eq!((first.state.as_str(), first.arm), ("indeterminate", 0));
    assert_eq!(first.rearm.unwrap().by, "ben");
    let twice = world.rearm("ben").await.unwrap_err();
    assert_eq!(twice.code, ErrorCode::ValidationError);
    assert_eq!(world.rearm("cy").await.unwrap_err().code, ErrorCode::PolicyDenied);
    assert_eq!(world.witness.effects("note").len(), 1);
    world.rearm("dora").await.unwrap();
    let record = world.reaches("succeeded").await;
    assert_eq!((record.arm, record.attempts), (1, 2));
    let tokens = world.witness.effects("note");
    assert_eq!(tokens.len(), 2);
    assert_ne!(tokens[0], tokens[1], "the second arm has a token of its own");
    assert!(finished(world.call(plan("note", "s1", "a")).await).replayed);
    assert_eq!(world.rearm("dora").await.unwrap_err().code, ErrorCode::ValidationError);
}

#[tokio::test]
async fn one_operator_is_enough_where_the_deployment_says_so() {
    let ledger = LedgerSettings { rearm_people: 1, ..quick() };
    let world = World::with(Make { ledger, ..Make::default() }).await;
    world.witness.behave("note", Behaviour::Unknown);
    refused(world.call(plan("note", "s1", "a")).await);
    world.witness.behave_well();
    world.rearm("ben").await.unwrap();
    world.reaches("succeeded").await;
}

#[tokio::test]
async fn a_call_that_is_sent_again_needs_its_people_again_and_their_no_leaves_it_unknown() {
    let world = World::new().await;
    world.witness.behave("erase", Behaviour::Unknown);
    let asked = held(world.call(plan("erase", "s1", "a")).await);
    world.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    assert_eq!(refused(world.end_of(&asked).await).code, ErrorCode::OutcomeUnknown);
    world.witness.behave_well();
    world.rearm("ben").await.unwrap();
    world.rearm("dora").await.unwrap();
    world.reaches("pending_approval").await;
    let again = held(world.call(plan("erase", "s1", "a")).await);
    assert_ne!(again.approval_id, asked.approval_id);
    assert_eq!(again.call_id, asked.call_id);
    // Its people know that it may take effect twice, and who wants that; what was sent is not called failed.
    let before = world.seen("ben", &again).await.proposal.unwrap().evidence.sent_before.unwrap();
    let operators: Vec<&str> = before.operators.iter().map(|one| one.operator.as_str()).collect();
    assert_eq!(operators, ["ben", "dora"]);
    assert_eq!(world.seen("ben", &asked).await.approval.state, "unknown");
    world.vote("ben", &again, VoteChoice::Deny).await.unwrap();
    let refusal = refused(world.end_of(&again).await);
    assert_eq!((refusal.code, refusal.execution), (ErrorCode::OutcomeUnknown, Execution::Unknown));
    assert_eq!(world.reaches("indeterminate").await.arm, 1);
    assert_eq!(world.witness.effects("erase").len(), 1);
}

#[tokio::test]
async fn a_call_that_is_sent_again_runs_once_when_its_people_agree() {
    let world = World::new().await;
    world.witness.behave("erase", Behaviour::Unknown);
    let asked = held(world.call(plan("erase", "s1", "a")).await);
    world.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    refused(world.end_of(&asked).await);
    world.witness.behave_well();
    world.rearm("ben").await.unwrap();
    world.rearm("dora").await.unwrap();
    world.reaches("pending_approval").await;
    let again = held(world.call(plan("erase", "s1", "a")).await);
    world.vote("ben", &again, VoteChoice::Approve).await.unwrap();
    finished(world.end_of(&again).await);
    assert_eq!(world.witness.effects("erase").len(), 2);
}

#[tokio::test]
async fn a_re_armed_call_that_policy_refuses_is_unknown_as_before() {
    let world = World::new().await;
    world.witness.behave("note", Behaviour::Unknown);
    refused(world.call(plan("note", "s1", "a")).await);
    let mut source = bundle();
    source.files.push(PolicyFile {
        name: "99-never.cedar".to_owned(),
        text: "@id(\"no-notes\") @approval(\"never\") @reason(\"Over.\")\nforbid (principal, action == Placet::Action::\"fake/note\", resource);\n".to_owned(),
    });
    world.activate(source).await.unwrap();
    world.rearm("ben").await.unwrap();
    world.rearm("dora").await.unwrap();
    let record = world.reaches("indeterminate").await;
    assert_eq!(record.arm, 1);
    let refusal = refused(world.engine.call(&world.agent().await, &record.call_id).await.unwrap());
    assert_eq!(refusal.code, ErrorCode::OutcomeUnknown);
    assert_eq!(world.witness.effects("note").len(), 1);
}

#[tokio::test]
async fn a_re_armed_call_that_cannot_be_sent_waits_and_is_never_called_unexecuted() {
    let world = World::new().await;
    world.witness.behave("note", Behaviour::Unknown);
    refused(world.call(plan("note", "s1", "a")).await);
    world.witness.behave_well();
    let lockdown = world.lock_down().await;
    world.rearm("ben").await.unwrap();
    world.rearm("dora").await.unwrap();
    let refusal = refused(world.call(plan("note", "s1", "a")).await);
    assert_eq!(refusal.execution, Execution::Unknown, "{refusal:?}");
    assert_eq!(world.record().await.state.name(), "rearmed");
    world.lift(&lockdown).await;
    let retries =
        futures::future::join_all((0..8).map(|_| world.call(plan("note", "s1", "a")))).await;
    for retry in retries {
        finished(retry);
    }
    world.reaches("succeeded").await;
    assert_eq!(world.witness.effects("note").len(), 2, "one for each arm");
}

#[tokio::test]
async fn a_re_armed_call_is_sent_by_the_next_process_when_this_one_ends() {
    let world = World::new().await;
    world.witness.behave("note", Behaviour::Unknown);
    refused(world.call(plan("note", "s1", "a")).await);
    // This process comes no further than to a session for it.
    world.witness.begin_slowly(Duration::from_secs(3_600));
    world.rearm("ben").await.unwrap();
    world.rearm("dora").await.unwrap();
    let next = World::over(Arc::clone(&world.store), Arc::default()).await;
    next.reaches("succeeded").await;
    assert_eq!(world.witness.effects("note").len(), 1);
    assert_eq!(next.witness.effects("note").len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_was_paused_past_the_deadline_does_not_begin_the_effect() {
    let world = World::new().await;
    let pause = Fault::Stall(Duration::from_millis(600));
    world.store.fail_once_on(AuditKind::Dispatched, pause);
    let refusal = refused(world.call(hasty("note")).await);
    assert_eq!(refusal.execution, Execution::NotExecuted);
    assert!(world.witness.effects("note").is_empty());
    assert_eq!(world.record().await.state.name(), "failed_retriable");
    finished(world.call(plan_in_same_run()).await);
    assert_eq!(world.witness.effects("note").len(), 1);
}

/// The run's budget is fixed by its first call.
fn plan_in_same_run() -> serde_json::Value {
    hasty("note")
}

#[tokio::test]
async fn a_late_answer_of_the_first_arm_counts_when_the_second_ends_unknown() {
    let ledger = LedgerSettings { rearm_people: 1, ..quick() };
    let world = World::with(Make { ledger, ..Make::default() }).await;
    let mut call = plan("note", "s1", "a");
    call["run"]["run_budget"] = json!({"tool_latency_ms_max": 1_000});
    world.witness.behave("note", Behaviour::Slow(Duration::from_millis(1_700)));
    refused(world.call(call.clone()).await);
    world.witness.behave("note", Behaviour::Slow(Duration::from_secs(3_600)));
    world.rearm("ben").await.unwrap();
    let second = world.reaches("dispatched").await;
    assert_eq!(second.state.attempt().unwrap().number, 2);
    let record = world.reaches("succeeded").await;
    let EffectState::Succeeded { resolved_by, .. } = &record.state else { panic!("{record:?}") };
    assert_eq!(*resolved_by, Some(Resolution::LateAnswer { attempt: 1 }));
    assert!(record.updated_at >= second.updated_at && record.rev > second.rev.saturating_add(1));
    assert!(finished(world.call(call).await).replayed);
    assert_eq!(world.witness.effects("note").len(), 1);
}

#[tokio::test]
async fn people_are_not_asked_any_more_once_it_comes_to_light_how_the_call_ended() {
    let ledger = LedgerSettings { rearm_people: 1, ..quick() };
    let world = World::with(Make { ledger, ..Make::default() }).await;
    let mut call = plan("erase", "s1", "a");
    call["run"]["run_budget"] = json!({"tool_latency_ms_max": 200});
    world.witness.behave("erase", Behaviour::Slow(Duration::from_millis(3_000)));
    let first = held(world.call(call.clone()).await);
    world.vote("ben", &first, VoteChoice::Approve).await.unwrap();
    assert_eq!(refused(world.end_of(&first).await).code, ErrorCode::OutcomeUnknown);
    world.rearm("ben").await.unwrap();
    world.reaches("pending_approval").await;
    let again = held(world.call(call.clone()).await);
    assert_ne!(again.approval_id, first.approval_id);
    let waiting = async || {
        world
            .engine
            .approvals()
            .inbox(&world.person("ben").await, InboxQuery::default())
            .await
            .unwrap()
            .total
            .unwrap()
    };
    assert_eq!(waiting().await, 1);
    let mut news = world.engine.approvals().listen(&world.person("ben").await);
    world.reaches("succeeded").await;
    let next = tokio::time::timeout(Duration::from_secs(5), news.next()).await.unwrap().unwrap();
    assert_eq!(
        (next.kind, next.approval_id),
        (ApprovalEventKind::Void, Some(again.approval_id.clone()))
    );
    assert_eq!(waiting().await, 0);
    let ended = world.store.approval(&again.approval_id).await.unwrap().unwrap();
    assert_eq!(ended.state.name(), "void");
    let late = world.vote("ben", &again, VoteChoice::Approve).await;
    assert!(late.is_err(), "{late:?}");
    assert!(finished(world.call(call).await).replayed);
    assert_eq!(world.witness.effects("erase").len(), 1);
}

#[tokio::test]
async fn a_result_that_was_altered_is_not_given_again() {
    let world = World::new().await;
    finished(world.call(plan("note", "s1", "a")).await);
    let record = world.record().await;
    let digest = record.state.result().unwrap();
    world.store.tamper(&record.scope.tenant, digest, b"{}".to_vec());
    let refusal = refused(world.call(plan("note", "s1", "a")).await);
    assert_eq!(
        (refusal.code, refusal.execution),
        (ErrorCode::LedgerUnavailable, Execution::Unknown)
    );
    let text = world.engine.metrics().encode();
    assert!(text.contains("placet_replays_checked_total{what=\"mismatch\"} 1"), "{text}");
    assert_eq!(world.witness.effects("note").len(), 1);
}

#[tokio::test]
async fn every_replay_is_compared_with_what_is_recorded() {
    let world = World::new().await;
    world.witness.behave("note", Behaviour::Slow(Duration::from_millis(100)));
    futures::future::join_all((0..5).map(|_| world.call(plan("note", "s1", "a")))).await;
    for _ in 0..3 {
        finished(world.call(plan("note", "s1", "a")).await);
    }
    let text = world.engine.metrics().encode();
    assert!(text.contains("placet_replays_checked_total{what=\"identical\"} 7"), "{text}");
    assert!(text.contains("placet_replays_checked_total{what=\"mismatch\"} 0"), "{text}");
}

#[tokio::test]
async fn a_re_arm_waits_until_a_node_that_was_taken_over_from_can_no_longer_send() {
    let world = World::new().await;
    let next = world.node().await;
    world.witness.behave("note", Behaviour::Slow(Duration::from_secs(3_600)));
    drop(world.send(plan("note", "s1", "a")).await);
    world.reaches("dispatched").await;
    world.store.fall_silent();
    let record = next.reaches("indeterminate").await;
    assert_eq!(next.rearm("ben").await.unwrap_err().code, ErrorCode::ValidationError);
    let deadline = record.state.attempt().unwrap().deadline_at;
    next.store.advance_ms(deadline.since_ms(next.now()));
    next.rearm("ben").await.unwrap();
    assert!(next.store.effect(record.record_id).await.unwrap().is_some());
    world.witness.refuses_connections.store(false, Ordering::SeqCst);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_while_the_ledger_is_away_settles_the_call_later() {
    // Before the outcome was called unknown, and after.
    for away_after_ms in [100, 800] {
        let world = World::new().await;
        world.witness.behave("note", Behaviour::Slow(Duration::from_secs(2)));
        let mut call = world.send(hasty("note")).await;
        tokio::time::sleep(Duration::from_millis(away_after_ms)).await;
        world.store.cut_off(true);
        assert_eq!(refused(call.settled(0).await).execution, Execution::Unknown);
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!(world.witness.effects("note").len(), 1, "it has answered meanwhile");
        world.store.cut_off(false);
        let record = world.reaches("succeeded").await;
        let EffectState::Succeeded { resolved_by, .. } = &record.state else {
            panic!("{record:?}")
        };
        assert_eq!(*resolved_by, Some(Resolution::LateAnswer { attempt: 1 }), "{away_after_ms}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_rearmed_call_is_tried_however_many_cannot_be_sent() {
    const CALLS: usize = 101;
    let ledger = LedgerSettings { rearm_people: 1, ..quick() };
    let world = World::with(Make { ledger, ..Make::default() }).await;
    world.witness.behave("note", Behaviour::Unknown);
    for step in 0..CALLS {
        refused(world.call(plan("note", &format!("s{step}"), "a")).await);
    }
    world.lock_down().await;
    let query = EffectQuery { limit: 1_000, ..EffectQuery::default() };
    let records = world.store.effects(&query).await.unwrap();
    assert_eq!(records.len(), CALLS);
    let ben = world.person("ben").await;
    for record in &records {
        let request = RearmRequest { evidence: "not in the target".to_owned() };
        world.engine.rearm(&ben, record.record_id, request).await.unwrap();
    }
    let tried_before = world.store.audit().len();
    tokio::time::sleep(Duration::from_secs(20)).await;
    let audit = world.store.audit();
    for record in &records {
        let tried = audit.iter().skip(tried_before).filter(|event| {
            event.kind == AuditKind::Refused && event.call_id.as_ref() == Some(&record.call_id)
        });
        assert!(tried.count() > 0, "{} is never tried", record.record_id);
    }
}
