//! Approach: the credential of a permitted call and the session it goes through, both obtained before the dispatch.
//!
//! Owns their order and what their failures mean. A session begins with the credential of the very call that needs it, so the credential is
//! minted first, then the session is begun, and only then the dispatch is recorded: its commit sees every freeze and revocation that was
//! acknowledged meanwhile, and a process that dies before it leaves nothing but a session without a call. Invariants: the credential that
//! is returned has not expired; one that the target refuses here is replaced once, and nothing was sent as a call before.

use placet_adapter::{adapter::SessionLease, outcome::AdapterError};
use placet_credentials::Remedy;
use tokio::time::Instant;

use crate::{
    adapters::{
        errors::{fault_of, is_ours, unavailable},
        ports::Lease,
    },
    call::Gated,
    context::{Context, ending_refusal},
    lifecycle::codes::Cause,
    stages::credential::{self, Proof, Unready},
};

/// How often a credential is obtained that expires before there is a session for it.
const TAKEN_MAX: usize = 3;

/// Mints the credential of a call and prepares its session.
pub(crate) async fn approach(
    context: &Context,
    gated: &Gated,
    lease: &Lease,
    deadline: Instant,
) -> Result<(Proof, SessionLease), Unready> {
    let brokered = &gated.brokered;
    let mut proof = credential::prove(&context.credentials, gated, deadline).await?;
    let mut was_refused = false;
    for _ in 0..TAKEN_MAX {
        let ready = tokio::select! {
            biased;
            () = context.node.ended() => return Err(ending_refusal().into()),
            ready = lease.prepare(proof.credential.as_ref(), proof.owner, deadline) => ready,
        };
        match ready {
            Ok(seat) if !proof.is_over() => return Ok((proof, seat)),
            // It has expired meanwhile; its session continues with the next one.
            Ok(_ended) => proof = credential::prove(&context.credentials, gated, deadline).await?,
            Err(AdapterError::NoSession(_)) if proof.is_over() => {
                proof = credential::prove(&context.credentials, gated, deadline).await?;
            }
            Err(error @ AdapterError::CredentialRefused(_)) => {
                let has_another = credential::refused(&context.credentials, brokered, &proof).await;
                if was_refused || !has_another {
                    return Err(unready(&error, gated));
                }
                was_refused = true;
                proof = credential::prove(&context.credentials, gated, deadline).await?;
            }
            Err(error) => return Err(unready(&error, gated)),
        }
    }
    let why = "its credentials end before the server has begun a session".to_owned();
    Err(unready(&AdapterError::NoSession(why), gated))
}

/// The refusal of a call whose session could not be prepared.
fn unready(error: &AdapterError, gated: &Gated) -> Unready {
    let kind = gated.brokered.binding.credential.kind;
    let refusal = unavailable(error, kind);
    // A credential minted for a user may be refused because of that user, and another token may then be accepted.
    let fault = fault_of(error).filter(|_| is_ours(kind));
    let cause = match (fault, refusal.code.lacks_credential()) {
        (Some(_), _) => Cause::Credential(Remedy::Operator),
        (None, true) => Cause::Credential(Remedy::Time),
        (None, false) => Cause::Code,
    };
    Unready { refusal, cause, fault }
}
