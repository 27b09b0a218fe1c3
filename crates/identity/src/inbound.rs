//! What a request presents to identify its sender, and its verification as a whole.
//!
//! Owns how the parts of one request are combined: the caller's token or certificate, the user's delegation, or one token for both.
//! Invariants: a token that is bound to a certificate counts only together with that certificate; anyone who presents a workload's
//! certificate calls as that workload or not at all.

use std::fmt;

use placet_types::principal::PrincipalKind;

use crate::{
    caller::VerifiedCaller,
    certificate::ClientCertificate,
    error::IdentityError,
    token::{TokenRole, VerifiedToken},
    verifier::Verifier,
};

/// What a request presents to identify its sender.
#[derive(Clone, Copy, Default)]
pub struct Presented<'a> {
    /// The bearer token of `Authorization`.
    pub token: Option<&'a str>,
    /// The user's token of `Placet-Delegation`.
    pub delegation: Option<&'a str>,
    /// The certificate of the connection.
    pub certificate: Option<&'a ClientCertificate>,
}

impl fmt::Debug for Presented<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Presented")
            .field("token", &self.token.is_some())
            .field("delegation", &self.delegation.is_some())
            .field("certificate", &self.certificate)
            .finish()
    }
}

impl Verifier {
    /// Verifies everything that a request shows, and binds it together.
    ///
    /// # Errors
    /// [`IdentityError`] for the first check that fails, or when nothing is shown.
    pub async fn caller(&self, presented: Presented<'_>) -> Result<VerifiedCaller, IdentityError> {
        let (actor, acted_for) = match (presented.token, presented.certificate) {
            (Some(token), _) => self.verify_in(None, token).await?,
            (None, Some(certificate)) => (self.verify_certificate(certificate)?, None),
            (None, None) => return Err(IdentityError::NothingShown),
        };
        let delegation = match presented.delegation {
            None => acted_for,
            Some(_) if acted_for.is_some() => {
                let problem = "the caller's token names a user already";
                return Err(IdentityError::BindingRefused(problem));
            }
            Some(token) => Some(self.verify(token, TokenRole::Delegation).await?),
        };
        for token in [Some(&actor), delegation.as_ref()].into_iter().flatten() {
            check_key(token, presented.certificate)?;
        }
        if let (Some(_), Some(certificate)) = (presented.token, presented.certificate) {
            self.check_owner(certificate, &actor, delegation.is_some())?;
        }
        VerifiedCaller::bind(actor, delegation)
    }

    /// A workload that authenticates by its certificate cannot present another's token. A certificate that identifies nobody here, such as
    /// that of a person's machine, does not matter.
    fn check_owner(
        &self,
        certificate: &ClientCertificate,
        actor: &VerifiedToken,
        delegates: bool,
    ) -> Result<(), IdentityError> {
        let owner = match self.verify_certificate(certificate) {
            Ok(owner) => owner,
            Err(error) if error.is_transient() => return Err(error),
            Err(_) => return Ok(()),
        };
        let (owner, shown) = (owner.principal(), actor.principal());
        if (owner.kind, &owner.id, &owner.tenant_id) == (shown.kind, &shown.id, &shown.tenant_id) {
            return Ok(());
        }
        if actor.kind() == PrincipalKind::User && !delegates {
            return Err(IdentityError::HeldByAgent(actor.issuer().to_owned()));
        }
        Err(IdentityError::CertificateRefused("the token is another caller's"))
    }
}

/// Whether the bearer of a token that is bound to a certificate holds that certificate.
fn check_key(
    token: &VerifiedToken,
    certificate: Option<&ClientCertificate>,
) -> Result<(), IdentityError> {
    let Some(wanted) = &token.bound_to else { return Ok(()) };
    let shown = certificate
        .ok_or(IdentityError::KeyNotShown("the connection has no client certificate"))?;
    if shown.thumbprint() != *wanted {
        return Err(IdentityError::KeyNotShown("the connection's certificate is another"));
    }
    Ok(())
}
