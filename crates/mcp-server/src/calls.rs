//! One `tools/call` as a call of the engine.
//!
//! Owns how long a request waits and what its client is told meanwhile. A held call is answered as a task where the client offers them,
//! otherwise after a while as pending, with a handle; an equal call of the same run attaches to it instead of asking people again.
//! Invariant: a request that stops waiting ends no call: a closed session or a stop of this process looks the same from here.

use std::{future, pin::pin, sync::Arc, time::Duration};

use futures::{
    FutureExt as _,
    future::{BoxFuture, OptionFuture},
};
use http::request::Parts;
use rmcp::{
    ErrorData, RoleServer,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ProgressNotificationParam,
        ProgressToken, RequestId, RequestMetaObject, ServerRequest,
    },
    service::RequestContext,
};
use serde_json::Value;
use tokio::{
    sync::{Mutex, watch},
    time::Instant,
};

use placet_engine::{
    answer::Answer,
    submission::{Inbound, Submission},
    ticket::{Progress, Steps, Ticket},
};
use placet_identity::VerifiedCaller;
use placet_types::{
    digest::{Digest, DigestBuilder},
    error::Refusal,
    ids::{IdempotencyKey, ToolCallId},
    json::canonical_digest,
};

use crate::{
    elicitation::{self, ApprovalPages},
    meta::CallMeta,
    requests::OpenRequest,
    results::{self, Of, result_of},
    runs::{self, Origin, Placed},
    shared::{Asking, Shared},
    tasks,
    tools::AWAIT,
    uris,
};

/// How often a client with a progress token is told that its call is still awaited, unless the tool's server reports progress.
const PROGRESS: Duration = Duration::from_secs(5);
/// The progress that each such message adds, since progress has to grow: small enough not to hide a step of the server's own count.
const STEP: f64 = 0.001;

/// Answers a `tools/call`.
pub(crate) async fn call(
    shared: &Shared,
    asking: &Asking<'_>,
    params: CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let name = params.name.as_ref();
    if name == AWAIT {
        return collect(shared, asking, &params, context).await.map(CallToolResponse::Complete);
    }
    let pages = shared.settings.pages.as_ref();
    if let Some(resumed) = elicitation::resumed(pages, &asking.caller, &params)? {
        let hold = if resumed.is_declined { Duration::ZERO } else { shared.settings.hold() };
        let of = shared.of(&asking.caller, name);
        let told = follow(shared, asking, &resumed.call, of, context, Waiting::of(hold)).await;
        return told.map(CallToolResponse::Complete);
    }
    submitted(shared, asking, &params, context).await
}

/// A call that is on its way, and what is remembered of its request.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) ticket: Ticket,
    /// Whether it may have an effect.
    has_effect: bool,
    /// The digest that equal calls share; none where only the outcome of an earlier call is collected.
    request: Option<Digest>,
    open: Option<Arc<OpenRequest>>,
}

impl Begun {
    /// Its final answer was sent.
    pub(crate) fn ended(&self, shared: &Shared, session: Option<&str>, id: &RequestId) {
        shared.held.forget_call(self.ticket.call_id());
        if let Some(session) = session {
            shared.requests.answered(session, id);
        }
    }

    /// It is held, or goes on and nobody waits for it: an equal call attaches to it. A read that is not held is made again instead.
    pub(crate) fn remembered(&self, shared: &Shared) {
        let is_needed = self.has_effect || matches!(self.ticket.current(), Answer::Held(_));
        let Some(request) = self.request.filter(|_| is_needed) else { return };
        shared.held.remember(request, self.ticket.call_id().clone());
        // Only then: a cancellation meanwhile has forgotten it before.
        if self.open.as_ref().is_some_and(|open| open.is_cancelled()) {
            shared.held.forget(&request);
        }
    }
}

/// A call that has begun before its request came to the SDK, and goes with it; taken once.
#[derive(Debug, Clone)]
pub(crate) struct Handed(Arc<Mutex<Option<Begun>>>);

impl Handed {
    pub(crate) fn new(begun: Begun) -> Self {
        Self(Arc::new(Mutex::new(Some(begun))))
    }

    fn of(context: &RequestContext<RoleServer>) -> Option<Begun> {
        let parts = context.extensions.get::<Parts>()?;
        parts.extensions.get::<Self>()?.0.try_lock().ok()?.take()
    }
}

/// Begins a call that was not made before, as far as is known; or attaches to an equal one that is held.
pub(crate) async fn begin(
    shared: &Shared,
    asking: &Asking<'_>,
    params: &CallToolRequestParams,
    id: &RequestId,
    meta: &RequestMetaObject,
) -> Result<Result<Begun, Refusal>, ErrorData> {
    let name = params.name.as_ref();
    let CallMeta { run, key } = CallMeta::of(meta)?;
    let origin = Origin {
        session: asking.session,
        client: asking.client.as_deref(),
        // With its quotes, where it is a string: `1` and `"1"` are two requests (JSON-RPC 2.0, section 4).
        request_id: serde_json::to_string(id).unwrap_or_else(|_never| id.to_string()),
        now: shared.clock.now(),
        fresh: shared.ids.fresh(),
    };
    let placed = runs::placed(&asking.caller, run, &origin, shared.settings.tool_latency_ms_max.0)
        .map_err(|one| fault(&one))?;
    let args = params.arguments.clone().unwrap_or_default();
    let request = digest_of(&asking.caller, &placed, name, &Value::Object(args.clone()));
    let attached = match &key {
        None => attached(shared, asking, &request).await,
        Some(_) => None,
    };
    // A call that waits for its caller is made again under its own key: that brings it the new token.
    let renewed = attached.as_ref().and_then(key_of_waiting);
    let ticket = match attached.filter(|_| renewed.is_none()) {
        Some(ticket) => Ok(ticket),
        None => {
            let key = key.or(renewed);
            let submission = submission_of(name, args, placed, key);
            shared.engine.submit(Arc::clone(&asking.caller), submission, inbound_of(meta))
        }
    };
    Ok(ticket.map(|ticket| {
        let open = asking
            .session
            .map(|session| shared.requests.opened(session, id, ticket.call_id(), request));
        let has_effect = shared.engine.may_have_effect(&asking.caller, name);
        Begun { ticket, has_effect, request: Some(request), open }
    }))
}

/// Submits a call, unless its request carries one that was already begun.
async fn submitted(
    shared: &Shared,
    asking: &Asking<'_>,
    params: &CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let of = shared.of(&asking.caller, params.name.as_ref());
    let begun = match Handed::of(context) {
        Some(begun) => Ok(begun),
        None => begin(shared, asking, params, &context.id, &context.meta).await?,
    };
    let hears = Hears::of(shared, asking, context);
    let waited = match begun {
        Ok(begun) => waited(shared, asking, begun, context, hears.waiting(shared)).await,
        Err(refusal) => Err(refusal),
    };
    let answer = match waited {
        Ok(answer) => answer,
        Err(refusal) => return Ok(results::refused(&refusal, of).into()),
    };
    if let Answer::Held(held) = &answer {
        match hears {
            Hears::Task => return Ok(tasks::created(shared, asking, held).await.into()),
            Hears::Page(pages) => {
                let asked = elicitation::asked(&asking.caller, params);
                if let Some(required) = pages.required(held, &asked, shared.clock.now()) {
                    return Ok(required.into());
                }
            }
            Hears::PageMeanwhile(_) | Hears::Result => {}
        }
    }
    result_of(&answer, of).map(CallToolResponse::Complete)
}

/// Waits for a call that has begun. One that is held is remembered, and one that may have an effect and has no end then, so that an equal
/// one attaches to it.
pub(crate) async fn waited(
    shared: &Shared,
    asking: &Asking<'_>,
    mut begun: Begun,
    context: &RequestContext<RoleServer>,
    waiting: Waiting<'_>,
) -> Result<Answer, Refusal> {
    let answer = wait(shared, asking, &mut begun, context, waiting).await?;
    if answer.is_final() {
        shared.held.forget_call(begun.ticket.call_id());
    } else {
        begun.remembered(shared);
    }
    if let Some(session) = asking.session
        && !context.ct.is_cancelled()
    {
        shared.requests.answered(session, &context.id);
    }
    Ok(answer)
}

/// How a client learns that a call is held.
#[derive(Debug, Clone, Copy)]
enum Hears<'a> {
    /// At once, as a task.
    Task,
    /// At once, as a request to open a page.
    Page(&'a ApprovalPages),
    /// After a while as pending, and is asked to open a page meanwhile.
    PageMeanwhile(&'a ApprovalPages),
    /// After a while as pending.
    Result,
}

impl<'a> Hears<'a> {
    fn of(shared: &'a Shared, asking: &Asking<'_>, context: &RequestContext<RoleServer>) -> Self {
        let Some(client) = context.client_capabilities() else { return Self::Result };
        let pages = shared.settings.pages.as_ref();
        let can_open = client.elicitation.as_ref().is_some_and(|elicits| elicits.url.is_some());
        match (pages.filter(|_| can_open), asking.session) {
            // The extension belongs to the revision without sessions: a client in a session may declare it, but accepts no task as a
            // result.
            (_, None) if client.supports_tasks() => Self::Task,
            (Some(pages), None) if elicitation::is_spoken(context) => Self::Page(pages),
            (Some(pages), Some(_)) => Self::PageMeanwhile(pages),
            _ => Self::Result,
        }
    }

    const fn waiting(self, shared: &Shared) -> Waiting<'a> {
        match self {
            Self::Task | Self::Page(_) => Waiting::of(Duration::ZERO),
            Self::PageMeanwhile(pages) => {
                Waiting { hold: shared.settings.hold(), pages: Some(pages) }
            }
            Self::Result => Waiting::of(shared.settings.hold()),
        }
    }
}

/// How a request waits for its call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waiting<'a> {
    /// How long for people.
    hold: Duration,
    /// The pages of which the client is asked to open one meanwhile.
    pages: Option<&'a ApprovalPages>,
}

impl Waiting<'_> {
    pub(crate) const fn of(hold: Duration) -> Self {
        Self { hold, pages: None }
    }
}

/// The pending call that an equal one attaches to.
async fn attached(shared: &Shared, asking: &Asking<'_>, request: &Digest) -> Option<Ticket> {
    let call_id = shared.held.find(request)?;
    Box::pin(shared.engine.follow(&asking.caller, &call_id)).await.ok()
}

/// The key of a held call that waits for its caller to come back with a new token.
fn key_of_waiting(ticket: &Ticket) -> Option<IdempotencyKey> {
    let Answer::Held(held) = ticket.current() else { return None };
    let waits = held.result.pending_approval.as_ref().is_some_and(|one| one.awaits_credential);
    held.result.idempotency_key.clone().filter(|_| waits)
}

/// `placet__await`: the outcome of a pending call of this caller's.
async fn collect(
    shared: &Shared,
    asking: &Asking<'_>,
    params: &CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResult, ErrorData> {
    let of = shared.of(&asking.caller, AWAIT);
    let handle = params.arguments.as_ref().and_then(|args| args.get("handle"));
    let handle = handle.and_then(Value::as_str).and_then(|text| text.parse::<ToolCallId>().ok());
    let Some(handle) = handle else {
        return Ok(results::refused(&results::no_handle(), of));
    };
    follow(shared, asking, &handle, of, context, Waiting::of(shared.settings.hold())).await
}

/// Waits for an earlier call of this caller.
async fn follow(
    shared: &Shared,
    asking: &Asking<'_>,
    call: &ToolCallId,
    of: Of<'_>,
    context: &RequestContext<RoleServer>,
    waiting: Waiting<'_>,
) -> Result<CallToolResult, ErrorData> {
    let waited = match shared.engine.follow(&asking.caller, call).await {
        Ok(ticket) => {
            let begun = Begun { ticket, has_effect: true, request: None, open: None };
            waited(shared, asking, begun, context, waiting).await
        }
        Err(refusal) => Err(refusal),
    };
    match waited {
        Ok(answer) => result_of(&uris::renamed(answer, shared, asking), of),
        Err(refusal) => Ok(results::refused(&refusal, of)),
    }
}

/// Waits for the end of a call, for people only as long as `hold`, and sends progress to a client that asked for it. Stops waiting when the
/// token is revoked; when it expires, no longer waits for people.
async fn wait(
    shared: &Shared,
    asking: &Asking<'_>,
    begun: &mut Begun,
    context: &RequestContext<RoleServer>,
    waiting: Waiting<'_>,
) -> Result<Answer, Refusal> {
    let lasts = shared.engine.expires_in(&asking.caller);
    let until = Instant::now() + waiting.hold.min(lasts);
    let mut revoked = pin!(shared.engine.revoked(Arc::clone(&asking.caller)));
    let mut tick = tokio::time::interval_at(Instant::now() + PROGRESS, PROGRESS);
    let mut progress =
        context.meta.get_progress_token().map(|token| Teller::new(context, token, &begun.ticket));
    let mut page: Option<BoxFuture<'_, ()>> = None;
    loop {
        let current = begun.ticket.current();
        if let (None, Some(pages), Answer::Held(held)) = (&page, waiting.pages, &current) {
            page = pages.told(held).map(|request| opened(context, request).boxed());
        }
        let is_held = matches!(current, Answer::Held(_));
        if current.is_final() || (is_held && Instant::now() >= until) {
            if let Some(progress) = &mut progress {
                progress.tell_last_steps().await;
            }
            return Ok(current);
        }
        if is_held {
            begun.remembered(shared);
        }
        tokio::select! {
            biased;
            refusal = &mut revoked => return Err(refusal),
            // Nobody receives the answer; the call goes on.
            () = context.ct.cancelled() => return Ok(current),
            Some(step) = OptionFuture::from(progress.as_mut().map(Teller::step)) => {
                if let Some(progress) = &mut progress {
                    progress.tell_step(step).await;
                }
            }
            _answer = begun.ticket.changed() => {}
            () = tokio::time::sleep_until(until), if is_held => {}
            // The call stays held, and its outcome can be had after the restart.
            () = shared.closing.cancelled(), if is_held => return Ok(current),
            // The person's response to the page request decides nothing.
            Some(()) = OptionFuture::from(page.as_mut()) => {}
            _ = tick.tick(), if progress.is_some() => {
                if let Some(progress) = &mut progress {
                    progress.tell_waiting(&current).await;
                }
            }
        }
    }
}

/// Asks a client to open a page. Never ends: that it was opened says nothing.
async fn opened(context: &RequestContext<RoleServer>, request: ServerRequest) {
    if let Err(error) = context.peer.send_request(request).await {
        tracing::debug!(%error, "a client was not asked to open the page of an approval");
    }
    future::pending().await
}

/// Sends progress to a client that gave a token for it. The progress value only grows, as the specification demands.
struct Teller<'a> {
    context: &'a RequestContext<RoleServer>,
    token: ProgressToken,
    /// The progress that the tool's server reports.
    steps: Option<watch::Receiver<Steps>>,
    is_told_by_server: bool,
    done: Option<f64>,
}

impl<'a> Teller<'a> {
    fn new(context: &'a RequestContext<RoleServer>, token: ProgressToken, ticket: &Ticket) -> Self {
        Self { context, token, steps: ticket.steps(), is_told_by_server: false, done: None }
    }

    /// The next step of the server. Never, when there is none.
    async fn step(&mut self) -> Progress {
        let is_news = |step: &&Progress| is_news(self.done, step.done);
        if let Some(steps) = &mut self.steps
            && let Ok(steps) = steps.wait_for(|steps| steps.iter().any(|step| is_news(&step))).await
            && let Some(step) = steps.iter().find(is_news)
        {
            return *step;
        }
        future::pending().await
    }

    async fn tell_step(&mut self, step: Progress) {
        self.is_told_by_server = true;
        self.tell(step.done, step.total, None).await;
    }

    /// The steps that came with the end of the call, if any did.
    async fn tell_last_steps(&mut self) {
        let Some(steps) = &self.steps else { return };
        let last: Steps = steps.borrow().clone();
        for step in last {
            self.tell_step(step).await;
        }
    }

    /// Reports that the call is still awaited and, if it is held, who is awaited. Silent once the server of a running call reports
    /// progress.
    async fn tell_waiting(&mut self, current: &Answer) {
        let awaited = match current {
            Answer::Held(held) => Some(results::awaited(held)),
            Answer::InProgress(_) | Answer::Finished(_) | Answer::Refused(_) => {
                if self.is_told_by_server {
                    return;
                }
                None
            }
        };
        self.tell(self.done.unwrap_or(0.0) + STEP, None, awaited).await;
    }

    async fn tell(&mut self, done: f64, total: Option<f64>, message: Option<String>) {
        if !is_news(self.done, done) {
            return;
        }
        self.done = Some(done);
        let mut progress = ProgressNotificationParam::new(self.token.clone(), done);
        (progress.total, progress.message) = (total, message);
        if let Err(error) = self.context.peer.notify_progress(progress).await {
            tracing::debug!(%error, "a client could not be told of progress");
        }
    }
}

/// Whether the count has grown, so that the client may be told.
fn is_news(told: Option<f64>, done: f64) -> bool {
    told.is_none_or(|told| done > told)
}

fn submission_of(
    tool: &str,
    args: serde_json::Map<String, Value>,
    placed: Placed,
    key: Option<IdempotencyKey>,
) -> Submission {
    Submission {
        tool: tool.to_owned(),
        args,
        step_id: Some(placed.step_id),
        request_id: Some(placed.request_id),
        ordinal: 0,
        idempotency_key: key,
        approval_mode_requested: None,
        wait_ms: None,
        callback: None,
        run: placed.run,
        evidence_refs: Vec::new(),
        metadata: None,
    }
}

fn inbound_of(meta: &RequestMetaObject) -> Inbound {
    let text = |key: &str| meta.0.get(key).and_then(Value::as_str).map(str::to_owned);
    Inbound { traceparent: text("traceparent"), tracestate: text("tracestate") }
}

/// The digest that equal calls share.
fn digest_of(caller: &VerifiedCaller, placed: &Placed, tool: &str, args: &Value) -> Digest {
    caller
        .chain()
        .digest_into(DigestBuilder::new("placet.mcp_equal_call.v1"))
        .field("run", placed.run.run_id.as_str())
        .field("tool", tool)
        .field("args", canonical_digest(args).to_string())
        .finish()
}

fn fault(refusal: &Refusal) -> ErrorData {
    ErrorData::internal_error(refusal.message.clone(), None)
}
