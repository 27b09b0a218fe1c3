//! What callers say and read of batches, and of the runs that made them.
//!
//! Owns the wire forms.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use placet_types::{
    envelope::result::{ResultError, ResultStatus, ToolResultEnvelope},
    error::ErrorCode,
    ids::{CapabilityId, IdempotencyKey, PrincipalId, RunId, ToolCallId},
    mode::ApprovalMode,
    run_context::RunBudget,
    taint::Taint,
};

use super::views::FunctionWord;

/// The calls of one turn of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Batch {
    /// The id of the batch, such as the id of the model's answer. The same in every retry. The `Idempotency-Key` header can carry it
    /// instead. Without it, each call of a tool that writes needs a key of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_id: Option<IdempotencyKey>,
    /// The calls, in the model's order.
    #[schemars(length(min = 1, max = 64))]
    pub calls: Vec<BatchCall>,
    /// How long to wait for approvals of the calls, in milliseconds; absent: not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 600_000))]
    pub wait_ms: Option<u64>,
    /// What the run has in its context so far, as in a call.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub taint: BTreeSet<Taint>,
}

/// One call of a batch: either `tool` with `args`, or `function` with its `arguments` as a JSON text, as models send it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BatchCall {
    /// The id that the model gave to the call.
    #[schemars(length(min = 1, max = 128))]
    pub id: String,
    /// `function` if the call has a `function`.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<FunctionWord>,
    /// The function that the model calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<FunctionCall>,
    /// The tool, by its name or by its function-calling name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The arguments of `tool`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Map<String, Value>>,
    /// The idempotency key of the call; absent: derived from the run, the batch and the position of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<IdempotencyKey>,
    /// The approval mode that the planner expects the call to need, as in a call sent on its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_mode_requested: Option<ApprovalMode>,
    /// The evidence for the call, as in a call sent on its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub evidence_refs: Vec<String>,
}

impl BatchCall {
    /// The tool as it was written.
    pub(crate) fn name(&self) -> &str {
        let function = self.function.as_ref().map(|function| &function.name);
        function.or(self.tool.as_ref()).map(String::as_str).unwrap_or_default()
    }
}

/// A function call, as a model sends it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FunctionCall {
    /// The name of the function.
    pub name: String,
    /// The arguments, as a JSON text.
    pub arguments: String,
}

/// The results of a batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BatchView {
    /// The id of the run.
    pub run_id: RunId,
    /// The id of the batch; absent if it had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_id: Option<IdempotencyKey>,
    /// The iteration that the batch belongs to.
    pub iteration: u32,
    /// Whether the batch had been sent before.
    pub repeated: bool,
    /// The result of each call, in order.
    pub results: Vec<CallResult>,
    /// The sources that the results name.
    pub references: Vec<Reference>,
    /// The checks to make on answers that use the tools called so far in the run.
    pub evaluation_checks: BTreeSet<String>,
    /// The batch in numbers.
    pub debug: BatchDebug,
}

/// What became of one call of a batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CallResult {
    /// The id that the model gave to the call.
    pub id: String,
    /// The name of the tool.
    pub tool: String,
    /// The status of the call.
    pub status: ResultStatus,
    /// The result envelope; absent if the request was refused before it became a call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<ToolResultEnvelope>,
    /// Why the request was refused before it became a call; absent if it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ResultError>,
    /// The id of the earlier, equal call of the batch whose result this is; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duplicate_of: Option<String>,
    /// A warning for the orchestrator; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// The tools that the result adds to the run or removes from it; absent if the result says nothing about tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exposure: Option<Exposure>,
}

impl CallResult {
    /// Why it did not succeed.
    pub(crate) fn code(&self) -> Option<ErrorCode> {
        let of_call = self.result.as_ref().and_then(|result| result.error.as_ref());
        of_call.or(self.error.as_ref()).map(|error| error.error_code)
    }
}

/// The tools that a result adds to a run or removes from it, from the next iteration on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Exposure {
    /// The tools that were added. Tools that the run already had are not listed.
    pub added: Vec<String>,
    /// The tools that were removed.
    pub removed: Vec<String>,
    /// Why no tools were added or removed; absent if there was no error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ResultError>,
}

/// A source that a result names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reference {
    /// The id that the model gave to the call.
    pub id: String,
    /// The URI of the source.
    pub uri: String,
    /// The title of the source; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

/// A batch in numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BatchDebug {
    /// The number of calls that were made.
    pub made: u32,
    /// The number of calls that equal an earlier one of the batch.
    pub duplicates: u32,
    /// The number of calls that were refused.
    pub refused: u32,
    /// The number of calls that had not ended: they wait for approval or are being executed.
    pub pending: u32,
    /// How long the batch took, in milliseconds.
    pub took_ms: u64,
}

/// The batches of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BatchHistory {
    /// The id of the run.
    pub run_id: RunId,
    /// The last 100 batches, oldest first.
    pub batches: Vec<BatchRecord>,
}

/// A batch of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BatchRecord {
    /// The id of the batch; absent if it had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_id: Option<IdempotencyKey>,
    /// The iteration that the batch belongs to.
    pub iteration: u32,
    /// The calls, in order.
    pub calls: Vec<CallRecord>,
    /// The batch in numbers, as of the last time it was sent.
    pub debug: BatchDebug,
}

/// A call of a batch, as it was when the batch was answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CallRecord {
    /// The id that the model gave to the call.
    pub id: String,
    /// The name of the tool.
    pub tool: String,
    /// The capability; absent if the run had no such tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capability_id: Option<CapabilityId>,
    /// The id of the call, for `GET /v1/calls/{id}`; absent if the request was refused before it became a call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<ToolCallId>,
    /// The status of the call when the batch was answered.
    pub status: ResultStatus,
    /// The error code; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_code: Option<ErrorCode>,
    /// The id of the earlier, equal call of the batch; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duplicate_of: Option<String>,
}

/// The open runs of a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OpenRuns {
    /// The runs, most recently used first.
    pub runs: Vec<OpenRunView>,
    /// Whether there are more runs than are listed.
    pub more: bool,
}

/// An open run, as the people concerned see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OpenRunView {
    /// The id of the run.
    pub run_id: RunId,
    /// The agent that the run belongs to.
    pub agent: PrincipalId,
    /// The user that the run acts for; absent if the agent acts on its own authority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_behalf_of: Option<PrincipalId>,
    /// Whether the run is a session, which keeps its calls.
    pub is_session: bool,
    /// The number of the model's next turn, from 1.
    pub iteration: u32,
    /// The number of calls made in the run's last 100 batches.
    pub calls: u32,
    /// How many of them had not ended when their batch was answered.
    pub pending: u32,
    /// The strongest mode that a call of the run may have, as fixed when the run was opened.
    pub safety_mode: ApprovalMode,
    /// The budget of the run.
    pub run_budget: RunBudget,
    /// The number of calls dispatched.
    pub calls_used: u32,
    /// The amount spent, in cents.
    pub cents_used: u64,
    /// What the run has in its context.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub taint: BTreeSet<Taint>,
    /// The time since the run was last used, in milliseconds.
    pub idle_ms: u64,
    /// The last 100 batches, oldest first. Present only if the run was requested by its id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub batches: Vec<BatchRecord>,
}
