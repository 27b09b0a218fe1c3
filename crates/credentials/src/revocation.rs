//! Revocations: tokens that a subject obtained before a given time are no longer valid.
//!
//! Owns what is in force and whom it hits. Who revokes, for how long and where it is stored is the engine's. Invariants: an undated token
//! counts as older than every revocation, even one that has expired for all dated tokens; a revocation hits a token issued at its very
//! moment, and one that may have been, by an issuer whose clock is ahead of ours.

use std::collections::HashMap;

use parking_lot::RwLock;

use placet_types::{clock::Timestamp, ids::TenantId};

/// A person or workload, as its issuer names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SubjectName {
    /// The tenant.
    pub tenant: TenantId,
    /// The issuer of its tokens; absent: any issuer of the tenant.
    pub issuer: Option<String>,
    /// Its name there.
    pub subject: String,
}

/// A subject whose earlier tokens are no longer valid.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Revoked {
    /// Whose.
    pub name: SubjectName,
    /// The moment, by our clock: what was issued until then is hit, and what may have been by an issuer whose clock is ahead.
    pub before: Timestamp,
    /// Whether it has expired for all but undated tokens, whose lifetime nobody can tell.
    pub only_undated: bool,
}

/// Whose authority is used, and since when.
#[derive(Debug, Clone, Copy)]
pub struct Bearer<'a> {
    /// The issuer of the token.
    pub issuer: &'a str,
    /// Its subject.
    pub subject: &'a str,
    /// When it was issued, where it says so.
    pub issued_at: Option<Timestamp>,
}

/// How far an issuer's clock may be ahead of ours, in milliseconds: a token dated up to this long after a revocation may be from before it.
pub(crate) const AHEAD_MS: i64 = 5_000;

type BySubject = HashMap<TenantId, HashMap<String, Vec<Revoked>>>;

/// The revocations in force.
#[derive(Debug, Default)]
pub(crate) struct Revocations {
    of: RwLock<BySubject>,
}

impl Revoked {
    /// `ahead_ms`: how far the clock that dated the bearer may be ahead of ours.
    fn hits(&self, bearer: Bearer<'_>, ahead_ms: i64) -> bool {
        let until = self.before.plus_ms(ahead_ms);
        self.name.issuer.as_deref().is_none_or(|issuer| issuer == bearer.issuer)
            && bearer.issued_at.is_none_or(|at| !self.only_undated && at <= until)
    }

    /// Whether this one hits whatever `other` hits.
    fn covers(&self, other: &Self) -> bool {
        self.name == other.name
            && self.before == other.before
            && (!self.only_undated || other.only_undated)
    }
}

impl Revocations {
    /// Replaces the revocations in force, and returns the new ones.
    pub(crate) fn replace(&self, revoked: Vec<Revoked>) -> Vec<Revoked> {
        let mut next = BySubject::new();
        let mut fresh = Vec::new();
        let mut current = self.of.write();
        for one in revoked {
            let SubjectName { tenant, subject, .. } = &one.name;
            let known = current.get(tenant).and_then(|of| of.get(subject));
            if !known.is_some_and(|known| known.iter().any(|known| known.covers(&one))) {
                fresh.push(one.clone());
            }
            let of_tenant = next.entry(tenant.clone()).or_default();
            of_tenant.entry(subject.clone()).or_default().push(one);
        }
        *current = next;
        fresh
    }

    /// Whether one of them hits this token: issued by its issuer's clock.
    pub(crate) fn hit(&self, tenant: &TenantId, bearer: Bearer<'_>) -> bool {
        self.hit_by(tenant, bearer, AHEAD_MS)
    }

    /// Whether one of them hits what was begun in our own name: by our own clock.
    pub(crate) fn hit_ours(&self, tenant: &TenantId, bearer: Bearer<'_>) -> bool {
        self.hit_by(tenant, bearer, 0)
    }

    fn hit_by(&self, tenant: &TenantId, bearer: Bearer<'_>, ahead_ms: i64) -> bool {
        let of = self.of.read();
        let revoked = of.get(tenant).and_then(|of| of.get(bearer.subject));
        revoked.is_some_and(|all| all.iter().any(|one| one.hits(bearer, ahead_ms)))
    }

    /// How many subjects they are about.
    pub(crate) fn count(&self) -> usize {
        let of = self.of.read();
        of.values().map(HashMap::len).sum()
    }
}
