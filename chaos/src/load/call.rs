//! One call of the load and its requests: every request is in the history before it is sent, and its end after.
//!
//! Owns what is known about the call so far. Invariant: whatever happens to the task, a request without an answer gets its `Lost`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use anyhow::Result;
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::{Duration, timeout};

use super::forms::{Args, Form};
use crate::{
    history::{
        Class, What,
        canonical::fingerprint,
        request::{Answer, Loss, Lost, Protocol, Reply, Sent, Why},
    },
    http::{Answered, Bearer, MCP_REVISION},
    people::USER,
    scene::Scene,
    setup::{LATENCY_MS, SECRET},
    witness::tools,
};

/// The most calls of a run that does not test its budget.
const CALLS_MAX: u32 = 1_000_000;
/// Of this many requests, two are sent over MCP, and one in a batch of its run.
const TURNS: u64 = 6;

/// One call: a key with its arguments, sent however often.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) tenant: String,
    pub(crate) agent: String,
    pub(crate) delegated: bool,
    /// The witness's name of the tool.
    pub(crate) tool: &'static str,
    pub(crate) args: Args,
    /// The key; none for a read.
    pub(crate) key: Option<String>,
    pub(crate) run: String,
    /// The most calls of it.
    pub(crate) calls_max: u32,
    pub(crate) client: u32,
    /// How often nodes had come up when it was last sent.
    seen_starts: AtomicU64,
    /// Whether a definite answer came.
    settled: AtomicBool,
    last: Mutex<Option<Answer>>,
    approval: Mutex<Option<String>>,
    call_id: Mutex<Option<String>>,
}

/// One request of a call.
#[derive(Debug, Clone)]
pub(crate) struct Sending {
    pub(crate) why: Why,
    pub(crate) node: usize,
    /// Other arguments.
    pub(crate) args: Option<Args>,
    pub(crate) form: Form,
    /// When the client disconnects.
    pub(crate) leaves_after: Option<Duration>,
}

impl Sending {
    pub(crate) const fn new(why: Why, node: usize) -> Self {
        Self { why, node, args: None, form: Form::Plain, leaves_after: None }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller<'a> {
    pub(crate) tenant: &'a str,
    pub(crate) agent: &'a str,
    /// Whether on behalf of the user.
    pub(crate) delegated: bool,
}

impl Call {
    pub(crate) fn new(
        caller: Caller<'_>,
        tool: &'static str,
        args: Args,
        run: String,
        client: u32,
    ) -> Self {
        let Caller { tenant, agent, delegated } = caller;
        let key =
            (tools::class_of(tool) != Some(Class::Read)).then(|| format!("key-{}", args.item));
        Self {
            tenant: tenant.to_owned(),
            agent: agent.to_owned(),
            delegated,
            tool,
            args,
            key,
            run,
            calls_max: CALLS_MAX,
            client,
            seen_starts: AtomicU64::new(0),
            settled: AtomicBool::new(false),
            last: Mutex::default(),
            approval: Mutex::default(),
            call_id: Mutex::default(),
        }
    }

    /// The same call and key from another principal, which makes it another call.
    pub(crate) fn of_somebody(&self, tenant: &str, agent: &str) -> Self {
        let caller = Caller { tenant, agent, delegated: false };
        Self::new(caller, self.tool, self.args.clone(), self.run.clone(), self.client)
            .in_run_of(self.calls_max)
    }

    /// The same in a run with this many calls.
    pub(crate) const fn in_run_of(mut self, calls_max: u32) -> Self {
        self.calls_max = calls_max;
        self
    }

    pub(crate) fn last(&self) -> Option<Answer> {
        *self.last.lock()
    }

    /// The approval it waits for.
    pub(crate) fn approval(&self) -> Option<String> {
        self.approval.lock().clone()
    }

    /// The name that Placet gave it.
    pub(crate) fn call_id(&self) -> Option<String> {
        self.call_id.lock().clone()
    }

    fn bearer(&self, scene: &Scene) -> Result<Bearer> {
        let people = &scene.people;
        let found = if self.delegated {
            people.on_behalf(&self.tenant, &self.agent)?
        } else {
            people.bearer(&self.tenant, &self.agent)?
        };
        Ok(found.clone())
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.settled.load(Ordering::SeqCst)
    }

    pub(crate) fn why_again(&self, scene: &Scene) -> Why {
        if self.seen_starts.load(Ordering::SeqCst) < scene.starts() {
            return Why::AfterRestart;
        }
        match self.last() {
            None => Why::AfterLoss,
            Some(Answer::Succeeded) => Why::AfterSuccess,
            Some(Answer::Pending | Answer::InProgress) => Why::InFlight,
            Some(_) => Why::AfterFailure,
        }
    }

    pub(crate) async fn send(&self, scene: &Scene, sending: &Sending) -> Result<Reply, Loss> {
        let args = sending.args.as_ref().unwrap_or(&self.args);
        let Ok(bearer) = self.bearer(scene) else { return Err(Loss::NotConnected) };
        self.seen_starts.store(scene.starts(), Ordering::SeqCst);
        let request = scene.next_request();
        let over = match request.checked_rem(TURNS) {
            Some(0 | 3) => Protocol::Mcp,
            Some(1) => Protocol::Batch,
            _ => Protocol::Http,
        };
        let sent = Sent { over, ..self.sent(request, sending.node, args, sending.why) };
        let tool = sent.tool.clone();
        scene.recorder.record(What::Sent(Box::new(sent)));
        let mut fate = Fate { scene, request, over, told: false };
        let args = args.text(sending.form);
        let exchange = async {
            match over {
                Protocol::Http => {
                    let body = self.body(&tool, &args);
                    scene.api.post(sending.node, "/v1/calls", &bearer, body).await
                }
                Protocol::Mcp => {
                    let body = self.body_over_mcp(request, &tool, &args);
                    scene.api.call_over_mcp(sending.node, &tool, &bearer, body).await
                }
                Protocol::Batch => {
                    self.send_in_batch(scene, sending.node, &bearer, &tool, &args).await
                }
            }
        };
        let answered = match sending.leaves_after {
            None => exchange.await,
            Some(after) => timeout(after, exchange).await.unwrap_or(Err(Loss::Abandoned)),
        };
        let reply = fate.tell(answered);
        if let (Ok(reply), None) = (&reply, &sending.args) {
            self.learn(reply);
        }
        reply
    }

    /// Opens its run on that node, if it is not open there, and sends the call as a batch of it.
    async fn send_in_batch(
        &self,
        scene: &Scene,
        node: usize,
        bearer: &Bearer,
        tool: &str,
        args: &str,
    ) -> Result<Answered, Loss> {
        let open = json!({ "run": self.in_run() }).to_string();
        let opened = scene.api.post(node, "/v1/runs", bearer, open.into()).await?;
        let is_open = opened.json().get("error_code").is_none_or(|code| *code == "RUN_TAKEN");
        if !is_open {
            return Ok(opened);
        }
        let key = self.key_member();
        let call = format!(r#"{{"id":"1","tool":"{tool}","args":{args}{key}}}"#);
        let body = format!(r#"{{"calls":[{call}]}}"#).into();
        let path = format!("/v1/runs/{}/batches", self.run);
        scene.api.post(node, &path, bearer, body).await
    }

    /// Polls it by the id that Placet assigned.
    pub(crate) async fn poll(
        &self,
        scene: &Scene,
        node: usize,
        wait_ms: u64,
    ) -> Result<Reply, Loss> {
        let Some(call_id) = self.call_id() else { return Err(Loss::NotConnected) };
        let Ok(bearer) = self.bearer(scene) else { return Err(Loss::NotConnected) };
        let request = scene.next_request();
        let sent = self.sent(request, node, &self.args, Why::Poll);
        scene.recorder.record(What::Sent(Box::new(sent)));
        let mut fate = Fate { scene, request, over: Protocol::Http, told: false };
        let path = format!("/v1/calls/{call_id}?wait_ms={wait_ms}");
        fate.tell(scene.api.get(node, &path, &bearer).await)
    }

    fn sent(&self, request: u64, node: usize, args: &Args, why: Why) -> Sent {
        Sent {
            request,
            client: self.client,
            node: u32::try_from(node).unwrap_or(u32::MAX),
            over: Protocol::Http,
            tenant: self.tenant.clone(),
            agent: self.agent.clone(),
            user: self.delegated.then(|| USER.to_owned()),
            tool: format!("{}__{}", tools::ADAPTER, self.tool),
            class: tools::class_of(self.tool).unwrap_or(Class::Opaque),
            needs_approval: tools::needs_approval(self.tool),
            run_id: self.run.clone(),
            key: self.key.clone(),
            args: fingerprint(&args.value()),
            why,
        }
    }

    fn budget(&self) -> Value {
        json!({ "calls_max": self.calls_max, "tool_latency_ms_max": LATENCY_MS })
    }

    fn in_run(&self) -> Value {
        json!({ "run_id": self.run, "safety_mode": "destructive", "run_budget": self.budget() })
    }

    fn key_member(&self) -> String {
        self.key.as_ref().map_or_else(String::new, |key| format!(r#","idempotency_key":"{key}""#))
    }

    fn body(&self, tool: &str, args: &str) -> Bytes {
        let (run, key) = (self.in_run(), self.key_member());
        format!(r#"{{"tool":"{tool}","args":{args}{key},"run":{run}}}"#).into()
    }

    /// The same as a request of the MCP revision without sessions.
    fn body_over_mcp(&self, request: u64, tool: &str, args: &str) -> Bytes {
        let run = json!({ "id": self.run, "safety_mode": "destructive", "budget": self.budget() });
        let mut meta = json!({
            "io.modelcontextprotocol/protocolVersion": MCP_REVISION,
            "io.modelcontextprotocol/clientInfo": { "name": "placet-chaos", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.placet/run": run,
        });
        if let (Some(key), Some(meta)) = (&self.key, meta.as_object_mut()) {
            meta.insert("io.placet/idempotency-key".to_owned(), json!(key));
        }
        let params = format!(r#"{{"name":"{tool}","arguments":{args},"_meta":{meta}}}"#);
        format!(r#"{{"jsonrpc":"2.0","id":{request},"method":"tools/call","params":{params}}}"#)
            .into()
    }

    fn learn(&self, reply: &Reply) {
        *self.last.lock() = Some(reply.answer);
        if is_definite(reply) {
            self.settled.store(true, Ordering::SeqCst);
        }
        if let Some(approval) = &reply.approval_id {
            *self.approval.lock() = Some(approval.clone());
        }
        if let Some(call_id) = &reply.call_id {
            *self.call_id.lock() = Some(call_id.clone());
        }
    }
}

/// Whether an answer is final, as long as nobody decides or resolves anything.
pub(crate) fn is_definite(reply: &Reply) -> bool {
    match reply.answer {
        Answer::InProgress | Answer::InvalidResponse => false,
        Answer::Refused => !is_retryable(reply.code.as_deref()),
        Answer::Succeeded
        | Answer::Failed
        | Answer::Pending
        | Answer::Unknown
        | Answer::Conflict
        | Answer::Expired
        | Answer::Denied => true,
    }
}

/// Whether a refusal says that the same request may succeed later.
pub(crate) fn is_retryable(code: Option<&str>) -> bool {
    matches!(
        code,
        Some(
            "OVERLOADED"
                | "RATE_LIMITED"
                | "LEDGER_UNAVAILABLE"
                | "ADAPTER_UNAVAILABLE"
                | "INTERNAL"
                | "DEADLINE_EXCEEDED"
                | "CREDENTIAL_EXPIRED"
                | "CREDENTIAL_MISCONFIGURED"
                | "IN_PROGRESS"
                | "APPROVAL_VOID"
                | "RUN_NOT_FOUND"
        )
    )
}

/// Records the end of a request, even when the task ends first.
struct Fate<'a> {
    scene: &'a Scene,
    request: u64,
    over: Protocol,
    told: bool,
}

impl Fate<'_> {
    fn tell(&mut self, answered: Result<Answered, Loss>) -> Result<Reply, Loss> {
        self.told = true;
        match answered {
            Ok(answer) => {
                let secrets = [("witness".to_owned(), SECRET.to_owned())];
                let read = match self.over {
                    Protocol::Http => Reply::read,
                    Protocol::Mcp => Reply::read_over_mcp,
                    Protocol::Batch => Reply::read_in_batch,
                };
                let reply = read(self.request, answer.status, &answer.body, &secrets);
                self.scene.recorder.record(What::Reply(Box::new(reply.clone())));
                Ok(reply)
            }
            Err(how) => {
                self.scene.recorder.record(What::Lost(Lost { request: self.request, how }));
                Err(how)
            }
        }
    }
}

impl Drop for Fate<'_> {
    fn drop(&mut self) {
        if !self.told {
            let lost = Lost { request: self.request, how: Loss::Abandoned };
            self.scene.recorder.record(What::Lost(lost));
        }
    }
}
