//! The contracts under which the engine calls the peer, one for each transport.
//!
//! Owns their text: the same tools, the same limits, pinned to what the peer defines. Invariant: the tool lists agree with
//! [`peer::TOOLS`], so that no call is refused as drifted.

use std::path::Path;

use anyhow::{Context as _, Result, anyhow};
use placet_types::contract::{LiveTool, file::ContractFile};
use serde_json::{Map, Value, json};
use url::Url;

use crate::peer::{self, Definition, LOOK, TOOLS, Transport};

/// The environment they are for.
pub(crate) const ENVIRONMENT: &str = "bench";
/// More than the highest concurrency measured.
const CALLS_MAX: u32 = 512;

/// More calls than one run of this program makes in a minute.
pub(crate) const CALLS_PER_MINUTE_MAX: u32 = 1_000_000_000;

/// The name of the adapter for a transport.
pub(crate) const fn adapter(transport: Transport) -> &'static str {
    match transport {
        Transport::Stdio => "pipe",
        Transport::Http => "web",
    }
}

/// The name of the adapter whose writes are held.
pub(crate) const HELD: &str = "desk";

/// The tool as a caller of the engine names it.
pub(crate) fn tool(transport: Transport, name: &str) -> String {
    format!("{}__{name}", adapter(transport))
}

/// Both contracts.
pub(crate) fn both(own: &Path, url: &Url) -> Result<Vec<ContractFile>> {
    let own = own.to_str().context("this program has a name that is no text")?;
    let stdio =
        json!({"type": "mcp_stdio", "command": own, "args": ["peer", Transport::Stdio.as_str()]});
    let http = json!({"type": "mcp_http", "url": url.as_str(), "private_network": true});
    Ok(vec![
        file((adapter(Transport::Stdio), "local_write"), stdio)?,
        file((adapter(Transport::Http), "local_write"), http)?,
    ])
}

/// A contract under which a write is held until people agree.
pub(crate) fn held(url: &Url) -> Result<ContractFile> {
    let http = json!({"type": "mcp_http", "url": url.as_str(), "private_network": true});
    file((HELD, "destructive"), http)
}

fn file((adapter, mode): (&str, &str), reached: Value) -> Result<ContractFile> {
    let capabilities = TOOLS
        .iter()
        .map(|tool| Ok((tool.name.to_owned(), capability((adapter, mode), tool)?)))
        .collect::<Result<Map<String, Value>>>()?;
    let document = json!({
        "contract_version": "placet.contract.v1",
        "adapter": adapter,
        "environment": ENVIRONMENT,
        "tenants": "all",
        "description": "The server of the benchmark.",
        "transport": reached,
        "protocol_version": peer::PROTOCOL.as_str(),
        "limits": {"concurrency_max": CALLS_MAX, "queue_max": CALLS_MAX, "calls_per_minute_max": CALLS_PER_MINUTE_MAX},
        "capabilities": capabilities,
    });
    serde_json::from_value(document).context("the contract is none")
}

fn capability((adapter, mode): (&str, &str), tool: &Definition) -> Result<Value> {
    let name = adapter.parse().map_err(|error| anyhow!("`{adapter}` is no adapter: {error}"))?;
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
        "pin": live.digest(&name),
    });
    if let Some(fields) = capability.as_object_mut().filter(|_| tool.name != LOOK) {
        fields.insert("mode".to_owned(), json!(mode));
        fields.insert("effect".to_owned(), json!("write"));
        fields.insert("dedup".to_owned(), json!({"class": "opaque"}));
    }
    Ok(capability)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use placet_types::{contract::Contract, mode::ApprovalMode};

    use super::both;

    #[test]
    fn both_contracts_are_valid_and_offer_a_read_and_a_write() {
        let files =
            both(Path::new("/bin/peer"), &"http://127.0.0.1:9/mcp".parse().unwrap()).unwrap();
        assert_eq!(files.len(), 2);
        for file in files {
            let contract = Contract::from_file(file).unwrap();
            let kinds: Vec<_> = contract
                .capabilities
                .values()
                .map(|one| (one.mode_highest, one.is_write_class(), one.is_callable()))
                .collect();
            assert_eq!(
                kinds,
                [(ApprovalMode::ReadOnly, false, true), (ApprovalMode::LocalWrite, true, true)]
            );
        }
    }
}
