//! Sessions of a server behind exchanged tokens: no one's call is done as somebody else, whatever a server makes of a session.
//!
//! Owns two tenants whose users call in turn. How sessions are begun, counted and ended is tested in `placet-adapter-mcp`.

use std::{fs, time::Duration};

use serde_json::{Value, json};

use super::{DIRECTORY, Provider, World, said, search, send};
use crate::harness::client::{Client, text};

/// A second issuer of the same keys, for another tenant.
fn second(provider: &Provider) -> Value {
    let mut issuers = provider.issuers();
    let mut other = issuers[0].clone();
    other["issuer"] = json!(format!("{}/globex", provider.issuer));
    other["tenant"] = json!("globex");
    other["clients"] = json!({ "app": "agent-9" });
    issuers.as_array_mut().unwrap().push(other);
    issuers
}

/// A world of two tenants, whose server makes this of a session.
async fn seated(manner: &str) -> World {
    let world = World::new().await;
    fs::write(format!("{}.sessions", world.guarded.record.display()), manner).unwrap();
    let globex = r#"{ "tenants": { "globex": {
        "groups": { "approvers": {}, "freeze-approvers": {}, "emergency": {} },
        "users": { "gina": { "groups": ["approvers", "freeze-approvers", "emergency"] }, "gus": {} },
        "agents": { "agent-9": { "owner": "gus" } } },"#;
    let both = DIRECTORY.replacen(r#"{ "tenants": {"#, globex, 1);
    fs::write(world.setup.path("directory.yaml"), both).unwrap();
    let issuers = second(&world.provider);
    world.set(|setup| setup.with("issuers", issuers)).await
}

impl World {
    async fn of_globex(&mut self, claims: Value) -> String {
        let mut claims = claims;
        claims["iss"] = json!(format!("{}/globex", self.provider.issuer));
        text(&self.provider.tell(&format!("sign {}", json!({ "claims": claims }))).await, "token")
    }

    /// For whom the server did a search.
    async fn searched(agent: &Client, step: &str, user: &str) -> String {
        let user = format!("Bearer {user}");
        text(&said(&agent.call_with(&search(step), "placet-delegation", &user).await.ok()), "sub")
    }
}

#[tokio::test]
async fn a_session_serves_one_user_of_one_tenant() {
    for manner in ["first", "user"] {
        let mut world = seated(manner).await;
        let acting = json!({ "sub": "agent-9", "client_id": "agent-9", "placet_kind": "agent" });
        let acting = world.of_globex(acting).await;
        let gina = world.of_globex(json!({ "sub": "gina" })).await;
        let nine = world.placet.client(Some(acting));
        let (one, alice, bob) =
            (world.agent(), world.provider.alice.clone(), world.provider.bob.clone());
        for turn in 0..2 {
            let step = format!("s{turn}");
            for (agent, name, token) in
                [(&one, "alice", &alice), (&nine, "gina", &gina), (&one, "bob", &bob)]
            {
                let step = format!("{name}-{step}");
                assert_eq!(World::searched(agent, &step, token).await, name, "{manner}");
            }
        }
        // What is refused or ended in one session closes the tool for nobody.
        assert!(!world.placet.stop().await.contains("the breaker opened"), "{manner}");
    }
}

#[tokio::test]
async fn a_read_by_one_user_leaves_the_approved_call_of_another_alone() {
    let world = seated("user").await;
    let slow = format!("{}.slow", world.guarded.record.display());
    fs::write(&slow, "3000").unwrap();
    let held = world.call(&send("w1")).await.held();
    let (approval, call_id) = (text(&held, "approval_id"), text(&held, "call_id"));
    let ben = world.ben().await;
    let shown = ben.get(&format!("/v1/approvals/{approval}")).await.ok();
    let digest = text(&shown["approval"], "digest");
    ben.decide_on(&approval, "approve", &digest).await.ok();
    let under_way = async {
        while world.guarded.calls() == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    crate::harness::within("it is sent", under_way).await;
    let bob = world.provider.bob.clone();
    assert_eq!(World::searched(&world.agent(), "s1", &bob).await, "bob");
    let done = world.end_of(&call_id).await;
    assert_eq!(
        (&done["status"], &said(&done)["sub"]),
        (&json!("succeeded"), &json!("alice")),
        "{done}"
    );
    assert_eq!(world.guarded.calls(), 2);
}

impl World {
    /// An approved call whose session the server is about to begin, and the token that it is begun with.
    async fn beginning(&self, ms: u32) -> (String, String) {
        let held = self.call(&send("w1")).await.held();
        let begins = format!("{}.begins", self.guarded.record.display());
        fs::write(begins, ms.to_string()).unwrap();
        let shown = self.guarded.bearers().len();
        self.ben().await.decide(&held, "approve").await.ok();
        let asked = async {
            while self.guarded.bearers().len() == shown {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        crate::harness::within("a session is begun", asked).await;
        (text(&held, "call_id"), self.guarded.bearers().last().unwrap().clone())
    }
}

#[tokio::test]
async fn what_is_revoked_while_its_session_is_begun_is_not_sent() {
    let world = seated("user").await;
    world.beginning(4_000).await;
    let begun = || world.guarded.shown().matches("notifications/initialized").count();
    let before = begun();
    let revoke =
        ["directives", "revoke", "--subject", "alice", "--reason", "laptop lost", "--json"];
    let entry = world.types(&revoke).await.json();
    assert_eq!(entry["in_force"], json!(true), "{entry}");
    assert_eq!(world.guarded.calls(), 0, "it was sent before");
    let is_begun = async {
        while begun() == before {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    crate::harness::within("the session is begun", is_begun).await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(world.guarded.calls(), 0);
}

#[tokio::test]
async fn no_call_is_sent_with_a_token_that_ended_while_its_session_was_begun() {
    let mut world = seated("user").await;
    // Used for two seconds: fifteen are kept back.
    world.provider.tell(r#"answer {"expires_in":17}"#).await;
    let (call_id, first) = world.beginning(3_000).await;
    // The next one is begun at once: a token that ends before any session is there would be tried with for ever.
    fs::write(format!("{}.begins", world.guarded.record.display()), "0").unwrap();
    world.end_of(&call_id).await;
    let shown = world.guarded.shown();
    let calls: Vec<&str> = shown.lines().filter(|line| line.contains("tools/call")).collect();
    assert_eq!(calls.len(), 1);
    assert!(!calls[0].contains(&first), "it was sent with the token that had ended");
}
