//! The duty to answer one admitted call, and what it is answered through.
//!
//! Owns [`Responder`] and the parts of a node that those who wait for calls have to do with. Invariant: a responder that is dropped unanswered
//! has the call answered all the same, with what the ledger knows to be true.

use std::{
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::{sync::OwnedSemaphorePermit, time::Instant};
use tracing::Span;

use placet_ledger::{ledger::Ledger, record::EffectRecord};
use placet_telemetry::trace;
use placet_types::{
    clock::Timestamp,
    envelope::result::{ResultStatus, ToolResultEnvelope},
    error::Refusal,
    ids::{
        CapabilityId, DecisionId, IdempotencyKey, RecordId, RunId, SessionId, TenantId, ToolCallId,
    },
};

use crate::{
    admission::{Admission, OwnedSemaphorePermits},
    answer::{Answer, Held},
    in_flight::{InFlight, InFlightGuard, ResumeGuard, Resuming},
    metrics::EngineMetrics,
    registry::Registry,
    result::{self, Subject},
    settings::Settings,
    submission::Submission,
};

/// Who answers for calls whose stage died.
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

/// What calls are answered through.
#[derive(Debug)]
pub(crate) struct Callers {
    registry: Arc<Registry>,
    pub(crate) admission: Admission,
    pub(crate) in_flight: InFlight,
    pub(crate) resuming: Resuming,
    metrics: EngineMetrics,
    ledger: Ledger,
    fallback: Weak<dyn Fallback>,
}

impl Callers {
    pub(crate) fn new(
        settings: &Settings,
        registry: &Arc<Registry>,
        metrics: &EngineMetrics,
        ledger: &Ledger,
        fallback: Weak<dyn Fallback>,
    ) -> Self {
        Self {
            registry: Arc::clone(registry),
            admission: Admission::new(settings),
            in_flight: InFlight::default(),
            resuming: Resuming::default(),
            metrics: metrics.clone(),
            ledger: ledger.clone(),
            fallback,
        }
    }
}

/// What a call asks for, as its answers name it.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    run_id: RunId,
    session_id: Option<SessionId>,
    /// Absent where the tool's name is none.
    capability: Option<CapabilityId>,
    /// Absent until it is derived, and for a read.
    pub(crate) key: Option<IdempotencyKey>,
    /// The operation, once it is known that it exists: what metrics name.
    pub(crate) known: Option<CapabilityId>,
}

impl Asked {
    /// As its caller wrote it: says nothing about whether there is such a tool.
    pub(crate) fn of(submission: &Submission) -> Self {
        Self {
            run_id: submission.run.run_id.clone(),
            session_id: submission.run.session_id.clone(),
            capability: CapabilityId::from_tool_name(&submission.tool).ok(),
            key: submission.idempotency_key.clone(),
            known: None,
        }
    }

    /// As it is recorded.
    pub(crate) fn of_record(record: &EffectRecord, session_id: Option<SessionId>) -> Self {
        Self {
            run_id: record.run_id.clone(),
            session_id,
            capability: Some(record.scope.capability.clone()),
            key: Some(record.key.clone()),
            known: Some(record.scope.capability.clone()),
        }
    }
}

/// The duty to answer one admitted call.
#[derive(Debug)]
pub(crate) struct Responder {
    callers: Arc<Callers>,
    pub(crate) call_id: ToolCallId,
    pub(crate) asked: Asked,
    pub(crate) span: Span,
    pub(crate) trace_id: String,
    /// What makes a receiver's spans children of the call's.
    pub(crate) traceparent: Option<String>,
    pub(crate) accepted_at: Timestamp,
    /// When this passage began: a call that was held begins again when it is taken up.
    pub(crate) began: Instant,
    record_id: Option<RecordId>,
    /// Held to the end, also of a record that is another one's to answer for.
    hand: Option<InFlightGuard>,
    sent: bool,
    admission: Option<OwnedSemaphorePermits>,
    /// For how long it waits for the end of the call that it is a duplicate of, in milliseconds.
    attach_ms: u64,
    resume: Option<ResumeGuard>,
    answered: bool,
}

/// For how long a duplicate waits for the call that is under way when it does not say, in milliseconds.
const ATTACH_MS: u64 = 30_000;

impl Responder {
    /// A passage for a call that the registry knows.
    pub(crate) fn new(
        callers: Arc<Callers>,
        call_id: ToolCallId,
        asked: Asked,
        span: Span,
    ) -> Self {
        let parent = trace::parent_of(&span);
        let trace_id = parent.map(|parent| parent.trace_id()).unwrap_or_default();
        let traceparent = parent.map(|parent| parent.to_string());
        let accepted_at = callers.ledger.store().now();
        Self {
            callers,
            call_id,
            asked,
            span,
            trace_id,
            traceparent,
            accepted_at,
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

    /// Which call its answers are about.
    pub(crate) fn subject(&self) -> Subject {
        Subject {
            call_id: self.call_id.clone(),
            run_id: Some(self.asked.run_id.clone()),
            trace_id: self.trace_id.clone(),
            session_id: self.asked.session_id.clone(),
            capability: self.asked.capability.clone(),
            key: self.asked.key.clone(),
            decision_id: None,
            approval_id: None,
            traceparent: self.traceparent.clone(),
            accepted_at: self.accepted_at,
            edited: None,
        }
    }

    /// Says under which record the call runs, so that an abandoned call is answered from it.
    pub(crate) fn attach_record(&mut self, record_id: RecordId) {
        self.hand = Some(self.callers.in_flight.take(record_id));
        self.record_id = Some(record_id);
    }

    /// Keeps anybody else from taking up the same approval until this passage ends.
    pub(crate) fn resumed_under(&mut self, guard: ResumeGuard) {
        self.resume = Some(guard);
    }

    /// Whether the key is this call's.
    pub(crate) const fn has_record(&self) -> bool {
        self.record_id.is_some()
    }

    /// Holds places among the calls that are admitted.
    pub(crate) fn admitted(mut self, places: OwnedSemaphorePermits) -> Self {
        self.admission = Some(places);
        self
    }

    /// Waits so long for a call that it is a duplicate of; not said: for as long as any.
    pub(crate) fn attaches_for(mut self, wait_ms: Option<u64>) -> Self {
        self.attach_ms = wait_ms.unwrap_or(ATTACH_MS);
        self
    }

    /// Takes a place among those who only wait for another call, and gives its own back to calls that do something. Says until when it
    /// may wait; not at all where too many do.
    pub(crate) fn attach(&mut self, tenant: &TenantId) -> Option<(OwnedSemaphorePermit, Instant)> {
        let place = self.callers.admission.attach(tenant)?;
        drop(self.admission.take());
        Some((place, Instant::now() + Duration::from_millis(self.attach_ms)))
    }

    /// Says that a call without a record is with its adapter.
    pub(crate) const fn is_sent(&mut self) {
        self.sent = true;
    }

    /// Goes on under the id of the call that made the record: anyone who asks for that one learns the outcome.
    pub(crate) fn continue_as(&mut self, original: &ToolCallId) {
        if self.call_id == *original {
            return;
        }
        self.callers.registry.adopt(&self.call_id, original);
        self.call_id = original.clone();
        let id = Some(original.as_str());
        trace::record_call(
            &self.span,
            &trace::CallFields { tool_call_id: id, ..trace::CallFields::default() },
        );
    }

    /// Keeps the trace that a recorded call began in, where there is no span to tell it.
    pub(crate) fn in_trace_of(&mut self, trace_id: &str) {
        if self.trace_id.is_empty() {
            trace_id.clone_into(&mut self.trace_id);
        }
    }

    /// Says that the record is not this call's to answer for.
    pub(crate) fn detach_record(&mut self) {
        self.record_id = None;
    }

    /// Tells the waiters the end.
    pub(crate) fn finish(mut self, answer: Answer) {
        self.answered = true;
        self.note_end(&answer);
        self.callers.registry.publish(&self.call_id, answer);
    }

    /// Tells the waiters that the call is refused.
    pub(crate) fn refuse(self, refusal: Refusal, decision_id: Option<DecisionId>) {
        if let Some(detail) = &refusal.detail {
            tracing::info!(call_id = %self.call_id, code = %refusal.code, %detail, "call refused");
        }
        self.count_refusal(&refusal);
        let mut subject = self.subject();
        subject.decision_id = decision_id;
        let now = self.callers.ledger.store().now();
        self.finish(subject.refused(refusal, now));
    }

    /// Counts that the call is refused.
    pub(crate) fn count_refusal(&self, refusal: &Refusal) {
        let known = self.asked.known.as_ref();
        self.callers.metrics.refused(known, refusal, self.began.elapsed());
    }

    /// Tells the waiters the result of a call that was settled, and counts it.
    pub(crate) fn reply(self, result: ToolResultEnvelope) {
        self.callers.metrics.called(&result, self.began.elapsed());
        self.finish(result::answer_of(result, false));
    }

    /// Tells the waiters that the call is parked: it is data now, and the approval service takes it up again. A duplicate keeps nothing of
    /// its own: its waiters go on to the call that is held.
    pub(crate) fn park(mut self, held: Held) {
        self.answered = true;
        trace::record_approval(&self.span, held.approval_id.as_str(), Some("pending"));
        trace::record_outcome(&self.span, ResultStatus::Pending, None);
        let is_duplicate = held.call_id != self.call_id;
        self.callers.registry.publish(&self.call_id, Answer::Held(Box::new(held)));
        if is_duplicate {
            self.callers.registry.forget(&self.call_id);
        }
    }

    /// Leaves the call to whatever else works on it.
    pub(crate) fn release(mut self) {
        self.answered = true;
    }

    /// How the call ended, on its span.
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
                subject: self.subject(),
                record_id: self.record_id.take(),
                sent: self.sent,
            };
            if let Some(fallback) = self.callers.fallback.upgrade() {
                fallback.abandoned(call);
            }
        }
    }
}
