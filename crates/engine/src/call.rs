//! `Call<S>`: a call changes type as it goes through the stages, so that none can be skipped.
//!
//! Owns the stage types and [`Responder`], the duty to answer. Invariant: a passage that is dropped unanswered answers by itself,
//! with what the ledger knows to be true.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use serde_json::{Map, Value};
use tokio::{sync::OwnedSemaphorePermit, time::Instant};
use tracing::Span;

use placet_credentials::CallTokens;
use placet_identity::VerifiedCaller;
use placet_ledger::{
    approval::ApprovalRecord,
    parked::{ParkedCall, ParkedEdit, ParkedToken},
    record::{EffectRecord, EffectState},
};
use placet_policy::catalog::Target;
use placet_policy::permit::Permit;
use placet_telemetry::trace;
use placet_types::{
    binding::RequestBinding,
    clock::Timestamp,
    digest::Digest,
    envelope::{
        call::AuthRef,
        result::{ResultStatus, ToolResultEnvelope},
    },
    evidence::EvidenceItem,
    ids::{
        CapabilityId, ChannelName, DeskId, GroupId, IdempotencyKey, RecordId, RequestId, RunId,
        SessionId, StepId, TenantId, ToolCallId,
    },
    mode::ApprovalMode,
    principal::{PrincipalChain, TokenAudiences},
    proof::CallerProof,
    run_context::{BudgetRequest, RunContext, RunRequest},
    taint::Taint,
};

use crate::{
    active::Active,
    answer::{Answer, Held},
    context::{Abandoned, Context},
    in_flight::InFlightGuard,
    resume::ResumeGuard,
    stages::result::Subject,
    submission::Submission,
};

/// A call at stage `S`.
#[derive(Debug)]
pub(crate) struct Call<S> {
    pub(crate) responder: Responder,
    pub(crate) stage: S,
}

impl<S> Call<S> {
    /// The call at its next stage.
    pub(crate) fn advance<T>(self, next: impl FnOnce(S) -> T) -> Call<T> {
        Call { responder: self.responder, stage: next(self.stage) }
    }
}

/// As the API took it in.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) submission: Submission,
    pub(crate) caller: VerifiedCaller,
}

/// Who calls, as the broker binds it: freshly verified, or as recorded when the call was parked.
#[derive(Debug)]
pub(crate) enum Caller {
    Verified(Box<VerifiedCaller>),
    Recorded(Box<Identity>),
}

/// Resolved and validated.
#[derive(Debug)]
pub(crate) struct Built {
    /// What was active when it was built, or when it was last decided upon: everything about it is of this.
    pub(crate) active: Arc<Active>,
    pub(crate) target: Target,
    pub(crate) args: Map<String, Value>,
    pub(crate) requested_digest: Digest,
    pub(crate) args_digest: Digest,
    pub(crate) key: IdempotencyKey,
    pub(crate) mode_requested: ApprovalMode,
    pub(crate) run: RunRequest,
    pub(crate) step_id: Option<StepId>,
    pub(crate) request_id: Option<RequestId>,
    pub(crate) evidence_refs: Vec<String>,
    pub(crate) metadata: Option<std::collections::BTreeMap<String, String>>,
    /// Over which channel the caller is told, should the call be held.
    pub(crate) callback: Option<ChannelName>,
    pub(crate) caller: Caller,
    pub(crate) resumed: Option<Box<Resumed>>,
    /// Whose arguments they are, where approvers edited those that were sent.
    pub(crate) edited: Option<ParkedEdit>,
    /// The arguments that the client sends, where a try runs what an approver made of them.
    pub(crate) as_sent: Option<Map<String, Value>>,
    pub(crate) retries: u32,
    /// Whether it was under way in a process that is over.
    pub(crate) recovered: bool,
    /// How often it was deferred since something kept it from being sent again.
    pub(crate) deferrals: u32,
    /// How often it was decided upon again because policies changed on its way.
    pub(crate) decided_again: u32,
    /// Whether people are asked although a standing grant seems to cover it: one was used up at the moment of the dispatch.
    pub(crate) without_grants: bool,
    /// When the run's latency budget for this call ends; set by its first try, and the same for all (TM-11).
    pub(crate) deadline: Option<Instant>,
}

impl Built {
    /// `Call::<Built>` from what was parked of a call; what it was parked under must have been verified.
    pub(crate) fn restored(
        active: Arc<Active>,
        target: Target,
        identity: Identity,
        resumed: Resumed,
    ) -> Self {
        let Resumed { record, parked, .. } = &resumed;
        let envelope = &parked.envelope;
        Self {
            active,
            target,
            args: envelope.args.clone(),
            requested_digest: parked.requested_digest,
            args_digest: parked.binding.effective_args_digest,
            key: record.key.clone(),
            mode_requested: envelope.approval_mode_requested,
            run: RunRequest {
                run_id: parked.run.run_id.clone(),
                session_id: envelope.session_id.clone(),
                safety_mode: None,
                run_budget: BudgetRequest::default(),
                taint: parked.run.taint.clone(),
            },
            step_id: parked.step_id.clone(),
            request_id: parked.request_id.clone(),
            evidence_refs: envelope.evidence_refs.clone(),
            metadata: envelope.metadata.clone(),
            callback: parked.callback.clone(),
            caller: Caller::Recorded(Box::new(identity)),
            retries: 0,
            recovered: matches!(record.state, EffectState::Dispatched(_)),
            deferrals: 0,
            edited: parked.edited.clone(),
            as_sent: None,
            decided_again: 0,
            without_grants: false,
            deadline: None,
            resumed: Some(Box::new(resumed)),
        }
    }
}

/// What is already recorded of a call that is taken up again.
#[derive(Debug)]
pub(crate) struct Resumed {
    pub(crate) record: EffectRecord,
    pub(crate) approval: Option<ApprovalRecord>,
    pub(crate) parked: ParkedCall,
}

/// Who calls, bound.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) chain: PrincipalChain,
    pub(crate) user_groups: BTreeSet<GroupId>,
    /// How both proved who they are.
    pub(crate) proof: CallerProof,
    pub(crate) groups_as_of: Timestamp,
    /// When the authority ends that the call rides on: the user's delegation where there is one, else the agent's token.
    pub(crate) authority_until: Timestamp,
    pub(crate) auth_ref: AuthRef,
    /// Whose tokens the call was made with.
    pub(crate) bearers: Vec<ParkedToken>,
    /// Whom those tokens are for, where one of them is for several services.
    pub(crate) audiences: TokenAudiences,
    /// The tokens themselves, sealed, while they are in memory.
    pub(crate) tokens: Option<CallTokens>,
}

/// With its principal chain bound and its credential planned.
#[derive(Debug)]
pub(crate) struct Brokered {
    pub(crate) built: Built,
    pub(crate) identity: Identity,
    pub(crate) binding: RequestBinding,
    pub(crate) request_digest: Digest,
    /// The evidence that it offers, as it was found; nothing before the gate has looked.
    pub(crate) evidence: Vec<EvidenceItem>,
    pub(crate) run: RunContext,
    /// What the run has in its context, as of when the call was last decided upon; before, what the call declares.
    pub(crate) taint: BTreeSet<Taint>,
    pub(crate) record_id: RecordId,
    /// The key, when an earlier decision on this very call has taken it.
    pub(crate) claimed: Option<EffectRecord>,
}

/// With its permit.
#[derive(Debug)]
pub(crate) struct Gated {
    pub(crate) brokered: Brokered,
    pub(crate) permit: Permit,
    /// The record it runs under; absent for a read that nobody held.
    pub(crate) record: Option<EffectRecord>,
    /// The break-glass record that it was decided under.
    pub(crate) broken: Option<DeskId>,
}

/// Executed and settled; only the answer is missing.
#[derive(Debug)]
pub(crate) struct Invoked {
    pub(crate) result: ToolResultEnvelope,
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
    context: Arc<Context>,
    pub(crate) call_id: ToolCallId,
    pub(crate) asked: Asked,
    pub(crate) span: Span,
    pub(crate) trace_id: String,
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

/// Places in the admission bounds, given back on drop.
#[derive(Debug)]
pub(crate) struct OwnedSemaphorePermits {
    pub(crate) _overall: OwnedSemaphorePermit,
    pub(crate) _tenant: OwnedSemaphorePermit,
}

impl Responder {
    /// A passage for a call that the registry knows.
    pub(crate) fn new(
        context: Arc<Context>,
        call_id: ToolCallId,
        asked: Asked,
        span: Span,
        admission: Option<OwnedSemaphorePermits>,
    ) -> Self {
        let trace_id = placet_telemetry::trace::trace_id_of(&span).unwrap_or_default();
        let accepted_at = context.ledger.store().now();
        Self {
            context,
            call_id,
            asked,
            span,
            trace_id,
            accepted_at,
            began: Instant::now(),
            record_id: None,
            hand: None,
            sent: false,
            admission,
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
            traceparent: trace::traceparent_of(&self.span),
            accepted_at: self.accepted_at,
            edited: None,
        }
    }

    /// Says under which record the call runs, so that an abandoned call is answered from it.
    pub(crate) fn attach_record(&mut self, record_id: RecordId) {
        self.hand = Some(self.context.hands.take(record_id));
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

    /// Waits so long for a call that it is a duplicate of; not said: for as long as any.
    pub(crate) fn attaches_for(mut self, wait_ms: Option<u64>) -> Self {
        self.attach_ms = wait_ms.unwrap_or(ATTACH_MS);
        self
    }

    /// Takes a place among those who only wait for another call, and gives its own back to calls that do something. Says until when it
    /// may wait; not at all where too many do.
    pub(crate) fn attach(&mut self, tenant: &TenantId) -> Option<(OwnedSemaphorePermit, Instant)> {
        let place = self.context.admission.attach(tenant)?;
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
        self.context.registry.adopt(&self.call_id, original);
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
        self.context.registry.publish(&self.call_id, answer);
    }

    /// Tells the waiters that the call is parked: it is data now, and the approval service takes it up again. A duplicate keeps nothing of
    /// its own: its waiters go on to the call that is held.
    pub(crate) fn park(mut self, held: Held) {
        self.answered = true;
        trace::record_approval(&self.span, held.approval_id.as_str(), Some("pending"));
        trace::record_outcome(&self.span, ResultStatus::Pending, None);
        let is_duplicate = held.call_id != self.call_id;
        self.context.registry.publish(&self.call_id, Answer::Held(Box::new(held)));
        if is_duplicate {
            self.context.registry.forget(&self.call_id);
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
            self.context.abandoned(Abandoned {
                subject: self.subject(),
                record_id: self.record_id.take(),
                sent: self.sent,
            });
        }
    }
}
