//! The operations of the document, one by one: the rows of the table.
//!
//! Owns their texts, parameters and responses. Invariant: an operation that is not open names the credential it requires and the refusals
//! every verified route can return.

pub(super) mod approvals;
pub(super) mod directives;
pub(super) mod runs;
pub(super) mod sessions;

use serde::Serialize;
use serde_json::{Value, json};
use utoipa::openapi::{ContentBuilder, ResponseBuilder};

use placet_approvals::views::TimelineView;
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
    ids::{DirectiveId, PrincipalId, RecordPlace, RunId},
};

use super::{
    describe,
    schemas::{carried, identifier},
    table::{Route, get, limit, location, open, post, retry_after, text},
};
use crate::{
    answer::JSON,
    challenge::{self, METADATA_PATH},
    documents::{
        AboutDocument, CheckpointList, ErrorDocument, ProtectedResourceDocument, RecordList,
        ToolList,
    },
    query::WAIT_MS_MAX,
    routes::{
        audit, calls, ledger,
        reports::{self, MS_MAX},
        service,
    },
};

/// Who may ask about the log as a whole.
const OPERATORS: &str = "For operators: the length of a log reveals how active all tenants are.";

pub(super) fn calls() -> Vec<Route> {
    let wait = json!({ "type": "integer", "minimum": 0, "maximum": WAIT_MS_MAX, "default": 0 });
    vec![
        with_outcome(post("/v1/calls", calls::submit, "submitCall", "calls", "Submits a tool call for decision and execution"))
            .about(
                "Returns when the call has ended, or has been held for longer than `wait_ms`. A repetition of a \
                 call in flight waits for it, for up to `wait_ms` (default here: 30,000), and then returns `IN_PROGRESS`.",
            )
            .keyed(
                "The effect happens at most once under this key. The body may carry it instead.",
                "W3C Trace Context; passed on to the adapter.",
            )
            .body::<Submission>(),
        with_outcome(get("/v1/calls/{id}", calls::get, "getCall", "calls", "Returns the state of a call"))
            .query("wait_ms", "How long to wait for the call to end, in milliseconds", wait),
        get("/v1/calls/{id}/events", calls::follow, "followCall", "calls", "Follows a call to its end")
            .events(
                "Server-sent events: `held`, `in_progress`, `finished`, `refused`, each with the call's `ToolResultEnvelope` \
                 as data. The stream ends with the call or at a time limit. If the caller's token becomes invalid, the last event \
                 is `ended`, with the problem document as data.",
            ),
        get("/v1/calls/{id}/timeline", calls::timeline, "getTimeline", "calls", "Shows the timeline of a call, from plan to effect")
            .about(
                "For the caller, those who may see the call's approval, and auditors. Each step names its position in the log and the \
                 hash of its entry, so that it can be proved with `/v1/audit/inclusion`. If `incomplete` is true, some steps are missing: \
                 their entries were archived, and the archive is not available.",
            )
            .ok::<TimelineView>("The steps, in order"),
        get("/v1/tools", service::tools, "listTools", "tools", "Lists the tools the caller may use")
            .ok::<ToolList>("The tools"),
    ]
}

fn with_outcome(route: Route) -> Route {
    let held = "The call is held for approval: `status` is `pending`, and `pending_approval` says who is asked";
    let unfinished =
        "The call is being executed (`IN_PROGRESS`), or its outcome is unknown (`OUTCOME_UNKNOWN`)";
    route
        .ok::<ToolResultEnvelope>("The call was executed, now or before (`replayed`)")
        .answer::<ToolResultEnvelope>("202", JSON, held, [("Location", location())])
        .problem("409", unfinished, [("Location", location()), ("Retry-After", retry_after())])
}

pub(super) fn ledger() -> Vec<Route> {
    vec![
        get("/v1/ledger", ledger::list, "listRecords", "ledger", "Lists effect records by their last move, the oldest first; for operators")
            .paged::<RecordPlace>()
            .query("state", "Only records in this state", one_of(RECORD_STATES))
            .ok::<RecordList>("A page of records"),
        get("/v1/ledger/{id}", ledger::get, "getRecord", "ledger", "Shows an effect record")
            .ok::<RecordView>("The record"),
        post("/v1/ledger/{id}/resolution", ledger::resolve, "resolveRecord", "ledger", "Resolves an unknown outcome; for operators")
            .body::<ResolutionRequest>()
            .ok::<RecordView>("The record after the resolution"),
        post("/v1/ledger/{id}/rearm", ledger::rearm, "rearmRecord", "ledger", "Requests that a call with an unknown outcome be sent again; for operators, by default two of them")
            .body::<RearmRequest>()
            .ok::<RecordView>("The record after the request"),
    ]
}

pub(super) fn service() -> Vec<Route> {
    vec![
        get("/v1/status", service::status, "showStatus", "status", "Shows what is active on this node")
            .about(
                "For every verified caller. Where nodes share a ledger, `epoch_elsewhere` is the epoch that another node has activated and \
                 this node lacks; this node decides no calls until it has the same files.",
            )
            .ok::<StatusView>("The status of this node"),
        post("/v1/reload", service::reload, "reload", "status", "Reloads policies, contracts, directory and issuers; for operators")
            .about(
                "All or nothing: everything is read and checked as at startup. If a file cannot be used, nothing changes, and `problems` \
                 names it; where there are several tenants it only counts them, and the log names them. Every call is decided either by the \
                 old files or by the new ones, never by a mixture. `needs_restart` names the changed keys of the rest of the \
                 configuration, which a reload does not apply.",
            )
            .body::<ReloadRequest>()
            .ok::<ReloadView>("What changed, and what is active now"),
        get("/v1/report", reports::show, "showReport", "report", "Reports metrics of calls by adapter and capability; for operators")
            .about("The five evaluation metrics for a range of at most 31 days, computed from the audit chain.")
            .query("from", "The start (inclusive), in milliseconds since 1970; default: a day before `to`", moment())
            .query("to", "The end (exclusive); default: now", moment())
            .ok::<ReportView>("The report"),
    ]
}

pub(super) fn decisions() -> Vec<Route> {
    let outcomes = one_of(CallOutcome::ALL.map(CallOutcome::as_str));
    vec![
        get("/v1/decisions", reports::decisions, "listDecisions", "decisions", "Lists policy decisions on calls, newest first")
            .about(
                "For people: operators and auditors see all decisions of their tenant, others those on calls of their agents or made for \
                 them. One request reads a limited number of audit entries. If the page ended at that limit, `incomplete` is true; \
                 continue with `next_to`.",
            )
            .query("agent", "Only for calls of this agent", identifier::<PrincipalId>())
            .query("tool", "Only for calls of this tool", text())
            .query("verdict", "Only with this verdict", one_of(DecisionVerdict::ALL.map(DecisionVerdict::as_str)))
            .query("outcome", "Only for calls with this outcome", outcomes)
            .query("policy", "Only those that this policy determined", text())
            .query("run", "Only for calls of runs with this id", identifier::<RunId>())
            .query("directive", "Only those that relied on this standing grant or break-glass record", identifier::<DirectiveId>())
            .query("from", "The start (inclusive), in milliseconds since 1970; default: a day before `to`", moment())
            .query("to", "The end (exclusive); default: now", moment())
            .query("limit", "The maximum number; exceeded only by decisions of the same millisecond", limit())
            .ok::<DecisionsPage>("A page of decisions"),
        get("/v1/decisions/{id}", reports::decision, "getDecision", "decisions", "Shows a policy decision on a call, with the policies that determined it")
            .ok::<DecisionView>("The decision"),
    ]
}

pub(super) fn audit() -> Vec<Route> {
    let size = || json!({ "type": "integer", "minimum": 1 });
    let log = "The name of the log, as in its checkpoint";
    vec![
        get("/v1/calls/{id}/receipt", audit::receipt, "getReceipt", "audit", "Returns a signed receipt for a recorded call")
            .about(
                "The receipt proves that the call's entry is in the log up to that entry. Anyone can verify it with the audit key. It says \
                 nothing about later entries.",
            )
            .ok::<ReceiptView>("The receipt, a compact JWS"),
        get("/v1/audit/checkpoints", audit::checkpoints, "listCheckpoints", "audit", "Returns a signed checkpoint of each log")
            .about(OPERATORS)
            .ok::<CheckpointList>("The checkpoints"),
        get("/v1/audit/key", audit::key, "getAuditKey", "audit", "Returns the key that verifies receipts and checkpoints")
            .ok::<AuditKeyView>("The public key"),
        get("/v1/audit/inclusion", audit::inclusion, "proveInclusion", "audit", "Proves that an entry is in a log")
            .about(OPERATORS)
            .required_query("log", log, text())
            .required_query("seq", "The sequence number of the entry", size())
            .query("size", "The size of the tree; default: that of the newest checkpoint", size())
            .ok::<InclusionView>("The proof (RFC 9162, section 2.1.3)"),
        get("/v1/audit/consistency", audit::consistency, "proveConsistency", "audit", "Proves that a log extends its earlier state")
            .about(OPERATORS)
            .required_query("log", log, text())
            .required_query("from", "The size of the earlier tree", size())
            .required_query("to", "The size of the later tree", size())
            .ok::<ConsistencyView>("The proof (RFC 9162, section 2.1.4)"),
    ]
}

pub(super) fn open_to_all() -> Vec<Route> {
    let object = ContentBuilder::new().schema(Some(carried(json!({ "type": "object" })))).build();
    let document = ResponseBuilder::new().description("The OpenAPI document").content(JSON, object);
    vec![
        open(
            METADATA_PATH,
            challenge::metadata,
            "protectedResource",
            "about",
            "Returns the protected resource metadata (RFC 9728)",
        )
        .ok::<ProtectedResourceDocument>("The metadata"),
        open("/openapi.json", describe, "describe", "about", "Returns this OpenAPI document")
            .other("200", document.build()),
        open(
            "/errors/{id}",
            service::error_code,
            "showError",
            "about",
            "Shows what an error code means and what to do",
        )
        .ok::<ErrorDocument>("The error code and its meaning")
        .problem("404", "No such error code", []),
        open(
            "/",
            service::about,
            "about",
            "about",
            "Describes this service and where to find its parts",
        )
        .ok::<AboutDocument>("The description"),
    ]
}

/// The schema of one of these names.
fn one_of(names: impl Serialize) -> Value {
    json!({ "type": "string", "enum": names })
}

/// The schema of one of these names, of which one is the default.
fn one_of_or(default: &str, names: impl Serialize) -> Value {
    json!({ "type": "string", "enum": names, "default": default })
}

/// The schema of a time.
fn moment() -> Value {
    json!({ "type": "integer", "minimum": 1, "maximum": MS_MAX })
}
