//! Sessions: runs whose calls are kept, for simulations.
//!
//! Owns the routes. What a session is the engine says; one of another caller answers like one that is not open.

use std::sync::Arc;

use axum::response::{IntoResponse as _, Response};
use http::StatusCode;

use placet_engine::runs::{batch_views::Batch, sessions::OpenSession};
use placet_types::ids::RunId;

use super::runs::answered;
use crate::{
    answer,
    body::StrictJson,
    problem::Failure,
    request::{CallHeaders, Entity, Plain},
};

/// `POST /v1/sessions`.
pub(crate) async fn open(
    Plain { api, caller }: Plain,
    StrictJson(request): StrictJson<OpenSession>,
) -> Result<Response, Failure> {
    Ok(answer::json(&api.engine.open_session(&caller, request).await?))
}

/// `GET /v1/sessions/{id}`.
pub(crate) async fn get(Entity { api, caller, id }: Entity<RunId>) -> Result<Response, Failure> {
    Ok(answer::json(&api.engine.session(&caller, &id)?))
}

/// `DELETE /v1/sessions/{id}`: answers the same where none is open.
pub(crate) async fn close(Entity { api, caller, id }: Entity<RunId>) -> Result<Response, Failure> {
    api.engine.close_session(&caller, &id);
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// `POST /v1/sessions/{id}/execute`.
pub(crate) async fn execute(
    Entity { api, caller, id }: Entity<RunId>,
    headers: CallHeaders,
    StrictJson(batch): StrictJson<Batch>,
) -> Result<Response, Failure> {
    answered(&api, &caller, headers, batch, |batch, inbound| {
        api.engine.execute(Arc::clone(&caller), &id, batch, inbound)
    })
    .await
}

/// `POST /v1/sessions/{id}/simulate`.
pub(crate) async fn simulate(
    Entity { api, caller, id }: Entity<RunId>,
    headers: CallHeaders,
    StrictJson(batch): StrictJson<Batch>,
) -> Result<Response, Failure> {
    answered(&api, &caller, headers, batch, |batch, inbound| {
        api.engine.simulate(Arc::clone(&caller), &id, batch, inbound)
    })
    .await
}
