//! Standing grants: approved under the same rules, for a time and a number of uses, and never more than that.

use std::sync::Arc;

use serde_json::json;

use placet_engine::answer::Answer;
use placet_ledger::audit::AuditKind;
use placet_types::{approval::VoteChoice, error::ErrorCode};

use super::{gated, of, ran, send, two_groups, world};
use crate::fake::Behaviour;
use crate::world::{Make, World, bundle, finished, held, plan, refused};

#[tokio::test]
async fn a_grant_needs_the_people_of_the_call_and_then_lets_such_calls_pass() {
    let world = world(two_groups()).await;
    let asked = held(world.call(send("s1", "report")).await);
    let proposed = world.grant("ben", &asked, 2).await.unwrap();
    assert_eq!((proposed.state.as_str(), proposed.in_force), ("proposed", false));
    held(world.call(send("s2", "report")).await);
    assert!(world.agree("ben", &proposed).await.is_err(), "not twice");
    assert!(world.agree("ana", &proposed).await.is_err(), "not who answers for the agent");
    let active = world.agree("finn", &proposed).await.unwrap();
    assert_eq!((active.state.as_str(), active.in_force), ("active", true));
    assert!(ran(&world.call(send("s3", "report")).await));
    held(world.call(send("s4", "another report")).await);
    assert!(ran(&world.call(send("s5", "report")).await));
    held(world.call(send("s6", "report")).await);
    let spent = world
        .engine
        .approvals()
        .entry(&world.person("eve").await, &active.directive_id)
        .await
        .unwrap();
    assert_eq!((spent.state.as_str(), spent.uses), ("used_up", 2));
    let named = world.store.audit().into_iter().filter(|event| {
        event.kind == AuditKind::Dispatched && event.directives.contains(&active.directive_id)
    });
    assert_eq!(named.count(), 2, "each use names the grant");
    assert_eq!(world.witness.effects("send").len(), 2);
    // What waits for people waits on.
    assert_eq!(world.seen("ben", &asked).await.approval.state, "pending");
}

#[tokio::test]
async fn a_delegate_sees_and_approves_a_grant_as_their_colleague_would() {
    let world = world(two_groups()).await;
    let asked = held(world.call(send("s1", "report")).await);
    let proposed = world.grant("ben", &asked, 2).await.unwrap();
    let leo = world.person("leo").await;
    let seen = async || world.engine.approvals().entry(&leo, &proposed.directive_id).await;
    assert_eq!(seen().await.unwrap_err().code, ErrorCode::NotFound);
    let duty = json!({"kind": "delegation", "to": "leo", "groups": ["finance"]});
    world.arrange("finn", duty, 3_600_000).await.unwrap();
    assert!(seen().await.unwrap().standing.may_agree);
    let active = world.agree("leo", &proposed).await.unwrap();
    assert!(active.in_force && seen().await.is_ok());
}

#[tokio::test]
async fn of_many_calls_at_once_no_more_pass_than_the_grant_has_uses() {
    let world = Arc::new(world(bundle()).await);
    let asked = held(world.call(plan("erase", "s0", "x")).await);
    let active = world.grant("ben", &asked, 3).await.unwrap();
    assert_eq!(active.state, "active", "one approver is enough for this call");
    let calls = (1..=12).map(|number| {
        let world = Arc::clone(&world);
        tokio::spawn(async move { world.call(plan("erase", &format!("s{number}"), "x")).await })
    });
    let mut passed = 0;
    for call in calls.collect::<Vec<_>>() {
        match call.await.unwrap() {
            Answer::Finished(_) => passed += 1,
            Answer::Held(_) => {}
            other @ (Answer::InProgress(_) | Answer::Refused(_)) => panic!("{other:?}"),
        }
    }
    assert_eq!((passed, world.witness.effects("erase").len()), (3, 3));
}

#[tokio::test]
async fn a_call_that_failed_under_the_last_use_of_a_grant_asks_people_when_it_is_tried_again() {
    for choice in [VoteChoice::Approve, VoteChoice::Deny] {
        let world = world(bundle()).await;
        let asked = held(world.call(plan("erase", "s0", "x")).await);
        world.grant("ben", &asked, 1).await.unwrap();
        world.witness.behave("erase", Behaviour::NotExecuted);
        let failed = refused(world.call(plan("erase", "s1", "x")).await);
        assert_eq!(failed.code, ErrorCode::AdapterUnavailable);
        world.witness.behave_well();
        let again = held(world.call(plan("erase", "s1", "x")).await);
        assert_ne!(again.approval_id, asked.approval_id);
        let same = held(world.call(plan("erase", "s1", "x")).await);
        assert_eq!((&same.approval_id, &same.call_id), (&again.approval_id, &again.call_id));
        world.vote("ben", &again, choice).await.unwrap();
        let end = world.end_of(&again).await;
        if choice == VoteChoice::Approve {
            assert_eq!(finished(end).tool_call_id, again.call_id);
            assert!(finished(world.call(plan("erase", "s1", "x")).await).replayed);
        } else {
            assert_eq!(refused(end).code, ErrorCode::ApprovalDenied);
        }
        let wanted = usize::from(choice == VoteChoice::Approve);
        assert_eq!(world.witness.effects("erase").len(), wanted);
    }
}

#[tokio::test]
async fn a_gate_that_asks_each_time_takes_no_grant() {
    let gate = gated(
        "send",
        "@approver_group(\"approvers\") @quorum(\"1\") @expires(\"24h\") @once_only(\"true\")",
        &format!(
            "context.req.approval.scope == Placet::ApprovalScope::\"once\" && context.req.approval.total >= 1 && {}",
            of("approvers", 1)
        ),
    );
    let world = world(gate).await;
    let asked = held(world.call(send("s1", "a")).await);
    assert!(!world.seen("ben", &asked).await.standing.grantable);
    let refusal = world.grant("ben", &asked, 5).await.unwrap_err();
    assert_eq!(refusal.code, ErrorCode::PolicyDenied);
}

#[tokio::test]
async fn an_ended_or_expired_grant_lets_nothing_pass() {
    let world = world(bundle()).await;
    let asked = held(world.call(plan("erase", "s1", "x")).await);
    let first = world.grant("ben", &asked, 100).await.unwrap();
    assert!(ran(&world.call(plan("erase", "s2", "x")).await));
    assert!(world.end("leo", &first).await.is_err(), "not anybody");
    assert_eq!(world.end("cy", &first).await.unwrap().state, "ended");
    held(world.call(plan("erase", "s3", "x")).await);
    let second = world.grant("ben", &asked, 100).await.unwrap();
    assert!(ran(&world.call(plan("erase", "s4", "x")).await));
    world.store.advance_ms(3_600_001);
    world.tell_time();
    held(world.call(plan("erase", "s5", "x")).await);
    let over = world
        .engine
        .approvals()
        .entry(&world.person("ben").await, &second.directive_id)
        .await
        .unwrap();
    assert_eq!((over.state.as_str(), over.in_force), ("expired", false));
}

#[tokio::test]
async fn a_grant_survives_a_restart_with_its_uses() {
    let world = world(bundle()).await;
    let asked = held(world.call(plan("erase", "s1", "x")).await);
    world.grant("ben", &asked, 2).await.unwrap();
    assert!(ran(&world.call(plan("erase", "s2", "x")).await));
    let next = World::over(Arc::clone(&world.store), Arc::clone(&world.witness)).await;
    assert!(ran(&next.call(plan("erase", "s3", "x")).await));
    held(next.call(plan("erase", "s4", "x")).await);
    assert_eq!(world.witness.effects("erase").len(), 2);
}

#[tokio::test]
async fn a_pattern_covers_what_it_says_and_pins_no_masked_value() {
    let world = world(bundle()).await;
    let mut call = plan("erase", "s1", "tmp/a");
    call["args"]["pin"] = json!("4711-secret");
    let asked = held(world.call(call).await);
    let digest = world.seen("ben", &asked).await.approval.digest;
    let wanted = |pattern: serde_json::Value| json!({"kind": "grant", "approval_id": asked.approval_id, "uses_max": 9, "digest": digest, "pattern": pattern});
    let elsewhere = wanted(json!({"/what": {"starts_with": "var/"}, "/pin": {"any": "value"}}));
    assert!(world.arrange("ben", elsewhere, 60_000).await.is_err(), "does not cover the call");
    let exactly =
        json!({"kind": "grant", "approval_id": asked.approval_id, "uses_max": 9, "digest": digest});
    let kept = json!({"/what": {"starts_with": "tmp/"}, "/pin": {"equals": "[sensitive]"}});
    for pins in [exactly, wanted(kept)] {
        let refused = world.arrange("ben", pins, 60_000).await.unwrap_err();
        assert!(refused.problems[0].problem.contains("`/pin`"), "{refused:?}");
    }
    let pattern = wanted(json!({"/what": {"starts_with": "tmp/"}, "/pin": {"any": "value"}}));
    let grant = world.arrange("ben", pattern, 60_000).await.unwrap();
    assert_eq!(grant.state, "proposed", "it covers more than the call");
    world.agree("cy", &grant).await.unwrap();
    let with = |step: &str, what: &str, pin: &str| {
        let mut call = plan("erase", step, what);
        call["args"]["pin"] = json!(pin);
        call
    };
    assert!(ran(&world.call(with("s2", "tmp/b", "4711-secret")).await));
    assert!(ran(&world.call(with("s3", "tmp/b", "0815")).await));
    held(world.call(with("s4", "tmp/../etc", "4711-secret")).await);
}

#[tokio::test]
async fn nobody_finds_out_a_masked_value_by_trying_patterns() {
    let world = world(bundle()).await;
    let mut call = plan("erase", "s1", "tmp/a");
    call["args"]["pin"] = json!("4711-secret");
    call["args"]["codes"] = json!(["one", "two"]);
    let asked = held(world.call(call).await);
    let digest = world.seen("ben", &asked).await.approval.digest;
    let asks = async |rules: serde_json::Value, lasts_ms: u64| {
        let wanted = json!({"kind": "grant", "approval_id": asked.approval_id, "uses_max": 9, "digest": digest, "pattern": rules});
        world.arrange("ben", wanted, lasts_ms).await
    };
    let with = |place: &str, rule: serde_json::Value| {
        let mut rules = json!({"/what": {"any": "value"}, "/pin": {"any": "value"}, "/codes": {"any": "value"}});
        rules[place] = rule;
        rules
    };
    // One that is right and one that is wrong are answered alike, also by a form that could not be entered.
    for (place, right, wrong) in [
        ("/pin", json!({"starts_with": "4711"}), json!({"starts_with": "0"})),
        ("/pin", json!({"equals": "4711-secret"}), json!({"equals": "0"})),
        ("/pin", json!({"one_of": ["4711-secret", "0"]}), json!({"one_of": ["0"]})),
        ("/codes/0", json!({"equals": "one"}), json!({"equals": "two"})),
        ("/codes", json!({"equals": ["one", "two"]}), json!({"equals": ["one"]})),
        ("/pin", json!({"equals": "[sensitive]"}), json!({"equals": "none"})),
    ] {
        for lasts_ms in [60_000, 1] {
            let (right, wrong) = (with(place, right.clone()), with(place, wrong.clone()));
            let right = asks(right, lasts_ms).await.unwrap_err();
            let wrong = asks(wrong, lasts_ms).await.unwrap_err();
            assert_eq!((&right.message, &right.problems), (&wrong.message, &wrong.problems));
            let at = if lasts_ms == 1 { "/lasts_ms" } else { "/arrange/pattern" };
            assert_eq!(right.problems[0].pointer, at, "{right:?}");
        }
    }
    // Nor does the form tell whether the rest of a pattern covers the call.
    for what in ["tmp/", "var/"] {
        let refused = asks(with("/what", json!({"starts_with": what})), 1).await.unwrap_err();
        assert_eq!(refused.problems[0].pointer, "/lasts_ms");
    }
    let anything = with("/pin", json!({"any": "value"}));
    assert_eq!(asks(anything, 60_000).await.unwrap().state, "proposed");
}

#[tokio::test]
async fn anyone_who_has_a_grant_cover_more_than_the_call_does_not_agree_to_it() {
    let world = world(bundle()).await;
    for (person, to) in [("cy", "finn"), ("ben", "leo")] {
        let handed = json!({ "kind": "delegation", "to": to, "groups": ["approvers"] });
        world.arrange(person, handed, 3_600_000).await.unwrap();
    }
    let asked = held(world.call(plan("erase", "s1", "tmp/a")).await);
    let wide = async |person: &str| {
        let digest = world.seen(person, &asked).await.approval.digest;
        let pattern = json!({ "/what": { "starts_with": "tmp/" } });
        let wanted = json!({ "kind": "grant", "approval_id": asked.approval_id, "uses_max": 9, "digest": digest, "pattern": pattern });
        world.arrange(person, wanted, 60_000).await.unwrap()
    };
    let proposed = wide("ben").await;
    assert_eq!((proposed.state.as_str(), proposed.votes.len()), ("proposed", 0));
    assert!(!proposed.standing.may_agree && proposed.standing.may_end, "{:?}", proposed.standing);
    held(world.call(plan("erase", "s2", "tmp/b")).await);
    // Neither anyone who proposed it nor anyone who stands for them.
    for person in ["ben", "leo"] {
        assert!(world.agree(person, &proposed).await.is_err(), "{person}");
    }
    assert_eq!(world.agree("cy", &proposed).await.unwrap().state, "active");
    assert!(ran(&world.call(plan("erase", "s3", "tmp/b")).await));
    // Proposed for a colleague, it is the colleague's as well.
    let proposed = wide("finn").await;
    assert!(world.agree("cy", &proposed).await.is_err());
    assert_eq!(world.agree("ben", &proposed).await.unwrap().state, "active");
    // For the very call alone they agree by proposing it, as before.
    assert_eq!(world.grant("ben", &asked, 1).await.unwrap().state, "active");
}

#[tokio::test]
async fn a_grant_that_cannot_be_read_for_a_moment_does_not_make_an_outcome_unknown() {
    let world = Arc::new(world(two_groups()).await);
    let asked = held(world.call(send("s1", "x")).await);
    let grant = world.grant("ben", &asked, 2).await.unwrap();
    world.agree("finn", &grant).await.unwrap();
    world.witness.behave("send", Behaviour::Flaky(1));
    world.store.hide_entries(true);
    let call = tokio::spawn({
        let world = Arc::clone(&world);
        async move { world.call(send("s2", "x")).await }
    });
    world.sent("send", 1).await;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert!(!call.is_finished(), "it is neither refused nor put before people");
    world.store.hide_entries(false);
    let done = finished(call.await.unwrap());
    assert_eq!(world.witness.effects("send").len(), 2, "{done:?}");
    let used = world
        .engine
        .approvals()
        .entry(&world.person("ben").await, &grant.directive_id)
        .await
        .unwrap();
    assert_eq!(used.uses, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_enters_more_than_they_may_have_by_asking_at_once() {
    let world = Arc::new(world(bundle()).await);
    let duty = json!({ "kind": "delegation", "to": "leo", "groups": ["approvers"] });
    let asking = (0..60).map(|_| {
        let (world, duty) = (Arc::clone(&world), duty.clone());
        tokio::spawn(async move { world.arrange("ben", duty, 3_600_000).await.is_ok() })
    });
    let mut entered = 0;
    for asked in asking.collect::<Vec<_>>() {
        entered += usize::from(asked.await.unwrap());
    }
    assert_eq!(entered, 20);
}

#[tokio::test]
async fn a_call_for_somebody_else_is_not_covered() {
    let world = world(bundle()).await;
    let asked = held(world.call(plan("erase", "s1", "x")).await);
    world.grant("ben", &asked, 9).await.unwrap();
    held(world.call_as(world.agent_for("leo").await, plan("erase", "s2", "x")).await);
}

#[tokio::test]
async fn a_keyed_call_that_is_sent_again_is_one_use() {
    let world = world(two_groups()).await;
    let asked = held(world.call(send("s1", "x")).await);
    let grant = world.grant("ben", &asked, 1).await.unwrap();
    world.agree("finn", &grant).await.unwrap();
    world.witness.behave("send", crate::fake::Behaviour::Flaky(1));
    finished(world.call(send("s2", "x")).await);
    let spent = world
        .engine
        .approvals()
        .entry(&world.person("ben").await, &grant.directive_id)
        .await
        .unwrap();
    assert_eq!(spent.uses, 1);
}

#[tokio::test]
async fn a_freeze_overrides_a_grant() {
    let world = World::with(Make::default()).await;
    let asked = held(world.call(plan("erase", "s1", "x")).await);
    world.grant("ben", &asked, 9).await.unwrap();
    let freeze = json!({"kind": "freeze", "name": "end of the quarter"});
    let freeze = world.arrange("dora", freeze, 3_600_000).await.unwrap();
    assert!(freeze.in_force);
    let held_now = held(world.call(plan("erase", "s2", "x")).await);
    let wanted: Vec<_> = held_now.requirement.groups.keys().map(ToString::to_string).collect();
    assert_eq!(wanted, ["approvers", "freeze-approvers"]);
    // Not even what no gate asks about passes by itself.
    let note = held(world.call(plan("note", "s3", "x")).await);
    assert_eq!(world.vote("fay", &note, VoteChoice::Approve).await.unwrap(), "approved");
    finished(world.end_of(&note).await);
    assert!(world.end("dora", &freeze).await.is_err(), "who sets it does not lift it");
    assert_eq!(world.end("fay", &freeze).await.unwrap().state, "ended");
    assert!(ran(&world.call(plan("erase", "s4", "x")).await));
}
