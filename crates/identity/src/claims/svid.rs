//! The claims of a JWT-SVID (SPIFFE): `sub`, `aud` and `exp`, and the rules that its trust domain adds.
//!
//! Owns the differences from an access token: there is no issuer to compare exactly, and `iat` may be missing. Invariant: the subject is a
//! SPIFFE id of the very trust domain whose key signed.

use placet_types::{clock::Timestamp, principal::Principal, proof::AuthType};
use serde_json::{Map, Value};

use super::{Judge, ms, refused, required_text};
use crate::{
    config::TrustDomainConfig,
    error::IdentityError,
    spiffe::SpiffeId,
    token::{TokenRole, VerifiedToken, Workload},
};

impl Judge<'_> {
    /// Everything the claims say, if all of it is acceptable for `domain`.
    pub(crate) fn svid(
        &self,
        domain: &TrustDomainConfig,
        claims: &Map<String, Value>,
        signed: &str,
    ) -> Result<VerifiedToken, IdentityError> {
        let subject = required_text(claims, "sub")?;
        let id = SpiffeId::parse(subject)
            .filter(|id| id.trust_domain() == domain.trust_domain)
            .ok_or_else(|| refused("sub", "it is not a SPIFFE id of this trust domain"))?;
        if self.role == TokenRole::Delegation {
            return Err(refused("sub", "only a user can delegate"));
        }
        for claim in ["act", "may_act", "cnf"] {
            if claims.contains_key(claim) {
                return Err(refused(claim, "an SVID speaks for its workload alone"));
            }
        }
        let audiences = self.audiences(claims)?;
        let (issued_at, expires_at) = self.svid_times(claims)?;
        let principal = domain.workloads.of_spiffe(&id);
        let principal = principal.ok_or_else(|| refused("sub", "the workload has no name here"))?;
        let tenant_id = domain.tenant.clone();
        let workload = Workload {
            role: self.role,
            auth_type: AuthType::JwtSvid,
            principal: Principal { kind: domain.kind, id: principal, tenant_id, display: None },
            issuer: self.issuer.issuer.clone(),
            subject: subject.to_owned(),
            issued_at,
            expires_at,
            token_ref: self.token_ref(claims, signed)?,
        };
        let is_undated = !claims.contains_key("iat");
        Ok(VerifiedToken { audiences, is_undated, ..VerifiedToken::of_workload(workload) })
    }

    /// As for every token, except that the life of one without `iat` is counted from now.
    fn svid_times(
        &self,
        claims: &Map<String, Value>,
    ) -> Result<(Timestamp, Timestamp), IdentityError> {
        if claims.contains_key("iat") {
            return self.times(claims);
        }
        let mut stamped = claims.clone();
        let now_s = self.now.as_ms().div_euclid(ms(1));
        stamped.insert("iat".to_owned(), now_s.into());
        self.times(&stamped)
    }
}
