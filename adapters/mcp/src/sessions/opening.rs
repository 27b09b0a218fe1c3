//! How a session with a server is begun, looked at and ended.
//!
//! Owns the handshake of a session and what its failure means for a call. Does not know which calls go through it. Invariant: it is begun by
//! those whom its calls are made for, and with the protocol version that the contract pins.

use std::{sync::Arc, time::Duration};

use placet_adapter::outcome::AdapterError;
use rmcp::{
    model::{ClientRequest, PingRequest, ProtocolVersion},
    service::{Peer, RoleClient},
};
use tokio::time::{Instant, timeout};

use crate::{
    adapter::Link,
    connector::{Endpoint, McpSettings},
    failure, handshake,
    http::{EgressHttp, Speaker},
    listener::Listener,
    text::whole,
};

/// What every session of a connection begins with.
pub(crate) struct Opener {
    pub(crate) endpoint: Endpoint,
    pub(crate) settings: Arc<McpSettings>,
    pub(crate) version: ProtocolVersion,
    /// The connection's own: what a server announces within any session counts.
    pub(crate) listener: Listener,
    /// The connection's own.
    pub(crate) http: EgressHttp,
}

impl Opener {
    /// Begins a session, within the time that a connection may take.
    ///
    /// # Errors
    /// Why there is none: it is told from an outage where the server can be reached.
    pub(super) async fn open(&self, speaker: Speaker) -> Result<Session, Unopened> {
        let http = self.http.for_session(speaker, (&self.endpoint, self.settings.as_ref()));
        let http = http.map_err(Unopened::Failed)?;
        let ms_max = self.endpoint.limits.connect_ms_max;
        let begun = timeout(Duration::from_millis(ms_max), self.start(http.clone())).await;
        let Ok(begun) = begun else {
            return Err(Unopened::Stalled(format!("no completed handshake within {ms_max} ms")));
        };
        let is_there = http.was_reached();
        let session = begun.map_err(|error| {
            Unopened::Failed(if is_there { as_no_session(error) } else { error })
        })?;
        let info = session.link.peer_info().map_err(|error| Unopened::Failed(as_no_session(error)));
        let spoken = info?.protocol_version.clone();
        if spoken == self.version {
            return Ok(session);
        }
        session.close().await;
        // The contract's own session is as its contract says, or there would be no connection.
        Err(Unopened::Failed(AdapterError::NoSession(format!(
            "in it the server speaks protocol version `{}`",
            whole(spoken.as_str())
        ))))
    }

    async fn start(&self, http: EgressHttp) -> Result<Session, AdapterError> {
        let closed = http.closed();
        let transport = http.clone().into_transport(&self.endpoint.limits);
        let service = handshake::shake(transport, self.listener.clone(), &self.version).await?;
        Ok(Session { link: Link::new(service, &self.listener, closed, None), http })
    }
}

/// Why a session was not begun.
#[derive(Debug)]
pub(super) enum Unopened {
    /// It failed so.
    Failed(AdapterError),
    /// The server did not do it in the time that a connection may take.
    Stalled(String),
}

/// What a server that is there does not begin for one caller it may begin for another, whatever it says instead.
fn as_no_session(error: AdapterError) -> AdapterError {
    match error {
        AdapterError::Refused(why)
        | AdapterError::Unavailable(why)
        | AdapterError::Drifted(why)
        | AdapterError::Garbled(why) => AdapterError::NoSession(why),
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
    pub(super) fn peer(&self) -> &Peer<RoleClient> {
        self.link.peer()
    }

    pub(super) fn is_alive(&self) -> bool {
        self.link.is_alive()
    }

    /// When the credential that it carries is over.
    pub(super) fn ends(&self) -> Option<Instant> {
        self.http.speaker().ends()
    }

    /// It goes on with the credential of a later call for the same owner.
    pub(super) fn goes_on_with(&self, speaker: Speaker) {
        self.http.speaker().goes_on_with(speaker);
    }

    /// Asks the server whether it still knows the session, which then is alive or not.
    ///
    /// # Errors
    /// That the server cannot be reached.
    pub(super) async fn look(&self) -> Result<(), AdapterError> {
        let ping = ClientRequest::PingRequest(PingRequest::default());
        let Err(error) = self.peer().send_request(ping).await else { return Ok(()) };
        // Whoever answers a ping with an error of his own is there.
        if self.is_alive() && failure::is_unreached(&error) {
            let why = "the server cannot be reached".to_owned();
            return Err(AdapterError::Unavailable(why));
        }
        Ok(())
    }

    pub(super) async fn close(&self) {
        self.link.close().await;
    }
}
