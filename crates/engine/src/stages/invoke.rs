//! Invoke: everything between the permit and the dispatch.
//!
//! Owns the order: a place in the bulkhead, a live connection, the pin, the credential, the session; only then the dispatch. Each of them
//! may refuse, and then nothing was sent. Everything that can wait comes before the dispatch, whose commit compares the decision with what
//! is in force by then: so a freeze or a revocation that is acknowledged during any of these waits stops the call.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use placet_types::{
    error::{ErrorCode, Refusal},
    mode::ApprovalMode,
};

use crate::{
    call::{Call, Gated},
    context::{Context, ending_refusal},
    drift,
    stages::{
        approach,
        credential::{self, Unready},
        execute,
        refuse::{self, Refused},
        sending::Ready,
    },
};

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
            let Call { responder, stage: Gated { brokered, permit, record, .. } } = call;
            drop(permit);
            execute::decide_again(&context.routes, responder, *brokered, record);
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
    let (proof, seat) = approach::approach(context, gated, &lease, deadline).await?;
    let built = &gated.brokered.built;
    let remembered = (built.by_alias && gated.record.is_none())
        .then(|| context.aliases.remembered(&built.active, gated.brokered.request_digest))
        .flatten();
    Ok(Ready { lease, proof, seat, deadline, remembered })
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
    let call = call.advance(|gated| {
        drop(gated.permit);
        *gated.brokered
    });
    refuse::brokered(context, call, refused).await;
}
