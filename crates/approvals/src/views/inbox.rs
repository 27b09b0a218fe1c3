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

/// What to show of the inbox.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct InboxQuery {
    /// Whose: absent, everything the caller may see.
    pub whose: Whose,
    /// Only in this state; absent: `pending`.
    pub state: Option<String>,
    /// Only of this mode.
    pub mode: Option<ApprovalMode>,
    /// Only those that ask this group.
    pub group: Option<ApproverGroup>,
    /// Only those whose id, capability, agent or user contains this text, whatever its case.
    pub search: Option<String>,
    /// In which order.
    pub order: InboxOrder,
    /// From this place on, counted from 0; what has ended has no such places.
    pub offset: usize,
    /// Of what has ended: after this one, in the order asked for.
    pub after: Option<ApprovalId>,
    /// How many at most; absent or 0: 50.
    pub limit: usize,
}

/// Whose approvals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Whose {
    /// All that the caller may see, with those the caller can decide first.
    #[default]
    All,
    /// Those the caller can decide.
    Mine,
    /// Those that somebody waits for who is the caller, or whom the caller answers for.
    Asked,
}

/// An order of the inbox; within it the oldest come first. What has ended is in the order of age: the newest first, unless the oldest are
/// asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum InboxOrder {
    /// What the caller can decide, then by the time that is left.
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
    /// How many wait or are approved, by tenant, groups and ownership; absent for what has ended, which nobody counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<usize>,
    /// Of what has ended: what to send as `after` for the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_after: Option<ApprovalId>,
    /// Of what has ended: whether the page has room left, and ends because many were looked at that are not of it. `next_after` goes on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub incomplete: bool,
    /// How many of all that wait the caller can decide.
    pub mine: usize,
    /// How things stand in the approval service.
    pub load: QueueMetrics,
}

/// One line of the inbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InboxItem {
    /// The approval.
    pub approval: ApprovalView,
    /// Whether the caller can decide it now, as far as group and interest go.
    pub mine: bool,
    /// How often people of each group have agreed, against how many have to.
    pub progress: Vec<GroupProgress>,
    /// The arguments in one line, sensitive ones masked; empty where retention has deleted them.
    #[serde(default)]
    pub summary: String,
}

/// How far a group is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GroupProgress {
    /// The group.
    pub group: ApproverGroup,
    /// How many have to agree.
    pub wanted: u32,
    /// How many have.
    pub agreed: u32,
    /// Whether it is asked in the place of others, after a while of silence.
    pub escalated: bool,
}

/// How things stand in approvals of a tenant, for its charts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct QueueMetrics {
    /// How many wait, by how long they have: under 15 minutes, 1 hour, 4 hours, 24 hours, longer.
    pub waiting_by_age: [u32; 5],
    /// How many wait, by the group that is asked.
    pub waiting_by_group: BTreeMap<ApproverGroup, u32>,
    /// Of those that ended since the process came up, in at most the last 1,000: how long each took, in milliseconds, sorted.
    pub decided_in_ms: Vec<u64>,
    /// Break-glass records that wait for their review.
    pub reviews_due: u32,
    /// The freezes that are in force now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub freezes: Vec<FreezeView>,
}

/// Whether the caller can decide on an approval, and what a decision would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReviewStanding {
    /// Whether the caller may agree now.
    pub may_approve: bool,
    /// Whether the caller may say no now.
    pub may_deny: bool,
    /// Whether the caller may change the arguments.
    pub may_edit: bool,
    /// Whether the caller may withdraw the call, so that it ends and does not run.
    #[serde(default)]
    pub may_withdraw: bool,
    /// Why not, in words, where the caller may not agree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
    /// The colleague the caller would decide for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stands_for: Option<PrincipalId>,
    /// Whether the caller would only have to sign in again.
    pub needs_fresh_auth: bool,
    /// Whether one agreement of the caller lets the call run. Not where a freeze came into force after people were asked; never of an external approver: whether others still have to agree is the asking tenant's own.
    pub completes: bool,
    /// How far each group is.
    pub progress: Vec<GroupProgress>,
    /// When the next group is asked, and which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_escalation: Option<NextEscalation>,
    /// Whether a standing grant could be proposed from it.
    pub grantable: bool,
    /// The freezes that hold the call now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub freezes: Vec<FreezeView>,
}

/// The next group that is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NextEscalation {
    /// When.
    pub at: Timestamp,
    /// Which.
    pub group: ApproverGroup,
}

/// What became of the call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OutcomeView {
    /// Its record, which an operator names to resolve an outcome that is unknown.
    pub record_id: RecordId,
    /// The state of the record.
    pub state: String,
    /// The error code it ended with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<ErrorCode>,
    /// What the tool or Placet said about it, where it failed or its outcome is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Its result; absent while there is none, or no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// When the record last moved.
    pub updated_at: Timestamp,
    /// Whether the outcome is unknown and the reader, an operator, may record what they found out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_resolve: bool,
}

/// Other arguments, as an approver sends them. The approver agrees by that to narrower ones, and does not decide on others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EditRequest {
    /// All arguments as they shall run. A field that was shown masked and comes back as it was shown keeps its value.
    pub args: Map<String, Value>,
    /// Why.
    #[schemars(length(min = 1, max = 2000))]
    pub reason: String,
    /// The digest of what was shown.
    pub digest: Digest,
}

/// One decision on several approvals that the same policies hold for the same reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BulkDecisionRequest {
    /// Yes or no.
    pub decision: VoteChoice,
    /// Why.
    #[schemars(length(min = 1, max = 2000))]
    pub reason: String,
    /// Which, each with the digest of what was shown.
    #[schemars(length(min = 1, max = 100))]
    pub approvals: Vec<BulkItem>,
}

/// One of several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BulkItem {
    /// The approval.
    pub approval_id: ApprovalId,
    /// The digest of what was shown.
    pub digest: Digest,
}

/// What came of deciding several together: each is decided and recorded by itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BulkDecisionView {
    /// Those that were decided.
    pub decided: Vec<ApprovalView>,
    /// Those that were not, and why.
    pub refused: Vec<BulkRefusal>,
}

/// One that was not decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BulkRefusal {
    /// The approval.
    pub approval_id: ApprovalId,
    /// The cause.
    pub code: ErrorCode,
    /// In words.
    pub message: String,
}
