//! Clients that others wrote, in front of the built program: the TypeScript SDK, MCP Inspector, and agent frameworks whose model is a script.
//!
//! Owns one session that all of them go through: a call that is allowed, one that policy denies, one that is held and then approved, an equal one
//! meanwhile, and one that is cancelled. The Python SDK is `mcp_clients.rs`'.

use std::fs;

use regex::Regex;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::{
    harness::{
        client::Client,
        npm,
        placet::Placet,
        pypi,
        scripted::Scripted,
        setup::{Setup, files_policy},
        until, within,
    },
    mcp_clients::Sdk,
    workspace,
};

/// What the shipped policies do not say.
const NO_SECRETS: &str = r#"
@id("no-secrets")
@approval("never")
@reason("Nobody reads the secrets.")
forbid (principal, action == Placet::Action::"files/read", resource is Placet::Tool)
when { context.input.path like "secret*" };
"#;

/// A running Placet with the shipped policies and one more, and its approver.
pub(crate) struct World {
    pub(crate) setup: Setup,
    pub(crate) placet: Placet,
    ben: Client,
}

impl World {
    pub(crate) async fn start() -> Self {
        let setup = Setup::new().with("policies", json!("policies"));
        fs::create_dir(setup.path("policies")).unwrap();
        for file in fs::read_dir(workspace::root().join("policies")).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "cedar") {
                fs::copy(&path, setup.path("policies").join(path.file_name().unwrap())).unwrap();
            }
        }
        files_policy(&setup);
        fs::write(setup.path("policies/90-secrets.cedar"), NO_SECRETS).unwrap();
        let setup = setup.with("mcp", json!({ "hold_ms": 1_000 }));
        let placet = setup.start().await;
        let ben = setup.ben(&placet).await;
        Self { setup, placet, ben }
    }

    async fn waiting(&self) -> Vec<Value> {
        let waiting = self.ben.get("/v1/approvals?state=pending").await.ok();
        waiting["approvals"].as_array().unwrap().clone()
    }

    /// The session. A client hears as its model does: in text.
    pub(crate) async fn session(&self, client: &mut impl Talks, cancelled: Cancelled) {
        self.setup.put("a.txt", "hello");
        self.setup.put("b.txt", "hello");
        self.setup.put("secret.txt", "hush");
        let names = client.tools().await;
        for name in ["files__read", "files__delete", "placet__await"] {
            assert!(names.iter().any(|one| one == name), "{name}: {names:?}");
        }
        let read = client.calls("files__read", json!({ "path": "a.txt" })).await;
        assert!(read.contains("hello"), "{read}");
        let denied = client.calls("files__read", json!({ "path": "secret.txt" })).await;
        assert!(denied.contains("POLICY_DENIED") && !denied.contains("hush"), "{denied}");
        let delete = json!({ "path": "a.txt" });
        let pending = client.calls("files__delete", delete.clone()).await;
        assert!(pending.contains("PENDING"), "{pending}");
        let handle = handle_in(&pending);
        if client.has_runs() {
            let equal = client.calls("files__delete", delete).await;
            assert_eq!(handle_in(&equal), handle, "{equal}");
        }
        let waiting = self.waiting().await;
        assert_eq!(waiting.len(), 1, "{waiting:#?}");
        self.ben.decide(&waiting[0], "approve").await.ok();
        let done = client.calls("placet__await", json!({ "handle": handle })).await;
        assert!(done.contains("a.txt"), "{done}");
        assert!(!self.setup.file("a.txt").is_file());
        if !client.cancels("files__delete", json!({ "path": "b.txt" })).await {
            return;
        }
        until("the cancelled call is withdrawn, or held", || async {
            let count = self.waiting().await.len();
            match cancelled {
                Cancelled::Withdrawn => count == 0,
                Cancelled::Held => count == 1,
                Cancelled::Either => count < 2,
            }
        })
        .await;
        assert!(self.setup.file("b.txt").is_file());
        let read = client.calls("files__read", json!({ "path": "b.txt" })).await;
        assert!(read.contains("hello"), "the client goes on: {read}");
    }
}

/// What becomes of a call whose request is cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cancelled {
    /// The client said so in its session.
    Withdrawn,
    /// Without a session it only closes a connection, which says nothing.
    Held,
    /// One or the other, by the revision.
    Either,
}

fn handle_in(text: &str) -> String {
    let handle = Regex::new("call_[0-9A-Z]{26}").unwrap();
    handle.find(text).unwrap_or_else(|| panic!("no handle in: {text}")).as_str().to_owned()
}

/// A client as the session uses it.
pub(crate) trait Talks {
    async fn tools(&mut self) -> Vec<String>;
    /// What its model is shown of a call.
    async fn calls(&mut self, tool: &str, args: Value) -> String;
    /// Cancels a call after a moment; `false` where the client cannot.
    async fn cancels(&mut self, tool: &str, args: Value) -> bool;
    /// Whether its calls are one run.
    fn has_runs(&self) -> bool;
}

fn names_in(listed: &Value) -> Vec<String> {
    let tools = listed["tools"].as_array().unwrap_or_else(|| panic!("no tools: {listed:#}"));
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

impl Talks for Sdk {
    async fn tools(&mut self) -> Vec<String> {
        names_in(&self.does(json!({ "list": true })).await)
    }

    async fn calls(&mut self, tool: &str, args: Value) -> String {
        Self::calls(self, tool, args).await.to_string()
    }

    async fn cancels(&mut self, tool: &str, args: Value) -> bool {
        let step = json!({ "cancelled_call": tool, "args": args, "after_ms": 500 });
        assert_eq!(self.does(step).await, json!({ "cancelled": true }));
        true
    }

    fn has_runs(&self) -> bool {
        true
    }
}

impl Talks for Scripted {
    async fn tools(&mut self) -> Vec<String> {
        names_in(&self.does(&json!({ "list": true })).await)
    }

    async fn calls(&mut self, tool: &str, args: Value) -> String {
        let told = self.does(&json!({ "call": tool, "args": args })).await;
        let text = told.get("text").or_else(|| told.pointer("/content/0/text"));
        text.and_then(Value::as_str).unwrap_or_else(|| panic!("no text: {told:#}")).to_owned()
    }

    async fn cancels(&mut self, tool: &str, args: Value) -> bool {
        let step = json!({ "cancelled_call": tool, "args": args, "after_ms": 500 });
        assert_eq!(self.does(&step).await, json!({ "cancelled": true }));
        true
    }

    fn has_runs(&self) -> bool {
        true
    }
}

/// MCP Inspector's command line: a process, and with it a session, for each request.
pub(crate) struct Inspector {
    /// The arguments that say where the server is.
    pub(crate) server: Vec<String>,
    /// Which revisions it speaks: `legacy` are those with sessions.
    pub(crate) era: &'static str,
}

impl Inspector {
    async fn does(&self, arguments: &[&str]) -> Value {
        let script = "@modelcontextprotocol/inspector/clients/launcher/build/index.js";
        let mut command = Command::new(npm::newest_node());
        command
            .arg(std::path::Path::new(&npm::modules()).join(script))
            .arg("--cli")
            .args(&self.server)
            .args(["--format", "json", "-q", "--protocol-era", self.era])
            .args(arguments)
            .stdin(std::process::Stdio::null())
            .kill_on_drop(true);
        let output = within("Inspector ends", command.output()).await.unwrap();
        let document: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {output:?}"));
        document["result"].clone()
    }
}

impl Talks for Inspector {
    async fn tools(&mut self) -> Vec<String> {
        names_in(&self.does(&["--method", "tools/list"]).await)
    }

    async fn calls(&mut self, tool: &str, args: Value) -> String {
        let args = args.to_string();
        let call = ["--method", "tools/call", "--tool-name", tool, "--tool-args-json", &args];
        self.does(&call).await.to_string()
    }

    async fn cancels(&mut self, _tool: &str, _args: Value) -> bool {
        false
    }

    fn has_runs(&self) -> bool {
        false
    }
}

#[tokio::test]
async fn a_client_on_the_typescript_sdk_completes_its_session() {
    let world = World::start().await;
    let mut command = Command::new(npm::node());
    command.arg(workspace::root().join("tests/peers/mcp_client.mjs"));
    command.args([&npm::modules(), world.placet.url("/mcp").as_str()]);
    let mut client = Scripted::start(command).await;
    world.session(&mut client, Cancelled::Withdrawn).await;
}

fn over_http(placet: &Placet) -> Vec<String> {
    vec![placet.url("/mcp").to_string(), "--transport".to_owned(), "http".to_owned()]
}

#[tokio::test]
async fn inspector_completes_its_session() {
    let world = World::start().await;
    let mut client = Inspector { server: over_http(&world.placet), era: "legacy" };
    world.session(&mut client, Cancelled::Held).await;
}

#[tokio::test]
async fn inspector_polls_the_task_of_a_held_call_until_it_is_approved() {
    let world = World::start().await;
    world.setup.put("a.txt", "hello");
    let mut client = Inspector { server: over_http(&world.placet), era: "modern" };
    let approved = async {
        until("people are asked", || async { !world.waiting().await.is_empty() }).await;
        world.ben.decide(&world.waiting().await[0], "approve").await.ok();
    };
    let delete = client.calls("files__delete", json!({ "path": "a.txt" }));
    let (told, ()) = tokio::join!(delete, approved);
    assert!(told.contains("deleted") && !told.contains("PENDING"), "{told}");
    assert!(!world.setup.file("a.txt").is_file());
}

/// An agent on a framework, which speaks the stateless revision.
async fn agent(framework: &str) {
    let world = World::start().await;
    let mut command = Command::new(pypi::programs("agents").join("python"));
    command.arg(workspace::root().join("tests/peers/mcp_agent.py"));
    command.args([framework, world.placet.url("/mcp").as_str()]);
    let mut client = Scripted::start(command).await;
    world.session(&mut client, Cancelled::Held).await;
}

#[tokio::test]
async fn an_agent_on_pydantic_ai_completes_its_session() {
    agent("pydantic-ai").await;
}

#[tokio::test]
async fn an_agent_on_openai_agents_completes_its_session() {
    agent("openai-agents").await;
}
