//! A `tools/call` that is posted by the calling task itself, and not through the tasks of the library that has begun its session.
//!
//! Owns the message of a call in an open session over streamable HTTP, and the reading of its answer: one document, or a stream of events
//! up to the answer, which is resumed if it breaks off. Does not begin or end sessions, and lists nothing. Invariants: a call is posted
//! once; an answer to something else does not count as its answer; other messages from the server are handled as on the usual path.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::Duration,
};

use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _, future};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use rmcp::{
    ErrorData,
    model::{
        CallToolResult, CancelledNotificationParam, ClientJsonRpcMessage, NumberOrString,
        ProgressToken, ProtocolVersion, RequestId, ServerJsonRpcMessage, ServerResult,
    },
    service::{Peer, RoleClient},
    transport::{
        common::client_side_sse::SseRetryPolicy as _, streamable_http_client::StreamableHttpError,
    },
};
use serde_json::{Map, Value};
use tokio::{
    runtime::Handle,
    time::{sleep, timeout},
};

use placet_egress::EgressBody;

use super::{
    EVENTS, EgressHttp, Events, JSON, JSON_OR_EVENTS, LAST_EVENT_ID, Outgoing, Patience,
    SESSION_ID, beginning::PROTOCOL_VERSION, headers::CallHeaders, tool_call::ToolCall, wire,
};
use crate::{
    failure::{self, Fault, HttpFault},
    listener::Listener,
};

/// The requests of the library that has begun the session count from 0.
const FIRST_ID: i64 = 1 << 30;
/// How long notifying the server of a cancellation may take.
const CANCEL_WAIT: Duration = Duration::from_secs(2);
/// How long a server may take to accept a reply to a request of its own.
const REPLY_WAIT: Duration = Duration::from_secs(2);
/// How long the end of a stream whose answer was read is waited for, so that its connection can be used again.
const END_WAIT: Duration = Duration::from_millis(50);

/// The server's answer: a result, or an error of its own.
type Said = Result<ServerResult, ErrorData>;

/// The direct path of calls in one open session, or to a server without sessions.
pub(crate) struct Direct {
    http: EgressHttp,
    listener: Listener,
    /// The headers of every message.
    headers: HeaderMap,
    next_id: AtomicI64,
}

impl Direct {
    /// For a session that has begun with `version`. `None` over HTTP+SSE, whose answers come over the stream of the session, and for the
    /// revisions in which every request identifies its sender.
    pub(crate) fn over(
        http: &EgressHttp,
        listener: &Listener,
        version: &ProtocolVersion,
    ) -> Option<Self> {
        if http.target.sse || !version.has_initialize() {
            return None;
        }
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, JSON_OR_EVENTS);
        headers.insert(header::CONTENT_TYPE, JSON);
        headers.insert(PROTOCOL_VERSION, HeaderValue::from_str(version.as_str()).ok()?);
        if let Some(number) = http.number() {
            headers.insert(SESSION_ID, HeaderValue::from_str(&number).ok()?);
        }
        let next_id = AtomicI64::new(FIRST_ID);
        Some(Self { http: http.clone(), listener: listener.clone(), headers, next_id })
    }

    /// Makes a call. Dropping it before its answer notifies the server of the cancellation.
    ///
    /// # Errors
    /// What the failure means for the call.
    pub(crate) async fn call(
        &self,
        call: ToolCall,
        peer: &Peer<RoleClient>,
    ) -> Result<ServerResult, Fault> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let token = ProgressToken(NumberOrString::Number(id));
        let heard = call.progress.clone();
        if let Some(of) = &heard {
            self.listener.hear(token, of);
        }
        let (body, headers) = call.into_posted(id).map_err(|fault| fault.meaning())?;
        let mut waited = Waited { peer, id: Some(id) };
        let answer = self.exchange(id, body, &headers).await;
        waited.id = None;
        drop(heard);
        match answer {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(error)) => Err(failure::of_answer(&error)),
            Err(fault) => {
                self.http.own.note_fault(&fault);
                Err(fault.meaning())
            }
        }
    }

    async fn exchange(&self, id: i64, body: Bytes, call: &CallHeaders) -> Result<Said, HttpFault> {
        let http = &self.http;
        let own = http.target.headers_of(call)?;
        let mut request = Request::new(body);
        *request.method_mut() = Method::POST;
        *request.uri_mut() = http.target.uri.clone();
        *request.headers_mut() = self.headers.clone();
        for (name, value) in own {
            request.headers_mut().insert(name.clone(), value.clone());
        }
        let response = http.target.client.stream(request).await.map_err(HttpFault::from);
        let response = http.reaching(response)?;
        self.read(id, response).await
    }

    async fn read(&self, id: i64, response: Response<EgressBody>) -> Result<Said, HttpFault> {
        let status = response.status();
        if !status.is_success() {
            let in_session = self.headers.contains_key(&SESSION_ID);
            return Err(Box::pin(wire::failure_of_call(response, in_session)).await);
        }
        self.http.own.hear();
        if status == StatusCode::ACCEPTED {
            // The server accepts the call without answering it: treated as one that never answers.
            return future::pending().await;
        }
        if wire::is_type(response.headers(), "text/event-stream") {
            return self.read_events(id, wire::events(response.into_body())).await;
        }
        if !wire::is_type(response.headers(), "application/json") {
            return Err(HttpFault::Unusable(wire::NO_TYPE));
        }
        let body = wire::collect(response.into_body(), usize::MAX).await?;
        let message = std::str::from_utf8(&body).ok().and_then(as_json_rpc);
        let message = message.ok_or(HttpFault::Unusable(wire::NO_JSON_RPC))?;
        said(message, id).ok_or(HttpFault::Unusable("it belongs to another request"))?
    }

    /// Reads events up to the answer. A stream whose events have ids is resumed, as long as somebody waits.
    async fn read_events(&self, id: i64, mut events: Events) -> Result<Said, HttpFault> {
        let mut resumption = Resumption::default();
        loop {
            let event = match events.next().await {
                Some(Ok(event)) => event,
                ended @ (Some(Err(_)) | None) => {
                    events = Box::pin(self.resume(&mut resumption, ended.is_some())).await?;
                    continue;
                }
            };
            self.http.own.hear();
            resumption.pause = event.retry.map(Duration::from_millis).or(resumption.pause);
            resumption.last = event.id.or(resumption.last);
            let is_message = matches!(event.event.as_deref(), None | Some("" | "message"));
            let Some(data) = event.data.filter(|_| is_message) else { continue };
            let Some(message) = as_json_rpc(&data) else { continue };
            if message.contains_key("method") {
                Box::pin(self.hear(message)).await;
            } else if let Some(said) = said(message, id) {
                read_to_end(events);
                return said;
            }
        }
    }

    /// Takes a stream up again that has ended or, with `is_broken`, broken off.
    async fn resume(
        &self,
        resumption: &mut Resumption,
        is_broken: bool,
    ) -> Result<Events, HttpFault> {
        let last = resumption.last.as_deref().and_then(|last| HeaderValue::from_str(last).ok());
        let last = last.ok_or(HttpFault::Cut)?;
        let pause = |times| Patience.retry(times).unwrap_or_default();
        if !is_broken {
            sleep(resumption.pause.take().unwrap_or_else(|| pause(0))).await;
        }
        for times in 1_usize.. {
            let mut request = Outgoing::bare(Method::GET)
                .with(header::ACCEPT, EVENTS)
                .with(LAST_EVENT_ID, last.clone());
            for name in [PROTOCOL_VERSION, SESSION_ID] {
                if let Some(value) = self.headers.get(&name) {
                    request = request.with(name, value.clone());
                }
            }
            match self.http.listen(request).await {
                Ok(events) => return Ok(events),
                Err(StreamableHttpError::ServerDoesNotSupportSse) => return Err(HttpFault::Cut),
                Err(_) => sleep(pause(times).max(resumption.pause.unwrap_or_default())).await,
            }
        }
        Err(HttpFault::Cut)
    }

    /// Handles a message that the server sends before its answer.
    async fn hear(&self, message: Map<String, Value>) {
        match serde_json::from_value(Value::Object(message)) {
            Ok(ServerJsonRpcMessage::Notification(told)) => self.listener.note(&told.notification),
            Ok(ServerJsonRpcMessage::Request(asked)) => {
                let reply = match self.listener.reply(&asked.request) {
                    Ok(result) => ClientJsonRpcMessage::response(result, asked.id),
                    Err(error) => ClientJsonRpcMessage::error(error, Some(asked.id)),
                };
                let Ok(body) = serde_json::to_vec(&reply) else { return };
                let headers = self.headers.clone();
                let request =
                    Outgoing { headers, body: body.into(), ..Outgoing::bare(Method::POST) };
                // A server that does not take it goes without.
                let _taken = timeout(REPLY_WAIT, self.http.ask(&request)).await.is_ok();
            }
            Ok(ServerJsonRpcMessage::Response(_) | ServerJsonRpcMessage::Error(_)) | Err(_) => {}
        }
    }
}

/// The position from which a stream of events is resumed.
#[derive(Debug, Default)]
struct Resumption {
    last: Option<String>,
    /// The pause that the server requests.
    pause: Option<Duration>,
}

/// A call that waits for its answer.
struct Waited<'a> {
    peer: &'a Peer<RoleClient>,
    /// `None` once it was answered.
    id: Option<i64>,
}

impl Drop for Waited<'_> {
    fn drop(&mut self) {
        let (Some(id), Ok(runtime)) = (self.id.take(), Handle::try_current()) else { return };
        let peer = self.peer.clone();
        let reason = Some("deadline exceeded".to_owned());
        let told = CancelledNotificationParam::new(Some(RequestId::Number(id)), reason);
        drop(runtime.spawn(async move {
            // Best effort: the outcome is unknown either way.
            let _told = timeout(CANCEL_WAIT, peer.notify_cancelled(told)).await.is_ok();
        }));
    }
}

fn as_json_rpc(text: &str) -> Option<Map<String, Value>> {
    let message: Map<String, Value> = serde_json::from_str(text).ok()?;
    (message.get("jsonrpc").and_then(Value::as_str) == Some("2.0")).then_some(message)
}

/// The answer in a message, if it is for the request with this id: some servers turn a number into a text.
fn said(mut message: Map<String, Value>, id: i64) -> Option<Result<Said, HttpFault>> {
    let is_of = match message.get("id")? {
        Value::Number(number) => number.as_i64() == Some(id),
        Value::String(text) => text.parse() == Ok(id),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => false,
    };
    if !is_of || message.contains_key("method") {
        return None;
    }
    let unusable = HttpFault::Unusable(wire::NO_JSON_RPC);
    Some(match (message.remove("result"), message.remove("error")) {
        (Some(result), None) => result_of(result).map(Ok).ok_or(unusable),
        (None, Some(error)) => serde_json::from_value(error).map(Err).map_err(|_error| unusable),
        (Some(_), Some(_)) | (None, None) => Err(unusable),
    })
}

/// A result; one that is clearly a tool's is not compared with every other form.
fn result_of(result: Value) -> Option<ServerResult> {
    if result.get("content").is_some_and(Value::is_array) {
        let result: CallToolResult = serde_json::from_value(result).ok()?;
        return Some(ServerResult::CallToolResult(result));
    }
    serde_json::from_value(result).ok()
}

/// Reads what is left of a stream, so that its connection can be used again.
fn read_to_end(mut events: Events) {
    while let Some(event) = events.next().now_or_never() {
        if event.is_none() {
            return;
        }
    }
    let Ok(runtime) = Handle::try_current() else { return };
    drop(runtime.spawn(async move {
        let reading = async { while events.next().await.is_some() {} };
        let _ended = timeout(END_WAIT, reading).await.is_ok();
    }));
}
