//! Our side of a connection: what we say about ourselves, and what a server may ask of us.
//!
//! Owns the count of announced changes of the tool list, and who hears of the progress of which request. Invariant: a server gets an answer to `ping` and to nothing else. Sampling, elicitation
//! and roots would let a server speak to the caller's model, to a person, or of the caller's files behind the back of policy, so they are refused,
//! which the handshake says and the log notes.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use rmcp::{
    ErrorData,
    model::{
        ClientCapabilities, ClientConfig, ClientResult, ErrorCode, Implementation,
        ProgressNotificationParam, ProgressToken, ProtocolVersion, ServerNotification,
        ServerRequest,
    },
    service::{NotificationContext, RequestContext, RoleClient, Service},
};

use placet_adapter::adapter::{Observer, Progress};
use placet_types::ids::{AdapterName, ToolCallId};

use crate::settings::McpSettings;

/// The generations of one connection lie in a range of their own.
const GENERATIONS_PER_CONNECTION: u64 = 1 << 32;

static NEXT_CONNECTION: AtomicU64 = AtomicU64::new(1);

/// Hears what a server sends by itself.
#[derive(Debug, Clone)]
pub(crate) struct Listener {
    adapter: AdapterName,
    config: ClientConfig,
    generation: Arc<AtomicU64>,
    heard: Arc<Mutex<HashMap<ProgressToken, ProgressOf>>>,
}

/// Who hears of the progress of a call.
#[derive(Debug, Clone)]
pub(crate) struct ProgressOf {
    pub(crate) call: ToolCallId,
    pub(crate) observer: Arc<dyn Observer>,
}

/// A request whose progress is heard for as long as this is held.
#[derive(Debug)]
pub(crate) struct Hearing {
    heard: Arc<Mutex<HashMap<ProgressToken, ProgressOf>>>,
    token: ProgressToken,
}

impl Drop for Hearing {
    fn drop(&mut self) {
        self.heard.lock().remove(&self.token);
    }
}

impl Listener {
    pub(crate) fn new(
        adapter: &AdapterName,
        settings: &McpSettings,
        version: &ProtocolVersion,
    ) -> Self {
        let ourselves =
            Implementation::new(settings.client_name.clone(), settings.client_version.clone());
        let config = ClientConfig::new(ClientCapabilities::default(), ourselves)
            .with_protocol_version(version.clone());
        let connection = NEXT_CONNECTION.fetch_add(1, Ordering::Relaxed);
        let generation = connection.wrapping_mul(GENERATIONS_PER_CONNECTION);
        let generation = Arc::new(AtomicU64::new(generation));
        Self { adapter: adapter.clone(), config, generation, heard: Arc::default() }
    }

    /// The same for another session of the server, whose requests have tokens of their own.
    pub(crate) fn of_session(&self) -> Self {
        Self { heard: Arc::default(), ..self.clone() }
    }

    /// Has the progress of a request heard, if anybody wants to hear it.
    pub(crate) fn hear(&self, token: ProgressToken, of: Option<ProgressOf>) -> Option<Hearing> {
        self.heard.lock().insert(token.clone(), of?);
        Some(Hearing { heard: Arc::clone(&self.heard), token })
    }

    /// The count of announced changes, distinct from that of every other connection.
    pub(crate) fn generation(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.generation)
    }
}

impl Listener {
    /// What a server is told that asks for something.
    pub(crate) fn reply(&self, request: &ServerRequest) -> Result<ClientResult, ErrorData> {
        if matches!(request, ServerRequest::PingRequest(_)) {
            return Ok(ClientResult::empty(()));
        }
        // Not the parameters: they are the server's words.
        let method = match request {
            ServerRequest::CreateMessageRequest(_) => "sampling/createMessage",
            ServerRequest::ElicitRequest(_) => "elicitation/create",
            ServerRequest::ListRootsRequest(_) => "roots/list",
            ServerRequest::PingRequest(_) | ServerRequest::CustomRequest(_) | _ => "another",
        };
        tracing::info!(adapter = %self.adapter, method, "a request of a server was refused");
        let why = "Placet answers no requests of servers but `ping`";
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, why, None))
    }

    /// Takes note of what a server tells.
    pub(crate) fn note(&self, notification: &ServerNotification) {
        if matches!(notification, ServerNotification::ToolListChangedNotification(_)) {
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
        if let ServerNotification::ProgressNotification(told) = notification {
            self.progressed(&told.params);
        }
    }

    /// Passes numbers on, and not the server's words: nothing has checked these, as it does those of a result.
    fn progressed(&self, told: &ProgressNotificationParam) {
        let of = self.heard.lock().get(&told.progress_token).cloned();
        if let Some(ProgressOf { call, observer }) = of {
            observer.progressed(&call, Progress { done: told.progress, total: told.total });
        }
    }
}

impl Service<RoleClient> for Listener {
    async fn handle_request(
        &self,
        request: ServerRequest,
        _context: RequestContext<RoleClient>,
    ) -> Result<ClientResult, ErrorData> {
        self.reply(&request)
    }

    async fn handle_notification(
        &self,
        notification: ServerNotification,
        _context: NotificationContext<RoleClient>,
    ) -> Result<(), ErrorData> {
        self.note(&notification);
        Ok(())
    }

    fn get_info(&self) -> ClientConfig {
        self.config.clone()
    }
}
