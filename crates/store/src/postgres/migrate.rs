//! The tables: making them, and refusing those of another build.
//!
//! Owns the ordered list of migrations and who has applied them. No advisory locks: the row of a table is the lock, since it holds
//! on every server that speaks the protocol and through every pooler. Invariant: either all migrations that this build knows are
//! applied, unaltered and none besides, or the store does not start.

use std::time::Duration;

use sha2::{Digest as _, Sha256};
use sqlx::postgres::PgConnection;
use sqlx::{Row as _, query, raw_sql};
use tokio::time::Instant;

use super::aside::refused_by_holders;
use super::error::{OpenError, Trouble, said};
use super::limits::{self, Kind, LOCK, Limits};

/// What was done to the tables, in order; never changed once released.
pub(super) const MIGRATIONS: &[(i32, &str, &str)] = &[(1, "schema", include_str!("schema.sql"))];

/// How long it is until the next one.
const PAUSE: Duration = Duration::from_millis(50);

/// How often two nodes may get into each other's way while they make the tables.
const TRIES: u32 = 20;

/// A table that is changed may be in the hands of a vacuum, which the server lets give way only once somebody has waited for longer than
/// `deadlock_timeout` (a second, unless it was set).
const LONGER: &str = "SELECT set_config('lock_timeout', (3000 + coalesce((SELECT max(setting::bigint) FROM pg_settings \
     WHERE name = 'deadlock_timeout'), 1000))::text, true)";

const PREPARE: &str = "CREATE SCHEMA IF NOT EXISTS placet; \
     CREATE TABLE IF NOT EXISTS placet.migrations \
       (version integer PRIMARY KEY, name text NOT NULL, digest bytea NOT NULL, applied_at timestamptz NOT NULL); \
     INSERT INTO placet.migrations (version, name, digest, applied_at) \
       VALUES (0, 'lock', '', clock_timestamp()) ON CONFLICT (version) DO NOTHING";

/// Brings the tables up to this build. Waits for somebody else who does for so long; one who fell silent half-way is let go of after `lease`.
pub(super) async fn migrate(
    connection: &mut PgConnection,
    lease: Duration,
    wait: Duration,
) -> Result<(), OpenError> {
    let what = "make the tables";
    let deadline = Instant::now() + wait.max(lease.saturating_mul(2));
    let patience = limits::patience(wait);
    let mut tries: u32 = 0;
    loop {
        let error = match step(connection, lease, patience).await {
            Ok(()) => return Ok(()),
            Err(Step::Schema(error)) => return Err(error),
            Err(Step::Sql(error)) => error,
        };
        let trouble = Trouble::of(&error);
        if let Trouble::Away(why) = trouble {
            return Err(OpenError::Lost { what, why });
        }
        let ended = limits::answer(patience, raw_sql("ROLLBACK").execute(&mut *connection)).await;
        ended.map_err(OpenError::refused(what))?;
        if let Trouble::Busy(why) = trouble {
            if Instant::now() >= deadline {
                return Err(refused_by_holders(connection, patience, what, &why).await);
            }
            tokio::time::sleep(PAUSE).await;
            continue;
        }
        tries = tries.saturating_add(1);
        // Two nodes that make the same table at the same moment see a unique index broken, or the table appear.
        let raced = matches!(trouble, Trouble::Again)
            || error
                .as_database_error()
                .and_then(|answer| answer.code())
                .is_some_and(|code| matches!(code.as_ref(), "42P06" | "42P07" | "42710" | "XX000"));
        if !raced || tries >= TRIES {
            return Err(OpenError::Refused { what, why: said(&error) });
        }
        tokio::time::sleep(PAUSE).await;
    }
}

enum Step {
    Sql(sqlx::Error),
    Schema(OpenError),
}

impl From<sqlx::Error> for Step {
    fn from(error: sqlx::Error) -> Self {
        Self::Sql(error)
    }
}

/// One try. Only what changes tables may take its time.
async fn step(
    connection: &mut PgConnection,
    lease: Duration,
    patience: Duration,
) -> Result<(), Step> {
    let applied = limits::within(patience, prepare(connection, lease)).await??;
    if applied < MIGRATIONS.len() {
        limits::answer(patience, raw_sql(LONGER).execute(&mut *connection)).await?;
    }
    for (version, name, sql) in MIGRATIONS.iter().skip(applied) {
        limits::answer(limits::WHOLE, raw_sql(*sql).execute(&mut *connection)).await?;
        let note = query("INSERT INTO placet.migrations (version, name, digest, applied_at) VALUES ($1, $2, $3, clock_timestamp())")
            .bind(*version)
            .bind(*name)
            .bind(digest_of(sql));
        limits::answer(patience, note.execute(&mut *connection)).await?;
        tracing::info!(version, name, "the tables of the database were brought up to date");
    }
    Ok(limits::commit(connection, lease.max(patience)).await?)
}

/// Begins, alone among all nodes that start; how many migrations are applied.
async fn prepare(connection: &mut PgConnection, lease: Duration) -> Result<usize, Step> {
    // A role that may not make tables is enough once they are there.
    let table = query("SELECT to_regclass('placet.migrations')::text AS name");
    let row = table.fetch_one(&mut *connection).await?;
    if row.try_get::<Option<String>, _>("name")?.is_none() {
        raw_sql(PREPARE).execute(&mut *connection).await?;
    }
    // A table may be changed for as long as that takes.
    let limits = Limits { lock: LOCK, silence: lease, statement: None };
    limits::begin(connection, Kind::Writing, limits).await?;
    query("SELECT version FROM placet.migrations WHERE version = 0 FOR UPDATE")
        .fetch_optional(&mut *connection)
        .await?;
    applied(connection).await
}

/// How the tables stand before a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tables {
    /// There are none.
    Absent,
    /// They are those of an earlier build, and are to be brought up to date.
    Earlier,
    /// They are those of this build.
    Current,
}

/// Looks at the tables, and refuses those of another build. Changes nothing.
pub(super) async fn look(connection: &mut PgConnection) -> Result<Tables, OpenError> {
    let asked = async {
        let table = query("SELECT to_regclass('placet.migrations')::text AS name");
        let row = table.fetch_one(&mut *connection).await?;
        if row.try_get::<Option<String>, _>("name")?.is_none() {
            return Ok(Tables::Absent);
        }
        Ok(match applied(connection).await? {
            0 => Tables::Absent,
            applied if applied < MIGRATIONS.len() => Tables::Earlier,
            _ => Tables::Current,
        })
    };
    asked.await.map_err(|step| match step {
        Step::Schema(error) => error,
        Step::Sql(error) => OpenError::Refused { what: "show its tables", why: said(&error) },
    })
}

/// How many migrations are applied, all of which this build knows.
async fn applied(connection: &mut PgConnection) -> Result<usize, Step> {
    let rows = query(
        "SELECT version, name, digest FROM placet.migrations WHERE version > 0 ORDER BY version",
    )
    .fetch_all(&mut *connection)
    .await?;
    for (place, row) in rows.iter().enumerate() {
        let (version, digest): (i32, Vec<u8>) = (row.try_get("version")?, row.try_get("digest")?);
        let why = match MIGRATIONS.get(place) {
            Some((known, _, sql)) if *known == version && digest == digest_of(sql) => continue,
            Some((known, name, _)) if *known == version => {
                format!("migration {version} (`{name}`) is not the one of this build")
            }
            _ => format!(
                "they are at migration {version}, which this build does not know; run the newer build"
            ),
        };
        return Err(Step::Schema(OpenError::Schema { why }));
    }
    Ok(rows.len())
}

fn digest_of(sql: &str) -> Vec<u8> {
    Sha256::digest(sql.as_bytes()).to_vec()
}
