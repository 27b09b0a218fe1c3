//! Evidence: receipts for calls, signed checkpoints of the log, proofs about it.
//!
//! Owns the routes. What a receipt and a proof say, and who may have them, is the engine's.

use axum::{extract::State, response::Response};

use placet_types::{error::Refusal, ids::ToolCallId};

use crate::{
    answer,
    api::{ApiState, Caller},
    documents::CheckpointList,
    problem::Failure,
    query::Params,
    request::Id,
};

/// The largest size of a log that can be asked about.
const SIZE_MAX: u64 = i64::MAX.unsigned_abs();

/// `GET /v1/calls/{id}/receipt`.
pub(crate) async fn receipt(
    State(api): State<ApiState>,
    Caller(caller): Caller,
    Id(id): Id<ToolCallId>,
    params: Params,
) -> Result<Response, Failure> {
    params.finish()?;
    Ok(answer::json(&api.read(own_words(api.engine.receipt(&caller, &id))).await?))
}

/// `GET /v1/audit/checkpoints`.
pub(crate) async fn checkpoints(
    State(api): State<ApiState>,
    Caller(caller): Caller,
    params: Params,
) -> Result<Response, Failure> {
    params.finish()?;
    let engine = api.engine.clone();
    let checkpoints = api.write(async move { engine.checkpoints(&caller).await }).await?;
    Ok(answer::json(&CheckpointList { checkpoints }))
}

/// `GET /v1/audit/key`.
pub(crate) async fn key(
    State(api): State<ApiState>,
    Caller(caller): Caller,
    params: Params,
) -> Result<Response, Failure> {
    params.finish()?;
    Ok(answer::json(&api.engine.audit_key(&caller)?))
}

/// `GET /v1/audit/inclusion`.
pub(crate) async fn inclusion(
    State(api): State<ApiState>,
    Caller(caller): Caller,
    mut params: Params,
) -> Result<Response, Failure> {
    let log = log(&mut params)?;
    let seq = params.number("seq", 1..=SIZE_MAX, 0)?;
    let size = params.number("size", 1..=SIZE_MAX, 0)?;
    params.finish()?;
    let (seq, size) = (needed("seq", seq)?, Some(size).filter(|size| *size > 0));
    Ok(answer::json(&api.read(own_words(api.engine.inclusion(&caller, &log, seq, size))).await?))
}

/// `GET /v1/audit/consistency`.
pub(crate) async fn consistency(
    State(api): State<ApiState>,
    Caller(caller): Caller,
    mut params: Params,
) -> Result<Response, Failure> {
    let log = log(&mut params)?;
    let from = params.number("from", 1..=SIZE_MAX, 0)?;
    let to = params.number("to", 1..=SIZE_MAX, 0)?;
    params.finish()?;
    let (from, to) = (needed("from", from)?, needed("to", to)?);
    Ok(answer::json(&api.read(own_words(api.engine.consistency(&caller, &log, from, to))).await?))
}

/// Why there is no evidence is said in the engine's words; they are the same for everything that the caller may not see.
async fn own_words<T>(question: impl Future<Output = Result<T, Refusal>>) -> Result<T, Failure> {
    question.await.map_err(Failure::new)
}

fn log(params: &mut Params) -> Result<String, Failure> {
    params.text("log").ok_or_else(|| Failure::malformed("`log` is missing"))
}

fn needed(name: &str, number: u64) -> Result<u64, Failure> {
    if number > 0 { Ok(number) } else { Err(Failure::malformed(format!("`{name}` is missing"))) }
}
