//! Evidence: receipts for calls, signed checkpoints of the log, proofs about it.
//!
//! Owns the routes. The engine determines what a receipt and a proof contain, and who may have them. The reason for missing evidence is in
//! the engine's words, the same for everything that the caller may not see.

use axum::{extract::State, response::Response};

use placet_types::ids::ToolCallId;

use crate::{
    answer,
    documents::CheckpointList,
    problem::Failure,
    query::Params,
    request::{Entity, Plain},
    state::{ApiState, Caller},
};

/// The largest log size that can be queried.
const SIZE_MAX: u64 = i64::MAX.unsigned_abs();

/// `GET /v1/calls/{id}/receipt`.
pub(crate) async fn receipt(
    Entity { api, caller, id }: Entity<ToolCallId>,
) -> Result<Response, Failure> {
    Ok(answer::json(&api.engine.receipt(&caller, &id).await.map_err(Failure::new)?))
}

/// `GET /v1/audit/checkpoints`.
pub(crate) async fn checkpoints(Plain { api, caller }: Plain) -> Result<Response, Failure> {
    let engine = api.engine.clone();
    // It writes: what is signed is recorded.
    let checkpoints = api.write(async move { engine.checkpoints(&caller).await }).await??;
    Ok(answer::json(&CheckpointList { checkpoints }))
}

/// `GET /v1/audit/key`.
pub(crate) async fn key(Plain { api, caller }: Plain) -> Result<Response, Failure> {
    Ok(answer::json(&api.engine.audit_key(&caller)?))
}

/// `GET /v1/audit/inclusion`.
pub(crate) async fn inclusion(
    State(api): State<ApiState>,
    Caller(caller): Caller,
    mut params: Params,
) -> Result<Response, Failure> {
    let log = params.text("log");
    let (seq, size) = (params.number("seq", 1..=SIZE_MAX)?, params.number("size", 1..=SIZE_MAX)?);
    params.finish()?;
    let (log, seq) = (needed("log", log)?, needed("seq", seq)?);
    let proof = api.engine.inclusion(&caller, &log, seq, size).await;
    Ok(answer::json(&proof.map_err(Failure::new)?))
}

/// `GET /v1/audit/consistency`.
pub(crate) async fn consistency(
    State(api): State<ApiState>,
    Caller(caller): Caller,
    mut params: Params,
) -> Result<Response, Failure> {
    let log = params.text("log");
    let (from, to) = (params.number("from", 1..=SIZE_MAX)?, params.number("to", 1..=SIZE_MAX)?);
    params.finish()?;
    let (log, from, to) = (needed("log", log)?, needed("from", from)?, needed("to", to)?);
    let proof = api.engine.consistency(&caller, &log, from, to).await;
    Ok(answer::json(&proof.map_err(Failure::new)?))
}

fn needed<T>(name: &str, value: Option<T>) -> Result<T, Failure> {
    value.ok_or_else(|| Failure::malformed(format!("`{name}` is missing")))
}
