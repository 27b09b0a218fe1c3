//! Commits that bind every node (freezes, revocations, activations) and did not get their locks at once.
//!
//! Owns when they are retried and how long each try waits for a lock, and finds out who holds one. Not here: the tries (`writer`).
//! Invariants: a node that hangs in its transaction delays only what binds all nodes; what waits here was not kept.

use std::time::Duration;

use sqlx::postgres::PgConnection;
use sqlx::{Row as _, query};
use tokio::time::Instant;

use super::error::{OpenError, said};
use super::limits;
use super::writer::Submission;

/// How long the first try waits for a lock.
const LOCK_MIN: Duration = Duration::from_millis(250);

/// The time between two questions who holds a lock.
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// The waiting commits.
#[derive(Debug, Default)]
pub(super) struct Aside {
    waiting: Vec<Submission>,
    tries: u32,
    again_at: Option<Instant>,
}

impl Aside {
    /// How long the next try waits for each lock: commits behind it can afford to wait that long too.
    pub(super) fn lock_timeout(&self, wait: Duration) -> Duration {
        let most = wait.checked_div(4).unwrap_or(wait).max(Duration::from_millis(1));
        LOCK_MIN.saturating_mul(1_u32.checked_shl(self.tries).unwrap_or(u32::MAX)).min(most)
    }

    /// Sets these aside after a try. Other commits of this node and of others go on for as long as a try waits.
    pub(super) fn put(&mut self, submissions: Vec<Submission>, wait: Duration) {
        let pause = self.lock_timeout(wait);
        // The retry time of those already waiting stays.
        self.again_at.get_or_insert_with(|| Instant::now() + pause);
        self.tries = self.tries.saturating_add(1);
        self.waiting.extend(submissions);
    }

    /// What of a batch is tried now: while others wait, commits that bind every node join them, without a try of their own.
    pub(super) fn join(&mut self, batch: Vec<Submission>) -> Vec<Submission> {
        if self.again_at.is_none() {
            return batch;
        }
        let (binding, rest): (Vec<_>, Vec<_>) =
            batch.into_iter().partition(|waits| waits.piece.binds_all());
        self.waiting.extend(binding);
        rest
    }

    /// When they are retried; `None`: none is waiting.
    pub(super) const fn again_at(&self) -> Option<Instant> {
        self.again_at
    }

    /// All of them, to be tried or refused.
    pub(super) fn take(&mut self) -> Vec<Submission> {
        self.again_at = None;
        std::mem::take(&mut self.waiting)
    }

    /// They were written, or refused: the next ones begin with the shortest wait.
    pub(super) const fn reset(&mut self) {
        if self.again_at.is_none() {
            self.tries = 0;
        }
    }
}

/// Sessions that have held a lock on the tables all nodes meet at for longer than a healthy node's transaction takes. Sessions that
/// themselves wait for a lock are left out. At the very first start the tables do not exist yet.
const HOLDERS: &str = "SELECT DISTINCT a.pid, coalesce(a.application_name, '') AS application, coalesce(a.state, 'unknown') AS state, \
       coalesce(extract(epoch FROM clock_timestamp() - a.xact_start)::bigint, 0) AS seconds \
     FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid \
     WHERE l.granted AND l.relation IN (to_regclass('placet.epochs'), to_regclass('placet.ledger')) \
       AND a.wait_event_type IS DISTINCT FROM 'Lock' AND a.pid <> pg_backend_pid() \
       AND (a.xact_start IS NULL OR a.xact_start < clock_timestamp() - interval '1 second') \
     ORDER BY seconds DESC LIMIT 3";

/// The sessions that seem to hold a lock, for the operator.
pub(super) async fn holders(connection: &mut PgConnection) -> Result<String, sqlx::Error> {
    // Asked twice: one that waits looks like a holder in the moment in which it is about to.
    let before = query(HOLDERS).fetch_all(&mut *connection).await?;
    let before: Result<Vec<i32>, _> = before.iter().map(|row| row.try_get("pid")).collect();
    let before = before?;
    tokio::time::sleep(ASK_AGAIN).await;
    let rows = query(HOLDERS).fetch_all(connection).await?;
    let mut named = Vec::with_capacity(rows.len());
    for row in &rows {
        let (pid, seconds): (i32, i64) = (row.try_get("pid")?, row.try_get("seconds")?);
        if !before.contains(&pid) {
            continue;
        }
        let (application, state): (String, String) =
            (row.try_get("application")?, row.try_get("state")?);
        named.push(format!("process {pid} of `{application}` ({state}, for {seconds} s)"));
    }
    if named.is_empty() {
        return Ok("no session is known to hold one; a dump or an export of the tables that is under way may".to_owned());
    }
    Ok(format!("{}; `SELECT pg_terminate_backend(PROCESS)` ends one", named.join(", ")))
}

/// The refusal of a start that did not get a lock in time: `why`, and who seems to hold it, if that is answered within a limit.
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
