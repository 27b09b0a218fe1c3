//! This node among the others: its epoch, its lease, and the fencing of nodes that fell silent.
//!
//! Owns the rows of `placet.epochs` except for the ends of logs. Invariants: an epoch is used once; only a node that is not fenced itself
//! fences others, and only after it has renewed its own lease; a node is fenced by others only when its lease stood still for long enough,
//! as `sightings` determines.

use std::time::Duration;

use sqlx::postgres::PgConnection;
use sqlx::{Row as _, query, raw_sql};
use tokio::time::Instant;

use placet_ledger::proof::empty_root;

use super::error::{OpenError, Trouble, said};
use super::limits::{self, Kind, LOCK, Limits};
use super::rows::{column, number};
use super::sightings::Silent;
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
    pub(super) now_ms: i64,
    pub(super) floor_ms: i64,
}

/// Takes an epoch and fences the process that ran under this node's name before.
pub(super) async fn start(
    connection: &mut PgConnection,
    node: &str,
    lease: Duration,
    wait: Duration,
) -> Result<Started, OpenError> {
    let what = "give this node an epoch";
    // A node that falls silent while it starts is released after its lease.
    let deadline = Instant::now() + wait.max(lease.saturating_mul(2));
    let limits = Limits { lock: LOCK, silence: lease, statement: Some(wait.max(LOCK)) };
    let patience = limits::patience(wait);
    loop {
        let error = match try_start(connection, node, lease, limits, patience).await {
            Ok(started) => return Ok(started),
            Err(error) => error,
        };
        let held = match Trouble::of(&error) {
            Trouble::Again => None,
            Trouble::Busy(why) => Some(why),
            Trouble::Away(why) => return Err(OpenError::Lost { what, why }),
            Trouble::Full | Trouble::Unkeepable(_) | Trouble::Denied(_) | Trouble::Fatal(_) => {
                return Err(OpenError::Refused { what, why: said(&error) });
            }
        };
        let ended = limits::answer(patience, raw_sql("ROLLBACK").execute(&mut *connection)).await;
        ended.map_err(OpenError::refused(what))?;
        if Instant::now() >= deadline {
            return Err(match held {
                Some(why) => OpenError::locked(what, &why),
                None => OpenError::Refused { what, why: said(&error) },
            });
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// One try. If the commit of an epoch was not answered, the epoch may have been taken: nobody works under it, and the next start fences it.
async fn try_start(
    connection: &mut PgConnection,
    node: &str,
    lease: Duration,
    limits: Limits,
    patience: Duration,
) -> Result<Started, sqlx::Error> {
    let taking = take_epoch(connection, node, lease, limits);
    let started = limits::answer(patience, taking).await?;
    limits::commit(connection, lease.max(patience)).await?;
    Ok(started)
}

async fn take_epoch(
    connection: &mut PgConnection,
    node: &str,
    lease: Duration,
    limits: Limits,
) -> Result<Started, sqlx::Error> {
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
    Ok(Started { report, now_ms, floor_ms })
}

/// A live node that started before this one.
pub(super) const EARLIER: &str = "SELECT epoch FROM placet.epochs \
     WHERE fenced_by IS NULL AND closed_ms IS NULL AND epoch < $1 LIMIT 1";

/// Fences epochs whose leases have not moved since they were seen; answers those that are fenced now. A locked row belongs to a node that
/// is writing, and a lease that has moved to a live one. A node whose own lease has expired has to renew it first.
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
               AND EXISTS (SELECT 1 FROM placet.epochs AS me WHERE me.epoch = $1 AND me.fenced_by IS NULL \
                 AND me.lease_until > clock_timestamp()) \
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
