//! Contracts that say how they are probed: good ones, and each kind of bad one.

use serde_json::{Value, json};

use super::Dedup;
use crate::{
    contract::{Capability, Contract, file::ContractFile},
    ids::CapabilityName,
};

fn schema() -> Value {
    json!({
        "type": "object", "additionalProperties": false,
        "properties": {"amount": {"type": "integer"}, "token": {"type": "string", "maxLength": 64}},
    })
}

fn probe() -> Value {
    json!({
        "tool": "status", "argument": "token", "state": "/structured/state",
        "committed": ["committed"], "not_found": ["not_found"], "result": "/structured/result",
    })
}

fn queryable() -> Value {
    json!({"class": "queryable", "settle_delay_ms": 2_000, "probe": probe()})
}

/// A contract with a tool that pays, one that looks, and one that resets.
fn contract(dedup: &Value, change: impl FnOnce(&mut Value)) -> Result<Contract, String> {
    let mut file = json!({
        "contract_version": "placet.contract.v1", "adapter": "bank", "environment": "test", "tenants": ["acme"],
        "transport": {"type": "mcp_http", "url": "https://bank.example/mcp"},
        "protocol_version": "2025-11-25", "limits": {"calls_per_minute_max": 60},
        "capabilities": {
            "pay": {"input_schema": schema(), "mode": "destructive", "effect": "write", "dedup": dedup},
            "status": {"input_schema": schema(), "mode": "read_only", "effect": "none"},
            "fetch": {"input_schema": schema(), "mode": "network", "effect": "none"},
            "reset": {
                "input_schema": schema(), "mode": "destructive", "effect": "write",
                "dedup": {"class": "opaque"},
            },
        },
    });
    change(&mut file);
    let file: ContractFile = serde_json::from_value(file).map_err(|error| error.to_string())?;
    Contract::from_file(file).map_err(|error| error.to_string())
}

fn pay(dedup: &Value) -> Capability {
    contract(dedup, |_| {}).unwrap().capabilities[&"pay".parse::<CapabilityName>().unwrap()].clone()
}

fn refused(dedup: &Value, expected: &str) {
    let error = contract(dedup, |_| {}).unwrap_err();
    assert!(error.contains(expected), "{dedup}: {error}");
}

#[test]
fn a_queryable_tool_keeps_how_it_is_asked() {
    let capability = pay(&queryable());
    assert_eq!(capability.dedup, Dedup::Queryable { settle_delay_ms: 2_000 });
    let plan = capability.probe().unwrap();
    assert_eq!((plan.tool.as_str(), plan.argument.as_str()), ("status", "token"));
    assert_eq!((capability.settle_delay_ms(), plan.timeout_ms), (Some(2_000), 5_000));
    assert_eq!(plan.result.as_deref(), Some("/structured/result"));
    assert_eq!(capability.token_argument, None);
}

#[test]
fn a_keyed_tool_may_have_a_probe_for_the_time_after_its_window() {
    let plain = pay(&json!({"class": "keyed", "window_ms": 60_000, "argument": "request_id"}));
    assert_eq!(plain.token_argument.as_deref(), Some("request_id"));
    assert!(plain.probe().is_none());
    let dedup = json!({
        "class": "keyed", "window_ms": 60_000, "settle_delay_ms": 5, "probe": probe(),
    });
    let both = pay(&dedup);
    assert_eq!(both.dedup, Dedup::Keyed { window_ms: 60_000 });
    assert_eq!(both.token_argument, None);
    assert_eq!(both.settle_delay_ms(), Some(5));
    for half in ["settle_delay_ms", "probe"] {
        let mut dedup = dedup.clone();
        dedup.as_object_mut().unwrap().remove(half);
        refused(&dedup, "go together");
    }
}

#[test]
fn an_mcp_server_is_queryable_only_if_it_says_how_it_is_asked() {
    refused(&json!({"class": "queryable", "settle_delay_ms": 0}), "needs `dedup.probe`");
    let internal = |file: &mut Value| {
        file["transport"] = json!({"type": "internal", "builtin": "files", "root": "."});
    };
    assert!(contract(&json!({"class": "queryable", "settle_delay_ms": 0}), internal).is_ok());
    let error = contract(&queryable(), internal).unwrap_err();
    assert!(error.contains("only an MCP server is asked"), "{error}");
}

#[test]
fn what_is_asked_must_have_no_effect() {
    for (tool, expected) in [
        ("reset", "must be `mode: read_only`"),
        ("pay", "must be `mode: read_only`"),
        ("fetch", "must be `mode: read_only`"),
        ("nowhere", "there is no capability `nowhere`"),
    ] {
        let mut dedup = queryable();
        dedup["probe"]["tool"] = json!(tool);
        refused(&dedup, expected);
    }
}

#[test]
fn the_argument_of_the_token_is_nobody_elses() {
    let dedup = json!({"class": "keyed", "window_ms": 60_000, "argument": "token"});
    refused(&dedup, "take it out of `input_schema`");
    let mut dedup = queryable();
    dedup["probe"]["args"] = json!({"token": "mine"});
    refused(&dedup, "leave out the argument");
}

#[test]
fn illegible_names_are_refused() {
    for name in ["", "a b", "a\nb", "\u{202e}", &"x".repeat(129)] {
        refused(&json!({"class": "keyed", "window_ms": 60_000, "argument": name}), "visible ascii");
    }
}

#[test]
fn every_number_and_pointer_has_its_bounds() {
    for window_ms in [0, 999, 315_360_000_001_u64] {
        refused(&json!({"class": "keyed", "window_ms": window_ms}), "window_ms");
    }
    for (key, value, expected) in [
        ("timeout_ms", json!(99), "timeout_ms"),
        ("timeout_ms", json!(30_001), "timeout_ms"),
        ("state", json!("structured/state"), "json pointer"),
        ("state", json!("/a~2"), "json pointer"),
        ("state", json!(""), "json pointer"),
        ("result", json!("result"), "json pointer"),
        ("committed", json!([]), "committed"),
        ("not_found", json!([""]), "not_found"),
        ("not_found", json!(["committed"]), "cannot be both"),
        ("argument", json!("nonsense"), "does not fit the schema of `status`"),
        ("args", json!({"amount": "many"}), "does not fit the schema of `status`"),
    ] {
        let mut dedup = queryable();
        dedup["probe"][key] = value;
        refused(&dedup, expected);
    }
    let mut dedup = queryable();
    dedup["settle_delay_ms"] = json!(86_400_001);
    refused(&dedup, "settle_delay_ms");
    let mut dedup = queryable();
    dedup["probe"]["effect"] = json!("none");
    assert!(contract(&dedup, |_| {}).is_err(), "an unknown key was taken");
}

#[test]
fn what_is_said_about_repeating_is_part_of_the_digest() {
    let mut changed = queryable();
    changed["probe"]["not_found"] = json!(["not_found", "expired"]);
    let one = contract(&queryable(), |_| {}).unwrap().digest;
    assert_ne!(one, contract(&changed, |_| {}).unwrap().digest);
    assert_eq!(one, contract(&queryable(), |_| {}).unwrap().digest);
}
