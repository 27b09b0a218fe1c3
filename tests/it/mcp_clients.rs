//! MCP clients in front of the built program: what they see, call, wait for and are refused, over Streamable HTTP.
//!
//! Owns the way of a call as a client of the official Python SDK sees it, with a session (2025-11-25) and without one (2026-07-28), and what
//! hostile requests get. Everything behind it is `files.rs`'.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use crate::{
    harness::{
        client::{Client, Reply, text},
        placet::Placet,
        pypi,
        setup::Setup,
        until, within,
    },
    workspace,
};

/// A client of the Python SDK that does what it is told, step by step.
pub(crate) struct Sdk {
    _process: Child,
    steps: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Sdk {
    pub(crate) async fn connect(placet: &Placet, mode: &str) -> (Self, String) {
        Self::to(placet.url("/mcp").as_str(), &[mode]).await
    }

    /// One that can open pages, and whose person answers so to every request to open one.
    pub(crate) async fn opening(placet: &Placet, mode: &str, action: &str) -> Self {
        Self::to(placet.url("/mcp").as_str(), &[mode, action]).await.0
    }

    /// Connected to a server, as the script takes it.
    pub(crate) async fn to(server: &str, arguments: &[&str]) -> (Self, String) {
        let script = workspace::root().join("tests/peers/mcp_client.py");
        let mut process = Command::new(pypi::programs("mcp").join("python"))
            .arg(script)
            .arg(server)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap()).lines();
        let steps = process.stdin.take().unwrap();
        let mut client = Self { _process: process, steps, answers };
        let hello = client.answer().await;
        (client, text(&hello, "revision"))
    }

    pub(crate) async fn answer(&mut self) -> Value {
        let line = within("an answer of the client", self.answers.next_line()).await;
        serde_json::from_str(&line.unwrap().expect("the client goes on")).unwrap()
    }

    pub(crate) async fn does(&mut self, step: Value) -> Value {
        self.begins(step).await;
        self.answer().await
    }

    pub(crate) async fn begins(&mut self, step: Value) {
        self.steps.write_all(format!("{step}\n").as_bytes()).await.unwrap();
    }

    pub(crate) async fn calls(&mut self, tool: &str, args: Value) -> Value {
        self.does(json!({ "call": tool, "args": args })).await
    }
}

/// A running Placet, with the approver of the development directory.
pub(crate) struct World {
    pub(crate) setup: Setup,
    pub(crate) placet: Placet,
    pub(crate) ben: Client,
}

impl World {
    pub(crate) async fn holding(hold_ms: u64) -> Self {
        Self::of(Setup::new().with("mcp", json!({ "hold_ms": hold_ms }))).await
    }

    pub(crate) async fn of(setup: Setup) -> Self {
        let placet = setup.start().await;
        let ben = setup.ben(&placet).await;
        Self { setup, placet, ben }
    }

    /// The same set-up after a restart.
    pub(crate) async fn restarted(self) -> Self {
        self.placet.stop().await;
        Self::of(self.setup).await
    }

    /// Waits until there is a call that waits for people.
    pub(crate) async fn asked(&self) -> Value {
        until("people are asked", || async { !self.waiting().await.is_empty() }).await;
        self.held().await
    }

    /// The calls that wait for people.
    pub(crate) async fn waiting(&self) -> Vec<Value> {
        let waiting = self.ben.get("/v1/approvals?state=pending").await.ok();
        waiting["approvals"].as_array().unwrap().clone()
    }

    /// The one call that waits for people.
    pub(crate) async fn held(&self) -> Value {
        let approvals = self.waiting().await;
        assert_eq!(approvals.len(), 1, "{approvals:#?}");
        approvals.into_iter().next().unwrap()
    }

    /// Agrees to the one call that waits, and waits until it was made.
    pub(crate) async fn approve(&self) -> Reply {
        let held = self.held().await;
        let reply = self.ben.decide(&held, "approve").await;
        let path = format!("/v1/approvals/{}", text(&held, "approval_id"));
        until("the approved call is made", || async {
            self.ben.get(&path).await.ok()["approval"]["state"] != "approved"
        })
        .await;
        reply
    }
}

pub(crate) const MODES: [(&str, &str); 2] = [("auto", "2026-07-28"), ("legacy", "2025-11-25")];

/// What Placet says of a call.
pub(crate) fn said(result: &Value) -> &Value {
    &result["_meta"]["io.placet/call"]
}

pub(crate) fn handle(result: &Value) -> String {
    text(said(result), "handle")
}

#[tokio::test]
async fn a_client_lists_and_calls_tools_in_both_revisions() {
    let world = World::holding(200).await;
    world.setup.put("a.txt", "hello");
    for (mode, revision) in MODES {
        let (mut client, spoken) = Sdk::connect(&world.placet, mode).await;
        assert_eq!(spoken, revision);
        let listed = client.does(json!({ "list": true })).await;
        let tools = listed["tools"].as_array().unwrap();
        let names: Vec<&str> = tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
        assert!(names.contains(&"files__read") && names.contains(&"placet__await"), "{names:?}");
        let read = tools.iter().find(|tool| tool["name"] == "files__read").unwrap();
        assert_eq!(read["annotations"]["readOnlyHint"], true, "{read:#}");
        assert_eq!(read["inputSchema"]["type"], "object", "{read:#}");
        let result = client.calls("files__read", json!({ "path": "a.txt" })).await;
        assert_eq!(result["structuredContent"]["content"], "hello", "{result:#}");
        assert_ne!(result["isError"], true, "{result:#}");
        assert_eq!(said(&result)["status"], "succeeded", "{result:#}");
    }
}

#[tokio::test]
async fn a_refusal_is_a_result_that_a_model_can_act_on() {
    let world = World::holding(200).await;
    let (mut client, _) = Sdk::connect(&world.placet, "auto").await;
    let bad = client.calls("files__read", json!({ "pth": "a.txt" })).await;
    assert_eq!(bad["isError"], true, "{bad:#}");
    assert_eq!(said(&bad)["error"]["error_code"], "VALIDATION_ERROR", "{bad:#}");
    assert!(text(&bad["content"][0], "text").contains("/args/pth"), "{bad:#}");
    let unknown = client.calls("files__shred", json!({})).await;
    assert_eq!(unknown["code"], -32602, "{unknown:#}");
    let nowhere = client.calls("mail__send", json!({})).await;
    let plain = |error: &Value, name: &str| text(error, "error").replace(name, "X");
    assert_eq!(plain(&unknown, "files__shred"), plain(&nowhere, "mail__send"));
}

#[tokio::test]
async fn a_held_call_is_pending_and_the_same_call_collects_its_outcome() {
    let world = World::holding(100).await;
    for (mode, _) in MODES {
        world.setup.put("a.txt", "hello");
        let (mut client, _) = Sdk::connect(&world.placet, mode).await;
        let delete = json!({ "path": "a.txt" });
        let pending = client.calls("files__delete", delete.clone()).await;
        assert_eq!(said(&pending)["status"], "pending", "{pending:#}");
        assert!(text(&pending["content"][0], "text").contains("PENDING"), "{pending:#}");
        // The same call attaches: people are not asked twice.
        let again = client.calls("files__delete", delete.clone()).await;
        assert_eq!(handle(&again), handle(&pending), "{again:#}");
        world.approve().await.ok();
        let collected = client.calls("files__delete", delete).await;
        assert_eq!(said(&collected)["status"], "succeeded", "{collected:#}");
        assert_eq!(handle(&collected), handle(&pending), "{collected:#}");
        assert!(!world.setup.file("a.txt").is_file());
    }
}

#[tokio::test]
async fn an_equal_call_after_its_outcome_was_awaited_is_new() {
    let world = World::holding(100).await;
    world.setup.put("a.txt", "hello");
    let (mut client, _) = Sdk::connect(&world.placet, "auto").await;
    let delete = json!({ "path": "a.txt" });
    let first = client.calls("files__delete", delete.clone()).await;
    world.approve().await.ok();
    let done = client.calls("placet__await", json!({ "handle": handle(&first) })).await;
    assert_eq!(said(&done)["status"], "succeeded", "{done:#}");
    assert!(!world.setup.file("a.txt").is_file());
    let second = client.calls("files__delete", delete.clone()).await;
    assert_eq!(said(&second)["status"], "pending", "{second:#}");
    assert_ne!(handle(&second), handle(&first), "{second:#}");
    world.ben.decide(&world.held().await, "deny").await.ok();
    let denied = client.calls("placet__await", json!({ "handle": handle(&second) })).await;
    assert_eq!(said(&denied)["error"]["error_code"], "APPROVAL_DENIED", "{denied:#}");
    let third = client.calls("files__delete", delete).await;
    assert_eq!(said(&third)["status"], "pending", "{third:#}");
    assert_ne!(handle(&third), handle(&second), "{third:#}");
}

#[tokio::test]
async fn a_call_that_is_approved_in_time_answers_its_own_request() {
    let world = World::holding(60_000).await;
    world.setup.put("a.txt", "hello");
    let (mut client, _) = Sdk::connect(&world.placet, "legacy").await;
    client.begins(json!({ "call": "files__delete", "args": { "path": "a.txt" } })).await;
    world.asked().await;
    world.approve().await.ok();
    let done = client.answer().await;
    assert_eq!(said(&done)["status"], "succeeded", "{done:#}");
    assert!(!world.setup.file("a.txt").is_file());
}

#[tokio::test]
async fn a_cancelled_request_withdraws_its_call() {
    let world = World::holding(60_000).await;
    world.setup.put("a.txt", "hello");
    let (mut client, _) = Sdk::connect(&world.placet, "legacy").await;
    let delete = json!({ "path": "a.txt" });
    let step =
        json!({ "cancelled_call": "files__delete", "args": delete.clone(), "after_ms": 1_000 });
    assert_eq!(client.does(step).await, json!({ "cancelled": true }));
    until("the approval is withdrawn", || async {
        let withdrawn = world.ben.get("/v1/approvals?state=pending").await.ok();
        withdrawn["approvals"] == json!([])
    })
    .await;
    assert!(world.setup.file("a.txt").is_file());
    client.begins(json!({ "call": "files__delete", "args": delete })).await;
    world.asked().await;
}

#[tokio::test]
async fn a_stop_answers_an_open_request_and_leaves_its_call_held() {
    let world = World::holding(60_000).await;
    world.setup.put("a.txt", "hello");
    let (mut client, _) = Sdk::connect(&world.placet, "legacy").await;
    client.begins(json!({ "call": "files__delete", "args": { "path": "a.txt" } })).await;
    let held = world.asked().await;
    let world = world.restarted().await;
    let told = client.answer().await;
    assert_eq!(said(&told)["status"], "pending", "{told:#}");
    assert_eq!(world.held().await["approval_id"], held["approval_id"]);
}

/// A request of the stateless revision, of a client with these capabilities.
pub(crate) async fn capable(
    client: &Client,
    capabilities: Value,
    method: &'static str,
    name: &str,
    params: Value,
) -> Value {
    let mut body = stateless(method, params);
    body["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities;
    posted(client, method, name, body.to_string()).await.json()
}

/// A request of the stateless revision, whatever its body is.
pub(crate) async fn posted(
    client: &Client,
    method: &str,
    name: &str,
    body: impl Into<String>,
) -> Reply {
    let request = client
        .request(http::Method::POST, "/mcp")
        .header("accept", "application/json, text/event-stream")
        .header("content-type", "application/json")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", method)
        .header("mcp-name", name);
    client.send(request.body(body.into().into()).unwrap()).await
}

/// A request of a client that offers tasks: its result.
pub(crate) async fn with_tasks(
    client: &Client,
    method: &'static str,
    name: &str,
    params: Value,
) -> Value {
    let tasks = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    capable(client, tasks, method, name, params).await
}

async fn delete_as_task(agent: &Client) -> String {
    let params = json!({ "name": "files__delete", "arguments": { "path": "a.txt" } });
    let created = with_tasks(agent, "tools/call", "files__delete", params).await;
    let task = &created["result"];
    assert_eq!((&task["resultType"], &task["status"]), (&json!("task"), &json!("working")));
    assert!(text(task, "statusMessage").contains("approvers"), "{created:#}");
    assert!(task["ttlMs"].as_u64().is_some_and(|ttl| ttl > 60_000), "{created:#}");
    text(task, "taskId")
}

#[tokio::test]
async fn an_equal_call_attaches_while_the_request_of_a_held_one_is_open() {
    let world = World::holding(60_000).await;
    world.setup.put("a.txt", "hello");
    let agent = world.setup.agent(&world.placet).await;
    let first = call_as(&agent, "files__delete", json!({ "path": "a.txt" }));
    let (done, task) = tokio::join!(first, async {
        world.asked().await;
        let task = delete_as_task(&agent).await;
        world.approve().await.ok();
        task
    });
    assert_eq!(said(&done["result"])["status"], "succeeded", "{done:#}");
    assert_eq!(handle(&done["result"]), task);
}

async fn task(client: &Client, method: &'static str, id: &str) -> Value {
    with_tasks(client, method, id, json!({ "taskId": id })).await
}

#[tokio::test]
async fn a_held_call_is_a_task_that_outlives_a_restart_and_is_its_callers_alone() {
    let world = World::holding(60_000).await;
    world.setup.put("a.txt", "hello");
    let agent = world.setup.agent(&world.placet).await;
    let id = delete_as_task(&agent).await;
    let of_another = task(&world.ben, "tasks/get", &id).await;
    let of_nobody = task(&world.ben, "tasks/get", "call_none").await;
    assert_eq!(of_another["error"], of_nobody["error"]);
    assert_eq!(of_another["error"]["code"], -32602, "{of_another:#}");
    assert_eq!(task(&world.ben, "tasks/cancel", &id).await["error"], of_nobody["error"]);
    let World { setup, placet, .. } = world;
    placet.stop().await;
    let placet = setup.start().await;
    let (ben, agent) = (setup.ben(&placet).await, setup.agent(&placet).await);
    let world = World { setup, placet, ben };
    assert_eq!(task(&agent, "tasks/get", &id).await["result"]["status"], "working");
    world.approve().await.ok();
    until("the task is completed", || async {
        task(&agent, "tasks/get", &id).await["result"]["status"] == "completed"
    })
    .await;
    let done = task(&agent, "tasks/get", &id).await;
    assert_eq!(said(&done["result"]["result"])["status"], "succeeded", "{done:#}");
    assert!(!world.setup.file("a.txt").is_file());
}

#[tokio::test]
async fn a_cancelled_task_is_withdrawn() {
    let world = World::holding(60_000).await;
    world.setup.put("a.txt", "hello");
    let agent = world.setup.agent(&world.placet).await;
    let id = delete_as_task(&agent).await;
    let cancelled = task(&agent, "tasks/cancel", &id).await;
    assert!(cancelled.get("error").is_none(), "{cancelled:#}");
    assert_eq!(task(&agent, "tasks/get", &id).await["result"]["status"], "cancelled");
    let waiting = world.ben.get("/v1/approvals?state=pending").await.ok();
    assert_eq!(waiting["approvals"], json!([]));
    assert!(world.setup.file("a.txt").is_file());
}

#[tokio::test]
async fn handles_of_others_and_of_nobody_answer_alike() {
    let world = World::holding(100).await;
    world.setup.put("a.txt", "hello");
    let (mut client, _) = Sdk::connect(&world.placet, "auto").await;
    let pending = client.calls("files__delete", json!({ "path": "a.txt" })).await;
    let of_others =
        call_as(&world.ben, "placet__await", json!({ "handle": handle(&pending) })).await;
    let of_nobody = call_as(&world.ben, "placet__await", json!({ "handle": "call_none" })).await;
    assert_eq!(of_others["result"]["structuredContent"], of_nobody["result"]["structuredContent"]);
    assert_eq!(of_others["result"]["isError"], true, "{of_others:#}");
}

/// A call of the stateless revision, as plain HTTP.
async fn call_as(client: &Client, tool: &str, args: Value) -> Value {
    capable(client, json!({}), "tools/call", tool, json!({ "name": tool, "arguments": args })).await
}

pub(crate) fn stateless(method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params })
}

/// A request of a revision with sessions, as plain HTTP.
pub(crate) async fn sessioned(
    client: &Client,
    session: Option<&str>,
    method: &str,
    params: Value,
) -> Reply {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let mut request = client
        .request(http::Method::POST, "/mcp")
        .header("accept", "application/json, text/event-stream")
        .header("content-type", "application/json");
    if let Some(session) = session {
        request = request.header("mcp-session-id", session);
    }
    client.send(request.body(body.to_string().into()).unwrap()).await
}

pub(crate) async fn open(client: &Client) -> Reply {
    let params = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": { "name": "test", "version": "1" },
    });
    sessioned(client, None, "initialize", params).await
}

pub(crate) async fn list(client: &Client, session: &str) -> Reply {
    sessioned(client, Some(session), "tools/list", json!({})).await
}

#[tokio::test]
async fn a_session_is_its_openers_alone() {
    let world = World::holding(100).await;
    let agent = world.setup.agent(&world.placet).await;
    let opened = open(&agent).await;
    assert_eq!(opened.status, 200, "{opened:?}");
    let session = opened.headers["mcp-session-id"].to_str().unwrap().to_owned();
    assert_eq!(list(&agent, &session).await.status, 200);
    let of_another = list(&world.ben, &session).await;
    let of_nobody = list(&world.ben, "11111111-1111-1111-1111-111111111111").await;
    assert_eq!((of_another.status, of_another.text()), (of_nobody.status, of_nobody.text()));
    assert_eq!(of_another.status, 404);
}
