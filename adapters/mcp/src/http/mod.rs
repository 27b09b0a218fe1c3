//! MCP over HTTP, through the engine's own egress: streamable HTTP, and for older servers HTTP+SSE.
//!
//! Owns the requests of the transport and the reading of their answers. Does not resolve, dial or count bytes:
//! `placet-egress` does. Invariants: every request goes to the contract's URL and nowhere else; a call is posted once; what a
//! call carries is on no other request, but for its credential, which is on the requests that the session of its owner consists of.

mod asking;
mod beginning;
pub(crate) mod direct;
pub(crate) mod headers;
mod numbers;
mod own;
mod sse;
pub(crate) mod tool_call;
mod wire;

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::stream::BoxStream;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header};
use rmcp::{
    model::{ClientJsonRpcMessage, ClientRequest, ProtocolVersion},
    transport::{
        common::client_side_sse::SseRetryPolicy,
        streamable_http_client::{
            SseError, StreamableHttpClient, StreamableHttpClientTransport,
            StreamableHttpClientTransportConfig, StreamableHttpError, StreamableHttpPostResponse,
        },
    },
};
use sse_stream::Sse;
use tokio::time::Instant;
use url::Url;

use placet_adapter::outcome::AdapterError;
use placet_egress::{Destination, EgressClient, EgressPolicy, Limits, PrivateRanges};
use placet_types::contract::{
    credential::CredentialFile,
    file::{LimitsFile, TransportFile},
    not_executed::HttpError,
};

use crate::settings::{Endpoint, McpSettings, SecretLookup, message_bytes_max};

pub(crate) use self::asking::Speaker;
use self::{headers::CallHeaders, numbers::Numbers, own::Own};
use crate::{
    failure::HttpFault,
    features::extensions_of,
    handshake::{self, Service},
    listener::Listener,
};

/// A call has its own deadline; this only bounds what nobody waits for any more.
const EXCHANGE_MS_MAX: u64 = 3_600_000;

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
const JSON_OR_EVENTS: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");

/// Marks a call of a tool that is only a question: it belongs to no permitted call, so it carries the contract's own credential.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Question;

type Http = StreamableHttpError<HttpFault>;
type Events = BoxStream<'static, Result<Sse, SseError>>;

/// The client of one session with the server, or of one connection to a server without sessions.
#[derive(Clone)]
pub(crate) struct EgressHttp {
    target: Arc<Target>,
    own: Arc<Own>,
    /// The ids of all sessions of the connection.
    numbers: Arc<Numbers>,
}

/// Where the requests go. Its sockets may be shared by sessions, which differ by the content of their requests.
struct Target {
    client: EgressClient,
    uri: Uri,
    /// `https://host:port`, the form that a credential is bound to.
    origin: String,
    credential: Option<CredentialFile>,
    secrets: Arc<dyn SecretLookup>,
    /// Whether its sockets carry a client certificate: then they are not shared.
    certified: bool,
    /// Whether it speaks HTTP+SSE.
    sse: bool,
}

impl fmt::Debug for EgressHttp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EgressHttp").field("client", &self.target.client).finish_non_exhaustive()
    }
}

impl EgressHttp {
    /// The contract's own client for its server.
    pub(crate) fn new(endpoint: &Endpoint, settings: &McpSettings) -> Result<Self, AdapterError> {
        let TransportFile::McpHttp { url, private_network, sse } = &endpoint.transport else {
            return Err(AdapterError::Misconfigured("it is no server over HTTP".to_owned()));
        };
        let unusable =
            |why: String| AdapterError::Misconfigured(format!("its url is not usable: {why}"));
        let parsed = Url::parse(url).map_err(|error| unusable(error.to_string()))?;
        if parsed.fragment().is_some() {
            return Err(unusable("it has a fragment".to_owned()));
        }
        let private =
            if *private_network { PrivateRanges::Allowed } else { PrivateRanges::Refused };
        let destination =
            Destination::from_url(&parsed, private).map_err(|error| unusable(error.to_string()))?;
        let origin = destination.to_string();
        let uri = Uri::try_from(parsed.as_str()).map_err(|error| unusable(error.to_string()))?;
        let policy =
            EgressPolicy::new(vec![destination]).refusing_listeners(settings.own_listeners.clone());
        let client =
            EgressClient::with_trust(policy, limits(&endpoint.limits, *sse), &settings.trust)
                .map_err(|error| AdapterError::Misconfigured(error.to_string()))?;
        let identities = &settings.trust.identities;
        let certified = identities.iter().any(|(place, _)| place.to_string() == origin);
        let target = Target {
            client,
            uri,
            origin,
            credential: endpoint.credential.clone(),
            secrets: Arc::clone(&settings.secrets),
            certified,
            sse: *sse,
        };
        let own = Own::new(Speaker::contract(false), true, &endpoint.limits);
        Ok(Self { target: Arc::new(target), own, numbers: Arc::default() })
    }

    /// A client for another session with the same server. Shares sockets, unless they carry a client certificate.
    pub(crate) fn for_session(
        &self,
        speaker: Speaker,
        endpoint: &Endpoint,
        settings: &McpSettings,
    ) -> Result<Self, AdapterError> {
        let own = Own::new(speaker, false, &endpoint.limits);
        let target = if self.target.certified {
            Self::new(endpoint, settings)?.target
        } else {
            Arc::clone(&self.target)
        };
        Ok(Self { target, own, numbers: Arc::clone(&self.numbers) })
    }

    /// Whether any of its requests has reached the server.
    pub(crate) fn was_reached(&self) -> bool {
        self.own.reached.load(Ordering::Acquire)
    }

    /// Whether the server has begun a session, and not only answered.
    pub(crate) fn has_session(&self) -> bool {
        self.own.is_numbered()
    }

    /// In whose name its requests are made that are not calls.
    pub(crate) fn speaker(&self) -> &Speaker {
        &self.own.speaker
    }

    /// The flag that is set once the server has ended the session, or rejects its speaker's credential.
    pub(crate) fn closed(&self) -> Arc<AtomicBool> {
        self.own.closed()
    }

    /// Whether no further calls may use the session.
    pub(crate) fn is_retired(&self) -> bool {
        self.own.is_retired()
    }

    /// When the server last answered in the session.
    pub(crate) fn heard_at(&self) -> Instant {
        self.own.heard_at()
    }

    /// Performs the handshake of `version` over this client.
    ///
    /// # Errors
    /// [`AdapterError`] when it fails; nothing had an effect then.
    pub(crate) async fn begin(
        self,
        limits: &LimitsFile,
        listener: Listener,
        version: &ProtocolVersion,
    ) -> Result<Service, AdapterError> {
        let beginning = self.beginning();
        let service = if self.target.sse {
            let opened = self.open_stream(limits).await;
            let transport = opened.map_err(|fault| fault.meaning().into_handshake_error())?;
            handshake::shake(transport, listener, version).await?
        } else {
            handshake::shake(self.into_transport(limits), listener, version).await?
        };
        beginning.completed();
        Ok(service)
    }

    fn into_transport(self, limits: &LimitsFile) -> StreamableHttpClientTransport<Self> {
        let places =
            usize::try_from(limits.concurrency_max).unwrap_or(usize::MAX).saturating_add(4);
        let mut config = StreamableHttpClientTransportConfig::with_uri(self.target.uri.to_string())
            .max_concurrent_requests(places)
            .max_sse_event_size(message_bytes_max(limits))
            // A new session means a new connection, made by the supervisor; no call is posted again.
            .reinit_on_expired_session(false);
        config.allow_stateless = true;
        config.retry_config = Arc::new(Patience);
        StreamableHttpClientTransport::with_client(self, config)
    }

    async fn post(
        &self,
        message: &ClientJsonRpcMessage,
        request: Outgoing,
    ) -> Result<StreamableHttpPostResponse, Http> {
        let answer = self.in_time(message, self.exchange(message, request)).await;
        let answer = answer.and_then(|answer| self.numbered(message, answer));
        self.own.note(&answer);
        answer.map_err(StreamableHttpError::Client)
    }

    async fn exchange(
        &self,
        message: &ClientJsonRpcMessage,
        request: Outgoing,
    ) -> Result<StreamableHttpPostResponse, HttpFault> {
        let in_session = request.in_session();
        let response = match call_headers(message) {
            Some(call) => {
                let own = self.target.headers_of(call?)?;
                let request = self.target.request(&request, own);
                self.target.client.stream(request).await.map_err(HttpFault::from)
            }
            None if is_question(message) => self.ask_as_ourselves(&request).await,
            None => self.ask(&request).await,
        };
        let response = self.reaching(response)?;
        if request.endpoint.is_some() && response.status().is_success() {
            // The answer comes over the stream.
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        wire::read_answer(message, response, in_session).await
    }

    /// Notes whether the server was reached.
    fn reaching<T>(&self, response: Result<T, HttpFault>) -> Result<T, HttpFault> {
        if !response.as_ref().is_err_and(HttpFault::is_unreached) {
            self.own.reached.store(true, Ordering::Release);
        }
        response
    }

    /// The answer to a handshake, unless nobody waits for it, or it assigns the session an id that another one has.
    fn numbered(
        &self,
        message: &ClientJsonRpcMessage,
        answer: StreamableHttpPostResponse,
    ) -> Result<StreamableHttpPostResponse, HttpFault> {
        let ClientJsonRpcMessage::Request(request) = message else { return Ok(answer) };
        let ClientRequest::InitializeRequest(begins) = &request.request else { return Ok(answer) };
        let number = match &answer {
            StreamableHttpPostResponse::Json(_, number)
            | StreamableHttpPostResponse::Sse(_, number) => number.as_deref(),
            StreamableHttpPostResponse::Accepted | _ => None,
        };
        let version = begins.params.protocol_version.as_str();
        match number {
            Some(number) if !self.numbers.take(number, &self.own) => Err(HttpFault::NumberTaken),
            Some(number) if !self.has_begun(number, version) => Err(HttpFault::Late),
            Some(_) | None => Ok(answer),
        }
    }

    async fn listen(&self, request: Outgoing) -> Result<Events, Http> {
        let response = self.ask(&request).await.map_err(StreamableHttpError::Client)?;
        let status = response.status();
        if status.is_client_error() {
            if status == StatusCode::NOT_FOUND && request.in_session() {
                self.own.close();
            }
            return Err(StreamableHttpError::ServerDoesNotSupportSse);
        }
        if !status.is_success() {
            return Err(StreamableHttpError::Client(HttpFault::Status(HttpError::bare(
                status.as_u16(),
            ))));
        }
        if !wire::is_type(response.headers(), "text/event-stream") {
            return Err(StreamableHttpError::ServerDoesNotSupportSse);
        }
        Ok(wire::events(response.into_body()))
    }
}

impl Target {
    fn request(&self, outgoing: &Outgoing, own: &HeaderMap) -> Request<Bytes> {
        let mut request = Request::new(outgoing.body.clone());
        *request.method_mut() = outgoing.method.clone();
        *request.uri_mut() = outgoing.endpoint.as_ref().unwrap_or(&self.uri).clone();
        *request.headers_mut() = outgoing.headers.clone();
        for (name, value) in own {
            request.headers_mut().insert(name.clone(), value.clone());
        }
        request
    }
}

/// Whether a message is a tool call that is only a probe.
fn is_question(message: &ClientJsonRpcMessage) -> bool {
    extensions_of(message).is_some_and(|carried| carried.get::<Question>().is_some())
}

/// The headers of a message that is a call and not a probe; a call without them is never sent.
fn call_headers(message: &ClientJsonRpcMessage) -> Option<Result<&CallHeaders, HttpFault>> {
    let carried = extensions_of(message)?;
    if carried.get::<Question>().is_some() {
        return None;
    }
    let headers = carried.get::<CallHeaders>();
    Some(headers.ok_or_else(|| HttpFault::NotMade("the call has lost its headers".to_owned())))
}

/// One request, without credentials.
#[derive(Debug)]
struct Outgoing {
    method: Method,
    /// Its URL, if not the contract's.
    endpoint: Option<Uri>,
    headers: HeaderMap,
    body: Bytes,
}

impl Outgoing {
    fn new(
        method: Method,
        session_id: Option<&str>,
        custom: HashMap<HeaderName, HeaderValue>,
    ) -> Result<Self, Http> {
        let mut request = Self::bare(method);
        request.headers = custom.into_iter().collect();
        if let Some(session_id) = session_id {
            let value = HeaderValue::from_str(session_id).map_err(|_error| {
                StreamableHttpError::Client(HttpFault::Unusable("its session id is no header"))
            })?;
            request.headers.insert(SESSION_ID, value);
        }
        Ok(request)
    }

    fn bare(method: Method) -> Self {
        Self { method, endpoint: None, headers: HeaderMap::new(), body: Bytes::new() }
    }

    /// A message as a request.
    fn posting(
        message: &ClientJsonRpcMessage,
        session_id: Option<&str>,
        custom: HashMap<HeaderName, HeaderValue>,
    ) -> Result<Self, Http> {
        let body = serde_json::to_vec(message).map_err(|_error| {
            StreamableHttpError::Client(HttpFault::NotMade("it is no json".to_owned()))
        })?;
        let mut request = Self::new(Method::POST, session_id, custom)?
            .with(header::ACCEPT, JSON_OR_EVENTS)
            .with(header::CONTENT_TYPE, JSON);
        request.body = body.into();
        Ok(request)
    }

    /// The same to the endpoint of a session over HTTP+SSE.
    fn to(mut self, endpoint: Uri) -> Self {
        self.endpoint = Some(endpoint);
        self
    }

    fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    fn in_session(&self) -> bool {
        self.endpoint.is_some() || self.headers.contains_key(&SESSION_ID)
    }
}

impl StreamableHttpClient for EgressHttp {
    type Error = HttpFault;

    async fn post_message(
        &self,
        _uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Http> {
        let request = Outgoing::posting(&message, session_id.as_deref(), custom_headers)?;
        self.post(&message, request).await
    }

    async fn delete_session(
        &self,
        _uri: Arc<str>,
        session_id: Arc<str>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), Http> {
        let request = Outgoing::new(Method::DELETE, Some(&session_id), custom_headers)?;
        let fault = match self.ask(&request).await.map(|response| response.status()) {
            Ok(status) if status.is_success() || status == StatusCode::NOT_FOUND => return Ok(()),
            Ok(StatusCode::METHOD_NOT_ALLOWED) => {
                return Err(StreamableHttpError::ServerDoesNotSupportDeleteSession);
            }
            Ok(status) => HttpFault::Status(HttpError::bare(status.as_u16())),
            Err(fault) => fault,
        };
        // Logged here, since the library would log the session id, which stays valid there and is as good as a credential.
        tracing::warn!(server = %self.target.origin, %fault, "a session could not be ended: it is left to the server");
        Ok(())
    }

    async fn get_stream(
        &self,
        _uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<Events, Http> {
        // Its owner resumes a broken stream; messages that the server sends unasked go to the contract's session.
        if !self.own.listens && last_event_id.is_none() {
            return Err(StreamableHttpError::ServerDoesNotSupportSse);
        }
        let mut request = Outgoing::new(Method::GET, session_id.as_deref(), custom_headers)?
            .with(header::ACCEPT, EVENTS);
        if let Some(Ok(value)) = last_event_id.as_deref().map(HeaderValue::from_str) {
            request = request.with(LAST_EVENT_ID, value);
        }
        self.listen(request).await
    }
}

/// How often a stream of events is taken up again: with growing pauses, as long as the connection lives. Taking up a stream
/// repeats nothing; a call that waits for it has its own deadline.
#[derive(Debug)]
struct Patience;

impl SseRetryPolicy for Patience {
    fn retry(&self, current_times: usize) -> Option<Duration> {
        let doublings = u32::try_from(current_times).unwrap_or(u32::MAX).min(5);
        Some(Duration::from_secs(1).saturating_mul(2_u32.saturating_pow(doublings)))
    }
}

/// Over HTTP+SSE one stream lasts as long as its session: there, events are limited, not the stream.
fn limits(limits: &LimitsFile, sse: bool) -> Limits {
    let message_bytes_max = message_bytes_max(limits);
    Limits {
        connect_timeout_ms: limits.connect_ms_max,
        request_timeout_ms: EXCHANGE_MS_MAX,
        idle_timeout_ms: EXCHANGE_MS_MAX,
        pool_idle_connections_max: usize::try_from(limits.concurrency_max).unwrap_or(usize::MAX),
        request_bytes_max: message_bytes_max,
        response_bytes_max: message_bytes_max,
        stream_bytes_max: if sse { usize::MAX } else { message_bytes_max },
        ..Limits::default()
    }
}
