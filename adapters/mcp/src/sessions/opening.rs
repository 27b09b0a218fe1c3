//! How a session with a server is begun, checked and ended.
//!
//! Owns the handshake of a session and what its failure means for a call. Does not know which calls use it. Invariant: it is begun in
//! the name of its calls' owner, and with the protocol version that the contract pins.

use std::{sync::Arc, time::Duration};

use placet_adapter::outcome::AdapterError;
use rmcp::{
    model::{ClientRequest, PingRequest, ProtocolVersion},
    service::{PeerRequestOptions, ServiceError},
};
use tokio::time::{Instant, timeout};

use super::under_way::Unready;
use crate::{
    failure::{self, Fault},
    http::{EgressHttp, Speaker},
    link::{Asked, Link},
    listener::Listener,
    settings::{Endpoint, McpSettings},
    text::whole,
};

/// How long a server may take to confirm that it still knows a session.
const LOOK_WAIT: Duration = Duration::from_secs(2);

/// What every session of a connection begins with.
pub(crate) struct Opener {
    pub(crate) endpoint: Endpoint,
    pub(crate) settings: Arc<McpSettings>,
    pub(crate) version: ProtocolVersion,
    /// The connection's own: announcements within any session count.
    pub(crate) listener: Listener,
    /// The connection's own.
    pub(crate) http: EgressHttp,
}

impl Opener {
    /// Begins a session, within the time for a connection.
    ///
    /// # Errors
    /// Why it failed; not as an outage if the server can be reached.
    pub(super) async fn open(&self, speaker: Speaker) -> Result<Session, Unready> {
        let http = self.http.for_session(speaker, &self.endpoint, self.settings.as_ref());
        let http = http.map_err(Unready::Failed)?;
        let ms_max = self.endpoint.limits.connect_ms_max;
        let begun = timeout(Duration::from_millis(ms_max), self.start(http.clone())).await;
        let Ok(begun) = begun else {
            return Err(Unready::Stalled(format!("no completed handshake within {ms_max} ms")));
        };
        let session = begun.map_err(|error| unready(error, &http))?;
        let info = session.link.peer_info().map_err(|error| Unready::Failed(as_no_session(error)));
        let spoken = info?.protocol_version.clone();
        if spoken == self.version {
            return Ok(session);
        }
        session.close().await;
        // The contract's own session is as the contract says, or there would be no connection.
        Err(Unready::Failed(AdapterError::NoSession(format!(
            "in it the server speaks protocol version `{}`",
            whole(spoken.as_str())
        ))))
    }

    async fn start(&self, http: EgressHttp) -> Result<Session, AdapterError> {
        let closed = http.closed();
        let listener = self.listener.of_session();
        let (limits, version) = (&self.endpoint.limits, &self.version);
        let service = http.clone().begin(limits, listener.clone(), version).await?;
        let link = Link::new(service, &listener, closed, None).over(&http, &listener);
        Ok(Session { link, http })
    }
}

/// Why a session was not begun, from the error of the handshake.
fn unready(error: AdapterError, http: &EgressHttp) -> Unready {
    let is_over = http.speaker().ends().is_some_and(|ends| Instant::now() >= ends);
    let error = if http.was_reached() { as_no_session(error) } else { error };
    match error {
        AdapterError::CredentialRefused(_) | AdapterError::Forbidden(_) => {
            Unready::OfCredential(error)
        }
        AdapterError::NoSession(_) if is_over => Unready::OfCredential(error),
        AdapterError::NoSession(_)
        | AdapterError::Refused(_)
        | AdapterError::Unavailable(_)
        | AdapterError::SchemaMismatch(_)
        | AdapterError::InvalidResponse(_)
        | AdapterError::Misconfigured(_) => Unready::Failed(error),
    }
}

/// A reachable server may begin for another caller what it does not begin for this one, whatever the error says.
fn as_no_session(error: AdapterError) -> AdapterError {
    match error {
        AdapterError::Refused(why)
        | AdapterError::Unavailable(why)
        | AdapterError::SchemaMismatch(why)
        | AdapterError::InvalidResponse(why) => AdapterError::NoSession(why),
        AdapterError::CredentialRefused(_)
        | AdapterError::Forbidden(_)
        | AdapterError::NoSession(_)
        | AdapterError::Misconfigured(_) => error,
    }
}

/// One session.
pub(super) struct Session {
    link: Link,
    http: EgressHttp,
}

impl Session {
    pub(super) fn link(&self) -> &Link {
        &self.link
    }

    pub(super) fn is_alive(&self) -> bool {
        self.link.is_alive()
    }

    /// Whether further calls may go through it. The calls that are in it already may, as long as it is alive.
    pub(super) fn takes_calls(&self) -> bool {
        self.is_alive() && !self.http.is_retired()
    }

    /// Whether nothing was received in it for this long.
    pub(super) fn is_silent(&self, silent: Duration) -> bool {
        self.http.heard_at().elapsed() >= silent
    }

    /// When the credential that it carries expires.
    pub(super) fn ends(&self) -> Option<Instant> {
        self.http.speaker().ends()
    }

    /// Replaces the credential by that of a later call of the same owner.
    pub(super) fn goes_on_with(&self, speaker: Speaker) {
        self.http.speaker().goes_on_with(speaker);
    }

    /// Asks the server whether it still knows the session.
    ///
    /// # Errors
    /// That it does not, or does not answer in time; or that it cannot be reached.
    pub(super) async fn look(&self) -> Result<(), Unready> {
        let ping = ClientRequest::PingRequest(PingRequest::default());
        let asking = async {
            let options = PeerRequestOptions::no_options();
            match self.link.peer().send_request_with_option(ping, options).await {
                Ok(handle) => Asked::new(handle).answer().await,
                Err(error) => Some(Err(error)),
            }
        };
        match timeout(LOOK_WAIT, asking).await {
            // A server that answers a ping with an error of its own is there.
            Ok(Some(Ok(_) | Err(ServiceError::McpError(_)))) if self.takes_calls() => Ok(()),
            Ok(Some(Err(error))) if self.takes_calls() && failure::is_unreached(&error) => {
                Err(match failure::of_request(&error) {
                    // It could not be sent with this credential: no outage.
                    Fault::Nothing(refused @ AdapterError::Refused(_)) => {
                        Unready::OfCredential(refused)
                    }
                    Fault::Nothing(_)
                    | Fault::Status { .. }
                    | Fault::Reported { .. }
                    | Fault::InvalidResponse(_)
                    | Fault::Perhaps(_) => {
                        let why = "the server cannot be reached".to_owned();
                        Unready::Failed(AdapterError::Unavailable(why))
                    }
                })
            }
            // A proxy may answer for a server that is gone; a session costs less than a call with an unknown outcome.
            Ok(_) | Err(_) => Err(Unready::Gone),
        }
    }

    pub(super) async fn close(&self) {
        self.link.close().await;
    }
}
