//! Servers that answer a call with an error after its effect, behind the built program.
//!
//! Owns the promise that such an answer is not taken for "not executed", and that one approval has one effect.

use std::fs;

use serde_json::json;

use crate::{
    harness::{
        client::text,
        npm,
        setup::{Setup, plan},
    },
    workspace,
};

/// A server on the SDK 1.18.2, which answers -32602 when the result of a tool does not fit its output schema.
async fn misfit() -> Setup {
    let setup = Setup::new().with("contracts", json!("contracts"));
    let script = workspace::root().join("tests/peers/misfit.mjs");
    let effects = setup.path("effects");
    let (node, modules) = (npm::node(), npm::modules());
    let command = [&node, script.to_str().unwrap(), &modules, effects.to_str().unwrap()];
    let words = ["adapters", "import", "--name", "bank", "--stdio", "--"];
    setup.configured(&[&words[..], &command[..]].concat()).await.ok();
    setup
}

fn effects(setup: &Setup) -> usize {
    fs::read_to_string(setup.path("effects")).unwrap_or_default().lines().count()
}

#[tokio::test]
async fn an_error_after_the_effect_is_unknown_and_never_sent_again() {
    let setup = misfit().await;
    let placet = setup.start().await;
    let (agent, ben) = (setup.agent(&placet).await, setup.ben(&placet).await);
    let call = plan("bank__transfer", "s1", json!({ "amount": 5 }));
    let held = agent.call(&call).await.held();
    ben.decide(&held, "approve").await.ok();
    agent.end_of(&text(&held, "call_id")).await.refused(409, "OUTCOME_UNKNOWN");
    for _retry in 0..5 {
        let problem = agent.call(&call).await.refused(409, "OUTCOME_UNKNOWN");
        assert_eq!(problem["execution"], "unknown", "{problem:#}");
        assert_eq!(effects(&setup), 1, "one approval had another effect");
    }
    let listed = ben.get("/v1/ledger?state=indeterminate").await.ok();
    assert_eq!(listed["records"][0]["attempts"], 1, "{listed:#}");
}

#[tokio::test]
async fn a_declared_error_is_not_executed_and_asks_people_again() {
    let setup = misfit().await;
    let mut contract = setup.read_contract("bank");
    contract["capabilities"]["transfer"]["not_executed"] = json!({ "jsonrpc": [-32602] });
    fs::write(setup.contract_file("bank"), contract.to_string()).unwrap();
    let placet = setup.start().await;
    let (agent, ben) = (setup.agent(&placet).await, setup.ben(&placet).await);
    let call = plan("bank__transfer", "s1", json!({ "amount": 5 }));
    let held = agent.call(&call).await.held();
    ben.decide(&held, "approve").await.ok();
    let problem = agent.end_of(&text(&held, "call_id")).await.refused(502, "ADAPTER_FAILED");
    assert_eq!(problem["execution"], "not_executed", "{problem:#}");
    // The word of the target is not enough to be sent again under an agreement to one transfer.
    let again = agent.call(&call).await.held();
    assert_ne!(again["approval_id"], held["approval_id"]);
    assert_eq!(effects(&setup), 1);
}
