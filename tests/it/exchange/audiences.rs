//! A caller's token that is for several services is accepted, and the record names them all (specification: security, 2.1).
//!
//! Owns what an auditor sees: on the timeline, over HTTP, and in the exported chain, of an embedded ledger and of one in PostgreSQL. Which
//! audiences are refused is tested in `placet-identity`.

use std::fs;

use serde_json::{Value, json};

use super::{World, search, send};
use crate::harness::{
    client::{Client, text},
    postgres::Database,
    setup::{Setup, plan},
};

const OTHERS: [&str; 2] = ["https://crm.example", "urn:mail-api"];

impl World {
    /// A token like alice's with other claims.
    async fn with_claims(&mut self, claims: Value) -> String {
        let asked = json!({ "claims": claims });
        text(&self.provider.tell(&format!("sign {asked}")).await, "token")
    }

    /// A token of the agent for these services.
    async fn agents_token(&mut self, audiences: Value) -> Client {
        let claims = json!({
            "sub": "agent-1", "client_id": "agent-1", "placet_kind": "agent", "aud": audiences,
        });
        let token = self.with_claims(claims).await;
        self.placet.client(Some(token))
    }

    /// The timeline of a call, as an operator reads it.
    async fn timeline(&self, call_id: &str) -> Vec<Value> {
        let timeline = self.ben().await.get(&format!("/v1/calls/{call_id}/timeline")).await.ok();
        timeline["steps"].as_array().unwrap().clone()
    }
}

/// What a step says of the tokens.
fn audiences<'a>(steps: &'a [Value], kind: &str) -> &'a Value {
    let of_kind: Vec<&Value> = steps.iter().filter(|step| step["kind"] == kind).collect();
    assert_eq!(of_kind.len(), 1, "{kind}: {steps:#?}");
    &of_kind[0]["audiences"]
}

/// The audiences of each token that a step names, which must be so many.
fn named(audiences: &Value, tokens: usize) {
    let by_token = audiences.as_object().unwrap_or_else(|| panic!("none: {audiences}"));
    assert_eq!(by_token.len(), tokens, "{audiences}");
    for (token, audiences) in by_token {
        assert!(token.starts_with("tok_"), "{token}");
        // Sorted, and ours among them.
        assert_eq!(audiences, &json!([OTHERS[0], "placet", OTHERS[1]]));
    }
}

/// Every event of the exported chain.
async fn chain(setup: &Setup) -> Vec<Value> {
    let folder = setup.path("chain");
    fs::create_dir_all(&folder).unwrap();
    // Of a database all logs go to a folder; an embedded ledger has one, which goes to a file.
    let into_folder = setup.configured(&["audit", "export", folder.to_str().unwrap()]).await;
    let file = folder.join("journal.jsonl");
    if into_folder.code != Some(0) {
        setup.configured(&["audit", "export", file.to_str().unwrap()]).await.ok();
    }
    let files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let texts: Vec<String> = files.map(|file| fs::read_to_string(file).unwrap()).collect();
    let lines = texts.iter().flat_map(|text| text.lines());
    let payloads = lines.filter_map(|line| {
        let entry: Value = serde_json::from_str(line).unwrap();
        serde_json::from_str::<Value>(entry["payload"].as_str()?).ok()
    });
    payloads.filter_map(|payload| payload["audit"].as_array().cloned()).flatten().collect()
}

async fn recorded(setup: Setup) {
    let setup = setup.files_contract();
    let mut contract = setup.read_contract("files");
    contract["tenants"] = json!(["acme"]);
    let mut world = World::of(setup.contract("files", &contract)).await;
    let (one, several) = (json!("placet"), json!([OTHERS[1], "placet", OTHERS[0]]));
    let alices = world.with_claims(json!({ "aud": several })).await;
    let wide = format!("Bearer {alices}");

    // Of one audience nothing is said, and of the user's token all of them.
    let agent = world.agents_token(one).await;
    agent.call_with(&search("s1"), "placet-delegation", &wide).await.ok();
    let held = agent.call_with(&send("w1"), "placet-delegation", &wide).await.held();
    world.ben().await.decide(&held, "approve").await.ok();
    world.end_of(&text(&held, "call_id")).await;
    let steps = world.timeline(&text(&held, "call_id")).await;
    for kind in ["held", "dispatched"] {
        named(audiences(&steps, kind), 1);
    }
    assert!(
        audiences(&steps, "voted").is_null(),
        "the approver's token is for us alone: {steps:#?}"
    );
    let own = agent.call_with(&send("w1"), "placet-delegation", &wide).await.ok();
    let path = format!("/v1/calls/{}/timeline", text(&own, "tool_call_id"));
    let request = agent.request(http::Method::GET, &path).header("placet-delegation", &wide);
    let seen = agent.send(request.body(bytes::Bytes::new()).unwrap()).await.text();
    assert!(seen.contains("dispatched") && !seen.contains("crm.example"), "{seen}");

    // What is held keeps it over a restart, though the tokens are gone.
    let agent = world.agents_token(several).await;
    let delete = plan("files__delete", "d1", json!({ "path": "a.txt" }));
    let folder = world.setup.data().join("files/acme");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("a.txt"), "x").unwrap();
    let held = agent.call_with(&delete, "placet-delegation", &wide).await.held();
    let says_so = "tokens that are for other services too";
    assert_eq!(world.placet.log().matches(says_so).count(), 1, "said once, and not for each token");
    world = world.restarted().await;
    world.ben().await.decide(&held, "approve").await.ok();
    world.end_of(&text(&held, "call_id")).await;
    let steps = world.timeline(&text(&held, "call_id")).await;
    for kind in ["held", "dispatched"] {
        named(audiences(&steps, kind), 2);
    }
    let (ben, call_id) = (world.bens_token().await, text(&held, "call_id"));
    let shown = world.setup.asks(&world.placet, &ben, &["approvals", "timeline", &call_id]).await;
    let words = format!("is for {}, placet, {}", OTHERS[0], OTHERS[1]);
    assert!(shown.ok().contains(&words), "{shown:?}");

    let World { setup, placet, .. } = world;
    placet.stop().await;
    let events = chain(&setup).await;
    let read = events.iter().find(|event| event["kind"] == "read_dispatched").unwrap();
    named(&read["audiences"], 1);
    for token in [alices, agent.token.unwrap()] {
        let said = json!(events).to_string();
        assert!(!said.contains(&token), "a token is in the chain");
    }
    setup.configured(&["audit", "verify"]).await.ok();
}

#[tokio::test]
async fn whom_a_token_is_for_beside_us_is_on_the_record_of_every_call() {
    recorded(Setup::new()).await;
}

#[tokio::test]
async fn whom_a_token_is_for_beside_us_is_on_record_in_postgresql() {
    let database = Database::start().await;
    recorded(database.node("one")).await;
}

#[tokio::test]
async fn a_token_for_more_services_than_anybody_means_is_no_token() {
    let mut world = World::new().await;
    let many = |number: usize| -> Vec<String> {
        let others = (1..number).map(|at| format!("urn:{at}"));
        others.chain(["placet".to_owned()]).collect()
    };
    let good = world.agents_token(json!(many(32))).await;
    good.get("/v1/tools").await.ok();
    for audiences in
        [json!(many(33)), json!(["placet", "x".repeat(513)]), json!(["placet", "a\nb"])]
    {
        let agent = world.agents_token(audiences).await;
        agent.get("/v1/tools").await.refused(401, "UNAUTHENTICATED");
    }
    let log = world.placet.stop().await;
    for reason in ["more than 32 audiences", "1 to 512 bytes without control characters"] {
        assert!(log.contains(reason), "{reason}: {log}");
    }
}
