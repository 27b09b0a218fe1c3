//! What listeners show of approvals and of what people arrange.
//!
//! Owns the forms. Everything in here is for the caller it was made for: filtered by tenant and Cedar before; nothing holds an argument that its schema
//! marks sensitive.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use placet_types::{
    approval::{ApproverGroup, Requirement, Vote, VoteChoice},
    caller::CallerIdentity,
    clock::Timestamp,
    digest::Digest,
    envelope::proposal::{ExternalPart, ToolProposalEnvelope},
    error::ErrorCode,
    ids::{AdapterName, ApprovalId, CapabilityId, DirectiveId, PrincipalId, ToolCallId},
    mode::ApprovalMode,
    principal::{PrincipalChain, TokenAudiences},
    taint::Taint,
};

mod entries;
mod inbox;

pub use entries::{
    Arrangement, DirectiveAct, DirectiveNoteView, DirectiveRequest, DirectiveView, EntriesPage,
    EntriesQuery, EntryStanding,
};
pub use inbox::{
    BULK_MAX, BulkDecisionRequest, BulkDecisionView, BulkItem, BulkRefusal, EditRequest,
    GroupProgress, INBOX_PAGE_MAX, InboxItem, InboxOrder, InboxQuery, InboxView, NextEscalation,
    OutcomeView, QueueMetrics, ReviewStanding, Whose,
};

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

/// An approval, as it is listed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalView {
    /// The id of the approval.
    pub approval_id: ApprovalId,
    /// `pending`, `approved` (not sent yet), `running`, `succeeded`, `failed`, `unknown`, `denied`, `withdrawn`, `expired` or `void`;
    /// `sent` if the outcome is not known to the reader.
    pub state: String,
    /// Why the approval is void; absent if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub void_reason: Option<String>,
    /// Whether the call is approved but the tool cannot be reached. It is tried again until `expires_at`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unreachable: bool,
    /// Who withdrew the call, and why; absent if it was not withdrawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withdrawn: Option<WithdrawalView>,
    /// The id of the held call.
    pub call_id: ToolCallId,
    /// The capability that is called.
    pub capability_id: CapabilityId,
    /// The caller, and the user it acts for.
    pub principal_chain: PrincipalChain,
    /// Who has to agree.
    pub requirement: Requirement,
    /// The decisions so far.
    pub votes: Vec<Vote>,
    /// The indexes in `votes`, from 0, of agreements that no longer count. Those approvers may agree again.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub lapsed: BTreeSet<usize>,
    /// When the approval was requested.
    pub created_at: Timestamp,
    /// When the approval expires.
    pub expires_at: Timestamp,
    /// The approval mode that governs the call.
    pub mode: ApprovalMode,
    /// How many times an approver changed the arguments.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub edits: u32,
    /// How many further groups were asked by escalation.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub escalated: u32,
    /// The digest that a decision must name. It covers what the approver is shown.
    pub digest: Digest,
}

/// An approval, with everything that its approvers are shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalDetail {
    /// The approval.
    pub approval: ApprovalView,
    /// The frozen proposal, with sensitive fields masked; absent for an external approver, and once retention has deleted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposal: Option<ToolProposalEnvelope>,
    /// The part of the proposal that an external approver is shown; absent for approvers of the call's own tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<ExternalPart>,
    /// What the caller may do with the approval.
    pub standing: ReviewStanding,
    /// How the call ended; absent if it has no record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<OutcomeView>,
}

impl ApprovalDetail {
    /// The arguments as they would run, masked; null once retention has deleted them.
    pub fn preview(&self) -> &Value {
        let own = self.proposal.as_ref().map(|proposal| &proposal.evidence.preview);
        own.or(self.part.as_ref().map(|part| &part.preview)).unwrap_or(&Value::Null)
    }

    /// Where [`Self::preview`] is masked, as JSON Pointers (RFC 6901).
    pub fn preview_masked(&self) -> BTreeSet<String> {
        let own = self.proposal.as_ref().map(|proposal| &proposal.evidence.preview_masked);
        own.or(self.part.as_ref().map(|part| &part.preview_masked)).cloned().unwrap_or_default()
    }

    /// What the operation does, as its contract says.
    pub fn description(&self) -> &str {
        let own = self.proposal.as_ref().map(|proposal| proposal.evidence.description.as_str());
        own.or(self.part.as_ref().map(|part| part.description.as_str())).unwrap_or_default()
    }
}

/// An approver's decision on an approval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DecisionRequest {
    /// The decision.
    pub decision: VoteChoice,
    /// The reason for the decision.
    #[schemars(length(min = 1, max = 2000))]
    pub reason: String,
    /// The digest of what the approver was shown.
    pub digest: Digest,
}

/// A request to withdraw a held call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WithdrawalRequest {
    /// The reason for the withdrawal.
    #[schemars(length(min = 1, max = 2000))]
    pub reason: String,
}

/// The withdrawal of a held call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WithdrawalView {
    /// Who withdrew the call: the agent, its owner, or an operator.
    pub by: PrincipalId,
    /// The reason, in their words.
    pub reason: String,
    /// When the call was withdrawn.
    pub at: Timestamp,
}

/// A freeze or a lockdown that is in force now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FreezeView {
    /// The freeze's entry; absent if the caller may not see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directive_id: Option<DirectiveId>,
    /// The name of the freeze; absent if the caller may not see its entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// When the freeze ends, unless it is ended earlier.
    pub until: Timestamp,
    /// Whether the freeze is a lockdown: no call runs until it ends.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lockdown: bool,
    /// The adapters whose calls are frozen; empty: all adapters.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub adapters: BTreeSet<AdapterName>,
    /// Whether the freeze came into force after people were asked about the call. What they were asked for does not take it into account.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub after_asking: bool,
}

/// A change in the approval service. It names what to read again, never its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalEvent {
    /// What happened.
    pub kind: ApprovalEventKind,
    /// The approval concerned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<ApprovalId>,
    /// The call concerned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<ToolCallId>,
    /// The capability of that call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capability_id: Option<CapabilityId>,
    /// The entry of the approval service concerned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directive_id: Option<DirectiveId>,
    /// For `settled`, how the call ended: `succeeded`, `failed` or `unknown`; `sent` if its record is no longer kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// The groups concerned.
    pub groups: BTreeSet<ApproverGroup>,
    /// When it happened.
    pub at: Timestamp,
}

impl ApprovalEvent {
    /// An event that says no more than what happened, and when.
    pub(crate) const fn new(kind: ApprovalEventKind, at: Timestamp) -> Self {
        Self {
            kind,
            approval_id: None,
            call_id: None,
            capability_id: None,
            directive_id: None,
            outcome: None,
            groups: BTreeSet::new(),
            at,
        }
    }
}

/// What happened in the approval service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalEventKind {
    /// An approval was requested.
    Asked,
    /// An approver decided, and further decisions are needed.
    Voted,
    /// An approver changed the arguments.
    Edited,
    /// A further group was asked.
    Escalated,
    /// Enough people agreed.
    Approved,
    /// The call was denied.
    Denied,
    /// The approval expired before enough people agreed.
    Expired,
    /// The call was withdrawn.
    Withdrawn,
    /// What was approved is no longer what would run.
    Void,
    /// The call was sent.
    Dispatched,
    /// The call ended.
    Settled,
    /// An entry of the approval service changed.
    Entry,
}

/// A call's way from plan to effect, from the audit chain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Timeline")]
pub struct TimelineView {
    /// The id of the call.
    pub call_id: ToolCallId,
    /// The steps of the call, in order.
    pub steps: Vec<TimelineStep>,
    /// Whether steps are missing because their audit entries were archived and the archive is not available.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub incomplete: bool,
}

/// One step of a call, from plan to effect, as the audit chain records it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TimelineStep {
    /// The log that holds the entry.
    pub log: String,
    /// The sequence number of the entry in its log.
    pub seq: u64,
    /// When it happened.
    pub at: Timestamp,
    /// What happened: the kind of the audit event.
    pub kind: String,
    /// Who acted; absent if nobody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The error code; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<ErrorCode>,
    /// A note in plain words. Shown to people only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The audiences of each token that was used and is valid for several services, by the token's handle. Shown to people only.
    #[serde(default, skip_serializing_if = "TokenAudiences::is_empty")]
    pub audiences: TokenAudiences,
    /// How the caller and its user proved their identity, if the call was decided on in this step. Shown to people only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<Box<CallerIdentity>>,
    /// What the run had in its context when this was decided; for an outcome, what the result added to it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub taint: BTreeSet<Taint>,
    /// The standing grant and the break-glass records that this step relied on. Shown to people only.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub directives: BTreeSet<DirectiveId>,
    /// Digests of content that is not included in the entry, by name.
    pub digests: BTreeMap<String, Digest>,
    /// The hash of the entry, by which its inclusion can be proved.
    pub hash: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}
