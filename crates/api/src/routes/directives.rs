//! The entries of the approval service: standing grants, break-glass records, freezes, delegations; and what happens in the approval service.
//!
//! Owns the routes; who may arrange, decide, end and see what is policy's.

use axum::{extract::State, response::Response};

use placet_approvals::views::{DirectiveAct, DirectiveRequest, EntriesQuery};
use placet_types::{directive::DirectiveKind, ids::DirectiveId};

use crate::{
    answer,
    api::{ApiState, Caller},
    body::StrictJson,
    documents::DirectiveList,
    events,
    problem::Failure,
    query::Params,
    request::Id,
    routes::one_of,
};

/// Which entries there can be asked for: those of which something may still become, or all.
pub(crate) const STATES: [&str; 2] = ["open", "all"];
/// The orders, each with whether it begins with the newest.
pub(crate) const ORDERS: [(&str, bool); 2] = [("oldest", false), ("newest", true)];

/// `GET /v1/directives`.
pub(crate) async fn list(
    State(api): State<ApiState>,
    Caller(caller): Caller,
    mut params: Params,
) -> Result<Response, Failure> {
    let kind = params.one_of("kind", &DirectiveKind::ALL.map(|kind| (kind.as_str(), kind)))?;
    let state = one_of(&mut params, "state", &STATES)?;
    let query = EntriesQuery {
        kind,
        only_open: state.as_deref() == Some("open"),
        newest_first: params.one_of("order", &ORDERS)?.unwrap_or_default(),
        made_before: None,
        after: params.id("after")?,
        limit: params.limit()?,
    };
    params.finish()?;
    let page = api.read(api.engine.approvals().entries(&caller, &query)).await?;
    Ok(answer::json(&DirectiveList { entries: page.entries, next_after: page.next_after }))
}

/// `POST /v1/directives`.
pub(crate) async fn arrange(
    State(api): State<ApiState>,
    Caller(caller): Caller,
    params: Params,
    StrictJson(request): StrictJson<DirectiveRequest>,
) -> Result<Response, Failure> {
    params.finish()?;
    let engine = api.engine.clone();
    let entry =
        api.write(async move { engine.approvals().arrange(&caller, request).await }).await?;
    Ok(answer::json(&entry))
}

/// `GET /v1/directives/{id}`.
pub(crate) async fn get(
    State(api): State<ApiState>,
    Caller(caller): Caller,
    Id(id): Id<DirectiveId>,
    params: Params,
) -> Result<Response, Failure> {
    params.finish()?;
    Ok(answer::json(&api.read(api.engine.approvals().entry(&caller, &id)).await?))
}

/// `POST /v1/directives/{id}/acts`.
pub(crate) async fn act(
    State(api): State<ApiState>,
    Caller(caller): Caller,
    Id(id): Id<DirectiveId>,
    params: Params,
    StrictJson(act): StrictJson<DirectiveAct>,
) -> Result<Response, Failure> {
    params.finish()?;
    let engine = api.engine.clone();
    let entry = api.write(async move { engine.approvals().act(&caller, &id, act).await }).await?;
    Ok(answer::json(&entry))
}

/// `GET /v1/approvals/events`: what happens from now on, as far as the caller may see it.
pub(crate) async fn follow(
    State(api): State<ApiState>,
    Caller(caller): Caller,
    params: Params,
) -> Result<Response, Failure> {
    params.finish()?;
    events::approvals::respond(&api, &caller)
}
