//! The tools of a server as it defines them at this moment.
//!
//! Owns paging and its limits. Does not judge a definition: contracts and pins do. Invariants: nothing is read from a cache; a
//! definition that cannot be digested unambiguously is left out, so that it counts as missing.

use std::collections::BTreeSet;

use rmcp::{
    model::{ClientRequest, ListToolsRequest, PaginatedRequestParams, ServerResult, Tool},
    service::{Peer, RoleClient},
};
use serde_json::Value;

use placet_adapter::outcome::AdapterError;
use placet_types::{
    contract::{LiveTool, feature::Feature},
    json::{JsonLimits, check_value},
};

use crate::{failure, tasks, text::printable};

/// The most tools one server may have.
const TOOLS_MAX: usize = 1_000;
/// The most pages they may come in.
const PAGES_MAX: usize = 200;
/// The limits of one definition.
const DEFINITION_LIMITS: JsonLimits = JsonLimits {
    bytes_max: 1024 * 1024,
    depth_max: 64,
    string_bytes_max: 256 * 1024,
    members_max: 10_000,
    nodes_max: 100_000,
};

/// Requests every page.
pub(crate) async fn list(peer: &Peer<RoleClient>) -> Result<Vec<LiveTool>, AdapterError> {
    let garbled = |why: &str| Err(AdapterError::InvalidResponse(why.to_owned()));
    let mut tools = Vec::new();
    let mut names = BTreeSet::new();
    let mut cursor: Option<String> = None;
    for _page in 0..PAGES_MAX {
        // Not `list_tools`: it may answer from a cache that the server controls.
        let params = PaginatedRequestParams::default().with_cursor(cursor.clone());
        let request = ClientRequest::ListToolsRequest(ListToolsRequest::with_param(params));
        let answer = peer
            .send_request(request)
            .await
            .map_err(|error| failure::of_request(&error).into_handshake_error())?;
        let ServerResult::ListToolsResult(page) = answer else {
            return garbled("its answer is no list of tools");
        };
        for tool in page.tools {
            if names.len() >= TOOLS_MAX {
                return garbled("it has more than 1,000 tools");
            }
            if !names.insert(tool.name.to_string()) {
                return garbled("two of its tools have the same name");
            }
            tools.extend(definition(&tool));
        }
        match page.next_cursor {
            None => return Ok(tools),
            next if next == cursor => return garbled("its list of tools has no end"),
            next => cursor = next,
        }
    }
    garbled("its list of tools has too many pages")
}

/// The definition, if it can be digested.
fn definition(tool: &Tool) -> Option<LiveTool> {
    if Feature::of_method(&tool.name).is_some() {
        // A contract could not tell it from the method.
        tracing::warn!(tool = %tool.name, "a tool has the name of a method of MCP, the tool is left out");
        return None;
    }
    let strict = serde_json::to_value(tool).map_err(|error| error.to_string()).and_then(|value| {
        check_value(&value, &DEFINITION_LIMITS).map_err(|error| error.to_string())
    });
    let value = match strict {
        Ok(value) => value,
        Err(why) => {
            let (tool, why) = (printable(&tool.name, 128), printable(&why, 500));
            tracing::warn!(%tool, %why, "the definition of a tool is not usable, the tool is left out");
            return None;
        }
    };
    let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    Some(LiveTool {
        name: text("name")?,
        title: text("title"),
        description: text("description").unwrap_or_default(),
        input_schema: value.get("inputSchema").cloned()?,
        output_schema: value.get("outputSchema").cloned(),
        annotations: value.get("annotations").cloned(),
        task_only: tasks::is_required(&value),
    })
}

#[cfg(test)]
mod tests {
    use rmcp::model::Tool;
    use serde_json::json;

    use super::definition;

    fn tool(value: serde_json::Value) -> Tool {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_definition_keeps_what_a_pin_covers() {
        let live = definition(&tool(json!({
            "name": "t", "title": "T", "description": "d", "inputSchema": {"type": "object"},
            "outputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true},
        })))
        .unwrap();
        assert_eq!(live.title.as_deref(), Some("T"));
        assert_eq!(live.annotations, Some(json!({"readOnlyHint": true})));
        assert_eq!(live.output_schema, Some(json!({"type": "object"})));
    }

    #[test]
    fn a_definition_whose_numbers_would_not_survive_is_left_out() {
        let ambiguous = json!({"name": "t", "inputSchema": {"type": "object", "maximum": 9_007_199_254_740_993_u64}});
        assert_eq!(definition(&tool(ambiguous)), None);
    }

    #[test]
    fn a_tool_cannot_pass_for_a_method() {
        let named = json!({"name": "resources/read", "inputSchema": {"type": "object"}});
        assert_eq!(definition(&tool(named)), None);
    }

    #[test]
    fn a_definition_over_a_mebibyte_is_left_out() {
        let long = "x".repeat(200 * 1024);
        let parts = vec![long; 6];
        let huge = json!({"name": "t", "inputSchema": {"type": "object", "examples": parts}});
        assert_eq!(definition(&tool(huge)), None);
    }
}
