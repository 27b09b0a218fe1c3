//! Many real MCP servers behind one Placet at once, as a client sees them.
//!
//! Owns what one server's trouble is to the others: ten from npm and PyPI, on several generations of the SDKs, over stdio and the older HTTP+SSE; one is
//! slow, one is killed, and an eleventh, `tests/peers/stub.mjs`, changes its tools.

use std::{fs, path::Path};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::{process::Command, time::Instant};

use crate::{
    harness::{npm, placet::Placet, pypi, scripted::Scripted, setup::Setup, until},
    mcp::{Everything, children_of},
    workspace,
};

/// One server: its adapter's name, how it is started, and a call that only reads, with a word of the answer.
struct Server {
    name: &'static str,
    command: Vec<String>,
    reads: (&'static str, Value, &'static str),
}

impl Server {
    fn new(
        name: &'static str,
        command: &[&str],
        tool: &'static str,
        args: Value,
        word: &'static str,
    ) -> Self {
        let command = command.iter().map(|word| (*word).to_owned()).collect();
        Self { name, command, reads: (tool, args, word) }
    }
}

/// Those from npm over stdio, and the stub.
fn of_npm(setup: &Setup) -> Vec<Server> {
    let shared = setup.path("shared");
    let shared = shared.to_str().unwrap();
    let server = |name, script: String, rest: &[&str], tool, args, word| {
        let node = npm::node();
        Server::new(name, &[&[node.as_str(), &script][..], rest].concat(), tool, args, word)
    };
    let script = npm::server;
    let hi = json!({ "message": "hi there" });
    let listed = json!({ "path": shared });
    let thought = json!({
        "thought": "all is well", "thoughtNumber": 1, "totalThoughts": 1, "nextThoughtNeeded": false
    });
    let this = json!({ "what": "this" });
    vec![
        server("everything", script("server-everything"), &["stdio"], "echo", hi, "hi there"),
        server("disk", script("server-filesystem"), &[shared], "list_directory", listed, "found"),
        server("memory", script("server-memory"), &[], "read_graph", json!({}), "entities"),
        server(
            "thinking",
            script("server-sequential-thinking"),
            &[],
            "sequentialthinking",
            thought,
            "thoughtNumber",
        ),
        server("stub", npm::stub(), &["good"], "look", this, "look"),
    ]
}

/// Those from PyPI, all over stdio, on two generations of the SDK; `web` is an address that can be fetched.
fn of_pypi(setup: &Setup, web: &str) -> Vec<Server> {
    let server = |list, name, program, rest: &[&str], tool, args, word| {
        let program = pypi::programs(list).join(program);
        Server::new(name, &[&[program.to_str().unwrap()][..], rest].concat(), tool, args, word)
    };
    let database = setup.path("a.db");
    let database = ["--db-path", database.to_str().unwrap()];
    let loopback = ["--allow-private-ips", "--ignore-robots-txt"];
    let berlin = json!({ "timezone": "Europe/Berlin" });
    let repository = json!({ "repo_path": setup.path("repository") });
    let page = json!({ "url": web, "raw": true });
    let sum = json!({ "expression": "6*7" });
    let (new, old) = ("servers", "servers-sdk1");
    vec![
        server(new, "clock", "mcp-server-time", &[], "get_current_time", berlin, "Europe/Berlin"),
        server(new, "git", "mcp-server-git", &[], "git_status", repository, "No commits yet"),
        server(new, "web", "mcp-server-fetch", &loopback, "fetch", page, "ready"),
        server(old, "sql", "mcp-server-sqlite", &database, "list_tables", json!({}), "[]"),
        server(old, "sums", "mcp-server-calculator", &[], "calculate", sum, "42"),
    ]
}

/// What an operator does after the review: these tools only read.
fn reviewed(setup: &Setup, name: &str, reads: &[&str]) {
    let mut contract = setup.read_contract(name);
    for tool in reads {
        let capability = contract["capabilities"][*tool].as_object_mut().unwrap();
        capability.insert("mode".to_owned(), json!("read_only"));
        capability.insert("effect".to_owned(), json!("none"));
        capability.remove("dedup");
    }
    match name {
        "memory" => {
            let file = setup.path("memory.jsonl");
            contract["transport"]["env"] = json!({ "MEMORY_FILE_PATH": file });
        }
        // What it is for; no other opens connections.
        "web" => contract["transport"]["process"] = json!({ "network": "unconfined" }),
        _ => {}
    }
    fs::write(setup.contract_file(name), contract.to_string()).unwrap();
}

/// Ten servers and the stub behind one Placet, and a client of it.
struct World {
    _setup: Setup,
    _remote: Everything,
    placet: Placet,
    servers: Vec<Server>,
    client: Scripted,
}

impl World {
    async fn start() -> Self {
        // What `web` fetches: the page that says whether Placet is ready.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let admin = format!("127.0.0.1:{port}");
        let setup =
            Setup::new().with("contracts", json!("contracts")).arg("--admin-listen").arg(&admin);
        fs::create_dir(setup.path("shared")).unwrap();
        fs::write(setup.path("shared/found.txt"), "here").unwrap();
        let git = ["init", "-q", "repository"];
        let git = Command::new("git").args(git).current_dir(setup.path("")).status().await.unwrap();
        assert!(git.success());
        let mut servers = of_npm(&setup);
        servers.extend(of_pypi(&setup, &format!("http://{admin}/readyz")));
        for Server { name, command, reads } in &servers {
            let command: Vec<&str> = command.iter().map(String::as_str).collect();
            let import = ["adapters", "import", "--name", name, "--stdio", "--"];
            setup.configured(&[&import[..], &command].concat()).await.ok();
            reviewed(&setup, name, &[reads.0]);
        }
        let remote = Everything::start("sse").await;
        let import =
            ["adapters", "import", "--name", "remote", "--private-network", "--sse", "--url"];
        setup.configured(&[&import[..], &[remote.url.as_str()]].concat()).await.ok();
        reviewed(&setup, "remote", &["get-sum", "trigger-long-running-operation"]);
        let placet = setup.start().await;
        let client = client(&placet).await;
        Self { _setup: setup, _remote: remote, placet, servers, client }
    }

    async fn names(&mut self) -> Vec<String> {
        let listed = self.client.does(&json!({ "list": true })).await;
        let tools = listed["tools"].as_array().unwrap().clone();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Every server but `except` answers.
    async fn all_answer(&mut self, except: &[&str]) {
        for Server { name, reads: (tool, args, word), .. } in &self.servers {
            if except.contains(name) {
                continue;
            }
            let told = call(&mut self.client, &format!("{name}__{tool}"), args).await;
            assert_ne!(told["isError"], true, "{name}: {told:#}");
            assert!(told["content"].to_string().contains(word), "{name}: {told:#}");
        }
        let sum = call(&mut self.client, "remote__get-sum", &json!({ "a": 2, "b": 40 })).await;
        assert!(sum["content"].to_string().contains("42"), "{sum:#}");
    }
}

async fn call(client: &mut Scripted, tool: &str, args: &Value) -> Value {
    client.does(&json!({ "call": tool, "args": args })).await
}

async fn client(placet: &Placet) -> Scripted {
    let mut command = Command::new(npm::node());
    command.arg(workspace::root().join("tests/peers/mcp_client.mjs"));
    command.args([&npm::modules(), placet.url("/mcp").as_str()]);
    Scripted::start(command).await
}

/// The process of the server whose command line has this word.
fn process_of(placet: &Placet, word: &str) -> Pid {
    let is_it = |pid: &Pid| {
        let file = format!("/proc/{}/cmdline", pid.as_raw_nonzero());
        fs::read_to_string(file).is_ok_and(|line| line.contains(word))
    };
    children_of(placet.pid()).into_iter().find(is_it).expect("it runs")
}

#[tokio::test]
async fn ten_servers_answer_while_one_is_slow_one_is_killed_and_one_changes() {
    let mut world = World::start().await;
    let names = world.names().await;
    let has = |name: &str| names.iter().any(|one| one.starts_with(&format!("{name}__")));
    for Server { name, .. } in &world.servers {
        assert!(has(name), "{name}: {names:?}");
    }
    assert!(has("remote"), "{names:?}");
    world.all_answer(&[]).await;

    // One is slow: the others do not wait for it.
    let mut patient = client(&world.placet).await;
    let slow = tokio::spawn(async move {
        let args = json!({ "duration": 3, "steps": 3 });
        call(&mut patient, "remote__trigger-long-running-operation", &args).await
    });
    let began = Instant::now();
    world.all_answer(&[]).await;
    assert!(!slow.is_finished(), "it took longer than the slow one: {:?}", began.elapsed());
    let told = slow.await.unwrap();
    assert!(told["content"].to_string().contains("completed"), "{told:#}");

    // One is killed: the others answer, the list is whole, and it is started again.
    kill_process(process_of(&world.placet, "server-memory"), Signal::KILL).unwrap();
    world.all_answer(&["memory"]).await;
    assert_eq!(world.names().await, names);
    let World { client, .. } = &mut world;
    let client = tokio::sync::Mutex::new(client);
    until("the killed server answers again", || async {
        let told = call(&mut **client.lock().await, "memory__read_graph", &json!({})).await;
        told["isError"] != true
    })
    .await;

    // One changes a tool that was reviewed: that tool is not called any more.
    let changes = json!({ "what": "changes its tools" });
    call(&mut **client.lock().await, "stub__look", &changes).await;
    until("the changed tool is refused", || async {
        let told = call(&mut **client.lock().await, "stub__look", &json!({ "what": "this" })).await;
        told["isError"] == true && told["content"].to_string().contains("TOOL_CHANGED")
    })
    .await;
    world.all_answer(&["stub"]).await;
    assert!(Path::new(&format!("/proc/{}", world.placet.pid())).is_dir());
}
