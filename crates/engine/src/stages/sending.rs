//! Sending: the adapter is called, and once more with another credential where its target refused the first before anything happened.
//!
//! Owns the call and the second try. Not here: tries that need a permit of their own, which `retry` owns. Invariants: a second try is of
//! the same attempt, with the same token and until the same deadline; it is made only against an answer which says that nothing happened
//! because the target does not know the credential, only with another credential that the chain names before, and there is no third; nothing
//! is sent with a credential that has expired; no try waits for anything between the commit that allows it and the adapter; and what a
//! target answers with an error counts as its contract says, no matter who the adapter is.

use std::{sync::Arc, time::Duration};

use tokio::{task::JoinHandle, time::Instant};
use tracing::Instrument as _;

use placet_adapter::{
    adapter::{Conditions, Credential, SessionLease, TraceHeaders},
    outcome::{AdapterError, Outcome as AdapterOutcome},
};
use placet_ledger::{
    audit::AuditEvent,
    dispatch::{Dispatch, Spare},
};
use placet_telemetry::trace::AdapterFields;
use placet_types::{
    binding::CredentialUse,
    contract::{Contract, file::TransportFile},
    ids::DecisionId,
};

use crate::{
    adapters::ports::Lease,
    call::Brokered,
    context::Context,
    stages::{
        credential::{self, Proof, forget},
        facts,
    },
};

/// How much longer than its deadline an adapter may take to say that it is over, in milliseconds.
const GRACE_MS: u64 = 1_000;
/// The same for one that goes on listening, and so says nothing.
const GRACE_LISTENING_MS: u64 = 100;

/// What a call is sent with, in hand before its dispatch.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) lease: Lease,
    pub(crate) proof: Proof,
    pub(crate) seat: SessionLease,
    pub(crate) deadline: Instant,
}

/// What came of calling the adapter.
#[derive(Debug)]
pub(crate) struct Called {
    pub(crate) outcome: AdapterOutcome,
    /// The task that may still hear an answer.
    pub(crate) late: Option<JoinHandle<Option<AdapterOutcome>>>,
    /// Whether the credential was new to its target.
    pub(crate) is_fresh: bool,
    /// The credential of the second try, if there was one.
    pub(crate) second: Option<CredentialUse>,
}

/// What is sent.
#[derive(Debug)]
pub(crate) struct Leave {
    pub(crate) dispatch: Dispatch,
    /// For a second try; none where no other credential could help.
    pub(crate) second: Option<Second>,
    pub(crate) decision_id: Option<DecisionId>,
}

/// What a second try needs.
#[derive(Debug)]
pub(crate) struct Second {
    pub(crate) spare: Spare,
    /// What the chain says before it is made, but for its credential.
    pub(crate) event: AuditEvent,
}

/// Calls the adapter.
pub(crate) async fn call(
    context: &Context,
    brokered: &Brokered,
    leave: Leave,
    ready: Ready,
) -> Called {
    let _inflight = context.metrics.with_adapter(&brokered.binding.capability);
    let Ready { lease, mut proof, seat, deadline } = ready;
    let Leave { dispatch, second: leave, decision_id } = leave;
    let mut tried =
        try_once(context, brokered, dispatch, proof.credential.take(), seat, &lease, deadline)
            .await;
    let mut second = None;
    if was_refused(&tried.outcome) {
        forget(&context.credentials, &proof);
        if let Some(leave) = leave
            && !facts::is_locked_down(context, brokered)
            && let Some(mut other) =
                credential::another(&context.credentials, brokered, &proof, decision_id, deadline)
                    .await
            && let Ok(seat) = lease.prepare(other.credential.as_ref(), other.owner, deadline).await
            && let Some(dispatch) = once_more(context, leave, &other).await
        {
            second.clone_from(&other.used);
            tried = try_once(
                context,
                brokered,
                dispatch,
                other.credential.take(),
                seat,
                &lease,
                deadline,
            )
            .await;
            if was_refused(&tried.outcome) {
                forget(&context.credentials, &other);
            } else if was_taken(&tried.outcome) {
                credential::learn(brokered, &proof, &other);
                tracing::warn!(capability = %brokered.binding.capability, "a target refused the credential and took another live one");
            }
            proof = other;
        }
    }
    if tried.was_asked {
        lease.report(&tried.outcome, tried.given);
    }
    let is_fresh = proof.used.as_ref().is_some_and(|used| !used.reused);
    Called { outcome: tried.outcome, late: tried.late, is_fresh, second }
}

fn was_refused(outcome: &AdapterOutcome) -> bool {
    matches!(outcome.not_executed(), Some(AdapterError::CredentialRefused(_)))
}

/// Whether an answer proves that the target has taken the credential: silence does not, and neither does what stands before it.
const fn was_taken(outcome: &AdapterOutcome) -> bool {
    match (outcome, outcome.not_executed()) {
        (AdapterOutcome::Done(_) | AdapterOutcome::Failed(_), _)
        | (_, Some(AdapterError::Refused(_))) => true,
        (
            _,
            Some(
                AdapterError::Unavailable(_)
                | AdapterError::NoSession(_)
                | AdapterError::SchemaMismatch(_)
                | AdapterError::CredentialRefused(_)
                | AdapterError::Forbidden(_)
                | AdapterError::InvalidResponse(_)
                | AdapterError::Misconfigured(_),
            )
            | None,
        ) => false,
    }
}

/// The leave for a second try, once it is on record with which credential it is made; none where that cannot be recorded, or where the call
/// was stopped meanwhile.
async fn once_more(context: &Context, leave: Second, other: &Proof) -> Option<Dispatch> {
    let Second { spare, mut event } = leave;
    event.credential = other.used.clone().map(Box::new);
    let dispatch = context.ledger.dispatch_once_more(spare, event).await;
    dispatch.inspect_err(|error| context.node.noticed(error)).ok()
}

struct Tried {
    outcome: AdapterOutcome,
    late: Option<JoinHandle<Option<AdapterOutcome>>>,
    was_asked: bool,
    /// How long it had.
    given: Duration,
}

/// Calls the adapter in a task of its own, so that its panic is an unknown outcome and not ours. A task that does not end in its time
/// is given back: what it answers after all is evidence still.
async fn try_once(
    context: &Context,
    brokered: &Brokered,
    dispatch: Dispatch,
    credential: Option<Credential>,
    seat: SessionLease,
    lease: &Lease,
    deadline: Instant,
) -> Tried {
    let timeout = deadline.saturating_duration_since(Instant::now());
    let span = adapter_span(brokered, dispatch.attempt());
    let listen_ms = listening_ms(context, brokered);
    let conditions = Conditions {
        timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
        listen_ms,
        credential,
        seat,
        trace: trace_headers(&span, &brokered.built.target.contract),
    };
    let connection = lease.connection();
    let capability = Arc::clone(&brokered.built.target.capability);
    let invoking = async move {
        // A process that was paused must not begin what others may have taken over meanwhile.
        // And its commit may have outlasted the credential.
        let now = Instant::now();
        let credential = conditions.credential.as_ref();
        let is_over = credential.is_some_and(|one| one.is_over_at(now.into_std()));
        if is_over || now >= deadline {
            drop(dispatch);
            return None;
        }
        let outcome = connection.invoke(dispatch, conditions).await;
        Some(outcome.under(&capability))
    };
    let mut task = tokio::spawn(invoking.instrument(span));
    let grace_ms = if listen_ms > 0 { GRACE_LISTENING_MS } else { GRACE_MS };
    let limit = timeout.saturating_add(Duration::from_millis(grace_ms));
    let (outcome, late) = match tokio::time::timeout(limit, &mut task).await {
        Ok(Ok(Some(outcome))) => (outcome, None),
        Ok(Ok(None)) => {
            // The tool was not asked, so its breaker hears nothing.
            let reason = "its time, or its credential's, ran out before it was sent".to_owned();
            let outcome = AdapterOutcome::NotExecuted(AdapterError::Unavailable(reason));
            return Tried { outcome, late: None, was_asked: false, given: timeout };
        }
        Ok(Err(failed)) => (AdapterOutcome::Unknown(format!("the adapter failed: {failed}")), None),
        Err(_elapsed) => {
            let reason = "the adapter did not answer within its latency budget".to_owned();
            (AdapterOutcome::Unknown(reason), Some(task))
        }
    };
    Tried { outcome, late, was_asked: true, given: timeout }
}

/// For how long an answer is listened for that is late: only where a record waits for it, and while not too many others are late.
fn listening_ms(context: &Context, brokered: &Brokered) -> u64 {
    let may_have_acted = brokered.built.target.capability.is_write_class();
    let is_heard = may_have_acted && context.late.available_permits() > 0;
    if is_heard { context.settings.ledger.late_answers_ms } else { 0 }
}

/// The span of one attempt, below the invoke stage's.
fn adapter_span(brokered: &Brokered, attempt: u32) -> tracing::Span {
    let id = &brokered.binding.capability;
    let is_mcp =
        !matches!(brokered.built.target.contract.transport, TransportFile::Internal { .. });
    let fields = AdapterFields {
        adapter: id.adapter().as_str(),
        mcp_server_id: is_mcp.then(|| id.adapter().as_str()),
        mcp_method: is_mcp.then_some("tools/call"),
        tool: id.capability().as_str(),
        attempt,
    };
    placet_telemetry::trace::adapter_span(&tracing::Span::current(), &fields)
}

/// The trace headers of a span, as the contract lets the adapter have them.
pub(crate) fn trace_headers(span: &tracing::Span, contract: &Contract) -> TraceHeaders {
    let tracestate = || placet_telemetry::trace::tracestate_of(span);
    TraceHeaders {
        traceparent: placet_telemetry::trace::traceparent_of(span),
        tracestate: contract.pass_tracestate.then(tracestate).flatten(),
    }
}

#[cfg(test)]
mod tests {
    use placet_adapter::outcome::Answer;

    use super::*;

    #[test]
    fn only_an_answer_proves_that_a_target_has_taken_a_credential() {
        let nothing = |error: fn(String) -> AdapterError| {
            AdapterOutcome::NotExecuted(error("it says so".to_owned()))
        };
        for taken in [
            AdapterOutcome::Done(Answer::default()),
            AdapterOutcome::Failed(Answer::default()),
            nothing(AdapterError::Refused),
        ] {
            assert!(was_taken(&taken) && !was_refused(&taken), "{taken:?}");
        }
        for open in [
            AdapterOutcome::Unknown("no answer in time".to_owned()),
            nothing(AdapterError::Unavailable),
            nothing(AdapterError::NoSession),
            nothing(AdapterError::SchemaMismatch),
            nothing(AdapterError::Forbidden),
            nothing(AdapterError::InvalidResponse),
            nothing(AdapterError::Misconfigured),
        ] {
            assert!(!was_taken(&open) && !was_refused(&open), "{open:?}");
        }
        assert!(was_refused(&nothing(AdapterError::CredentialRefused)));
    }
}
