//! The numbers of the sessions in use with one server.
//!
//! Ensures that no two of them are the same: a server that assigns one id to two owners does one's calls as the other. Holds digests,
//! since anyone who knows an id can use the session.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;

use placet_types::digest::Digest;

use super::own::Own;

/// The ids, each with its session.
#[derive(Default)]
pub(super) struct Numbers(Mutex<HashMap<Digest, Weak<Own>>>);

impl Numbers {
    /// Registers an id for a session; fails if another open session has it.
    pub(super) fn take(&self, number: &str, own: &Arc<Own>) -> bool {
        let digest = Digest::of(number.as_bytes());
        let mut numbers = self.0.lock();
        numbers.retain(|_, own| own.upgrade().is_some_and(|own| own.is_open()));
        let is_others =
            numbers.get(&digest).is_some_and(|known| known.as_ptr() != Arc::as_ptr(own));
        if !is_others {
            numbers.insert(digest, Arc::downgrade(own));
        }
        !is_others
    }
}
