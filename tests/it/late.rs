//! Answers that come after nobody waits for them any more: they are evidence, and settle what was called unknown.
//!
//! Owns the way of a late answer over MCP, from outside. The server is `tests/peers/stub.mjs`.

use std::fs;

use serde_json::{Value, json};

use crate::harness::{
    client::text,
    npm,
    setup::{Setup, plan},
    until,
};

/// The stub as an adapter whose tool `note` writes and promises nothing about repeating; it answers after two and a half seconds.
async fn late() -> Setup {
    let setup = Setup::new().with("contracts", json!("contracts"));
    let record = setup.path("record").to_str().unwrap().to_owned();
    let (node, stub) = (npm::node(), npm::stub());
    let words = ["adapters", "import", "--name", "stub", "--stdio", "--"];
    let words = [&words[..], &[&node, &stub, "late-calls", &record]].concat();
    setup.configured(&words).await.ok();
    let mut contract = setup.read_contract("stub");
    contract["capabilities"]["note"]["mode"] = json!("local_write");
    fs::write(setup.contract_file("stub"), contract.to_string()).unwrap();
    setup
}

fn said(setup: &Setup, method: &str) -> usize {
    let text = fs::read_to_string(setup.path("record")).unwrap_or_default();
    let messages = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    messages.filter(|message| message["method"] == method).count()
}

#[tokio::test]
async fn an_answer_that_comes_late_over_mcp_settles_what_was_unknown() {
    let setup = late().await;
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    let mut call = plan("stub__note", "s1", json!({ "what": "a" }));
    call["run"]["run_budget"] = json!({ "tool_latency_ms_max": 1_000 });
    let problem = agent.call(&call).await.refused(409, "OUTCOME_UNKNOWN");
    assert_eq!(problem["execution"], "unknown", "{problem:#}");
    assert_eq!(said(&setup, "notifications/cancelled"), 0, "nobody would answer a cancelled call");
    // The answer has come: the same call gets its result, and nothing is sent again.
    until("the late answer counts", || async { agent.call(&call).await.status == 200 }).await;
    let result = agent.call(&call).await.succeeded();
    assert_eq!(result["replayed"], true, "{result:#}");
    assert!(text(&result["output"]["content"][0], "text").contains("note"), "{result:#}");
    assert_eq!(said(&setup, "tools/call"), 1);
    let listed = setup.ben(&placet).await.get("/v1/ledger?state=succeeded").await.ok();
    assert_eq!(listed["records"].as_array().unwrap().len(), 1, "{listed:#}");
    placet.stop().await;
    setup.configured(&["audit", "verify"]).await.ok();
}

#[tokio::test]
async fn a_stop_does_not_wait_for_an_answer_that_is_late() {
    let setup = late().await;
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    let mut call = plan("stub__note", "s1", json!({ "what": "a" }));
    call["run"]["run_budget"] = json!({ "tool_latency_ms_max": 300 });
    agent.call(&call).await.refused(409, "OUTCOME_UNKNOWN");
    let began = tokio::time::Instant::now();
    placet.stop().await;
    assert!(began.elapsed().as_secs() < 6, "{:?}", began.elapsed());
    // Unknown it stays, for people to resolve.
    let placet = setup.start().await;
    setup.agent(&placet).await.call(&call).await.refused(409, "OUTCOME_UNKNOWN");
}
