//! Inspecting a database from outside, for `placet doctor`.
//!
//! Owns the checks that a start would make. Invariant: nothing is written, no epoch is taken, nobody is fenced.

use sqlx::postgres::PgConnection;
use sqlx::{Row as _, query};
use tokio::time::timeout;

use super::config::PostgresConfig;
use super::connect::{Connector, Purpose};
use super::error::OpenError;
use super::limits::{self, Kind, Limits};
use super::rows::number;
use super::{schema, witness};

/// What a look at a database found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// How many nodes are at work on it; `None`: its tables are not there yet, and the first start may make them.
    pub nodes: Option<u64>,
}

/// Looks whether a node could start on a database, without starting one.
///
/// # Errors
/// [`OpenError`]: why it could not.
pub async fn inspect(config: &PostgresConfig) -> Result<Inspection, OpenError> {
    config.check()?;
    let connector = Connector::new(config.url.clone(), config.wait);
    let looking = async {
        let connected = connector.connect(Purpose::Writing).await;
        let mut connection = connected.map_err(|error| error.into_open(&config.url))?;
        let limits =
            Limits { lock: config.wait, silence: config.wait, statement: Some(config.wait) };
        limits::begin(&mut connection, Kind::Looking, limits)
            .await
            .map_err(OpenError::refused("be looked at"))?;
        look(&mut connection, config).await
    };
    // Each host may take its time to answer; the questions after that are answered at once.
    let hosts = u32::try_from(config.url.hosts.len()).unwrap_or(u32::MAX).saturating_add(1);
    match timeout(config.wait.saturating_mul(hosts), looking).await {
        Ok(found) => found,
        Err(_elapsed) => Err(OpenError::Unreachable {
            hosts: config.url.to_string(),
            why: format!("no answer within {} ms", config.wait.as_millis()),
        }),
    }
}

async fn look(
    connection: &mut PgConnection,
    config: &PostgresConfig,
) -> Result<Inspection, OpenError> {
    has_standby(connection).await?;
    if !schema::are_there(connection).await? {
        may_make_tables(connection).await?;
        return Ok(Inspection { nodes: None });
    }
    may_use_tables(connection).await?;
    if let Some(folder) = config.witness.as_ref().filter(|folder| folder.is_dir()) {
        witness::check(connection, folder).await?;
    }
    let row = query(
        "SELECT count(*) AS nodes FROM placet.epochs \
         WHERE fenced_by IS NULL AND closed_ms IS NULL AND lease_until > clock_timestamp()",
    );
    let told = || OpenError::refused("tell who is at work");
    let row = row.fetch_one(connection).await.map_err(told())?;
    let nodes: i64 = row.try_get("nodes").map_err(told())?;
    Ok(Inspection { nodes: Some(number(nodes)) })
}

/// Refuses where every commit would wait for a synchronous standby that is not there. Only some roles see what a standby is.
async fn has_standby(connection: &mut PgConnection) -> Result<(), OpenError> {
    let what = "tell its standbys";
    let row = query(
        "SELECT current_setting('synchronous_standby_names') = '' \
           OR EXISTS (SELECT FROM pg_stat_replication WHERE sync_state IS DISTINCT FROM 'async') AS may",
    );
    let row = row.fetch_one(connection).await.map_err(OpenError::refused(what))?;
    if row.try_get("may").map_err(OpenError::refused(what))? {
        return Ok(());
    }
    let why =
        "it waits for a synchronous standby (`synchronous_standby_names`), and none is connected";
    Err(OpenError::Refused { what: "commit", why: why.to_owned() })
}

/// The question about this role's rights, as a verb phrase for errors.
const RIGHTS: &str = "tell what this role may do";

async fn may_make_tables(connection: &mut PgConnection) -> Result<(), OpenError> {
    let asked = query("SELECT has_database_privilege(current_database(), 'CREATE') AS may");
    let row = asked.fetch_one(connection).await.map_err(OpenError::refused(RIGHTS))?;
    if row.try_get("may").map_err(OpenError::refused(RIGHTS))? {
        return Ok(());
    }
    let why = "they are not there yet, and this role may not make a schema in this database";
    Err(OpenError::Refused { what: "make the tables", why: why.to_owned() })
}

/// Refuses if this role lacks rights on a table: a start does not touch them all, so the lack would otherwise show up during work.
///
/// # Errors
/// [`OpenError::Refused`] that names the first such table, and how the right is given.
pub(super) async fn may_use_tables(connection: &mut PgConnection) -> Result<(), OpenError> {
    let rows = query(
        "SELECT c.relname::text AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE n.nspname = 'placet' AND c.relkind = 'r' AND NOT (has_table_privilege(c.oid, 'SELECT') \
           AND has_table_privilege(c.oid, 'INSERT') AND has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE')) \
         ORDER BY c.relname",
    );
    let rows = rows.fetch_all(connection).await.map_err(OpenError::refused(RIGHTS))?;
    let Some(row) = rows.first() else { return Ok(()) };
    let name: String = row.try_get("name").map_err(OpenError::refused(RIGHTS))?;
    let why = format!(
        "this role lacks the right to read and change `{name}`; the owner of the tables gives it: \
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA placet TO the role"
    );
    Err(OpenError::Refused { what: "let this node work", why })
}
