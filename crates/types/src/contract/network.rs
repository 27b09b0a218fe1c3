//! What a capability over a network needs (TM-08): a bound on where it goes. Its rate every capability has.
//!
//! Owns the rule of the contract. Opens no socket: the egress does. Invariants: a contract whose calls go over a network unbounded without
//! saying so does not load; a tool that is reached over HTTP reaches a network, whatever its contract says.

use crate::mode::ApprovalMode;

use super::file::{CapabilityFile, ContractFile, TransportFile};

/// The capability with `network` among what it does, where its transport is a network.
pub(super) fn reached(transport: &TransportFile, mut capability: CapabilityFile) -> CapabilityFile {
    if transport.http().is_some() {
        capability.also.insert(ApprovalMode::Network);
    }
    capability
}

/// Where a contract breaks the rule, and what is wrong.
pub(super) fn check(file: &ContractFile) -> Result<(), (String, String)> {
    let goes_out = |capability: &CapabilityFile| {
        capability.mode == ApprovalMode::Network || capability.also.contains(&ApprovalMode::Network)
    };
    let mut capabilities = file.capabilities.iter();
    let Some((name, _)) = capabilities.find(|(_, capability)| goes_out(capability)) else {
        return Ok(());
    };
    match &file.transport {
        TransportFile::McpStdio { process, .. } if process.network.is_none() => {
            let problem = format!(
                "`{name}` goes over a network, and a contract cannot bound where a child process connects to: `unconfined` says that you know it"
            );
            Err(("transport.process.network".to_owned(), problem))
        }
        // Over HTTP the one host is the contract's, and what is compiled in opens no socket.
        TransportFile::McpStdio { .. }
        | TransportFile::McpHttp { .. }
        | TransportFile::Rest { .. }
        | TransportFile::A2a { .. }
        | TransportFile::Lm { .. }
        | TransportFile::Internal { .. } => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::{contract::Contract, mode::ApprovalMode};

    fn contract(transport: &Value, capability: &Value, per_minute: u32) -> Result<(), String> {
        let mut capability = capability.clone();
        capability["input_schema"] = json!({ "type": "object" });
        let file = json!({
            "contract_version": "placet.contract.v1", "adapter": "web", "environment": "test", "tenants": "all",
            "transport": transport, "protocol_version": "2025-11-25",
            "limits": { "calls_per_minute_max": per_minute }, "capabilities": { "fetch": capability },
        });
        let file = serde_json::from_value(file).map_err(|error| error.to_string())?;
        Contract::from_file(file).map(drop).map_err(|error| error.to_string())
    }

    #[test]
    fn a_tool_of_a_remote_server_always_reaches_a_network() {
        let tool =
            json!({ "mode": "read_only", "effect": "none", "input_schema": { "type": "object" } });
        for (transport, reaches) in [
            (json!({ "type": "mcp_http", "url": "https://web.example/mcp" }), true),
            (json!({ "type": "mcp_stdio", "command": "node" }), false),
        ] {
            let file = json!({
                "contract_version": "placet.contract.v1", "adapter": "web", "environment": "test", "tenants": "all",
                "transport": transport, "protocol_version": "2025-11-25", "capabilities": { "get": tool },
            });
            let contract = Contract::from_file(serde_json::from_value(file).unwrap()).unwrap();
            let also = &contract.capabilities.values().next().unwrap().also;
            assert_eq!(also.contains(&ApprovalMode::Network), reaches, "{transport}");
        }
    }

    #[test]
    fn every_contract_needs_a_rate_and_a_child_process_an_explicit_word() {
        let http = json!({ "type": "mcp_http", "url": "https://web.example/mcp" });
        let child = json!({ "type": "mcp_stdio", "command": "node" });
        let mut unconfined = child.clone();
        unconfined["process"] = json!({ "network": "unconfined" });
        let fetch = json!({ "mode": "network", "effect": "none" });
        let mail = json!({
            "mode": "destructive", "also": ["network"], "effect": "write", "dedup": { "class": "opaque" },
        });
        for capability in [&fetch, &mail] {
            for transport in [&http, &child, &unconfined] {
                let refused = contract(transport, capability, 0).unwrap_err();
                assert!(refused.contains("limits.calls_per_minute_max"), "{refused}");
            }
            contract(&http, capability, 1).unwrap();
            let refused = contract(&child, capability, 1).unwrap_err();
            assert!(refused.contains("transport.process.network"), "{refused}");
            assert!(refused.contains("`unconfined`"), "{refused}");
            contract(&unconfined, capability, 1).unwrap();
        }
        let local =
            json!({ "mode": "local_write", "effect": "write", "dedup": { "class": "opaque" } });
        contract(&child, &local, 0).unwrap_err();
        contract(&child, &local, 1).unwrap();
        let mut other = child;
        other["process"] = json!({ "network": "confined" });
        contract(&other, &local, 1).unwrap_err();
    }
}
