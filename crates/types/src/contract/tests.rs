//! Contracts whose calls go over a network (TM-08).

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
fn plain_http_is_for_a_network_of_our_own() {
    let fetch = json!({ "mode": "network", "effect": "none" });
    for url in ["http://web.example/mcp", "HTTP://web.example/mcp"] {
        let transport = json!({ "type": "mcp_http", "url": url });
        let refused = contract(&transport, &fetch, 1).unwrap_err();
        assert!(refused.contains("transport.private_network"), "{refused}");
        let own = json!({ "type": "mcp_http", "url": url, "private_network": true });
        contract(&own, &fetch, 1).unwrap();
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
        assert!(refused.contains("unconfined"), "{refused}");
        contract(&unconfined, capability, 1).unwrap();
    }
    let local = json!({ "mode": "local_write", "effect": "write", "dedup": { "class": "opaque" } });
    contract(&child, &local, 0).unwrap_err();
    contract(&child, &local, 1).unwrap();
    let mut other = child;
    other["process"] = json!({ "network": "confined" });
    contract(&other, &local, 1).unwrap_err();
}

#[test]
fn no_argument_of_a_call_is_sent_in_the_header_of_the_credential() {
    let with = |header: &str| {
        let look = json!({
            "mode": "network", "effect": "none",
            "rest": { "method": "GET", "path": "/look", "headers": { header: "{q}" } },
            "input_schema": { "type": "object", "properties": { "q": { "type": "string" } } },
        });
        let file = json!({
            "contract_version": "placet.contract.v1", "adapter": "web", "environment": "test", "tenants": "all",
            "transport": { "type": "rest", "url": "https://web.example" }, "protocol_version": "rest/1",
            "credential": { "secret": "key", "header": "x-key" }, "capabilities": { "look": look },
        });
        Contract::from_file(serde_json::from_value(file).unwrap()).map(drop)
    };
    with("X-Trace").unwrap();
    let refused = with("X-Key").unwrap_err().to_string();
    assert!(refused.contains("carries the credential"), "{refused}");
}
