//! The OpenAPI document as other programs read it: one that tests a running Placet against it, and one that generates a client from it.
//!
//! Owns the two programs' runs. Both are bounded: a fixed seed, few examples, and a limit of time.

use std::{path::Path, process::Stdio, time::Duration};

use serde_json::Value;
use tokio::process::Command;

use crate::{
    harness::{pypi, setup::Setup},
    workspace,
};

/// How long one of the programs may take.
const LIMIT: Duration = Duration::from_mins(3);

/// Runs a program, which must succeed, and answers what it printed.
async fn run(mut command: Command) -> String {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let output = tokio::time::timeout(LIMIT, command.output()).await.expect("in time").unwrap();
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{out}\n{err}");
    out
}

/// Leaves out the header that delegates a user's authority: with a generated text in it, every request ends at the check of tokens.
fn without_delegation(document: &mut Value) {
    let operations = document["paths"].as_object_mut().unwrap().values_mut();
    for operation in operations.flat_map(|path| path.as_object_mut().unwrap().values_mut()) {
        if let Some(parameters) = operation.get_mut("parameters").and_then(Value::as_array_mut) {
            parameters.retain(|parameter| parameter["name"] != "Placet-Delegation");
        }
    }
}

#[tokio::test]
async fn the_server_answers_as_its_openapi_document_says() {
    let programs = pypi::programs("openapi");
    let setup = Setup::new();
    let placet = setup.start().await;
    let mut document = placet.client(None).get("/openapi.json").await.ok();
    without_delegation(&mut document);
    std::fs::write(setup.path("openapi.json"), document.to_string()).unwrap();
    // What is said to somebody who may not is the same everywhere, and ben is refused what only agents do.
    let of_agents = [
        "--include-tag=calls",
        "--include-tag=runs",
        "--include-tag=sessions",
        "--include-tag=status",
        "--include-tag=tools",
    ];
    for (kind, name, only) in [("user", "ben", &[][..]), ("agent", "dev-agent", &of_agents[..])] {
        let token = setup.token(kind, name).await;
        let mut command = Command::new(programs.join("schemathesis"));
        command
            .current_dir(setup.path(""))
            .arg("--no-color")
            .arg("--config-file")
            .arg(workspace::root().join("tests/pypi/schemathesis.toml"))
            .args(["run", "openapi.json", "--url", placet.base.as_str().trim_end_matches('/')])
            .args(only)
            .arg("--header")
            .arg(format!("Authorization: Bearer {token}"));
        let said = run(command).await;
        assert!(said.contains("Tested: "), "{said}");
    }
    placet.stop().await;
}

/// What somebody writes first with a generated client.
const FIRST_CALLS: &str = r#"
import sys
from client import AuthenticatedClient
from client.api.calls import submit_call
from client.api.tools import list_tools
from client.models import Submission

client = AuthenticatedClient(base_url=sys.argv[1], token=sys.argv[2])
tools = list_tools.sync(client=client)
assert "files__read" in [tool.tool for tool in tools.tools], tools
call = Submission.from_dict({"tool": "files__list", "args": {}, "run": {"run_id": "first"}})
print(submit_call.sync(client=client, body=call).status.value)
"#;

#[tokio::test]
async fn a_client_generated_from_the_document_makes_a_call() {
    let programs = pypi::programs("openapi");
    let setup = Setup::new();
    let placet = setup.start().await;
    let document = placet.client(None).get("/openapi.json").await.ok();
    std::fs::write(setup.path("openapi.json"), document.to_string()).unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let mut generate = Command::new(programs.join("openapi-python-client"));
    generate
        .current_dir(setup.path(""))
        // It formats with a program of the same list.
        .env("PATH", format!("{}:{path}", programs.display()))
        .args(["generate", "--path", "openapi.json", "--output-path", "client", "--meta", "none"])
        .arg("--fail-on-warning");
    let said = run(generate).await;
    assert!(Path::new(&setup.path("client/api/calls/submit_call.py")).is_file(), "{said}");
    let token = setup.token("agent", "dev-agent").await;
    let mut calls = Command::new(programs.join("python3"));
    calls.current_dir(setup.path("")).args(["-c", FIRST_CALLS, placet.base.as_str(), &token]);
    assert_eq!(run(calls).await.trim(), "succeeded");
    placet.stop().await;
}
