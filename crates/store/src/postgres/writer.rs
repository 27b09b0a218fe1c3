//! The writing task: it gathers commits into batches and sees each of them to its end.
//!
//! Owns this node's writing connection, the queue, and the batch in doubt after a connection was lost at the commit. Not here: what a
//! transaction does (`batch`). Invariants: a commit is acknowledged only after the database said so, or after a later transaction of this
//! node, itself acknowledged, has found it (so that nothing a synchronous standby lacks is ever acknowledged); a commit is refused only
//! when it is certain that it was not kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlx::postgres::PgConnection;
use sqlx::{Connection as _, query, raw_sql};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use placet_ledger::proof::tiles::Appender;
use placet_ledger::record::{EffectRecord, EffectState};
use placet_ledger::store::{Committed, EffectChange, StoreError};
use placet_types::ids::RecordId;

use super::aside::Aside;
use super::batch::{Outcome, Piece, finish, forgotten, lock_own, touch, transact};
use super::connect::{Connector, Purpose};
use super::error::{Hitch, LOCK_IS_HELD, said};
use super::limits::{self, Kind, Limits};
use super::rows::column;
use super::state::State;
use crate::embedded::SyncObserver;

/// The most commits in one transaction.
const BATCH_MAX: usize = 256;
/// The most bytes of content in one transaction of several commits.
const BATCH_BYTES_MAX: usize = 8 << 20;
/// How many commits may wait.
pub(super) const QUEUE_MAX: usize = 4096;
/// How often a batch is begun again because another transaction was quicker, before it counts as a fault.
const TRIES_MAX: u32 = 200;
const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Whether a commit has been taken up, or was given up by its caller.
#[derive(Debug, Default)]
pub(super) struct Ticket(AtomicBool);

impl Ticket {
    /// Takes the commit up, or gives it up; `false`: the other side was first.
    pub(super) fn take(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }
}

/// A submitted commit.
#[derive(Debug)]
pub(super) struct Submission {
    pub(super) piece: Piece,
    pub(super) ticket: Arc<Ticket>,
    pub(super) reply: oneshot::Sender<Result<Committed, StoreError>>,
    /// Until when it is tried, unless its fate is in doubt.
    pub(super) deadline: Instant,
}

/// A request to the writer.
#[derive(Debug)]
pub(super) enum Order {
    Commit(Box<Submission>),
    /// Write everything submitted before, then end the epoch.
    Close(CloseReply),
}

/// The writer's limits.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    pub(super) wait: Duration,
    pub(super) lease: Duration,
    pub(super) on_sync: Option<SyncObserver>,
}

/// The state of a transaction before its commit.
enum Prepared {
    /// The batch is written.
    Written(Outcome),
    /// The batch in doubt turned out to be kept.
    Found,
}

/// The writing task.
pub(super) struct Writer {
    state: Arc<State>,
    connector: Arc<Connector>,
    terms: Terms,
    connection: Option<PgConnection>,
    log: Appender,
    /// The result of the current batch, from before its commit until it is known whether it was kept.
    doubt: Option<Outcome>,
    /// Commits that wait for every node, while others go on.
    aside: Aside,
    inbox: mpsc::Receiver<Order>,
}

impl Writer {
    pub(super) fn new(
        state: Arc<State>,
        connector: Arc<Connector>,
        terms: Terms,
        connection: PgConnection,
        inbox: mpsc::Receiver<Order>,
    ) -> Self {
        let (connection, log, aside) = (Some(connection), Appender::default(), Aside::default());
        Self { state, connector, terms, connection, log, doubt: None, aside, inbox }
    }

    /// Writes until the store is closed, dropped or at fault.
    pub(super) async fn run(mut self) {
        loop {
            let order = match self.aside.again_at() {
                None => self.inbox.recv().await,
                Some(at) if at <= Instant::now() => {
                    self.try_again().await;
                    continue;
                }
                Some(at) => match timeout_at(at, self.inbox.recv()).await {
                    Ok(order) => order,
                    Err(_elapsed) => continue,
                },
            };
            let Some(order) = order else { return };
            match order {
                Order::Commit(first) => {
                    let (batch, closing) = self.gather(*first);
                    let batch = self.aside.join(batch);
                    self.settle(batch).await;
                    if let Some(reply) = closing {
                        return self.close(reply).await;
                    }
                }
                Order::Close(reply) => return self.close(reply).await,
            }
        }
    }

    /// Retries what waits for every node; refuses what has waited too long.
    async fn try_again(&mut self) {
        let now = Instant::now();
        let (late, rest): (Vec<_>, Vec<_>) =
            self.aside.take().into_iter().partition(|waits| waits.deadline <= now);
        if !late.is_empty() {
            let refusal = StoreError::LockTimeout(LOCK_IS_HELD.to_owned());
            tracing::error!(reason = %refusal, "a freeze, a revocation or policies that have to bind every node are not in force");
            self.refuse(late, &refusal);
        }
        self.settle(rest).await;
        self.aside.reset();
    }

    /// Adds whatever else is queued, up to the limits of one transaction.
    fn gather(&mut self, first: Submission) -> (Vec<Submission>, Option<CloseReply>) {
        let mut bytes: usize = 0;
        let mut batch: Vec<Submission> = Vec::new();
        let mut next = Some(first);
        while let Some(submission) = next.take() {
            if submission.ticket.take() {
                let contents = submission.piece.content.iter().map(|(.., bytes)| bytes.len());
                bytes = contents.fold(bytes, usize::saturating_add);
                self.board(&submission);
                batch.push(submission);
            }
            if batch.len() < BATCH_MAX && bytes < BATCH_BYTES_MAX {
                match self.inbox.try_recv() {
                    Ok(Order::Commit(submission)) => next = Some(*submission),
                    Ok(Order::Close(reply)) => return (batch, Some(reply)),
                    Err(_empty) => {}
                }
            }
        }
        (batch, None)
    }

    /// From here on claims of the new records' keys cannot be released.
    fn board(&self, submission: &Submission) {
        for change in &submission.piece.changes.effects {
            if let EffectChange::Put(record) = change
                && record.rev == 1
            {
                let state = EffectState::Claimed { epoch: self.state.epoch };
                self.state.claims.board(EffectRecord {
                    state,
                    rev: 0,
                    ..EffectRecord::clone(record)
                });
            }
        }
    }

    /// Sees a batch to its end: every commit of it is answered.
    async fn settle(&mut self, mut batch: Vec<Submission>) {
        if self.doubt.is_some() {
            // A batch before this one was given up. What that one came to must never be the answer to this one, which was not sent.
            let gone = || StoreError::Stopped("it stopped while the database was away".to_owned());
            let fault = self.state.fault().unwrap_or_else(gone);
            return self.refuse(batch, &fault);
        }
        let (mut tries, mut pause): (u32, Duration) = (0, PAUSE_MIN);
        while !batch.is_empty() {
            self.state.held().await;
            if let Some(fault) = self.state.fault() {
                return self.refuse_at_fault(batch, fault);
            }
            let why = match self.attempt(&batch).await {
                Ok(outcome) => return self.acknowledge(batch, outcome),
                Err(Hitch::Again) => {
                    tries = tries.saturating_add(1);
                    if tries > TRIES_MAX {
                        let fault = "other changes were in the way every time".to_owned();
                        let fault = self.state.fail(StoreError::Stopped(fault));
                        return self.refuse_at_fault(batch, fault);
                    }
                    "other changes were in the way".to_owned()
                }
                Err(Hitch::Busy(why)) if self.doubt.is_none() => {
                    let (binding, rest): (Vec<_>, Vec<_>) =
                        batch.into_iter().partition(|waits| waits.piece.binds_all());
                    batch = rest;
                    if !binding.is_empty() {
                        self.aside.put(binding, self.terms.wait);
                        // The others do not need the lock that was not available.
                        continue;
                    }
                    why
                }
                Err(Hitch::Busy(why) | Hitch::Away(why)) => why,
                // Nothing is refused while it may have been kept.
                Err(hitch @ (Hitch::Full | Hitch::Split(_))) if self.doubt.is_some() => {
                    hitch.to_string()
                }
                Err(Hitch::Full) => return self.refuse(batch, &StoreError::NoSpace),
                Err(Hitch::Split(refusal)) if batch.len() == 1 => {
                    return self.refuse(batch, &refusal);
                }
                Err(Hitch::Split(_)) => {
                    for single in batch {
                        Box::pin(self.settle(vec![single])).await;
                    }
                    return;
                }
                Err(Hitch::Stop(fault)) => {
                    let fault = self.state.fail(fault);
                    return self.refuse_at_fault(batch, fault);
                }
            };
            if self.doubt.is_none() {
                batch = self.refuse_late(batch, &why);
            } else if self.state.closed_for() > self.terms.wait {
                // An orderly stop cannot wait for a database that does not come back.
                return self.refuse_at_fault(batch, StoreError::Stopped(why));
            }
            tracing::debug!(why, "a batch was not written yet");
            tokio::time::sleep(pause).await;
            pause = pause.saturating_mul(2).min(PAUSE_MAX);
        }
    }

    /// Tries a batch once.
    async fn attempt(&mut self, batch: &[Submission]) -> Result<Outcome, Hitch> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let sent = Instant::now();
        let limit = self.terms.wait.saturating_mul(4);
        let prepared = match timeout(limit, self.prepare(&mut connection, batch)).await {
            Ok(prepared) => prepared,
            Err(_elapsed) => Err(no_answer(limit)),
        };
        match prepared {
            Ok(Prepared::Written(outcome)) => self.doubt = Some(outcome),
            Ok(Prepared::Found) => {}
            Err(hitch) => {
                self.roll_back(connection, &hitch).await;
                return Err(hitch);
            }
        }
        self.state.held_at_commit().await;
        let began = Instant::now();
        let limit = self.terms.lease.max(limit);
        // If anything goes wrong from here on, the next connection finds out whether the batch was kept.
        match timeout(limit, raw_sql("COMMIT").execute(&mut connection)).await {
            Ok(Ok(_done)) => self.connection = Some(connection),
            Ok(Err(error)) => return Err(Hitch::Away(said(&error))),
            Err(_elapsed) => return Err(no_answer(limit)),
        }
        self.state.renewed(sent, self.terms.lease);
        let outcome = self.doubt.take().ok_or(Hitch::Again)?;
        if outcome.answers.len() != batch.len() {
            // The outcome of another batch must never be the answer to this one.
            let why = "a batch was taken for another one".to_owned();
            return Err(Hitch::Stop(StoreError::Uncertain(why)));
        }
        if let Some(observer) = &self.terms.on_sync {
            let kept = outcome.answers.iter().filter(|answer| answer.is_ok()).count();
            observer.call(kept, began.elapsed());
        }
        Ok(outcome)
    }

    /// Everything of a transaction but its commit.
    async fn prepare(
        &mut self,
        connection: &mut PgConnection,
        batch: &[Submission],
    ) -> Result<Prepared, Hitch> {
        let pieces: Vec<&Piece> = batch.iter().map(|submission| &submission.piece).collect();
        let binds_all = pieces.iter().any(|piece| piece.binds_all());
        let wait = self.terms.wait;
        let lock = if binds_all { self.aside.lock_timeout(wait) } else { wait };
        // A node that stops in the middle of a transaction must not hold its locks for longer than its lease.
        let limits = Limits { lock, silence: self.terms.lease, statement: None };
        limits::begin(connection, Kind::Writing, limits).await?;
        let own = lock_own(connection, self.state.epoch, &pieces).await?;
        let known = self.state.head();
        if let Some(outcome) = &self.doubt {
            if own.head == outcome.head && own.head != known {
                // It was kept. This transaction comes after it: once this one is acknowledged, so is that one.
                touch(connection, self.state.epoch, self.terms.lease).await?;
                return Ok(Prepared::Found);
            }
            self.doubt = None;
        }
        if own.head != known {
            return Err(Hitch::Stop(forgotten("entries of this node's log")));
        }
        self.state.note_clock(own.now_ms);
        let outcome = transact(connection, &self.state, &own, &pieces, self.log.clone()).await?;
        finish(connection, self.state.epoch, &outcome, self.terms.lease).await?;
        Ok(Prepared::Written(outcome))
    }

    async fn connect(&self) -> Result<PgConnection, Hitch> {
        self.connector.connect(Purpose::Writing).await.map_err(|error| match error.in_use() {
            Ok(why) => Hitch::Away(why),
            Err(error) => Hitch::Stop(StoreError::Stopped(error.to_string())),
        })
    }

    /// Rolls the transaction back; the connection is kept if it may still be good.
    async fn roll_back(&mut self, mut connection: PgConnection, hitch: &Hitch) {
        match hitch {
            Hitch::Again | Hitch::Busy(_) | Hitch::Full | Hitch::Split(_) => {
                let ended = raw_sql("ROLLBACK").execute(&mut connection);
                if matches!(timeout(self.terms.wait, ended).await, Ok(Ok(_))) {
                    self.connection = Some(connection);
                }
            }
            Hitch::Away(_) | Hitch::Stop(_) => {}
        }
    }

    /// The batch is kept: acknowledges everything in it that was accepted.
    fn acknowledge(&mut self, batch: Vec<Submission>, outcome: Outcome) {
        self.state.set_head(outcome.head);
        self.state.note_entry(outcome.at_ms);
        self.log = outcome.log;
        let answered: Vec<_> = batch.into_iter().zip(outcome.answers).collect();
        for (submission, answer) in &answered {
            for record_id in boarded(submission) {
                match answer {
                    Ok(_) => self.state.claims.arrived(&record_id),
                    Err(_) => self.state.claims.turn_back(&record_id),
                }
            }
        }
        // Another node was quicker: a claim of what it has written is void.
        for record_id in &outcome.known {
            self.state.claims.found(record_id);
        }
        for (submission, answer) in answered {
            // The caller may be gone; what was kept is kept.
            drop(submission.reply.send(answer));
        }
    }

    fn refuse(&self, batch: Vec<Submission>, refusal: &StoreError) {
        for submission in batch {
            for record_id in boarded(&submission) {
                self.state.claims.turn_back(&record_id);
            }
            drop(submission.reply.send(Err(refusal.clone())));
        }
    }

    /// Refuses at a fault; if the batch is in doubt, the answer does not say that nothing was kept.
    fn refuse_at_fault(&self, batch: Vec<Submission>, fault: StoreError) {
        let refusal = match (&self.doubt, fault) {
            (None, fault) => fault,
            (Some(_), StoreError::Stopped(why)) => StoreError::Uncertain(why),
            (Some(_), fault) => StoreError::Uncertain(fault.to_string()),
        };
        self.refuse(batch, &refusal);
    }

    /// Refuses commits whose time has expired; nothing of them was kept.
    fn refuse_late(&self, batch: Vec<Submission>, why: &str) -> Vec<Submission> {
        let now = Instant::now();
        let (late, rest): (Vec<_>, Vec<_>) =
            batch.into_iter().partition(|submission| submission.deadline <= now);
        self.refuse(late, &StoreError::Unreachable(why.to_owned()));
        rest
    }

    /// Ends the epoch, so that nobody has to wait for its lease to expire.
    async fn close(mut self, reply: CloseReply) {
        let hindered = StoreError::LockTimeout("this node is ended".to_owned());
        let waiting = self.aside.take();
        self.refuse(waiting, &hindered);
        let limit = self.terms.wait;
        let ended = match timeout(limit, self.end_epoch()).await {
            Ok(ended) => ended,
            Err(_elapsed) => Err(no_answer(limit)),
        };
        let ended = match (self.state.fault(), ended) {
            (Some(fault), _) => Err(fault),
            (None, Ok(())) => Ok(()),
            (None, Err(Hitch::Stop(fault))) => Err(fault),
            // Everything that was acknowledged is kept; only the end of the epoch is not noted.
            (None, Err(hitch)) => Err(StoreError::Unreachable(format!("{hitch}"))),
        };
        drop(reply.send(ended));
        while let Some(order) = self.inbox.recv().await {
            match order {
                Order::Commit(submission) => {
                    let closed = StoreError::Stopped("it was closed".to_owned());
                    drop(submission.reply.send(Err(closed)));
                }
                Order::Close(reply) => drop(reply.send(Ok(()))),
            }
        }
    }

    async fn end_epoch(&mut self) -> Result<(), Hitch> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        query(
            "UPDATE placet.epochs SET closed_ms = (extract(epoch FROM clock_timestamp()) * 1000)::bigint, \
               lease_until = clock_timestamp() WHERE epoch = $1 AND fenced_by IS NULL AND closed_ms IS NULL",
        )
        .bind(column(self.state.epoch))
        .execute(&mut connection)
        .await?;
        // A connection that is not closed in order ends all the same.
        drop(connection.close().await);
        Ok(())
    }
}

type CloseReply = oneshot::Sender<Result<(), StoreError>>;

/// The records that a commit makes.
fn boarded(submission: &Submission) -> Vec<RecordId> {
    let changes = submission.piece.changes.effects.iter();
    let fresh = changes.filter_map(|change| match change {
        EffectChange::Put(record) if record.rev == 1 => Some(record.record_id),
        EffectChange::Put(_) | EffectChange::Remove { .. } | EffectChange::Forget { .. } => None,
    });
    fresh.collect()
}

fn no_answer(limit: Duration) -> Hitch {
    Hitch::Away(format!("no answer within {} ms", limit.as_millis()))
}
