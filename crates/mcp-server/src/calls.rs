//! One `tools/call` as a call of the engine.
//!
//! Owns how long a request waits and what it hears meanwhile. A call that is held for longer is answered as pending, with a handle; an equal
//! call of the same run attaches to it instead of asking people again. Invariant: a client that goes away cancels nothing; one that cancels
//! withdraws what was not sent, and gets the truth about what was.

use std::{sync::Arc, time::Duration};

use rmcp::{
    ErrorData, RoleServer,
    model::{CallToolRequestParams, CallToolResult, ProgressNotificationParam, ProgressToken},
    service::RequestContext,
};
use serde_json::Value;
use tokio::time::Instant;

use placet_approvals::views::WithdrawalRequest;
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
    results::{self, Of, result_of, unknown_tool},
    runs::{self, Origin, Placed},
    shared::{Asking, Shared},
    tools::{AWAIT, declares_output},
};

/// How often a client that asked for progress hears that its call is still waited for.
const PROGRESS: Duration = Duration::from_secs(5);

/// Answers a `tools/call`.
pub(crate) async fn call(
    shared: &Shared,
    asking: &Asking<'_>,
    params: CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResult, ErrorData> {
    let name = params.name.as_ref();
    if name == AWAIT {
        return collect(shared, asking, &params, context).await;
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
    let tools = shared.engine.tools(&asking.caller);
    let of = Of { tool: name, declares_output: declares_output(&tools, name) };
    let args = params.arguments.clone().unwrap_or_default();
    let request = digest_of(&asking.caller, &placed, name, &Value::Object(args.clone()));
    let held = shared.held.find(&request).filter(|_| key.is_none());
    let ticket = match held {
        Some(call_id) => shared.engine.follow(&asking.caller, &call_id).await.ok(),
        None => None,
    };
    let ticket = match ticket {
        Some(ticket) => Ok(ticket),
        None => {
            let submission = submission_of(name, args, placed, key);
            let inbound = inbound_of(context);
            shared.engine.submit(Arc::clone(&asking.caller), submission, inbound)
        }
    };
    let mut ticket = match ticket {
        Ok(ticket) => ticket,
        Err(refusal) => return Ok(results::refused(&refusal, of)),
    };
    let answer = wait(shared, asking, &mut ticket, context).await;
    if answer.is_final() {
        shared.held.forget(&request);
    } else {
        shared.held.remember(request, ticket.call_id().clone());
    }
    result_of(&answer, of)
}

/// `placet__await`: the outcome of a pending call of this caller's.
async fn collect(
    shared: &Shared,
    asking: &Asking<'_>,
    params: &CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResult, ErrorData> {
    let of = Of { tool: AWAIT, declares_output: false };
    let handle = params.arguments.as_ref().and_then(|args| args.get("handle"));
    let handle = handle.and_then(Value::as_str).and_then(|text| text.parse::<ToolCallId>().ok());
    let Some(handle) = handle else {
        return Ok(results::refused(&results::no_handle(), of));
    };
    match shared.engine.follow(&asking.caller, &handle).await {
        Ok(mut ticket) => result_of(&wait(shared, asking, &mut ticket, context).await, of),
        Err(refusal) => Ok(results::refused(&refusal, of)),
    }
}

/// Waits for the end of a call, and tells a client that wants to know that it is still waited for.
async fn wait(
    shared: &Shared,
    asking: &Asking<'_>,
    ticket: &mut Ticket,
    context: &RequestContext<RoleServer>,
) -> Answer {
    let until = Instant::now() + shared.settings.hold;
    let token = context.meta.get_progress_token();
    let mut steps = 0.0;
    loop {
        let current = ticket.current();
        let left = until.saturating_duration_since(Instant::now());
        if current.is_final() || (left.is_zero() && matches!(current, Answer::Held(_))) {
            return current;
        }
        tokio::select! {
            biased;
            () = context.ct.cancelled(), if asking.session.is_some() => {
                withdraw(shared, &asking.caller, &current).await;
                return ticket.current();
            }
            _answer = ticket.changed() => {}
            () = tokio::time::sleep(PROGRESS.min(left.max(Duration::from_millis(1)))) => {
                steps += 1.0;
                tell_progress(context, token.clone(), steps, &current).await;
            }
        }
    }
}

/// What was not sent does not run any more.
async fn withdraw(shared: &Shared, caller: &VerifiedCaller, answer: &Answer) {
    let Answer::Held(held) = answer else { return };
    let request = WithdrawalRequest { reason: "cancelled by the MCP client".to_owned() };
    let withdrawn = shared.engine.approvals().withdraw(caller, &held.approval_id, request).await;
    if let Err(error) = withdrawn {
        tracing::info!(code = %error.code, call_id = %held.call_id, "a cancelled call could not be withdrawn");
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
