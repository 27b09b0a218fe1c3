//! Trust bundles from an agent of the SPIFFE Workload API, end to end: rotated, withdrawn, out of reach and back.
//!
//! Owns what callers and operators see of it. The agent is a process of its own, on the gRPC library of npm.

use std::{fs, path::PathBuf, process::Stdio};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use crate::{
    harness::{
        client::Reply,
        npm,
        placet::Placet,
        secret_server::{fingerprint, look, with_server},
        setup::{Setup, local, plan},
        until, watcher, within,
    },
    ingress::TrustDomain,
    workspace,
};

const AGENT: &str = "spiffe://prod.example/agent/dev-agent";

/// The agent.
struct Agent {
    child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Agent {
    async fn start(socket: &PathBuf) -> Self {
        let mut command = Command::new(npm::node());
        command
            .arg(workspace::root().join("tests/peers/workload.mjs"))
            .arg(socket)
            .env_clear()
            .env("PLACET_E2E_MODULES", npm::modules())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        watcher::watch(child.id());
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let stdin = child.stdin.take().unwrap();
        let mut agent = Self { child, stdin, lines };
        assert_eq!(agent.next().await["ready"], true);
        agent
    }

    async fn next(&mut self) -> Value {
        let line = within("the agent says something", self.lines.next_line()).await.unwrap();
        serde_json::from_str(&line.expect("it is still there")).unwrap()
    }

    async fn tell(&mut self, line: &str) {
        self.stdin.write_all(format!("{line}\n").as_bytes()).await.unwrap();
        let word = line.split(' ').next().unwrap();
        assert_eq!(self.next().await["done"], word);
    }

    /// From now on these are the bundles, in the form in which SPIRE gives them: the keys do not say what they are for.
    async fn tell_bundles(&mut self, bundles: &[(&str, &TrustDomain)]) {
        let of = |(name, domain): &(&str, &TrustDomain)| {
            let mut keys = domain.bundle();
            keys["keys"][0].as_object_mut().unwrap().remove("use");
            (format!("spiffe://{name}"), keys)
        };
        let bundles: serde_json::Map<String, Value> = bundles.iter().map(of).collect();
        self.tell(&format!("bundles {}", Value::Object(bundles))).await;
    }

    async fn end(mut self) {
        self.child.kill().await.unwrap();
    }
}

fn domain(name: &str) -> Value {
    json!({
        "trust_domain": name, "tenant": "local", "audiences": ["placet"],
        "bundle": "workload_api", "workloads": { "below": "/agent/", "shared_principals": true },
    })
}

fn set_up() -> (Setup, PathBuf) {
    let setup = Setup::new()
        .with("trust_domains", json!([domain("prod.example")]))
        .with("spiffe", json!({ "socket": "agent.sock" }))
        .with("development_tokens", json!(true));
    setup.put("a.txt", "hello");
    let socket = setup.path("agent.sock");
    (setup, socket)
}

async fn call(placet: &Placet, token: String, step: &str) -> Reply {
    placet.client(Some(token)).call(&plan("files__read", step, json!({ "path": "a.txt" }))).await
}

#[tokio::test]
async fn a_bundle_of_the_agent_counts_is_rotated_and_is_taken_back() {
    let (first, second) = (TrustDomain::new(7), TrustDomain::new(8));
    let (setup, socket) = set_up();
    let mut agent = Agent::start(&socket).await;
    agent.tell_bundles(&[("prod.example", &first), ("other.example", &second)]).await;
    let placet = setup.start().await;
    call(&placet, first.svid(AGENT, "placet"), "s1").await.succeeded();
    // The other domain's key is in the agent's bundles too, and signs for nobody here.
    for token in [
        second.svid(AGENT, "placet"),
        second.svid("spiffe://other.example/agent/dev-agent", "placet"),
        first.svid(AGENT, "somebody-else"),
    ] {
        call(&placet, token, "s2").await.refused(401, "UNAUTHENTICATED");
    }
    agent.tell_bundles(&[("prod.example", &second)]).await;
    until("the rotated key counts", || async {
        call(&placet, second.svid(AGENT, "placet"), "s3").await.status == 200
    })
    .await;
    call(&placet, first.svid(AGENT, "placet"), "s4").await.refused(401, "UNAUTHENTICATED");
    // Withdrawn: not an outage, so nothing serves on.
    agent.tell_bundles(&[("other.example", &first)]).await;
    until("the domain is closed", || async {
        call(&placet, second.svid(AGENT, "placet"), "s5").await.status == 503
    })
    .await;
    call(&placet, second.svid(AGENT, "placet"), "s6").await.refused(503, "IDENTITY_UNAVAILABLE");
    let log = placet.stop().await;
    assert!(log.contains("has no trust bundle of `prod.example`"), "{log}");
}

#[tokio::test]
async fn an_agent_that_is_gone_is_outlived_and_one_that_comes_is_taken() {
    let (first, second) = (TrustDomain::new(7), TrustDomain::new(8));
    let (setup, socket) = set_up();
    // Nobody is there at the start: it comes up, and says what it lacks.
    let placet = setup.start().await;
    call(&placet, first.svid(AGENT, "placet"), "s1").await.refused(503, "IDENTITY_UNAVAILABLE");
    until("it says what it lacks", || async {
        placet.ask("/readyz").await.text().contains("spiffe://prod.example")
    })
    .await;
    let mut agent = Agent::start(&socket).await;
    agent.tell_bundles(&[("prod.example", &first)]).await;
    until("the agent is found", || async {
        call(&placet, first.svid(AGENT, "placet"), "s2").await.status == 200
    })
    .await;
    agent.end().await;
    until("its end is noticed", || async {
        call(&placet, first.svid(AGENT, "placet"), "s3").await.succeeded();
        placet.log().matches("the agent of the Workload API has no trust bundle for us").count()
            >= 2
    })
    .await;
    tokio::time::sleep(std::time::Duration::from_millis(1_200)).await;
    call(&placet, first.svid(AGENT, "placet"), "s3").await.succeeded();
    // It may be a key that came while nobody could say so.
    call(&placet, second.svid(AGENT, "placet"), "s4").await.refused(503, "IDENTITY_UNAVAILABLE");
    fs::remove_file(&socket).unwrap();
    let mut agent = Agent::start(&socket).await;
    agent.tell_bundles(&[("prod.example", &second)]).await;
    until("it is asked again", || async {
        call(&placet, second.svid(AGENT, "placet"), "s5").await.status == 200
    })
    .await;
    call(&placet, first.svid(AGENT, "placet"), "s6").await.refused(401, "UNAUTHENTICATED");
    // It does not know this process any more.
    agent.tell("deny").await;
    until("the refusal is in the log", || async {
        call(&placet, second.svid(AGENT, "placet"), "s7").await.succeeded();
        placet.log().contains("it gives this process nothing")
    })
    .await;
    call(&placet, second.svid(AGENT, "placet"), "s7").await.succeeded();
    let log = placet.stop().await;
    assert!(!log.contains("kanarienvogel"), "the agent's words are in the log");
}

#[tokio::test]
async fn doctor_says_what_is_wrong_with_the_agent() {
    let (setup, socket) = set_up();
    let found = async |setup: &Setup| {
        let ran = setup.configured(&["doctor", "--json"]).await;
        let checks: Value = serde_json::from_str(&ran.out).unwrap();
        let issuers = checks.as_array().unwrap().iter().rfind(|check| check["about"] == "issuers");
        issuers.unwrap().to_string()
    };
    setup.token("agent", "dev-agent").await;
    let nobody = found(&setup).await;
    assert!(nobody.contains("fail") && nobody.contains("nobody answers at the socket"), "{nobody}");
    let mut agent = Agent::start(&socket).await;
    agent.tell_bundles(&[("other.example", &TrustDomain::new(7))]).await;
    let foreign = found(&setup).await;
    assert!(
        foreign.contains("fail") && foreign.contains("no trust bundle of `prod.example`"),
        "{foreign}"
    );
    agent.tell_bundles(&[("prod.example", &TrustDomain::new(7))]).await;
    let good = found(&setup).await;
    assert!(good.contains("\"ok\""), "{good}");
    agent.tell("deny").await;
    let denied = found(&setup).await;
    assert!(denied.contains("fail") && denied.contains("is it registered"), "{denied}");
    agent.tell("allow").await;
    agent.tell("mute").await;
    let mute = found(&setup).await;
    assert!(mute.contains("fail") && mute.contains("answer"), "{mute}");
}

#[tokio::test]
async fn what_cannot_be_meant_of_the_agent_stops_the_start() {
    let without = Setup::new().with("trust_domains", json!([domain("prod.example")]));
    without.refuses().await.says(&["spiffe://prod.example", "spiffe.socket"]);
    let issuer = json!([{
        "issuer": "https://issuer.example", "tenant": "local", "audiences": ["placet"],
        "kinds": { "fixed": "agent" }, "keys": "workload_api",
    }]);
    let setup =
        Setup::new().with("issuers", issuer).with("spiffe", json!({ "socket": "agent.sock" }));
    setup.refuses().await.says(&["https://issuer.example", "only a trust domain's bundle"]);
}

const OURS: &str = "spiffe://prod.example/placet";

/// A token service that knows its clients by their SVIDs, and what it says of each request.
struct Service {
    port: u16,
    lines: Lines<BufReader<ChildStdout>>,
    _child: Child,
}

impl Service {
    async fn start(jwks: &PathBuf, issuer: &str) -> Self {
        let mut command = Command::new(npm::node());
        command
            .arg(workspace::root().join("tests/peers/spiffe_sts.mjs"))
            .arg(jwks)
            .args([issuer, OURS])
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        watcher::watch(child.id());
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = within("the service says its port", lines.next_line()).await.unwrap().unwrap();
        Self { port: port.parse().unwrap(), lines, _child: child }
    }

    async fn said(&mut self) -> Value {
        let line = within("the service says something", self.lines.next_line()).await.unwrap();
        serde_json::from_str(&line.unwrap()).unwrap()
    }
}

#[tokio::test]
async fn placet_proves_itself_to_a_token_service_with_an_svid_that_is_renewed() {
    const ISSUER: &str = "https://sts.example";
    let (first, second) = (TrustDomain::new(7), TrustDomain::new(8));
    let signs = |domain: &TrustDomain| {
        format!("sign {}", json!({ "id": OURS, "key": domain.private_key(), "life_s": 26 }))
    };
    let jwks = |domains: &[&TrustDomain]| {
        let keys: Vec<Value> = domains.iter().map(|one| one.bundle()["keys"][0].clone()).collect();
        json!({ "keys": keys }).to_string()
    };
    let setup = Setup::new();
    let (socket, keys) = (setup.path("agent.sock"), setup.path("jwks.json"));
    fs::write(&keys, jwks(&[&first])).unwrap();
    let mut service = Service::start(&keys, ISSUER).await;
    let sts = json!([{
        "name": "mesh", "issuer": ISSUER, "client_id": OURS, "private_network": true,
        "token_endpoint": local(service.port, "/token").as_str(),
        "client_auth": { "method": "spiffe_jwt", "svid": "svid" },
    }]);
    let setup = setup
        .with("secrets", json!({ "key": "${KEY}", "svid": { "jwt_svid": ISSUER } }))
        .with("sts", sts)
        .env("KEY", "of no use");
    setup.refuses().await.says(&["`spiffe`", "needed by `secrets`"]);
    let setup = setup.with("spiffe", json!({ "socket": "agent.sock" }));
    setup.refuses().await.says(&["gives no SVID of ours", "nobody answers", "spiffe.socket"]);
    let mut agent = Agent::start(&socket).await;
    setup.refuses().await.says(&["gives this process nothing", "registered"]);
    agent.tell(&signs(&first)).await;
    let (setup, server) = with_server(setup).await;
    let mut contract = setup.read_contract("remote");
    contract["credential"] = json!({
        "type": "client_credentials", "sts": "mesh", "audience": "urn:remote", "scopes": ["look"], "cache": "never",
    });
    let setup = setup.contract("remote", &contract);
    let placet = setup.start().await;
    let caller = setup.agent(&placet).await;
    look(&caller, "s1").await.succeeded();
    let before = service.said().await;
    assert_eq!(server.shown(), [fingerprint(before["token"].as_str().unwrap())]);
    // The trust domain rotates its key while the old one still counts: the next SVID is of the new one.
    agent.tell(&signs(&second)).await;
    fs::write(&keys, jwks(&[&first, &second])).unwrap();
    let mut calls = 0;
    let renewed = async {
        loop {
            calls += 1;
            look(&caller, &format!("renewed-{calls}")).await.succeeded();
            let said = service.said().await;
            if said["svid"] != before["svid"] {
                return said;
            }
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        }
    };
    let after = within("another SVID is shown", renewed).await;
    // Where the service does not know it, there is no call.
    fs::write(&keys, jwks(&[&first])).unwrap();
    look(&caller, "refused").await.refused(502, "CREDENTIAL_MISCONFIGURED");
    assert_eq!(service.said().await["refused"], "the key");
    assert_eq!(server.shown().len(), calls + 1);
    let log = placet.stop().await;
    for said in [&before, &after] {
        for what in ["svid", "token"] {
            assert!(!log.contains(said[what].as_str().unwrap()), "a {what} is in the log");
        }
    }
}
