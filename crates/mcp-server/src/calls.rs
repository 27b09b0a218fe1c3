//! One `tools/call` as a call of the engine.
//!
//! Owns how long a request waits and what it hears meanwhile. A call that is held is answered as a task where the client offers them, otherwise
//! after a while as pending, with a handle; an equal call of the same run attaches to it instead of asking people again. Invariant: a request
//! that is not waited for any more ends no call: a session that is closed, or a stop of this process, looks the same from here.

use std::{pin::pin, sync::Arc, time::Duration};

use rmcp::{
    ErrorData, RoleServer,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ProgressNotificationParam,
        ProgressToken,
    },
    service::RequestContext,
};
use serde_json::Value;
use tokio::time::Instant;

use placet_engine::{
    answer::Answer,
    submission::{Inbound, Submission},
    ticket::Ticket,
};
use placet_identity::VerifiedCaller;
use placet_types::{
    digest::{Digest, DigestBuilder},
    error::Refusal,
    ids::ToolCallId,
    json::canonical_digest,
};

use crate::{
    meta::CallMeta,
    results::{self, result_of, unknown_tool},
    runs::{self, Origin, Placed},
    shared::{Asking, Shared},
    tasks,
    tools::AWAIT,
};

/// How often a client that asked for progress hears that its call is still waited for.
const PROGRESS: Duration = Duration::from_secs(5);

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
    if asking.adapter.is_some_and(|adapter| !is_of(name, adapter.as_str())) {
        return Err(unknown_tool(name));
    }
    let meta = CallMeta::of(&context.meta)?;
    let origin = Origin {
        session: asking.session,
        client: asking.client.as_deref(),
        request_id: context.id.to_string(),
        now: shared.clock.now(),
        fresh: shared.ids.fresh(),
    };
    let key = meta.key;
    let placed =
        runs::placed(&asking.caller, meta.run, &shared.seen, &origin).map_err(|one| fault(&one))?;
    let of = shared.of(&asking.caller, name);
    let args = params.arguments.clone().unwrap_or_default();
    let request = digest_of(&asking.caller, &placed, name, &Value::Object(args.clone()));
    let ticket = match attached(shared, asking, &request).await.filter(|_| key.is_none()) {
        Some(ticket) => Ok(ticket),
        None => {
            let submission = submission_of(name, args, placed, key);
            let inbound = inbound_of(context);
            shared.engine.submit(Arc::clone(&asking.caller), submission, inbound)
        }
    };
    let mut ticket = match ticket {
        Ok(ticket) => ticket,
        Err(refusal) => return Ok(results::refused(&refusal, of).into()),
    };
    let open = asking
        .session
        .map(|session| shared.requests.opened(session, &context.id, ticket.call_id(), request));
    let is_task = context.client_capabilities().is_some_and(|client| client.supports_tasks());
    let hold = if is_task { Duration::ZERO } else { shared.settings.hold };
    let answer = match wait(shared, asking, &mut ticket, context, hold).await {
        Ok(answer) => answer,
        Err(refusal) => return Ok(results::refused(&refusal, of).into()),
    };
    if answer.is_final() {
        shared.held.forget(&request);
    } else if !open.is_some_and(|open| open.is_cancelled()) {
        shared.held.remember(request, ticket.call_id().clone());
    }
    if let Some(session) = asking.session
        && !context.ct.is_cancelled()
    {
        shared.requests.answered(session, &context.id);
    }
    if let (true, Answer::Held(held)) = (is_task, &answer) {
        return Ok(tasks::created(shared, asking, held).await.into());
    }
    result_of(&answer, of).map(CallToolResponse::Complete)
}

/// The pending call that an equal one attaches to.
async fn attached(shared: &Shared, asking: &Asking<'_>, request: &Digest) -> Option<Ticket> {
    let call_id = shared.held.find(request)?;
    shared.engine.follow(&asking.caller, &call_id).await.ok()
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
    match shared.engine.follow(&asking.caller, &handle).await {
        Ok(mut ticket) => {
            match wait(shared, asking, &mut ticket, context, shared.settings.hold).await {
                Ok(answer) => result_of(&answer, of),
                Err(refusal) => Ok(results::refused(&refusal, of)),
            }
        }
        Err(refusal) => Ok(results::refused(&refusal, of)),
    }
}

/// Waits for the end of a call, for people only as long as `hold`, and tells a client that wants to know that it is still waited for. With a
/// token that is revoked or expires nothing is waited for any more.
async fn wait(
    shared: &Shared,
    asking: &Asking<'_>,
    ticket: &mut Ticket,
    context: &RequestContext<RoleServer>,
    hold: Duration,
) -> Result<Answer, Refusal> {
    let lasts = shared.engine.expires_in(&asking.caller);
    let until = Instant::now() + hold.min(lasts);
    let mut revoked = pin!(shared.engine.revoked(Arc::clone(&asking.caller)));
    let mut tick = tokio::time::interval_at(Instant::now() + PROGRESS, PROGRESS);
    let token = context.meta.get_progress_token();
    let mut steps = 0.0;
    loop {
        let current = ticket.current();
        let is_held = matches!(current, Answer::Held(_));
        if current.is_final() || (is_held && Instant::now() >= until) {
            return Ok(current);
        }
        tokio::select! {
            biased;
            refusal = &mut revoked => return Err(refusal),
            // Nobody hears the answer; the call goes on.
            () = context.ct.cancelled() => return Ok(current),
            _answer = ticket.changed() => {}
            () = tokio::time::sleep_until(until), if is_held => {}
            _ = tick.tick() => {
                steps += 1.0;
                tell_progress(context, token.clone(), steps, &current).await;
            }
        }
    }
}

async fn tell_progress(
    context: &RequestContext<RoleServer>,
    token: Option<ProgressToken>,
    steps: f64,
    current: &Answer,
) {
    let Some(token) = token else { return };
    let mut progress = ProgressNotificationParam::new(token, steps);
    if let Answer::Held(held) = current {
        progress.message = Some(results::awaited(held));
    }
    if let Err(error) = context.peer.notify_progress(progress).await {
        tracing::debug!(%error, "a client could not be told of progress");
    }
}

/// Whether a tool's name is one of the adapter's.
fn is_of(tool: &str, adapter: &str) -> bool {
    tool.strip_prefix(adapter).is_some_and(|rest| rest.starts_with("__"))
}

fn submission_of(
    tool: &str,
    args: serde_json::Map<String, Value>,
    placed: Placed,
    key: Option<placet_types::ids::IdempotencyKey>,
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

fn inbound_of(context: &RequestContext<RoleServer>) -> Inbound {
    let text = |key: &str| context.meta.0.get(key).and_then(Value::as_str).map(str::to_owned);
    Inbound { traceparent: text("traceparent"), tracestate: text("tracestate") }
}

/// What calls are equal in.
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
