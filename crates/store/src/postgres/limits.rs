//! What the server lets a session and a transaction take, how a transaction begins, and how long this side waits for a server that
//! says nothing.
//!
//! Owns every `BEGIN` of the store. Not here: what is done in a transaction, and what becomes of one that is ended. Invariants: a session
//! has limits before it touches a table; a session that falls silent in a transaction, paused or lost, is let go of by the server, with all its
//! locks. What has not answered within a limit of this side is on a connection that is dropped, and never used again.

use std::io;
use std::time::Duration;

use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, raw_sql};
use tokio::time::timeout;

use super::config::LEASE_MAX;

/// How long a session may be silent in a transaction that was begun elsewhere than here.
const SILENCE: Duration = Duration::from_secs(60);

/// How long one try of a start waits for a lock.
pub(super) const LOCK: Duration = Duration::from_secs(1);

/// How long a page of an export or an import is waited for, and its commit: as long as the server waits for the next one.
pub(super) const PAGE: Duration = LEASE_MAX;

/// How long is waited for what goes through whole tables. It is far more than that takes: one that was cut short would be cut short at
/// every later try, too.
pub(super) const WHOLE: Duration = Duration::from_secs(21_600);

/// Within a transaction: its commit is acknowledged when it is kept, whatever the server was set to since it was asked.
const KEPT: &str = "SELECT set_config('synchronous_commit', \
     CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true)";

/// What a transaction is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// To change something.
    Writing,
    /// To look at what is there.
    Looking,
    /// To look at what was there at one moment: that of its first statement.
    Snapshot,
}

/// What the server lets a transaction take before it ends it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// For how long each statement waits for a lock.
    pub(super) lock: Duration,
    /// For how long nothing has to come from the session that began it.
    pub(super) silence: Duration,
    /// For how long each statement runs; nothing: for as long as it takes.
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

/// What counts for all that a session does outside of [`begin`]: no statement runs, or waits for a lock, for longer than this. A commit
/// that waits for a standby is no statement to the server, and is not cut short.
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

/// How long this side waits for what the server itself would have given up long before: a server that says nothing for so long says nothing
/// at all.
pub(super) fn patience(wait: Duration) -> Duration {
    wait.max(LOCK).saturating_mul(4)
}

/// What comes of something that is asked of the database, unless nothing has come within a limit: then the connection is to be dropped.
pub(super) async fn within<F: Future>(limit: Duration, asked: F) -> Result<F::Output, sqlx::Error> {
    match timeout(limit, asked).await {
        Ok(answer) => Ok(answer),
        Err(_elapsed) => {
            let limit = limit.as_millis();
            Err(silent(format!(
                "no answer within {limit} ms; the database, or the way to it, has fallen silent: see to both, and start again"
            )))
        }
    }
}

/// The same of a single statement.
pub(super) async fn answer<T>(
    limit: Duration,
    asked: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    within(limit, asked).await?
}

/// Commits. No limit of the server ends a commit that waits for a standby. After an error it may have been kept all the same.
pub(super) async fn commit(
    connection: &mut PgConnection,
    limit: Duration,
) -> Result<(), sqlx::Error> {
    match timeout(limit, raw_sql("COMMIT").execute(connection)).await {
        Ok(done) => done.map(drop),
        Err(_elapsed) => {
            let limit = limit.as_millis();
            Err(silent(format!(
                "its commit was not answered within {limit} ms; if the server waits for a synchronous standby \
                 (`synchronous_standby_names`), see that one is there, and start again"
            )))
        }
    }
}

fn silent(why: String) -> sqlx::Error {
    sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, why))
}

/// A limit in the server's milliseconds, where zero is none at all and the most is what fits 32 bits.
fn setting(limit: Duration) -> i32 {
    i32::try_from(limit.as_millis()).unwrap_or(i32::MAX).max(1)
}
