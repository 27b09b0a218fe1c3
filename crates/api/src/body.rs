//! Bodies: one JSON document, read strictly, within limits of size and time.
//!
//! Owns the only way from bytes on the wire to a typed request. Invariant: a body above the limit is never held in memory, and one that a
//! lax parser could read in two ways is refused.

use std::{pin::pin, time::Duration};

use axum::{
    body::{Body, BodyDataStream},
    extract::{FromRequest, Request},
};
use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use http::{HeaderMap, StatusCode, header};
use placet_engine::attempts::Attempt;
use serde::de::DeserializeOwned;
use serde_json::Value;

use placet_types::{
    error::{ErrorCode, Execution, Refusal},
    json::{JsonError, JsonFault, JsonLimits, from_value_strict, parse_strict},
};

use crate::{answer::JSON, problem::Failure, state::ApiState};

/// How much of an oversized body is read and discarded, in multiples of the limit, so that its client gets the error.
const DISCARD_FACTOR: usize = 32;

/// A typed body.
#[derive(Debug, Clone)]
pub(crate) struct StrictJson<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<ApiState> for StrictJson<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, api: &ApiState) -> Result<Self, Failure> {
        check_media_type(request.headers())?;
        let config = api.config();
        let within = Duration::from_millis(config.request_timeout_ms.0);
        let bytes_max = config.body_bytes_max.size();
        let bytes = tokio::time::timeout(within, read(request.into_body(), bytes_max)).await;
        let bytes = bytes.map_err(|_elapsed| body_too_slow())??;
        let limits = JsonLimits { bytes_max, ..JsonLimits::default() };
        let document = parse_strict(&bytes, &limits);
        let attempt = Attempt::of(&document);
        let read = document.and_then(object).and_then(from_value_strict);
        read.map(Self).map_err(|error| invalid(&error).counted(attempt))
    }
}

fn body_too_slow() -> Failure {
    let refusal = Refusal::new(ErrorCode::DeadlineExceeded, "the body took too long to arrive");
    Failure::with_status(refusal, StatusCode::REQUEST_TIMEOUT)
}

/// Only `application/json`, in UTF-8 and not compressed.
fn check_media_type(headers: &HeaderMap) -> Result<(), Failure> {
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    let text = types.next().and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (essence, parameters) = text.split_once(';').unwrap_or((text, ""));
    let charset = parameters.trim();
    let plain = charset.is_empty()
        || charset.eq_ignore_ascii_case("charset=utf-8")
        || charset.eq_ignore_ascii_case("charset=\"utf-8\"");
    let encoded = headers.contains_key(header::CONTENT_ENCODING);
    if essence.trim().eq_ignore_ascii_case(JSON) && plain && types.next().is_none() && !encoded {
        return Ok(());
    }
    let message = "the body must be sent once as `Content-Type: application/json`, in UTF-8 and not compressed";
    let refusal = Refusal::new(ErrorCode::ValidationError, message);
    Err(Failure::with_status(refusal, StatusCode::UNSUPPORTED_MEDIA_TYPE))
}

/// Reads a body up to its limit.
///
/// # Errors
/// [`Failure`] when it is larger, or ends early.
pub async fn read(body: Body, bytes_max: usize) -> Result<Bytes, Failure> {
    let mut chunks = pin!(body.into_data_stream());
    let mut whole = BytesMut::new();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| ended_early(&error))?;
        if whole.len().saturating_add(chunk.len()) > bytes_max {
            drop(whole);
            discard(&mut chunks, bytes_max.saturating_mul(DISCARD_FACTOR)).await;
            return Err(too_large(bytes_max));
        }
        whole.extend_from_slice(&chunk);
    }
    Ok(whole.freeze())
}

fn ended_early(error: &axum::Error) -> Failure {
    let refusal = Refusal::new(ErrorCode::ValidationError, "the body ended early");
    Failure::new(refusal.with_detail(error))
}

/// Throws away what follows. A client that is refused while it still writes would see a reset connection only.
async fn discard(chunks: &mut BodyDataStream, bytes_max: usize) {
    let mut left = bytes_max;
    while left > 0 {
        match chunks.next().await {
            Some(Ok(chunk)) => left = left.saturating_sub(chunk.len().max(1)),
            Some(Err(_)) | None => return,
        }
    }
}

fn too_large(bytes_max: usize) -> Failure {
    let message = format!("the body is larger than {bytes_max} bytes");
    let refusal = Refusal::new(ErrorCode::ValidationError, message.clone())
        .with_problem("", message)
        .with_execution(Execution::NotExecuted);
    Failure::with_status(refusal, StatusCode::PAYLOAD_TOO_LARGE)
}

/// A list is not a request, not even a batch or a list of its members in order.
fn object(document: Value) -> Result<Value, JsonError> {
    if document.is_object() {
        return Ok(document);
    }
    Err(JsonError::new(JsonFault::Shape, "an object is expected"))
}

fn invalid(error: &JsonError) -> Failure {
    let refusal = Refusal::new(ErrorCode::ValidationError, error.to_string());
    Failure::new(refusal.with_problem(error.pointer(), error.to_string()))
}

#[cfg(test)]
mod tests;
