//! Sessions belong to the one who opened them.
//!
//! Owns whose they are, and how many there may be. Possession of an id is no authentication: a session of somebody else answers as one that
//! does not exist (T: state-handle hijack).

use std::time::Duration;

use moka::sync::Cache;

use placet_identity::VerifiedCaller;
use placet_types::digest::{Digest, DigestBuilder};

/// A session that nobody uses for so long is forgotten.
const IDLE: Duration = Duration::from_secs(24 * 60 * 60);

/// Who opened which session.
#[derive(Debug)]
pub(crate) struct SessionOwners(Cache<String, Digest>);

impl SessionOwners {
    pub(crate) fn new(sessions_max: u64) -> Self {
        Self(Cache::builder().max_capacity(sessions_max).time_to_idle(IDLE).build())
    }

    pub(crate) fn opened(&self, session: &str, caller: &VerifiedCaller) {
        self.0.insert(session.to_owned(), owner(caller));
    }

    pub(crate) fn is_of(&self, session: &str, caller: &VerifiedCaller) -> bool {
        self.0.get(session) == Some(owner(caller))
    }

    pub(crate) fn closed(&self, session: &str) {
        self.0.invalidate(session);
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.run_pending_tasks();
        self.0.entry_count()
    }
}

fn owner(caller: &VerifiedCaller) -> Digest {
    caller.chain().digest_into(DigestBuilder::new("placet.mcp_session.v1")).finish()
}
