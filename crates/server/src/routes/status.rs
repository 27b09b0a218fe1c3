//! What decides on this node, and the reload that changes it.
//!
//! Owns the routes; who may reload is the engine's to say. What is active names no tenant, so every verified caller may see it.

use axum::{extract::State, response::Response};
use placet_pipeline::views::status::ReloadRequest;

use crate::{
    answer, backend::Backend, body::StrictJson, door::Door, problem::Failure, query::Params,
    request::Caller,
};

/// `GET /v1/status`.
pub(crate) async fn show<B: Backend>(
    State(door): State<Door<B>>,
    Caller(_): Caller<B::Caller>,
    params: Params,
) -> Result<Response, Failure> {
    params.finish()?;
    Ok(answer::json(&door.backend.status()))
}

/// `POST /v1/reload`: everything or nothing.
pub(crate) async fn reload<B: Backend>(
    State(door): State<Door<B>>,
    Caller(caller): Caller<B::Caller>,
    params: Params,
    StrictJson(request): StrictJson<ReloadRequest>,
) -> Result<Response, Failure> {
    params.finish()?;
    let backend = door.backend.clone();
    let view = door.write(async move { backend.reload(&caller, request).await }).await?;
    Ok(answer::json(&view))
}
