//! This node among the others: its epoch, its lease, and the fencing of nodes that fell silent.
//!
//! Owns the rows of `placet.epochs` but for the ends of logs. Invariants: an epoch is used once; only a node that is not fenced itself
//! fences others; a node is fenced only when the database's clock says that its lease is over and this node's own clock has seen
//! it unmoved for half a lease, so that a database clock that jumps fences nobody.

use std::collections::HashMap;
use std::time::Duration;

use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Row as _, query, raw_sql};
use tokio::time::Instant;

use placet_ledger::proof::empty_root;

use super::connect::KEPT;
use super::error::{OpenError, Trouble, said};
use super::rows::{column, number};
use super::state::Head;

/// How the node came up.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StartReport {
    /// Which ledger the database keeps.
    pub store_id: String,
    /// The epoch of this start.
    pub epoch: u64,
    /// Earlier starts under this node's name that were not ended in order; they are fenced now.
    pub fenced: Vec<u64>,
    /// How many other nodes were there.
    pub others: u64,
}

/// What a start finds out.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) report: StartReport,
    pub(super) now_ms: i64,
    pub(super) floor_ms: i64,
}

/// Takes an epoch and fences whoever ran under this node's name before.
pub(super) async fn start(
    connection: &mut PgConnection,
    node: &str,
    lease: Duration,
    wait: Duration,
) -> Result<Started, OpenError> {
    let deadline = Instant::now() + wait.max(lease.saturating_mul(2));
    loop {
        let error = match try_start(connection, node, lease).await {
            Ok(started) => return Ok(started),
            Err(error) => error,
        };
        let passing = matches!(Trouble::of(&error), Trouble::Again | Trouble::Busy(_));
        if !passing || Instant::now() >= deadline {
            return Err(OpenError::Refused { what: "give this node an epoch", why: said(&error) });
        }
        raw_sql("ROLLBACK")
            .execute(&mut *connection)
            .await
            .map_err(OpenError::refused("give this node an epoch"))?;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn try_start(
    connection: &mut PgConnection,
    node: &str,
    lease: Duration,
) -> Result<Started, sqlx::Error> {
    let begin = format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL lock_timeout = 1000; {KEPT}"
    );
    raw_sql(AssertSqlSafe(begin)).execute(&mut *connection).await?;
    // This row is the lock that starts and activations of policies meet at.
    let taken = query(
        "UPDATE placet.ledger SET next_epoch = next_epoch + 1 WHERE id = 1 \
         RETURNING next_epoch - 1 AS epoch, store_id, policy_epoch, policy_digest, desk_rev, \
           (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms",
    )
    .fetch_one(&mut *connection)
    .await?;
    let (epoch, now_ms): (i64, i64) = (taken.try_get("epoch")?, taken.try_get("now_ms")?);
    query(
        "INSERT INTO placet.epochs (epoch, log, node, started_ms, lease_until, policy_epoch, policy_digest, head_seq, head_hash, \
           head_at_ms, root, desk_rev) \
         VALUES ($1, 'epoch-' || $1, $2, $3, clock_timestamp() + $4 * interval '1 second', $5, $6, 0, $7, $3, $8, $9)",
    )
    .bind(epoch)
    .bind(node)
    .bind(now_ms)
    .bind(lease.as_secs_f64())
    .bind(taken.try_get::<i64, _>("policy_epoch")?)
    .bind(taken.try_get::<Option<Vec<u8>>, _>("policy_digest")?)
    .bind(Head::NONE.hash.as_slice())
    .bind(empty_root().as_bytes().as_slice())
    .bind(taken.try_get::<i64, _>("desk_rev")?)
    .execute(&mut *connection)
    .await?;
    let fenced = query(
        "UPDATE placet.epochs SET fenced_by = $1, fenced_ms = (extract(epoch FROM clock_timestamp()) * 1000)::bigint \
         WHERE node = $2 AND epoch <> $1 AND fenced_by IS NULL AND closed_ms IS NULL RETURNING epoch",
    )
    .bind(epoch)
    .bind(node)
    .fetch_all(&mut *connection)
    .await?;
    let others = query(
        "SELECT count(*) FILTER (WHERE epoch <> $1 AND fenced_by IS NULL AND closed_ms IS NULL) AS others, \
           max(head_at_ms) AS floor_ms FROM placet.epochs",
    )
    .bind(epoch)
    .fetch_one(&mut *connection)
    .await?;
    raw_sql("COMMIT").execute(&mut *connection).await?;
    let fenced: Result<Vec<i64>, _> = fenced.iter().map(|row| row.try_get("epoch")).collect();
    let report = StartReport {
        store_id: taken.try_get("store_id")?,
        epoch: number(epoch),
        fenced: fenced?.into_iter().map(number).collect(),
        others: number(others.try_get("others")?),
    };
    let floor_ms = others.try_get::<Option<i64>, _>("floor_ms")?.unwrap_or(now_ms);
    Ok(Started { report, now_ms, floor_ms })
}

/// What a node has seen of the others' leases.
#[derive(Debug, Default)]
pub(super) struct Sightings(HashMap<i64, (i64, Instant)>);

impl Sightings {
    /// Takes a look at the leases of others, each an epoch with its end and whether the database says that this is past;
    /// answers those that fell silent.
    pub(super) fn look(&mut self, seen: &[(i64, i64, bool)], lease: Duration) -> Vec<i64> {
        let (now, half) = (Instant::now(), lease.checked_div(2).unwrap_or(lease));
        self.0.retain(|epoch, _| seen.iter().any(|(there, ..)| there == epoch));
        let mut silent = Vec::new();
        for (epoch, until, is_past) in seen {
            let (known, since) = self.0.entry(*epoch).or_insert((*until, now));
            if known != until {
                (*known, *since) = (*until, now);
            }
            let unmoved = now.saturating_duration_since(*since);
            if *is_past && unmoved >= half {
                silent.push(*epoch);
            }
        }
        silent
    }
}

/// The leases of the other nodes that live: epoch, end in microseconds, whether that is past.
pub(super) const LEASES: &str = "SELECT epoch, (extract(epoch FROM lease_until) * 1000000)::bigint AS lease_until, \
       lease_until < clock_timestamp() AS is_past \
     FROM placet.epochs WHERE fenced_by IS NULL AND closed_ms IS NULL AND epoch <> $1";

/// One of the nodes that live and started before this one.
pub(super) const EARLIER: &str = "SELECT epoch FROM placet.epochs \
     WHERE fenced_by IS NULL AND closed_ms IS NULL AND epoch < $1 LIMIT 1";

/// Fences epochs whose leases are over; answers those that are fenced now. A row that is locked belongs to a node that is writing.
pub(super) async fn fence(
    connection: &mut PgConnection,
    own: u64,
    silent: &[i64],
) -> Result<Vec<u64>, sqlx::Error> {
    let fenced = query(
        "UPDATE placet.epochs SET fenced_by = $1, fenced_ms = (extract(epoch FROM clock_timestamp()) * 1000)::bigint \
         WHERE epoch IN (SELECT epoch FROM placet.epochs WHERE epoch = ANY($2) AND lease_until < clock_timestamp() \
             AND fenced_by IS NULL AND closed_ms IS NULL ORDER BY epoch FOR UPDATE SKIP LOCKED) \
           AND EXISTS (SELECT 1 FROM placet.epochs AS me WHERE me.epoch = $1 AND me.fenced_by IS NULL) \
         RETURNING epoch",
    )
    .bind(column(own))
    .bind(silent)
    .fetch_all(connection)
    .await?;
    fenced.iter().map(|row| row.try_get("epoch").map(number)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn a_node_is_silent_only_when_both_clocks_say_so() {
        let mut sightings = Sightings::default();
        // The database's clock has jumped ahead: all leases look past, but none has been seen unmoved.
        assert_eq!(sightings.look(&[(1, 100, true), (2, 100, true)], LEASE), Vec::<i64>::new());
        tokio::time::advance(Duration::from_secs(4)).await;
        assert_eq!(sightings.look(&[(1, 100, true), (2, 200, true)], LEASE), Vec::<i64>::new());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(sightings.look(&[(1, 100, true), (2, 200, true)], LEASE), vec![1]);
        // A lease that was not renewed but is not over either is none.
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(sightings.look(&[(1, 100, false), (2, 200, true)], LEASE), vec![2]);
        // Who is gone from the list is forgotten.
        assert_eq!(sightings.look(&[(1, 100, true)], LEASE), vec![1]);
        assert_eq!(sightings.look(&[(2, 200, true)], LEASE), Vec::<i64>::new());
    }
}
