//! The shared store: the ledger's [`Store`] kept by a PostgreSQL server, for any number of nodes.
//!
//! Owns the schema `placet` of one database. Each start of a node is an *epoch* with a lease in the database's time and a log of its own;
//! records, approvals, runs, contents and the active policies are shared. One task writes: it gathers the commits of this node into
//! transactions that lock and read every row they touch, decides with the same rules as the embedded store, and appends the entries. Claims
//! live in memory until they are written with a commit; where two nodes claim one key, the first durable change wins and the other is a
//! [`StoreError::Conflict`].
//!
//! Invariants: what is acknowledged is committed as durably as the server is told to (and it is refused unless it is told to keep it);
//! a commit is refused only when it is certain that it was not kept; a fenced node writes nothing and [`PostgresStore::died`] says
//! so; the server's locks are rows, never advisory ones, and its time is the only one that nodes compare.
//!
//! What it cannot see: if an operator cancels (`pg_cancel_backend`) a commit that waits for a synchronous standby, the server answers that
//! it was kept, with a warning that the protocol's client does not show; such a commit may be lost by a failover.

mod aside;
mod batch;
mod config;
mod connect;
mod directives;
mod error;
mod import;
mod inspect;
mod lease;
mod limits;
mod load;
mod log;
mod node;
mod outbox;
mod policies;
mod pool;
mod read;
mod rows;
mod schema;
mod sessions;
mod snapshot;
mod state;
mod stats;
#[cfg(test)]
#[expect(
    clippy::arithmetic_side_effects,
    clippy::disallowed_methods,
    clippy::wildcard_enum_match_arm,
    reason = "small numbers, servers that are started for the test, and matches that name only what the test is about"
)]
mod tests;
mod transfer;
mod verify;
mod witness;
mod write;
mod writer;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{Row as _, query};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout_at};

use placet_ledger::approval::ApprovalRecord;
use placet_ledger::directive::Directive;
use placet_ledger::outbox::Outbox;
use placet_ledger::policies::PolicyState;
use placet_ledger::record::{EffectRecord, EffectState};
use placet_ledger::run::{RunKey, RunRecord};
use placet_ledger::store::{
    ApprovalMark, ApprovalQuery, Changes, ClaimAnswer, Committed, DirectiveQuery, EffectQuery,
    Store, StoreError,
};
use placet_types::clock::Timestamp;
use placet_types::digest::Digest;
use placet_types::ids::{ApprovalId, DirectiveId, RecordId, TenantId, ToolCallId};

pub use config::{DatabaseUrl, PostgresConfig};
pub use error::OpenError;
pub use inspect::{Inspection, inspect};
pub use node::StartReport;
pub use stats::stats;
pub use transfer::{export, import};
pub use verify::{LogVerdict, LogVisitor, LogsError, log_names, verify_logs};

use crate::claims::Take;
use crate::embedded::encode_entry;
use crate::journal::PAYLOAD_BYTES_MAX;
use batch::Piece;
use connect::{Connector, Purpose};
use lease::Keeper;
use node::{EARLIER, FENCE, Started};
use pool::Pool;
use state::State;
use writer::{Order, QUEUE_MAX, Submission, Terms, Ticket, Writer};

/// The maximum size of a content.
const CONTENT_BYTES_MAX: usize = 16 << 20;

/// The store of one node among several.
pub struct PostgresStore {
    state: Arc<State>,
    connector: Arc<Connector>,
    pool: Pool,
    orders: mpsc::Sender<Order>,
    closing: watch::Sender<bool>,
    wait: Duration,
    lease: Duration,
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore")
            .field("epoch", &self.state.epoch)
            .field("at", self.connector.url())
            .finish_non_exhaustive()
    }
}

impl PostgresStore {
    /// Connects, checks the server, makes the tables where they are missing, takes an epoch and starts the tasks. Needs a runtime.
    ///
    /// # Errors
    /// [`OpenError`]: nothing answers, the server's settings would lose what it acknowledges, the tables are of another build, or the
    /// database has forgotten what this node knows, or says nothing more half-way. Nothing is served then.
    pub async fn open(config: PostgresConfig) -> Result<(Arc<Self>, StartReport), OpenError> {
        config.check()?;
        let connector = Arc::new(Connector::new(config.url.clone(), config.wait));
        let connected = connector.connect(Purpose::Writing).await;
        let mut connection = connected.map_err(|error| error.into_open(&config.url))?;
        let starting = async {
            schema::make(&mut connection, &config).await?;
            check_fit(&mut connection, config.witness.as_deref()).await?;
            node::start(&mut connection, &config).await
        };
        let started = limits::within(&config, "start this node", starting).await?;
        let Started { report, sent, now_ms, floor_ms } = started;
        config.witness.as_deref().map_or(Ok(()), |folder| witness::begin(folder, report.epoch))?;
        let state = Arc::new(State::new(report.epoch, now_ms, floor_ms));
        state.renewed(sent, config.lease);
        let store = Self::start(&config, connector, state, connection);
        Ok((Arc::new(store), report))
    }

    fn start(
        config: &PostgresConfig,
        connector: Arc<Connector>,
        state: Arc<State>,
        connection: PgConnection,
    ) -> Self {
        let (orders, inbox) = mpsc::channel(QUEUE_MAX);
        let (closing, closed) = watch::channel(false);
        let (wait, lease) = (config.wait, config.lease);
        let terms = Terms { wait, lease, on_sync: config.on_sync.clone() };
        let writer =
            Writer::new(Arc::clone(&state), Arc::clone(&connector), terms, connection, inbox);
        let writing = tokio::spawn(writer.run());
        let watched = Arc::clone(&state);
        // A task that panics would otherwise leave its callers without an answer.
        drop(tokio::spawn(async move {
            if let Err(error) = writing.await
                && error.is_panic()
            {
                watched.fail(StoreError::Stopped("the writing task panicked".to_owned()));
            }
        }));
        let keeper = Keeper {
            state: Arc::clone(&state),
            connector: Arc::clone(&connector),
            lease,
            witness: config.witness.clone(),
            closing: closed,
        };
        drop(tokio::spawn(keeper.run()));
        let pool = Pool::new(Arc::clone(&connector), config.connections_max, wait);
        Self { state, connector, pool, orders, closing, wait, lease }
    }

    /// Waits until the store has failed, and answers why: the process must end and recover then. Pending forever after an orderly close.
    pub fn died(&self) -> impl Future<Output = String> + Send + 'static + use<> {
        let mut health = self.state.health();
        async move {
            let reason = match health.wait_for(Option::is_some).await {
                Ok(fault) => fault.as_ref().map(ToString::to_string),
                Err(_dropped) => None,
            };
            match reason {
                Some(reason) => reason,
                None => std::future::pending().await,
            }
        }
    }

    /// The connections for look-ups; an error after a fault and after the close.
    fn reading(&self) -> Result<&Pool, StoreError> {
        self.state.check()?;
        Ok(&self.pool)
    }

    /// The row of what the nodes count together.
    async fn counts(&self) -> Result<PgRow, StoreError> {
        let find = || {
            query(
                "SELECT policy_epoch, policy_digests, directives_rev FROM placet.ledger WHERE id = 1",
            )
        };
        let rows = self.reading()?.rows(find).await?;
        rows.into_iter().next().ok_or_else(|| batch::forgotten("its own first row"))
    }

    fn submission(&self, mut changes: Changes) -> Result<Piece, StoreError> {
        let (kind, payload) = encode_entry(&mut changes)
            .map_err(|error| StoreError::Damaged(format!("an entry has no JSON form: {error}")))?;
        if payload.len() > PAYLOAD_BYTES_MAX {
            let bytes = payload.len();
            let why = format!("{bytes} bytes are over the limit of {PAYLOAD_BYTES_MAX}");
            return Err(StoreError::TooLarge(why));
        }
        let content = std::mem::take(&mut changes.content);
        if let Some((_, bytes)) = content.iter().find(|(_, bytes)| bytes.len() > CONTENT_BYTES_MAX)
        {
            let bytes = bytes.len();
            let why = format!("content of {bytes} bytes is over the limit of {CONTENT_BYTES_MAX}");
            return Err(StoreError::TooLarge(why));
        }
        let content = content
            .into_iter()
            .map(|(tenant, bytes)| (tenant, Digest::of(&bytes), bytes))
            .collect();
        Ok(Piece { changes, content, kind, payload })
    }

    /// The writing task ended without an answer.
    fn lost(&self) -> StoreError {
        match self.state.check() {
            Err(fault) => fault,
            Ok(()) => self.state.fail(StoreError::Stopped("the writing task has ended".to_owned())),
        }
    }

    async fn fence(&self, steady: Duration) -> Result<Vec<u64>, StoreError> {
        let own = rows::column(self.state.epoch);
        let steady_ms = i64::try_from(steady.as_millis()).unwrap_or(i64::MAX);
        let sent_ms = self.state.database_now().as_ms();
        let fence = || query(FENCE).bind(own).bind(steady_ms).bind(sent_ms);
        let fenced = self.pool.rows(fence).await?;
        fenced.iter().map(|row| log::integer(row, "epoch")).collect()
    }
}

/// The checks before an epoch is taken.
async fn check_fit(connection: &mut PgConnection, witness: Option<&Path>) -> Result<(), OpenError> {
    inspect::may_use_tables(connection).await?;
    match witness {
        Some(folder) => witness::check(connection, folder).await,
        None => Ok(()),
    }
}

#[async_trait]
impl Store for PostgresStore {
    fn now(&self) -> Timestamp {
        self.state.now()
    }

    fn age_ms(&self, at: Timestamp) -> Option<i64> {
        self.state.age_ms(at)
    }

    fn epoch(&self) -> u64 {
        self.state.epoch
    }

    fn lease_has_expired(&self) -> bool {
        self.state.lease_left().is_zero()
    }

    async fn claim(&self, record: EffectRecord) -> Result<ClaimAnswer, StoreError> {
        self.state.check()?;
        let own =
            matches!(record.state, EffectState::Claimed { epoch } if epoch == self.state.epoch);
        if !own {
            return Err(StoreError::Conflict);
        }
        let taken = |record: EffectRecord| Ok(ClaimAnswer::Taken(Box::new(record)));
        loop {
            if let Some(claimed) = self.state.claims.get(&record.record_id) {
                return taken(claimed);
            }
            let since = self.state.claims.count();
            if let Some(stored) = read::effect(&self.pool, &record.record_id).await? {
                return taken(stored);
            }
            match self.state.claims.take(&record, since) {
                Take::Taken => return Ok(ClaimAnswer::Claimed),
                Take::Claimed(claimed) => return taken(EffectRecord::clone(&claimed)),
                Take::AskAgain => {}
            }
        }
    }

    async fn release(&self, record_id: RecordId) {
        self.state.claims.release(&record_id);
    }

    async fn commit(&self, changes: Changes) -> Result<Committed, StoreError> {
        self.state.check()?;
        let piece = self.submission(changes)?;
        let (reply, mut answer) = oneshot::channel();
        let ticket = Arc::new(Ticket::default());
        // The server ends the transaction of a hung node after a lease: a commit that waits for all nodes waits for that.
        let patience = if piece.binds_all() { self.wait + self.lease } else { self.wait };
        let deadline = Instant::now() + patience;
        let submission = Submission { piece, ticket: Arc::clone(&ticket), reply, deadline };
        match timeout_at(deadline, self.orders.send(Order::Commit(Box::new(submission)))).await {
            Ok(Ok(())) => {}
            Ok(Err(_gone)) => return Err(self.lost()),
            Err(_elapsed) => {
                return Err(StoreError::Unreachable("too many changes wait for it".to_owned()));
            }
        }
        let answered = match timeout_at(deadline, &mut answer).await {
            Ok(answered) => answered,
            Err(_elapsed) if ticket.take() => {
                let wait = patience.as_millis();
                return Err(StoreError::Unreachable(format!("earlier changes took {wait} ms")));
            }
            // The writer has taken it up and decides its fate.
            Err(_elapsed) => answer.await,
        };
        answered.unwrap_or_else(|_gone| Err(StoreError::Uncertain(self.lost().to_string())))
    }

    async fn effect(&self, record_id: RecordId) -> Result<Option<EffectRecord>, StoreError> {
        self.state.check()?;
        // Claims first: a record leaves them only once the database has it.
        match self.state.claims.get(&record_id) {
            Some(claimed) => Ok(Some(claimed)),
            None => read::effect(&self.pool, &record_id).await,
        }
    }

    async fn effect_of_call(
        &self,
        call_id: &ToolCallId,
    ) -> Result<Option<EffectRecord>, StoreError> {
        self.state.check()?;
        if let Some(claimed) = self.state.claims.of_call(call_id) {
            return Ok(Some(claimed));
        }
        let sql = "SELECT record FROM placet.effects WHERE call_id = $1 LIMIT 1";
        read::find(&self.pool, sql, call_id.as_str().to_owned(), rows::effect).await
    }

    async fn approval(
        &self,
        approval_id: &ApprovalId,
    ) -> Result<Option<ApprovalRecord>, StoreError> {
        let sql = "SELECT record FROM placet.approvals WHERE approval_id = $1";
        read::find(self.reading()?, sql, approval_id.as_str().to_owned(), rows::approval).await
    }

    async fn approval_of_call(
        &self,
        call_id: &ToolCallId,
    ) -> Result<Option<ApprovalRecord>, StoreError> {
        let sql =
            "SELECT record FROM placet.approvals WHERE call_id = $1 ORDER BY place DESC LIMIT 1";
        read::find(self.reading()?, sql, call_id.as_str().to_owned(), rows::approval).await
    }

    async fn policy(&self) -> Result<Option<PolicyState>, StoreError> {
        batch::policy(&self.counts().await?).map_err(|error| read::unreadable(&error))
    }

    async fn restriction_version(&self) -> Result<u64, StoreError> {
        log::integer(&self.counts().await?, "directives_rev")
    }

    async fn outbox(&self) -> Result<Outbox, StoreError> {
        outbox::read(self.reading()?).await
    }

    fn is_shared(&self) -> bool {
        true
    }

    async fn fence_dead(&self) -> Result<Vec<u64>, StoreError> {
        self.state.check()?;
        let fenced = self.fence(self.state.steady_for(self.lease)).await?;
        if !fenced.is_empty() {
            tracing::warn!(
                ?fenced,
                by = self.state.epoch,
                "nodes fell silent for longer than their lease and are fenced"
            );
        }
        Ok(fenced)
    }

    async fn leads(&self) -> Result<bool, StoreError> {
        self.state.check()?;
        let own = rows::column(self.state.epoch);
        let earlier = self.pool.rows(|| query(EARLIER).bind(own)).await?;
        Ok(earlier.is_empty())
    }

    async fn run(&self, key: &RunKey) -> Result<Option<RunRecord>, StoreError> {
        let key = rows::run_key(key).map_err(StoreError::Damaged)?;
        let sql = "SELECT record FROM placet.runs WHERE run_key = $1";
        read::find(self.reading()?, sql, key, rows::run).await
    }

    async fn content(&self, tenant: &TenantId, digest: Digest) -> Result<Vec<u8>, StoreError> {
        let (tenant, key) = (tenant.as_str().to_owned(), digest.as_bytes().to_vec());
        let find = || {
            query("SELECT bytes FROM placet.content WHERE tenant = $1 AND digest = $2")
                .bind(tenant.clone())
                .bind(key.clone())
        };
        let rows = self.reading()?.rows(find).await?;
        let row = rows.first().ok_or(StoreError::ContentMissing(digest))?;
        let bytes: Vec<u8> = row.try_get("bytes").map_err(|error| read::unreadable(&error))?;
        if Digest::of(&bytes) == digest {
            Ok(bytes)
        } else {
            Err(StoreError::ContentAltered(digest))
        }
    }

    async fn effects(&self, query: &EffectQuery) -> Result<Vec<EffectRecord>, StoreError> {
        read::effects(self.reading()?, query, self.state.epoch).await
    }

    async fn approvals(&self, query: &ApprovalQuery) -> Result<Vec<ApprovalRecord>, StoreError> {
        read::approvals(self.reading()?, query).await
    }

    async fn approval_marks(&self, query: &ApprovalQuery) -> Result<Vec<ApprovalMark>, StoreError> {
        read::approval_marks(self.reading()?, query).await
    }

    async fn directive(&self, directive_id: &DirectiveId) -> Result<Option<Directive>, StoreError> {
        directives::entry(self.reading()?, directive_id).await
    }

    async fn directives(&self, query: &DirectiveQuery) -> Result<Vec<Directive>, StoreError> {
        directives::entries(self.reading()?, query).await
    }

    async fn close(&self) -> Result<(), StoreError> {
        if !self.state.close() {
            return Ok(());
        }
        self.closing.send_replace(true);
        let (reply, ended) = oneshot::channel();
        let asked = self.orders.send(Order::Close(reply)).await;
        let ended = match asked {
            Ok(()) => ended.await.unwrap_or(Ok(())),
            // The writing task has ended at a fault, which was reported to everybody.
            Err(_gone) => self.state.fault().map_or(Ok(()), Err),
        };
        self.pool.close();
        ended
    }
}
