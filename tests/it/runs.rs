//! Placet as an orchestrator's tool manager, from outside: the surface of a run, its definitions and prompts, and words for models.
//!
//! Owns the requirements TS-02 to TS-04, TS-10 and TS-11; those of batches are in `batches`,
//! that of aliases in `aliases`.

mod aliases;
mod batches;

use std::fs;

use serde_json::{Value, json};

use crate::{
    harness::{
        client::{Client, text},
        npm,
        placet::Placet,
        setup::{Setup, plan},
        until,
    },
    limits::with_class,
};

/// The contract of the peer with records, every tool of which only reads; `change` makes of it what a test needs.
pub(crate) async fn records(change: impl FnOnce(&mut Value)) -> Setup {
    let setup = Setup::new().with("contracts", json!("contracts"));
    let peer = crate::workspace::root().join("tests/peers/records.mjs");
    let record = setup.path("record");
    fs::write(&record, "").unwrap();
    let import = ["adapters", "import", "--name", "records", "--mode-default", "read_only"];
    let program = [npm::node(), peer.display().to_string(), record.display().to_string()];
    let program: Vec<&str> = program.iter().map(String::as_str).collect();
    setup.configured(&[&import[..], &["--stdio", "--"], &program].concat()).await.ok();
    let mut contract = setup.read_contract("records");
    contract["limits"]["calls_per_minute_max"] = json!(100_000);
    let update = &mut contract["capabilities"]["update_record"];
    update["mode"] = json!("local_write");
    update["effect"] = json!("write");
    update["dedup"] = json!({ "class": "opaque" });
    change(&mut contract["capabilities"]);
    setup.contract("records", &contract)
}

/// What the peer was asked to do, in order.
pub(crate) fn record(setup: &Setup) -> Vec<Value> {
    let text = fs::read_to_string(setup.path("record")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A set-up, running, and its agent.
pub(crate) async fn running(setup: &Setup) -> (Placet, Client) {
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    (placet, agent)
}

/// Opens a run that may do everything, and answers how it stands.
async fn opened(agent: &Client, run: &str, mut request: Value) -> Value {
    request["run"] = json!({ "run_id": run, "safety_mode": "destructive" });
    agent.post("/v1/runs", &request).await.ok()
}

/// What its model is offered.
async fn offered(agent: &Client, run: &str, format: &str) -> Value {
    agent.get(&format!("/v1/runs/{run}/tools?format={format}")).await.ok()
}

fn names(list: &Value) -> Vec<String> {
    let name = |one: &Value| one.as_str().map_or_else(|| text(one, "tool"), str::to_owned);
    list.as_array().unwrap().iter().map(name).collect()
}

fn function(name: &str) -> Value {
    json!({ "type": "function", "function": { "name": name } })
}

#[tokio::test]
async fn ts_02_what_was_chosen_is_the_surface_of_the_first_iteration() {
    let setup = records(|tools| {
        tools["deep_research"]["enabled"] = json!(false);
        tools["slow"]["on_demand"] = json!(true);
    })
    .await;
    let (_placet, agent) = running(&setup).await;
    let run = opened(&agent, "r1", json!({ "tools": ["records__factorial"] })).await;
    assert_eq!(names(&run["tools"]), ["records__factorial"], "{run:#}");
    assert_eq!(run["iteration"], 1);
    let all = opened(&agent, "r2", json!({})).await;
    let all = names(&all["tools"]);
    assert!(all.contains(&"records__get_record".to_owned()), "{all:?}");
    for absent in ["records__deep_research", "records__slow"] {
        assert!(!all.contains(&absent.to_owned()), "{absent}");
    }
    let unknown = json!({ "run": { "run_id": "r3" }, "tools": ["records__factorial", "records__deep_research"] });
    let refused = agent.post("/v1/runs", &unknown).await;
    refused.refused(404, "TOOL_NOT_FOUND");
    assert_eq!(refused.pointers(), ["/tools/1"]);
}

#[tokio::test]
async fn ts_02_an_exclusive_tool_leaves_no_room_for_another() {
    let setup = records(|tools| tools["deep_research"]["exclusive"] = json!(true)).await;
    let (_placet, agent) = running(&setup).await;
    let run = opened(&agent, "r1", json!({})).await;
    assert_eq!(names(&run["tools"]), ["records__deep_research"]);
    let excluded = agent
        .post("/v1/runs/r1/tools", &json!({ "exclude": ["records__deep_research"] }))
        .await
        .ok();
    assert_eq!(excluded["excluded"][0]["was_there"], true);
    let run = agent.get("/v1/runs/r1").await.ok();
    assert!(names(&run["tools"]).len() > 5, "{run:#}");
}

#[tokio::test]
async fn ts_03_definitions_and_prompts_come_in_three_forms_and_names_are_mapped() {
    let setup = records(|tools| {
        tools["math.square"]["prompt"] = json!({
            "when_to_use": "To square a number.", "inputs": "`n` is whole.", "outputs": "The square.",
            "examples": [{ "n": 3 }], "formatting": "Write squares as n².",
        });
    })
    .await;
    let (_placet, agent) = running(&setup).await;
    opened(&agent, "r1", json!({ "tools": ["records__math_square", "records__get_record"] })).await;
    let openai = offered(&agent, "r1", "openai").await;
    let functions = openai["tools"].as_array().unwrap();
    let square = functions.iter().find(|one| one["function"]["name"] == "records__math_square");
    let square = square.unwrap_or_else(|| panic!("{openai:#}"));
    assert_eq!(square["type"], "function");
    assert_eq!(square["function"]["description"], "The tool math.square.");
    assert_eq!(square["function"]["parameters"]["properties"]["n"]["type"], "integer");
    let prompt = json!([{
        "tool": "records__math_square", "when_to_use": "To square a number.", "inputs": "`n` is whole.",
        "outputs": "The square.", "examples": [{ "n": 3 }],
    }]);
    assert_eq!(openai["prompts"], prompt);
    let mcp = offered(&agent, "r1", "mcp").await;
    let name = |one: &Value| text(one, "name");
    let of_mcp: Vec<String> = mcp["tools"].as_array().unwrap().iter().map(name).collect();
    assert_eq!(of_mcp, ["records__get_record", "records__math.square"]);
    assert!(mcp["tools"][0]["inputSchema"].is_object());
    let plain = offered(&agent, "r1", "plain").await;
    let all = agent.get("/v1/tools").await.ok();
    for tool in plain["tools"].as_array().unwrap() {
        assert!(all["tools"].as_array().unwrap().contains(tool), "{tool:#}");
    }
    agent.get("/v1/runs/r1/tools?format=xml").await.refused(400, "VALIDATION_ERROR");
}

#[tokio::test]
async fn ts_04_tools_are_forced_and_excluded_while_a_run_is_open() {
    let setup = records(|tools| tools["slow"]["on_demand"] = json!(true)).await;
    let (_placet, agent) = running(&setup).await;
    let request =
        json!({ "tools": ["records__get_record"], "forced_tools": [function("records__slow")] });
    let run = opened(&agent, "r1", request).await;
    assert_eq!(names(&run["tools"]), ["records__get_record", "records__slow"]);
    assert_eq!(run["forced_tools"], json!([function("records__slow")]));
    let change = json!({ "force": [function("records__factorial")], "exclude": ["records__slow", "records__fails"] });
    let changed = agent.post("/v1/runs/r1/tools", &change).await.ok();
    assert_eq!(changed["forced_tools"], json!([function("records__factorial")]));
    let excluded = json!([
        { "tool": "records__slow", "was_there": true }, { "tool": "records__fails", "was_there": false },
    ]);
    assert_eq!(changed["excluded"], excluded);
    // All or nothing: the tool before the unknown one is not forced either.
    let change = json!({ "force": [function("records__slow"), function("records__nowhere")] });
    let refused = agent.post("/v1/runs/r1/tools", &change).await;
    refused.refused(404, "TOOL_NOT_FOUND");
    assert_eq!(refused.pointers(), ["/force/1"]);
    let run = agent.get("/v1/runs/r1").await.ok();
    assert_eq!(names(&run["tools"]), ["records__factorial", "records__get_record"]);
    assert_eq!(run["excluded_tools"], json!(["records__fails", "records__slow"]));
}

#[tokio::test]
async fn ts_04_a_tool_that_was_built_elsewhere_is_added_to_an_open_run() {
    let setup = records(|_| {}).await;
    let whole = setup.read_contract("records");
    let mut contract = whole.clone();
    contract["capabilities"].as_object_mut().unwrap().remove("factorial");
    let setup = setup.contract("records", &contract);
    let (placet, agent) = running(&setup).await;
    opened(&agent, "r1", json!({ "tools": ["records__get_record"] })).await;
    let force = json!({ "force": [function("records__factorial")] });
    agent.post("/v1/runs/r1/tools", &force).await.refused(404, "TOOL_NOT_FOUND");
    // Its contract comes, reviewed like every other, and the run goes on.
    let setup = setup.contract("records", &whole);
    let operator = setup.token("user", "ben").await;
    setup.asks(&placet, &operator, &["reload"]).await.ok();
    agent.post("/v1/runs/r1/tools", &force).await.ok();
    let run = agent.get("/v1/runs/r1").await.ok();
    assert_eq!(names(&run["tools"]), ["records__factorial", "records__get_record"]);
    let call = json!({ "id": "1", "tool": "records__factorial", "args": { "n": 3 } });
    let batch = json!({ "batch_id": "b1", "calls": [call] });
    let made = agent.post("/v1/runs/r1/batches", &batch).await.ok();
    assert_eq!(made["results"][0]["status"], "succeeded", "{made:#}");
}

#[tokio::test]
async fn open_runs_are_listed_to_those_they_concern() {
    let setup = with_class(records(|_| {}).await, &json!({}));
    let (placet, agent) = running(&setup).await;
    opened(&agent, "r1", json!({})).await;
    opened(&agent, "r2", json!({})).await;
    let call = json!({ "id": "1", "tool": "records__factorial", "args": { "n": 3 } });
    let batch =
        json!({ "batch_id": "b1", "calls": [call, { "id": "2", "tool": "records__nowhere" }] });
    let made = agent.post("/v1/runs/r1/batches", &batch).await.ok();
    let ben = setup.ben(&placet).await;
    for client in [&agent, &ben] {
        let all = client.get("/v1/runs").await.ok();
        let ids: Vec<String> =
            all["runs"].as_array().unwrap().iter().map(|run| text(run, "run_id")).collect();
        assert_eq!(ids, ["r1", "r2"], "the one used last comes first");
        assert_eq!(all["runs"][0].get("batches"), None);
        let one = client.get("/v1/runs?run_id=r1").await.ok();
        let run = &one["runs"][0];
        assert_eq!((&run["iteration"], &run["calls_used"]), (&json!(2), &json!(1)), "{one:#}");
        let calls = run["batches"][0]["calls"].as_array().unwrap();
        assert_eq!(calls[0]["status"], "succeeded");
        assert_eq!(calls[1]["error_code"], "TOOL_NOT_FOUND");
    }
    let other = setup.client(&placet, "agent", "second").await;
    assert_eq!(other.get("/v1/runs").await.ok()["runs"], json!([]));
    agent.get("/v1/runs?run_id=placet%20").await.refused(400, "VALIDATION_ERROR");
    // What was decided about its calls, with the trace of each; the audit of a read is written a moment after its answer.
    until("the decision is listed", || async {
        let decided = ben.get("/v1/decisions?run=r1").await.ok();
        decided["decisions"][0]["outcome"] == "succeeded"
    })
    .await;
    let decided = ben.get("/v1/decisions?run=r1").await.ok();
    let decided = decided["decisions"].as_array().unwrap();
    assert_eq!(decided.len(), 1, "{decided:#?}");
    assert_eq!(decided[0]["run_id"], "r1");
    assert_eq!(decided[0]["trace_id"], made["results"][0]["result"]["trace_id"]);
    assert_eq!(decided[0]["outcome"], "succeeded");
    assert_eq!(ben.get("/v1/decisions?run=r1&outcome=failed").await.ok()["decisions"], json!([]));
    let one = ben.get("/v1/decisions?run=r1&outcome=succeeded").await.ok();
    assert_eq!(one["decisions"].as_array().unwrap().len(), 1);
    ben.get("/v1/decisions?outcome=well").await.refused(400, "VALIDATION_ERROR");
    assert_eq!(ben.get("/v1/decisions?run=r2").await.ok()["decisions"], json!([]));
}

#[tokio::test]
async fn ts_11_a_choice_is_one_of_four_and_nothing_else() {
    let setup = records(|_| {}).await;
    let (_placet, agent) = running(&setup).await;
    let choices =
        [json!("auto"), json!("required"), json!("none"), function("records__math_square")];
    for (number, choice) in choices.into_iter().enumerate() {
        let run = format!("r{number}");
        opened(&agent, &run, json!({ "tool_choice": choice })).await;
        assert_eq!(offered(&agent, &run, "openai").await["tool_choice"], choice);
    }
    for wrong in [json!("any"), json!({ "type": "function" }), json!(null)] {
        let request = json!({ "run": { "run_id": "x" }, "tool_choice": wrong });
        agent.post("/v1/runs", &request).await.refused(400, "VALIDATION_ERROR");
    }
    let unknown = json!({ "run": { "run_id": "x" }, "tool_choice": function("records__nowhere") });
    agent.post("/v1/runs", &unknown).await.refused(404, "TOOL_NOT_FOUND");
}

#[tokio::test]
async fn ts_10_a_check_and_a_policy_tell_the_model_what_to_do() {
    let setup = records(|tools| {
        tools["update_record"]["checks"] = json!([
            { "schema": { "properties": { "record_id": { "pattern": "^REC-" } } }, "feedback": "Ids begin with `REC-`." },
        ]);
    })
    .await;
    setup.bare(&["init", setup.path("new").to_str().unwrap()]).await.ok();
    let forbid = |id: &str, annotation: &str, status: &str| {
        format!(
            "@id(\"{id}\")\n@approval(\"never\")\n@reason(\"for auditors\")\n{annotation}\nforbid (principal, action == Placet::Action::\"records/update_record\", resource is Placet::Tool)\nwhen {{ context.input.status == \"{status}\" }};\n"
        )
    };
    let policies = setup.path("new/policies");
    fs::remove_file(policies.join("15-files.cedar")).unwrap();
    let own = forbid("no-closing", "@feedback(\"Ask the owner to close it.\")", "closed")
        + &forbid("no-losing", "", "lost");
    fs::write(policies.join("60-own.cedar"), own).unwrap();
    let setup = setup.with("policies", json!("new/policies"));
    let (_placet, agent) = running(&setup).await;
    let update = |step: &str, id: &str, status: &str| {
        plan("records__update_record", step, json!({ "record_id": id, "status": status }))
    };
    let refused = agent.call(&update("s1", "1", "open")).await.refused(400, "VALIDATION_ERROR");
    assert!(text(&refused, "detail").ends_with("Ids begin with `REC-`."), "{refused:#}");
    let refused = agent.call(&update("s2", "REC-1", "closed")).await.refused(403, "POLICY_DENIED");
    let detail = text(&refused, "detail");
    assert!(
        detail.ends_with("Ask the owner to close it.") && !detail.contains("auditors"),
        "{detail}"
    );
    let refused = agent.call(&update("s3", "REC-1", "lost")).await.refused(403, "POLICY_DENIED");
    assert_eq!(text(&refused, "detail"), "policy does not allow this call");
    assert_eq!(record(&setup), Vec::<Value>::new(), "a refused call was made");
    agent.call(&update("s4", "REC-1", "open")).await.succeeded();
}

#[tokio::test]
async fn a_run_is_taken_while_it_is_open_and_opened_again_after_a_restart() {
    let setup = records(|_| {}).await;
    let (placet, agent) = running(&setup).await;
    let mut request = json!({ "run": { "run_id": "r1", "safety_mode": "local_write", "run_budget": { "calls_max": 7 } } });
    let run = agent.post("/v1/runs", &request).await.ok();
    assert_eq!(
        (&run["safety_mode"], &run["run_budget"]["calls_max"]),
        (&json!("local_write"), &json!(7))
    );
    agent.post("/v1/runs", &request).await.refused(409, "RUN_TAKEN");
    for (budget, pointer) in [
        (json!({ "tool_latency_ms_max": 0 }), "/run/run_budget/tool_latency_ms_max"),
        (json!({ "calls_max": 1_000_001 }), "/run/run_budget/calls_max"),
        (json!([3]), "/run/run_budget"),
    ] {
        let other = json!({ "run": { "run_id": "r2", "run_budget": budget } });
        let refused = agent.post("/v1/runs", &other).await;
        refused.refused(400, "VALIDATION_ERROR");
        assert_eq!(refused.pointers(), [pointer]);
    }
    // Nobody else has it, and nobody else is kept from the name.
    let ben = setup.ben(&placet).await;
    ben.get("/v1/runs/r1").await.refused(404, "RUN_NOT_FOUND");
    ben.get("/v1/runs/r1/tools").await.refused(404, "RUN_NOT_FOUND");
    ben.post("/v1/runs/r1/tools", &json!({})).await.refused(404, "RUN_NOT_FOUND");
    ben.post("/v1/runs", &request).await.ok();
    placet.kill().await;
    let (_placet, agent) = running(&setup).await;
    agent.get("/v1/runs/r1").await.refused(404, "RUN_NOT_FOUND");
    request["run"]["run_budget"]["calls_max"] = json!(8);
    let refused = agent.post("/v1/runs", &request).await;
    refused.refused(400, "VALIDATION_ERROR");
    assert_eq!(refused.pointers(), ["/run/run_budget"]);
    let again = agent.post("/v1/runs", &json!({ "run": { "run_id": "r1" } })).await.ok();
    assert_eq!(
        (&again["safety_mode"], &again["run_budget"]["calls_max"]),
        (&json!("local_write"), &json!(7))
    );
    let reserved = json!({ "run": { "run_id": "placet/x" } });
    agent.post("/v1/runs", &reserved).await.refused(400, "VALIDATION_ERROR");
}
