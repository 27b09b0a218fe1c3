//! The document: it resolves, it is stable, and what the routes answer fits it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    openapi_json,
    table::{self, Route},
};
use crate::{
    config::ServerConfig,
    testing::{People, TestApi, World, call},
};

fn document() -> Value {
    serde_json::from_str(&openapi_json()).unwrap()
}

/// The method as the document writes it.
fn method(route: &Route) -> String {
    route.method.as_str().to_lowercase()
}

fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            found.extend(members.get("$ref").and_then(Value::as_str).map(str::to_owned));
            members.values().for_each(|member| references(member, found));
        }
        Value::Array(elements) => elements.iter().for_each(|element| references(element, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn the_document_is_openapi_3_1_and_the_same_every_time() {
    assert_eq!(document()["openapi"], "3.1.0");
    assert_eq!(openapi_json(), openapi_json());
}

#[test]
fn every_reference_leads_to_a_schema() {
    let document = document();
    let mut found = BTreeSet::new();
    references(&document, &mut found);
    assert!(found.contains("#/components/schemas/Submission"), "{found:?}");
    for reference in found {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
}

#[test]
fn every_operation_is_described_and_nothing_else() {
    let document = document();
    let described: BTreeSet<(String, String)> = document["paths"]
        .as_object()
        .unwrap()
        .iter()
        .flat_map(|(path, item)| {
            item.as_object().unwrap().keys().map(move |method| (path.clone(), method.clone()))
        })
        .collect();
    let routes = table::all();
    let routed: BTreeSet<(String, String)> =
        routes.iter().map(|route| (route.path.to_owned(), method(route))).collect();
    assert_eq!(described, routed);
    assert_eq!(routed.len(), routes.len());
}

#[test]
fn every_operation_that_is_not_open_asks_for_a_token() {
    let document = document();
    for route in table::all() {
        let described = &document["paths"][route.path][method(&route)];
        let asks = described["security"] == json!([{ "bearer": [] }]);
        assert_eq!(asks, !route.is_open, "{}", route.path);
        assert_eq!(described["responses"]["401"].is_object(), asks, "{}", route.path);
        assert!(described["operationId"].is_string());
    }
}

#[test]
fn a_schema_keeps_the_keywords_that_the_builder_does_not_know() {
    let document = document();
    let schemas = &document["components"]["schemas"];
    assert_eq!(schemas["Submission"]["additionalProperties"], false);
    assert_eq!(schemas["Submission"]["properties"]["wait_ms"]["maximum"], 600_000);
    let version = &schemas["ToolResultEnvelope"]["properties"]["envelope_version"];
    assert!(version.to_string().contains("ResultVersion"), "{version}");
    assert!(schemas["ResultVersion"].to_string().contains("contextos.tool_result.v1"));
}

/// What the routes answer must be what the document promises.
#[tokio::test]
async fn answers_fit_their_schemas() {
    let world = World::on_disk(People::new()).await;
    let api = TestApi::over(world, ServerConfig::default(), None);
    let document = document();
    let held = api.held("one").await;
    let record = api.unknown("two").await;
    let freeze = json!({ "kind": "freeze", "name": "night" });
    let entry = api.arrange("ben", freeze).await;
    let entry = entry["directive_id"].as_str().unwrap();
    let done = api.post("/v1/calls", call("read", "three").to_string()).await.json();
    let done = done["tool_call_id"].as_str().unwrap();
    for (who, route, id) in [
        ("bot", "/", ""),
        ("bot", "/v1/calls/{id}", done),
        ("bot", "/v1/tools", ""),
        ("ben", "/v1/approvals", ""),
        ("ben", "/v1/approvals/{id}", &held.approval),
        ("ben", "/v1/inbox", ""),
        ("ben", "/v1/directives", ""),
        ("ben", "/v1/directives/{id}", entry),
        ("ben", "/v1/calls/{id}/timeline", &held.call),
        ("ben", "/v1/ledger", ""),
        ("ben", "/v1/ledger/{id}", &record),
        ("ben", "/v1/report", ""),
        ("ben", "/v1/decisions", ""),
        ("bot", "/v1/status", ""),
    ] {
        let reply = api.get_as(who, &route.replace("{id}", id)).await;
        assert_eq!(reply.status, 200, "{route}: {}", reply.text());
        let content =
            &document["paths"][route]["get"]["responses"]["200"]["content"]["application/json"];
        assert_fits(&document, &content["schema"], &reply.json());
    }
    let schema = |name: &str| json!({ "$ref": format!("#/components/schemas/{name}") });
    let refused = api.get("/v1/calls/none").await;
    assert_fits(&document, &schema("ProblemDocument"), &refused.json());
    let held = api.get(&format!("/v1/calls/{}", held.call)).await;
    assert_fits(&document, &schema("ToolResultEnvelope"), &held.json());
}

fn assert_fits(document: &Value, schema: &Value, answer: &Value) {
    let mut whole = schema.clone();
    whole["components"] = document["components"].clone();
    let validator = jsonschema::draft202012::new(&whole).unwrap();
    let errors: Vec<String> =
        validator.iter_errors(answer).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?} in {answer}");
    assert!(!validator.is_valid(&json!(7)), "the schema takes anything: {schema}");
}
