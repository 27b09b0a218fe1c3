//! The listeners of a test over a real engine, without a socket, and what a test asks them.
//!
//! Owns the requests of two tenants: everything is `acme`'s, and `globex` has nothing. Unless a test says who asks, it is the agent `bot`.

pub mod adapter;
pub mod people;
mod samples;
mod world;

use std::sync::{Arc, atomic::Ordering};

use axum::{Router, body::Body, response::Response, routing::post};
use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::sync::watch;
use tower::ServiceExt as _;

use placet_engine::submission::Inbound;

use crate::{
    admin,
    config::ServerConfig,
    guard::Guard,
    router::{self, Pages},
    state::{ApiState, Phase},
};

pub use people::People;
pub use samples::{
    APPROVAL, CALL, break_glass, detail as sample_detail, finished, grant, held, in_progress,
    inbox, record_id, refused, timeline,
};
pub use world::World;

/// The API of a test.
#[derive(Debug)]
pub struct TestApi {
    pub world: World,
    pub phase: watch::Sender<Phase>,
    pub api: ApiState,
    router: Router,
    admin: Router,
}

/// A call that waits for people.
#[derive(Debug, Clone)]
pub struct Waiting {
    pub call: String,
    pub approval: String,
    /// The digest of what people are shown.
    pub digest: String,
}

/// A response, as a test reads it.
#[derive(Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: http::HeaderMap,
    pub body: Vec<u8>,
}

impl Reply {
    pub async fn of(response: Response) -> Self {
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes().to_vec();
        Self { status: parts.status, headers: parts.headers, body }
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// The code of a problem document, whose form is checked on the way.
    pub fn code(&self) -> String {
        assert_eq!(
            self.header("content-type"),
            Some("application/problem+json"),
            "{}",
            self.text()
        );
        let document = self.json();
        assert_eq!(document["status"], self.status.as_u16());
        document["error_code"].as_str().unwrap().to_owned()
    }

    /// The status of a refusal and its code, such as `404 NOT_FOUND`.
    pub fn refusal(&self) -> String {
        format!("{} {}", self.status.as_u16(), self.code())
    }
}

impl TestApi {
    pub async fn new() -> Self {
        Self::with(ServerConfig::default()).await
    }

    pub async fn with(config: ServerConfig) -> Self {
        Self::over(World::new(People::new()).await, config, None)
    }

    pub fn over(world: World, config: ServerConfig, pages: Option<&dyn Pages>) -> Self {
        let (phase, watching) = watch::channel(Phase::Serving);
        let mut main =
            Guard::new(config.listen, &config.allowed_hosts, &config.allowed_origins).unwrap();
        if let Some(pages) = pages {
            main = main.with_pages(config.listen, pages.public_url()).unwrap();
        }
        let admin = Guard::new(config.admin_listen, &config.allowed_hosts, &config.allowed_origins)
            .unwrap();
        let api = ApiState::new(world.engine.clone(), Arc::new(config), watching);
        let router = router::router(&api, main, pages, None);
        let admin = admin::router(&api, admin, post(admin::no_backups));
        Self { world, phase, api, router, admin }
    }

    /// A request of this caller.
    pub fn request(
        &self,
        who: &str,
        method: Method,
        path: &str,
        body: impl Into<Body>,
    ) -> Request<Body> {
        let mut request = Request::builder()
            .method(&method)
            .uri(path)
            .header("host", "localhost:7411")
            .header("authorization", format!("Bearer {}", self.world.people.token(who)));
        if method == Method::POST {
            request = request.header("content-type", "application/json");
        }
        request.body(body.into()).unwrap()
    }

    /// A GET of the agent's.
    pub fn reading(&self, path: &str) -> Request<Body> {
        self.request("bot", Method::GET, path, Body::empty())
    }

    /// A POST of the agent's.
    pub fn posting(&self, path: &str, body: impl Into<Body>) -> Request<Body> {
        self.request("bot", Method::POST, path, body)
    }

    /// The same request of the agent, with a token that lasts this many seconds.
    pub fn lasting(&self, mut request: Request<Body>, seconds: u64) -> Request<Body> {
        let token = format!("Bearer {}", self.world.people.token_for("bot", seconds));
        request.headers_mut().insert(header::AUTHORIZATION, token.parse().unwrap());
        request
    }

    pub async fn send(&self, request: Request<Body>) -> Reply {
        Reply::of(self.open(request).await).await
    }

    /// The response with its body still to be read.
    pub async fn open(&self, request: Request<Body>) -> Response {
        self.router.clone().oneshot(request).await.unwrap()
    }

    pub async fn ask_admin(&self, path: &str, host: &str) -> Reply {
        let request = Request::get(path).header("host", host).body(Body::empty()).unwrap();
        Reply::of(self.admin.clone().oneshot(request).await.unwrap()).await
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.send(self.reading(path)).await
    }

    pub async fn get_as(&self, who: &str, path: &str) -> Reply {
        self.send(self.request(who, Method::GET, path, Body::empty())).await
    }

    pub async fn post(&self, path: &str, body: impl Into<Body>) -> Reply {
        self.send(self.posting(path, body)).await
    }

    pub async fn post_as(&self, who: &str, path: &str, body: Value) -> Reply {
        self.send(self.request(who, Method::POST, path, body.to_string())).await
    }

    /// A held call.
    pub async fn held(&self, step: &str) -> Waiting {
        self.held_with(step, json!({ "path": "a.txt" })).await
    }

    /// The same with these arguments.
    pub async fn held_with(&self, step: &str, args: Value) -> Waiting {
        let mut call = call("delete", step);
        call["args"] = args;
        let reply = self.post("/v1/calls", call.to_string()).await;
        assert_eq!(reply.status, 202, "{}", reply.text());
        let told = reply.json();
        let approval = told["approval_id"].as_str().unwrap().to_owned();
        let shown = self.get_as("eve", &format!("/v1/approvals/{approval}")).await.json();
        Waiting {
            call: told["tool_call_id"].as_str().unwrap().to_owned(),
            digest: shown["approval"]["digest"].as_str().unwrap().to_owned(),
            approval,
        }
    }

    /// A call that the adapter executes until it is released.
    pub async fn running(&self, step: &str) -> String {
        self.world.witness.hold();
        let caller = self.world.people.caller("bot").await;
        let submission = serde_json::from_value(call("write", step)).unwrap();
        let ticket = self.world.engine.submit(caller, submission, Inbound::default()).unwrap();
        self.world.witness.begun.notified().await;
        ticket.call_id().to_string()
    }

    /// The record of a call with an unknown outcome.
    pub async fn unknown(&self, step: &str) -> String {
        self.world.witness.breaks_off.store(true, Ordering::SeqCst);
        let reply = self.post("/v1/calls", call("write", step).to_string()).await;
        self.world.witness.breaks_off.store(false, Ordering::SeqCst);
        assert_eq!(reply.refusal(), "409 OUTCOME_UNKNOWN");
        let records = self.get_as("ben", "/v1/ledger?limit=200").await.json();
        let records = records["records"].as_array().unwrap();
        let own = records.iter().find(|record| record["call_id"] == reply.json()["call_id"]);
        own.unwrap()["record_id"].as_str().unwrap().to_owned()
    }

    pub async fn approve(&self, waiting: &Waiting) -> Reply {
        let path = format!("/v1/approvals/{}/decisions", waiting.approval);
        let decision = json!({ "decision": "approve", "reason": "seen", "digest": waiting.digest });
        self.post_as("ben", &path, decision).await
    }

    /// Makes an entry of the approval service.
    pub async fn arrange(&self, who: &str, arrange: Value) -> Value {
        let reply = self.post_as(who, "/v1/directives", arrangement(&arrange)).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()
    }

    /// The tenant's whole state, as seen by those who may see everything.
    pub async fn state(&self) -> Vec<Value> {
        let mut state = Vec::new();
        for path in [
            "/v1/inbox?state=finished",
            "/v1/inbox",
            "/v1/approvals",
            "/v1/directives",
            "/v1/ledger",
        ] {
            state.push(self.get_as("eve", path).await.json());
        }
        state
    }

    /// Revokes somebody's tokens.
    pub async fn revoke(&self, who: &str) {
        let subject = self.world.people.caller(who).await.actor.subject().to_owned();
        self.arrange("ben", json!({ "kind": "revocation", "subject": subject })).await;
    }
}

/// A request to create an entry of the approval service. A freeze starts tomorrow.
pub fn arrangement(arrange: &Value) -> Value {
    let lasts_ms = if arrange["kind"] == "revocation" { 86_400_000 } else { 3_600_000 };
    let mut request = json!({ "arrange": arrange, "reason": "because <u>", "lasts_ms": lasts_ms });
    if arrange["kind"] == "freeze" {
        request["starts_at"] = json!(people::NOW_MS + 86_400_000);
    }
    request
}

/// A call of the agent's tool as a caller writes it.
pub fn call(tool: &str, step: &str) -> Value {
    json!({
        "tool": format!("files__{tool}"), "args": { "path": "a.txt" }, "step_id": step, "request_id": "request-1",
        "run": { "run_id": "run-1", "safety_mode": "destructive" },
    })
}

/// A call that reads.
pub fn submission() -> Value {
    call("read", "step-1")
}
