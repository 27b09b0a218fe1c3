//! Credential sections: what is refused at load, and the plans of the rest.

use serde_json::{Value, json};

use super::{ActorSource, CredentialFile, CredentialKind};
use crate::{contract::file::TransportFile, ids::CapabilityName};

fn http() -> TransportFile {
    serde_json::from_value(json!({ "type": "mcp_http", "url": "https://mail.example/mcp" }))
        .unwrap()
}

fn names() -> Vec<CapabilityName> {
    ["search", "send"].iter().map(|name| name.parse().unwrap()).collect()
}

fn exchange() -> Value {
    json!({ "type": "token_exchange", "sts": "corp", "audience": "urn:mail", "scopes": ["mail.read", "mail.send"] })
}

fn with(key: &str, value: Value) -> Value {
    let mut section = exchange();
    section[key] = value;
    section
}

fn problem_of(section: Value) -> Option<&'static str> {
    let file: CredentialFile = serde_json::from_value(section).unwrap();
    file.check(&http(), names().iter()).err().map(|(key, _)| key)
}

#[test]
fn a_section_without_a_type_is_a_static_secret_and_is_written_as_before() {
    let file: CredentialFile = serde_json::from_value(json!({ "secret": "key" })).unwrap();
    assert_eq!(file.kind, CredentialKind::StaticSecret);
    assert_eq!(
        serde_json::to_value(&file).unwrap(),
        json!({ "secret": "key", "header": "authorization", "scopes": [] })
    );
    assert_eq!(problem_of(json!({ "secret": "key" })), None);
    assert_eq!(problem_of(json!({ "scopes": ["a"] })), Some("secret"));
    assert_eq!(problem_of(json!({ "secret": "key", "sts": "corp" })), Some("sts"));
}

#[test]
fn a_header_that_no_credential_can_be_sent_in_is_refused_and_not_repeated() {
    for name in [
        "",
        "Bearer c4nary",
        "x-key:",
        "x-kéy",
        "x\r\ny",
        "Content-Type",
        "Mcp-Session-Id",
        "mcp-protocol-version",
        "transfer-encoding",
        "Connection",
        "proxy-authorization",
        "host",
        "traceparent",
        &"x".repeat(129),
    ] {
        for section in [json!({ "secret": "key", "header": name }), with("header", json!(name))] {
            let file: CredentialFile = serde_json::from_value(section).unwrap();
            let (key, problem) = file.check(&http(), names().iter()).unwrap_err();
            assert_eq!(key, "header", "{name}");
            assert!(!problem.contains("c4nary"), "{problem}");
        }
    }
    for name in ["authorization", "Authorization", "x-api-key", "X-Api-Key", "cookie", "api_key"] {
        assert_eq!(problem_of(json!({ "secret": "key", "header": name })), None, "{name}");
    }
}

#[test]
fn a_wildcard_is_no_scope() {
    for scope in ["*", "mail.*", "", "two words", "\"quoted\"", "back\\slash", "mäil"] {
        assert_eq!(problem_of(with("scopes", json!([scope]))), Some("scopes"), "{scope}");
        let optional = with("scopes_optional", json!([scope]));
        assert_eq!(problem_of(optional), Some("scopes_optional"), "{scope}");
        let one = with("scopes_for", json!({ "search": [scope] }));
        assert_eq!(problem_of(one), Some("scopes_for"), "{scope}");
    }
    assert_eq!(problem_of(exchange()), None);
}

#[test]
fn a_minted_credential_has_one_target_and_says_its_scopes() {
    for (section, key) in [
        (with("sts", Value::Null), "sts"),
        (with("audience", Value::Null), "audience"),
        (with("audience", json!("two words")), "audience"),
        (with("resource", json!("mail.example/api")), "resource"),
        (with("resource", json!("https://mail.example/api#part")), "resource"),
        (with("resource", json!("//mail.example/api")), "resource"),
        (with("scopes", json!([])), "scopes"),
        (with("scopeless", json!(true)), "scopes"),
        (with("scopes_for", json!({ "search": ["files.read"] })), "scopes_for"),
        (with("scopes_for", json!({ "nothing": ["mail.read"] })), "scopes_for"),
    ] {
        assert_eq!(problem_of(section.clone()), Some(key), "{section}");
    }
    let mut acting = with("actor", json!("gateway"));
    assert_eq!(problem_of(acting.clone()), None);
    acting["type"] = json!("client_credentials");
    assert_eq!(problem_of(acting), Some("actor"));
}

#[test]
fn a_minted_credential_is_for_a_host() {
    let file: CredentialFile = serde_json::from_value(exchange()).unwrap();
    let child = json!({ "type": "mcp_stdio", "command": "/bin/mail" });
    let transport: TransportFile = serde_json::from_value(child).unwrap();
    assert!(file.check(&transport, names().iter()).is_err());
}

#[test]
fn a_call_is_planned_with_what_its_capability_needs() {
    let mut section = with("scopes_for", json!({ "search": ["mail.read"] }));
    section["scopes_optional"] = json!(["mail.labels"]);
    let file: CredentialFile = serde_json::from_value(section).unwrap();
    let plan = file.plan(&"search".parse().unwrap());
    assert_eq!(plan.scopes, ["mail.labels", "mail.read"]);
    assert_eq!(plan.actor, Some(ActorSource::Agent));
    assert_eq!(plan.source.as_deref(), Some("corp"));
    let plan = file.plan(&"send".parse().unwrap());
    assert_eq!(plan.scopes, ["mail.labels", "mail.read", "mail.send"]);
}
