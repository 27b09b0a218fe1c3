//! Asking a server about a token, as a contract says.

use std::{path::Path, sync::Arc, time::Duration};

use placet_adapter::{adapter::Inquiry, outcome::Probe};
use placet_types::contract::Contract;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::tests::support::{TOKEN, call, connect, contract, done, make_write, python};

/// A contract whose `echo` is queryable through `status`, pinned to what the server lists; `say` is the answer of `status`.
async fn asking(mode: &str, log: &Path, say: Value, change: impl Fn(&mut Value)) -> Arc<Contract> {
    let made = |pin: Option<String>| {
        contract(python(mode), |file| {
            let dedup = json!({
                "class": "queryable", "settle_delay_ms": 0,
                "probe": {
                    "tool": "status", "argument": "token", "timeout_ms": 2_000,
                    "args": {"say": say, "log": log},
                    "state": "/structured/state", "committed": ["done"], "not_found": ["not_found"],
                    "result": "/structured/result",
                },
            });
            make_write(file, "echo", dedup);
            let status =
                json!({"input_schema": {"type": "object"}, "mode": "read_only", "effect": "none"});
            file["capabilities"]["status"] = status;
            change(file);
            if let (Some(pin), true) = (pin, file["capabilities"]["status"]["pin"].is_null()) {
                file["capabilities"]["status"]["pin"] = json!(pin);
            }
        })
    };
    let unpinned = made(None);
    let adapter = connect(&unpinned).await.unwrap();
    let tools = adapter.discover().await.unwrap();
    adapter.close().await;
    let status = tools.iter().find(|tool| tool.name == "status").unwrap();
    made(Some(status.digest(&unpinned.adapter).to_string()))
}

fn about(contract: &Contract, tool: &str, token: &str) -> Inquiry {
    let capability = contract
        .capabilities
        .values()
        .find(|capability| capability.id.capability().as_str() == tool)
        .unwrap();
    Inquiry { capability: capability.id.clone(), token: token.to_owned(), timeout_ms: 10_000 }
}

async fn probe(contract: &Arc<Contract>, token: &str) -> Probe {
    let adapter = connect(contract).await.unwrap();
    let found = adapter.probe(&about(contract, "echo", token)).await;
    adapter.close().await;
    found
}

fn recorded() -> Value {
    json!({"content": [{"type": "text", "text": "ok"}], "structuredContent": {"n": 1}})
}

#[tokio::test]
async fn a_known_token_is_committed_with_the_result_as_the_call_answered_it() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let say = json!({"state": "done", "result": recorded()});
    let contract = asking("askable", &log, say, |_| {}).await;
    let Probe::Committed(answer) = probe(&contract, TOKEN).await else { panic!("not committed") };
    let expected = json!({"content": [{"type": "text", "text": "ok"}], "structured": {"n": 1}});
    assert_eq!(answer.output, expected);
    // The question carries the token where the contract says, and no key as if it were a write.
    let asked: Value = serde_json::from_str(&std::fs::read_to_string(&log).unwrap()).unwrap();
    assert_eq!((&asked["name"], &asked["arguments"]["token"]), (&json!("status"), &json!(TOKEN)));
    assert!(!asked["_meta"].to_string().contains("dev.placet"));
}

#[tokio::test]
async fn an_unknown_token_is_not_found() {
    let folder = tempfile::tempdir().unwrap();
    let contract = asking("askable", &folder.path().join("log"), json!({}), |_| {}).await;
    assert!(matches!(probe(&contract, "plc_other").await, Probe::NotFound));
}

#[tokio::test]
async fn structured_content_alone_is_a_result_too_if_the_contract_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let say = json!({"state": "done", "result": {"n": 1}});
    let contract = asking("askable", &folder.path().join("log"), say, |file| {
        file["capabilities"]["echo"]["dedup"]["probe"]["result_form"] = json!("structured");
    })
    .await;
    let Probe::Committed(answer) = probe(&contract, TOKEN).await else { panic!("not committed") };
    assert_eq!(answer.output, json!({"structured": {"n": 1}}));
}

#[tokio::test]
async fn without_a_place_for_the_result_the_effect_is_still_committed() {
    let folder = tempfile::tempdir().unwrap();
    let contract =
        asking("askable", &folder.path().join("log"), json!({"state": "done"}), |file| {
            file["capabilities"]["echo"]["dedup"]["probe"]["result"] = Value::Null;
        })
        .await;
    let Probe::Committed(answer) = probe(&contract, TOKEN).await else { panic!("not committed") };
    assert!(answer.output["notes"][0].as_str().unwrap().contains("not with which result"));
}

#[tokio::test]
async fn whatever_is_not_plainly_one_of_the_states_is_unknown() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    for say in [
        json!({}),
        json!({"state": "pending"}),
        json!({"state": true}),
        json!({"state": ["done"]}),
        json!({"state": "DONE", "result": recorded()}),
        // Committed, without a valid result.
        json!({"state": "done"}),
        json!({"state": "done", "result": null}),
        json!({"state": "done", "result": "text"}),
        json!({"state": "done", "result": {"structuredContent": {}}}),
        json!({"state": "done", "result": {"content": [{"type": "no such type"}]}}),
        json!({"state": "done", "result": {"content": [], "isError": true}}),
    ] {
        let contract = asking("askable", &log, say.clone(), |_| {}).await;
        assert!(matches!(probe(&contract, TOKEN).await, Probe::Unknown), "{say}");
    }
    let say = json!({"state": "done", "result": recorded()});
    let contract = asking("askable", &log, say, |file| {
        file["capabilities"]["echo"]["dedup"]["probe"]["args"]["error"] = json!(true);
    })
    .await;
    assert!(matches!(probe(&contract, TOKEN).await, Probe::Unknown), "an error was believed");
}

#[tokio::test]
async fn a_probe_that_is_not_what_was_reviewed_is_not_asked() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let say = json!({"state": "done", "result": recorded()});
    let other_pin = json!(format!("sha256:{}", "0".repeat(64)));
    let changes: [&dyn Fn(&mut Value); 2] =
        [&|file| file["capabilities"]["status"]["pin"] = other_pin.clone(), &|file| {
            file["capabilities"]["status"]["enabled"] = json!(false)
        }];
    for change in changes {
        let contract = asking("askable", &log, say.clone(), change).await;
        assert!(matches!(probe(&contract, TOKEN).await, Probe::Unknown));
        assert!(!log.try_exists().unwrap(), "it was asked all the same");
    }
}

#[tokio::test]
async fn a_silent_probe_is_unknown_within_its_time() {
    let folder = tempfile::tempdir().unwrap();
    let contract = asking("askable:silent", &folder.path().join("log"), json!({}), |file| {
        file["capabilities"]["echo"]["dedup"]["probe"]["timeout_ms"] = json!(300);
    })
    .await;
    let adapter = connect(&contract).await.unwrap();
    let begun = Instant::now();
    assert!(matches!(adapter.probe(&about(&contract, "echo", TOKEN)).await, Probe::Unknown));
    assert!(begun.elapsed() < Duration::from_secs(5));
    // It is one request among others: the connection continues.
    done(call(adapter.as_ref(), &contract, "echo", json!({})).await);
    adapter.close().await;
}

#[tokio::test]
async fn a_probe_never_guesses() {
    let folder = tempfile::tempdir().unwrap();
    let say = json!({"state": "done", "result": recorded()});
    let contract = asking("askable", &folder.path().join("log"), say, |_| {}).await;
    let adapter = connect(&contract).await.unwrap();
    // Its contract does not say how to probe.
    assert!(matches!(adapter.probe(&about(&contract, "slow", TOKEN)).await, Probe::Unknown));
    adapter.close().await;
    assert!(matches!(adapter.probe(&about(&contract, "echo", TOKEN)).await, Probe::Unknown));
}
