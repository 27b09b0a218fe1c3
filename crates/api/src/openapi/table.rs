//! The table of routes, from which both the router and the OpenAPI document are made.
//!
//! Owns method, path, handler and description of each, in one row. Invariant: a route that is not in the table does not exist, and one that
//! is in it is described, and verified unless it is open.

use axum::{
    handler::Handler,
    routing::{self, MethodRouter},
};
use http::Method;
use schemars::SchemaGenerator;
use utoipa::openapi::path::{Operation, OperationBuilder};

use super::{
    describe,
    operations::{self as described, verified},
};
use crate::{
    challenge::{self, METADATA_PATH},
    routes::{approvals, audit, calls, directives, ledger, reports, runs, service, sessions},
    state::ApiState,
};

/// What describes a route in the document.
type Describe = fn(&mut SchemaGenerator) -> OperationBuilder;

/// One route.
pub(crate) struct Route {
    pub(crate) method: Method,
    /// With `{id}` where an identifier stands.
    pub(crate) path: &'static str,
    pub(crate) handler: MethodRouter<ApiState>,
    describe: Describe,
    /// Whether anybody may call it. For all other routes the caller is verified first.
    pub(crate) is_open: bool,
}

impl Route {
    /// The route as the document has it.
    pub(crate) fn description(&self, docs: &mut SchemaGenerator) -> Operation {
        let operation = (self.describe)(docs);
        if self.is_open { operation.build() } else { verified(docs, operation).build() }
    }
}

fn get<T: 'static>(
    path: &'static str,
    handler: impl Handler<T, ApiState>,
    describe: Describe,
) -> Route {
    let handler = routing::get(handler);
    Route { method: Method::GET, path, handler, describe, is_open: false }
}

fn post<T: 'static>(
    path: &'static str,
    handler: impl Handler<T, ApiState>,
    describe: Describe,
) -> Route {
    let handler = routing::post(handler);
    Route { method: Method::POST, path, handler, describe, is_open: false }
}

fn delete<T: 'static>(
    path: &'static str,
    handler: impl Handler<T, ApiState>,
    describe: Describe,
) -> Route {
    let handler = routing::delete(handler);
    Route { method: Method::DELETE, path, handler, describe, is_open: false }
}

/// A route that anybody may call.
fn open<T: 'static>(
    path: &'static str,
    handler: impl Handler<T, ApiState>,
    describe: Describe,
) -> Route {
    Route { is_open: true, ..get(path, handler, describe) }
}

/// Every route, in the order of the documentation.
pub(crate) fn all() -> Vec<Route> {
    vec![
        post("/v1/calls", calls::submit, described::submit_call),
        get("/v1/calls/{id}", calls::get, described::get_call),
        get("/v1/calls/{id}/events", calls::follow, described::follow_call),
        get("/v1/calls/{id}/timeline", calls::timeline, described::directives::get_timeline),
        get("/v1/tools", service::tools, described::list_tools),
        post("/v1/runs", runs::open, described::runs::open),
        get("/v1/runs", runs::list, described::runs::list),
        get("/v1/runs/{id}", runs::get, described::runs::get),
        get("/v1/runs/{id}/tools", runs::tools, described::runs::tools),
        post("/v1/runs/{id}/tools", runs::change, described::runs::change),
        post("/v1/runs/{id}/batches", runs::batch, described::runs::batch),
        get("/v1/runs/{id}/batches", runs::batches, described::runs::batches),
        post("/v1/sessions", sessions::open, described::sessions::open),
        get("/v1/sessions/{id}", sessions::get, described::sessions::get),
        delete("/v1/sessions/{id}", sessions::close, described::sessions::close),
        post("/v1/sessions/{id}/execute", sessions::execute, described::sessions::execute),
        post("/v1/sessions/{id}/simulate", sessions::simulate, described::sessions::simulate),
        get("/v1/inbox", approvals::inbox, described::directives::read_inbox),
        get("/v1/approvals", approvals::list, described::list_approvals),
        get("/v1/approvals/{id}", approvals::get, described::get_approval),
        post("/v1/approvals/{id}/decisions", approvals::decide, described::decide_approval),
        post("/v1/approvals/{id}/edits", approvals::edit, described::directives::edit_approval),
        post(
            "/v1/approvals/{id}/withdrawal",
            approvals::withdraw,
            described::directives::withdraw_approval,
        ),
        post(
            "/v1/approvals/decisions",
            approvals::decide_together,
            described::directives::decide_together,
        ),
        get("/v1/directives", directives::list, described::directives::list),
        post("/v1/directives", directives::arrange, described::directives::arrange),
        get("/v1/directives/{id}", directives::get, described::directives::get_entry),
        post("/v1/directives/{id}/acts", directives::act, described::directives::act),
        get("/v1/approvals/events", approvals::follow, described::directives::follow),
        get("/v1/ledger", ledger::list, described::list_records),
        get("/v1/ledger/{id}", ledger::get, described::get_record),
        post("/v1/ledger/{id}/resolution", ledger::resolve, described::resolve_record),
        post("/v1/ledger/{id}/rearm", ledger::rearm, described::rearm_record),
        get("/v1/status", service::status, described::show_status),
        post("/v1/reload", service::reload, described::reload),
        get("/v1/report", reports::show, described::show_report),
        get("/v1/decisions", reports::decisions, described::list_decisions),
        get("/v1/decisions/{id}", reports::decision, described::get_decision),
        get("/v1/calls/{id}/receipt", audit::receipt, described::get_receipt),
        get("/v1/audit/checkpoints", audit::checkpoints, described::list_checkpoints),
        get("/v1/audit/key", audit::key, described::get_audit_key),
        get("/v1/audit/inclusion", audit::inclusion, described::prove_inclusion),
        get("/v1/audit/consistency", audit::consistency, described::prove_consistency),
        open(METADATA_PATH, challenge::metadata, described::metadata),
        open("/openapi.json", describe, described::this_document),
        open("/errors/{id}", service::error_code, described::show_error),
        open("/", service::about, described::about),
    ]
}
