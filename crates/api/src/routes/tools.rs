//! The tools that some circumstance could let the caller use.
//!
//! Owns the route; the engine owns the surface.

use axum::{extract::State, response::Response};

use crate::{
    answer,
    api::{ApiState, Caller},
    backend::Backend,
    documents::ToolList,
    problem::Failure,
    query::Params,
};

/// `GET /v1/tools`.
pub(crate) async fn list<B: Backend>(
    State(api): State<ApiState<B>>,
    Caller(caller): Caller<B::Caller>,
    params: Params,
) -> Result<Response, Failure> {
    params.finish()?;
    Ok(answer::json(&ToolList { tools: api.backend.tools(&caller) }))
}
