//! How long what was minted counts, and with what it is asked for.

use std::fs;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use regex::Regex;
use serde_json::{Value, json};

use super::super::{CLIENT_SECRET, World, files_with, search, secrets};
use crate::harness::{client::text, seconds, setup::Setup};

/// When the credentials on the record ended, in seconds.
fn ends_on_record(setup: &Setup) -> Vec<u64> {
    let used = Regex::new(r#"\{[^{}]*"token_exchange"[^{}]*\}"#).unwrap();
    let mut ends = Vec::new();
    for file in files_with(&setup.data(), "token_exchange") {
        let bytes = fs::read(file).unwrap();
        let all = String::from_utf8_lossy(&bytes);
        let objects = used.find_iter(&all).filter_map(|one| {
            let one: Value = serde_json::from_str(one.as_str()).ok()?;
            one["expires_at"].as_u64()
        });
        ends.extend(objects.map(|ms| ms / 1_000));
    }
    ends
}

#[tokio::test]
async fn subject_expiry_caps_the_grant() {
    let mut world = World::new().await;
    // Nothing is asked for with what is as good as over.
    let over = world.signed(&json!({ "claims": { "exp": seconds() + 14 } })).await;
    world.call_for("over", &over).await.refused(401, "CREDENTIAL_EXPIRED");
    // The agent's own counts as well as its user's.
    let as_agent = |ends: u64| json!({ "claims": { "sub": "agent-1", "client_id": "agent-1", "placet_kind": "agent", "exp": ends } });
    let alice = world.provider.alice.clone();
    let over = world.signed(&as_agent(seconds() + 14)).await;
    let client = world.placet.client(Some(over));
    let refused = World::call_as(&client, &search("agent-over"), &alice).await;
    refused.refused(401, "CREDENTIAL_EXPIRED");
    assert!(world.asked().await.is_empty());
    assert_eq!(world.guarded.calls(), 0);
    // The provider gives five minutes, whatever is left of the subject's own time.
    let ends = seconds() + 120;
    let short = world.signed(&json!({ "claims": { "exp": ends } })).await;
    world.call_for("short", &short).await.ok();
    let short = world.signed(&as_agent(ends)).await;
    let client = world.placet.client(Some(short));
    World::call_as(&client, &search("agent-short"), &alice).await.ok();
    world.placet.stop().await;
    let on_record = ends_on_record(&world.setup);
    assert!(on_record.len() >= 2, "not each credential is on the record: {on_record:?}");
    assert!(on_record.iter().all(|end| *end == ends - 15), "{on_record:?}, and not {ends} - 15");
}

#[tokio::test]
async fn rotated_secret_needs_no_restart() {
    let world = World::new().await;
    let file = world.setup.path("sts-secret");
    let replace = |value: &str| {
        let next = file.with_extension("next");
        fs::write(&next, value).unwrap();
        fs::rename(next, &file).unwrap();
    };
    replace(CLIENT_SECRET);
    let mut secrets = secrets();
    secrets["sts-secret"] = json!({ "file": "sts-secret" });
    let world = world.set(|setup| setup.with("secrets", secrets)).await;
    // Every call asks again.
    let words = json!({ "sts": "basic", "cache": "never" });
    let mut world = world.with_credential(words).await;
    world.call(&search("first")).await.ok();
    // The file is first: the version before still counts at the provider.
    replace("second-geheim");
    world.call(&search("overlap")).await.ok();
    world.provider.tell("secret second-geheim").await;
    world.call(&search("second")).await.ok();
    // The provider is first: there is nothing that it would take, until the file has it.
    world.provider.tell("secret third-geheim").await;
    world.call(&search("between")).await.refused(502, "CREDENTIAL_MISCONFIGURED");
    replace("third-geheim");
    world.call(&search("third")).await.ok();
    let asked = world.asked().await;
    let shown: Vec<String> =
        asked.iter().map(|form| text(&form["headers"], "authorization")).collect();
    let basic =
        |secret: &str| format!("Basic {}", STANDARD.encode(format!("placet-basic:{secret}")));
    let each = [CLIENT_SECRET, CLIENT_SECRET, "second-geheim", "third-geheim"].map(basic);
    assert_eq!(shown, each);
    assert_eq!(world.guarded.calls(), 4);
}
