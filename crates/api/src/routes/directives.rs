//! The entries of the approval service: standing grants, break-glass records, freezes, delegations, revocations.
//!
//! Owns the routes; policy determines who may create, decide, end and see what.

use axum::{extract::State, response::Response};

use placet_approvals::views::{DirectiveAct, DirectiveRequest, EntriesQuery};
use placet_types::{directive::DirectiveKind, ids::DirectiveId};

use crate::{
    answer,
    body::StrictJson,
    problem::Failure,
    query::Params,
    request::{Entity, Plain},
    state::{ApiState, Caller},
};

/// The filters by state, each with whether it selects only entries that can still change.
pub(crate) const STATES: [(&str, bool); 2] = [("open", true), ("all", false)];
/// The orders, each with whether it begins with the newest.
pub(crate) const ORDERS: [(&str, bool); 2] = [("oldest", false), ("newest", true)];

/// `GET /v1/directives`.
pub(crate) async fn list(
    State(api): State<ApiState>,
    Caller(caller): Caller,
    mut params: Params,
) -> Result<Response, Failure> {
    let query = EntriesQuery {
        kind: params.one_of("kind", &DirectiveKind::ALL.map(|kind| (kind.as_str(), kind)))?,
        only_open: params.one_of("state", &STATES)?.unwrap_or_default(),
        newest_first: params.one_of("order", &ORDERS)?.unwrap_or_default(),
        made_before: None,
        after: params.id("after")?,
        limit: params.limit()?,
    };
    params.finish()?;
    Ok(answer::json(&api.engine.approvals().entries(&caller, &query).await?))
}

/// `POST /v1/directives`.
pub(crate) async fn arrange(
    Plain { api, caller }: Plain,
    StrictJson(request): StrictJson<DirectiveRequest>,
) -> Result<Response, Failure> {
    Ok(answer::json(&api.engine.approvals().arrange(&caller, request).await?))
}

/// `GET /v1/directives/{id}`.
pub(crate) async fn get(
    Entity { api, caller, id }: Entity<DirectiveId>,
) -> Result<Response, Failure> {
    Ok(answer::json(&api.engine.approvals().entry(&caller, &id).await?))
}

/// `POST /v1/directives/{id}/acts`.
pub(crate) async fn act(
    Entity { api, caller, id }: Entity<DirectiveId>,
    StrictJson(act): StrictJson<DirectiveAct>,
) -> Result<Response, Failure> {
    Ok(answer::json(&api.engine.approvals().act(&caller, &id, act).await?))
}
