//! The table of routes: the one that the router and the OpenAPI document are both made from.
//!
//! Owns method, path, handler and description of each, in one row. Invariant: a route that is not in the table does not exist, and one that
//! is in it is described, and verified unless it is open.

use axum::{
    handler::Handler,
    routing::{self, MethodRouter},
};
use http::Method;
use utoipa::openapi::path::{Operation, OperationBuilder};

use super::{
    describe,
    operations::{self as described, verified},
};
use crate::{
    api::ApiState,
    challenge::{self, METADATA_PATH},
    console::errors,
    routes::{
        about, approvals, audit, calls, credentials, decisions, directives, inbox, ledger, report,
        status, tools,
    },
};

/// One route.
pub(crate) struct Route {
    pub(crate) method: Method,
    /// With `{id}` where an identifier stands.
    pub(crate) path: &'static str,
    pub(crate) handler: MethodRouter<ApiState>,
    /// As the document has it.
    pub(crate) description: Operation,
    /// Whether anybody may ask it. Everything else is verified before it is looked at.
    pub(crate) is_open: bool,
}

fn get<T: 'static>(
    path: &'static str,
    handler: impl Handler<T, ApiState>,
    described: OperationBuilder,
) -> Route {
    let description = verified(described).build();
    let handler = routing::get(handler);
    Route { method: Method::GET, path, handler, description, is_open: false }
}

fn post<T: 'static>(
    path: &'static str,
    handler: impl Handler<T, ApiState>,
    described: OperationBuilder,
) -> Route {
    let description = verified(described).build();
    let handler = routing::post(handler);
    Route { method: Method::POST, path, handler, description, is_open: false }
}

/// One that anybody may ask.
fn open<T: 'static>(
    path: &'static str,
    handler: impl Handler<T, ApiState>,
    described: OperationBuilder,
) -> Route {
    let (handler, description) = (routing::get(handler), described.build());
    Route { method: Method::GET, path, handler, description, is_open: true }
}

/// Every route, in the order of the documentation.
pub(crate) fn all() -> Vec<Route> {
    vec![
        post("/v1/calls", calls::submit, described::submit_call()),
        get("/v1/calls/{id}", calls::get, described::get_call()),
        get("/v1/calls/{id}/events", calls::follow, described::follow_call()),
        get("/v1/calls/{id}/timeline", calls::timeline, described::directives::get_timeline()),
        get("/v1/tools", tools::list, described::list_tools()),
        get("/v1/inbox", inbox::read, described::directives::read_inbox()),
        get("/v1/approvals", approvals::list, described::list_approvals()),
        get("/v1/approvals/{id}", approvals::get, described::get_approval()),
        post("/v1/approvals/{id}/decisions", approvals::decide, described::decide_approval()),
        post("/v1/approvals/{id}/edits", approvals::edit, described::directives::edit_approval()),
        post(
            "/v1/approvals/{id}/withdrawal",
            approvals::withdraw,
            described::directives::withdraw_approval(),
        ),
        post(
            "/v1/approvals/decisions",
            approvals::decide_together,
            described::directives::decide_together(),
        ),
        get("/v1/directives", directives::list, described::directives::list()),
        post("/v1/directives", directives::arrange, described::directives::arrange()),
        get("/v1/directives/{id}", directives::get, described::directives::get_entry()),
        post("/v1/directives/{id}/acts", directives::act, described::directives::act()),
        get("/v1/approvals/events", directives::follow, described::directives::follow()),
        get("/v1/ledger", ledger::list, described::list_records()),
        get("/v1/ledger/{id}", ledger::get, described::get_record()),
        post("/v1/ledger/{id}/resolution", ledger::resolve, described::resolve_record()),
        post("/v1/ledger/{id}/rearm", ledger::rearm, described::rearm_record()),
        get("/v1/status", status::show, described::status::show()),
        post("/v1/reload", status::reload, described::status::reload()),
        get("/v1/credentials", credentials::show, described::show_credentials()),
        get("/v1/report", report::show, described::show_report()),
        get("/v1/decisions", decisions::list, described::list_decisions()),
        get("/v1/decisions/{id}", decisions::get, described::get_decision()),
        get("/v1/calls/{id}/receipt", audit::receipt, described::get_receipt()),
        get("/v1/audit/checkpoints", audit::checkpoints, described::list_checkpoints()),
        get("/v1/audit/key", audit::key, described::get_audit_key()),
        get("/v1/audit/inclusion", audit::inclusion, described::prove_inclusion()),
        get("/v1/audit/consistency", audit::consistency, described::prove_consistency()),
        open(METADATA_PATH, challenge::metadata, described::metadata()),
        open("/openapi.json", describe, described::this_document()),
        open("/errors/{id}", errors::show, described::show_error()),
        open("/", about::about, described::about()),
    ]
}
