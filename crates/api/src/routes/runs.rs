//! Runs: opening one, its state, and the tools that its model is offered.
//!
//! Owns the routes. What is offered is the engine's to say; a run of another caller answers like one that is not open.

use std::sync::Arc;

use axum::{extract::State, response::Response};

use placet_identity::VerifiedCaller;
use serde::Serialize;

use placet_engine::{
    runs::{
        batch_views::Batch,
        views::{OpenRun, ToolsChange, ToolsFormat},
    },
    submission::Inbound,
};
use placet_types::{
    error::{ErrorCode, Execution, Refusal},
    ids::RunId,
};

use crate::{
    answer,
    body::StrictJson,
    problem::Failure,
    query::Params,
    request::{CallHeaders, Entity, Id, Plain},
    routes::wait_ms,
    state::{ApiState, Caller},
};

/// The forms of tool definitions, by name.
pub(crate) const FORMATS: [(&str, ToolsFormat); 3] =
    [("plain", ToolsFormat::Plain), ("openai", ToolsFormat::Openai), ("mcp", ToolsFormat::Mcp)];

/// `POST /v1/runs`.
pub(crate) async fn open(
    Plain { api, caller }: Plain,
    StrictJson(request): StrictJson<OpenRun>,
) -> Result<Response, Failure> {
    Ok(answer::json(&api.engine.open_run(&caller, request).await?))
}

/// `GET /v1/runs`: the open runs that the caller may see.
pub(crate) async fn list(
    State(api): State<ApiState>,
    Caller(caller): Caller,
    mut params: Params,
) -> Result<Response, Failure> {
    let run_id: Option<RunId> = params.id("run_id")?;
    params.finish()?;
    Ok(answer::json(&api.engine.runs(&caller, run_id.as_ref()).await?))
}

/// `GET /v1/runs/{id}`.
pub(crate) async fn get(Entity { api, caller, id }: Entity<RunId>) -> Result<Response, Failure> {
    Ok(answer::json(&api.engine.run(&caller, &id).await?))
}

/// `GET /v1/runs/{id}/tools`: what its model is offered at its next turn.
pub(crate) async fn tools(
    State(api): State<ApiState>,
    Caller(caller): Caller,
    Id(id): Id<RunId>,
    mut params: Params,
) -> Result<Response, Failure> {
    let format = params.one_of("format", &FORMATS)?.unwrap_or(ToolsFormat::Plain);
    params.finish()?;
    Ok(answer::json(&api.engine.run_tools(&caller, &id, format)?))
}

/// `POST /v1/runs/{id}/tools`: forces and excludes tools.
pub(crate) async fn change(
    Entity { api, caller, id }: Entity<RunId>,
    StrictJson(change): StrictJson<ToolsChange>,
) -> Result<Response, Failure> {
    Ok(answer::json(&api.engine.change_run_tools(&caller, &id, &change)?))
}

/// `POST /v1/runs/{id}/batches`: answers when every call has ended, or is held for longer than the request waits.
pub(crate) async fn batch(
    Entity { api, caller, id }: Entity<RunId>,
    headers: CallHeaders,
    StrictJson(batch): StrictJson<Batch>,
) -> Result<Response, Failure> {
    answered(&api, &caller, headers, batch, |batch, inbound| {
        api.engine.batch(Arc::clone(&caller), &id, batch, inbound)
    })
    .await
}

/// The result of a batch that `carry_out` runs, within the lifetime of the caller's token, unless the caller is revoked or the service
/// stops first.
pub(super) async fn answered<T: Serialize, F: Future<Output = Result<T, Refusal>>>(
    api: &ApiState,
    caller: &Arc<VerifiedCaller>,
    headers: CallHeaders,
    batch: Batch,
    carry_out: impl FnOnce(Batch, Inbound) -> F,
) -> Result<Response, Failure> {
    let (mut batch, inbound) = headers.complete_batch(batch)?;
    let left_ms = u64::try_from(api.engine.expires_in(caller).as_millis()).unwrap_or(u64::MAX);
    let wait_ms = wait_ms(batch.wait_ms)?.min(left_ms);
    batch.wait_ms = Some(wait_ms);
    tokio::select! {
        biased;
        refusal = api.engine.revoked(Arc::clone(caller)) => {
            Err(Failure::new(refusal.with_execution(Execution::Unknown)))
        }
        view = carry_out(batch, inbound) => Ok(answer::json(&view?)),
        // A batch that does not wait for people is still awaited here.
        () = api.closing(), if wait_ms > 0 => {
            let message = "the service is stopping; send the same batch again";
            let refusal = Refusal::new(ErrorCode::Overloaded, message).with_retry_after_ms(1_000);
            Err(Failure::new(refusal.with_execution(Execution::Unknown)))
        }
    }
}

/// `GET /v1/runs/{id}/batches`.
pub(crate) async fn batches(
    Entity { api, caller, id }: Entity<RunId>,
) -> Result<Response, Failure> {
    Ok(answer::json(&api.engine.batches(&caller, &id)?))
}
