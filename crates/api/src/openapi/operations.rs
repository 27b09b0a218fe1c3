//! The operations of the document, one by one.
//!
//! Owns their texts, parameters and answers. Invariant: an operation that is not open names the credential it wants and the
//! refusals every verified route can give.

pub(super) mod directives;
pub(super) mod status;

use schemars::JsonSchema;
use serde_json::{Value, json};
use utoipa::openapi::{
    Content, ContentBuilder, Required, ResponseBuilder, SecurityRequirement,
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
        CredentialsView, RECORD_STATES, RearmRequest, RecordView, ResolutionRequest,
        decisions::{DecisionVerdict, DecisionView, DecisionsPage},
    },
};
use placet_types::{
    envelope::result::ToolResultEnvelope,
    ids::{ApprovalId, PrincipalId, RecordId},
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
    routes::{approvals::states, report::MS_MAX},
};

pub(super) fn list_tools() -> OperationBuilder {
    start("listTools", "tools", "Lists the tools the caller may use")
        .response("200", ok::<ToolList>("The tools"))
}

pub(super) fn list_approvals() -> OperationBuilder {
    let state = json!({ "type": "string", "enum": states() });
    let start = start("listApprovals", "approvals", "Lists approvals the caller may see");
    paged::<ApprovalId>(start)
        .parameter(query("state", "Only those in this state", state))
        .response("200", ok::<ApprovalList>("A page of approvals"))
}

pub(super) fn get_approval() -> OperationBuilder {
    identified(start("getApproval", "approvals", "Shows what an approval is about"))
        .response("200", ok::<ApprovalDetail>("The approval and the frozen proposal"))
}

pub(super) fn decide_approval() -> OperationBuilder {
    identified(start("decideApproval", "approvals", "Approves or denies a held call"))
        .request_body(Some(body::<DecisionRequest>()))
        .response("200", ok::<ApprovalView>("The approval after the decision"))
}

pub(super) fn list_records() -> OperationBuilder {
    let state = json!({ "type": "string", "enum": RECORD_STATES });
    paged::<RecordId>(start("listRecords", "ledger", "Lists effect records; for operators"))
        .parameter(query("state", "Only those in this state", state))
        .response("200", ok::<RecordList>("A page of records"))
}

pub(super) fn get_record() -> OperationBuilder {
    identified(start("getRecord", "ledger", "Shows an effect record"))
        .response("200", ok::<RecordView>("The record"))
}

pub(super) fn about() -> OperationBuilder {
    start("about", "about", "What this service is and where to look")
        .response("200", ok::<AboutDocument>("What it is"))
}

pub(super) fn this_document() -> OperationBuilder {
    start("describe", "about", "This document").response(
        "200",
        ResponseBuilder::new()
            .description("The OpenAPI document")
            .content(
                JSON,
                ContentBuilder::new().schema(Some(carried(json!({ "type": "object" })))).build(),
            )
            .build(),
    )
}

pub(super) fn metadata() -> OperationBuilder {
    start("protectedResource", "about", "Where to get tokens for this service (RFC 9728)")
        .response("200", ok::<ProtectedResourceDocument>("Where to get tokens"))
}

pub(super) fn submit_call() -> OperationBuilder {
    let key = ParameterBuilder::new()
        .name("Idempotency-Key")
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some(
            "The key under which the effect happens at most once; the body may say it instead.",
        ))
        .schema(Some(carried(json!({ "type": "string", "minLength": 1, "maxLength": 256 }))))
        .build();
    call_answers(start("submitCall", "calls", "Sends a call through build, broker, gate, invoke and return"))
        .description(Some(
            "Answers when the call is over, or is held for longer than `wait_ms`. Repeating the same call attaches to it, for `wait_ms` (absent: half a minute), and is then answered with `IN_PROGRESS`.",
        ))
        .parameter(key)
        .parameter(trace("traceparent"))
        .parameter(trace("tracestate"))
        .request_body(Some(body::<Submission>()))
}

pub(super) fn get_call() -> OperationBuilder {
    let wait = json!({ "type": "integer", "minimum": 0, "maximum": WAIT_MS_MAX, "default": 0 });
    call_answers(identified(start("getCall", "calls", "Says how a call stands"))).parameter(query(
        "wait_ms",
        "How long to wait for its end, in milliseconds",
        wait,
    ))
}

pub(super) fn follow_call() -> OperationBuilder {
    let stream = ResponseBuilder::new()
        .description(
            "Server-sent events: `held`, `in_progress`, `finished`, `refused`, each with the call's `ToolResultEnvelope` \
             as data. The stream ends after the last one, or with `ended`, the problem document of a token that counts \
             no more.",
        )
        .content("text/event-stream", ContentBuilder::new().schema(Some(carried(json!({ "type": "string" })))).build())
        .build();
    identified(start("followCall", "calls", "Follows a call to its end")).response("200", stream)
}

pub(super) fn rearm_record() -> OperationBuilder {
    identified(start(
        "rearmRecord",
        "ledger",
        "Asks for a call to be sent again whose outcome is unknown; for operators, by default two of them",
    ))
    .request_body(Some(body::<RearmRequest>()))
    .response("200", ok::<RecordView>("The record after the operator's word"))
}

pub(super) fn resolve_record() -> OperationBuilder {
    identified(start("resolveRecord", "ledger", "Says how an unknown outcome ended; for operators"))
        .request_body(Some(body::<ResolutionRequest>()))
        .response("200", ok::<RecordView>("The record after the resolution"))
}

pub(super) fn show_credentials() -> OperationBuilder {
    start(
        "showCredentials",
        "credentials",
        "What this node has minted and keeps, as numbers; for operators",
    )
    .description(Some(
        "Tokens are revoked with an entry of the approval service: `POST /v1/directives` with `kind` `revocation`.",
    ))
    .response("200", ok::<CredentialsView>("The numbers"))
}

pub(super) fn show_report() -> OperationBuilder {
    let moment = || json!({ "type": "integer", "minimum": 1, "maximum": MS_MAX });
    start("showReport", "report", "How calls went, by adapter and capability; for operators")
        .description(Some(
            "The five evaluation metrics of a range of at most 31 days, computed from the audit chain.",
        ))
        .parameter(query(
            "from",
            "The first moment, in milliseconds since 1970; a day before `to` if nothing is said",
            moment(),
        ))
        .parameter(query("to", "The end, which is not in it; now if nothing is said", moment()))
        .response("200", ok::<ReportView>("The report"))
}

pub(super) fn get_decision() -> OperationBuilder {
    let what = "Shows a policy decision about a call, with the policies that made the difference";
    identified(start("getDecision", "decisions", what))
        .response("200", ok::<DecisionView>("The decision"))
}

pub(super) fn show_error() -> OperationBuilder {
    let unknown = ResponseBuilder::new()
        .description("There is no such code")
        .content(PROBLEM_JSON, content::<ProblemDocument>())
        .build();
    identified(start("showError", "about", "What an error code means; a page for browsers"))
        .response("200", ok::<ErrorDocument>("The code"))
        .response("404", unknown)
}

pub(super) fn list_decisions() -> OperationBuilder {
    let moment = || json!({ "type": "integer", "minimum": 1, "maximum": MS_MAX });
    let verdict =
        json!({ "type": "string", "enum": DecisionVerdict::ALL.map(DecisionVerdict::as_str) });
    let text = || json!({ "type": "string" });
    let limit =
        json!({ "type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT });
    start("listDecisions", "decisions", "Lists policy decisions about calls, the newest first")
        .description(Some(
            "For people: operators and auditors see all of their tenant, others those of their agents and those made for them. \
             One answer reads a bounded number of entries of the audit chain; `incomplete` says that it ended for that reason, and \
             `next_to` goes on.",
        ))
        .parameter(query("agent", "Only about calls of this agent", identifier::<PrincipalId>()))
        .parameter(query("tool", "Only about this tool", text()))
        .parameter(query("verdict", "Only with this verdict", verdict))
        .parameter(query("policy", "Only those in which this policy made the difference", text()))
        .parameter(query("from", "The first moment, in milliseconds since 1970; a day before `to` if absent", moment()))
        .parameter(query("to", "The end, which is not in it; now if absent", moment()))
        .parameter(query("limit", "How many at most, apart from those of the same millisecond", limit))
        .response("200", ok::<DecisionsPage>("A page of decisions"))
}

pub(super) fn get_receipt() -> OperationBuilder {
    identified(start("getReceipt", "audit", "A signed receipt for a recorded call"))
        .description(Some(
            "It holds the proof that the call's entry is in the log up to that entry, which anybody checks with the key; it says nothing \
             of later entries.",
        ))
        .response("200", ok::<ReceiptView>("The receipt, a compact JWS"))
}

/// Who may ask about the log as a whole.
const OPERATORS: &str = "For operators: how long a log is tells how much all tenants do.";

pub(super) fn list_checkpoints() -> OperationBuilder {
    start("listCheckpoints", "audit", "A signed checkpoint of each log as it stands")
        .description(Some(OPERATORS))
        .response("200", ok::<CheckpointList>("The checkpoints"))
}

pub(super) fn get_audit_key() -> OperationBuilder {
    start("getAuditKey", "audit", "The key that receipts and checkpoints are signed with")
        .response("200", ok::<AuditKeyView>("The public key"))
}

pub(super) fn prove_inclusion() -> OperationBuilder {
    start("proveInclusion", "audit", "Proves that an entry is in a log")
        .description(Some(OPERATORS))
        .parameter(log())
        .parameter(size("seq", Required::True, "The entry"))
        .parameter(size(
            "size",
            Required::False,
            "The size of the tree; that of the newest checkpoint if nothing is said",
        ))
        .response("200", ok::<InclusionView>("The proof (RFC 9162, section 2.1.3)"))
}

pub(super) fn prove_consistency() -> OperationBuilder {
    start("proveConsistency", "audit", "Proves that a log begins with what it was earlier")
        .description(Some(OPERATORS))
        .parameter(log())
        .parameter(size("from", Required::True, "The size of the earlier tree"))
        .parameter(size("to", Required::True, "The size of the later tree"))
        .response("200", ok::<ConsistencyView>("The proof (RFC 9162, section 2.1.4)"))
}

fn log() -> ParameterBuilder {
    query("log", "The log, as its checkpoint names it", json!({ "type": "string" }))
        .required(Required::True)
}

fn size(name: &str, required: Required, about: &str) -> ParameterBuilder {
    query(name, about, json!({ "type": "integer", "minimum": 1 })).required(required)
}

fn call_answers(operation: OperationBuilder) -> OperationBuilder {
    let held = ResponseBuilder::new()
        .description("The call waits for people: `status` is `pending`, and `pending_approval` says for whom")
        .header("Location", location())
        .content(JSON, content::<ToolResultEnvelope>())
        .build();
    let unfinished = ResponseBuilder::new()
        .description("The call is being executed (`IN_PROGRESS`), or nobody knows its outcome (`OUTCOME_UNKNOWN`)")
        .header("Location", location())
        .header("Retry-After", retry_after())
        .content(PROBLEM_JSON, content::<ProblemDocument>())
        .build();
    operation
        .response(
            "200",
            ok::<ToolResultEnvelope>("The call was executed, now or before (`replayed`)"),
        )
        .response("202", held)
        .response("409", unfinished)
}

fn start(id: &str, tag: &str, summary: &str) -> OperationBuilder {
    OperationBuilder::new().operation_id(Some(id)).tag(tag).summary(Some(summary))
}

/// What every route behind a token takes and can answer.
pub(super) fn verified(operation: OperationBuilder) -> OperationBuilder {
    let delegation = ParameterBuilder::new()
        .name("Placet-Delegation")
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some("The access token of the user on whose behalf the caller acts."))
        .schema(Some(carried(json!({ "type": "string" }))))
        .build();
    let unauthenticated = ResponseBuilder::new()
        .description("Who calls could not be verified")
        .header(
            "WWW-Authenticate",
            HeaderBuilder::new()
                .description(Some(
                    "A challenge (RFC 6750, section 3) that says where to get a token (RFC 9728, section 5.1)",
                ))
                .schema(Some(carried(json!({ "type": "string", "pattern": "^Bearer( .*)?$" }))))
                .build(),
        )
        .content(PROBLEM_JSON, content::<ProblemDocument>())
        .build();
    let refused = ResponseBuilder::new()
        .description("The request was refused; `error_code` says why")
        .header("Retry-After", retry_after())
        .content(PROBLEM_JSON, content::<ProblemDocument>())
        .build();
    operation
        .parameter(delegation)
        .security(SecurityRequirement::new(BEARER, Vec::<String>::new()))
        .response("401", unauthenticated)
        .response("default", refused)
}

fn identified(operation: OperationBuilder) -> OperationBuilder {
    let id = ParameterBuilder::new()
        .name("id")
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
        .description(Some(
            "One that the caller may not see, or that is not well-formed, is `NOT_FOUND`.",
        ))
        .schema(Some(carried(json!({ "type": "string" }))))
        .build();
    operation.parameter(id)
}

/// A list with pages, whose entries have identifiers of type `T`.
fn paged<T: JsonSchema>(operation: OperationBuilder) -> OperationBuilder {
    let limit =
        json!({ "type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT });
    operation
        .parameter(query("after", "The `next_after` of the page before", identifier::<T>()))
        .parameter(query("limit", "How many at most", limit))
}

fn query(name: &str, about: &str, schema: Value) -> ParameterBuilder {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Query)
        .required(Required::False)
        .description(Some(about))
        .schema(Some(carried(schema)))
}

fn trace(name: &str) -> ParameterBuilder {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some("W3C Trace Context; handed on to the adapter."))
        .schema(Some(carried(json!({ "type": "string" }))))
}

fn body<T: JsonSchema>() -> RequestBody {
    RequestBodyBuilder::new().content(JSON, content::<T>()).required(Some(Required::True)).build()
}

fn ok<T: JsonSchema>(about: &str) -> utoipa::openapi::Response {
    ResponseBuilder::new().description(about).content(JSON, content::<T>()).build()
}

fn content<T: JsonSchema>() -> Content {
    ContentBuilder::new().schema(Some(reference::<T>())).build()
}

fn location() -> Header {
    HeaderBuilder::new()
        .description(Some("Where to ask about the call"))
        .schema(Some(carried(json!({ "type": "string" }))))
        .build()
}

fn retry_after() -> Header {
    HeaderBuilder::new()
        .description(Some("When to try again, in seconds"))
        .schema(Some(carried(json!({ "type": "integer", "minimum": 1 }))))
        .build()
}
