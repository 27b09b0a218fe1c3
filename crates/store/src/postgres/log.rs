//! The audit logs: one for each epoch.
//!
//! Owns their names, their entries, and proofs about them. Invariant: a proof is returned only after it was checked against the root stored
//! with the log's end; tiles and entries alone are not trusted.

use std::collections::BTreeSet;
use std::convert::Infallible;

use async_trait::async_trait;
use sqlx::postgres::PgRow;
use sqlx::{Row as _, query};

use placet_ledger::audit::Subject;
use placet_ledger::log::{AuditLog, LogEntry, TreeHead};
use placet_ledger::proof::tiles::{MemoryTiles, TILE_HASHES, TileId};
use placet_ledger::proof::{self, TreeView, ViewError, leaf_hash};
use placet_ledger::store::{Store as _, StoreError};
use placet_types::digest::Digest;
use placet_types::ids::RecordId;

use super::PostgresStore;
use super::pool::Pool;
use super::read::{limit, unreadable};
use super::rows::{column, id_bytes, number};
use super::write::tile_place;

pub(super) fn bytes32(row: &PgRow, column: &str) -> Result<[u8; 32], StoreError> {
    let bytes: Vec<u8> = row.try_get(column).map_err(|error| unreadable(&error))?;
    bytes
        .try_into()
        .map_err(|_short| StoreError::Damaged(format!("a `{column}` is not 32 bytes long")))
}

pub(super) fn integer(row: &PgRow, column: &str) -> Result<u64, StoreError> {
    row.try_get(column).map(number).map_err(|error| unreadable(&error))
}

/// An entry of a row.
pub(super) fn entry(row: &PgRow) -> Result<LogEntry, StoreError> {
    let kind: i16 = row.try_get("kind").map_err(|error| unreadable(&error))?;
    Ok(LogEntry {
        seq: integer(row, "seq")?,
        epoch: integer(row, "written_by")?,
        at_ms: row.try_get("at_ms").map_err(|error| unreadable(&error))?,
        kind: u8::try_from(kind)
            .map_err(|_wide| StoreError::Damaged(format!("unknown kind {kind}")))?,
        durable_seq: integer(row, "durable_seq")?,
        prev: bytes32(row, "prev")?,
        payload: row.try_get("payload").map_err(|error| unreadable(&error))?,
        hash: bytes32(row, "hash")?,
    })
}

/// The log and number of an entry.
fn place(row: &PgRow) -> Result<(String, u64), StoreError> {
    let log = row.try_get("log").map_err(|error| unreadable(&error))?;
    Ok((log, integer(row, "seq")?))
}

async fn head(pool: &Pool, log: &str) -> Result<(u64, proof::TreeHead), StoreError> {
    let find = || {
        query("SELECT epoch, head_seq, root FROM placet.epochs WHERE log = $1").bind(log.to_owned())
    };
    let rows = pool.rows(find).await?;
    let row = rows.first().ok_or_else(|| no_log(log))?;
    let root = Digest::from_bytes(bytes32(row, "root")?);
    Ok((integer(row, "epoch")?, proof::TreeHead { size: integer(row, "head_seq")?, root }))
}

pub(super) fn no_log(log: &str) -> StoreError {
    StoreError::Damaged(format!("there is no log `{log}`"))
}

/// The hashes of a tile, all of those that a log of `size` entries has.
async fn tile(pool: &Pool, epoch: u64, tile: TileId, size: u64) -> Result<Vec<Digest>, StoreError> {
    let first = tile_place(tile.index, 0);
    let width = tile.width(size).min(TILE_HASHES);
    let find = || {
        let statement = if tile.level == 0 {
            query(
                "SELECT hash FROM placet.entries WHERE epoch = $1 AND seq > $2 AND $3 = 0 ORDER BY seq LIMIT $4",
            )
        } else {
            query(
                "SELECT hash FROM placet.tiles WHERE epoch = $1 AND place >= $2 AND level = $3 ORDER BY place LIMIT $4",
            )
        };
        statement
            .bind(column(epoch))
            .bind(column(first))
            .bind(i16::from(tile.level))
            .bind(limit(width))
    };
    let rows = pool.rows(find).await?;
    let hashes = rows.iter().map(|row| {
        let hash = bytes32(row, "hash")?;
        Ok(if tile.level == 0 { leaf_hash(&hash) } else { Digest::from_bytes(hash) })
    });
    hashes.collect()
}

/// Proves something about a log. A tile is fetched when the proof misses it: once, so one that is too short ends the work.
async fn prove<T>(
    pool: &Pool,
    log: &str,
    proof: impl Fn(&TreeView<'_, MemoryTiles>) -> Result<T, ViewError<Infallible>>,
) -> Result<T, StoreError> {
    let (epoch, head) = head(pool, log).await?;
    let (mut tiles, mut fetched) = (MemoryTiles::new(), BTreeSet::new());
    loop {
        match proof(&TreeView::new(&tiles, head)) {
            Err(ViewError::Short(id)) if fetched.insert(id) => {
                tiles.insert(id, tile(pool, epoch, id, head.size).await?);
            }
            proved => return proved.map_err(|error| StoreError::Damaged(error.to_string())),
        }
    }
}

fn path(hashes: &[Digest]) -> Vec<[u8; 32]> {
    hashes.iter().map(|hash| *hash.as_bytes()).collect()
}

#[async_trait]
impl AuditLog for PostgresStore {
    async fn heads(&self) -> Result<Vec<TreeHead>, StoreError> {
        self.state.check()?;
        let find = || {
            query(
                "SELECT log, head_seq, head_hash, root FROM placet.epochs WHERE head_seq > 0 ORDER BY epoch",
            )
        };
        let rows = self.pool.rows(find).await?;
        let at = self.now();
        rows.iter()
            .map(|row| {
                Ok(TreeHead {
                    log: row.try_get("log").map_err(|error| unreadable(&error))?,
                    size: integer(row, "head_seq")?,
                    root: bytes32(row, "root")?,
                    head: bytes32(row, "head_hash")?,
                    epoch: self.state.epoch,
                    at,
                })
            })
            .collect()
    }

    async fn entries(
        &self,
        log: &str,
        from: u64,
        most: usize,
    ) -> Result<Vec<LogEntry>, StoreError> {
        self.state.check()?;
        let (epoch, _head) = head(&self.pool, log).await?;
        let find = || {
            query(
                "SELECT written_by, seq, at_ms, kind, durable_seq, prev, hash, payload FROM placet.entries \
                 WHERE epoch = $1 AND seq >= $2 ORDER BY seq LIMIT $3",
            )
            .bind(column(epoch))
            .bind(column(from))
            .bind(limit(most))
        };
        self.pool.rows(find).await?.iter().map(entry).collect()
    }

    async fn entries_about(&self, subject: &Subject) -> Result<Vec<(String, u64)>, StoreError> {
        self.state.check()?;
        let find = || {
            query(
                "SELECT e.log, s.seq FROM placet.subjects AS s JOIN placet.epochs AS e ON e.epoch = s.epoch \
                 WHERE s.subject = $1 ORDER BY s.epoch, s.seq",
            )
            .bind(subject.to_string())
        };
        self.pool.rows(find).await?.iter().map(place).collect()
    }

    async fn entry_of(&self, record_id: RecordId) -> Result<Option<(String, u64)>, StoreError> {
        self.state.check()?;
        let find = || {
            query(
                "SELECT o.log, e.seq FROM placet.effects AS e JOIN placet.epochs AS o ON o.epoch = e.epoch \
                 WHERE e.record_id = $1",
            )
            .bind(id_bytes(&record_id))
        };
        self.pool.rows(find).await?.first().map(place).transpose()
    }

    async fn inclusion(&self, log: &str, seq: u64, size: u64) -> Result<Vec<[u8; 32]>, StoreError> {
        self.state.check()?;
        let (proof, _leaf) = prove(&self.pool, log, |view| view.inclusion(seq, size)).await?;
        Ok(path(&proof.path))
    }

    async fn consistency(
        &self,
        log: &str,
        from: u64,
        to: u64,
    ) -> Result<Vec<[u8; 32]>, StoreError> {
        self.state.check()?;
        let proof = prove(&self.pool, log, |view| view.consistency(from, to)).await?;
        Ok(path(&proof.path))
    }
}
