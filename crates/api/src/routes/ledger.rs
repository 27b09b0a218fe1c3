//! Effect records: their owner may read one, operators may list them and end unknown outcomes.
//!
//! Owns the routes; the engine determines who is an operator.

use axum::{extract::State, response::Response};

use placet_engine::views::{RearmRequest, ResolutionRequest};
use placet_types::ids::{RecordId, RecordPlace};

use crate::{
    answer,
    body::StrictJson,
    documents::RecordList,
    problem::Failure,
    query::Params,
    request::Entity,
    routes::next_after,
    state::{ApiState, Caller},
};

/// `GET /v1/ledger`.
pub(crate) async fn list(
    State(api): State<ApiState>,
    Caller(caller): Caller,
    mut params: Params,
) -> Result<Response, Failure> {
    let state = params.text("state");
    let (after, limit) = (params.id("after")?, params.limit()?);
    params.finish()?;
    let records = api.engine.records(&caller, state.as_deref(), after, limit).await?;
    let next_after = next_after(&records, limit, |record| RecordPlace {
        updated_at: record.updated_at,
        record_id: record.record_id,
    });
    Ok(answer::json(&RecordList { records, next_after }))
}

/// `GET /v1/ledger/{id}`.
pub(crate) async fn get(Entity { api, caller, id }: Entity<RecordId>) -> Result<Response, Failure> {
    Ok(answer::json(&api.engine.record(&caller, id).await?))
}

/// `POST /v1/ledger/{id}/resolution`.
pub(crate) async fn resolve(
    Entity { api, caller, id }: Entity<RecordId>,
    StrictJson(request): StrictJson<ResolutionRequest>,
) -> Result<Response, Failure> {
    Ok(answer::json(&api.engine.resolve(&caller, id, request).await?))
}

/// `POST /v1/ledger/{id}/rearm`.
pub(crate) async fn rearm(
    Entity { api, caller, id }: Entity<RecordId>,
    StrictJson(request): StrictJson<RearmRequest>,
) -> Result<Response, Failure> {
    Ok(answer::json(&api.engine.rearm(&caller, id, request).await?))
}
