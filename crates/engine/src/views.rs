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

/// A tool as a planner sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolView {
    /// The name to call it by.
    pub tool: String,
    /// The operation.
    pub capability_id: CapabilityId,
    /// What it does.
    pub description: String,
    /// The JSON Schema of its arguments.
    pub input_schema: Value,
    /// The JSON Schema of its structured output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// The strongest mode it can have.
    pub mode_highest: ApprovalMode,
    /// Whether it changes anything, and so needs a key or a step and request id.
    pub writes: bool,
    /// What it asks an MCP server for, where that is no tool of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feature: Option<Feature>,
    /// The short name that it has at this moment (TM-13), under which answers may come from a cache.
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
    #[must_use]
    pub fn of(capability: &Capability, is_aliased: bool) -> Self {
        let alias = capability.alias.as_ref().filter(|_| is_aliased);
        Self {
            tool: capability.id.tool_name(),
            capability_id: capability.id.clone(),
            description: capability.description.clone(),
            input_schema: capability.input_schema.clone(),
            output_schema: capability.output_schema.clone(),
            mode_highest: capability.mode_highest,
            writes: capability.is_write_class(),
            feature: capability.feature(),
            alias: alias.map(|alias| alias.name.clone()),
        }
    }
}

/// The names of the states that a stored effect record can be in.
pub const RECORD_STATES: [&str; 10] = placet_ledger::record::EffectState::NAMES;

/// An effect record as its owner or an operator sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RecordView {
    /// The record.
    pub record_id: RecordId,
    /// The call that made it.
    pub call_id: ToolCallId,
    /// The operation.
    pub capability_id: CapabilityId,
    /// The agent.
    pub agent: String,
    /// The user it acted for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_behalf_of: Option<String>,
    /// The state's name.
    pub state: String,
    /// How often the adapter was called.
    pub attempts: u32,
    /// How often operators had the call sent again under a new token.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub arm: u32,
    /// The error code it ended with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<ErrorCode>,
    /// The operator who asks for it to be sent again, while nobody else has agreed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rearm: Option<RearmView>,
    /// By what an outcome that was unknown came to light.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_by: Option<String>,
    /// When it had come to its end, of a record whose result is no longer kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled_at: Option<Timestamp>,
    /// What the adapter could recognise the call by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatch_token: Option<String>,
    /// Why the outcome is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When the key was first seen.
    pub created_at: Timestamp,
    /// When the record last moved.
    pub updated_at: Timestamp,
    /// The arguments as they were, or would be, sent, sensitive ones masked; absent in lists, and where they are not kept or their tool is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Value>,
    /// The recorded result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<ToolResultEnvelope>,
}

/// An operator's word for sending a call again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RearmView {
    /// Who.
    pub by: String,
    /// What makes them sure.
    pub evidence: String,
    /// When.
    pub at: Timestamp,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// How an operator asks for a call to be sent again whose outcome is unknown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RearmRequest {
    /// What makes sure that it did not happen, or that twice does no harm; kept for the auditor.
    #[schemars(length(min = 1, max = 2000))]
    pub evidence: String,
}

/// How an operator ends an unknown outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResolutionRequest {
    /// What the operator found.
    pub outcome: ResolvedOutcome,
    /// How it was found; kept for the auditor.
    #[schemars(length(min = 1, max = 2000))]
    pub evidence: String,
    /// What the call's result shall be; absent: null.
    #[serde(default)]
    pub output: Value,
}

/// What an operator found about an unknown outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResolvedOutcome {
    /// The effect happened.
    Happened,
    /// The effect did not happen, and will not by this call.
    DidNotHappen,
}

/// What a node has minted and keeps. No credential is in it, and nothing that one could be guessed from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CredentialsView {
    /// The token services.
    pub services: Vec<String>,
    /// Credentials that they issued since the start.
    pub minted: u64,
    /// Calls that were made with one that was there.
    pub reused: u64,
    /// Calls that got none.
    pub refused: u64,
    /// How many are kept for further calls now.
    pub kept: usize,
    /// How many subjects have tokens that are revoked now, in all tenants.
    pub revoked: usize,
}

/// Whether the engine can take calls, and why not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Readiness {
    /// Whether it can.
    pub ready: bool,
    /// What stands in the way; or notes on parts that are down without stopping the rest.
    pub notes: Vec<String>,
    /// What decides on this node.
    pub active: StatusView,
}
