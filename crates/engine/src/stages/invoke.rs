//! Invoke: everything between the permit and the dispatch.
//!
//! Owns the order: a place in the bulkhead, a live connection, the pin, the credential, the session; only then the dispatch. Each of them
//! may refuse, and then nothing was sent. Everything that can wait comes before the dispatch, whose commit compares the decision with what
//! is in force by then: so a freeze or a revocation that is acknowledged during any of these waits stops the call, and a process that dies
//! before it leaves nothing but a session without a call. A session begins with the credential of the very call that needs it. Invariants:
//! the credential that is sent has not expired; one that the target refuses here is replaced once, and nothing was sent as a call before.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use placet_adapter::{adapter::SessionLease, outcome::AdapterError};
use placet_credentials::Remedy;
use placet_types::{
    error::{ErrorCode, Refusal},
    mode::ApprovalMode,
};

use crate::{
    adapters::{
        errors::{fault_of, is_ours, unavailable},
        ports::Lease,
    },
    call::{Call, Gated},
    context::{Context, ending_refusal},
    drift,
    lifecycle::codes::Cause,
    stages::{
        credential::{self, Proof, Unready},
        execute,
        refuse::{self, Refused},
        sending::Ready,
    },
};

/// How often a credential is obtained that expires before there is a session for it.
const TAKEN_MAX: usize = 3;

/// Prepares a permitted call and has it executed.
pub(crate) async fn invoke(context: &Arc<Context>, mut call: Call<Gated>) {
    let budget = Duration::from_millis(
        call.stage.brokered.run.run_budget.tool_latency_ms_max.clamp(1, 600_000),
    );
    // One budget for all attempts of a call.
    let deadline = *call.stage.brokered.built.deadline.get_or_insert(Instant::now() + budget);
    match prepare(context, &call.stage, deadline).await {
        Ok(ready) => execute::execute(context, call, ready).await,
        // What it was decided under is no longer active, perhaps not even its adapter's contract: it is decided again.
        Err(_) if !context.current.is_active(&call.stage.brokered.built.active) => {
            let Call { responder, stage } = call;
            let Gated { brokered, permit, record, .. } = *stage;
            drop(permit);
            execute::decide_again(&context.routes, responder, brokered, record);
        }
        Err(unready) => {
            let blamed = credential::blamed(&context.credentials, &call.stage.brokered, unready);
            let unready = Box::pin(blamed).await;
            Box::pin(refuse_prepared(context, call, unready)).await;
        }
    }
}

async fn prepare(context: &Context, gated: &Gated, deadline: Instant) -> Result<Ready, Unready> {
    let target = &gated.brokered.built.target;
    let port = gated.brokered.built.active.ports.of(&target.contract.adapter).ok_or_else(|| {
        Refusal::new(
            ErrorCode::AdapterUnavailable,
            "the tool's adapter is not running; nothing was executed",
        )
    })?;
    let lease = tokio::select! {
        biased;
        // A call that waits for a place is refused at once, not when its turn comes.
        () = context.node.ended() => return Err(ending_refusal().into()),
        lease = port.enter(deadline) => lease?,
    };
    let strictest = gated.permit.mode_effective() == ApprovalMode::Destructive
        || target.capability.mode_highest == ApprovalMode::Destructive;
    let fresh_ms = if strictest { 0 } else { context.settings.live_list_ms_max };
    lease.check_pin(&target.capability, fresh_ms, deadline).await?;
    let (proof, seat) = approach(context, gated, &lease, deadline).await?;
    Ok(Ready { lease, proof, seat, deadline })
}

/// Mints the credential of a call and prepares its session.
async fn approach(
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

async fn refuse_prepared(context: &Arc<Context>, call: Call<Gated>, unready: Unready) {
    let Unready { refusal, cause, fault } = unready;
    if let Some(problem) = fault {
        credential::note_fault(context, &call.stage.brokered, refusal.code, problem).await;
    }
    let decision = call.stage.permit.decision().clone();
    if refusal.code == ErrorCode::ToolChanged {
        drift::drifted(&context.outcomes, &call.stage.brokered.binding.capability);
    }
    let refused = Refused { refusal, decision: Some(&decision), cause };
    let Call { responder, stage } = call;
    let Gated { brokered, permit, .. } = *stage;
    drop(permit);
    let call = Call { responder, stage: brokered };
    refuse::brokered(context, call, refused).await;
}
