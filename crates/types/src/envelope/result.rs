//! `contextos.tool_result.v1` (TM-03).

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    approval::Requirement,
    clock::Timestamp,
    error::{ErrorCode, Execution, Problem},
    ids::{ApprovalId, CapabilityId, DecisionId, IdempotencyKey, RunId, SessionId, ToolCallId},
};

/// The version tag of a result envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ResultVersion {
    /// The only version there is.
    #[serde(rename = "contextos.tool_result.v1")]
    V1,
}

/// How a call stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResultStatus {
    /// Executed; `output` is the adapter's answer.
    Succeeded,
    /// Executed and failed, as the adapter reports; or not executed because the tool is not what its contract says (TM-14).
    Failed,
    /// Not executed; `error` says why.
    Refused,
    /// Has no end yet: `error` says whether it waits for people (`APPROVAL_PENDING`) or is being executed (`IN_PROGRESS`).
    Pending,
    /// Nobody can say whether the effect happened.
    Unknown,
}

/// How one call stands (TM-03): the answer about it on every interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolResultEnvelope {
    /// `contextos.tool_result.v1`.
    pub envelope_version: ResultVersion,
    /// The call.
    pub tool_call_id: ToolCallId,
    /// The run it belongs to; absent where only the approval of a call is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// The trace it belongs to (W3C trace id, 32 hex digits); empty where that cannot be read.
    pub trace_id: String,
    /// The conversation it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// The operation, as the caller named it; absent where the name it sent is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capability_id: Option<CapabilityId>,
    /// The key of a write-class call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<IdempotencyKey>,
    /// How the call stands.
    pub status: ResultStatus,
    /// The adapter's answer; null when there is none.
    pub output: Value,
    /// Sources the answer names.
    pub citations: Vec<Citation>,
    /// What the call changed; never empty for a successful write.
    pub mutations: Vec<Mutation>,
    /// The decision that let it through or refused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_decision_id: Option<DecisionId>,
    /// The approval it waits for or ran under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<ApprovalId>,
    /// What a held call waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending_approval: Option<PendingApproval>,
    /// Where the time went.
    pub latency: Latency,
    /// How often the adapter was called again after the first time.
    pub retries: u32,
    /// What the call cost.
    pub cost: Cost,
    /// Whether this is the recorded result of an earlier call with the same key.
    pub replayed: bool,
    /// When the tool gave this answer, where it is given again from the cache of its alias (TM-13) and the tool was not asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_at: Option<Timestamp>,
    /// Why it did not succeed, or has not yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ResultError>,
    /// The W3C `traceparent` of the call's span.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_context: Option<String>,
    /// The arguments that ran, fields marked sensitive masked, where an approver changed those that were sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edited_args: Option<Value>,
    /// Where an approver changed values that are masked in `edited_args`, as JSON Pointers (RFC 6901) into the arguments, as they were or are.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub edited_masked: BTreeSet<String>,
}

/// What a held call waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PendingApproval {
    /// `pending`, or `approved` when people agreed and the call has not run yet.
    pub state: String,
    /// Whether it waits for nothing but its caller, who has to repeat it with a new token (see `CREDENTIAL_EXPIRED`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub awaits_credential: bool,
    /// Whether people agreed and the tool cannot be reached: the call is tried again until `expires_at`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unreachable: bool,
    /// Who has to agree. The policies behind it are shown to approvers only, so `reasons` is empty here.
    pub requirement: Requirement,
    /// When it ends unanswered.
    pub expires_at: Timestamp,
}

/// Why a call did not succeed, or has not yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResultError {
    /// The cause.
    pub error_code: ErrorCode,
    /// In words.
    pub message: String,
    /// Whether the same request may succeed later.
    pub retryable: bool,
    /// What to do.
    pub remediation: String,
    /// What is known about the effect.
    pub execution: Execution,
    /// Places to correct.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Problem>,
    /// When to try again, in milliseconds from now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

/// A source named by an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Citation {
    /// Where it is.
    pub uri: String,
    /// What it is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

/// Something a call changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mutation {
    /// What was done: `create`, `update`, `delete`, or `write` when the adapter cannot tell them apart.
    pub action: String,
    /// What it was done to, as the adapter names it.
    pub target: String,
}

/// Where the time of a call went, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    /// From acceptance to the answer, waiting for people included.
    pub total_ms: u64,
    /// Within the adapter.
    pub adapter_ms: u64,
}

/// The most that one call may be reported to have cost, in cents.
pub const COST_CENTS_MAX: u64 = 100_000_000;

/// What a call cost: as its target reports it, else as the contract states it (TM-11).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// In cents.
    pub cents: u64,
}
