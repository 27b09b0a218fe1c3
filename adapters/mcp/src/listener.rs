//! Our side of a connection: what we say about ourselves, and what a server may ask of us.
//!
//! Owns the count of announced changes of the tool list, and who receives the progress of which request. Invariants: what a server sends
//! before its answer is handled before the answer; a server gets an answer to `ping` and to nothing else. Sampling, elicitation and roots
//! would let a server reach the caller's model, a person or the caller's files behind the back of policy, so they are refused; the
//! handshake says so and the log notes it.

use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use rmcp::{
    ErrorData,
    model::{
        ClientCapabilities, ClientConfig, ClientResult, ErrorCode, GetExtensions, GetMeta,
        Implementation, ProgressNotificationParam, ProgressToken, ProtocolVersion,
        ServerNotification, ServerRequest,
    },
    service::{
        NotificationContext, RequestContext, RoleClient, RxJsonRpcMessage, Service,
        TxJsonRpcMessage,
    },
    transport::Transport,
};

use placet_adapter::adapter::{Observer, Progress};
use placet_types::ids::{AdapterName, ToolCallId};

use crate::settings::McpSettings;

/// The generations of one connection lie in a range of their own.
const GENERATIONS_PER_CONNECTION: u64 = 1 << 32;

static NEXT_CONNECTION: AtomicU64 = AtomicU64::new(1);

/// Handles what a server sends unasked.
#[derive(Debug, Clone)]
pub(crate) struct Listener {
    adapter: AdapterName,
    config: ClientConfig,
    generation: Arc<AtomicU64>,
    heard: Arc<Mutex<HashMap<ProgressToken, Weak<ProgressOf>>>>,
}

/// The receiver of the progress of a call.
#[derive(Debug)]
pub(crate) struct ProgressOf {
    pub(crate) call: ToolCallId,
    pub(crate) observer: Arc<dyn Observer>,
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

    /// Forwards the progress of a request as long as somebody holds `of`.
    pub(crate) fn hear(&self, token: ProgressToken, of: &Arc<ProgressOf>) {
        let mut heard = self.heard.lock();
        heard.retain(|_, of| of.strong_count() > 0);
        heard.insert(token, Arc::downgrade(of));
    }

    /// The count of announced changes, distinct from that of every other connection.
    pub(crate) fn generation(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.generation)
    }
}

impl Listener {
    /// The reply to a request of a server.
    pub(crate) fn reply(&self, request: &ServerRequest) -> Result<ClientResult, ErrorData> {
        if matches!(request, ServerRequest::PingRequest(_)) {
            return Ok(ClientResult::empty(()));
        }
        // Without the parameters: they are the server's text.
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

    /// Handles a notification of a server.
    pub(crate) fn note(&self, notification: &ServerNotification) {
        if matches!(notification, ServerNotification::ToolListChangedNotification(_)) {
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
        if let ServerNotification::ProgressNotification(told) = notification {
            self.progressed(&told.params);
        }
    }

    /// Forwards numbers, and not the server's text: unlike that of a result, it was not checked.
    fn progressed(&self, told: &ProgressNotificationParam) {
        let of = self.heard.lock().get(&told.progress_token).and_then(Weak::upgrade);
        if let Some(of) = of {
            let progress = Progress { done: told.progress, total: told.total };
            of.observer.progressed(&of.call, progress);
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

    /// [`Heard`] has handled it.
    async fn handle_notification(
        &self,
        _notification: ServerNotification,
        _context: NotificationContext<RoleClient>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    fn get_info(&self) -> ClientConfig {
        self.config.clone()
    }
}

/// A transport that registers the progress of a request before sending it, and handles notifications as they are received: the SDK handles
/// each in a task of its own, which an answer right after it may overtake.
pub(crate) struct Heard<T> {
    pub(crate) transport: T,
    pub(crate) listener: Listener,
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Heard<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        if let TxJsonRpcMessage::<RoleClient>::Request(asked) = &message
            && let Some(of) = asked.request.extensions().get::<Arc<ProgressOf>>()
            && let Some(token) = asked.request.get_meta().get_progress_token()
        {
            self.listener.hear(token, of);
        }
        self.transport.send(message)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let message = self.transport.receive().await?;
        if let RxJsonRpcMessage::<RoleClient>::Notification(told) = &message {
            self.listener.note(&told.notification);
        }
        Some(message)
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.transport.close().await
    }
}
