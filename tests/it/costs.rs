//! What an invocation took and cost (TM-11), told by real peers: latency, retries, cost and the trace it ran in.
//!
//! Owns the numbers in the result of a call. The peer is `tests/peers/stub.mjs`.

use serde_json::{Value, json};

use crate::harness::{
    client::text,
    npm,
    setup::{Setup, plan},
};

/// The stub over stdio, whose writes are keyed and cost three cents.
async fn stub() -> Setup {
    let setup = Setup::new().with("contracts", json!("contracts"));
    let import =
        ["adapters", "import", "--name", "stub", "--stdio", "--mode-default", "local_write", "--"];
    setup.configured(&[&import[..], &[&npm::node(), &npm::stub(), "good"]].concat()).await.ok();
    let mut contract = setup.read_contract("stub");
    let note = &mut contract["capabilities"]["note"];
    note["dedup"] = json!({ "class": "keyed", "window_ms": 86_400_000 });
    note["cost_cents"] = json!(3);
    setup.contract("stub", &contract)
}

fn note(step: &str, what: &str) -> Value {
    let mut call = plan("stub__note", step, json!({ "what": what }));
    call["run"]["run_budget"] = json!({ "cost_cents_max": 10 });
    call
}

#[tokio::test]
async fn a_result_says_latency_retries_cost_and_trace() {
    let setup = stub().await;
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    let trace = "5e".repeat(16);
    let traceparent = format!("00-{trace}-{}-01", "7f".repeat(8));
    let call = note("s1", "slowly, and stumbles, and costs 7");
    let result = agent.call_with(&call, "traceparent", &traceparent).await.succeeded();
    assert_eq!(result["retries"], 1, "{result:#}");
    assert_eq!(result["cost"]["cents"], 7, "{result:#}");
    let (total, adapter) = (&result["latency"]["total_ms"], &result["latency"]["adapter_ms"]);
    let (total, adapter) = (total.as_u64().unwrap(), adapter.as_u64().unwrap());
    assert!(adapter >= 300 && total >= adapter, "{result:#}");
    assert_eq!(result["trace_id"], trace);
    let context = text(&result, "trace_context");
    assert!(context.starts_with(&format!("00-{trace}-")) && context != traceparent, "{context}");

    let again = agent.call(&call).await.succeeded();
    assert_eq!(again["replayed"], true);
    for recorded in ["retries", "cost", "latency", "trace_id"] {
        assert_eq!(again[recorded], result[recorded], "{recorded}");
    }
}

#[tokio::test]
async fn a_cost_that_is_none_is_that_of_the_contract() {
    let setup = stub().await;
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    let plain = agent.call(&note("s1", "plain")).await.succeeded();
    assert_eq!(plain["cost"]["cents"], 3, "{plain:#}");
    for (step, wrong) in [("s2", "costs -1"), ("s3", "costs 100000001")] {
        let result = agent.call(&note(step, wrong)).await.succeeded();
        assert_eq!(result["cost"]["cents"], 3, "{result:#}");
        let notes = result["output"]["notes"].to_string();
        assert!(notes.contains("dev.placet/cost-cents"), "{result:#}");
    }
    // Ten cents are three calls of three, whatever their results report.
    agent.call(&note("s4", "costs 0")).await.refused(403, "BUDGET_EXHAUSTED");
}
