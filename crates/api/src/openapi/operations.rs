//! The operations of the document, one by one.
//!
//! Owns their texts, parameters and responses. Invariant: an operation that is not open names the credential it requires and the refusals
//! every verified route can return.

pub(super) mod directives;
pub(super) mod runs;
pub(super) mod sessions;

use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Value, json};
use utoipa::openapi::{
    Content, ContentBuilder, Required, Response, ResponseBuilder, SecurityRequirement,
    header::{Header, HeaderBuilder},
    path::{OperationBuilder, ParameterBuilder, ParameterIn},
    request_body::{RequestBody, RequestBodyBuilder},
};

use placet_approvals::views::{ApprovalDetail, ApprovalView, DecisionRequest};
use placet_engine::{
    engine::evidence::{AuditKeyView, ConsistencyView, InclusionView, ReceiptView},
    report::ReportView,
    submission::Submission,
    views::{
        RECORD_STATES, RearmRequest, RecordView, ResolutionRequest,
        decisions::{CallOutcome, DecisionVerdict, DecisionView, DecisionsPage},
        status::{ReloadRequest, ReloadView, StatusView},
    },
};
use placet_types::{
    envelope::result::ToolResultEnvelope,
    ids::{ApprovalId, PrincipalId, RecordId, RunId},
};

use super::{
    BEARER,
    schemas::{carried, identifier, reference},
};
use crate::{
    answer::JSON,
    documents::{
        AboutDocument, ApprovalList, CheckpointList, ErrorDocument, ProtectedResourceDocument,
        RecordList, ToolList,
    },
    problem::{PROBLEM_JSON, ProblemDocument},
    query::{LIMIT_DEFAULT, LIMIT_MAX, WAIT_MS_MAX},
    routes::{approvals::states, reports::MS_MAX},
};

pub(super) fn list_tools(docs: &mut SchemaGenerator) -> OperationBuilder {
    start("listTools", "tools", "Lists the tools the caller may use")
        .response("200", ok::<ToolList>(docs, "The tools"))
}

pub(super) fn list_approvals(docs: &mut SchemaGenerator) -> OperationBuilder {
    let state = json!({ "type": "string", "enum": states() });
    let start = start("listApprovals", "approvals", "Lists approvals the caller may see");
    paged::<ApprovalId>(start)
        .parameter(query("state", "Only approvals in this state", state))
        .response("200", ok::<ApprovalList>(docs, "A page of approvals"))
}

pub(super) fn get_approval(docs: &mut SchemaGenerator) -> OperationBuilder {
    identified(start("getApproval", "approvals", "Shows an approval and the call it holds"))
        .response("200", ok::<ApprovalDetail>(docs, "The approval and the frozen proposal"))
}

pub(super) fn decide_approval(docs: &mut SchemaGenerator) -> OperationBuilder {
    identified(start("decideApproval", "approvals", "Approves or denies a held call"))
        .request_body(Some(body::<DecisionRequest>(docs)))
        .response("200", ok::<ApprovalView>(docs, "The approval after the decision"))
}

pub(super) fn list_records(docs: &mut SchemaGenerator) -> OperationBuilder {
    let state = json!({ "type": "string", "enum": RECORD_STATES });
    paged::<RecordId>(start("listRecords", "ledger", "Lists effect records; for operators"))
        .parameter(query("state", "Only records in this state", state))
        .response("200", ok::<RecordList>(docs, "A page of records"))
}

pub(super) fn get_record(docs: &mut SchemaGenerator) -> OperationBuilder {
    identified(start("getRecord", "ledger", "Shows an effect record"))
        .response("200", ok::<RecordView>(docs, "The record"))
}

pub(super) fn about(docs: &mut SchemaGenerator) -> OperationBuilder {
    start("about", "about", "Describes this service and where to find its parts")
        .response("200", ok::<AboutDocument>(docs, "The description"))
}

pub(super) fn this_document(_: &mut SchemaGenerator) -> OperationBuilder {
    let content = ContentBuilder::new().schema(Some(carried(json!({ "type": "object" })))).build();
    let document =
        ResponseBuilder::new().description("The OpenAPI document").content(JSON, content);
    start("describe", "about", "Returns this OpenAPI document").response("200", document.build())
}

pub(super) fn metadata(docs: &mut SchemaGenerator) -> OperationBuilder {
    start("protectedResource", "about", "Returns the protected resource metadata (RFC 9728)")
        .response("200", ok::<ProtectedResourceDocument>(docs, "The metadata"))
}

pub(super) fn submit_call(docs: &mut SchemaGenerator) -> OperationBuilder {
    let key = json!({ "type": "string", "minLength": 1, "maxLength": 256 });
    let key_about =
        "The effect happens at most once under this key. The body may carry it instead.";
    let trace = |name| header(name, "W3C Trace Context; passed on to the adapter.", text());
    call_answers(docs, start("submitCall", "calls", "Submits a tool call for decision and execution"))
        .description(Some(
            "Returns when the call has ended, or has been held for longer than `wait_ms`. A repetition of a \
             call in flight waits for it, for up to `wait_ms` (default here: 30,000), and then returns `IN_PROGRESS`.",
        ))
        .parameter(header("Idempotency-Key", key_about, key))
        .parameter(trace("traceparent"))
        .parameter(trace("tracestate"))
        .request_body(Some(body::<Submission>(docs)))
}

pub(super) fn get_call(docs: &mut SchemaGenerator) -> OperationBuilder {
    let wait = json!({ "type": "integer", "minimum": 0, "maximum": WAIT_MS_MAX, "default": 0 });
    call_answers(docs, identified(start("getCall", "calls", "Returns the state of a call")))
        .parameter(query("wait_ms", "How long to wait for the call to end, in milliseconds", wait))
}

pub(super) fn follow_call(_: &mut SchemaGenerator) -> OperationBuilder {
    let stream = events(
        "Server-sent events: `held`, `in_progress`, `finished`, `refused`, each with the call's `ToolResultEnvelope` \
         as data. The stream ends with the call or at a time limit. If the caller's token becomes invalid, the last event \
         is `ended`, with the problem document as data.",
    );
    identified(start("followCall", "calls", "Follows a call to its end")).response("200", stream)
}

pub(super) fn rearm_record(docs: &mut SchemaGenerator) -> OperationBuilder {
    identified(start(
        "rearmRecord",
        "ledger",
        "Requests that a call with an unknown outcome be sent again; for operators, by default two of them",
    ))
    .request_body(Some(body::<RearmRequest>(docs)))
    .response("200", ok::<RecordView>(docs, "The record after the request"))
}

pub(super) fn resolve_record(docs: &mut SchemaGenerator) -> OperationBuilder {
    identified(start("resolveRecord", "ledger", "Resolves an unknown outcome; for operators"))
        .request_body(Some(body::<ResolutionRequest>(docs)))
        .response("200", ok::<RecordView>(docs, "The record after the resolution"))
}

pub(super) fn show_report(docs: &mut SchemaGenerator) -> OperationBuilder {
    start("showReport", "report", "Reports metrics of calls by adapter and capability; for operators")
        .description(Some(
            "The five evaluation metrics for a range of at most 31 days, computed from the audit chain.",
        ))
        .parameter(query(
            "from",
            "The start (inclusive), in milliseconds since 1970; default: a day before `to`",
            moment(),
        ))
        .parameter(query("to", "The end (exclusive); default: now", moment()))
        .response("200", ok::<ReportView>(docs, "The report"))
}

pub(super) fn show_status(docs: &mut SchemaGenerator) -> OperationBuilder {
    start("showStatus", "status", "Shows what is active on this node and whether it matches disk")
        .description(Some(
            "For every verified caller. Where nodes share a ledger, `epoch_elsewhere` is the epoch that another node has activated and \
             this node lacks; this node decides no calls until it has the same files.",
        ))
        .response("200", ok::<StatusView>(docs, "The status of this node"))
}

pub(super) fn reload(docs: &mut SchemaGenerator) -> OperationBuilder {
    start("reload", "status", "Reloads policies, contracts, directory and issuers; for operators")
        .description(Some(
            "All or nothing: everything is read and checked as at startup. If a file cannot be used, nothing changes, and `problems` \
             names it. Every call is decided either by the old files or by the new ones, never by a mixture. `needs_restart` names the \
             changed keys of the rest of the configuration, which a reload does not apply.",
        ))
        .request_body(Some(body::<ReloadRequest>(docs)))
        .response("200", ok::<ReloadView>(docs, "What changed, and what is active now"))
}

pub(super) fn get_decision(docs: &mut SchemaGenerator) -> OperationBuilder {
    let what = "Shows a policy decision on a call, with the policies that determined it";
    identified(start("getDecision", "decisions", what))
        .response("200", ok::<DecisionView>(docs, "The decision"))
}

pub(super) fn show_error(docs: &mut SchemaGenerator) -> OperationBuilder {
    let unknown = problem(docs, "No such error code").build();
    identified(start("showError", "about", "Shows what an error code means and what to do"))
        .response("200", ok::<ErrorDocument>(docs, "The error code and its meaning"))
        .response("404", unknown)
}

pub(super) fn list_decisions(docs: &mut SchemaGenerator) -> OperationBuilder {
    let verdict =
        json!({ "type": "string", "enum": DecisionVerdict::ALL.map(DecisionVerdict::as_str) });
    let outcome = json!({ "type": "string", "enum": CallOutcome::ALL.map(CallOutcome::as_str) });
    start("listDecisions", "decisions", "Lists policy decisions on calls, newest first")
        .description(Some(
            "For people: operators and auditors see all decisions of their tenant, others those on calls of their agents or made for \
             them. One request reads a limited number of audit entries. If the page ended at that limit, `incomplete` is true; \
             continue with `next_to`.",
        ))
        .parameter(query("agent", "Only for calls of this agent", identifier::<PrincipalId>()))
        .parameter(query("tool", "Only for calls of this tool", text()))
        .parameter(query("verdict", "Only with this verdict", verdict))
        .parameter(query("outcome", "Only for calls with this outcome", outcome))
        .parameter(query("policy", "Only those that this policy determined", text()))
        .parameter(query("run", "Only for calls of runs with this id", identifier::<RunId>()))
        .parameter(query("from", "The start (inclusive), in milliseconds since 1970; default: a day before `to`", moment()))
        .parameter(query("to", "The end (exclusive); default: now", moment()))
        .parameter(query("limit", "The maximum number; exceeded only by decisions of the same millisecond", limit()))
        .response("200", ok::<DecisionsPage>(docs, "A page of decisions"))
}

pub(super) fn get_receipt(docs: &mut SchemaGenerator) -> OperationBuilder {
    identified(start("getReceipt", "audit", "Returns a signed receipt for a recorded call"))
        .description(Some(
            "The receipt proves that the call's entry is in the log up to that entry. Anyone can verify it with the audit key. It says \
             nothing about later entries.",
        ))
        .response("200", ok::<ReceiptView>(docs, "The receipt, a compact JWS"))
}

/// Who may ask about the log as a whole.
const OPERATORS: &str = "For operators: the length of a log reveals how active all tenants are.";

pub(super) fn list_checkpoints(docs: &mut SchemaGenerator) -> OperationBuilder {
    start("listCheckpoints", "audit", "Returns a signed checkpoint of each log")
        .description(Some(OPERATORS))
        .response("200", ok::<CheckpointList>(docs, "The checkpoints"))
}

pub(super) fn get_audit_key(docs: &mut SchemaGenerator) -> OperationBuilder {
    start("getAuditKey", "audit", "Returns the key that verifies receipts and checkpoints")
        .response("200", ok::<AuditKeyView>(docs, "The public key"))
}

pub(super) fn prove_inclusion(docs: &mut SchemaGenerator) -> OperationBuilder {
    start("proveInclusion", "audit", "Proves that an entry is in a log")
        .description(Some(OPERATORS))
        .parameter(log())
        .parameter(size("seq", Required::True, "The sequence number of the entry"))
        .parameter(size(
            "size",
            Required::False,
            "The size of the tree; default: that of the newest checkpoint",
        ))
        .response("200", ok::<InclusionView>(docs, "The proof (RFC 9162, section 2.1.3)"))
}

pub(super) fn prove_consistency(docs: &mut SchemaGenerator) -> OperationBuilder {
    start("proveConsistency", "audit", "Proves that a log extends its earlier state")
        .description(Some(OPERATORS))
        .parameter(log())
        .parameter(size("from", Required::True, "The size of the earlier tree"))
        .parameter(size("to", Required::True, "The size of the later tree"))
        .response("200", ok::<ConsistencyView>(docs, "The proof (RFC 9162, section 2.1.4)"))
}

fn log() -> ParameterBuilder {
    query("log", "The name of the log, as in its checkpoint", text()).required(Required::True)
}

fn size(name: &str, required: Required, about: &str) -> ParameterBuilder {
    query(name, about, json!({ "type": "integer", "minimum": 1 })).required(required)
}

fn call_answers(docs: &mut SchemaGenerator, operation: OperationBuilder) -> OperationBuilder {
    let held = ResponseBuilder::new()
        .description("The call is held for approval: `status` is `pending`, and `pending_approval` says who is asked")
        .header("Location", location())
        .content(JSON, content::<ToolResultEnvelope>(docs))
        .build();
    let unfinished = problem(
        docs,
        "The call is being executed (`IN_PROGRESS`), or its outcome is unknown (`OUTCOME_UNKNOWN`)",
    )
    .header("Location", location())
    .header("Retry-After", retry_after())
    .build();
    operation
        .response(
            "200",
            ok::<ToolResultEnvelope>(docs, "The call was executed, now or before (`replayed`)"),
        )
        .response("202", held)
        .response("409", unfinished)
}

fn start(id: &str, tag: &str, summary: &str) -> OperationBuilder {
    OperationBuilder::new().operation_id(Some(id)).tag(tag).summary(Some(summary))
}

/// What every route behind a token takes and can answer.
pub(super) fn verified(
    docs: &mut SchemaGenerator,
    operation: OperationBuilder,
) -> OperationBuilder {
    let delegation = header(
        "Placet-Delegation",
        "The access token of the user on whose behalf the caller acts.",
        text(),
    );
    let challenge = answer_header(
        "A challenge (RFC 6750, section 3) that says where to get a token (RFC 9728, section 5.1)",
        json!({ "type": "string", "pattern": "^Bearer( .*)?$" }),
    );
    let unauthenticated = problem(docs, "The caller could not be authenticated")
        .header("WWW-Authenticate", challenge)
        .build();
    let refused = problem(docs, "The request was refused; `error_code` says why")
        .header("Retry-After", retry_after())
        .build();
    operation
        .parameter(delegation)
        .security(SecurityRequirement::new(BEARER, Vec::<String>::new()))
        .response("401", unauthenticated)
        .response("default", refused)
}

fn identified(operation: OperationBuilder) -> OperationBuilder {
    let about = "The identifier. If it is malformed or not visible to the caller: `NOT_FOUND`.";
    operation.parameter(parameter(ParameterIn::Path, "id", about, text()).required(Required::True))
}

/// A list with pages, whose entries have identifiers of type `T`.
fn paged<T: JsonSchema>(operation: OperationBuilder) -> OperationBuilder {
    operation
        .parameter(query("after", "The `next_after` of the previous page", identifier::<T>()))
        .parameter(query("limit", "The maximum number of entries", limit()))
}

/// A time.
fn moment() -> Value {
    json!({ "type": "integer", "minimum": 1, "maximum": MS_MAX })
}

/// The size of a page.
fn limit() -> Value {
    json!({ "type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT })
}

fn query(name: &str, about: &str, schema: Value) -> ParameterBuilder {
    parameter(ParameterIn::Query, name, about, schema)
}

fn header(name: &str, about: &str, schema: Value) -> ParameterBuilder {
    parameter(ParameterIn::Header, name, about, schema)
}

fn parameter(place: ParameterIn, name: &str, about: &str, schema: Value) -> ParameterBuilder {
    let parameter = ParameterBuilder::new().name(name).parameter_in(place);
    let parameter = parameter.required(Required::False).description(Some(about));
    parameter.schema(Some(carried(schema)))
}

/// The schema of any text.
fn text() -> Value {
    json!({ "type": "string" })
}

fn body<T: JsonSchema>(docs: &mut SchemaGenerator) -> RequestBody {
    let content = content::<T>(docs);
    RequestBodyBuilder::new().content(JSON, content).required(Some(Required::True)).build()
}

fn ok<T: JsonSchema>(docs: &mut SchemaGenerator, about: &str) -> Response {
    ResponseBuilder::new().description(about).content(JSON, content::<T>(docs)).build()
}

/// A refusal.
fn problem(docs: &mut SchemaGenerator, about: &str) -> ResponseBuilder {
    let content = content::<ProblemDocument>(docs);
    ResponseBuilder::new().description(about).content(PROBLEM_JSON, content)
}

/// Server-sent events.
fn events(about: &str) -> Response {
    let content = ContentBuilder::new().schema(Some(carried(text()))).build();
    ResponseBuilder::new().description(about).content("text/event-stream", content).build()
}

fn content<T: JsonSchema>(docs: &mut SchemaGenerator) -> Content {
    ContentBuilder::new().schema(Some(reference::<T>(docs))).build()
}

fn location() -> Header {
    answer_header("Where to get the state of the call", text())
}

fn retry_after() -> Header {
    let seconds = json!({ "type": "integer", "minimum": 1 });
    answer_header("How long to wait before a retry, in seconds", seconds)
}

fn answer_header(about: &str, schema: Value) -> Header {
    HeaderBuilder::new().description(Some(about)).schema(Some(carried(schema))).build()
}
