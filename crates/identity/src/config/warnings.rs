//! What an operator should read at start.
//!
//! Owns which settings are warned of. Refuses nothing: what cannot stand is refused by the check.

use placet_types::principal::PrincipalKind;

use super::{IdentityConfig, IssuerConfig, KindRule};

impl IssuerConfig {
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
        typ.chain(anybody).chain(unclear).collect()
    }
}
