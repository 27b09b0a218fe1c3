//! What waits for every node: freezes, revocations and activations whose locks were not to be had at once.
//!
//! Owns when they are tried again and how long each try waits for a lock, and finds out who holds one. Not here: the tries (`writer`).
//! Invariants: a node that hangs in its transaction delays what binds all nodes and nothing else; what waits here was not kept.

use std::time::Duration;

use sqlx::postgres::PgConnection;
use sqlx::{Row as _, query};
use tokio::time::Instant;

use super::error::{OpenError, said};
use super::limits;
use super::writer::Submission;

/// How long the first try waits for a lock.
const LOCK_MIN: Duration = Duration::from_millis(250);

/// Those that wait.
#[derive(Debug, Default)]
pub(super) struct Aside {
    waiting: Vec<Submission>,
    tries: u32,
    again_at: Option<Instant>,
}

impl Aside {
    /// How long the next try waits for each lock: no longer than what comes behind it can wait too.
    pub(super) fn lock_timeout(&self, wait: Duration) -> Duration {
        let most = wait.checked_div(4).unwrap_or(wait).max(Duration::from_millis(1));
        LOCK_MIN.saturating_mul(1_u32.checked_shl(self.tries).unwrap_or(u32::MAX)).min(most)
    }

    /// Puts these aside after a try. What else this node has to write, and what others have, goes on for as long as the try took.
    pub(super) fn put(&mut self, submissions: Vec<Submission>, wait: Duration) {
        let pause = self.lock_timeout(wait);
        // Those that wait already are tried again when they were to be.
        self.again_at.get_or_insert_with(|| Instant::now() + pause);
        self.tries = self.tries.saturating_add(1);
        self.waiting.extend(submissions);
    }

    /// What of a batch is tried now: while others wait, what binds every node waits with them, and for no try of its own.
    pub(super) fn join(&mut self, batch: Vec<Submission>) -> Vec<Submission> {
        if self.again_at.is_none() {
            return batch;
        }
        let (binding, rest): (Vec<_>, Vec<_>) =
            batch.into_iter().partition(|waits| waits.piece.binds_all());
        self.waiting.extend(binding);
        rest
    }

    /// When they are tried again; nothing: none waits.
    pub(super) const fn again_at(&self) -> Option<Instant> {
        self.again_at
    }

    /// All of them, to be tried or refused.
    pub(super) fn take(&mut self) -> Vec<Submission> {
        self.again_at = None;
        std::mem::take(&mut self.waiting)
    }

    /// They were written, or refused: the next ones begin again.
    pub(super) const fn reset(&mut self) {
        if self.again_at.is_none() {
            self.tries = 0;
        }
    }
}

/// Sessions whose transactions hold something of the tables that all nodes meet at, for longer than a transaction of a sound node takes.
/// Who waits for a lock is held up too. At the very first start the tables are not there yet.
const HOLDERS: &str = "SELECT DISTINCT a.pid, coalesce(a.application_name, '') AS application, coalesce(a.state, 'unknown') AS state, \
       coalesce(extract(epoch FROM clock_timestamp() - a.xact_start)::bigint, 0) AS seconds \
     FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid \
     WHERE l.granted AND l.relation IN (to_regclass('placet.epochs'), to_regclass('placet.ledger')) \
       AND a.wait_event_type IS DISTINCT FROM 'Lock' AND a.pid <> pg_backend_pid() \
       AND (a.xact_start IS NULL OR a.xact_start < clock_timestamp() - interval '1 second') \
     ORDER BY seconds DESC LIMIT 3";

/// Who seems to hold a lock, for the operator.
pub(super) async fn holders(connection: &mut PgConnection) -> Result<String, sqlx::Error> {
    let rows = query(HOLDERS).fetch_all(connection).await?;
    let mut named = Vec::with_capacity(rows.len());
    for row in &rows {
        let (pid, seconds): (i32, i64) = (row.try_get("pid")?, row.try_get("seconds")?);
        let (application, state): (String, String) =
            (row.try_get("application")?, row.try_get("state")?);
        named.push(format!("process {pid} of `{application}` ({state}, for {seconds} s)"));
    }
    if named.is_empty() {
        return Ok("no session is known to hold one; a dump or an export of the tables that is under way may".to_owned());
    }
    Ok(format!("{}; `SELECT pg_terminate_backend(PROCESS)` ends one", named.join(", ")))
}

/// The refusal of a start that waited for a lock and did not get it: `why`, and who seems to hold it, if that can be asked within a limit.
pub(super) async fn refused_by_holders(
    connection: &mut PgConnection,
    limit: Duration,
    what: &'static str,
    why: &str,
) -> OpenError {
    let holders = match limits::answer(limit, holders(connection)).await {
        Ok(holders) => holders,
        Err(error) => format!("who holds what this needs cannot be asked ({})", said(&error)),
    };
    OpenError::LockTimeout { what, why: format!("{why}: {holders}") }
}
