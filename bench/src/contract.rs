//! The contracts under which the engine makes the calls: the MCP server over HTTP, the same server with writes that are held,
//! and the files adapter.
//!
//! Invariant: the tool lists agree with [`peer::TOOLS`], so that no call is refused because the server has changed.

use anyhow::{Context as _, Result};
use placet_adapter_files::contract::builtin_contract;
use placet_types::{
    contract::{LiveTool, file::ContractFile},
    ids::AdapterName,
};
use serde_json::{Map, Value, json};
use url::Url;

use crate::peer::{self, Definition, LOOK, TOOLS};

/// The environment they are for.
pub(crate) const ENVIRONMENT: &str = "bench";
/// The adapter of the MCP server.
pub(crate) const WEB: &str = "web";
/// The adapter of the same server whose writes are held until somebody approves them.
pub(crate) const HELD: &str = "held";
/// The folder of the files adapter, below the data folder, and the file in it.
pub(crate) const FILES_ROOT: &str = "files";
pub(crate) const FILE: &str = "today.txt";
/// The one tenant.
pub(crate) const TENANT: &str = "local";

/// More calls than this program makes in one run of Placet.
pub(crate) const CALLS_MAX: u32 = 1_000_000;
/// More than the highest measured concurrency.
const CONCURRENCY_MAX: u32 = 512;
/// More calls than this program makes in a minute.
pub(crate) const CALLS_PER_MINUTE_MAX: u32 = 1_000_000_000;

/// All contracts, for a server at `url`.
pub(crate) fn all(url: &Url) -> Result<Vec<ContractFile>> {
    Ok(vec![mcp(url, WEB, "local_write")?, mcp(url, HELD, "destructive")?, files()?])
}

/// The contract of the MCP server under the name `adapter`, with writes in this mode.
pub(crate) fn mcp(url: &Url, adapter: &str, mode: &str) -> Result<ContractFile> {
    let name: AdapterName = adapter.parse().context("the adapter has no valid name")?;
    let capabilities: Map<String, Value> =
        TOOLS.iter().map(|tool| (tool.name.to_owned(), capability(tool, &name, mode))).collect();
    let document = json!({
        "contract_version": "placet.contract.v1",
        "adapter": adapter,
        "environment": ENVIRONMENT,
        "tenants": "all",
        "description": "The server of the benchmark.",
        "transport": {"type": "mcp_http", "url": url.as_str(), "private_network": true},
        "protocol_version": peer::PROTOCOL.as_str(),
        "limits": {
            "concurrency_max": CONCURRENCY_MAX,
            "queue_max": CONCURRENCY_MAX,
            "calls_per_minute_max": CALLS_PER_MINUTE_MAX,
        },
        "capabilities": capabilities,
    });
    serde_json::from_value(document).context("the contract is not valid")
}

fn files() -> Result<ContractFile> {
    let tenants = [TENANT.parse()?].into_iter().collect();
    let mut file = builtin_contract(ENVIRONMENT.parse()?, tenants, FILES_ROOT);
    file.limits.concurrency_max = CONCURRENCY_MAX;
    file.limits.queue_max = CONCURRENCY_MAX;
    file.limits.calls_per_minute_max = CALLS_PER_MINUTE_MAX;
    Ok(file)
}

fn capability(tool: &Definition, adapter: &AdapterName, mode: &str) -> Value {
    let input_schema = Value::Object(tool.schema());
    let live = LiveTool {
        name: tool.name.to_owned(),
        title: None,
        description: tool.description.to_owned(),
        input_schema: input_schema.clone(),
        output_schema: None,
        annotations: None,
        task_only: false,
    };
    let mut capability = json!({
        "description": tool.description,
        "input_schema": input_schema,
        "mode": "read_only",
        "effect": "none",
        "pin": live.digest(adapter),
    });
    if let Some(fields) = capability.as_object_mut().filter(|_| tool.name != LOOK) {
        fields.insert("mode".to_owned(), json!(mode));
        fields.insert("effect".to_owned(), json!("write"));
        fields.insert("dedup".to_owned(), json!({"class": "opaque"}));
    }
    capability
}

#[cfg(test)]
mod tests {
    use placet_types::contract::Contract;

    use super::all;

    #[test]
    fn every_contract_is_valid_and_offers_a_read_and_a_write() {
        let files = all(&"http://127.0.0.1:9/mcp".parse().unwrap()).unwrap();
        assert_eq!(files.len(), 3);
        for file in files {
            let contract = Contract::from_file(file).unwrap();
            let callable = || contract.capabilities.values().filter(|one| one.is_callable());
            assert!(callable().any(|one| one.is_write_class()), "{}", contract.adapter);
            assert!(callable().any(|one| !one.is_write_class()), "{}", contract.adapter);
        }
    }
}
