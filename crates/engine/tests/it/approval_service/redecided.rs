//! Held calls are decided again when what they were held under has changed.

use serde_json::json;

use placet_ledger::audit::AuditKind;
use placet_policy::bundle::{BundleSource, PolicyFile};
use placet_types::approval::VoteChoice;

use super::{gated, of, send, world};
use crate::world::{Make, World, bundle, held, plan};

/// The shipped policies with a gate of one tool.
fn asking(annotations: &str) -> BundleSource {
    with(&format!(
        "@id(\"gate-send\") @approval(\"required\") {annotations}
        forbid (principal, action == Placet::Action::\"fake/send\", resource is Placet::Tool);"
    ))
}

fn with(text: &str) -> BundleSource {
    let mut source = bundle();
    source.files.push(PolicyFile { name: "99-own.cedar".to_owned(), text: text.to_owned() });
    source
}

async fn next(world: &World, bundle: BundleSource) -> World {
    World::with(Make { bundle, ..world.after() }).await
}

#[tokio::test]
async fn a_held_call_asks_whom_the_new_policies_ask() {
    let asks = |group: &str| asking(&format!("@approver_group(\"{group}\")"));
    let before = world(asks("directors, approvers")).await;
    let call = held(before.call(send("s1", "a")).await);
    let after = next(&before, asks("finance, approvers")).await;
    after.asks(&call, "finance").await;
    assert_eq!(after.vote("ben", &call, VoteChoice::Approve).await.unwrap(), "pending");
    assert_eq!(after.vote("finn", &call, VoteChoice::Approve).await.unwrap(), "approved");
    after.sent("send", 1).await;
}

#[tokio::test]
async fn votes_that_are_enough_now_let_the_call_run() {
    let two = gated(
        "send",
        "@approver_group(\"finance:2\") @quorum(\"2\") @expires(\"72h\")",
        &format!("context.req.approval.total >= 2 && {}", of("finance", 2)),
    );
    let before = world(two).await;
    let call = held(before.call(send("s1", "a")).await);
    assert_eq!(before.vote("finn", &call, VoteChoice::Approve).await.unwrap(), "pending");
    let one = asking("@approver_group(\"finance\")");
    let after = next(&before, one).await;
    after.sent("send", 1).await;
    assert_eq!(after.stands(&call, "succeeded").await.votes.len(), 1);
}

#[tokio::test]
async fn a_held_call_that_is_denied_now_ends_as_void() {
    let before = world(asking("@approver_group(\"finance\")")).await;
    let call = held(before.call(send("s1", "a")).await);
    let never = "@id(\"never\") @approval(\"never\")
        forbid (principal, action == Placet::Action::\"fake/send\", resource is Placet::Tool);";
    let after = next(&before, with(never)).await;
    after.stands(&call, "void").await;
    assert!(after.witness.effects("send").is_empty());
}

#[tokio::test]
async fn the_same_policies_leave_a_held_call_as_it_is() {
    let asks = || asking("@approver_group(\"finance, approvers\") @escalate(\"2h: directors\")");
    let before = world(asks()).await;
    let call = held(before.call(send("s1", "a")).await);
    let asked = before.stands(&call, "pending").await;
    let after = next(&before, asks()).await;
    assert_eq!(after.vote("ben", &call, VoteChoice::Approve).await.unwrap(), "pending");
    let stands = after.stands(&call, "pending").await;
    assert_eq!(stands.requirement, asked.requirement);
    let noted = after.store.audit().into_iter().filter(|event| event.kind == AuditKind::Held);
    assert_eq!(noted.count(), 1, "it is held once, and not again");
}

#[tokio::test]
async fn a_write_that_only_a_freeze_held_runs_when_the_freeze_is_lifted() {
    let world = world(bundle()).await;
    let freeze = json!({"kind": "freeze", "name": "release"});
    let on = world.arrange("fay", freeze, 60_000).await.unwrap();
    let write = held(world.call(send("s1", "a")).await);
    let erase = held(world.call(plan("erase", "s2", "x")).await);
    world.end("fay", &on).await.unwrap();
    world.sent("send", 1).await;
    let stands = world.stands(&erase, "pending").await;
    assert!(!stands.requirement.groups.contains_key(&"freeze-approvers".parse().unwrap()));
    assert!(world.stands(&write, "succeeded").await.votes.is_empty());
}
