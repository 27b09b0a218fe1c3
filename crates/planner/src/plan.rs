//! The document of a plan.
//!
//! Owns its members, their limits, the tool choice and the client of its model. Not here: reading the file.

use std::fmt;

use http::{HeaderValue, header};
use placet_chat::ChatClient;
use placet_egress::{Destination, EgressClient, EgressPolicy, Limits as HttpLimits, PrivateRanges};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use url::Url;

/// Characters of the strategic plan that the model reads.
const STRATEGIC_PLAN_CHARS_MAX: usize = 1_500;
const DESCRIPTIONS_MAX: usize = 256;
const TEXT_BYTES_MAX: usize = 64 * 1024;
/// The most calls in one batch of Placet.
const CALLS_PER_BATCH_MAX: usize = 64;

/// What is to be done, with which model and which tools.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The model.
    pub model: Model,
    /// The first instructions for the model.
    #[serde(default)]
    pub system_prompt: String,
    /// The larger plan that the task is a part of; the model reads the first 1,500 characters of its JSON.
    #[serde(default)]
    pub strategic_plan: Option<Value>,
    /// The tools that the model may call, and no others (PL-01). Without any: all that the run offers.
    #[serde(default)]
    pub tool_descriptions: Vec<ToolDescription>,
    /// Whether the model is offered functions; otherwise the tools are described in words, and it answers in JSON.
    #[serde(default = "is_true")]
    pub use_function_calling: bool,
    /// The most calls of one answer, 1 to 64 (PL-02); further ones are cut off.
    #[serde(default = "default_parallel")]
    pub max_parallel_tool_calls: usize,
    /// `auto`, `required`, `none` or `{"type":"function","function":{"name":…}}` (PL-03); default `auto`. Forced in the first iteration.
    /// Without function calling: `auto` or `none`.
    #[serde(default)]
    pub tool_choice: Option<Value>,
    /// The highest mode of the run's calls, as in a call; absent: what the agent's class allows.
    #[serde(default)]
    pub safety_mode: Option<String>,
    /// The budget of the run, as in a call.
    #[serde(default)]
    pub run_budget: Option<Value>,
    /// When the plan ends without an answer.
    #[serde(default)]
    pub limits: Limits,
}

/// Which model.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// The endpoint, up to `/chat/completions`: `https://api.openai.com/v1`.
    pub url: Url,
    /// The model's name there.
    pub name: String,
    /// The environment variable with the bearer key; if it is not set, no key is sent.
    #[serde(default = "default_key_variable")]
    pub key_variable: String,
}

/// A tool in words.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolDescription {
    /// Its name for the model: that of the tool, or the part after `__` where only one tool has it.
    pub name: String,
    /// What it does.
    #[serde(default)]
    pub description: String,
    /// Its arguments, where Placet knows no schema: strings, all of them required.
    #[serde(default)]
    pub args: Vec<String>,
}

/// When a plan ends without an answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Answers of the model, 1 to 1,000.
    pub iterations_max: u32,
    /// Tokens of all requests and answers together, as the endpoint counts them.
    pub tokens_max: u64,
    /// Seconds of work; time in which the plan waits for people does not count. A model that has not answered by then is left.
    pub seconds_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { iterations_max: 20, tokens_max: 200_000, seconds_max: 600 }
    }
}

const fn is_true() -> bool {
    true
}

const fn default_parallel() -> usize {
    8
}

fn default_key_variable() -> String {
    "OPENAI_API_KEY".to_owned()
}

/// Why a plan cannot be followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{key}` {problem}")]
pub struct PlanError {
    /// The member.
    pub key: &'static str,
    /// What is wrong with it.
    pub problem: String,
}

/// A model may think for a long time.
const REQUEST_MS_MAX: u64 = 300_000;

impl Model {
    /// The client of this model, with this key if there is one.
    ///
    /// # Errors
    /// [`PlanError`] when the URL or the key cannot be used.
    pub fn client(&self, key: Option<&SecretString>) -> Result<ChatClient, PlanError> {
        let unusable = |error: &dyn fmt::Display| PlanError {
            key: "model.url",
            problem: format!("cannot be used: {error}"),
        };
        // The author of the plan named the host, so a private one is permitted.
        let destination = Destination::from_url(&self.url, PrivateRanges::Allowed)
            .map_err(|error| unusable(&error))?;
        let limits = HttpLimits { request_timeout_ms: REQUEST_MS_MAX, ..HttpLimits::default() };
        let http = EgressClient::new(EgressPolicy::new(vec![destination]), limits);
        let http = http.map_err(|error| unusable(&error))?;
        let client =
            ChatClient::new(http, &self.url, &self.name).map_err(|error| unusable(&error))?;
        let Some(key) = key else { return Ok(client) };
        let value = HeaderValue::try_from(format!("Bearer {}", key.expose_secret().trim()));
        let value = value.map_err(|_not_a_header| PlanError {
            key: "model.key_variable",
            problem: "names a key with characters that no header has".to_owned(),
        })?;
        Ok(client.with_credential(header::AUTHORIZATION, value))
    }
}

impl Plan {
    /// Checks what the format alone does not guarantee.
    ///
    /// # Errors
    /// [`PlanError`] names the first member that is out of bounds.
    pub fn check(&self) -> Result<(), PlanError> {
        let refuse = |key, problem: &str| Err(PlanError { key, problem: problem.to_owned() });
        if self.model.name.is_empty() {
            return refuse("model.name", "is empty");
        }
        if self.model.key_variable.starts_with("PLACET_") {
            return refuse(
                "model.key_variable",
                "is a variable of Placet itself, which no model gets",
            );
        }
        if self.system_prompt.len() > TEXT_BYTES_MAX {
            return refuse("system_prompt", "is longer than 64 KiB");
        }
        if self.tool_descriptions.len() > DESCRIPTIONS_MAX {
            return refuse("tool_descriptions", "has more than 256 tools");
        }
        let mut names: Vec<&str> =
            self.tool_descriptions.iter().map(|tool| tool.name.as_str()).collect();
        names.sort_unstable();
        if names.windows(2).any(|pair| pair.first() == pair.last()) {
            return refuse("tool_descriptions", "names a tool twice");
        }
        if !names.iter().all(|name| is_function_name(name)) {
            return refuse(
                "tool_descriptions",
                "has a name that is not 1 to 64 letters, digits, `_` and `-`",
            );
        }
        if !(1..=CALLS_PER_BATCH_MAX).contains(&self.max_parallel_tool_calls) {
            return refuse("max_parallel_tool_calls", "is not between 1 and 64");
        }
        if !(1..=1_000).contains(&self.limits.iterations_max) {
            return refuse("limits.iterations_max", "is not between 1 and 1,000");
        }
        let Some(choice) = &self.tool_choice else { return Ok(()) };
        if !is_choice(choice) {
            return refuse(
                "tool_choice",
                r#"is not `auto`, `required`, `none` or {"type":"function","function":{"name":"…"}}"#,
            );
        }
        if !self.use_function_calling && choice != "auto" && choice != "none" {
            return refuse(
                "tool_choice",
                "is neither `auto` nor `none`, and anything else needs `use_function_calling`",
            );
        }
        Ok(())
    }

    /// The plan with another tool choice: the value of `OPENAI_TOOL_CHOICE`, a word or an object in JSON.
    ///
    /// # Errors
    /// [`PlanError`] if it is not a tool choice.
    pub fn with_tool_choice(self, text: &str) -> Result<Self, PlanError> {
        let choice = serde_json::from_str(text).unwrap_or_else(|_a_word| json!(text));
        let plan = Self { tool_choice: Some(choice), ..self };
        plan.check()?;
        Ok(plan)
    }

    /// The first message: the system prompt, and the beginning of the strategic plan.
    pub(crate) fn system_message(&self) -> String {
        let Some(strategic) = &self.strategic_plan else { return self.system_prompt.clone() };
        let strategic = serde_json::to_string_pretty(strategic).unwrap_or_default();
        let cut: String = strategic.chars().take(STRATEGIC_PLAN_CHARS_MAX).collect();
        format!("{}\n\nSTRATEGIC PLAN:\n{cut}\n", self.system_prompt.trim_end())
    }
}

fn is_function_name(name: &str) -> bool {
    let fits = |character: char| character.is_ascii_alphanumeric() || "_-".contains(character);
    (1..=64).contains(&name.len()) && name.chars().all(fits)
}

fn is_choice(choice: &Value) -> bool {
    match choice.as_str() {
        Some(word) => ["auto", "required", "none"].contains(&word),
        None => choice.pointer("/function/name").is_some_and(Value::is_string),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::Plan;

    fn plan(more: &Value) -> Plan {
        let mut document = json!({ "model": { "url": "http://127.0.0.1:1/v1", "name": "m" } });
        for (key, value) in more.as_object().unwrap() {
            document[key] = value.clone();
        }
        serde_json::from_value(document).unwrap()
    }

    #[test]
    fn the_strategic_plan_is_cut_to_1500_characters() {
        let long = plan(
            &json!({ "system_prompt": "Be brief.", "strategic_plan": { "goal": "ä".repeat(5_000) } }),
        );
        let message = long.system_message();
        let (before, strategic) = message.split_once("STRATEGIC PLAN:\n").unwrap();
        assert_eq!(before, "Be brief.\n\n");
        assert_eq!(strategic.trim_end().chars().count(), 1_500);
        assert_eq!(plan(&json!({ "system_prompt": "Be brief." })).system_message(), "Be brief.");
    }

    #[test]
    fn what_is_out_of_bounds_is_named() {
        let refused = |more: Value| plan(&more).check().unwrap_err().key;
        assert_eq!(refused(json!({ "max_parallel_tool_calls": 0 })), "max_parallel_tool_calls");
        assert_eq!(refused(json!({ "tool_choice": "sometimes" })), "tool_choice");
        let in_words = json!({ "use_function_calling": false, "tool_choice": "required" });
        assert_eq!(refused(in_words), "tool_choice");
        let none = json!({ "use_function_calling": false, "tool_choice": "none" });
        assert_eq!(plan(&none).check(), Ok(()));
        assert_eq!(refused(json!({ "limits": { "iterations_max": 0 } })), "limits.iterations_max");
        let twice = json!([{ "name": "a" }, { "name": "a" }]);
        assert_eq!(refused(json!({ "tool_descriptions": twice })), "tool_descriptions");
        let dotted = json!([{ "name": "a.b" }]);
        assert_eq!(refused(json!({ "tool_descriptions": dotted })), "tool_descriptions");
    }

    #[test]
    fn the_environment_overrides_the_tool_choice() {
        let chosen = |text: &str| plan(&json!({ "tool_choice": "none" })).with_tool_choice(text);
        assert_eq!(chosen("required").unwrap().tool_choice, Some(json!("required")));
        let named = json!({ "type": "function", "function": { "name": "search" } });
        assert_eq!(chosen(&named.to_string()).unwrap().tool_choice, Some(named));
        assert_eq!(chosen("perhaps").unwrap_err().key, "tool_choice");
    }
}
