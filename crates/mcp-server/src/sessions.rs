//! Sessions belong to the callers who opened them.
//!
//! Owns whose they are, how many there may be, and how they are reached. An id alone does not authenticate: another caller's session
//! answers as one that does not exist (T: state-handle hijack).

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use moka::sync::Cache;
use rmcp::{Peer, RoleServer};
use tokio::time::Instant;

use placet_identity::VerifiedCaller;
use placet_types::{
    digest::{Digest, DigestBuilder},
    ids::{PrincipalId, TenantId},
    principal::{Principal, PrincipalKind},
};

/// How long a session may be idle before it is forgotten, here and by the transport, so that only open sessions are counted.
pub(crate) const IDLE: Duration = Duration::from_secs(60 * 60);

/// How often the transport sees a request of an active session: several times before it would forget the session.
const SHOWN_EVERY_MS: u64 = 10 * 60 * 1_000;

/// Whose place a session takes: its agent's, for whichever user it acts.
type Opener = (TenantId, PrincipalKind, PrincipalId);

/// An open session.
#[derive(Debug)]
pub(crate) struct Session {
    owner: Digest,
    opener: Opener,
    peer: OnceLock<Peer<RoleServer>>,
    deaf: AtomicBool,
    opened_at: Instant,
    /// When the transport was last shown a request of it, in milliseconds after it was opened.
    shown_ms: AtomicU64,
}

impl Session {
    fn of(owner: Digest, opener: Opener) -> Self {
        Self {
            owner,
            opener,
            peer: OnceLock::default(),
            deaf: AtomicBool::default(),
            opened_at: Instant::now(),
            shown_ms: AtomicU64::default(),
        }
    }

    /// Its client, once it was initialized.
    pub(crate) fn peer(&self) -> Option<&Peer<RoleServer>> {
        self.peer.get()
    }

    /// Its client does not accept notifications in time: it gets no more.
    pub(crate) fn deafen(&self) {
        self.deaf.store(true, Ordering::Relaxed);
    }
}

/// The open sessions.
#[derive(Debug)]
pub(crate) struct Sessions(Cache<String, Arc<Session>>);

impl Sessions {
    pub(crate) fn new(sessions_max: u64) -> Self {
        Self(Cache::builder().max_capacity(sessions_max).time_to_idle(IDLE).build())
    }

    pub(crate) fn opened(&self, session: &str, caller: &VerifiedCaller) {
        let opened = Session::of(owner(caller), opener(caller.actor.principal()));
        self.0.insert(session.to_owned(), Arc::new(opened));
    }

    /// A session's client has finished its initialization.
    pub(crate) fn initialized(&self, session: &str, peer: Peer<RoleServer>) {
        if let Some(session) = self.0.get(session) {
            session.peer.get_or_init(|| peer);
        }
    }

    pub(crate) fn is_of(&self, session: &str, caller: &VerifiedCaller) -> bool {
        self.0.get(session).is_some_and(|session| session.owner == owner(caller))
    }

    /// The session, if a request in it may bypass the transport: it is initialized, the transport still has it, and the transport has seen
    /// a request of it recently, without which it would forget the session.
    pub(crate) fn near(&self, session: &str) -> Option<Arc<Session>> {
        let session = self.0.get(session)?;
        if session.peer()?.is_transport_closed() {
            return None;
        }
        let now = u64::try_from(session.opened_at.elapsed().as_millis()).unwrap_or(u64::MAX);
        let shown = session.shown_ms.load(Ordering::Relaxed);
        if now.saturating_sub(shown) >= SHOWN_EVERY_MS {
            session.shown_ms.store(now, Ordering::Relaxed);
            return None;
        }
        Some(session)
    }

    pub(crate) fn closed(&self, session: &str) {
        self.0.invalidate(session);
    }

    /// Whether this principal may open one more of `sessions_max`: it takes at most half of the places, and its tenant three quarters, so
    /// that there is one for others.
    pub(crate) fn has_place(&self, principal: &Principal, sessions_max: u64) -> bool {
        self.0.run_pending_tasks();
        let (open, half) = (self.0.entry_count(), sessions_max.div_ceil(2));
        if open < half {
            return true;
        }
        let of_tenant = sessions_max.saturating_sub(sessions_max.div_ceil(4)).max(half);
        let wanted = opener(principal);
        let (mut own, mut tenants) = (0_u64, 0_u64);
        for (_, session) in &self.0 {
            own = own.saturating_add((session.opener == wanted).into());
            tenants = tenants.saturating_add((session.opener.0 == wanted.0).into());
        }
        open < sessions_max && own < half && tenants < of_tenant
    }

    /// Those whose clients accept notifications in time.
    pub(crate) fn listening(&self) -> Vec<Arc<Session>> {
        let sessions = self.0.iter().map(|(_, session)| session);
        sessions.filter(|one| one.peer().is_some() && !one.deaf.load(Ordering::Relaxed)).collect()
    }
}

fn owner(caller: &VerifiedCaller) -> Digest {
    caller.chain().digest_into(DigestBuilder::new("placet.mcp_session.v1")).finish()
}

fn opener(principal: &Principal) -> Opener {
    (principal.tenant_id.clone(), principal.kind, principal.id.clone())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn agent(tenant: &str, id: &str) -> Principal {
        serde_json::from_value(json!({ "kind": "agent", "tenant_id": tenant, "id": id })).unwrap()
    }

    /// Opens as many sessions as this agent may, each for another user.
    fn fill(sessions: &Sessions, agent: &Principal, sessions_max: u64) -> usize {
        let mut opened = 0_usize;
        while sessions.has_place(agent, sessions_max) {
            let user = format!("{}/{}/{opened}", agent.tenant_id, agent.id);
            let owner = DigestBuilder::new("test").field("user", &user).finish();
            sessions.0.insert(user, Arc::new(Session::of(owner, opener(agent))));
            opened = opened.saturating_add(1);
        }
        opened
    }

    #[test]
    fn an_agent_takes_half_for_all_its_users_and_a_tenant_three_quarters() {
        for (max, own, others, left) in [(1, 1, 0, 0), (2, 1, 0, 1), (10, 5, 2, 3), (16, 8, 4, 4)] {
            let sessions = Sessions::new(max);
            assert_eq!(fill(&sessions, &agent("acme", "a"), max), own, "of {max}");
            assert_eq!(fill(&sessions, &agent("acme", "b"), max), others, "of {max}");
            assert_eq!(fill(&sessions, &agent("globex", "a"), max), left, "of {max}");
        }
    }
}
