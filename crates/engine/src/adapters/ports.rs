//! Ports: how a call reaches its adapter, and what isolates adapters from each other's failures.
//!
//! Owns the bulkhead (a bounded number of calls, a bounded queue), the breaker and the connection that the adapter's supervisor
//! puts in place. Survives its supervisor.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;

use arc_swap::ArcSwapOption;
use ractor::ActorRef;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::Instant,
};

use placet_adapter::{
    adapter::{Adapter, Connector, Credential, PrepareRequest, SessionLease, SessionOwner},
    outcome::{AdapterError, Outcome},
};
use placet_ledger::approval::{ApprovalRecord, ApprovalState};
use placet_telemetry::metrics::Metrics;
use placet_types::{
    contract::{Capability, Contract, feature::Listing},
    digest::Digest,
    error::{ErrorCode, Refusal},
    ids::AdapterName,
};

use crate::adapters::{
    breaker::Breaker,
    errors::unreached,
    lists::{LISTED_WITHIN, Listed, Lists},
    overlap::Overlap,
    pins::LivePins,
};

/// How much time a tool must have been given for a timeout to count as its failure.
const FAIR: Duration = Duration::from_secs(1);

/// How long an adapter may take to list its tools when no call waits for the list.
const COMPARED_IN: Duration = Duration::from_secs(10);

/// What became of the secrets in the environment of a child.
#[derive(Debug)]
pub(crate) enum Looked {
    /// Their digests.
    Given(Given),
    /// One of them was withdrawn: why it cannot be read.
    Gone(String),
    /// One of them cannot be read at present.
    Unknown,
}

/// What an adapter's supervisor is told.
#[derive(Debug)]
pub(crate) enum AdapterMessage {
    /// A call needs the connection.
    Connect,
    /// An attempt has ended, with the digests of the environment's secrets when it began.
    Connected(Result<Box<dyn Adapter>, AdapterError>, Given),
    /// Time to check whether the secrets in the environment have changed.
    Look,
    /// What was found.
    Looked(Looked),
    /// Its contract is not active any more.
    Retire,
    /// Panic.
    Fault,
}

/// Digests of the secrets in the environment of a child process.
pub(crate) type Given = Vec<Digest>;

/// A port for each adapter.
#[derive(Debug, Default)]
pub(crate) struct Ports {
    by_adapter: BTreeMap<AdapterName, Arc<Port>>,
}

impl Ports {
    pub(crate) fn new(ports: impl IntoIterator<Item = Arc<Port>>) -> Self {
        let by_adapter =
            ports.into_iter().map(|port| (port.contract.adapter.clone(), port)).collect();
        Self { by_adapter }
    }

    pub(crate) fn of(&self, adapter: &AdapterName) -> Option<&Arc<Port>> {
        self.by_adapter.get(adapter)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Port>> {
        self.by_adapter.values()
    }

    /// Whether an approved call waits for a tool that could not be reached at the last attempt.
    pub(crate) fn is_unreachable(&self, approval: &ApprovalRecord) -> bool {
        let port = self.of(approval.capability.adapter());
        approval.state == ApprovalState::Approved && port.is_some_and(|port| port.is_unreachable())
    }
}

/// The port to one adapter.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) contract: Arc<Contract>,
    pub(crate) connector: Arc<dyn Connector>,
    places: Arc<Semaphore>,
    queue: Semaphore,
    breaker: Mutex<Breaker>,
    metrics: Metrics,
    connection: watch::Sender<Connection>,
    pub(crate) supervisor: ArcSwapOption<ActorRef<AdapterMessage>>,
    pins: LivePins,
    lists: Lists,
    /// Whether its contract is not active any more.
    retired: AtomicBool,
    /// Which version of its secret the target accepts.
    pub(crate) overlap: Overlap,
}

/// The connection of an adapter as its supervisor left it.
#[derive(Debug, Clone)]
pub(crate) enum Connection {
    /// None, and no recent attempt.
    Down,
    /// None: the last attempt failed.
    Failed(AdapterError),
    /// There is one.
    Up(Arc<dyn Adapter>),
}

impl Port {
    pub(crate) fn new(
        contract: Arc<Contract>,
        connector: Arc<dyn Connector>,
        metrics: Metrics,
    ) -> Self {
        let limits = &contract.limits;
        metrics.set_breaker(contract.adapter.as_str(), false);
        let places = usize::try_from(limits.concurrency_max).unwrap_or(1).max(1);
        let queue_max = usize::try_from(limits.queue_max).unwrap_or(0);
        Self {
            places: Arc::new(Semaphore::new(places)),
            queue: Semaphore::new(queue_max),
            breaker: Mutex::new(Breaker::new(limits.breaker_failures, limits.breaker_open_ms)),
            metrics,
            connection: watch::Sender::new(Connection::Down),
            supervisor: ArcSwapOption::empty(),
            pins: LivePins::default(),
            lists: Lists::default(),
            retired: AtomicBool::new(false),
            overlap: Overlap::default(),
            contract,
            connector,
        }
    }

    /// Takes a place and a live connection, waiting until `deadline` at most.
    pub(crate) async fn enter(self: &Arc<Self>, deadline: Instant) -> Result<Lease, Refusal> {
        self.move_breaker(Breaker::admit).map_err(|wait| {
            Refusal::new(ErrorCode::AdapterUnavailable, "the tool has failed several times in a row, so its circuit breaker is open; nothing was executed")
                .with_retry_after_ms(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1))
        })?;
        if self.is_retired() {
            return Err(unreached(AdapterError::Unavailable(
                "its contract is not active any more".to_owned(),
            )));
        }
        let trial = Trial { port: Arc::clone(self), used: false };
        let place = self.place(deadline).await?;
        let connection = self.connected(deadline, &trial).await?;
        Ok(Lease { trial, connection, _place: place })
    }

    /// What its endpoint lists besides tools, a few seconds old at most; takes a place like a call.
    pub(crate) async fn list(self: &Arc<Self>, what: Listing) -> Listed {
        self.lists.get(what, self.listed(what)).await
    }

    async fn listed(self: &Arc<Self>, what: Listing) -> Listed {
        let deadline = Instant::now() + LISTED_WITHIN;
        let lease = self.enter(deadline).await?;
        let listing = tokio::time::timeout_at(deadline, lease.connection.list(what)).await;
        let listed = listing.unwrap_or_else(|_elapsed| {
            Err(AdapterError::Unavailable("it did not list in time".to_owned()))
        });
        lease.lost();
        listed.map(Arc::new).map_err(unreached)
    }

    async fn place(&self, deadline: Instant) -> Result<OwnedSemaphorePermit, Refusal> {
        let overloaded = || {
            Refusal::new(
                ErrorCode::Overloaded,
                "too many calls wait for this tool; nothing was executed",
            )
            .with_retry_after_ms(500)
        };
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return Ok(place);
        }
        let Ok(_queued) = self.queue.try_acquire() else { return Err(overloaded()) };
        match tokio::time::timeout_at(deadline, Arc::clone(&self.places).acquire_owned()).await {
            Ok(Ok(place)) => Ok(place),
            Ok(Err(_closed)) => Err(overloaded()),
            Err(_elapsed) => Err(Refusal::new(
                ErrorCode::DeadlineExceeded,
                "the call's latency budget ran out while it waited for its turn; nothing was executed",
            )),
        }
    }

    async fn connected(
        &self,
        deadline: Instant,
        trial: &Trial,
    ) -> Result<Arc<dyn Adapter>, Refusal> {
        if let Connection::Up(adapter) = &*self.connection.borrow()
            && adapter.is_alive()
        {
            return Ok(Arc::clone(adapter));
        }
        let mut changes = self.connection.subscribe();
        changes.mark_unchanged();
        self.wake();
        let given = until(deadline);
        loop {
            match tokio::time::timeout_at(deadline, changes.changed()).await {
                Ok(Ok(())) => match changes.borrow_and_update().clone() {
                    Connection::Up(adapter) if adapter.is_alive() => return Ok(adapter),
                    Connection::Failed(error) => {
                        self.failed();
                        return Err(unreached(error));
                    }
                    Connection::Up(_) | Connection::Down => self.wake(),
                },
                Ok(Err(_closed)) => {
                    return Err(unreached(AdapterError::Unavailable(
                        "the engine stops".to_owned(),
                    )));
                }
                Err(_elapsed) => {
                    trial.ran_out(given);
                    return Err(unreached(AdapterError::Unavailable(
                        "no connection in time".to_owned(),
                    )));
                }
            }
        }
    }

    /// Asks the supervisor for a connection; a supervisor that is being restarted connects when it comes up.
    pub(crate) fn wake(&self) {
        if let Some(supervisor) = &*self.supervisor.load() {
            supervisor.cast(AdapterMessage::Connect).unwrap_or_default();
        }
    }

    /// Its contract is no longer active: no call enters, and the connection closes when its last call has ended.
    pub(crate) fn retire(&self) {
        self.retired.store(true, Ordering::Release);
        if let Some(supervisor) = &*self.supervisor.load() {
            supervisor.cast(AdapterMessage::Retire).unwrap_or_default();
        }
    }

    /// Whether its contract is not active any more.
    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    /// Sets the connection, as the supervisor left it.
    pub(crate) fn set(&self, connection: Connection) {
        self.pins.forget();
        self.connection.send_replace(connection);
    }

    /// Announces the state of the connection again: a call that asked may have missed it.
    pub(crate) fn tell(&self) {
        self.connection.send_modify(|_| {});
    }

    /// How the connection stands.
    pub(crate) fn connection(&self) -> Connection {
        self.connection.borrow().clone()
    }

    /// Whether the live definition of a capability differs from its pin; `false` when it cannot be compared now.
    pub(crate) async fn is_drifted(
        &self,
        connection: &dyn Adapter,
        capability: &Capability,
        fresh_ms: u64,
    ) -> bool {
        let check = self.pins.check(connection, capability, fresh_ms);
        let checked = tokio::time::timeout(COMPARED_IN, check).await;
        matches!(checked, Ok(Err(AdapterError::SchemaMismatch(_))))
    }

    /// Whether the breaker is open or half open.
    pub(crate) fn is_open(&self) -> bool {
        self.breaker().is_open()
    }

    /// Whether the last attempt could not reach its endpoint.
    fn is_unreachable(&self) -> bool {
        self.is_open() || matches!(&*self.connection.borrow(), Connection::Failed(_))
    }

    /// Whether the breaker refuses a call now: it is not closed, and the time for a trial has not come.
    pub(crate) fn is_shut(&self) -> bool {
        self.breaker().is_shut()
    }

    fn failed(&self) {
        if self.move_breaker(Breaker::failed) {
            tracing::warn!(adapter = %self.contract.adapter, "the breaker opened");
        }
    }

    /// Changes the breaker and updates its metric.
    fn move_breaker<T>(&self, change: impl FnOnce(&mut Breaker) -> T) -> T {
        let mut breaker = self.breaker();
        let said = change(&mut breaker);
        self.metrics.set_breaker(self.contract.adapter.as_str(), breaker.is_open());
        said
    }

    fn breaker(&self) -> parking_lot::MutexGuard<'_, Breaker> {
        self.breaker.lock()
    }
}

/// A place at an adapter with a live connection.
#[derive(Debug)]
pub(crate) struct Lease {
    trial: Trial,
    connection: Arc<dyn Adapter>,
    _place: OwnedSemaphorePermit,
}

impl Lease {
    /// Compares the live definition with the pin (TM-14).
    pub(crate) async fn check_pin(
        &self,
        capability: &Capability,
        fresh_ms: u64,
        deadline: Instant,
    ) -> Result<(), Refusal> {
        let port = &self.trial.port;
        let check = port.pins.check(self.connection.as_ref(), capability, fresh_ms);
        let given = until(deadline);
        let checked = match tokio::time::timeout_at(deadline, check).await {
            Ok(checked) => checked.inspect_err(|error| {
                // A server that ends a session is reachable.
                if !matches!(error, AdapterError::SchemaMismatch(_) | AdapterError::NoSession(_)) {
                    port.failed();
                }
            }),
            Err(_elapsed) => {
                self.trial.ran_out(given);
                Err(AdapterError::Unavailable("its tool list did not come in time".to_owned()))
            }
        };
        checked.map_err(|error| {
            self.lost();
            unreached(error)
        })
    }

    /// Prepares what a call with this credential needs: a session for its owner, where the server keeps sessions.
    pub(crate) async fn prepare(
        &self,
        credential: Option<&Credential>,
        owner: SessionOwner,
        deadline: Instant,
    ) -> Result<SessionLease, AdapterError> {
        let approach = PrepareRequest {
            timeout_ms: u64::try_from(until(deadline).as_millis()).unwrap_or(u64::MAX),
            credential,
            owner,
        };
        let making = tokio::time::timeout_at(deadline, self.connection.prepare(approach));
        let ready = making.await.unwrap_or_else(|_elapsed| {
            let why = "nothing was ready for it in the time of the call".to_owned();
            Err(AdapterError::NoSession(why))
        });
        ready.inspect_err(|error| {
            // What is refused to one caller, or in one session, is no outage for others.
            if matches!(error, AdapterError::Unavailable(_) | AdapterError::InvalidResponse(_)) {
                self.trial.port.failed();
            }
            self.lost();
        })
    }

    /// The connection, to call through.
    pub(crate) fn connection(&self) -> Arc<dyn Adapter> {
        Arc::clone(&self.connection)
    }

    /// Reports the outcome of a call, and the time it was given, to the breaker.
    pub(crate) fn report(mut self, outcome: &Outcome, given: Duration) {
        self.trial.used = given >= FAIR || !matches!(outcome, Outcome::Unknown(_));
        let port = &self.trial.port;
        match (outcome, outcome.not_executed()) {
            (Outcome::Unknown(_), _) => self.trial.ran_out(given),
            (_, Some(AdapterError::Unavailable(_) | AdapterError::InvalidResponse(_))) => {
                port.failed()
            }
            // What is refused to one caller, or in one session, is no outage for others.
            _ => port.move_breaker(Breaker::succeeded),
        }
        self.lost();
    }

    /// Has a dead connection replaced.
    fn lost(&self) {
        if !self.connection.is_alive() {
            self.trial.port.wake();
        }
    }
}

/// Permission of the breaker to try; returned on drop, however the attempt ends.
#[derive(Debug)]
struct Trial {
    port: Arc<Port>,
    used: bool,
}

impl Trial {
    /// The time ran out. One caller's short budget, or what was left of it, must not open the breaker for everybody.
    fn ran_out(&self, given: Duration) {
        if given >= FAIR {
            self.port.failed();
        }
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        if !self.used {
            self.port.move_breaker(Breaker::unused);
        }
    }
}

/// The time left until `deadline`.
fn until(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

/// How long to wait before the next attempt: doubling from 100 ms to 30 s.
pub(crate) fn backoff(tries: u32) -> Duration {
    let ms = 100_u64.saturating_mul(1_u64.checked_shl(tries.min(16)).unwrap_or(u64::MAX));
    Duration::from_millis(ms.min(30_000))
}
