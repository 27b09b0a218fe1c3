//! The spans of a call.
//!
//! Owns which spans exist, their fields and how they join a remote trace. Does not export them (see [`crate::export`]).
//! Invariants: arguments, results and credentials have no parameter here, so they cannot reach a span; a trace id exists
//! for every call, also when nothing is exported; a malformed `traceparent` starts a new trace and never fails a call.
//!
//! A span is enabled only under a subscriber of [`crate::export`]; without one, all functions do nothing. Where nothing is exported, only
//! the call's own span is made: it stands for its stages and attempts, in log lines and in the trace context passed on.

use opentelemetry::trace::TraceContextExt;
use opentelemetry::{Context, trace::SpanContext};
use placet_types::envelope::result::ResultStatus;
use placet_types::error::ErrorCode;
use placet_types::mode::ApprovalMode;
use tracing::Span;
use tracing::field::Empty;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::names::{DETAIL_TARGET, TARGET, attribute};
use crate::traceparent::TraceParent;

/// A stage of a call: a span below `placet.call`, and a label of the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Schema, identity of the call, defaults.
    Build,
    /// Identity of the caller.
    Broker,
    /// The decision.
    Gate,
    /// From the permit to the answer of the adapter.
    Invoke,
    /// Settling, result envelope, audit.
    Return,
    /// Waiting for people, or one decision of theirs.
    Approval,
}

impl Stage {
    /// Every stage there is.
    pub const ALL: [Self; 6] =
        [Self::Build, Self::Broker, Self::Gate, Self::Invoke, Self::Return, Self::Approval];

    /// The name without its prefix, as the metrics show it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Build => "build",
            Self::Broker => "broker",
            Self::Gate => "gate",
            Self::Invoke => "invoke",
            Self::Return => "return",
            Self::Approval => "approval",
        }
    }
}

/// What is known of a call when its span starts. What is not known yet is recorded later, by [`record_call`].
#[derive(Clone, Copy, Debug, Default)]
pub struct CallFields<'a> {
    /// The tenant.
    pub tenant: Option<&'a str>,
    /// The run.
    pub run_id: Option<&'a str>,
    /// The call.
    pub tool_call_id: Option<&'a str>,
    /// The tool, as the caller names it.
    pub tool: Option<&'a str>,
}

/// What is known of an attempt at an adapter.
#[derive(Clone, Copy, Debug)]
pub struct AdapterFields<'a> {
    /// The adapter, by the name of its contract.
    pub adapter: &'a str,
    /// The MCP method, if the adapter is an MCP server.
    pub mcp_method: Option<&'a str>,
    /// The tool, as the adapter names it.
    pub tool: &'a str,
    /// From 1.
    pub attempt: u32,
}

/// A span of a call or of a part of it, with the fields that become known later.
macro_rules! span_of_call {
    ($target:expr, $parent:expr, $name:expr $(, $key:path = $value:expr)*) => {
        tracing::info_span!(
            target: $target,
            parent: $parent,
            $name,
            $({ $key } = $value,)*
            { attribute::TENANT } = Empty,
            { attribute::RUN_ID } = Empty,
            { attribute::TOOL_CALL_ID } = Empty,
            { attribute::TOOL_NAME } = Empty,
            { attribute::ADAPTER } = Empty,
            { attribute::MODE_EFFECTIVE } = Empty,
            { attribute::POLICY_DECISION_ID } = Empty,
            { attribute::APPROVAL_ID } = Empty,
            { attribute::APPROVAL_RESULT } = Empty,
            { attribute::STATUS } = Empty,
            { attribute::ERROR_CODE } = Empty,
            { attribute::REPLAYED } = Empty,
            { attribute::OTEL_STATUS } = Empty,
        )
    };
}

macro_rules! span_of_stage {
    ($target:expr, $parent:expr, $stage:expr) => {
        match $stage {
            Stage::Build => span_of_call!($target, $parent, "placet.build"),
            Stage::Broker => span_of_call!($target, $parent, "placet.broker"),
            Stage::Gate => span_of_call!($target, $parent, "placet.gate"),
            Stage::Invoke => span_of_call!($target, $parent, "placet.invoke"),
            Stage::Return => span_of_call!($target, $parent, "placet.return"),
            Stage::Approval => span_of_call!($target, $parent, "placet.approval"),
        }
    };
}

/// The root span of a call. It joins the remote trace, or starts one.
pub fn call_span(
    parent: Option<&TraceParent>,
    tracestate: Option<&str>,
    fields: &CallFields<'_>,
) -> Span {
    let span = span_of_call!(
        TARGET,
        None,
        "placet.call",
        attribute::OTEL_KIND = "server",
        attribute::OPERATION_NAME = "execute_tool"
    );
    record_call(&span, fields);
    if let Some(parent) = parent {
        join(&span, parent, tracestate);
    }
    span
}

/// The span of a stage, below another span.
pub fn stage_span(parent: &Span, stage: Stage) -> Span {
    or_parent(span_of_stage!(DETAIL_TARGET, parent.id(), stage), parent)
}

/// Where there are no detail spans, the parent.
fn or_parent(span: Span, parent: &Span) -> Span {
    if span.is_disabled() { parent.clone() } else { span }
}

/// The span of a stage of a call that was held and goes on later, perhaps in another process. It is a child of the span
/// whose `traceparent` was kept, in the same trace.
pub fn continue_span(
    traceparent: &str,
    tracestate: Option<&str>,
    stage: Stage,
    fields: &CallFields<'_>,
) -> Span {
    let span = span_of_stage!(TARGET, None, stage);
    record_call(&span, fields);
    if let Some(parent) = TraceParent::parse(traceparent) {
        join(&span, &parent, tracestate);
    }
    span
}

/// The span of one attempt at an adapter. Its [`traceparent_of`] is what the adapter passes on.
pub fn adapter_span(parent: &Span, fields: &AdapterFields<'_>) -> Span {
    let span = tracing::info_span!(
        target: DETAIL_TARGET,
        parent: parent,
        "placet.adapter",
        { attribute::OTEL_KIND } = "client",
        { attribute::ADAPTER } = fields.adapter,
        { attribute::MCP_SERVER_ID } = fields.mcp_method.map(|_| fields.adapter),
        { attribute::MCP_METHOD } = fields.mcp_method,
        { attribute::TOOL_NAME } = fields.tool,
        // A signed number is exported as a number, an unsigned one as text.
        { attribute::ATTEMPT } = i64::from(fields.attempt),
        { attribute::STATUS } = Empty,
        { attribute::ERROR_CODE } = Empty,
        { attribute::OTEL_STATUS } = Empty,
    );
    or_parent(span, parent)
}

/// Records what has become known of the call.
pub fn record_call(span: &Span, fields: &CallFields<'_>) {
    let CallFields { tenant, run_id, tool_call_id, tool } = *fields;
    for (key, value) in [
        (attribute::TENANT, tenant),
        (attribute::RUN_ID, run_id),
        (attribute::TOOL_CALL_ID, tool_call_id),
        (attribute::TOOL_NAME, tool),
    ] {
        if let Some(value) = value {
            span.record(key, value);
        }
    }
}

/// Records which adapter the tool resolved to.
pub fn record_adapter(span: &Span, adapter: &str) {
    span.record(attribute::ADAPTER, adapter);
}

/// Records the decision of the gate (TM-20).
pub fn record_decision(span: &Span, effective: ApprovalMode, policy_decision_id: &str) {
    span.record(attribute::MODE_EFFECTIVE, effective.as_str());
    span.record(attribute::POLICY_DECISION_ID, policy_decision_id);
}

/// Records which approval the call waits or waited for, and what became of it.
pub fn record_approval(span: &Span, approval_id: &str, result: Option<&'static str>) {
    span.record(attribute::APPROVAL_ID, approval_id);
    if let Some(result) = result {
        span.record(attribute::APPROVAL_RESULT, result);
    }
}

/// Records how the call, or the attempt, ended.
pub fn record_outcome(span: &Span, status: ResultStatus, code: Option<ErrorCode>) {
    span.record(attribute::STATUS, status.as_str());
    if let Some(code) = code {
        span.record(attribute::ERROR_CODE, code.as_str());
        span.record(attribute::OTEL_STATUS, "error");
    }
}

/// Records that the result came from the ledger and the adapter was not called.
pub fn record_replayed(span: &Span) {
    span.record(attribute::REPLAYED, true);
}

/// The span's position in its trace, which makes a receiver's spans its children.
pub fn parent_of(span: &Span) -> Option<TraceParent> {
    TraceParent::of(&span_context(span))
}

/// The header that makes a receiver's spans children of this one.
pub fn traceparent_of(span: &Span) -> Option<String> {
    parent_of(span).map(|parent| parent.to_string())
}

/// The `tracestate` that came in, to be sent along with [`traceparent_of`].
pub fn tracestate_of(span: &Span) -> Option<String> {
    let header = span_context(span).trace_state().header();
    (!header.is_empty()).then_some(header)
}

fn span_context(span: &Span) -> SpanContext {
    span.context().span().span_context().clone()
}

/// Must come before the span is entered or asked for its context.
fn join(span: &Span, parent: &TraceParent, tracestate: Option<&str>) {
    let context = Context::new().with_remote_span_context(parent.remote_context(tracestate));
    if let Err(error) = span.set_parent(context) {
        tracing::trace!(%error, "the span could not join the remote trace");
    }
}
