//! Configuration warnings for the operator at start.
//!
//! Owns which settings cause a warning. Refuses nothing: the check refuses what is invalid.

use placet_types::principal::PrincipalKind;

use super::{IdentityConfig, IssuerConfig};

impl IssuerConfig {
    fn warnings(&self) -> impl Iterator<Item = &'static str> + use<> {
        let names_people = self.kinds.allows(|kind| kind == PrincipalKind::User);
        let names_workloads =
            self.act.is_some() || self.kinds.allows(|kind| kind != PrincipalKind::User);
        let all = [
            (
                self.accept_typ_jwt,
                "accepts `typ: JWT`: an access token is told from other tokens by its audience only",
            ),
            (
                self.delegations_for_anybody && !self.is_for_development,
                "lets a user's token without a client serve every agent of the tenant",
            ),
            (
                names_people && self.person_clients.is_empty() && !self.is_for_development,
                "names people and has no `person_clients`: their tokens count only beside an agent's own, so people can decide at the console alone",
            ),
            (
                names_workloads && !self.attests_workloads,
                "names workloads and does not have `attests_workloads: true`: the shipped policies refuse their calls, unless their tokens are bound to a client certificate",
            ),
        ];
        all.into_iter().filter(|(applies, _)| *applies).map(|(_, warning)| warning)
    }
}

impl IdentityConfig {
    /// What an operator should read at start: settings that are weaker than the default.
    pub fn warnings(&self) -> Vec<String> {
        let all = self.issuers.iter().flat_map(|issuer| {
            issuer.warnings().map(|warning| format!("issuer `{}` {warning}", issuer.issuer))
        });
        all.collect()
    }
}
