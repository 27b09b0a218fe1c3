//! Canaries on every way in and in every secret: afterwards they are nowhere, but where they belong.
//!
//! Owns the collection of everything that leaves the process or stays on disk: bytes that upstreams and webhooks received, spans,
//! logs, metrics, error bodies, pages of the console, the data folder, before and after a crash. The search itself is
//! `harness::search`'s, and is tested here on the same places. `estate` is a Placet with every kind of secret there is, and `everywhere`
//! what is looked for in it; `api` are the ways to people and callers, `sign_in` a provider that repeats all it hears, `failing` adapters that
//! fail in every way, and a process that is killed and aborted.

mod api;
mod estate;
mod everywhere;
mod failing;
mod sign_in;

use std::{fs, sync::Arc, time::Duration};

use parking_lot::Mutex;

use base64::Engine as _;
use bytes::Bytes;
use http::{Method, Request};
use regex::Regex;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    process::Child,
};
use url::Url;

use crate::harness::{
    client::{Client, Reply, text},
    npm, otlp,
    placet::Placet,
    search::{Places, canary, disguises, found, unfolded},
    setup::{Setup, local, plan},
    until, within,
};
use crate::{
    ingress::TrustDomain,
    tidy::production,
    workspace::{files, none},
};

/// What an upstream was sent, byte by byte.
#[derive(Debug, Clone, Default)]
struct Heard(Arc<Mutex<Vec<u8>>>);

impl Heard {
    fn bytes(&self) -> Vec<u8> {
        self.0.lock().clone()
    }

    fn take(&self, bytes: &[u8]) {
        self.0.lock().extend_from_slice(bytes);
    }
}

/// Stands before an upstream and keeps what goes to it.
async fn tap(upstream: Url) -> (Heard, Url) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = local(listener.local_addr().unwrap().port(), upstream.path());
    let to = upstream.socket_addrs(|| None).unwrap()[0];
    let heard = Heard::default();
    let keep = heard.clone();
    tokio::spawn(async move {
        while let Ok((caller, _)) = listener.accept().await {
            let keep = keep.clone();
            tokio::spawn(async move {
                let (mut from, mut back) = caller.into_split();
                let (mut answers, mut on) = TcpStream::connect(to).await.unwrap().into_split();
                tokio::spawn(async move { drop(tokio::io::copy(&mut answers, &mut back).await) });
                let mut some = vec![0; 16_384];
                while let Ok(count @ 1..) = from.read(&mut some).await {
                    keep.take(&some[..count]);
                    if on.write_all(&some[..count]).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (heard, url)
}

/// A webhook that takes everything.
async fn hook() -> (Heard, Url) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = local(listener.local_addr().unwrap().port(), "/hook");
    let heard = Heard::default();
    let keep = heard.clone();
    tokio::spawn(async move {
        while let Ok((mut caller, _)) = listener.accept().await {
            let keep = keep.clone();
            tokio::spawn(async move {
                let mut some = vec![0; 16_384];
                while let Ok(count @ 1..) = caller.read(&mut some).await {
                    keep.take(&some[..count]);
                    let whole = some[..count].ends_with(b"}") || some[..count].ends_with(b"]");
                    let answer = b"HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n";
                    if whole && caller.write_all(answer).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (heard, url)
}

/// Two adapters with a secret each, a webhook, a collector, and who stands behind them.
struct World {
    setup: Setup,
    _server: Child,
    upstream: Heard,
    webhook: Heard,
    spans: otlp::Received,
    in_env: String,
    in_file: String,
}

impl World {
    async fn new() -> Self {
        let (spans, endpoint) = otlp::grpc().await;
        let (webhook, hook) = hook().await;
        let (in_env, in_file) = (canary("inenv"), canary("infile"));
        let key = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
        let setup = Setup::new()
            .with("contracts", json!("contracts"))
            .with("secrets", json!({
                "env": { "env": "CANARY" }, "file": { "file": "secret.txt" }, "hook": { "env": "HOOK" },
            }))
            .with("telemetry", json!({ "otlp": { "endpoint": endpoint.as_str() }, "log_filter": "trace" }))
            .with("notifications", json!({
                "channels": { "hook": { "to": {
                    "type": "webhook", "url": hook.as_str(), "key": "hook", "private_network": true,
                } } },
                "routes": [{ "channels": ["hook"] }], "poll_ms": 100,
            }))
            .env("CANARY", &in_env)
            .env("HOOK", key);
        fs::write(setup.path("secret.txt"), &in_file).unwrap();
        let (server, stub) = npm::stub_over_http(&setup.path("http-record")).await;
        let (upstream, url) = tap(stub).await;
        for ran in estate::with_child_and_remote(&setup, "remote", &url).await {
            assert_eq!(found(format!("{ran:?}").as_bytes(), &in_env), None, "{ran:?}");
            assert_eq!(found(format!("{ran:?}").as_bytes(), &in_file), None, "{ran:?}");
        }
        let setup = setup.files_contract();
        Self { setup, _server: server, upstream, webhook, spans, in_env, in_file }
    }

    /// What is on disk, and what went over the wire.
    fn collect(&self, places: &mut Places) {
        places.add_folder(&self.setup.data().join("ledger"));
        places.add("the upstream", self.upstream.bytes());
        places.add("the webhook", self.webhook.bytes());
        places.add("the spans", self.spans.bytes());
        let record = fs::read(self.setup.path("stdio-record")).unwrap();
        places.add("the child's input", record);
    }
}

/// Everything that a request of ours brings along and that is for nobody else.
struct Inbound {
    agent: String,
    /// The user's own token; empty where the agent calls in its own name.
    user: String,
    headers: Vec<(&'static str, String)>,
    query: String,
}

impl Inbound {
    async fn new(setup: &Setup) -> Self {
        let user = setup.configured(&["token", "user", "ana", "--for-agent", "dev-agent"]).await;
        let headers = vec![
            ("cookie", format!("session={}; placet={}", canary("cookie"), canary("session"))),
            ("x-forwarded-access-token", canary("forwarded")),
            ("x-amzn-oidc-data", canary("oidc")),
            ("x-api-key", canary("apikey")),
            ("x-forwarded-client-cert", canary("clientcert")),
            ("proxy-authorization", format!("Basic {}", canary("proxy"))),
            ("forwarded", format!("for={}", canary("for"))),
        ];
        let agent = setup.token("agent", "dev-agent").await;
        Self { agent, user: user.ok().trim().to_owned(), headers, query: canary("query") }
    }

    /// The same with the SVID of a workload, which calls in its own name.
    fn as_workload(&self, domain: &TrustDomain) -> Self {
        let agent = domain.svid("spiffe://prod.example/agent/dev-agent", "placet");
        let (headers, query) = (self.headers.clone(), self.query.clone());
        Self { agent, user: String::new(), headers, query }
    }

    /// Of each token its signature and its claims; of each header the part that is no one's name.
    fn canaries(&self) -> Vec<String> {
        let parts =
            |token: &String| token.split('.').skip(1).map(str::to_owned).collect::<Vec<String>>();
        let mut all: Vec<String> = [&self.agent, &self.user].into_iter().flat_map(parts).collect();
        for (_, value) in &self.headers {
            let words = value.split([' ', ';', '=']);
            all.extend(words.filter(|word| word.ends_with("/zz")).map(str::to_owned));
        }
        all.push(self.query.clone());
        all
    }

    async fn call(&self, client: &Client, submission: &Value) -> Reply {
        let query: String = url::form_urlencoded::byte_serialize(self.query.as_bytes()).collect();
        let path = format!("/v1/calls?access_token={query}");
        for path in [path.as_str(), "/v1/calls"] {
            let mut request =
                client.request(Method::POST, path).header("content-type", "application/json");
            for (name, value) in &self.headers {
                // What the way out would not send is sent by hand below.
                if *name != "proxy-authorization" {
                    request = request.header(*name, value);
                }
            }
            if !self.user.is_empty() {
                request = request.header("placet-delegation", &self.user);
            }
            let request: Request<Bytes> =
                request.body(serde_json::to_vec(submission).unwrap().into()).unwrap();
            let reply = client.send(request).await;
            // A query that the route does not know may be refused; then the call is made without.
            if reply.status != 400 || path == "/v1/calls" {
                return reply;
            }
        }
        panic!("the second path always returns")
    }
}

/// A request as bytes, for what no client of ours would send.
async fn raw(placet: &Placet, head: &str) -> Vec<u8> {
    let to = placet.base.socket_addrs(|| None).unwrap()[0];
    let mut stream = TcpStream::connect(to).await.unwrap();
    let head = head.replace("HOST", &to.to_string());
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut reply = Vec::new();
    within("an answer", stream.read_to_end(&mut reply)).await.unwrap();
    reply
}

/// Calls through every adapter, refusals of every stage, and a held call.
async fn everything(
    world: &World,
    placet: &Placet,
    inbound: &Inbound,
    places: &mut Places,
) -> Value {
    let client = placet.client(Some(inbound.agent.clone()));
    world.setup.put("a.txt", "hello");
    for (step, tool, args) in [
        ("s1", "files__read", json!({ "path": "a.txt" })),
        ("s2", "files__write", json!({ "path": "b.txt", "content": "x" })),
        ("s3", "child__note", json!({ "what": "plain" })),
        ("s4", "remote__note", json!({ "what": "plain" })),
    ] {
        let reply = inbound.call(&client, &plan(tool, step, args)).await;
        reply.succeeded();
        places.add(format!("the answer of {tool}"), reply.body.to_vec());
    }
    for (step, tool, args) in [
        ("s5", "files__read", json!({ "path": "../../etc/passwd" })),
        ("s6", "files__read", json!({ "pth": 1 })),
        ("s7", "child__none", json!({})),
        ("s3", "child__note", json!({ "what": "another" })),
    ] {
        let reply = inbound.call(&client, &plan(tool, step, args)).await;
        assert!(reply.status >= 400, "{tool}: {reply:?}");
        places.add(format!("the refusal of {tool} {step}"), reply.body.to_vec());
    }
    refused_tokens(placet, inbound, places).await;
    let erase = plan("remote__erase", "s8", json!({ "what": "plain" }));
    inbound.call(&client, &erase).await.held()
}

/// Tokens that are not valid, each with a canary of its own kind in it, and heads that are none.
async fn refused_tokens(placet: &Placet, inbound: &Inbound, places: &mut Places) {
    for (what, token) in [
        ("a forged signature", format!("{}x", inbound.agent)),
        ("nonsense", inbound.query.clone()),
        ("a cut one", inbound.agent.chars().skip(20).collect()),
    ] {
        let reply = placet.client(Some(token)).get("/v1/tools").await;
        reply.refused(401, "UNAUTHENTICATED");
        places.add(format!("answer: to {what}"), format!("{:?} {}", reply.headers, reply.text()));
    }
    for (what, head) in [
        (
            "a proxy's header",
            format!(
                "GET /v1/tools HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\nProxy-Authorization: Basic {}\r\n\r\n",
                inbound.query
            ),
        ),
        (
            "a broken head",
            format!(
                "GET /v1/tools HTTP/1.1\r\nHost: HOST\r\nAuthorization Bearer {}\r\n\r\n",
                inbound.query
            ),
        ),
        (
            "two tokens",
            format!(
                "GET /v1/tools HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\nAuthorization: Bearer {0}\r\nAuthorization: Bearer {0}\r\n\r\n",
                inbound.query
            ),
        ),
    ] {
        places.add(format!("answer: to {what}"), raw(placet, &head).await);
    }
}

/// Somebody of the directory chooses their name at the console. Answers their session.
async fn signed_in(setup: &Setup, placet: &Placet, name: &str) -> String {
    let link = setup.sign_in_link(placet).await;
    let opened =
        raw(placet, &format!("GET {link} HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\n\r\n"))
            .await;
    let opened = String::from_utf8(opened).unwrap();
    let token = opened.split("placet-sign-in=").nth(1).unwrap().split(';').next().unwrap();
    let client = placet.client(None);
    let request = client.request(Method::GET, "/sign-in");
    let request = request.header("cookie", format!("placet-sign-in={token}"));
    let page = client.send(request.body(Bytes::new()).unwrap()).await.text();
    let mut people =
        page.split("name=\"person\"").skip(1).filter_map(|rest| rest.split('>').next());
    let button = people.find(|button| button.contains(&format!("Sign in as {name} "))).unwrap();
    let person = button.split("value=\"").nth(1).unwrap().split('"').next().unwrap();
    let origin = placet.base.origin().ascii_serialization();
    let body = format!("form_token={token}&person={person}&to=%2F");
    // Our own client takes no redirect for an answer.
    let request = format!(
        "POST /sign-in/development HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\nContent-Length: {}\r\n\
         content-type: application/x-www-form-urlencoded\r\norigin: {origin}\r\ncookie: placet-sign-in={token}\r\n\r\n{body}",
        body.len()
    );
    let reply = String::from_utf8(raw(placet, &request).await).unwrap();
    reply.split("placet=").nth(1).unwrap().split(';').next().unwrap().to_owned()
}

/// A page, as the browser of a session sees it.
async fn page(placet: &Placet, session: &str, path: &str) -> Reply {
    let client = placet.client(None);
    let request = client.request(Method::GET, path).header("cookie", format!("placet={session}"));
    client.send(request.body(Bytes::new()).unwrap()).await
}

/// The pages of the console, as the approver sees them. Answers their session.
async fn pages(
    setup: &Setup,
    placet: &Placet,
    held: &Value,
    shown_word: &str,
    places: &mut Places,
) -> String {
    let session = signed_in(setup, placet, "ben").await;
    let approval = format!("/approvals/{}", text(held, "approval_id"));
    let timeline = format!("/calls/{}/timeline", text(held, "call_id"));
    let (edit, grant) = (format!("{approval}/edit"), format!("{approval}/grant"));
    let mut shown = 0;
    for path in [
        "/",
        &approval,
        &edit,
        &grant,
        &timeline,
        "/load",
        "/grants",
        "/calendar",
        "/delegations",
        "/break-glass",
    ] {
        let page = page(placet, &session, path).await;
        shown = usize::from(page.status == 200).saturating_add(shown);
        places.add(format!("page: {path}"), page.body.to_vec());
    }
    assert!(shown >= 9, "the console shows {shown} pages only");
    assert!(places.has(&approval, shown_word), "the approval's page says what it is about");
    session
}

#[tokio::test]
async fn no_inbound_byte_reaches_an_upstream() {
    let world = World::new().await;
    let inbound = Inbound::new(&world.setup).await;
    let placet = world.setup.start().await;
    let mut places = Places::default();
    let held = everything(&world, &placet, &inbound, &mut places).await;
    pages(&world.setup, &placet, &held, "remote", &mut places).await;
    until("the webhook is told", || async { !world.webhook.bytes().is_empty() }).await;
    for path in ["/metrics", "/readyz", "/healthz"] {
        places.add(format!("the admin listener's {path}"), placet.ask(path).await.body.to_vec());
    }
    let ben = world.setup.ben(&placet).await;
    ben.decide(&held, "approve").await.ok();
    placet.client(Some(inbound.agent.clone())).end_of(&text(&held, "call_id")).await;
    for path in ["/v1/ledger", "/v1/approvals", "/v1/inbox"] {
        places.add(format!("the list {path}"), ben.get(path).await.body.to_vec());
    }
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let log = placet.stop().await;
    places.add("the log", log);
    world.collect(&mut places);

    // What is collected is what was sent: each place names what went through it.
    for (place, word) in [
        ("the upstream", "tools/call"),
        ("the child's input", "tools/call"),
        ("the webhook", "remote"),
        ("the spans", "remote"),
        ("the log", "remote"),
        ("ledger/journal", "remote"),
        ("ledger/journal", "plain"),
        ("page: /", "remote"),
        ("the refusal of", "VALIDATION_ERROR"),
        ("the answer of", "tool_result"),
        ("the list /v1/ledger", "remote"),
    ] {
        assert!(places.has(place, word), "`{word}` is not in {place}: nothing was collected there");
    }
    assert!(
        found(&world.upstream.bytes(), &world.in_file).is_some(),
        "the upstream has its credential"
    );
    places.would_find(&canary("planted"));
    for canary in inbound.canaries() {
        assert_eq!(places.with(&canary), Vec::<String>::new(), "{canary}");
    }
    let at = places.with(&world.in_file);
    assert_eq!(at.len(), 1, "the secret of the file is with its upstream alone: {at:?}");
    assert!(at[0].starts_with("the upstream"), "{at:?}");
    assert_eq!(places.with(&world.in_env), Vec::<String>::new(), "the secret of the environment");
}

#[tokio::test]
async fn a_crash_leaves_no_canary_behind() {
    let world = World::new().await;
    let inbound = Inbound::new(&world.setup).await;
    let placet = world.setup.start().await;
    let mut places = Places::default();
    let held = everything(&world, &placet, &inbound, &mut places).await;
    // Calls are under way and one waits for people when it dies.
    let client = placet.client(Some(inbound.agent.clone()));
    let under_way = plan("remote__note", "s9", json!({ "what": "plain" }));
    let dying =
        tokio::spawn(async move { client.is_answered_to(submitting(&client, &under_way)).await });
    tokio::time::sleep(Duration::from_millis(30)).await;
    places.add("the log", placet.log());
    placet.kill().await;
    drop(dying.await);
    world.collect(&mut places);
    let again = world.setup.start().await;
    let ben = world.setup.ben(&again).await;
    let shown = ben.get(&format!("/v1/approvals/{}", text(&held, "approval_id"))).await;
    shown.ok();
    places.add("the approval after the crash", shown.body.to_vec());
    places.add("the log after the crash", again.stop().await);
    world.collect(&mut places);
    assert!(places.has("ledger/journal", "remote") && places.has("after the crash", "remote"));
    places.would_find(&canary("planted"));
    let mut canaries = inbound.canaries();
    canaries.push(world.in_env.clone());
    for canary in canaries {
        assert_eq!(places.with(&canary), Vec::<String>::new(), "{canary}");
    }
    let at = places.with(&world.in_file);
    assert!(at.iter().all(|place| place.starts_with("the upstream")), "{at:?}");
}

fn submitting(client: &Client, submission: &Value) -> Request<Bytes> {
    let request =
        client.request(Method::POST, "/v1/calls").header("content-type", "application/json");
    request.body(serde_json::to_vec(submission).unwrap().into()).unwrap()
}

#[test]
fn a_canary_is_found_however_it_is_written_and_nothing_else_is() {
    let (wanted, other) = (canary("wanted"), canary("other"));
    for disguise in disguises(&wanted) {
        let page = format!("<p>before</p>{disguise}<p>after</p>");
        assert!(found(page.as_bytes(), &wanted).is_some(), "{disguise}");
        assert_eq!(found(page.as_bytes(), &other), None, "{disguise}");
    }
    // A mail breaks long lines, and writes them in a form of its own.
    let text = disguises(&wanted).join("\n");
    let encoded = base64::engine::general_purpose::STANDARD.encode(&text);
    let lines: Vec<&[u8]> = encoded.as_bytes().chunks(76).collect();
    let lines = String::from_utf8(lines.join(&b"\r\n"[..])).unwrap();
    let in_base64 = format!("Subject: x\r\nContent-Transfer-Encoding: base64\r\n\r\n{lines}");
    let quoted = text
        .replace('=', "=3D")
        .replace("0f", "0=\r\nf")
        .replace('+', "=2B")
        .replace("zz", "z=\r\nz");
    for mail in [in_base64, format!("Content-Transfer-Encoding: quoted-printable\r\n\r\n{quoted}")]
    {
        assert!(String::from_utf8_lossy(&unfolded(mail.as_bytes())).contains(&text));
    }
    assert_eq!(found(b"", &wanted), None);
    assert_eq!(found(wanted.split_at(wanted.len() - 1).0.as_bytes(), &wanted), None);
}

/// What holds a secret in memory says nothing of it where it is printed: no derived `Debug` reaches what is overwritten when it is dropped.
#[test]
fn what_is_overwritten_when_it_is_dropped_is_not_printed() {
    let derived = Regex::new(
        r"(?s)#\[derive\([^)]*\bDebug\b[^)]*\)\](?:\s*#\[[^\n]*\]|\s*//[^\n]*)*\s*(?:pub(?:\([^)]*\))? )?(?:struct|enum) (\w+)[^{;]*?(?:\{.*?\n\}|;)",
    )
    .unwrap();
    let printed = |text: &str| -> Vec<String> {
        let all = derived.captures_iter(text);
        all.filter(|found| found[0].contains("Zeroizing<"))
            .map(|found| found[1].to_owned())
            .collect()
    };
    let seen = "#[derive(Clone, Debug)]\n// a word\npub(crate) struct Kept {\n    key: Zeroizing<String>,\n}\n";
    assert_eq!(printed(seen), ["Kept"]);
    assert_eq!(printed("#[derive(Debug)]\nstruct Pair(Zeroizing<String>, u8);\n"), ["Pair"]);
    assert!(printed(&seen.replace("Debug", "Eq")).is_empty());
    let mut wrong = Vec::new();
    for file in files(&["crates", "adapters"], &[".rs"]) {
        let text = production(&file.text);
        wrong.extend(printed(text).into_iter().map(|name| format!("{}: {name}", file.path)));
    }
    none("are printed with a secret in them: write their `Debug`", &wrong);
}
