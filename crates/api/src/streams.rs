//! The places of event streams and of requests at work: how many there may be, and whose.
//!
//! Owns the counts. Followers of calls and of the approval service have separate places, equally many; requests and streams that last have
//! as many together as there are connections. Invariant: one principal has a quarter of them at most (four where there are fewer than 16),
//! for requests and for streams that last a quarter each, so that its idle streams do not keep it from calling; one tenant has three
//! quarters, so that nobody takes all places.

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
    /// One call.
    Call,
    /// The approval service: what approvers see live.
    Approvals,
    /// A request, until its answer is written, however long it waits and the answer lasts.
    Request,
    /// A stream that lasts while nothing happens, such as that of an MCP session.
    Lasting,
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
    by_tenant: Counts<TenantId>,
    by_person: Counts<(Person, About)>,
}

/// A place, released on drop.
#[derive(Debug)]
#[must_use = "a place that is dropped is free again"]
pub(crate) struct Place {
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
            About::Call | About::Approvals | About::Lasting => {
                format!("too many event streams{whose} are open")
            }
        }
    }
}

impl Streams {
    /// With so many places for calls, as many for the approval service, and these for requests.
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
            About::Request | About::Lasting => &self.requests,
        };
        let person = (principal.tenant_id.clone(), principal.kind, principal.id.clone());
        let whose = (person, about);
        places.take(&whose)?;
        Ok(Place { places: Arc::clone(places), whose })
    }
}

impl Places {
    fn take(&self, whose: &(Person, About)) -> Result<(), Full> {
        let tenant = &whose.0.0;
        let mut open = self.open.lock();
        let quarter = self.max.div_ceil(4);
        // A quarter of a few places would be useless.
        let own = quarter.max(4).min(self.max);
        let of_tenant = self.max.saturating_sub(quarter).max(own);
        if open.by_tenant.all() >= self.max {
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
        // People of another tenant can still follow, and the approval service is unaffected.
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
    fn streams_that_last_leave_their_principal_its_requests_and_other_tenants_their_share() {
        let streams = Streams::new(8, 16);
        let (agent, other) = (who("acme", "a"), who("acme", "b"));
        let lasting = fill(&streams, About::Lasting, &agent);
        let asking = fill(&streams, About::Request, &agent);
        assert_eq!(
            (lasting.0.len(), lasting.1, asking.0.len(), asking.1),
            (4, Full::Own, 4, Full::Own)
        );
        let (more, full) = fill(&streams, About::Lasting, &other);
        assert_eq!((more.len(), full), (4, Full::Own));
        assert_eq!(fill(&streams, About::Request, &other).1, Full::Tenant);
        assert_eq!(fill(&streams, About::Request, &who("globex", "a")).0.len(), 4);
    }

    #[test]
    fn nobody_is_remembered_who_has_no_stream_open() {
        let streams = Streams::new(8, 8);
        drop(fill(&streams, About::Call, &who("acme", "a")));
        let open = streams.calls.open.lock();
        assert!(open.by_tenant.is_empty() && open.by_person.is_empty());
    }

    #[test]
    fn a_few_places_are_still_places() {
        for (max, own) in [(1, 1), (2, 2), (5, 4), (16, 4), (20, 5)] {
            let streams = Streams::new(max, 8);
            assert_eq!(fill(&streams, About::Call, &who("acme", "a")).0.len(), own, "of {max}");
        }
    }
}
