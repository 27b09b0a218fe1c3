//! What is looked for of what a place was handed: by where it is, for how long, and how much of it.

use placet_adapter::scrub::REMOVED;
use placet_identity::SecretSource;
use placet_types::contract::file::ContractFile;
use serde_json::{Value, json};

use super::*;

fn contract(adapter: &str, transport: Value, secret: Option<&str>) -> Arc<Contract> {
    let mut file = json!({
        "contract_version": "placet.contract.v1", "adapter": adapter, "environment": "test", "tenants": "all",
        "transport": transport, "protocol_version": "2025-11-25",
        "capabilities": { "look": { "input_schema": {"type": "object"}, "mode": "read_only", "effect": "none" } },
    });
    if let Some(secret) = secret {
        file["credential"] = json!({ "secret": secret });
    }
    let file: ContractFile = serde_json::from_value(file).unwrap();
    Arc::new(Contract::from_file(file).unwrap())
}

fn at(url: &str) -> Value {
    json!({ "type": "mcp_http", "url": url })
}

fn secrets(names: &[&str]) -> Arc<Secrets> {
    let source = |name: &str| SecretSource::Env(format!("value-of-{name}").into());
    Arc::new(Secrets::new(names.iter().map(|name| ((*name).to_owned(), source(name))).collect()))
}

fn given() -> Given {
    Given::new(secrets(&[]))
}

/// A token whose beginning is that of every other one.
fn token(number: usize) -> SecretString {
    format!("eyJhbGciOiJFUzI1NiJ9.{number:06}.{}", Digest::of(&number.to_be_bytes())).into()
}

fn says(given: &Given, text: &str) -> String {
    given.scrub().text(text.to_owned())
}

#[test]
fn a_secret_that_was_rotated_since_is_still_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    std::fs::write(&file, "first-value").unwrap();
    let secrets = Secrets::new([("key".to_owned(), SecretSource::File(file.clone()))].into());
    let given = Given::new(Arc::new(secrets));
    given.names.lock().insert("key".to_owned());
    given.secrets.get("key").unwrap();
    given.look();
    std::fs::write(&file, "second-value").unwrap();
    given.secrets.get("key").unwrap();
    assert_eq!(says(&given, "first-value, second-value"), format!("{REMOVED}, {REMOVED}"));
    assert!(!format!("{given:?}").contains("-value"));
}

#[tokio::test]
async fn contracts_that_lead_to_the_same_place_are_handed_the_same() {
    let child = |word: &str| json!({ "type": "mcp_stdio", "command": "/bin/tool", "args": [word] });
    let mut one_child = child("one");
    one_child["env"] = json!({ "KEY": { "secret": "child" } });
    let contracts = [
        contract("one", at("https://tools.example/one/mcp"), Some("one")),
        contract("two", at("https://TOOLS.example:443/two/mcp"), Some("two")),
        contract("port", at("https://tools.example:8443/mcp"), None),
        contract("first-child", one_child, None),
        contract("second-child", child("two"), None),
    ];
    let handed = KnownSecrets::new(&contracts, &secrets(&["one", "two", "child"]));
    let to = |number: usize| handed.to(&contracts[number]).unwrap();
    to(0).hand(&token(1), None);
    let all = format!("value-of-one value-of-two {}", token(1).expose_secret());
    for number in [0, 1] {
        assert_eq!(says(&to(number), &all), format!("{REMOVED} {REMOVED} {REMOVED}"));
    }
    assert_eq!(says(&to(2), &all), all, "another port is another server");
    assert_eq!(says(&to(4), "value-of-child"), REMOVED);
    assert_eq!(says(&to(4), &all), all);
}

#[tokio::test(start_paused = true)]
async fn a_token_is_looked_for_until_it_has_expired_and_an_hour_at_least() {
    let given = given();
    given.hand(&token(1), None);
    given.hand(&token(2), Some(Duration::from_secs(60)));
    given.hand(&token(3), Some(Duration::from_hours(8)));
    let text = |number| token(number).expose_secret().to_owned();
    tokio::time::advance(KEPT - Duration::from_secs(1)).await;
    given.sweep();
    // Handed out once more, it is of use once more.
    given.hand(&token(2), None);
    tokio::time::advance(Duration::from_secs(1)).await;
    given.sweep();
    assert_eq!(says(&given, &text(1)), text(1));
    assert_eq!([says(&given, &text(2)), says(&given, &text(3))], [REMOVED, REMOVED]);
    tokio::time::advance(Duration::from_hours(8)).await;
    given.sweep();
    assert_eq!(says(&given, &text(3)), text(3));
    let known = given.known.lock();
    assert!(known.tokens.is_empty() && known.fresh.is_empty());
}

#[tokio::test]
async fn every_token_is_looked_for_whenever_it_was_handed_out() {
    let given = given();
    for number in 0..300 {
        given.hand(&token(number), None);
        assert_eq!(says(&given, token(number).expose_secret()), REMOVED, "{number}");
    }
    let all: Vec<String> =
        (0..300).map(|number| token(number).expose_secret().to_owned()).collect();
    assert_eq!(says(&given, &all.join(" ")), vec![REMOVED; 300].join(" "));
    assert_eq!(says(&given, token(300).expose_secret()), token(300).expose_secret());
    assert!(!format!("{given:?}").contains("eyJ"));
}

#[tokio::test(start_paused = true)]
async fn what_ends_first_makes_room() {
    let given = given();
    for number in 0..TOKENS_MAX {
        given.hand(&token(number), None);
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    given.hand(&token(TOKENS_MAX), None);
    let kept = given.known.lock().tokens.len();
    assert!(kept <= TOKENS_MAX && kept > TOKENS_MAX / 2, "{kept}");
    assert_eq!(says(&given, token(TOKENS_MAX).expose_secret()), REMOVED);
    assert_eq!(says(&given, token(TOKENS_MAX - 1).expose_secret()), REMOVED);
    assert_eq!(says(&given, token(0).expose_secret()), token(0).expose_secret());
}
