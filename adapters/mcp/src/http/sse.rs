//! The older transport HTTP+SSE (MCP revision 2024-11-05, "HTTP with SSE"), for servers that have no other.
//!
//! Owns the one stream of a session, which brings every answer, and the endpoint that it names, to which every message is posted.
//! Invariants: the endpoint is at the contract's own origin; a session ends with its stream, so that no call is posted without a way back.

use std::collections::HashMap;

use futures::{StreamExt as _, stream};
use http::{Method, Uri, header};
use rmcp::{
    model::{ClientJsonRpcMessage, ServerJsonRpcMessage},
    service::RoleClient,
    transport::{Transport, streamable_http_client::StreamableHttpError},
};
use url::Url;

use placet_types::contract::{file::LimitsFile, not_executed::HttpError};

use super::{EVENTS, EgressHttp, Events, Http, Outgoing, Target, wire};
use crate::{failure::HttpFault, settings::message_bytes_max};

/// The longest endpoint.
const ENDPOINT_BYTES_MAX: usize = 2_048;

/// One session: its stream, and where its messages go.
pub(super) struct SseTransport {
    http: EgressHttp,
    endpoint: Uri,
    events: Events,
}

impl EgressHttp {
    /// Opens the stream of a session, and waits for the endpoint, its first event.
    ///
    /// # Errors
    /// Why it failed; nothing with an effect was sent.
    pub(super) async fn open_stream(self, limits: &LimitsFile) -> Result<SseTransport, HttpFault> {
        let request = Outgoing::bare(Method::GET).with(header::ACCEPT, EVENTS);
        let response = self.reaching(self.ask(&request).await)?;
        let status = response.status();
        if !status.is_success() {
            return Err(HttpFault::Status(HttpError::bare(status.as_u16())));
        }
        if !wire::is_type(response.headers(), "text/event-stream") {
            return Err(HttpFault::Unusable("its content type is no event stream"));
        }
        let mut events = wire::endless_events(response.into_body(), message_bytes_max(limits));
        let named = loop {
            match events.next().await {
                Some(Ok(event)) if event.event.as_deref() == Some("endpoint") => break event.data,
                // Comments and the like.
                Some(Ok(event)) if event.data.is_none() => {}
                Some(_) | None => {
                    return Err(HttpFault::Unusable("its stream begins with no endpoint"));
                }
            }
        };
        let endpoint = self.target.endpoint(&named.unwrap_or_default())?;
        // The endpoint identifies the session.
        if !self.numbers.take(&endpoint.to_string(), &self.own) {
            return Err(HttpFault::NumberTaken);
        }
        self.own.is_told_apart();
        Ok(SseTransport { http: self, endpoint, events })
    }
}

impl Target {
    /// Where messages go: the endpoint that the stream names, relative to it (MCP 2024-11-05, "HTTP with SSE"), at the same origin.
    fn endpoint(&self, named: &str) -> Result<Uri, HttpFault> {
        let unusable = || HttpFault::Unusable("its endpoint is no url");
        if named.len() > ENDPOINT_BYTES_MAX {
            return Err(unusable());
        }
        let base = Url::parse(&self.uri.to_string()).map_err(|_error| unusable())?;
        let endpoint = base.join(named).map_err(|_error| unusable())?;
        let is_plain = endpoint.username().is_empty() && endpoint.password().is_none();
        if endpoint.origin() != base.origin() || !is_plain {
            return Err(HttpFault::Unusable("its endpoint is at another host"));
        }
        Uri::try_from(endpoint.as_str()).map_err(|_error| unusable())
    }
}

impl Transport<RoleClient> for SseTransport {
    type Error = Http;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Http>> + Send + 'static {
        let (http, endpoint) = (self.http.clone(), self.endpoint.clone());
        async move {
            if !http.own.is_open() {
                let ended = HttpFault::StreamEnded;
                return Err(StreamableHttpError::Client(ended));
            }
            let request = Outgoing::posting(&message, None, HashMap::new())?.to(endpoint);
            http.post(&message, request).await.map(drop)
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            let Some(Ok(event)) = self.events.next().await else {
                self.http.own.close();
                return None;
            };
            self.http.own.hear();
            let is_message = event.event.as_deref().is_none_or(|kind| kind == "message");
            let Some(data) = event.data.filter(|_| is_message) else { continue };
            match serde_json::from_str(&data) {
                Ok(message) => return Some(message),
                Err(_error) => {
                    tracing::warn!(server = %self.http.target.origin, "an event of a server is no json-rpc");
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), Http> {
        self.http.own.close();
        self.events = stream::empty().boxed();
        Ok(())
    }
}
