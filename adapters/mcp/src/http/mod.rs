//! MCP over streamable HTTP, through the engine's own egress.
//!
//! Owns the requests of the transport and the reading of their answers. Does not resolve, dial or count bytes:
//! `placet-egress` does. Invariants: every request goes to the contract's URL and nowhere else; a call is posted once; what a
//! call carries (credential, trace) is on no other request.

pub(crate) mod fault;
pub(crate) mod headers;
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
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, header,
};
use rmcp::{
    model::{ClientJsonRpcMessage, ClientRequest},
    transport::{
        common::client_side_sse::SseRetryPolicy,
        streamable_http_client::{
            SseError, StreamableHttpClient, StreamableHttpClientTransport,
            StreamableHttpClientTransportConfig, StreamableHttpError, StreamableHttpPostResponse,
        },
    },
};
use secrecy::{ExposeSecret, SecretString};
use sse_stream::Sse;
use url::Url;

use placet_adapter::outcome::AdapterError;
use placet_egress::{Destination, EgressBody, EgressClient, EgressPolicy, Limits, PrivateRanges};
use placet_types::contract::{credential::CredentialFile, file::LimitsFile};

use crate::connector::{Endpoint, McpSettings, SecretLookup, SecretVersions, message_bytes_max};

use self::{
    fault::HttpFault,
    headers::{CallHeaders, secret_header},
};

/// A call has its own deadline; this only bounds what nobody waits for any more.
const EXCHANGE_MS_MAX: u64 = 3_600_000;
/// Shorter than the usual keep-alive of servers, so that a call does not meet a connection that is being closed.
const POOL_IDLE_MS: u64 = 2_000;

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

/// The client of one connection.
#[derive(Clone)]
pub(crate) struct EgressHttp {
    inner: Arc<Inner>,
}

struct Inner {
    client: EgressClient,
    uri: Uri,
    /// `https://host:port`, as a credential is bound to it.
    origin: String,
    credential: Option<CredentialFile>,
    secrets: Arc<dyn SecretLookup>,
    /// Whether the server has asked for a credential on requests that are no calls.
    credential_wanted: AtomicBool,
    closed: Arc<AtomicBool>,
}

impl fmt::Debug for EgressHttp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EgressHttp").field("client", &self.inner.client).finish_non_exhaustive()
    }
}

impl EgressHttp {
    /// A client for the server at `url`.
    pub(crate) fn new(
        url: &str,
        private_network: bool,
        endpoint: &Endpoint,
        settings: &McpSettings,
    ) -> Result<Self, AdapterError> {
        let unusable =
            |why: String| AdapterError::Misconfigured(format!("its url is not usable: {why}"));
        let parsed = Url::parse(url).map_err(|error| unusable(error.to_string()))?;
        if parsed.fragment().is_some() {
            return Err(unusable("it has a fragment".to_owned()));
        }
        let private = if private_network { PrivateRanges::Allowed } else { PrivateRanges::Refused };
        let destination =
            Destination::from_url(&parsed, private).map_err(|error| unusable(error.to_string()))?;
        let origin = destination.to_string();
        let uri = Uri::try_from(parsed.as_str()).map_err(|error| unusable(error.to_string()))?;
        let policy =
            EgressPolicy::new(vec![destination]).refusing_listeners(settings.own_listeners.clone());
        let client = EgressClient::with_trust(policy, limits(&endpoint.limits), &settings.trust)
            .map_err(|error| AdapterError::Misconfigured(error.to_string()))?;
        let inner = Inner {
            client,
            uri,
            origin,
            credential: endpoint.credential.clone(),
            secrets: Arc::clone(&settings.secrets),
            credential_wanted: AtomicBool::new(false),
            closed: Arc::default(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The flag that is set once the server has ended the session.
    pub(crate) fn closed(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.inner.closed)
    }

    /// The transport over this client.
    pub(crate) fn into_transport(self, limits: &LimitsFile) -> StreamableHttpClientTransport<Self> {
        let places =
            usize::try_from(limits.concurrency_max).unwrap_or(usize::MAX).saturating_add(4);
        let mut config = StreamableHttpClientTransportConfig::with_uri(self.inner.uri.to_string())
            .max_concurrent_requests(places)
            .max_sse_event_size(message_bytes_max(limits))
            // A new session is a new connection: the supervisor's affair, and no call is posted again.
            .reinit_on_expired_session(false);
        config.allow_stateless = true;
        config.retry_config = Arc::new(Patience);
        StreamableHttpClientTransport::with_client(self, config)
    }

    /// Sends what is no call. Having no effect, it may be sent again with the contract's credential when the server asks.
    async fn ask(&self, request: &Outgoing) -> Result<Response<EgressBody>, HttpFault> {
        if self.inner.credential_wanted.load(Ordering::Acquire) {
            return self.ask_as_ourselves(request).await;
        }
        let bare = self.inner.request(request, &HeaderMap::new());
        let response = self.inner.client.stream(bare).await?;
        if response.status() != StatusCode::UNAUTHORIZED || self.inner.credential.is_none() {
            return Ok(response);
        }
        self.inner.credential_wanted.store(true, Ordering::Release);
        self.ask_as_ourselves(request).await
    }

    /// Sends what has no effect with the contract's credential; once more where the server knows another live version of it.
    async fn ask_as_ourselves(
        &self,
        request: &Outgoing,
    ) -> Result<Response<EgressBody>, HttpFault> {
        let Some((file, name)) = self.inner.own_secret() else {
            let bare = self.inner.request(request, &HeaderMap::new());
            return Ok(self.inner.client.stream(bare).await?);
        };
        let used = self.inner.versions(name).await?.newest;
        let own = own_credential(file, &used)?;
        let response = self.inner.client.stream(self.inner.request(request, &own)).await?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return Ok(response);
        }
        // Rotated while we asked, or here before there.
        let Some(other) = self.inner.versions(name).await?.other_than(&used) else {
            return Ok(response);
        };
        let own = own_credential(file, &other)?;
        Ok(self.inner.client.stream(self.inner.request(request, &own)).await?)
    }

    async fn post(
        &self,
        message: &ClientJsonRpcMessage,
        request: Outgoing,
    ) -> Result<StreamableHttpPostResponse, Http> {
        let in_session = request.in_session();
        let response = match call_headers(message) {
            Some(call) => {
                let call = call.map_err(StreamableHttpError::Client)?;
                let Some(own) = call.map_for(&self.inner.origin) else {
                    let why = "the credential of the call is for another host".to_owned();
                    return Err(StreamableHttpError::Client(HttpFault::NotMade(why)));
                };
                let request = self.inner.request(&request, own);
                self.inner.client.stream(request).await.map_err(HttpFault::from)
            }
            None if is_question(message) => self.ask_as_ourselves(&request).await,
            None => self.ask(&request).await,
        };
        let response = response.map_err(StreamableHttpError::Client)?;
        let answer = wire::read_answer(message, response, in_session).await;
        if matches!(answer, Err(HttpFault::SessionEnded)) {
            self.inner.closed.store(true, Ordering::Release);
        }
        answer.map_err(StreamableHttpError::Client)
    }

    async fn listen(&self, request: Outgoing) -> Result<Events, Http> {
        let response = self.ask(&request).await.map_err(StreamableHttpError::Client)?;
        let status = response.status();
        if status.is_client_error() {
            if status == StatusCode::NOT_FOUND && request.in_session() {
                self.inner.closed.store(true, Ordering::Release);
            }
            return Err(StreamableHttpError::ServerDoesNotSupportSse);
        }
        if !status.is_success() {
            return Err(StreamableHttpError::Client(HttpFault::Status(status.as_u16())));
        }
        if !wire::is_type(response.headers(), "text/event-stream") {
            return Err(StreamableHttpError::ServerDoesNotSupportSse);
        }
        Ok(wire::events(response.into_body()))
    }
}

impl Inner {
    fn request(&self, outgoing: &Outgoing, own: &HeaderMap) -> Request<Bytes> {
        let mut request = Request::new(outgoing.body.clone());
        *request.method_mut() = outgoing.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = outgoing.headers.clone();
        for (name, value) in own {
            request.headers_mut().insert(name.clone(), value.clone());
        }
        request
    }

    /// The contract's own secret, for requests that are no calls: what is minted is for a permitted call and goes nowhere else.
    fn own_secret(&self) -> Option<(&CredentialFile, &str)> {
        let file = self.credential.as_ref()?;
        Some((file, file.secret.as_deref()?))
    }

    async fn versions(&self, name: &str) -> Result<SecretVersions, HttpFault> {
        let found = self.secrets.secret(name).await;
        found.map_err(|why| HttpFault::NotMade(format!("the secret `{name}`: {why}")))
    }
}

/// The header of a contract's credential.
fn own_credential(file: &CredentialFile, secret: &SecretString) -> Result<HeaderMap, HttpFault> {
    let name = file.header.to_ascii_lowercase();
    let (name, value) = if name == header::AUTHORIZATION.as_str() {
        let value = SecretString::from(format!("Bearer {}", secret.expose_secret()));
        secret_header(&name, value.expose_secret())
    } else {
        secret_header(&name, secret.expose_secret())
    }
    .map_err(|error| HttpFault::NotMade(error.to_string()))?;
    Ok(HeaderMap::from_iter([(name, value)]))
}

/// Whether a message is a call of a tool that only asks.
fn is_question(message: &ClientJsonRpcMessage) -> bool {
    let ClientJsonRpcMessage::Request(request) = message else { return false };
    let ClientRequest::CallToolRequest(call) = &request.request else { return false };
    call.extensions.get::<Question>().is_some()
}

/// The headers that a message carries if it is a call and no mere question; a call without them is never sent.
fn call_headers(message: &ClientJsonRpcMessage) -> Option<Result<&CallHeaders, HttpFault>> {
    let ClientJsonRpcMessage::Request(request) = message else { return None };
    let ClientRequest::CallToolRequest(call) = &request.request else { return None };
    if is_question(message) {
        return None;
    }
    let headers = call.extensions.get::<CallHeaders>();
    Some(headers.ok_or_else(|| HttpFault::NotMade("the call has lost its headers".to_owned())))
}

/// One request before credentials.
#[derive(Debug)]
struct Outgoing {
    method: Method,
    headers: HeaderMap,
    body: Bytes,
}

impl Outgoing {
    fn new(
        method: Method,
        session_id: Option<&str>,
        custom: HashMap<HeaderName, HeaderValue>,
    ) -> Result<Self, Http> {
        let mut headers: HeaderMap = custom.into_iter().collect();
        if let Some(session_id) = session_id {
            let value = HeaderValue::from_str(session_id).map_err(|_error| {
                StreamableHttpError::Client(HttpFault::Unusable("its session id is no header"))
            })?;
            headers.insert(SESSION_ID, value);
        }
        Ok(Self { method, headers, body: Bytes::new() })
    }

    fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    fn in_session(&self) -> bool {
        self.headers.contains_key(&SESSION_ID)
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
        let body = serde_json::to_vec(&message).map_err(|_error| {
            StreamableHttpError::Client(HttpFault::NotMade("it is no json".to_owned()))
        })?;
        let mut request = Outgoing::new(Method::POST, session_id.as_deref(), custom_headers)?
            .with(header::ACCEPT, JSON_OR_EVENTS)
            .with(header::CONTENT_TYPE, JSON);
        request.body = body.into();
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
        let response = self.ask(&request).await.map_err(StreamableHttpError::Client)?;
        match response.status() {
            StatusCode::METHOD_NOT_ALLOWED => {
                Err(StreamableHttpError::ServerDoesNotSupportDeleteSession)
            }
            status if status.is_success() || status == StatusCode::NOT_FOUND => Ok(()),
            status => Err(StreamableHttpError::Client(HttpFault::Status(status.as_u16()))),
        }
    }

    async fn get_stream(
        &self,
        _uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<Events, Http> {
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

fn limits(limits: &LimitsFile) -> Limits {
    let message_bytes_max = message_bytes_max(limits);
    Limits {
        connect_timeout_ms: limits.connect_ms_max,
        request_timeout_ms: EXCHANGE_MS_MAX,
        idle_timeout_ms: EXCHANGE_MS_MAX,
        pool_idle_timeout_ms: POOL_IDLE_MS,
        pool_idle_connections_max: usize::try_from(limits.concurrency_max).unwrap_or(usize::MAX),
        request_bytes_max: message_bytes_max,
        response_bytes_max: message_bytes_max,
        stream_bytes_max: message_bytes_max,
        ..Limits::default()
    }
}
