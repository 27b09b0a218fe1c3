//! The sessions of one connection with a server that keeps sessions: one for each owner of credentials.
//!
//! Owns which call uses which session, how many there are and when one ends. Does not know what a session is made of (`opening`) and
//! posts no call. Not here: the contract's own session, which lists tools and receives announcements; the counting of places (`places`);
//! and how waiting calls learn of a result (`under_way`).
//! Invariants: calls of two owners never share a session; the end of a session ends no call in another one, nor one still running in it;
//! there are never more than the limit, except those that are just ending; a server's refusal towards one owner is no failure for all, as
//! long as it can be reached; a session is begun once for all that wait for it, no matter which of them gives up.

mod opening;
mod places;
mod under_way;

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};

use futures::{StreamExt as _, stream};
use placet_adapter::{adapter::SessionOwner, outcome::AdapterError};
use tokio::{
    runtime::Handle,
    time::{sleep, timeout},
};

pub(crate) use self::opening::Opener;
use self::{
    opening::Session,
    places::{Key, Places},
    under_way::{Ended, Found, Task, ToDo, Unready},
};
use crate::{
    http::{Speaker, headers::CallHeaders},
    link::Link,
    settings::SessionLimits,
};

/// How long a session that makes room for another may take to end.
const PLACE_WAIT: Duration = Duration::from_secs(2);
/// How long closing a connection waits for its sessions.
const CLOSE_WAIT: Duration = Duration::from_secs(8);
/// How many are ended at the same time.
const CLOSED_AT_ONCE: usize = 16;
/// How often a call looks for a live session: once is enough, unless sessions end while it waits.
const LOOKS_MAX: usize = 3;
/// The longest interval between checks for sessions that are idle, or whose credential is about to expire.
const SWEPT_EVERY: Duration = Duration::from_secs(1);

/// The sessions.
pub(crate) struct Sessions {
    opener: Opener,
    limits: SessionLimits,
    state: Mutex<Places>,
}

impl Sessions {
    /// None yet; each is begun by `opener`.
    pub(crate) fn new(opener: Opener, limits: SessionLimits) -> Arc<Self> {
        let sessions = Arc::new(Self { opener, limits, state: Mutex::default() });
        drop(tokio::spawn(sweep(Arc::downgrade(&sessions), limits.idle)));
        sessions
    }

    /// The session for a call, begun with the call's own credential if there is none.
    ///
    /// # Errors
    /// Why there is none within the given time.
    pub(crate) async fn for_call(
        self: &Arc<Self>,
        owner: SessionOwner,
        headers: &CallHeaders,
        given: Duration,
    ) -> Result<Turn, AdapterError> {
        let entering = self.enter(Key::Owner(owner), || Speaker::callers(headers));
        timeout(given, entering).await.unwrap_or_else(|_elapsed| {
            // One caller's deadline says nothing about the server: only that of a connection does.
            let why = "the server did not begin one in the time of the call".to_owned();
            Err(AdapterError::NoSession(why))
        })
    }

    /// A session for one probe, begun with the contract's own secret.
    pub(crate) async fn for_questions(self: &Arc<Self>) -> Result<Turn, AdapterError> {
        self.enter(Key::Questions, || Speaker::contract(true)).await
    }

    async fn enter(
        self: &Arc<Self>,
        key: Key,
        speaker: impl Fn() -> Speaker,
    ) -> Result<Turn, AdapterError> {
        let mut last = AdapterError::NoSession("the server ends one after the other".to_owned());
        for _ in 0..LOOKS_MAX {
            let Taken { mut turn, found, pushed_out } = self.take(key)?;
            let (ended, is_ours) = match found {
                Found::Ready(session) => (Ok(session), true),
                Found::UnderWay(progress) => (progress.ended().await, false),
                Found::ToDo(to_do) => {
                    let progress = to_do.progress.clone();
                    let working =
                        Arc::clone(self).work(self.turn(turn.place), speaker(), to_do, pushed_out);
                    // In a task of its own: if this call gives up, it continues for the owner's next call.
                    drop(tokio::spawn(working));
                    (progress.ended().await, true)
                }
                Found::Over => (Err(Unready::Gone), true),
            };
            match ended {
                Ok(session) if session.takes_calls() => {
                    session.goes_on_with(speaker());
                    turn.session = Some(session);
                    return Ok(turn);
                }
                // One observation is one failure of the tool, however many calls waited for it.
                Err(Unready::Failed(AdapterError::Unavailable(why))) if !is_ours => {
                    return Err(AdapterError::NoSession(why));
                }
                Err(Unready::Failed(error)) => return Err(error),
                Err(Unready::Stalled(why)) => return Err(self.hear(key, why)),
                Err(Unready::OfCredential(error)) if is_ours => return Err(error),
                // Another credential was refused; that of this call may be accepted, and is not at fault.
                Err(Unready::OfCredential(_)) => {
                    let why = "it was begun with other credentials, which were refused".to_owned();
                    last = AdapterError::NoSession(why);
                }
                Ok(_) | Err(Unready::Gone) => {
                    self.lock().retire(turn.place);
                }
            }
        }
        Err(last)
    }

    /// Does the pending task of a place, whether or not anybody still waits for it, and reports the result to those who do.
    async fn work(
        self: Arc<Self>,
        turn: Turn,
        speaker: Speaker,
        to_do: ToDo,
        pushed_out: Option<Arc<Session>>,
    ) {
        if let Some(one) = pushed_out {
            // It counts until the server was told of its end.
            let _ended = timeout(PLACE_WAIT, ending(one)).await.is_ok();
        }
        let ToDo { task, teller, progress: _ } = to_do;
        let ended = match task {
            Task::Open => self.opener.open(speaker).await.map(Arc::new),
            Task::Look(session) => {
                session.goes_on_with(speaker);
                let looked = session.look().await;
                looked.map(|()| session)
            }
        };
        self.note(turn.place, &ended);
        // Returned before the result is reported: a waiting call may need the place.
        drop(turn);
        teller.tell(ended);
    }

    fn note(&self, place: u64, ended: &Ended) {
        let mut state = self.lock();
        match ended {
            Ok(session) => state.ready(place, session),
            Err(why) => state.unready(place, why, self.limits.sessions_max),
        }
    }

    fn hear(&self, key: Key, why: String) -> AdapterError {
        self.lock().hear(key, why)
    }

    fn turn(self: &Arc<Self>, place: u64) -> Turn {
        Turn { sessions: Arc::clone(self), place, session: None }
    }

    /// Takes a place for a call: the owner's, a free one, or that of an idle session.
    fn take(self: &Arc<Self>, key: Key) -> Result<Taken, AdapterError> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(AdapterError::NoSession("the connection has ended".to_owned()));
        }
        if let Some(refusal) = state.refusal(key) {
            return Err(refusal);
        }
        let mut pushed_out = None;
        let max = self.limits.sessions_max;
        let place = match state.current(key).filter(|_| key.is_kept()) {
            Some(place) => place,
            None => {
                if !state.has_room(max) {
                    let full = "as many as there may be are in use".to_owned();
                    let idlest = state.to_push_out(key, max);
                    pushed_out = state.remove(idlest.ok_or(AdapterError::NoSession(full))?);
                }
                state.add(key)
            }
        };
        let gone = || AdapterError::NoSession("its place is gone".to_owned());
        let found = state.enter(place, self.limits.silent).ok_or_else(gone)?;
        Ok(Taken { turn: self.turn(place), found, pushed_out })
    }

    /// Begins no more sessions, and ends those without a call; the others end with their last call.
    pub(crate) async fn close(&self) {
        let idle = {
            let mut state = self.lock();
            state.is_closed = true;
            state.take_idle(Duration::ZERO)
        };
        let closing = end_all(idle);
        let _in_time = timeout(CLOSE_WAIT, closing).await.is_ok();
    }
    fn lock(&self) -> MutexGuard<'_, Places> {
        self.state.lock()
    }
}

/// A place that was taken for a call.
struct Taken {
    turn: Turn,
    found: Found,
    /// The session that has to end for it.
    pushed_out: Option<Arc<Session>>,
}

/// The use of a place by one call, or by its pending task; returned on drop.
pub(crate) struct Turn {
    sessions: Arc<Sessions>,
    place: u64,
    session: Option<Arc<Session>>,
}

impl Turn {
    /// Whether it belongs to these sessions.
    pub(crate) fn is_in(&self, sessions: &Arc<Sessions>) -> bool {
        Arc::ptr_eq(&self.sessions, sessions)
    }

    /// Whether its session has ended.
    pub(crate) fn is_over(&self) -> bool {
        !self.session.as_ref().is_some_and(|session| session.is_alive())
    }

    /// The session.
    pub(crate) fn link(&self) -> Option<&Link> {
        self.session.as_ref().map(|session| session.link())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(session) = self.sessions.lock().leave(self.place)
            && Handle::try_current().is_ok()
        {
            drop(tokio::spawn(ending(session)));
        }
    }
}

async fn ending(session: Arc<Session>) {
    // In a task of its own: it completes even if nobody waits for it any more.
    let _ended = tokio::spawn(async move { session.close().await }).await.is_ok();
}

async fn end_all(sessions: Vec<Arc<Session>>) {
    stream::iter(sessions).for_each_concurrent(CLOSED_AT_ONCE, ending).await;
}

/// Ends sessions that have been idle for too long, as long as `sessions` exists.
async fn sweep(sessions: Weak<Sessions>, idle: Duration) {
    let every = idle.checked_div(4).unwrap_or(idle);
    let every = every.clamp(Duration::from_millis(10), SWEPT_EVERY);
    loop {
        sleep(every).await;
        let Some(idle_ones) = sessions.upgrade().map(|sessions| sessions.lock().take_idle(idle))
        else {
            return;
        };
        end_all(idle_ones).await;
    }
}
