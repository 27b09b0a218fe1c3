//! People are told of held calls, and callers of their end: by the built program, over real sockets, to servers of others.
//!
//! Owns what arrives where, over restarts and over the death of a node. How messages look in detail is tested in `placet-notify`.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;

use axum::{Router, body::Bytes, extract::State, http::HeaderMap, http::StatusCode};
use rcgen::{CertificateParams, KeyPair, SanType};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    net::TcpListener,
    process::{Child, Command},
};

use crate::{
    harness::{
        client::text,
        npm,
        postgres::Database,
        secret_server::{look, with_server},
        setup::{Setup, plan},
        until, within,
    },
    workspace,
};

pub(crate) const KEY: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
const OLD_KEY: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";

/// A message that was taken.
#[derive(Debug, Clone)]
pub(crate) struct Taken {
    headers: Value,
    body: String,
}

impl Taken {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    fn kind(&self) -> String {
        text(&self.json(), "type")
    }

    fn id(&self) -> String {
        text(&self.headers, "webhook-id")
    }
}

/// A receiver that refuses some messages and then takes all.
#[derive(Debug, Clone, Default)]
pub(crate) struct Receiver {
    taken: Arc<Mutex<Vec<Taken>>>,
    refused: Arc<Mutex<Vec<String>>>,
    refuses: Arc<AtomicUsize>,
    port: u16,
}

impl Receiver {
    pub(crate) async fn start(refuses: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let receiver =
            Self { refuses: Arc::new(AtomicUsize::new(refuses)), port, ..Self::default() };
        let router = Router::new().fallback(take).with_state(receiver.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        receiver
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/hook", self.port)
    }

    pub(crate) fn taken(&self) -> Vec<Taken> {
        self.taken.lock().clone()
    }

    fn kinds(&self) -> Vec<String> {
        self.taken().iter().map(Taken::kind).collect()
    }

    pub(crate) async fn gets(&self, kinds: &[&str]) {
        until(&format!("{kinds:?} arrive"), || async { self.taken().len() >= kinds.len() }).await;
        assert_eq!(self.kinds(), kinds);
    }

    /// In the order of their first arrival. Who was killed may have sent its last message without having noted it: that one, and no other,
    /// comes twice then, under the same ID.
    async fn gets_after_a_kill(&self, kinds: &[&str]) {
        let first_arrivals = || {
            let (mut seen, taken) = (BTreeSet::new(), self.taken());
            taken.into_iter().filter(|taken| seen.insert(taken.id())).collect::<Vec<_>>()
        };
        until(&format!("{kinds:?} arrive"), || async { first_arrivals().len() >= kinds.len() })
            .await;
        let found: Vec<String> = first_arrivals().iter().map(Taken::kind).collect();
        assert_eq!(found, kinds);
        assert!(self.taken().len().saturating_sub(found.len()) <= 1, "{:?}", self.kinds());
    }
}

async fn take(State(receiver): State<Receiver>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let headers: serde_json::Map<String, Value> = headers
        .iter()
        .map(|(name, value)| (name.to_string(), json!(value.to_str().unwrap())))
        .collect();
    let taken = Taken { headers: headers.into(), body: String::from_utf8(body.to_vec()).unwrap() };
    let less = |left: usize| left.checked_sub(1);
    if receiver.refuses.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
        receiver.refused.lock().push(taken.id());
        return StatusCode::INTERNAL_SERVER_ERROR;
    }
    receiver.taken.lock().push(taken);
    StatusCode::NO_CONTENT
}

/// A set-up whose channel `ops` leads to the receiver.
fn told(setup: Setup, receiver: &Receiver, routes: &Value) -> Setup {
    for (name, key) in [("key", KEY), ("old", OLD_KEY)] {
        fs::write(setup.path(name), format!("{key}\n")).unwrap();
    }
    // A channel is for approvers or for callers.
    let callbacks = if routes == &json!([]) { json!(["local"]) } else { json!([]) };
    setup.with("secrets", json!({ "key": { "file": "key" }, "old": { "file": "old" } })).with(
        "notifications",
        json!({
            "poll_ms": 50,
            "channels": { "ops": {
                "to": { "type": "webhook", "url": receiver.url(), "key": "key", "old_key": "old" },
                "retry": { "first_ms": 100, "most_ms": 200 },
                "callbacks": callbacks,
            } },
            "routes": routes,
        }),
    )
}

fn everything() -> Value {
    json!([{ "events": ["held", "voted", "approved", "denied", "expired", "void", "finished"], "channels": ["ops"] }])
}

fn delete(name: &str, step: &str) -> Value {
    plan("files__delete", step, json!({ "path": name }))
}

/// Whether the code of the docs takes a message.
fn verifies(key: &str, taken: &Taken) -> bool {
    let page = workspace::read("docs/src/notifications.md");
    let code = page.split("```python\n").nth(1).unwrap().split("```").next().unwrap();
    let script = format!(
        "{code}\nimport json, sys\nmessage = json.load(sys.stdin)\nverify(sys.argv[1], message['headers'], message['body'].encode())\n"
    );
    accepts("python3", &["-c", &script, key], taken)
}

/// Whether the library of the authors of Standard Webhooks takes it.
fn verifies_elsewhere(key: &str, taken: &Taken) -> bool {
    let script = workspace::root().join("tests/peers/signed.mjs");
    accepts(&npm::node(), &[script.to_str().unwrap(), key], taken)
}

#[expect(clippy::disallowed_methods, reason = "a test asks other programs for their judgement")]
fn accepts(program: &str, arguments: &[&str], taken: &Taken) -> bool {
    use std::io::Write as _;
    let mut child = std::process::Command::new(program)
        .args(arguments)
        .env("PLACET_E2E_MODULES", npm::modules())
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let message = json!({ "headers": taken.headers, "body": taken.body }).to_string();
    child.stdin.take().unwrap().write_all(message.as_bytes()).unwrap();
    child.wait_with_output().unwrap().status.success()
}

#[tokio::test]
async fn people_are_told_of_a_held_call_in_order_once_and_over_a_restart() {
    let receiver = Receiver::start(2).await;
    let setup = told(Setup::new(), &receiver, &everything());
    let placet = setup.start().await;
    setup.put("CANARY.txt", "x");
    let held = setup.agent(&placet).await.call(&delete("CANARY.txt", "s1")).await.held();
    receiver.gets(&["approval.held"]).await;
    let first = receiver.taken()[0].json();
    let link = format!("{}approvals/{}", placet.base, text(&held, "approval_id"));
    assert_eq!(first["data"]["link"], link.as_str(), "{first:#}");
    assert_eq!(
        (&first["data"]["call_id"], &first["data"]["operation"]),
        (&held["call_id"], &json!("files/delete"))
    );
    // It was refused twice, under the same name.
    let id = receiver.taken()[0].id();
    assert_eq!(*receiver.refused.lock(), vec![id.clone(); 2]);
    placet.stop().await;

    let placet = setup.start().await;
    setup.ben(&placet).await.decide(&held, "approve").await.ok();
    let agent = setup.agent(&placet).await;
    agent.end_of(&text(&held, "call_id")).await.succeeded();
    receiver.gets(&["approval.held", "approval.approved", "approval.finished"]).await;
    let taken = receiver.taken();
    for (number, one) in taken.iter().enumerate() {
        assert!(!one.body.contains("CANARY"), "{}", one.body);
        let changed = Taken { body: one.body.replace("files", "flies"), ..one.clone() };
        for key in [KEY, OLD_KEY] {
            assert!(verifies(key, one) && verifies_elsewhere(key, one), "{number}: {one:?}");
            assert!(!verifies(key, &changed) && !verifies_elsewhere(key, &changed), "{number}");
        }
    }
    assert_eq!(taken[2].json()["data"]["outcome"], "succeeded");
    // What was sent is on the record of the call.
    let timeline = setup
        .ben(&placet)
        .await
        .get(&format!("/v1/calls/{}/timeline", text(&held, "call_id")))
        .await
        .ok();
    let notified =
        timeline["steps"].as_array().unwrap().iter().filter(|step| step["kind"] == "notified");
    let notes: Vec<String> = notified.map(|step| text(step, "note")).collect();
    assert!(
        notes.iter().any(|note| note.contains("`ops`") && note.ends_with(": held")),
        "{timeline:#}"
    );
    until("the metrics say so", || async {
        let metrics = placet.ask("/metrics").await.text();
        metrics.contains("placet_notifications_total{channel=\"ops\",result=\"sent\"} 2")
    })
    .await;
    // Killed, not stopped: what the last process sent is known from the chain.
    placet.kill().await;
    let placet = setup.start().await;
    setup.put("b.txt", "x");
    setup.agent(&placet).await.call(&delete("b.txt", "s2")).await.held();
    receiver
        .gets_after_a_kill(&[
            "approval.held",
            "approval.approved",
            "approval.finished",
            "approval.held",
        ])
        .await;
    placet.stop().await;
    setup.configured(&["audit", "verify"]).await.ok();
}

#[tokio::test]
async fn a_caller_is_told_the_end_over_a_channel_of_its_tenant_and_over_no_other() {
    let receiver = Receiver::start(0).await;
    let setup = told(Setup::new(), &receiver, &json!([]));
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    setup.put("a.txt", "x");
    let with = |name: &str| {
        let mut call = delete("a.txt", "s1");
        call["callback"] = json!(name);
        call
    };
    let refused = agent.call(&with("elsewhere")).await;
    refused.refused(400, "VALIDATION_ERROR");
    assert_eq!(refused.pointers(), ["/callback"]);
    let held = agent.call(&with("ops")).await.held();
    // Restarted while it waits.
    placet.stop().await;
    let placet = setup.start().await;
    setup.ben(&placet).await.decide(&held, "approve").await.ok();
    let result = setup.agent(&placet).await.end_of(&text(&held, "call_id")).await.succeeded();
    receiver.gets(&["call.finished"]).await;
    let told = receiver.taken()[0].json();
    assert_eq!(
        (&told["data"]["status"], &told["data"]["call_id"]),
        (&json!("succeeded"), &result["tool_call_id"])
    );
    assert!(text(&told["data"], "result_digest").starts_with("sha256:"), "{told:#}");
    assert!(told["data"].get("reasons").is_none(), "{told:#}");
}

#[tokio::test]
async fn operators_are_told_once_of_a_static_secret_that_its_target_takes_no_more() {
    let receiver = Receiver::start(0).await;
    let routes = json!([{ "events": ["credential_refused"], "channels": ["ops"] }]);
    let secret = crate::harness::search::plain_canary("remote");
    let setup = told(Setup::new(), &receiver, &routes);
    fs::write(setup.path("remote"), &secret).unwrap();
    let (setup, server) = with_server(setup).await;
    let mut contract = setup.read_contract("remote");
    contract["credential"]["secret"] = json!("remote");
    let file = |name: &str| json!({ "file": name });
    let setup = setup.contract("remote", &contract).with(
        "secrets",
        json!({ "key": file("key"), "old": file("old"), "remote": file("remote") }),
    );
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    look(&agent, "s1").await.succeeded();
    server.takes_only("another one");
    for step in ["s2", "s3"] {
        look(&agent, step).await.refused(502, "CREDENTIAL_MISCONFIGURED");
    }
    receiver.gets(&["operator.credential_refused"]).await;
    let one = receiver.taken().remove(0);
    assert!(verifies(KEY, &one) && verifies_elsewhere(KEY, &one), "{one:?}");
    assert!(!one.body.contains(&secret), "{}", one.body);
    let told = one.json();
    assert_eq!(
        (&told["data"]["source"], &told["data"]["kind"], &told["data"]["operation"]),
        (&json!("remote"), &json!("static_secret"), &json!("remote/look"))
    );
    assert!(text(&told["data"], "problem").contains("does not accept the credential"), "{told:#}");
    // What was repaired is told of by nobody, and what breaks again within the hour was told of.
    server.takes_only(&secret);
    look(&agent, "s4").await.succeeded();
    server.takes_only("another one");
    look(&agent, "s5").await.refused(502, "CREDENTIAL_MISCONFIGURED");
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    receiver.gets(&["operator.credential_refused"]).await;
}

#[tokio::test]
async fn of_two_nodes_one_tells_and_after_its_death_the_other_goes_on() {
    let database = Database::start().await;
    let receiver = Receiver::start(0).await;
    let (one, two) = database.two_nodes().await;
    let (one, two) = (told(one, &receiver, &everything()), told(two, &receiver, &everything()));
    let (a, b) = (one.start().await, two.start().await);
    one.put("a.txt", "x");
    let held = two.agent(&b).await.call(&delete("a.txt", "s1")).await.held();
    receiver.gets(&["approval.held"]).await;
    one.ben(&a).await.decide(&held, "approve").await.ok();
    two.agent(&b).await.end_of(&text(&held, "call_id")).await.succeeded();
    receiver.gets(&["approval.held", "approval.approved", "approval.finished"]).await;
    a.kill().await;
    one.put("b.txt", "x");
    two.agent(&b).await.call(&delete("b.txt", "s2")).await.held();
    receiver
        .gets_after_a_kill(&[
            "approval.held",
            "approval.approved",
            "approval.finished",
            "approval.held",
        ])
        .await;
    let mut ids: Vec<String> = receiver.taken().iter().map(Taken::id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 4, "{ids:?}");
}

/// A mail server of others, with a certificate of its own.
pub(crate) struct MailServer {
    child: Child,
    pub(crate) port: u16,
}

impl MailServer {
    pub(crate) async fn start(mode: &str, folder: &Path, credentials: &[&str]) -> Self {
        let script = workspace::root().join("tests/peers/mail.mjs");
        let mut child = Command::new(npm::node())
            .arg(script)
            .arg(mode)
            .args([folder, &folder.join("mail.pem"), &folder.join("mail.key")])
            .args(credentials)
            .env("PLACET_E2E_MODULES", npm::modules())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        crate::harness::watcher::watch(child.id());
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = within("the mail server listens", lines.next_line()).await.unwrap().unwrap();
        Self { child, port: port.parse().unwrap() }
    }

    async fn end(mut self) {
        self.child.kill().await.unwrap();
    }
}

pub(crate) fn certificate(folder: &Path) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.subject_alt_names = vec![SanType::IpAddress("127.0.0.1".parse().unwrap())];
    fs::write(folder.join("mail.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
    fs::write(folder.join("mail.key"), key.serialize_pem()).unwrap();
}

fn mail(setup: Setup, port: u16, security: &str, trusts: bool) -> Setup {
    fs::write(setup.path("word"), "secret of the mail").unwrap();
    let roots = if trusts { json!({ "roots": ["mail.pem"] }) } else { json!({}) };
    setup.with("secrets", json!({ "word": { "file": "word" } })).with("trust", roots).with(
        "notifications",
        json!({ "poll_ms": 50, "channels": { "mail": { "to": {
            "type": "email", "host": "127.0.0.1", "port": port, "security": security, "user": "placet", "password": "word",
            "from": "Placet <placet@example.com>", "to": "Änne <anne@example.com>",
        } } }, "routes": [{ "events": ["held"], "channels": ["mail"] }] }),
    )
}

#[tokio::test]
async fn mail_goes_out_under_tls_to_a_real_server_that_is_trusted_and_to_no_other() {
    for security in ["starttls", "tls"] {
        let setup = Setup::new();
        let folder = setup.path("");
        certificate(&folder);
        let server = MailServer::start(security, &folder, &["placet", "secret of the mail"]).await;
        let stranger = mail(Setup::new(), server.port, security, false);
        let ran = stranger.configured(&["notifications", "test", "mail"]).await;
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.err.contains("certificate"), "{ran:?}");
        let setup = mail(setup, server.port, security, true);
        let ran = setup.configured(&["notifications", "test", "mail"]).await;
        assert!(ran.ok().contains("SMTP 250"), "{ran:?}");
        let placet = setup.start().await;
        setup.put("CANARY.txt", "x");
        let held = setup.agent(&placet).await.call(&delete("CANARY.txt", "s1")).await.held();
        until("the mail arrives", || async { folder.join("2.eml").is_file() }).await;
        let test = fs::read_to_string(folder.join("1.eml")).unwrap();
        assert!(test.starts_with("secure=true user=placet to=anne@example.com\n"), "{test}");
        let text_of_mail = fs::read_to_string(folder.join("2.eml")).unwrap();
        for word in [
            "secure=true",
            "Subject: [Placet] Approval wanted: files/delete",
            "Auto-Submitted: auto-generated",
            &text(&held, "approval_id"),
        ] {
            assert!(text_of_mail.contains(word), "`{word}` is not in:\n{text_of_mail}");
        }
        assert!(!text_of_mail.contains("CANARY") && !text_of_mail.contains("secret of the mail"));
        // A wrong password: what the server says about it is repeated nowhere.
        fs::write(setup.path("word"), "wrong").unwrap();
        let ran = setup.configured(&["notifications", "test", "mail"]).await;
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.err.contains("sign-in") && !ran.err.contains("CANARY"), "{ran:?}");
        assert!(!placet.stop().await.contains("secret of the mail"));
        server.end().await;
    }
}

#[tokio::test]
async fn a_channel_that_leads_nowhere_keeps_the_program_from_starting_and_one_that_is_away_does_not()
 {
    let channel =
        |url: &str| json!({ "channels": { "ops": { "to": { "type": "slack", "url": url } } } });
    let setup = Setup::new().with("notifications", channel("http://hooks.example/x"));
    setup.refuses().await.says(&["notifications", "channels.ops.to.url", "without TLS"]);
    let mut both = channel("https://hooks.example/x");
    both["channels"]["ops"]["callbacks"] = json!(["local"]);
    both["routes"] = json!([{ "channels": ["ops"] }]);
    let setup = Setup::new().with("notifications", both);
    setup.refuses().await.says(&["notifications", "routes[0].channels", "`ops`", "for approvers"]);
    let mut away = channel("http://127.0.0.1:9/x");
    away["routes"] = json!([{ "channels": ["ops"] }]);
    let setup = Setup::new().with("notifications", away);
    let placet = setup.start().await;
    setup.put("a.txt", "x");
    let agent = setup.agent(&placet).await;
    let held = agent.call(&delete("a.txt", "s1")).await.held();
    setup.ben(&placet).await.decide(&held, "approve").await.ok();
    agent.end_of(&text(&held, "call_id")).await.succeeded();
    let unknown = setup.configured(&["notifications", "test", "none"]).await;
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
}
