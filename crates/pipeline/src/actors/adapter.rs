//! The supervisor of one adapter: makes its connection, replaces it when it dies, with backoff.
//!
//! Owns the connection's lifetime. The calls over it are tasks of the registry: this actor's death cancels none of them.

use std::{sync::Arc, time::Duration};

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::time::Instant;

use placet_adapter::{adapter::Adapter, outcome::AdapterError};

use crate::{
    actors::tree::{Tree, injected_fault},
    adapters::ports::{Connection, Port, backoff},
    context::Context,
};

/// What an adapter's supervisor is told.
pub(crate) enum AdapterMessage {
    /// Somebody needs the connection.
    Connect,
    /// A try is over.
    Connected(Result<Box<dyn Adapter>, AdapterError>),
    /// Panic.
    Fault,
}

impl std::fmt::Debug for AdapterMessage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Connect => "Connect",
            Self::Connected(_) => "Connected",
            Self::Fault => "Fault",
        })
    }
}

/// The actor.
#[derive(Debug)]
pub(crate) struct AdapterActor {
    pub(crate) context: Arc<Context>,
    pub(crate) tree: Arc<Tree>,
    pub(crate) path: String,
    pub(crate) port: Arc<Port>,
}

/// What it remembers.
#[derive(Debug, Default)]
pub(crate) struct AdapterState {
    connecting: bool,
    failures: u32,
    not_before: Option<Instant>,
}

impl Actor for AdapterActor {
    type Msg = AdapterMessage;
    type State = AdapterState;
    type Arguments = ();

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        (): (),
    ) -> Result<AdapterState, ActorProcessingErr> {
        self.tree.enter(&self.path, &myself, || AdapterMessage::Fault);
        self.port.supervisor.store(Some(Arc::new(myself.clone())));
        myself.cast(AdapterMessage::Connect)?;
        Ok(AdapterState::default())
    }

    async fn handle(
        &self,
        myself: ActorRef<Self::Msg>,
        message: AdapterMessage,
        state: &mut AdapterState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            AdapterMessage::Connect => self.connect(&myself, state),
            AdapterMessage::Connected(outcome) => self.connected(outcome, state),
            AdapterMessage::Fault => injected_fault(),
        }
        Ok(())
    }
}

impl AdapterActor {
    fn connect(&self, myself: &ActorRef<AdapterMessage>, state: &mut AdapterState) {
        if let Connection::Up(adapter) = self.port.connection()
            && adapter.is_alive()
        {
            // Whoever asked may have missed it.
            return self.port.set(Connection::Up(adapter));
        }
        if state.connecting || self.context.stopping() {
            return;
        }
        if state.not_before.is_some_and(|at| Instant::now() < at)
            && let Connection::Failed(error) = self.port.connection()
        {
            return self.port.set(Connection::Failed(error));
        }
        state.connecting = true;
        let (port, actor) = (Arc::clone(&self.port), myself.clone());
        self.context.registry.spawn(async move {
            let limit = Duration::from_millis(port.contract.limits.connect_ms_max);
            let (connector, contract) = (Arc::clone(&port.connector), Arc::clone(&port.contract));
            // In a task of its own, so that a connector's panic is a failed try.
            let mut connecting = tokio::spawn(async move { connector.connect(contract).await });
            let outcome = match tokio::time::timeout(limit, &mut connecting).await {
                Ok(Ok(outcome)) => outcome,
                Ok(Err(failed)) => {
                    Err(AdapterError::Unavailable(format!("its connector failed: {failed}")))
                }
                Err(_elapsed) => {
                    connecting.abort();
                    Err(AdapterError::Unavailable("it did not come up in time".to_owned()))
                }
            };
            if let Err(ractor::MessagingErr::SendErr(AdapterMessage::Connected(Ok(unwanted)))) =
                actor.cast(AdapterMessage::Connected(outcome))
            {
                unwanted.close().await;
            }
        });
    }

    fn connected(&self, outcome: Result<Box<dyn Adapter>, AdapterError>, state: &mut AdapterState) {
        state.connecting = false;
        let adapter = &self.port.contract.adapter;
        match outcome {
            Ok(connection) => {
                state.failures = 0;
                state.not_before = None;
                tracing::info!(%adapter, "connected");
                self.replace(Connection::Up(Arc::from(connection)));
            }
            Err(error) => {
                state.failures = state.failures.saturating_add(1);
                state.not_before = Some(Instant::now() + backoff(state.failures));
                tracing::warn!(%adapter, %error, failures = state.failures, "could not connect");
                self.replace(Connection::Failed(error));
            }
        }
    }

    fn replace(&self, next: Connection) {
        if let Connection::Up(old) = self.port.connection() {
            self.context.registry.spawn(async move { old.close().await });
        }
        self.port.set(next);
    }
}
