//! The duty to answer one admitted call, and the handles for answering it.
//!
//! Owns [`Responder`] and the parts of a node that it needs. Invariant: when a responder is dropped unanswered, its call is answered all
//! the same, with what the ledger knows to be true.

use std::{
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::{sync::OwnedSemaphorePermit, time::Instant};
use tracing::Span;

use placet_ledger::ledger::Ledger;
use placet_telemetry::{metrics::Metrics, trace};
use placet_types::{
    envelope::result::{ResultStatus, ToolResultEnvelope},
    error::Refusal,
    ids::{CapabilityId, DecisionId, RecordId, TenantId, ToolCallId},
};

use crate::{
    admission::{Admission, OwnedSemaphorePermits},
    answer::{Answer, Held},
    in_flight::{InFlight, WorkGuard},
    registry::Registry,
    result::{self, Subject, status_of},
    settings::Settings,
};

/// Answers calls whose stage died.
pub(crate) trait Fallback: fmt::Debug + Send + Sync {
    /// Answers such a call with what the ledger knows to be true.
    fn abandoned(self: Arc<Self>, call: Abandoned);
}

/// A call whose stage died while it held it.
#[derive(Debug)]
pub(crate) struct Abandoned {
    pub(crate) subject: Subject,
    pub(crate) record_id: Option<RecordId>,
    /// Whether it has no record and was with its adapter.
    pub(crate) sent: bool,
}

/// The handles that calls are answered through.
#[derive(Debug)]
pub(crate) struct Callers {
    registry: Arc<Registry>,
    pub(crate) admission: Admission,
    pub(crate) in_flight: InFlight,
    metrics: Metrics,
    ledger: Ledger,
    fallback: Weak<dyn Fallback>,
}

impl Callers {
    pub(crate) fn new(
        settings: &Settings,
        registry: &Arc<Registry>,
        metrics: &Metrics,
        ledger: &Ledger,
        fallback: Weak<dyn Fallback>,
    ) -> Self {
        Self {
            registry: Arc::clone(registry),
            admission: Admission::new(settings),
            in_flight: InFlight::default(),
            metrics: metrics.clone(),
            ledger: ledger.clone(),
            fallback,
        }
    }
}

/// Counts a refused call; `of` is its operation, where it exists (TM-21).
pub(crate) fn count_refusal(
    metrics: &Metrics,
    of: Option<&CapabilityId>,
    refusal: &Refusal,
    took: Duration,
) {
    metrics.record_call(of, status_of(refusal), Some(refusal.code), took);
}

/// Counts an executed call; `took` excludes the time it was held.
fn count_call(metrics: &Metrics, result: &ToolResultEnvelope, took: Duration) {
    let Some(id) = &result.capability_id else { return };
    let code = result.error.as_ref().map(|error| error.error_code);
    metrics.record_call(Some(id), result.status, code, took);
    if result.retries > 0 {
        metrics.count_retry(id.adapter().as_str(), id.capability().as_str());
    }
}

/// The duty to answer one admitted call.
#[derive(Debug)]
pub(crate) struct Responder {
    callers: Arc<Callers>,
    /// Which call its answers are about.
    pub(crate) subject: Subject,
    /// The operation, once it is known to exist: metrics name only this.
    pub(crate) known: Option<CapabilityId>,
    pub(crate) span: Span,
    /// When this pass began: a held call begins another when it is taken up.
    pub(crate) began: Instant,
    record_id: Option<RecordId>,
    /// Held to the end, even after the record was detached.
    hand: Option<WorkGuard>,
    sent: bool,
    admission: Option<OwnedSemaphorePermits>,
    /// How long it waits for the end of the call that it is a duplicate of, in milliseconds.
    attach_ms: u64,
    resume: Option<WorkGuard>,
    answered: bool,
}

/// How long a duplicate waits by default for the call in flight, in milliseconds.
const ATTACH_MS: u64 = 30_000;

impl Responder {
    /// A responder for a registered call. Its answers name the trace of `span`, or the subject's own where there is no span to carry it.
    pub(crate) fn new(callers: Arc<Callers>, mut subject: Subject, span: Span) -> Self {
        let parent = trace::parent_of(&span);
        // What a receiver's spans continue.
        subject.traceparent = parent.map(|parent| parent.to_string());
        if let Some(parent) = parent {
            subject.trace_id = parent.trace_id();
        }
        Self {
            callers,
            subject,
            known: None,
            span,
            began: Instant::now(),
            record_id: None,
            hand: None,
            sent: false,
            admission: None,
            attach_ms: ATTACH_MS,
            resume: None,
            answered: false,
        }
    }

    /// Sets the record that the call runs under, from which it is answered if it is abandoned.
    pub(crate) fn attach_record(&mut self, record_id: RecordId) {
        self.hand = Some(self.callers.in_flight.take(record_id));
        self.record_id = Some(record_id);
    }

    /// Keeps other tasks from taking up the same approval until this responder is dropped.
    pub(crate) fn resumed_under(&mut self, guard: WorkGuard) {
        self.resume = Some(guard);
    }

    /// Whether this call has taken the key.
    pub(crate) const fn has_record(&self) -> bool {
        self.record_id.is_some()
    }

    /// Keeps the admission permits until the responder is dropped.
    pub(crate) fn admitted(mut self, places: OwnedSemaphorePermits) -> Self {
        self.admission = Some(places);
        self
    }

    /// Sets how long it waits for the call that it is a duplicate of; absent: [`ATTACH_MS`].
    pub(crate) fn attaches_for(mut self, wait_ms: Option<u64>) -> Self {
        self.attach_ms = wait_ms.unwrap_or(ATTACH_MS);
        self
    }

    /// Takes a place among the calls that only wait for another call, and returns its admission permits. Returns until when it may wait;
    /// `None` where too many calls do.
    pub(crate) fn attach(&mut self, tenant: &TenantId) -> Option<(OwnedSemaphorePermit, Instant)> {
        let place = self.callers.admission.attach(tenant)?;
        drop(self.admission.take());
        Some((place, Instant::now() + Duration::from_millis(self.attach_ms)))
    }

    /// Marks a call without a record as being with its adapter.
    pub(crate) const fn is_sent(&mut self) {
        self.sent = true;
    }

    /// Continues under the id of the call that made the record: those who ask for that id learn the outcome.
    pub(crate) fn continue_as(&mut self, original: &ToolCallId) {
        if self.subject.call_id == *original {
            return;
        }
        self.callers.registry.adopt(&self.subject.call_id, original);
        self.subject.call_id = original.clone();
        let id = Some(original.as_str());
        trace::record_call(
            &self.span,
            &trace::CallFields { tool_call_id: id, ..trace::CallFields::default() },
        );
    }

    /// Gives up the duty to answer for the record.
    pub(crate) fn detach_record(&mut self) {
        self.record_id = None;
    }

    /// Tells the waiters the final answer.
    pub(crate) fn finish(mut self, answer: Answer) {
        self.answered = true;
        self.note_end(&answer);
        self.callers.registry.publish(&self.subject.call_id, answer);
    }

    /// Tells the waiters that the call is refused.
    pub(crate) fn refuse(self, refusal: Refusal, decision_id: Option<DecisionId>) {
        if let Some(detail) = &refusal.detail {
            tracing::info!(call_id = %self.subject.call_id, code = %refusal.code, %detail, "call refused");
        }
        self.count_refusal(&refusal);
        let mut subject = self.subject.clone();
        subject.decision_id = decision_id;
        let now = self.callers.ledger.store().now();
        self.finish(subject.refused(refusal, now));
    }

    /// Counts that the call is refused.
    pub(crate) fn count_refusal(&self, refusal: &Refusal) {
        let known = self.known.as_ref();
        count_refusal(&self.callers.metrics, known, refusal, self.began.elapsed());
    }

    /// Tells the waiters the result of a settled call, and counts it.
    pub(crate) fn reply(self, result: ToolResultEnvelope) {
        count_call(&self.callers.metrics, &result, self.began.elapsed());
        self.finish(result::answer_of(result, false));
    }

    /// Tells the waiters that the call is parked: from here on it is data, and the approval service takes it up again. A duplicate keeps
    /// nothing of its own: its waiters move to the held call.
    pub(crate) fn park(mut self, held: Held) {
        self.answered = true;
        trace::record_approval(&self.span, held.approval_id.as_str(), Some("pending"));
        trace::record_outcome(&self.span, ResultStatus::Pending, None);
        let is_duplicate = held.call_id != self.subject.call_id;
        self.callers.registry.publish(&self.subject.call_id, Answer::Held(Box::new(held)));
        if is_duplicate {
            self.callers.registry.forget(&self.subject.call_id);
        }
    }

    /// Leaves the call to another task that works on it.
    pub(crate) fn release(mut self) {
        self.answered = true;
    }

    /// Records on the span how the call ended.
    fn note_end(&self, answer: &Answer) {
        match answer {
            Answer::Finished(result) => {
                let code = result.error.as_ref().map(|error| error.error_code);
                trace::record_outcome(&self.span, result.status, code);
                if result.replayed {
                    trace::record_replayed(&self.span);
                }
            }
            Answer::Refused(refused) => {
                let status = refused.result.status;
                trace::record_outcome(&self.span, status, Some(refused.refusal.code));
            }
            Answer::Held(_) | Answer::InProgress(_) => {}
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if !self.answered {
            drop(self.admission.take());
            let call = Abandoned {
                subject: self.subject.clone(),
                record_id: self.record_id.take(),
                sent: self.sent,
            };
            if let Some(fallback) = self.callers.fallback.upgrade() {
                fallback.abandoned(call);
            }
        }
    }
}
