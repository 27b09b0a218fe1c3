//! Sessions of people at the console, for all nodes that share the database.
//!
//! Owns the table's statements. Sessions are not part of the ledger: no log contains them, and a lost one means a new sign-in. Invariant:
//! once an end was answered, the session is over on every node.

use std::time::Duration;

use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{Connection as _, Row as _, query, raw_sql};
use tokio::time::timeout;

use placet_types::clock::Timestamp;
use placet_types::digest::Digest;
use placet_types::sessions::{
    KeptSession, SessionAnswer, SessionLimits, SessionStore, SessionsUnavailable,
};

use super::PostgresStore;
use super::connect::{Connector, Purpose};
use super::error::said;
use super::limits::{self, Kind, Limits};
use super::read;

/// A change of sessions, on a connection of its own: there are few, and none waits for a change of the ledger.
enum Change {
    Begin(KeptSession, SessionLimits),
    Used(Digest, Timestamp),
    End(Digest),
}

impl PostgresStore {
    async fn change_sessions(&self, change: Change) -> Result<bool, SessionsUnavailable> {
        match timeout(self.wait, changed(&self.connector, self.wait, change)).await {
            Ok(done) => done.map_err(SessionsUnavailable),
            Err(_elapsed) => {
                let wait = self.wait.as_millis();
                Err(SessionsUnavailable(format!("no answer within {wait} ms")))
            }
        }
    }
}

impl SessionStore for PostgresStore {
    fn time(&self) -> Timestamp {
        self.state.now()
    }

    fn begin(&self, session: KeptSession, limits: SessionLimits) -> SessionAnswer<'_, bool> {
        Box::pin(self.change_sessions(Change::Begin(session, limits)))
    }

    fn find(&self, key: Digest) -> SessionAnswer<'_, Option<KeptSession>> {
        let find = move || {
            query("SELECT key, person, began_ms, used_ms, sealed FROM placet.console_sessions WHERE key = $1")
                .bind(key.as_bytes().to_vec())
        };
        Box::pin(async move {
            let rows = self.pool.rows(find).await;
            let rows = rows.map_err(|error| SessionsUnavailable(error.to_string()))?;
            let session = rows.first().map(of_row).transpose();
            session.map_err(|error| SessionsUnavailable(read::unreadable(&error).to_string()))
        })
    }

    fn used(&self, key: Digest, at: Timestamp) -> SessionAnswer<'_, ()> {
        Box::pin(async move { self.change_sessions(Change::Used(key, at)).await.map(|_| ()) })
    }

    fn end(&self, key: Digest) -> SessionAnswer<'_, ()> {
        Box::pin(async move { self.change_sessions(Change::End(key)).await.map(|_| ()) })
    }
}

fn of_row(row: &PgRow) -> Result<KeptSession, sqlx::Error> {
    let digest = |column: &str| {
        let bytes: Vec<u8> = row.try_get(column)?;
        let bytes = <[u8; 32]>::try_from(bytes);
        bytes
            .map(Digest::from_bytes)
            .map_err(|_other| sqlx::Error::Protocol("a digest of another length".to_owned()))
    };
    Ok(KeptSession {
        key: digest("key")?,
        person: digest("person")?,
        began_at: Timestamp::from_ms(row.try_get("began_ms")?),
        used_at: Timestamp::from_ms(row.try_get("used_ms")?),
        sealed: row.try_get("sealed")?,
    })
}

/// Makes a change in a transaction of its own. An error leaves nothing behind, since the connection is closed.
async fn changed(connector: &Connector, wait: Duration, change: Change) -> Result<bool, String> {
    let connected = connector.connect(Purpose::Writing).await;
    let mut connection = connected.map_err(|error| error.to_string())?;
    let limits = Limits { lock: wait, silence: wait, statement: Some(wait) };
    let done = async {
        limits::begin(&mut connection, Kind::Writing, limits).await?;
        let done = match change {
            Change::Begin(session, limits) => begun(&mut connection, session, limits).await?,
            Change::Used(key, at) => {
                let used = "UPDATE placet.console_sessions SET used_ms = greatest(used_ms, $2) WHERE key = $1";
                let used = query(used).bind(key.as_bytes().to_vec()).bind(at.as_ms());
                used.execute(&mut connection).await?.rows_affected() > 0
            }
            Change::End(key) => {
                let end = query("DELETE FROM placet.console_sessions WHERE key = $1");
                let end = end.bind(key.as_bytes().to_vec());
                end.execute(&mut connection).await?.rows_affected() > 0
            }
        };
        raw_sql("COMMIT").execute(&mut connection).await?;
        Ok(done)
    };
    let done: Result<bool, sqlx::Error> = done.await;
    let done = done.map_err(|error| said(&error))?;
    // It has been committed: how the connection ends does not matter.
    if let Err(error) = connection.close().await {
        tracing::debug!(error = %said(&error), "a connection did not end well");
    }
    Ok(done)
}

async fn begun(
    connection: &mut PgConnection,
    session: KeptSession,
    limits: SessionLimits,
) -> Result<bool, sqlx::Error> {
    query("DELETE FROM placet.console_sessions WHERE began_ms < $1 OR used_ms < $2")
        .bind(limits.began_since.as_ms())
        .bind(limits.used_since.as_ms())
        .execute(&mut *connection)
        .await?;
    let person = session.person.as_bytes().to_vec();
    query(
        "DELETE FROM placet.console_sessions WHERE key IN (SELECT key FROM placet.console_sessions \
         WHERE person = $1 ORDER BY began_ms DESC, key OFFSET $2)",
    )
    .bind(person.clone())
    .bind(read::limit(limits.per_person.saturating_sub(1)))
    .execute(&mut *connection)
    .await?;
    let begun = query(
        "INSERT INTO placet.console_sessions (key, person, began_ms, used_ms, sealed) \
         SELECT $1, $2, $3, $4, $5 WHERE (SELECT count(*) FROM placet.console_sessions) < $6",
    )
    .bind(session.key.as_bytes().to_vec())
    .bind(person)
    .bind(session.began_at.as_ms())
    .bind(session.used_at.as_ms())
    .bind(session.sealed)
    .bind(read::limit(limits.all))
    .execute(&mut *connection)
    .await?;
    Ok(begun.rows_affected() == 1)
}
