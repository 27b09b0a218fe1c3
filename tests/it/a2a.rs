//! Another agent as a tool, over A2A 1.0: the official SDK's server, in front of which Placet stands (TS-01).
//!
//! Owns what the states of an agent's task are to a caller.

use std::{fs, path::Path, process::Stdio};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};
use url::Url;

use crate::{
    harness::{
        client::text,
        pypi,
        setup::{Setup, local, plan},
        watcher, within,
    },
    runs::running,
    workspace,
};

/// The agent, and where it listens.
async fn books(record: &Path) -> (Child, Url) {
    let mut command = Command::new(pypi::programs("a2a").join("python"));
    command
        .arg(workspace::root().join("tests/peers/a2a_agent.py"))
        .arg(record)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    let mut child = watcher::started(&mut command);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let port = within("the agent says its port", lines.next_line()).await.unwrap().unwrap();
    (child, local(port.parse().unwrap(), "/a2a"))
}

fn contract(url: &Url) -> Value {
    let schema = json!({
        "type": "object", "required": ["message"], "additionalProperties": false,
        "properties": { "message": { "type": "string" }, "task_id": { "type": "string" }, "account": { "type": "string" } },
    });
    json!({
        "contract_version": "placet.contract.v1", "adapter": "books", "environment": "dev", "tenants": "all",
        "transport": { "type": "a2a", "url": url.as_str(), "private_network": true }, "protocol_version": "1.0",
        "capabilities": {
            "ask": { "description": "Asks the books.", "input_schema": schema, "mode": "read_only", "effect": "none" },
            "post": {
                "description": "Posts to the books.", "input_schema": schema, "mode": "local_write", "effect": "write",
                "dedup": { "class": "opaque" },
            },
        },
    })
}

#[tokio::test]
async fn ts_01_a_sub_agent_is_a_tool_and_its_task_the_outcome_of_the_call() {
    let setup = Setup::new();
    let record = setup.path("record");
    let (_agent, url) = books(&record).await;
    let setup = setup.contract("books", &contract(&url));
    let (_placet, agent) = running(&setup).await;
    let ask = |step: &str, args: Value| plan("books__ask", step, args);
    let said =
        agent.call(&ask("s1", json!({ "message": "add 2 3", "account": "A-1" }))).await.succeeded();
    let structured = &said["output"]["structured"];
    assert_eq!(
        (&structured["state"], &structured["data"]),
        (&json!("completed"), &json!([{ "sum": 5 }])),
        "{said:#}"
    );
    assert_eq!(said["output"]["content"][0]["text"], "The sum is 5.");
    // It is asked until it is done.
    let slow = agent.call(&ask("s2", json!({ "message": "slow 1" }))).await.succeeded();
    assert_eq!(slow["output"]["structured"]["state"], "completed");
    // It wants something, and goes on with the same task.
    let wants = agent.call(&ask("s3", json!({ "message": "ask" }))).await.succeeded();
    let wants = &wants["output"]["structured"];
    assert_eq!(
        (&wants["state"], &wants["text"]),
        (&json!("input_required"), &json!(["Which account?"]))
    );
    let more = json!({ "message": "add 4", "task_id": wants["task_id"] });
    let done = agent.call(&ask("s4", more)).await.succeeded();
    assert_eq!(done["output"]["structured"]["task_id"], wants["task_id"]);
    let failed = agent.call(&ask("s5", json!({ "message": "fail" }))).await.json();
    assert_eq!(
        (&failed["status"], &failed["error"]["error_code"]),
        (&json!("failed"), &json!("ADAPTER_FAILED"))
    );
    assert_eq!(failed["output"]["content"][0]["text"], "The books are closed.");
    let unknown = json!({ "message": "add 1", "task_id": "nowhere" });
    let unknown = agent.call(&ask("s6", unknown)).await.json();
    assert_eq!(
        (&unknown["status"], &unknown["output"]["error"]["code"]),
        (&json!("failed"), &json!(-32001)),
        "{unknown:#}"
    );
    // A write is sent once, under the token of its dispatch.
    let post = plan("books__post", "s7", json!({ "message": "add 1" }));
    agent.call(&post).await.succeeded();
    assert_eq!(agent.call(&post).await.succeeded()["replayed"], true);
    // One that is not done in its time may have happened.
    let mut late = plan("books__post", "s8", json!({ "message": "slow 20" }));
    late["run"] = json!({ "run_id": "late", "safety_mode": "destructive", "run_budget": { "tool_latency_ms_max": 1_000 } });
    let late = agent.call(&late).await.json();
    assert!(late.to_string().contains("OUTCOME_UNKNOWN"), "{late:#}");
    let told = fs::read_to_string(&record).unwrap();
    let told: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(told[0]["parts"], json!([{ "text": "add 2 3" }, { "data": { "account": "A-1" } }]));
    let posts = told.iter().filter(|message| message["parts"][0]["text"] == "add 1");
    let ids: Vec<String> = posts.map(|message| text(message, "messageId")).collect();
    assert_eq!(ids.len(), 1, "{told:#?}");
    assert!(ids[0].starts_with("plc_"), "{ids:?}");
}
