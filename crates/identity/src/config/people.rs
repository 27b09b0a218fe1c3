//! Which tokens of a user only the user can hold.
//!
//! Owns the rules of `person_clients`. Does not read tokens. Invariants: only the configuration makes a client a person's, apart from the
//! development issuer's, so that an unlisted client proves no one's presence, on each node and after each start alike; no client is both a person's and an agent's.

use placet_types::{ids::TenantId, principal::PrincipalKind};

use super::{IdentityConfig, IssuerConfig};
use crate::error::{IdentityError, SetupError};

impl IssuerConfig {
    /// Whether the user, and no agent, holds a user's token of this client.
    pub(crate) fn is_persons_client(&self, client: Option<&str>) -> bool {
        self.is_for_development || client.is_some_and(|client| self.person_clients.contains(client))
    }

    /// An agent that uses a person's client, or has its name, would hold what proves that the person is present.
    pub(crate) fn check_agents_client(
        &self,
        kind: PrincipalKind,
        subject: &str,
        client: Option<&str>,
    ) -> Result<(), IdentityError> {
        let mut named = std::iter::once(subject).chain(client);
        if kind == PrincipalKind::User || !named.any(|name| self.person_clients.contains(name)) {
            return Ok(());
        }
        let problem = "it is a client that people use (`person_clients`), and no agent's";
        Err(IdentityError::ClaimRefused { claim: "client_id".to_owned(), problem })
    }

    /// Whether the configuration gives the name of this client to an agent.
    pub(crate) fn is_agents_client(&self, client: &str) -> bool {
        let acts = self.act.as_ref().is_some_and(|act| act.principals.contains_key(client));
        acts || self.clients.contains_key(client)
    }

    /// Whether a client is a person's and an agent's.
    pub(super) fn contradicts_itself(&self) -> bool {
        self.person_clients.iter().any(|client| self.is_agents_client(client))
    }
}

impl IdentityConfig {
    /// Checks `person_clients` against the agents of a directory, whose names are names of clients too.
    ///
    /// # Errors
    /// [`SetupError`] for the first client that is a person's in one and an agent's in the other.
    pub fn check_persons_clients(
        &self,
        is_agent: impl Fn(&TenantId, &str) -> bool,
    ) -> Result<(), SetupError> {
        for issuer in &self.issuers {
            let both = |client: &&String| is_agent(&issuer.tenant, client);
            if let Some(client) = issuer.person_clients.iter().find(both) {
                return Err(issuer.problem(format!(
                    "`{client}` is in `person_clients`, and the directory has an agent of that name"
                )));
            }
        }
        Ok(())
    }
}
