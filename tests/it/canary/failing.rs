//! Every kind of adapter, failing in every way, and a process that is killed in the middle of a call and aborted in the end.
//!
//! Owns a Placet behind TLS whose adapters have secrets from a file and from the environment, a workload that calls with an SVID, and servers that say
//! in each failure all that they were shown. Invariant: each failure is seen to have been one, and the crash to have come while calls were under way.

use std::{fs, os::unix::process::ExitStatusExt as _};

use placet_testkit::port::free_port;
use rcgen::SanType;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::process::Child;

use super::{
    Heard, Inbound,
    api::processes,
    estate::{Secret, are_found, are_where_they_belong, with_child_and_remote},
    submitting, tap,
};
use crate::{
    harness::{
        client::{Client, Reply},
        npm, otlp,
        placet::Placet,
        search::{Disguised, Places, canary, pem_part},
        setup::{Setup, local, plan},
        until,
    },
    ingress::{Mesh, TrustDomain},
};

/// Lets cores be written, as far as we may, and then is the program.
const WITH_CORES: &str = r#"ulimit -c "$(ulimit -H -c)"; exec "$@""#;

struct World {
    setup: Setup,
    mesh: Mesh,
    upstream: Heard,
    spans: otlp::Received,
    secrets: Vec<Secret>,
    domain: TrustDomain,
    _stub: Child,
}

impl World {
    async fn new() -> Self {
        let (inside, env) = (canary("infile"), canary("inenv"));
        let (spans, collector) = otlp::grpc().await;
        let domain = TrustDomain::new(22);
        let setup = Setup::new();
        let mesh = Mesh::new(&setup);
        mesh.issue(&setup, "own", SanType::DnsName("placet.example".try_into().unwrap()));
        fs::write(setup.path("tickets.secret"), &inside).unwrap();
        fs::write(setup.path("bundle.json"), domain.bundle().to_string()).unwrap();
        let (stub, url) = npm::stub_over_http(&setup.path("http-record")).await;
        let (upstream, url) = tap(url).await;
        let setup = setup
            .with("contracts", json!("contracts"))
            .with("tls", json!({ "certificate": "api.pem", "key": "api-key.pem" }))
            .with("trust", json!({
                "certificates": [{ "for": "https://tools.example", "certificate": "own.pem", "key": "own-key.pem" }],
            }))
            .with("secrets", json!({ "env": { "env": "CANARY" }, "file": { "file": "tickets.secret" } }))
            .with("development_tokens", json!(true))
            .with("trust_domains", json!([{
                "trust_domain": "prod.example", "tenant": "local", "audiences": ["placet"],
                "bundle": { "file": "bundle.json" }, "workloads": { "below": "/agent/", "shared_principals": true },
            }]))
            .with("telemetry", json!({ "otlp": { "endpoint": collector.as_str() }, "log_filter": "trace" }))
            .env("CANARY", &env);
        with_child_and_remote(&setup, "remote", &url).await;
        let setup = with_one_that_is_gone(setup);
        let secrets = vec![
            Secret::new("a secret in a file", &inside, &["upstream"]),
            Secret::new("a secret of the environment", &env, &["child environment"]),
            Secret::new("the key of the API", &pem_part(&setup.path("api-key.pem")), &[]),
            Secret::new("our own key", &pem_part(&setup.path("own-key.pem")), &[]),
        ];
        Self { setup, mesh, upstream, spans, secrets, domain, _stub: stub }
    }

    fn client(&self, placet: &Placet, token: &str) -> Client {
        let mut client = self.mesh.client(&self.setup, placet, None);
        client.token = Some(token.to_owned());
        client
    }

    /// An agent who acts for ana, and a workload that is the same agent.
    async fn inbound(&mut self) -> (Inbound, Inbound) {
        let own = Inbound::new(&self.setup).await;
        let workload = own.as_workload(&self.domain);
        for one in [own.canaries(), workload.canaries()].concat() {
            self.secrets.push(Secret::new("what a caller brings along", &one, &[]));
        }
        (own, workload)
    }

    /// Everything in its folder but the files of the secrets themselves.
    fn collect(&self, places: &mut Places) {
        places.add("upstream: what it was sent", self.upstream.bytes());
        let own = [
            "dev-key.jwk",
            "seal.key",
            "tickets.secret",
            "api-key.pem",
            "own-key.pem",
            "http-record",
        ];
        places.add_folder_as("left: ", &self.setup.path(""), &own);
        places.add("spans: all of them", self.spans.bytes());
    }
}

/// With an adapter like the remote one, where nobody listens, and one whose bounds no failure of these exceeds.
fn with_one_that_is_gone(setup: Setup) -> Setup {
    for name in ["child", "remote"] {
        let mut contract = setup.read_contract(name);
        contract["limits"]["breaker_failures"] = json!(1_000);
        fs::write(setup.contract_file(name), contract.to_string()).unwrap();
    }
    let mut gone = setup.read_contract("remote");
    gone["adapter"] = json!("gone");
    gone["transport"]["url"] = json!(local(free_port().unwrap(), "/mcp").as_str());
    setup.contract("gone", &gone).files_contract()
}

/// A call of a run of its own.
fn of_a_run(run: &str, tool: &str, step: &str, what: &str) -> Value {
    let mut call = plan(tool, step, json!({ "what": what }));
    call["run"]["run_id"] = json!(run);
    call
}

/// One call each: of every adapter, in every way in which it can fail.
async fn failures(world: &World, client: &Client, inbound: &Inbound, places: &mut Places) {
    let heard = |reply: &Reply| [format!("{:?} ", reply.headers).as_bytes(), &reply.body].concat();
    for adapter in ["child", "remote", "gone"] {
        for (number, what) in [
            "fails, and says it",
            "your secret",
            "cut, and says it",
            "waits for ever",
            "breaks, and says it",
        ]
        .into_iter()
        .enumerate()
        {
            // What is cut over HTTP has no like between pipes.
            if adapter == "child" && what.starts_with("cut") {
                continue;
            }
            let step = format!("{adapter}-{number}");
            let mut call = of_a_run(&step, &format!("{adapter}__note"), &step, what);
            // For what never ends long enough to be sent on a busy machine; for all others more than it takes, and less than we wait.
            let budget_ms = if what == "waits for ever" { 5_000 } else { 20_000 };
            call["run"]["run_budget"] = json!({ "tool_latency_ms_max": budget_ms });
            let reply = inbound.call(client, &call).await;
            let succeeds = adapter != "gone" && what == "your secret";
            let has = reply.status == 200 && reply.json()["status"] == "succeeded";
            assert_eq!(has, succeeds, "{adapter}, {what}: {reply:?}");
            places.add(format!("answer: of {adapter} that {what}"), heard(&reply));
            let again = inbound.call(client, &call).await;
            places.add(format!("answer: of {adapter} that {what}, again"), heard(&again));
            let path = format!("/v1/calls?wait_ms=0&step={step}");
            places.add(format!("answer: to {path}"), heard(&client.get(&path).await));
        }
    }
    world.setup.put("a.txt", "hello");
    for (step, args) in
        [("f1", json!({ "path": "none.txt" })), ("f2", json!({ "path": "../../etc/shadow" }))]
    {
        let reply = inbound.call(client, &plan("files__read", step, args)).await;
        places.add(format!("answer: of files {step}"), heard(&reply));
    }
}

/// Kills it while a call of each adapter is under way, which is seen at the other end.
async fn killed(
    world: &World,
    placet: Placet,
    client: &Client,
    argument: &Disguised,
    places: &mut Places,
) {
    let what = format!("waits {}", argument.text);
    let dying: Vec<_> = ["child", "remote"]
        .map(|adapter| {
            let (client, call) = (
                client.clone(),
                plan(&format!("{adapter}__note"), &format!("{adapter}-k"), json!({ "what": what })),
            );
            tokio::spawn(async move { client.is_answered_to(submitting(&client, &call)).await })
        })
        .into();
    let has = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).contains(&argument.canaries[0]);
    until("both calls are under way", || async {
        has(fs::read(world.setup.path("stdio-record")).unwrap()) && has(world.upstream.bytes())
    })
    .await;
    places.add("log: before it was killed", placet.log());
    placet.kill().await;
    for one in dying {
        assert!(!one.await.unwrap(), "a killed process answered");
    }
}

/// Ends it as a fault of its own would: what it says then, and whether its memory is written anywhere.
async fn aborted(world: &World, placet: Placet, places: &mut Places) {
    let limits = fs::read_to_string(format!("/proc/{}/limits", placet.pid())).unwrap();
    let cores = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(cores.split_whitespace().collect::<Vec<_>>()[4..6], ["0", "0"], "{cores}");
    kill_process(Pid::from_raw(placet.pid().try_into().unwrap()).unwrap(), Signal::ABORT).unwrap();
    let gone = placet.gone().await;
    assert_eq!(gone.status.signal(), Some(Signal::ABORT.as_raw()));
    assert!(!gone.status.core_dumped(), "its memory is in a file");
    places.add("log: until it was aborted", gone.said);
    let left = fs::read_dir(world.setup.path("")).unwrap();
    let mut names = left.map(|file| file.unwrap().file_name().into_string().unwrap());
    assert!(!names.any(|name| name.starts_with("core")), "a core is in its folder");
}

#[tokio::test]
async fn adapters_that_fail_and_a_process_that_is_killed_or_aborted_leave_no_secret() {
    let mut world = World::new().await;
    let (own, inbound) = world.inbound().await;
    let wrapper = ["/bin/sh", "-c", WITH_CORES, "sh"].map(Into::into);
    world.setup = world.setup.wrapped(wrapper);
    let placet = world.setup.start().await;
    assert_eq!(placet.base.scheme(), "https");
    let mut places = Places::default();
    let client = world.client(&placet, &inbound.agent);
    failures(&world, &client, &inbound, &mut places).await;
    let tries = std::cell::Cell::new(0_u32);
    until("the child is there again", || async {
        tries.set(tries.get() + 1);
        // What came of one try is what is said of it ever after.
        let step = format!("alive-{}", tries.get());
        let plain = of_a_run(&step, "child__note", &step, "plain");
        inbound.call(&client, &plain).await.status == 200
    })
    .await;
    let pair = world.client(&placet, &own.agent);
    own.call(&pair, &plan("child__note", "pair", json!({ "what": "plain" }))).await.succeeded();
    processes(&placet, &mut places);
    let argument = Disguised::new("argument");
    places.add("metrics: before it was killed", placet.ask("/metrics").await.body.to_vec());
    killed(&world, placet, &client, &argument, &mut places).await;
    world.collect(&mut places);

    let placet = world.setup.start().await;
    let ben = world.client(&placet, &world.setup.token("user", "ben").await);
    for path in ["/v1/ledger", "/v1/inbox", "/v1/tools"] {
        places.add(format!("list: {path}"), ben.get(path).await.body.to_vec());
    }
    for path in ["/metrics", "/readyz"] {
        places.add(format!("metrics: {path}"), placet.ask(path).await.body.to_vec());
    }
    for words in [&["doctor", "--json"][..], &["adapters", "diff", "--json"]] {
        let ran = world.setup.configured(words).await;
        places.add(format!("cli: {}", words.join(" ")), format!("{} {}", ran.out, ran.err));
    }
    aborted(&world, placet, &mut places).await;
    world.collect(&mut places);

    for (kind, planted) in [
        ("upstream", &argument.canaries[..]),
        ("left", &argument.canaries),
        ("spans", &["remote".to_owned()]),
        ("log", &["remote".to_owned()]),
        (
            "answer",
            &["ADAPTER_".to_owned(), "[secret removed]".to_owned(), "OUTCOME_UNKNOWN".to_owned()],
        ),
        ("list", &["indeterminate".to_owned()]),
        ("metrics", &["remote".to_owned()]),
        ("cli", &["remote".to_owned()]),
        ("command line", &["stub.mjs".to_owned()]),
    ] {
        are_found(planted, kind, &places);
    }
    are_where_they_belong(&world.secrets, &places);
}
