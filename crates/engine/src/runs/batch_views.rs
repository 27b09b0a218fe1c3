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
    /// The batch; stable over retries, such as the id of the model's answer. The header `Idempotency-Key` says the same. Without it a tool
    /// that writes needs a key of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_id: Option<IdempotencyKey>,
    /// The calls, in the order of the model.
    #[schemars(length(min = 1, max = 64))]
    pub calls: Vec<BatchCall>,
    /// How long to wait for people who are asked about a call, in milliseconds; absent: not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 600_000))]
    pub wait_ms: Option<u64>,
    /// What the run has in its context by now, as in a call.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub taint: BTreeSet<Taint>,
}

/// One call: in the words of Placet, `tool` and `args`, or as a model answers it, `function` with `arguments` in a text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BatchCall {
    /// The id that the model gave it.
    #[schemars(length(min = 1, max = 128))]
    pub id: String,
    /// `function`, where it is one.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<FunctionWord>,
    /// The function that the model calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<FunctionCall>,
    /// The tool, by its name or its name for function calling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Its arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Map<String, Value>>,
    /// The key under which its effect happens at most once; absent: derived from the run, the batch and the call's place in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<IdempotencyKey>,
    /// As in a call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_mode_requested: Option<ApprovalMode>,
    /// As in a call.
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

/// A call as a model answers it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FunctionCall {
    /// The name of the function.
    pub name: String,
    /// Its arguments, as JSON in a text.
    pub arguments: String,
}

/// What became of a batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BatchView {
    /// The run.
    pub run_id: RunId,
    /// The batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_id: Option<IdempotencyKey>,
    /// The iteration that it was of.
    pub iteration: u32,
    /// Whether this batch was sent before.
    pub repeated: bool,
    /// What became of each call, in order.
    pub results: Vec<CallResult>,
    /// Sources that the results name.
    pub references: Vec<Reference>,
    /// What is to be checked about answers that use the tools which the run has called so far.
    pub evaluation_checks: BTreeSet<String>,
    /// What happened, in numbers.
    pub debug: BatchDebug,
}

/// What became of one call of a batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CallResult {
    /// The id that the model gave the call.
    pub id: String,
    /// The tool.
    pub tool: String,
    /// How the call stands.
    pub status: ResultStatus,
    /// Its result; absent where it was refused before it was a call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<ToolResultEnvelope>,
    /// Why it was refused before it was a call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ResultError>,
    /// The call before it that it is equal to, and whose result this is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duplicate_of: Option<String>,
    /// What the orchestrator should know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// Which tools the run gets and loses by its result.
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

/// Which tools a run gets and loses for its next iteration by a result.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Exposure {
    /// Tools that were added; those that were there are not named.
    pub added: Vec<String>,
    /// Tools that were removed.
    pub removed: Vec<String>,
    /// Why nothing was added or removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ResultError>,
}

/// A source that a result names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reference {
    /// The id that the model gave the call.
    pub id: String,
    /// Where the source is.
    pub uri: String,
    /// What it is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

/// A batch in numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BatchDebug {
    /// Calls that were made.
    pub made: u32,
    /// Calls that were equal to one before them.
    pub duplicates: u32,
    /// Calls that were not executed.
    pub refused: u32,
    /// Calls that wait for people.
    pub pending: u32,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
}

/// The batches of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BatchHistory {
    /// The run.
    pub run_id: RunId,
    /// Its batches, oldest first: the last hundred.
    pub batches: Vec<BatchRecord>,
}

/// A batch that was sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BatchRecord {
    /// The batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_id: Option<IdempotencyKey>,
    /// The iteration that it was of.
    pub iteration: u32,
    /// Its calls, in order.
    pub calls: Vec<CallRecord>,
    /// In numbers, as it was sent last.
    pub debug: BatchDebug,
}

/// A call of a batch, as it stood when the batch was answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CallRecord {
    /// The id that the model gave it.
    pub id: String,
    /// The tool.
    pub tool: String,
    /// The operation; absent where the run had no such tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capability_id: Option<CapabilityId>,
    /// The call; ask `GET /v1/calls/{id}` how it stands now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<ToolCallId>,
    /// How it stood.
    pub status: ResultStatus,
    /// Why it did not succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_code: Option<ErrorCode>,
    /// The call before it that it was equal to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duplicate_of: Option<String>,
}

/// Open runs of a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OpenRuns {
    /// The runs, the one used last first.
    pub runs: Vec<OpenRunView>,
    /// Whether there are more than are shown.
    pub more: bool,
}

/// An open run, as those see it whom it concerns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OpenRunView {
    /// The run.
    pub run_id: RunId,
    /// Whose it is.
    pub agent: PrincipalId,
    /// The user for whom it acts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_behalf_of: Option<PrincipalId>,
    /// Whether it is a session, which keeps its calls.
    pub is_session: bool,
    /// Which turn of its model is next, from 1.
    pub iteration: u32,
    /// How many calls of its batches were made.
    pub calls: u32,
    /// How many of them waited for people when their batch was answered.
    pub pending: u32,
    /// Its ceiling, as it was opened with.
    pub safety_mode: ApprovalMode,
    /// What it may use up.
    pub run_budget: RunBudget,
    /// Calls dispatched.
    pub calls_used: u32,
    /// Cents spent.
    pub cents_used: u64,
    /// What it has in its context.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub taint: BTreeSet<Taint>,
    /// For how long nobody has asked about it, in milliseconds.
    pub idle_ms: u64,
    /// Its batches, oldest first, where it was asked for by name: the last hundred.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub batches: Vec<BatchRecord>,
}
