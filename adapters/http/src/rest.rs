//! A call as a request to a service, and its answer.
//!
//! Owns what a status means for the call (RFC 9110, section 15): a success is done, a refusal of the request by the service is a failed
//! call unless the contract counts it as not executed, and everything else is for the contract to say. A write carries its dispatch token
//! in `Idempotency-Key` (draft-ietf-httpapi-idempotency-key-header).

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
        Capability, Dedup,
        not_executed::{ErrorAnswer, HttpError},
        rest::RestRequest,
    },
    json::{JsonLimits, parse_strict},
};
use serde_json::{Value, json};

use crate::target::{Target, unreached};

/// Refusals that are no end of a write: of the credential, the rate or the time.
const UNDECIDED: [u16; 4] = [401, 403, 408, 429];
/// Those of a service that recognises the token: an earlier request with it may be under way, for which
/// draft-ietf-httpapi-idempotency-key-header has 409.
const UNDER_WAY: [u16; 2] = [409, 425];
/// What refuses a read, for now or with this credential, without answering it. It changes nothing, so there the service is believed.
const READ_REFUSALS: [u16; 6] = [401, 403, 429, 502, 503, 504];
/// A body that contains this may be a JSON-RPC message.
const JSON_RPC: &[u8] = b"jsonrpc";

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
    let listening = Duration::from_millis(conditions.listen_ms);
    match target.client.send_listening(request, limit, listening).await {
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

/// What a failure status means for the call. A write that a service refuses has failed, unless the contract counts the status as not
/// executed, or it may be about an earlier request with the same token, which is still under way.
pub(crate) fn refused(capability: &Capability, response: &Response<Bytes>) -> Outcome {
    let status = response.status();
    let why = format!("http status {}", status.as_u16());
    let error = match status {
        StatusCode::UNAUTHORIZED => AdapterError::CredentialRefused(why),
        StatusCode::FORBIDDEN => AdapterError::Forbidden(why),
        StatusCode::TOO_MANY_REQUESTS => AdapterError::Unavailable(why),
        _ if status.is_client_error() => AdapterError::Refused(why),
        _ => AdapterError::Unavailable(why),
    };
    let answer = ErrorAnswer::Http(HttpError {
        status: status.as_u16(),
        has_challenge: response.headers().contains_key(header::WWW_AUTHENTICATE),
        has_retry_after: response.headers().contains_key(header::RETRY_AFTER),
        has_json_rpc: response.body().windows(JSON_RPC.len()).any(|part| part == JSON_RPC),
    });
    if !capability.is_write_class() {
        let is_refusal = READ_REFUSALS.contains(&status.as_u16());
        return if is_refusal {
            Outcome::NotExecuted(error)
        } else {
            Outcome::Failed(failed(response))
        };
    }
    // All else says nothing: the service may have acted before it failed.
    let is_keyed = matches!(capability.dedup, Dedup::Keyed { .. });
    let is_undecided =
        UNDECIDED.contains(&status.as_u16()) || is_keyed && UNDER_WAY.contains(&status.as_u16());
    let is_failure = status.is_client_error() && !is_undecided;
    if is_failure && !capability.not_executed.counts(&answer) {
        return Outcome::Failed(failed(response));
    }
    Outcome::Rejected(Rejection { answer, error })
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use http::Response;
    use placet_adapter::outcome::{AdapterError, Outcome};
    use serde_json::{Value, json};

    use super::refused;
    use crate::tests::{contract, endpoint, paid};

    /// The outcome of a call that is answered with this status, as the contract lets it count.
    fn outcome(tool: &str, status: u16, header: &str, not_executed: &Value) -> Outcome {
        let contract = contract("rest", "http://127.0.0.1:9/", |file| {
            if !not_executed.is_null() {
                file["capabilities"]["pay"]["not_executed"] = not_executed.clone();
            }
        });
        let mut response = Response::builder().status(status);
        if !header.is_empty() {
            response = response.header(header, "x");
        }
        let response = response.body(Bytes::from_static(b"no")).unwrap();
        let capability = &contract.capabilities[&tool.parse().unwrap()];
        refused(capability, &response).under(capability)
    }

    #[test]
    fn an_answer_that_says_nothing_about_a_write_leaves_it_unknown() {
        for status in [403, 408, 429, 500, 502, 503, 504] {
            let outcome = outcome("pay", status, "", &Value::Null);
            assert!(matches!(outcome, Outcome::Unknown(_)), "{status}: {outcome:?}");
        }
        for status in [400, 404, 409, 410, 422] {
            let outcome = outcome("pay", status, "", &Value::Null);
            assert!(matches!(outcome, Outcome::Failed(_)), "{status}: {outcome:?}");
        }
        // A service that recognises the token may be working on an earlier request with it.
        for status in [409, 425] {
            let outcome = outcome("pay_once", status, "", &Value::Null);
            assert!(matches!(outcome, Outcome::Unknown(_)), "{status}: {outcome:?}");
        }
    }

    #[test]
    fn a_read_that_is_not_answered_now_was_not_executed() {
        let at = |status| outcome("look", status, "", &Value::Null);
        assert!(matches!(at(401), Outcome::NotExecuted(AdapterError::CredentialRefused(_))));
        assert!(matches!(at(403), Outcome::NotExecuted(AdapterError::Forbidden(_))));
        for status in [429, 502, 503, 504] {
            let outcome = at(status);
            assert!(
                matches!(outcome, Outcome::NotExecuted(AdapterError::Unavailable(_))),
                "{status}: {outcome:?}"
            );
        }
        for status in [400, 404, 408, 409, 500] {
            let outcome = at(status);
            assert!(matches!(outcome, Outcome::Failed(_)), "{status}: {outcome:?}");
        }
    }

    #[test]
    fn what_counts_as_not_executed_is_no_failure_of_a_write() {
        let declared = json!({ "http": [404, 409, 503] });
        for (status, header) in
            [(404, ""), (409, ""), (405, ""), (413, ""), (401, ""), (403, "www-authenticate")]
        {
            let outcome = outcome("pay", status, header, &declared);
            assert!(outcome.not_executed().is_some(), "{status}: {outcome:?}");
        }
        for (status, header) in [(503, ""), (429, "retry-after")] {
            let outcome = outcome("pay", status, header, &declared);
            assert!(
                matches!(outcome.not_executed(), Some(AdapterError::Unavailable(_))),
                "{status}: {outcome:?}"
            );
        }
        let other = outcome("pay", 410, "", &declared);
        assert!(matches!(other, Outcome::Failed(_)), "{other:?}");
    }

    #[tokio::test]
    async fn a_late_answer_is_heard_while_somebody_listens() {
        let url = endpoint(Duration::from_secs(1), &[json!({ "id": 7 })]).await;
        let heard = paid("rest", &url, 500, 20_000).await;
        assert!(matches!(heard, Outcome::Done(_)), "{heard:?}");
        let unheard = paid("rest", &url, 500, 0).await;
        assert!(matches!(unheard, Outcome::Unknown(_)), "{unheard:?}");
    }
}
