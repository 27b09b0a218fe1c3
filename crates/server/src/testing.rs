//! An engine that says what a test wants, for the tests of the doors.
//!
//! Owns two tenants: `tenant-a` has everything there is, `tenant-b` has nothing. A token is `Bearer` and the tenant's name.

mod samples;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Router, body::Body, response::Response};
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::sync::watch;
use tower::ServiceExt as _;

use placet_pipeline::{
    answer::Answer,
    engine::evidence::{AuditKeyView, CheckpointView, ConsistencyView, InclusionView, ReceiptView},
    submission::{Inbound, Submission},
    views::{
        ApprovalDetail, ApprovalView, DecisionRequest, Readiness, RearmRequest, RecordView,
        ResolutionRequest, ToolView,
    },
};
use placet_types::{
    digest::Digest,
    error::{ErrorCode, Refusal},
    ids::{ApprovalId, RecordId, ToolCallId},
};

use crate::{
    backend::{Backend, Follow, Page},
    config::ServerConfig,
    door::{Door, Phase},
    guard::Guard,
    request::Credentials,
    router,
};

use samples::{approval, detail, record};
pub(crate) use samples::{call_id, finished, held, refused};

pub(crate) const CALL: &str = "call-1";
pub(crate) const APPROVAL: &str = "approval-1";

pub(crate) fn record_id() -> RecordId {
    Digest::of(b"record").to_string().parse().unwrap()
}

/// The engine of a test.
#[derive(Debug, Clone)]
pub(crate) struct Fake {
    /// How `call-1` stands; every submission becomes it.
    pub(crate) call: watch::Sender<Answer>,
    /// What was submitted.
    pub(crate) submitted: Arc<Mutex<Vec<(Submission, Inbound)>>>,
    /// Decisions that were carried through.
    pub(crate) decided: Arc<Mutex<Vec<DecisionRequest>>>,
    /// How long a decision takes.
    pub(crate) decision_takes: Duration,
    pub(crate) ready: bool,
    /// Whether a ticket is on a call that was forgotten.
    pub(crate) forgetful: bool,
}

impl Fake {
    pub(crate) fn new() -> Self {
        Self {
            call: watch::Sender::new(finished()),
            submitted: Arc::default(),
            decided: Arc::default(),
            decision_takes: Duration::ZERO,
            ready: true,
            forgetful: false,
        }
    }

    fn ticket(&self) -> FakeTicket {
        if self.forgetful {
            return FakeTicket(watch::Sender::new(self.call.borrow().clone()).subscribe());
        }
        let mut call = self.call.subscribe();
        call.mark_unchanged();
        FakeTicket(call)
    }
}

#[derive(Debug)]
pub(crate) struct FakeTicket(watch::Receiver<Answer>);

impl Follow for FakeTicket {
    fn current(&self) -> Answer {
        self.0.borrow().clone()
    }

    async fn changed(&mut self) -> Answer {
        if self.0.changed().await.is_err() {
            tokio::task::yield_now().await;
        }
        self.0.borrow_and_update().clone()
    }

    async fn settled(&mut self, wait_ms: u64) -> Answer {
        loop {
            let current = self.current();
            match &current {
                Answer::Finished(_) | Answer::Refused(_) => return current,
                Answer::InProgress(_) => drop(self.changed().await),
                Answer::Held(_) => {
                    let waited =
                        tokio::time::timeout(Duration::from_millis(wait_ms), self.changed()).await;
                    if waited.is_err() {
                        return current;
                    }
                }
            }
        }
    }
}

fn of_a<T>(caller: &str, thing: T) -> Result<T, Refusal> {
    if caller == "tenant-a" {
        return Ok(thing);
    }
    Err(Refusal::new(ErrorCode::NotFound, "the engine's own words")
        .with_detail("it belongs to tenant-a"))
}

fn a_bug_if(wanted: bool) {
    assert!(!wanted, "a bug in the engine");
}

impl Backend for Fake {
    type Caller = String;
    type Ticket = FakeTicket;

    async fn authenticate(&self, credentials: Credentials<'_>) -> Result<String, Refusal> {
        match credentials.authorization.and_then(|value| value.strip_prefix("Bearer ")) {
            Some(tenant @ ("tenant-a" | "tenant-b")) => Ok(tenant.to_owned()),
            _ => Err(Refusal::new(
                ErrorCode::Unauthenticated,
                "the token is not valid for this service",
            )
            .with_detail("no such tenant")),
        }
    }

    fn submit(
        &self,
        caller: String,
        submission: Submission,
        inbound: Inbound,
    ) -> Result<FakeTicket, Refusal> {
        a_bug_if(submission.tool == "files__panic");
        if caller != "tenant-a" {
            return Err(Refusal::new(ErrorCode::ToolNotFound, "there is no such tool"));
        }
        self.submitted.lock().unwrap().push((submission, inbound));
        Ok(self.ticket())
    }

    async fn call(&self, caller: &String, id: &ToolCallId) -> Result<Answer, Refusal> {
        if id.as_str() == CALL {
            of_a(caller, self.call.borrow().clone())
        } else {
            of_a("nobody", finished())
        }
    }

    async fn follow(&self, caller: &String, id: &ToolCallId) -> Result<FakeTicket, Refusal> {
        if id.as_str() == CALL {
            of_a(caller, self.ticket())
        } else {
            of_a("nobody", self.ticket())
        }
    }

    fn tools(&self, caller: &String) -> Vec<ToolView> {
        let tool = json!({
            "tool": "files__read", "capability_id": "files/read", "description": "Reads a file.",
            "input_schema": { "type": "object" }, "mode_highest": "read_only", "writes": false,
        });
        if caller == "tenant-a" { vec![serde_json::from_value(tool).unwrap()] } else { Vec::new() }
    }

    async fn approvals(
        &self,
        caller: &String,
        page: &Page<ApprovalId>,
    ) -> Result<Vec<ApprovalView>, Refusal> {
        let all = if caller == "tenant-a" { vec![approval(); 3] } else { Vec::new() };
        Ok(all.into_iter().take(page.limit).collect())
    }

    async fn approval(&self, caller: &String, _: &ApprovalId) -> Result<ApprovalDetail, Refusal> {
        of_a(caller, detail())
    }

    async fn decide(
        &self,
        caller: &String,
        _: &ApprovalId,
        request: DecisionRequest,
    ) -> Result<ApprovalView, Refusal> {
        of_a(caller, ())?;
        tokio::time::sleep(self.decision_takes).await;
        a_bug_if(request.reason == "panic");
        self.decided.lock().unwrap().push(request);
        Ok(approval())
    }

    async fn record(&self, caller: &String, id: RecordId) -> Result<RecordView, Refusal> {
        of_a(if id == record_id() { caller } else { "nobody" }, record())
    }

    async fn records(
        &self,
        caller: &String,
        _: &Page<RecordId>,
    ) -> Result<Vec<RecordView>, Refusal> {
        if caller == "tenant-a" {
            return Ok(vec![record()]);
        }
        Err(Refusal::new(ErrorCode::PolicyDenied, "only operators may list the ledger"))
    }

    async fn resolve(
        &self,
        caller: &String,
        _: RecordId,
        _: ResolutionRequest,
    ) -> Result<RecordView, Refusal> {
        of_a(caller, record())
    }

    async fn rearm(
        &self,
        caller: &String,
        _: RecordId,
        _: RearmRequest,
    ) -> Result<RecordView, Refusal> {
        of_a(caller, record())
    }

    async fn receipt(&self, caller: &String, id: &ToolCallId) -> Result<ReceiptView, Refusal> {
        of_a(if id.as_str() == CALL { caller } else { "nobody" }, samples::receipt())
    }

    async fn checkpoints(&self, _: &String) -> Result<Vec<CheckpointView>, Refusal> {
        Ok(vec![samples::checkpoint()])
    }

    fn audit_key(&self, _: &String) -> Result<AuditKeyView, Refusal> {
        Ok(samples::audit_key())
    }

    async fn inclusion(
        &self,
        _: &String,
        log: &str,
        place: (u64, Option<u64>),
    ) -> Result<InclusionView, Refusal> {
        Ok(samples::inclusion(log, place))
    }

    async fn consistency(
        &self,
        _: &String,
        log: &str,
        sizes: (u64, u64),
    ) -> Result<ConsistencyView, Refusal> {
        Ok(samples::consistency(log, sizes))
    }

    fn readiness(&self) -> Readiness {
        Readiness { ready: self.ready, notes: Vec::new() }
    }

    fn metrics_text(&self) -> String {
        "# EOF\n".to_owned()
    }
}

/// The door of a test, without a socket.
#[derive(Debug)]
pub(crate) struct TestDoor {
    pub(crate) fake: Fake,
    pub(crate) phase: watch::Sender<Phase>,
    pub(crate) router: Router,
    pub(crate) admin: Router,
}

/// What a test got.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) async fn of(response: Response) -> Self {
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes().to_vec();
        Self { status: parts.status, headers: parts.headers, body }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// The code of a problem document, whose form is checked on the way.
    pub(crate) fn code(&self) -> String {
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
}

impl TestDoor {
    pub(crate) fn new() -> Self {
        Self::with(Fake::new(), ServerConfig::default())
    }

    pub(crate) fn with(fake: Fake, config: ServerConfig) -> Self {
        let (phase, watching) = watch::channel(Phase::Serving);
        let main =
            Guard::new(config.listen, &config.allowed_hosts, &config.allowed_origins).unwrap();
        let admin = Guard::new(config.admin_listen, &config.allowed_hosts, &config.allowed_origins)
            .unwrap();
        let door = Door::new(fake.clone(), Arc::new(config), watching);
        let (router, admin) =
            (router::router(&door, main), crate::admin::router(&door, admin, None));
        Self { fake, phase, router, admin }
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Reply {
        Reply::of(self.open(request).await).await
    }

    /// The response with its body still to be read.
    pub(crate) async fn open(&self, request: Request<Body>) -> Response {
        self.router.clone().oneshot(request).await.unwrap()
    }

    pub(crate) async fn ask_admin(&self, path: &str, host: &str) -> Reply {
        let request = Request::get(path).header("host", host).body(Body::empty()).unwrap();
        Reply::of(self.admin.clone().oneshot(request).await.unwrap()).await
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send(get(path)).await
    }

    pub(crate) async fn post(&self, path: &str, body: impl Into<Body>) -> Reply {
        self.send(post(path, body)).await
    }
}

/// A GET of tenant-a.
pub(crate) fn get(path: &str) -> Request<Body> {
    let request = Request::get(path)
        .header("host", "localhost:7411")
        .header("authorization", "Bearer tenant-a");
    request.body(Body::empty()).unwrap()
}

/// A POST of tenant-a.
pub(crate) fn post(path: &str, body: impl Into<Body>) -> Request<Body> {
    Request::post(path)
        .header("host", "localhost:7411")
        .header("authorization", "Bearer tenant-a")
        .header("content-type", "application/json")
        .body(body.into())
        .unwrap()
}

/// A call as a caller writes it.
pub(crate) fn submission() -> Value {
    json!({ "tool": "files__read", "args": { "path": "a.txt" }, "run": { "run_id": "run-1" } })
}
