//! Nodes that share a ledger: the tokens of a held call are in the memory of the node that took it, and nowhere else.

use std::{fs, time::Duration};

use serde_json::json;

use super::{World, exchanging, said, send};
use crate::harness::{client::text, postgres::Database, setup::Setup};

/// Another node of the same making.
fn twin(world: &World, node: Setup) -> Setup {
    for file in ["sts-key.pem", "directory.yaml"] {
        fs::copy(world.setup.path(file), node.path(file)).unwrap();
    }
    exchanging(node.contract("mail", &world.setup.read_contract("mail")), &world.provider)
}

#[tokio::test]
async fn what_people_agree_to_on_a_node_without_the_callers_token_runs_where_that_is() {
    let database = Database::start().await;
    let (one, two) = database.two_nodes().await;
    let world = World::of(one).await;
    let two = twin(&world, two);
    let other = two.start().await;
    let ben = other.client(Some(world.bens_token().await));
    let held = world.call(&send("w1")).await.held();
    let call_id = text(&held, "call_id");
    let waits = world.look_at(&other, &call_id, 25_000);
    let (told, _) = tokio::join!(waits, async { ben.decide(&held, "approve").await.ok() });
    // Who waits there is not told that a token has expired which has not.
    assert_eq!(told.status, 200, "{told:?}");
    assert_eq!(said(&told.json())["sub"], "alice");
    assert_eq!(world.guarded.calls(), 1);

    // Where the node that had it is gone, the caller is asked for another one.
    let held = world.call(&send("w2")).await.held();
    let call_id = text(&held, "call_id");
    let World { provider, guarded, placet, setup, ben: token } = world;
    placet.kill().await;
    ben.decide(&held, "approve").await.ok();
    let world = World { provider, guarded, placet: other, setup, ben: token };
    let started = tokio::time::Instant::now();
    world.awaits_its_caller(&call_id).await;
    assert!(started.elapsed() >= Duration::from_secs(5), "others are given time");
    world.call(&send("w2")).await;
    assert_eq!(said(&world.end_of(&call_id).await)["sub"], "alice");
    assert_eq!(world.guarded.calls(), 2);
}

#[tokio::test]
async fn a_caller_hears_that_its_approved_call_waits_for_a_new_token() {
    let receiver = crate::notifications::Receiver::start(0).await;
    let world = World::new().await;
    fs::write(world.setup.path("hook"), crate::notifications::KEY).unwrap();
    let mut secrets = super::secrets();
    secrets["hook"] = json!({ "file": "hook" });
    let to = json!({ "type": "webhook", "url": receiver.url(), "key": "hook" });
    let channels = json!({ "ops": { "to": to, "callbacks": ["acme"] } });
    let notifications = json!({ "poll_ms": 50, "channels": channels });
    let told = |setup: Setup| setup.with("secrets", secrets).with("notifications", notifications);
    let mut world = world.set(told).await;
    let mut call = send("w1");
    call["callback"] = json!("ops");
    let held = world.call(&call).await.held();
    // Tokens are in memory alone.
    world = world.restarted().await;
    world.ben().await.decide(&held, "approve").await.ok();
    receiver.gets(&["call.awaits_credential"]).await;
    let told = receiver.taken()[0].json();
    assert_eq!(told["data"]["call_id"], held["call_id"], "{told:#}");
    assert_eq!(told["data"]["code"], "CREDENTIAL_EXPIRED", "{told:#}");
    world.call(&call).await;
    world.end_of(&text(&held, "call_id")).await;
    receiver.gets(&["call.awaits_credential", "call.finished"]).await;
}
