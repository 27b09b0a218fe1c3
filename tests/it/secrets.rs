//! Canaries: an argument is nowhere but with its adapter and in the content packs, a secret is nowhere at all.
//!
//! Owns the search through everything that leaves the process or stays on disk: spans, logs, metrics, answers, files.

use std::{fs, path::Path, process::Stdio};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

use crate::harness::{
    client::text,
    npm, otlp,
    setup::{Setup, local, plan},
    within,
};

const SECRET: &str = "kanarienvogel-4711-sicher";
const ARGUMENT: &str = "wellensittich-0815-privat";

/// The forms in which a canary would be given away.
fn forms(canary: &str) -> Vec<Vec<u8>> {
    let hex: String = canary.bytes().map(|byte| format!("{byte:02x}")).collect();
    let reversed: String = canary.chars().rev().collect();
    vec![canary.into(), hex.into(), reversed.into(), STANDARD.encode(canary).trim_end_matches('=').into()]
}

fn is_in(bytes: &[u8], canary: &str) -> bool {
    forms(canary).iter().any(|form| bytes.windows(form.len()).any(|window| window == form.as_slice()))
}

/// The files below a folder in which a canary is.
fn files_with(folder: &Path, canary: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_with(&path, canary));
        } else if is_in(&fs::read(&path).unwrap_or_default(), canary) {
            found.push(path.display().to_string());
        }
    }
    found
}

/// The stub over HTTP: where it listens.
async fn stub_over_http(record: &Path) -> (Child, url::Url) {
    let mut command = Command::new(npm::node());
    command.arg(npm::stub()).arg("http").arg(record).env_clear();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let port = within("the stub says its port", lines.next_line()).await.unwrap().unwrap();
    (child, local(port.parse().unwrap(), "/mcp"))
}

/// Two adapters with the secret: in a child's environment, and in a header.
async fn with_secret() -> (Setup, Child, otlp::Received) {
    let (received, endpoint) = otlp::grpc().await;
    let setup = Setup::new()
        .with("contracts", json!("contracts"))
        .with("secrets", json!({ "canary": { "env": "CANARY" } }))
        .with("telemetry", json!({ "otlp": { "endpoint": endpoint.as_str() }, "log_filter": "trace" }))
        .env("CANARY", SECRET);
    let (node, script) = (npm::node(), npm::stub());
    let import = ["adapters", "import", "--mode-default", "local_write", "--name"];
    let child = ["child", "--env-secret", "STUB_KEY=canary", "--stdio", "--", &node, &script, "good"];
    let ran = setup.configured(&[&import[..], &child].concat()).await;
    assert!(ran.code == Some(0) && !ran.out.contains(SECRET) && !ran.err.contains(SECRET), "{ran:?}");
    let (server, url) = stub_over_http(&setup.path("record")).await;
    let remote = ["remote", "--url", url.as_str(), "--private-network", "--credential", "canary"];
    let ran = setup.configured(&[&import[..], &remote].concat()).await;
    assert!(ran.code == Some(0) && !ran.out.contains(SECRET) && !ran.err.contains(SECRET), "{ran:?}");
    for (adapter, tool, mode) in [("remote", "erase", "destructive")] {
        let mut contract = setup.read_contract(adapter);
        contract["capabilities"][tool]["mode"] = json!(mode);
        fs::write(setup.contract_file(adapter), contract.to_string()).unwrap();
    }
    (setup, server, received)
}

/// `sha256` of a text, as the stub answers it.
fn fingerprint(text: &str) -> String {
    let digest = placet_types::digest::Digest::of(text.as_bytes()).to_string();
    digest.trim_start_matches("sha256:").to_owned()
}

#[tokio::test]
async fn a_canary_in_an_argument_and_one_in_a_secret_leak_nowhere() {
    let (setup, _server, received) = with_secret().await;
    let placet = setup.start().await;
    let (agent, ben) = (setup.agent(&placet).await, setup.ben(&placet).await);
    let mut answers = Vec::new();

    let noted = agent.call(&plan("child__note", "s1", json!({ "what": ARGUMENT }))).await;
    let told = text(&noted.succeeded()["output"]["content"][0], "text");
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["key"], fingerprint(SECRET), "the child has the secret");
    answers.push(noted);
    answers.push(agent.call(&plan("remote__note", "s2", json!({ "what": ARGUMENT }))).await);
    answers.last().unwrap().succeeded();
    let held = agent.call(&plan("remote__erase", "s3", json!({ "what": ARGUMENT }))).await.held();
    ben.decide(&held, "approve").await.ok();
    answers.push(agent.end_of(&text(&held, "call_id")).await);
    answers.last().unwrap().succeeded();
    let record = fs::read_to_string(setup.path("record")).unwrap();
    let bearer = fingerprint(&format!("Bearer {SECRET}"));
    assert!(record.contains(&bearer), "the credential was attached");
    for line in record.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
        let is_call = line["message"]["method"] == "tools/call";
        assert!(!is_call || line["headers"]["traceparent"].is_string(), "{line:#}");
    }

    // Refusals of all kinds, each with the canary in it.
    let other = plan("child__note", "s1", json!({ "what": format!("{ARGUMENT}-changed") }));
    answers.push(agent.call(&other).await);
    answers.push(agent.call(&plan("child__note", "s4", json!({ ARGUMENT: [SECRET] }))).await);
    answers.push(agent.call(&plan(&format!("child__{ARGUMENT}"), "s5", json!({ "what": 1 }))).await);
    answers.push(agent.post_text("/v1/calls", format!("{{\"tool\": \"{SECRET}\", \"tool\": \"{ARGUMENT}\" ]")).await);
    answers.push(placet.client(Some(format!("{SECRET}.{ARGUMENT}.x"))).call(&other).await);
    for answer in &answers {
        assert!(!is_in(&answer.body, SECRET), "in an answer: {answer:?}");
    }
    received.trace(&text(&answers[0].json(), "trace_id"), ("placet.call", 1)).await;

    let metrics = placet.ask("/metrics").await.text();
    assert!(metrics.contains("placet"), "{metrics}");
    for path in ["/readyz", "/healthz"] {
        let text = placet.ask(path).await.text();
        assert!(!is_in(text.as_bytes(), SECRET) && !is_in(text.as_bytes(), ARGUMENT), "{path}: {text}");
    }
    let log = placet.stop().await;
    assert!(log.contains("child"), "the log is not there to be searched");
    for (place, bytes) in [("a span", received.bytes()), ("the log", log.into_bytes()), ("the metrics", metrics.into_bytes())] {
        for canary in [SECRET, ARGUMENT] {
            let found = bytes.windows(canary.len()).position(|window| window == canary.as_bytes());
            let around = found.map(|at| String::from_utf8_lossy(&bytes[at.saturating_sub(300)..(at + 100).min(bytes.len())]).into_owned());
            assert!(!is_in(&bytes, canary), "{canary} is in {place}: {around:?}");
        }
    }
    assert_eq!(files_with(&setup.data(), SECRET), Vec::<String>::new());
    assert_eq!(files_with(&setup.path("contracts"), SECRET), Vec::<String>::new());
    let with_argument = files_with(&setup.data(), ARGUMENT);
    assert!(!with_argument.is_empty(), "the search finds nothing that is there");
    let content = setup.data().join("ledger/content").display().to_string();
    assert!(with_argument.iter().all(|file| file.starts_with(&content)), "{with_argument:#?}");
}

#[tokio::test]
async fn a_token_is_in_no_log_and_no_file() {
    let setup = Setup::new().with("telemetry", json!({ "log_filter": "trace" }));
    setup.put("a.txt", "x");
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    agent.call(&plan("files__read", "s1", json!({ "path": "a.txt" }))).await.succeeded();
    let token = agent.token.clone().unwrap();
    let signature = token.rsplit('.').next().unwrap();
    let log = placet.stop().await;
    assert!(!log.contains(signature), "a token is in the log");
    assert_eq!(files_with(&setup.data(), signature), Vec::<String>::new());
    let key = setup.data().join("dev-key.jwk");
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(key).unwrap().permissions());
    assert_eq!(mode & 0o077, 0, "the development key can be read by others");
}
