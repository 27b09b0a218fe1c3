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

/// A freeze that is in force now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FreezeView {
    /// Its entry, for those who may see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directive_id: Option<DirectiveId>,
    /// Its name, for those who may see its entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// When it ends, unless it is lifted before.
    pub until: Timestamp,
    /// Whether it is a lockdown: no call runs until it is over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lockdown: bool,
    /// The adapters whose calls it holds; empty: all.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub adapters: BTreeSet<AdapterName>,
    /// Whether it came into force after people were asked about the call: what they were asked for does not take it into account.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub after_asking: bool,
}

/// Something happened in the approval service. Says what to look at again, never what is in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalEvent {
    /// What.
    pub kind: ApprovalEventKind,
    /// To which approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<ApprovalId>,
    /// Of which call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<ToolCallId>,
    /// Of which operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capability_id: Option<CapabilityId>,
    /// To which entry of the approval service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directive_id: Option<DirectiveId>,
    /// Of `settled`, how the call ended: `succeeded`, `failed` or `unknown`; `sent` where its record is no longer kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// The groups it concerns.
    pub groups: BTreeSet<ApproverGroup>,
    /// When.
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
    /// People are asked.
    Asked,
    /// Somebody decided, and more have to.
    Voted,
    /// Somebody changed the arguments.
    Edited,
    /// Another group is asked.
    Escalated,
    /// Enough people agreed.
    Approved,
    /// People said no.
    Denied,
    /// Nobody agreed in time.
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
#[derive(Debug, Clone, PartialEq)]
pub struct TimelineView {
    /// The steps that were found, in order.
    pub steps: Vec<TimelineStep>,
    /// Whether some are missing: their entries were archived, and the archive is not at hand.
    pub incomplete: bool,
}

/// One step of a call's way from plan to effect, from the audit chain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TimelineStep {
    /// The log of the chain it stands in.
    pub log: String,
    /// Its place there.
    pub seq: u64,
    /// When.
    pub at: Timestamp,
    /// What happened: a kind of audit event.
    pub kind: String,
    /// Who, where somebody did it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// With which code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<ErrorCode>,
    /// In words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Whom the tokens were for that it was done with, where one of them is for several services: its audiences, by its handle. For people.
    #[serde(default, skip_serializing_if = "TokenAudiences::is_empty")]
    pub audiences: TokenAudiences,
    /// How the caller and its user proved who they are, of a call that was decided upon. For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<Box<CallerIdentity>>,
    /// What the run had in its context when this was decided; of an outcome, what the result brought into it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub taint: BTreeSet<Taint>,
    /// Digests of what is not written out.
    pub digests: BTreeMap<String, Digest>,
    /// The hash of the entry, by which it can be proved.
    pub hash: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}
