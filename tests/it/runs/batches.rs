//! The calls of a model's turn, from outside: each requirement by its id (TS-05 to TS-09, TS-12, TS-13).

use std::fs;

use serde_json::{Value, json};

use super::{function, names, offered, opened, record, records, running};
use crate::harness::{
    client::{Client, Reply, text},
    setup::plan,
    within,
};

fn call(id: &str, tool: &str, args: Value) -> Value {
    json!({ "id": id, "tool": format!("records__{tool}"), "args": args })
}

/// A call as a model answers it.
fn tool_call(id: &str, name: &str, arguments: &str) -> Value {
    let function = json!({ "name": format!("records__{name}"), "arguments": arguments });
    json!({ "id": id, "type": "function", "function": function })
}

async fn sent(agent: &Client, run: &str, batch: &str, calls: &[Value]) -> Reply {
    agent
        .post(&format!("/v1/runs/{run}/batches"), &json!({ "batch_id": batch, "calls": calls }))
        .await
}

/// Sends a batch, and answers what became of it.
async fn made(agent: &Client, run: &str, batch: &str, calls: &[Value]) -> Value {
    sent(agent, run, batch, calls).await.ok()
}

/// The codes of the calls, in order; `succeeded` where there is none.
fn codes(view: &Value) -> Vec<String> {
    let results = view["results"].as_array().unwrap();
    let code = |result: &Value| {
        let of_call = &result["result"]["error"]["error_code"];
        let code = of_call.as_str().or_else(|| result["error"]["error_code"].as_str());
        code.map_or_else(|| text(result, "status"), str::to_owned)
    };
    results.iter().map(code).collect()
}

fn ids(view: &Value) -> Vec<String> {
    view["results"].as_array().unwrap().iter().map(|result| text(result, "id")).collect()
}

fn structured(view: &Value, place: usize) -> Value {
    view["results"][place]["result"]["output"]["structured"].clone()
}

#[tokio::test]
async fn ts_05_a_tool_that_takes_control_is_called_alone() {
    let setup = records(|tools| tools["deep_research"]["takes_control"] = json!(true)).await;
    let (_placet, agent) = running(&setup).await;
    opened(&agent, "r1", json!({})).await;
    let research = call("a", "deep_research", json!({ "question": "why" }));
    let sum = call("b", "factorial", json!({ "n": 5 }));
    let view = made(&agent, "r1", "b1", &[sum.clone(), research.clone()]).await;
    assert_eq!(codes(&view), ["CONTROL_CONFLICT", "CONTROL_CONFLICT"], "{view:#}");
    assert!(text(&view["results"][0]["error"], "message").contains("`records__deep_research`"));
    assert!(text(&view["results"][1]["error"], "message").contains("Call the other tools first"));
    assert_eq!(record(&setup), Vec::<Value>::new(), "something of the batch was executed");
    // As it says: the others first, then this one alone.
    let view = made(&agent, "r1", "b2", &[sum]).await;
    assert_eq!(structured(&view, 0)["result"], 120);
    let view = made(&agent, "r1", "b3", &[research.clone(), research]).await;
    assert_eq!(codes(&view), ["succeeded", "succeeded"]);
    assert_eq!(record(&setup).len(), 2);
}

#[tokio::test]
async fn ts_06_equal_calls_run_once_and_each_call_has_its_own_outcome_in_order() {
    let setup = records(|_| {}).await;
    let (_placet, agent) = running(&setup).await;
    opened(&agent, "r1", json!({ "calls_per_batch_max": 5 })).await;
    let calls = [
        tool_call("1", "factorial", r#"{"n":3}"#),
        tool_call("2", "fails", "{}"),
        tool_call("3", "nowhere", "{}"),
        tool_call("4", "factorial", r#"{ "n": 3.0 }"#),
        tool_call("5", "factorial", r#"{"n":"three"}"#),
        tool_call("6", "math_square", r#"{"n":4}"#),
        call("7", "math.square", json!({ "n": 4 })),
        tool_call("8", "factorial", r#"{"n":9}"#),
    ];
    let view = made(&agent, "r1", "b1", &calls).await;
    assert_eq!(ids(&view), ["1", "2", "3", "4", "5", "6", "7", "8"]);
    let wanted = [
        "succeeded",
        "ADAPTER_FAILED",
        "TOOL_NOT_FOUND",
        "succeeded",
        "VALIDATION_ERROR",
        "succeeded",
        "succeeded",
        "VALIDATION_ERROR",
    ];
    assert_eq!(codes(&view), wanted, "{view:#}");
    for (copy, original) in [(3, 0), (6, 5)] {
        let (copy, original) = (&view["results"][copy], &view["results"][original]);
        assert_eq!(copy["result"], original["result"]);
        assert_eq!(copy["duplicate_of"], original["id"]);
        assert!(text(copy, "warning").contains(&text(original, "id")));
        assert_eq!(original.get("warning"), None);
    }
    assert!(text(&view["results"][7]["error"], "message").contains("5 different calls"));
    let mut asked: Vec<String> = record(&setup).iter().map(|one| text(one, "name")).collect();
    asked.sort();
    assert_eq!(asked, ["factorial", "fails", "math.square"]);
    let debug = &view["debug"];
    assert_eq!(
        (&debug["made"], &debug["duplicates"], &debug["refused"]),
        (&json!(5), &json!(2), &json!(3)),
        "{debug:#}"
    );
}

#[tokio::test]
async fn ts_06_the_calls_of_a_batch_run_in_parallel() {
    let setup = records(|_| {}).await;
    let (_placet, agent) = running(&setup).await;
    opened(&agent, "r1", json!({})).await;
    // Each waits for longer than half of what all of them may take: one after the other they would not be there in time.
    let calls: Vec<Value> =
        (5_000..5_008).map(|ms| call(&ms.to_string(), "slow", json!({ "ms": ms }))).collect();
    let view = within("eight calls of five seconds", made(&agent, "r1", "b1", &calls)).await;
    assert_eq!(codes(&view), ["succeeded"; 8]);
}

#[tokio::test]
async fn ts_06_a_held_call_comes_back_pending_while_its_siblings_finish() {
    let setup = records(|tools| tools["update_record"]["mode"] = json!("destructive")).await;
    let (placet, agent) = running(&setup).await;
    opened(&agent, "r1", json!({})).await;
    let calls = [
        call("a", "update_record", json!({ "record_id": "REC-1", "status": "closed" })),
        call("b", "factorial", json!({ "n": 3 })),
    ];
    let view = made(&agent, "r1", "b1", &calls).await;
    assert_eq!(codes(&view), ["APPROVAL_PENDING", "succeeded"], "{view:#}");
    assert_eq!(view["debug"]["pending"], 1);
    let held = view["results"][0]["result"].clone();
    let remediation = text(&held["error"], "remediation");
    assert!(remediation.starts_with("Send the same batch again"), "{remediation}");
    setup.ben(&placet).await.decide(&held, "approve").await.ok();
    agent.end_of(&text(&held, "tool_call_id")).await.succeeded();
    // The same batch collects it, and acts no second time.
    let again = made(&agent, "r1", "b1", &calls).await;
    assert_eq!(codes(&again), ["succeeded", "succeeded"]);
    assert_eq!((&again["repeated"], &again["iteration"]), (&json!(true), &json!(1)));
    let updates = record(&setup).into_iter().filter(|one| one["name"] == "update_record");
    assert_eq!(updates.count(), 1);
    assert_eq!(agent.get("/v1/runs/r1").await.ok()["iteration"], 2);
}

#[tokio::test]
async fn a_batch_that_is_sent_again_never_acts_twice_even_after_a_restart() {
    let setup = records(|_| {}).await;
    let (placet, agent) = running(&setup).await;
    opened(&agent, "r1", json!({})).await;
    let update = |id: &str, status: &str| {
        call(id, "update_record", json!({ "record_id": "REC-1", "status": status }))
    };
    let calls = [update("a", "open"), update("b", "done")];
    assert_eq!(codes(&made(&agent, "r1", "b1", &calls).await), ["succeeded", "succeeded"]);
    let again = made(&agent, "r1", "b1", &calls).await;
    assert_eq!(again["results"][1]["result"]["replayed"], true, "{again:#}");
    sent(&agent, "r1", "b1", &[update("a", "other")]).await.refused(422, "IDEMPOTENCY_CONFLICT");
    placet.kill().await;
    let (_placet, agent) = running(&setup).await;
    sent(&agent, "r1", "b1", &calls).await.refused(404, "RUN_NOT_FOUND");
    opened(&agent, "r1", json!({})).await;
    let again = made(&agent, "r1", "b1", &calls).await;
    assert_eq!(codes(&again), ["succeeded", "succeeded"]);
    assert_eq!(again["results"][0]["result"]["replayed"], true);
    assert_eq!(record(&setup).len(), 2, "{:?}", record(&setup));
    // A call may bring a key of its own; a write without any key is refused, a read is not.
    let mut own = update("c", "own");
    own["idempotency_key"] = json!("my-key");
    let bare =
        json!({ "calls": [own, update("d", "none"), call("e", "factorial", json!({ "n": 1 }))] });
    let view = agent.post("/v1/runs/r1/batches", &bare).await.ok();
    assert_eq!(codes(&view), ["succeeded", "VALIDATION_ERROR", "succeeded"], "{view:#}");
    assert_eq!(view["results"][0]["result"]["idempotency_key"], "my-key");
    let refused = view["results"][1].to_string();
    assert!(refused.contains("needs a `batch_id`") && !refused.contains("step_id"), "{refused}");
}

#[tokio::test]
async fn a_write_of_a_repeated_batch_is_answered_from_the_ledger_though_its_tool_is_not_offered_now()
 {
    let setup = records(|_| {}).await;
    let (placet, agent) = running(&setup).await;
    opened(&agent, "r1", json!({})).await;
    let update = call("a", "update_record", json!({ "record_id": "REC-1", "status": "open" }));
    let write = [update, call("b", "factorial", json!({ "n": 3 }))];
    assert_eq!(codes(&made(&agent, "r1", "b1", &write).await), ["succeeded", "succeeded"]);
    made(&agent, "r1", "b2", &[call("c", "factorial", json!({ "n": 4 }))]).await;
    let excluded = json!({ "exclude": ["records__update_record", "records__factorial"] });
    agent.post("/v1/runs/r1/tools", &excluded).await.ok();
    let again = made(&agent, "r1", "b1", &write).await;
    assert_eq!(codes(&again), ["succeeded", "TOOL_NOT_FOUND"], "{again:#}");
    assert_eq!(again["results"][0]["result"]["replayed"], true);
    let history = agent.get("/v1/runs/r1/batches").await.ok();
    assert_eq!(history["batches"][0]["calls"][1]["status"], "succeeded", "{history:#}");
    // Under another id it is another write, which the run does not offer.
    assert_eq!(codes(&made(&agent, "r1", "b3", &write[..1]).await), ["TOOL_NOT_FOUND"]);
    placet.kill().await;
    let (_placet, agent) = running(&setup).await;
    let choice = json!({ "tool_choice": function("records__factorial") });
    opened(&agent, "r1", choice).await;
    let again = made(&agent, "r1", "b1", &write[..1]).await;
    assert_eq!(codes(&again), ["succeeded"], "{again:#}");
    let updates = record(&setup).into_iter().filter(|one| one["name"] == "update_record");
    assert_eq!(updates.count(), 1);
}

#[tokio::test]
async fn a_call_that_its_iteration_refused_is_not_made_when_its_batch_is_sent_again() {
    let setup = records(|_| {}).await;
    let (_placet, agent) = running(&setup).await;
    opened(&agent, "r1", json!({ "tool_choice": function("records__factorial") })).await;
    let update = [call("a", "update_record", json!({ "record_id": "REC-1", "status": "open" }))];
    assert_eq!(codes(&made(&agent, "r1", "b1", &update).await), ["VALIDATION_ERROR"]);
    assert_eq!(codes(&made(&agent, "r1", "b2", &update).await), ["succeeded"]);
    assert_eq!(codes(&made(&agent, "r1", "b1", &update).await), ["VALIDATION_ERROR"]);
    let updates = record(&setup).into_iter().filter(|one| one["name"] == "update_record");
    assert_eq!(updates.count(), 1);
}

#[tokio::test]
async fn ts_07_ts_12_ts_13_what_tools_ask_for_is_gathered_and_the_history_can_be_asked() {
    let setup = records(|tools| {
        tools["factorial"]["evaluation_checks"] = json!(["arithmetic"]);
        tools["find_records"]["evaluation_checks"] = json!(["grounded"]);
        tools["find_records"]["prompt"] = json!({ "formatting": "Cite records as [#id]." });
    })
    .await;
    let (_placet, agent) = running(&setup).await;
    opened(&agent, "r1", json!({ "tool_choice": function("records__factorial") })).await;
    assert_eq!(offered(&agent, "r1", "openai").await["formatting"], json!([]));
    let other = call("x", "find_records", json!({ "words": "y" }));
    let view =
        made(&agent, "r1", "b1", &[call("a", "factorial", json!({ "n": 2 })), other.clone()]).await;
    // TS-11: what the choice does not allow is not called, and it holds for the first iteration alone.
    assert_eq!(codes(&view), ["succeeded", "VALIDATION_ERROR"]);
    assert_eq!(view["evaluation_checks"], json!(["arithmetic"]));
    let tools = offered(&agent, "r1", "openai").await;
    assert_eq!((&tools["tool_choice"], &tools["iteration"]), (&json!("auto"), &json!(2)));
    let view = made(&agent, "r1", "b2", &[other]).await;
    assert_eq!(view["evaluation_checks"], json!(["arithmetic", "grounded"]));
    let formatting =
        json!([{ "tool": "records__find_records", "formatting": "Cite records as [#id]." }]);
    assert_eq!(offered(&agent, "r1", "openai").await["formatting"], formatting);
    let history = agent.get("/v1/runs/r1/batches").await.ok();
    let batches = history["batches"].as_array().unwrap();
    assert_eq!(batches.len(), 2);
    assert_eq!((&batches[0]["batch_id"], &batches[1]["iteration"]), (&json!("b1"), &json!(2)));
    let first = &batches[0]["calls"][0];
    assert_eq!((&first["id"], &first["status"]), (&json!("a"), &json!("succeeded")));
    agent.get(&format!("/v1/calls/{}", text(first, "tool_call_id"))).await.succeeded();
    assert_eq!(batches[0]["calls"][1]["error_code"], "VALIDATION_ERROR");
}

#[tokio::test]
async fn ts_08_ts_09_a_loader_adds_tools_for_the_next_iteration_all_or_nothing() {
    let setup = records(|tools| {
        for loader in ["load_math", "load_nothing_of", "drop_math", "garbled"] {
            tools[loader]["exposes"] = json!("/structured/tools");
        }
        for later in ["factorial", "math.square"] {
            tools[later]["on_demand"] = json!(true);
        }
    })
    .await;
    let (_placet, agent) = running(&setup).await;
    let run = opened(&agent, "r1", json!({})).await;
    assert!(!names(&run["tools"]).contains(&"records__factorial".to_owned()));
    let sum = call("b", "factorial", json!({ "n": 4 }));
    let load = call("a", "load_math", json!({}));
    // Not in the batch that loads it, since the model had not seen it.
    let view = made(&agent, "r1", "b1", &[load.clone(), sum.clone()]).await;
    assert_eq!(codes(&view), ["succeeded", "TOOL_NOT_FOUND"], "{view:#}");
    let added = json!(["records__factorial", "records__math.square"]);
    assert_eq!(view["results"][0]["exposure"]["added"], added);
    let view = made(&agent, "r1", "b2", &[sum.clone(), load.clone()]).await;
    assert_eq!(structured(&view, 0)["result"], 24);
    assert_eq!(view["results"][1]["exposure"]["added"], json!([]), "the same again is nothing");
    // What is removed is gone for the next iteration; the batch itself comes to its end.
    let view = made(&agent, "r1", "b3", &[call("a", "drop_math", json!({})), sum.clone()]).await;
    assert_eq!(codes(&view), ["succeeded", "succeeded"]);
    assert_eq!(view["results"][0]["exposure"]["removed"], json!(["records__factorial"]));
    assert_eq!(
        codes(&made(&agent, "r1", "b4", std::slice::from_ref(&sum)).await),
        ["TOOL_NOT_FOUND"]
    );
    let bad = call("a", "load_nothing_of", json!({ "first": "factorial", "then": "nowhere" }));
    let view = made(&agent, "r1", "b5", &[bad, call("g", "garbled", json!({}))]).await;
    assert_eq!(codes(&view), ["succeeded", "succeeded"]);
    let exposure = |place: usize| &view["results"][place]["exposure"];
    assert_eq!(exposure(0)["error"]["error_code"], "TOOL_NOT_FOUND", "{view:#}");
    assert_eq!(exposure(1)["error"]["error_code"], "VALIDATION_ERROR");
    assert_eq!(
        codes(&made(&agent, "r1", "b6", &[sum]).await),
        ["TOOL_NOT_FOUND"],
        "half was added"
    );
    // Each run begins with the original set, and outside of a run nothing is added at all.
    let fresh = opened(&agent, "r2", json!({})).await;
    assert!(!names(&fresh["tools"]).contains(&"records__math.square".to_owned()));
    let refused = agent.call(&plan("records__load_math", "s1", json!({}))).await;
    assert!(text(&refused.refused(400, "VALIDATION_ERROR"), "detail").contains("in a batch"));
}

#[tokio::test]
async fn ts_08_a_tool_under_a_taken_name_is_not_added() {
    let setup = records(|tools| {
        let mut other = tools["math.square"].clone();
        other["tool"] = json!("factorial");
        tools["math_square"] = other;
        tools["factorial"]["tool"] = json!("slow");
        tools.as_object_mut().unwrap().retain(|name, _| {
            ["math.square", "math_square", "load_nothing_of"].contains(&name.as_str())
        });
        tools["math_square"]["on_demand"] = json!(true);
        tools["load_nothing_of"]["exposes"] = json!("/structured/tools");
    })
    .await;
    let (_placet, agent) = running(&setup).await;
    opened(&agent, "r1", json!({})).await;
    let names = json!({ "first": "math.square", "then": "records__math_square" });
    let view = made(&agent, "r1", "b1", &[call("a", "load_nothing_of", names)]).await;
    let error = &view["results"][0]["exposure"]["error"];
    assert!(text(error, "message").contains("the same name"), "{view:#}");
    offered(&agent, "r1", "openai").await;
}

#[tokio::test]
async fn ts_09_a_record_is_updated_only_after_it_was_read_in_the_same_run() {
    let setup = records(|tools| {
        tools["get_record"]["exposes"] = json!("/structured/tools");
        tools["get_record"]["run_keys"] = json!(["record_id"]);
        tools["update_record"]["on_demand"] = json!(true);
    })
    .await;
    setup.bare(&["init", setup.path("new").to_str().unwrap()]).await.ok();
    let policies = setup.path("new/policies");
    fs::remove_file(policies.join("15-files.cedar")).unwrap();
    let example = crate::workspace::read("docs/src/examples/policies/read-before-write.cedar");
    fs::write(policies.join("60-own.cedar"), example).unwrap();
    let setup = setup.with("policies", json!("new/policies"));
    let (_placet, agent) = running(&setup).await;
    opened(&agent, "r1", json!({})).await;
    let get = |id: &str| call("g", "get_record", json!({ "record_id": id }));
    let update =
        |id: &str| call("u", "update_record", json!({ "record_id": id, "status": "done" }));
    // Hidden until something was read.
    assert_eq!(codes(&made(&agent, "r1", "b1", &[update("REC-1")]).await), ["TOOL_NOT_FOUND"]);
    let view = made(&agent, "r1", "b2", &[get("REC-1")]).await;
    assert_eq!(view["results"][0]["exposure"]["added"], json!(["records__update_record"]));
    // Then for that record alone, with words for the model.
    let view = made(&agent, "r1", "b3", &[update("REC-2")]).await;
    assert_eq!(codes(&view), ["POLICY_DENIED"], "{view:#}");
    let said = text(&view["results"][0]["result"]["error"], "message");
    assert!(said.contains("Read the record with get_record first"), "{said}");
    assert_eq!(codes(&made(&agent, "r1", "b4", &[update("REC-1")]).await), ["succeeded"]);
    // Another run has read nothing, and a call outside of a batch has no run that did.
    opened(&agent, "r2", json!({ "forced_tools": [function("records__update_record")] })).await;
    assert_eq!(codes(&made(&agent, "r2", "b1", &[update("REC-1")]).await), ["POLICY_DENIED"]);
    let mut plain =
        plan("records__update_record", "s", json!({ "record_id": "REC-1", "status": "x" }));
    plain["run"]["run_id"] = json!("r1");
    agent.call(&plain).await.refused(403, "POLICY_DENIED");
    let updates = record(&setup).into_iter().filter(|one| one["name"] == "update_record");
    assert_eq!(updates.count(), 1);
}
