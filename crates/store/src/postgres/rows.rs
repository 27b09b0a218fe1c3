//! Records as rows: reading them back, and writing what a batch made of them.
//!
//! Owns the columns. The record itself is JSON in one of them; the others are copies for look-ups and conditions. Invariant: a row is
//! overwritten only if it is in the revision that was decided about.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{AssertSqlSafe, Row as _, query};

use placet_ledger::approval::{APPROVAL_VERSION, ApprovalRecord};
use placet_ledger::record::{EffectRecord, EffectState, RECORD_VERSION};
use placet_ledger::run::{RunKey, RunRecord};
use placet_ledger::store::ApprovalMark;
use placet_types::clock::Timestamp;
use placet_types::digest::Digest;
use placet_types::ids::{ApprovalId, RecordId};

use super::error::Hitch;

pub(super) fn parsed<T: DeserializeOwned>(row: &PgRow) -> Result<T, String> {
    let text: &str = row.try_get("record").map_err(|error| error.to_string())?;
    serde_json::from_str(text).map_err(|error| format!("a record cannot be read: {error}"))
}

pub(super) fn json(record: &impl Serialize) -> Result<String, Hitch> {
    serde_json::to_string(record)
        .map_err(|error| Hitch::damaged(format!("a record has no JSON form: {error}")))
}

/// The effect record of a row.
pub(super) fn effect(row: &PgRow) -> Result<EffectRecord, String> {
    let record: EffectRecord = parsed(row)?;
    if record.version == RECORD_VERSION {
        Ok(record)
    } else {
        Err(format!("a record has the unknown version {}", record.version))
    }
}

/// The approval of a row.
pub(super) fn approval(row: &PgRow) -> Result<ApprovalRecord, String> {
    let record: ApprovalRecord = parsed(row)?;
    if record.version == APPROVAL_VERSION {
        Ok(record)
    } else {
        Err(format!("an approval has the unknown version {}", record.version))
    }
}

/// The approval of a row, in short.
pub(super) fn approval_mark(row: &PgRow) -> Result<ApprovalMark, String> {
    let id: &str = row.try_get("approval_id").map_err(|error| error.to_string())?;
    let rev: i64 = row.try_get("rev").map_err(|error| error.to_string())?;
    let approval_id = ApprovalId::new(id).map_err(|error| error.to_string())?;
    Ok(ApprovalMark { approval_id, rev: number(rev) })
}

/// The run of a row.
pub(super) fn run(row: &PgRow) -> Result<RunRecord, String> {
    parsed(row)
}

pub(super) fn id_bytes(record_id: &RecordId) -> Vec<u8> {
    record_id.digest().as_bytes().to_vec()
}

/// The key of a run's row.
pub(super) fn run_key(key: &RunKey) -> Result<Vec<u8>, String> {
    let json =
        serde_json::to_vec(key).map_err(|error| format!("a run has no JSON form: {error}"))?;
    Ok(Digest::of(&json).as_bytes().to_vec())
}

/// The sort key of approvals: when they were requested, then their id.
pub(super) fn place(created_at: Timestamp, approval_id: &ApprovalId) -> Vec<u8> {
    place_of(created_at, approval_id.as_str())
}

/// The sort key of a time, then an id.
pub(super) fn place_of(created_at: Timestamp, id: &str) -> Vec<u8> {
    // With its sign turned, a number's bytes are in the order of the numbers.
    let mut place = (created_at.as_ms() ^ i64::MIN).to_be_bytes().to_vec();
    place.extend_from_slice(id.as_bytes());
    place
}

/// A number for a column, capped at the column's maximum.
pub(super) fn column(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A number from a column; negative values do not occur.
pub(super) fn number(column: i64) -> u64 {
    u64::try_from(column).unwrap_or(0)
}

/// The entry that makes records what they become.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) epoch: u64,
    pub(super) seq: u64,
}

/// The rows that a statement about effects writes, in the order of their columns in [`EffectRows`].
const EFFECT_ROWS: &str = "WITH n (record_id, before, tenant, call_id, state, is_open, is_settled, owner, rev, updated_ms, epoch, seq, \
       record) AS (SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::boolean[], \
         $7::boolean[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::text[]))";

/// Effect records to be written, column by column.
#[derive(Debug, Default)]
pub(super) struct EffectRows {
    record_id: Vec<Vec<u8>>,
    before: Vec<i64>,
    tenant: Vec<String>,
    call_id: Vec<String>,
    state: Vec<&'static str>,
    is_open: Vec<bool>,
    is_settled: Vec<bool>,
    owner: Vec<Option<i64>>,
    rev: Vec<i64>,
    updated_ms: Vec<i64>,
    epoch: Vec<i64>,
    seq: Vec<i64>,
    record: Vec<String>,
}

impl EffectRows {
    /// Adds a record whose row has the revision `before`.
    pub(super) fn push(
        &mut self,
        record: &EffectRecord,
        before: u64,
        entry: Entry,
    ) -> Result<(), Hitch> {
        let buried = matches!(record.state, EffectState::Tombstone { .. });
        let mut owner = None;
        if let EffectState::Dispatched(attempt) = &record.state {
            owner = Some(column(attempt.duty()));
        }
        self.record_id.push(id_bytes(&record.record_id));
        self.before.push(column(before));
        self.tenant.push(record.scope.tenant.as_str().to_owned());
        self.call_id.push(record.call_id.as_str().to_owned());
        self.state.push(record.state.name());
        self.is_open.push(record.state.is_open());
        self.is_settled.push(record.state.is_settled() || buried);
        self.owner.push(owner);
        self.rev.push(column(record.rev));
        self.updated_ms.push(record.updated_at.as_ms());
        self.epoch.push(column(entry.epoch));
        self.seq.push(column(entry.seq));
        self.record.push(json(record)?);
        Ok(())
    }

    /// Inserts new rows.
    pub(super) async fn insert(self, connection: &mut PgConnection) -> Result<(), Hitch> {
        let statement = "INSERT INTO placet.effects (record_id, tenant, call_id, state, is_open, is_settled, owner, rev, \
             updated_ms, epoch, seq, record) \
           SELECT record_id, tenant, call_id, state, is_open, is_settled, owner, rev, updated_ms, epoch, seq, record FROM n \
           ON CONFLICT (record_id) DO NOTHING";
        self.write(connection, statement).await
    }

    /// Fills rows that an import has reserved; they name their entries already.
    pub(super) async fn fill(self, connection: &mut PgConnection) -> Result<(), Hitch> {
        let statement = "UPDATE placet.effects AS e SET tenant = n.tenant, call_id = n.call_id, state = n.state, \
             is_open = n.is_open, is_settled = n.is_settled, owner = n.owner, updated_ms = n.updated_ms, record = n.record \
           FROM n WHERE e.record_id = n.record_id AND e.rev = n.rev AND e.record = ''";
        self.write(connection, statement).await
    }

    /// Updates existing rows.
    pub(super) async fn update(self, connection: &mut PgConnection) -> Result<(), Hitch> {
        let statement = "UPDATE placet.effects AS e SET state = n.state, is_open = n.is_open, is_settled = n.is_settled, \
             owner = n.owner, rev = n.rev, updated_ms = n.updated_ms, epoch = n.epoch, seq = n.seq, record = n.record \
           FROM n WHERE e.record_id = n.record_id AND e.rev = n.before";
        self.write(connection, statement).await
    }

    /// Runs a statement about these rows, which it knows as `n`; it has to write all of them.
    async fn write(
        self,
        connection: &mut PgConnection,
        statement: &'static str,
    ) -> Result<(), Hitch> {
        let rows = self.record_id.len();
        if rows == 0 {
            return Ok(());
        }
        let done = query(AssertSqlSafe(format!("{EFFECT_ROWS} {statement}")))
            .bind(self.record_id)
            .bind(self.before)
            .bind(self.tenant)
            .bind(self.call_id)
            .bind(self.state)
            .bind(self.is_open)
            .bind(self.is_settled)
            .bind(self.owner)
            .bind(self.rev)
            .bind(self.updated_ms)
            .bind(self.epoch)
            .bind(self.seq)
            .bind(self.record)
            .execute(connection)
            .await?;
        every(done.rows_affected(), rows)
    }
}

/// Deletes effect records that are in these revisions.
pub(super) async fn delete_effects(
    connection: &mut PgConnection,
    gone: &[(RecordId, u64)],
) -> Result<(), Hitch> {
    if gone.is_empty() {
        return Ok(());
    }
    let (ids, revs): (Vec<Vec<u8>>, Vec<i64>) =
        gone.iter().map(|(record_id, rev)| (id_bytes(record_id), column(*rev))).unzip();
    let done = query(
        "DELETE FROM placet.effects AS e USING unnest($1::bytea[], $2::bigint[]) AS n (record_id, rev) \
         WHERE e.record_id = n.record_id AND e.rev = n.rev",
    )
    .bind(ids)
    .bind(revs)
    .execute(connection)
    .await?;
    every(done.rows_affected(), gone.len())
}

/// Writes approvals; each with the revision that the row has, 0 where there is none. A row that is there was locked when it was read, so none
/// that was deleted meanwhile comes back.
pub(super) async fn put_approvals(
    connection: &mut PgConnection,
    changed: &[(Arc<ApprovalRecord>, u64)],
) -> Result<(), Hitch> {
    if changed.is_empty() {
        return Ok(());
    }
    let rows: Vec<&ApprovalRecord> = changed.iter().map(|(approval, _)| &**approval).collect();
    let texts = |of: fn(&ApprovalRecord) -> &str| -> Vec<&str> {
        rows.iter().map(|approval| of(approval)).collect()
    };
    let done = query(
        "INSERT INTO placet.approvals AS a (approval_id, state, rev, record, record_id, call_id, tenant, place) \
         SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::bytea[], $6::text[], $7::text[], \
           $8::bytea[]) \
         ON CONFLICT (approval_id) DO UPDATE SET state = excluded.state, rev = excluded.rev, record = excluded.record \
         WHERE a.rev = (SELECT n.before FROM unnest($1::text[], $9::bigint[]) AS n (approval_id, before) \
           WHERE n.approval_id = a.approval_id)",
    )
    .bind(texts(|approval| approval.approval_id.as_str()))
    .bind(texts(|approval| approval.state.name()))
    .bind(rows.iter().map(|approval| column(approval.rev)).collect::<Vec<_>>())
    .bind(rows.iter().copied().map(json).collect::<Result<Vec<_>, _>>()?)
    .bind(rows.iter().map(|approval| id_bytes(&approval.record_id)).collect::<Vec<_>>())
    .bind(texts(|approval| approval.call_id.as_str()))
    .bind(texts(|approval| approval.chain.tenant().as_str()))
    .bind(rows.iter().map(|it| place(it.created_at, &it.approval_id)).collect::<Vec<_>>())
    .bind(changed.iter().map(|(_, before)| column(*before)).collect::<Vec<_>>())
    .execute(&mut *connection)
    .await?;
    every(done.rows_affected(), rows.len())?;
    Asked::of(rows.into_iter()).put(connection).await
}

/// Deletes approvals, each in the revision that was decided about, and their places in the lists of external tenants.
pub(super) async fn delete_approvals(
    connection: &mut PgConnection,
    gone: &[Arc<ApprovalRecord>],
) -> Result<(), Hitch> {
    if gone.is_empty() {
        return Ok(());
    }
    let asked = Asked::of(gone.iter().map(|approval| &**approval));
    query(
        "DELETE FROM placet.external_approvals AS g USING unnest($1::text[], $2::bytea[]) AS n (tenant, place) \
         WHERE g.tenant = n.tenant AND g.place = n.place",
    )
    .bind(asked.tenants)
    .bind(asked.places)
    .execute(&mut *connection)
    .await?;
    let ids: Vec<String> = gone.iter().map(|one| one.approval_id.as_str().to_owned()).collect();
    let revs: Vec<i64> = gone.iter().map(|one| column(one.rev)).collect();
    let done = query(
        "DELETE FROM placet.approvals AS a USING unnest($1::text[], $2::bigint[]) AS n (approval_id, rev) \
         WHERE a.approval_id = n.approval_id AND a.rev = n.rev",
    )
    .bind(ids)
    .bind(revs)
    .execute(connection)
    .await?;
    every(done.rows_affected(), gone.len())
}

/// The other tenants that approvals ask, and the approvals' states.
#[derive(Debug, Default)]
struct Asked {
    tenants: Vec<String>,
    places: Vec<Vec<u8>>,
    states: Vec<String>,
    ids: Vec<String>,
}

impl Asked {
    fn of<'a>(approvals: impl Iterator<Item = &'a ApprovalRecord>) -> Self {
        let mut asked = Self::default();
        for approval in approvals {
            for external in &approval.external_tenants {
                asked.tenants.push(external.as_str().to_owned());
                asked.places.push(place(approval.created_at, &approval.approval_id));
                asked.states.push(approval.state.name().to_owned());
                asked.ids.push(approval.approval_id.as_str().to_owned());
            }
        }
        asked
    }

    /// Writes these for approvals that are new or have moved.
    async fn put(self, connection: &mut PgConnection) -> Result<(), Hitch> {
        if self.tenants.is_empty() {
            return Ok(());
        }
        query(
            "INSERT INTO placet.external_approvals AS g (tenant, place, state, approval_id) \
             SELECT * FROM unnest($1::text[], $2::bytea[], $3::text[], $4::text[]) \
             ON CONFLICT (tenant, place) DO UPDATE SET state = excluded.state WHERE g.state <> excluded.state",
        )
        .bind(self.tenants)
        .bind(self.places)
        .bind(self.states)
        .bind(self.ids)
        .execute(connection)
        .await?;
        Ok(())
    }
}

/// Writes runs; each with whether there is a row already.
pub(super) async fn put_runs(
    connection: &mut PgConnection,
    changed: &[(Arc<RunRecord>, bool)],
) -> Result<(), Hitch> {
    for there in [false, true] {
        let mut rows = Vec::new();
        for (run, _) in changed.iter().filter(|(_, before)| *before == there) {
            let key = run_key(&run.key).map_err(Hitch::damaged)?;
            rows.push((key, json(&**run)?));
        }
        if rows.is_empty() {
            continue;
        }
        rows.sort_unstable();
        let count = rows.len();
        let (keys, records): (Vec<Vec<u8>>, Vec<String>) = rows.into_iter().unzip();
        let statement = if there {
            query(
                "UPDATE placet.runs AS r SET record = n.record FROM unnest($1::bytea[], $2::text[]) AS n (run_key, record) \
                 WHERE r.run_key = n.run_key",
            )
        } else {
            query(
                "INSERT INTO placet.runs (run_key, record) SELECT * FROM unnest($1::bytea[], $2::text[]) \
                 ON CONFLICT (run_key) DO NOTHING",
            )
        };
        let done = statement.bind(keys).bind(records).execute(&mut *connection).await?;
        every(done.rows_affected(), count)?;
    }
    Ok(())
}

/// Checks that all rows were written.
pub(super) fn every(affected: u64, rows: usize) -> Result<(), Hitch> {
    if usize::try_from(affected) == Ok(rows) { Ok(()) } else { Err(Hitch::Again) }
}
