//! Every route × {no token, a token that does not verify, another tenant's token}: a new operation is tested by being there.

use axum::body::Body;
use http::Request;
use serde_json::{Value, json};

use placet_types::bounded::Bounded;

use crate::{
    config::ServerConfig,
    openapi::table::{self, Route},
    testing::{People, Reply, TestApi, Waiting, World, arrangement, call, record_id},
};

/// A request that is answered: of whom, about what, with which body.
struct Ask {
    route: Route,
    who: &'static str,
    id: String,
    body: Option<Value>,
}

impl Ask {
    fn path(&self) -> String {
        let query = if self.route.id == "proveInclusion" {
            "?log=journal&seq=3"
        } else if self.route.id == "proveConsistency" {
            "?log=journal&from=2&to=3"
        } else {
            ""
        };
        format!("{}{query}", self.route.path.replace("{id}", &self.id))
    }

    async fn send(&self, api: &TestApi, token: Option<&str>) -> Reply {
        let mut request = Request::builder()
            .method(self.route.method.clone())
            .uri(self.path())
            .header("host", "localhost:7411");
        if let Some(token) = token {
            request = request.header("authorization", token);
        }
        if self.body.is_some() {
            request = request.header("content-type", "application/json");
        }
        let body = self.body.as_ref().map(|body| Body::from(body.to_string()));
        api.send(request.body(body.unwrap_or_default()).unwrap()).await
    }
}

/// A request to a route, about an object made for it.
async fn ask(api: &TestApi, route: Route) -> Ask {
    let name = route.id;
    let ask = |who, id: &str, body| Ask { route, who, id: id.to_owned(), body };
    match name {
        "submitCall" => ask("bot", "", Some(call("read", name))),
        "getCall" | "followCall" | "getReceipt" => {
            let result = api.post("/v1/calls", call("write", name).to_string()).await.json();
            ask("bot", result["tool_call_id"].as_str().unwrap(), None)
        }
        "openRun" => ask("bot", "", Some(json!({ "run": { "run_id": name } }))),
        "getRun" | "listRunTools" | "changeRunTools" | "sendBatch" | "listBatches" => {
            let opened = json!({ "run": { "run_id": name } });
            let reply = api.post("/v1/runs", opened.to_string()).await;
            assert_eq!(reply.status, 200, "{}", reply.text());
            let body = match name {
                "changeRunTools" => Some(json!({})),
                "sendBatch" => Some(json!({ "calls": [{ "id": "1", "tool": "files__read" }] })),
                _ => None,
            };
            ask("bot", name, body)
        }
        "openSession" => ask("bot", "", Some(json!({ "session_id": name }))),
        "getSession" | "closeSession" | "executeInSession" | "simulateInSession" => {
            let opened = json!({ "session_id": name });
            let reply = api.post("/v1/sessions", opened.to_string()).await;
            assert_eq!(reply.status, 200, "{}", reply.text());
            let calls = json!({ "calls": [{ "id": "1", "tool": "files__read" }] });
            ask("bot", name, Some(calls).filter(|_| name.ends_with("InSession")))
        }
        "getTimeline" => ask("ben", &api.held(name).await.call, None),
        "getApproval" | "decideApproval" | "editApproval" | "withdrawApproval" => {
            let held = api.held(name).await;
            ask("ben", &held.approval, deed(name, &held))
        }
        "decideBulk" => ask("ben", "", deed(name, &api.held(name).await)),
        "createDirective" => ask("ben", "", Some(arrangement(&freeze()))),
        "getDirective" | "actOnDirective" => {
            let entry = api.arrange("ben", freeze()).await;
            let end = json!({ "act": "end", "reason": "done" });
            let body = Some(end).filter(|_| name == "actOnDirective");
            ask("ben", entry["directive_id"].as_str().unwrap(), body)
        }
        "getRecord" => ask("ben", &api.unknown(name).await, None),
        "resolveRecord" => {
            let body = json!({ "outcome": "happened", "evidence": "seen in the folder" });
            ask("ben", &api.unknown(name).await, Some(body))
        }
        "rearmRecord" => {
            let body = json!({ "evidence": "it was never seen" });
            ask("ben", &api.unknown(name).await, Some(body))
        }
        "reload" => ask("ben", "", Some(json!({}))),
        "getDecision" => {
            api.held(name).await;
            let list = api.get_as("ben", "/v1/decisions").await.json();
            ask("ben", list["decisions"][0]["decision_id"].as_str().unwrap(), None)
        }
        "showError" => ask("bot", "NOT_FOUND", None),
        "readInbox" | "listApprovals" | "listDirectives" | "followApprovals" | "listRecords"
        | "showReport" | "listDecisions" | "listCheckpoints" | "proveInclusion"
        | "proveConsistency" => ask("ben", "", None),
        "listTools" | "listRuns" | "showStatus" | "getAuditKey" | "protectedResource"
        | "describe" | "about" => ask("bot", "", None),
        other => panic!("nobody says how `{other}` is asked"),
    }
}

/// What a person does with a call that waits.
fn deed(name: &str, held: &Waiting) -> Option<Value> {
    let Waiting { approval, digest, .. } = held;
    match name {
        "decideApproval" => {
            Some(json!({ "decision": "approve", "reason": "seen", "digest": digest }))
        }
        "editApproval" => {
            Some(json!({ "args": { "path": "b" }, "reason": "less", "digest": digest }))
        }
        "withdrawApproval" => Some(json!({ "reason": "not wanted any more" })),
        "decideBulk" => Some(json!({
            "decision": "deny", "reason": "seen", "approvals": [{ "approval_id": approval, "digest": digest }],
        })),
        _ => None,
    }
}

fn freeze() -> Value {
    json!({ "kind": "freeze", "name": "night" })
}

/// The API over an audit chain; its streams end soon: one of them is read to its end.
async fn api() -> TestApi {
    let config = ServerConfig { stream_ms_max: Bounded(20), ..ServerConfig::default() };
    TestApi::over(World::on_disk(People::new()).await, config, None)
}

/// The response to a reload by an engine that was not started from files.
const NO_FILES: &str = "503 OVERLOADED";

fn closed() -> impl Iterator<Item = Route> {
    table::all().into_iter().filter(|route| !route.is_open)
}

#[tokio::test]
async fn every_operation_answers_its_own_tenant() {
    let api = api().await;
    for route in table::all() {
        let ask = ask(&api, route).await;
        let operation = ask.route.id;
        let token = format!("Bearer {}", api.world.people.token(ask.who));
        let reply = ask.send(&api, Some(&token)).await;
        if operation == "reload" {
            assert_eq!(reply.refusal(), NO_FILES);
        } else {
            let success = if operation == "closeSession" { 204 } else { 200 };
            assert_eq!(reply.status, success, "{operation}: {}", reply.text());
        }
    }
}

#[tokio::test]
async fn every_operation_that_is_not_open_refuses_who_is_not_verified() {
    let api = api().await;
    let before = api.state().await;
    let mut checked = 0_u32;
    for route in closed() {
        let operation = route.id;
        let (id, body) = (record_id().to_string(), Some(json!({})));
        let ask = Ask { route, who: "bot", id, body };
        for token in [None, Some("Bearer forged"), Some("acme"), Some("Basic acme"), Some("")] {
            let reply = ask.send(&api, token).await;
            assert_eq!(reply.refusal(), "401 UNAUTHENTICATED", "{operation} {token:?}");
            let challenge = reply.header("www-authenticate").unwrap();
            assert!(challenge.starts_with("Bearer resource_metadata=\""), "{challenge}");
            let is_named = challenge.ends_with("error=\"invalid_token\"");
            assert_eq!(is_named, token.is_some(), "{challenge}");
            checked = checked.saturating_add(1);
        }
    }
    assert_eq!(checked, 215);
    assert_eq!(api.state().await, before);
}

#[tokio::test]
async fn the_open_operations_need_no_token_and_say_nothing_of_any_tenant() {
    let api = api().await;
    let open: Vec<Route> = table::all().into_iter().filter(|route| route.is_open).collect();
    assert_eq!(
        open.iter().map(|route| route.id).collect::<Vec<_>>(),
        ["protectedResource", "describe", "showError", "about"]
    );
    let token = format!("Bearer {}", api.world.people.token("bot"));
    for route in open {
        let ask = ask(&api, route).await;
        let (with, without) = (ask.send(&api, Some(&token)).await, ask.send(&api, None).await);
        assert_eq!(without.status, 200);
        assert_eq!(with.body, without.body);
    }
}

#[tokio::test]
async fn another_tenants_token_sees_nothing_on_any_route() {
    let api = api().await;
    let mut asks = Vec::new();
    for route in closed() {
        asks.push(ask(&api, route).await);
    }
    let before = api.state().await;
    for ask in asks {
        let who = if ask.who == "bot" { "bot@globex" } else { "zoe@globex" };
        let token = format!("Bearer {}", api.world.people.token(who));
        let reply = ask.send(&api, Some(&token)).await;
        let operation = ask.route.id;
        match operation {
            "listTools" => assert_eq!(reply.json(), json!({ "tools": [] })),
            "listApprovals" => assert_eq!(reply.json(), json!({ "approvals": [] })),
            "readInbox" => assert_eq!(reply.json()["approvals"], json!([])),
            "listDirectives" => assert_eq!(reply.json(), json!({ "entries": [] })),
            // The run that they have just opened themselves.
            "listRuns" => {
                let runs = reply.json()["runs"].as_array().unwrap().clone();
                assert!(runs.iter().all(|run| run["run_id"] == "openRun"), "{}", reply.text());
            }
            "listDecisions" => assert_eq!(reply.json()["decisions"], json!([])),
            // Nothing that happens is for them.
            "followApprovals" => {
                assert_eq!((reply.status.as_u16(), reply.text()), (200, String::new()));
            }
            // A run of their own, which has nothing.
            "openRun" => assert_eq!(reply.json()["tools"], json!([])),
            "getRun" | "listRunTools" | "changeRunTools" | "sendBatch" | "listBatches" => {
                assert_eq!(reply.refusal(), "404 RUN_NOT_FOUND", "{operation}")
            }
            "openSession" => assert_eq!(reply.json()["calls"], json!([])),
            "getSession" | "executeInSession" | "simulateInSession" => {
                assert_eq!(reply.refusal(), "404 RUN_NOT_FOUND", "{operation}")
            }
            // It ends nothing of others, and says the same.
            "closeSession" => assert_eq!(reply.status, 204),
            "submitCall" => assert_eq!(reply.code(), "TOOL_NOT_FOUND"),
            "listRecords" => assert_eq!(reply.json(), json!({ "records": [] })),
            "showReport" => assert!(!reply.text().contains("files"), "{}", reply.text()),
            // It is their own.
            "createDirective" => assert_eq!(reply.json()["by"], "zoe"),
            // They are about the process or the log as a whole, and name no tenant.
            "showStatus" | "listCheckpoints" | "getAuditKey" | "proveInclusion"
            | "proveConsistency" => {
                assert_eq!(reply.status, 200, "{operation}")
            }
            "reload" => assert_eq!(reply.refusal(), NO_FILES),
            "decideBulk" => {
                let view = reply.json();
                assert_eq!(view["decided"], json!([]));
                assert_eq!(view["refused"][0]["code"], "NOT_FOUND");
            }
            _ => assert_eq!(reply.refusal(), "404 NOT_FOUND", "{operation}"),
        }
        assert!(!reply.text().contains("acme"), "{operation}: {}", reply.text());
    }
    assert_eq!(api.state().await, before);
}

/// Anyone who is not verified learns nothing about bodies, ids and queries either: the answer is always the same.
#[tokio::test]
async fn the_caller_is_verified_before_anything_else_is_read() {
    let api = TestApi::new().await;
    let request = |method: &str, path: &str, body: String| {
        let request = Request::builder().method(method).uri(path).header("host", "localhost:7411");
        request.header("content-type", "application/json").body(Body::from(body)).unwrap()
    };
    let plain = request("POST", "/v1/calls", call("read", "one").to_string());
    let plain = api.send(plain).await;
    assert_eq!(plain.refusal(), "401 UNAUTHENTICATED");
    for request in [
        request("POST", "/v1/calls", "{not json".to_owned()),
        request("POST", "/v1/calls", " ".repeat(2 * 1024 * 1024)),
        request("POST", "/v1/calls", String::new()),
        request("GET", "/v1/calls/%ff?wait_ms=x", String::new()),
        request("GET", "/v1/approvals?limit=0&x=y", String::new()),
    ] {
        let reply = api.send(request).await;
        assert_eq!((reply.status, &reply.body), (plain.status, &plain.body));
    }
}

#[tokio::test]
async fn an_id_that_is_malformed_unknown_or_anothers_answers_byte_for_byte_the_same() {
    let api = api().await;
    let names = ["getCall", "followCall", "getTimeline", "getDirective", "getRecord"];
    for route in table::all().into_iter().filter(|route| names.contains(&route.id)) {
        let token = format!("Bearer {}", api.world.people.token("zoe@globex"));
        let path = route.path;
        let anothers = ask(&api, route).await.send(&api, Some(&token)).await;
        assert_eq!(anothers.status, 404);
        let (unknown, long) = (record_id().to_string(), "x".repeat(65));
        let unknown = if path.contains("ledger") { &unknown } else { "unknown-2" };
        for id in
            [unknown, "%ff", "a%20b", "..%2f..%2fetc", "%00", "-", long.as_str(), "%F0%9F%92%A9"]
        {
            let reply = api.get_as("ben", &path.replace("{id}", id)).await;
            assert_eq!(reply.status, 404, "{id}: {}", reply.text());
            assert_eq!((&reply.body, &reply.headers), (&anothers.body, &anothers.headers), "{id}");
        }
    }
}
