//! Narrowed arguments: another request, decided on anew, and the agent is told.

use std::sync::Arc;

use serde_json::json;

use placet_types::{approval::VoteChoice, error::ErrorCode};

use super::{send, two_groups, world};
use crate::world::{Make, World, bundle, finished, held, plan};

#[tokio::test]
async fn an_edit_by_one_of_two_needs_the_other_and_runs_as_edited() {
    let world = world(two_groups()).await;
    let mut call = send("s1", "everything");
    call["args"]["pin"] = json!("4711-secret");
    let asked = held(world.call(call.clone()).await);
    let before = world.seen("cy", &asked).await;
    world.vote("cy", &asked, VoteChoice::Approve).await.unwrap();
    let shown = world.seen("ben", &asked).await.proposal.unwrap().call.args;
    assert_eq!(shown["pin"], "[sensitive]");
    let args = json!({ "what": "a little", "pin": "[sensitive]" });
    let edited = world.edit("ben", &asked, args).await.unwrap();
    assert_eq!((edited.state.as_str(), edited.edits), ("pending", 1));
    assert_ne!(edited.digest, before.approval.digest);
    // What was agreed to before does not count for the new arguments, and the difference is shown.
    let next = world.seen("cy", &asked).await;
    assert!(next.standing.may_approve && !next.standing.completes, "{:?}", next.standing);
    let replaced = next.proposal.unwrap().evidence.edited.unwrap();
    assert_eq!(
        (replaced.by.as_str(), &replaced.preview["what"], &replaced.preview["pin"]),
        ("ben", &json!("everything"), &json!("[sensitive]"))
    );
    assert_eq!(replaced.request_digest, before.proposal.unwrap().evidence.request_digest);
    assert_eq!(world.vote("finn", &asked, VoteChoice::Approve).await.unwrap(), "approved");
    let result = finished(world.end_of(&asked).await);
    assert_eq!(result.output["args"], json!({ "what": "a little", "pin": "4711-secret" }));
    let told = result.edited_args.unwrap();
    assert_eq!(told, json!({ "what": "a little", "pin": "[sensitive]" }));
    // The agent's retry finds the call that it made.
    assert!(finished(world.call(call).await).replayed);
    assert_eq!(world.witness.effects("send").len(), 1);
}

#[tokio::test]
async fn the_editor_alone_is_enough_where_one_is_and_the_edit_survives_a_restart() {
    let world = world(bundle()).await;
    let asked = held(world.call(plan("erase", "s1", "all")).await);
    world.witness.refuses_connections.store(true, std::sync::atomic::Ordering::SeqCst);
    let next = World::with(Make {
        store: Arc::new(world.store.restarted()),
        witness: Arc::clone(&world.witness),
        ..Make::default()
    })
    .await;
    let edited = next.edit("ben", &asked, json!({ "what": "some" })).await.unwrap();
    assert_eq!(edited.state, "approved");
    let last = World::with(Make {
        store: Arc::new(next.store.restarted()),
        witness: Arc::clone(&world.witness),
        ..Make::default()
    })
    .await;
    world.witness.refuses_connections.store(false, std::sync::atomic::Ordering::SeqCst);
    let result = finished(last.end_of(&asked).await);
    assert_eq!(result.output["args"], json!({ "what": "some" }));
    assert_eq!(world.witness.effects("erase").len(), 1);
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
