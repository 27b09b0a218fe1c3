//! A small MCP server over HTTP for tests: good by default; each setting and each tool is one oddity.

use std::{
    collections::{HashMap, HashSet},
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    response::{IntoResponse, Response},
    routing::any,
};
use futures::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

/// One request as the server saw it.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) http_method: Method,
    pub(super) headers: HeaderMap,
    pub(super) message: Value,
}

impl Seen {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(super) fn method(&self) -> &str {
        self.message["method"].as_str().unwrap_or_default()
    }
}

/// To whom the server assigns a session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Binding {
    /// To nobody.
    #[default]
    Nobody,
    /// To the credential of the first call in it, for which it does all the others.
    FirstCall,
    /// To the credential that began it; for others it does not exist.
    Beginner,
}

/// How the server reacts to a request for a session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Beginning {
    /// Begins it.
    #[default]
    Good,
    /// Answers with this status.
    Status(u16),
    /// Answers with something that is not MCP.
    Garbage,
    /// Speaks another version than the contract pins.
    OtherVersion,
    /// Never answers.
    Silence,
    /// Begins it, and never answers in it but to its end.
    Deafness,
}

/// The server's behaviour.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Manner {
    pub(super) stateless: bool,
    pub(super) modern: bool,
    pub(super) wants_credential: bool,
    /// Answers an unknown session with 400, as some servers do.
    pub(super) forgets_with_400: bool,
    pub(super) binding: Binding,
    /// How long it takes to begin a session for somebody with a credential, in milliseconds.
    pub(super) begins_in_ms: u64,
    /// What it does when gina requests one.
    pub(super) ginas: Beginning,
    /// Assigns the same session id to everybody with a credential.
    pub(super) one_number: bool,
}

#[derive(Debug)]
pub(super) struct Peer {
    pub(super) url: String,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    manner: Manner,
    seen: Mutex<Vec<Seen>>,
    forgotten: AtomicBool,
    sessions: Mutex<HashMap<String, Option<String>>>,
    begun: AtomicU32,
    /// Sessions in which no message is answered.
    deaf: Mutex<HashSet<String>>,
    /// Unanswered requests whose client is still there.
    unanswered: AtomicU32,
    changes: watch::Sender<u32>,
    /// The rest of a stream, for when it is resumed.
    rest: Mutex<Option<Value>>,
}

impl Peer {
    pub(super) async fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let shared = Arc::new(Shared {
            manner,
            seen: Mutex::default(),
            forgotten: AtomicBool::new(false),
            sessions: Mutex::default(),
            begun: AtomicU32::new(1),
            deaf: Mutex::default(),
            unanswered: AtomicU32::new(0),
            changes: watch::Sender::new(0),
            rest: Mutex::default(),
        });
        let app = Router::new().route("/mcp", any(serve)).with_state(Arc::clone(&shared));
        let server = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { url, shared, server }
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().clone()
    }

    pub(super) fn calls(&self) -> Vec<Seen> {
        self.seen().into_iter().filter(|seen| seen.method() == "tools/call").collect()
    }

    pub(super) fn forget_sessions(&self) {
        self.shared.forgotten.store(true, Ordering::SeqCst);
    }

    /// Forgets the sessions that belong to a credential.
    pub(super) fn forget_those_of(&self, credential: &str) {
        let of = Some(format!("Bearer {credential}"));
        self.shared.sessions.lock().retain(|_, owner| *owner != of);
    }

    /// Stops answering in the sessions that belong to a credential.
    pub(super) fn deafen_those_of(&self, credential: &str) {
        let of = Some(format!("Bearer {credential}"));
        let sessions = self.shared.sessions.lock();
        let theirs = sessions.iter().filter(|(_, owner)| **owner == of);
        self.shared.deaf.lock().extend(theirs.map(|(number, _)| number.clone()));
    }

    /// How many requests wait for an answer that never comes.
    pub(super) fn unanswered(&self) -> u32 {
        self.shared.unanswered.load(Ordering::SeqCst)
    }

    pub(super) fn announce_change(&self) {
        self.shared.changes.send_modify(|count| *count = count.saturating_add(1));
    }

    /// Whether somebody listens for announcements.
    pub(super) fn has_listener(&self) -> bool {
        self.shared.changes.receiver_count() > 0
    }

    pub(super) fn stop(&self) {
        self.server.abort();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(
    State(shared): State<Arc<Shared>>,
    method: Method,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let message: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let seen =
        Seen { http_method: method.clone(), headers: headers.clone(), message: message.clone() };
    shared.seen.lock().push(seen);
    if shared.manner.wants_credential && !headers.contains_key(header::AUTHORIZATION) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    if shared.forgotten.load(Ordering::SeqCst) && headers.contains_key("mcp-session-id") {
        let status = if shared.manner.forgets_with_400 {
            StatusCode::BAD_REQUEST
        } else {
            StatusCode::NOT_FOUND
        };
        return status.into_response();
    }
    if !knows(&shared, &headers) {
        return StatusCode::NOT_FOUND.into_response();
    }
    if method == Method::DELETE {
        return StatusCode::NO_CONTENT.into_response();
    }
    if method == Method::GET && headers.contains_key("last-event-id") {
        let rest = shared.rest.lock().take();
        return events(stream::iter(rest).boxed());
    }
    if method == Method::GET {
        return listen(&shared, None);
    }
    if number_of(&headers).is_some_and(|number| shared.deaf.lock().contains(number)) {
        return never(&shared).await;
    }
    let id = message["id"].clone();
    match message["method"].as_str().unwrap_or_default() {
        "initialize" if shared.manner.modern => {
            (StatusCode::BAD_REQUEST, error(&id, -32_022)).into_response()
        }
        "initialize" => {
            if headers.contains_key(header::AUTHORIZATION) {
                tokio::time::sleep(Duration::from_millis(shared.manner.begins_in_ms)).await;
            }
            let is_gina = credential_of(&headers).starts_with("Bearer gina");
            let manner = if is_gina { shared.manner.ginas } else { Beginning::Good };
            begin(&shared, &message, &headers, manner).await
        }
        "server/discover" if shared.manner.modern => result(
            &id,
            json!({
                "resultType": "complete", "supportedVersions": ["2026-07-28"], "ttlMs": 600_000, "cacheScope": "private",
                "capabilities": {"tools": {"listChanged": true}},
                "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "modern", "version": "2"}},
            }),
        ),
        "subscriptions/listen" => listen(&shared, Some(id)),
        "tools/list" => result(
            &id,
            json!({
                "resultType": "complete", "ttlMs": 600_000, "cacheScope": "public",
                "tools": [{"name": format!("echo_{}", *shared.changes.borrow()), "inputSchema": {"type": "object"}}],
            }),
        ),
        "resources/read" => read(&message),
        "tools/call" => call(&shared, &message, &headers).await,
        _ if id.is_null() => StatusCode::ACCEPTED.into_response(),
        _ => error(&id, -32_601),
    }
}

fn read(message: &Value) -> Response {
    let answer = match message["params"]["uri"].as_str().unwrap() {
        "peer://garbled" => json!({"content": [{"type": "text", "text": "hello"}]}),
        "peer://large" => {
            json!({"contents": [{"uri": "peer://large", "text": "x".repeat(8_192)}]})
        }
        uri => json!({"contents": [{"uri": uri, "mimeType": "text/plain", "text": "hello"}]}),
    };
    result(&message["id"], answer)
}

fn credential_of(headers: &HeaderMap) -> String {
    headers.get(header::AUTHORIZATION).map_or("", |value| value.to_str().unwrap()).to_owned()
}

fn number_of(headers: &HeaderMap) -> Option<&str> {
    headers.get("mcp-session-id").map(|value| value.to_str().unwrap())
}

/// Whether the session named in a request, if any, exists for its sender.
fn knows(shared: &Shared, headers: &HeaderMap) -> bool {
    let Some(number) = number_of(headers) else { return true };
    let sessions = shared.sessions.lock();
    let Some(owner) = sessions.get(number) else { return false };
    shared.manner.binding != Binding::Beginner || *owner == Some(credential_of(headers))
}

/// In whose name the server does a call.
fn doer(shared: &Shared, headers: &HeaderMap) -> String {
    let shown = credential_of(headers);
    match number_of(headers) {
        Some(number) if shared.manner.binding == Binding::FirstCall => {
            let mut sessions = shared.sessions.lock();
            sessions.get_mut(number).unwrap().get_or_insert(shown).clone()
        }
        Some(_) | None => shown,
    }
}

async fn begin(
    shared: &Shared,
    message: &Value,
    headers: &HeaderMap,
    manner: Beginning,
) -> Response {
    match manner {
        Beginning::Good => initialize(shared, message, headers),
        Beginning::Status(code) => StatusCode::from_u16(code).unwrap().into_response(),
        Beginning::Garbage => axum::Json(json!([])).into_response(),
        Beginning::OtherVersion => {
            let mut message = message.clone();
            message["params"]["protocolVersion"] = json!("2024-11-05");
            initialize(shared, &message, headers)
        }
        Beginning::Silence => never(shared).await,
        Beginning::Deafness => {
            let answer = initialize(shared, message, headers);
            let number = number_of(answer.headers()).unwrap().to_owned();
            shared.deaf.lock().insert(number);
            answer
        }
    }
}

/// Is no answer, for as long as the client is there.
async fn never(shared: &Shared) -> Response {
    struct Waiting<'a>(&'a AtomicU32);
    impl Drop for Waiting<'_> {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }
    shared.unanswered.fetch_add(1, Ordering::SeqCst);
    let _waiting = Waiting(&shared.unanswered);
    std::future::pending().await
}

fn initialize(shared: &Shared, message: &Value, headers: &HeaderMap) -> Response {
    let answer = result(
        &message["id"],
        json!({
            "protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {"listChanged": true}},
            "serverInfo": {"name": "peer", "version": "1"},
        }),
    );
    if shared.manner.stateless {
        answer
    } else {
        let mut sessions = shared.sessions.lock();
        let mut number = format!("session-{}", shared.begun.fetch_add(1, Ordering::SeqCst));
        if shared.manner.one_number && headers.contains_key(header::AUTHORIZATION) {
            "the-one".clone_into(&mut number);
        }
        let is_bound = shared.manner.binding == Binding::Beginner;
        sessions.insert(number.clone(), is_bound.then(|| credential_of(headers)));
        ([("mcp-session-id", number)], answer).into_response()
    }
}

/// A status, with the additions that the arguments ask for.
fn status(id: &Value, args: &Value) -> Response {
    let code = u16::try_from(args["code"].as_u64().unwrap()).unwrap();
    let is_set = |name: &str| args[name] == json!(true);
    let mut headers = HeaderMap::new();
    headers.insert(header::LOCATION, HeaderValue::from_static("http://127.0.0.1:1/mcp"));
    if is_set("retry_after") {
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    if is_set("challenge") {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    let error = json!({"jsonrpc": "2.0", "id": id, "error": {"code": 1, "message": "c4nary"}});
    let body = if is_set("json_rpc") { error.to_string() } else { "c4nary".to_owned() };
    (StatusCode::from_u16(code).unwrap(), headers, body).into_response()
}

async fn call(shared: &Shared, message: &Value, headers: &HeaderMap) -> Response {
    let id = &message["id"];
    let args = &message["params"]["arguments"];
    let text = json!({"content": [{"type": "text", "text": "done"}], "resultType": "complete"});
    match message["params"]["name"].as_str().unwrap() {
        "echo" | "echo_0" => {
            let mut answer = text;
            let doer = doer(shared, headers);
            answer["structuredContent"] =
                json!({"args": args, "meta": message["params"]["_meta"], "doer": doer});
            result(id, answer)
        }
        "stream" => {
            let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
            let done = json!({"jsonrpc": "2.0", "id": id, "result": text});
            events(stream::iter([changed, done]).boxed())
        }
        "broken" => {
            *shared.rest.lock() = Some(json!({"jsonrpc": "2.0", "id": id, "result": text}));
            let begun = "id: 0/7\nretry: 1\ndata: \n\n";
            ([(header::CONTENT_TYPE, "text/event-stream")], begun).into_response()
        }
        "asks" => {
            let asked = json!({
                "jsonrpc": "2.0", "id": "q", "method": "roots/list",
            });
            let done = json!({"jsonrpc": "2.0", "id": id, "result": text});
            events(stream::iter([asked, done]).boxed())
        }
        "status" | "status_read" | "status_known" => status(id, args),
        "slow" => {
            tokio::time::sleep(Duration::from_millis(args["ms"].as_u64().unwrap())).await;
            result(id, text)
        }
        "garbage" => ([(header::CONTENT_TYPE, "application/json")], "{no json").into_response(),
        "html" => ([(header::CONTENT_TYPE, "text/html")], "<p>welcome</p>").into_response(),
        "stranger" => result(&json!(987_654), text),
        "cut" => events(stream::empty().boxed()),
        "truncated" => {
            let broken = stream::iter([
                Ok(Bytes::from_static(b"{\"jsonrpc\":")),
                Err(std::io::Error::other("the connection breaks")),
            ]);
            ([(header::CONTENT_TYPE, "application/json")], Body::from_stream(broken))
                .into_response()
        }
        "huge" => {
            let endless =
                stream::repeat_with(|| Ok::<_, Infallible>(Bytes::from(vec![b' '; 65_536])));
            ([(header::CONTENT_TYPE, "application/json")], Body::from_stream(endless))
                .into_response()
        }
        "accepted" => StatusCode::ACCEPTED.into_response(),
        "forget" => {
            shared.forgotten.store(true, Ordering::SeqCst);
            StatusCode::NOT_FOUND.into_response()
        }
        _ => error(id, -32_602),
    }
}

fn listen(shared: &Shared, subscription: Option<Value>) -> Response {
    let mut changes = shared.changes.subscribe();
    changes.mark_unchanged();
    let meta = |id: &Value| json!({"io.modelcontextprotocol/subscriptionId": id});
    let first = subscription.as_ref().map(|id| {
        json!({
            "jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged",
            "params": {"_meta": meta(id), "notifications": {"toolsListChanged": true}},
        })
    });
    let rest =
        stream::unfold((changes, subscription), move |(mut changes, subscription)| async move {
            changes.changed().await.ok()?;
            let mut message =
                json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
            if let Some(id) = &subscription {
                message["params"] = json!({"_meta": meta(id)});
            }
            Some((message, (changes, subscription)))
        });
    events(stream::iter(first).chain(rest).boxed())
}

fn events(messages: stream::BoxStream<'static, Value>) -> Response {
    let body =
        messages.map(|message| Ok::<_, Infallible>(format!("event: message\ndata: {message}\n\n")));
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(body)).into_response()
}

fn result(id: &Value, value: Value) -> Response {
    axum::Json(json!({"jsonrpc": "2.0", "id": id, "result": value})).into_response()
}

fn error(id: &Value, code: i32) -> Response {
    let data = json!({"supported": ["2026-07-28"]});
    axum::Json(
        json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": "no", "data": data}}),
    )
    .into_response()
}
