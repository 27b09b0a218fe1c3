//! The numbers of the sessions in use with one server.
//!
//! Owns that no two of them have the same: a server that gives one number to two owners does the calls of one as the other. Holds digests,
//! since anyone who knows a number is in the session.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;

use placet_types::digest::Digest;

use super::own::Own;

/// The numbers, each with the session that has it.
#[derive(Default)]
pub(super) struct Numbers(Mutex<HashMap<Digest, Weak<Own>>>);

impl Numbers {
    /// Takes a number for a session; not if another one has it that is not over.
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
