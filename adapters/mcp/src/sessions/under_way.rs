//! What is under way in a place, and how those who wait for it hear of its end.
//!
//! Owns the ways in which that may end. Does none of it (`sessions`, `opening`). Invariants: what is under way goes on anyone who still waits for
//! it; everybody who does hears the same.

use std::sync::Arc;

use placet_adapter::outcome::AdapterError;
use tokio::sync::watch;

use super::opening::Session;

/// How it ended.
pub(super) type Ended = Result<Arc<Session>, Unready>;

/// Why there is no session.
#[derive(Debug, Clone)]
pub(super) enum Unready {
    /// It failed so.
    Failed(AdapterError),
    /// It failed so because of the credential that it was begun with; another one may be taken.
    OfCredential(AdapterError),
    /// The server did not begin it in the time that a connection may take.
    Stalled(String),
    /// The server does not know it any more; another one may be begun.
    Gone,
}

/// What a place has for a call.
pub(super) enum Found {
    /// A session.
    Ready(Arc<Session>),
    /// Somebody has begun what has to be done before.
    UnderWay(Progress),
    /// Anyone who finds it has to begin with that.
    ToDo(ToDo),
    /// A session that takes no further calls.
    Over,
}

/// What has to be done before calls go through a place.
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

/// What is done.
pub(super) enum Task {
    /// A session is begun.
    Open,
    /// The server is asked whether it still knows this one.
    Look(Arc<Session>),
}

/// Tells the end of it, once.
pub(super) struct Teller(watch::Sender<Option<Ended>>);

impl Teller {
    pub(super) fn tell(self, ended: Ended) {
        drop(self.0.send_replace(Some(ended)));
    }
}

/// Where it is waited for.
#[derive(Clone)]
pub(super) struct Progress(watch::Receiver<Option<Ended>>);

impl Progress {
    /// How it ended. What broke off without a word has left nothing.
    pub(super) async fn ended(mut self) -> Ended {
        let told = match self.0.wait_for(Option::is_some).await {
            Ok(told) => Option::clone(&told),
            Err(_broken) => None,
        };
        told.unwrap_or(Err(Unready::Gone))
    }
}
