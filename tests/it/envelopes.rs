//! Every answer about a call is a result envelope (TM-03): over HTTP, in a problem document, on an event stream and on the command line.
//!
//! Owns the five statuses as callers see them. What becomes of each call is tested where it belongs.

use serde_json::{Value, json};

use crate::harness::{
    client::{Client, text},
    npm,
    placet::Placet,
    setup::{Setup, plan},
    until,
};

/// A set-up with the files adapter and the stub over stdio; `look` only reads.
async fn with_stub() -> (Setup, Placet, Client) {
    let setup = Setup::new().files_contract();
    let setup = setup.with("contracts", json!("contracts"));
    let import =
        ["adapters", "import", "--name", "stub", "--stdio", "--mode-default", "local_write", "--"];
    setup.configured(&[&import[..], &[&npm::node(), &npm::stub(), "good"]].concat()).await.ok();
    let mut contract = setup.read_contract("stub");
    let look = contract["capabilities"]["look"].as_object_mut().unwrap();
    look.insert("mode".to_owned(), json!("read_only"));
    look.insert("effect".to_owned(), json!("none"));
    look.remove("dedup");
    std::fs::write(setup.contract_file("stub"), contract.to_string()).unwrap();
    setup.put("a.txt", "x");
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    (setup, placet, agent)
}

/// Checks what an envelope has whatever became of the call.
fn is_envelope(result: &Value, status: &str, code: Option<&str>) {
    assert_eq!(result["envelope_version"], "contextos.tool_result.v1", "{result:#}");
    assert_eq!(result["status"], status, "{result:#}");
    assert_eq!(result["run_id"], "run", "{result:#}");
    for id in ["tool_call_id", "trace_id", "trace_context"] {
        assert!(!text(result, id).is_empty(), "{id}: {result:#}");
    }
    for number in [&result["latency"]["total_ms"], &result["retries"], &result["cost"]["cents"]] {
        assert!(number.is_u64(), "{result:#}");
    }
    assert_eq!(result["replayed"], false);
    assert_eq!(result["error"]["error_code"].as_str(), code, "{result:#}");
}

#[tokio::test]
async fn success_failure_and_waiting_are_envelopes() {
    let (_setup, _placet, agent) = with_stub().await;
    let read = agent.call(&plan("files__read", "s1", json!({ "path": "a.txt" }))).await;
    is_envelope(&read.succeeded(), "succeeded", None);
    let failed =
        agent.call(&plan("stub__look", "s2", json!({ "what": "fails, and says it" }))).await;
    is_envelope(&failed.ok(), "failed", Some("ADAPTER_FAILED"));

    let delete = plan("files__delete", "s3", json!({ "path": "a.txt" }));
    let held = agent.call(&delete).await;
    assert_eq!(held.status, 202);
    let waits = held.json();
    is_envelope(&waits, "pending", Some("APPROVAL_PENDING"));
    assert_eq!(waits["capability_id"], "files/delete");
    assert!(!text(&waits, "approval_id").is_empty() && !text(&waits, "idempotency_key").is_empty());
    assert_eq!(waits["pending_approval"]["state"], "pending");
    assert_eq!(waits["pending_approval"]["requirement"]["reasons"], json!([]));

    let mut events = agent.events(&text(&waits, "tool_call_id")).await;
    let (name, data) = events.next().await.unwrap();
    assert_eq!(name, "held");
    assert_eq!(data["pending_approval"], waits["pending_approval"]);
    assert_eq!((&data["status"], &data["run_id"]), (&json!("pending"), &json!("run")));
}

#[tokio::test]
async fn refusals_carry_the_envelope_in_their_problem_document() {
    let (_setup, _placet, agent) = with_stub().await;
    for (tool, args, status, code, capability) in [
        ("files__read", json!({}), 400, "VALIDATION_ERROR", Some("files/read")),
        ("nothing__at-all", json!({}), 404, "TOOL_NOT_FOUND", Some("nothing/at-all")),
        ("nameless", json!({}), 404, "TOOL_NOT_FOUND", None),
    ] {
        let mut call = plan(tool, "s1", args);
        call["run"]["session_id"] = json!("talk-1");
        let problem = agent.call(&call).await.refused(status, code);
        let result = &problem["result"];
        is_envelope(result, "refused", Some(code));
        assert_eq!(result["capability_id"].as_str(), capability, "{result:#}");
        assert_eq!(result["session_id"], "talk-1", "{result:#}");
        for same in ["retryable", "remediation", "execution"] {
            assert_eq!(result["error"][same], problem[same], "{problem:#}");
        }
        let call = format!("/v1/calls/{}", text(result, "tool_call_id"));
        let mut events = agent.events(&text(result, "tool_call_id")).await;
        let (name, data) = events.next().await.unwrap();
        assert_eq!((name.as_str(), &data), ("refused", result));
        let again = agent.get(&call).await.refused(status, code);
        assert_eq!(&again["result"], result);
    }
    // There is no call where a request is refused before there is one.
    let malformed = agent.post_text("/v1/calls", "{").await.refused(400, "VALIDATION_ERROR");
    assert!(malformed.get("result").is_none() && malformed.get("call_id").is_none());
}

#[tokio::test]
async fn calls_under_way_and_unknown_outcomes_are_envelopes() {
    let (setup, placet, agent) = with_stub().await;
    let ben = setup.ben(&placet).await;
    let mut slow = plan("stub__note", "s1", json!({ "what": "waits for ever" }));
    slow["run"]["run_budget"] = json!({ "tool_latency_ms_max": 5_000 });
    let record = || async { ben.get("/v1/ledger").await.ok()["records"][0].clone() };
    let watching = async {
        until("the call is under way", || async { record().await["state"] == "dispatched" }).await;
        let call = format!("/v1/calls/{}", text(&record().await, "call_id"));
        agent.get(&call).await.refused(409, "IN_PROGRESS")
    };
    let (end, problem) = tokio::join!(agent.call(&slow), watching);
    is_envelope_of_record(&problem["result"], "pending", "IN_PROGRESS");
    let unknown = end.refused(409, "OUTCOME_UNKNOWN");
    is_envelope(&unknown["result"], "unknown", Some("OUTCOME_UNKNOWN"));
}

/// Checks an envelope made of a record, which knows no trace.
fn is_envelope_of_record(result: &Value, status: &str, code: &str) {
    assert_eq!(result["envelope_version"], "contextos.tool_result.v1", "{result:#}");
    assert_eq!(
        (&result["status"], &result["run_id"]),
        (&json!(status), &json!("run")),
        "{result:#}"
    );
    assert_eq!(result["capability_id"], "stub/note", "{result:#}");
    assert_eq!(result["error"]["error_code"], code, "{result:#}");
}

#[tokio::test]
async fn the_command_line_prints_the_same_envelope() {
    let (setup, placet, _agent) = with_stub().await;
    let token = setup.token("agent", "dev-agent").await;
    let call = |words: &'static [&'static str]| {
        let words = [&["call", "--json", "--run", "run"], words].concat();
        let (setup, placet, token) = (&setup, &placet, &token);
        async move { setup.asks(placet, token, &words).await }
    };
    let read = call(&["files__read", "--arg", "path=a.txt"]).await;
    is_envelope(&read.json(), "succeeded", None);
    let refused = call(&["files__read", "--arg", "paths=a.txt"]).await;
    assert_eq!(refused.code, Some(5), "{refused:?}");
    let result: Value = serde_json::from_str(&refused.out).unwrap();
    is_envelope(&result, "refused", Some("VALIDATION_ERROR"));
}
