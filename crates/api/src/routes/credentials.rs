//! Credentials: what this node has minted and keeps, as numbers.
//!
//! Owns the route; who may see it is the engine's to say. Tokens are revoked at `/v1/directives`, as an entry of it.

use axum::{extract::State, response::Response};

use crate::{
    answer,
    api::{ApiState, Caller},
    problem::Failure,
    query::Params,
};

/// `GET /v1/credentials`.
pub(crate) async fn show(
    State(api): State<ApiState>,
    Caller(caller): Caller,
    params: Params,
) -> Result<Response, Failure> {
    params.finish()?;
    Ok(answer::json(&api.engine.credentials(&caller)?))
}
