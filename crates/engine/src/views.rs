//! What the listeners show of tools, records and the node.
//!
//! Owns the forms. Everything in here is for the caller it was made for: filtered by surface, tenant and Cedar before.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use placet_types::{
    clock::Timestamp,
    contract::{Capability, feature::Feature},
    envelope::result::ToolResultEnvelope,
    error::ErrorCode,
    ids::{CapabilityId, RecordId, ToolCallId},
    mode::ApprovalMode,
};

use status::StatusView;

pub mod decisions;
pub mod status;

/// A tool, as a planner sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolView {
    /// The name to call the tool by.
    pub tool: String,
    /// The capability that the tool calls.
    pub capability_id: CapabilityId,
    /// The tool's name for people, as its server gives it; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What the tool does.
    pub description: String,
    /// The JSON Schema of the arguments.
    pub input_schema: Value,
    /// The JSON Schema of the structured output; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// The strongest approval mode that a call of the tool can have.
    pub mode_highest: ApprovalMode,
    /// Whether the tool changes anything. Its calls then need an idempotency key, or a step id and a request id.
    pub writes: bool,
    /// Whether a call of the tool has to be the only one of its batch: it takes control.
    pub takes_control: bool,
    /// The MCP feature that the tool uses, if it is not a tool of the server: resources, prompts or completions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feature: Option<Feature>,
    /// The short name that the tool has now (TM-13); absent if it has none. Answers under this name may come from a cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
}

/// A capability that reads resources, gets prompts or completes arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeatureView {
    /// The operation.
    pub capability_id: CapabilityId,
    /// What it asks its server for.
    pub feature: Feature,
}

impl ToolView {
    /// The tool that a contract describes, with the alias that it allows where it has that.
    pub fn of(capability: &Capability, is_aliased: bool) -> Self {
        let alias = capability.alias.as_ref().filter(|_| is_aliased);
        Self {
            tool: capability.id.tool_name(),
            capability_id: capability.id.clone(),
            title: capability.title.clone(),
            description: capability.description.clone(),
            input_schema: capability.input_schema.clone(),
            output_schema: capability.output_schema.clone(),
            mode_highest: capability.mode_highest,
            writes: capability.is_write_class(),
            takes_control: capability.takes_control,
            feature: capability.feature(),
            alias: alias.map(|alias| alias.name.clone()),
        }
    }
}

/// The names of the states that a stored effect record can be in.
pub const RECORD_STATES: [&str; 10] = placet_ledger::record::EffectState::NAMES;

/// An effect record, as its owner or an operator sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RecordView {
    /// The id of the record.
    pub record_id: RecordId,
    /// The call that created the record.
    pub call_id: ToolCallId,
    /// The capability that was called.
    pub capability_id: CapabilityId,
    /// The agent that made the call.
    pub agent: String,
    /// The user that the agent acted for; absent if it acted on its own authority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_behalf_of: Option<String>,
    /// The state of the record.
    pub state: String,
    /// How many times the adapter was called.
    pub attempts: u32,
    /// How many times operators had the call sent again with a new dispatch token.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub arm: u32,
    /// The error code that the call ended with; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<ErrorCode>,
    /// An operator's request to send the call again, while it waits for a second operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rearm: Option<RearmView>,
    /// What resolved an unknown outcome: a late answer, a probe or an operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_by: Option<String>,
    /// When the call ended. Present only if its result is no longer kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled_at: Option<Timestamp>,
    /// When the call was first sent under this token, or under the earlier one where operators have it sent again; absent if it was not
    /// sent, or has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_at: Option<Timestamp>,
    /// The token by which the adapter can recognise the call; absent if the call was not sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatch_token: Option<String>,
    /// Why the outcome is or was unknown, or why there is no result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When the idempotency key was first used.
    pub created_at: Timestamp,
    /// When the record last changed.
    pub updated_at: Timestamp,
    /// The arguments that were or would be sent, with sensitive values masked. Absent in lists, and if they are not kept or the tool no
    /// longer exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Value>,
    /// The recorded result; absent in lists, and if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<ToolResultEnvelope>,
}

/// An operator's request to send a call again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RearmView {
    /// The operator.
    pub by: String,
    /// Why sending the call again is safe.
    pub evidence: String,
    /// When it was requested.
    pub at: Timestamp,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// An operator's request to send a call again whose outcome is unknown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RearmRequest {
    /// Why the effect did not happen, or why a second one does no harm. Kept for auditors.
    #[schemars(length(min = 1, max = 2000))]
    pub evidence: String,
}

/// An operator's resolution of an unknown outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResolutionRequest {
    /// What happened.
    pub outcome: ResolvedOutcome,
    /// How the operator found out. Kept for auditors.
    #[schemars(length(min = 1, max = 2000))]
    pub evidence: String,
    /// The result to record for the call; absent: null.
    #[serde(default)]
    pub output: Value,
}

/// What an operator found out about an unknown outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResolvedOutcome {
    /// The effect happened.
    Happened,
    /// The effect did not happen, and this call will no longer cause it.
    DidNotHappen,
}

/// Whether the engine can take calls, and why not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Readiness {
    /// Whether the engine can take calls.
    pub ready: bool,
    /// What prevents it; or notes on parts that are down while the rest works.
    pub notes: Vec<String>,
    /// The policies and contracts that are active on this node.
    pub active: StatusView,
}
