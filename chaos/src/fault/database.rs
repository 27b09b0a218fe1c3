//! Faults of the database (F20): backends ended, connections lost at COMMIT, failover, locks, hardly any connections.
//!
//! Owns that each counts only by what the server or the proxy in front of it reports.

use std::time::Duration;

use anyhow::Result;
use placet_testkit::postgres::{Postgres, ROLE, proxy::Cut};
use tokio::time::{Instant, sleep};

use super::Injector;
use crate::history::fault::FaultKind;

/// For how long the ends of nodes are explained by their database.
const AFTERMATH: Duration = Duration::from_secs(30);

impl Injector {
    pub(super) async fn backends(&self) -> Result<()> {
        let Some(postgres) = self.database() else { return Ok(()) };
        let mut ended = 0_u64;
        for _ in 0..5 {
            ended = ended.saturating_add(end_backends(&*postgres.lock().await).await?);
            sleep(Duration::from_millis(60)).await;
        }
        if ended > 0 {
            self.happened(format!("{ended} backends terminated"));
        }
        Ok(())
    }

    /// Loses connections at COMMIT.
    pub(super) async fn cut(&self, cut: Cut, times: usize) -> Result<()> {
        let Some(postgres) = self.database() else { return Ok(()) };
        let postgres = postgres.lock().await;
        let before = postgres.proxy().cuts();
        postgres.proxy().arm(cut, times);
        let until = Instant::now() + Duration::from_secs(3);
        let wanted = before.saturating_add(u64::try_from(times).unwrap_or(1));
        while postgres.proxy().cuts() < wanted && Instant::now() < until {
            sleep(Duration::from_millis(20)).await;
        }
        postgres.proxy().disarm();
        let made = postgres.proxy().cuts().saturating_sub(before);
        if made > 0 {
            self.happened(format!("{made} at COMMIT: {cut:?}"));
        }
        Ok(())
    }

    /// The primary dies, the replica is promoted.
    pub(super) async fn fail_over(&self) -> Result<()> {
        let Some(postgres) = self.database() else { return Ok(()) };
        let mut postgres = postgres.lock().await;
        if !postgres.has_replica() {
            // It was promoted already.
            return Ok(());
        }
        self.cluster.excuse(None, AFTERMATH);
        postgres.fail_over().await?;
        self.happened("primary killed, synchronous replica promoted".to_owned());
        Ok(())
    }

    /// Another client locks every table.
    pub(super) async fn lock(&self, ms: u64) -> Result<()> {
        let Some(postgres) = self.database() else { return Ok(()) };
        let postgres = postgres.lock().await;
        let tables = postgres
            .ask_data("SELECT string_agg(format('%I.%I', schemaname, tablename), ', ') FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')")
            .await?;
        if tables.is_empty() {
            return Ok(());
        }
        let seconds = format!("{}.{:03}", ms / 1_000, ms % 1_000);
        let holding = format!(
            "BEGIN; SET LOCAL lock_timeout = '2s'; LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep({seconds}); COMMIT"
        );
        let waiting = async {
            sleep(Duration::from_millis(ms / 2)).await;
            postgres.ask("SELECT count(*) FROM pg_locks WHERE NOT granted").await
        };
        let (held, waiters) = tokio::join!(postgres.ask_data(&holding), waiting);
        // A deadlock with the nodes ends the lock and not them: that is a fault too.
        let waiters: u64 = waiters?.parse().unwrap_or(0);
        if held.is_ok() && waiters > 0 {
            self.happened(format!("all tables locked for {ms} ms, {waiters} waited"));
        } else if held.is_err() && postgres.logged("deadlock detected") > 0 {
            self.happened("a deadlock".to_owned());
        }
        Ok(())
    }

    /// The server takes hardly any connections.
    pub(super) async fn exhaust(&self, ms: u64) -> Result<()> {
        let Some(postgres) = self.database() else { return Ok(()) };
        let postgres = postgres.lock().await;
        let before = postgres.logged("too many connections for role");
        self.cluster.excuse(None, AFTERMATH);
        postgres.ask(&format!("ALTER ROLE {ROLE} CONNECTION LIMIT 1")).await?;
        end_backends(&postgres).await?;
        sleep(Duration::from_millis(ms)).await;
        let refused = postgres.logged("too many connections for role").saturating_sub(before);
        postgres.ask(&format!("ALTER ROLE {ROLE} CONNECTION LIMIT -1")).await?;
        if refused > 0 {
            self.happened(format!("{refused} connections refused in {ms} ms"));
        }
        Ok(())
    }

    /// The database that the nodes share.
    pub(super) fn database(&self) -> Option<&std::sync::Arc<tokio::sync::Mutex<Postgres>>> {
        self.cluster.postgres.as_ref()
    }

    fn happened(&self, detail: String) {
        self.cluster.scene.injected(FaultKind::F20, None, detail);
    }
}

async fn end_backends(postgres: &Postgres) -> Result<u64> {
    let sql = format!(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = '{ROLE}'"
    );
    Ok(postgres.ask(&sql).await?.parse().unwrap_or(0))
}
