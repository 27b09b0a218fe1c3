//! Tools that can only be called as tasks (MCP 2025-11-25, `execution.taskSupport`).
//!
//! Owns how a tool list declares them: rmcp does not read `execution`, so it is copied into `_meta` before rmcp reads the message. Makes no
//! such calls.

use std::borrow::Cow;

use serde_json::{Map, Value};

/// The key of a definition's `_meta` that holds its task support.
const CARRIED: &str = "dev.placet/task-support";

/// A message as it was sent, with each tool's task support where rmcp keeps it.
pub(crate) fn carried(message: &str) -> Cow<'_, str> {
    if !message.contains("taskSupport") {
        return Cow::Borrowed(message);
    }
    let Ok(mut value) = serde_json::from_str::<Value>(message) else {
        return Cow::Borrowed(message);
    };
    let tools = value.pointer_mut("/result/tools").and_then(Value::as_array_mut);
    for tool in tools.into_iter().flatten().filter_map(Value::as_object_mut) {
        let support = tool.get("execution").and_then(|execution| execution.get("taskSupport"));
        let Some(support) = support.cloned() else { continue };
        let meta = tool.entry("_meta").or_insert_with(|| Value::Object(Map::new()));
        if let Some(meta) = meta.as_object_mut() {
            meta.insert(CARRIED.to_owned(), support);
        }
    }
    Cow::Owned(value.to_string())
}

/// Whether a definition that was read from such a message says that its tool is only called as a task.
pub(crate) fn is_required(definition: &Value) -> bool {
    let support = definition.get("_meta").and_then(|meta| meta.get(CARRIED));
    support.and_then(Value::as_str) == Some("required")
}

#[cfg(test)]
mod tests {
    use rmcp::model::{ListToolsResult, ServerJsonRpcMessage, ServerResult};
    use serde_json::{Value, json};

    use super::{carried, is_required};

    #[test]
    fn task_support_survives_the_reading_of_a_tool_list() {
        let tool = |name: &str, support: &str| {
            let mut tool = json!({ "name": name, "inputSchema": { "type": "object" } });
            tool["execution"] = json!({ "taskSupport": support });
            tool
        };
        let tools = [tool("a", "required"), tool("b", "optional")];
        let message =
            json!({ "jsonrpc": "2.0", "id": 1, "result": { "tools": tools } }).to_string();
        let ServerJsonRpcMessage::Response(read) =
            serde_json::from_str(&carried(&message)).unwrap()
        else {
            panic!("not a response");
        };
        let ServerResult::ListToolsResult(ListToolsResult { tools, .. }) = read.result else {
            panic!("not a list of tools");
        };
        let required: Vec<bool> =
            tools.iter().map(|tool| is_required(&serde_json::to_value(tool).unwrap())).collect();
        assert_eq!(required, [true, false]);
        assert!(!is_required(&Value::Null));
    }
}
