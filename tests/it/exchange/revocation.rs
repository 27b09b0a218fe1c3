//! An operator revokes what a user had: from the command line, over a restart, until she signs in again.

use std::time::Duration;

use serde_json::json;

use super::{World, files_with, said, search, send};
use crate::harness::client::{Reply, text};

/// That a token counts no more, and what its bearer is to do.
fn is_out(reply: &Reply) {
    assert_eq!(
        (reply.status, text(&reply.json(), "error_code")),
        (401, "CREDENTIAL_EXPIRED".to_owned()),
        "{reply:?}"
    );
    let challenge = reply.headers["www-authenticate"].to_str().unwrap();
    assert!(challenge.contains("error=\"invalid_token\""), "{challenge}");
}

#[tokio::test]
async fn an_operator_revokes_a_user_and_a_new_sign_in_works_again() {
    let mut world = World::new().await;
    world.call(&search("s1")).await.ok();
    let held = world.call(&send("w1")).await.held();
    let calls = world.guarded.calls();
    let by_agent = ["directives", "revoke", "--subject", "alice", "--reason", "because I can"];
    let by_agent = world.setup.asks(&world.placet, &world.provider.agent, &by_agent).await;
    assert_eq!(by_agent.code, Some(1), "{by_agent:?}");
    world.call(&search("s2")).await.ok();

    let revoke =
        ["directives", "revoke", "--subject", "alice", "--reason", "laptop lost", "--json"];
    let entry = world.types(&revoke).await.json();
    assert_eq!((&entry["state"], &entry["in_force"]), (&json!("active"), &json!(true)), "{entry}");
    is_out(&world.call(&search("s3")).await);
    let bobs = format!("Bearer {}", world.provider.bob);
    let bobs = world.agent().call_with(&search("s4"), "placet-delegation", &bobs).await;
    assert_eq!(said(&bobs.ok())["sub"], "bob", "others were not meant");
    let metrics = world.placet.ask("/metrics").await.text();
    assert!(metrics.contains("placet_subjects_revoked 1\n"), "{metrics}");

    // People agree to what she asked for before; it is not made with what was revoked.
    world.ben().await.decide(&held, "approve").await.ok();
    tokio::time::sleep(Duration::from_millis(500)).await;
    world = world.restarted().await;
    is_out(&world.call(&search("s5")).await);
    let listed = world.types(&["directives", "list"]).await;
    assert!(listed.ok().contains("tokens of alice"), "{listed:?}");

    // Her issuer's clock may be some seconds ahead: what says that it is from within those is not taken for newer.
    tokio::time::sleep(Duration::from_millis(6_100)).await;
    world.provider.alice = text(&world.provider.tell("sign-in alice").await, "token");
    assert_eq!(said(&world.call(&search("s6")).await.ok())["sub"], "alice");
    world.call(&send("w1")).await;
    assert_eq!(said(&world.end_of(&text(&held, "call_id")).await)["sub"], "alice");
    // s2, bob's s4, s6 and w1.
    assert_eq!(world.guarded.calls(), calls + 4);
    let data = world.setup.data();
    world.placet.stop().await;
    assert!(!files_with(&data, "revocation made").is_empty(), "it is not on the record");
}
