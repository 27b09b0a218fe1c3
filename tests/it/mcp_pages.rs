//! Clients that can open pages: a held call sends them to the page of its approval.
//!
//! Owns the request to open it in both kinds of revisions, and what a `requestState` is good for: its caller, tool and arguments alone, until
//! the approval expires.

use std::fs;

use serde_json::{Value, json};

use crate::{
    harness::{
        client::{Client, text},
        setup::Setup,
        until,
    },
    mcp_clients::{MODES, Sdk, World, capable, handle, said},
    reload::own_files,
};

fn delete() -> Value {
    json!({ "path": "a.txt" })
}

/// `tools/call` of a client that can open pages, as plain HTTP.
async fn asked(client: &Client, tool: &str, args: Value, answers: Value) -> Value {
    let mut params = json!({ "name": tool, "arguments": args });
    if let (Some(params), Some(answers)) = (params.as_object_mut(), answers.as_object()) {
        params.extend(answers.clone());
    }
    let url = json!({ "elicitation": { "url": {} } });
    capable(client, url, "tools/call", tool, params).await
}

/// The state of a call that is held now.
async fn state(client: &Client) -> String {
    let required = asked(client, "files__delete", delete(), json!({})).await;
    assert_eq!(required["result"]["resultType"], "input_required", "{required:#}");
    text(&required["result"], "requestState")
}

fn resumed(state: &str, action: &str) -> Value {
    json!({ "requestState": state, "inputResponses": { "approval": { "action": action } } })
}

#[tokio::test]
async fn a_client_is_sent_to_the_page_of_the_approval_and_gets_the_outcome_of_its_call() {
    let world = World::holding(60_000).await;
    for (mode, _) in MODES {
        world.setup.put("a.txt", "hello");
        let mut client = Sdk::opening(&world.placet, mode, "accept").await;
        client.begins(json!({ "call": "files__delete", "args": delete() })).await;
        let approval = text(&world.asked().await, "approval_id");
        assert!(world.setup.file("a.txt").is_file());
        world.approve().await.ok();
        let done = client.answer().await;
        assert_eq!(said(&done)["status"], "succeeded", "{mode}: {done:#}");
        assert!(!world.setup.file("a.txt").is_file());
        let opened = done["opened"].as_array().unwrap();
        assert_eq!(opened.len(), 1, "{mode}: {done:#}");
        assert_eq!(opened[0]["mode"], "url", "{mode}: {done:#}");
        let page = world.placet.url(&format!("/approvals/{approval}"));
        assert_eq!(opened[0]["url"], page.as_str(), "{mode}");
        assert!(text(&opened[0], "message").contains("approvers"), "{mode}: {done:#}");
        assert_eq!(opened[0]["elicitationId"], approval, "{mode}: {done:#}");
    }
}

#[tokio::test]
async fn nobody_is_asked_to_open_a_page_twice_for_one_request_and_declining_withdraws_nothing() {
    let world = World::holding(300).await;
    world.setup.put("a.txt", "hello");
    let mut handles = Vec::new();
    for action in ["accept", "decline", "cancel"] {
        let mut client = Sdk::opening(&world.placet, "auto", action).await;
        let pending = client.calls("files__delete", delete()).await;
        assert_eq!(said(&pending)["status"], "pending", "{action}: {pending:#}");
        assert_eq!(pending["opened"].as_array().unwrap().len(), 1, "{action}: {pending:#}");
        handles.push(handle(&pending));
    }
    handles.dedup();
    assert_eq!(handles.len(), 1, "the same call: {handles:?}");
    world.approve().await.ok();
    let (mut client, _) = Sdk::connect(&world.placet, "auto").await;
    let done = client.calls("placet__await", json!({ "handle": handles[0] })).await;
    assert_eq!(said(&done)["status"], "succeeded", "{done:#}");
}

#[tokio::test]
async fn a_state_is_of_its_caller_its_tool_and_its_arguments_and_outlives_a_restart() {
    let world = World::holding(100).await;
    world.setup.put("a.txt", "hello");
    world.setup.put("b.txt", "hello");
    let agent = world.setup.agent(&world.placet).await;
    let state = state(&agent).await;
    let (head, tag) = state.rsplit_once('.').unwrap();
    let mut letters = tag.chars();
    let other = if letters.next() == Some('A') { "B" } else { "A" };
    let forged = format!("{head}.{other}{}", letters.as_str());
    let answers = resumed(&state, "accept");
    let refused = [
        asked(&agent, "files__delete", delete(), resumed(&forged, "accept")).await,
        asked(&agent, "files__delete", delete(), resumed("nonsense", "accept")).await,
        asked(&agent, "files__delete", json!({ "path": "b.txt" }), answers.clone()).await,
        asked(&agent, "files__read", delete(), answers.clone()).await,
        asked(&world.ben, "files__delete", delete(), answers.clone()).await,
        asked(&agent, "files__delete", delete(), json!({ "inputResponses": {} })).await,
    ];
    for (number, refused) in refused.iter().enumerate() {
        assert_eq!(refused["error"]["code"], -32602, "{number}: {refused:#}");
        assert!(refused["error"]["message"].as_str().unwrap().contains("make the call again"));
    }
    world.held().await;
    let world = world.restarted().await;
    let agent = world.setup.agent(&world.placet).await;
    let pending = asked(&agent, "files__delete", delete(), answers.clone()).await;
    assert_eq!(said(&pending["result"])["status"], "pending", "{pending:#}");
    world.approve().await.ok();
    until("the file is deleted", || async { !world.setup.file("a.txt").is_file() }).await;
    world.setup.put("a.txt", "again");
    for _ in 0..2 {
        let done = asked(&agent, "files__delete", delete(), answers.clone()).await;
        assert_eq!(said(&done["result"])["status"], "succeeded", "{done:#}");
        assert_eq!(handle(&done["result"]), handle(&pending["result"]), "{done:#}");
    }
    assert!(world.setup.file("a.txt").is_file(), "a state that is used again executes nothing");
}

#[tokio::test]
async fn a_state_expires_with_its_approval() {
    let setup = own_files(Setup::new().with("mcp", json!({ "hold_ms": 100 })));
    let gates = setup.path("policies/20-gates.cedar");
    let brief =
        fs::read_to_string(&gates).unwrap().replace("@expires(\"24h\")", "@expires(\"2s\")");
    fs::write(&gates, brief).unwrap();
    let world = World::of(setup).await;
    world.setup.put("a.txt", "hello");
    let agent = world.setup.agent(&world.placet).await;
    let answers = resumed(&state(&agent).await, "accept");
    until("the state has expired", || async {
        let refused = asked(&agent, "files__delete", delete(), answers.clone()).await;
        refused["error"]["code"] == -32602
    })
    .await;
    assert!(world.setup.file("a.txt").is_file());
}

#[tokio::test]
async fn without_a_console_the_same_client_waits_and_is_told_that_its_call_is_pending() {
    let setup = Setup::new().with("mcp", json!({ "hold_ms": 100 }));
    let world = World::of(setup.with("console", json!({ "enabled": false }))).await;
    world.setup.put("a.txt", "hello");
    for (mode, _) in MODES {
        let mut client = Sdk::opening(&world.placet, mode, "accept").await;
        let pending = client.calls("files__delete", delete()).await;
        assert_eq!(said(&pending)["status"], "pending", "{mode}: {pending:#}");
        assert_eq!(pending["opened"], json!([]), "{mode}: {pending:#}");
    }
}
