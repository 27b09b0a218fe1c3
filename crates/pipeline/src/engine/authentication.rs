//! Authentication: who calls, from the headers of a request.
//!
//! Owns the reading of the two headers. The rules for tokens are `placet-identity`'s.

use placet_identity::{TokenRole, VerifiedCaller};
use placet_types::error::{ErrorCode, Refusal};

use super::Engine;

impl Engine {
    /// Verifies who calls: the `Authorization` header, and `Placet-Delegation` where a user's authority is used.
    ///
    /// # Errors
    /// [`ErrorCode::Unauthenticated`] or [`ErrorCode::CredentialExpired`]; a forged token is a security event.
    pub async fn authenticate(
        &self,
        authorization: Option<&str>,
        delegation: Option<&str>,
    ) -> Result<VerifiedCaller, Refusal> {
        let missing = || {
            Refusal::new(
                ErrorCode::Unauthenticated,
                "a bearer token is needed in the Authorization header",
            )
        };
        let token = authorization.and_then(bearer).ok_or_else(missing)?;
        let verifier = &self.context.verifier;
        let actor = match verifier.verify(token, TokenRole::Actor).await {
            Ok(actor) => actor,
            Err(error) => return Err(self.unverified(error.refusal())),
        };
        let user = match delegation {
            None => None,
            Some(header) => {
                match verifier.verify(bearer(header).unwrap_or(header), TokenRole::Delegation).await
                {
                    Ok(user) => Some(user),
                    Err(error) => return Err(self.unverified(error.refusal())),
                }
            }
        };
        match VerifiedCaller::bind(actor, user) {
            Ok(caller) => Ok(caller),
            Err(error) => Err(self.unverified(error.refusal())),
        }
    }

    // Not in the chain: whoever has no token must not be able to fill it.
    fn unverified(&self, refusal: Refusal) -> Refusal {
        tracing::info!(code = %refusal.code, detail = refusal.detail.as_deref().unwrap_or(""), "a token was refused");
        self.context.metrics.refused(refusal.code);
        refusal
    }
}

/// The token of a `Bearer` header (RFC 6750 §2.1); the scheme is case-insensitive.
fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}
