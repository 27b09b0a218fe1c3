//! What the listeners show of tools, approvals and records.
//!
//! Owns the forms. Everything in here is for the caller it was made for: filtered by surface, tenant and Cedar before.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use placet_types::{
    approval::{Requirement, Vote, VoteChoice},
    clock::Timestamp,
    digest::Digest,
    envelope::{
        proposal::{ExternalPart, ToolProposalEnvelope},
        result::ToolResultEnvelope,
    },
    error::ErrorCode,
    ids::{ApprovalId, CapabilityId, PrincipalId, RecordId, ToolCallId},
    mode::ApprovalMode,
    principal::PrincipalChain,
};

use desk::{OutcomeView, ReviewStanding};
use status::StatusView;

pub mod decisions;
pub mod desk;
pub mod status;

/// A tool as a planner sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolView {
    /// The name to call it by.
    pub tool: String,
    /// The operation.
    pub capability_id: CapabilityId,
    /// What it does.
    pub description: String,
    /// The JSON Schema of its arguments.
    pub input_schema: Value,
    /// The JSON Schema of its structured output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// The strongest mode it can have.
    pub mode_highest: ApprovalMode,
    /// Whether it changes anything, and so needs a key or a step and request id.
    pub writes: bool,
}

/// The names of the states that a stored effect record can be in.
pub const RECORD_STATES: [&str; 10] = placet_ledger::record::EffectState::NAMES;

/// How a held call stands: while people are asked and where nothing ran, the state of its approval; once it was sent, its outcome. `sent`:
/// it was sent, and its outcome is not known to the reader.
pub const APPROVAL_STATES: [&str; 11] = [
    "pending",
    "approved",
    "running",
    "succeeded",
    "failed",
    "unknown",
    "sent",
    "denied",
    "withdrawn",
    "expired",
    "void",
];
/// What lists of approvals take as a state besides: everything that neither waits for people nor is still to be sent.
pub const FINISHED: &str = "finished";

/// An approval in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalView {
    /// The approval.
    pub approval_id: ApprovalId,
    /// `pending`, `approved` (not sent yet), `running`, `succeeded`, `failed`, `unknown`, `denied`, `withdrawn`, `expired` or `void`; `sent`
    /// where the outcome is not known to the reader.
    pub state: String,
    /// Why it is void.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub void_reason: Option<String>,
    /// Whether it is approved and the tool cannot be reached: the call is tried again until `expires_at`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unreachable: bool,
    /// Who withdrew it, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withdrawn: Option<WithdrawalView>,
    /// The call that waits.
    pub call_id: ToolCallId,
    /// The operation.
    pub capability_id: CapabilityId,
    /// Who calls, for whom.
    pub principal_chain: PrincipalChain,
    /// Who has to agree.
    pub requirement: Requirement,
    /// Who decided what so far.
    pub votes: Vec<Vote>,
    /// Which of them are agreements that count no more, by their places: who gave them may agree again.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub lapsed: BTreeSet<usize>,
    /// When it was asked.
    pub created_at: Timestamp,
    /// When it ends.
    pub expires_at: Timestamp,
    /// How strong the call is.
    pub mode: ApprovalMode,
    /// How often an approver changed the arguments.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub edits: u32,
    /// How many further groups were asked after a while of silence.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub escalated: u32,
    /// The digest a decision must name: of what the approver is shown.
    pub digest: Digest,
}

/// An approval with everything its approvers are shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalDetail {
    /// The approval.
    pub approval: ApprovalView,
    /// The frozen proposal, fields marked sensitive masked; absent for an external approver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposal: Option<ToolProposalEnvelope>,
    /// The part of the proposal that somebody of another tenant is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<ExternalPart>,
    /// What the caller may do with it.
    pub standing: ReviewStanding,
    /// What became of the call, where it has a record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<OutcomeView>,
}

impl ApprovalDetail {
    /// The arguments as they would run, masked; null where they are not shown at all.
    #[must_use]
    pub fn preview(&self) -> &Value {
        let own = self.proposal.as_ref().map(|proposal| &proposal.evidence.preview);
        own.or(self.part.as_ref().map(|part| &part.preview)).unwrap_or(&Value::Null)
    }

    /// Where [`Self::preview`] is masked, as JSON Pointers (RFC 6901).
    #[must_use]
    pub fn preview_masked(&self) -> BTreeSet<String> {
        let own = self.proposal.as_ref().map(|proposal| &proposal.evidence.preview_masked);
        own.or(self.part.as_ref().map(|part| &part.preview_masked)).cloned().unwrap_or_default()
    }

    /// What the operation does, as its contract says.
    #[must_use]
    pub fn description(&self) -> &str {
        let own = self.proposal.as_ref().map(|proposal| proposal.evidence.description.as_str());
        own.or(self.part.as_ref().map(|part| part.description.as_str())).unwrap_or_default()
    }
}

/// A decision as an approver sends it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DecisionRequest {
    /// Yes or no.
    pub decision: VoteChoice,
    /// Why.
    #[schemars(length(min = 1, max = 2000))]
    pub reason: String,
    /// The digest of what was shown.
    pub digest: Digest,
}

/// How somebody withdraws a held call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WithdrawalRequest {
    /// Why.
    #[schemars(length(min = 1, max = 2000))]
    pub reason: String,
}

/// How a call was withdrawn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WithdrawalView {
    /// Who: the agent, its owner, or an operator.
    pub by: PrincipalId,
    /// Why, in their words.
    pub reason: String,
    /// When.
    pub at: Timestamp,
}

/// An effect record as its owner or an operator sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RecordView {
    /// The record.
    pub record_id: RecordId,
    /// The call that made it.
    pub call_id: ToolCallId,
    /// The operation.
    pub capability_id: CapabilityId,
    /// The agent.
    pub agent: String,
    /// The user it acted for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_behalf_of: Option<String>,
    /// The state's name.
    pub state: String,
    /// How often the adapter was called.
    pub attempts: u32,
    /// How often operators had the call sent again under a new token.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub arm: u32,
    /// The error code it ended with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<ErrorCode>,
    /// The operator who asks for it to be sent again, while nobody else has agreed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rearm: Option<RearmView>,
    /// By what an outcome that was unknown came to light.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_by: Option<String>,
    /// When it had come to its end, of a record whose result is no longer kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled_at: Option<Timestamp>,
    /// What the adapter could recognise the call by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatch_token: Option<String>,
    /// Why the outcome is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When the key was first seen.
    pub created_at: Timestamp,
    /// When the record last moved.
    pub updated_at: Timestamp,
    /// The arguments as they were, or would be, sent, sensitive ones masked; absent in lists, and where they are not kept or their tool is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Value>,
    /// The recorded result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<ToolResultEnvelope>,
}

/// An operator's word for sending a call again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RearmView {
    /// Who.
    pub by: String,
    /// What makes them sure.
    pub evidence: String,
    /// When.
    pub at: Timestamp,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// How an operator asks for a call to be sent again whose outcome is unknown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RearmRequest {
    /// What makes sure that it did not happen, or that twice does no harm; kept for the auditor.
    #[schemars(length(min = 1, max = 2000))]
    pub evidence: String,
}

/// How an operator ends an unknown outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResolutionRequest {
    /// What the operator found.
    pub outcome: ResolvedOutcome,
    /// How it was found; kept for the auditor.
    #[schemars(length(min = 1, max = 2000))]
    pub evidence: String,
    /// What the call's result shall be; absent: null.
    #[serde(default)]
    pub output: Value,
}

/// What an operator found about an unknown outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResolvedOutcome {
    /// The effect happened.
    Happened,
    /// The effect did not happen, and will not by this call.
    DidNotHappen,
}

/// What a node has minted and keeps. No credential is in it, and nothing that one could be guessed from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CredentialsView {
    /// The token services.
    pub services: Vec<String>,
    /// Credentials that they issued since the start.
    pub minted: u64,
    /// Calls that were made with one that was there.
    pub reused: u64,
    /// Calls that got none.
    pub refused: u64,
    /// How many are kept for further calls now.
    pub kept: usize,
    /// How many subjects have tokens that are revoked now, in all tenants.
    pub revoked: usize,
}

/// Whether the engine can take calls, and why not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Readiness {
    /// Whether it can.
    pub ready: bool,
    /// What stands in the way; or notes on parts that are down without stopping the rest.
    pub notes: Vec<String>,
    /// What decides on this node.
    pub active: StatusView,
}
