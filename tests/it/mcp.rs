//! Real MCP servers behind the built program: imported, reviewed, called over stdio and HTTP; and servers that misbehave.
//!
//! Owns what an operator does with `placet adapters` and what callers then get. The servers are npm's `server-filesystem` and
//! `server-everything`, unchanged; the ones that misbehave are `tests/peers/stub.mjs`.

use std::{fs, process::Stdio, time::Duration};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child, Command},
    time::Instant,
};
use url::Url;

use crate::harness::{
    client::text,
    npm,
    setup::{Setup, local, plan},
    until, within,
};

/// Imports a server over stdio as the adapter `name`.
async fn imported(setup: Setup, name: &str, command: &[&str]) -> Setup {
    let setup = setup.with("contracts", json!("contracts"));
    let words = [&["adapters", "import", "--name", name, "--stdio", "--"], command].concat();
    let ran = setup.configured(&words).await;
    assert!(ran.ok().contains("mode destructive"), "{ran:?}");
    setup
}

/// What an operator does after the review: these tools only read, these write locally.
fn reviewed(setup: &Setup, name: &str, reads: &[&str], writes: &[&str]) {
    let mut contract = setup.read_contract(name);
    let capabilities = contract["capabilities"].as_object_mut().unwrap();
    for tool in reads {
        let capability = capabilities[*tool].as_object_mut().unwrap();
        capability.insert("mode".to_owned(), json!("read_only"));
        capability.insert("effect".to_owned(), json!("none"));
        capability.remove("dedup");
    }
    for tool in writes {
        capabilities[*tool]["mode"] = json!("local_write");
    }
    fs::write(setup.contract_file(name), contract.to_string()).unwrap();
}

/// `server-filesystem` on a folder of the set-up, reviewed.
async fn filesystem() -> (Setup, std::path::PathBuf) {
    let setup = Setup::new();
    let folder = setup.path("shared");
    fs::create_dir(&folder).unwrap();
    let (node, server) = (npm::node(), npm::server("server-filesystem"));
    let setup = imported(setup, "fs", &[&node, &server, folder.to_str().unwrap()]).await;
    reviewed(&setup, "fs", &["read_text_file", "list_directory"], &["write_file"]);
    (setup, folder)
}

/// `server-everything` over stdio, reviewed.
async fn everything() -> Setup {
    let (node, server) = (npm::node(), npm::server("server-everything"));
    let setup = imported(Setup::new(), "everything", &[&node, &server, "stdio"]).await;
    reviewed(&setup, "everything", READS, &[]);
    setup
}

const READS: &[&str] =
    &["echo", "get-sum", "get-env", "get-resource-links", "get-structured-content"];

/// The text of a result of MCP.
fn said(result: &Value) -> String {
    text(&result["output"]["content"][0], "text")
}

#[tokio::test]
async fn an_imported_server_is_destructive_and_pinned_until_somebody_reviews_it() {
    let setup = Setup::new();
    let folder = setup.path("shared");
    fs::create_dir(&folder).unwrap();
    let (node, server) = (npm::node(), npm::server("server-filesystem"));
    let setup = imported(setup, "fs", &[&node, &server, folder.to_str().unwrap()]).await;
    let contract = setup.read_contract("fs");
    let capabilities = contract["capabilities"].as_object().unwrap();
    assert!(capabilities.len() >= 10, "{contract:#}");
    for (name, capability) in capabilities {
        assert_eq!(
            (&capability["mode"], &capability["effect"]),
            (&json!("destructive"), &json!("write")),
            "{name}"
        );
        assert!(capability["pin"].as_str().unwrap().starts_with("sha256:"), "{name}");
    }
    let hints = &capabilities["read_text_file"]["server_hints"];
    assert_eq!(
        hints["readOnlyHint"], true,
        "the server's claim is kept for people to read: {hints}"
    );
    let listed = setup.configured(&["adapters", "list"]).await;
    assert!(listed.ok().contains("fs"), "{listed:?}");
    setup.configured(&["adapters", "diff", "fs"]).await.ok();
    let again = setup
        .configured(&["adapters", "import", "--name", "fs", "--stdio", "--", &node, &server])
        .await;
    assert_eq!(again.code, Some(1), "an import overwrote what was reviewed: {again:?}");

    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    let path = folder.join("a.txt");
    fs::write(&path, "x").unwrap();
    agent.call(&plan("fs__read_text_file", "s1", json!({ "path": path }))).await.held();
}

#[tokio::test]
async fn files_are_read_listed_and_written_through_the_filesystem_server() {
    let (setup, folder) = filesystem().await;
    fs::write(folder.join("a.txt"), "hello").unwrap();
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    let read = agent
        .call(&plan("fs__read_text_file", "s1", json!({ "path": folder.join("a.txt") })))
        .await
        .succeeded();
    assert_eq!(said(&read), "hello");
    assert_eq!(read["mutations"], json!([]));
    let listed =
        agent.call(&plan("fs__list_directory", "s2", json!({ "path": folder }))).await.succeeded();
    assert!(said(&listed).contains("a.txt"), "{listed:#}");

    let write =
        plan("fs__write_file", "s3", json!({ "path": folder.join("b.txt"), "content": "new" }));
    let written = agent.call(&write).await.succeeded();
    assert_eq!(fs::read_to_string(folder.join("b.txt")).unwrap(), "new");
    let target = text(&written["mutations"][0], "target");
    assert!(target.contains("fs/write_file") && target.contains("b.txt"), "{written:#}");
    fs::remove_file(folder.join("b.txt")).unwrap();
    assert_eq!(agent.call(&write).await.succeeded()["replayed"], true);
    assert!(!folder.join("b.txt").try_exists().unwrap(), "it was written again");

    let bad = agent.call(&plan("fs__write_file", "s4", json!({ "path": 7 }))).await;
    bad.refused(400, "VALIDATION_ERROR");
    assert!(bad.pointers().contains(&"/args/path".to_owned()), "{bad:?}");
}

#[tokio::test]
async fn a_move_through_the_filesystem_server_waits_for_a_person_and_happens_once() {
    let (setup, folder) = filesystem().await;
    let (from, to) = (folder.join("a.txt"), folder.join("b.txt"));
    fs::write(&from, "x").unwrap();
    let placet = setup.start().await;
    let (agent, ben) = (setup.agent(&placet).await, setup.ben(&placet).await);
    let rename = plan("fs__move_file", "s1", json!({ "source": from, "destination": to }));
    let held = agent.call(&rename).await.held();
    assert!(from.try_exists().unwrap() && !to.try_exists().unwrap());
    ben.decide(&held, "approve").await.ok();
    let result = agent.end_of(&text(&held, "call_id")).await.succeeded();
    assert!(!from.try_exists().unwrap() && to.try_exists().unwrap());
    assert!(!result["mutations"].as_array().unwrap().is_empty());
    fs::write(&from, "made again").unwrap();
    assert_eq!(agent.call(&rename).await.succeeded()["replayed"], true);
    assert!(from.try_exists().unwrap());
}

#[tokio::test]
async fn a_failure_that_the_server_reports_is_told_as_executed_and_failed() {
    let (setup, folder) = filesystem().await;
    let placet = setup.start().await;
    let missing = plan("fs__read_text_file", "s1", json!({ "path": folder.join("absent.txt") }));
    let result = setup.agent(&placet).await.call(&missing).await.ok();
    assert_eq!(result["status"], "failed", "{result:#}");
    assert_eq!(
        (&result["error"]["error_code"], &result["error"]["execution"]),
        (&json!("ADAPTER_FAILED"), &json!("executed_and_failed"))
    );
    assert!(said(&result).contains("absent.txt"), "{result:#}");
}

#[tokio::test]
async fn the_everything_server_answers_over_stdio_and_its_links_become_citations() {
    let setup = everything().await;
    let placet = setup.start().await;
    everything_answers(&setup, &placet).await;
}

async fn everything_answers(setup: &Setup, placet: &crate::harness::placet::Placet) {
    let agent = setup.agent(placet).await;
    let echo = agent
        .call(&plan("everything__echo", "s1", json!({ "message": "hi there" })))
        .await
        .succeeded();
    assert!(said(&echo).contains("hi there"), "{echo:#}");
    let sum = agent
        .call(&plan("everything__get-sum", "s2", json!({ "a": 2, "b": 40 })))
        .await
        .succeeded();
    assert!(said(&sum).contains("42"), "{sum:#}");
    let links = agent
        .call(&plan("everything__get-resource-links", "s3", json!({ "count": 2 })))
        .await
        .succeeded();
    let citations = links["citations"].as_array().unwrap();
    assert_eq!(citations.len(), 2, "{links:#}");
    assert!(citations.iter().all(|citation| !text(citation, "uri").is_empty()));
    let place = json!({ "location": "New York" });
    let structured =
        agent.call(&plan("everything__get-structured-content", "s4", place)).await.succeeded();
    assert!(structured["output"]["structured"].is_object(), "{structured:#}");
}

#[tokio::test]
async fn a_child_process_gets_no_environment_but_what_its_contract_says() {
    let setup = everything().await.env("CANARY_OF_THE_PARENT", "must not be inherited");
    let mut contract = setup.read_contract("everything");
    contract["transport"]["env"] = json!({ "SAID_BY_THE_CONTRACT": "yes" });
    fs::write(setup.contract_file("everything"), contract.to_string()).unwrap();
    let placet = setup.start().await;
    let result = setup
        .agent(&placet)
        .await
        .call(&plan("everything__get-env", "s1", json!({})))
        .await
        .succeeded();
    let environment: Value = serde_json::from_str(&said(&result)).unwrap();
    assert_eq!(environment, json!({ "SAID_BY_THE_CONTRACT": "yes" }));
}

/// `server-everything` over HTTP.
pub(crate) struct Everything {
    _child: Child,
    pub(crate) url: Url,
}

impl Everything {
    /// `transport` is as the server calls it.
    pub(crate) async fn start(transport: &str) -> Self {
        // It takes no port 0, so a free one is looked for; who else takes it in between makes it end, and another is tried.
        for _ in 0..5 {
            let port =
                std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let mut command = Command::new(npm::node());
            command
                .arg(npm::server("server-everything"))
                .arg(transport)
                .env_clear()
                .env("PORT", port.to_string());
            let mut child = command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .kill_on_drop(true)
                .spawn()
                .unwrap();
            crate::harness::watcher::watch(child.id());
            let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
            let listening = within("the server listens or ends", async {
                while let Some(line) = lines.next_line().await.unwrap() {
                    if line.contains("on port") {
                        return true;
                    }
                }
                false
            })
            .await;
            if listening {
                tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
                let path = if transport == "sse" { "/sse" } else { "/mcp" };
                return Self { _child: child, url: local(port, path) };
            }
        }
        panic!("server-everything does not come up");
    }
}

#[tokio::test]
async fn the_everything_server_answers_over_http_where_the_contract_allows_loopback() {
    let server = Everything::start("streamableHttp").await;
    let setup = Setup::new().with("contracts", json!("contracts"));
    let import = ["adapters", "import", "--name", "everything", "--url", server.url.as_str()];
    let refused = setup.configured(&import).await;
    assert_eq!(refused.code, Some(1), "loopback without a word of the operator: {refused:?}");
    assert!(!setup.contract_file("everything").try_exists().unwrap());
    setup.configured(&[&import[..], &["--private-network"]].concat()).await.ok();
    reviewed(&setup, "everything", READS, &[]);
    let placet = setup.start().await;
    everything_answers(&setup, &placet).await;
    let state = async |state: u32| {
        let metrics = placet.ask("/metrics").await.text();
        metrics.contains(&format!("placet_breaker_state{{adapter=\"everything\"}} {state}"))
    };
    assert!(state(0).await, "closed");
    drop(server);
    let agent = setup.agent(&placet).await;
    until("the dead server is noticed", || async {
        let reply = agent.call(&plan("everything__echo", "gone", json!({ "message": "hi" }))).await;
        reply.status == 503 && reply.json()["error_code"] == "ADAPTER_UNAVAILABLE"
    })
    .await;
    until("the open breaker is in the metrics", || async {
        agent.call(&plan("everything__echo", "again", json!({ "message": "hi" }))).await;
        state(1).await
    })
    .await;
}

#[tokio::test]
async fn an_older_server_answers_over_the_stream_of_its_session() {
    let server = Everything::start("sse").await;
    let setup = Setup::new().with("contracts", json!("contracts"));
    let import = ["adapters", "import", "--name", "everything", "--private-network", "--url"];
    let import = [&import[..], &[server.url.as_str()]].concat();
    let refused = setup.configured(&import).await;
    assert_eq!(refused.code, Some(1), "it does not speak streamable HTTP: {refused:?}");
    setup.configured(&[&import[..], &["--sse"]].concat()).await.ok();
    assert_eq!(setup.read_contract("everything")["transport"]["sse"], true);
    reviewed(&setup, "everything", READS, &[]);
    let placet = setup.start().await;
    everything_answers(&setup, &placet).await;
    let agent = setup.agent(&placet).await;
    drop(server);
    until("the dead server is noticed", || async {
        let reply = agent.call(&plan("everything__echo", "gone", json!({ "message": "hi" }))).await;
        reply.status == 503 && reply.json()["error_code"] == "ADAPTER_UNAVAILABLE"
    })
    .await;
}

#[tokio::test]
async fn an_older_server_has_messages_posted_to_itself_alone() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = local(listener.local_addr().unwrap().port(), "/sse");
    let elsewhere = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let named = local(elsewhere.local_addr().unwrap().port(), "/messages?session=1");
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\nevent: endpoint\ndata: {named}\n\n"
    );
    tokio::spawn(async move {
        // They stay open, as such streams do.
        let mut sockets = Vec::new();
        while let Ok((mut socket, _peer)) = listener.accept().await {
            let mut request = [0; 4_096];
            let _read = socket.read(&mut request).await.unwrap();
            socket.write_all(answer.as_bytes()).await.unwrap();
            sockets.push(socket);
        }
    });
    let setup = Setup::new().with("contracts", json!("contracts"));
    let import = ["adapters", "import", "--name", "old", "--private-network", "--sse", "--url"];
    let refused = setup.configured(&[&import[..], &[url.as_str()]].concat()).await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.err.contains("its endpoint is at another host"), "{refused:?}");
    let asked = tokio::time::timeout(Duration::from_millis(100), elsewhere.accept()).await;
    assert!(asked.is_err(), "it was asked");
}

#[tokio::test]
async fn a_tool_that_is_not_what_was_reviewed_is_not_called() {
    let (setup, folder) = filesystem().await;
    let mut contract = setup.read_contract("fs");
    let pin = contract["capabilities"]["list_directory"]["pin"].clone();
    contract["capabilities"]["write_file"]["pin"] = pin;
    fs::write(setup.contract_file("fs"), contract.to_string()).unwrap();
    let diff = setup.configured(&["adapters", "diff", "fs", "--json"]).await;
    assert_eq!(diff.code, Some(1), "{diff:?}");
    assert!(diff.out.contains("changed"), "{diff:?}");

    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    let write =
        plan("fs__write_file", "s1", json!({ "path": folder.join("a.txt"), "content": "x" }));
    let problem = agent.call(&write).await.refused(409, "TOOL_CHANGED");
    assert_eq!(problem["execution"], "not_executed");
    let result = &problem["result"];
    assert_eq!((&result["status"], &result["output"]), (&json!("failed"), &Value::Null));
    assert!(!folder.join("a.txt").try_exists().unwrap());
    agent.call(&plan("fs__list_directory", "s2", json!({ "path": folder }))).await.succeeded();
    placet.stop().await;

    // The operator looks at it, and pins what was looked at.
    let digest = setup.configured(&["adapters", "diff", "fs", "--json"]).await;
    let diff: Value = serde_json::from_str(&digest.out).unwrap();
    let adapters = diff.as_array().cloned().unwrap_or_else(|| vec![diff.clone()]);
    let tools = adapters[0]["tools"].as_array().unwrap();
    let live = text(tools.iter().find(|tool| tool["capability"] == "write_file").unwrap(), "live");
    let blind = format!("sha256:{}", "0".repeat(64));
    let wrong = setup
        .configured(&["adapters", "pin", "fs", "--capability", "write_file", "--expect", &blind])
        .await;
    assert_eq!(wrong.code, Some(1), "{wrong:?}");
    setup
        .configured(&["adapters", "pin", "fs", "--capability", "write_file", "--expect", &live])
        .await
        .ok();
    let placet = setup.start().await;
    setup.agent(&placet).await.call(&write).await.succeeded();
}

#[tokio::test]
async fn a_tool_without_a_pin_is_not_callable() {
    let (setup, folder) = filesystem().await;
    let mut contract = setup.read_contract("fs");
    contract["capabilities"]["write_file"].as_object_mut().unwrap().remove("pin");
    fs::write(setup.contract_file("fs"), contract.to_string()).unwrap();
    let placet = setup.start().await;
    let write =
        plan("fs__write_file", "s1", json!({ "path": folder.join("a.txt"), "content": "x" }));
    let reply = setup.agent(&placet).await.call(&write).await;
    assert!(matches!(reply.status, 403 | 404), "{reply:?}");
    assert!(!folder.join("a.txt").try_exists().unwrap());
}

#[tokio::test]
async fn servers_that_are_dead_silent_or_talk_garbage_are_told_so_in_time_and_trouble_nobody_else()
{
    let mut setup = Setup::new().files_contract();
    for manner in ["silent", "garbage"] {
        setup = setup.contract(manner, &npm::stub_contract(manner, &[manner]));
    }
    let mut dead = npm::stub_contract("dead", &[]);
    dead["transport"]["args"] = json!(["-e", "process.exit(3)"]);
    let mut absent = npm::stub_contract("absent", &[]);
    absent["transport"]["command"] = json!("/nowhere/to/be/found");
    let setup = setup.contract("dead", &dead).contract("absent", &absent);
    setup.put("a.txt", "x");
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    for (number, adapter) in ["dead", "absent", "silent", "garbage"].into_iter().enumerate() {
        for tool in ["look", "note"] {
            let began = Instant::now();
            let mut call =
                plan(&format!("{adapter}__{tool}"), &format!("s{number}"), json!({ "what": "x" }));
            call["run"]["run_budget"] = json!({ "tool_latency_ms_max": 2_500 });
            let problem = agent.call(&call).await.refused(503, "ADAPTER_UNAVAILABLE");
            assert_eq!(problem["execution"], "not_executed", "{adapter}: {problem:#}");
            assert!(began.elapsed() < Duration::from_secs(6), "{adapter}: {:?}", began.elapsed());
        }
        let mut read = plan("files__read", &format!("r{number}"), json!({ "path": "a.txt" }));
        read["run"]["run_id"] = json!("another");
        agent.call(&read).await.succeeded();
    }
    let ready = placet.ask("/readyz").await.ok();
    assert_eq!(ready["ready"], true, "{ready:#}");
    for adapter in ["dead", "absent", "silent", "garbage"] {
        assert!(ready["notes"].to_string().contains(adapter), "{ready:#}");
    }
}

/// The stub, imported while it is good, then with another manner.
pub(crate) async fn stub(manner: &str) -> Setup {
    let (node, script) = (npm::node(), npm::stub());
    let setup = imported(Setup::new(), "stub", &[&node, &script, "good"]).await;
    reviewed(&setup, "stub", &["look"], &["note"]);
    let mut contract = setup.read_contract("stub");
    contract["transport"]["args"] = json!([script, manner]);
    fs::write(setup.contract_file("stub"), contract.to_string()).unwrap();
    setup
}

/// A call whose adapter gets little time.
pub(crate) fn hurried(tool: &str, step: &str) -> Value {
    let mut call = plan(tool, step, json!({ "what": "x" }));
    call["run"]["run_budget"] = json!({ "tool_latency_ms_max": 1_500 });
    call
}

#[tokio::test]
async fn a_write_that_a_server_never_answers_is_unknown_and_a_read_is_a_failure_in_time() {
    for manner in ["silent-calls", "garbage-calls"] {
        let setup = stub(manner).await;
        let placet = setup.start().await;
        let agent = setup.agent(&placet).await;
        let began = Instant::now();
        let problem =
            agent.call(&hurried("stub__note", "s1")).await.refused(409, "OUTCOME_UNKNOWN");
        assert_eq!(problem["execution"], "unknown", "{manner}: {problem:#}");
        let read = agent.call(&hurried("stub__look", "s2")).await;
        assert_eq!(read.json()["error"]["error_code"], "ADAPTER_FAILED", "{manner}: {read:?}");
        assert!(began.elapsed() < Duration::from_secs(10), "{manner}: {:?}", began.elapsed());
        agent.call(&hurried("stub__note", "s1")).await.refused(409, "OUTCOME_UNKNOWN");
    }
}

#[tokio::test]
async fn a_server_that_dies_under_its_calls_is_started_again() {
    let record = Setup::new();
    let file = record.path("record");
    let (node, script) = (npm::node(), npm::stub());
    let setup =
        imported(Setup::new(), "stub", &[&node, &script, "good", file.to_str().unwrap()]).await;
    reviewed(&setup, "stub", &["look"], &["note"]);
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    agent.call(&hurried("stub__look", "s1")).await.succeeded();
    let children = children_of(placet.pid());
    assert_eq!(children.len(), 1, "{children:?}");
    rustix::process::kill_process(children[0], rustix::process::Signal::KILL).unwrap();
    until("a new child answers", || async {
        agent.call(&hurried("stub__look", "s2")).await.status == 200
    })
    .await;
    placet.stop().await;
    let handshakes = fs::read_to_string(file).unwrap().matches("\"initialize\"").count();
    assert!(handshakes >= 3, "one import and two connections: {handshakes}");
}

#[tokio::test]
async fn no_child_outlives_the_program_even_if_it_is_killed() {
    let setup = stub("good").await;
    let placet = setup.start().await;
    setup.agent(&placet).await.call(&hurried("stub__look", "s1")).await.succeeded();
    let children = children_of(placet.pid());
    assert_eq!(children.len(), 1, "{children:?}");
    placet.kill().await;
    let proc = format!("/proc/{}", children[0].as_raw_nonzero());
    until("the child has ended", || async {
        !std::path::Path::new(&proc).join("exe").try_exists().unwrap()
    })
    .await;
}

/// The direct children of a process.
pub(crate) fn children_of(pid: u32) -> Vec<rustix::process::Pid> {
    let mut found = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let text = fs::read_to_string(task.unwrap().path().join("children")).unwrap_or_default();
        found.extend(
            text.split_whitespace()
                .filter_map(|pid| rustix::process::Pid::from_raw(pid.parse().ok()?)),
        );
    }
    found
}
