//! Limits that the server puts on a session and a transaction, how a transaction begins, and how long this side waits for a silent server.
//!
//! Owns every `BEGIN` of the store. Not here: the work of a transaction, and what follows if it is ended. Invariants: a session has limits
//! before it touches a table; a session that falls silent in a transaction, paused or lost, is ended by the server, with all its locks. A
//! connection that does not answer within this side's limit is dropped, and never used again.

use std::io;
use std::time::Duration;

use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, raw_sql};
use tokio::time::timeout;

use super::config::LEASE_MAX;

/// How long a session may be silent in a transaction that was not begun by [`begin`].
const SILENCE: Duration = Duration::from_secs(60);

/// How long one try of a start waits for a lock.
pub(super) const LOCK: Duration = Duration::from_secs(1);

/// How long to wait for a page of an export or an import, and for its commit: as long as the server waits for the next one.
pub(super) const PAGE: Duration = LEASE_MAX;

/// How long to wait for statements that scan whole tables. It is far more than they need: one that is cut short would be cut short at every
/// later try, too.
pub(super) const WHOLE: Duration = Duration::from_secs(21_600);

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

/// How long this side waits for something the server itself would have given up long before: a server that is silent for so long will not
/// answer.
pub(super) fn patience(wait: Duration) -> Duration {
    wait.max(LOCK).saturating_mul(4)
}

/// The result of a request to the database; if none comes within a limit, an error: the connection must then be dropped.
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

/// The same for a single statement.
pub(super) async fn answer<T>(
    limit: Duration,
    asked: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    within(limit, asked).await?
}

/// Commits. No limit of the server ends a commit that waits for a standby. After an error the commit may still have been kept.
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
