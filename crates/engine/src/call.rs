//! `Call<S>`: a call changes type as it goes through the stages, so that none can be skipped.
//!
//! Owns the stage types, and the way from a record back to a call. The duty to answer moves with a call from stage to stage: a
//! [`Responder`]. Invariant: a byte that changed on disk, or a contract that changed, keeps a recorded call from running: what would be
//! sent must be what was decided on.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use serde_json::{Map, Value};
use tokio::time::Instant;

use placet_adapter::adapter::Example;
use placet_credentials::CallTokens;
use placet_identity::VerifiedCaller;
use placet_ledger::{
    approval::ApprovalRecord,
    parked::{ParkedCall, ParkedEdit, ParkedToken},
    record::{EffectRecord, EffectState},
};
use placet_policy::catalog::Target;
use placet_policy::permit::Permit;
use placet_types::{
    binding::RequestBinding,
    clock::Timestamp,
    digest::Digest,
    envelope::{call::AuthRef, result::ToolResultEnvelope},
    evidence::EvidenceItem,
    ids::{ChannelName, DirectiveId, GroupId, IdempotencyKey, RecordId, RequestId, StepId},
    json::canonical_digest,
    mode::ApprovalMode,
    principal::{PrincipalChain, TokenAudiences},
    proof::CallerProof,
    run_context::{BudgetRequest, RunContext, RunRequest},
    run_history::RunHistory,
    taint::Taint,
};

use crate::{active::Active, responder::Responder, submission::Submission};

/// A call at stage `S`. Both parts are boxed: it is handed over a dozen times, and every future it passes through has room for it twice.
#[derive(Debug)]
pub(crate) struct Call<S> {
    pub(crate) responder: Box<Responder>,
    pub(crate) stage: Box<S>,
}

impl<S> Call<S> {
    pub(crate) fn new(responder: Box<Responder>, stage: S) -> Self {
        Self { responder, stage: Box::new(stage) }
    }

    /// The call at its next stage.
    pub(crate) fn advance<T>(self, next: impl FnOnce(Box<S>) -> T) -> Call<T> {
        Call::new(self.responder, next(self.stage))
    }
}

/// As the API accepted it.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) submission: Submission,
    pub(crate) caller: Arc<VerifiedCaller>,
    /// Set for a call of a batch.
    pub(crate) batch: Option<Box<InBatch>>,
}

/// What a call of a batch needs in addition.
#[derive(Debug, Clone, Default)]
pub(crate) struct InBatch {
    /// What its run has done up to now.
    pub(crate) history: RunHistory,
    /// The calls of its session before it.
    pub(crate) examples: Arc<[Example]>,
    pub(crate) is_simulated: bool,
}

/// Who calls, as the broker binds it: freshly verified, or as recorded when the call was parked.
#[derive(Debug, Clone)]
pub(crate) enum Caller {
    Verified(Arc<VerifiedCaller>),
    Recorded(Arc<Identity>),
}

/// Resolved and validated.
#[derive(Debug)]
pub(crate) struct Built {
    /// What was active when the call was built, or last decided: everything in it belongs to that value.
    pub(crate) active: Arc<Active>,
    pub(crate) target: Target,
    pub(crate) args: Map<String, Value>,
    pub(crate) requested_digest: Digest,
    pub(crate) args_digest: Digest,
    pub(crate) key: IdempotencyKey,
    pub(crate) mode_requested: Option<ApprovalMode>,
    pub(crate) run: RunRequest,
    /// What the run has done in batches, for a call of a batch.
    pub(crate) history: RunHistory,
    /// The calls of its session before it; not kept while it is held.
    pub(crate) examples: Arc<[Example]>,
    pub(crate) step_id: Option<StepId>,
    pub(crate) request_id: Option<RequestId>,
    pub(crate) evidence_refs: Vec<String>,
    pub(crate) metadata: Option<std::collections::BTreeMap<String, String>>,
    /// The channel over which the caller is notified, should the call be held.
    pub(crate) callback: Option<ChannelName>,
    pub(crate) caller: Caller,
    pub(crate) resumed: Option<Box<Resumed>>,
    /// Who edited the arguments, where approvers did.
    pub(crate) edited: Option<ParkedEdit>,
    /// The arguments that the client sent, where the call runs with an approver's edit instead.
    pub(crate) as_sent: Option<Map<String, Value>>,
    pub(crate) retries: u32,
    /// Whether it is part of a simulation, which asks nobody.
    pub(crate) is_simulated: bool,
    /// How long its attempts were with the adapter, together.
    pub(crate) adapter_time: Duration,
    /// Whether it was in flight in a process that has ended.
    pub(crate) recovered: bool,
    /// How often it was deferred because something kept it from being sent again.
    pub(crate) deferrals: u32,
    /// How often it was decided again because policies changed meanwhile.
    pub(crate) decided_again: u32,
    /// Whether approval is required although a standing grant seems to cover the call: one was used up at the moment of the dispatch.
    pub(crate) without_grants: bool,
    /// When the run's latency budget for this call ends; set by its first attempt, and the same for all (TM-11).
    pub(crate) deadline: Option<Instant>,
}

impl Built {
    /// `Call::<Built>` from a parked call, every digest verified.
    pub(crate) fn restored(
        active: Arc<Active>,
        record: &EffectRecord,
        approval: Option<ApprovalRecord>,
        parked: ParkedCall,
        renewed: Option<Identity>,
    ) -> Result<Self, &'static str> {
        let target = verified(&active, record, approval.as_ref(), &parked)?;
        let identity = renewed.unwrap_or_else(|| recorded_identity(&parked));
        let envelope = &parked.envelope;
        Ok(Self {
            active,
            target,
            args: envelope.args.clone(),
            requested_digest: parked.requested_digest,
            args_digest: parked.binding.effective_args_digest,
            key: record.key.clone(),
            mode_requested: Some(envelope.approval_mode_requested),
            run: RunRequest {
                run_id: parked.run.run_id.clone(),
                session_id: envelope.session_id.clone(),
                safety_mode: None,
                ceiling_if_new: None,
                tool_latency_ms_if_new: None,
                run_budget: BudgetRequest::default(),
                taint: parked.run.taint.clone(),
            },
            history: parked.run.history.clone(),
            examples: Arc::default(),
            step_id: parked.step_id.clone(),
            request_id: parked.request_id.clone(),
            evidence_refs: envelope.evidence_refs.clone(),
            metadata: envelope.metadata.clone(),
            callback: parked.callback.clone(),
            caller: Caller::Recorded(Arc::new(identity)),
            retries: 0,
            is_simulated: false,
            adapter_time: Duration::ZERO,
            recovered: matches!(record.state, EffectState::Dispatched(_)),
            deferrals: 0,
            edited: parked.edited.clone(),
            as_sent: None,
            decided_again: 0,
            without_grants: false,
            deadline: None,
            resumed: Some(Box::new(Resumed { record: record.clone(), approval, parked })),
        })
    }
}

/// The target of a recorded call, once everything that was parked matches the record.
fn verified(
    active: &Active,
    record: &EffectRecord,
    approval: Option<&ApprovalRecord>,
    parked: &ParkedCall,
) -> Result<Target, &'static str> {
    let (envelope, binding) = (&parked.envelope, &parked.binding);
    if binding.effective_args_digest != canonical_digest(&Value::Object(envelope.args.clone())) {
        return Err("the arguments are not the ones that were kept");
    }
    if envelope.principal_chain != binding.principal_chain
        || envelope.tool_call_id != record.call_id
        || envelope.capability_id != record.scope.capability
        || parked.requested_digest != record.requested_digest
    {
        return Err("the call is not the recorded one");
    }
    let decided = match &record.state {
        EffectState::Dispatched(attempt) => Some(attempt.request_digest),
        EffectState::PendingApproval { .. } | EffectState::Approved { .. } => {
            approval.map(|approval| approval.request_digest)
        }
        // Decided again before it is sent.
        EffectState::Claimed { .. }
        | EffectState::Rearmed { .. }
        | EffectState::FailedRetriable { .. }
        | EffectState::Indeterminate { .. }
        | EffectState::Succeeded { .. }
        | EffectState::FailedFinal { .. }
        | EffectState::Denied { .. }
        | EffectState::Tombstone { .. } => Some(binding.digest()),
    };
    if decided != Some(binding.digest()) {
        return Err("the request is not the one that was approved or sent");
    }
    let target = active
        .catalog
        .resolve(&record.scope.tenant, &record.scope.capability)
        .ok_or("the tool is not offered any more")?;
    if target.contract.digest != binding.contract_digest {
        return Err("the contract has changed since");
    }
    Ok(target)
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
    /// How agent and user proved who they are.
    pub(crate) proof: CallerProof,
    pub(crate) groups_as_of: Timestamp,
    /// When the authority for the call ends: that of the user's delegation where there is one, else of the agent's token.
    pub(crate) authority_until: Timestamp,
    pub(crate) auth_ref: AuthRef,
    /// The tokens that the call was made with, by name.
    pub(crate) bearers: Vec<ParkedToken>,
    /// The audiences of those tokens, where one is for several services.
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
    /// The evidence that it offers, as resolved; empty until the gate has resolved it.
    pub(crate) evidence: Vec<EvidenceItem>,
    pub(crate) run: RunContext,
    /// The run's taint as of the last decision; before that, what the call declares.
    pub(crate) taint: BTreeSet<Taint>,
    pub(crate) record_id: RecordId,
    /// The claimed record, when an earlier decision on this very call has taken the key.
    pub(crate) claimed: Option<EffectRecord>,
}

/// With its permit.
#[derive(Debug)]
pub(crate) struct Gated {
    pub(crate) brokered: Box<Brokered>,
    pub(crate) permit: Permit,
    /// The record it runs under; absent for a read that was not held.
    pub(crate) record: Option<EffectRecord>,
    /// The break-glass record under which it was decided.
    pub(crate) broken: Option<DirectiveId>,
}

/// Executed and settled; only the answer is missing.
#[derive(Debug)]
pub(crate) struct Invoked {
    pub(crate) result: ToolResultEnvelope,
}

/// Who called, as recorded when the call was parked.
pub(crate) fn recorded_identity(parked: &ParkedCall) -> Identity {
    Identity {
        chain: parked.envelope.principal_chain.clone(),
        user_groups: parked.user_groups.clone(),
        proof: parked.proof.clone(),
        groups_as_of: parked.groups_as_of,
        authority_until: parked.authority_until,
        auth_ref: recorded_auth(parked),
        bearers: parked.bearers.clone(),
        audiences: parked.audiences.clone(),
        tokens: None,
    }
}

/// The tokens it was called with, as recorded.
pub(crate) fn recorded_auth(parked: &ParkedCall) -> AuthRef {
    parked
        .envelope
        .auth_ref
        .clone()
        .unwrap_or(AuthRef { delegated_user_token_ref: None, agent_token_ref: String::new() })
}
