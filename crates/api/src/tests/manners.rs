//! What holds for every request: names, headers, routes that do not exist, panics, the admin listener.

use axum::{Router, body::Body, routing::get};
use http::Request;
use serde_json::json;
use tower::ServiceExt as _;

use crate::{
    config::ServerConfig,
    guard::Guard,
    router::surround,
    state::Phase,
    testing::{Reply, TestApi, call, submission},
};

fn assert_sealed(reply: &Reply) {
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
}

#[tokio::test]
async fn nothing_is_for_a_cache_or_a_guesser() {
    let api = TestApi::new().await;
    for path in [
        "/",
        "/openapi.json",
        "/v1/tools",
        "/v1/calls/call-1",
        "/v1/calls/call-1/events",
        "/v1/calls/none",
        "/none",
    ] {
        assert_sealed(&api.get(path).await);
    }
    assert_sealed(&panicked().await);
    assert_sealed(&api.send(Request::get("/").body(Body::empty()).unwrap()).await);
    assert_sealed(&api.ask_admin("/metrics", "localhost:7412").await);
}

#[tokio::test]
async fn routes_and_methods_that_do_not_exist_are_problems() {
    let api = TestApi::new().await;
    for path in [
        "/v1",
        "/v1/calls/",
        "/v1/calls/a/b",
        "/v1/tools/",
        "/metrics",
        "/healthz",
        "//",
        "/v1/../v1/tools",
    ] {
        let reply = api.get(path).await;
        assert_eq!(reply.refusal(), "404 NOT_FOUND", "{path}");
    }
    for (method, path, allow) in [
        ("DELETE", "/v1/calls", "POST"),
        ("GET", "/v1/calls", "POST"),
        ("POST", "/v1/tools", "GET,HEAD"),
        ("TRACE", "/", "GET,HEAD"),
        ("OPTIONS", "/v1/approvals/a/decisions", "POST"),
    ] {
        let mut request = api.reading(path);
        *request.method_mut() = method.parse().unwrap();
        let reply = api.send(request).await;
        assert_eq!(reply.refusal(), "405 VALIDATION_ERROR", "{method} {path}");
        assert_eq!(reply.header("allow"), Some(allow), "{method} {path}");
    }
}

#[tokio::test]
async fn a_foreign_host_or_origin_is_403_on_every_route_even_with_a_token() {
    let config = ServerConfig {
        allowed_origins: ["https://console.example".to_owned()].into(),
        ..ServerConfig::default()
    };
    let api = TestApi::with(config).await;
    for path in ["/", "/openapi.json", "/v1/tools", "/v1/calls/call-1/events", "/none"] {
        let mut rebound = api.reading(path);
        rebound.headers_mut().insert("host", "evil.example:7411".parse().unwrap());
        let mut scripted = api.reading(path);
        scripted.headers_mut().insert("origin", "https://evil.example".parse().unwrap());
        for request in [rebound, scripted] {
            let reply = api.send(request).await;
            assert_eq!(reply.refusal(), "403 POLICY_DENIED", "{path}");
        }
    }
    let mut known = api.reading("/v1/tools");
    known.headers_mut().insert("origin", "https://console.example".parse().unwrap());
    let reply = api.send(known).await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("access-control-allow-origin"), None);
}

#[tokio::test]
async fn two_authorizations_are_refused_even_if_both_would_do() {
    let api = TestApi::new().await;
    let mut request = api.reading("/v1/tools");
    request.headers_mut().append("authorization", "Bearer tenant-a".parse().unwrap());
    let reply = api.send(request).await;
    assert_eq!(reply.refusal(), "401 UNAUTHENTICATED");
}

/// The response of a handler that panics.
async fn panicked() -> Reply {
    let guard = Guard::new("127.0.0.1:7411".parse().unwrap(), &[], &[]).unwrap();
    let bug = get(async || {
        if true {
            panic!("a bug in the handler")
        }
    });
    let router = surround(Router::new().route("/", bug), guard);
    let request = Request::get("/").header("host", "localhost:7411").body(Body::empty()).unwrap();
    Reply::of(router.oneshot(request).await.unwrap()).await
}

#[tokio::test]
async fn a_panic_is_a_problem_that_does_not_claim_to_know_the_effect() {
    let reply = panicked().await;
    assert_eq!(reply.refusal(), "500 INTERNAL");
    assert_eq!(reply.json()["execution"], "unknown");
    assert!(!reply.text().contains("bug"), "{}", reply.text());
}

#[tokio::test]
async fn queries_are_as_strict_as_bodies() {
    let api = TestApi::new().await;
    for path in [
        "/v1/calls/call-1?wait_ms=600001",
        "/v1/calls/call-1?wait=5",
        "/v1/calls/call-1/events?wait_ms=5",
        "/v1/tools?tenant=tenant-b",
        "/v1/approvals?limit=201",
        "/v1/approvals?state=pending&state=denied",
        "/v1/approvals?state=waiting",
        "/v1/approvals?after=a%20b",
        "/v1/approvals/approval-1?x=1",
        "/v1/ledger?after=7",
        "/v1/ledger?limit=0",
    ] {
        let reply = api.get(path).await;
        assert_eq!(reply.refusal(), "400 VALIDATION_ERROR", "{path}");
    }
    let reply = api.post("/v1/calls?dry_run=true", submission().to_string()).await;
    assert_eq!(reply.code(), "VALIDATION_ERROR");
    assert!(api.world.witness.executed.lock().is_empty());
}

#[tokio::test]
async fn a_full_page_says_how_to_get_the_next() {
    let api = TestApi::new().await;
    for step in ["one", "two", "three"] {
        api.held(step).await;
    }
    let full = api.get_as("ben", "/v1/approvals?state=pending&limit=2").await.json();
    assert_eq!(full["approvals"].as_array().unwrap().len(), 2);
    assert_eq!(full["next_after"], full["approvals"][1]["approval_id"]);
    let after = full["next_after"].as_str().unwrap();
    let last = api.get_as("ben", &format!("/v1/approvals?limit=200&after={after}")).await.json();
    assert_eq!((last["approvals"].as_array().unwrap().len(), last.get("next_after")), (1, None));
}

#[tokio::test]
async fn the_admin_api_has_three_routes_and_needs_no_token() {
    let api = TestApi::new().await;
    assert_eq!(api.ask_admin("/healthz", "localhost:7412").await.json(), json!({ "status": "ok" }));
    assert_eq!(api.ask_admin("/readyz", "10.0.0.7:7412").await.status, 200);
    let metrics = api.ask_admin("/metrics", "127.0.0.1:7412").await;
    assert!(metrics.text().ends_with("# EOF\n"), "{}", metrics.text());
    assert!(metrics.header("content-type").unwrap().starts_with("application/openmetrics-text"));
    for path in ["/", "/v1/tools", "/openapi.json"] {
        assert_eq!(api.ask_admin(path, "localhost:7412").await.code(), "NOT_FOUND");
    }
    assert_eq!(api.ask_admin("/metrics", "evil.example:7412").await.status, 403);
}

#[tokio::test]
async fn what_is_not_ready_or_closing_says_so() {
    let ending = TestApi::new().await;
    ending.world.engine.begin_stop();
    assert_eq!(ending.ask_admin("/readyz", "localhost:7412").await.status, 503);
    assert_eq!(ending.ask_admin("/healthz", "localhost:7412").await.status, 200);

    let closing = TestApi::new().await;
    closing.phase.send_replace(Phase::Draining);
    let reply = closing.ask_admin("/readyz", "localhost:7412").await;
    assert_eq!((reply.status.as_u16(), &reply.json()["ready"]), (503, &json!(false)));
    assert!(reply.text().contains("shutting down"));
}

#[tokio::test]
async fn a_key_in_the_header_reaches_the_engine_with_the_trace() {
    let api = TestApi::new().await;
    let mut request = api.posting("/v1/calls", call("write", "one").to_string());
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    request.headers_mut().insert("idempotency-key", "key-1".parse().unwrap());
    request.headers_mut().insert("traceparent", parent.parse().unwrap());
    let result = api.send(request).await.json();
    assert_eq!(result["idempotency_key"], "key-1", "{result}");
    assert_eq!(result["trace_id"], "0af7651916cd43dd8448eb211c80319c");
}
