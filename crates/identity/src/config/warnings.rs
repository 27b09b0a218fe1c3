//! What an operator should read at start.
//!
//! Owns which settings are warned of. Refuses nothing: what cannot stand is refused by the check.

use placet_types::principal::PrincipalKind;

use super::{IdentityConfig, IssuerConfig, KindRule};
use crate::dev::DEV_ISSUER;

impl IssuerConfig {
    /// Whether it names people as well as agents, and nobody has said which clients people use.
    fn may_mistake_an_agent(&self) -> bool {
        let is_user = |kind: &PrincipalKind| *kind == PrincipalKind::User;
        let (people, agents) = match &self.kinds {
            KindRule::Fixed(kind) => (is_user(kind), !is_user(kind)),
            KindRule::Claim(kinds) => {
                (kinds.iter().any(is_user), kinds.iter().any(|kind| !is_user(kind)))
            }
        };
        people && (agents || self.act.is_some()) && self.person_clients.is_empty()
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
        let anybody = anybody.filter(|issuer| !issuer.issuer.starts_with(DEV_ISSUER));
        let anybody = anybody.map(|issuer| {
            format!(
                "issuer `{}` lets a user's token without a client serve every agent of the tenant",
                issuer.issuer
            )
        });
        let unclear = self.issuers.iter().filter(|issuer| issuer.may_mistake_an_agent());
        let unclear = unclear.filter(|issuer| !issuer.issuer.starts_with(DEV_ISSUER));
        let unclear = unclear.map(|issuer| {
            format!(
                "issuer `{}` names people and agents and has no `person_clients`: a user's token that an agent holds may pass for the user",
                issuer.issuer
            )
        });
        typ.chain(anybody).chain(unclear).collect()
    }
}
