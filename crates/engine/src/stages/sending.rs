//! Sending: the adapter is called with the credential of its dispatch.
//!
//! Owns the call. Not here: attempts that need a permit of their own, which `retry` owns. Invariants: nothing is sent with an expired
//! credential; nothing is awaited between the commit that allows a call and the adapter; and a target's error answer counts as its contract
//! says, whatever the adapter.

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
    adapters::ports::Lease, call::Brokered, context::Context, registry::Registry,
    stages::credential::Proof,
};

/// How long after its deadline an adapter may still report that it timed out, in milliseconds.
const GRACE_MS: u64 = 1_000;
/// The same for one that keeps listening and so reports nothing.
const GRACE_LISTENING_MS: u64 = 100;

/// What a call is sent with, obtained before its dispatch.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) lease: Lease,
    pub(crate) proof: Proof,
    pub(crate) seat: SessionLease,
    pub(crate) deadline: Instant,
}

/// The result of calling the adapter.
#[derive(Debug)]
pub(crate) struct Called {
    pub(crate) outcome: AdapterOutcome,
    /// The task that may still get an answer.
    pub(crate) late: Option<JoinHandle<Option<AdapterOutcome>>>,
    /// What it was sent with, less the credential itself.
    pub(crate) proof: Proof,
}

/// Calls the adapter. A panic in it is an unknown outcome. A call that does not end in time continues in a task of its own, which is
/// returned: its late answer is still evidence.
pub(crate) async fn call(
    context: &Context,
    brokered: &Brokered,
    dispatch: Dispatch,
    ready: Ready,
) -> Called {
    let Ready { lease, mut proof, seat, deadline } = ready;
    let _inflight = context.metrics.enter_adapter(brokered.binding.capability.adapter().as_str());
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
            // The tool was not called, so its breaker is not told.
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

/// How long a late answer is awaited: only if a record waits for it, and not too many others are late.
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

/// The trace headers of a span, as far as the contract lets the adapter have them.
pub(crate) fn trace_headers(span: &tracing::Span, contract: &Contract) -> TraceHeaders {
    let tracestate = || placet_telemetry::trace::tracestate_of(span);
    TraceHeaders {
        traceparent: placet_telemetry::trace::traceparent_of(span),
        tracestate: contract.pass_tracestate.then(tracestate).flatten(),
    }
}
