//! The tools of the witness, and the contract for calling them.
//!
//! Owns their definitions. Invariant: the contract is pinned to what the witness lists, and no schema has a default, so that
//! the arguments arrive as sent.

use placet_types::{contract::LiveTool, ids::AdapterName};
use serde_json::{Map, Value, json};

use crate::history::Class;

/// The witness's name as an adapter.
pub(crate) const ADAPTER: &str = "witness";
/// The environment of its contract.
pub(crate) const ENVIRONMENT: &str = "dev";
/// The name of the secret that its calls carry.
pub(crate) const SECRET_NAME: &str = "witness";
/// For how long the token of the keyed tool is honoured, in milliseconds.
pub(crate) const KEYED_WINDOW_MS: u64 = 7_000;
/// After how long «not found» means «did not happen», in milliseconds.
pub(crate) const SETTLE_DELAY_MS: u64 = 500;
/// The tool that returns the state of a token.
pub(crate) const ASK: &str = "ask";
/// The JSON-RPC error by which a call is refused before anything happened, as the contract declares it.
pub(super) const DECLINED: i32 = 4_001;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) class: Class,
    pub(crate) needs_approval: bool,
    pub(crate) description: &'static str,
}

/// The tools that the load calls.
pub(crate) const TOOLS: [Tool; 5] = [
    Tool {
        name: "look",
        class: Class::Read,
        needs_approval: false,
        description: "Looks an item up.",
    },
    Tool {
        name: "put",
        class: Class::Keyed,
        needs_approval: false,
        description: "Puts an item; recognises a call that comes again.",
    },
    Tool {
        name: "post",
        class: Class::Queryable,
        needs_approval: false,
        description: "Posts an item; can be asked about it.",
    },
    Tool {
        name: "push",
        class: Class::Opaque,
        needs_approval: false,
        description: "Pushes an item; knows nothing afterwards.",
    },
    Tool {
        name: "erase",
        class: Class::Opaque,
        needs_approval: true,
        description: "Erases an item for good.",
    },
];

/// The tool with this name, either the witness's own or the wire name `adapter__tool`.
pub(crate) fn tool(name: &str) -> Option<&'static Tool> {
    let plain = name.rsplit_once("__").map_or(name, |(_, plain)| plain);
    TOOLS.iter().find(|tool| tool.name == plain)
}

pub(crate) fn class_of(name: &str) -> Option<Class> {
    tool(name).map(|tool| tool.class)
}

pub(crate) fn needs_approval(name: &str) -> bool {
    tool(name).is_some_and(|tool| tool.needs_approval)
}

/// Every tool as it is listed.
pub(super) fn listed() -> Vec<Value> {
    let entry = |live: LiveTool| json!({"name": live.name, "description": live.description, "inputSchema": live.input_schema});
    live().into_iter().map(entry).collect()
}

/// Every tool as pinned by the contract.
fn live() -> Vec<LiveTool> {
    let live = |name: &str, description: &str, input_schema: Value| LiveTool {
        name: name.to_owned(),
        title: None,
        description: description.to_owned(),
        input_schema,
        output_schema: None,
        annotations: None,
        task_only: false,
    };
    let mut all: Vec<LiveTool> =
        TOOLS.iter().map(|tool| live(tool.name, tool.description, schema())).collect();
    let token = json!({"token": {"type": "string", "maxLength": 128}});
    let asks = object(token, &["token"]);
    all.push(live(ASK, "Tells whether the effect of a token has happened.", asks));
    all
}

fn schema() -> Value {
    let properties = json!({
        "item": {"type": "string", "maxLength": 1_024},
        "n": {"type": "number"},
        "list": {"type": "array", "items": {"type": "number"}, "maxItems": 64},
        "options": {
            "type": "object",
            "properties": {"a": {"type": "number"}, "b": {"type": "string", "maxLength": 1_024}},
            "additionalProperties": false,
        },
    });
    object(properties, &["item"])
}

fn object(properties: Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

/// The contract file, as JSON, which is also YAML.
pub(crate) fn contract(url: &str) -> Result<Value, placet_types::ids::IdError> {
    let name: AdapterName = ADAPTER.parse()?;
    let mut capabilities = Map::new();
    for live in live() {
        let mut capability = json!({
            "description": live.description,
            "input_schema": live.input_schema,
            "pin": live.digest(&name),
        });
        if let Some(fields) = capability.as_object_mut() {
            fields.extend(manners(&live.name));
        }
        capabilities.insert(live.name, capability);
    }
    Ok(json!({
        "contract_version": "placet.contract.v1",
        "adapter": ADAPTER,
        "environment": ENVIRONMENT,
        "tenants": "all",
        "description": "The witness of a chaos run.",
        "transport": {"type": "mcp_http", "url": url, "private_network": true},
        "protocol_version": super::mcp::PROTOCOL,
        "limits": {
            "concurrency_max": 256, "queue_max": 2_048, "breaker_failures": 1_000, "breaker_open_ms": 10,
            "result_bytes_max": 4_194_304, "connect_ms_max": 5_000, "calls_per_minute_max": 1_000_000,
        },
        "credential": {"secret": SECRET_NAME},
        "capabilities": capabilities,
    }))
}

/// What the contract says about a tool's mode and class.
fn manners(name: &str) -> Map<String, Value> {
    let probe = json!({
        "tool": ASK, "argument": "token", "timeout_ms": 2_000, "state": "/structured/state",
        "committed": ["committed"], "not_found": ["not_found"], "result": "/structured/result",
    });
    let dedup = match class_of(name) {
        None | Some(Class::Read) => None,
        Some(Class::Keyed) => Some(json!({
            "class": "keyed", "window_ms": KEYED_WINDOW_MS,
            "settle_delay_ms": SETTLE_DELAY_MS, "probe": probe,
        })),
        Some(Class::Queryable) => {
            Some(json!({"class": "queryable", "settle_delay_ms": SETTLE_DELAY_MS, "probe": probe}))
        }
        Some(Class::Opaque) => Some(json!({"class": "opaque"})),
    };
    let mode = match (&dedup, needs_approval(name)) {
        (None, _) => "read_only",
        (Some(_), false) => "local_write",
        (Some(_), true) => "destructive",
    };
    let effect = if dedup.is_some() { "write" } else { "none" };
    let mut fields =
        Map::from_iter([("mode".to_owned(), json!(mode)), ("effect".to_owned(), json!(effect))]);
    if dedup.is_some() {
        fields.insert("not_executed".to_owned(), json!({"jsonrpc": [DECLINED]}));
    }
    fields.extend(dedup.map(|dedup| ("dedup".to_owned(), dedup)));
    fields
}

#[cfg(test)]
mod tests {
    use placet_types::contract::Contract;

    use super::{TOOLS, class_of, contract, listed, needs_approval};
    use crate::history::Class;

    #[test]
    fn the_contract_is_valid_and_every_tool_of_it_may_be_called() {
        let file = contract("http://127.0.0.1:9/mcp").unwrap();
        let contract = Contract::from_file(serde_json::from_value(file).unwrap()).unwrap();
        assert_eq!(contract.capabilities.len(), TOOLS.len() + 1);
        for (name, capability) in &contract.capabilities {
            assert!(capability.is_callable(), "{name}");
            let writes = class_of(name.as_str()).is_some_and(|class| class != Class::Read);
            assert_eq!(capability.is_write_class(), writes, "{name}");
        }
    }

    #[test]
    fn a_tool_is_known_by_both_its_names() {
        assert_eq!(class_of("witness__put"), Some(Class::Keyed));
        assert_eq!(class_of("put"), Some(Class::Keyed));
        assert_eq!(class_of("ask"), None);
        assert!(needs_approval("witness__erase") && !needs_approval("witness__push"));
        assert_eq!(listed().len(), TOOLS.len() + 1);
    }
}
