//! The inbox, decisions on several approvals at once, edits, and what somebody may do with an approval.
//!
//! Owns the forms.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use placet_types::{
    approval::{ApproverGroup, VoteChoice},
    clock::Timestamp,
    digest::Digest,
    error::ErrorCode,
    ids::{ApprovalId, PrincipalId, RecordId},
    mode::ApprovalMode,
};

use super::{ApprovalView, FreezeView};

/// The most approvals on one page of the inbox.
pub const INBOX_PAGE_MAX: usize = 200;
/// The most approvals decided on at once.
pub const BULK_MAX: usize = 100;

/// Which approvals to show.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct InboxQuery {
    /// Whose approvals; absent: all that the caller may see.
    pub whose: Whose,
    /// Only approvals in this state; absent: `pending`.
    pub state: Option<String>,
    /// Only approvals of calls with this approval mode.
    pub mode: Option<ApprovalMode>,
    /// Only approvals that ask this group.
    pub group: Option<ApproverGroup>,
    /// Only approvals whose id, capability, agent or user contains this text, ignoring case.
    pub search: Option<String>,
    /// The sort order.
    pub order: InboxOrder,
    /// The number of approvals to skip. Not for approvals that have ended.
    pub offset: usize,
    /// For approvals that have ended: the approval after which the page starts, in the sort order.
    pub after: Option<ApprovalId>,
    /// The maximum number of approvals; absent or 0: 50.
    pub limit: usize,
}

/// Whose approvals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Whose {
    /// All that the caller may see, with those the caller can decide first.
    #[default]
    All,
    /// Those that the caller can decide.
    Mine,
    /// Those of calls that the caller made, that were made for the caller, or that an agent made whose owner the caller is.
    Asked,
}

/// The sort order of the inbox; ties are sorted oldest first. Approvals that have ended are sorted by age: newest first, unless the oldest
/// are requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum InboxOrder {
    /// Those that the caller can decide first, then by remaining time.
    #[default]
    Urgent,
    /// The oldest first.
    Oldest,
    /// The newest first.
    Newest,
    /// The strongest mode first.
    Risk,
}

/// A page of the inbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InboxView {
    /// The approvals of this page.
    pub approvals: Vec<InboxItem>,
    /// The number of pending or approved approvals that match, by tenant, groups and ownership; absent for approvals that have ended, which
    /// are not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<usize>,
    /// For approvals that have ended: the value of `after` for the next page; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_after: Option<ApprovalId>,
    /// For approvals that have ended: whether the page ended early because many approvals had to be read that do not match. Continue with
    /// `next_after`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub incomplete: bool,
    /// How many of all pending approvals the caller can decide.
    pub mine: usize,
    /// The queue metrics of the tenant.
    pub load: QueueMetrics,
}

/// One approval in the inbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InboxItem {
    /// The approval.
    pub approval: ApprovalView,
    /// Whether the caller can decide it now, judging by groups and conflicts of interest.
    pub mine: bool,
    /// The agreements of each group so far, and how many are required.
    pub progress: Vec<GroupProgress>,
    /// The arguments in one line, with sensitive values masked; empty if retention has deleted them.
    #[serde(default)]
    pub summary: String,
}

/// How many members of a group have agreed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GroupProgress {
    /// The group.
    pub group: ApproverGroup,
    /// How many members have to agree.
    pub wanted: u32,
    /// How many members have agreed.
    pub agreed: u32,
    /// Whether the group was asked by escalation, in place of others.
    pub escalated: bool,
}

/// The approval queue of a tenant in numbers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct QueueMetrics {
    /// The number of pending approvals by age: under 15 minutes, under 1 hour, under 4 hours, under 24 hours, and older.
    pub waiting_by_age: [u32; 5],
    /// The number of pending approvals by the group that is asked.
    pub waiting_by_group: BTreeMap<ApproverGroup, u32>,
    /// How long each approval took that ended since the process started, in milliseconds, sorted: at most the last 1,000.
    pub decided_in_ms: Vec<u64>,
    /// The number of break-glass records whose review is due.
    pub reviews_due: u32,
    /// The freezes that are in force now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub freezes: Vec<FreezeView>,
}

/// What the caller may do with an approval, and the effect of a decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReviewStanding {
    /// Whether the caller may agree now.
    pub may_approve: bool,
    /// Whether the caller may deny now.
    pub may_deny: bool,
    /// Whether the caller may change the arguments.
    pub may_edit: bool,
    /// Whether the caller may withdraw the call. A withdrawn call ends and does not run.
    #[serde(default)]
    pub may_withdraw: bool,
    /// Why the caller may not agree; absent if the caller may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
    /// The colleague for whom the caller would decide; absent if the caller would decide for themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stands_for: Option<PrincipalId>,
    /// Whether the caller only has to sign in again to be allowed to agree.
    pub needs_fresh_auth: bool,
    /// Whether the caller's agreement alone lets the call run. False if a freeze came into force after people were asked. Always false for
    /// an external approver, who is not shown whether others still have to agree.
    pub completes: bool,
    /// The progress of each group.
    pub progress: Vec<GroupProgress>,
    /// The next group to be asked, and when; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_escalation: Option<NextEscalation>,
    /// Whether the caller can propose a standing grant from this approval.
    pub grantable: bool,
    /// The freezes that hold the call now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub freezes: Vec<FreezeView>,
}

/// The next group to be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NextEscalation {
    /// When the group is asked.
    pub at: Timestamp,
    /// The group.
    pub group: ApproverGroup,
}

/// The outcome of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OutcomeView {
    /// The call's record. An operator names it to resolve an unknown outcome.
    pub record_id: RecordId,
    /// The state of the call's record.
    pub state: String,
    /// The error code; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<ErrorCode>,
    /// What resolved an unknown outcome: an operator, a late answer or a probe; absent if the outcome is what the call was answered with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_by: Option<String>,
    /// What the tool or Placet reported, if the call failed or its outcome is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The result of the call; absent if there is none, or it is no longer kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// When the record last changed.
    pub updated_at: Timestamp,
    /// Whether the outcome is unknown and the caller, as an operator, may record what happened.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_resolve: bool,
}

/// New arguments from an approver. If they are narrower, sending them counts as agreeing; otherwise the approver may not decide.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EditRequest {
    /// All arguments as they should run. A masked field that is sent back unchanged keeps its value.
    pub args: Map<String, Value>,
    /// The reason for the change.
    #[schemars(length(min = 1, max = 2000))]
    pub reason: String,
    /// The digest of what the approver was shown.
    pub digest: Digest,
}

/// One decision on several approvals that the same policies hold for the same reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BulkDecisionRequest {
    /// The decision.
    pub decision: VoteChoice,
    /// The reason for the decision.
    #[schemars(length(min = 1, max = 2000))]
    pub reason: String,
    /// The approvals to decide, each with the digest of what was shown.
    #[schemars(length(min = 1, max = 100))]
    pub approvals: Vec<BulkItem>,
}

/// One approval of a bulk decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BulkItem {
    /// The id of the approval.
    pub approval_id: ApprovalId,
    /// The digest of what the approver was shown.
    pub digest: Digest,
}

/// The result of a bulk decision. Each approval is decided and recorded separately.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BulkDecisionView {
    /// The approvals that were decided.
    pub decided: Vec<ApprovalView>,
    /// The approvals that were not decided, with the reason.
    pub refused: Vec<BulkRefusal>,
}

/// An approval that was not decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BulkRefusal {
    /// The id of the approval.
    pub approval_id: ApprovalId,
    /// The error code.
    pub code: ErrorCode,
    /// The reason, in plain words.
    pub message: String,
}
