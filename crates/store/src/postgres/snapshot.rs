//! Everything in a database as it was at one moment.
//!
//! Owns the reading, page by page. Not here: the form of an export (`crate::transfer`), what is made of it (`transfer`). Invariant: all
//! pages are of the same moment.

use std::collections::BTreeSet;
use std::time::Duration;

use sqlx::postgres::{PgArguments, PgConnection, PgRow};
use sqlx::query::Query;
use sqlx::{Postgres, Row as _, query, raw_sql};
use tokio::time::timeout;

use placet_ledger::approval::ApprovalRecord;
use placet_ledger::directive::Directive;
use placet_ledger::log::LogEntry;
use placet_ledger::record::EffectRecord;
use placet_ledger::run::RunRecord;
use placet_ledger::store::StoreError;
use placet_types::digest::Digest;
use placet_types::ids::TenantId;

use super::config::LEASE_MAX;
use super::connect::{Connector, Purpose};
use super::directives;
use super::error::Trouble;
use super::limits::{self, Kind, Limits};
use super::log::{bytes32, entry, integer};
use super::read::{all, limit, unreadable};
use super::rows::{self, column};
use crate::transfer::ExportedLog;

/// How long one statement may take before the database counts as silent.
const ROWS: Duration = Duration::from_mins(10);

pub(super) fn of_sql(error: &sqlx::Error) -> StoreError {
    Trouble::of(error).for_reader()
}

/// A table of records, and the order in which it is read.
pub(super) struct Table<T> {
    sql: &'static str,
    of_row: fn(&PgRow) -> Result<T, String>,
    /// What a record is behind of in that order.
    pub(super) key: fn(&T) -> Result<Vec<u8>, String>,
}

pub(super) const EFFECTS: Table<EffectRecord> = Table {
    sql: "SELECT record FROM placet.effects WHERE record_id > $1 ORDER BY record_id LIMIT $2",
    of_row: rows::effect,
    key: |record| Ok(rows::id_bytes(&record.record_id)),
};

pub(super) const APPROVALS: Table<ApprovalRecord> = Table {
    sql: "SELECT record FROM placet.approvals WHERE place > $1 ORDER BY place LIMIT $2",
    of_row: rows::approval,
    key: |approval| Ok(rows::place(approval.created_at, &approval.approval_id)),
};

pub(super) const DIRECTIVES: Table<Directive> = Table {
    sql: "SELECT record FROM placet.directives WHERE place > $1 ORDER BY place LIMIT $2",
    of_row: directives::of_row,
    key: |directive| Ok(directives::place(directive)),
};

pub(super) const RUNS: Table<RunRecord> = Table {
    sql: "SELECT record FROM placet.runs WHERE run_key > $1 ORDER BY run_key LIMIT $2",
    of_row: rows::run,
    key: |run| rows::run_key(&run.key),
};

/// Everything in the database as it was at one moment. It should not be kept for long: the server keeps old versions of rows for it.
#[derive(Debug)]
pub(super) struct Snapshot {
    connection: PgConnection,
}

/// The end of a log, as the database says it.
#[derive(Debug)]
pub(super) struct SnapshotLog {
    pub(super) log: String,
    pub(super) size: u64,
    pub(super) head: [u8; 32],
    pub(super) root: Digest,
}

impl Snapshot {
    /// Takes a snapshot, which later changes do not reach.
    pub(super) async fn take(connector: &Connector) -> Result<Self, StoreError> {
        let mut connection = connector.connect(Purpose::Writing).await?;
        // The moment is that of the first statement.
        let limits = Limits { lock: connector.wait(), silence: LEASE_MAX, statement: None };
        let begun = limits::begin(&mut connection, Kind::Snapshot, limits).await;
        begun.map_err(|error| of_sql(&error))?;
        let first = raw_sql("SELECT 1 FROM placet.ledger").execute(&mut connection).await;
        first.map_err(|error| of_sql(&error))?;
        Ok(Self { connection })
    }

    /// The rows that a statement finds.
    pub(super) async fn rows(
        &mut self,
        find: Query<'_, Postgres, PgArguments>,
    ) -> Result<Vec<PgRow>, StoreError> {
        match timeout(ROWS, find.fetch_all(&mut self.connection)).await {
            Ok(found) => found.map_err(|error| of_sql(&error)),
            Err(_elapsed) => {
                Err(StoreError::Unreachable("the database has fallen silent".to_owned()))
            }
        }
    }

    /// The logs that have entries, in the order of their epochs.
    pub(super) async fn logs(&mut self) -> Result<Vec<ExportedLog>, StoreError> {
        let ends = self.ends().await?;
        let exported = |end: SnapshotLog| ExportedLog {
            log: end.log,
            size: end.size,
            head: hex::encode(end.head),
        };
        Ok(ends.into_iter().filter(|end| end.size > 0).map(exported).collect())
    }

    /// How each log ends, in the order of their epochs.
    pub(super) async fn ends(&mut self) -> Result<Vec<SnapshotLog>, StoreError> {
        let find = query("SELECT log, head_seq, head_hash, root FROM placet.epochs ORDER BY epoch");
        let rows = self.rows(find).await?;
        rows.iter()
            .map(|row| {
                Ok(SnapshotLog {
                    log: row.try_get("log").map_err(|error| unreadable(&error))?,
                    size: integer(row, "head_seq")?,
                    head: bytes32(row, "head_hash")?,
                    root: Digest::from_bytes(bytes32(row, "root")?),
                })
            })
            .collect()
    }

    /// Up to `most` entries of a log from `from` on.
    pub(super) async fn entries(
        &mut self,
        log: &str,
        from: u64,
        most: usize,
    ) -> Result<Vec<LogEntry>, StoreError> {
        let find = query(
            "SELECT written_by, seq, at_ms, kind, durable_seq, prev, hash, payload FROM placet.entries \
             WHERE epoch = (SELECT epoch FROM placet.epochs WHERE log = $1) AND seq >= $2 ORDER BY seq LIMIT $3",
        );
        let find = find.bind(log).bind(column(from)).bind(limit(most));
        let rows = self.rows(find).await?;
        rows.iter().map(entry).collect()
    }

    /// Up to `most` records of a table behind `after`, which is the key of the last one of the page before.
    pub(super) async fn records<T>(
        &mut self,
        table: &Table<T>,
        after: Vec<u8>,
        most: usize,
    ) -> Result<Vec<T>, StoreError> {
        let rows = self.rows(query(table.sql).bind(after).bind(limit(most))).await?;
        all(&rows, table.of_row)
    }

    /// Which contents of a page of records are not there. What approvers were shown is not asked for: it may be deleted while the approval
    /// stays.
    pub(super) async fn lost(
        &mut self,
        records: &[EffectRecord],
    ) -> Result<Vec<(TenantId, Digest)>, StoreError> {
        let named: BTreeSet<(&str, Digest)> = records
            .iter()
            .flat_map(|record| {
                let tenant = record.scope.tenant.as_str();
                record.contents().map(move |digest| (tenant, digest))
            })
            .collect();
        let (tenants, digests): (Vec<&str>, Vec<Vec<u8>>) =
            named.iter().map(|(tenant, digest)| (*tenant, digest.as_bytes().to_vec())).unzip();
        let find = query(
            "SELECT n.tenant, n.digest FROM unnest($1::text[], $2::bytea[]) AS n (tenant, digest) WHERE NOT EXISTS \
               (SELECT 1 FROM placet.content AS c WHERE c.tenant = n.tenant AND c.digest = n.digest)",
        );
        let rows = self.rows(find.bind(tenants).bind(digests)).await?;
        let lost = |row: &PgRow| Ok((tenant_of(row)?, Digest::from_bytes(bytes32(row, "digest")?)));
        rows.iter().map(lost).collect()
    }

    /// Up to `most` contents after the one of a tenant and digest; each is checked against its digest.
    pub(super) async fn contents(
        &mut self,
        after: Option<&(TenantId, Digest)>,
        most: usize,
    ) -> Result<Vec<(TenantId, Vec<u8>)>, StoreError> {
        let (tenant, digest) = match after {
            Some((tenant, digest)) => (tenant.as_str(), digest.as_bytes().as_slice()),
            None => ("", [].as_slice()),
        };
        let find = query(
            "SELECT tenant, digest, bytes FROM placet.content WHERE (tenant, digest) > ($1, $2) ORDER BY tenant, digest LIMIT $3",
        );
        let find = find.bind(tenant).bind(digest).bind(limit(most));
        let rows = self.rows(find).await?;
        let content = |row: &PgRow| {
            let bytes: Vec<u8> = row.try_get("bytes").map_err(|error| unreadable(&error))?;
            let digest = Digest::from_bytes(bytes32(row, "digest")?);
            if Digest::of(&bytes) != digest {
                return Err(StoreError::ContentAltered(digest));
            }
            Ok((tenant_of(row)?, bytes))
        };
        rows.iter().map(content).collect()
    }
}

fn tenant_of(row: &PgRow) -> Result<TenantId, StoreError> {
    let tenant: String = row.try_get("tenant").map_err(|error| unreadable(&error))?;
    TenantId::new(tenant)
        .map_err(|_wrong| StoreError::Damaged("a content has a tenant that is none".to_owned()))
}
