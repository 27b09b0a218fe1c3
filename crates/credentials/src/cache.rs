//! Minted credentials that may serve another call, and refusals that are not asked for again at once.
//!
//! Owns the bounds and the purges. In memory only; a value is overwritten when it is dropped. Not here: the key (`request`). Invariant: a
//! tenant can only evict its own entries.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;

use placet_types::{clock::Timestamp, digest::Digest, ids::TenantId};

use crate::{error::BrokerError, grant::Minted, revocation::SubjectName};

/// How many credentials and refusals of a tenant are kept.
const PER_TENANT_MAX: usize = 1_000;
/// How long a refusal is not asked for again.
const REFUSED_MS: i64 = 5_000;

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
    /// Everything: the policies or the configuration have changed.
    All,
    /// What was minted for a subject.
    Subject(SubjectName),
}

#[derive(Debug)]
struct Entry {
    owner: Owner,
    known: Known,
}

/// What is cached under a key.
#[derive(Debug, Clone)]
pub(crate) enum Known {
    Granted(Arc<Minted>),
    Refused(BrokerError, Timestamp),
}

impl Known {
    fn is_over_at(&self, now: Timestamp) -> bool {
        match self {
            Self::Granted(minted) => minted.expires_at <= now,
            Self::Refused(_, until) => *until <= now,
        }
    }
}

#[derive(Debug, Default)]
struct Kept {
    tenants: HashMap<TenantId, HashMap<Digest, Entry>>,
    /// Counts the purges: a request started before one is not cached after it.
    turn: u64,
}

/// The cache.
#[derive(Debug, Default)]
pub(crate) struct Cache(Mutex<Kept>);

impl Cache {
    /// What is known of a key at `now`.
    pub(crate) fn look(&self, tenant: &TenantId, key: &Digest, now: Timestamp) -> Option<Known> {
        let kept = self.0.lock();
        let entry = kept.tenants.get(tenant)?.get(key)?;
        (!entry.known.is_over_at(now)).then(|| entry.known.clone())
    }

    /// The number of purges so far, for [`Cache::keep`].
    pub(crate) fn turn(&self) -> u64 {
        self.0.lock().turn
    }

    /// Caches an outcome, unless something was purged since the request began. A refusal is cached for a moment where an immediate retry is
    /// useless.
    pub(crate) fn keep(
        &self,
        key: Digest,
        owner: Owner,
        outcome: &Result<Arc<Minted>, BrokerError>,
        begun: u64,
        now: Timestamp,
    ) {
        let known = match outcome {
            Ok(minted) => Known::Granted(Arc::clone(minted)),
            Err(error) if is_lasting(error) => {
                Known::Refused(error.clone(), now.plus_ms(REFUSED_MS))
            }
            Err(_) => return,
        };
        let mut kept = self.0.lock();
        if kept.turn != begun {
            return;
        }
        let of_tenant = kept.tenants.entry(owner.tenant.clone()).or_default();
        if of_tenant.len() >= PER_TENANT_MAX {
            of_tenant.retain(|_, entry| !entry.known.is_over_at(now));
        }
        if of_tenant.len() >= PER_TENANT_MAX {
            // Starts over: what is requested again is minted again.
            of_tenant.clear();
        }
        of_tenant.insert(key, Entry { owner, known });
    }

    /// Drops one credential that its target has refused. A replacement minted meanwhile stays.
    pub(crate) fn forget(&self, key: &Digest, refused: Digest) {
        for of_tenant in self.0.lock().tenants.values_mut() {
            let is_refused = |entry: &mut Entry| matches!(&entry.known, Known::Granted(minted) if minted.used.digest == Some(refused));
            if of_tenant.get_mut(key).is_some_and(is_refused) {
                of_tenant.remove(key);
            }
        }
    }

    /// Drops what a purge is about, and every refusal; says how many credentials that were.
    pub(crate) fn purge(&self, purge: &Purge) -> usize {
        let mut kept = self.0.lock();
        kept.turn = kept.turn.wrapping_add(1);
        let before = count(&kept);
        let is_kept = |entry: &Entry| match (&entry.known, purge) {
            (Known::Refused(..), _) | (_, Purge::All) => false,
            (Known::Granted(_), Purge::Subject(subject)) => !subject.names(&entry.owner),
        };
        kept.retain(is_kept);
        before.saturating_sub(count(&kept))
    }

    /// Drops everything that has expired.
    pub(crate) fn sweep(&self, now: Timestamp) {
        self.0.lock().retain(|entry| !entry.known.is_over_at(now));
    }

    /// How many credentials are kept.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        count(&self.0.lock())
    }
}

impl Kept {
    fn retain(&mut self, is_kept: impl Fn(&Entry) -> bool) {
        self.tenants.retain(|_, of_tenant| {
            of_tenant.retain(|_, entry| is_kept(entry));
            !of_tenant.is_empty()
        });
    }
}

fn count(kept: &Kept) -> usize {
    let entries = kept.tenants.values().flat_map(HashMap::values);
    entries.filter(|entry| matches!(entry.known, Known::Granted(_))).count()
}

/// Whether an immediate retry would get the same response.
fn is_lasting(error: &BrokerError) -> bool {
    matches!(error, BrokerError::TargetRefused(_) | BrokerError::GrantRefused("access_denied"))
}
