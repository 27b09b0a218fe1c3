//! Adapter classes behind the built program: what recovery does after a crash.
//!
//! Owns the promises about repeating a call, from outside. The server is `tests/peers/bank.mjs`, whose witness file is kept by itself.

use std::fs;

use http::{Method, header};
use serde_json::{Value, json};

use crate::{
    harness::{
        npm,
        setup::{Setup, plan},
        until,
    },
    workspace,
};

fn bank() -> String {
    workspace::root().join("tests/peers/bank.mjs").to_str().unwrap().to_owned()
}

/// The server, imported and reviewed as an author would do it; every class is among its tools.
async fn reviewed(manner: &str) -> Setup {
    let setup = Setup::new().with("contracts", json!("contracts"));
    let state = setup.path("witness");
    let words = ["adapters", "import", "--name", "bank", "--stdio", "--"];
    let command = [npm::node(), bank(), manner.to_owned(), state.to_str().unwrap().to_owned()];
    let command: Vec<&str> = words.into_iter().chain(command.iter().map(String::as_str)).collect();
    setup.configured(&command).await.ok();
    let mut contract = setup.read_contract("bank");
    let capabilities = contract["capabilities"].as_object_mut().unwrap();
    for name in ["status", "look"] {
        capabilities[name]["mode"] = json!("read_only");
        capabilities[name]["effect"] = json!("none");
        capabilities[name].as_object_mut().unwrap().remove("dedup");
    }
    let probe = json!({
        "tool": "status", "argument": "token", "state": "/structured/state",
        "committed": ["committed"], "not_found": ["not_found"], "result": "/structured/result",
    });
    for (name, dedup) in [
        ("pay", json!({"class": "keyed", "window_ms": 86_400_000})),
        ("order", json!({"class": "keyed", "window_ms": 86_400_000, "argument": "request_id"})),
        ("book", json!({"class": "queryable", "settle_delay_ms": 100, "probe": probe})),
    ] {
        capabilities[name]["mode"] = json!("local_write");
        capabilities[name]["dedup"] = dedup;
    }
    // The engine fills it, so no caller may.
    let properties = &mut capabilities["order"]["input_schema"]["properties"];
    properties.as_object_mut().unwrap().remove("request_id");
    setup.contract("bank", &contract)
}

fn witness(setup: &Setup) -> Vec<Value> {
    let text = fs::read_to_string(setup.path("witness")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn after_a_crash_a_queryable_call_is_asked_about_and_a_keyed_one_is_sent_again_with_its_token()
 {
    let setup = reviewed("hangs").await;
    // What decides how the server behaves is outside the contract, so that its digest stays.
    let manner = setup.path("manner");
    let mut contract = setup.read_contract("bank");
    contract["transport"]["args"] =
        json!([bank(), format!("@{}", manner.display()), setup.path("witness")]);
    fs::write(setup.contract_file("bank"), contract.to_string()).unwrap();
    for (tool, step) in [("bank__book", "s1"), ("bank__pay", "s2"), ("bank__order", "s3")] {
        fs::write(&manner, "hangs").unwrap();
        let before = witness(&setup).len();
        let first = setup.start().await;
        let agent = setup.agent(&first).await;
        let mut call = plan(tool, step, json!({ "amount": 5 }));
        call["run"]["run_budget"] = json!({ "tool_latency_ms_max": 3_000 });
        let sent = call.clone();
        let calling = tokio::spawn(async move {
            let request = agent.request(Method::POST, "/v1/calls");
            let request = request.header(header::CONTENT_TYPE, "application/json");
            agent.is_answered_to(request.body(sent.to_string().into()).unwrap()).await
        });
        until("the effect", || async { witness(&setup).len() > before }).await;
        first.kill().await;
        assert!(!calling.await.unwrap(), "it was answered before the crash");

        fs::write(&manner, "honest").unwrap();
        let second = setup.start().await;
        let agent = setup.agent(&second).await;
        let again = agent.call(&call).await.succeeded();
        assert_eq!(again["output"]["structured"]["receipt"], json!(before + 1), "{again:#}");
        assert_eq!(witness(&setup).len() - before, 1, "{tool} was done again");
        second.kill().await;
    }
    // Every write had its token, also where the contract wants it, and the number of its attempt.
    let seen = witness(&setup);
    assert!(
        seen.iter().all(|call| call["token"].as_str().unwrap().starts_with("plc_")),
        "{seen:?}"
    );
    assert!(seen.iter().all(|call| call["attempt"].is_u64()), "{seen:?}");
    assert_eq!(seen[2]["args"]["request_id"], seen[2]["token"]);
}
