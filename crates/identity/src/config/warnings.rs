//! What an operator should read at start.
//!
//! Owns which settings are warned of. Refuses nothing: what cannot stand is refused by the check.

use placet_types::principal::PrincipalKind;

use super::{IdentityConfig, IssuerConfig, KindRule};

impl IssuerConfig {
    /// Whether it names workloads, and nothing says that it knows which is which.
    fn leaves_workloads_unattested(&self) -> bool {
        let workloads = match &self.kinds {
            KindRule::Fixed(kind) => *kind != PrincipalKind::User,
            KindRule::Claim(kinds) => kinds.iter().any(|kind| *kind != PrincipalKind::User),
        };
        (workloads || self.act.is_some()) && !self.attests_workloads
    }

    /// Whether it names people, and nobody has said which clients they use.
    fn knows_no_persons_client(&self) -> bool {
        let people = match &self.kinds {
            KindRule::Fixed(kind) => *kind == PrincipalKind::User,
            KindRule::Claim(kinds) => kinds.contains(&PrincipalKind::User),
        };
        people && self.person_clients.is_empty() && !self.is_for_development
    }
}

impl IdentityConfig {
    /// What an operator should read at start: settings that are weaker than the default.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let typ = self.issuers.iter().filter(|issuer| issuer.accept_typ_jwt).map(|issuer| {
            format!(
                "issuer `{}` accepts `typ: JWT`: an access token is told from other tokens by its audience only",
                issuer.issuer
            )
        });
        let anybody = self.issuers.iter().filter(|issuer| issuer.delegations_for_anybody);
        let anybody = anybody.filter(|issuer| !issuer.is_for_development);
        let anybody = anybody.map(|issuer| {
            format!(
                "issuer `{}` lets a user's token without a client serve every agent of the tenant",
                issuer.issuer
            )
        });
        let unclear = self.issuers.iter().filter(|issuer| issuer.knows_no_persons_client());
        let unclear = unclear.map(|issuer| {
            format!(
                "issuer `{}` names people and has no `person_clients`: their tokens count only beside an agent's own, so people can decide at the console alone",
                issuer.issuer
            )
        });
        let unattested = self.issuers.iter().filter(|issuer| issuer.leaves_workloads_unattested());
        let unattested = unattested.map(|issuer| {
            format!(
                "issuer `{}` names workloads and does not have `attests_workloads: true`: the shipped policies refuse their calls, unless their tokens are bound to a client certificate",
                issuer.issuer
            )
        });
        typ.chain(anybody).chain(unclear).chain(unattested).collect()
    }
}
