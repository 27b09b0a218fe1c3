//! The HTTP client: one request, one response, within the limits.
//!
//! It owns deadlines, the refusal of redirects and the mapping of failures to outcomes. It does not own dialling
//! (`connect`) or counting (`body`). Invariants: a request is written at most once, whatever happens; the answer to
//! "can it have reached the peer" is never "no" unless that is certain.

use std::error::Error as StdError;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::{CaptureConnection, capture_connection};
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::timeout;

use crate::body::EgressBody;
use crate::connect::{Dialling, EgressConnector, TcpDial};
use crate::destination::EgressPolicy;
use crate::error::EgressError;
use crate::identity::Trust;
use crate::limits::Limits;
use crate::request;
use crate::resolve::SystemResolver;
use crate::tls::{self, Handshakes, Protocol};

/// The least read buffer that the HTTP library accepts; smaller limits are checked after the head was read.
const HEAD_BUFFER_BYTES_MIN: usize = 8192;

/// A client for the destinations of one policy. Clones share their connections.
#[derive(Clone)]
pub struct EgressClient {
    dialling: Arc<Dialling>,
    http1_tls: Arc<Handshakes>,
    http2_tls: Arc<Handshakes>,
    http: Client<EgressConnector, Full<Bytes>>,
}

impl fmt::Debug for EgressClient {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("EgressClient")
            .field("dialling", &self.dialling)
            .finish_non_exhaustive()
    }
}

impl EgressClient {
    /// A client that trusts the roots of the platform.
    ///
    /// The variables `SSL_CERT_FILE` and `SSL_CERT_DIR` name those roots, as for other programs; no variable names a
    /// proxy.
    ///
    /// # Errors
    ///
    /// Fails when the policy names an `https:` destination and the platform has no roots.
    pub fn new(policy: EgressPolicy, limits: Limits) -> Result<Self, EgressError> {
        Self::with_trust(policy, limits, &Trust::default())
    }

    /// A client with further roots, that shows certificates of its own where it has some.
    ///
    /// # Errors
    ///
    /// Fails as [`EgressClient::new`] does, and when an extra root cannot be read.
    pub fn with_trust(
        policy: EgressPolicy,
        limits: Limits,
        trust: &Trust,
    ) -> Result<Self, EgressError> {
        let roots = tls::load_roots(&policy, &trust.roots_pem)?;
        let dialling = Dialling {
            policy,
            limits,
            resolver: Arc::new(SystemResolver),
            dialler: Arc::new(TcpDial),
        };
        let handshakes = |protocol| Handshakes::new(&roots, &trust.identities, protocol);
        Ok(Self::connected(dialling, handshakes(Protocol::Http1)?, handshakes(Protocol::Http2)?))
    }

    #[cfg(test)]
    pub(crate) fn with_resolver(self, resolver: Arc<dyn crate::resolve::Resolve>) -> Self {
        let dialling = Dialling { resolver, ..Dialling::clone(&self.dialling) };
        Self::connected(dialling, self.http1_tls, self.http2_tls)
    }

    #[cfg(test)]
    pub(crate) fn with_dialler(self, dialler: Arc<dyn crate::connect::Dial>) -> Self {
        let dialling = Dialling { dialler, ..Dialling::clone(&self.dialling) };
        Self::connected(dialling, self.http1_tls, self.http2_tls)
    }

    /// Sends a request and reads the whole response, within the deadline and the limits.
    ///
    /// # Errors
    ///
    /// See [`EgressError`]; [`EgressError::nothing_was_sent`] tells a refusal from an unknown outcome.
    pub async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, EgressError> {
        self.send_within(request, Duration::MAX).await
    }

    /// As [`EgressClient::send`], with a shorter deadline: the time that is left of what the request is for.
    ///
    /// # Errors
    ///
    /// As for [`EgressClient::send`].
    pub async fn send_within(
        &self,
        request: Request<Bytes>,
        limit: Duration,
    ) -> Result<Response<Bytes>, EgressError> {
        self.send_listening(request, limit, Duration::ZERO).await
    }

    /// As [`EgressClient::send_within`]: nothing is sent after `limit`, but the answer to what was sent may take `listening` longer.
    ///
    /// # Errors
    ///
    /// As for [`EgressClient::send`].
    pub async fn send_listening(
        &self,
        request: Request<Bytes>,
        limit: Duration,
        listening: Duration,
    ) -> Result<Response<Bytes>, EgressError> {
        let (request, connection) = self.prepare(request)?;
        let limit_max = Duration::from_millis(self.limits().request_timeout_ms);
        let limit = limit.min(limit_max);
        let mut whole = pin!(async {
            let response = self.exchange(request).await?;
            self.read_whole(response).await
        });
        if let Ok(answered) = timeout(limit, &mut whole).await {
            return answered;
        }
        let listening = listening.min(limit_max.saturating_sub(limit));
        if listening.is_zero() || connection.connection_metadata().is_none() {
            return Err(late(&connection, limit));
        }
        let limit = limit.saturating_add(listening);
        timeout(listening, whole).await.unwrap_or_else(|_elapsed| Err(late(&connection, limit)))
    }

    /// Sends a request and returns the response as soon as its head has arrived. The body has a limit on its bytes and
    /// on its silence.
    ///
    /// # Errors
    ///
    /// As for [`EgressClient::send`]; the body yields errors of the same type.
    pub async fn stream(
        &self,
        request: Request<Bytes>,
    ) -> Result<Response<EgressBody>, EgressError> {
        let (request, connection) = self.prepare(request)?;
        let limit = Duration::from_millis(self.limits().request_timeout_ms);
        let head = timeout(limit, self.exchange(request)).await;
        let response = head.unwrap_or_else(|_elapsed| Err(late(&connection, limit)))?;
        let (parts, incoming) = response.into_parts();
        let body = EgressBody::new(incoming, self.limits().stream_bytes_max, self.limits())?;
        Ok(Response::from_parts(parts, body))
    }

    /// A connector for SDKs that speak HTTP/2 themselves. It has the same policy, limits and roots.
    pub fn connector(&self) -> EgressConnector {
        let dialling = Arc::clone(&self.dialling);
        EgressConnector { dialling, tls: Arc::clone(&self.http2_tls), protocol: Protocol::Http2 }
    }

    /// A connector for protocols that the handshake has no name for, such as SMTP.
    pub(crate) fn unnamed_connector(&self) -> EgressConnector {
        let tls = Arc::new(self.http1_tls.unnamed());
        let dialling = Arc::clone(&self.dialling);
        EgressConnector { dialling, tls, protocol: Protocol::Http1 }
    }

    fn connected(
        dialling: Dialling,
        http1_tls: Arc<Handshakes>,
        http2_tls: Arc<Handshakes>,
    ) -> Self {
        let dialling = Arc::new(dialling);
        let tls = Arc::clone(&http1_tls);
        let connector =
            EgressConnector { dialling: Arc::clone(&dialling), tls, protocol: Protocol::Http1 };
        let limits = &dialling.limits;
        let http = Client::builder(TokioExecutor::new())
            // A tool call must not be sent a second time behind the ledger's back.
            .retry_canceled_requests(false)
            .set_host(true)
            .http1_max_buf_size(limits.header_bytes_max.max(HEAD_BUFFER_BYTES_MIN))
            .http1_max_headers(limits.headers_max)
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_millis(limits.pool_idle_timeout_ms))
            .pool_max_idle_per_host(limits.pool_idle_connections_max)
            .build(connector);
        Self { dialling, http1_tls, http2_tls, http }
    }

    fn limits(&self) -> &Limits {
        &self.dialling.limits
    }

    fn prepare(
        &self,
        mut request: Request<Bytes>,
    ) -> Result<(Request<Full<Bytes>>, CaptureConnection), EgressError> {
        request::check(&mut request, &self.dialling.policy, self.limits())?;
        let mut request = request.map(Full::new);
        let connection = capture_connection(&mut request);
        Ok((request, connection))
    }

    async fn exchange(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, EgressError> {
        let response = self.http.request(request).await.map_err(|error| of_client(&error))?;
        let status = response.status();
        if status.is_redirection() {
            return Err(EgressError::Redirected { status: status.as_u16() });
        }
        if status.is_informational() {
            return Err(EgressError::ResponseUnusable { reason: "it switches protocols" });
        }
        if request::header_bytes(response.headers()) > self.limits().header_bytes_max {
            return Err(EgressError::ResponseHeadTooLarge {
                bytes_max: self.limits().header_bytes_max,
            });
        }
        Ok(response)
    }

    async fn read_whole(
        &self,
        response: Response<Incoming>,
    ) -> Result<Response<Bytes>, EgressError> {
        let (parts, incoming) = response.into_parts();
        let body = EgressBody::new(incoming, self.limits().response_bytes_max, self.limits())?;
        Ok(Response::from_parts(parts, body.collect().await?.to_bytes()))
    }
}

/// The deadline has passed. As long as no connection was assigned, nothing can have been written.
fn late(connection: &CaptureConnection, limit: Duration) -> EgressError {
    let timeout_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
    if connection.connection_metadata().is_none() {
        EgressError::DeadlineBeforeRequest { timeout_ms }
    } else {
        EgressError::DeadlineExceeded { timeout_ms }
    }
}

fn of_client(error: &ClientError) -> EgressError {
    if error.is_connect() {
        return cause::<EgressError>(error).cloned().unwrap_or(EgressError::ClosedBeforeRequest);
    }
    match cause::<hyper::Error>(error) {
        // The library gave the request back unwritten.
        Some(cause) if cause.is_canceled() => EgressError::ClosedBeforeRequest,
        Some(cause) if cause.is_parse() => EgressError::ResponseUnusable {
            reason: "its head is not http or has no end within the limit",
        },
        Some(_) | None => EgressError::ConnectionLost,
    }
}

/// The first cause of the given type.
fn cause<T: StdError + 'static>(error: &ClientError) -> Option<&T> {
    let mut next = error.source();
    while let Some(current) = next {
        if let Some(found) = current.downcast_ref::<T>() {
            return Some(found);
        }
        next = current.source();
    }
    None
}
