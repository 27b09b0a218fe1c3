//! `contextos.tool_proposal.v1`: a held call with the evidence frozen for its approvers (TM-09).

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    approval::{ApproverGroup, Requirement, VoteChoice},
    caller::CallerIdentity,
    clock::Timestamp,
    contract::credential::CredentialPlan,
    digest::Digest,
    envelope::call::ToolCallEnvelope,
    evidence::EvidenceItem,
    ids::{ApprovalId, CapabilityId, PrincipalId, TenantId, ToolCallId},
    json::{canonical_digest, is_default},
    mode::ApprovalMode,
    principal::Principal,
    taint::Taint,
};

/// The version tag of a proposal envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ProposalVersion {
    /// The only version.
    #[serde(rename = "contextos.tool_proposal.v1")]
    V1,
}

/// A held call, with everything that its approvers are shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolProposalEnvelope {
    /// `contextos.tool_proposal.v1`.
    pub envelope_version: ProposalVersion,
    /// The approval that the call waits for.
    pub approval_id: ApprovalId,
    /// The call, exactly as it will run.
    pub call: ToolCallEnvelope,
    /// The evidence that approvers are shown, with its digests.
    pub evidence: Evidence,
    /// Who has to agree.
    pub requirement: Requirement,
    /// When the approval expires.
    pub expires_at: Timestamp,
}

/// What was known when the call was held. It never changes afterwards.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Evidence {
    /// The digest of the request that an approval binds.
    pub request_digest: Digest,
    /// The digest of the arguments that will run, including sensitive ones.
    pub effective_args_digest: Digest,
    /// The arguments, with fields marked `x-sensitive` masked.
    pub preview: Value,
    /// The masked places of `preview`, as JSON Pointers (RFC 6901). A value that merely looks like the mask is not listed.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub preview_masked: BTreeSet<String>,
    /// The digest of `preview`.
    pub preview_digest: Digest,
    /// The digest of the pinned contract.
    pub contract_digest: Digest,
    /// The target of the call.
    pub target: String,
    /// The credential that will be attached.
    pub credential: CredentialPlan,
    /// The digest of the policy bundle that held the call.
    pub bundle_digest: Digest,
    /// The number of calls that the run has left after this one.
    pub calls_left_after: u32,
    /// The budget that the run has left after this call, in cents.
    pub cents_left_after: u64,
    /// What the run had in its context when the call was held, as callers declared it and as results added it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub taint: BTreeSet<Taint>,
    /// The caller and how it proved its identity; absent if that was not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<CallerIdentity>,
    /// The evidence that the call's `evidence_refs` name, frozen by digest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refs: Vec<EvidenceItem>,
    /// What the capability does, according to its contract.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Earlier calls of the same capability by the same agent that people decided on, newest first: at most 5.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub similar: Vec<SimilarCall>,
    /// What an approver's edit replaced; absent if the arguments were not edited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edited: Option<EditedFrom>,
    /// That the call was sent before, and its outcome is unknown; absent if it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_before: Option<SentBefore>,
}

/// An earlier attempt of a call that operators have sent again. It may have taken effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SentBefore {
    /// When the call was first sent.
    pub at: Timestamp,
    /// Why its outcome is unknown.
    pub reason: String,
    /// The operators who have it sent again.
    pub operators: Vec<Rearm>,
}

/// One operator's request to send a call with an unknown outcome again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rearm {
    /// The operator.
    pub operator: PrincipalId,
    /// Why they are sure that it did not happen, or that a second execution does no harm.
    pub evidence: String,
    /// When they asked.
    pub at: Timestamp,
}

/// The most earlier calls shown to an approver.
pub const SIMILAR_MAX: usize = 5;

/// An earlier call of the same capability that people decided on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SimilarCall {
    /// The approval of the earlier call.
    pub approval_id: ApprovalId,
    /// When the approval was requested.
    pub asked_at: Timestamp,
    /// The state of the approval: `approved`, `denied`, `expired`, `withdrawn` or `void`; once its call was sent, that of the call:
    /// `running`, `succeeded`, `failed`, `unknown` or `sent`.
    pub state: String,
    /// How the call ended, according to its record; absent if it had no record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// The decisions of the approvers.
    pub decisions: Vec<SimilarDecision>,
    /// Whether the earlier call was exactly the same request.
    pub same_request: bool,
}

/// A decision on an earlier call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SimilarDecision {
    /// The person who decided.
    pub approver: PrincipalId,
    /// The approver's tenant, if it is not the call's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// The decision.
    pub choice: VoteChoice,
}

/// What an edit of the arguments replaced.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EditedFrom {
    /// The person who changed the arguments.
    pub by: PrincipalId,
    /// The colleague in whose place they did so; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stands_for: Option<PrincipalId>,
    /// The reason for the change.
    pub reason: String,
    /// When the arguments were changed.
    pub at: Timestamp,
    /// The arguments as the agent sent them, with sensitive fields masked.
    pub preview: Value,
    /// The masked places of `preview`, as JSON Pointers (RFC 6901).
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub preview_masked: BTreeSet<String>,
    /// The digest of the request as the agent made it.
    pub request_digest: Digest,
    /// The people who wrote arguments that are not narrower than those before. They may not decide on them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub authors: BTreeSet<PrincipalId>,
    /// The masked values that changed since the agent's request, as JSON Pointers (RFC 6901) into the arguments before or after the change.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub masked: BTreeSet<String>,
}

/// The version tag of what an external approver is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ExternalPartVersion {
    /// The only version.
    #[serde(rename = "placet.external-approver-part.v1")]
    V1,
}

/// What external approvers, people of another tenant, are shown of a held call: what they need to decide, and nothing else of the asking
/// tenant.
///
/// Beyond this part they are only shown live state: the state of the approval, the progress of their own groups and their colleagues'
/// decisions. No digest in it covers a masked value, because anyone who knows the rest could then guess the value by trying. The masked
/// values are fixed all the same: only edits change an approval's arguments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExternalPart {
    /// `placet.external-approver-part.v1`.
    pub part_version: ExternalPartVersion,
    /// The approval that the call waits for.
    pub approval_id: ApprovalId,
    /// The id of the call.
    pub call_id: ToolCallId,
    /// The tenant that asks for approval.
    pub asked_by: TenantId,
    /// The tenant that is asked.
    pub asked_of: TenantId,
    /// The caller. The user it acts for is not shown to other tenants.
    pub requester: Principal,
    /// The capability that is called.
    pub capability_id: CapabilityId,
    /// What the capability does, according to its contract.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The approval mode that governs the call.
    pub mode: ApprovalMode,
    /// The arguments that will run, with fields marked `x-sensitive` masked; null if retention has deleted them.
    pub preview: Value,
    /// The masked places of `preview`, as JSON Pointers (RFC 6901).
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub preview_masked: BTreeSet<String>,
    /// The digest of `preview`.
    pub preview_digest: Digest,
    /// The digest of the pinned contract; absent if retention has deleted the evidence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contract_digest: Option<Digest>,
    /// The digest of the policy bundle that held the call.
    pub bundle_digest: Digest,
    /// How many times an approver of the asking tenant changed the arguments.
    #[serde(default, skip_serializing_if = "is_default")]
    pub edits: u32,
    /// When the arguments were last changed; absent if they were not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edited_at: Option<Timestamp>,
    /// The masked values that changed since the agent's request, as JSON Pointers (RFC 6901) into the arguments before or after the change.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub edited_masked: BTreeSet<String>,
    /// What is required of the tenant's own groups, with the policies that require it.
    pub requirement: Requirement,
    /// How many further groups of the tenant were asked by escalation.
    #[serde(default, skip_serializing_if = "is_default")]
    pub escalated: u32,
    /// When the approval was requested.
    pub asked_at: Timestamp,
    /// When the approval expires.
    pub expires_at: Timestamp,
}

impl ExternalPart {
    /// The digest of it: what an external approver's decision names.
    pub fn digest(&self) -> Digest {
        canonical_digest(&serde_json::json!(self))
    }

    /// When the next group of the tenant is asked, and which, if people have been asked since `since` for what they are asked for now. A
    /// live fact, not a field of the part. `None` if no escalation is left in time.
    pub fn next_escalation(&self, since: Timestamp) -> Option<(Timestamp, &ApproverGroup)> {
        let next = self.requirement.escalations.get(usize::try_from(self.escalated).ok()?)?;
        let at = since.plus_ms(i64::try_from(next.after_ms).ok()?);
        (at < self.expires_at).then_some((at, &next.group))
    }
}
