//! Aliases of tools that only read, from outside (TM-13).

use std::fs;

use serde_json::{Value, json};

use super::{names, offered, opened, record, records, running};
use crate::harness::{
    client::Client,
    setup::{Setup, plan},
    until,
};

fn find(words: &str) -> Value {
    json!({ "words": words })
}

/// A contract in which finding has an alias.
async fn aliased() -> Setup {
    records(|tools| tools["find_records"]["alias"] = json!({ "when": "pinned" }))
        .await
        .with("limits", json!({ "live_list_ms_max": 0 }))
}

async fn aliases(agent: &Client) -> Vec<String> {
    let tools = agent.get("/v1/tools").await.ok();
    let tools = tools["tools"].as_array().unwrap().iter();
    tools.filter_map(|tool| tool["alias"].as_str().map(str::to_owned)).collect()
}

#[tokio::test]
async fn tm_13_an_alias_is_the_tools_name_in_a_run_and_arguments_are_checked_as_ever() {
    let setup = aliased().await;
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
async fn tm_13_an_alias_ends_with_drift() {
    let setup = aliased().await;
    let (_placet, agent) = running(&setup).await;
    assert_eq!(aliases(&agent).await, ["mcp_records_find_records"]);
    let by_alias = |step| plan("mcp_records_find_records", step, find("red"));
    let found = agent.call(&by_alias("s1")).await.succeeded();
    assert_eq!(found["capability_id"], "records/find_records");
    assert!(found["policy_decision_id"].is_string(), "it is decided upon: {found:#}");
    // The server changes the tool.
    fs::write(setup.path("record.drifted"), "").unwrap();
    agent.call(&by_alias("s2")).await.refused(409, "TOOL_CHANGED");
    assert_eq!(aliases(&agent).await, [""; 0]);
    agent.call(&by_alias("s3")).await.refused(404, "TOOL_NOT_FOUND");
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
