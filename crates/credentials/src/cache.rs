//! Minted credentials that may serve another call, and refusals that are not asked for again at once.
//!
//! Owns the key, the bounds and the purges. In memory only; a value is overwritten when it goes. Invariants: the key holds everything that
//! a credential depends on, so that two calls that differ in any of it never share one; a tenant can only push out its own.

use std::{collections::HashMap, sync::Arc};

use parking_lot::{Mutex, MutexGuard};

use placet_types::{
    clock::Timestamp,
    contract::credential::CredentialKind,
    digest::{Digest, DigestBuilder},
    ids::TenantId,
};

use crate::{error::BrokerError, grant::Minted, revocation::SubjectName};

/// How many credentials of a tenant are kept.
const PER_TENANT_MAX: usize = 1_000;
/// How many refusals are kept at all.
const REFUSALS_MAX: usize = 10_000;
/// How long a refusal is not asked for again.
const REFUSED_MS: i64 = 5_000;

/// Everything that a credential depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CacheKey {
    pub(crate) tenant: TenantId,
    pub(crate) service: String,
    pub(crate) issuer: String,
    pub(crate) client_id: String,
    pub(crate) kind: CredentialKind,
    pub(crate) subject_issuer: String,
    pub(crate) subject: String,
    pub(crate) subject_token: Option<Digest>,
    pub(crate) actor: String,
    pub(crate) actor_token: Option<Digest>,
    pub(crate) audience: Option<String>,
    pub(crate) resource: Option<String>,
    pub(crate) scopes: Vec<String>,
    pub(crate) scopes_needed: Vec<String>,
    pub(crate) requested_type: String,
    pub(crate) origin: String,
    /// The contract and the token service's section.
    pub(crate) revision: (Digest, Digest),
}

impl CacheKey {
    /// Whom the credential speaks for, at which target and for what: the same when it is minted again from later tokens of the same people.
    pub(crate) fn holder(&self) -> Digest {
        let without_tokens = Self {
            subject_token: None,
            actor_token: None,
            scopes_needed: Vec::new(),
            ..self.clone()
        };
        without_tokens.digest()
    }

    /// The key as a digest over its length-prefixed fields.
    pub(crate) fn digest(&self) -> Digest {
        // Named one by one, so that a field that is added and forgotten here does not compile.
        let Self {
            tenant,
            service,
            issuer,
            client_id,
            kind,
            subject_issuer,
            subject,
            subject_token,
            actor,
            actor_token,
            audience,
            resource,
            scopes,
            scopes_needed,
            requested_type,
            origin,
            revision: (contract, section),
        } = self;
        let bytes = |digest: &Option<Digest>| digest.map(|digest| *digest.as_bytes());
        DigestBuilder::new("placet.grant.v1")
            .field("tenant", tenant.as_str().as_bytes())
            .field("service", service.as_bytes())
            .field("issuer", issuer.as_bytes())
            .field("client_id", client_id.as_bytes())
            .field("kind", kind.as_str().as_bytes())
            .field("subject_issuer", subject_issuer.as_bytes())
            .field("subject", subject.as_bytes())
            .optional("subject_token", bytes(subject_token).as_ref().map(|bytes| &bytes[..]))
            .field("actor", actor.as_bytes())
            .optional("actor_token", bytes(actor_token).as_ref().map(|bytes| &bytes[..]))
            .optional("audience", audience.as_ref().map(|text| text.as_bytes()))
            .optional("resource", resource.as_ref().map(|text| text.as_bytes()))
            .list("scopes", scopes.iter().map(|scope| scope.as_bytes()))
            .list("scopes_needed", scopes_needed.iter().map(|scope| scope.as_bytes()))
            .field("requested_type", requested_type.as_bytes())
            .field("origin", origin.as_bytes())
            .field("contract", contract.as_bytes())
            .field("section", section.as_bytes())
            .finish()
    }
}

/// Whose credential it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Owner {
    pub(crate) tenant: TenantId,
    pub(crate) issuer: String,
    pub(crate) subject: String,
}

impl SubjectName {
    fn names(&self, owner: &Owner) -> bool {
        self.tenant == owner.tenant
            && self.subject == owner.subject
            && self.issuer.as_ref().is_none_or(|issuer| *issuer == owner.issuer)
    }
}

/// What is dropped from the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purge {
    /// Everything: the policies or the configuration are others now.
    All,
    /// What was minted for a subject.
    Subject(SubjectName),
}

#[derive(Debug)]
struct Entry {
    owner: Owner,
    minted: Arc<Minted>,
}

#[derive(Debug, Default)]
struct Kept {
    entries: HashMap<Digest, Entry>,
    per_tenant: HashMap<TenantId, usize>,
    refusals: HashMap<Digest, (BrokerError, Timestamp)>,
    /// Counts the purges: what was begun before one is not kept after it.
    turn: u64,
}

/// The cache.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    kept: Mutex<Kept>,
}

/// What the cache knows of a key.
#[derive(Debug)]
pub(crate) enum Known {
    Granted(Arc<Minted>),
    Refused(BrokerError),
    Nothing,
}

impl Cache {
    /// What is known of a key at `now`.
    pub(crate) fn look(&self, key: &Digest, now: Timestamp) -> Known {
        let mut kept = self.lock();
        if let Some((error, until)) = kept.refusals.get(key) {
            if *until > now {
                return Known::Refused(error.clone());
            }
            kept.refusals.remove(key);
        }
        match kept.entries.get(key) {
            Some(entry) if entry.minted.expires_at > now => {
                Known::Granted(Arc::clone(&entry.minted))
            }
            Some(_) => {
                kept.remove(key);
                Known::Nothing
            }
            None => Known::Nothing,
        }
    }

    /// The turn that something is begun in.
    pub(crate) fn turn(&self) -> u64 {
        self.lock().turn
    }

    /// Keeps what was minted, unless something was purged since it was begun.
    pub(crate) fn keep(
        &self,
        key: Digest,
        owner: Owner,
        minted: &Arc<Minted>,
        begun: u64,
        now: Timestamp,
    ) {
        let mut kept = self.lock();
        if kept.turn != begun {
            return;
        }
        kept.remove(&key);
        if kept.per_tenant.get(&owner.tenant).is_some_and(|count| *count >= PER_TENANT_MAX) {
            kept.make_room(&owner.tenant, now);
        }
        let count = kept.per_tenant.entry(owner.tenant.clone()).or_insert(0);
        *count = count.saturating_add(1);
        kept.entries.insert(key, Entry { owner, minted: Arc::clone(minted) });
    }

    /// Keeps a refusal for a moment, where asking again at once is of no use.
    pub(crate) fn keep_refusal(&self, key: Digest, error: &BrokerError, now: Timestamp) {
        let lasting = match error {
            BrokerError::TargetRefused { .. } => true,
            BrokerError::GrantRefused { code } => *code == "access_denied",
            BrokerError::SubjectMissing
            | BrokerError::SubjectExpired
            | BrokerError::SubjectRefused { .. }
            | BrokerError::SubjectRevoked
            | BrokerError::StrongerSignIn
            | BrokerError::ScopeMissing { .. }
            | BrokerError::NoActor { .. }
            | BrokerError::UnknownService { .. }
            | BrokerError::ClientSecret { .. }
            | BrokerError::ClientRefused { .. }
            | BrokerError::ClientNotEntitled { .. }
            | BrokerError::Misconfigured { .. }
            | BrokerError::Puzzling { .. }
            | BrokerError::ExchangeRefused { .. }
            | BrokerError::AnswerUnusable { .. }
            | BrokerError::Unavailable { .. }
            | BrokerError::AnswerRefused { .. }
            | BrokerError::TooNarrow
            | BrokerError::OtherHost
            | BrokerError::GrantExpired
            | BrokerError::OutOfTime => false,
        };
        if !lasting {
            return;
        }
        let mut kept = self.lock();
        if kept.refusals.len() >= REFUSALS_MAX {
            kept.refusals.retain(|_, (_, until)| *until > now);
        }
        if kept.refusals.len() < REFUSALS_MAX {
            kept.refusals.insert(key, (error.clone(), now.plus_ms(REFUSED_MS)));
        }
    }

    /// Drops one credential: its target has refused it. One that was minted in its place meanwhile stays.
    pub(crate) fn forget(&self, key: &Digest, refused: Digest) {
        let mut kept = self.lock();
        if kept.entries.get(key).is_some_and(|entry| entry.minted.used.digest == Some(refused)) {
            kept.remove(key);
        }
    }

    /// Drops what a purge is about.
    pub(crate) fn purge(&self, purge: &Purge) -> usize {
        let mut kept = self.lock();
        kept.turn = kept.turn.wrapping_add(1);
        kept.refusals.clear();
        let hit: Vec<Digest> = kept
            .entries
            .iter()
            .filter(|(_, entry)| match purge {
                Purge::All => true,
                Purge::Subject(subject) => subject.names(&entry.owner),
            })
            .map(|(key, _)| *key)
            .collect();
        for key in &hit {
            kept.remove(key);
        }
        hit.len()
    }

    /// Drops everything that has expired.
    pub(crate) fn sweep(&self, now: Timestamp) {
        let mut kept = self.lock();
        kept.refusals.retain(|_, (_, until)| *until > now);
        kept.drop_expired(now);
    }

    /// How many credentials are kept.
    pub(crate) fn count(&self) -> usize {
        self.lock().entries.len()
    }
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock()
    }
}

impl Kept {
    fn remove(&mut self, key: &Digest) {
        let Some(entry) = self.entries.remove(key) else { return };
        if let Some(count) = self.per_tenant.get_mut(&entry.owner.tenant) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.per_tenant.remove(&entry.owner.tenant);
            }
        }
    }

    fn drop_expired(&mut self, now: Timestamp) {
        let over = self.entries.iter().filter(|(_, entry)| entry.minted.expires_at <= now);
        let over: Vec<Digest> = over.map(|(key, _)| *key).collect();
        for key in over {
            self.remove(&key);
        }
    }

    /// Drops what has expired and, if that is not enough, of this tenant what expires first.
    fn make_room(&mut self, tenant: &TenantId, now: Timestamp) {
        self.drop_expired(now);
        let of_tenant = self.entries.iter().filter(|(_, entry)| entry.owner.tenant == *tenant);
        let mut times: Vec<(Timestamp, Digest)> =
            of_tenant.map(|(key, entry)| (entry.minted.expires_at, *key)).collect();
        if times.len() < PER_TENANT_MAX {
            return;
        }
        times.sort_by_key(|(at, _)| *at);
        // A tenth at a time, so that a full cache is not sorted for every call.
        for (_, key) in times.into_iter().take(PER_TENANT_MAX.div_ceil(10)) {
            self.remove(&key);
        }
    }
}
