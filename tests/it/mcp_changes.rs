//! Clients that hear that their tools changed, and what else a session has: `ping`, and no logging.
//!
//! Owns that the list is told to have changed when it has, in both kinds of revisions.

use std::fs;

use serde_json::{Value, json};

use crate::{
    harness::setup::Setup,
    mcp_clients::{MODES, Sdk, World, open, sessioned},
    reload::{directory, hang_up, no_reading, own_files},
};

async fn names(client: &mut Sdk) -> Vec<String> {
    let listed = client.does(json!({ "list": true })).await;
    let tools = listed["tools"].as_array().unwrap().clone();
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn clients_of_both_kinds_of_revisions_hear_that_their_tools_changed() {
    let world = World::of(own_files(Setup::new())).await;
    let mut clients = Vec::new();
    for (mode, _) in MODES {
        let (mut client, _) = Sdk::connect(&world.placet, mode).await;
        assert!(names(&mut client).await.contains(&"files__read".to_owned()), "{mode}");
        assert_eq!(client.does(json!({ "listen": true })).await, json!({ "listening": true }));
        client.begins(json!({ "changed": true })).await;
        clients.push((mode, client));
    }
    let stop = world.setup.path("policies/99-stop.cedar");
    fs::write(&stop, no_reading("true")).unwrap();
    hang_up(&world.placet);
    for (mode, client) in &mut clients {
        assert_eq!(client.answer().await, json!({ "changed": true }), "{mode}");
        assert!(!names(client).await.contains(&"files__read".to_owned()), "{mode}");
        client.begins(json!({ "changed": true })).await;
    }
    fs::remove_file(stop).unwrap();
    directory(&world.setup, "beta");
    hang_up(&world.placet);
    for (mode, client) in &mut clients {
        assert_eq!(client.answer().await, json!({ "changed": true }), "{mode}");
        assert!(names(client).await.contains(&"files__read".to_owned()), "{mode}");
    }
}

#[tokio::test]
async fn the_stream_of_a_session_ends_with_its_token() {
    let world = World::holding(100).await;
    let token = world.setup.configured(&["token", "agent", "dev-agent", "--ttl", "5s"]).await;
    let agent = world.placet.client(Some(token.ok().trim().to_owned()));
    let opened = open(&agent).await;
    let request = agent
        .request(http::Method::GET, "/mcp")
        .header("accept", "text/event-stream")
        .header("mcp-session-id", &opened.headers["mcp-session-id"]);
    // The whole answer: it comes to an end.
    let stream = agent.send(request.body(bytes::Bytes::new()).unwrap()).await;
    assert_eq!(stream.status, 200, "{stream:?}");
}

#[tokio::test]
async fn a_session_has_ping_and_declares_neither_logging_nor_anything_else_that_it_lacks() {
    let world = World::holding(100).await;
    let (mut client, _) = Sdk::connect(&world.placet, "legacy").await;
    assert_eq!(client.does(json!({ "ping": true })).await, json!({}));
    let agent = world.setup.agent(&world.placet).await;
    let opened = open(&agent).await;
    let session = opened.headers["mcp-session-id"].to_str().unwrap().to_owned();
    let told: Value = opened
        .text()
        .lines()
        .filter_map(|line| line.strip_prefix("data:"))
        .find_map(|data| serde_json::from_str(data.trim()).ok())
        .unwrap();
    let capabilities = &told["result"]["capabilities"];
    assert_eq!(capabilities["tools"]["listChanged"], true, "{told:#}");
    assert!(capabilities.get("logging").is_none(), "{told:#}");
    let level = sessioned(&agent, Some(&session), "logging/setLevel", json!({ "level": "info" }));
    assert!(level.await.text().contains("-32601"));
}
