//! What callers say and read of their runs.
//!
//! Owns the wire forms. The shape of function calling is that of the OpenAI API, which every framework speaks.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use placet_types::{
    ids::{PrincipalId, RunId, SessionId},
    json,
    mode::ApprovalMode,
    run_context::{RunBudget, RunRequest},
    taint::Taint,
};

/// The most tools that a request may name in one list.
pub const TOOLS_NAMED_MAX: usize = 128;
/// The most calls of a batch, and how many if the run does not say.
pub const CALLS_PER_BATCH_MAX: u32 = 64;
const CALLS_PER_BATCH_DEFAULT: u32 = 16;

/// A request to open a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OpenRun {
    /// The run, as in a call. This fixes its safety mode and budget.
    #[serde(deserialize_with = "json::object")]
    pub run: RunRequest,
    /// The tools chosen for the run. In its first iteration only these and the forced ones are offered. Empty: no restriction.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub tools: Vec<String>,
    /// Tools that the run always has, and that its model must be made to call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub forced_tools: Vec<FunctionChoice>,
    /// What the model may choose; default: `auto`. All values but `auto` and `none` apply to the first iteration only.
    #[serde(default)]
    pub tool_choice: ToolChoice,
    /// The maximum number of calls in one batch. Default: 16.
    #[serde(default = "default_calls")]
    #[schemars(range(min = 1, max = 64))]
    pub calls_per_batch_max: u32,
}

impl OpenRun {
    /// A run that has everything its caller may use.
    pub(crate) fn of_all(run: RunRequest, calls_per_batch_max: u32) -> Self {
        let (tools, forced_tools) = (Vec::new(), Vec::new());
        let tool_choice = ToolChoice::default();
        Self { run, tools, forced_tools, tool_choice, calls_per_batch_max }
    }
}

const fn default_calls() -> u32 {
    CALLS_PER_BATCH_DEFAULT
}

/// Which tools a model may choose.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "`auto`, `required`, `none` or {\"type\":\"function\",\"function\":{\"name\":…}} is expected"
)]
pub enum ToolChoice {
    /// A choice that names no tool.
    Word(ChoiceWord),
    /// This tool, and no other.
    Function(FunctionChoice),
}

impl Default for ToolChoice {
    fn default() -> Self {
        Self::Word(ChoiceWord::Auto)
    }
}

/// A choice that names no tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChoiceWord {
    /// Any tools, or none.
    Auto,
    /// At least one tool.
    Required,
    /// No tools.
    None,
}

/// A tool, in the format of function calling.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FunctionChoice {
    /// Always `function`.
    #[serde(rename = "type")]
    pub kind: FunctionWord,
    /// The function.
    pub function: FunctionName,
}

impl FunctionChoice {
    /// The choice of the tool of this name.
    pub fn of(name: String) -> Self {
        Self { kind: FunctionWord::Function, function: FunctionName { name } }
    }
}

/// The word `function`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FunctionWord {
    /// A function.
    Function,
}

/// The name of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FunctionName {
    /// The name, as in the tool's definition.
    pub name: String,
}

/// A change to the tools of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ToolsChange {
    /// Tools to add to the run, which its model must be made to call.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub force: Vec<FunctionChoice>,
    /// Tools to remove from the run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub exclude: Vec<String>,
}

/// The result of a change to the tools of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolsChanged {
    /// All tools that are forced now.
    pub forced_tools: Vec<FunctionChoice>,
    /// The tools that the change named for exclusion.
    pub excluded: Vec<Excluded>,
}

/// A tool that was named for exclusion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Excluded {
    /// The tool, as the request named it.
    pub tool: String,
    /// Whether the run had the tool.
    pub was_there: bool,
}

/// The state of an open run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunView {
    /// The id of the run.
    pub run_id: RunId,
    /// The agent that the run belongs to.
    pub agent: PrincipalId,
    /// The user that the run acts for; absent if the agent acts on its own authority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_behalf_of: Option<PrincipalId>,
    /// The conversation that the run belongs to; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// The strongest mode that a call of the run may have: the run's own limit, or less if the caller's classes now allow less.
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
    /// The number of the model's next turn, from 1.
    pub iteration: u32,
    /// The maximum number of calls in one batch.
    pub calls_per_batch_max: u32,
    /// Which tools the model may choose in this iteration.
    pub tool_choice: ToolChoice,
    /// The tools of this iteration.
    pub tools: Vec<String>,
    /// The tools that the model must be made to call.
    pub forced_tools: Vec<FunctionChoice>,
    /// The tools that the caller excluded.
    pub excluded_tools: Vec<String>,
    /// The checks to make on answers that use the tools called so far.
    pub evaluation_checks: BTreeSet<String>,
}

/// The format of tool definitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolsFormat {
    /// Functions of the OpenAI API. Names have only letters, digits, `_` and `-`.
    Openai,
    /// A tool list of MCP.
    Mcp,
    /// The format of `GET /v1/tools`.
    Plain,
}

/// The tools to offer to the model at its next turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunTools {
    /// The id of the run.
    pub run_id: RunId,
    /// The number of the turn, from 1.
    pub iteration: u32,
    /// The format of `tools`.
    pub format: ToolsFormat,
    /// The tool definitions, in that format.
    pub tools: Vec<Value>,
    /// Which tools the model may choose.
    pub tool_choice: ToolChoice,
    /// The tools that the model must be made to call.
    pub forced_tools: Vec<FunctionChoice>,
    /// What to tell the model about the tools besides their definitions.
    pub prompts: Vec<ToolPrompt>,
    /// How to write answers that use the tools called so far.
    pub formatting: Vec<ToolFormatting>,
}

/// What to tell a model about a tool besides its definition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolPrompt {
    /// The name of the tool, as in its definition.
    pub tool: String,
    /// When to use the tool, and when not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub when_to_use: String,
    /// What the arguments mean.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub inputs: String,
    /// What the tool answers.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub outputs: String,
    /// Example arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<Map<String, Value>>,
}

/// How to write answers that use a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolFormatting {
    /// The name of the tool.
    pub tool: String,
    /// How to write the answers.
    pub formatting: String,
}
