//! Scopes: never more than the caller's own token has, where a contract says so; and tokens in Placet's own name from a real provider.

use serde_json::{Value, json};

use super::{World, said, search, send};
use crate::harness::client::text;

#[tokio::test]
async fn scopes_that_the_callers_token_lacks_are_not_asked_for() {
    let mut world = World::new().await.with_credential(json!({ "scopes_of_caller": true })).await;
    // Refused before anybody is asked, with everything that is needed at once.
    for (submission, needed) in [(search("s1"), "mail.read"), (send("w1"), "mail.read mail.send")] {
        let refused = world.call(&submission).await;
        assert_eq!(
            (refused.status, text(&refused.json(), "error_code")),
            (403, "CREDENTIAL_REFUSED".to_owned())
        );
        let challenge = refused.headers["www-authenticate"].to_str().unwrap();
        let said = format!(
            "Bearer error=\"insufficient_scope\", scope=\"{needed}\", resource_metadata=\"http"
        );
        assert!(challenge.starts_with(&said), "{challenge}");
    }
    assert_eq!(world.guarded.calls(), 0);
    // What the token has is asked for, and nothing of what it lacks, though it would be granted.
    let narrow =
        json!({ "scopes": ["invoke"], "scopes_for": {}, "scopes_optional": ["mail.read"] });
    world = world.with_credential(narrow.clone()).await;
    assert_eq!(said(&world.call(&search("s2")).await.ok())["scope"], "invoke");
    let mut wide = narrow;
    wide["scopes_of_caller"] = json!(false);
    world = world.with_credential(wide).await;
    assert_eq!(said(&world.call(&search("s3")).await.ok())["scope"], "invoke mail.read");
}

#[tokio::test]
async fn a_target_that_knows_no_users_gets_a_token_in_our_own_name() {
    let world = World::new().await;
    let own = json!({
        "type": "client_credentials", "audience": null, "resource": "urn:mail-api", "scopes_optional": [],
    });
    let world = world.with_credential(own).await;
    let result = world.call(&search("s1")).await.ok();
    let claims = said(&result);
    assert_eq!(
        (&claims["sub"], &claims["aud"], &claims["scope"]),
        (&json!("placet"), &json!("urn:mail-api"), &json!("mail.read")),
        "{claims}"
    );
    assert_eq!(claims["act"], Value::Null, "nobody is acted for");
    // The agent alone may have it too: no token of a user is needed.
    let alone = said(&world.agent().call(&search("s2")).await.ok());
    assert_eq!(alone["jti"], claims["jti"], "the one that is there serves further calls");
    assert_eq!(said(&world.call(&search("s3")).await.ok())["jti"], claims["jti"]);
}

#[tokio::test]
async fn a_call_whose_tokens_name_nobody_who_acts_is_refused_before_anybody_is_asked() {
    let world = World::new().await;
    let refused = world.agent().call(&send("w1")).await;
    assert_eq!(
        (refused.status, text(&refused.json(), "error_code")),
        (403, "CREDENTIAL_REFUSED".to_owned())
    );
    let inbox = world.ben().await.get("/v1/inbox").await.ok();
    assert_eq!(inbox["approvals"], json!([]), "{inbox}");
}
