//! What the server lets a session and a transaction take, and how a transaction begins.
//!
//! Owns every `BEGIN` of the store. Not here: what is done in a transaction, and what becomes of one that is ended. Invariants: a session
//! has limits before it touches a table; whoever falls silent in a transaction, paused or lost, is let go of by the server, with all its locks.

use std::time::Duration;

use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, raw_sql};

/// How long a session may be silent in a transaction that was begun elsewhere than here.
const SILENCE: Duration = Duration::from_secs(60);

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
    /// For how long nothing has to come from whoever began it.
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

/// A limit in the server's milliseconds, where zero is none at all and the most is what fits 32 bits.
fn setting(limit: Duration) -> i32 {
    i32::try_from(limit.as_millis()).unwrap_or(i32::MAX).max(1)
}
