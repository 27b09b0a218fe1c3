//! `Call<S>`: a call changes type as it goes through the stages, so that none can be skipped (design §3).
//!
//! Owns the stage types and [`Passage`], the duty to answer. Invariant: a passage that is dropped unanswered answers by itself,
//! with what the ledger knows to be true (decisions.md 3).

use std::{collections::BTreeSet, sync::Arc};

use serde_json::{Map, Value};
use tokio::sync::OwnedSemaphorePermit;
use tracing::Span;

use placet_identity::VerifiedCaller;
use placet_ledger::{approval::ApprovalRecord, parked::ParkedCall, record::EffectRecord};
use placet_policy::permit::Permit;
use placet_types::{
    binding::RequestBinding,
    clock::Timestamp,
    contract::{Capability, Contract},
    digest::Digest,
    envelope::{call::AuthRef, result::ToolResultEnvelope},
    ids::{GroupId, IdempotencyKey, RecordId, RequestId, StepId, ToolCallId},
    mode::ApprovalMode,
    principal::PrincipalChain,
    run_context::{RunContext, RunRequest},
};

use crate::{
    answer::{Answer, Held},
    context::Context,
    desk::resume::ResumeGuard,
    submission::Submission,
};

/// A call at stage `S`.
#[derive(Debug)]
pub(crate) struct Call<S> {
    pub(crate) passage: Passage,
    pub(crate) stage: S,
}

impl<S> Call<S> {
    /// The call at its next stage.
    pub(crate) fn advance<T>(self, next: impl FnOnce(S) -> T) -> Call<T> {
        Call { passage: self.passage, stage: next(self.stage) }
    }
}

/// As the door took it in.
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

/// An operation of a pinned contract.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) contract: Arc<Contract>,
    pub(crate) capability: Arc<Capability>,
}

/// Resolved and validated.
#[derive(Debug)]
pub(crate) struct Built {
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
    pub(crate) caller: Caller,
    pub(crate) resumed: Option<Box<Resumed>>,
    pub(crate) retries: u32,
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
    pub(crate) groups_as_of: Timestamp,
    /// When the authority ends that the call rides on: the user's delegation where there is one, else the agent's token.
    pub(crate) authority_until: Timestamp,
    pub(crate) auth_ref: AuthRef,
}

/// With its principal chain bound and its credential planned.
#[derive(Debug)]
pub(crate) struct Brokered {
    pub(crate) built: Built,
    pub(crate) identity: Identity,
    pub(crate) binding: RequestBinding,
    pub(crate) request_digest: Digest,
    pub(crate) run: RunContext,
    pub(crate) record_id: RecordId,
}

/// With its permit.
#[derive(Debug)]
pub(crate) struct Gated {
    pub(crate) brokered: Brokered,
    pub(crate) permit: Permit,
    /// The record it runs under; absent for a read that nobody held.
    pub(crate) record: Option<EffectRecord>,
}

/// Executed and settled; only the answer is missing.
#[derive(Debug)]
pub(crate) struct Invoked {
    pub(crate) result: ToolResultEnvelope,
}

/// The duty to answer one admitted call.
#[derive(Debug)]
pub(crate) struct Passage {
    context: Arc<Context>,
    pub(crate) call_id: ToolCallId,
    pub(crate) span: Span,
    pub(crate) trace_id: String,
    pub(crate) accepted_at: Timestamp,
    record_id: Option<RecordId>,
    admission: Option<OwnedSemaphorePermits>,
    resume: Option<ResumeGuard>,
    answered: bool,
}

/// Places in the admission bounds, given back on drop.
#[derive(Debug)]
pub(crate) struct OwnedSemaphorePermits {
    pub(crate) _overall: OwnedSemaphorePermit,
    pub(crate) _tenant: OwnedSemaphorePermit,
}

impl Passage {
    /// A passage for a call that the registry knows.
    pub(crate) fn new(
        context: Arc<Context>,
        call_id: ToolCallId,
        span: Span,
        admission: Option<OwnedSemaphorePermits>,
    ) -> Self {
        let trace_id = placet_telemetry::trace::trace_id_of(&span).unwrap_or_default();
        let accepted_at = context.ledger.store().now();
        Self {
            context,
            call_id,
            span,
            trace_id,
            accepted_at,
            record_id: None,
            admission,
            resume: None,
            answered: false,
        }
    }

    /// Says under which record the call runs, so that an abandoned call is answered from it.
    pub(crate) fn runs_under(&mut self, record_id: RecordId) {
        self.record_id = Some(record_id);
    }

    /// Keeps anybody else from taking up the same approval until this passage ends.
    pub(crate) fn resumed_under(&mut self, guard: ResumeGuard) {
        self.resume = Some(guard);
    }

    /// Says that the record is not this call's to answer for.
    pub(crate) fn leaves_record(&mut self) {
        self.record_id = None;
    }

    /// Tells the waiters how the call stands, without ending it.
    pub(crate) fn tell(&self, answer: Answer) {
        self.context.registry.publish(&self.call_id, answer);
    }

    /// Tells the waiters the end.
    pub(crate) fn finish(mut self, answer: Answer) {
        self.answered = true;
        self.context.registry.publish(&self.call_id, answer);
    }

    /// Tells the waiters that the call is parked: it is data now, and the desk takes it up again.
    pub(crate) fn park(mut self, held: Held) {
        self.answered = true;
        self.context.registry.publish(&self.call_id, Answer::Held(Box::new(held)));
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        if !self.answered {
            drop(self.admission.take());
            let (call_id, trace_id) = (self.call_id.clone(), self.trace_id.clone());
            self.context.abandoned(call_id, self.record_id.take(), trace_id);
        }
    }
}
