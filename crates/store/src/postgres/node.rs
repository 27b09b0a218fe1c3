//! This node among the others: its epoch, its lease, and the fencing of nodes that fell silent.
//!
//! Owns the rows of `placet.epochs` except for the ends of logs. Invariants: an epoch is used once; only a node that is not fenced itself and
//! whose own lease is valid fences others; a node is fenced by others only when its lease is long past by the database's clock, and the
//! database was there all that time, so that an outage of the database fences no live node.

use sqlx::postgres::PgConnection;
use sqlx::{Row as _, query, raw_sql};
use tokio::time::Instant;

use placet_ledger::proof::empty_root;

use super::config::PostgresConfig;
use super::error::OpenError;
use super::limits::{self, Kind, LOCK, Limits, Tries};
use super::rows::number;
use super::state::Head;

/// The result of a node's start.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StartReport {
    /// The epoch of this start.
    pub epoch: u64,
    /// Earlier starts under this node's name that were not closed in order; they are fenced now.
    pub fenced: Vec<u64>,
    /// How many other nodes were running.
    pub others: u64,
    /// Calls with an unknown outcome, of all nodes.
    pub indeterminate: u64,
}

/// What a start found.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) report: StartReport,
    /// When its epoch was asked for.
    pub(super) sent: Instant,
    pub(super) now_ms: i64,
    pub(super) floor_ms: i64,
}

/// Takes an epoch and fences the process that ran under this node's name before. If the commit was not answered, the epoch may have been taken:
/// nobody works under it, and the next start fences it.
pub(super) async fn start(
    connection: &mut PgConnection,
    config: &PostgresConfig,
) -> Result<Started, OpenError> {
    let tries = Tries::begin(config, "give this node an epoch");
    loop {
        match take_epoch(connection, config).await {
            Ok(started) => return Ok(started),
            Err(error) => tries.failed(connection, error).await?,
        }
    }
}

async fn take_epoch(
    connection: &mut PgConnection,
    config: &PostgresConfig,
) -> Result<Started, sqlx::Error> {
    let sent = Instant::now();
    let PostgresConfig { node, lease, wait, .. } = config;
    // A node that falls silent while it starts is released after its lease.
    let limits = Limits { lock: LOCK, silence: *lease, statement: Some(LOCK.max(*wait)) };
    limits::begin(connection, Kind::Writing, limits).await?;
    // This row is the lock that serialises starts and activations of policies.
    let taken = query(
        "UPDATE placet.ledger SET next_epoch = next_epoch + 1 WHERE id = 1 \
         RETURNING next_epoch - 1 AS epoch, policy_epoch, policy_digests, directives_rev, \
           (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms",
    )
    .fetch_one(&mut *connection)
    .await?;
    let (epoch, now_ms): (i64, i64) = (taken.try_get("epoch")?, taken.try_get("now_ms")?);
    query(
        "INSERT INTO placet.epochs (epoch, log, node, started_ms, lease_until, policy_epoch, policy_digests, head_seq, head_hash, \
           head_at_ms, root, directives_rev, lease_ms) \
         VALUES ($1, 'epoch-' || $1, $2, $3, clock_timestamp() + $4 * interval '1 second', $5, $6, 0, $7, $3, $8, $9, $10)",
    )
    .bind(epoch)
    .bind(node)
    .bind(now_ms)
    .bind(lease.as_secs_f64())
    .bind(taken.try_get::<i64, _>("policy_epoch")?)
    .bind(taken.try_get::<Option<Vec<Vec<u8>>>, _>("policy_digests")?)
    .bind(Head::NONE.hash.as_slice())
    .bind(empty_root().as_bytes().as_slice())
    .bind(taken.try_get::<i64, _>("directives_rev")?)
    .bind(i64::try_from(lease.as_millis()).unwrap_or(i64::MAX).max(1))
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
           max(head_at_ms) AS floor_ms, (SELECT count(*) FROM placet.effects \
             WHERE NOT is_settled AND state = 'indeterminate') AS indeterminate FROM placet.epochs",
    )
    .bind(epoch)
    .fetch_one(&mut *connection)
    .await?;
    let fenced: Result<Vec<i64>, _> = fenced.iter().map(|row| row.try_get("epoch")).collect();
    let report = StartReport {
        epoch: number(epoch),
        fenced: fenced?.into_iter().map(number).collect(),
        others: number(others.try_get("others")?),
        indeterminate: number(others.try_get("indeterminate")?),
    };
    let floor_ms = others.try_get::<Option<i64>, _>("floor_ms")?.unwrap_or(now_ms);
    raw_sql("COMMIT").execute(connection).await?;
    Ok(Started { report, sent, now_ms, floor_ms })
}

/// A live node that started before this one.
pub(super) const EARLIER: &str = "SELECT epoch FROM placet.epochs \
     WHERE fenced_by IS NULL AND closed_ms IS NULL AND epoch < $1 LIMIT 1";

/// Fences the nodes ($1 is this one) whose leases are past for two thirds of a lease, if the database was there ($2, in milliseconds) for all of
/// that and for the lease before. An outage that this node did not notice is shorter than two thirds of its own lease, and who is alive needs
/// half of one to renew it after that. A statement that arrives long after it was sent ($3, by the database's clock) fences nobody: the outage was
/// meanwhile. A locked row belongs to a node that is writing.
pub(super) const FENCE: &str = "UPDATE placet.epochs SET fenced_by = $1, fenced_ms = (extract(epoch FROM clock_timestamp()) * 1000)::bigint \
     WHERE epoch IN (SELECT e.epoch FROM placet.epochs AS e JOIN placet.epochs AS me ON me.epoch = $1 AND e.epoch <> $1 \
       WHERE e.fenced_by IS NULL AND e.closed_ms IS NULL AND me.fenced_by IS NULL AND me.lease_until > clock_timestamp() \
         AND clock_timestamp() < to_timestamp($3 / 1000.0) + me.lease_ms * interval '1 millisecond' / 3 \
         AND e.lease_until + greatest(e.lease_ms, me.lease_ms) * interval '1 millisecond' * 2 / 3 < clock_timestamp() \
         AND e.lease_ms + greatest(e.lease_ms, me.lease_ms) * 2 / 3 < $2 \
       FOR UPDATE OF e SKIP LOCKED) \
     RETURNING epoch";
