//! Subjects that have come with a token since this node started, so that a revocation of a misspelt one is noticed.
//!
//! Owns a bounded memory. Decides nothing: a revocation counts whether its subject was seen or not. Invariant: it says that nobody came only
//! where it would remember.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicBool, Ordering},
};

use parking_lot::RwLock;

use placet_identity::VerifiedCaller;
use placet_types::{directive::Revocation, ids::TenantId};

/// How many are remembered.
const SEEN_MAX: usize = 100_000;

/// Those that were seen.
#[derive(Debug)]
pub struct Subjects {
    seen: RwLock<Seen>,
    seen_max: usize,
    /// Whether more came than are remembered.
    is_full: AtomicBool,
}

#[derive(Debug, Default)]
struct Seen {
    /// The issuers of each subject.
    of: BTreeMap<TenantId, BTreeMap<String, BTreeSet<String>>>,
    count: usize,
}

impl Seen {
    fn issuers(&self, tenant: &TenantId, subject: &str) -> Option<&BTreeSet<String>> {
        self.of.get(tenant)?.get(subject)
    }
}

impl Default for Subjects {
    fn default() -> Self {
        Self::holding(SEEN_MAX)
    }
}

impl Subjects {
    fn holding(seen_max: usize) -> Self {
        Self { seen: RwLock::default(), seen_max, is_full: AtomicBool::new(false) }
    }

    /// Somebody came.
    pub fn saw(&self, caller: &VerifiedCaller) {
        for token in std::iter::once(&caller.actor).chain(&caller.delegation) {
            token.subjects().for_each(|subject| self.note(token.tenant(), token.issuer(), subject));
        }
    }

    fn note(&self, tenant: &TenantId, issuer: &str, subject: &str) {
        let is_known = {
            let seen = self.seen.read();
            seen.issuers(tenant, subject).is_some_and(|issuers| issuers.contains(issuer))
        };
        if is_known || self.is_full.load(Ordering::Relaxed) {
            return;
        }
        let mut seen = self.seen.write();
        if seen.count >= self.seen_max {
            self.is_full.store(true, Ordering::Relaxed);
            return;
        }
        let subjects = seen.of.entry(tenant.clone()).or_default();
        if subjects.entry(subject.to_owned()).or_default().insert(issuer.to_owned()) {
            seen.count = seen.count.saturating_add(1);
        }
    }

    /// Whether the subject of a revocation has come; nothing where that is not known.
    pub(crate) fn is_seen(&self, tenant: &TenantId, revocation: &Revocation) -> Option<bool> {
        let seen = self.seen.read();
        let is_there = seen.issuers(tenant, &revocation.subject).is_some_and(|issuers| {
            revocation.issuer.as_ref().is_none_or(|issuer| issuers.contains(issuer))
        });
        (is_there || !self.is_full.load(Ordering::Relaxed)).then_some(is_there)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(subject: &str, issuer: Option<&str>) -> Revocation {
        Revocation { subject: subject.to_owned(), issuer: issuer.map(str::to_owned) }
    }

    #[test]
    fn a_subject_is_of_its_tenant_and_its_issuer() {
        let (subjects, acme): (_, TenantId) = (Subjects::default(), "acme".parse().unwrap());
        subjects.note(&acme, "https://idp.example", "alice");
        assert_eq!(subjects.is_seen(&acme, &of("alice", None)), Some(true));
        assert_eq!(subjects.is_seen(&acme, &of("alice", Some("https://idp.example"))), Some(true));
        assert_eq!(
            subjects.is_seen(&acme, &of("alice", Some("https://other.example"))),
            Some(false)
        );
        assert_eq!(subjects.is_seen(&acme, &of("alise", None)), Some(false));
        assert_eq!(subjects.is_seen(&"globex".parse().unwrap(), &of("alice", None)), Some(false));
    }

    #[test]
    fn where_more_came_than_are_remembered_nobody_is_called_unseen() {
        let (subjects, acme): (_, TenantId) = (Subjects::holding(1), "acme".parse().unwrap());
        subjects.note(&acme, "i", "alice");
        subjects.note(&acme, "i", "alice");
        assert_eq!(subjects.is_seen(&acme, &of("bob", None)), Some(false));
        subjects.note(&acme, "i", "bob");
        assert_eq!(subjects.is_seen(&acme, &of("bob", None)), None);
        assert_eq!(subjects.is_seen(&acme, &of("alice", None)), Some(true));
    }
}
