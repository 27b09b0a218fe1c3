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
    principal::{Principal, PrincipalChain},
    taint::Taint,
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
    /// Where values are masked in `preview`, as JSON Pointers (RFC 6901): a value that only reads like the mask is not among them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub preview_masked: BTreeSet<String>,
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
    /// What the run had in its context when the call was held: as callers declared it, and as results brought it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub taint: BTreeSet<Taint>,
    /// Who calls and how they proved it; absent where it was not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<CallerIdentity>,
    /// What the call's `evidence_refs` lead to, frozen by digest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refs: Vec<EvidenceItem>,
    /// What the capability does, as its contract says.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Calls of the same capability by the same agent that people decided on before, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub similar: Vec<SimilarCall>,
    /// The arguments that the agent asked for, where an approver changed them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edited: Option<EditedFrom>,
}

/// The most earlier calls shown to an approver.
pub const SIMILAR_MAX: usize = 5;

/// An earlier call that people decided on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SimilarCall {
    /// Its approval.
    pub approval_id: ApprovalId,
    /// When it was asked for.
    pub asked_at: Timestamp,
    /// How the approval stood: `approved`, `denied`, `expired`, `withdrawn` or `void`; once its call was sent, what came of that: `running`,
    /// `succeeded`, `failed`, `unknown` or `sent`.
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
    /// Who changed the arguments.
    pub by: PrincipalId,
    /// Why.
    pub reason: String,
    /// When.
    pub at: Timestamp,
    /// The arguments as the agent asked for them, fields marked sensitive masked.
    pub preview: Value,
    /// Where values are masked in `preview`, as JSON Pointers (RFC 6901).
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub preview_masked: BTreeSet<String>,
    /// The digest of the request as the agent made it.
    pub request_digest: Digest,
    /// Who wrote arguments that are not narrower than those before. They do not decide on them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub authors: BTreeSet<PrincipalId>,
    /// Where values that are masked changed since the agent asked, as JSON Pointers (RFC 6901) into the arguments, as they were or are.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub masked: BTreeSet<String>,
}

/// The version tag of an external approver's part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ExternalPartVersion {
    /// The only version there is.
    #[serde(rename = "placet.external-approver-part.v1")]
    V1,
}

/// What people of another tenant are shown of a held call: what they need to decide, and nothing else of the tenant that asks.
///
/// It is the whole of it: whatever shows an external approver more than this shows a live fact (how it stands, how far their own groups are, what
/// colleagues decided). No digest in it covers a value that is masked: anyone who knows the rest could try values against it. Which values
/// they are is settled all the same, for an approval's arguments change with its edits alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExternalPart {
    /// `placet.external-approver-part.v1`.
    pub part_version: ExternalPartVersion,
    /// The approval the call waits for.
    pub approval_id: ApprovalId,
    /// The call.
    pub call_id: ToolCallId,
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
    /// The arguments as they will run, fields marked `x-sensitive` masked; null where retention has deleted them.
    pub preview: Value,
    /// Where values are masked in `preview`, as JSON Pointers (RFC 6901).
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub preview_masked: BTreeSet<String>,
    /// The digest of `preview`.
    pub preview_digest: Digest,
    /// The contract as pinned; absent where retention has deleted the evidence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contract_digest: Option<Digest>,
    /// The bundle that held the call.
    pub bundle_digest: Digest,
    /// How often an approver of the asking tenant changed the arguments.
    #[serde(default, skip_serializing_if = "is_default")]
    pub edits: u32,
    /// When that was last done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edited_at: Option<Timestamp>,
    /// Where values that are masked changed since the agent asked, as JSON Pointers (RFC 6901) into the arguments, as they were or are.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub edited_masked: BTreeSet<String>,
    /// What is asked of the tenant's own groups, under which terms, and the policies that ask them.
    pub requirement: Requirement,
    /// How many further groups of the tenant were asked after a while of silence.
    #[serde(default, skip_serializing_if = "is_default")]
    pub escalated: u32,
    /// When it was asked.
    pub asked_at: Timestamp,
    /// When it ends unanswered.
    pub expires_at: Timestamp,
}

/// The current state of an approval request, part of which an external approver is shown.
#[derive(Debug, Clone, Copy)]
pub struct Asking<'a> {
    /// The approval.
    pub approval_id: &'a ApprovalId,
    /// The call that waits for it.
    pub call_id: &'a ToolCallId,
    /// Who calls, for whom.
    pub chain: &'a PrincipalChain,
    /// The operation.
    pub capability_id: &'a CapabilityId,
    /// How strong the call is.
    pub mode: ApprovalMode,
    /// The bundle that held the call.
    pub bundle_digest: Digest,
    /// Who has to agree, under the current policies.
    pub requirement: &'a Requirement,
    /// How many of its escalations were made.
    pub escalated: u32,
    /// How often the arguments were changed.
    pub edits: u32,
    /// When they were last changed.
    pub edited_at: Option<Timestamp>,
    /// When it was requested.
    pub asked_at: Timestamp,
    /// When it ends unanswered.
    pub expires_at: Timestamp,
    /// What was frozen when the call was held; `None` if retention has deleted it.
    pub evidence: Option<&'a Evidence>,
}

impl ExternalPart {
    /// The part of a request that people of `external` are shown.
    #[must_use]
    pub fn of(asking: &Asking<'_>, external: &TenantId) -> Self {
        let evidence = asking.evidence;
        let preview = evidence.map_or(Value::Null, |evidence| evidence.preview.clone());
        let made = usize::try_from(asking.escalated).unwrap_or(usize::MAX);
        let made = asking.requirement.escalations.iter().take(made);
        let own = made.filter(|one| one.group.external_tenant() == Some(external)).count();
        Self {
            part_version: ExternalPartVersion::V1,
            approval_id: asking.approval_id.clone(),
            call_id: asking.call_id.clone(),
            asked_by: asking.chain.tenant().clone(),
            asked_of: external.clone(),
            requester: asking.chain.actor.clone(),
            capability_id: asking.capability_id.clone(),
            description: evidence.map_or_else(String::new, |evidence| evidence.description.clone()),
            mode: asking.mode,
            preview_digest: canonical_digest(&preview),
            preview,
            preview_masked: evidence
                .map(|evidence| evidence.preview_masked.clone())
                .unwrap_or_default(),
            contract_digest: evidence.map(|evidence| evidence.contract_digest),
            bundle_digest: asking.bundle_digest,
            edits: asking.edits,
            edited_at: asking.edited_at,
            edited_masked: evidence
                .and_then(|evidence| evidence.edited.as_ref())
                .map(|edited| edited.masked.clone())
                .unwrap_or_default(),
            requirement: asking.requirement.part_of(external),
            escalated: u32::try_from(own).unwrap_or(u32::MAX),
            asked_at: asking.asked_at,
            expires_at: asking.expires_at,
        }
    }

    /// The digest of it: what an external approver's decision names.
    #[must_use]
    pub fn digest(&self) -> Digest {
        canonical_digest(&serde_json::json!(self))
    }

    /// When the next group of the tenant is asked, and which, if people have been asked since `since` for what they are asked for now. A
    /// live fact, not a field of the part. `None` if no escalation is left in time.
    #[must_use]
    pub fn next_escalation(&self, since: Timestamp) -> Option<(Timestamp, &ApproverGroup)> {
        let next = self.requirement.escalations.get(usize::try_from(self.escalated).ok()?)?;
        let at = since.plus_ms(i64::try_from(next.after_ms).ok()?);
        (at < self.expires_at).then_some((at, &next.group))
    }
}

#[cfg(test)]
mod tests;
