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
    /// The only version.
    #[serde(rename = "contextos.tool_result.v1")]
    V1,
}

crate::named_enum! {
    /// The status of a call.
    #[derive(JsonSchema)]
    pub enum ResultStatus {
        /// The call was executed. `output` is the adapter's answer.
        Succeeded = "succeeded",
        /// The call was executed and failed, as the adapter reports; or it was not executed because the tool no longer matches its contract
        /// (TM-14).
        Failed = "failed",
        /// The call was not executed. `error` says why.
        Refused = "refused",
        /// The call has not ended. `error` says whether it waits for approval (`APPROVAL_PENDING`) or is being executed (`IN_PROGRESS`).
        Pending = "pending",
        /// It is not known whether the effect happened.
        Unknown = "unknown",
    }
}

/// The state and result of one call (TM-03), in the same form on every interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolResultEnvelope {
    /// `contextos.tool_result.v1`.
    pub envelope_version: ResultVersion,
    /// The id of the call.
    pub tool_call_id: ToolCallId,
    /// The run that the call belongs to; absent if only the approval of the call is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// The trace that the call belongs to (W3C trace id, 32 hex digits); empty if it cannot be read.
    pub trace_id: String,
    /// The conversation that the call belongs to; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// The capability, as the caller named it; absent if the name is not a valid capability id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capability_id: Option<CapabilityId>,
    /// The idempotency key of a call that writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<IdempotencyKey>,
    /// The status of the call.
    pub status: ResultStatus,
    /// The adapter's answer; null if there is none.
    pub output: Value,
    /// The sources that the answer names.
    pub citations: Vec<Citation>,
    /// What the call changed. Never empty for a successful write.
    pub mutations: Vec<Mutation>,
    /// The policy decision that allowed or refused the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_decision_id: Option<DecisionId>,
    /// The approval that the call waits for or ran under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<ApprovalId>,
    /// The approval that a held call waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending_approval: Option<PendingApproval>,
    /// How long the call took.
    pub latency: Latency,
    /// How many times the adapter was called again after the first attempt.
    pub retries: u32,
    /// What the call cost.
    pub cost: Cost,
    /// Whether this is the recorded result of an earlier call with the same key.
    pub replayed: bool,
    /// Why the call did not succeed, or has not yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ResultError>,
    /// The W3C `traceparent` of the call's span.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_context: Option<String>,
    /// The arguments that ran, with sensitive fields masked. Present if an approver changed the arguments that were sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edited_args: Option<Value>,
    /// The masked values of `edited_args` that an approver changed, as JSON Pointers (RFC 6901) into the arguments before or after the
    /// change.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub edited_masked: BTreeSet<String>,
}

/// The approval that a held call waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PendingApproval {
    /// `pending`; or `approved` if the approvers agreed and the call has not run yet.
    pub state: String,
    /// Whether the call only waits for its caller to repeat it with a new token (see `CREDENTIAL_EXPIRED`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub awaits_credential: bool,
    /// Whether the call is approved but the tool cannot be reached. It is tried again until `expires_at`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unreachable: bool,
    /// Who has to agree. `reasons` is empty here: only approvers see the policies behind the requirement.
    pub requirement: Requirement,
    /// When the approval expires.
    pub expires_at: Timestamp,
}

/// Why a call did not succeed, or has not yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResultError {
    /// The error code.
    pub error_code: ErrorCode,
    /// What went wrong, in plain words.
    pub message: String,
    /// Whether the same request, unchanged, may succeed later.
    pub retryable: bool,
    /// What the caller should do.
    pub remediation: String,
    /// What is known about the effect of the call.
    pub execution: Execution,
    /// The parts of the request to correct.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Problem>,
    /// How long to wait before trying again, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

/// A source that an answer names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Citation {
    /// The URI of the source.
    pub uri: String,
    /// The title of the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

/// A change that a call made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mutation {
    /// The change: `create`, `update`, `delete`, or `write` if the adapter cannot tell them apart.
    pub action: String,
    /// What was changed, as the adapter names it.
    pub target: String,
}

/// How long a call took, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    /// From acceptance to the end of the call, or to the state that it is in, in milliseconds. Includes waiting for approval.
    pub total_ms: u64,
    /// Time spent in the adapter, in milliseconds: of all attempts, until the last one was answered.
    pub adapter_ms: u64,
}

/// The most that one call may be reported to have cost, in cents.
pub const COST_CENTS_MAX: u64 = 100_000_000;

/// The cost of a call: as its target reports it, otherwise as its contract states it (TM-11).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// The cost, in cents.
    pub cents: u64,
}
