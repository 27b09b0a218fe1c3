//! The writer's thread: collects a batch, has it written and made durable, answers it.
//!
//! Owns: the loop, when it wakes, and the end.
//! Not here: the queue's other end, and the writing itself (`appender`). Invariant: the first failure ends everything.

use std::sync::Arc;

use parking_lot::Mutex;
use placet_ledger::store::Committed;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout_at;

use super::appender::AppenderGuard;
use super::{Apply, BATCH_REQUESTS_MAX, Later, Message, SharedAppender, WriterEnd};
use crate::journal::JournalError;

/// The thread's state.
pub(super) struct Worker<A: Apply> {
    pub(super) appender: SharedAppender<A>,
    pub(super) requests: mpsc::Receiver<Message<A>>,
    pub(super) later: Arc<Mutex<Later<A>>>,
}

type Reply<A> = oneshot::Sender<Result<Committed, <A as Apply>::Error>>;

/// The caller to be told when all is closed.
type Closer = oneshot::Sender<Result<(), JournalError>>;

struct Waiter<A: Apply> {
    reply: Reply<A>,
    answer: Result<Committed, A::Error>,
}

enum Wake<A: Apply> {
    Message(Message<A>),
    Timer,
    NoMoreHandles,
}

/// Why nothing more is written.
enum Stop {
    Failed(JournalError),
    /// A caller panicked while it wrote.
    Panicked,
}

impl From<JournalError> for Stop {
    fn from(error: JournalError) -> Self {
        Self::Failed(error)
    }
}

impl<A: Apply> Worker<A> {
    /// Runs until the writer is closed or something fails.
    pub(super) async fn run(mut self) -> WriterEnd {
        let ended = match self.serve().await {
            Ok(closing) => self.close(closing).await,
            Err(stop) => Err(stop),
        };
        match ended {
            Ok(()) => WriterEnd::Closed,
            Err(stop) => self.stop(stop).await,
        }
    }

    async fn serve(&mut self) -> Result<Option<Closer>, Stop> {
        loop {
            let request = match self.wake().await? {
                Wake::Message(Message::Request(request, reply)) => Some((request, reply)),
                Wake::Message(Message::Look) | Wake::Timer => None,
                Wake::Message(Message::Close(reply)) => return Ok(Some(reply)),
                Wake::NoMoreHandles => return Ok(None),
            };
            if let Some(closing) = self.serve_batch(request)? {
                return Ok(Some(closing));
            }
        }
    }

    /// Does what is due, and waits until there is something to do.
    async fn wake(&mut self) -> Result<Wake<A>, Stop> {
        let due = {
            let mut appender = AppenderGuard::of(self.appender.lock()).ok_or(Stop::Panicked)?;
            appender.tend_timers()?;
            // What is left for later from here on goes with the sync that is due; without one, the caller has to wake this thread.
            let mut later = self.later.lock();
            later.is_looked_at = appender.will_sync();
            if !later.requests.is_empty() && !later.is_looked_at {
                return Ok(Wake::Timer);
            }
            appender.due()
        };
        let received = match due {
            Some(due) => timeout_at(due, self.requests.recv()).await,
            None => Ok(self.requests.recv().await),
        };
        Ok(match received {
            Ok(Some(message)) => Wake::Message(message),
            Ok(None) => Wake::NoMoreHandles,
            Err(_elapsed) => Wake::Timer,
        })
    }

    /// Processes what was left for later, the request and those queued behind it, up to the limits, and answers them together.
    fn serve_batch(
        &mut self,
        request: Option<(A::Request, Reply<A>)>,
    ) -> Result<Option<Closer>, Stop> {
        let mut appender = AppenderGuard::of(self.appender.lock()).ok_or(Stop::Panicked)?;
        appender.check()?;
        let mut batch = appender.begin();
        let mut waiters: Vec<Waiter<A>> = Vec::new();
        let mut closing = None;
        let mut next = request;
        while let Some((request, reply)) = next.take() {
            let answer = appender.prepare(request, &mut batch);
            waiters.push(Waiter { reply, answer });
            if waiters.len() >= BATCH_REQUESTS_MAX || batch.is_full() {
                break;
            }
            match self.requests.try_recv() {
                Ok(Message::Request(request, reply)) => next = Some((request, reply)),
                Ok(Message::Close(reply)) => closing = Some(reply),
                Ok(Message::Look) | Err(_) => {}
            }
        }
        if waiters.is_empty() && batch.is_empty() {
            return Ok(closing);
        }
        let committed = appender.commit(batch, waiters.len());
        drop(appender);
        for waiter in waiters {
            let answer = match &committed {
                Ok(()) => waiter.answer,
                Err(error) => Err(error.clone().into()),
            };
            send(waiter.reply, answer);
        }
        if let Err(error) = committed {
            refuse(closing, &error);
            return Err(error.into());
        }
        Ok(closing)
    }

    async fn close(&mut self, closing: Option<Closer>) -> Result<(), Stop> {
        self.requests.close();
        let mut closers: Vec<_> = closing.into_iter().collect();
        let mut drained = Ok(());
        while drained.is_ok() {
            // Not `try_recv`: a sender that already has its slot may not have filled it yet, and would wait forever.
            let Some(message) = self.requests.recv().await else { break };
            match message {
                Message::Request(request, reply) => {
                    let served = self.serve_batch(Some((request, reply)));
                    drained = served.map(|closer| closers.extend(closer));
                }
                Message::Close(reply) => closers.push(reply),
                Message::Look => {}
            }
        }
        self.later.lock().is_closed = true;
        let drained = drained.and_then(|()| self.serve_batch(None).map(drop));
        // From here on no caller writes either.
        let appender = self.appender.lock().take();
        let closed = drained.and_then(|()| Ok(appender.ok_or(Stop::Panicked)?.close()?));
        let told = match &closed {
            Ok(()) => Ok(()),
            Err(Stop::Failed(error)) => Err(error.clone()),
            Err(Stop::Panicked) => Err(JournalError::Poisoned),
        };
        for reply in closers {
            send(reply, told.clone());
        }
        closed
    }

    /// Refuses everybody who is still waiting. Their requests were not prepared.
    async fn stop(mut self, stop: Stop) -> WriterEnd {
        self.requests.close();
        self.later.lock().is_closed = true;
        let Stop::Failed(error) = stop else {
            drop(self.appender.lock().take());
            return WriterEnd::Panicked;
        };
        tracing::error!(%error, "the journal writer stops; the process has to end and recover");
        while let Some(message) = self.requests.recv().await {
            match message {
                Message::Request(_, reply) => send(reply, Err(JournalError::Poisoned.into())),
                Message::Close(reply) => send(reply, Err(error.clone())),
                Message::Look => {}
            }
        }
        drop(self.appender.lock().take());
        WriterEnd::Failed(error)
    }
}

fn refuse(closers: impl IntoIterator<Item = Closer>, error: &JournalError) {
    for reply in closers {
        send(reply, Err(error.clone()));
    }
}

/// Answers a caller; if it has gone it misses its answer, but the decision stands.
fn send<T>(reply: oneshot::Sender<T>, answer: T) {
    if reply.send(answer).is_err() {
        tracing::debug!("a caller of the journal writer has gone before its answer");
    }
}
