//! The admin listener: liveness, readiness, metrics, and a backup of the ledger on request.
//!
//! Owns its four routes and nothing else; it has no authentication, listens on loopback unless configured otherwise, and reveals nothing
//! about any tenant's calls.

use axum::{
    Router,
    extract::State,
    response::{IntoResponse, Response},
    routing::{MethodRouter, get},
};
use http::{HeaderValue, StatusCode, header};
use placet_types::error::{ErrorCode, Refusal};
use serde_json::json;

use crate::{
    answer, documents::BackupDocument, guard::Guard, problem::Failure, router::surround,
    state::ApiState,
};

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The four routes.
pub(crate) fn router(api: &ApiState, guard: Guard, backups: MethodRouter<ApiState>) -> Router {
    let router = Router::new()
        .route("/healthz", get(health))
        .route("/readyz", get(readiness))
        .route("/metrics", get(metrics))
        .route("/backups", backups)
        .with_state(api.clone());
    surround(router, guard.with_addresses_allowed())
}

/// The process answers.
async fn health() -> Response {
    answer::json(&json!({ "status": "ok" }))
}

/// The engine can take calls, and the listeners are open.
async fn readiness(State(api): State<ApiState>) -> Response {
    let mut readiness = api.engine.readiness();
    if api.connections.are_full() {
        readiness.ready = false;
        readiness.notes.push("every connection of `http.connections_max` is in use".to_owned());
    }
    if api.is_closing() {
        readiness.ready = false;
        readiness.notes.push("the service is shutting down".to_owned());
    }
    let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    answer::json_with_status(status, &readiness)
}

async fn metrics(State(api): State<ApiState>) -> Response {
    let text = api.engine.metrics().encode();
    ([(header::CONTENT_TYPE, HeaderValue::from_static(OPENMETRICS))], text).into_response()
}

/// The answer to a request for a backup, which is completed once it was begun, whether or not its requester still waits.
pub(crate) async fn backup(
    making: impl Future<Output = Result<BackupDocument, Failure>> + Send + 'static,
) -> Response {
    match tokio::spawn(making).await {
        Ok(Ok(made)) => answer::json(&made),
        Ok(Err(failure)) => failure.into_response(),
        Err(_panicked) => Failure::internal("the task of a backup panicked").into_response(),
    }
}

/// The same where there is no folder for them.
pub(crate) async fn no_backups() -> Response {
    let message = "no folder for backups is configured: set `ledger.backups`";
    Failure::new(Refusal::new(ErrorCode::NotFound, message)).into_response()
}
