//! Sessions of people at the console: what is stored of one, and the store shared by all nodes.
//!
//! Owns the form and the trait. Stores nothing, and does not know what a session proves. Invariant: nothing in here grants access
//! by itself: a session is looked up by the digest of a secret that only its browser has, and what it proves is sealed under that secret.

use std::{fmt, future::Future, pin::Pin};

use serde::{Deserialize, Serialize};

use crate::{clock::Timestamp, digest::Digest};

/// The stored form of a session.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptSession {
    /// The digest of the secret.
    pub key: Digest,
    /// A digest of its owner, to limit the sessions of one person.
    pub person: Digest,
    /// When it began.
    pub began_at: Timestamp,
    /// When its owner was last active, to within a minute or so.
    pub used_at: Timestamp,
    /// Its sign-in, sealed under the secret.
    pub sealed: Vec<u8>,
}

impl fmt::Debug for KeptSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptSession")
            .field("began_at", &self.began_at)
            .field("used_at", &self.used_at)
            .finish_non_exhaustive()
    }
}

/// How many sessions there may be, and which of them are valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionLimits {
    /// Sessions that began before this have ended.
    pub began_since: Timestamp,
    /// Sessions last used before this have ended.
    pub used_since: Timestamp,
    /// How many one person may have; the oldest is dropped.
    pub per_person: usize,
    /// How many there may be in all.
    pub all: usize,
}

impl SessionLimits {
    /// Whether a session is still valid.
    pub fn counts(&self, session: &KeptSession) -> bool {
        session.began_at >= self.began_since && session.used_at >= self.used_since
    }
}

/// Sessions cannot be read or changed at present. Its text is for the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the sessions cannot be used: {0}")]
pub struct SessionsUnavailable(pub String);

/// The future of an answer of [`SessionStore`].
pub type SessionAnswer<'a, T> =
    Pin<Box<dyn Future<Output = Result<T, SessionsUnavailable>> + Send + 'a>>;

/// Stores sessions. What it has answered outlives this process, and holds for every node that shares it.
pub trait SessionStore: fmt::Debug + Send + Sync {
    /// The time by which sessions expire, the same on every node.
    fn time(&self) -> Timestamp;

    /// Adds a session; invalid ones are dropped first, then the person's oldest. Returns whether there was room.
    fn begin(&self, session: KeptSession, limits: SessionLimits) -> SessionAnswer<'_, bool>;

    /// The session of a key.
    fn find(&self, key: Digest) -> SessionAnswer<'_, Option<KeptSession>>;

    /// Notes that a session was used; a missing one is not created.
    fn used(&self, key: Digest, at: Timestamp) -> SessionAnswer<'_, ()>;

    /// Ends a session, on every node and for good.
    fn end(&self, key: Digest) -> SessionAnswer<'_, ()>;
}
