//! Entries of the approval service as rows, and their lists.
//!
//! Owns the table's statements. The entry itself stands as JSON in one column; the others are copies for lists and conditions.
//! Invariant: a row is overwritten only if it is in the revision that was decided about.

use std::sync::Arc;

use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{AssertSqlSafe, Postgres, query, query::Query};

use placet_ledger::directive::{DIRECTIVE_VERSION, Directive};
use placet_ledger::store::{DirectiveQuery, StoreError};
use placet_types::ids::DirectiveId;

use super::pool::{Pool, Statement};
use super::read::{all, limit, one};
use super::rows::{RowError, column, every, parsed, place_of};

/// The entry of a row.
pub(super) fn of_row(row: &PgRow) -> Result<Directive, String> {
    let entry: Directive = parsed(row)?;
    if entry.version == DIRECTIVE_VERSION {
        Ok(entry)
    } else {
        Err(format!("a directive has the unknown version {}", entry.version))
    }
}

/// What orders entries: when they were made, then their id.
pub(super) fn place(entry: &Directive) -> Vec<u8> {
    place_of(entry.created_at, entry.directive_id.as_str())
}

/// Writes entries; each with the revision that the row has, 0 where there is none.
pub(super) async fn put(
    connection: &mut PgConnection,
    changed: &[(Arc<Directive>, u64)],
) -> Result<(), RowError> {
    for fresh in [true, false] {
        let rows: Vec<_> = changed.iter().filter(|(_, before)| (*before == 0) == fresh).collect();
        if rows.is_empty() {
            continue;
        }
        let done = statement(&rows, fresh)?.execute(&mut *connection).await?;
        every(done.rows_affected(), rows.len())?;
    }
    Ok(())
}

/// Deletes entries, each in the revision that was decided about.
pub(super) async fn delete(
    connection: &mut PgConnection,
    gone: &[Arc<Directive>],
) -> Result<(), RowError> {
    if gone.is_empty() {
        return Ok(());
    }
    let ids: Vec<String> =
        gone.iter().map(|entry| entry.directive_id.as_str().to_owned()).collect();
    let revs: Vec<i64> = gone.iter().map(|entry| column(entry.rev)).collect();
    let done = query(
        "DELETE FROM placet.directives AS d USING unnest($1::text[], $2::bigint[]) AS n (directive_id, rev) \
         WHERE d.directive_id = n.directive_id AND d.rev = n.rev",
    )
    .bind(ids)
    .bind(revs)
    .execute(connection)
    .await?;
    every(done.rows_affected(), gone.len())
}

type Put<'q> = Query<'q, Postgres, sqlx::postgres::PgArguments>;

fn statement(rows: &[&(Arc<Directive>, u64)], fresh: bool) -> Result<Put<'static>, RowError> {
    let records: Result<Vec<String>, _> =
        rows.iter().map(|(entry, _)| serde_json::to_string(&**entry)).collect();
    let records = records
        .map_err(|error| RowError::Damaged(format!("a directive has no JSON form: {error}")))?;
    let texts = |of: fn(&Directive) -> &str| -> Vec<String> {
        rows.iter().map(|(entry, _)| of(entry).to_owned()).collect()
    };
    let until: Vec<Option<i64>> =
        rows.iter().map(|(entry, _)| entry.open_until().map(|until| until.as_ms())).collect();
    let revs: Vec<i64> = rows.iter().map(|(entry, _)| column(entry.rev)).collect();
    let statement = if fresh {
        query(
            "INSERT INTO placet.directives (directive_id, rev, open_until_ms, record, tenant, kind, place) \
             SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::bytea[]) \
             ON CONFLICT (directive_id) DO NOTHING",
        )
    } else {
        query(
            "UPDATE placet.directives AS d SET rev = n.rev, open_until_ms = n.open_until_ms, record = n.record \
             FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::bigint[]) \
               AS n (directive_id, rev, open_until_ms, record, before) \
             WHERE d.directive_id = n.directive_id AND d.rev = n.before",
        )
    };
    let statement = statement
        .bind(texts(|entry| entry.directive_id.as_str()))
        .bind(revs)
        .bind(until)
        .bind(records);
    Ok(if fresh {
        statement
            .bind(texts(|entry| entry.tenant.as_str()))
            .bind(texts(|entry| entry.kind().as_str()))
            .bind(rows.iter().map(|(entry, _)| place(entry)).collect::<Vec<_>>())
    } else {
        statement.bind(rows.iter().map(|(_, before)| column(*before)).collect::<Vec<_>>())
    })
}

/// One entry.
pub(super) async fn entry(
    pool: &Pool,
    directive_id: &DirectiveId,
) -> Result<Option<Directive>, StoreError> {
    let id = directive_id.as_str().to_owned();
    let find =
        || query("SELECT record FROM placet.directives WHERE directive_id = $1").bind(id.clone());
    one(&pool.rows(find).await?, of_row)
}

/// Entries, in the order of their age.
pub(super) async fn entries(
    pool: &Pool,
    wanted: &DirectiveQuery,
) -> Result<Vec<Directive>, StoreError> {
    // Only the conditions that are asked for, so that the plan may use the index that serves them.
    // Every place begins with a time that is before the end of all times.
    let (sign, beyond, order) = if wanted.newest_first {
        ("<", "'\\xffffffffffffffffff'::bytea", " DESC")
    } else {
        (">", "''::bytea", "")
    };
    let mut sql = format!(
        "SELECT record FROM placet.directives \
         WHERE place {sign} coalesce((SELECT place FROM placet.directives WHERE directive_id = $1), {beyond})"
    );
    for (is_wanted, condition) in [
        (wanted.tenant.is_some(), " AND tenant = $3"),
        (wanted.kind.is_some(), " AND kind = $4"),
        (wanted.open_at.is_some(), " AND open_until_ms > $5"),
        (wanted.made_before.is_some(), " AND place < $6"),
    ] {
        if is_wanted {
            sql.push_str(condition);
        }
    }
    sql.push_str(&format!(" ORDER BY place{order} LIMIT $2"));
    let sql: Arc<str> = sql.into();
    let find = || -> Statement {
        query(AssertSqlSafe(Arc::clone(&sql)))
            .bind(wanted.after.as_ref().map(|after| after.as_str().to_owned()))
            .bind(limit(wanted.limit))
            .bind(wanted.tenant.as_ref().map(|tenant| tenant.as_str().to_owned()))
            .bind(wanted.kind.map(placet_types::directive::DirectiveKind::as_str))
            .bind(wanted.open_at.map(placet_types::clock::Timestamp::as_ms))
            .bind(wanted.made_before.map(|at| place_of(at, "")))
    };
    all(&pool.rows(find).await?, of_row)
}
