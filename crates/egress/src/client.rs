//! The HTTP client: one request, one response, within the limits.
//!
//! It owns deadlines and the refusal of redirects. It does not own dialling (`connect`), connections (`http1`) or
//! counting (`body`). Invariants: a request is written at most once, whatever happens; the answer to "can it have
//! reached the peer" is never "no" unless that is certain.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use tokio::time::{Instant, timeout};

use crate::body::EgressBody;
use crate::connect::{Dialling, EgressConnector, TcpDial};
use crate::destination::{Destination, EgressPolicy};
use crate::error::EgressError;
use crate::http1::{Http1, Unused};
use crate::identity::Trust;
use crate::limits::Limits;
use crate::request;
use crate::resolve::SystemResolver;
use crate::tls::{self, Handshakes, Protocol};

/// A client for the destinations of one policy. Clones share their connections.
#[derive(Clone)]
pub struct EgressClient {
    dialling: Arc<Dialling>,
    http1_tls: Arc<Handshakes>,
    http2_tls: Arc<Handshakes>,
    unused: Arc<Unused>,
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
        let limit_max = Duration::from_millis(self.limits().request_timeout_ms);
        let limit = limit.min(limit_max);
        let attempt = Attempt::within(limit);
        let mut whole = pin!(async {
            let (response, connection) = self.exchange(request, &attempt).await?;
            self.read_whole(response, connection).await
        });
        if let Ok(answered) = timeout(limit, &mut whole).await {
            return answered;
        }
        let listening = listening.min(limit_max.saturating_sub(limit));
        if listening.is_zero() || !attempt.connected.load(Ordering::Relaxed) {
            return Err(attempt.late(limit));
        }
        let limit = limit.saturating_add(listening);
        timeout(listening, whole).await.unwrap_or_else(|_elapsed| Err(attempt.late(limit)))
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
        let limit = Duration::from_millis(self.limits().request_timeout_ms);
        let attempt = Attempt::within(limit);
        let head = timeout(limit, self.exchange(request, &attempt)).await;
        let (response, connection) = head.unwrap_or_else(|_elapsed| Err(attempt.late(limit)))?;
        let (parts, incoming) = response.into_parts();
        let bytes_max = self.limits().stream_bytes_max;
        let body = EgressBody::new(incoming, connection, bytes_max, self.limits())?;
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
        let unused = Unused::new(dialling.limits.clone());
        Self { dialling: Arc::new(dialling), http1_tls, http2_tls, unused }
    }

    fn limits(&self) -> &Limits {
        &self.dialling.limits
    }

    async fn exchange(
        &self,
        mut request: Request<Bytes>,
        attempt: &Attempt,
    ) -> Result<(Response<Incoming>, Http1), EgressError> {
        let destination = request::check(&mut request, &self.dialling.policy, self.limits())?;
        let mut connection = match self.unused.take(&destination.to_string()) {
            Some(open) => open,
            // Boxed because it is rare: otherwise every request would have room for it.
            None => Box::pin(self.dial(&destination)).await?,
        };
        // A process that was paused finds the connection before it finds its time over.
        if Instant::now() >= attempt.until {
            return Err(attempt.late(attempt.limit));
        }
        attempt.connected.store(true, Ordering::Relaxed);
        let response = connection.send(request.map(Full::new)).await?;
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
        Ok((response, connection))
    }

    async fn dial(&self, destination: &Destination) -> Result<Http1, EgressError> {
        let (dialling, tls) = (Arc::clone(&self.dialling), Arc::clone(&self.http1_tls));
        let connector = EgressConnector { dialling, tls, protocol: Protocol::Http1 };
        let stream = connector.connect(destination).await?;
        Http1::over(stream, destination.to_string(), &self.unused).await
    }

    async fn read_whole(
        &self,
        response: Response<Incoming>,
        connection: Http1,
    ) -> Result<Response<Bytes>, EgressError> {
        let (parts, incoming) = response.into_parts();
        let bytes_max = self.limits().response_bytes_max;
        let body = EgressBody::new(incoming, connection, bytes_max, self.limits())?;
        Ok(Response::from_parts(parts, body.collect().await?.to_bytes()))
    }
}

/// One exchange: until when it may begin, and whether anything can have been written.
struct Attempt {
    limit: Duration,
    until: Instant,
    connected: AtomicBool,
}

impl Attempt {
    fn within(limit: Duration) -> Self {
        let now = Instant::now();
        let until = now.checked_add(limit).unwrap_or(now);
        Self { limit, until, connected: AtomicBool::new(false) }
    }

    /// The deadline has passed. As long as there was no connection, nothing can have been written.
    fn late(&self, limit: Duration) -> EgressError {
        let timeout_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        if self.connected.load(Ordering::Relaxed) {
            EgressError::DeadlineExceeded { timeout_ms }
        } else {
            EgressError::DeadlineBeforeRequest { timeout_ms }
        }
    }
}
