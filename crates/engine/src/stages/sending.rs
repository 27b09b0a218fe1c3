//! Sending: the adapter is called with the credential of its dispatch.
//!
//! Owns the call. Not here: tries that need a permit of their own, which `retry` owns. Invariants: nothing is sent with a credential that
//! has expired; a call waits for nothing between the commit that allows it and the adapter; and what a target answers with an error counts
//! as its contract says, no matter who the adapter is.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt as _;
use tokio::{task::JoinHandle, time::Instant};
use tracing::Instrument as _;

use placet_adapter::{
    adapter::{Conditions, SessionLease, TraceHeaders},
    outcome::{AdapterError, Outcome as AdapterOutcome},
};
use placet_ledger::dispatch::Dispatch;
use placet_telemetry::trace::AdapterFields;
use placet_types::contract::{Contract, file::TransportFile};

use crate::{
    adapters::ports::Lease, aliases::Remembered, call::Brokered, context::Context,
    registry::Registry, stages::credential::Proof,
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
    /// The answer that it gets from the cache, and nothing is sent.
    pub(crate) remembered: Option<Arc<Remembered>>,
}

/// What came of calling the adapter.
#[derive(Debug)]
pub(crate) struct Called {
    pub(crate) outcome: AdapterOutcome,
    /// The task that may still hear an answer.
    pub(crate) late: Option<JoinHandle<Option<AdapterOutcome>>>,
    /// With what it was sent, less the credential itself.
    pub(crate) proof: Proof,
}

/// Calls the adapter. Its panic is an unknown outcome and not ours. What does not end in its time goes on in a task of its own, which is
/// returned: what it answers after all is evidence still.
pub(crate) async fn call(
    context: &Context,
    brokered: &Brokered,
    dispatch: Dispatch,
    ready: Ready,
) -> Called {
    let Ready { lease, mut proof, seat, deadline, remembered } = ready;
    if let Some(remembered) = remembered {
        drop(dispatch);
        let outcome = AdapterOutcome::Done(remembered.answer.clone());
        return Called { outcome, late: None, proof };
    }
    let _inflight = context.metrics.with_adapter(&brokered.binding.capability);
    let timeout = deadline.saturating_duration_since(Instant::now());
    let span = adapter_span(brokered, dispatch.attempt());
    let listen_ms = listening_ms(context, brokered);
    let conditions = Conditions {
        timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
        listen_ms,
        credential: proof.credential.take(),
        seat,
        trace: trace_headers(&span, &brokered.built.target.contract),
        examples: Arc::clone(&brokered.built.examples),
        observer: Some(Arc::<Registry>::clone(&context.registry)),
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
    let mut invoking = Box::pin(AssertUnwindSafe(invoking.instrument(span)).catch_unwind());
    let grace_ms = if listen_ms > 0 { GRACE_LISTENING_MS } else { GRACE_MS };
    let limit = timeout.saturating_add(Duration::from_millis(grace_ms));
    let (outcome, late) = match tokio::time::timeout(limit, &mut invoking).await {
        Ok(Ok(Some(outcome))) => (outcome, None),
        Ok(Ok(None)) => {
            // The tool was not asked, so its breaker hears nothing.
            let reason = "its time, or its credential's, ran out before it was sent".to_owned();
            let outcome = AdapterOutcome::NotExecuted(AdapterError::Unavailable(reason));
            return Called { outcome, late: None, proof };
        }
        Ok(Err(_panic)) => {
            (AdapterOutcome::Unknown("the adapter failed: it panicked".to_owned()), None)
        }
        Err(_elapsed) => {
            let reason = "the adapter did not answer within its latency budget".to_owned();
            let late = tokio::spawn(async move { invoking.await.ok().flatten() });
            (AdapterOutcome::Unknown(reason), Some(late))
        }
    };
    lease.report(&outcome, timeout);
    Called { outcome, late, proof }
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
