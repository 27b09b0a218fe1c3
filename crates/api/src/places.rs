//! The places of requests at work and of event streams: how many there may be, and whose.
//!
//! Owns the counts. Requests and streams that last have as many places together as there are connections. Invariant: one principal has a
//! quarter of them at most (four where there are fewer than 16), for requests and for streams that last a quarter each, so that its idle
//! streams do not keep it from calling; one tenant has three quarters, so that nobody takes all places. No stream begins that would leave
//! less than a quarter of the places, and less than a quarter of its tenant's, to requests.

use std::sync::Arc;

use parking_lot::Mutex;

use placet_types::{
    ids::{PrincipalId, TenantId},
    principal::{Principal, PrincipalKind},
};

use crate::counts::Counts;

/// What a place is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum About {
    /// A request, until its answer is written, however long it waits and the answer lasts.
    Request,
    /// A stream that lasts while nothing happens, such as that of an MCP session.
    Lasting,
}

/// All places of one API.
#[derive(Debug)]
pub(crate) struct Places {
    max: usize,
    open: Mutex<Open>,
}

type Person = (TenantId, PrincipalKind, PrincipalId);

#[derive(Debug, Default)]
struct Open {
    by_tenant: Counts<TenantId>,
    by_person: Counts<(Person, About)>,
}

/// A place, released on drop.
#[derive(Debug)]
#[must_use = "a place that is dropped is free again"]
pub struct Place {
    places: Arc<Places>,
    whose: (Person, About),
}

/// Why there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// The caller has as many as it may have.
    Own,
    /// Their tenant has as many as it may have.
    Tenant,
    /// All are taken.
    All,
}

impl Full {
    /// The message to the caller.
    pub(crate) fn said(self, about: About) -> String {
        let whose = match self {
            Self::Own => " of this principal",
            Self::Tenant => " of this tenant",
            Self::All => "",
        };
        match about {
            About::Request => format!("too many requests{whose} are at work"),
            About::Lasting => format!("too many event streams{whose} are open"),
        }
    }
}

impl Places {
    /// This many.
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, open: Mutex::default() })
    }

    /// A place for one more stream or request.
    ///
    /// # Errors
    /// [`Full`] when there is none for this principal.
    pub(crate) fn place(
        self: &Arc<Self>,
        about: About,
        principal: &Principal,
    ) -> Result<Place, Full> {
        let person = (principal.tenant_id.clone(), principal.kind, principal.id.clone());
        let whose = (person, about);
        self.take(&whose)?;
        Ok(Place { places: Arc::clone(self), whose })
    }

    fn take(&self, whose: &(Person, About)) -> Result<(), Full> {
        let tenant = &whose.0.0;
        let mut open = self.open.lock();
        let quarter = self.max.div_ceil(4);
        // A quarter of a few places would be useless.
        let own = quarter.max(4).min(self.max);
        let all = match whose.1 {
            About::Request => self.max,
            About::Lasting => self.max.saturating_sub(quarter).max(own),
        };
        let of_tenant = all.saturating_sub(quarter).max(own);
        if open.by_tenant.all() >= all {
            return Err(Full::All);
        }
        if open.by_person.of(whose) >= own {
            return Err(Full::Own);
        }
        if open.by_tenant.of(tenant) >= of_tenant {
            return Err(Full::Tenant);
        }
        open.by_tenant.add(tenant);
        open.by_person.add(whose);
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.places.open.lock();
        open.by_tenant.remove(&self.whose.0.0);
        open.by_person.remove(&self.whose);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn who(tenant: &str, id: &str) -> Principal {
        serde_json::from_value(json!({ "kind": "user", "tenant_id": tenant, "id": id })).unwrap()
    }

    /// Takes as many as are available.
    fn fill(places: &Arc<Places>, about: About, who: &Principal) -> (Vec<Place>, Full) {
        let mut taken = Vec::new();
        loop {
            match places.place(about, who) {
                Ok(place) => taken.push(place),
                Err(full) => return (taken, full),
            }
        }
    }

    #[test]
    fn one_principal_takes_a_quarter_and_one_tenant_three() {
        let places = Places::new(256);
        let mut held = Vec::new();
        for name in ["a", "b", "c"] {
            let (taken, full) = fill(&places, About::Request, &who("acme", name));
            assert_eq!((taken.len(), full), (64, Full::Own));
            held.push(taken);
        }
        let (none, full) = fill(&places, About::Request, &who("acme", "d"));
        assert_eq!((none.len(), full), (0, Full::Tenant));
        // People of another tenant still have some.
        let (others, _) = fill(&places, About::Request, &who("globex", "a"));
        assert_eq!(others.len(), 64);
        let (none, full) = fill(&places, About::Request, &who("initech", "a"));
        assert_eq!((none.len(), full), (0, Full::All));
        held.pop();
        assert_eq!(fill(&places, About::Request, &who("initech", "a")).0.len(), 64);
    }

    #[test]
    fn streams_that_last_leave_a_quarter_to_requests_of_their_tenant_and_of_everybody() {
        let places = Places::new(256);
        let streams = |tenant, id| fill(&places, About::Lasting, &who(tenant, id));
        let (first, second) = (streams("acme", "a"), streams("acme", "b"));
        assert_eq!((first.0.len(), second.0.len()), (64, 64));
        assert_eq!(streams("acme", "c").1, Full::Tenant);
        let other = streams("globex", "a");
        assert_eq!((other.0.len(), other.1), (64, Full::All));
        let none = streams("globex", "b");
        assert_eq!((none.0.len(), none.1), (0, Full::All));
        assert_eq!(fill(&places, About::Request, &who("acme", "voter")).0.len(), 64);
    }

    #[test]
    fn streams_that_last_leave_their_principal_its_requests_and_other_tenants_their_share() {
        let places = Places::new(16);
        let (agent, other) = (who("acme", "a"), who("acme", "b"));
        let lasting = fill(&places, About::Lasting, &agent);
        let asking = fill(&places, About::Request, &agent);
        assert_eq!(
            (lasting.0.len(), lasting.1, asking.0.len(), asking.1),
            (4, Full::Own, 4, Full::Own)
        );
        let (none, full) = fill(&places, About::Lasting, &other);
        assert_eq!((none.len(), full), (0, Full::Tenant));
        let (more, full) = fill(&places, About::Request, &other);
        assert_eq!((more.len(), full), (4, Full::Own));
        assert_eq!(places.place(About::Request, &who("acme", "c")).unwrap_err(), Full::Tenant);
        assert_eq!(fill(&places, About::Request, &who("globex", "a")).0.len(), 4);
    }

    #[test]
    fn nobody_is_remembered_who_has_no_place() {
        let places = Places::new(8);
        drop(fill(&places, About::Lasting, &who("acme", "a")));
        let open = places.open.lock();
        assert!(open.by_tenant.is_empty() && open.by_person.is_empty());
    }

    #[test]
    fn a_few_places_are_still_places() {
        for (max, own) in [(1, 1), (2, 2), (5, 4), (16, 4), (20, 5)] {
            let places = Places::new(max);
            assert_eq!(fill(&places, About::Request, &who("acme", "a")).0.len(), own, "of {max}");
        }
    }
}
