//! Reading the answers of a server over HTTP.
//!
//! Owns statuses, content types and the two forms of an answer. Keeps nothing. Invariant: an answer that does not
//! belong to its request is not passed on.

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use http::{HeaderMap, Response, StatusCode, header};
use http_body_util::{BodyDataStream, BodyExt};
use rmcp::{
    model::{ClientJsonRpcMessage, ClientRequest, RequestId, ServerJsonRpcMessage},
    transport::streamable_http_client::{SseError, StreamableHttpPostResponse},
};
use sse_stream::{Sse, SseStream};

use placet_egress::{EgressBody, EgressError};
use placet_types::contract::not_executed::HttpError;

use super::SESSION_ID;
use crate::failure::HttpFault;
use crate::{escapes, tasks};

/// How much is read of the body of a failed handshake.
const ERROR_BYTES_MAX: usize = 64 * 1024;
/// The member that every JSON-RPC message has.
const JSON_RPC: &[u8] = b"jsonrpc";
/// Why an answer is invalid.
pub(super) const NO_TYPE: &str = "its content type is neither json nor an event stream";
pub(super) const NO_JSON_RPC: &str = "its body is no json-rpc";
/// The longest session id.
const SESSION_ID_BYTES_MAX: usize = 1_024;
/// The bounds of the pause that a server may ask for before its stream is taken up again, in milliseconds.
const RETRY_MS_MIN: u64 = 1_000;
const RETRY_MS_MAX: u64 = 60_000;

/// The answer to a posted message.
pub(super) async fn read_answer(
    message: &ClientJsonRpcMessage,
    response: Response<EgressBody>,
    in_session: bool,
) -> Result<StreamableHttpPostResponse, HttpFault> {
    let status = response.status();
    if !status.is_success() {
        return read_failure(message, response, in_session).await;
    }
    let session_id = session_id(response.headers())?;
    let Some(id) = request_id(message) else { return Ok(StreamableHttpPostResponse::Accepted) };
    if status == StatusCode::ACCEPTED {
        return Ok(StreamableHttpPostResponse::Accepted);
    }
    if is_type(response.headers(), "text/event-stream") {
        return Ok(StreamableHttpPostResponse::Sse(events(response.into_body()), session_id));
    }
    if !is_type(response.headers(), "application/json") {
        return Err(HttpFault::Unusable(NO_TYPE));
    }
    let body = collect(response.into_body(), usize::MAX).await?;
    let unreadable = HttpFault::Unusable(NO_JSON_RPC);
    let text = std::str::from_utf8(&body).map_err(|_error| unreadable.clone())?;
    let answer: ServerJsonRpcMessage = serde_json::from_str(&tasks::carried(&escapes::whole(text)))
        .map_err(|_error| unreadable)?;
    if !answers(&answer, id) {
        return Err(HttpFault::Unusable("it belongs to another request"));
    }
    Ok(StreamableHttpPostResponse::Json(answer, session_id))
}

/// A failure status; for a handshake, the body may say more.
async fn read_failure(
    message: &ClientJsonRpcMessage,
    response: Response<EgressBody>,
    in_session: bool,
) -> Result<StreamableHttpPostResponse, HttpFault> {
    let status = response.status();
    let fault = failure(&response, in_session);
    let ClientJsonRpcMessage::Request(request) = message else { return Err(fault) };
    if matches!(request.request, ClientRequest::CallToolRequest(_)) {
        return Err(failure_of_call(response, in_session).await);
    }
    let is_handshake = matches!(
        &request.request,
        ClientRequest::InitializeRequest(_) | ClientRequest::DiscoverRequest(_)
    );
    // For credentials the status decides, whatever the body says.
    let is_of_credential = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
    if !is_handshake || is_of_credential || !status.is_client_error() {
        return Err(fault);
    }
    let Ok(body) = collect(response.into_body(), ERROR_BYTES_MAX).await else { return Err(fault) };
    let Ok(ServerJsonRpcMessage::Error(mut error)) = serde_json::from_slice(&body) else {
        return Err(fault);
    };
    // A server that refuses a request before reading it may not know its id.
    error.id = Some(request.id.clone());
    Ok(StreamableHttpPostResponse::Json(ServerJsonRpcMessage::Error(error), None))
}

/// The meaning of a failure status.
fn failure(response: &Response<EgressBody>, in_session: bool) -> HttpFault {
    let (status, headers) = (response.status(), response.headers());
    // A 400 in a session is how some servers say that they do not know it.
    if in_session && matches!(status, StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST) {
        return HttpFault::SessionEnded(status.as_u16());
    }
    HttpFault::Status(HttpError {
        has_challenge: headers.contains_key(header::WWW_AUTHENTICATE),
        has_retry_after: headers.contains_key(header::RETRY_AFTER),
        ..HttpError::bare(status.as_u16())
    })
}

/// The meaning of a failure status in answer to a tool call.
pub(super) async fn failure_of_call(response: Response<EgressBody>, in_session: bool) -> HttpFault {
    let mut fault = failure(&response, in_session);
    if let HttpFault::Status(answer) = &mut fault
        && answer.has_retry_after
    {
        answer.has_json_rpc = may_be_json_rpc(response.into_body()).await;
    }
    fault
}

/// Whether a body may be a JSON-RPC message: it says so, or cannot be read.
async fn may_be_json_rpc(body: EgressBody) -> bool {
    let body = collect(body, ERROR_BYTES_MAX).await;
    body.map_or(true, |body| body.windows(JSON_RPC.len()).any(|part| part == JSON_RPC))
}

/// A body as events. The egress client limits its total bytes, and thereby every event.
pub(super) fn events(body: EgressBody) -> BoxStream<'static, Result<Sse, SseError>> {
    SseStream::new(body).map_ok(adapted).boxed()
}

/// A body without an end as events of at most `bytes_max`, give or take a frame.
pub(super) fn endless_events(
    body: EgressBody,
    bytes_max: usize,
) -> BoxStream<'static, Result<Sse, SseError>> {
    let (mut pending, mut begins_line) = (0_usize, true);
    let frames = BodyDataStream::new(body).map(move |frame| {
        let frame = frame.map_err(HttpFault::Egress)?;
        for byte in &frame {
            let ends_event = *byte == b'\n' && begins_line;
            pending = if ends_event { 0 } else { pending.saturating_add(1) };
            begins_line = *byte == b'\n' || (*byte == b'\r' && begins_line);
        }
        if pending > bytes_max {
            return Err(HttpFault::Egress(EgressError::ResponseTooLarge { bytes_max }));
        }
        Ok(frame)
    });
    SseStream::from_bytes_stream(frames).map_ok(adapted).boxed()
}

fn adapted(mut event: Sse) -> Sse {
    event.data = event.data.map(|data| tasks::carried(&escapes::whole(&data)).into_owned());
    event.retry = event.retry.map(|ms| ms.clamp(RETRY_MS_MIN, RETRY_MS_MAX));
    event
}

/// Whether this is the content type, whatever its parameters.
pub(super) fn is_type(headers: &HeaderMap, wanted: &str) -> bool {
    headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next())
        .is_some_and(|value| value.trim().eq_ignore_ascii_case(wanted))
}

pub(super) async fn collect(mut body: EgressBody, bytes_max: usize) -> Result<Bytes, HttpFault> {
    let mut whole = Vec::new();
    while let Some(frame) = body.frame().await {
        if let Some(data) = frame?.data_ref() {
            whole.extend_from_slice(data);
        }
        if whole.len() > bytes_max {
            return Err(HttpFault::Egress(EgressError::ResponseTooLarge { bytes_max }));
        }
    }
    Ok(whole.into())
}

fn session_id(headers: &HeaderMap) -> Result<Option<String>, HttpFault> {
    let unusable = HttpFault::Unusable("its session id is not usable");
    let Some(value) = headers.get(&SESSION_ID) else { return Ok(None) };
    let text = value.to_str().map_err(|_error| unusable.clone())?;
    let usable = !text.is_empty()
        && text.len() <= SESSION_ID_BYTES_MAX
        && text.bytes().all(|b| b.is_ascii_graphic());
    if usable { Ok(Some(text.to_owned())) } else { Err(unusable) }
}

fn request_id(message: &ClientJsonRpcMessage) -> Option<&RequestId> {
    match message {
        ClientJsonRpcMessage::Request(request) => Some(&request.id),
        ClientJsonRpcMessage::Response(_)
        | ClientJsonRpcMessage::Notification(_)
        | ClientJsonRpcMessage::Error(_) => None,
    }
}

fn answers(answer: &ServerJsonRpcMessage, id: &RequestId) -> bool {
    match answer {
        ServerJsonRpcMessage::Response(response) => response.id == *id,
        ServerJsonRpcMessage::Error(error) => error.id.as_ref() == Some(id),
        ServerJsonRpcMessage::Request(_) | ServerJsonRpcMessage::Notification(_) => false,
    }
}
