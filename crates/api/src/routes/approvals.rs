//! Approvals: which ones wait, what they are about, deciding them, alone or together, and changing their arguments.
//!
//! Owns the routes; who may see and decide what is policy's.

use axum::{extract::State, response::Response};

use placet_approvals::views::{
    APPROVAL_STATES, BulkDecisionRequest, DecisionRequest, EditRequest, FINISHED, WithdrawalRequest,
};
use placet_types::ids::ApprovalId;

use crate::{
    answer,
    api::{ApiState, Caller},
    body::StrictJson,
    documents::ApprovalList,
    problem::Failure,
    query::Params,
    request::Id,
    routes::{next_after, one_of},
};

/// The states that a list takes: those that an approval can be in, and all that are finished.
pub(crate) fn states() -> Vec<&'static str> {
    APPROVAL_STATES.into_iter().chain([FINISHED]).collect()
}

/// `GET /v1/approvals`.
pub(crate) async fn list(
    State(api): State<ApiState>,
    Caller(caller): Caller,
    mut params: Params,
) -> Result<Response, Failure> {
    let state = one_of(&mut params, "state", &states())?;
    let (after, limit) = (params.id("after")?, params.limit()?);
    params.finish()?;
    let service = api.engine.approvals();
    let question = service.approvals(&caller, state.as_deref(), after.as_ref(), limit);
    let approvals = api.read(question).await?;
    let next_after = next_after(&approvals, limit, |approval| approval.approval_id.clone());
    Ok(answer::json(&ApprovalList { approvals, next_after }))
}

/// `GET /v1/approvals/{id}`.
pub(crate) async fn get(
    State(api): State<ApiState>,
    Caller(caller): Caller,
    Id(id): Id<ApprovalId>,
    params: Params,
) -> Result<Response, Failure> {
    params.finish()?;
    Ok(answer::json(&api.read(api.engine.approvals().approval(&caller, &id)).await?))
}

/// `POST /v1/approvals/{id}/decisions`.
pub(crate) async fn decide(
    State(api): State<ApiState>,
    Caller(caller): Caller,
    Id(id): Id<ApprovalId>,
    params: Params,
    StrictJson(request): StrictJson<DecisionRequest>,
) -> Result<Response, Failure> {
    params.finish()?;
    let engine = api.engine.clone();
    let approval =
        api.write(async move { engine.approvals().decide(&caller, &id, request).await }).await?;
    Ok(answer::json(&approval))
}

/// `POST /v1/approvals/{id}/edits`: other arguments in the place of those that people are asked about.
pub(crate) async fn edit(
    State(api): State<ApiState>,
    Caller(caller): Caller,
    Id(id): Id<ApprovalId>,
    params: Params,
    StrictJson(request): StrictJson<EditRequest>,
) -> Result<Response, Failure> {
    params.finish()?;
    let engine = api.engine.clone();
    let approval =
        api.write(async move { engine.approvals().edit(&caller, &id, request).await }).await?;
    Ok(answer::json(&approval))
}

/// `POST /v1/approvals/{id}/withdrawal`: the call ends and does not run.
pub(crate) async fn withdraw(
    State(api): State<ApiState>,
    Caller(caller): Caller,
    Id(id): Id<ApprovalId>,
    params: Params,
    StrictJson(request): StrictJson<WithdrawalRequest>,
) -> Result<Response, Failure> {
    params.finish()?;
    let engine = api.engine.clone();
    let approval =
        api.write(async move { engine.approvals().withdraw(&caller, &id, request).await }).await?;
    Ok(answer::json(&approval))
}

/// `POST /v1/approvals/decisions`: one decision on several approvals, each recorded by itself.
pub(crate) async fn decide_together(
    State(api): State<ApiState>,
    Caller(caller): Caller,
    params: Params,
    StrictJson(request): StrictJson<BulkDecisionRequest>,
) -> Result<Response, Failure> {
    params.finish()?;
    let engine = api.engine.clone();
    let view =
        api.write(async move { engine.approvals().decide_bulk(&caller, request).await }).await?;
    Ok(answer::json(&view))
}
