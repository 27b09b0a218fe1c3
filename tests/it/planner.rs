//! `placet plan` against a running Placet and a model whose answers are written down (PL-01 to PL-03).
//!
//! Owns the requirements of the planner, each by its id.

use std::{fs, os::unix::fs::PermissionsExt as _, time::Duration};

use serde_json::{Value, json};
use url::Url;

use crate::{
    harness::{
        client::text,
        model::{Model, says},
        placet::Placet,
        setup::{Ran, Setup, local},
    },
    runs::{record, records, running},
};

/// An answer that calls these tools, with ids that begin with `turn`.
fn calls(turn: &str, tools: &[(&str, Value)]) -> Value {
    let call = |(place, (name, args)): (usize, &(&str, Value))| {
        let function = json!({ "name": name, "arguments": args.to_string() });
        json!({ "id": format!("{turn}{place}"), "type": "function", "function": function })
    };
    let tool_calls: Vec<Value> = tools.iter().enumerate().map(call).collect();
    json!({ "role": "assistant", "content": null, "tool_calls": tool_calls })
}

/// Writes a plan for this model.
fn write_plan(setup: &Setup, url: &Url, more: &Value) {
    let mut plan = json!({ "model": { "url": url.as_str(), "name": "a-model" } });
    plan.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    fs::write(setup.path("plan.yaml"), serde_json::to_string_pretty(&plan).unwrap()).unwrap();
}

async fn planned(setup: &Setup, placet: &Placet, words: &[&str]) -> Ran {
    let token = setup.token("agent", "dev-agent").await;
    setup.asks(placet, &token, &[&["plan"], words].concat()).await
}

const RUN: [&str; 4] = ["run", "plan.yaml", "--task", "Find and analyze active users."];

fn descriptions() -> Value {
    json!([
        { "name": "search_database", "description": "Search the database for records matching a query.", "args": ["query", "limit"] },
        { "name": "analyze_data", "description": "Analyze data and return statistical summary.", "args": ["data", "analysis_type"] },
    ])
}

/// The first request: schemas as Placet knows them or as the plan says, the system prompt, the task.
fn has_what_was_described(first: &Value) {
    assert_eq!((&first["model"], &first["tool_choice"]), (&json!("a-model"), &json!("auto")));
    assert_eq!(first["tools"].as_array().unwrap().len(), 2);
    let function = &first["tools"][0]["function"];
    assert_eq!(function["description"], descriptions()[0]["description"]);
    assert_eq!(function["parameters"]["properties"]["limit"]["type"], "integer");
    let of_strings = &first["tools"][1]["function"]["parameters"];
    assert_eq!(of_strings["properties"]["data"]["type"], "string");
    assert_eq!(of_strings["required"], json!(["data", "analysis_type"]));
    let system = text(&first["messages"][0], "content");
    assert!(system.contains("STRATEGIC PLAN:\n{") && system.contains("data-analysis"), "{system}");
    assert_eq!(first["messages"][1]["content"], RUN[3]);
}

#[tokio::test]
async fn pl_01_pl_02_a_model_is_given_schemas_and_what_it_calls_is_executed_until_it_answers() {
    let setup = records(|_| {}).await.env("OPENAI_API_KEY", "sk-planner");
    let (placet, agent) = running(&setup).await;
    let search = |query: &str| ("search_database", json!({ "query": query, "limit": 1 }));
    let analyze = ("analyze_data", json!({ "data": "[]", "analysis_type": "count" }));
    let script = [
        calls("a", &[search("active users"), analyze]),
        calls("b", &[search("a"), search("b"), search("cut off")]),
        calls("c", &[("records__factorial", json!({ "n": 3 }))]),
        says("One user is active."),
    ];
    let (model, url) = Model::start(script).await;
    let strategic =
        json!({ "phases": [{ "worker": "data-analysis", "goals": "Analyze user activity" }] });
    write_plan(
        &setup,
        &url,
        &json!({
            "system_prompt": "You are a data analysis specialist.", "strategic_plan": strategic,
            "tool_descriptions": descriptions(), "max_parallel_tool_calls": 2,
        }),
    );
    let ran = planned(&setup, &placet, &RUN).await;
    assert_eq!(ran.ok(), "One user is active.\n");
    assert!(
        ran.err.contains("  1  search_database {\"query\":\"active users\",\"limit\":1}"),
        "{}",
        ran.err
    );
    assert!(ran.err.contains("analyze_data refused TOOL_NOT_FOUND"), "{}", ran.err);
    let asked = model.asked();
    assert_eq!(asked[0].authorization, "Bearer sk-planner");
    has_what_was_described(&asked[0].body);
    // What it called, and what it was told of each call.
    let second = asked[1].body["messages"].as_array().unwrap();
    assert_eq!(second[2]["tool_calls"].as_array().unwrap().len(), 2);
    assert_eq!((&second[3]["role"], &second[3]["tool_call_id"]), (&json!("tool"), &json!("a0")));
    let seen: Value = serde_json::from_str(&text(&second[3], "content")).unwrap();
    assert_eq!(
        seen,
        json!({ "status": "succeeded", "output": { "records": [{ "id": "user1" }] } })
    );
    assert!(text(&second[4], "content").contains("TOOL_NOT_FOUND"));
    assert_eq!(
        asked[2].body["messages"].as_array().unwrap().len(),
        8,
        "a third call was not cut off"
    );
    let made: Vec<Value> = record(&setup).iter().map(|one| one["args"]["query"].clone()).collect();
    assert_eq!(made.len(), 3, "a tool was called that the plan does not describe");
    assert!(!made.contains(&json!("cut off")));
    let refused = asked[3].body["messages"].as_array().unwrap();
    assert!(text(refused.last().unwrap(), "content").contains("TOOL_NOT_FOUND"));
    // One trace, the run's; progress is for its owner's eyes, and has no key in it.
    let state = fs::read_to_string(setup.path("plan.state.json")).unwrap();
    assert!(!state.contains("sk-planner"));
    let mode = fs::metadata(setup.path("plan.state.json")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let progress: Value = serde_json::from_str(&state).unwrap();
    let batches = agent.get(&format!("/v1/runs/{}/batches", text(&progress, "run_id"))).await.ok();
    let call = text(&batches["batches"][0]["calls"][0], "tool_call_id");
    let trace = text(&agent.get(&format!("/v1/calls/{call}")).await.ok(), "trace_id");
    assert_eq!(text(&progress, "traceparent").split('-').nth(1), Some(trace.as_str()));
    // A plan that is over makes room for the next one, and gives its answer again.
    assert_eq!(
        planned(&setup, &placet, &["resume", "plan.state.json"]).await.ok(),
        "One user is active.\n"
    );
    assert_eq!(model.asked().len(), 4);
}

#[tokio::test]
async fn pl_02_a_plan_waits_for_people_survives_a_restart_and_acts_once() {
    let setup = records(|tools| tools["update_record"]["mode"] = json!("destructive")).await;
    let (placet, _agent) = running(&setup).await;
    let update = ("records__update_record", json!({ "record_id": "REC-1", "status": "closed" }));
    let script = [calls("a", &[update, ("factorial", json!({ "n": 3 }))]), says("Closed.")];
    let (model, url) = Model::start(script).await;
    write_plan(&setup, &url, &json!({ "safety_mode": "destructive" }));
    let held = planned(&setup, &placet, &[&RUN[..], &["--json"]].concat()).await;
    assert_eq!(held.code, Some(4), "{held:?}");
    let held: Value = serde_json::from_str(&held.out).unwrap();
    assert_eq!((&held["status"], held["held"].as_array().unwrap().len()), (&json!("held"), 1));
    // The plan is not overwritten by another one.
    let refused = planned(&setup, &placet, &RUN).await;
    assert_eq!(refused.code, Some(2));
    assert!(refused.err.contains("plan resume plan.state.json"), "{}", refused.err);
    placet.kill().await;
    let (placet, _agent) = running(&setup).await;
    let waits = planned(&setup, &placet, &["resume", "plan.state.json"]).await;
    assert_eq!(waits.code, Some(4), "{waits:?}");
    assert_eq!(model.asked().len(), 1, "a model was asked while people were");
    // Its calls would be other calls, and what was written would be written again.
    let ben = setup.token("user", "ben").await;
    let other = setup.asks(&placet, &ben, &["plan", "resume", "plan.state.json"]).await;
    assert_eq!(other.code, Some(1), "{other:?}");
    assert!(other.err.contains("agent `dev-agent` began the plan"), "{}", other.err);
    let resumed =
        async { planned(&setup, &placet, &["resume", "plan.state.json", "--wait", "20"]).await };
    let decided = async {
        let ben = setup.ben(&placet).await;
        ben.decide(&held["held"][0], "approve").await.ok();
    };
    let (resumed, ()) = tokio::join!(resumed, decided);
    assert_eq!(resumed.ok(), "Closed.\n");
    let updates = record(&setup).into_iter().filter(|one| one["name"] == "update_record");
    assert_eq!(updates.count(), 1);
    let messages = model.asked()[1].body["messages"].clone();
    assert_eq!(messages.as_array().unwrap().len(), 5, "{messages:#}");
    assert!(text(&messages[3], "content").contains("closed"), "{messages:#}");
}

#[tokio::test]
async fn a_held_plan_goes_on_when_its_tool_is_gone() {
    let setup = records(|tools| tools["update_record"]["mode"] = json!("destructive")).await;
    let (placet, _agent) = running(&setup).await;
    let update = ("records__update_record", json!({ "record_id": "REC-1", "status": "closed" }));
    let (model, url) = Model::start([calls("a", &[update]), says("It is gone.")]).await;
    write_plan(&setup, &url, &json!({ "safety_mode": "destructive" }));
    assert_eq!(planned(&setup, &placet, &RUN).await.code, Some(4));
    placet.kill().await;
    let mut contract = setup.read_contract("records");
    contract["capabilities"]["update_record"]["enabled"] = json!(false);
    let setup = setup.contract("records", &contract);
    let (placet, _agent) = running(&setup).await;
    let resumed = planned(&setup, &placet, &["resume", "plan.state.json"]).await;
    assert_eq!(resumed.ok(), "It is gone.\n");
    let messages = model.asked()[1].body["messages"].clone();
    assert!(text(&messages[3], "content").contains("TOOL_NOT_FOUND"), "{messages:#}");
}

/// How many turns the plan has that is killed, each of which changes a record.
const TURNS: usize = 6;

/// The next record in turn, then the end.
fn closes_the_next(request: &Value) -> Value {
    let messages = request["messages"].as_array().unwrap();
    let turn = messages.iter().filter(|message| message["role"] == "assistant").count();
    if turn == TURNS {
        return says("All are closed.");
    }
    let close = json!({ "record_id": format!("REC-{turn}"), "status": "closed" });
    let find = ("records__find_records", json!({ "words": format!("record {turn}") }));
    calls(&turn.to_string(), &[("records__update_record", close), find])
}

#[tokio::test]
async fn pl_02_a_plan_that_is_killed_at_any_moment_acts_once_and_comes_to_its_end() {
    let setup = records(|_| {}).await;
    let (mut placet, _agent) = running(&setup).await;
    let (_model, url) = Model::thinking(closes_the_next).await;
    write_plan(&setup, &url, &json!({ "safety_mode": "local_write" }));
    let (mut seed, mut servers) = (seed(), 0_u32);
    println!("PLACET_SEED={seed}");
    for _ in 0..14 {
        // A generator of moments, no more (Knuth's MMIX).
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let token = setup.token("agent", "dev-agent").await;
        let words = [&["plan"], &going_on(&setup)[..]].concat();
        let mut plan = setup.follows(&placet, &token, &words);
        tokio::time::sleep(Duration::from_millis(20 + (seed >> 33) % 180)).await;
        if seed >> 61 == 0 && servers < 2 {
            servers += 1;
            placet.kill().await;
            plan.wait().await.unwrap();
            placet = setup.start().await;
        } else {
            plan.kill().await.unwrap();
        }
    }
    let ended = planned(&setup, &placet, &going_on(&setup)).await;
    assert_eq!(ended.ok(), "All are closed.\n");
    let made = record(&setup);
    for turn in 0..TURNS {
        let name = format!("REC-{turn}");
        let times = made.iter().filter(|one| one["args"]["record_id"] == name.as_str()).count();
        // A server that is killed in the middle leaves it unknown, and nobody repeats it.
        assert!(
            times == 1 || (times == 0 && servers > 0),
            "{name} was changed {times} times: {made:#?}"
        );
    }
}

/// The words that begin the plan, or go on with it.
fn going_on(setup: &Setup) -> Vec<&'static str> {
    if setup.path("plan.state.json").is_file() {
        return vec!["resume", "plan.state.json"];
    }
    RUN.to_vec()
}

/// What the moments are chosen by.
fn seed() -> u64 {
    std::env::var("PLACET_SEED").map_or(1, |seed| seed.parse().unwrap())
}

#[tokio::test]
async fn pl_03_choice_and_form_are_configured_and_the_environment_overrides_the_choice() {
    let setup = records(|_| {}).await.env("OPENAI_TOOL_CHOICE", "required");
    let (placet, _agent) = running(&setup).await;
    let script = [calls("a", &[("records__factorial", json!({ "n": 3 }))]), says("Six.")];
    let (model, url) = Model::start(script).await;
    write_plan(&setup, &url, &json!({ "tool_choice": "none" }));
    planned(&setup, &placet, &RUN).await.ok();
    let choices: Vec<Value> =
        model.asked().iter().map(|asked| asked.body["tool_choice"].clone()).collect();
    assert_eq!(choices, ["required", "auto"]);
    // Without descriptions, everything that the caller may use is offered.
    assert!(model.asked()[0].body["tools"].as_array().unwrap().len() > 5);
    // In words nobody can be made to call a tool.
    write_plan(&setup, &url, &json!({ "use_function_calling": false }));
    let refused = planned(&setup, &placet, &RUN).await;
    assert!(refused.code == Some(2) && refused.err.contains("OPENAI_TOOL_CHOICE"), "{refused:?}");
}

#[tokio::test]
async fn pl_03_without_function_calling_tools_are_described_in_words() {
    let setup = records(|_| {}).await;
    let (placet, _agent) = running(&setup).await;
    let in_words = [
        says(
            "{\"actions\":[{\"tool\":\"search_database\",\"args\":{\"query\":\"x\",\"limit\":2}}]}",
        ),
        says("I am done."),
        says("{\"answer\":\"Two.\"}"),
    ];
    let (model, url) = Model::start(in_words).await;
    write_plan(
        &setup,
        &url,
        &json!({ "use_function_calling": false, "tool_descriptions": descriptions() }),
    );
    assert_eq!(planned(&setup, &placet, &RUN).await.ok(), "Two.\n");
    let asked = model.asked();
    assert_eq!((asked[0].body.get("tools"), asked[0].body.get("tool_choice")), (None, None));
    assert!(text(&asked[0].body["messages"][1], "content").contains("search_database"));
    let last = asked[2].body["messages"].as_array().unwrap();
    assert!(
        text(&last[4], "content").starts_with("Observation of search_database: {"),
        "{last:#?}"
    );
    assert!(text(&last[6], "content").contains("the form that was described"));
}

#[tokio::test]
async fn pl_03_what_was_not_chosen_is_not_called() {
    let setup = records(|_| {}).await;
    let (placet, agent) = running(&setup).await;
    let factorial = || ("records__factorial", json!({ "n": 3 }));
    let search = ("search_database", json!({ "query": "x", "limit": 1 }));
    let only = json!({ "type": "function", "function": { "name": "search_database" } });
    let in_words = json!({ "actions": [{ "tool": "records__factorial", "args": { "n": 3 } }] });
    for (more, called) in [
        (json!({ "tool_choice": "none" }), calls("a", &[factorial()])),
        (
            json!({ "tool_choice": "none", "use_function_calling": false }),
            says(&in_words.to_string()),
        ),
        (
            json!({ "tool_choice": only, "tool_descriptions": [{ "name": "search_database" }, { "name": "factorial" }] }),
            calls("a", &[("factorial", json!({ "n": 3 })), search]),
        ),
    ] {
        let (model, url) = Model::start([called, says("{\"answer\":\"Done.\"}")]).await;
        write_plan(&setup, &url, &more);
        planned(&setup, &placet, &RUN).await.ok();
        let asked = model.asked();
        let messages = asked[1].body["messages"].as_array().unwrap();
        let refused = messages.iter().any(|one| text(one, "content").contains("TOOL_NOT_FOUND"));
        assert!(refused, "{messages:#?}");
        let progress = fs::read_to_string(setup.path("plan.state.json")).unwrap();
        let progress: Value = serde_json::from_str(&progress).unwrap();
        let run = agent.get(&format!("/v1/runs/{}", text(&progress, "run_id"))).await.ok();
        let wanted = if more["tool_choice"] == "none" { "none" } else { "auto" };
        assert_eq!(run["tool_choice"], wanted);
    }
    let made: Vec<Value> = record(&setup).iter().map(|one| one["name"].clone()).collect();
    assert_eq!(made, ["search_database"]);
}

#[tokio::test]
async fn a_plan_that_cannot_be_followed_says_why_and_one_without_an_end_is_ended() {
    let setup = records(|_| {}).await;
    let (placet, _agent) = running(&setup).await;
    let again = || calls("a", &[("factorial", json!({ "n": 3 }))]);
    let (_model, url) = Model::start([again(), again(), again(), again()]).await;
    for (more, told) in [
        (
            json!({ "max_parallel_tool_calls": 65 }),
            "`max_parallel_tool_calls`: is not between 1 and 64",
        ),
        (json!({ "tool_choise": "auto" }), "plan.yaml:6: `tool_choise`: unknown field"),
        (
            json!({ "model": { "url": url.as_str(), "name": "m", "key_variable": "PLACET_TOKEN" } }),
            "`model.key_variable`",
        ),
    ] {
        write_plan(&setup, &url, &more);
        let refused = planned(&setup, &placet, &RUN).await;
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.err.contains(told), "{}", refused.err);
    }
    for limit in [json!({ "iterations_max": 2 }), json!({ "tokens_max": 150 })] {
        write_plan(&setup, &url, &json!({ "limits": limit }));
        let ended =
            planned(&setup, &placet, &[&RUN[..], &["--json", "--state", "limited.json"]].concat())
                .await;
        assert_eq!(ended.code, Some(1), "{ended:?}");
        // The next plan takes its place.
        let ended: Value = serde_json::from_str(&ended.out).unwrap();
        assert_eq!((&ended["status"], &ended["iterations"]), (&json!("limited"), &json!(2)));
    }
    // A model that answers nothing has not answered.
    let (model, url) = Model::start([says(""), says(" "), says("")]).await;
    write_plan(&setup, &url, &json!({}));
    let empty = planned(&setup, &placet, &[&RUN[..], &["--state", "empty.json"]].concat()).await;
    assert_eq!((empty.code, model.asked().len()), (Some(1), 3), "{empty:?}");
    // Nobody listens there; nothing is lost.
    write_plan(&setup, &local(1, "/v1"), &json!({}));
    let unreachable = planned(&setup, &placet, &RUN).await;
    assert_eq!(unreachable.code, Some(1), "{unreachable:?}");
    assert!(unreachable.err.contains("the model cannot be reached"), "{}", unreachable.err);
    assert!(unreachable.err.contains("plan resume plan.state.json"));
}
