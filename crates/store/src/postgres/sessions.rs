//! Sessions of people at the console, for all nodes that share the database.
//!
//! Owns the table's statements. Sessions are not part of the ledger: no log contains them, and a lost one means a new sign-in. Invariant:
//! once an end was answered, the session is over on every node.

use sqlx::postgres::PgRow;
use sqlx::{Row as _, query};

use placet_types::clock::Timestamp;
use placet_types::digest::Digest;
use placet_types::sessions::{
    KeptSession, SessionAnswer, SessionLimits, SessionStore, SessionsUnavailable,
};

use super::PostgresStore;
use super::pool::Statement;
use super::read;

impl PostgresStore {
    /// What a statement about sessions answers. It may be run twice.
    async fn sessions(
        &self,
        statement: impl Fn() -> Statement + Send + Sync,
    ) -> Result<Vec<PgRow>, SessionsUnavailable> {
        let rows = self.pool.rows(statement).await;
        rows.map_err(|error| SessionsUnavailable(error.to_string()))
    }
}

impl SessionStore for PostgresStore {
    fn time(&self) -> Timestamp {
        self.state.now()
    }

    fn begin(&self, session: KeptSession, limits: SessionLimits) -> SessionAnswer<'_, bool> {
        let person = session.person.as_bytes().to_vec();
        let over = move || {
            query("DELETE FROM placet.console_sessions WHERE began_ms < $1 OR used_ms < $2")
                .bind(limits.began_since.as_ms())
                .bind(limits.used_since.as_ms())
        };
        let oldest = move || {
            query(
                "DELETE FROM placet.console_sessions WHERE key IN (SELECT key FROM placet.console_sessions \
                 WHERE person = $1 ORDER BY began_ms DESC, key OFFSET $2)",
            )
            .bind(person.clone())
            .bind(read::limit(limits.per_person.saturating_sub(1)))
        };
        let begun = move || {
            query(
                "INSERT INTO placet.console_sessions AS s (key, person, began_ms, used_ms, sealed) \
                 SELECT $1, $2, $3, $4, $5 WHERE (SELECT count(*) FROM placet.console_sessions WHERE key <> $1) < $6 \
                 ON CONFLICT (key) DO UPDATE SET used_ms = greatest(s.used_ms, excluded.used_ms) RETURNING key",
            )
            .bind(session.key.as_bytes().to_vec())
            .bind(session.person.as_bytes().to_vec())
            .bind(session.began_at.as_ms())
            .bind(session.used_at.as_ms())
            .bind(session.sealed.clone())
            .bind(read::limit(limits.all))
        };
        Box::pin(async move {
            self.sessions(over).await?;
            self.sessions(oldest).await?;
            Ok(!self.sessions(begun).await?.is_empty())
        })
    }

    fn find(&self, key: Digest) -> SessionAnswer<'_, Option<KeptSession>> {
        let find = move || {
            query("SELECT key, person, began_ms, used_ms, sealed FROM placet.console_sessions WHERE key = $1")
                .bind(key.as_bytes().to_vec())
        };
        Box::pin(async move {
            let session = self.sessions(find).await?.first().map(of_row).transpose();
            session.map_err(|error| SessionsUnavailable(read::unreadable(&error).to_string()))
        })
    }

    fn used(&self, key: Digest, at: Timestamp) -> SessionAnswer<'_, ()> {
        let used = move || {
            query(
                "UPDATE placet.console_sessions SET used_ms = greatest(used_ms, $2) WHERE key = $1",
            )
            .bind(key.as_bytes().to_vec())
            .bind(at.as_ms())
        };
        Box::pin(async move { self.sessions(used).await.map(drop) })
    }

    fn end(&self, key: Digest) -> SessionAnswer<'_, ()> {
        let end = move || {
            query("DELETE FROM placet.console_sessions WHERE key = $1")
                .bind(key.as_bytes().to_vec())
        };
        Box::pin(async move { self.sessions(end).await.map(drop) })
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
