//! Sessions and simulated tools, from outside: each requirement by its id (EN-01 to EN-04).
//!
//! Owns the service that `rest` is tested against; the model is one whose answers are written down.

use std::{fs, sync::Arc};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, Method, StatusCode, Uri},
    response::{IntoResponse as _, Response},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use url::Url;

use crate::{
    harness::{
        client::{Client, text},
        model::{Model, says},
        placet::Placet,
        setup::{Setup, local, plan},
    },
    runs::{record, records, running},
};

/// The contract of a world that a model makes up.
fn weather(url: &Url) -> Value {
    let input = json!({ "type": "object", "properties": { "city": { "type": "string" } }, "required": ["city"] });
    let output = json!({
        "type": "object", "properties": { "celsius": { "type": "number" } }, "required": ["celsius"],
    });
    json!({
        "contract_version": "placet.contract.v1", "adapter": "weather", "environment": "test", "tenants": "all",
        "transport": { "type": "lm", "url": url.as_str(), "private_network": true, "model": "a-model" },
        "protocol_version": "chat-completions/1",
        "capabilities": {
            "get": {
                "description": "The weather of a city.", "input_schema": input, "output_schema": output,
                "mode": "read_only", "effect": "none",
            },
            "set": {
                "description": "Makes weather.", "input_schema": input, "mode": "local_write", "effect": "write",
                "dedup": { "class": "opaque" },
            },
        },
    })
}

/// A set-up of the environment `test` with these contracts.
async fn world(contracts: impl IntoIterator<Item = Value>) -> (Setup, Placet, Client) {
    let setup =
        Setup::new().with("environment", json!("test")).with("contracts", json!("contracts"));
    fs::create_dir_all(setup.path("contracts/test")).unwrap();
    for contract in contracts {
        let file = setup.path(&format!("contracts/test/{}.yaml", text(&contract, "adapter")));
        fs::write(file, contract.to_string()).unwrap();
    }
    let (placet, agent) = running(&setup).await;
    (setup, placet, agent)
}

async fn session(agent: &Client, id: &str, more: Value) -> Value {
    let mut request = json!({ "session_id": id, "safety_mode": "destructive" });
    request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    agent.post("/v1/sessions", &request).await.ok()
}

fn call(id: &str, tool: &str, args: Value) -> Value {
    json!({ "id": id, "tool": tool, "args": args })
}

async fn made(agent: &Client, how: &str, session: &str, request: &Value) -> Value {
    agent.post(&format!("/v1/sessions/{session}/{how}"), request).await.ok()
}

async fn kept(agent: &Client, session: &str) -> Vec<Value> {
    let session = agent.get(&format!("/v1/sessions/{session}")).await.ok();
    session["calls"].as_array().unwrap().clone()
}

fn structured(view: &Value, place: usize) -> Value {
    view["results"][place]["result"]["output"]["structured"].clone()
}

/// The contents of the messages that a model got in a request.
fn said(model: &Model, request: usize) -> Vec<String> {
    let messages = model.asked()[request].body["messages"].clone();
    messages.as_array().unwrap().iter().map(|message| text(message, "content")).collect()
}

#[tokio::test]
async fn en_01_en_03_a_session_keeps_its_calls_and_its_model_is_told_of_them() {
    let answers = ["{\"celsius\":21}", "{\"celsius\":20.5}", "{\"done\":true}", "{\"celsius\":4}"];
    let (model, url) = Model::start(answers.map(says)).await;
    let mut contract = weather(&url);
    contract["capabilities"]["warn"] = contract["capabilities"]["set"].clone();
    contract["capabilities"]["warn"]["mode"] = json!("destructive");
    let mut secret = contract.clone();
    (secret["adapter"], secret["tenants"]) = (json!("secret"), json!(["acme"]));
    let (_setup, _placet, agent) = world([contract, secret]).await;
    session(&agent, "s1", json!({ "namespaces": { "weather_api": "weather" } })).await;
    let taken = agent.post("/v1/sessions", &json!({ "session_id": "s1" })).await;
    taken.refused(409, "RUN_TAKEN");
    // Nobody learns from it which adapters others have.
    for adapter in ["absent", "secret"] {
        let request = json!({ "session_id": "s2", "namespaces": { "weather_api": adapter } });
        let refused = agent.post("/v1/sessions", &request).await.refused(400, "VALIDATION_ERROR");
        let problem = text(&refused["problems"][0], "problem");
        assert_eq!(problem, format!("no tool of an adapter `{adapter}` is open to you"));
    }
    let calls = [
        call("1", "weather_api::get", json!({ "city": "Bern" })),
        call("2", "weather::get", json!({ "city": "Bern again" })),
    ];
    let request = json!({ "batch_id": "b1", "calls": calls });
    let view = made(&agent, "execute", "s1", &request).await;
    assert_eq!(structured(&view, 0)["celsius"], 21, "{view:#}");
    assert_eq!(view["results"][1]["tool"], "weather__get");
    // The model: what it is to do, the call before with its result, and the call.
    let told = said(&model, 1);
    assert_eq!(told.len(), 4, "{told:?}");
    assert!(told[1].contains("\"city\":\"Bern\"") && told[1].contains("The weather of a city."));
    assert_eq!(told[2], "{\"celsius\":21}");
    assert!(told[3].contains("Bern again"));
    let format = &model.asked()[1].body["response_format"];
    assert_eq!(format["json_schema"]["schema"]["required"], json!(["celsius"]));
    // The same calls under the same id act once, and are kept once.
    made(&agent, "execute", "s1", &request).await;
    let calls = kept(&agent, "s1").await;
    assert_eq!(calls.len(), 2, "{calls:#?}");
    assert_eq!(
        (&calls[0]["args"]["city"], &calls[0]["result"]["celsius"]),
        (&json!("Bern"), &json!(21))
    );
    // Without a declared output, any object will do; nothing is kept of a simulation, of a tool that writes either.
    let asked_before = model.asked().len();
    let mut set = call("3", "weather__set", json!({ "city": "Bern" }));
    set["idempotency_key"] = json!("order-1");
    let simulated = json!({ "calls": [set.clone()] });
    let view = made(&agent, "simulate", "s1", &simulated).await;
    assert_eq!(view["results"][0]["status"], "succeeded", "{view:#}");
    assert!(said(&model, asked_before).len() >= 6);
    assert_eq!(model.asked()[asked_before].body["response_format"]["type"], "json_object");
    assert_eq!(kept(&agent, "s1").await, calls);
    let warn = json!({ "calls": [call("4", "weather__warn", json!({ "city": "Bern" }))] });
    let view = made(&agent, "simulate", "s1", &warn).await;
    assert_eq!(view["results"][0]["result"]["error"]["error_code"], "VALIDATION_ERROR", "{view:#}");
    assert_eq!(agent.get("/v1/approvals?state=pending").await.json()["approvals"], json!([]));
    // Not even the key is used.
    let keyed = json!({
        "tool": "weather__set", "args": { "city": "Chur" }, "idempotency_key": "order-1",
        "run": { "run_id": "r2", "safety_mode": "local_write" },
    });
    let keyed = agent.call(&keyed).await.json();
    assert_eq!(keyed["replayed"], false, "{keyed:#}");
    // It ends, as often as one likes; then the name is free.
    for _ in 0..2 {
        let request = agent.request(Method::DELETE, "/v1/sessions/s1").body(Bytes::new()).unwrap();
        assert_eq!(agent.send(request).await.status, 204);
    }
    let ended = agent.get("/v1/sessions/s1").await.refused(404, "RUN_NOT_FOUND");
    assert!(text(&ended, "remediation").contains("POST /v1/sessions"), "{ended:#}");
    session(&agent, "s1", json!({})).await;
    assert_eq!(kept(&agent, "s1").await, Vec::<Value>::new());
}

#[tokio::test]
async fn en_03_an_answer_of_another_form_is_a_failed_call_that_is_kept() {
    let answers = ["It is warm.", "{\"celsius\":\"warm\"}", "{\"celsius\":3}"];
    let (model, url) = Model::start(answers.map(says)).await;
    let (_setup, _placet, agent) = world([weather(&url)]).await;
    session(&agent, "s1", json!({})).await;
    let one = |id: &str| call(id, "weather__get", json!({ "city": id }));
    let calls = json!({ "calls": [one("a"), one("b"), one("c")] });
    let view = made(&agent, "execute", "s1", &calls).await;
    let statuses: Vec<String> =
        view["results"].as_array().unwrap().iter().map(|result| text(result, "status")).collect();
    assert_eq!(statuses, ["failed", "failed", "succeeded"], "{view:#}");
    let why = view["results"][1]["result"]["output"]["content"][0]["text"].clone();
    assert!(why.as_str().unwrap().contains("does not fit its schema: `/celsius`"), "{view:#}");
    assert_eq!(kept(&agent, "s1").await.len(), 3);
    assert!(said(&model, 2)[2].contains("ADAPTER_FAILED"), "{:?}", said(&model, 2));
}

#[tokio::test]
async fn en_01_a_simulation_calls_real_tools_only_where_they_read() {
    let setup = records(|_| {}).await;
    let (_placet, agent) = running(&setup).await;
    session(&agent, "s1", json!({})).await;
    let calls = json!({ "calls": [
        call("1", "records::factorial", json!({ "n": 4 })),
        call("2", "records::update_record", json!({ "record_id": "REC-1", "status": "closed" })),
        call("3", "records::nowhere", json!({})),
    ] });
    let view = made(&agent, "simulate", "s1", &calls).await;
    assert_eq!(structured(&view, 0)["result"], 24, "{view:#}");
    assert_eq!(view["results"][1]["error"]["error_code"], "VALIDATION_ERROR");
    assert!(text(&view["results"][1]["error"], "message").contains("changes something"));
    assert_eq!(record(&setup).len(), 1);
    assert_eq!(kept(&agent, "s1").await, Vec::<Value>::new());
    // What a simulation did is not what an execution does.
    let write = json!({ "batch_id": "w", "calls": [calls["calls"][1]] });
    made(&agent, "execute", "s1", &write).await;
    made(&agent, "execute", "s1", &write).await;
    assert_eq!(record(&setup).len(), 2);
    assert_eq!(kept(&agent, "s1").await.len(), 1);
    // Under a used id it is the same call of the same tool, or a conflict.
    let other = json!({ "batch_id": "w", "calls": [call("2", "records::get_record", write["calls"][0]["args"].clone())] });
    let refused = agent.post("/v1/sessions/s1/execute", &other).await;
    refused.refused(422, "IDEMPOTENCY_CONFLICT");
    let long = json!({ "batch_id": "x".repeat(241), "calls": write["calls"] });
    agent.post("/v1/sessions/s1/execute", &long).await.refused(400, "VALIDATION_ERROR");
    assert_eq!(record(&setup).len(), 2);
    // A run is no session, and nobody else has this one.
    agent.post("/v1/runs", &json!({ "run": { "run_id": "r1" } })).await.ok();
    agent.get("/v1/sessions/r1").await.refused(404, "RUN_NOT_FOUND");
    agent.post("/v1/sessions/r1/execute", &calls).await.refused(404, "RUN_NOT_FOUND");
}

#[tokio::test]
async fn en_04_errors_are_made_up_as_often_as_the_contract_says() {
    let (model, url) = Model::start((0..20).map(|_| says("{\"celsius\":1}"))).await;
    let errors = |kind: &str, probability: f64| {
        let mut contract = weather(&url);
        contract["adapter"] = json!(format!("w-{}", kind.replace('_', "-")));
        let message = (kind == "network_error").then_some("Connection timed out");
        contract["error_injection"] = json!({ "seed": 3, "errors": [{ "type": kind, "probability": probability, "message": message }] });
        contract
    };
    let kinds = [("network_error", 1.0), ("unparseable_result", 1.0), ("schema_violation", 0.5)];
    let (setup, _placet, agent) = world(kinds.map(|(kind, often)| errors(kind, often))).await;
    session(&agent, "s1", json!({})).await;
    let one = |id: &str, adapter: &str| call(id, &format!("{adapter}__get"), json!({ "city": id }));
    let calls = json!({ "calls": [one("a", "w-network-error"), one("b", "w-unparseable-result")] });
    let view = made(&agent, "execute", "s1", &calls).await;
    assert_eq!(view["results"][0]["status"], "refused", "{view:#}");
    let error = &view["results"][0]["result"]["error"];
    assert_eq!(error["execution"], "not_executed", "{view:#}");
    assert!(text(error, "message").contains("Connection timed out"), "{view:#}");
    assert_eq!(view["results"][1]["status"], "succeeded", "{view:#}");
    let said = &view["results"][1]["result"]["output"]["content"][0]["text"];
    assert_eq!(*said, "<garbled: {\"celsius\":1}>");
    assert_eq!(model.asked().len(), 1, "a model was asked although the network failed");
    let calls: Vec<Value> = (0..16).map(|n| one(&n.to_string(), "w-schema-violation")).collect();
    let view = made(&agent, "execute", "s1", &json!({ "calls": calls })).await;
    let results = view["results"].as_array().unwrap().iter();
    let refused = results.filter(|one| one["status"] == "refused");
    assert!((3..=13).contains(&refused.count()), "{view:#}");
    // Only in the environment `test`.
    let mut elsewhere = errors("network_error", 0.1);
    elsewhere["environment"] = json!("dev");
    fs::create_dir_all(setup.path("contracts/dev")).unwrap();
    fs::write(setup.path("contracts/dev/w-network-error.yaml"), elsewhere.to_string()).unwrap();
    let setup = setup.with("environment", json!("dev"));
    setup.refuses().await.says(&["error_injection", "environment `test` only"]);
}

/// A request that the service got.
#[derive(Debug, Clone)]
struct Asked {
    line: String,
    headers: HeaderMap,
    body: String,
}

type Service = Arc<Mutex<Vec<Asked>>>;

async fn serve(
    State(service): State<Service>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: String,
) -> Response {
    let line = format!("{method} {uri}");
    service.lock().push(Asked { line: line.clone(), headers, body });
    match line.as_str() {
        "GET /v1/users/a%2Fb?verbose=true" => axum::Json(json!({ "name": "Ana" })).into_response(),
        "POST /v1/users" => (StatusCode::CREATED, axum::Json(json!({ "id": 7 }))).into_response(),
        "DELETE /v1/users/7" => StatusCode::NO_CONTENT.into_response(),
        "DELETE /v1/users/broken" => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        _ => (StatusCode::NOT_FOUND, "no such user").into_response(),
    }
}

async fn users() -> (Service, Value) {
    let service = Service::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = local(listener.local_addr().unwrap().port(), "/v1");
    let router = Router::new().fallback(serve).with_state(Arc::clone(&service));
    tokio::spawn(async move { axum::serve(listener, router).await });
    let id = json!({ "type": "object", "properties": { "id": { "type": "string" }, "verbose": { "type": "boolean" } }, "required": ["id"] });
    let write = |rest: Value, schema: Value| json!({ "rest": rest, "input_schema": schema, "mode": "local_write", "effect": "write", "dedup": { "class": "keyed", "window_ms": 86_400_000 } });
    let contract = json!({
        "contract_version": "placet.contract.v1", "adapter": "users", "environment": "test", "tenants": "all",
        "transport": { "type": "rest", "url": url.as_str(), "private_network": true }, "protocol_version": "rest/1",
        "credential": { "type": "static_secret", "secret": "users", "header": "x-api-key" },
        "capabilities": {
            "get": { "rest": { "method": "GET", "path": "/users/{id}" }, "input_schema": id, "mode": "read_only", "effect": "none" },
            "create": write(
                json!({ "method": "POST", "path": "/users", "headers": { "X-Source": "placet {name}" } }),
                json!({ "type": "object", "properties": { "name": { "type": "string" }, "tags": { "type": "array" } }, "required": ["name"] }),
            ),
            "remove": write(json!({ "method": "DELETE", "path": "/users/{id}" }), id),
        },
    });
    (service, contract)
}

#[tokio::test]
async fn en_02_a_service_over_http_is_called_as_its_contract_says() {
    let (service, contract) = users().await;
    let setup = Setup::new()
        .with("environment", json!("test"))
        .with("contracts", json!("contracts"))
        .with("secrets", json!({ "users": { "env": "USERS_KEY" } }))
        .env("USERS_KEY", "key-of-users");
    fs::create_dir_all(setup.path("contracts/test")).unwrap();
    fs::write(setup.path("contracts/test/users.yaml"), contract.to_string()).unwrap();
    let (_placet, agent) = running(&setup).await;
    let call = |tool: &str, step: &str, args: Value| plan(&format!("users__{tool}"), step, args);
    let got =
        agent.call(&call("get", "s1", json!({ "id": "a/b", "verbose": true }))).await.succeeded();
    assert_eq!(got["output"]["structured"], json!({ "name": "Ana" }), "{got:#}");
    let create = call("create", "s2", json!({ "name": "Ben", "tags": ["x", 1] }));
    assert_eq!(agent.call(&create).await.succeeded()["output"]["structured"]["id"], 7);
    assert_eq!(agent.call(&create).await.succeeded()["replayed"], true);
    agent.call(&call("remove", "s3", json!({ "id": "7" }))).await.succeeded();
    let failed = agent.call(&call("remove", "s4", json!({ "id": "8" }))).await.json();
    assert_eq!(failed["error"]["error_code"], "ADAPTER_FAILED", "{failed:#}");
    assert_eq!(failed["output"]["content"][0]["text"], "no such user");
    // It may have been done before the service broke, so nobody claims that it was not.
    let unknown = agent.call(&call("remove", "s5", json!({ "id": "broken" }))).await.json();
    assert!(unknown.to_string().contains("OUTCOME_UNKNOWN"), "{unknown:#}");
    let refused = agent.call(&call("get", "s6", json!({ "id": ".." }))).await.json();
    assert!(refused.to_string().contains("part of the path"), "{refused:#}");
    let asked = service.lock().clone();
    let lines: Vec<&str> = asked.iter().map(|asked| asked.line.as_str()).collect();
    let wanted = [
        "GET /v1/users/a%2Fb?verbose=true",
        "POST /v1/users",
        "DELETE /v1/users/7",
        "DELETE /v1/users/8",
        "DELETE /v1/users/broken",
    ];
    assert_eq!(lines[..5], wanted, "{lines:?}");
    assert_eq!(asked[1].body, "{\"tags\":[\"x\",1]}");
    assert_eq!(asked[1].headers["x-source"], "placet Ben");
    assert!(asked[1].headers["idempotency-key"].to_str().unwrap().starts_with("plc_"));
    assert!(asked.iter().all(|asked| asked.headers["x-api-key"] == "key-of-users"));
    assert!(asked.iter().all(|asked| asked.headers.contains_key("traceparent")));
    assert!(!asked[0].headers.contains_key("idempotency-key"));
}

#[tokio::test]
async fn ts_01_a_service_is_imported_from_its_openapi_document_and_called() {
    // The service is a Placet of its own, and the document is its own too.
    let service = Setup::new();
    let (target, _) = running(&service).await;
    let key = service.token("agent", "dev-agent").await;
    let setup = Setup::new()
        .with("contracts", json!("contracts"))
        .with("secrets", json!({ "placet": { "env": "PLACET_KEY" } }))
        .env("PLACET_KEY", &key);
    let document = crate::workspace::root().join("docs/src/reference/openapi.json");
    let import = [
        "adapters",
        "import",
        "--name",
        "placet",
        "--openapi",
        document.to_str().unwrap(),
        "--base-url",
        target.base.as_str(),
        "--private-network",
        "--credential",
        "placet",
        "--mode-default",
        "local_write",
    ];
    let ran = setup.configured(&import).await;
    assert!(ran.ok().contains("tools)"), "{ran:?}");
    let mut contract = setup.read_contract("placet");
    assert_eq!(contract["capabilities"]["getApproval"]["mode"], "network");
    for tool in ["listTools", "getRun"] {
        contract["capabilities"][tool]["mode"] = json!("read_only");
    }
    let setup = setup.contract("placet", &contract);
    setup.configured(&["adapters", "diff"]).await.ok();
    let (_placet, agent) = running(&setup).await;
    let tools = agent.call(&plan("placet__listTools", "s1", json!({}))).await.succeeded();
    let tools = tools["output"]["structured"]["tools"].as_array().unwrap().clone();
    assert!(tools.iter().any(|tool| tool["tool"] == "files__read"), "{tools:#?}");
    let open = json!({ "run": { "run_id": "there" }, "tools": ["files__read"] });
    let opened = agent.call(&plan("placet__openRun", "s2", open)).await.succeeded();
    assert_eq!(opened["output"]["structured"]["tools"], json!(["files__read"]));
    let run = agent.call(&plan("placet__getRun", "s3", json!({ "id": "there" }))).await.succeeded();
    assert_eq!(run["output"]["structured"]["iteration"], 1);
    // What the document asks for is asked of the caller.
    let refused = agent.call(&plan("placet__openRun", "s4", json!({ "tools": [] }))).await;
    refused.refused(400, "VALIDATION_ERROR");
}
