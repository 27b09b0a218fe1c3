//! The supervisor of one adapter: makes its connection, replaces it when it dies, with backoff.
//!
//! Owns the connection's lifetime, and a second connection where the secrets in a child's environment were rotated (TM-19). The calls over
//! it are tasks of the registry: this actor's death cancels none of them. Invariant: a working connection is closed only when another one
//! has replaced it, or a secret in its environment was withdrawn, and its last call has ended.

use std::{io, sync::Arc, time::Duration};

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::time::Instant;

use placet_adapter::{adapter::Adapter, outcome::AdapterError};
use placet_identity::SecretError;
use placet_types::{contract::Contract, digest::Digest};
use secrecy::ExposeSecret as _;

use crate::{
    actors::{
        supervisor::{ADAPTERS, RETIRED},
        tree::{ChildSpec, Tree, injected_fault},
    },
    adapters::{
        known_secrets::in_environment,
        ports::{AdapterMessage, Connection, Given, Looked, Port, backoff},
    },
    context::Context,
    credentials::Credentials,
};

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
    /// The secrets that the child was started with.
    given: Given,
    looking: bool,
    /// Whether a secret of the child's was gone at the last look.
    missed: bool,
}

/// How often the secrets in the environment are checked.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often a replaced connection is checked for calls that have not ended.
const DRAIN_EVERY: Duration = Duration::from_millis(50);
/// The most time that may take: longer than the longest call.
const DRAIN_MAX: Duration = Duration::from_mins(15);

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
        let first =
            if self.port.is_retired() { AdapterMessage::Retire } else { AdapterMessage::Connect };
        myself.cast(first)?;
        if !in_environment(&self.port.contract).is_empty() {
            drop(myself.send_interval(LOOK_EVERY, || AdapterMessage::Look));
        }
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
            AdapterMessage::Connected(outcome, given) => self.connected(outcome, given, state),
            AdapterMessage::Look => self.look(&myself, state),
            AdapterMessage::Looked(looked) => self.looked(&myself, looked, state),
            AdapterMessage::Retire => {
                let reason = AdapterError::Unavailable(RETIRED.to_owned());
                self.replace(Connection::Failed(reason));
                myself.stop(Some(RETIRED.to_owned()));
            }
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
            return self.port.tell();
        }
        if state.connecting || self.context.node.is_stopping() {
            return;
        }
        if state.not_before.is_some_and(|at| Instant::now() < at)
            && let Connection::Failed(error) = self.port.connection()
        {
            return self.port.set(Connection::Failed(error));
        }
        self.begin(myself, state);
    }

    /// Checks whether the secrets in the running child's environment were rotated.
    fn look(&self, myself: &ActorRef<AdapterMessage>, state: &mut AdapterState) {
        let is_up = matches!(self.port.connection(), Connection::Up(adapter) if adapter.is_alive());
        if state.looking || state.connecting || !is_up || self.context.node.is_stopping() {
            return;
        }
        state.looking = true;
        let (port, context) = (Arc::clone(&self.port), Arc::clone(&self.context));
        let actor = myself.clone();
        self.context.registry.spawn(async move {
            let looked = match given(&context.credentials, &port.contract).await {
                Ok(given) => Looked::Given(given),
                // Only a file that is gone withdraws a secret.
                Err(error @ SecretError::Unreadable { kind: io::ErrorKind::NotFound, .. }) => {
                    Looked::Gone(error.to_string())
                }
                Err(_unknown) => Looked::Unknown,
            };
            actor.cast(AdapterMessage::Looked(looked)).unwrap_or_default();
        });
    }

    /// Starts another child if the secrets have changed. The running one stays until the other is up.
    fn looked(&self, myself: &ActorRef<AdapterMessage>, looked: Looked, state: &mut AdapterState) {
        state.looking = false;
        let adapter = &self.port.contract.adapter;
        let given = match looked {
            Looked::Given(given) => given,
            Looked::Unknown => return,
            Looked::Gone(why) => {
                // A file that is written once more may be missing for a moment.
                if state.missed && !state.connecting && !self.context.node.is_stopping() {
                    tracing::error!(%adapter, why, "a secret in its environment was withdrawn: it is ended");
                    self.replace(Connection::Failed(AdapterError::Misconfigured(why)));
                }
                state.missed = !state.missed;
                return;
            }
        };
        let is_waiting = state.not_before.is_some_and(|at| Instant::now() < at);
        state.missed = false;
        if given == state.given || is_waiting || state.connecting || self.context.node.is_stopping()
        {
            return;
        }
        tracing::info!(%adapter, "a secret in its environment was rotated: another one is started");
        self.begin(myself, state);
    }

    fn begin(&self, myself: &ActorRef<AdapterMessage>, state: &mut AdapterState) {
        state.connecting = true;
        let (port, actor) = (Arc::clone(&self.port), myself.clone());
        let context = Arc::clone(&self.context);
        self.context.registry.spawn(async move {
            // Before: a secret rotated while the child starts is not missed, but makes it start once more.
            let given = given(&context.credentials, &port.contract).await.unwrap_or_default();
            let limit = Duration::from_millis(port.contract.limits.connect_ms_max);
            let (connector, contract) = (Arc::clone(&port.connector), Arc::clone(&port.contract));
            // In a task of its own, so that a connector's panic counts as a failed attempt.
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
            if let Err(ractor::MessagingErr::SendErr(AdapterMessage::Connected(Ok(unwanted), _))) =
                actor.cast(AdapterMessage::Connected(outcome, given))
            {
                unwanted.close().await;
            }
        });
    }

    fn connected(
        &self,
        outcome: Result<Box<dyn Adapter>, AdapterError>,
        given: Given,
        state: &mut AdapterState,
    ) {
        state.connecting = false;
        let adapter = &self.port.contract.adapter;
        match outcome {
            Ok(connection) => {
                state.failures = 0;
                state.not_before = None;
                state.given = given;
                state.missed = false;
                tracing::info!(%adapter, "connected");
                self.replace(Connection::Up(Arc::from(connection)));
            }
            Err(error) => {
                state.failures = state.failures.saturating_add(1);
                state.not_before = Some(Instant::now() + backoff(state.failures));
                tracing::warn!(%adapter, %error, failures = state.failures, "could not connect");
                let is_up = matches!(self.port.connection(), Connection::Up(old) if old.is_alive());
                if is_up {
                    tracing::warn!(%adapter, "the one with the secrets of before stays in use");
                } else {
                    self.replace(Connection::Failed(error));
                }
            }
        }
    }

    fn replace(&self, next: Connection) {
        let old = self.port.connection();
        self.port.set(next);
        let Connection::Up(old) = old else { return };
        self.context.registry.spawn(async move {
            // Calls in flight end on the connection on which they began.
            let began_at = Instant::now();
            while Arc::strong_count(&old) > 1 && old.is_alive() && began_at.elapsed() < DRAIN_MAX {
                tokio::time::sleep(DRAIN_EVERY).await;
            }
            old.close().await;
        });
    }
}

/// Digests of the secrets in the environment of a contract's child.
async fn given(credentials: &Credentials, contract: &Contract) -> Result<Given, SecretError> {
    let mut given = Given::new();
    for name in in_environment(contract) {
        let live = credentials.secrets.live_soon(name).await?;
        given.push(Digest::of(live.newest.value.expose_secret().as_bytes()));
    }
    Ok(given)
}

/// The supervisor of one adapter.
pub(crate) fn child(context: &Arc<Context>, tree: &Arc<Tree>, port: &Arc<Port>) -> ChildSpec {
    let path = format!("{ADAPTERS}/{}", port.contract.adapter);
    let (context, tree, port) = (Arc::clone(context), Arc::clone(tree), Arc::clone(port));
    ChildSpec::new(path.clone(), move || AdapterActor {
        context: Arc::clone(&context),
        tree: Arc::clone(&tree),
        path: path.clone(),
        port: Arc::clone(&port),
    })
}
