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

/// One call as its caller wrote it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Submission {
    /// The tool, `adapter__capability`.
    #[schemars(length(min = 1, max = 64))]
    pub tool: String,
    /// Its arguments.
    #[serde(default)]
    pub args: Map<String, Value>,
    /// The step of the plan; stable over retries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_id: Option<StepId>,
    /// The planner's request; stable over retries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
    /// Which call of the step it is, from 0, when a step makes several of the same tool.
    #[serde(default)]
    #[schemars(range(max = 10_000))]
    pub ordinal: u32,
    /// The key under which the effect happens at most once; the header `Idempotency-Key` says the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<IdempotencyKey>,
    /// The mode the planner believes the call has; absent: the weakest that policy gives it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_mode_requested: Option<ApprovalMode>,
    /// How long to wait, in milliseconds: for people, before answering 202 (absent: not at all); and, where the same call is under way
    /// already, for its end, before answering `IN_PROGRESS` (absent: half a minute).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 600_000))]
    pub wait_ms: Option<u64>,
    /// The channel over which to be told how the call ended, if it is held; one that the deployment has for this tenant's callers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback: Option<ChannelName>,
    /// The run.
    #[serde(deserialize_with = "json::object")]
    pub run: RunRequest,
    /// The evidence for the call: ids of earlier calls of the same run that succeeded. A tool that acts with a user's authority needs one at
    /// least.
    #[serde(default)]
    #[schemars(length(max = 32))]
    pub evidence_refs: Vec<String>,
    /// Free labels; never decided upon.
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
