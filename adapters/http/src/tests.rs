//! What the tests of the adapters share.

use std::sync::Arc;

use placet_types::contract::{Contract, file::ContractFile};
use serde_json::{Value, json};

/// A contract over this transport with the read `look` and the write `pay`.
pub(crate) fn contract(kind: &str, url: &str, change: impl FnOnce(&mut Value)) -> Arc<Contract> {
    let schema = json!({
        "type": "object", "additionalProperties": false,
        "properties": { "message": { "type": "string" } },
    });
    let mut file = json!({
        "contract_version": "placet.contract.v1", "adapter": "bank", "environment": "dev", "tenants": ["acme"],
        "transport": { "type": kind, "url": url, "private_network": true },
        "protocol_version": if kind == "rest" { "rest/1" } else { "1.0" },
        "capabilities": {
            "look": { "input_schema": schema, "mode": "read_only", "effect": "none" },
            "pay": {
                "input_schema": schema, "mode": "destructive", "effect": "write", "dedup": { "class": "opaque" },
            },
        },
    });
    if kind == "rest" {
        file["capabilities"]["look"]["rest"] = json!({ "method": "GET", "path": "/look" });
        file["capabilities"]["pay"]["rest"] = json!({ "method": "POST", "path": "/pay" });
    }
    change(&mut file);
    let file: ContractFile = serde_json::from_value(file).unwrap();
    Arc::new(Contract::from_file(file).unwrap())
}
