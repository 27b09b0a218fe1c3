//! The tables: creating them, and refusing those of another build.
//!
//! Owns the schema. No advisory locks: of nodes that create the tables at once, the server's own catalogue lets one through, since that
//! works on every server that speaks the protocol and through every pooler. Invariant: the tables all exist and are those of this build, or
//! the store does not start.

use sha2::{Digest as _, Sha256};
use sqlx::postgres::PgConnection;
use sqlx::{Row as _, query, raw_sql};

use super::config::PostgresConfig;
use super::error::OpenError;
use super::limits::{self, Kind, LOCK, Limits, Tries};

const SCHEMA: &str = include_str!("schema.sql");

/// Makes the tables where they are missing; those of another build are refused.
pub(super) async fn make(
    connection: &mut PgConnection,
    config: &PostgresConfig,
) -> Result<(), OpenError> {
    if are_there(connection).await? {
        return Ok(());
    }
    let limits = Limits { lock: LOCK, silence: config.lease, statement: None };
    let tries = Tries::begin(config, "make the tables");
    while let Err(error) = try_make(connection, limits).await {
        tries.failed(connection, error).await?;
    }
    // Another node, of another build, may have been first.
    are_there(connection).await.map(drop)
}

async fn try_make(connection: &mut PgConnection, limits: Limits) -> Result<(), sqlx::Error> {
    limits::begin(connection, Kind::Writing, limits).await?;
    if !has_any(connection).await? {
        raw_sql("CREATE SCHEMA IF NOT EXISTS placet").execute(&mut *connection).await?;
        raw_sql(SCHEMA).execute(&mut *connection).await?;
        let note = query("UPDATE placet.ledger SET schema_digest = $1 WHERE id = 1");
        note.bind(digest()).execute(&mut *connection).await?;
    }
    raw_sql("COMMIT").execute(connection).await.map(drop)
}

async fn has_any(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    let table = query("SELECT to_regclass('placet.ledger') IS NOT NULL AS is_there");
    table.fetch_one(connection).await?.try_get("is_there")
}

/// Whether the tables exist; those of another build are refused. Changes nothing.
pub(super) async fn are_there(connection: &mut PgConnection) -> Result<bool, OpenError> {
    let refused = || OpenError::refused("show its tables");
    if !has_any(connection).await.map_err(refused())? {
        return Ok(false);
    }
    let made = query("SELECT schema_digest FROM placet.ledger WHERE id = 1");
    let row = made.fetch_one(connection).await.map_err(refused())?;
    if row.try_get::<Vec<u8>, _>("schema_digest").map_err(refused())? == digest() {
        return Ok(true);
    }
    let why = "they were made by another build; export the ledger with that one, and import it";
    Err(OpenError::Schema { why: why.to_owned() })
}

fn digest() -> Vec<u8> {
    Sha256::digest(SCHEMA.as_bytes()).to_vec()
}
