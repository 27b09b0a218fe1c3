//! Limits that the server puts on a session and a transaction, how a transaction begins, and how long a start waits.
//!
//! Owns every `BEGIN` of the store. Not here: the work of a transaction, and what follows if it is ended. Invariants: a session has limits
//! before it touches a table; a session that falls silent in a transaction, paused or lost, is ended by the server, with all its locks. A
//! start to which the database does not answer ends.

use std::time::Duration;

use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, raw_sql};
use tokio::time::{Instant, timeout};

use super::config::PostgresConfig;
use super::error::{OpenError, Trouble};

/// How long a session may be silent in a transaction that was not begun by [`begin`].
const SILENCE: Duration = Duration::from_secs(60);

/// How long one try of a start waits for a lock.
pub(super) const LOCK: Duration = Duration::from_secs(1);

/// The pause before its next try.
const PAUSE: Duration = Duration::from_millis(50);

/// Within a transaction: its commit is acknowledged only when it is kept, even if the server's setting has changed since it was checked.
const KEPT: &str = "SELECT set_config('synchronous_commit', \
     CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true)";

/// What a transaction is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// To change something.
    Writing,
    /// To read the current data.
    Looking,
    /// To read the data as of one moment: that of its first statement.
    Snapshot,
}

/// The limits after which the server ends a transaction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// For how long each statement waits for a lock.
    pub(super) lock: Duration,
    /// For how long the session that began it may be silent.
    pub(super) silence: Duration,
    /// For how long each statement may run; `None`: without a limit.
    pub(super) statement: Option<Duration>,
}

/// Begins a transaction.
pub(super) async fn begin(
    connection: &mut PgConnection,
    kind: Kind,
    limits: Limits,
) -> Result<(), sqlx::Error> {
    let begin = match kind {
        Kind::Writing => "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE",
        Kind::Looking => "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY",
        Kind::Snapshot => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
    };
    let kept = match kind {
        Kind::Writing => KEPT,
        Kind::Looking | Kind::Snapshot => "",
    };
    let (lock, silence) = (setting(limits.lock), setting(limits.silence));
    let statement = limits.statement.map_or(0, setting);
    let begin = format!(
        "{begin}; SET LOCAL idle_in_transaction_session_timeout = {silence}; SET LOCAL lock_timeout = {lock}; \
         SET LOCAL statement_timeout = {statement}; {kept}"
    );
    raw_sql(AssertSqlSafe(begin)).execute(connection).await.map(drop)
}

/// Sets the limits for everything a session does outside of [`begin`]: no statement runs, or waits for a lock, for longer than this. To the
/// server, a commit that waits for a standby is no statement, and is not cut short.
pub(super) async fn settle(
    connection: &mut PgConnection,
    wait: Duration,
) -> Result<(), sqlx::Error> {
    let (wait, silence) = (setting(wait), setting(SILENCE));
    let settle = format!(
        "SET idle_in_transaction_session_timeout = {silence}; SET lock_timeout = {wait}; SET statement_timeout = {wait}"
    );
    raw_sql(AssertSqlSafe(settle)).execute(connection).await.map(drop)
}

/// What is begun on a database, in whole; an error if that takes far longer than the server itself would let any of it take: a start tries
/// twice (see [`Tries`]), for two leases each, and works in between. The connection has to be dropped then.
pub(super) async fn within<T>(
    config: &PostgresConfig,
    what: &'static str,
    begun: impl Future<Output = Result<T, OpenError>>,
) -> Result<T, OpenError> {
    let limit = config.wait.max(LOCK).max(config.lease).saturating_mul(6);
    match timeout(limit, begun).await {
        Ok(answer) => answer,
        Err(_elapsed) => {
            let why = format!(
                "no answer within {} ms; the database, or the way to it, has fallen silent, or it waits for a synchronous standby \
                 (`synchronous_standby_names`) that is not there: see to them, and start again",
                limit.as_millis()
            );
            Err(OpenError::Lost { what, why })
        }
    }
}

/// How often a transaction of a start is tried while others are in its way. One who fell silent half-way is let go of after a lease.
#[derive(Debug)]
pub(super) struct Tries {
    what: &'static str,
    deadline: Instant,
}

impl Tries {
    /// The first one begins.
    pub(super) fn begin(config: &PostgresConfig, what: &'static str) -> Self {
        let deadline = Instant::now() + config.wait.max(config.lease.saturating_mul(2));
        Self { what, deadline }
    }

    /// One has failed: the next one may begin, or it was the last.
    pub(super) async fn failed(
        &self,
        connection: &mut PgConnection,
        error: sqlx::Error,
    ) -> Result<(), OpenError> {
        let may_pass = matches!(Trouble::of(&error), Trouble::Again | Trouble::Busy(_));
        if !may_pass || Instant::now() >= self.deadline {
            return Err(OpenError::refused(self.what)(error));
        }
        let ended = raw_sql("ROLLBACK").execute(connection).await;
        ended.map_err(OpenError::refused(self.what))?;
        tokio::time::sleep(PAUSE).await;
        Ok(())
    }
}

/// A limit in the server's milliseconds, where zero is none at all and the most is what fits 32 bits.
fn setting(limit: Duration) -> i32 {
    i32::try_from(limit.as_millis()).unwrap_or(i32::MAX).max(1)
}
