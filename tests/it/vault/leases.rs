//! When what the vault leases is over, as the record of each call says it.
//!
//! Owns the comparison: the vault is asked when the lease ends, the audit when the credential does. Renewal and replacement are tested above.

use std::fs;

use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{OnDemand, READS, behind, fresh, look, on_demand, roles};
use crate::harness::{openbao::OpenBao, seconds, setup::Setup, until};

/// How far the two may be apart, in milliseconds: the vault's answer is in whole seconds, and Placet counts from when it asked.
const APART_MS: u64 = 2_000;

/// In how many seconds the only lease there is ends, as the vault says.
async fn left_s(vault: &OpenBao) -> u64 {
    let all = "sys/leases/lookup/database/creds/reader";
    let listed = vault.ask(Method::GET, &format!("{all}?list=true"), &Value::Null).await.ok();
    let keys = listed["data"]["keys"].as_array().unwrap();
    let [key] = keys.as_slice() else { panic!("not one lease: {listed:#}") };
    let lease = format!("database/creds/reader/{}", key.as_str().unwrap());
    let asked = json!({ "lease_id": lease });
    vault.ask(Method::PUT, "sys/leases/lookup", &asked).await.ok()["data"]["ttl"].as_u64().unwrap()
}

/// The credentials of the calls so far, in their order, as the audit exports them.
async fn credentials(setup: &Setup) -> Vec<Value> {
    let chain = setup.path("chain.jsonl");
    setup.configured(&["audit", "export", chain.to_str().unwrap()]).await.ok();
    let lines = fs::read_to_string(&chain).unwrap();
    let entries = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let payloads =
        entries.filter_map(|entry| serde_json::from_str::<Value>(entry["payload"].as_str()?).ok());
    let events = payloads.flat_map(|payload| payload["audit"].as_array().cloned());
    let dispatched = events.flatten().filter(|event| event["kind"] == "read_dispatched");
    dispatched.map(|event| event["credential"].clone()).collect()
}

#[tokio::test]
async fn the_record_says_when_a_lease_ends_that_a_call_was_made_with() {
    let OnDemand { vault, database, setup, server, jwt: _jwt } =
        on_demand(("12s", "1h"), ("10m", "1h")).await;
    until("the import gives its own back", || async { roles(&database).await.is_empty() }).await;
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    let mut ends = Vec::new();
    let mut call = async || {
        look(&agent, &fresh()).await.succeeded();
        ends.push(seconds().saturating_add(left_s(&vault).await).saturating_mul(1_000));
    };
    let started = Instant::now();
    call().await;
    // A call that is made later with the same lease says the same end; one that is made after a renewal says the new one.
    tokio::time::sleep_until(started + std::time::Duration::from_secs(4)).await;
    call().await;
    let before = left_s(&vault).await;
    until("the lease is renewed", || async { left_s(&vault).await > before }).await;
    call().await;
    placet.stop().await;

    let mut shown = server.shown();
    shown.dedup();
    assert_eq!(shown.len(), 1, "it was one lease all the time");
    let used = credentials(&setup).await;
    assert_eq!(used.len(), ends.len(), "{used:#?}");
    for (at, (used, end)) in used.iter().zip(&ends).enumerate() {
        let told = used["expires_at"].as_u64().unwrap_or_else(|| panic!("no end: {used:#}"));
        assert!(told.abs_diff(*end) <= APART_MS, "call {at}: {told}, and the vault says {end}");
        assert_eq!((&used["kind"], &used["source"]), (&json!("static_secret"), &json!("key")));
    }
    let told = |at: usize| used[at]["expires_at"].as_u64().unwrap();
    assert!(told(0).abs_diff(told(1)) < 100, "{used:#?}");
    assert!(told(2) >= told(1) + 3_000, "the renewal is not on the record: {used:#?}");
}

#[tokio::test]
async fn of_an_entry_without_a_lease_no_end_is_made_up() {
    let vault = OpenBao::start().await;
    vault.write("secret/data/tickets", &json!({ "key": "one" })).await;
    let token_file = tempfile::NamedTempFile::new().unwrap();
    vault.token(READS, token_file.path()).await;
    let auth = json!({ "method": "token_file", "file": token_file.path() });
    let (setup, _server) = behind(&vault, &auth, "secret/data/tickets#key").await;
    let placet = setup.start().await;
    look(&setup.agent(&placet).await, "s1").await.succeeded();
    placet.stop().await;
    let used = credentials(&setup).await;
    assert_eq!(used.len(), 1, "{used:#?}");
    assert!(used[0].get("expires_at").is_none(), "{used:#?}");
    assert_eq!(used[0]["source"], "key");
    assert!(used[0]["digest"].is_string(), "{used:#?}");
}
