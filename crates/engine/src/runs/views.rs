//! What callers say and read of their runs.
//!
//! Owns the wire forms. The shape of function calling is that of the OpenAI API, which every framework speaks.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use placet_types::{
    ids::{RunId, SessionId},
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

/// How a run is opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OpenRun {
    /// The run, as in a call: its ceiling and budget are fixed by this.
    #[serde(deserialize_with = "json::object")]
    pub run: RunRequest,
    /// The tools that were chosen for it: nothing else is offered in its first iteration. Empty: whatever the caller may use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub tools: Vec<String>,
    /// Tools that it has in any case, and that its model is to be made to call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub forced_tools: Vec<FunctionChoice>,
    /// What its model may choose. All but `auto` and `none` hold for the first iteration alone.
    #[serde(default)]
    pub tool_choice: ToolChoice,
    /// The most calls of one batch.
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

/// What a model may choose.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "`auto`, `required`, `none` or {\"type\":\"function\",\"function\":{\"name\":…}} is expected"
)]
pub enum ToolChoice {
    /// One of the words.
    Word(ChoiceWord),
    /// This tool and no other.
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
    /// Tools or none.
    Auto,
    /// At least one tool.
    Required,
    /// No tool.
    None,
}

/// A tool, in the shape of function calling.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FunctionChoice {
    /// `function`.
    #[serde(rename = "type")]
    pub kind: FunctionWord,
    /// Which one.
    pub function: FunctionName,
}

impl FunctionChoice {
    /// The choice of the tool of this name.
    #[must_use]
    pub fn of(name: String) -> Self {
        Self { kind: FunctionWord::Function, function: FunctionName { name } }
    }
}

/// The word `function`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FunctionWord {
    /// A function is called.
    Function,
}

/// The name of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FunctionName {
    /// The name, as a definition gave it.
    pub name: String,
}

/// A change of a run's tools by its caller.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ToolsChange {
    /// Tools that it has from now on, and that its model is to be made to call.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub force: Vec<FunctionChoice>,
    /// Tools that it has no more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub exclude: Vec<String>,
}

/// What a change of a run's tools came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolsChanged {
    /// All tools that are forced now.
    pub forced_tools: Vec<FunctionChoice>,
    /// What was excluded.
    pub excluded: Vec<Excluded>,
}

/// A tool that was excluded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Excluded {
    /// As it was named.
    pub tool: String,
    /// Whether the run had it.
    pub was_there: bool,
}

/// How a run stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunView {
    /// The run.
    pub run_id: RunId,
    /// The conversation it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// Its ceiling, within what the caller's classes allow.
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
    /// Which turn of its model is next, from 1.
    pub iteration: u32,
    /// The most calls of one batch.
    pub calls_per_batch_max: u32,
    /// What its model may choose in this iteration.
    pub tool_choice: ToolChoice,
    /// The tools of this iteration.
    pub tools: Vec<String>,
    /// Tools that its model is to be made to call.
    pub forced_tools: Vec<FunctionChoice>,
    /// Tools that its caller excluded.
    pub excluded_tools: Vec<String>,
    /// What is to be checked about answers that use the tools called so far.
    pub evaluation_checks: BTreeSet<String>,
}

/// In which form tools are described.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolsFormat {
    /// As functions of the OpenAI API: a name has letters, digits, `_` and `-` only.
    Openai,
    /// As a tool list of MCP.
    Mcp,
    /// As `GET /v1/tools`.
    Plain,
}

/// What a model is offered at its next turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunTools {
    /// The run.
    pub run_id: RunId,
    /// The iteration that this is for.
    pub iteration: u32,
    /// The form of `tools`.
    pub format: ToolsFormat,
    /// The definitions, in that form.
    pub tools: Vec<Value>,
    /// What the model may choose.
    pub tool_choice: ToolChoice,
    /// Tools that it is to be made to call.
    pub forced_tools: Vec<FunctionChoice>,
    /// What the model is told beside the definitions.
    pub prompts: Vec<ToolPrompt>,
    /// How to write answers that use the tools called so far.
    pub formatting: Vec<ToolFormatting>,
}

/// What a model is told of a tool beside its definition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolPrompt {
    /// The tool, as its definition names it.
    pub tool: String,
    /// When to use it, and when not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub when_to_use: String,
    /// What its arguments mean.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub inputs: String,
    /// What it answers.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub outputs: String,
    /// Arguments as an example.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<Map<String, Value>>,
}

/// How to write answers that use a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolFormatting {
    /// The tool.
    pub tool: String,
    /// How.
    pub formatting: String,
}
