//! The pending task of a place, and how those who wait for it learn of its end.
//!
//! Owns the possible results. Performs none of it (`sessions`, `opening`). Invariants: a task continues whether or not anybody still waits
//! for it; all that wait get the same result.

use std::sync::Arc;

use placet_adapter::outcome::AdapterError;
use tokio::sync::watch;

use super::opening::Session;

/// The result.
pub(super) type Ended = Result<Arc<Session>, Unready>;

/// Why there is no session.
#[derive(Debug, Clone)]
pub(super) enum Unready {
    /// It failed with this error.
    Failed(AdapterError),
    /// It failed because of the credential that it was begun with; another one may be accepted.
    OfCredential(AdapterError),
    /// The server did not begin it within the time for a connection.
    Stalled(String),
    /// The server does not know it any more; another one may be begun.
    Gone,
}

/// What a place has for a call.
pub(super) enum Found {
    /// A session.
    Ready(Arc<Session>),
    /// A pending task that another call has started.
    UnderWay(Progress),
    /// A task that the caller has to start.
    ToDo(ToDo),
    /// A session that takes no further calls.
    Over,
}

/// The task to do before calls use a place.
pub(super) struct ToDo {
    pub(super) task: Task,
    pub(super) teller: Teller,
    pub(super) progress: Progress,
}

impl ToDo {
    pub(super) fn new(task: Task) -> Self {
        let (teller, progress) = watch::channel(None);
        Self { task, teller: Teller(teller), progress: Progress(progress) }
    }
}

/// The kind of task.
pub(super) enum Task {
    /// Begin a session.
    Open,
    /// Ask the server whether it still knows this one.
    Look(Arc<Session>),
}

/// Reports the result, once.
pub(super) struct Teller(watch::Sender<Option<Ended>>);

impl Teller {
    pub(super) fn tell(self, ended: Ended) {
        drop(self.0.send_replace(Some(ended)));
    }
}

/// Waits for the result.
#[derive(Clone)]
pub(super) struct Progress(watch::Receiver<Option<Ended>>);

impl Progress {
    /// The result. An interrupted task has left nothing.
    pub(super) async fn ended(mut self) -> Ended {
        let told = match self.0.wait_for(Option::is_some).await {
            Ok(told) => Option::clone(&told),
            Err(_broken) => None,
        };
        told.unwrap_or(Err(Unready::Gone))
    }
}
