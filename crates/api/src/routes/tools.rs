//! The tools that some circumstance could let the caller use.
//!
//! Owns the route; the engine owns the surface.

use axum::{extract::State, response::Response};

use crate::{
    answer,
    api::{ApiState, Caller},
    documents::ToolList,
    problem::Failure,
    query::Params,
};

/// `GET /v1/tools`.
pub(crate) async fn list(
    State(api): State<ApiState>,
    Caller(caller): Caller,
    params: Params,
) -> Result<Response, Failure> {
    params.finish()?;
    Ok(answer::json(&ToolList { tools: api.engine.tools(&caller) }))
}
