//! How a contract has a capability offered in runs, and what it tells models about it.
//!
//! Owns these keys, their limits, and the argument checks that answer with feedback for a model. Does not know runs. Invariant: a
//! check refuses, and never widens what the schema accepts.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Capability, check_text, ensure, file::CapabilityFile};
use crate::{
    argument_schema::{ArgumentSchema, is_sensitive},
    json::is_pointer,
    text::is_hidden,
};

/// The longest feedback of a check, in bytes.
const FEEDBACK_BYTES_MAX: usize = 1_024;
/// The most of each list.
const LISTED_MAX: usize = 16;
/// The longest name of an evaluation check, or of an argument that is kept, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// What to tell a model about a tool besides its definition.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PromptFile {
    /// When to use the tool, and when not.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub when_to_use: String,
    /// What the arguments mean.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub inputs: String,
    /// What the tool answers.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub outputs: String,
    /// Example arguments. Each must pass the schema.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<Map<String, Value>>,
    /// How to write an answer that uses the tool's results. Offered once a run has used the tool.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub formatting: String,
}

/// A check of the arguments besides the schema. If it fails, its feedback tells the model what to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckFile {
    /// A JSON Schema that the arguments must pass in addition, with defaults filled in.
    pub schema: Value,
    /// What to tell the model if they do not.
    pub feedback: String,
}

/// A check, compiled.
#[derive(Debug, Clone)]
pub(super) struct ArgumentCheck {
    schema: ArgumentSchema,
    feedback: String,
}

/// Checks the keys about how the capability is offered.
pub(super) fn check(
    file: &CapabilityFile,
    arguments: Option<&ArgumentSchema>,
) -> Result<(), String> {
    if let Some(prompt) = &file.prompt {
        check_prompt(prompt, arguments).map_err(|problem| format!("`prompt`: {problem}"))?;
    }
    check_names(&file.evaluation_checks)
        .map_err(|problem| format!("`evaluation_checks`: {problem}"))?;
    check_names(&file.run_keys)
        .and_then(|()| file.run_keys.iter().try_for_each(|key| check_key(file, key)))
        .map_err(|problem| format!("`run_keys`: {problem}"))?;
    ensure(
        file.exposes.as_ref().is_none_or(|text| is_pointer(text)),
        "`exposes`: must be a JSON pointer, such as `/tools`",
    )
}

impl Capability {
    /// The feedback of the checks that these arguments fail.
    pub fn feedback(&self, args: &Map<String, Value>) -> Vec<&str> {
        if self.checks.is_empty() {
            return Vec::new();
        }
        let args = Value::Object(args.clone());
        let failed = self.checks.iter().filter(|check| check.schema.validate(&args).is_err());
        failed.map(|check| check.feedback.as_str()).collect()
    }
}

pub(super) fn checks_of(files: &[CheckFile]) -> Result<Vec<ArgumentCheck>, String> {
    ensure(files.len() <= LISTED_MAX, "there may be 16")?;
    let checks = files.iter().map(|CheckFile { schema, feedback }| {
        let fits = !feedback.trim().is_empty() && feedback.len() <= FEEDBACK_BYTES_MAX;
        ensure(fits, "`feedback` must have 1 to 1024 bytes")?;
        check_text("feedback", feedback)?;
        let schema = ArgumentSchema::compile(schema).map_err(|error| error.to_string())?;
        Ok(ArgumentCheck { schema, feedback: feedback.clone() })
    });
    checks.collect()
}

fn check_prompt(prompt: &PromptFile, arguments: Option<&ArgumentSchema>) -> Result<(), String> {
    let PromptFile { when_to_use, inputs, outputs, examples, formatting } = prompt;
    for (key, text) in [
        ("when_to_use", when_to_use),
        ("inputs", inputs),
        ("outputs", outputs),
        ("formatting", formatting),
    ] {
        check_text(key, text)?;
    }
    ensure(examples.len() <= LISTED_MAX, "there may be 16 `examples`")?;
    for (number, example) in (1_usize..).zip(examples) {
        let problems = arguments
            .and_then(|schema| schema.validate(&Value::Object(example.clone())).err())
            .unwrap_or_default();
        if let Some(first) = problems.first() {
            return Err(format!("example {number} does not fit the schema: {}", first.problem));
        }
    }
    Ok(())
}

fn check_names(names: &BTreeSet<String>) -> Result<(), String> {
    let fits = |name: &String| {
        !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.chars().any(is_hidden)
    };
    ensure(
        names.len() <= LISTED_MAX && names.iter().all(fits),
        "there may be 16 names of 1 to 64 bytes",
    )
}

/// A value that is remembered is a text or a whole number that may be shown.
fn check_key(file: &CapabilityFile, key: &str) -> Result<(), String> {
    let property = file.input_schema.get("properties").and_then(|all| all.get(key));
    let property = property.ok_or_else(|| format!("there is no argument `{key}`"))?;
    let word = property.get("type").and_then(Value::as_str);
    ensure(
        matches!(word, Some("string" | "integer")),
        format!("`{key}` must have the type `string` or `integer`"),
    )?;
    ensure(
        !property.as_object().is_some_and(is_sensitive),
        format!("`{key}` is sensitive, and what a run remembers is shown"),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::contract::{Capability, Contract};

    fn capability(changes: &Value) -> Result<Capability, String> {
        let mut get = json!({
            "mode": "read_only", "effect": "none",
            "input_schema": { "type": "object", "properties": {
                "id": { "type": "string" }, "from": { "type": "integer", "default": 0 }, "to": { "type": "integer" },
                "pin": { "type": "string", "x-sensitive": true }, "tags": { "type": "array" },
            } },
        });
        get.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        let file = json!({
            "contract_version": "placet.contract.v1", "adapter": "records", "environment": "test", "tenants": "all",
            "transport": { "type": "mcp_stdio", "command": "node" }, "protocol_version": "2025-11-25",
            "capabilities": { "get": get },
        });
        let file = serde_json::from_value(file).map_err(|error| error.to_string())?;
        let contract = Contract::from_file(file).map_err(|error| error.to_string())?;
        Ok(contract.capabilities.into_values().next().unwrap())
    }

    #[test]
    fn each_check_that_fails_gives_its_feedback() {
        let checks = json!([
            { "schema": { "properties": { "id": { "pattern": "^REC-" } } }, "feedback": "Ids begin with `REC-`." },
            { "schema": { "required": ["to"] }, "feedback": "Say where it ends." },
        ]);
        let get = capability(&json!({ "checks": checks })).unwrap();
        let feedback = |args: Value| get.feedback(args.as_object().unwrap()).join(" ");
        assert_eq!(feedback(json!({ "id": "REC-1", "to": 2 })), "");
        assert_eq!(feedback(json!({ "id": "REC-1" })), "Say where it ends.");
        assert_eq!(feedback(json!({ "id": "1" })), "Ids begin with `REC-`. Say where it ends.");
    }

    #[test]
    fn what_cannot_be_meant_does_not_load() {
        for (changes, said) in [
            (json!({ "checks": [{ "schema": { "pattern": 1 }, "feedback": "x" }] }), "checks"),
            (json!({ "checks": [{ "schema": {}, "feedback": " " }] }), "1 to 1024 bytes"),
            (json!({ "checks": [{ "schema": {} }] }), "feedback"),
            (json!({ "prompt": { "examples": [{ "to": "x" }] } }), "example 1 does not fit"),
            (json!({ "prompt": { "outputs": "a\u{202e}b" } }), "`outputs` has control"),
            (json!({ "prompt": { "when": "always" } }), "when"),
            (json!({ "evaluation_checks": [""] }), "evaluation_checks"),
            (json!({ "exposes": "tools" }), "JSON pointer"),
            (json!({ "run_keys": ["ids"] }), "no argument `ids`"),
            (json!({ "run_keys": ["tags"] }), "`string` or `integer`"),
            (json!({ "run_keys": ["pin"] }), "sensitive"),
            (json!({ "alias": { "when": "always" } }), "always"),
            (json!({ "alias": { "when": "pinned" }, "also": ["delegated"] }), "mode: read_only"),
            (json!({ "alias": { "when": "pinned" }, "tool": "prompts/get" }), "only a tool"),
        ] {
            let refused = capability(&changes).unwrap_err();
            assert!(refused.contains(said), "{changes}: {refused}");
        }
        capability(&json!({
            "prompt": { "when_to_use": "Always.", "examples": [{ "id": "REC-1", "from": 2 }] },
            "exposes": "/tools", "run_keys": ["id", "from"], "evaluation_checks": ["hallucination"],
        }))
        .unwrap();
    }
}
