//! Sessions of people at the console: what is kept of one, and who keeps them for all nodes.
//!
//! Owns the form and the trait. Does not keep anything, and does not know what a session proves. Invariant: nothing in here lets anybody
//! in by itself: a session is looked up by the digest of a secret that only its browser has, and what it proves is sealed under that secret.

use std::{fmt, future::Future, pin::Pin};

use crate::{clock::Timestamp, digest::Digest};

/// What is kept of a session.
#[derive(Clone, PartialEq, Eq)]
pub struct KeptSession {
    /// The digest of the secret.
    pub key: Digest,
    /// A digest of whose it is, so that one person has few.
    pub person: Digest,
    /// When it began.
    pub began_at: Timestamp,
    /// When its person last did something, within a minute or so.
    pub used_at: Timestamp,
    /// What it was begun with, sealed under the secret.
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

/// How many sessions there may be, and which of them count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionLimits {
    /// Those that began before this are over.
    pub began_since: Timestamp,
    /// Those that were last used before this are over.
    pub used_since: Timestamp,
    /// How many one person has; the oldest gives way.
    pub per_person: usize,
    /// How many there are together.
    pub all: usize,
}

impl SessionLimits {
    /// Whether a session counts.
    #[must_use]
    pub fn counts(&self, session: &KeptSession) -> bool {
        session.began_at >= self.began_since && session.used_at >= self.used_since
    }
}

/// Sessions cannot be looked at or changed for the moment. Its text is for the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the sessions cannot be used: {0}")]
pub struct SessionsUnavailable(pub String);

/// What an answer of [`SessionStore`] is waited for with.
pub type SessionAnswer<'a, T> =
    Pin<Box<dyn Future<Output = Result<T, SessionsUnavailable>> + Send + 'a>>;

/// Keeps sessions. What it has answered outlives this process, and is so for every node that shares it.
pub trait SessionStore: fmt::Debug + Send + Sync {
    /// The time that sessions are judged by, the same on every node.
    fn time(&self) -> Timestamp;

    /// Adds a session; those that do not count are dropped first, and the person's oldest give way. Answers whether there was room.
    fn begin(&self, session: KeptSession, limits: SessionLimits) -> SessionAnswer<'_, bool>;

    /// The session of a key.
    fn find(&self, key: Digest) -> SessionAnswer<'_, Option<KeptSession>>;

    /// Notes that a session was used; one that is not there stays away.
    fn used(&self, key: Digest, at: Timestamp) -> SessionAnswer<'_, ()>;

    /// Ends a session, for every node and for ever.
    fn end(&self, key: Digest) -> SessionAnswer<'_, ()>;
}
