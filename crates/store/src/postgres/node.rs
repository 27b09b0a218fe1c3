//! This node among the others: its epoch, its lease, and the fencing of nodes that fell silent.
//!
//! Owns the rows of `placet.epochs` but for the ends of logs. Invariants: an epoch is used once; only a node that is not fenced itself
//! fences others; a node is fenced only when its lease has not moved, by this node's own clock, for half a lease after it was past, or
//! for longer than it had left: a database clock that jumps ahead fences nobody, and one that is put back keeps nobody alive.

use std::collections::HashMap;
use std::time::Duration;

use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Row as _, query, raw_sql};
use tokio::time::Instant;

use placet_ledger::proof::empty_root;

use super::config::LEASE_MAX;
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
pub(super) struct Sightings(HashMap<i64, Sighting>);

/// A lease as it was seen first at the end that it has.
#[derive(Debug)]
struct Sighting {
    until: i64,
    left: Duration,
    since: Instant,
}

/// Another node's lease, as the database tells of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lease {
    /// Whose it is.
    pub(super) epoch: i64,
    /// When it ends, in microseconds since 1970.
    pub(super) until: i64,
    /// How many microseconds that is ahead; negative: it is past.
    pub(super) left: i64,
}

impl Lease {
    fn left(self) -> Duration {
        Duration::from_micros(u64::try_from(self.left).unwrap_or(0)).min(LEASE_MAX)
    }
}

/// A node that has fallen silent: its epoch, and where its lease ended when that was seen.
pub(super) type Silent = (i64, i64);

impl Sightings {
    /// Takes a look at the leases of others; answers those of nodes that fell silent. A lease is over when it is past by the
    /// database's clock and has not moved for half of this node's lease; and when it has not moved for as long as it had left when it
    /// was seen first, and half a lease more, wherever the database's clock has been put since.
    pub(super) fn look(&mut self, seen: &[Lease], own: Duration) -> Vec<Silent> {
        let now = Instant::now();
        let half = own.checked_div(2).unwrap_or(own);
        self.0.retain(|epoch, _| seen.iter().any(|lease| lease.epoch == *epoch));
        let mut silent = Vec::new();
        for lease in seen {
            let first = || Sighting { until: lease.until, left: lease.left(), since: now };
            let known = self.0.entry(lease.epoch).or_insert_with(first);
            if known.until != lease.until {
                *known = first();
            }
            let unmoved = now.saturating_duration_since(known.since);
            let is_over = lease.left < 0 || unmoved >= known.left.saturating_add(half);
            if is_over && unmoved >= half {
                silent.push((lease.epoch, lease.until));
            }
        }
        silent
    }
}

/// The leases of the other nodes that live: epoch, end in microseconds, how far ahead that is.
pub(super) const LEASES: &str = "SELECT epoch, (extract(epoch FROM lease_until) * 1000000)::bigint AS lease_until, \
       (extract(epoch FROM lease_until - clock_timestamp()) * 1000000)::bigint AS lease_left \
     FROM placet.epochs WHERE fenced_by IS NULL AND closed_ms IS NULL AND epoch <> $1";

/// One of the nodes that live and started before this one.
pub(super) const EARLIER: &str = "SELECT epoch FROM placet.epochs \
     WHERE fenced_by IS NULL AND closed_ms IS NULL AND epoch < $1 LIMIT 1";

/// Fences epochs whose leases have not moved since they were seen; answers those that are fenced now. A row that is locked belongs to
/// a node that is writing, and a lease that has moved to one that lives.
pub(super) async fn fence(
    connection: &mut PgConnection,
    own: u64,
    silent: &[Silent],
) -> Result<Vec<u64>, sqlx::Error> {
    let mut fenced = Vec::new();
    for (epoch, until) in silent {
        let row = query(
            "UPDATE placet.epochs SET fenced_by = $1, fenced_ms = (extract(epoch FROM clock_timestamp()) * 1000)::bigint \
             WHERE epoch IN (SELECT epoch FROM placet.epochs WHERE epoch = $2 \
                 AND (extract(epoch FROM lease_until) * 1000000)::bigint = $3 \
                 AND fenced_by IS NULL AND closed_ms IS NULL FOR UPDATE SKIP LOCKED) \
               AND EXISTS (SELECT 1 FROM placet.epochs AS me WHERE me.epoch = $1 AND me.fenced_by IS NULL) \
             RETURNING epoch",
        )
        .bind(column(own))
        .bind(epoch)
        .bind(until)
        .fetch_optional(&mut *connection)
        .await?;
        if let Some(row) = row {
            fenced.push(number(row.try_get("epoch")?));
        }
    }
    Ok(fenced)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(10);

    const SECOND: i64 = 1_000_000;

    /// Leases, each an epoch with its end and how many seconds that is ahead.
    fn seen<const N: usize>(leases: [(i64, i64, i64); N]) -> [Lease; N] {
        leases.map(|(epoch, until, left_s)| Lease {
            epoch,
            until,
            left: left_s.saturating_mul(SECOND),
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_is_silent_only_when_both_clocks_say_so() {
        let mut sightings = Sightings::default();
        // The database's clock has jumped ahead: all leases look past, but none has been seen unmoved.
        assert_eq!(sightings.look(&seen([(1, 100, -1), (2, 100, -1)]), LEASE), []);
        tokio::time::advance(Duration::from_secs(4)).await;
        assert_eq!(sightings.look(&seen([(1, 100, -1), (2, 200, -1)]), LEASE), []);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(sightings.look(&seen([(1, 100, -1), (2, 200, -1)]), LEASE), [(1, 100)]);
        // One that has still to go is of a node that lives, however short this node's own lease is.
        assert_eq!(sightings.look(&seen([(3, 300, 60)]), LEASE), []);
        tokio::time::advance(Duration::from_secs(59)).await;
        assert_eq!(sightings.look(&seen([(3, 300, 1)]), LEASE), []);
        // Who is gone from the list is forgotten.
        assert_eq!(sightings.look(&seen([(1, 100, -1)]), LEASE), []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_database_clock_that_was_put_back_gives_no_dead_node_a_longer_life() {
        let mut sightings = Sightings::default();
        assert_eq!(sightings.look(&seen([(1, 100, 9), (2, 100, 9)]), LEASE), []);
        tokio::time::advance(Duration::from_secs(13)).await;
        // By the clock that was put back both have an hour to go; one has moved.
        assert_eq!(sightings.look(&seen([(1, 100, 3600), (2, 200, 3600)]), LEASE), []);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(sightings.look(&seen([(1, 100, 3600), (2, 200, 3600)]), LEASE), [(1, 100)]);
        // Of one that was never seen with the clock right it is known only that no lease is longer than this.
        tokio::time::advance(LEASE_MAX).await;
        assert_eq!(sightings.look(&seen([(2, 200, 3000)]), LEASE), []);
        tokio::time::advance(LEASE.div_f64(2.0)).await;
        assert_eq!(sightings.look(&seen([(2, 200, 3000)]), LEASE), [(2, 200)]);
    }
}
