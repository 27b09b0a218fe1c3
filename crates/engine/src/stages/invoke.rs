//! Invoke: everything between the permit and the dispatch.
//!
//! Owns the order: a place in the bulkhead, a live connection, the pin, the credential, the session; only then the dispatch. Each of them
//! may refuse, and nothing was sent then. Whatever can be waited for comes before the dispatch, whose commit compares what was decided with
//! what is in force by then: so a freeze or a revocation that is acknowledged during any of these waits stops the call.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use placet_adapter::{adapter::TraceHeaders, outcome::AdapterError};
use placet_types::{
    contract::{Contract, credential::CredentialKind},
    error::{ErrorCode, Refusal},
    mode::ApprovalMode,
};

use crate::{
    call::{Call, Gated},
    context::{Context, ending_refusal},
    credential_faults, drift,
    stages::{
        approach,
        credential::{self, Unready},
        execute::{self, Ready},
        refuse::{self, Refused},
    },
};

/// Prepares a permitted call and has it executed.
pub(crate) async fn invoke(context: &Arc<Context>, mut call: Call<Gated>) {
    let budget = Duration::from_millis(
        call.stage.brokered.run.run_budget.tool_latency_ms_max.clamp(1, 600_000),
    );
    // One budget for all tries of a call.
    let deadline = *call.stage.brokered.built.deadline.get_or_insert(Instant::now() + budget);
    match prepare(context, &call.stage, deadline).await {
        Ok(ready) => execute::execute(context, call, ready).await,
        // What it was decided under is not active any more, its adapter's contract perhaps: it is decided by what is.
        Err(_) if !context.is_active(&call.stage.brokered.built.active) => {
            let Call { responder, stage: Gated { brokered, permit, record, .. } } = call;
            drop(permit);
            execute::decide_again(context, responder, brokered, record);
        }
        Err(unready) => {
            let unready = credential::blamed(context, &call.stage.brokered, unready).await;
            refuse_prepared(context, call, unready).await;
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
        // Anyone who waits for a place is told at once, and not when its turn comes.
        () = context.node.ended() => return Err(ending_refusal().into()),
        lease = port.enter(deadline) => lease?,
    };
    let strictest = gated.permit.mode_effective() == ApprovalMode::Destructive
        || target.capability.mode_highest == ApprovalMode::Destructive;
    let fresh_ms = if strictest { 0 } else { context.settings.live_list_ms_max };
    lease.check_pin(&target.capability, fresh_ms, deadline).await?;
    let (proof, seat) = approach::approach(context, gated, &lease, deadline).await?;
    Ok(Ready { lease, proof, seat, deadline })
}

/// What a caller is told whose target knows the credential, and does not allow the call with it.
pub(crate) const FORBIDDEN: &str =
    "the target does not allow the call with this credential; nothing was executed";

/// What a failure says to the caller before which nothing happened, where the target was shown a credential of this kind.
pub(crate) fn unavailable(error: &AdapterError, kind: CredentialKind) -> Refusal {
    let (code, message) = match error {
        AdapterError::SchemaMismatch(_) => (
            ErrorCode::ToolChanged,
            "the tool changed upstream since it was reviewed; an operator has to review it; nothing was executed",
        ),
        AdapterError::CredentialRefused(_) => {
            let is_ours = credential::is_ours(kind);
            let code = if is_ours {
                ErrorCode::CredentialMisconfigured
            } else {
                ErrorCode::CredentialRefused
            };
            (code, "the target refused the credential; nothing was executed")
        }
        // What the target knows and does not allow may be about what the call asks for, which is its caller's.
        AdapterError::Forbidden(_) => (ErrorCode::CredentialRefused, FORBIDDEN),
        AdapterError::Refused(reason) => {
            return Refusal::new(
                ErrorCode::AdapterFailed,
                format!("the tool refused the call: {}", shown(reason)),
            )
            .with_detail(logged(error));
        }
        AdapterError::Unavailable(_)
        | AdapterError::NoSession(_)
        | AdapterError::InvalidResponse(_)
        | AdapterError::Misconfigured(_) => {
            (ErrorCode::AdapterUnavailable, "the tool cannot be reached; nothing was executed")
        }
    };
    Refusal::new(code, message).with_detail(error)
}

/// What a failure says before the call was handed over. Words that a server has for its own listing or greeting are for the log: no record
/// would bring them into the run, as it does with those about a call.
pub(crate) fn unreached(error: AdapterError) -> Refusal {
    // Whatever the calls are sent with: where there is none yet, the contract's own secret is shown, or nothing.
    let kind = CredentialKind::StaticSecret;
    match error {
        AdapterError::Refused(reason) => unavailable(&AdapterError::Unavailable(reason), kind),
        // Nothing of a call was in it that its caller could change.
        AdapterError::Forbidden(_) => {
            Refusal::new(ErrorCode::CredentialMisconfigured, FORBIDDEN).with_detail(error)
        }
        AdapterError::SchemaMismatch(_)
        | AdapterError::CredentialRefused(_)
        | AdapterError::NoSession(_)
        | AdapterError::Unavailable(_)
        | AdapterError::InvalidResponse(_)
        | AdapterError::Misconfigured(_) => unavailable(&error, kind),
    }
}

/// The error for the log and the audit. A tool that refuses tends to quote its arguments, which belong in neither.
pub(crate) fn logged(error: &AdapterError) -> String {
    if matches!(error, AdapterError::Refused(_)) {
        return "refused by the tool, in words that only the caller is told".to_owned();
    }
    error.to_string()
}

/// The tool's own words, bounded.
fn shown(reason: &str) -> String {
    reason.chars().filter(|c| !c.is_control()).take(500).collect()
}

async fn refuse_prepared(context: &Arc<Context>, call: Call<Gated>, unready: Unready) {
    let Unready { refusal, cause, fault } = unready;
    if let Some(problem) = fault {
        credential_faults::note(context, &call.stage.brokered, refusal.code, problem).await;
    }
    let decision = call.stage.permit.decision().clone();
    if refusal.code == ErrorCode::ToolChanged {
        drift::drifted(context, &call.stage.brokered.binding.capability);
    }
    let refused = Refused { refusal, decision: Some(&decision), cause };
    let call = call.advance(|gated| {
        drop(gated.permit);
        gated.brokered
    });
    refuse::brokered(context, call, refused).await;
}

/// The trace headers of a span, as the contract lets the adapter have them.
pub(crate) fn trace_headers(span: &tracing::Span, contract: &Contract) -> TraceHeaders {
    let tracestate = || placet_telemetry::trace::tracestate_of(span);
    TraceHeaders {
        traceparent: placet_telemetry::trace::traceparent_of(span),
        tracestate: contract.pass_tracestate.then(tracestate).flatten(),
    }
}
