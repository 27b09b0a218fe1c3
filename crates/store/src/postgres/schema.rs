//! The tables: creating them, and refusing those of another build.
//!
//! Owns the schema. No advisory locks: of nodes that create the tables at once, the server's own catalogue lets one through, since that
//! works on every server that speaks the protocol and through every pooler. Invariant: the tables all exist and are those of this build, or
//! the store does not start.

use std::time::Duration;

use sha2::{Digest as _, Sha256};
use sqlx::postgres::PgConnection;
use sqlx::{Row as _, query, raw_sql};
use tokio::time::Instant;

use super::error::{OpenError, Trouble, said};
use super::limits::{self, Kind, LOCK, Limits};

const SCHEMA: &str = include_str!("schema.sql");

/// The pause before the next try.
const PAUSE: Duration = Duration::from_millis(50);

/// Makes the tables where they are missing. Waits for somebody else who does for so long; one who fell silent half-way is let go of after
/// `lease`.
pub(super) async fn make(
    connection: &mut PgConnection,
    lease: Duration,
    wait: Duration,
) -> Result<(), OpenError> {
    let what = "make the tables";
    let deadline = Instant::now() + wait.max(lease.saturating_mul(2));
    let patience = limits::patience(wait);
    let mut failed = None;
    loop {
        let found = limits::within(patience, are_there(connection)).await;
        if found.map_err(OpenError::refused(what))?? {
            return Ok(());
        }
        if let Some(error) = failed {
            match Trouble::of(&error) {
                // Another node is creating them.
                Trouble::Again | Trouble::Busy(_) if Instant::now() < deadline => {}
                Trouble::Busy(why) => return Err(OpenError::locked(what, &why)),
                Trouble::Again
                | Trouble::Away(_)
                | Trouble::Full
                | Trouble::Unkeepable(_)
                | Trouble::Denied(_)
                | Trouble::Fatal(_) => {
                    return Err(OpenError::Refused { what, why: said(&error) });
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
        let Err(error) = try_make(connection, lease, patience).await else { return Ok(()) };
        if let Trouble::Away(why) = Trouble::of(&error) {
            return Err(OpenError::Lost { what, why });
        }
        let ended = limits::answer(patience, raw_sql("ROLLBACK").execute(&mut *connection)).await;
        ended.map_err(OpenError::refused(what))?;
        failed = Some(error);
    }
}

async fn try_make(
    connection: &mut PgConnection,
    lease: Duration,
    patience: Duration,
) -> Result<(), sqlx::Error> {
    let making = async {
        let limits = Limits { lock: LOCK, silence: lease, statement: None };
        limits::begin(connection, Kind::Writing, limits).await?;
        raw_sql("CREATE SCHEMA IF NOT EXISTS placet").execute(&mut *connection).await?;
        raw_sql(SCHEMA).execute(&mut *connection).await?;
        let note = query("UPDATE placet.ledger SET schema_digest = $1 WHERE id = 1");
        note.bind(digest()).execute(&mut *connection).await
    };
    limits::answer(patience, making).await?;
    limits::commit(connection, lease.max(patience)).await
}

/// Whether the tables exist; those of another build are refused. Changes nothing.
pub(super) async fn are_there(connection: &mut PgConnection) -> Result<bool, OpenError> {
    let refused = || OpenError::refused("show its tables");
    let table = query("SELECT to_regclass('placet.ledger')::text AS name");
    let row = table.fetch_one(&mut *connection).await.map_err(refused())?;
    if row.try_get::<Option<String>, _>("name").map_err(refused())?.is_none() {
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
