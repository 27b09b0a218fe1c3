//! A call as data: what is kept of one that waits or is in flight.
//!
//! Owns which value of a call goes into which field of its envelope and of what is parked.

use placet_ledger::parked::ParkedCall;
use placet_policy::decision::Decision;
use placet_types::envelope::call::{CallVersion, ToolCallEnvelope};

use crate::{call::Brokered, responder::Responder};

/// The call envelope exactly as it will run, as `decision` has it (TM-02).
pub(crate) fn envelope_of(
    responder: &Responder,
    stage: &Brokered,
    decision: &Decision,
) -> ToolCallEnvelope {
    let capability = &stage.built.target.capability;
    ToolCallEnvelope {
        envelope_version: CallVersion::V1,
        tool_call_id: responder.subject.call_id.clone(),
        run_id: stage.run.run_id.clone(),
        trace_id: responder.subject.trace_id.clone(),
        session_id: stage.built.run.session_id.clone(),
        capability_id: capability.id.clone(),
        args: stage.built.args.clone(),
        principal_chain: stage.identity.chain.clone(),
        approval_mode_requested: decision.mode_requested,
        approval_mode_effective: decision.mode_effective,
        approval_mode_highest: capability.mode_highest,
        policy_decision_id: Some(decision.id.clone()),
        evidence_refs: stage.built.evidence_refs.clone(),
        idempotency_key: Some(stage.built.key.clone()),
        auth_ref: Some(stage.identity.auth_ref.clone()),
        metadata: stage.built.metadata.clone(),
    }
}

/// The call as data.
pub(crate) fn parked_of(
    responder: &Responder,
    stage: &Brokered,
    envelope: ToolCallEnvelope,
) -> ParkedCall {
    ParkedCall {
        envelope,
        run: stage.run.clone(),
        step_id: stage.built.step_id.clone(),
        request_id: stage.built.request_id.clone(),
        callback: stage.built.callback.clone(),
        binding: stage.binding.clone(),
        edited: stage.built.edited.clone(),
        evidence: stage.evidence.clone(),
        requested_digest: stage.built.requested_digest,
        user_groups: stage.identity.user_groups.clone(),
        proof: stage.identity.proof.clone(),
        groups_as_of: stage.identity.groups_as_of,
        accepted_at: responder.subject.accepted_at,
        authority_until: stage.identity.authority_until,
        bearers: stage.identity.bearers.clone(),
        audiences: stage.identity.audiences.clone(),
        traceparent: responder.subject.traceparent.clone(),
    }
}
