//! Effect records: their owner may read one, operators may list them and end unknown outcomes.
//!
//! Owns the routes; who is an operator is the engine's to say.

use axum::{extract::State, response::Response};

use placet_engine::views::{RearmRequest, ResolutionRequest};
use placet_types::ids::RecordId;

use crate::{
    answer,
    api::{ApiState, Caller},
    backend::{Backend, Page},
    body::StrictJson,
    documents::RecordList,
    problem::Failure,
    query::Params,
    request::Id,
    routes::next_after,
};

/// `GET /v1/ledger`.
pub(crate) async fn list<B: Backend>(
    State(api): State<ApiState<B>>,
    Caller(caller): Caller<B::Caller>,
    mut params: Params,
) -> Result<Response, Failure> {
    let page =
        Page { state: params.text("state"), after: params.id("after")?, limit: params.limit()? };
    params.finish()?;
    let records = api.read(api.backend.records(&caller, &page)).await?;
    let next_after = next_after(&records, page.limit, |record| record.record_id);
    Ok(answer::json(&RecordList { records, next_after }))
}

/// `GET /v1/ledger/{id}`.
pub(crate) async fn get<B: Backend>(
    State(api): State<ApiState<B>>,
    Caller(caller): Caller<B::Caller>,
    Id(id): Id<RecordId>,
    params: Params,
) -> Result<Response, Failure> {
    params.finish()?;
    Ok(answer::json(&api.read(api.backend.record(&caller, id)).await?))
}

/// `POST /v1/ledger/{id}/resolution`.
pub(crate) async fn resolve<B: Backend>(
    State(api): State<ApiState<B>>,
    Caller(caller): Caller<B::Caller>,
    Id(id): Id<RecordId>,
    params: Params,
    StrictJson(request): StrictJson<ResolutionRequest>,
) -> Result<Response, Failure> {
    params.finish()?;
    let backend = api.backend.clone();
    let record = api.write(async move { backend.resolve(&caller, id, request).await }).await?;
    Ok(answer::json(&record))
}

/// `POST /v1/ledger/{id}/rearm`.
pub(crate) async fn rearm<B: Backend>(
    State(api): State<ApiState<B>>,
    Caller(caller): Caller<B::Caller>,
    Id(id): Id<RecordId>,
    params: Params,
    StrictJson(request): StrictJson<RearmRequest>,
) -> Result<Response, Failure> {
    params.finish()?;
    let backend = api.backend.clone();
    let record = api.write(async move { backend.rearm(&caller, id, request).await }).await?;
    Ok(answer::json(&record))
}
