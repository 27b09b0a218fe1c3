//! Tokens of held calls, and the callers who came back for them: in memory, until they expire.
//!
//! Owns what is kept of a held call's caller alongside its record, and which held calls wait for their caller to come back with a new
//! token. None of this is in the ledger: after a restart every such call waits. Invariants: no token is kept past its own expiry, nor past
//! the last call that it is kept for; at the limit, the tenant with the most entries gives way.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;

use placet_credentials::CallTokens;
use placet_identity::SubjectToken;
use placet_types::{
    clock::Timestamp,
    digest::Digest,
    ids::{RecordId, TenantId},
};

use crate::call::Identity;

/// For how many held calls something is kept; beyond that, callers have to come back.
const KEPT_MAX: usize = 100_000;

/// Tokens of held calls.
#[derive(Debug)]
pub(crate) struct Tokens {
    kept: Mutex<Kept>,
    kept_max: usize,
}

#[derive(Debug, Default)]
struct Kept {
    of: HashMap<RecordId, Waiting>,
    by_tenant: HashMap<TenantId, HashSet<RecordId>>,
    /// One copy of a token for all calls that were made with it, and their number.
    known: HashMap<Digest, (SubjectToken, usize)>,
    /// Calls that wait for their caller, and until when.
    lacking: HashMap<RecordId, Timestamp>,
}

#[derive(Debug)]
struct Waiting {
    tenant: TenantId,
    /// Set if the call needs them.
    tokens: Option<CallTokens>,
    /// The caller who came back, with fresher authority than is recorded.
    renewed: Option<Box<Identity>>,
    /// When the authority expires.
    until: Timestamp,
}

/// What a call was attempted with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tried {
    /// Digests of the subject's token and the actor's.
    tokens: Option<(Digest, Option<Digest>)>,
    until: Timestamp,
}

impl Tried {
    pub(crate) fn of(identity: &Identity) -> Self {
        Self { tokens: identity.tokens.as_ref().map(digests_of), until: identity.authority_until }
    }

    fn is_with(self, waiting: &Waiting) -> bool {
        match &waiting.tokens {
            Some(tokens) => self.tokens == Some(digests_of(tokens)),
            None => self.until == waiting.until,
        }
    }
}

impl Default for Tokens {
    fn default() -> Self {
        Self { kept: Mutex::default(), kept_max: KEPT_MAX }
    }
}

impl Tokens {
    /// Keeps the tokens of a call that is held.
    pub(crate) fn keep(&self, tenant: &TenantId, record_id: RecordId, tokens: &CallTokens) {
        let until = tokens.subject.facts().expires_at;
        let (tenant, tokens) = (tenant.clone(), Some(tokens.clone()));
        let waiting = Waiting { tenant, tokens, renewed: None, until };
        self.kept.lock().put(record_id, waiting, self.kept_max);
    }

    /// The caller of a held call is back: used for every attempt from now on, with tokens if the call needs them.
    pub(crate) fn renew(&self, record_id: RecordId, identity: &Identity, is_needed: bool) {
        let tokens = identity.tokens.clone().filter(|_| is_needed);
        let until =
            tokens.as_ref().map_or(identity.authority_until, |one| one.subject.facts().expires_at);
        let renewed = Identity { tokens: tokens.clone(), ..identity.clone() };
        let tenant = identity.chain.tenant().clone();
        let mut kept = self.kept.lock();
        kept.lacking.remove(&record_id);
        let waiting = Waiting { tenant, tokens, renewed: Some(Box::new(renewed)), until };
        kept.put(record_id, waiting, self.kept_max);
    }

    /// The tokens that a held call was made with, or renewed with.
    pub(crate) fn of(&self, record_id: RecordId) -> Option<CallTokens> {
        self.kept.lock().of.get(&record_id)?.tokens.clone()
    }

    /// Whether this node has the tokens of a held call.
    pub(crate) fn has(&self, record_id: RecordId) -> bool {
        self.kept.lock().of.get(&record_id).is_some_and(|waiting| waiting.tokens.is_some())
    }

    /// The caller who came back for a held call.
    pub(crate) fn renewed(&self, record_id: RecordId) -> Option<Identity> {
        self.kept.lock().of.get(&record_id)?.renewed.as_deref().cloned()
    }

    /// Notes that a held call cannot continue until its caller is back with a new token, and waits `until` then: the authority it was
    /// attempted with did not suffice. Returns `false` if the caller has come back meanwhile.
    pub(crate) fn lacks(&self, record_id: RecordId, tried: Tried, until: Timestamp) -> bool {
        let mut kept = self.kept.lock();
        if kept.of.get(&record_id).is_some_and(|waiting| !tried.is_with(waiting)) {
            return false;
        }
        kept.remove(&record_id);
        if kept.lacking.len() < self.kept_max {
            kept.lacking.insert(record_id, until);
        }
        true
    }

    /// Whether a held call waits for its caller.
    pub(crate) fn is_lacking(&self, record_id: RecordId) -> bool {
        self.kept.lock().lacking.contains_key(&record_id)
    }

    /// A call has ended, or is in flight.
    pub(crate) fn forget(&self, record_id: RecordId) {
        let mut kept = self.kept.lock();
        kept.remove(&record_id);
        kept.lacking.remove(&record_id);
    }

    /// Drops the tokens that are revoked.
    pub(crate) fn drop_revoked(&self, is_revoked: impl Fn(&TenantId, &CallTokens) -> bool) {
        self.kept.lock().drop_where(|waiting| {
            waiting.tokens.as_ref().is_some_and(|tokens| is_revoked(&waiting.tenant, tokens))
        });
    }

    /// Drops what has expired.
    pub(crate) fn sweep(&self, now: Timestamp) {
        let mut kept = self.kept.lock();
        kept.drop_where(|waiting| waiting.until <= now);
        kept.lacking.retain(|_, until| *until > now);
    }
}

impl Kept {
    fn put(&mut self, record_id: RecordId, mut waiting: Waiting, kept_max: usize) {
        self.remove(&record_id);
        if self.of.len() >= kept_max && !self.make_room(&waiting.tenant) {
            return;
        }
        let tokens = waiting.tokens.take();
        waiting.tokens = tokens.map(|tokens| CallTokens {
            subject: self.one_copy(tokens.subject),
            actor: tokens.actor.map(|actor| self.one_copy(actor)),
        });
        if let Some(renewed) = &mut waiting.renewed {
            renewed.tokens.clone_from(&waiting.tokens);
        }
        self.by_tenant.entry(waiting.tenant.clone()).or_default().insert(record_id);
        self.of.insert(record_id, waiting);
    }

    /// The tenant with the most entries gives way to others; `false` if that is `tenant` itself.
    fn make_room(&mut self, tenant: &TenantId) -> bool {
        let own = self.by_tenant.get(tenant).map_or(0, HashSet::len);
        let most = self.by_tenant.values().max_by_key(|records| records.len());
        let Some(most) = most.filter(|records| records.len() > own.saturating_add(1)) else {
            return false;
        };
        let Some(record_id) = most.iter().next().copied() else { return false };
        self.remove(&record_id);
        true
    }

    fn remove(&mut self, record_id: &RecordId) {
        let Some(waiting) = self.of.remove(record_id) else { return };
        if let Some(records) = self.by_tenant.get_mut(&waiting.tenant) {
            records.remove(record_id);
            if records.is_empty() {
                self.by_tenant.remove(&waiting.tenant);
            }
        }
        for token in waiting.tokens.iter().flat_map(tokens_of) {
            let digest = token.digest();
            let Some((_, calls)) = self.known.get_mut(&digest) else { continue };
            *calls = calls.saturating_sub(1);
            if *calls == 0 {
                self.known.remove(&digest);
            }
        }
    }

    fn drop_where(&mut self, goes: impl Fn(&Waiting) -> bool) {
        let going = self.of.iter().filter(|(_, waiting)| goes(waiting));
        let going: Vec<RecordId> = going.map(|(record_id, _)| *record_id).collect();
        for record_id in &going {
            self.remove(record_id);
        }
    }

    fn one_copy(&mut self, token: SubjectToken) -> SubjectToken {
        let (token, calls) = self.known.entry(token.digest()).or_insert((token, 0));
        *calls = calls.saturating_add(1);
        token.clone()
    }
}

fn digests_of(tokens: &CallTokens) -> (Digest, Option<Digest>) {
    (tokens.subject.digest(), tokens.actor.as_ref().map(SubjectToken::digest))
}

fn tokens_of(tokens: &CallTokens) -> impl Iterator<Item = &SubjectToken> {
    std::iter::once(&tokens.subject).chain(&tokens.actor)
}

#[cfg(test)]
mod tests;
