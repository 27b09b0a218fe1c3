//! Callers that are no longer active, and attempts that are refused before there is a call: what they read, and what the audit chain tells.
//!
//! Owns the entries of the exported chain. Invariant that is tested throughout: nothing that was sent is in an entry.

use std::fs;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use crate::{
    harness::{
        client::text,
        placet::Placet,
        setup::{Setup, plan},
    },
    mcp_clients::{posted, stateless},
};

fn directory(setup: &Setup, is_active: bool) {
    let users = json!({
        "ana": {}, "ben": { "groups": ["approvers", "operators"], "active": is_active },
        "cleo": { "groups": ["approvers", "freeze-approvers", "emergency"] },
    });
    let local = json!({
        "groups": { "approvers": {}, "operators": {}, "freeze-approvers": {}, "emergency": {} }, "users": users,
        "agents": {
            "dev-agent": { "owner": "ana", "active": is_active },
            "other-agent": { "owner": "ana" },
        },
    });
    fs::write(setup.path("directory.yaml"), json!({ "tenants": { "local": local } }).to_string())
        .unwrap();
}

/// The notes of the security events in the chain of a stopped Placet.
async fn security_events(setup: &Setup) -> Vec<Value> {
    let chain = setup.path("chain.jsonl");
    setup.configured(&["audit", "export", chain.to_str().unwrap()]).await.ok();
    let mut events = Vec::new();
    for line in fs::read_to_string(&chain).unwrap().lines() {
        let entry: Value = serde_json::from_str(line).unwrap();
        let payload = entry["payload"].as_str().map_or_else(
            || entry["payload"].clone(),
            |text| serde_json::from_str(text).unwrap_or(Value::Null),
        );
        let audit = payload["audit"].as_array().cloned().unwrap_or_default();
        events.extend(audit.into_iter().filter(|event| event["kind"] == "security"));
    }
    fs::remove_file(chain).unwrap();
    events
}

fn with_note<'e>(events: &'e [Value], words: &str) -> Vec<&'e Value> {
    let said = |event: &&Value| event["note"].as_str().is_some_and(|note| note.contains(words));
    events.iter().filter(said).collect()
}

async fn started() -> (Setup, Placet) {
    let setup = Setup::new().with("directory", json!("directory.yaml"));
    directory(&setup, true);
    let placet = setup.start().await;
    (setup, placet)
}

#[tokio::test]
async fn deactivated_agents_and_users_read_nothing() {
    let (setup, placet) = started().await;
    setup.put("a.txt", "x");
    let (agent, ben) = (setup.agent(&placet).await, setup.ben(&placet).await);
    let write = plan("files__write", "s1", json!({ "path": "b.txt", "content": "y" }));
    let done = text(&agent.call(&write).await.succeeded(), "tool_call_id");
    let held = agent.call(&plan("files__delete", "s2", json!({ "path": "a.txt" }))).await.held();
    let (waits, approval) = (text(&held, "call_id"), text(&held, "approval_id"));
    let shown = ben.get(&format!("/v1/approvals/{approval}")).await.ok();
    let digest = text(&shown["approval"], "digest");
    let record = ben.get("/v1/ledger").await.ok()["records"][0].clone();
    let record = text(&record, "record_id");
    let paths = [
        format!("/v1/calls/{done}"),
        format!("/v1/calls/{done}/events"),
        format!("/v1/calls/{done}/timeline"),
        format!("/v1/calls/{done}/receipt"),
        format!("/v1/calls/{waits}"),
        format!("/v1/calls/{waits}?wait_ms=1000"),
        "/v1/tools".to_owned(),
        "/v1/inbox".to_owned(),
        "/v1/approvals".to_owned(),
        format!("/v1/approvals/{approval}"),
        "/v1/directives".to_owned(),
        "/v1/approvals/events".to_owned(),
        "/v1/ledger".to_owned(),
        format!("/v1/ledger/{record}"),
        "/v1/audit/key".to_owned(),
        "/v1/audit/checkpoints".to_owned(),
    ];
    placet.stop().await;

    directory(&setup, false);
    let placet = setup.start().await;
    let (agent, ben) = (setup.agent(&placet).await, setup.ben(&placet).await);
    for path in &paths {
        for caller in [&agent, &ben] {
            let problem = caller.get(path).await.refused(403, "POLICY_DENIED");
            assert!(text(&problem, "detail").contains("not active"), "{path}: {problem:#}");
        }
    }
    // Nor a recorded result by sending the same call again.
    agent.call(&write).await.refused(403, "POLICY_DENIED");
    ben.decide_on(&approval, "approve", &digest).await.refused(403, "POLICY_DENIED");
    // An active approver goes on.
    let cleo = setup.client(&placet, "user", "cleo").await;
    cleo.get(&format!("/v1/approvals/{approval}")).await.ok();
    placet.stop().await;
    let events = security_events(&setup).await;
    let told = with_note(&events, "not active");
    assert_eq!(told.len(), 2, "one for each caller: {events:#?}");
    assert_eq!(told[0]["chain"]["actor"]["id"], "dev-agent");
    let reads = format!("{} requests of a caller", paths.len() + 1);
    assert!(told.iter().all(|event| text(event, "note").contains(&reads)), "{told:#?}");
}

#[tokio::test]
async fn smuggling_attempts_of_verified_callers_are_in_the_chain() {
    let (setup, placet) = started().await;
    let agent = setup.agent(&placet).await;
    let call = plan("files__read", "s1", json!({ "path": "CANARY" })).to_string();
    let twice = call.replacen('{', "{\"tool\":\"files__delete\",", 1);
    let nested = call.replace("\"CANARY\"", &format!("{}{}", "[".repeat(65), "]".repeat(65)));
    for body in [
        Bytes::from(twice.clone()),
        Bytes::from(twice),
        Bytes::from(format!("[{call}]")),
        Bytes::from(format!("\u{feff}{call}")),
        Bytes::from([call.as_bytes(), b"\xff"].concat()),
        Bytes::from(format!("{call}{call}")),
        Bytes::from(nested),
        Bytes::from(call.replace("\"CANARY\"", "1e400")),
    ] {
        agent.post_text("/v1/calls", body).await.refused(400, "VALIDATION_ERROR");
    }
    let keyed = call.replacen('{', "{\"idempotency_key\":\"k1\",", 1);
    let keyed = serde_json::from_str(&keyed).unwrap();
    agent.call_with(&keyed, "idempotency-key", "k2").await.refused(400, "VALIDATION_ERROR");
    let read = json!({ "name": "files__read", "arguments": { "path": "CANARY" } });
    let read = stateless("tools/call", read).to_string();
    assert_eq!(posted(&agent, "tools/call", "files__delete", read.clone()).await.status, 400);
    assert_eq!(posted(&agent, "tools/call", "files__read", read + "x").await.status, 400);
    // What is merely wrong is no attempt.
    agent.post_text("/v1/calls", "{").await.refused(400, "VALIDATION_ERROR");
    placet.stop().await;
    let events = security_events(&setup).await;
    let told = with_note(&events, ": 11 requests that two readers could take differently");
    assert_eq!(told.len(), 1, "each is counted, in one entry: {events:#?}");
    assert_eq!(told[0]["chain"]["actor"]["id"], "dev-agent");
    assert!(!json!(events).to_string().contains("CANARY"));
}

#[tokio::test]
async fn forged_tokens_are_one_entry_for_their_address() {
    let (setup, placet) = started().await;
    let good = setup.token("agent", "dev-agent").await;
    let (head, signature) = good.rsplit_once('.').unwrap();
    let forged = format!("{head}.{}", signature.chars().rev().collect::<String>());
    for token in [&forged, &forged, "not-a-token"] {
        placet
            .client(Some(token.to_owned()))
            .get("/v1/tools")
            .await
            .refused(401, "UNAUTHENTICATED");
    }
    let client = placet.client(Some(good.clone()));
    let twice = client.request(Method::GET, "/v1/tools").header("authorization", "Bearer other");
    client.send(twice.body(Bytes::new()).unwrap()).await.refused(401, "UNAUTHENTICATED");
    // No token at all is no forged one.
    let nobody = placet.client(None);
    let request = nobody.request(Method::GET, "/v1/tools").body(Bytes::new()).unwrap();
    nobody.send(request).await.refused(401, "UNAUTHENTICATED");
    placet.stop().await;
    let events = security_events(&setup).await;
    let told = with_note(&events, "tokens from");
    assert_eq!(told.len(), 1, "{events:#?}");
    assert_eq!(text(told[0], "note"), "refused within a minute: 4 tokens from 127.0.0.1");
    assert_eq!(told[0]["code"], "UNAUTHENTICATED");
    assert!(!json!(events).to_string().contains(signature));
}
