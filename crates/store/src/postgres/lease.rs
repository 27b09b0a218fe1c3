//! The task that keeps this node's lease, on a connection of its own.
//!
//! Owns the renewals, and what is checked at that rate: the server's settings, the ends of the logs, the witness. Not here: fencing the
//! nodes that do not renew theirs (`node`). Invariant: a node that is fenced, whose database has lost data, or whose server became unsafe,
//! stops.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::PgConnection;
use sqlx::{Row as _, query};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use placet_ledger::store::StoreError;

use super::batch::{forgotten, shut_out};
use super::connect::{Connector, Purpose, ask_again};
use super::error::{Trouble, said};
use super::limits;
use super::rows::{column, number};
use super::state::State;
use super::witness;

/// The task.
pub(super) struct Keeper {
    pub(super) state: Arc<State>,
    pub(super) connector: Arc<Connector>,
    pub(super) lease: Duration,
    pub(super) witness: Option<PathBuf>,
    /// Ends the task when it is dropped or set.
    pub(super) closing: watch::Receiver<bool>,
}

/// How often a lease is renewed, and how long that may take.
fn renewal(lease: Duration) -> Duration {
    lease.checked_div(3).unwrap_or(lease)
}

impl Keeper {
    /// Renews until the store is closed, dropped or at fault.
    pub(super) async fn run(mut self) {
        let every = renewal(self.lease);
        // A node that could not renew tries again soon: once the database is back, the others fence those that do not.
        let soon = every.checked_div(4).unwrap_or(every);
        let mut connection = None;
        let mut was_away = false;
        loop {
            let pause = if was_away { soon } else { every };
            tokio::select! {
                _ended = self.closing.changed() => return,
                () = tokio::time::sleep(pause) => {}
            }
            self.state.held().await;
            self.state.held_at_commit().await;
            if self.state.fault().is_some() {
                return;
            }
            // A renewal that takes longer than this would come too late; the next one is on a new connection.
            let renewed = match timeout(every, self.renew(&mut connection)).await {
                Ok(renewed) => renewed,
                Err(_elapsed) => Err(format!("no answer within {} ms", every.as_millis())),
            };
            match renewed {
                Ok(()) if was_away => {
                    tracing::info!("the database answers again");
                    was_away = false;
                }
                Ok(()) => {}
                Err(why) => {
                    connection = None;
                    if !was_away {
                        let left_ms =
                            u64::try_from(self.state.lease_left().as_millis()).unwrap_or(u64::MAX);
                        tracing::warn!(why, left_ms, "the lease could not be renewed");
                    }
                    was_away = true;
                }
            }
            self.write_witness().await;
        }
    }

    /// One renewal; a reason to stop the store stops it.
    async fn renew(&self, kept: &mut Option<PgConnection>) -> Result<(), String> {
        let mut connection = match kept.take() {
            Some(connection) => connection,
            None => match self.connector.connect(Purpose::Writing).await {
                Ok(mut connection) => {
                    // The server gives up a renewal when the node does, so that none keeps waiting for a lock.
                    let every = renewal(self.lease);
                    limits::settle(&mut connection, every).await.map_err(|error| said(&error))?;
                    connection
                }
                Err(error) => {
                    let error = match error.in_use() {
                        Ok(why) => return Err(why),
                        Err(error) => error,
                    };
                    self.state.fail(StoreError::Stopped(error.to_string()));
                    return Ok(());
                }
            },
        };
        match self.ask(&mut connection).await {
            Ok(()) => {
                *kept = Some(connection);
                Ok(())
            }
            Err(error) => match Trouble::of(&error) {
                Trouble::Fatal(why) | Trouble::Denied(why) | Trouble::Unkeepable(why) => {
                    self.state.fail(StoreError::Stopped(why));
                    Ok(())
                }
                Trouble::Again | Trouble::Busy(_) | Trouble::Away(_) | Trouble::Full => {
                    Err(said(&error))
                }
            },
        }
    }

    async fn ask(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        if let Err(error) = ask_again(connection).await? {
            self.state.fail(StoreError::Stopped(error.to_string()));
            return Ok(());
        }
        let (sent, head) = (Instant::now(), self.state.head());
        let renewed = query(
            "UPDATE placet.epochs SET lease_until = clock_timestamp() + $2 * interval '1 second' \
             WHERE epoch = $1 AND fenced_by IS NULL AND closed_ms IS NULL \
             RETURNING head_seq, (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms",
        )
        .bind(column(self.state.epoch))
        .bind(self.lease.as_secs_f64())
        .fetch_optional(&mut *connection)
        .await?;
        let Some(renewed) = renewed else { return self.find_out(connection).await };
        if number(renewed.try_get("head_seq")?) < head.seq {
            self.state.fail(forgotten("entries of this node's log"));
            return Ok(());
        }
        self.state.renewed(sent, self.lease);
        self.state.note_clock(renewed.try_get("now_ms")?);
        let floor = query(
            "SELECT max(head_at_ms) AS floor_ms, coalesce(sum(head_seq), 0)::bigint AS entries FROM placet.epochs",
        )
        .fetch_one(&mut *connection)
        .await?;
        if !self.state.note_entries(number(floor.try_get("entries")?)) {
            self.state.fail(forgotten("entries of other nodes' logs"));
            return Ok(());
        }
        if let Some(floor_ms) = floor.try_get::<Option<i64>, _>("floor_ms")? {
            self.state.note_entry(floor_ms);
        }
        Ok(())
    }

    /// Finds out why the lease could not be renewed.
    async fn find_out(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        if self.state.is_closed() {
            return Ok(());
        }
        self.state.fail(shut_out(connection, self.state.epoch).await?);
        Ok(())
    }

    async fn write_witness(&self) {
        let Some(folder) = self.witness.clone() else { return };
        let (epoch, end, all) = (self.state.epoch, self.state.head(), self.state.entries());
        let written =
            tokio::task::spawn_blocking(move || witness::write(&folder, epoch, end, all)).await;
        match written {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the witness could not be written"),
            Err(error) => tracing::warn!(%error, "the witness could not be written"),
        }
    }
}
