//! The ways to people and callers: streams of events, callbacks, chats, external approvers' pages, numbers of credentials, and what a child was started with.
//!
//! Owns a Placet at which two tenants decide on one call, with a workload that calls with an SVID, and a collector behind a header. What was planted
//! over each way is found at its end, in every form where the way takes any text. Invariant: a kind of place without a plant fails.

use std::fs;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    process::Child,
};

use super::{
    Heard, Inbound,
    estate::{Secret, are_found, are_where_they_belong, with_child_and_remote},
    hook, page, signed_in, tap,
};
use crate::{
    harness::{
        client::text,
        npm, otlp,
        placet::Placet,
        search::{Disguised, Places, canary, plain_canary},
        setup::{Ran, Setup, files_policy, plan},
        until,
    },
    ingress::TrustDomain,
    workspace,
};

const DIRECTORY: &str = r#"{ "tenants": {
    "local": {
        "groups": { "approvers": {}, "operators": {}, "freeze-approvers": {}, "emergency": {} },
        "users": { "ana": {}, "ben": { "groups": ["approvers", "operators", "freeze-approvers", "emergency"] } },
        "agents": { "dev-agent": { "owner": "ana" } }
    },
    "globex": { "groups": { "credit-approvers": {} }, "users": { "gil": { "groups": ["credit-approvers"] } } }
} }"#;

/// Which of the two adapters' calls the external approvers are asked about.
const GATE: &str = r#"@id("gate-external-approvers") @approval("required") @approver_group("approvers, globex/credit-approvers")
    @quorum("2") @expires("1h") @reason("Both sides have to agree.")
    forbid (principal, action == Placet::Action::"NAME/erase", resource is Placet::Tool);"#;

/// Where messages go, each behind a secret of its own.
struct Told {
    webhook: Heard,
    slack: Heard,
    teams: Heard,
    callback: Heard,
}

struct World {
    setup: Setup,
    name: String,
    upstream: Heard,
    collector: Heard,
    told: Told,
    secrets: Vec<Secret>,
    domain: TrustDomain,
    _stub: Child,
}

/// A key of webhooks, and what it is made of.
fn key(of: &str) -> String {
    format!("whsec_{}", STANDARD.encode(of))
}

impl World {
    async fn new() -> Self {
        let name = plain_canary("p").split_at(24).0.to_owned();
        let domain = TrustDomain::new(21);
        let setup = Setup::new();
        let (_received, collecting) = otlp::http().await;
        let (collector, collecting) = tap(collecting).await;
        let (stub, url) = npm::stub_over_http(&setup.path("http-record")).await;
        let (upstream, url) = tap(url).await;
        let (told, setup, mut secrets) = Told::by(setup).await;
        let (env, file, header) = (canary("inenv"), canary("infile"), canary("header"));
        fs::write(setup.path("secret.txt"), &file).unwrap();
        fs::write(setup.path("directory.yaml"), DIRECTORY).unwrap();
        fs::write(setup.path("bundle.json"), domain.bundle().to_string()).unwrap();
        let setup = setup
            .with("directory", json!("directory.yaml"))
            .with("contracts", json!("contracts"))
            .with("development_tokens", json!(true))
            .with("trust_domains", json!([{
                "trust_domain": "prod.example", "tenant": "local", "audiences": ["placet"],
                "bundle": { "file": "bundle.json" }, "workloads": { "below": "/agent/", "shared_principals": true },
            }]))
            .with("telemetry", json!({ "log_filter": "trace", "otlp": {
                "endpoint": collecting.as_str(), "protocol": "http/protobuf", "headers": { "x-key": { "secret": "header" } },
            } }))
            .env("CANARY", &env)
            .env("HEADER", &header);
        with_child_and_remote(&setup, &name, &url).await;
        with_plants(&setup, &name);
        secrets.extend([
            Secret::new("a secret of the environment", &env, &["child environment"]),
            Secret::new("a secret of a file", &file, &["upstream"]),
            Secret::new("a header of the collector", &header, &["collector"]),
        ]);
        let setup = setup.files_contract().with("policies", json!("policies"));
        Self { setup, name, upstream, collector, told, secrets, domain, _stub: stub }
    }

    fn add_secrets(&mut self, what: &'static str, canaries: impl IntoIterator<Item = String>) {
        let secret = |canary: String| Secret::new(what, &canary, &[]);
        self.secrets.extend(canaries.into_iter().map(secret));
    }

    /// An agent who acts for ana, and a workload that is the same agent.
    async fn inbound(&mut self) -> (Inbound, Inbound) {
        let own = Inbound::new(&self.setup).await;
        let workload = own.as_workload(&self.domain);
        let brought = [own.canaries(), workload.canaries()].concat();
        self.add_secrets("what a caller brings along", brought);
        (own, workload)
    }

    /// What is on disk, and what went over the wires.
    fn collect(&self, places: &mut Places) {
        let told = &self.told;
        for (kind, heard) in [
            ("webhook", &told.webhook),
            ("slack", &told.slack),
            ("teams", &told.teams),
            ("callback", &told.callback),
            ("upstream", &self.upstream),
            ("collector", &self.collector),
        ] {
            places.add(format!("{kind}: what it was sent"), heard.bytes());
        }
        places.add_folder_as("ledger: ", &self.setup.data(), &["dev-key.jwk", "seal.key"]);
    }

    async fn external(&self) -> String {
        let ran = self.setup.configured(&["token", "user", "gil", "--tenant", "globex"]).await;
        ran.ok().trim().to_owned()
    }
}

impl Told {
    /// Four receivers, and the set-up that tells them.
    async fn by(setup: Setup) -> (Self, Setup, Vec<Secret>) {
        let ((webhook, hook_url), (slack, slack_url)) = (hook().await, hook().await);
        let ((teams, teams_url), (callback, callback_url)) = (hook().await, hook().await);
        let keys = [canary("signing"), canary("replaced"), canary("calling")];
        let paths = [plain_canary("slack"), plain_canary("teams")];
        let (chat, flow) = (slack_url.join(&paths[0]).unwrap(), teams_url.join(&paths[1]).unwrap());
        for (file, value) in [
            ("hook", key(&keys[0])),
            ("old", key(&keys[1])),
            ("ring", key(&keys[2])),
            ("chat", chat.to_string()),
            ("flow", flow.to_string()),
        ] {
            fs::write(setup.path(file), value).unwrap();
        }
        let secret = |file: &str| json!({ "file": file });
        let behind = |secret: &str, url: &url::Url| json!({ "secret": secret, "origin": url.origin().ascii_serialization() });
        let setup = setup
            .with("secrets", json!({
                "env": { "env": "CANARY" }, "file": secret("secret.txt"), "header": { "env": "HEADER" }, "hook": secret("hook"),
                "old": secret("old"), "ring": secret("ring"), "chat": secret("chat"), "flow": secret("flow"),
            }))
            .with("notifications", json!({
                "poll_ms": 50,
                "channels": {
                    "hook": { "show": "preview", "to": {
                        "type": "webhook", "url": hook_url.as_str(), "key": "hook", "old_key": "old", "private_network": true,
                    } },
                    "chat": { "show": "preview", "to": { "type": "slack", "url": behind("chat", &slack_url), "private_network": true } },
                    "flow": { "show": "preview", "to": { "type": "teams", "url": behind("flow", &teams_url), "private_network": true } },
                    "ring": { "callbacks": ["local"], "to": {
                        "type": "webhook", "url": callback_url.as_str(), "key": "ring", "private_network": true,
                    } },
                },
                "routes": [{ "channels": ["hook", "chat", "flow"] }],
            }));
        let secrets = vec![
            Secret::new("the key of a webhook", &keys[0], &[]),
            Secret::new("the key of a webhook that is being replaced", &keys[1], &[]),
            Secret::new("the key of callbacks", &keys[2], &[]),
            Secret::new("the address of a chat", &paths[0], &["slack"]),
            Secret::new("the address of a workflow", &paths[1], &["teams"]),
        ];
        (Self { webhook, slack, teams, callback }, setup, secrets)
    }
}

/// The child gets the name as an argument and in its environment, and the gate of the external approvers is there.
fn with_plants(setup: &Setup, name: &str) {
    let mut child = setup.read_contract("child");
    child["transport"]["args"].as_array_mut().unwrap().push(json!(name));
    child["transport"]["env"]["PLANTED"] = json!(name);
    fs::write(setup.contract_file("child"), child.to_string()).unwrap();
    fs::create_dir(setup.path("policies")).unwrap();
    for file in fs::read_dir(workspace::root().join("policies")).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "cedar") {
            fs::copy(&path, setup.path("policies").join(path.file_name().unwrap())).unwrap();
        }
    }
    files_policy(setup);
    fs::write(setup.path("policies/60-external-approvers.cedar"), GATE.replace("NAME", name))
        .unwrap();
}

/// Follows a stream of events, whose bytes come in as they come.
async fn follow(placet: &Placet, path: &str, header: &str) -> Heard {
    let to = placet.base.socket_addrs(|| None).unwrap()[0];
    let mut stream = TcpStream::connect(to).await.unwrap();
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: {to}\r\nAccept: text/event-stream\r\n{header}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let heard = Heard::default();
    let keep = heard.clone();
    tokio::spawn(async move {
        let mut some = vec![0; 16_384];
        while let Ok(count @ 1..) = stream.read(&mut some).await {
            keep.take(&some[..count]);
        }
    });
    until("the stream begins", || async { heard.says("text/event-stream") }).await;
    heard
}

impl Heard {
    fn says(&self, word: &str) -> bool {
        String::from_utf8_lossy(&self.bytes()).contains(word)
    }
}

fn both(ran: &Ran) -> String {
    format!("{}\n{}", ran.out, ran.err)
}

/// What processes were started with: of Placet the command line, of its children the environment as well.
pub(super) fn processes(placet: &Placet, places: &mut Places) {
    let proc = |pid: &str, file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let own = placet.pid().to_string();
    places.add("command line: of Placet", proc(&own, "cmdline"));
    for task in fs::read_dir(format!("/proc/{own}/task")).unwrap() {
        let children = task.unwrap().path().join("children");
        for pid in fs::read_to_string(children).unwrap_or_default().split_whitespace() {
            places.add(format!("command line: of the child {pid}"), proc(pid, "cmdline"));
            places.add(format!("child environment: {pid}"), proc(pid, "environ"));
        }
    }
}

/// What operators are shown of directives and channels, and how an external approver sees the call.
async fn looked_at(world: &World, placet: &Placet, held: &Value, places: &mut Places) {
    let (ben, external) = (world.setup.ben(placet).await, world.external().await);
    let approval = text(held, "approval_id");
    let listed = &["directives", "list"];
    let listed = world.setup.asks(placet, ben.token.as_ref().unwrap(), listed).await;
    listed.ok();
    places.add("directives events: directives list", both(&listed));
    let ran = world.setup.configured(&["notifications", "test", "chat"]).await;
    places.add("channels: notifications test", both(&ran));
    for words in [
        &["approvals", "list"][..],
        &["approvals", "show", &approval],
        &["approvals", "show", &approval, "--json"],
        &["ledger", "list"],
    ] {
        let ran = world.setup.asks(placet, &external, words).await;
        places.add(format!("external approver: {}", words.join(" ")), both(&ran));
    }
    let session = signed_in(&world.setup, placet, "gil").await;
    for path in ["/", &format!("/approvals/{approval}"), "/v1/approvals", "/help"] {
        let page = page(placet, &session, path).await;
        places.add(format!("external approver page: {path}"), page.body.to_vec());
    }
}

/// Two sides agree, and the one who wants to know is told until the call has ended.
async fn agreed(world: &World, placet: &Placet, held: &Value) {
    let client = placet.client(Some(world.external().await));
    client.decide(held, "approve").await.ok();
    world.setup.ben(placet).await.decide(held, "approve").await.ok();
    let told = &world.told;
    until("everybody is told of the end", || async {
        told.callback.says("call.finished") && told.slack.says("blocks") && told.teams.says("card")
    })
    .await;
    until("the webhook is told", || async { told.webhook.says("approval.approved") }).await;
}

/// What was planted over each way is at its end, and no kind of place is without a plant.
fn all_are_found(
    world: &World,
    argument: &Disguised,
    run: &Disguised,
    approval: &str,
    places: &Places,
) {
    let name = std::slice::from_ref(&world.name);
    let approval = [approval.to_owned()];
    let ways: [(&str, &[String]); 19] = [
        ("upstream", &argument.canaries),
        ("webhook", &argument.canaries),
        ("slack", &argument.canaries),
        ("teams", &argument.canaries),
        ("external approver", &argument.canaries),
        ("external approver page", &argument.canaries),
        ("ledger", &argument.canaries),
        ("ledger", &run.canaries),
        ("collector", &run.canaries),
        ("events", &run.canaries),
        ("callback", name),
        ("collector", name),
        ("events", name),
        ("log", name),
        ("command line", name),
        ("child environment", name),
        ("directives events", &approval),
        ("channels", &["chat".to_owned()]),
        ("live", &["event:".to_owned()]),
    ];
    for (kind, planted) in ways {
        are_found(planted, kind, places);
    }
    for kind in places.kinds() {
        assert!(ways.iter().any(|(known, _)| *known == kind), "nothing was planted in `{kind}`");
    }
}

#[tokio::test]
async fn streams_chats_callbacks_external_approvers_and_children_get_no_secret_that_is_not_theirs()
{
    let mut world = World::new().await;
    let (inbound, workload) = world.inbound().await;
    let (argument, run) = (Disguised::new("argument"), Disguised::name("r"));
    let call = |tool: &str, step: &str| {
        let mut call = plan(tool, step, json!({ "what": argument.text }));
        call["run"]["run_id"] = json!(run.text);
        call
    };
    let placet = world.setup.start().await;
    let agent = placet.client(Some(inbound.agent.clone()));
    let mut places = Places::default();
    for tool in ["child__note", &format!("{}__note", world.name)] {
        inbound.call(&agent, &call(tool, tool)).await.succeeded();
    }
    let own = placet.client(Some(workload.agent.clone()));
    workload.call(&own, &call("child__note", "workload")).await.succeeded();
    processes(&placet, &mut places);
    let ben = world.setup.ben(&placet).await.token.unwrap();
    let session = signed_in(&world.setup, &placet, "ben").await;
    let directives =
        follow(&placet, "/v1/approvals/events", &format!("Authorization: Bearer {ben}")).await;
    let live =
        follow(&placet, "/live", &format!("Cookie: placet={session}; x={}", inbound.query)).await;
    let mut erase = call(&format!("{}__erase", world.name), "s9");
    erase["callback"] = json!("ring");
    let held = inbound.call(&agent, &erase).await.held();
    let (id, approval) = (text(&held, "call_id"), text(&held, "approval_id"));
    let head = format!(
        "Authorization: Bearer {}\r\nPlacet-Delegation: {}\r\nCookie: x={}",
        inbound.agent, inbound.user, inbound.query
    );
    let events = follow(&placet, &format!("/v1/calls/{id}/events"), &head).await;
    looked_at(&world, &placet, &held, &mut places).await;
    agreed(&world, &placet, &held).await;
    until("the streams say so", || async {
        events.says("event: finished") && directives.says(&approval) && live.says("event:")
    })
    .await;
    until("the spans arrive", || async { world.collector.says(&world.name) }).await;
    places.add("events: of the call", events.bytes());
    places.add("directives events: of the API", directives.bytes());
    places.add("live: of the console", live.bytes());
    places.add("log: all of it", placet.stop().await);
    world.collect(&mut places);
    world.add_secrets("the session of a browser", [session]);

    all_are_found(&world, &argument, &run, &approval, &places);
    are_where_they_belong(&world.secrets, &places);
}
