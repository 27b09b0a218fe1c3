//! Canaries: an argument is nowhere but with its adapter and among the contents of the ledger, a secret is nowhere at all.
//!
//! Owns the search through everything that leaves the process or stays on disk: spans, logs, metrics, answers, files.

use std::{fs, path::Path};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tokio::process::Child;

use crate::harness::{
    client::{Client, Reply, text},
    npm, otlp,
    placet::Placet,
    search::{Places, found},
    setup::{Setup, plan},
    until,
};

const SECRET: &str = "kanarienvogel-4711-sicher";
/// What stands in its place.
const REMOVED: &str = "[secret removed]";
const ARGUMENT: &str = "wellensittich-0815-privat";

/// The forms in which a canary would be given away.
fn forms(canary: &str) -> Vec<Vec<u8>> {
    let hex: String = canary.bytes().map(|byte| format!("{byte:02x}")).collect();
    let reversed: String = canary.chars().rev().collect();
    vec![
        canary.into(),
        hex.into(),
        reversed.into(),
        STANDARD.encode(canary).trim_end_matches('=').into(),
    ]
}

fn is_in(bytes: &[u8], canary: &str) -> bool {
    forms(canary)
        .iter()
        .any(|form| bytes.windows(form.len()).any(|window| window == form.as_slice()))
}

/// Files are allocated before they are used: the zeros at the end are not searched.
fn without_zeros(bytes: &[u8]) -> &[u8] {
    let unused = bytes.rchunks(4_096).take_while(|chunk| chunk.iter().all(|byte| *byte == 0));
    let unused: usize = unused.map(<[u8]>::len).sum();
    &bytes[..bytes.len().saturating_sub(unused)]
}

/// The files below a folder in which a canary is.
fn files_with(folder: &Path, canary: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_with(&path, canary));
        } else if is_in(without_zeros(&fs::read(&path).unwrap_or_default()), canary) {
            found.push(path.display().to_string());
        }
    }
    found
}

/// Two adapters with the secret: in a child's environment, and in a header.
async fn with_secret() -> (Setup, Child, otlp::Received) {
    let (received, endpoint) = otlp::grpc().await;
    let setup = Setup::new()
        .with("contracts", json!("contracts"))
        .with("secrets", json!({ "canary": { "env": "CANARY" } }))
        .with(
            "telemetry",
            json!({ "otlp": { "endpoint": endpoint.as_str() }, "log_filter": "trace" }),
        )
        .env("CANARY", SECRET);
    let (node, script) = (npm::node(), npm::stub());
    let import = ["adapters", "import", "--mode-default", "local_write", "--name"];
    let child =
        ["child", "--env-secret", "STUB_KEY=canary", "--stdio", "--", &node, &script, "good"];
    let ran = setup.configured(&[&import[..], &child].concat()).await;
    assert!(
        ran.code == Some(0) && !ran.out.contains(SECRET) && !ran.err.contains(SECRET),
        "{ran:?}"
    );
    let (server, url) = npm::stub_over_http(&setup.path("record")).await;
    let remote = ["remote", "--url", url.as_str(), "--private-network", "--credential", "canary"];
    let ran = setup.configured(&[&import[..], &remote].concat()).await;
    assert!(
        ran.code == Some(0) && !ran.out.contains(SECRET) && !ran.err.contains(SECRET),
        "{ran:?}"
    );
    let mut contract = setup.read_contract("remote");
    contract["capabilities"]["erase"]["mode"] = json!("destructive");
    fs::write(setup.contract_file("remote"), contract.to_string()).unwrap();
    let mut setup = setup.files_contract();
    for manner in ["refuses", "errors"] {
        let mut contract = setup.read_contract("child");
        contract["adapter"] = json!(manner);
        contract["transport"]["args"] = json!([script, manner]);
        if manner == "refuses" {
            contract["capabilities"]["note"]["not_executed"] = json!({ "jsonrpc": [-32_602] });
        }
        setup = setup.contract(manner, &contract);
        // A pin is of this adapter's tools.
        let diff = setup.configured(&["adapters", "diff", manner, "--json"]).await;
        let diff: Value = serde_json::from_str(&diff.out).unwrap();
        let list = text(&diff[0], "live_list");
        setup.configured(&["adapters", "pin", manner, "--expect", &list]).await.ok();
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
    let agent = setup.agent(&placet).await;
    let mut answers = executed(&setup, &placet, &agent).await;
    answers.extend(refused(&agent).await);
    answers.push(placet.client(Some(format!("{SECRET}.{ARGUMENT}.x"))).get("/v1/tools").await);
    for answer in &answers {
        assert!(!is_in(&answer.body, SECRET), "in an answer: {answer:?}");
    }
    received.trace(&text(&answers[0].json(), "trace_id"), "placet.call", 1).await;

    let mut said = Vec::new();
    for path in ["/metrics", "/readyz", "/healthz"] {
        said.push((path, placet.ask(path).await.body.to_vec()));
    }
    let log = placet.stop().await;
    for (place, bytes) in [("log", log.as_bytes()), ("spans", &received.bytes())] {
        assert!(
            is_in(bytes, "child"),
            "the search finds nothing in the {place}, where the adapter is named"
        );
    }
    said.extend([("a span", received.bytes()), ("the log", log.into_bytes())]);
    for (place, bytes) in &said {
        for canary in [SECRET, ARGUMENT] {
            assert!(!is_in(bytes, canary), "{canary} is in {place}: {}", around(bytes, canary));
        }
    }
    assert_eq!(files_with(&setup.data(), SECRET), Vec::<String>::new());
    assert_eq!(files_with(&setup.path("contracts"), SECRET), Vec::<String>::new());
    let with_argument = files_with(&setup.data(), ARGUMENT);
    assert!(!with_argument.is_empty(), "the search finds nothing that is there");
    let journal = setup.data().join("ledger/journal").display().to_string();
    assert!(with_argument.iter().all(|file| file.starts_with(&journal)), "{with_argument:#?}");
    // Contents stand beside the entries, not in them.
    let chain = setup.path("chain.jsonl");
    setup.configured(&["audit", "export", chain.to_str().unwrap()]).await.ok();
    let chain = fs::read(chain).unwrap();
    assert!(is_in(&chain, "child") && !is_in(&chain, ARGUMENT), "{}", around(&chain, ARGUMENT));
}

/// Calls that happen, and prove that the secret arrives where it should.
async fn executed(setup: &Setup, placet: &Placet, agent: &Client) -> Vec<Reply> {
    let noted = agent.call(&plan("child__note", "s1", json!({ "what": ARGUMENT }))).await;
    let told = text(&noted.succeeded()["output"]["content"][0], "text");
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["key"], fingerprint(SECRET), "the child has the secret");
    let remote = agent.call(&plan("remote__note", "s2", json!({ "what": ARGUMENT }))).await;
    remote.succeeded();
    let erase = plan("remote__erase", "s3", json!({ "what": ARGUMENT }));
    let held = agent.call(&erase).await.held();
    setup.ben(placet).await.decide(&held, "approve").await.ok();
    let erased = agent.end_of(&text(&held, "call_id")).await;
    erased.succeeded();
    let record = fs::read_to_string(setup.path("record")).unwrap();
    let bearer = fingerprint(&format!("Bearer {SECRET}"));
    for line in record.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
        if line["message"]["method"] == "tools/call" {
            assert!(line["headers"]["traceparent"].is_string(), "{line:#}");
            assert_eq!(line["headers"]["authorization"], bearer, "{line:#}");
        }
    }
    vec![noted, remote, erased]
}

/// Refusals of all kinds, each with a canary in it. A tool that refuses or fails tends to quote what it was given.
async fn refused(agent: &Client) -> Vec<Reply> {
    let nowhere = json!({ "path": format!("{ARGUMENT}/in/no/directory"), "content": ARGUMENT });
    let mut replies = Vec::new();
    for (step, tool, args) in [
        ("s1", "child__note", json!({ "what": format!("{ARGUMENT}-changed") })),
        ("s4", "child__note", json!({ ARGUMENT: [SECRET] })),
        ("s5", &format!("child__{ARGUMENT}"), json!({ "what": "x" })),
        ("s6", "files__write", nowhere),
        ("s7", "refuses__note", json!({ "what": ARGUMENT })),
        ("s8", "errors__note", json!({ "what": ARGUMENT })),
    ] {
        let reply = agent.call(&plan(tool, step, args)).await;
        assert!(reply.status >= 400, "{tool}: {reply:?}");
        replies.push(reply);
    }
    assert!(is_in(&replies[4].body, ARGUMENT), "the caller is told the tool's words");
    replies[5].refused(409, "OUTCOME_UNKNOWN");
    let twice = format!("{{\"tool\": \"{SECRET}\", \"tool\": \"{ARGUMENT}\" ]");
    replies.push(agent.post_text("/v1/calls", twice).await);
    replies
}

#[tokio::test]
async fn a_secret_that_a_target_echoes_in_a_common_form_is_removed() {
    let (setup, _server, _received) = with_secret().await;
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    for (step, adapter) in [("s1", "child"), ("s2", "remote")] {
        let call = plan(&format!("{adapter}__note"), step, json!({ "what": "your secret" }));
        let reply = agent.call(&call).await;
        let told = text(&reply.succeeded()["output"]["content"][0], "text");
        let told: Value = serde_json::from_str(&told).expect("what is kept is whole");
        let forms = told["forms"].as_array().unwrap();
        assert_eq!(forms.len(), 25, "{told}");
        for form in forms {
            let form = form.as_str().unwrap();
            assert!(form.contains(REMOVED), "{adapter}: {form}");
            assert!(
                form.len() <= REMOVED.len().saturating_add(16),
                "more than the secret stays: {form}"
            );
        }
        assert_eq!(found(&reply.body, SECRET), None, "{adapter}");
        assert_eq!(found(format!("{:?}", reply.headers).as_bytes(), SECRET), None, "{adapter}");
    }
    // It says the last of it on its standard error after its answer.
    until("the child has said it all", || async {
        placet.log().matches("it is [secret removed]").count() > 20
    })
    .await;
    let log = placet.stop().await;
    assert_eq!(found(log.as_bytes(), SECRET), None, "in the log");
    let mut places = Places::default();
    places.add_folder(&setup.data());
    assert!(places.has("journal", "secret removed"), "the search finds what is kept");
    assert_eq!(places.with(SECRET), Vec::<String>::new());
}

/// What stands around a canary, for the message of a failure.
fn around(bytes: &[u8], canary: &str) -> String {
    let at = bytes.windows(canary.len()).position(|window| window == canary.as_bytes());
    let (from, to) = at.map_or((0, 0), |at| (at.saturating_sub(300), at.saturating_add(200)));
    String::from_utf8_lossy(&bytes[from..to.min(bytes.len())]).into_owned()
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
