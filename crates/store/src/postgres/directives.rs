//! Entries of the approval service as rows, and their lists.
//!
//! Owns the table's statements. The entry itself is JSON in one column; the others are copies for lists and conditions.
//! Invariant: a row is overwritten only if it is in the revision that was decided about.

use std::sync::Arc;

use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{AssertSqlSafe, query};

use placet_ledger::directive::{DIRECTIVE_VERSION, Directive};
use placet_ledger::store::{DirectiveQuery, StoreError};
use placet_types::ids::DirectiveId;

use super::error::Hitch;
use super::pool::{Pool, Statement};
use super::read::{all, find, limit, walk};
use super::rows::{column, every, json, parsed, place_of};

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

/// Writes entries; each with the revision that the row has, 0 where there is none. There are few, so each has a statement of its own.
pub(super) async fn put(
    connection: &mut PgConnection,
    changed: &[(Arc<Directive>, u64)],
) -> Result<(), Hitch> {
    for (entry, before) in changed {
        let put = query(
            "INSERT INTO placet.directives AS d (directive_id, rev, open_until_ms, record, tenant, kind, place) \
             VALUES ($1, $2, $3, $4, $5, $6, $7) \
             ON CONFLICT (directive_id) DO UPDATE SET rev = excluded.rev, open_until_ms = excluded.open_until_ms, \
               record = excluded.record WHERE d.rev = $8",
        )
        .bind(entry.directive_id.as_str())
        .bind(column(entry.rev))
        .bind(entry.open_until().map(|until| until.as_ms()))
        .bind(json(&**entry)?)
        .bind(entry.tenant.as_str())
        .bind(entry.kind().as_str())
        .bind(place(entry))
        .bind(column(*before));
        every(put.execute(&mut *connection).await?.rows_affected(), 1)?;
    }
    Ok(())
}

/// Deletes entries, each in the revision that was decided about.
pub(super) async fn delete(
    connection: &mut PgConnection,
    gone: &[Arc<Directive>],
) -> Result<(), Hitch> {
    for entry in gone {
        let delete = query("DELETE FROM placet.directives WHERE directive_id = $1 AND rev = $2")
            .bind(entry.directive_id.as_str())
            .bind(column(entry.rev));
        every(delete.execute(&mut *connection).await?.rows_affected(), 1)?;
    }
    Ok(())
}

/// One entry.
pub(super) async fn entry(
    pool: &Pool,
    directive_id: &DirectiveId,
) -> Result<Option<Directive>, StoreError> {
    let sql = "SELECT record FROM placet.directives WHERE directive_id = $1";
    find(pool, sql, directive_id.as_str().to_owned(), of_row).await
}

/// Entries, in the order of their age.
pub(super) async fn entries(
    pool: &Pool,
    wanted: &DirectiveQuery,
) -> Result<Vec<Directive>, StoreError> {
    // Only the conditions that are asked for, so that the plan may use the index that serves them.
    let (sign, beyond, order) = walk(wanted.newest_first);
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
