//! The connections for look-ups, and for the sessions of the console, which are no part of the ledger.
//!
//! Owns how many there are and how long a caller waits for one. Not here: making them (`connect`). Invariants: a waiting caller is answered
//! within the longest wait; a connection that had an error, or whose user gave up half-way, is never used again.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sqlx::Postgres;
use sqlx::postgres::{PgArguments, PgConnection, PgRow};
use sqlx::query::Query;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use placet_ledger::store::StoreError;

use super::connect::{Connector, Purpose};
use super::error::Trouble;

/// How many callers may wait for a connection at once; later ones are refused at once.
const WAITING_MAX: usize = 4096;

/// A statement with its arguments.
pub(super) type Statement = Query<'static, Postgres, PgArguments>;

/// Connections for look-ups.
#[derive(Debug)]
pub(super) struct Pool {
    connector: Arc<Connector>,
    idle: Mutex<Vec<(u64, PgConnection)>>,
    slots: Arc<Semaphore>,
    waiting: Semaphore,
    wait: Duration,
}

/// A connection in use; dropping it closes it.
struct Taken {
    connection: PgConnection,
    generation: u64,
    /// Whether it was idle, so that its server may be gone.
    rested: bool,
    _slot: OwnedSemaphorePermit,
}

impl Pool {
    pub(super) fn new(connector: Arc<Connector>, connections_max: u32, wait: Duration) -> Self {
        let slots = usize::try_from(connections_max).unwrap_or(1).min(Semaphore::MAX_PERMITS);
        Self {
            connector,
            idle: Mutex::default(),
            slots: Arc::new(Semaphore::new(slots)),
            waiting: Semaphore::new(WAITING_MAX),
            wait,
        }
    }

    /// The rows of a statement that may be run twice: it is run again on a new connection if the old one turns out to be gone.
    pub(super) async fn rows(
        &self,
        statement: impl Fn() -> Statement + Send + Sync,
    ) -> Result<Vec<PgRow>, StoreError> {
        let Ok(_place) = self.waiting.try_acquire() else {
            return Err(StoreError::Unreachable("too many wait for it".to_owned()));
        };
        match timeout(self.wait, self.ask(&statement)).await {
            Ok(answer) => answer,
            Err(_elapsed) => {
                let wait = self.wait.as_millis();
                Err(StoreError::Unreachable(format!("no answer within {wait} ms")))
            }
        }
    }

    async fn ask(
        &self,
        statement: &(impl Fn() -> Statement + Send + Sync),
    ) -> Result<Vec<PgRow>, StoreError> {
        loop {
            let mut taken = self.take().await?;
            let error = match statement().fetch_all(&mut taken.connection).await {
                Ok(rows) => {
                    self.put_back(taken);
                    return Ok(rows);
                }
                Err(error) => Trouble::of(&error),
            };
            let rested = taken.rested;
            drop(taken);
            if !(rested && matches!(error, Trouble::Away(_))) {
                return Err(error.for_reader());
            }
        }
    }

    async fn take(&self) -> Result<Taken, StoreError> {
        let slot = Arc::clone(&self.slots).acquire_owned().await;
        let slot = slot.map_err(|_closed| StoreError::Stopped("it was closed".to_owned()))?;
        let generation = self.connector.generation();
        while let Some((made_in, connection)) = self.pop() {
            if made_in == generation {
                return Ok(Taken { connection, generation, rested: true, _slot: slot });
            }
        }
        let connection = self.connector.connect(Purpose::Reading).await?;
        let generation = self.connector.generation();
        Ok(Taken { connection, generation, rested: false, _slot: slot })
    }

    fn pop(&self) -> Option<(u64, PgConnection)> {
        self.idle.lock().pop()
    }

    fn put_back(&self, taken: Taken) {
        let mut idle = self.idle.lock();
        idle.push((taken.generation, taken.connection));
    }

    /// Closes idle connections; no more are given out.
    pub(super) fn close(&self) {
        self.slots.close();
        self.idle.lock().clear();
    }
}
