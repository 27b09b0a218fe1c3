//! Places for sessions: which exist, who owns them, and which one makes room for another.
//!
//! Owns the counting, and the callers for whom the server begins no session. Begins and ends no session and waits for nothing. Invariants:
//! there are never more places than the limit; if all are taken, a tenant with its full share pushes out one of its own, one with less
//! one of a tenant with more, or, if it has none, the one idle for the longest; a place in use is never taken away.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use placet_adapter::{adapter::SessionOwner, outcome::AdapterError};
use placet_types::digest::Digest;
use tokio::time::Instant;

use super::{
    opening::Session,
    under_way::{Found, Progress, Task, ToDo, Unready},
};

/// How long before its credential expires a session is ended, while the credential still serves to end it.
const ENDED_BEFORE: Duration = Duration::from_secs(3);
/// How long the server is not asked again after it did not begin a session for a caller.
const HELD_FOR: Duration = Duration::from_secs(3);
/// How long such a failure is remembered: when the server is asked again, only the asking call waits.
const HELD_KEPT: Duration = Duration::from_mins(1);

/// Whom a session is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Key {
    /// Calls of this owner.
    Owner(SessionOwner),
    /// Probes, with the contract's own secret.
    Questions,
}

impl Key {
    /// Whether the session is kept for later use. A probe asks in the name that the contract's secret now stands for, and a server may
    /// continue as the creator of a session: after a rotation the answer would be somebody else's.
    pub(super) const fn is_kept(&self) -> bool {
        match self {
            Self::Owner(_) => true,
            Self::Questions => false,
        }
    }

    /// The tenant in whose share it counts.
    const fn tenant(&self) -> Option<Digest> {
        match self {
            Self::Owner(owner) => owner.tenant(),
            Self::Questions => None,
        }
    }
}

/// A place for a session, taken before the session exists.
struct Place {
    session: Option<Arc<Session>>,
    /// Its session is being begun, or checked.
    under_way: Option<Progress>,
    /// Calls, and the pending task.
    users: usize,
    used_at: Instant,
    key: Key,
}

/// One for whom the server did not begin a session in the time of a connection.
struct Held {
    since: Instant,
    /// Whether that is a sign of an outage that was not reported yet.
    is_news: bool,
}

impl Place {
    /// Whether it is unused, and was for `idle`, or its credential is about to expire.
    fn is_idle(&self, idle: Duration, now: Instant) -> bool {
        let ends = self.session.as_ref().and_then(|session| session.ends());
        let is_ending =
            ends.is_some_and(|ends| ends.saturating_duration_since(now) <= ENDED_BEFORE);
        self.users == 0 && (is_ending || now.saturating_duration_since(self.used_at) >= idle)
    }
}

/// The places of one connection.
#[derive(Default)]
pub(super) struct Places {
    /// The place that currently serves an owner.
    current: HashMap<Key, u64>,
    places: HashMap<u64, Place>,
    last: u64,
    /// The tenants for which the server did not begin a session in time, since it last began one for anybody.
    stalled: HashSet<Option<Digest>>,
    /// The callers for whom it recently did not.
    held: HashMap<Key, Held>,
    pub(super) is_closed: bool,
}

impl Places {
    pub(super) fn current(&self, key: Key) -> Option<u64> {
        self.current.get(&key).copied()
    }

    /// Puts a call into a place; returns what the place has for it.
    pub(super) fn enter(&mut self, id: u64, silent: Duration) -> Option<Found> {
        let place = self.places.get_mut(&id)?;
        place.users = place.users.saturating_add(1);
        place.used_at = Instant::now();
        if let Some(progress) = &place.under_way {
            return Some(Found::UnderWay(progress.clone()));
        }
        let task = match &place.session {
            Some(session) if !session.takes_calls() => return Some(Found::Over),
            Some(session) if session.is_silent(silent) => Task::Look(Arc::clone(session)),
            Some(session) => return Some(Found::Ready(Arc::clone(session))),
            None => Task::Open,
        };
        let to_do = ToDo::new(task);
        place.under_way = Some(to_do.progress.clone());
        // The pending task counts as a user, even when the call has left.
        place.users = place.users.saturating_add(1);
        Some(Found::ToDo(to_do))
    }

    pub(super) fn add(&mut self, key: Key) -> u64 {
        self.last = self.last.saturating_add(1);
        let place =
            Place { session: None, under_way: None, users: 0, used_at: Instant::now(), key };
        self.places.insert(self.last, place);
        self.current.insert(key, self.last);
        self.last
    }

    /// Whether there is room for one more of `max`.
    pub(super) fn has_room(&self, max: usize) -> bool {
        self.places.len() < max
    }

    /// The unused place that makes room for one of `key`, where all of `max` are taken.
    pub(super) fn to_push_out(&self, key: Key, max: usize) -> Option<u64> {
        let mut counts: HashMap<Option<Digest>, usize> = HashMap::from([(key.tenant(), 0)]);
        for place in self.places.values() {
            let count = counts.entry(place.key.tenant()).or_default();
            *count = count.saturating_add(1);
        }
        let share = max.checked_div(counts.len()).unwrap_or(max).max(1);
        let count_of = |tenant| counts.get(&tenant).copied().unwrap_or(0);
        let own = || self.idlest(|place| place.key.tenant() == key.tenant());
        if count_of(key.tenant()) >= share {
            return own();
        }
        let beyond = self.idlest(|place| count_of(place.key.tenant()) > share).or_else(own);
        // With more tenants than places, a tenant without one would never get any.
        let is_new = count_of(key.tenant()) == 0;
        beyond.or_else(|| self.idlest(|_| true).filter(|_| is_new))
    }

    fn idlest(&self, is_meant: impl Fn(&Place) -> bool) -> Option<u64> {
        let unused = self.places.iter().filter(|(_, place)| place.users == 0 && is_meant(place));
        unused.min_by_key(|(_, place)| place.used_at).map(|(id, _)| *id)
    }

    /// The pending task of a place has ended with a session.
    pub(super) fn ready(&mut self, id: u64, session: &Arc<Session>) {
        let Some(place) = self.places.get_mut(&id) else { return };
        place.under_way = None;
        if place.session.is_none() {
            place.session = Some(Arc::clone(session));
            // The server does begin some.
            self.stalled.clear();
            self.held.remove(&place.key);
        }
    }

    /// The pending task of a place has ended without a session known to be good.
    pub(super) fn unready(&mut self, id: u64, why: &Unready, max: usize) {
        let Some(place) = self.places.get_mut(&id) else { return };
        place.under_way = None;
        let (key, has_session) = (place.key, place.session.is_some());
        match why {
            Unready::Stalled(_) => self.stall(key, max),
            Unready::Gone => self.retire(id),
            Unready::Failed(_) | Unready::OfCredential(_) => {}
        }
        if !has_session {
            // It has no session that would have to be ended.
            drop(self.remove(id));
        }
    }

    /// The server did not begin a session for `key` in time. That is news once for each tenant: what the tenant's other users experience
    /// adds nothing about the server.
    fn stall(&mut self, key: Key, max: usize) {
        let is_news = self.stalled.len() < max && self.stalled.insert(key.tenant());
        self.held.retain(|_, held| held.since.elapsed() < HELD_KEPT);
        if self.held.len() < max {
            self.held.insert(key, Held { since: Instant::now(), is_news });
        }
    }

    /// Why no session is begun for `key` at present, and nobody waits for one.
    pub(super) fn refusal(&mut self, key: Key) -> Option<AdapterError> {
        let age = self.held.get(&key)?.since.elapsed();
        let is_tried = self.current.contains_key(&key);
        if age < HELD_FOR || (is_tried && age < HELD_KEPT) {
            let why = "a moment ago the server did not begin one for the same caller".to_owned();
            return Some(self.hear(key, why));
        }
        None
    }

    /// Reports that the server did not begin a session for `key`. The first report is of an outage, if it is a sign of one.
    pub(super) fn hear(&mut self, key: Key, why: String) -> AdapterError {
        let held = self.held.get_mut(&key);
        if held.is_some_and(|held| std::mem::take(&mut held.is_news)) {
            AdapterError::Unavailable(why)
        } else {
            AdapterError::NoSession(why)
        }
    }

    /// No further calls use it; those in it end there.
    pub(super) fn retire(&mut self, id: u64) {
        let key = self.places.get(&id).map(|place| place.key);
        if let Some(key) = key.filter(|key| self.current.get(key) == Some(&id)) {
            self.current.remove(&key);
        }
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<Arc<Session>> {
        self.retire(id);
        self.places.remove(&id)?.session
    }

    /// A call has left a place. Answers the session that nobody needs any more.
    pub(super) fn leave(&mut self, id: u64) -> Option<Arc<Session>> {
        let place = self.places.get_mut(&id)?;
        place.users = place.users.saturating_sub(1);
        place.used_at = Instant::now();
        let (is_empty, key) = (place.users == 0, place.key);
        let takes_calls = place.session.as_ref().is_some_and(|session| session.takes_calls());
        if place.session.is_some() && !takes_calls {
            self.retire(id);
        }
        let is_current = self.current.get(&key) == Some(&id);
        let is_needed = takes_calls && is_current && key.is_kept() && !self.is_closed;
        if is_empty && !is_needed { self.remove(id) } else { None }
    }

    /// Removes places that have been unused for `idle`, or whose credential would soon be too old to end the session.
    pub(super) fn take_idle(&mut self, idle: Duration) -> Vec<Arc<Session>> {
        let now = Instant::now();
        let idle = self.places.iter().filter(|(_, place)| place.is_idle(idle, now));
        let idle: Vec<u64> = idle.map(|(id, _)| *id).collect();
        idle.into_iter().filter_map(|id| self.remove(id)).collect()
    }
}
