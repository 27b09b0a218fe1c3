//! The OAuth clients that agents of one issuer came with.
//!
//! Owns a short memory: what agents were not seen with since the start, or too long ago, is not in it, so it stands beside `person_clients` and not
//! in its place. Invariants: only a verified token of an agent or a service puts a name in; no more than [`KEPT_MAX`] are kept.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// How many are kept; the one that was not seen for longest goes for a new one.
const KEPT_MAX: usize = 4_096;

/// The memory.
#[derive(Debug, Default)]
pub(crate) struct AgentClients(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    /// Grows with each look, so that it orders them.
    number: u64,
    last: HashMap<String, u64>,
}

impl AgentClients {
    /// An agent came with a token of this client.
    pub(crate) fn saw(&self, client: &str) {
        let mut seen = self.lock();
        seen.number = seen.number.wrapping_add(1);
        let number = seen.number;
        if let Some(last) = seen.last.get_mut(client) {
            *last = number;
            return;
        }
        if seen.last.len() >= KEPT_MAX {
            let oldest = seen.last.iter().min_by_key(|(_, last)| **last);
            if let Some(oldest) = oldest.map(|(client, _)| client.clone()) {
                seen.last.remove(&oldest);
            }
        }
        seen.last.insert(client.to_owned(), number);
    }

    /// Whether an agent came with a token of this client.
    pub(crate) fn has(&self, client: &str) -> bool {
        self.lock().last.contains_key(client)
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_has_an_end_and_keeps_what_is_seen_still() {
        let clients = AgentClients::default();
        clients.saw("rare");
        clients.saw("often");
        for number in 2..KEPT_MAX {
            clients.saw(&format!("client-{number}"));
        }
        clients.saw("often");
        assert!(clients.has("rare"));
        clients.saw("one more");
        assert!(!clients.has("rare"), "the one that was not seen for longest");
        assert!(clients.has("often") && clients.has("one more") && clients.has("client-2"));
        assert_eq!(clients.lock().last.len(), KEPT_MAX);
    }
}
