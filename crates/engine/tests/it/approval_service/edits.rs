//! Other arguments: another request, decided on again and never by the one who wrote them, and the agent is told.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};

use placet_ledger::store::Store;
use placet_types::{approval::VoteChoice, error::ErrorCode, taint::Taint};

use super::{gated, send, two_groups, world};
use crate::fake::Behaviour;
use crate::world::{Make, World, bundle, finished, held, plan, refused, waits};

/// A call to erase a lot.
fn all() -> Value {
    let mut call = plan("erase", "s1", "all");
    call["args"]["most"] = json!(9);
    call
}

/// Its arguments, narrowed.
fn some() -> Value {
    json!({ "what": "all", "most": 3 })
}

#[tokio::test]
async fn an_edit_by_one_of_two_needs_the_other_and_runs_as_edited() {
    let world = world(two_groups()).await;
    let mut call = send("s1", "everything");
    call["args"]["pin"] = json!("4711-secret");
    call["args"]["most"] = json!(9);
    let asked = held(world.call(call.clone()).await);
    let before = world.seen("cy", &asked).await;
    world.vote("cy", &asked, VoteChoice::Approve).await.unwrap();
    let shown = world.seen("ben", &asked).await.proposal.unwrap().call.args;
    assert_eq!(shown["pin"], "[sensitive]");
    let args = json!({ "what": "everything", "most": 3, "pin": "[sensitive]" });
    let edited = world.edit("ben", &asked, args).await.unwrap();
    assert_eq!((edited.state.as_str(), edited.edits), ("pending", 1));
    assert_ne!(edited.digest, before.approval.digest);
    // What was agreed to before does not count for the new arguments, and the difference is shown.
    let next = world.seen("cy", &asked).await;
    assert!(next.standing.may_approve && !next.standing.completes, "{:?}", next.standing);
    assert_eq!(next.approval.lapsed, [0].into(), "of cy and ben, ben agrees to this");
    let replaced = next.proposal.unwrap().evidence.edited.unwrap();
    assert_eq!(
        (replaced.by.as_str(), &replaced.preview["most"], &replaced.preview["pin"]),
        ("ben", &json!(9), &json!("[sensitive]"))
    );
    assert!(replaced.authors.is_empty() && replaced.masked.is_empty(), "{replaced:?}");
    assert_eq!(replaced.request_digest, before.proposal.unwrap().evidence.request_digest);
    assert_eq!(world.vote("finn", &asked, VoteChoice::Approve).await.unwrap(), "approved");
    let result = finished(world.end_of(&asked).await);
    assert_eq!(
        result.output["args"],
        json!({ "what": "everything", "most": 3, "pin": "4711-secret" })
    );
    let told = result.edited_args.unwrap();
    assert_eq!(told, json!({ "what": "everything", "most": 3, "pin": "[sensitive]" }));
    assert!(result.edited_masked.is_empty());
    // The agent's retry finds the call that it made.
    assert!(finished(world.call(call).await).replayed);
    assert_eq!(world.witness.effects("send").len(), 1);
}

#[tokio::test]
async fn anyone_who_writes_other_arguments_does_not_decide_on_them_however_few_are_asked() {
    let world = world(bundle()).await;
    let asked = held(world.call(all()).await);
    // Neither a text that begins so, nor more of something, nor something of one's own.
    let edited = world.edit("ben", &asked, json!({ "what": "al", "most": 9 })).await.unwrap();
    assert_eq!((edited.state.as_str(), edited.votes.len()), ("pending", 0));
    assert!(world.witness.effects("erase").is_empty(), "its author let it run");
    let own = world.vote("ben", &asked, VoteChoice::Approve).await.unwrap_err();
    assert_eq!(own.code, ErrorCode::PolicyDenied);
    assert!(own.message.contains("you wrote these arguments"), "{}", own.message);
    assert!(world.vote("ben", &asked, VoteChoice::Deny).await.is_err());
    assert!(world.edit("ben", &asked, some()).await.is_err());
    assert!(world.grant("ben", &asked, 5).await.is_err());
    let standing = world.seen("ben", &asked).await.standing;
    assert!(
        !(standing.may_approve || standing.may_deny || standing.may_edit || standing.grantable)
    );
    assert!(standing.why_not.unwrap().contains("somebody else"));
    let next = world.seen("cy", &asked).await;
    assert!(next.standing.completes, "{:?}", next.standing);
    let shown = next.proposal.unwrap().evidence.edited.unwrap();
    assert_eq!(shown.authors.iter().map(|one| one.as_str()).collect::<Vec<_>>(), ["ben"]);
    assert_eq!(world.vote("cy", &asked, VoteChoice::Approve).await.unwrap(), "approved");
    let result = finished(world.end_of(&asked).await);
    assert_eq!(result.output["args"], json!({ "what": "al", "most": 9 }));
    let told = result.edited_args.unwrap();
    assert_eq!((told, result.edited_masked.len()), (json!({ "what": "al", "most": 9 }), 0));
}

#[tokio::test]
async fn an_author_decides_neither_for_a_colleague_nor_through_one_nor_on_a_grant() {
    let world = world(bundle()).await;
    let asked = held(world.call(all()).await);
    for (person, to) in [("cy", "ben"), ("ben", "leo")] {
        let handed = json!({ "kind": "delegation", "to": to, "groups": ["approvers"] });
        world.arrange(person, handed, 3_600_000).await.unwrap();
    }
    let wide = json!({ "what": "everything", "most": 9 });
    assert_eq!(world.edit("ben", &asked, wide).await.unwrap().state, "pending");
    for person in ["ben", "leo"] {
        let refused = world.vote(person, &asked, VoteChoice::Approve).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::PolicyDenied, "{person}");
    }
    let grant = world.grant("cy", &asked, 5).await.unwrap();
    let placet_types::directive::DirectiveBody::Grant(body) = &grant.body else {
        panic!("{grant:?}")
    };
    assert_eq!(body.authors.iter().map(|one| one.as_str()).collect::<Vec<_>>(), ["ben"]);
    assert_eq!(world.vote("cy", &asked, VoteChoice::Approve).await.unwrap(), "approved");
}

#[tokio::test]
async fn a_changed_masked_value_is_shown_as_changed_and_nobody_sees_it() {
    let world = world(bundle()).await;
    let mut call = all();
    call["args"]["pin"] = json!("471112-old");
    call["args"]["codes"] = json!(["one", "two"]);
    let asked = held(world.call(call.clone()).await);
    let before = world.seen("cy", &asked).await;
    let masked = json!({ "what": "all", "most": 9, "pin": "908070-new", "codes": "[sensitive]" });
    let edited = world.edit("ben", &asked, masked).await.unwrap();
    assert_eq!(edited.state, "pending", "what nobody sees is never narrower");
    let after = world.seen("cy", &asked).await;
    let (before, after_text) = (before.proposal.unwrap().evidence, format!("{after:?}"));
    let evidence = after.proposal.unwrap().evidence;
    assert_eq!(evidence.preview, before.preview);
    assert!(!after_text.contains("908070") && !after_text.contains("471112"), "{after_text}");
    let shown = evidence.edited.unwrap();
    assert_eq!(shown.masked.iter().map(String::as_str).collect::<Vec<_>>(), ["/pin"]);
    assert!(shown.authors.iter().any(|one| one.as_str() == "ben"));
    // Fewer of what nobody sees are no better, and what was changed before is still said.
    let fewer = json!({ "what": "all", "most": 3, "pin": "[sensitive]", "codes": ["one"] });
    assert_eq!(world.edit("cy", &asked, fewer).await.unwrap().state, "pending");
    for person in ["ben", "cy"] {
        assert!(world.vote(person, &asked, VoteChoice::Approve).await.is_err(), "{person}");
    }
    let shown = world.seen("eve", &asked).await.proposal.unwrap().evidence.edited.unwrap();
    assert_eq!(shown.masked.iter().map(String::as_str).collect::<Vec<_>>(), ["/codes", "/pin"]);
}

#[tokio::test]
async fn the_agent_is_told_where_masked_values_changed() {
    let world = world(bundle()).await;
    let mut call = all();
    call["args"]["pin"] = json!("471112-old");
    let asked = held(world.call(call.clone()).await);
    let masked = json!({ "what": "all", "most": 9, "pin": "908070-new" });
    world.edit("ben", &asked, masked).await.unwrap();
    assert_eq!(world.vote("cy", &asked, VoteChoice::Approve).await.unwrap(), "approved");
    for result in [finished(world.end_of(&asked).await), finished(world.call(call).await)] {
        assert_eq!(result.output["args"]["pin"], "908070-new");
        assert_eq!(result.edited_args.unwrap()["pin"], "[sensitive]");
        assert_eq!(result.edited_masked.iter().map(String::as_str).collect::<Vec<_>>(), ["/pin"]);
    }
}

#[tokio::test]
async fn the_editor_alone_is_enough_where_one_is_and_the_edit_survives_a_restart() {
    let world = world(bundle()).await;
    let asked = held(world.call(all()).await);
    world.witness.refuses_connections.store(true, std::sync::atomic::Ordering::SeqCst);
    let next = World::with(Make {
        store: Arc::new(world.store.restarted()),
        witness: Arc::clone(&world.witness),
        ..Make::default()
    })
    .await;
    let edited = next.edit("ben", &asked, some()).await.unwrap();
    assert_eq!(edited.state, "approved");
    let last = World::with(Make {
        store: Arc::new(next.store.restarted()),
        witness: Arc::clone(&world.witness),
        ..Make::default()
    })
    .await;
    world.witness.refuses_connections.store(false, std::sync::atomic::Ordering::SeqCst);
    let result = finished(last.end_of(&asked).await);
    assert_eq!(result.output["args"], some());
    assert_eq!(world.witness.effects("erase").len(), 1);
}

#[tokio::test]
async fn an_edited_call_that_could_not_be_sent_is_tried_again_as_edited() {
    let world = world(bundle()).await;
    let asked = held(world.call(all()).await);
    world.witness.behave("erase", Behaviour::NotExecuted);
    assert_eq!(world.edit("ben", &asked, some()).await.unwrap().state, "approved");
    let failed = refused(world.end_of(&asked).await);
    assert_eq!((failed.code, failed.code.retryable()), (ErrorCode::AdapterUnavailable, true));
    // The client knows nothing but what it sent; twice without success, then it runs.
    let failed = refused(world.call(all()).await);
    assert_eq!((failed.code, failed.code.retryable()), (ErrorCode::AdapterUnavailable, true));
    world.witness.behave_well();
    let result = finished(world.call(all()).await);
    assert_eq!(result.output["args"], some());
    assert_eq!(result.edited_args, Some(some()));
    assert_eq!((result.tool_call_id.clone(), result.replayed), (asked.call_id.clone(), false));
    assert_eq!(world.witness.effects("erase").len(), 1);
    let again = finished(world.call(all()).await);
    assert!(again.replayed && again.output == result.output);
    // The edited arguments are another call's, not this one's.
    let mut other = all();
    other["args"]["most"] = json!(3);
    let other = refused(world.call(other).await);
    assert_eq!(other.code, ErrorCode::IdempotencyConflict);
}

#[tokio::test]
async fn an_edited_call_that_failed_and_needs_more_people_now_asks_about_what_was_sent() {
    let world = world(bundle()).await;
    let asked = held(world.call(all()).await);
    world.witness.behave("erase", Behaviour::NotExecuted);
    world.edit("ben", &asked, some()).await.unwrap();
    refused(world.end_of(&asked).await);
    world.witness.behave_well();
    let stricter = gated(
        "erase",
        "@approver_group(\"approvers\") @quorum(\"2\") @expires(\"24h\")",
        "context.req.approval.total >= 2",
    );
    world.activate(stricter).await.unwrap();
    let again = held(world.call(all()).await);
    assert_ne!(again.approval_id, asked.approval_id);
    let shown = world.seen("ben", &again).await.proposal.unwrap();
    assert_eq!(shown.call.args, *json!({ "what": "all", "most": 9 }).as_object().unwrap());
    assert!(world.witness.effects("erase").is_empty());
}

#[tokio::test]
async fn an_edited_call_that_failed_is_not_tried_again_after_its_approval() {
    let world = world(bundle()).await;
    let asked = held(world.call(all()).await);
    world.witness.behave("erase", Behaviour::NotExecuted);
    world.edit("ben", &asked, some()).await.unwrap();
    refused(world.end_of(&asked).await);
    world.store.advance_ms(waits(&asked).expires_at.since_ms(world.now()).saturating_add(1));
    world.witness.behave_well();
    let late = refused(world.call(all()).await);
    assert_eq!(late.code, ErrorCode::ApprovalExpired);
    assert!(world.witness.effects("erase").is_empty());
}

#[tokio::test]
async fn an_edited_call_that_is_re_armed_is_not_put_before_people_as_the_agents_own() {
    let world = world(bundle()).await;
    world.witness.behave("erase", Behaviour::Unknown);
    let asked = held(world.call(all()).await);
    world.edit("ben", &asked, json!({ "what": "al", "most": 9 })).await.unwrap();
    assert_eq!(world.vote("cy", &asked, VoteChoice::Approve).await.unwrap(), "approved");
    assert_eq!(refused(world.end_of(&asked).await).code, ErrorCode::OutcomeUnknown);
    world.witness.behave_well();
    world.rearm("ben").await.unwrap();
    world.rearm("dora").await.unwrap();
    assert_eq!(world.reaches("indeterminate").await.arm, 1);
    assert_eq!(world.witness.effects("erase").len(), 1);
}

/// The gate of `erase`, with an end that comes soon where little is erased.
fn sooner() -> placet_policy::bundle::BundleSource {
    let mut source = gated(
        "erase",
        "@approver_group(\"approvers\") @quorum(\"2\") @expires(\"2h\")",
        "context.req.approval.total >= 2",
    );
    source.files.push(placet_policy::bundle::PolicyFile {
        name: "99-soon.cedar".to_owned(),
        text: "@id(\"soon\") @approval(\"custom\") @approver_group(\"approvers\") @quorum(\"2\") @expires(\"10m\") @reason(\"Little is decided on soon.\")\n\
             forbid (principal, action == Placet::Action::\"fake/erase\", resource is Placet::Tool)\n\
             when { context.input has most && context.input.most < 5 }\n\
             unless { context.req has approval && !context.req.approval.denied &&\n\
               context.req.approval.request_digest == context.req.evidence.request_digest &&\n\
               context.req.now < context.req.approval.expires_at && context.req.approval.total >= 2 };\n"
            .to_owned(),
    });
    source
}

#[tokio::test]
async fn an_edit_that_policies_give_less_time_has_less_and_never_more() {
    const TEN_MINUTES: i64 = 600_000;
    let world = world(sooner()).await;
    let asked = held(world.call(all()).await);
    let first = world.seen("ben", &asked).await.approval.expires_at;
    assert!(first.since_ms(world.now()) > 3 * TEN_MINUTES);
    let edited = world.edit("ben", &asked, some()).await.unwrap();
    assert_eq!(edited.expires_at.since_ms(world.now()), TEN_MINUTES);
    // Not longer by another edit, to what has longer.
    world.store.advance_ms(60_000);
    let again = world.edit("cy", &asked, json!({ "what": "al", "most": 9 })).await.unwrap();
    assert_eq!(again.expires_at, edited.expires_at);
    let record = world.record().await;
    let placet_ledger::record::EffectState::PendingApproval { expires_at, .. } = &record.state
    else {
        panic!("{record:?}")
    };
    assert_eq!(*expires_at, edited.expires_at);
    world.store.advance_ms(TEN_MINUTES);
    world.tell_time();
    assert_eq!(world.stands(&asked, "expired").await.state, "expired");
}

/// Whichever comes first: anyone who wrote the arguments that a grant covers does not agree to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_meets_an_edit_is_never_agreed_to_by_who_wrote_what_it_covers() {
    let world = Arc::new(world(bundle()).await);
    let wrote = json!({ "what": "everything", "most": 9 });
    let (mut before, mut after, mut neither) = (0, 0, 0);
    for round in 0..40 {
        let mut call = plan("erase", &format!("s{round}"), "all");
        call["args"]["most"] = json!(9);
        let asked = held(world.call(call).await);
        let editing = {
            let (world, asked, wrote) = (Arc::clone(&world), asked.clone(), wrote.clone());
            tokio::spawn(async move { world.edit("cy", &asked, wrote).await })
        };
        let granting = {
            let (world, asked) = (Arc::clone(&world), asked.clone());
            // Later each time, so that it comes before the edit, with it and after it.
            let late = std::time::Duration::from_micros(500).saturating_mul(round);
            tokio::spawn(async move {
                tokio::time::sleep(late).await;
                world.grant("ben", &asked, 5).await
            })
        };
        editing.await.unwrap().unwrap();
        let Ok(grant) = granting.await.unwrap() else {
            neither += 1;
            continue;
        };
        let placet_types::directive::DirectiveBody::Grant(body) = &grant.body else {
            panic!("{grant:?}")
        };
        let is_of_cy = body.authors.iter().any(|one| one.as_str() == "cy");
        assert_eq!(body.pattern.covers(&wrote), is_of_cy, "{grant:?}");
        if is_of_cy {
            after += 1;
            assert!(world.agree("cy", &grant).await.is_err());
        } else {
            before += 1;
            assert!(body.pattern.covers(&json!({ "what": "all", "most": 9 })));
        }
        world.end("ben", &grant).await.unwrap();
    }
    assert_eq!(before + after + neither, 40);
    assert!(before + neither > 0 && after + neither > 0, "{before} {after} {neither}");
}

#[tokio::test]
async fn a_grant_over_edited_arguments_is_agreed_to_by_others_than_their_author() {
    let gate = gated(
        "erase",
        "@approver_group(\"approvers\") @quorum(\"2\") @expires(\"24h\")",
        "context.req.approval.total >= 2",
    );
    let world = world(gate).await;
    let asked = held(world.call(all()).await);
    let shown = world.seen("ben", &asked).await.approval.digest;
    world.edit("cy", &asked, json!({ "what": "everything", "most": 9 })).await.unwrap();
    // What was shown before the edit is proposed from no more.
    let stale = json!({ "kind": "grant", "approval_id": asked.approval_id, "uses_max": 5, "digest": shown });
    assert!(world.arrange("ben", stale, 60_000).await.is_err());
    let grant = world.grant("ben", &asked, 5).await.unwrap();
    assert_eq!(grant.state, "proposed");
    let refused = world.agree("cy", &grant).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::PolicyDenied);
    assert_eq!(
        world
            .engine
            .approvals()
            .entry(&world.person("eve").await, &grant.directive_id)
            .await
            .unwrap()
            .votes
            .len(),
        1
    );
}

#[tokio::test]
async fn an_edit_that_does_not_fit_or_changes_nothing_is_refused() {
    let world = world(bundle()).await;
    let asked = held(world.call(plan("erase", "s1", "all")).await);
    let unfit = world.edit("ben", &asked, json!({ "what": 7 })).await.unwrap_err();
    assert_eq!(unfit.code, ErrorCode::ValidationError);
    assert_eq!(unfit.problems[0].pointer, "/args/what");
    let same = world.edit("ben", &asked, json!({ "what": "all" })).await.unwrap_err();
    assert!(same.message.contains("decide on already"), "{same:?}");
    let masked = json!({ "what": "less", "pin": "[sensitive]" });
    let masked = world.edit("ben", &asked, masked).await.unwrap_err();
    assert_eq!(masked.problems[0].pointer, "/args/pin");
    // Who answers for the agent, or is not asked, edits nothing either.
    assert!(world.edit("ana", &asked, json!({ "what": "less" })).await.is_err());
    assert!(world.edit("finn", &asked, json!({ "what": "less" })).await.is_err());
    let still = world.seen("ben", &asked).await;
    assert_eq!((still.approval.edits, still.approval.state.as_str()), (0, "pending"));
    assert!(still.standing.may_edit);
}

#[tokio::test]
async fn an_edit_that_policy_denies_changes_nothing() {
    let mut source = bundle();
    source.files.push(placet_policy::bundle::PolicyFile {
        name: "99-never.cedar".to_owned(),
        text: "@id(\"no-root\") @approval(\"never\") @reason(\"Not that.\")\nforbid (principal, action == Placet::Action::\"fake/erase\", resource is Placet::Tool)\nwhen { context.input.what == \"root\" };\n"
            .to_owned(),
    });
    let world = world(source).await;
    let asked = held(world.call(plan("erase", "s1", "all")).await);
    let denied = world.edit("ben", &asked, json!({ "what": "root" })).await.unwrap_err();
    assert_eq!(denied.code, ErrorCode::PolicyDenied, "{denied:?}");
    assert_eq!(world.seen("ben", &asked).await.approval.edits, 0);
}

#[tokio::test]
async fn narrower_arguments_by_who_could_not_know_of_a_secret_are_no_agreement() {
    let brings = vec![("look", json!(["secret"]))];
    let world = World::with(Make { brings, ..Make::default() }).await;
    let asked = held(world.call(all()).await);
    finished(world.call(plan("look", "s2", "a")).await);
    world.edit("ben", &asked, some()).await.unwrap();
    let back = tokio::time::timeout(Duration::from_secs(20), async {
        loop {
            let now = world.store.approval(&asked.approval_id).await.unwrap().unwrap();
            if now.reopened > 0 {
                return now;
            }
            assert!(world.witness.effects("erase").is_empty(), "sent by an agreement to less");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    let back = back.await.expect("it is never put back to people");
    assert_eq!((back.state.name(), back.lapsed), ("pending", [0].into()));
    let shown = world.seen("cy", &asked).await.proposal.unwrap();
    assert_eq!(shown.evidence.taint, [Taint::Secret].into());
    world.vote("cy", &asked, VoteChoice::Approve).await.unwrap();
    assert_eq!(finished(world.end_of(&asked).await).output["args"], some());
}
