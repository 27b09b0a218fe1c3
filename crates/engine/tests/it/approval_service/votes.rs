//! Decisions: who counts, how often, for whom, and until when.

use std::sync::{Arc, atomic::Ordering};

use serde_json::json;

use placet_approvals::views::{BulkDecisionRequest, BulkItem, DecisionRequest};
use placet_engine::answer::Held;
use placet_types::{approval::VoteChoice, error::ErrorCode};

use super::{gated, of, send, silent, two_groups, world};
use crate::world::{World, bundle, finished, held, plan, refused};

#[tokio::test]
async fn each_group_must_agree_with_distinct_people() {
    let world = world(two_groups()).await;
    let asked = held(world.call(send("s1", "a")).await);
    assert!(!world.seen("ben", &asked).await.standing.completes, "finance is missing");
    assert_eq!(world.vote("ben", &asked, VoteChoice::Approve).await.unwrap(), "pending");
    assert_eq!(world.vote("cy", &asked, VoteChoice::Approve).await.unwrap(), "pending");
    let standing = world.seen("finn", &asked).await.standing;
    assert!(standing.may_approve && standing.completes, "{standing:?}");
    let agreed: Vec<_> =
        standing.progress.iter().map(|of| (of.group.to_string(), of.agreed, of.wanted)).collect();
    assert_eq!(agreed, [("approvers".to_owned(), 2, 1), ("finance".to_owned(), 0, 1)]);
    assert!(world.witness.effects("send").is_empty());
    assert_eq!(world.vote("finn", &asked, VoteChoice::Approve).await.unwrap(), "approved");
    finished(world.end_of(&asked).await);
    assert_eq!(world.witness.effects("send").len(), 1);
}

#[tokio::test]
async fn who_cannot_decide_is_told_why_in_words() {
    let world = world(two_groups()).await;
    let asked = held(world.call_as(world.agent_for("cy").await, send("s1", "a")).await);
    let why = async |person: &str| {
        let standing = world.seen(person, &asked).await.standing;
        assert!(!standing.may_approve, "{person}");
        standing.why_not.unwrap()
    };
    assert!(why("ana").await.contains("you own the agent"));
    assert!(why("cy").await.contains("made for you"));
    assert!(why("eve").await.contains("none of the groups that are asked: approvers, finance"));
    world.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    assert!(why("ben").await.contains("have decided"));
    let twice = world.vote("ben", &asked, VoteChoice::Deny).await.unwrap_err();
    assert!(twice.message.contains("decided on this approval already"), "{twice:?}");
    world.vote("finn", &asked, VoteChoice::Approve).await.unwrap();
    world.stands(&asked, "succeeded").await;
    assert!(why("fia").await.contains("used for its call already"));
    let late = world.vote("fia", &asked, VoteChoice::Approve).await.unwrap_err();
    assert!(late.message.contains("changes nothing"), "{late:?}");
}

#[tokio::test]
async fn an_approval_ends_when_enough_people_say_no() {
    let world = world(two_groups()).await;
    let asked = held(world.call(send("s1", "a")).await);
    assert_eq!(world.vote("ben", &asked, VoteChoice::Deny).await.unwrap(), "pending");
    assert_eq!(world.vote("finn", &asked, VoteChoice::Deny).await.unwrap(), "denied");
    assert_eq!(refused(world.end_of(&asked).await).code, ErrorCode::ApprovalDenied);
    assert!(world.witness.effects("send").is_empty());
}

#[tokio::test]
async fn a_policy_for_which_enough_have_denied_asks_nobody_again() {
    let world = world(two_groups()).await;
    let asked = held(world.call(send("s1", "a")).await);
    assert_eq!(world.vote("cy", &asked, VoteChoice::Deny).await.unwrap(), "pending");
    world.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    let stricter = gated(
        "send",
        "@approver_group(\"approvers, finance\") @quorum(\"3\") @deny_threshold(\"1\") @expires(\"24h\")",
        &format!("context.req.approval.total >= 3 && {}", of("finance", 1)),
    );
    world.activate(stricter).await.unwrap();
    world.vote("finn", &asked, VoteChoice::Approve).await.unwrap();
    assert_eq!(refused(world.end_of(&asked).await).code, ErrorCode::ApprovalVoid);
    assert!(world.witness.effects("send").is_empty());
}

#[tokio::test]
async fn after_a_while_of_silence_the_next_group_is_asked_and_stands_in() {
    let world = world(silent()).await;
    let asked = held(world.call(send("s1", "a")).await);
    let next = world.seen("finn", &asked).await.standing.next_escalation.unwrap();
    assert_eq!(
        (next.group.to_string().as_str(), next.at.since_ms(world.now())),
        ("directors", 7_200_000)
    );
    let dan = world.person("dan").await;
    assert!(
        world.engine.approvals().approval(&dan, &asked.approval_id).await.is_err(),
        "not asked yet"
    );
    world.store.advance_ms(7_200_001);
    for _ in 0..400 {
        if world.seen("eve", &asked).await.approval.escalated == 1 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let standing = world.seen("dan", &asked).await.standing;
    assert!(standing.may_approve && standing.completes, "{standing:?}");
    assert_eq!(world.vote("dan", &asked, VoteChoice::Approve).await.unwrap(), "approved");
    finished(world.end_of(&asked).await);
    assert_eq!(world.witness.effects("send").len(), 1);
}

#[tokio::test]
async fn an_escalation_that_fell_due_while_nobody_ran_is_made_by_the_next_process() {
    let world = world(silent()).await;
    let asked = held(world.call(send("s1", "a")).await);
    world.store.advance_ms(7_200_001);
    let next = World::with(crate::world::Make {
        store: Arc::new(world.store.restarted()),
        witness: Arc::clone(&world.witness),
        bundle: silent(),
        ..crate::world::Make::default()
    })
    .await;
    for _ in 0..400 {
        if next.seen("eve", &asked).await.approval.escalated == 1 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    next.vote("dan", &asked, VoteChoice::Approve).await.unwrap();
    finished(next.end_of(&asked).await);
    assert_eq!(world.witness.effects("send").len(), 1);
}

#[tokio::test]
async fn an_old_sign_in_has_to_be_renewed_before_it_agrees() {
    let gate = super::gated(
        "send",
        "@approver_group(\"approvers\") @quorum(\"1\") @expires(\"24h\") @fresh_auth(\"15m\")",
        &format!("context.req.approval.total >= 1 && {}", super::of("approvers", 1)),
    );
    let world = world(gate).await;
    let asked = held(world.call(send("s1", "a")).await);
    world.store.advance_ms(20 * 60_000);
    let standing = world.seen("ben", &asked).await.standing;
    assert!(standing.needs_fresh_auth && !standing.may_approve, "{standing:?}");
    assert!(standing.may_deny, "a no needs no proof");
    assert!(standing.why_not.unwrap().contains("sign in again"));
    let refusal = world.vote("ben", &asked, VoteChoice::Approve).await.unwrap_err();
    assert!(refusal.message.contains("sign in again"), "{refusal:?}");
    world.tell_time();
    assert_eq!(world.vote("ben", &asked, VoteChoice::Approve).await.unwrap(), "approved");
    finished(world.end_of(&asked).await);
}

#[tokio::test]
async fn only_calls_of_the_same_kind_are_decided_together_and_each_is_recorded() {
    let world = world(bundle()).await;
    let first = held(world.call(plan("erase", "s1", "a")).await);
    let second = held(world.call(plan("erase", "s2", "b")).await);
    let mut other_shape = plan("erase", "s3", "c");
    other_shape["args"]["pin"] = json!("1234");
    let third = held(world.call(other_shape).await);
    let fourth = held(world.call(plan("fetch", "s4", "d")).await);
    let ben = world.person("ben").await;
    let mut approvals = Vec::new();
    for asked in [&first, &second, &third, &fourth, &first] {
        let digest = world.seen("ben", asked).await.approval.digest;
        approvals.push(BulkItem { approval_id: asked.approval_id.clone(), digest });
    }
    approvals[1].digest = approvals[0].digest;
    let request = BulkDecisionRequest {
        decision: VoteChoice::Approve,
        reason: "all of them".to_owned(),
        approvals,
    };
    let view = world.engine.approvals().decide_bulk(&ben, request).await.unwrap();
    let decided: Vec<_> = view.decided.iter().map(|view| &view.approval_id).collect();
    assert_eq!(decided, [&first.approval_id]);
    let refused: Vec<_> =
        view.refused.iter().map(|one| (&one.approval_id, one.message.as_str())).collect();
    assert_eq!(refused.len(), 4, "{refused:?}");
    assert!(refused[0].1.contains("digest"), "a stale view: {refused:?}");
    assert!(refused[1].1.contains("another shape"), "{refused:?}");
    assert!(refused[2].1.contains("another operation"), "{refused:?}");
    assert!(refused[3].1.contains("twice"), "{refused:?}");
    finished(world.end_of(&first).await);
    assert_eq!(world.witness.effects("erase").len(), 1);
}

#[tokio::test]
async fn what_people_decided_before_is_in_the_evidence() {
    let world = world(bundle()).await;
    let first = held(world.call(plan("erase", "s1", "a")).await);
    world.vote("ben", &first, VoteChoice::Approve).await.unwrap();
    finished(world.end_of(&first).await);
    let second = held(world.call(plan("erase", "s2", "b")).await);
    world.vote("cy", &second, VoteChoice::Deny).await.unwrap();
    let third = held(world.call(plan("erase", "s3", "a")).await);
    let evidence = world.seen("ben", &third).await.proposal.unwrap().evidence;
    assert_eq!(evidence.description, "to erase");
    let similar: Vec<_> = evidence
        .similar
        .iter()
        .map(|one| (one.state.as_str(), one.outcome.as_deref(), one.same_request))
        .collect();
    let denied = ("denied", Some("denied"), false);
    assert_eq!(similar, [denied, ("succeeded", Some("succeeded"), true)]);
    assert_eq!(evidence.similar[1].decisions[0].approver.as_str(), "ben");
}

/// Also when more calls of the operation wait than are looked through.
#[tokio::test]
async fn what_people_decided_before_is_found_behind_a_long_queue() {
    let world = world(bundle()).await;
    let first = held(world.call(plan("erase", "s1", "a")).await);
    world.vote("ben", &first, VoteChoice::Deny).await.unwrap();
    for number in 0..25 {
        world.store.advance_ms(1);
        held(world.call(plan("erase", &format!("waits-{number}"), "b")).await);
    }
    let last = held(world.call(plan("erase", "s2", "a")).await);
    let evidence = world.seen("ben", &last).await.proposal.unwrap().evidence;
    let similar: Vec<_> = evidence.similar.iter().map(|one| &one.approval_id).collect();
    assert_eq!(similar, [&first.approval_id]);
}

#[tokio::test]
async fn a_tool_that_drifts_voids_what_waits_for_it_before_anybody_agrees() {
    let world = world(bundle()).await;
    let asked = held(world.call(plan("erase", "s1", "a")).await);
    let other = held(world.call(plan("erase", "s2", "b")).await);
    world.witness.drifted.store(true, Ordering::SeqCst);
    world.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    assert_eq!(refused(world.end_of(&asked).await).code, ErrorCode::ApprovalVoid);
    let void = world.stands(&other, "void").await;
    let reason = void.void_reason.unwrap();
    assert!(reason.starts_with("the tool changed upstream"), "{reason}");
    assert!(world.witness.effects("erase").is_empty());
}

#[tokio::test]
async fn what_was_held_under_a_contract_that_is_not_in_use_any_more_is_void_after_the_start() {
    let world = world(bundle()).await;
    let asked = held(world.call(plan("erase", "s1", "a")).await);
    let make = crate::world::Make {
        store: Arc::new(world.store.restarted()),
        witness: Arc::clone(&world.witness),
        // Another limit makes another contract.
        breaker_failures: 999,
        ..crate::world::Make::default()
    };
    let next = World::with(make).await;
    next.stands(&asked, "void").await;
    assert_eq!(refused(next.end_of(&asked).await).code, ErrorCode::ApprovalVoid);
    // The same plan is asked about again, under the new contract.
    assert_ne!(held(next.call(plan("erase", "s1", "a")).await).approval_id, asked.approval_id);
}

#[tokio::test]
async fn a_call_that_has_become_stronger_than_what_people_agreed_to_does_not_run() {
    // At first the tool counts as one that only reaches out; then the lowering is gone.
    let mut lowered = bundle();
    lowered.files.push(placet_policy::bundle::PolicyFile {
        name: "99-lower.cedar".to_owned(),
        text: "@id(\"erase-is-mild\") @reason(\"Mild.\")\npermit (principal, action == Placet::Action::\"fake/erase#lower\", resource is Placet::Tool)\nwhen { context.mode_target == Placet::ApprovalMode::\"network\" };\n"
            .to_owned(),
    });
    let world = world(lowered).await;
    let mut call = plan("erase", "s1", "a");
    call["approval_mode_requested"] = json!("network");
    let asked = held(world.call(call).await);
    let seen = world.seen("ben", &asked).await;
    assert_eq!(seen.approval.mode, placet_types::mode::ApprovalMode::Network);
    world.activate(bundle()).await.unwrap();
    let request = DecisionRequest {
        decision: VoteChoice::Approve,
        reason: "fine".to_owned(),
        digest: seen.approval.digest,
    };
    world
        .engine
        .approvals()
        .decide(&world.person("ben").await, &asked.approval_id, request)
        .await
        .unwrap();
    assert_eq!(refused(world.end_of(&asked).await).code, ErrorCode::ModeUpgraded);
    let void = world.stands(&asked, "void").await;
    assert!(void.void_reason.unwrap().contains("MODE_UPGRADED"));
    let security = placet_ledger::audit::AuditKind::Security;
    let told = world
        .store
        .audit()
        .into_iter()
        .any(|event| event.kind == security && event.code == Some(ErrorCode::ModeUpgraded));
    assert!(told, "the security team hears of it");
    assert!(world.witness.effects("erase").is_empty());
}

/// A call that two people of `finance` have to agree to.
async fn waits_for_two_of_finance() -> (World, Held) {
    let gate = gated(
        "send",
        "@approver_group(\"finance:2\") @quorum(\"2\") @expires(\"72h\")",
        &format!("context.req.approval.total >= 2 && {}", of("finance", 2)),
    );
    let world = world(gate).await;
    let asked = held(world.call(send("s1", "a")).await);
    (world, asked)
}

/// A person's groups that only an old token told of do not count when the call is taken up: it goes back, and they are asked again.
#[tokio::test]
async fn an_agreement_that_counts_no_more_is_asked_for_again() {
    let (world, asked) = waits_for_two_of_finance().await;
    let una = world.person_in("una", "finance").await;
    assert_eq!(world.decides(&una, &asked, VoteChoice::Approve).await.unwrap(), "pending");
    let before = world.seen("eve", &asked).await.approval.digest;
    world.store.advance_ms(25 * 3_600_000);
    world.tell_time();
    assert_eq!(world.vote("finn", &asked, VoteChoice::Approve).await.unwrap(), "approved");
    let back = world.stands(&asked, "pending").await;
    assert_eq!(back.lapsed.into_iter().collect::<Vec<_>>(), [0], "hers, and not finn's");
    assert_ne!(back.digest, before, "what is shown now is another thing");
    assert!(world.witness.effects("send").is_empty());
    let twice = world.vote("finn", &asked, VoteChoice::Approve).await.unwrap_err();
    assert!(twice.message.contains("already"), "{twice:?}");
    // After a sign-in she finds it among what is hers to decide; so would any colleague.
    let una = world.person_in("una", "finance").await;
    let detail = world.engine.approvals().approval(&una, &asked.approval_id).await.unwrap();
    assert!(detail.standing.may_approve && detail.standing.completes, "{:?}", detail.standing);
    assert_eq!(detail.standing.progress[0].agreed, 1);
    let mine = world.engine.approvals().inbox(&una, Default::default()).await.unwrap();
    assert_eq!(mine.mine, 1);
    let (decision, reason) = (VoteChoice::Approve, "as before".to_owned());
    let stale = DecisionRequest { decision, reason: reason.clone(), digest: before };
    let stale = world.engine.approvals().decide(&una, &asked.approval_id, stale).await.unwrap_err();
    assert_eq!(stale.problems[0].pointer, "/digest");
    let vote = DecisionRequest { decision, reason, digest: detail.approval.digest };
    world.engine.approvals().decide(&una, &asked.approval_id, vote).await.unwrap();
    finished(world.end_of(&asked).await);
    assert_eq!(world.witness.effects("send").len(), 1);
    let votes = world.seen("eve", &asked).await.approval.votes;
    assert_eq!(votes.len(), 3, "both of hers are kept");
    assert_eq!(votes[2].part_digest, Some(detail.approval.digest), "with what she was shown");
}

/// Nobody is left who could agree: it ends by its time, as every approval does.
#[tokio::test]
async fn what_nobody_agrees_to_again_expires() {
    let (world, asked) = waits_for_two_of_finance().await;
    let una = world.person_in("una", "finance").await;
    world.decides(&una, &asked, VoteChoice::Approve).await.unwrap();
    world.store.advance_ms(25 * 3_600_000);
    world.tell_time();
    world.vote("finn", &asked, VoteChoice::Approve).await.unwrap();
    world.stands(&asked, "pending").await;
    world.store.advance_ms(48 * 3_600_000);
    world.tell_time();
    world.stands(&asked, "expired").await;
    assert_eq!(refused(world.end_of(&asked).await).code, ErrorCode::ApprovalExpired);
}
