//! `contextos.tool_proposal.v1`: a held call with the evidence frozen for its approvers (TM-09).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    approval::{ApproverGroup, HoldReason, Requirement, VoteChoice},
    binding::CredentialPlan,
    clock::Timestamp,
    digest::Digest,
    envelope::call::ToolCallEnvelope,
    ids::{ApprovalId, CapabilityId, PrincipalId, TenantId},
    json::canonical_digest,
    mode::ApprovalMode,
    principal::Principal,
};

/// The version tag of a proposal envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ProposalVersion {
    /// The only version there is.
    #[serde(rename = "contextos.tool_proposal.v1")]
    V1,
}

/// A call that waits, and everything its approvers are shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolProposalEnvelope {
    /// `contextos.tool_proposal.v1`.
    pub envelope_version: ProposalVersion,
    /// The approval it waits for.
    pub approval_id: ApprovalId,
    /// The call exactly as it will run.
    pub call: ToolCallEnvelope,
    /// What approvers are shown and what it hashes to.
    pub evidence: Evidence,
    /// Who has to agree.
    pub requirement: Requirement,
    /// When it ends unanswered.
    pub expires_at: Timestamp,
}

/// What was known when the call was held; never changes afterwards.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Evidence {
    /// The digest an approval is given for.
    pub request_digest: Digest,
    /// The digest of the arguments that will run, sensitive ones included.
    pub effective_args_digest: Digest,
    /// The arguments with fields marked `x-sensitive` masked.
    pub preview: Value,
    /// The digest of `preview`.
    pub preview_digest: Digest,
    /// The contract as pinned.
    pub contract_digest: Digest,
    /// Where the call goes.
    pub target: String,
    /// The credential that will be attached.
    pub credential: CredentialPlan,
    /// The bundle that held the call.
    pub bundle_digest: Digest,
    /// Calls the run has left after this one.
    pub calls_left_after: u32,
    /// Cents the run has left after this one.
    pub cents_left_after: u64,
    /// What the capability does, as its contract says.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Calls of the same capability by the same agent that people decided on before, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub similar: Vec<SimilarCall>,
    /// The arguments that the agent asked for, where an approver narrowed them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edited: Option<EditedFrom>,
}

/// The most earlier calls that an approver is shown.
pub const SIMILAR_MAX: usize = 5;

/// An earlier call that people decided on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SimilarCall {
    /// Its approval.
    pub approval_id: ApprovalId,
    /// When it was asked for.
    pub asked_at: Timestamp,
    /// How the approval stood: `approved`, `denied`, `expired`, `void` or `consumed`.
    pub state: String,
    /// How the call ended, as its record says; absent while it had no record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// Who decided what.
    pub decisions: Vec<SimilarDecision>,
    /// Whether it was for exactly the same request.
    pub same_request: bool,
}

/// A decision on an earlier call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SimilarDecision {
    /// Who.
    pub approver: PrincipalId,
    /// The approver's tenant, where it is not the call's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// What.
    pub choice: VoteChoice,
}

/// What an edit replaced.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EditedFrom {
    /// Who narrowed the arguments.
    pub by: PrincipalId,
    /// Why.
    pub reason: String,
    /// When.
    pub at: Timestamp,
    /// The arguments as the agent asked for them, fields marked sensitive masked.
    pub preview: Value,
    /// The digest of the request as the agent made it.
    pub request_digest: Digest,
}

/// The version tag of a guest's part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum GuestPartVersion {
    /// The only version there is.
    #[serde(rename = "placet.guest-part.v1")]
    V1,
}

/// What people of another tenant are shown of a held call: what they need to decide, and nothing else of the tenant that asks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GuestPart {
    /// `placet.guest-part.v1`.
    pub part_version: GuestPartVersion,
    /// The approval the call waits for.
    pub approval_id: ApprovalId,
    /// The tenant that asks.
    pub asked_by: TenantId,
    /// The tenant that is asked.
    pub asked_of: TenantId,
    /// Who calls. For whom is the asking tenant's own.
    pub requester: Principal,
    /// The operation.
    pub capability_id: CapabilityId,
    /// What it does, as its contract says.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// How strong the call is.
    pub mode: ApprovalMode,
    /// The arguments as they will run, fields marked `x-sensitive` masked.
    pub preview: Value,
    /// The digest of `preview`.
    pub preview_digest: Digest,
    /// The digest an approval is given for; it covers the masked values too.
    pub request_digest: Digest,
    /// The contract as pinned.
    pub contract_digest: Digest,
    /// The bundle that held the call.
    pub bundle_digest: Digest,
    /// Whether an approver of the asking tenant narrowed the arguments.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub edited: bool,
    /// The groups of the tenant that is asked, and how many people of each, now or after a while of silence.
    pub groups: BTreeMap<ApproverGroup, u32>,
    /// The policies that hold the call, with their reasons.
    pub reasons: Vec<HoldReason>,
    /// When it ends unanswered.
    pub expires_at: Timestamp,
}

impl GuestPart {
    /// The part of a proposal that people of `guest` are shown.
    #[must_use]
    pub fn of(proposal: &ToolProposalEnvelope, guest: &TenantId) -> Self {
        let (call, evidence) = (&proposal.call, &proposal.evidence);
        let requirement = &proposal.requirement;
        let later = requirement.escalations.iter().map(|one| (&one.group, &one.people));
        let groups = requirement.groups.iter().chain(later);
        let own = groups.filter(|(group, _)| group.guest_tenant() == Some(guest));
        Self {
            part_version: GuestPartVersion::V1,
            approval_id: proposal.approval_id.clone(),
            asked_by: call.principal_chain.tenant().clone(),
            asked_of: guest.clone(),
            requester: call.principal_chain.actor.clone(),
            capability_id: call.capability_id.clone(),
            description: evidence.description.clone(),
            mode: call.approval_mode_effective,
            preview: evidence.preview.clone(),
            preview_digest: evidence.preview_digest,
            request_digest: evidence.request_digest,
            contract_digest: evidence.contract_digest,
            bundle_digest: evidence.bundle_digest,
            edited: evidence.edited.is_some(),
            groups: own.map(|(group, people)| (group.clone(), *people)).collect(),
            reasons: requirement.reasons.clone(),
            expires_at: proposal.expires_at,
        }
    }

    /// The digest of it: what a guest's decision names.
    #[must_use]
    pub fn digest(&self) -> Digest {
        canonical_digest(&serde_json::json!(self))
    }
}
