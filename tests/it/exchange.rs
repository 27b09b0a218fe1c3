//! Exchanged credentials, end to end: a real provider signs people in and exchanges tokens, a server verifies what arrives there.
//!
//! Owns the set-up: who exists, a server behind exchanged tokens, and the words that make the provider refuse. What is asserted is what the
//! server was shown, not what Placet says of it.

mod acceptance;
mod audiences;
mod contracts;
mod fleet;
mod held;
mod refusals;
mod revocation;
mod scopes;
mod sessions;

use std::{fs, process::Stdio};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    sync::OnceCell,
};

use crate::{
    harness::{
        client::{Client, Reply, text},
        npm,
        placet::Placet,
        setup::{Ran, Setup, local, plan},
        watcher, within,
    },
    mcp_clients::stateless,
    workspace,
};

pub(crate) const CLIENT_SECRET: &str = "kanarienvogel-client-0815-geheim";

/// A script of `tests/peers`, and its first line of JSON.
async fn peer(script: &str, arguments: &[&str]) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut command = Command::new(npm::node());
    command
        .arg(workspace::root().join("tests/peers").join(script))
        .args(arguments)
        .env("PLACET_E2E_MODULES", npm::modules())
        .env("CLIENT_SECRET", CLIENT_SECRET)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let mut child = watcher::started(&mut command);
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (child, lines)
}

/// The next line that is JSON; a provider says other things too.
async fn next(lines: &mut Lines<BufReader<ChildStdout>>) -> Value {
    loop {
        let line = within("a peer says something", lines.next_line()).await.unwrap();
        if let Ok(said) = serde_json::from_str(&line.expect("it is still there")) {
            return said;
        }
    }
}

/// The provider.
pub(crate) struct Provider {
    pub(crate) issuer: String,
    pub(crate) agent: String,
    pub(crate) alice: String,
    pub(crate) bob: String,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    child: Child,
}

impl Provider {
    pub(crate) async fn start(setup: &Setup) -> Self {
        Self::start_with(setup, &[]).await.0
    }

    /// Under TLS as well, with these files of the set-up: certificate, key, and the authority of clients. Answers the port too.
    pub(crate) async fn start_tls(setup: &Setup, files: [&str; 3]) -> (Self, u16) {
        let (provider, said) = Self::start_with(setup, &files).await;
        (provider, said["tls"].as_u64().and_then(|port| port.try_into().ok()).unwrap())
    }

    async fn start_with(setup: &Setup, files: &[&str]) -> (Self, Value) {
        let file = |name: &&str| setup.path(name).display().to_string();
        let arguments: Vec<String> = [&["sts-key.pem"], files].concat().iter().map(file).collect();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let (mut child, mut lines) = peer("sts.mjs", &arguments).await;
        let said = next(&mut lines).await;
        let stdin = child.stdin.take().unwrap();
        let (agent, users) = (text(&said, "agent"), &said["users"]);
        let (alice, bob) = (text(users, "alice"), text(users, "bob"));
        (Self { issuer: text(&said, "issuer"), agent, alice, bob, stdin, lines, child }, said)
    }

    /// Tells it how to behave from now on; the answer may say more.
    pub(crate) async fn tell(&mut self, word: &str) -> Value {
        self.stdin.write_all(format!("{word}\n").as_bytes()).await.unwrap();
        loop {
            let said = next(&mut self.lines).await;
            if said["done"] == word {
                return said;
            }
        }
    }

    pub(crate) fn issuers(&self) -> Value {
        json!([{
            "issuer": self.issuer, "tenant": "acme", "audiences": ["placet"], "kinds": { "claim": ["agent", "user"] },
            "keys": { "url": format!("{}/jwks", self.issuer) }, "keys_private_network": true,
            "clients": { "app": "agent-1" }, "person_clients": ["cli"], "attests_workloads": true,
        }])
    }

    /// An exchange that takes too long for a busy machine would be asked for twice.
    fn services(&self) -> Value {
        let at = |name: &str, client: &str, auth: Value| {
            json!({
                "name": name, "issuer": self.issuer, "token_endpoint": format!("{}/token", self.issuer),
                "client_id": client, "client_auth": auth, "private_network": true, "timeout_ms": 10_000,
            })
        };
        json!([
            at(
                "corp",
                "placet",
                json!({ "method": "private_key_jwt", "key": "sts-key", "key_id": "placet-1" })
            ),
            at(
                "basic",
                "placet-basic",
                json!({ "method": "client_secret_basic", "secret": "sts-secret" })
            ),
        ])
    }
}

/// The server behind exchanged tokens.
pub(crate) struct Guarded {
    pub(crate) url: String,
    record: std::path::PathBuf,
    _child: Child,
}

impl Guarded {
    pub(crate) async fn start(setup: &Setup, issuer: &str) -> Self {
        let record = setup.path("guarded.jsonl");
        let arguments = [issuer, "urn:mail-api", record.to_str().unwrap()];
        let (child, mut lines) = peer("guarded.mjs", &arguments).await;
        let port = next(&mut lines).await.as_u64().unwrap();
        let url = local(u16::try_from(port).unwrap(), "/mcp").to_string();
        Self { url, record, _child: child }
    }

    /// What it was shown so far, as text.
    pub(crate) fn shown(&self) -> String {
        fs::read_to_string(&self.record).unwrap_or_default()
    }

    pub(crate) fn calls(&self) -> usize {
        self.shown().matches("tools/call").count()
    }

    /// The tokens that it was shown, in their order.
    fn bearers(&self) -> Vec<String> {
        let shown = self.shown();
        let tokens = shown.split("Bearer ").skip(1).filter_map(|rest| rest.split('"').next());
        tokens.map(str::to_owned).collect()
    }
}

/// Everything together.
struct World {
    setup: Setup,
    provider: Provider,
    guarded: Guarded,
    placet: Placet,
    /// Ben's token, made once: tests ask for him many times a second.
    ben: OnceCell<String>,
}

pub(crate) const DIRECTORY: &str = r#"{ "tenants": { "acme": {
    "groups": { "approvers": {}, "operators": {}, "freeze-approvers": {}, "emergency": {} },
    "users": { "ana": {}, "alice": {}, "bob": {}, "ben": { "groups": ["approvers", "operators", "freeze-approvers", "emergency"] } },
    "agents": { "agent-1": { "owner": "ana" } }
} } }"#;

/// A set-up that exchanges tokens at the provider.
fn exchanging(setup: Setup, provider: &Provider) -> Setup {
    setup
        .with("directory", json!("directory.yaml"))
        .with("issuers", provider.issuers())
        .with("development_tokens", json!(true))
        .with("secrets", secrets())
        .with("sts", provider.services())
        .with("telemetry", json!({ "log_filter": "debug" }))
        .env("CLIENT_SECRET", CLIENT_SECRET)
}

fn secrets() -> Value {
    json!({ "sts-key": { "file": "sts-key.pem" }, "sts-secret": "${CLIENT_SECRET}" })
}

impl World {
    async fn new() -> Self {
        Self::of(Setup::new()).await
    }

    async fn of(setup: Setup) -> Self {
        let setup = setup.with("contracts", json!("contracts"));
        let provider = Provider::start(&setup).await;
        let guarded = Guarded::start(&setup, &provider.issuer).await;
        fs::write(setup.path("directory.yaml"), DIRECTORY).unwrap();
        let import =
            ["adapters", "import", "--name", "mail", "--url", &guarded.url, "--private-network"];
        setup.configured(&import).await.ok();
        let mut contract = setup.read_contract("mail");
        contract["tenants"] = json!("all");
        contract["credential"] = json!({
            "type": "token_exchange", "sts": "corp", "audience": "urn:mail-api",
            "scopes": ["mail.read", "mail.send"], "scopes_optional": ["mail.labels"],
            "scopes_for": { "search": ["mail.read"] },
        });
        let search = &mut contract["capabilities"]["search"];
        search["mode"] = json!("read_only");
        search["effect"] = json!("none");
        search.as_object_mut().unwrap().remove("dedup");
        contract["capabilities"]["send"]["mode"] = json!("destructive");
        let setup = exchanging(setup.contract("mail", &contract), &provider);
        let placet = setup.start().await;
        Self { setup, provider, guarded, placet, ben: OnceCell::new() }
    }

    fn agent(&self) -> Client {
        self.placet.client(Some(self.provider.agent.clone()))
    }

    /// The agent's call for alice.
    async fn call(&self, submission: &Value) -> Reply {
        let alice = format!("Bearer {}", self.provider.alice);
        self.agent().call_with(submission, "placet-delegation", &alice).await
    }

    async fn ben(&self) -> Client {
        self.placet.client(Some(self.bens_token().await))
    }

    async fn bens_token(&self) -> String {
        let words = ["token", "user", "ben", "--tenant", "acme"];
        let made = async || self.setup.configured(&words).await.ok().trim().to_owned();
        self.ben.get_or_init(made).await.clone()
    }

    /// What ben types after `placet`.
    async fn types(&self, words: &[&str]) -> Ran {
        self.setup.asks(&self.placet, &self.bens_token().await, words).await
    }

    /// Waits until an approved call waits for its caller.
    async fn awaits_its_caller(&self, call_id: &str) {
        let waiting = async {
            while self.look(call_id, 0).await.json()["pending_approval"]["awaits_credential"]
                != json!(true)
            {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        };
        within("it waits for its caller", waiting).await;
    }

    /// The same, after the program was started again.
    async fn restarted(self) -> Self {
        self.set(|setup| setup).await
    }

    /// With another set-up, after the program was started again.
    async fn set(self, change: impl FnOnce(Setup) -> Setup) -> Self {
        let Self { setup, provider, guarded, placet, ben } = self;
        placet.stop().await;
        let setup = change(setup);
        let placet = setup.start().await;
        Self { setup, provider, guarded, placet, ben }
    }

    /// With other words in the contract's section, after the program was started again.
    async fn with_credential(self, words: Value) -> Self {
        let mut contract = self.setup.read_contract("mail");
        for (key, value) in words.as_object().unwrap() {
            contract["credential"][key] = value.clone();
        }
        fs::write(self.setup.contract_file("mail"), contract.to_string()).unwrap();
        self.restarted().await
    }

    /// How a call for alice stands.
    async fn look(&self, call_id: &str, wait_ms: u32) -> Reply {
        self.look_at(&self.placet, call_id, wait_ms).await
    }

    /// The same, as a node says it.
    async fn look_at(&self, node: &Placet, call_id: &str, wait_ms: u32) -> Reply {
        let agent = node.client(Some(self.provider.agent.clone()));
        let path = format!("/v1/calls/{call_id}?wait_ms={wait_ms}");
        let request = agent.request(http::Method::GET, &path);
        let request =
            request.header("placet-delegation", format!("Bearer {}", self.provider.alice));
        agent.send(request.body(bytes::Bytes::new()).unwrap()).await
    }

    /// Waits until a call for alice has ended well.
    async fn end_of(&self, call_id: &str) -> Value {
        for _ in 0..100 {
            let reply = self.look(call_id, 1_000).await;
            if reply.status == 200 {
                return reply.json();
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        panic!("it does not end: {:?}", self.look(call_id, 0).await)
    }
}

fn search(step: &str) -> Value {
    plan("mail__search", step, json!({ "what": "invoices" }))
}

fn send(step: &str) -> Value {
    plan("mail__send", step, json!({ "what": "the report" }))
}

/// What the server read in the token of a call.
fn said(result: &Value) -> Value {
    let words = result.to_string();
    let (_, rest) = words.split_once("{\\\"sub").unwrap_or_else(|| panic!("no claims in {words}"));
    let claims = format!("{{\"sub{}", rest.replace("\\\"", "\""));
    serde_json::Deserializer::from_str(&claims).into_iter::<Value>().next().unwrap().unwrap()
}

#[tokio::test]
async fn a_call_reaches_its_server_with_an_exchanged_token_and_nothing_else() {
    let world = World::new().await;
    let result = world.call(&search("s1")).await.ok();
    let claims = said(&result);
    assert_eq!(
        (&claims["sub"], &claims["act"]["sub"]),
        (&json!("alice"), &json!("agent-1")),
        "{claims}"
    );
    assert_eq!(
        (&claims["aud"], &claims["scope"]),
        (&json!("urn:mail-api"), &json!("mail.read")),
        "{claims}"
    );
    // Another call of the same kind needs no other token.
    let again = said(&world.call(&search("s2")).await.ok());
    assert_eq!(again["jti"], claims["jti"]);
    // The agent alone has nobody whose token could be exchanged with it as the actor.
    let alone = world.agent().call(&search("s3")).await;
    assert_eq!(
        (alone.status, text(&alone.json(), "error_code")),
        (403, "CREDENTIAL_REFUSED".to_owned())
    );
    assert_eq!(world.guarded.calls(), 2);
    let shown = world.guarded.shown();
    let minted = world.guarded.bearers();
    assert!(!minted.is_empty());
    let data = world.setup.data();
    let log = world.placet.stop().await;
    let key = fs::read_to_string(world.setup.path("sts-key.pem")).unwrap();
    let key_line = key.lines().nth(1).unwrap().to_owned();
    for canary in [&world.provider.agent, &world.provider.alice, &key_line, CLIENT_SECRET] {
        assert!(!shown.contains(canary), "the server was shown what is not for it");
    }
    for canary in
        [&world.provider.agent, &world.provider.alice, &key_line, CLIENT_SECRET, &minted[0]]
    {
        assert!(!log.contains(canary), "it is in the log");
        assert!(!result.to_string().contains(canary), "it is in the answer");
        assert_eq!(files_with(&data, canary), Vec::<String>::new());
    }
    // Which credential it was stands in the chain.
    for fact in [
        "\"token_exchange\"",
        "\"subject\":\"alice\"",
        "\"actor\":\"agent-1\"",
        "\"scopes\":[\"mail.read\"]",
    ] {
        assert!(!files_with(&data, fact).is_empty(), "{fact} is not on the record");
    }
}

/// The files below a folder that hold a text.
fn files_with(folder: &std::path::Path, canary: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_with(&path, canary));
        } else {
            let bytes = fs::read(&path).unwrap_or_default();
            if bytes.windows(canary.len()).any(|window| window == canary.as_bytes()) {
                found.push(path.display().to_string());
            }
        }
    }
    found
}

#[tokio::test]
async fn placet_acts_by_name_and_may_prove_itself_with_a_secret() {
    let world = World::new().await;
    world.placet.stop().await;
    for (section, actor) in [
        (json!({ "sts": "corp", "actor": "gateway" }), "placet"),
        (json!({ "sts": "basic" }), "agent-1"),
    ] {
        let mut contract = world.setup.read_contract("mail");
        for (key, value) in section.as_object().unwrap() {
            contract["credential"][key] = value.clone();
        }
        fs::write(world.setup.contract_file("mail"), contract.to_string()).unwrap();
        let placet = world.setup.start().await;
        let alice = format!("Bearer {}", world.provider.alice);
        let agent = placet.client(Some(world.provider.agent.clone()));
        let result = agent.call_with(&search(actor), "placet-delegation", &alice).await.ok();
        assert_eq!(said(&result)["act"]["sub"], actor);
        placet.stop().await;
        contract["credential"].as_object_mut().unwrap().remove("actor");
        fs::write(world.setup.contract_file("mail"), contract.to_string()).unwrap();
    }
}

#[tokio::test]
async fn a_held_call_runs_with_its_callers_token_and_waits_for_a_new_one_after_a_restart() {
    let mut world = World::new().await;
    // In memory while the process lives.
    let held = world.call(&send("w1")).await.held();
    world.ben().await.decide(&held, "approve").await.ok();
    let claims = said(&world.end_of(&text(&held, "call_id")).await);
    assert_eq!(
        (&claims["sub"], &claims["scope"]),
        (&json!("alice"), &json!("mail.read mail.send")),
        "{claims}"
    );
    // Gone with a restart: what was agreed to is still agreed to, and waits for alice's agent.
    let held = world.call(&send("w2")).await.held();
    let call_id = text(&held, "call_id");
    world = world.restarted().await;
    let before = world.guarded.calls();
    world.ben().await.decide(&held, "approve").await.ok();
    let waiting = async {
        loop {
            let now = world.look(&call_id, 0).await;
            if now.status == 202
                && now.json()["pending_approval"]["awaits_credential"] == json!(true)
            {
                return now.held();
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    let waiting = within("it waits for its caller", waiting).await;
    assert_eq!(waiting["state"], "approved");
    assert_eq!(world.guarded.calls(), before);
    let again = world.call(&send("w2")).await;
    assert!([200, 202].contains(&again.status), "{again:?}");
    let claims = said(&world.end_of(&call_id).await);
    assert_eq!(claims["sub"], "alice");
    assert_eq!(world.guarded.calls(), before + 1, "once");
}

/// What a client says to it over MCP: in one run, for alice.
async fn says(world: &World, id: u32, name: &str, arguments: Value) -> Value {
    let mut body = stateless("tools/call", json!({ "name": name, "arguments": arguments }));
    body["params"]["_meta"]["io.placet/run"] = json!({ "id": "r1", "safety_mode": "destructive" });
    body["id"] = json!(id);
    let request = world
        .agent()
        .request(http::Method::POST, "/mcp")
        .header("accept", "application/json, text/event-stream")
        .header("content-type", "application/json")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/call")
        .header("mcp-name", name)
        .header("placet-delegation", format!("Bearer {}", world.provider.alice));
    let reply = world.agent().send(request.body(body.to_string().into()).unwrap()).await;
    let said = reply.text();
    // A stream of events, or the answer alone.
    let answer = said.lines().rev().find_map(|line| line.strip_prefix("data: ")).unwrap_or(&said);
    serde_json::from_str(answer).unwrap_or_else(|error| panic!("{error}: {reply:?}"))
}

#[tokio::test]
async fn over_mcp_the_same_call_brings_an_approved_one_the_new_token() {
    let mut world = World::of(Setup::new().with("mcp", json!({ "hold_ms": 500 }))).await;
    world.provider.tell("revoke alice").await;
    let send = json!({ "what": "the report" });
    let pending = says(&world, 1, "mail__send", send.clone()).await;
    let call = &pending["result"]["_meta"]["io.placet/call"];
    assert!(call.is_object(), "{pending:#}");
    let call_id = text(call, "handle");
    world.ben().await.decide(&world.look(&call_id, 0).await.held(), "approve").await.ok();
    world.awaits_its_caller(&call_id).await;
    let waits = says(&world, 2, "placet__await", json!({ "handle": call_id })).await;
    let told = waits["result"]["content"][0]["text"].as_str().unwrap();
    assert!(told.contains("same tool") && !told.contains("placet__await"), "{told}");
    assert_eq!(world.guarded.calls(), 0);
    world.provider.tell("restore alice").await;
    says(&world, 3, "mail__send", send).await;
    assert_eq!(said(&world.end_of(&call_id).await)["sub"], "alice");
    assert_eq!(world.guarded.calls(), 1);
}

#[tokio::test]
async fn a_revoked_user_is_asked_for_a_new_token_and_the_approval_stays() {
    let mut world = World::new().await;
    world.provider.tell("revoke alice").await;
    let refused = world.call(&search("s1")).await;
    assert_eq!(refused.status, 401, "{refused:?}");
    let challenge = refused.headers["www-authenticate"].to_str().unwrap().to_owned();
    assert!(
        challenge.starts_with("Bearer") && challenge.contains("error=\"invalid_token\""),
        "{challenge}"
    );
    let document = refused.json();
    assert_eq!(text(&document, "error_code"), "CREDENTIAL_EXPIRED");
    assert_eq!(document["execution"], "not_executed");
    assert!(!refused.text().contains("locked out"), "the provider's words: {}", refused.text());
    let held = world.call(&send("w1")).await.held();
    world.ben().await.decide(&held, "approve").await.ok();
    let call_id = text(&held, "call_id");
    world.awaits_its_caller(&call_id).await;
    assert_eq!(world.guarded.calls(), 0);
    world.provider.tell("restore alice").await;
    world.call(&send("w1")).await;
    assert_eq!(said(&world.end_of(&call_id).await)["sub"], "alice");
    assert_eq!(world.guarded.calls(), 1);
    assert!(!world.placet.log().contains("locked out"));
}
