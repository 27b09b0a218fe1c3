//! Sessions in memory, that several listeners of a test may share as nodes share a database.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use parking_lot::Mutex;

use placet_types::{
    clock::Timestamp,
    digest::Digest,
    sessions::{KeptSession, SessionAnswer, SessionLimits, SessionStore, SessionsUnavailable},
};
use tokio::time::Instant;

use placet_api::testing::people::NOW_MS;

#[derive(Debug, Default)]
pub(crate) struct MemorySessions {
    pub(super) all: Mutex<BTreeMap<Digest, KeptSession>>,
    /// Whether the store is unavailable.
    pub(super) is_away: AtomicBool,
    /// How often a session was looked up.
    pub(super) finds: AtomicUsize,
    /// Whether look-ups of unknown keys hang.
    pub(super) hangs: AtomicBool,
    /// Since when its clock goes, where it goes: with the time of the test.
    pub(super) since: Option<Instant>,
}

impl MemorySessions {
    pub(super) fn going() -> Self {
        Self { since: Some(Instant::now()), ..Self::default() }
    }

    fn answer<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut BTreeMap<Digest, KeptSession>) -> T,
    ) -> SessionAnswer<'_, T> {
        let answer = if self.is_away.load(Ordering::SeqCst) {
            Err(SessionsUnavailable("the test says so".to_owned()))
        } else {
            Ok(change(&mut self.all.lock()))
        };
        Box::pin(std::future::ready(answer))
    }
}

impl SessionStore for MemorySessions {
    fn time(&self) -> Timestamp {
        let passed = self.since.map_or(0, |since| since.elapsed().as_millis());
        Timestamp::from_ms(NOW_MS).plus_ms(i64::try_from(passed).unwrap())
    }

    fn begin(&self, session: KeptSession, limits: SessionLimits) -> SessionAnswer<'_, bool> {
        self.answer(|all| {
            all.retain(|_, other| limits.counts(other));
            let own = |other: &KeptSession| other.person == session.person;
            while all.values().filter(|other| own(other)).count() >= limits.per_person {
                let own = all.values().filter(|other| own(other));
                let oldest = own.min_by_key(|other| other.began_at).map(|other| other.key);
                drop(oldest.and_then(|oldest| all.remove(&oldest)));
            }
            let has_room = all.len() < limits.all;
            if has_room {
                all.insert(session.key, session);
            }
            has_room
        })
    }

    fn find(&self, key: Digest) -> SessionAnswer<'_, Option<KeptSession>> {
        self.finds.fetch_add(1, Ordering::SeqCst);
        if self.hangs.load(Ordering::SeqCst) && !self.all.lock().contains_key(&key) {
            return Box::pin(std::future::pending());
        }
        self.answer(|all| all.get(&key).cloned())
    }

    fn used(&self, key: Digest, at: Timestamp) -> SessionAnswer<'_, ()> {
        self.answer(|all| {
            if let Some(session) = all.get_mut(&key) {
                session.used_at = at;
            }
        })
    }

    fn end(&self, key: Digest) -> SessionAnswer<'_, ()> {
        self.answer(|all| drop(all.remove(&key)))
    }
}
