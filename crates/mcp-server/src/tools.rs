//! The tools a client sees: one name per capability, only those that some circumstance could let this caller call.
//!
//! Owns their names, their form and the paging. A tool is `adapter__capability`; where only one adapter is served, it has the server's own
//! name. Describes a tool only by its contract.

use std::sync::Arc;

use rmcp::{
    ErrorData,
    model::{JsonObject, ListToolsResult, Tool, ToolAnnotations},
};
use serde_json::{Value, json};

use placet_engine::views::ToolView;
use placet_types::{ids::AdapterName, mode::ApprovalMode};

/// The built-in tool that waits for a call that is held.
pub(crate) const AWAIT: &str = "placet__await";
/// How many tools one page has.
const PAGE: usize = 200;

/// One page of the tools, of `adapter` alone if it is given.
pub(crate) fn page(
    mut tools: Vec<ToolView>,
    adapter: Option<&AdapterName>,
    cursor: Option<&str>,
) -> Result<ListToolsResult, ErrorData> {
    tools.retain(|tool| {
        let is_here = adapter.is_none_or(|adapter| tool.capability_id.adapter() == adapter);
        tool.feature.is_none() && is_here
    });
    for tool in &mut tools {
        if adapter.is_some() {
            tool.tool = tool.capability_id.capability().to_string();
        }
    }
    tools.sort_by(|one, other| one.tool.cmp(&other.tool));
    let from = match cursor {
        None => 0,
        Some(after) => tools
            .iter()
            .position(|tool| tool.tool == after)
            .and_then(|at| at.checked_add(1))
            .ok_or_else(|| ErrorData::invalid_params("the cursor is not one of this list", None))?,
    };
    let mut told: Vec<Tool> = tools.iter().skip(from).take(PAGE).map(tool_of).collect();
    let is_last = from.saturating_add(told.len()) >= tools.len();
    let next = tools.get(from.saturating_add(told.len()).saturating_sub(1));
    let next_cursor = next.filter(|_| !is_last).map(|tool| tool.tool.clone());
    if is_last {
        told.push(await_tool());
    }
    let mut result = ListToolsResult::with_all_items(told);
    result.next_cursor = next_cursor;
    Ok(result)
}

/// The whole name of the tool that a client calls `name`.
pub(crate) fn full_name(name: &str, adapter: Option<&AdapterName>) -> String {
    match adapter {
        Some(adapter) if name != AWAIT => format!("{adapter}__{name}"),
        Some(_) | None => name.to_owned(),
    }
}

fn tool_of(view: &ToolView) -> Tool {
    let mut tool =
        Tool::new(view.tool.clone(), view.description.clone(), input_of(&view.input_schema));
    tool.title = view.title.clone();
    tool.output_schema =
        view.output_schema.as_ref().filter(|schema| is_object(schema)).map(object_of);
    tool.annotations = Some(annotations(view));
    tool
}

/// Hints for clients; policy decides.
fn annotations(view: &ToolView) -> ToolAnnotations {
    let mut hints = ToolAnnotations::default();
    hints.read_only_hint = Some(!view.writes);
    if view.writes {
        hints.destructive_hint = Some(view.mode_highest == ApprovalMode::Destructive);
        // Once a call has ended, an equal one without its key is a new call.
        hints.idempotent_hint = Some(false);
    }
    hints.open_world_hint =
        Some(matches!(view.mode_highest, ApprovalMode::Network | ApprovalMode::Delegated));
    hints
}

/// The schema with the root that MCP demands: some clients take no tool of a list in which one has another. Arguments are always an object.
fn input_of(schema: &Value) -> Arc<JsonObject> {
    let mut schema = schema.as_object().cloned().unwrap_or_default();
    schema.insert("type".to_owned(), Value::from("object"));
    Arc::new(schema)
}

/// Whether an output schema has that root.
fn is_object(schema: &Value) -> bool {
    schema.get("type").is_some_and(|kind| kind == "object")
}

fn object_of(schema: &Value) -> Arc<JsonObject> {
    Arc::new(schema.as_object().cloned().unwrap_or_default())
}

fn await_tool() -> Tool {
    let schema = json!({
        "type": "object",
        "properties": {
            "handle": {
                "type": "string",
                "description": "The `handle` of the pending result."
            }
        },
        "required": ["handle"],
        "additionalProperties": false
    });
    let description = "Waits for a call that is pending, for example because people have to approve it, and returns its result. If the call is still pending, call this again.";
    let mut tool = Tool::new(AWAIT, description, object_of(&schema));
    let mut hints = ToolAnnotations::default();
    hints.read_only_hint = Some(true);
    hints.open_world_hint = Some(false);
    tool.annotations = Some(hints);
    tool
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{input_of, is_object, tool_of};

    #[test]
    fn the_root_of_a_listed_schema_is_an_object() {
        let properties = json!({ "a": { "type": "string" } });
        let listed = |schema: Value| Value::from((*input_of(&schema)).clone());
        let wanted = json!({ "properties": properties, "type": "object" });
        assert_eq!(listed(json!({ "properties": properties })), wanted);
        assert_eq!(listed(wanted.clone()), wanted);
        assert!(is_object(&wanted));
        assert!(!is_object(&json!({ "type": "array" })) && !is_object(&json!({})));
    }

    #[test]
    fn a_tool_has_the_title_and_the_description_of_its_contract() {
        let view = json!({
            "tool": "mail__send", "capability_id": "mail/send", "title": "Send mail", "description": "Sends a mail.",
            "input_schema": { "type": "object" }, "mode_highest": "network", "writes": true, "takes_control": false,
        });
        let tool = tool_of(&serde_json::from_value(view).unwrap());
        assert_eq!(tool.title.as_deref(), Some("Send mail"));
        assert_eq!(tool.description.as_deref(), Some("Sends a mail."));
    }
}
