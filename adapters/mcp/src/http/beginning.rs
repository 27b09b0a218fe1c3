//! The beginning of a session over HTTP: in its time, and with nothing left of it at the server where nobody waits for it any more.
//!
//! Owns the deadline of the requests that begin a session, and ends sessions begun for nobody. The library that makes the requests
//! continues them when the handshake is dropped, and forgets a session that it could not finish. Does not perform the handshake.
//! Invariant: a session id that another session has is not ended.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::{StreamExt as _, TryStreamExt as _};
use http::{HeaderName, HeaderValue};
use rmcp::{
    model::{ClientJsonRpcMessage, ClientNotification, ClientRequest},
    transport::streamable_http_client::{StreamableHttpClient as _, StreamableHttpPostResponse},
};
use tokio::{
    runtime::Handle,
    time::{sleep_until, timeout, timeout_at},
};

use super::EgressHttp;
use crate::failure::HttpFault;

/// How much longer than a connection may take the answer to a handshake is read, so that a slightly late session is ended instead of
/// left behind, and so that the waiting side reports that the server was too slow.
pub(super) const GRACE: Duration = Duration::from_secs(1);
/// How long ending an abandoned session may take.
const END_WAIT: Duration = Duration::from_secs(5);
pub(super) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// What the server has begun, and whether anybody waits for it.
#[derive(Default)]
pub(super) struct Begun {
    session: Option<Numbered>,
    is_given_up: bool,
}

/// A session at the server: its id, and the requested version.
struct Numbered {
    number: Arc<str>,
    version: String,
}

/// The beginning of a session. Dropping it before it is complete ends what the server has begun, or begins a little later.
pub(crate) struct Beginning(Option<EgressHttp>);

impl Beginning {
    /// The session has begun: from now on it is ended as sessions are.
    pub(crate) fn completed(mut self) {
        self.0 = None;
    }
}

impl Drop for Beginning {
    fn drop(&mut self) {
        let Some(http) = self.0.take() else { return };
        let begun = {
            let mut begun = http.own.begun();
            begun.is_given_up = true;
            begun.session.take()
        };
        if let Some(session) = begun {
            http.end(session);
        }
    }
}

impl EgressHttp {
    /// The id of the session that the server has begun, if it assigned one.
    pub(super) fn number(&self) -> Option<Arc<str>> {
        self.own.begun().session.as_ref().map(|session| Arc::clone(&session.number))
    }

    /// The guard for beginning the session of this client.
    pub(crate) fn beginning(&self) -> Beginning {
        Beginning(Some(self.clone()))
    }

    /// The answer of an exchange: for a message that begins a session, within the deadline of that.
    pub(super) async fn in_time(
        &self,
        message: &ClientJsonRpcMessage,
        exchange: impl Future<Output = Result<StreamableHttpPostResponse, HttpFault>>,
    ) -> Result<StreamableHttpPostResponse, HttpFault> {
        let begins = is_handshake(message);
        let answer = if begins {
            let answer = timeout_at(self.own.begins_by, exchange).await;
            answer.unwrap_or(Err(HttpFault::Late))
        } else {
            exchange.await
        };
        answer.map(|answer| self.heard(answer, begins))
    }

    /// Each answer shows that the server is there, and so does each of its events. Those that begin a session end at its deadline.
    fn heard(
        &self,
        answer: StreamableHttpPostResponse,
        begins: bool,
    ) -> StreamableHttpPostResponse {
        self.own.hear();
        match answer {
            StreamableHttpPostResponse::Sse(events, number) => {
                let own = Arc::clone(&self.own);
                let begins_by = own.begins_by;
                let events = events.inspect_ok(move |_event| own.hear());
                let events = if begins {
                    events.take_until(sleep_until(begins_by)).boxed()
                } else {
                    events.boxed()
                };
                StreamableHttpPostResponse::Sse(events, number)
            }
            other @ (StreamableHttpPostResponse::Accepted
            | StreamableHttpPostResponse::Json(..)
            | _) => other,
        }
    }

    /// The server has begun the session, with this id. Returns whether anybody waits for it; if not, it is ended.
    pub(super) fn has_begun(&self, number: &str, version: &str) -> bool {
        let session = Numbered { number: Arc::from(number), version: version.to_owned() };
        let unwanted = {
            let mut begun = self.own.begun();
            if begun.is_given_up {
                Some(session)
            } else {
                begun.session = Some(session);
                None
            }
        };
        let is_wanted = unwanted.is_none();
        if let Some(session) = unwanted {
            self.end(session);
        }
        is_wanted
    }

    fn end(&self, session: Numbered) {
        let Ok(runtime) = Handle::try_current() else { return };
        let http = self.clone();
        drop(runtime.spawn(async move {
            let version = HeaderValue::from_str(&session.version).ok();
            let headers: HashMap<HeaderName, HeaderValue> =
                version.map(|version| (PROTOCOL_VERSION, version)).into_iter().collect();
            // It goes where every request goes. A failure is logged.
            let uri: Arc<str> = Arc::from(http.target.uri.to_string());
            let ending = http.delete_session(uri, session.number, None, headers);
            let _in_time = timeout(END_WAIT, ending).await.is_ok();
        }));
    }
}

/// Whether a message is one of those that begin a session.
fn is_handshake(message: &ClientJsonRpcMessage) -> bool {
    match message {
        ClientJsonRpcMessage::Request(request) => matches!(
            &request.request,
            ClientRequest::InitializeRequest(_) | ClientRequest::DiscoverRequest(_)
        ),
        ClientJsonRpcMessage::Notification(notification) => {
            matches!(&notification.notification, ClientNotification::InitializedNotification(_))
        }
        ClientJsonRpcMessage::Response(_) | ClientJsonRpcMessage::Error(_) => false,
    }
}
