//! What this service is, what the caller may use of it, what decides on this node, and what an error code means.
//!
//! Owns the routes; the engine determines who may reload. What is active names no tenant but the caller's, so every verified caller may see
//! it. The open routes reveal nothing that depends on the caller.

use axum::response::Response;

use placet_engine::views::status::ReloadRequest;

use crate::{
    answer,
    body::StrictJson,
    documents::{AboutDocument, ErrorDocument, ToolList},
    problem::Failure,
    query::NoQuery,
    request::{Id, Plain},
};

/// `GET /`.
pub(crate) async fn about() -> Response {
    answer::json(&AboutDocument::of_this_service())
}

/// `GET /errors/{code}`: where the `type` of a problem document leads (RFC 9457, section 3.1.1).
pub(crate) async fn error_code(Id(code): Id<String>, _: NoQuery) -> Result<Response, Failure> {
    Ok(answer::json(&ErrorDocument::of(&code)?))
}

/// `GET /v1/tools`: those that some circumstance could let the caller use.
pub(crate) async fn tools(Plain { api, caller }: Plain) -> Response {
    answer::json(&ToolList { tools: api.engine.tools(&caller) })
}

/// `GET /v1/status`.
pub(crate) async fn status(Plain { api, caller }: Plain) -> Response {
    answer::json(&api.engine.status(&caller))
}

/// `POST /v1/reload`: everything or nothing.
pub(crate) async fn reload(
    Plain { api, caller }: Plain,
    StrictJson(request): StrictJson<ReloadRequest>,
) -> Result<Response, Failure> {
    Ok(answer::json(&api.engine.reload_for(&caller, request).await?))
}
