//! The writer: one thread that syncs for many callers, and the appender that it shares with callers that write by themselves.
//!
//! Owns: the queue, the batches, the order journal → sync → state → answers, and stopping at the first failure. Not here: what a request
//! means (the [`Apply`] given to it).
//! A request is written by its caller if nobody else is writing, and synced by it if few write and the disk is quick: handing it to another
//! thread and back takes longer.
//! Invariants: an answer leaves only after everything prepared before it in its batch is as durable as it asked for; a content is erased
//! only after the entry that says so is durable; after a failure nothing is accepted and the process is told to end.

mod appender;
mod batch;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use placet_ledger::store::{Admission, Committed, Durability};
use placet_types::clock::Clock;
use tokio::sync::{mpsc, oneshot, watch};

use self::appender::{Appender, AppenderGuard};
use super::content::{CONTENT_BYTES_MAX, Content, Place, Placed};
use super::error::JournalError;
use super::frame::PAYLOAD_BYTES_MAX;
use super::{Journal, check_size};

/// How many requests may be in the queue; further callers wait for a place.
const QUEUE_REQUESTS_MAX: usize = 4096;
/// How many requests share one sync at most.
const BATCH_REQUESTS_MAX: usize = 1024;
/// After how many staged bytes a batch accepts no further request.
const BATCH_BYTES_MAX: usize = 8 << 20;
/// How long entries that are only written may stay unsynced.
const SYNC_WITHIN: Duration = Duration::from_millis(50);
/// The longest time until the witness names a durable entry.
const WITNESS_AFTER: Duration = Duration::from_secs(1);

/// An entry that has become durable.
#[derive(Debug, Clone)]
pub(crate) struct AppliedFrame {
    pub(crate) seq: u64,
    /// Its hash in the chain.
    pub(crate) hash: [u8; 32],
    /// The contents that came with it.
    pub(crate) contents: Vec<Placed>,
}

/// The state machine that the writer runs.
pub(crate) trait Apply: Send + 'static {
    /// What callers submit.
    type Request: Send + 'static;
    /// Why they are refused.
    type Error: Send + fmt::Display + From<JournalError> + 'static;

    /// Whether a request is new work, asked before it is prepared.
    fn admission(request: &Self::Request) -> Admission;

    /// What a request takes, asked before it is prepared.
    fn effort(request: &Self::Request) -> Effort;

    /// Decides a request against the state *including everything prepared before it*, changes that state, and answers the entry that
    /// records it, which will have this place. It must not act on the outside: nothing is durable yet.
    ///
    /// # Errors
    /// Refuses the request; it must then have left the state as it was.
    fn prepare(&mut self, request: Self::Request, place: Committed) -> Result<Staged, Self::Error>;

    /// Applies entries that are now durable to the state, in order, before anybody is answered.
    ///
    /// # Errors
    /// The state failed: the writer stops, the waiters are refused, the process has to end.
    fn applied(&mut self, batch: &[AppliedFrame]) -> Result<(), JournalError>;

    /// The contents that are to be erased now, because durable entries say so.
    fn to_erase(&mut self) -> Vec<Place>;

    /// Whether any contents are to be erased, now or later.
    fn owes_erasures(&self) -> bool;

    /// Notes that these contents were erased.
    ///
    /// # Errors
    /// As [`Apply::applied`].
    fn erased(&mut self, places: &[Place]) -> Result<(), JournalError>;

    /// Reports that one sync made `entries` durable, and how long it took; for measurements.
    fn synced(&mut self, entries: usize, took: Duration);
}

/// What a request takes, and so who may write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    /// A write: its answer needs no sync.
    Write,
    /// A sync of little.
    Sync,
    /// A sync of much, or erasing contents: only the writer's thread does it.
    Much,
}

/// The entry that records a request.
pub(crate) struct Staged {
    kind: u8,
    payload: Vec<u8>,
    contents: Vec<Content>,
    durability: Durability,
}

impl Staged {
    /// An entry with the contents that it brings. The answer waits until it is as durable as `durability` says.
    ///
    /// # Errors
    /// [`JournalError::TooLarge`].
    pub(crate) fn new(
        kind: u8,
        payload: Vec<u8>,
        contents: Vec<Content>,
        durability: Durability,
    ) -> Result<Self, JournalError> {
        check_size(payload.len(), PAYLOAD_BYTES_MAX)?;
        contents
            .iter()
            .try_for_each(|content| check_size(content.bytes.len(), CONTENT_BYTES_MAX))?;
        Ok(Self { kind, payload, contents, durability })
    }

    fn bytes(&self) -> usize {
        let contents = self.contents.iter().map(Content::stored_bytes);
        contents.fold(self.payload.len(), usize::saturating_add)
    }
}

enum Message<A: Apply> {
    Request(A::Request, oneshot::Sender<Result<Committed, A::Error>>),
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

/// How callers reach the writer.
pub(crate) struct WriterHandle<A: Apply> {
    queue: mpsc::Sender<Message<A>>,
    appender: SharedAppender<A>,
    later: Arc<Mutex<Later<A>>>,
}

impl<A: Apply> WriterHandle<A> {
    /// Submits a request and waits until its answer may be given. Waits for a place in the queue where that is full.
    ///
    /// Dropping the future does not take the request back once it is in the queue.
    ///
    /// # Errors
    /// The state machine's refusal; or [`JournalError`] by way of `From`: after such an error the request may or may not
    /// have become durable, and the process has to end and recover.
    pub(crate) async fn submit(&self, request: A::Request) -> Result<Committed, A::Error> {
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

    /// Writes a request on the caller's thread and answers it; returns it if it has to be queued: others wait, another thread is writing or
    /// syncing, or it takes too long.
    fn write_here(&self, request: A::Request) -> Result<Result<Committed, A::Error>, A::Request> {
        let Some(shared) = self.appender.try_lock() else { return Err(request) };
        let Some(mut appender) = AppenderGuard::of(shared) else { return Err(request) };
        let is_quick = match A::effort(&request) {
            Effort::Write => true,
            // Those that wait share one sync.
            Effort::Sync => {
                self.queue.capacity() == self.queue.max_capacity() && appender.may_sync_here()
            }
            Effort::Much => false,
        };
        if !is_quick || !appender.may_write_here() {
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
    pub(crate) async fn submit_later(&self, request: A::Request) -> Result<(), A::Error> {
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
    pub(crate) async fn close(&self) -> Result<(), JournalError> {
        let (reply, answer) = oneshot::channel();
        drop(self.queue.send(Message::Close(reply)).await);
        answer.await.unwrap_or(Err(JournalError::Closed))
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

/// How a writer ended.
#[derive(Debug, Clone)]
pub(crate) enum WriterEnd {
    /// It was closed, and everything is durable.
    Closed,
    /// Something failed; the process has to end and recover.
    Failed(JournalError),
    /// Its thread panicked; the process has to end and recover.
    Panicked,
}

/// Tells when the writer ends; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct WriterWatch(watch::Receiver<Option<WriterEnd>>);

impl WriterWatch {
    /// Waits until the writer has ended, and answers how.
    pub(crate) async fn ended(&mut self) -> WriterEnd {
        match self.0.wait_for(Option::is_some).await {
            Ok(end) => end.clone().unwrap_or(WriterEnd::Panicked),
            Err(_gone) => WriterEnd::Panicked,
        }
    }
}

/// Starts the writer on a thread of its own; its entries take their time from `clock`. It ends with [`WriterHandle::close`], when the handle
/// is gone, or at a failure.
///
/// # Errors
/// The operating system gave no thread.
pub(crate) fn spawn<A: Apply>(
    journal: Journal,
    apply: A,
    clock: Arc<dyn Clock>,
) -> Result<(WriterHandle<A>, WriterWatch), JournalError> {
    let folder = journal.config.directory.clone();
    let failed = || JournalError::io("start the writer of", &folder);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().build().map_err(failed())?;
    let (queue, requests) = mpsc::channel(QUEUE_REQUESTS_MAX);
    let (ended, watch) = watch::channel(None);
    let later =
        Arc::new(Mutex::new(Later { requests: Vec::new(), is_looked_at: false, is_closed: false }));
    let appender = Appender::new(journal, apply, clock, Arc::clone(&later));
    let appender = Arc::new(Mutex::new(Some(appender)));
    let worker =
        batch::Worker { appender: Arc::clone(&appender), requests, later: Arc::clone(&later) };
    let handle = WriterHandle { queue, appender, later };
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
