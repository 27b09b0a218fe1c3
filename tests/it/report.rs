//! The evaluation report (TM-21): five metrics of a range of time, by adapter and capability, from the audit chain of either store.
//!
//! Owns what operators get, over HTTP and on the command line, of calls that were really made.

use serde_json::{Value, json};

use crate::harness::{
    placet::Placet,
    postgres::Database,
    setup::{Setup, plan},
    until,
};

fn write(path: &str) -> Value {
    let args = json!({ "path": path, "content": "x", "overwrite": false });
    let mut call = plan("files__write", "w1", args);
    call["idempotency_key"] = json!("key-1");
    call
}

/// Calls of every kind: read, misclassified, failed validation, outside the surface, unknown, written, replayed, in conflict.
async fn calls(setup: &Setup, placet: &Placet) {
    let agent = setup.agent(placet).await;
    let read = |step: &str| plan("files__read", step, json!({ "path": "a.txt" }));
    agent.call(&read("s1")).await.succeeded();
    let mut stronger = read("s2");
    stronger["approval_mode_requested"] = json!("local_write");
    agent.call(&stronger).await.succeeded();
    agent.call(&plan("files__read", "s3", json!({}))).await.refused(400, "VALIDATION_ERROR");
    agent.call(&plan("nothing__at-all", "s4", json!({}))).await.refused(404, "TOOL_NOT_FOUND");
    let stranger = setup.client(placet, "agent", "stranger").await;
    stranger.call(&write("new.txt")).await.refused(404, "TOOL_NOT_FOUND");
    agent.call(&write("new.txt")).await.succeeded();
    assert_eq!(agent.call(&write("new.txt")).await.succeeded()["replayed"], true);
    agent.call(&write("other.txt")).await.refused(422, "IDEMPOTENCY_CONFLICT");
}

fn row<'a>(report: &'a Value, capability: &str) -> &'a Value {
    let rows = report["rows"].as_array().unwrap();
    let found = rows.iter().find(|row| row["capability"] == capability);
    &found.unwrap_or_else(|| panic!("no {capability}: {report:#}"))["numbers"]
}

fn shows_the_five_metrics(report: &Value) {
    assert_eq!(report["incomplete"], false, "{report:#}");
    let read = row(report, "read");
    assert_eq!((&read["calls"], &read["succeeded"]), (&json!(3), &json!(2)), "{read:#}");
    assert_eq!((&read["refused"], &read["success_rate"]), (&json!(1), &json!(1.0)), "{read:#}");
    assert_eq!((&read["decided"], &read["misclassified"]), (&json!(2), &json!(1)), "{read:#}");
    assert_eq!(read["misclassification_rate"], 0.5);
    assert_eq!(read["timed"], 2);
    let (mean, p99) = (read["latency_mean_ms"].as_u64(), read["latency_p99_ms"].as_u64());
    assert!(mean.is_some() && mean <= p99 && p99 < Some(60_000), "{read:#}");

    let write = row(report, "write");
    assert_eq!((&write["calls"], &write["succeeded"]), (&json!(4), &json!(1)), "{write:#}");
    assert_eq!((&write["violations"], &write["violation_rate"]), (&json!(1), &json!(0.25)));
    assert_eq!((&write["replayed"], &write["replays_differed"]), (&json!(1), &json!(0)));
    assert_eq!((&write["conflicts"], &write["replay_correctness"]), (&json!(1), &json!(1.0)));
    let unknown = row(report, "unresolved");
    assert_eq!(
        (&unknown["refused"], &unknown["violations"]),
        (&json!(1), &json!(0)),
        "{unknown:#}"
    );
}

async fn reported(setup: Setup) {
    setup.put("a.txt", "x");
    let placet = setup.start().await;
    calls(&setup, &placet).await;
    let ben = setup.ben(&placet).await;
    // What is noted without holding up a reply is in the chain a moment later.
    until("the last refusal is in the chain", || async {
        let report = ben.get("/v1/report").await.ok();
        row(&report, "write")["conflicts"] == 1
    })
    .await;
    let report = ben.get("/v1/report").await.ok();
    shows_the_five_metrics(&report);
    let agent = setup.agent(&placet).await;
    agent.get("/v1/report").await.refused(403, "POLICY_DENIED");
    for wrong in ["from=2&to=1", "from=1&to=9999999999999", "from=x", "last=1"] {
        ben.get(&format!("/v1/report?{wrong}")).await.refused(400, "VALIDATION_ERROR");
    }
    let before = ben.get("/v1/report?from=1&to=1000").await.ok();
    assert_eq!((&before["rows"], &before["total"]["calls"]), (&json!([]), &json!(0)));

    let token = setup.token("user", "ben").await;
    let printed = setup.asks(&placet, &token, &["report", "--last", "1h", "--json"]).await.json();
    assert_eq!(printed["rows"], report["rows"]);
    let table = setup.asks(&placet, &token, &["report"]).await;
    assert!(table.ok().contains("files/read") && table.ok().contains("50.0 %"), "{table:?}");

    let metrics = placet.ask("/metrics").await.text();
    let refused = r#"placet_calls_total{adapter="files",capability="read",status="refused",code="VALIDATION_ERROR"} 1"#;
    assert!(metrics.contains(refused), "{metrics}");
    placet.stop().await;
    let again = setup.start().await;
    let later = setup.ben(&again).await.get("/v1/report").await.ok();
    assert_eq!(later["rows"], report["rows"], "a restart changes nothing");
}

#[tokio::test]
async fn a_report_of_the_embedded_store_has_the_five_metrics() {
    reported(Setup::new()).await;
}

#[tokio::test]
async fn a_report_of_postgresql_has_the_five_metrics() {
    let database = Database::start().await;
    reported(Setup::new().arg("--ledger").arg(&database.url)).await;
}
