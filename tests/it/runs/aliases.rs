//! Aliases of tools that only read, from outside (TM-13).

use std::fs;

use serde_json::{Value, json};

use super::{names, offered, opened, record, records, running};
use crate::{
    harness::{
        client::{Client, text},
        setup::{Setup, plan},
        until,
    },
    limits::with_class,
};

fn find(words: &str) -> Value {
    json!({ "words": words })
}

/// A contract in which finding has an alias.
async fn aliased(when: &str, ttl_ms: u64) -> Setup {
    records(|tools| {
        tools["find_records"]["alias"] = json!({ "when": when, "answer_ttl_ms": ttl_ms });
    })
    .await
    .with("limits", json!({ "live_list_ms_max": 0 }))
}

async fn aliases(agent: &Client) -> Vec<String> {
    let tools = agent.get("/v1/tools").await.ok();
    let tools = tools["tools"].as_array().unwrap().iter();
    tools.filter_map(|tool| tool["alias"].as_str().map(str::to_owned)).collect()
}

async fn found(agent: &Client, step: &str, words: &str) -> Value {
    agent.call(&plan("mcp_records_find_records", step, find(words))).await.succeeded()
}

#[tokio::test]
async fn tm_13_an_answer_under_an_alias_comes_from_the_cache_for_its_caller_alone() {
    let setup = with_class(aliased("pinned", 600_000).await, &json!({}));
    let (placet, agent) = running(&setup).await;
    assert_eq!(aliases(&agent).await, ["mcp_records_find_records"]);
    let first = found(&agent, "s1", "red").await;
    assert_eq!(first.get("cached_at"), None);
    let again = found(&agent, "s2", "red").await;
    assert_eq!(again["output"], first["output"]);
    assert_eq!(again["capability_id"], "records/find_records");
    assert!(again["cached_at"].is_string() || again["cached_at"].is_number(), "{again:#}");
    assert_eq!(record(&setup).len(), 1, "the tool was asked again");
    assert!(again["policy_decision_id"].is_string(), "a cached answer is decided upon too");
    // Other arguments, the tool's own name, and another caller ask the tool.
    found(&agent, "s3", "blue").await;
    agent.call(&plan("records__find_records", "s4", find("red"))).await.succeeded();
    let other = setup.client(&placet, "agent", "second").await;
    assert_eq!(found(&other, "s5", "red").await.get("cached_at"), None);
    assert_eq!(record(&setup).len(), 4);
    // The audit says which answer was an old one.
    placet.stop().await;
    let chain = setup.path("chain.jsonl");
    setup.configured(&["audit", "export", chain.to_str().unwrap()]).await.ok();
    let chain = fs::read_to_string(&chain).unwrap();
    let noted = chain.lines().filter(|line| line.contains("answered from the cache, as of"));
    let noted: Vec<&str> = noted.collect();
    assert!(noted.len() == 1 && noted[0].contains(&text(&again, "tool_call_id")), "{noted:?}");
}

#[tokio::test]
async fn tm_13_an_alias_is_the_tools_name_in_a_run_and_arguments_are_checked_as_ever() {
    let setup = aliased("pinned", 0).await;
    let (_placet, agent) = running(&setup).await;
    let run = opened(&agent, "r1", json!({ "tools": ["records__find_records"] })).await;
    assert_eq!(names(&run["tools"]), ["mcp_records_find_records"]);
    let defined = offered(&agent, "r1", "openai").await;
    assert_eq!(defined["tools"][0]["function"]["name"], "mcp_records_find_records");
    let call = |id: &str, name: &str, arguments: &str| json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } });
    let calls = [
        call("1", "mcp_records_find_records", r#"{"words":"a"}"#),
        call("2", "records__find_records", r#"{"words":"a"}"#),
        call("3", "mcp_records_find_records", "{}"),
    ];
    let view =
        agent.post("/v1/runs/r1/batches", &json!({ "batch_id": "b1", "calls": calls })).await;
    let results = view.ok();
    let results = results["results"].as_array().unwrap();
    assert_eq!(results[0]["status"], "succeeded", "{results:#?}");
    assert_eq!(results[1]["duplicate_of"], "1", "one tool under two names is one call");
    assert_eq!(results[2]["result"]["error"]["error_code"], "VALIDATION_ERROR");
    assert_eq!(record(&setup).len(), 1);
}

#[tokio::test]
async fn tm_13_an_alias_ends_with_drift_and_its_answers_with_a_promotion() {
    let setup = aliased("pinned", 600_000).await;
    let (placet, agent) = running(&setup).await;
    found(&agent, "s1", "red").await;
    // Something is activated: the old answer is not given again.
    let mut contract = setup.read_contract("records");
    contract["description"] = json!("Changed.");
    let setup = setup.contract("records", &contract);
    let operator = setup.token("user", "ben").await;
    setup.asks(&placet, &operator, &["reload"]).await.ok();
    assert_eq!(found(&agent, "s2", "red").await.get("cached_at"), None);
    assert!(found(&agent, "s3", "red").await.get("cached_at").is_some());
    assert_eq!(record(&setup).len(), 2);
    // The server changes the tool: nothing comes from the cache, and the alias is gone.
    fs::write(setup.path("record.drifted"), "").unwrap();
    let drifted = agent.call(&plan("mcp_records_find_records", "s4", find("red"))).await;
    drifted.refused(409, "TOOL_CHANGED");
    assert_eq!(aliases(&agent).await, [""; 0]);
    let gone = agent.call(&plan("mcp_records_find_records", "s5", find("red"))).await;
    gone.refused(404, "TOOL_NOT_FOUND");
}

#[tokio::test]
async fn tm_13_a_scored_alias_is_earned_by_calls_that_went_well() {
    let setup = records(|tools| {
        tools["find_records"]["alias"] = json!({ "when": "scored" });
        tools["fails"]["alias"] = json!({ "when": "scored" });
    })
    .await;
    let (placet, agent) = running(&setup).await;
    assert_eq!(aliases(&agent).await, [""; 0]);
    let early = agent.call(&plan("mcp_records_find_records", "s0", find("red"))).await;
    early.refused(404, "TOOL_NOT_FOUND");
    for number in 0..20 {
        let step = format!("s{number}");
        agent.call(&plan("records__find_records", &step, find("red"))).await.succeeded();
        agent.call(&plan("records__fails", &step, json!({}))).await;
    }
    // An activation has everything scored again.
    let mut contract = setup.read_contract("records");
    contract["description"] = json!("Changed.");
    let setup = setup.contract("records", &contract);
    let operator = setup.token("user", "ben").await;
    setup.asks(&placet, &operator, &["reload"]).await.ok();
    until("the tool is scored", || async { !aliases(&agent).await.is_empty() }).await;
    assert_eq!(aliases(&agent).await, ["mcp_records_find_records"]);
    let report = setup.ben(&placet).await.get("/v1/report").await.ok();
    let rows = report["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["capability"] == "find_records").unwrap();
    assert_eq!(row["alias"], "mcp_records_find_records");
    assert_eq!(
        (&row["numbers"]["succeeded"], &row["numbers"]["success_rate"]),
        (&json!(20), &json!(1.0))
    );
}
