//! The places of event streams and of requests at work: how many there may be, and whose.
//!
//! Owns the counts. Those who follow calls and those who follow the approval service have places of their own, as many each; requests have as many as
//! there are connections. Invariant: one principal has a quarter of them at most, one tenant three quarters, so that nobody takes all of
//! them from everybody else.

use std::{collections::HashMap, hash::Hash, sync::Arc};

use parking_lot::Mutex;

use placet_types::{
    ids::{PrincipalId, TenantId},
    principal::{Principal, PrincipalKind},
};

/// What a place is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum About {
    /// One call.
    Call,
    /// The approval service: what approvers see live.
    Approvals,
    /// A request, until it is answered, however long it waits.
    Request,
}

/// All places of one API.
#[derive(Debug)]
pub(crate) struct Streams {
    calls: Arc<Places>,
    approvals: Arc<Places>,
    requests: Arc<Places>,
}

type Person = (TenantId, PrincipalKind, PrincipalId);

#[derive(Debug)]
struct Places {
    max: usize,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    all: usize,
    by_tenant: HashMap<TenantId, usize>,
    by_person: HashMap<Person, usize>,
}

/// A place, free again when this is dropped.
#[derive(Debug)]
#[must_use = "a place that is dropped is free again"]
pub(crate) struct Place {
    places: Arc<Places>,
    person: Person,
}

/// Why there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// Anyone who asks has as many as one may have.
    Own,
    /// Their tenant has.
    Tenant,
    /// All are taken.
    All,
}

impl Full {
    /// What the caller is told.
    pub(crate) const fn said(self, about: About) -> &'static str {
        match (self, about) {
            (Self::Own, About::Request) => "too many requests of this principal are at work",
            (Self::Tenant, About::Request) => "too many requests of this tenant are at work",
            (Self::All, About::Request) => "too many requests are at work",
            (Self::Own, About::Call | About::Approvals) => {
                "too many event streams of this principal are open"
            }
            (Self::Tenant, About::Call | About::Approvals) => {
                "too many event streams of this tenant are open"
            }
            (Self::All, About::Call | About::Approvals) => "too many event streams are open",
        }
    }
}

impl Streams {
    /// So many for calls, as many for the approval service, and so many for requests.
    pub(crate) fn new(max: usize, requests_max: usize) -> Self {
        let places = |max| Arc::new(Places { max, open: Mutex::default() });
        Self { calls: places(max), approvals: places(max), requests: places(requests_max) }
    }

    /// A place for one more stream or request.
    ///
    /// # Errors
    /// [`Full`] when there is none for this principal.
    pub(crate) fn place(&self, about: About, principal: &Principal) -> Result<Place, Full> {
        let places = match about {
            About::Call => &self.calls,
            About::Approvals => &self.approvals,
            About::Request => &self.requests,
        };
        let person = (principal.tenant_id.clone(), principal.kind, principal.id.clone());
        places.take(&person)?;
        Ok(Place { places: Arc::clone(places), person })
    }
}

impl Places {
    fn take(&self, person: &Person) -> Result<(), Full> {
        let mut open = self.open.lock();
        let quarter = self.max.div_ceil(4);
        // Where there are only a few, shares of them would be none.
        let own = quarter.max(4).min(self.max);
        let of_tenant = self.max.saturating_sub(quarter).max(own);
        if open.all >= self.max {
            return Err(Full::All);
        }
        if count(&open.by_person, person) >= own {
            return Err(Full::Own);
        }
        if count(&open.by_tenant, &person.0) >= of_tenant {
            return Err(Full::Tenant);
        }
        open.all = open.all.saturating_add(1);
        more(&mut open.by_tenant, &person.0);
        more(&mut open.by_person, person);
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.places.open.lock();
        open.all = open.all.saturating_sub(1);
        fewer(&mut open.by_tenant, &self.person.0);
        fewer(&mut open.by_person, &self.person);
    }
}

fn count<K: Hash + Eq>(counts: &HashMap<K, usize>, key: &K) -> usize {
    counts.get(key).copied().unwrap_or(0)
}

fn more<K: Hash + Eq + Clone>(counts: &mut HashMap<K, usize>, key: &K) {
    let count = counts.entry(key.clone()).or_insert(0);
    *count = count.saturating_add(1);
}

/// Who has none left is not remembered.
fn fewer<K: Hash + Eq>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn who(tenant: &str, id: &str) -> Principal {
        serde_json::from_value(json!({ "kind": "user", "tenant_id": tenant, "id": id })).unwrap()
    }

    /// Takes as many as there are to be had.
    fn fill(streams: &Streams, about: About, who: &Principal) -> (Vec<Place>, Full) {
        let mut taken = Vec::new();
        loop {
            match streams.place(about, who) {
                Ok(place) => taken.push(place),
                Err(full) => return (taken, full),
            }
        }
    }

    #[test]
    fn one_principal_takes_a_quarter_one_tenant_three_and_the_approval_service_keeps_its_own() {
        let streams = Streams::new(256, 8);
        let mut held = Vec::new();
        for name in ["a", "b", "c"] {
            let (taken, full) = fill(&streams, About::Call, &who("acme", name));
            assert_eq!((taken.len(), full), (64, Full::Own));
            held.push(taken);
        }
        let (none, full) = fill(&streams, About::Call, &who("acme", "d"));
        assert_eq!((none.len(), full), (0, Full::Tenant));
        // Another tenant's people still follow, and the approval service is not touched by any of that.
        let (others, _) = fill(&streams, About::Call, &who("globex", "a"));
        assert_eq!(others.len(), 64);
        let (none, full) = fill(&streams, About::Call, &who("initech", "a"));
        assert_eq!((none.len(), full), (0, Full::All));
        let directives = fill(&streams, About::Approvals, &who("acme", "a")).0;
        assert_eq!(directives.len(), 64);
        assert_eq!(fill(&streams, About::Request, &who("acme", "a")).0.len(), 4);
        held.pop();
        assert_eq!(fill(&streams, About::Call, &who("initech", "a")).0.len(), 64);
    }

    #[test]
    fn nobody_is_remembered_who_has_no_stream_open() {
        let streams = Streams::new(8, 8);
        drop(fill(&streams, About::Call, &who("acme", "a")));
        let open = streams.calls.open.lock();
        assert_eq!((open.all, open.by_tenant.len(), open.by_person.len()), (0, 0, 0));
    }

    #[test]
    fn a_few_places_are_still_places() {
        for (max, own) in [(1, 1), (2, 2), (5, 4), (16, 4), (20, 5)] {
            let streams = Streams::new(max, 8);
            assert_eq!(fill(&streams, About::Call, &who("acme", "a")).0.len(), own, "of {max}");
        }
    }
}
