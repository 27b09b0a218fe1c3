//! Authentication: who calls, from the headers and the connection of a request, and whether the tokens still count.
//!
//! Owns the reading of the two headers. The rules for tokens and certificates are in `placet-identity`.

use std::{future::Future, net::IpAddr, sync::Arc, time::Duration};

use placet_approvals::refusals;
use placet_identity::{ClientCertificate, IdentityError, Presented, VerifiedCaller, VerifiedToken};
use placet_types::{
    error::{ErrorCode, Refusal},
    ids::PrincipalId,
    principal::{Principal, PrincipalKind},
};

use super::Engine;
use crate::{attempts::Attempt, context::Context, responder::count_refusal};

/// How long attempts are counted before they are written.
const ATTEMPTS_WINDOW: Duration = Duration::from_secs(60);

impl Engine {
    /// Verifies who calls: the `Authorization` header or else the connection's certificate, and `Placet-Delegation` where a
    /// user's authority is used.
    ///
    /// # Errors
    /// [`ErrorCode::Unauthenticated`], [`ErrorCode::CredentialExpired`], or [`ErrorCode::IdentityUnavailable`] while keys are
    /// missing; [`ErrorCode::PolicyDenied`] where the directory says that the caller, or the user it acts for, is not active.
    pub async fn authenticate(
        &self,
        authorization: Option<&str>,
        delegation: Option<&str>,
        certificate: Option<&ClientCertificate>,
    ) -> Result<VerifiedCaller, Refusal> {
        let token = match authorization {
            None => None,
            // A header that is not understood is refused, not ignored: it was sent for a reason.
            Some(header) => Some(bearer(header).ok_or_else(|| {
                let needed = "a bearer token is needed in the Authorization header";
                self.unverified(Refusal::new(ErrorCode::Unauthenticated, needed))
            })?),
        };
        let delegation = delegation.map(|header| bearer(header).unwrap_or(header));
        let presented = Presented { token, delegation, certificate };
        match self.context.verifier.caller(presented).await {
            Ok(caller) => {
                if self.is_held_by_agent(&caller) {
                    let issuer = caller.actor.issuer().to_owned();
                    return Err(self.unverified(IdentityError::HeldByAgent(issuer).refusal()));
                }
                if self.context.credentials.broker.is_caller_revoked(&caller) {
                    return Err(self.unverified(refusals::revoked()));
                }
                self.must_be_active(&caller)?;
                Ok(caller)
            }
            Err(error) => Err(self.unverified(error.refusal())),
        }
    }

    /// How long the caller's proof of identity is still valid.
    pub fn expires_in(&self, caller: &VerifiedCaller) -> Duration {
        let left = caller.expires_at().since_ms(self.context.ledger.store().now());
        Duration::from_millis(u64::try_from(left).unwrap_or(0))
    }

    /// Whether a token that the caller was verified by has been revoked since.
    pub fn is_revoked(&self, caller: &VerifiedCaller) -> bool {
        self.context.credentials.broker.is_caller_revoked(caller)
    }

    /// Resolves when such a token is revoked, on any node, with the refusal for the caller.
    pub fn revoked(
        &self,
        caller: Arc<VerifiedCaller>,
    ) -> impl Future<Output = Refusal> + Send + 'static + use<> {
        // Subscribe before checking, so that no revocation in between is missed.
        let mut further = self.context.revoking.subscribe();
        let context = Arc::clone(&self.context);
        async move {
            while !context.credentials.broker.is_caller_revoked(&caller) {
                if further.changed().await.is_err() {
                    return std::future::pending().await;
                }
            }
            refusals::revoked()
        }
    }

    /// Whether a user's token that is presented alone was issued to a client with an agent's name.
    fn is_held_by_agent(&self, caller: &VerifiedCaller) -> bool {
        let shown = &caller.actor;
        let client = shown.client().and_then(|client| PrincipalId::new(client).ok());
        shown.kind() == PrincipalKind::User
            && client.is_some_and(|client| {
                self.context.current.active().directory.agent(shown.tenant(), &client).is_some()
            })
    }

    /// Refuses a caller that the directory lists as inactive, or that acts for such a user: it may neither act nor read. Policies decide
    /// about callers that the directory does not know. The attempt is a security event.
    fn must_be_active(&self, caller: &VerifiedCaller) -> Result<(), Refusal> {
        let directory = &self.context.current.active().directory;
        let is_inactive = |one: &Principal| match one.kind {
            PrincipalKind::User => {
                directory.user(&one.tenant_id, &one.id).is_some_and(|user| !user.active)
            }
            PrincipalKind::Agent | PrincipalKind::Service | PrincipalKind::Automation => {
                directory.agent(&one.tenant_id, &one.id).is_some_and(|agent| !agent.active)
            }
        };
        let chain = caller.chain();
        if !is_inactive(&chain.actor) && !chain.on_behalf_of.as_ref().is_some_and(is_inactive) {
            return Ok(());
        }
        self.attempted(caller, Attempt::Inactive);
        let refusal = Refusal::new(
            ErrorCode::PolicyDenied,
            "the directory says that the caller, or the user it acts for, is not active",
        );
        count_refusal(&self.context.metrics, None, &refusal, Duration::ZERO);
        Err(refusal)
    }

    /// Counts what a verified caller tried and was refused before there was a call.
    pub fn attempted(&self, caller: &VerifiedCaller, attempt: Attempt) {
        if self.context.attempts.of_caller(caller, attempt) {
            self.write_attempts_later();
        }
    }

    /// Counts a refused token by the address it came from. Not one that has expired, since it was valid once, nor one that could not be
    /// verified for want of keys.
    pub fn token_refused(&self, peer: IpAddr, code: ErrorCode) {
        if code == ErrorCode::Unauthenticated && self.context.attempts.of_peer(peer) {
            self.write_attempts_later();
        }
    }

    fn write_attempts_later(&self) {
        let context = Arc::clone(&self.context);
        drop(tokio::spawn(async move {
            tokio::select! {
                () = tokio::time::sleep(ATTEMPTS_WINDOW) => write_attempts(&context).await,
                // `shutdown` writes them.
                () = context.node.stopped() => {}
            }
        }));
    }

    /// The caller for a person who signed in to the console.
    ///
    /// # Errors
    /// The token's own refusal where it cannot be used alone; [`ErrorCode::PolicyDenied`] where the directory lists the person as inactive.
    pub fn signed_in(&self, token: VerifiedToken) -> Result<VerifiedCaller, Refusal> {
        let caller = VerifiedCaller::bind(token, None).map_err(|error| error.refusal())?;
        self.must_be_active(&caller)?;
        Ok(caller)
    }

    /// Logs and counts the refusal of a request whose caller is not verified. It is not in the audit chain by itself: a client without a
    /// valid token must not be able to fill it.
    pub fn unverified(&self, refusal: Refusal) -> Refusal {
        tracing::info!(code = %refusal.code, detail = refusal.detail.as_deref().unwrap_or(""), "a token was refused");
        count_refusal(&self.context.metrics, None, &refusal, Duration::ZERO);
        refusal
    }
}

/// The token of a `Bearer` header (RFC 6750 §2.1); the scheme is case-insensitive.
fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Writes what was counted: when the window ends, and before the ledger is closed.
pub(super) async fn write_attempts(context: &Context) {
    for event in context.attempts.take() {
        context.note(event).await;
    }
}
