//! The writer: one thread that syncs for many callers, and the appender that it shares with callers that need no sync.
//!
//! Owns: the queue, the batches, the order journal → sync → state → answers, and stopping at the first failure. Not here: what a request
//! means (the [`Apply`] given to it).
//! A request that only has to be written is written by its caller if nobody else is writing: handing it to another thread and back takes
//! longer than the write.
//! Invariants: an answer leaves only after everything prepared before it in its batch is as durable as it asked for; a content is erased
//! only after the entry that says so is durable; after a failure nothing is accepted and the process is told to end.

mod appender;
mod batch;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
pub use placet_ledger::store::{Admission, Durability};
use placet_types::clock::{Clock, Timestamp};
use tokio::sync::{mpsc, oneshot, watch};

use self::appender::{Appender, AppenderGuard, Parts};
use super::content::{CONTENT_BYTES_MAX, Content, Place, Placed};
use super::error::JournalError;
use super::frame::PAYLOAD_BYTES_MAX;
use super::medium::to_u64;
use super::{Journal, JournalReader, check_size};

/// An entry that has become durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppliedFrame {
    /// Its sequence number.
    pub seq: u64,
    /// The epoch it was written in.
    pub epoch: u64,
    /// When it was appended.
    pub at_ms: i64,
    /// What kind of record it is.
    pub kind: u8,
    /// The record.
    pub payload: Vec<u8>,
    /// Its hash in the chain.
    pub hash: [u8; 32],
    /// The contents that came with it.
    pub contents: Vec<Placed>,
}

/// The state could not be brought up to the journal; the process has to end and recover.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct ApplyFailed(pub String);

/// The state machine that the writer runs.
pub trait Apply: Send + 'static {
    /// What callers submit.
    type Request: Send + 'static;
    /// What they get as an answer.
    type Reply: Send + 'static;
    /// Why they are refused.
    type Error: Send + fmt::Display + From<JournalError> + 'static;

    /// Whether a request is new work, asked before it is prepared.
    fn admission(request: &Self::Request) -> Admission;

    /// Whether the answer to a request needs no sync, so that its caller may write it.
    fn is_only_written(_request: &Self::Request) -> bool {
        false
    }

    /// Decides a request against the state *including everything prepared before it*, changes that state, and stages
    /// what has to be recorded. It must not act on the outside: nothing is durable yet.
    ///
    /// # Errors
    /// Refuses the request; it must then have left the state as it was. What it staged is dropped.
    fn prepare(
        &mut self,
        request: Self::Request,
        out: &mut Staged,
    ) -> Result<Self::Reply, Self::Error>;

    /// Applies entries that are now durable to the state, in order, before anybody is answered.
    ///
    /// # Errors
    /// The state failed: the writer stops, the waiters are refused, the process has to end.
    fn applied(&mut self, batch: &[AppliedFrame]) -> Result<(), ApplyFailed>;

    /// The contents that are to be erased now, because durable entries say so.
    fn to_erase(&mut self) -> Vec<Place> {
        Vec::new()
    }

    /// Whether any contents are to be erased, now or later.
    fn owes_erasures(&self) -> bool {
        false
    }

    /// Notes that these contents were erased.
    ///
    /// # Errors
    /// As [`Apply::applied`].
    fn erased(&mut self, _places: &[Place]) -> Result<(), ApplyFailed> {
        Ok(())
    }

    /// Reports that one sync made `entries` durable, and how long it took; for measurements.
    fn synced(&mut self, _entries: usize, _took: Duration) {}
}

/// What one request wants recorded.
#[derive(Debug)]
pub struct Staged {
    frames: Vec<StagedFrame>,
    durability: Durability,
    next_seq: u64,
    now: Timestamp,
}

/// An entry that is to be recorded.
#[derive(Debug)]
pub struct StagedFrame {
    /// The kind of record.
    pub kind: u8,
    /// The time that it carries.
    pub at: Timestamp,
    /// The record.
    pub payload: Vec<u8>,
    /// The contents that it brings.
    pub contents: Vec<Content>,
}

impl StagedFrame {
    fn bytes(&self) -> usize {
        let contents = self.contents.iter().map(Content::stored_bytes);
        contents.fold(self.payload.len(), usize::saturating_add)
    }
}

impl Staged {
    /// For the state machine's own tests: what the writer hands to [`Apply::prepare`].
    pub fn new(next_seq: u64, now: Timestamp) -> Self {
        Self { frames: Vec::new(), durability: Durability::Synced, next_seq, now }
    }

    /// The time that the staged entries will carry: the clock's, but never before the last entry's.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Stages an entry with the contents that it brings, and answers the sequence number it will have.
    ///
    /// # Errors
    /// [`JournalError::TooLarge`].
    pub fn frame(
        &mut self,
        kind: u8,
        payload: Vec<u8>,
        contents: Vec<Content>,
    ) -> Result<u64, JournalError> {
        check_size(payload.len(), PAYLOAD_BYTES_MAX)?;
        contents
            .iter()
            .try_for_each(|content| check_size(content.bytes.len(), CONTENT_BYTES_MAX))?;
        let seq = self.next_seq.saturating_add(to_u64(self.frames.len()));
        self.frames.push(StagedFrame { kind, at: self.now, payload, contents });
        Ok(seq)
    }

    /// Sets what the answer waits for; [`Durability::Synced`] by default.
    pub fn answer_when(&mut self, durability: Durability) {
        self.durability = durability;
    }

    /// The entries staged so far.
    pub fn frames(&self) -> &[StagedFrame] {
        &self.frames
    }
}

/// How the writer groups.
#[derive(Debug, Clone)]
pub struct WriterConfig {
    /// How many requests may be in the queue; further callers wait for a place.
    pub queue_requests_max: usize,
    /// How many requests share one sync at most.
    pub batch_requests_max: usize,
    /// After how many staged bytes a batch accepts no further request.
    pub batch_bytes_max: usize,
    /// How long entries that are only written may stay unsynced.
    pub sync_within: Duration,
    /// The longest time until the witness names a durable entry.
    pub witness_after: Duration,
    /// The clock that entries take their time from.
    pub clock: Arc<dyn Clock>,
}

impl WriterConfig {
    /// The defaults: a queue of 4096, batches of 1024 requests or 8 MiB, read audits synced within 50 ms.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            queue_requests_max: 4096,
            batch_requests_max: 1024,
            batch_bytes_max: 8 << 20,
            sync_within: Duration::from_millis(50),
            witness_after: Duration::from_secs(1),
            clock,
        }
    }
}

/// What the writer has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriterStats {
    /// Requests answered.
    pub requests: u64,
    /// Batches they came in.
    pub batches: u64,
    /// Entries written.
    pub frames: u64,
    /// Times the journal was made durable.
    pub syncs: u64,
}

#[derive(Debug, Default)]
struct Counters {
    requests: AtomicU64,
    batches: AtomicU64,
    frames: AtomicU64,
    syncs: AtomicU64,
}

enum Message<A: Apply> {
    Request(A::Request, oneshot::Sender<Result<A::Reply, A::Error>>),
    /// Requests were left for later, or something is due earlier than the writer knows.
    Look,
    Close(oneshot::Sender<Result<(), JournalError>>),
}

/// Requests whose callers do not wait.
struct Later<A: Apply> {
    requests: Vec<A::Request>,
    /// Whether the writer checks soon without being woken: it is about to sync what it has written.
    is_looked_at: bool,
    /// Whether the writer has ended, and checks no more.
    is_closed: bool,
}

/// The appender; absent once the writer has ended.
type SharedAppender<A> = Arc<Mutex<Option<Appender<A>>>>;

/// How callers reach the writer; cheap to clone.
pub struct WriterHandle<A: Apply> {
    queue: mpsc::Sender<Message<A>>,
    appender: SharedAppender<A>,
    later: Arc<Mutex<Later<A>>>,
    counters: Arc<Counters>,
    reader: JournalReader,
}

impl<A: Apply> WriterHandle<A> {
    /// Submits a request and waits until its answer may be given. Waits for a place in the queue where that is full.
    ///
    /// Dropping the future does not take the request back once it is in the queue.
    ///
    /// # Errors
    /// The state machine's refusal; or [`JournalError`] by way of `From`: after such an error the request may or may not
    /// have become durable, and the process has to end and recover.
    pub async fn submit(&self, request: A::Request) -> Result<A::Reply, A::Error> {
        let request = match self.write_here(request) {
            Ok(answer) => return answer,
            Err(request) => request,
        };
        let (reply, answer) = oneshot::channel();
        if self.queue.send(Message::Request(request, reply)).await.is_err() {
            return Err(JournalError::Closed.into());
        }
        answer.await.unwrap_or_else(|_gone| Err(JournalError::Unanswered.into()))
    }

    /// Writes a request on the caller's thread and answers it; returns it if it has to be queued: its answer needs a sync, or another
    /// thread is writing or syncing.
    fn write_here(&self, request: A::Request) -> Result<Result<A::Reply, A::Error>, A::Request> {
        if !A::is_only_written(&request) {
            return Err(request);
        }
        let Some(shared) = self.appender.try_lock() else { return Err(request) };
        let Some(mut appender) = AppenderGuard::of(shared) else { return Err(request) };
        if !appender.may_write_here() {
            return Err(request);
        }
        let knows = appender.wants_the_thread();
        // Also if this panics.
        let mut look = LookOnDrop { queue: &self.queue, is_wanted: true };
        let answer = appender.write_one(request);
        look.is_wanted = !knows && appender.wants_the_thread();
        Ok(answer)
    }

    /// Leaves a request without waiting for it: it is written with the next batch, and synced with what is written already, without waking
    /// the writer. Waits only where too many are left.
    ///
    /// # Errors
    /// [`JournalError`] by way of `From`, when the writer has ended.
    pub async fn submit_later(&self, request: A::Request) -> Result<(), A::Error> {
        let is_woken = {
            let mut later = self.later.lock();
            if later.is_closed {
                return Err(JournalError::Closed.into());
            }
            later.requests.push(request);
            let is_full = later.requests.len() >= self.queue.max_capacity();
            !later.is_looked_at || is_full
        };
        if is_woken && self.queue.send(Message::Look).await.is_err() {
            return Err(JournalError::Closed.into());
        }
        Ok(())
    }

    /// Processes what is queued, makes it durable, updates the witness and ends the writer.
    ///
    /// # Errors
    /// Why it could not.
    pub async fn close(&self) -> Result<(), JournalError> {
        let (reply, answer) = oneshot::channel();
        drop(self.queue.send(Message::Close(reply)).await);
        answer.await.unwrap_or(Err(JournalError::Closed))
    }

    /// A reader of durable entries.
    pub fn reader(&self) -> JournalReader {
        self.reader.clone()
    }

    /// What has been done so far.
    pub fn stats(&self) -> WriterStats {
        WriterStats {
            requests: self.counters.requests.load(Ordering::Relaxed),
            batches: self.counters.batches.load(Ordering::Relaxed),
            frames: self.counters.frames.load(Ordering::Relaxed),
            syncs: self.counters.syncs.load(Ordering::Relaxed),
        }
    }
}

/// Wakes the writer's thread to check for work.
struct LookOnDrop<'a, A: Apply> {
    queue: &'a mpsc::Sender<Message<A>>,
    is_wanted: bool,
}

impl<A: Apply> Drop for LookOnDrop<'_, A> {
    fn drop(&mut self) {
        // If the queue is full it is awake.
        if self.is_wanted
            && let Err(error) = self.queue.try_send(Message::Look)
        {
            tracing::trace!(%error, "the journal writer is awake, or has ended");
        }
    }
}

impl<A: Apply> Clone for WriterHandle<A> {
    fn clone(&self) -> Self {
        Self {
            queue: self.queue.clone(),
            appender: Arc::clone(&self.appender),
            later: Arc::clone(&self.later),
            counters: Arc::clone(&self.counters),
            reader: self.reader.clone(),
        }
    }
}

impl<A: Apply> fmt::Debug for WriterHandle<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriterHandle").field("counters", &self.counters).finish_non_exhaustive()
    }
}

/// How a writer ended.
#[derive(Debug, Clone)]
pub enum WriterEnd {
    /// It was closed, and everything is durable.
    Closed,
    /// Something failed; the process has to end and recover.
    Failed(JournalError),
    /// Its thread panicked; the process has to end and recover.
    Panicked,
}

/// Tells when the writer ends; cheap to clone.
#[derive(Debug, Clone)]
pub struct WriterWatch(watch::Receiver<Option<WriterEnd>>);

impl WriterWatch {
    /// Waits until the writer has ended, and answers how.
    pub async fn ended(&mut self) -> WriterEnd {
        match self.0.wait_for(Option::is_some).await {
            Ok(end) => end.clone().unwrap_or(WriterEnd::Panicked),
            Err(_gone) => WriterEnd::Panicked,
        }
    }
}

/// Starts the writer on a thread of its own. It ends with [`WriterHandle::close`], when all handles are gone, or at a failure.
///
/// # Errors
/// The operating system gave no thread.
pub fn spawn<A: Apply>(
    journal: Journal,
    apply: A,
    config: WriterConfig,
) -> Result<(WriterHandle<A>, WriterWatch), JournalError> {
    let folder = journal.config.directory.clone();
    let failed = || JournalError::io("start the writer of", &folder);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().build().map_err(failed())?;
    let (queue, requests) = mpsc::channel(config.queue_requests_max.max(1));
    let (ended, watch) = watch::channel(None);
    let counters = Arc::new(Counters::default());
    let later =
        Arc::new(Mutex::new(Later { requests: Vec::new(), is_looked_at: false, is_closed: false }));
    let reader = journal.reader();
    let parts = Parts { journal, apply, config, counters: Arc::clone(&counters) };
    let appender = Arc::new(Mutex::new(Some(Appender::new(parts, Arc::clone(&later)))));
    let worker =
        batch::Worker { appender: Arc::clone(&appender), requests, later: Arc::clone(&later) };
    let handle = WriterHandle { queue, appender, later, counters, reader };
    let thread = std::thread::Builder::new().name("placet-journal".to_owned());
    thread
        .spawn(move || {
            // Should this panic, `ended` is dropped without a value, which the watch tells apart.
            let end = runtime.block_on(worker.run());
            ended.send_replace(Some(end));
        })
        .map_err(failed())?;
    Ok((handle, WriterWatch(watch)))
}
