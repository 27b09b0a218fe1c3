//! Places for sessions: which there are, whose they are, and which one makes place for another.
//!
//! Owns the counting. Begins and ends no session and waits for nothing. Invariants: there are never more places than the limit says; where all
//! are taken, a tenant that has its share of them pushes out one of its own, and one that has less one of those that have more; a place in use
//! is never taken away.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use placet_adapter::adapter::SessionOwner;
use placet_types::digest::Digest;
use tokio::time::Instant;

use super::opening::Session;

/// So long before its credential is over a session is ended, while its end can still be told with it.
const ENDED_BEFORE: Duration = Duration::from_secs(3);

/// For whom a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Key {
    /// Calls of this owner.
    Owner(SessionOwner),
    /// Questions about calls, with the contract's own secret.
    Questions,
}

impl Key {
    /// Whose share of the places it is counted in.
    const fn tenant(&self) -> Option<Digest> {
        match self {
            Self::Owner(owner) => owner.tenant(),
            Self::Questions => None,
        }
    }
}

/// A place for a session, taken before there is one.
pub(super) struct Place {
    pub(super) session: Option<Arc<Session>>,
    /// Held by whoever opens it, or asks whether it is still there.
    pub(super) opening: Arc<tokio::sync::Mutex<()>>,
    pub(super) users: usize,
    pub(super) used_at: Instant,
    key: Key,
}

impl Place {
    /// Whether nobody is in it, and nobody was for `idle`, or its credential is nearly over.
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
    /// The place that serves an owner at this moment.
    current: HashMap<Key, u64>,
    places: HashMap<u64, Place>,
    last: u64,
    /// For which tenants the server did not begin one in the time of a connection, since it last began one for anybody.
    stalled: HashSet<Option<Digest>>,
    pub(super) is_closed: bool,
}

impl Places {
    pub(super) fn current(&self, key: Key) -> Option<u64> {
        self.current.get(&key).copied()
    }

    pub(super) fn get(&mut self, id: u64) -> Option<&mut Place> {
        self.places.get_mut(&id)
    }

    pub(super) fn add(&mut self, key: Key) -> u64 {
        self.last = self.last.saturating_add(1);
        let place = Place {
            session: None,
            opening: Arc::default(),
            users: 0,
            used_at: Instant::now(),
            key,
        };
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
        self.idlest(|place| count_of(place.key.tenant()) > share).or_else(own)
    }

    fn idlest(&self, is_meant: impl Fn(&Place) -> bool) -> Option<u64> {
        let unused = self.places.iter().filter(|(_, place)| place.users == 0 && is_meant(place));
        unused.min_by_key(|(_, place)| place.used_at).map(|(id, _)| *id)
    }

    /// A session was begun in a place: the server does begin some.
    pub(super) fn begun(&mut self, id: u64, session: &Arc<Session>) {
        self.stalled.clear();
        if let Some(place) = self.places.get_mut(&id) {
            place.session = Some(Arc::clone(session));
        }
    }

    /// The server did not begin one for `key` in all its time. Says whether that is news: what one tenant's users meet there says nothing
    /// about the server that its first time had not said.
    pub(super) fn stalls(&mut self, key: Key, max: usize) -> bool {
        self.stalled.len() < max && self.stalled.insert(key.tenant())
    }

    /// No further call goes through it; those that are in it end there.
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
        let is_alive = place.session.as_ref().is_some_and(|session| session.is_alive());
        if place.session.is_some() && !is_alive {
            self.retire(id);
        }
        let is_current = self.current.get(&key) == Some(&id);
        let is_needed = is_alive && is_current && !self.is_closed;
        if is_empty && !is_needed { self.remove(id) } else { None }
    }

    /// Takes out what nobody uses and has not been used for `idle`, or would soon have no credential to be ended with.
    pub(super) fn take_idle(&mut self, idle: Duration) -> Vec<Arc<Session>> {
        let now = Instant::now();
        let idle = self.places.iter().filter(|(_, place)| place.is_idle(idle, now));
        let idle: Vec<u64> = idle.map(|(id, _)| *id).collect();
        idle.into_iter().filter_map(|id| self.remove(id)).collect()
    }
}
