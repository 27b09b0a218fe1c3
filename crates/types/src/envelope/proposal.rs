//! `contextos.tool_proposal.v1`: a held call with the evidence frozen for its approvers (TM-09).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    approval::{Requirement, VoteChoice},
    binding::CredentialPlan,
    clock::Timestamp,
    digest::Digest,
    envelope::call::ToolCallEnvelope,
    ids::{ApprovalId, PrincipalId},
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
