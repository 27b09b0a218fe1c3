//! People at the web console, in real Chromium: signed in with a real OpenID provider, deciding on the calls of an agent.
//!
//! Owns the set-up: who exists, a tool that gives money back, a gate that wants two people. What the people do stands in
//! `tests/console/approvals.mjs`, and each of its checks is a line of its output. How an open page keeps its line is `tests/console/live.mjs`,
//! where the server is one that fails as the check wants.

use std::{env, fs, process::Stdio, time::Duration};

use placet_testkit::port::free_port;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

use crate::{
    harness::{npm, placet::Placet, setup::Setup, within},
    workspace,
};

/// How long everything together may take.
const MINUTES: u64 = 8;
const SECRET: &str = "a secret of the tests, long enough";

/// Who exists, for the provider and for the directory.
fn people() -> Value {
    json!({
        "ana": { "display": "Ana Owner", "groups": [] },
        "ben": { "display": "Ben Approver", "groups": ["approvers", "operators", "emergency", "freeze-approvers"] },
        "cleo": { "display": "Cleo Approver", "groups": ["approvers"] },
        "finn": { "display": "Finn Approver", "groups": ["approvers"] },
        "dora": { "display": "Dora Colleague", "groups": [] },
        "emma": { "display": "Emma Director", "groups": ["directors"] },
    })
}

/// A provider that runs until it is dropped.
struct Provider {
    issuer: String,
    _child: Child,
}

impl Provider {
    async fn start(console: &str) -> Self {
        let mut child = script("idp.mjs")
            .arg(console)
            .arg(people().to_string())
            .env("CONSOLE_SECRET", SECRET)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        crate::harness::watcher::watch(child.id());
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = within("the provider listens", lines.next_line()).await.unwrap();
        let said: Value = serde_json::from_str(&line.expect("it says where")).unwrap();
        // What it says later is read and thrown away, so that it never waits to be heard.
        drop(tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} }));
        Self { issuer: said["issuer"].as_str().unwrap().to_owned(), _child: child }
    }
}

/// A script of `tests/console`.
pub(crate) fn script(name: &str) -> Command {
    let mut command = Command::new(npm::node());
    command
        .arg(workspace::root().join("tests/console").join(name))
        .env("PLACET_E2E_MODULES", npm::modules())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

/// The shipped policies, with a gate that wants two people for what cannot be undone.
fn policies(setup: &Setup) {
    let folder = setup.path("policies");
    fs::create_dir(&folder).unwrap();
    for file in fs::read_dir(workspace::root().join("policies")).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "cedar") {
            let text = fs::read_to_string(&path).unwrap();
            fs::write(folder.join(path.file_name().unwrap()), two_people(&text)).unwrap();
        }
    }
    let gates = [
        gate("voucher", "@expires(\"8s\")", 1),
        gate("discount", "@escalate(\"6s: directors\")", 1),
        gate("gift", "@expires(\"1h\")", 2),
        gate("payout", "@fresh_auth(\"1m\")", 1),
        gate("raffle", "@expires(\"1h\")", 1),
    ];
    fs::write(folder.join("25-till.cedar"), gates.concat()).unwrap();
}

/// A gate of its own for a tool of the till: so many approvers.
fn gate(tool: &str, annotation: &str, people: u32) -> String {
    format!(
        "@id(\"till-{tool}\") @approval(\"required\") @approver_group(\"approvers:{people}\") @quorum(\"{people}\") {annotation}
        @reason(\"The till gives something away.\")
        forbid (principal, action == Placet::Action::\"till/{tool}\", resource is Placet::Tool);\n"
    )
}

fn two_people(text: &str) -> String {
    let Some((before, rest)) = text.split_once("@id(\"gate-destructive\")") else {
        return text.to_owned();
    };
    let (gate, after) = rest.split_once("};").unwrap();
    let stricter = gate
        .replace("@approver_group(\"approvers\")", "@approver_group(\"approvers:2\")")
        .replace("@quorum(\"1\")", "@quorum(\"2\")");
    assert_ne!(stricter, gate);
    format!("{before}@id(\"gate-destructive\"){stricter}}};{after}")
}

/// The till, imported and reviewed.
async fn till(setup: Setup) -> Setup {
    let setup = setup.with("contracts", json!("contracts"));
    let witness = setup.path("witness");
    let program = workspace::root().join("tests/console/till.mjs");
    let node = npm::node();
    let words = ["adapters", "import", "--name", "till", "--stdio", "--"];
    let command = [node.as_str(), program.to_str().unwrap(), witness.to_str().unwrap()];
    setup.configured(&[&words[..], &command[..]].concat()).await.ok();
    let mut contract = setup.read_contract("till");
    contract["tenants"] = json!(["acme"]);
    contract["capabilities"]["refund"]["mode"] = json!("destructive");
    assert_eq!(
        contract["capabilities"].as_object().unwrap().len(),
        6,
        "a name that is markup is none"
    );
    for tool in ["voucher", "discount", "gift", "payout", "raffle"] {
        contract["capabilities"][tool]["mode"] = json!("local_write");
    }
    setup.contract("till", &contract)
}

async fn placet(provider: &Provider, port: u16) -> (Setup, Placet) {
    let setup = till(Setup::new()).await;
    policies(&setup);
    let users: Value = people();
    let directory = json!({ "tenants": { "acme": {
        "groups": { "approvers": {}, "operators": {}, "emergency": {}, "freeze-approvers": {}, "directors": {} },
        "users": users,
        "agents": { "helper": { "owner": "ana", "display": "The shop's helper" } },
    } } });
    fs::write(setup.path("directory.yaml"), directory.to_string()).unwrap();
    let issuer = json!({
        "issuer": provider.issuer, "tenant": "acme", "audiences": ["placet"], "kinds": { "fixed": "user" },
        "keys": { "url": format!("{}/jwks", provider.issuer) }, "keys_private_network": true, "groups_claim": "groups",
    });
    let sign_in = json!({
        "issuer": provider.issuer, "client_id": "placet-console", "client_secret": "console",
        "scopes": ["profile", "groups"], "private_network": true,
    });
    let setup = setup
        .with("policies", json!("policies"))
        .with("directory", json!("directory.yaml"))
        .with("issuers", json!([issuer]))
        .with("development_tokens", json!(true))
        .with("secrets", json!({ "console": "${CONSOLE_SECRET}" }))
        .with("limits", json!({ "live_list_ms_max": 2_000 }))
        .with("console", json!({ "sign_in": sign_in }))
        .env("CONSOLE_SECRET", SECRET)
        .arg("--listen")
        .arg(&format!("127.0.0.1:{port}"));
    let placet = setup.start().await;
    (setup, placet)
}

/// Lets a script of `tests/console` do its checks, and prints them.
async fn checks(name: &str, task: &Value) {
    let checks = script(name).env("PLACET_CONSOLE_TASK", task.to_string()).output();
    let output = tokio::time::timeout(Duration::from_secs(MINUTES * 60), checks).await;
    let output = output.expect("the checks come to an end").unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    println!("{said}");
}

#[tokio::test]
async fn an_open_page_follows_what_happens_whatever_its_line_does() {
    let of_the_console = "crates/console/src/assets/console.js";
    let task =
        json!({ "script": workspace::root().join(of_the_console), "chromium": npm::chromium() });
    checks("live.mjs", &task).await;
}

#[tokio::test]
async fn the_console_tells_the_truth_about_every_end() {
    let port = free_port().unwrap();
    let base = format!("http://127.0.0.1:{port}");
    let provider = Provider::start(&base).await;
    let (setup, placet) = placet(&provider, port).await;
    let token =
        setup.configured(&["token", "agent", "helper", "--tenant", "acme", "--ttl", "12h"]).await;
    let task = json!({
        "base": base, "agent": token.ok().trim(), "chromium": npm::chromium(),
        "shots": env::var("PLACET_SHOTS").ok().map(|folder| workspace::root().join(folder)),
    });
    checks("outcomes.mjs", &task).await;
    placet.stop().await;
}

#[tokio::test]
async fn people_decide_in_the_browser() {
    // The provider has to know where the console will be.
    let port = free_port().unwrap();
    let base = format!("http://127.0.0.1:{port}");
    let provider = Provider::start(&base).await;
    let (setup, placet) = placet(&provider, port).await;
    let token =
        setup.configured(&["token", "agent", "helper", "--tenant", "acme", "--ttl", "12h"]).await;
    let task = json!({
        "base": base, "agent": token.ok().trim(), "witness": setup.path("witness"), "chromium": npm::chromium(),
        "shots": env::var("PLACET_SHOTS").ok().map(|folder| workspace::root().join(folder)),
    });
    checks("approvals.mjs", &task).await;
    let log = placet.stop().await;
    for secret in [SECRET, "code=", "id_token", "code_verifier"] {
        assert!(!log.contains(secret), "the log holds `{secret}`");
    }
}
