//! How much is in a database, counted as of one moment.
//!
//! Owns the statement. It reads whole tables, and changes nothing.

use sqlx::{Row as _, query};

use placet_ledger::store::StoreError;

use super::config::PostgresConfig;
use super::connect::Connector;
use super::log::integer;
use super::read::unreadable;
use super::snapshot::Snapshot;
use crate::stats::StoreStats;

const COUNT: &str = "\
    SELECT 'record' AS kind, state AS name, count(*) AS many FROM placet.effects GROUP BY state \
    UNION ALL SELECT 'approval', state, count(*) FROM placet.approvals GROUP BY state \
    UNION ALL SELECT 'entries', '', coalesce(sum(head_seq), 0)::bigint FROM placet.epochs \
    UNION ALL SELECT 'directives', '', count(*) FROM placet.directives \
    UNION ALL SELECT 'runs', '', count(*) FROM placet.runs \
    UNION ALL SELECT 'contents', '', count(*) FROM placet.content \
    UNION ALL SELECT 'messages', '', count(*) FROM placet.outbox \
    UNION ALL SELECT 'bytes', relname::text, pg_total_relation_size(oid) FROM pg_class \
      WHERE relnamespace = 'placet'::regnamespace AND relkind = 'r'";

/// Counts what the tables hold; nodes may be at work meanwhile.
///
/// # Errors
/// [`StoreError`] when the database cannot be asked, or has no ledger.
pub async fn stats(config: &PostgresConfig) -> Result<StoreStats, StoreError> {
    let connector = Connector::new(config.url.clone(), config.wait);
    let mut snapshot = Snapshot::take(&connector).await?;
    let mut stats = StoreStats::default();
    for row in snapshot.rows(query(COUNT)).await? {
        let text = |column| row.try_get::<String, _>(column).map_err(|error| unreadable(&error));
        let (kind, name, many) = (text("kind")?, text("name")?, integer(&row, "many")?);
        match kind.as_str() {
            "record" => drop(stats.records.insert(name, many)),
            "approval" => drop(stats.approvals.insert(name, many)),
            "bytes" => drop(stats.bytes.insert(name, many)),
            "entries" => stats.entries = many,
            "directives" => stats.directives = many,
            "runs" => stats.runs = many,
            "contents" => stats.contents = many,
            _ => stats.messages = many,
        }
    }
    Ok(stats)
}
