//! What decides on this node, and the reload that changes it.
//!
//! Owns the routes; who may reload is the engine's to say. What is active names no tenant, so every verified caller may see it.

use axum::{extract::State, response::Response};
use placet_engine::views::status::ReloadRequest;

use crate::{
    answer,
    api::{ApiState, Caller},
    body::StrictJson,
    problem::Failure,
    query::Params,
};

/// `GET /v1/status`.
pub(crate) async fn show(
    State(api): State<ApiState>,
    Caller(_): Caller,
    params: Params,
) -> Result<Response, Failure> {
    params.finish()?;
    Ok(answer::json(&api.engine.status()))
}

/// `POST /v1/reload`: everything or nothing.
pub(crate) async fn reload(
    State(api): State<ApiState>,
    Caller(caller): Caller,
    params: Params,
    StrictJson(request): StrictJson<ReloadRequest>,
) -> Result<Response, Failure> {
    params.finish()?;
    let engine = api.engine.clone();
    let view = api.write(async move { engine.reload_for(&caller, request).await }).await?;
    Ok(answer::json(&view))
}
