//! Look-ups and lists.
//!
//! Owns their statements. Invariant: what is answered was committed; rows are in the order that the trait promises, by bytes and not by a
//! language's rules.

use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Encode, Postgres, Type, query};

use placet_ledger::approval::ApprovalRecord;
use placet_ledger::record::EffectRecord;
use placet_ledger::store::{ApprovalMark, ApprovalQuery, EffectQuery, StoreError};
use placet_types::clock::Timestamp;
use placet_types::ids::RecordId;

use super::pool::{Pool, Statement};
use super::rows::{self, column};

pub(super) fn one<T>(
    rows: &[PgRow],
    of: fn(&PgRow) -> Result<T, String>,
) -> Result<Option<T>, StoreError> {
    rows.first().map(of).transpose().map_err(StoreError::Damaged)
}

/// The first row that a statement finds by one key.
pub(super) async fn find<K, T>(
    pool: &Pool,
    sql: &'static str,
    key: K,
    of: fn(&PgRow) -> Result<T, String>,
) -> Result<Option<T>, StoreError>
where
    K: Encode<'static, Postgres> + Type<Postgres> + Clone + Send + Sync + 'static,
{
    one(&pool.rows(|| query(sql).bind(key.clone())).await?, of)
}

pub(super) fn all<T>(
    rows: &[PgRow],
    of: fn(&PgRow) -> Result<T, String>,
) -> Result<Vec<T>, StoreError> {
    rows.iter().map(of).collect::<Result<_, _>>().map_err(StoreError::Damaged)
}

pub(super) fn unreadable(error: &sqlx::Error) -> StoreError {
    StoreError::Damaged(error.to_string())
}

/// A limit as a database number.
pub(super) fn limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// An effect record.
pub(super) async fn effect(
    pool: &Pool,
    record_id: &RecordId,
) -> Result<Option<EffectRecord>, StoreError> {
    let sql = "SELECT record FROM placet.effects WHERE record_id = $1";
    find(pool, sql, rows::id_bytes(record_id), rows::effect).await
}

/// Whether records in this state have no end yet.
fn is_unsettled(state: &str) -> bool {
    ["pending_approval", "approved", "dispatched", "rearmed", "indeterminate"].contains(&state)
}

pub(super) async fn effects(
    pool: &Pool,
    wanted: &EffectQuery,
    epoch: u64,
) -> Result<Vec<EffectRecord>, StoreError> {
    // Only the conditions that are asked for, so that the plan may use the index that serves them.
    let mut sql = "SELECT e.record FROM placet.effects e".to_owned();
    if wanted.orphaned {
        sql.push_str(" LEFT JOIN placet.epochs o ON o.epoch = e.owner");
    }
    sql.push_str(" WHERE (e.updated_ms, e.record_id) > ($7, $1)");
    for (is_wanted, condition) in [
        (wanted.tenant.is_some(), " AND e.tenant = $3"),
        (wanted.state.is_some(), " AND e.state = $4"),
        // True of all of them; said so that the plan may use the small index of unsettled records.
        (wanted.state.as_deref().is_some_and(is_unsettled), " AND NOT e.is_settled"),
        (wanted.open_only, " AND NOT e.is_settled AND e.is_open"),
        (
            wanted.orphaned,
            " AND NOT e.is_settled AND e.owner IS NOT NULL AND e.owner <> $5 \
              AND (o.epoch IS NULL OR o.fenced_by IS NOT NULL OR o.closed_ms IS NOT NULL)",
        ),
        (wanted.settled_before.is_some(), " AND e.is_settled AND e.updated_ms < $6"),
    ] {
        if is_wanted {
            sql.push_str(condition);
        }
    }
    sql.push_str(" ORDER BY e.updated_ms, e.record_id LIMIT $2");
    let sql: std::sync::Arc<str> = sql.into();
    let find = || -> Statement {
        query(AssertSqlSafe(std::sync::Arc::clone(&sql)))
            .bind(wanted.after.map(|after| rows::id_bytes(&after.record_id)).unwrap_or_default())
            .bind(limit(wanted.limit))
            .bind(wanted.tenant.as_ref().map(|tenant| tenant.as_str().to_owned()))
            .bind(wanted.state.clone())
            .bind(column(epoch))
            .bind(wanted.settled_before.map(Timestamp::as_ms))
            .bind(wanted.after.map_or(i64::MIN, |after| after.updated_at.as_ms()))
    };
    all(&pool.rows(find).await?, rows::effect)
}

/// The statement for a list of approvals, with only the conditions that are asked for, so that the plan may use the index that
/// serves them.
pub(super) fn approvals_sql(wanted: &ApprovalQuery) -> String {
    list_sql("a.record", wanted)
}

/// How a list is paged: the comparison with the last place, the value before every place, and the order.
pub(super) const fn walk(newest_first: bool) -> (&'static str, &'static str, &'static str) {
    // Every place begins with a time that is before the maximum time.
    if newest_first {
        ("<", "'\\xffffffffffffffffff'::bytea", " DESC")
    } else {
        (">", "''::bytea", "")
    }
}

fn list_sql(columns: &str, wanted: &ApprovalQuery) -> String {
    let (sign, beyond, order) = walk(wanted.newest_first);
    // An external tenant's list is as long as what its tenant is asked about, so its places are walked: of one state alone, where one is asked for.
    let (from, listed) = if wanted.external.is_some() {
        ("placet.external_approvals AS g JOIN placet.approvals AS a USING (approval_id)", "g.place")
    } else {
        ("placet.approvals AS a", "a.place")
    };
    let mut sql = format!(
        "SELECT {columns} FROM {from} \
         WHERE {listed} {sign} coalesce((SELECT place FROM placet.approvals WHERE approval_id = $1), {beyond})"
    );
    for (is_wanted, condition) in [
        (wanted.tenant.is_some(), " AND a.tenant = $3"),
        (wanted.state.is_some(), " AND a.state = $4"),
        (wanted.decided, " AND a.state <> 'pending'"),
        (wanted.capability.is_some(), " AND (a.record::json) ->> 'capability' = $5"),
        (wanted.external.is_some(), " AND g.tenant = $6"),
        (wanted.external.is_some() && wanted.state.is_some(), " AND g.state = $4"),
    ] {
        if is_wanted {
            sql.push_str(condition);
        }
    }
    sql.push_str(" ORDER BY ");
    sql.push_str(listed);
    sql.push_str(order);
    sql.push_str(" LIMIT $2");
    sql
}

pub(super) async fn approvals(
    pool: &Pool,
    wanted: &ApprovalQuery,
) -> Result<Vec<ApprovalRecord>, StoreError> {
    all(&listed(pool, approvals_sql(wanted), wanted).await?, rows::approval)
}

/// Approvals in short form, without reading the records, which make up most of a row.
pub(super) async fn approval_marks(
    pool: &Pool,
    wanted: &ApprovalQuery,
) -> Result<Vec<ApprovalMark>, StoreError> {
    let sql = list_sql("a.approval_id, a.rev", wanted);
    all(&listed(pool, sql, wanted).await?, rows::approval_mark)
}

async fn listed(
    pool: &Pool,
    sql: String,
    wanted: &ApprovalQuery,
) -> Result<Vec<PgRow>, StoreError> {
    let sql: std::sync::Arc<str> = sql.into();
    let find = || -> Statement {
        query(AssertSqlSafe(std::sync::Arc::clone(&sql)))
            .bind(wanted.after.as_ref().map(|after| after.as_str().to_owned()))
            .bind(limit(wanted.limit))
            .bind(wanted.tenant.as_ref().map(|tenant| tenant.as_str().to_owned()))
            .bind(wanted.state.clone())
            .bind(wanted.capability.as_ref().map(ToString::to_string))
            .bind(wanted.external.as_ref().map(|external| external.as_str().to_owned()))
    };
    pool.rows(find).await
}
