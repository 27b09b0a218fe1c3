//! The Python client, as a wheel that is installed: against a running Placet, and with the OpenAI SDK, LangChain, and a model whose answers
//! are written down.
//!
//! Owns what a user of the client relies on: results as they are, refusals that are typed, people who are waited for, and calls that act once.

use std::{fs, process::Stdio};

use serde_json::{Value, json};
use tokio::process::Command;

use crate::{
    harness::{
        client::text,
        model::{Model, says},
        placet::Placet,
        pypi,
        setup::Setup,
        within,
    },
    runs::{record, records, running},
    workspace,
};

/// Runs a Python program with the client and the packages of a list, and gives what it printed.
async fn python(
    setup: &Setup,
    placet: &Placet,
    packages: &str,
    arguments: &[&str],
    model: Option<&str>,
) -> String {
    let token = setup.token("agent", "dev-agent").await;
    let mut command = Command::new(pypi::programs(packages).join("python"));
    command
        .args(arguments)
        .env_clear()
        .env("PYTHONPATH", pypi::client())
        .env("PLACET_URL", placet.base.as_str())
        .env("PLACET_TOKEN", token)
        .env("OPENAI_API_KEY", "sk-nothing")
        .env("OPENAI_BASE_URL", model.unwrap_or("http://127.0.0.1:1/v1"))
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = within("a Python program ends", command.output()).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

const CALLS: &str = r#"
import json, placet
client = placet.Client()
run = client.open_run("r1", safety_mode="local_write")
names = [tool["function"]["name"] for tool in run.tools()["tools"]]
ids = dict(run_id="r1", step_id="s1", request_id="q1")
first = client.call("records__update_record", {"record_id": "REC-1", "status": "open"}, **ids)
again = client.call("records__update_record", {"record_id": "REC-1", "status": "open"}, **ids)
calls = [{"id": "a", "tool": "records__factorial", "args": {"n": 3}}, {"id": "b", "tool": "records__nowhere"}]
batch = run.batch(calls, batch_id="b1")
try:
    client.open_run("r1")
except placet.PlacetError as error:
    refused = [error.status, error.code, error.retryable, bool(error.remediation)]
try:
    placet.Client(url="http://127.0.0.1:1").open_run("r2")
except placet.Unanswered:
    refused.append("unanswered")
refused.append(client.call("records__nowhere", {}, **ids)["status"])
print(json.dumps({
    "names": names, "again": again["replayed"], "first": first["status"], "tools": len(client.tools()),
    "batch": [result["status"] for result in batch], "refused": refused, "iteration": run.state()["iteration"],
}))
"#;

#[tokio::test]
async fn calls_and_batches_give_results_and_refusals_as_they_are() {
    let setup = records(|_| {}).await;
    let (placet, _agent) = running(&setup).await;
    let said = python(&setup, &placet, "agents", &["-c", CALLS], None).await;
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&said["first"], &said["again"]), (&json!("succeeded"), &json!(true)), "{said:#}");
    assert!(said["names"].as_array().unwrap().contains(&json!("records__math_square")));
    assert_eq!(said["batch"], json!(["succeeded", "refused"]));
    assert_eq!(said["refused"], json!([409, "RUN_TAKEN", false, true, "unanswered", "refused"]));
    assert_eq!(said["iteration"], 2);
    let updates = record(&setup).into_iter().filter(|one| one["name"] == "update_record");
    assert_eq!(updates.count(), 1);
}

#[tokio::test]
async fn the_example_with_the_openai_sdk_waits_for_people_and_answers() {
    waits_for_people_and_answers("agents", "openai_agent.py").await;
}

#[tokio::test]
async fn the_example_with_langchain_waits_for_people_and_answers() {
    waits_for_people_and_answers("langchain", "langchain_agent.py").await;
}

async fn waits_for_people_and_answers(packages: &str, example: &str) {
    let setup = records(|tools| tools["update_record"]["mode"] = json!("destructive")).await;
    let (placet, agent) = running(&setup).await;
    let arguments = json!({ "record_id": "REC-1", "status": "closed" }).to_string();
    let function = json!({ "name": "records__update_record", "arguments": arguments });
    let call = json!({ "id": "call_1", "type": "function", "function": function });
    let script =
        [json!({ "role": "assistant", "content": null, "tool_calls": [call] }), says("Closed.")];
    let (model, url) = Model::start(script).await;
    // Before the wait for the call begins: a first installation takes longer than the call may.
    pypi::programs(packages);
    pypi::client();
    let example = workspace::root().join("clients/python/examples").join(example);
    let example = [example.to_str().unwrap(), "Close REC-1.", "r1"];
    let agent_program = python(&setup, &placet, packages, &example, Some(url.as_str()));
    let people = async {
        let ben = setup.ben(&placet).await;
        let approval = within("the call is held", async {
            loop {
                let list = ben.get("/v1/approvals").await.ok();
                if let Some(approval) = list["approvals"].get(0) {
                    return approval.clone();
                }
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        });
        ben.decide(&approval.await, "approve").await.ok();
    };
    let (answer, ()) = tokio::join!(agent_program, people);
    assert_eq!(answer, "Closed.\n");
    let messages = model.asked()[1].body["messages"].clone();
    let told: Value = serde_json::from_str(&text(&messages[2], "content")).unwrap();
    assert_eq!(told["status"], "succeeded", "{messages:#}");
    assert_eq!(told["output"]["status"], "closed");
    let batches = agent.get("/v1/runs/r1/batches").await.ok();
    assert_eq!(batches["batches"].as_array().unwrap().len(), 1);
}

#[test]
fn the_client_asks_nothing_that_the_openapi_document_does_not_have() {
    let document: Value =
        serde_json::from_str(&workspace::read("docs/src/reference/openapi.json")).unwrap();
    let paths = document["paths"].as_object().unwrap();
    let source =
        fs::read_to_string(workspace::root().join("clients/python/placet/__init__.py")).unwrap();
    let mut asked = 0_usize;
    for after in source.split("\"/v1/").skip(1) {
        let rest: String = after.chars().take_while(|c| !"\"?{".contains(*c)).collect();
        let path = format!("/v1/{rest}").trim_end_matches('/').to_owned();
        assert!(
            paths.contains_key(&path) || paths.contains_key(&format!("{path}/{{id}}")),
            "{path}"
        );
        asked = asked.saturating_add(1);
    }
    assert!(asked >= 4, "{asked} paths were found in the client");
}
