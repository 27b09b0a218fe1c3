//! The writer's thread: collects a batch, makes it durable, answers it.
//!
//! Owns: the loop and its timers (sync of entries that are only written, witness, deletions that
//! were put off).
//! Not here: the queue's other end. Invariant: the first failure is the last thing that happens.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use placet_types::clock::Timestamp;
use placet_types::digest::Digest;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use super::{
    Admission, AppliedFrame, Apply, Blob, Counters, Durability, Later, Message, Staged,
    WriterConfig, WriterEnd,
};
use crate::content::ContentStore;
use crate::journal::medium::to_u64;
use crate::journal::{Journal, JournalError};

/// What the thread owns.
pub(super) struct Parts<A> {
    pub(super) journal: Journal,
    pub(super) content: ContentStore,
    pub(super) apply: A,
    pub(super) config: WriterConfig,
    pub(super) counters: Arc<Counters>,
}

/// The thread's state.
pub(super) struct Worker<A: Apply> {
    parts: Parts<A>,
    requests: mpsc::Receiver<Message<A>>,
    later: Arc<Mutex<Later<A>>>,
    /// Until when there is enough free space without asking.
    space_until: Option<Instant>,
    /// Entries that are written but not yet durable, hence not yet in the index.
    unapplied: Vec<AppliedFrame>,
    sync_due: Option<Instant>,
    witness_due: Option<Instant>,
    /// When deletions that were put off are tried again.
    erase_due: Option<Instant>,
}

/// How often it is looked whether deletions that were put off may be done.
const ERASE_AGAIN: Duration = Duration::from_millis(200);

/// For how long free space that was ample is not asked for again.
const SPACE_KNOWN_FOR: Duration = Duration::from_millis(100);

type Reply<A> = oneshot::Sender<Result<<A as Apply>::Reply, <A as Apply>::Error>>;

struct Waiter<A: Apply> {
    reply: oneshot::Sender<Result<A::Reply, A::Error>>,
    answer: Result<A::Reply, A::Error>,
}

struct Batch<A: Apply> {
    waiters: Vec<Waiter<A>>,
    frames: Vec<(u8, Vec<u8>)>,
    blobs: Vec<Blob>,
    forgotten: Vec<(String, Digest)>,
    bytes: usize,
    durability: Durability,
    now: Timestamp,
}

enum Wake<A: Apply> {
    Message(Message<A>),
    Timer,
    NoMoreHandles,
}

impl<A: Apply> Worker<A> {
    pub(super) fn new(
        parts: Parts<A>,
        requests: mpsc::Receiver<Message<A>>,
        later: Arc<Mutex<Later<A>>>,
    ) -> Self {
        Self {
            parts,
            requests,
            later,
            space_until: None,
            unapplied: Vec::new(),
            sync_due: None,
            witness_due: None,
            erase_due: None,
        }
    }

    /// Runs until the writer is closed or something fails.
    pub(super) async fn run(mut self) -> WriterEnd {
        match self.serve().await {
            Ok(closing) => self.close(closing).await,
            Err(error) => self.stop(error).await,
        }
    }

    async fn serve(
        &mut self,
    ) -> Result<Option<oneshot::Sender<Result<(), JournalError>>>, JournalError> {
        loop {
            match self.wake().await {
                Wake::Message(Message::Request(request, reply)) => {
                    if let Some(closing) = self.serve_batch(Some((request, reply)))? {
                        return Ok(Some(closing));
                    }
                }
                Wake::Message(Message::Close(reply)) => return Ok(Some(reply)),
                Wake::Message(Message::TakeLater) | Wake::Timer => {
                    if let Some(closing) = self.serve_batch(None)? {
                        return Ok(Some(closing));
                    }
                }
                Wake::NoMoreHandles => return Ok(None),
            }
            self.tend_timers()?;
        }
    }

    async fn wake(&mut self) -> Wake<A> {
        {
            // What is left from here on is taken with the sync that is due; without one, somebody has to wake us.
            let mut later = self.later.lock();
            later.is_looked_at = self.sync_due.is_some();
            if !later.requests.is_empty() && !later.is_looked_at {
                return Wake::Timer;
            }
        }
        let due = [self.sync_due, self.witness_due, self.erase_due].into_iter().flatten().min();
        let received = match due {
            Some(due) => timeout_at(due, self.requests.recv()).await,
            None => Ok(self.requests.recv().await),
        };
        match received {
            Ok(Some(message)) => Wake::Message(message),
            Ok(None) => Wake::NoMoreHandles,
            Err(_elapsed) => Wake::Timer,
        }
    }

    /// Takes what was left for later, the request and those queued behind it, up to the limits, and answers them together.
    fn serve_batch(
        &mut self,
        request: Option<(A::Request, Reply<A>)>,
    ) -> Result<Option<oneshot::Sender<Result<(), JournalError>>>, JournalError> {
        let now = self.parts.config.clock.now().as_ms();
        let now =
            Timestamp::from_ms(self.parts.journal.last_at_ms().map_or(now, |last| last.max(now)));
        let mut batch = Batch {
            waiters: Vec::new(),
            frames: Vec::new(),
            blobs: Vec::new(),
            forgotten: Vec::new(),
            bytes: 0,
            durability: Durability::Written,
            now,
        };
        self.take_later(&mut batch);
        let mut closing = None;
        let mut next = request;
        while let Some((request, reply)) = next.take() {
            let answer = self.prepare(request, &mut batch);
            batch.waiters.push(Waiter { reply, answer });
            let config = &self.parts.config;
            if batch.waiters.len() >= config.batch_requests_max
                || batch.bytes >= config.batch_bytes_max
            {
                break;
            }
            match self.requests.try_recv() {
                Ok(Message::Request(request, reply)) => next = Some((request, reply)),
                Ok(Message::Close(reply)) => closing = Some(reply),
                Ok(Message::TakeLater) | Err(_) => {}
            }
        }
        if batch.waiters.is_empty() && batch.frames.is_empty() {
            return Ok(closing);
        }
        let waiters = std::mem::take(&mut batch.waiters);
        let counters = &self.parts.counters;
        counters.requests.fetch_add(to_u64(waiters.len()), Ordering::Relaxed);
        counters.batches.fetch_add(1, Ordering::Relaxed);
        let committed = self.commit(batch);
        for waiter in waiters {
            let answer = match &committed {
                Ok(()) => waiter.answer,
                Err(error) => Err(error.clone().into()),
            };
            send(waiter.reply, answer);
        }
        match committed {
            Ok(()) => Ok(closing),
            Err(error) => {
                refuse(closing, &error);
                Err(error)
            }
        }
    }

    /// Takes what nobody waits for. What is refused of it can only be logged.
    fn take_later(&mut self, batch: &mut Batch<A>) {
        let requests = std::mem::take(&mut self.later.lock().requests);
        self.parts.counters.requests.fetch_add(to_u64(requests.len()), Ordering::Relaxed);
        for request in requests {
            if let Err(error) = self.prepare(request, batch) {
                tracing::error!(%error, "an entry that nobody waited for was refused");
            }
        }
    }

    fn prepare(&mut self, request: A::Request, batch: &mut Batch<A>) -> Result<A::Reply, A::Error> {
        if A::admission(&request) == Admission::New && self.space_is_low()? {
            let watermark_bytes = self.parts.journal.config.free_space_watermark_bytes;
            return Err(JournalError::NoSpace { watermark_bytes }.into());
        }
        let staged_before = to_u64(batch.frames.len());
        let next_seq = self.parts.journal.head().0.saturating_add(staged_before).saturating_add(1);
        let mut staged = Staged::new(next_seq, batch.now);
        let reply = self.parts.apply.prepare(request, &mut staged)?;
        let sizes = staged.frames.iter().map(|(_, payload)| payload.len());
        let sizes = sizes.chain(staged.blobs.iter().map(|blob| blob.bytes.len()));
        batch.bytes = sizes.fold(batch.bytes, usize::saturating_add);
        if !staged.frames.is_empty() || !staged.blobs.is_empty() {
            batch.durability = batch.durability.max(staged.durability);
        }
        batch.frames.append(&mut staged.frames);
        // What is kept anew behind its deletion stays.
        let is_kept = |(tenant, digest): &(String, Digest)| {
            staged.blobs.iter().any(|blob| blob.digest == *digest && blob.tenant == *tenant)
        };
        batch.forgotten.retain(|place| !is_kept(place));
        batch.blobs.append(&mut staged.blobs);
        if !staged.forgotten.is_empty() {
            // Nothing is deleted before the entry that says so is durable.
            batch.durability = Durability::Synced;
            batch.forgotten.append(&mut staged.forgotten);
        }
        Ok(reply)
    }

    /// Whether there is too little space; asked again at once as long as there is.
    fn space_is_low(&mut self) -> Result<bool, JournalError> {
        let now = Instant::now();
        if self.space_until.is_some_and(|until| now < until) {
            return Ok(false);
        }
        let is_low = self.parts.journal.space_is_low()?;
        self.space_until = if is_low { None } else { now.checked_add(SPACE_KNOWN_FOR) };
        Ok(is_low)
    }

    /// Content first, then the frames that name it, then (where asked for) the sync and the index.
    fn commit(&mut self, batch: Batch<A>) -> Result<(), JournalError> {
        let has_frames = !batch.frames.is_empty();
        for blob in batch.blobs {
            self.parts.content.put_digested(&blob.tenant, blob.digest, blob.bytes)?;
        }
        self.parts.content.sync()?;
        for (kind, payload) in batch.frames {
            let placed = self.parts.journal.append(kind, batch.now.as_ms(), &payload)?;
            let epoch = self.parts.journal.epoch();
            let (seq, at_ms, hash) = (placed.seq, placed.at_ms, placed.hash);
            self.unapplied.push(AppliedFrame { seq, epoch, at_ms, kind, payload, hash });
            self.parts.counters.frames.fetch_add(1, Ordering::Relaxed);
        }
        self.parts.journal.write()?;
        if batch.durability == Durability::Synced {
            if !batch.forgotten.is_empty() {
                // Before the entry is seen: it is not to be left behind while its deletions are in hand.
                self.parts.apply.deleting(true);
            }
            self.sync()?;
            return self.forget(batch.forgotten);
        }
        if has_frames && self.sync_due.is_none() {
            self.sync_due = Instant::now().checked_add(self.parts.config.sync_within);
        }
        Ok(())
    }

    /// Deletes content, its entry durable. Should this be cut short, the next start finishes it.
    fn forget(&mut self, forgotten: Vec<(String, Digest)>) -> Result<(), JournalError> {
        if forgotten.is_empty() {
            return Ok(());
        }
        for (tenant, digest) in forgotten {
            self.parts.content.forget(&tenant, digest)?;
        }
        self.parts.content.sync()?;
        self.parts.apply.deleting(false);
        self.look_at_debts();
        Ok(())
    }

    /// Deletions wait while a backup is made: they are tried again until they are done.
    fn look_at_debts(&mut self) {
        let owes = self.parts.content.owes();
        self.erase_due = if owes { Instant::now().checked_add(ERASE_AGAIN) } else { None };
    }

    fn sync(&mut self) -> Result<(), JournalError> {
        if !self.unapplied.is_empty() {
            let began = Instant::now();
            self.parts.journal.sync()?;
            self.parts.apply.synced(self.unapplied.len(), began.elapsed());
            self.parts.counters.syncs.fetch_add(1, Ordering::Relaxed);
            self.take_over()?;
        }
        self.sync_due = None;
        if self.witness_due.is_none() {
            // Not put off by what comes after: under steady load it would never be written.
            self.witness_due = Instant::now().checked_add(self.parts.config.witness_after);
        }
        Ok(())
    }

    /// The state machine learns of the entries; the readers see them from here on.
    fn take_over(&mut self) -> Result<(), JournalError> {
        let applied = self.parts.apply.applied(&self.unapplied);
        applied.map_err(|error| JournalError::Apply { reason: error.to_string() })?;
        self.unapplied.clear();
        Ok(())
    }

    fn tend_timers(&mut self) -> Result<(), JournalError> {
        let now = Instant::now();
        if self.sync_due.is_some_and(|due| due <= now) {
            self.sync()?;
        }
        if self.witness_due.is_some_and(|due| due <= now) {
            self.parts.journal.record_witness()?;
            self.witness_due = None;
        }
        if self.erase_due.is_some_and(|due| due <= now) {
            self.parts.apply.deleting(true);
            self.parts.content.sync()?;
            self.parts.apply.deleting(false);
            self.look_at_debts();
        }
        Ok(())
    }

    async fn close(
        mut self,
        closing: Option<oneshot::Sender<Result<(), JournalError>>>,
    ) -> WriterEnd {
        self.requests.close();
        let mut closers: Vec<_> = closing.into_iter().collect();
        let mut drained = Ok(());
        while drained.is_ok() {
            // Not `try_recv`: a sender that has its place already may still be on its way to it, and would wait for ever.
            let Some(message) = self.requests.recv().await else { break };
            match message {
                Message::Request(request, reply) => {
                    let served = self.serve_batch(Some((request, reply)));
                    drained = served.map(|closer| closers.extend(closer));
                }
                Message::Close(reply) => closers.push(reply),
                Message::TakeLater => {}
            }
        }
        self.later.lock().is_closed = true;
        let drained = drained.and_then(|()| self.serve_batch(None).map(drop));
        if let Err(error) = drained.and_then(|()| self.sync()).and_then(|()| self.finish()) {
            refuse(closers, &error);
            return self.stop(error).await;
        }
        let Parts { journal, content, apply, .. } = self.parts;
        // All is released before anybody is told, so that they may open it again at once; the lock last.
        content.close();
        drop(apply);
        let closed = journal.close();
        for reply in closers {
            send(reply, closed.clone());
        }
        closed.map_or_else(WriterEnd::Failed, |()| WriterEnd::Closed)
    }

    fn finish(&mut self) -> Result<(), JournalError> {
        let finished = self.parts.apply.closing();
        finished.map_err(|error| JournalError::Apply { reason: error.to_string() })
    }

    /// Refuses everybody who still waits. Their requests were not prepared.
    async fn stop(mut self, error: JournalError) -> WriterEnd {
        tracing::error!(%error, "the journal writer stops; the process has to end and recover");
        self.requests.close();
        self.later.lock().is_closed = true;
        while let Some(message) = self.requests.recv().await {
            match message {
                Message::Request(_, reply) => send(reply, Err(JournalError::Poisoned.into())),
                Message::Close(reply) => send(reply, Err(error.clone())),
                Message::TakeLater => {}
            }
        }
        WriterEnd::Failed(error)
    }
}

fn refuse(
    closers: impl IntoIterator<Item = oneshot::Sender<Result<(), JournalError>>>,
    error: &JournalError,
) {
    for reply in closers {
        send(reply, Err(error.clone()));
    }
}

/// Answers a caller; one that has gone misses its answer, what was decided stays.
fn send<T>(reply: oneshot::Sender<T>, answer: T) {
    if reply.send(answer).is_err() {
        tracing::debug!("a caller of the journal writer has gone before its answer");
    }
}
