//! A tool's definition: as its server states it, and as a contract keeps it.
//!
//! Owns the digest that a pin holds, and which arguments a capability takes when a reviewer has changed its schema. Invariant: arguments
//! pass the reviewed schema and the server's own; neither ever widens the other.

use serde_json::{Value, json};

use super::file::CapabilityFile;
use crate::{
    argument_schema::ArgumentSchema,
    digest::Digest,
    ids::{AdapterName, CapabilityName},
    json::canonical_digest,
};

/// The definition of a tool as the live endpoint states it.
#[derive(Debug, Clone, PartialEq)]
pub struct LiveTool {
    /// Its name.
    pub name: String,
    /// Its title.
    pub title: Option<String>,
    /// Its description.
    pub description: String,
    /// The JSON Schema of its arguments.
    pub input_schema: Value,
    /// The JSON Schema of its structured output.
    pub output_schema: Option<Value>,
    /// Its annotations: hints, never trusted.
    pub annotations: Option<Value>,
    /// Whether it can only be called as a task (MCP 2025-11-25, `execution.taskSupport: required`).
    pub task_only: bool,
}

impl LiveTool {
    /// The digest a pin holds: over everything of the definition that a planner or a person may have relied on.
    pub fn digest(&self, adapter: &AdapterName) -> Digest {
        let mut definition = json!({
            "adapter": adapter,
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": self.input_schema,
            "outputSchema": self.output_schema,
            "annotations": self.annotations,
        });
        if let (true, Some(members)) = (self.task_only, definition.as_object_mut()) {
            members.insert("taskSupport".to_owned(), Value::from("required"));
        }
        canonical_digest(&definition)
    }
}

impl CapabilityFile {
    /// The tool's name at its server; `name` is the capability's.
    pub fn tool_of<'a>(&'a self, name: &'a CapabilityName) -> &'a str {
        self.tool.as_deref().unwrap_or(name.as_str())
    }

    /// The definition that the contract keeps; `name` is the capability's. It is the pinned one unless a reviewer has changed the contract.
    pub fn definition(&self, name: &CapabilityName) -> LiveTool {
        LiveTool {
            name: self.tool_of(name).to_owned(),
            title: self.title.clone(),
            description: self.description.clone(),
            input_schema: self.live_input_schema.as_ref().unwrap_or(&self.input_schema).clone(),
            output_schema: self.output_schema.clone(),
            annotations: self.server_hints.clone(),
            task_only: self.task_only,
        }
    }
}

/// Why results cannot be checked against an output schema, if they cannot. Clients check them too, and one schema that they cannot compile
/// costs some of them the whole list of tools.
pub fn unusable_output(schema: &Value) -> Option<String> {
    let error = ArgumentSchema::compile(schema).err()?;
    Some(format!("`output_schema`: {error}"))
}

/// The schemas that a capability's arguments have to pass, or why it can accept none.
pub(super) fn arguments(
    file: &CapabilityFile,
    token_argument: Option<&str>,
) -> Result<ArgumentSchema, String> {
    if file.task_only {
        return Err("its server runs it as an MCP task only, which is not supported".to_owned());
    }
    if let Some(problem) = file.output_schema.as_ref().and_then(unusable_output) {
        return Err(problem);
    }
    let reviewed =
        ArgumentSchema::compile(&file.input_schema).map_err(|error| error.to_string())?;
    let Some(live) = &file.live_input_schema else { return Ok(reviewed) };
    let live = token_argument.map_or_else(|| live.clone(), |argument| without(live, argument));
    reviewed.and(&live).map_err(|error| format!("`live_input_schema`: {error}"))
}

/// The server's schema without the argument that Placet fills in itself.
fn without(schema: &Value, argument: &str) -> Value {
    let mut schema = schema.clone();
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.remove(argument);
    }
    if let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|name| name != argument);
    }
    schema
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::contract::{Capability, Contract};

    fn contract(capabilities: &Value) -> Result<Contract, String> {
        let file = json!({
            "contract_version": "placet.contract.v1", "adapter": "mail", "environment": "test", "tenants": "all",
            "transport": { "type": "mcp_stdio", "command": "node" }, "protocol_version": "2025-11-25",
            "capabilities": capabilities,
        });
        let file = serde_json::from_value(file).map_err(|error| error.to_string())?;
        Contract::from_file(file).map_err(|error| error.to_string())
    }

    fn send(changes: &Value) -> Capability {
        let mut send = json!({
            "mode": "destructive", "effect": "write", "dedup": { "class": "opaque" },
            "input_schema": { "type": "object", "properties": { "to": { "type": "string", "pattern": "@example[.]com$" } } },
        });
        send.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        let contract = contract(&json!({ "send": send })).unwrap();
        contract.capabilities.into_values().next().unwrap()
    }

    fn takes(capability: &Capability, args: &Value) -> bool {
        capability.arguments.as_ref().unwrap().validate(args).is_ok()
    }

    #[test]
    fn arguments_pass_the_reviewed_schema_and_the_live_one() {
        let wider = json!({ "type": "object", "properties": { "to": { "type": "string" } } });
        let capability = send(&json!({ "live_input_schema": wider }));
        assert!(takes(&capability, &json!({ "to": "ana@example.com" })));
        assert!(
            !takes(&capability, &json!({ "to": "ana@evil.example" })),
            "a wider live schema won"
        );
        let stricter = json!({ "type": "object", "properties": { "to": { "type": "string", "maxLength": 16, "x-sensitive": true } } });
        let capability = send(&json!({ "live_input_schema": stricter }));
        assert!(takes(&capability, &json!({ "to": "ana@example.com" })));
        assert!(!takes(&capability, &json!({ "to": "somebody@example.com" })));
        let schema = capability.arguments.as_ref().unwrap();
        assert_eq!(schema.redact(&json!({ "to": "x" })), json!({ "to": "[sensitive]" }));
    }

    #[test]
    fn the_argument_with_the_token_is_no_argument_of_the_caller() {
        let live = json!({ "type": "object", "properties": { "to": { "type": "string" }, "key": { "type": "string" } }, "required": ["key"] });
        let keyed = json!({ "class": "keyed", "window_ms": 60_000, "argument": "key" });
        let capability = send(&json!({ "live_input_schema": live, "dedup": keyed }));
        assert!(takes(&capability, &json!({ "to": "ana@example.com" })));
    }

    #[test]
    fn a_tool_that_needs_tasks_is_not_callable() {
        let capability =
            send(&json!({ "task_only": true, "pin": format!("sha256:{}", "0".repeat(64)) }));
        assert!(!capability.is_callable());
        assert!(capability.arguments.unwrap_err().contains("MCP task"));
    }

    #[test]
    fn a_tool_whose_output_schema_cannot_be_compiled_is_not_callable() {
        let pin = format!("sha256:{}", "0".repeat(64));
        let output = |of: &str| json!({ "type": "object", "properties": { "n": { "type": of } } });
        let of = |output: Value| send(&json!({ "pin": pin, "output_schema": output }));
        assert!(of(output("string")).is_callable());
        let capability = of(output("strin"));
        assert!(!capability.is_callable());
        let why = capability.arguments.unwrap_err();
        assert!(why.starts_with("`output_schema`: `/properties/n/type`"), "{why}");
    }

    #[test]
    fn a_tool_belongs_to_one_capability() {
        let look = |tool: &str| json!({ "mode": "read_only", "effect": "none", "tool": tool, "input_schema": { "type": "object" } });
        contract(&json!({ "a": look("x/y"), "b": look("x/z") })).unwrap();
        let twice = contract(&json!({ "a": look("x/y"), "b": look("x/y") })).unwrap_err();
        assert!(twice.contains("capabilities.b: another capability"), "{twice}");
        contract(&json!({ "a": look("") })).unwrap_err();
        contract(&json!({ "a": look("x\u{202e}y") })).unwrap_err();
    }
}
