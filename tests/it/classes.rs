//! Adapter classes behind the built program: what `placet adapters verify` finds out, and what recovery does after a crash.
//!
//! Owns the promises about repeating a call, from outside. The server is `tests/peers/bank.mjs`, whose witness file is kept by itself;
//! npm's servers stand for those that promise nothing.

use std::fs;

use http::{Method, header};
use serde_json::{Value, json};

use crate::{
    harness::{
        npm,
        setup::{Ran, Setup, plan},
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
    for name in ["status", "count", "look"] {
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
        capabilities[name]["conformance"] = json!({"args": {"amount": 1}, "observe": {"tool": "count", "count": "/structured/count"}});
    }
    capabilities["look"]["conformance"] = capabilities["pay"]["conformance"].clone();
    capabilities["look"]["conformance"]["args"] = json!({});
    // The engine fills it, so no caller may.
    let properties = &mut capabilities["order"]["input_schema"]["properties"];
    properties.as_object_mut().unwrap().remove("request_id");
    setup.contract("bank", &contract)
}

/// The same set-up with a server of another manner.
fn with_manner(setup: &Setup, manner: &str) {
    let mut contract = setup.read_contract("bank");
    contract["transport"]["args"][1] = json!(manner);
    fs::write(setup.contract_file("bank"), contract.to_string()).unwrap();
}

fn witness(setup: &Setup) -> Vec<Value> {
    let text = fs::read_to_string(setup.path("witness")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

async fn verify(setup: &Setup, capability: &str) -> (Ran, Value) {
    let words = ["adapters", "verify", "bank", "--capability", capability, "--yes", "--json"];
    let words = [&words[..], &["--timeout-ms", "1500"]].concat();
    let ran = setup.configured(&words).await;
    let report = serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {ran:?}"));
    (ran, report)
}

/// The standings of the one capability of a report, by what was checked.
fn standings(report: &Value) -> Vec<(String, String)> {
    let checks = report["capabilities"][0]["checks"].as_array().unwrap();
    let word = |check: &Value, name: &str| check[name].as_str().unwrap().to_owned();
    checks.iter().map(|check| (word(check, "check"), word(check, "standing"))).collect()
}

#[tokio::test]
async fn a_server_that_keeps_its_promises_passes_and_has_no_more_effects_than_announced() {
    let setup = reviewed("honest").await;
    for (capability, class, effects) in [
        ("pay", "keyed", 2),
        ("order", "keyed", 2),
        ("book", "queryable", 1),
        ("look", "read_only", 0),
    ] {
        let before = witness(&setup).len();
        let (ran, report) = verify(&setup, capability).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert_eq!(report["capabilities"][0]["class"], class);
        let standings = standings(&report);
        assert!(standings.len() >= 4, "{report:#}");
        assert!(standings.iter().all(|(_, standing)| standing == "passed"), "{report:#}");
        assert_eq!(witness(&setup).len() - before, effects, "{capability}");
    }
    // Every write had its token, the number of its attempt, and a key to find it by.
    let seen = witness(&setup);
    assert!(seen[0]["token"].as_str().unwrap().starts_with("plc_"), "{seen:?}");
    assert_eq!((&seen[0]["attempt"], &seen[0]["caller_key"]), (&json!(1), &json!("one")));
    assert_eq!(seen[2]["args"]["request_id"], seen[2]["token"]);
}

#[tokio::test]
async fn servers_that_lie_are_caught() {
    let setup = reviewed("honest").await;
    for (manner, capability, caught) in [
        ("twice", "pay", "the same token twice has one effect"),
        ("twice", "order", "the same token twice has one effect"),
        ("one-for-all", "pay", "another token has another effect"),
        ("forgets", "book", "the token of a finished call is committed"),
        ("probe-acts", "book", "asking has no effect"),
        ("probe-notes", "book", "a token that was never sent is not found"),
        ("tells-another", "book", "the probe tells the result that the call was answered with"),
        ("garbage-calls", "pay", "it can be called"),
        ("hangs", "book", "it can be called"),
    ] {
        with_manner(&setup, manner);
        let (ran, report) = verify(&setup, capability).await;
        assert_eq!(ran.code, Some(1), "{manner}: {ran:?}");
        let failed = (caught.to_owned(), "failed".to_owned());
        assert!(standings(&report).contains(&failed), "{manner} {capability}: {report:#}");
        assert_eq!(report["capabilities"][0]["conforms"], false);
    }
    let table =
        setup.configured(&["adapters", "verify", "bank", "--capability", "pay", "--yes"]).await;
    assert!(table.out.contains("FAILED") && table.out.contains("class: opaque"), "{table:?}");
}

#[tokio::test]
async fn nothing_is_called_before_somebody_agrees_to_real_effects() {
    let setup = reviewed("honest").await;
    let asked = setup.configured(&["adapters", "verify", "bank"]).await;
    assert_eq!(asked.code, Some(2), "{asked:?}");
    assert!(asked.err.contains("real effects") && asked.err.contains("--yes"), "{asked:?}");
    assert!(asked.err.contains("bank/pay") && asked.err.contains("bank.mjs"), "{asked:?}");
    assert!(witness(&setup).is_empty());
}

#[tokio::test]
async fn a_definition_that_was_not_reviewed_is_not_called() {
    let setup = reviewed("honest").await;
    let mut contract = setup.read_contract("bank");
    contract["capabilities"]["pay"]["pin"] = json!(format!("sha256:{}", "0".repeat(64)));
    fs::write(setup.contract_file("bank"), contract.to_string()).unwrap();
    let (ran, report) = verify(&setup, "pay").await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(report.to_string().contains("adapters diff"), "{report:#}");
    assert!(witness(&setup).is_empty());
}

#[tokio::test]
async fn a_contract_file_and_arguments_of_ones_own_are_taken() {
    let setup = reviewed("honest").await;
    fs::write(setup.path("args.yaml"), "amount: 42\n").unwrap();
    fs::write(setup.path("wrong.json"), r#"{"amount": "much"}"#).unwrap();
    let file = setup.contract_file("bank");
    let words = ["adapters", "verify", file.to_str().unwrap(), "--capability", "pay", "--yes"];
    let ran = setup.configured(&[&words[..], &["--args", "args.yaml"]].concat()).await;
    assert!(ran.ok().contains("bank/pay (keyed)"), "{ran:?}");
    assert_eq!(witness(&setup)[0]["args"]["amount"], 42);
    let refused = setup.configured(&[&words[..], &["--args", "wrong.json"]].concat()).await;
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("do not fit"), "{refused:?}");
}

#[tokio::test]
async fn a_server_from_npm_that_knows_no_tokens_is_opaque_and_caught_if_it_is_called_keyed() {
    let setup = Setup::new().with("contracts", json!("contracts"));
    let folder = setup.path("shared");
    fs::create_dir(&folder).unwrap();
    let (node, server) = (npm::node(), npm::server("server-everything"));
    let words = ["adapters", "import", "--name", "everything", "--stdio", "--"];
    setup.configured(&[&words[..], &[&node, &server, "stdio"]].concat()).await.ok();
    let opaque =
        setup.configured(&["adapters", "verify", "everything", "--capability", "get-env"]).await;
    assert!(opaque.ok().contains("promises nothing"), "{opaque:?}");

    let (node, server) = (npm::node(), npm::server("server-filesystem"));
    let words = ["adapters", "import", "--name", "fs", "--stdio", "--"];
    let command = [node.as_str(), &server, folder.to_str().unwrap()];
    setup.configured(&[&words[..], &command].concat()).await.ok();
    let mut contract = setup.read_contract("fs");
    let path = folder.join("dir.txt");
    fs::write(&path, "x").unwrap();
    // Moving a file twice with the same token fails the second time: this server knows no tokens.
    let to = folder.join("moved.txt");
    contract["capabilities"]["move_file"]["dedup"] = json!({"class": "keyed", "window_ms": 60_000});
    contract["capabilities"]["move_file"]["conformance"] =
        json!({"args": {"source": path, "destination": to}});
    fs::write(setup.contract_file("fs"), contract.to_string()).unwrap();
    let ran =
        setup.configured(&["adapters", "verify", "fs", "--capability", "move_file", "--yes"]).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.out.contains("FAILED") && to.try_exists().unwrap(), "{ran:?}");
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
    for (tool, step) in [("bank__book", "s1"), ("bank__pay", "s2")] {
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
}
