//! Bodies of requests: one JSON document, read strictly, within limits of size and time, before the transport reads them.
//!
//! Owns what is refused there and how; an attempt is an extension of the response, which whatever verified the caller counts. Invariant:
//! what another parser could read differently (a duplicate key, a byte order mark, bytes after the document), a batch, and what is larger
//! or nested deeper than allowed never reach the transport.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use futures::StreamExt as _;
use http::{Method, StatusCode, header, request::Parts};
use rmcp::model::{ErrorCode, RequestId};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;

use placet_engine::attempts::Attempt;
use placet_identity::VerifiedCaller;
use placet_types::{
    error::{ErrorCode as RefusalCode, Refusal},
    json::{JsonError, JsonFault, JsonLimits, parse_strict},
};

use crate::{
    results,
    shared::{SESSION, Shared},
};

/// How much of an oversized body is read and discarded, in multiples of the limit, so that its client gets the error.
const DISCARD_FACTOR: usize = 32;

/// The parsed body of a request, so that later layers need not parse it again.
#[derive(Debug, Clone)]
pub(crate) struct Document(pub(crate) Arc<Value>);

/// Lets only a single strict document through.
pub(crate) async fn check(
    State(shared): State<Arc<Shared>>,
    request: Request,
    next: Next,
) -> Response {
    if request.method() != Method::POST {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    let bytes_max = shared.settings.request_bytes_max;
    let bytes = match timeout(shared.settings.body_within, read(body, bytes_max)).await {
        Ok(Some(bytes)) => bytes,
        Ok(None) => {
            let said = format!("the body is larger than {bytes_max} bytes, or ended early");
            return refused(StatusCode::PAYLOAD_TOO_LARGE, ErrorCode::INVALID_REQUEST, &said);
        }
        Err(_elapsed) => {
            let said = "the body took too long to arrive";
            return refused(StatusCode::REQUEST_TIMEOUT, ErrorCode::INVALID_REQUEST, said);
        }
    };
    let limits = JsonLimits { bytes_max, ..JsonLimits::default() };
    let document = parse_strict(&bytes, &limits);
    let attempt = Attempt::of(&document);
    let fault = document.as_ref().err().cloned();
    let unfit = document.as_ref().ok().and_then(unfit);
    let (code, said) = match document {
        Ok(document) if document.is_object() && unfit.is_none() => {
            let mut request = Request::from_parts(parts, Body::from(bytes));
            request.extensions_mut().insert(Document(Arc::new(document)));
            return with_mismatch(next.run(request).await, bytes_max).await;
        }
        Ok(_) => {
            let batch = "batches are not accepted: send one message";
            (ErrorCode::INVALID_REQUEST, unfit.unwrap_or(batch).to_owned())
        }
        Err(error) if matches!(error.fault(), JsonFault::Syntax | JsonFault::NotUtf8) => {
            (ErrorCode::PARSE_ERROR, error.to_string())
        }
        Err(error) => (ErrorCode::INVALID_REQUEST, error.to_string()),
    };
    let mut response = match arguments_refused(&shared, &parts, &bytes, fault.as_ref()) {
        Some(response) => response,
        None => refused(StatusCode::BAD_REQUEST, code, &said),
    };
    if let Some(attempt) = attempt {
        response.extensions_mut().insert(attempt);
    }
    response
}

/// Why an object is no message of JSON-RPC 2.0 (sections 4 and 5), if it is none.
fn unfit(document: &Value) -> Option<&'static str> {
    let message = document.as_object()?;
    let is_id = |id: &Value| id.is_string() || id.is_i64() || id.is_u64();
    if message.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return Some("`jsonrpc` must be \"2.0\"");
    }
    let is_request = message.contains_key("method");
    let has_unfit_id = message.get("id").is_some_and(|id| !is_id(id));
    (is_request && has_unfit_id).then_some("`id` must be a string or an integer")
}

/// What is read of a call whose arguments are refused.
#[derive(Deserialize)]
struct RefusedCall {
    id: RequestId,
    method: String,
    params: RefusedParams,
}

#[derive(Deserialize)]
struct RefusedParams {
    name: String,
}

/// The answer to a call in a session, if only an argument of it breaks the rules: the model can correct it. Some clients end with all their
/// calls at a refused request.
fn arguments_refused(
    shared: &Shared,
    parts: &Parts,
    bytes: &[u8],
    fault: Option<&JsonError>,
) -> Option<Response> {
    let fault = fault.filter(|fault| fault.pointer().starts_with("/params/arguments/"))?;
    let (caller, _session) =
        (parts.extensions.get::<Arc<VerifiedCaller>>()?, parts.headers.get(SESSION)?);
    let call: RefusedCall = serde_json::from_slice(bytes).ok()?;
    if call.method != "tools/call" {
        return None;
    }
    let said = fault.to_string().replacen("/params/arguments", "", 1);
    let refusal = Refusal::new(RefusalCode::ValidationError, said);
    let result = results::refused(&refusal, shared.of(caller, &call.params.name));
    Some(results::response(call.id, Ok(result)))
}

/// Notes that the transport refused headers that contradict the body, or are there twice.
async fn with_mismatch(response: Response, bytes_max: usize) -> Response {
    if response.status() != StatusCode::BAD_REQUEST {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let bytes = read(body, bytes_max).await.unwrap_or_default();
    let document = serde_json::from_slice::<Value>(&bytes).unwrap_or_default();
    if document.pointer("/error/code").is_some_and(|code| *code == ErrorCode::HEADER_MISMATCH.0) {
        parts.extensions.insert(Attempt::Ambiguous);
    }
    Response::from_parts(parts, Body::from(bytes))
}

/// The whole body; `None` if it is larger than its limit, or ends early.
async fn read(body: Body, bytes_max: usize) -> Option<Vec<u8>> {
    let mut chunks = body.into_data_stream();
    let (mut whole, mut arrived) = (Vec::new(), 0_usize);
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.ok()?;
        arrived = arrived.saturating_add(chunk.len());
        if arrived <= bytes_max {
            whole.extend_from_slice(&chunk);
        } else if arrived > bytes_max.saturating_mul(DISCARD_FACTOR) {
            return None;
        } else {
            whole = Vec::new();
        }
    }
    (arrived <= bytes_max).then_some(whole)
}

fn refused(status: StatusCode, code: ErrorCode, said: &str) -> Response {
    let error =
        json!({ "jsonrpc": "2.0", "id": null, "error": { "code": code.0, "message": said } });
    (status, [(header::CONTENT_TYPE, "application/json")], error.to_string()).into_response()
}
