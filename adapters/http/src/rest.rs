//! A call as a request to a service, and its answer.
//!
//! Owns what a status means for the call (RFC 9110, section 15): a success is done, a refusal of the request by the service is a failed
//! call, and everything else is for the contract to say. A write carries its dispatch token in `Idempotency-Key`
//! (draft-ietf-httpapi-idempotency-key-header).

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, header};
use placet_adapter::{
    adapter::{Conditions, Dispatch},
    outcome::{AdapterError, Answer, Outcome, Rejection},
};
use placet_egress::join_segments;
use placet_types::{
    contract::{
        Capability,
        not_executed::{ErrorAnswer, HttpError},
        rest::RestRequest,
    },
    json::{JsonLimits, parse_strict},
};
use serde_json::{Value, json};

use crate::target::{Target, unreached};

/// Makes the call.
pub(crate) async fn call(
    target: &Target,
    capability: &Capability,
    dispatch: &Dispatch,
    conditions: &Conditions,
) -> Outcome {
    let request = match request(target, capability, dispatch, conditions) {
        Ok(request) => request,
        Err(error) => return Outcome::NotExecuted(error),
    };
    let limit = Duration::from_millis(conditions.timeout_ms);
    match target.client.send_within(request, limit).await {
        Ok(response) => outcome(capability, &response),
        Err(error) => match unreached(&error) {
            Some(error) => Outcome::NotExecuted(error),
            None => Outcome::Unknown(error.to_string()),
        },
    }
}

fn request(
    target: &Target,
    capability: &Capability,
    dispatch: &Dispatch,
    conditions: &Conditions,
) -> Result<Request<Bytes>, AdapterError> {
    let file = capability
        .rest
        .as_ref()
        .ok_or_else(|| AdapterError::Misconfigured("it has no request".to_owned()))?;
    let RestRequest { segments, query, headers, body } =
        file.request(dispatch.args()).map_err(AdapterError::Refused)?;
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    let mut url = join_segments(&target.url, &segments)
        .map_err(|error| AdapterError::Refused(error.to_string()))?;
    if !query.is_empty() {
        url.query_pairs_mut().extend_pairs(query);
    }
    let mut request = Request::builder()
        .method(file.method.as_str())
        .uri(url.as_str())
        .header(header::ACCEPT, "application/json");
    for (name, value) in headers {
        request = request.header(name, value);
    }
    if capability.is_write_class() {
        request = request.header("idempotency-key", dispatch.token());
    }
    let traces = [
        ("traceparent", &conditions.trace.traceparent),
        ("tracestate", &conditions.trace.tracestate),
    ];
    for (name, value) in traces {
        if let Some(value) = value {
            request = request.header(name, value);
        }
    }
    if let Some(credential) = &conditions.credential {
        let (name, value) = target.header(credential)?;
        request = request.header(name, value);
    }
    let body = match body {
        Some(body) => {
            request = request.header(header::CONTENT_TYPE, "application/json");
            Bytes::from(body.to_string())
        }
        None => Bytes::new(),
    };
    request.body(body).map_err(|_invalid| {
        AdapterError::Refused("an argument holds what no header can".to_owned())
    })
}

fn outcome(capability: &Capability, response: &Response<Bytes>) -> Outcome {
    if response.status().is_success() {
        return Outcome::Done(answer(response));
    }
    refused(capability, response)
}

/// What a failure status means for the call.
pub(crate) fn refused(capability: &Capability, response: &Response<Bytes>) -> Outcome {
    let status = response.status();
    let rejected = |error: fn(String) -> AdapterError| {
        let answer = ErrorAnswer::Http(HttpError {
            status: status.as_u16(),
            has_challenge: response.headers().contains_key(header::WWW_AUTHENTICATE),
            has_retry_after: response.headers().contains_key(header::RETRY_AFTER),
            has_json_rpc: false,
        });
        let error = error(format!("http status {}", status.as_u16()));
        Outcome::Rejected(Rejection { answer, error })
    };
    match status {
        StatusCode::UNAUTHORIZED => rejected(AdapterError::CredentialRefused),
        StatusCode::FORBIDDEN => rejected(AdapterError::Forbidden),
        StatusCode::TOO_MANY_REQUESTS => rejected(AdapterError::Unavailable),
        _ if status.is_client_error() || !capability.is_write_class() => {
            Outcome::Failed(failed(response))
        }
        // The service may have acted before it failed.
        _ => rejected(AdapterError::Unavailable),
    }
}

/// The answer in the form in which all tools' results are kept.
fn answer(response: &Response<Bytes>) -> Answer {
    let output = match (json_of(response), std::str::from_utf8(response.body())) {
        (Some(structured), _) => {
            json!({ "content": [{ "type": "text", "text": structured.to_string() }], "structured": structured })
        }
        (None, Ok(text)) => json!({ "content": [{ "type": "text", "text": text }] }),
        (None, Err(_not_text)) => {
            let note = format!(
                "{} of {} bytes is not kept",
                kind(response.headers()),
                response.body().len()
            );
            json!({ "content": [], "notes": [note] })
        }
    };
    Answer { output, ..Answer::default() }
}

fn failed(response: &Response<Bytes>) -> Answer {
    let Answer { mut output, .. } = answer(response);
    if let Some(output) = output.as_object_mut() {
        output.insert("error".to_owned(), json!({ "code": response.status().as_u16() }));
    }
    Answer { output, ..Answer::default() }
}

fn json_of(response: &Response<Bytes>) -> Option<Value> {
    parse_strict(response.body(), &JsonLimits::default()).ok()
}

fn kind(headers: &HeaderMap) -> &str {
    headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("content")
}
