//! What the API accepts: a call as its caller wrote it, strictly parsed.
//!
//! Owns the wire form of `POST /v1/calls`. Does not interpret it: the build stage does. Says nothing about who calls.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use placet_types::{
    ids::{ChannelName, IdempotencyKey, RequestId, StepId},
    json,
    mode::ApprovalMode,
    run_context::RunRequest,
};

/// The most labels a call may carry.
pub const LABELS_MAX: usize = 32;
/// The longest label or evidence reference, in bytes.
pub const LABEL_BYTES_MAX: usize = 512;

/// A call, as its caller sends it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Submission {
    /// The name of the tool, as `adapter__capability`.
    #[schemars(length(min = 1, max = 64))]
    pub tool: String,
    /// The arguments of the tool. Default: no arguments.
    #[serde(default)]
    pub args: Map<String, Value>,
    /// The id of the plan step. The same in every retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_id: Option<StepId>,
    /// The id of the planner's request. The same in every retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
    /// The number of the call within its step, from 0, if the step calls the same tool several times. Default: 0.
    #[serde(default)]
    #[schemars(range(max = 10_000))]
    pub ordinal: u32,
    /// The idempotency key: the effect happens at most once per key. The `Idempotency-Key` header can carry it instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<IdempotencyKey>,
    /// The approval mode that the planner expects the call to need. Absent: the weakest mode that policy gives it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_mode_requested: Option<ApprovalMode>,
    /// How long to wait, in milliseconds: for an approval before answering 202 (absent: not at all); and, if the same call is already being
    /// executed, for its end before answering `IN_PROGRESS` (absent: 30,000).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 600_000))]
    pub wait_ms: Option<u64>,
    /// The channel on which to report how a held call ended. It must be one that the deployment offers to callers of this tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback: Option<ChannelName>,
    /// The run that the call belongs to.
    #[serde(deserialize_with = "json::object")]
    pub run: RunRequest,
    /// The evidence for the call: ids of earlier successful calls of the same run. A tool that acts with a user's authority needs at least
    /// one.
    #[serde(default)]
    #[schemars(length(max = 32))]
    pub evidence_refs: Vec<String>,
    /// Free-form labels. No decision depends on them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BTreeMap<String, String>>,
}

/// The trace a call arrives in.
#[derive(Debug, Clone, Default)]
pub struct Inbound {
    /// The caller's `traceparent` header.
    pub traceparent: Option<String>,
    /// The caller's `tracestate` header.
    pub tracestate: Option<String>,
}
