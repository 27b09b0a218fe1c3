//! The approval service over HTTP: what reaches it, what does not, and what happens as events.

use std::time::Duration;

use axum::body::Body;
use http::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use placet_types::{bounded::Bounded, digest::Digest};

use super::frame;
use crate::{config::ServerConfig, state::Phase, testing::TestApi};

const EVENTS: &str = "/v1/approvals/events";

#[tokio::test]
async fn a_query_of_the_approval_service_that_means_nothing_is_refused() {
    let api = TestApi::new().await;
    let long = format!("/v1/inbox?search={}", "x".repeat(201));
    for path in [
        "/v1/inbox?whose=theirs",
        "/v1/inbox?state=open",
        "/v1/inbox?mode=mighty",
        "/v1/inbox?group=a%20b",
        "/v1/inbox?order=random",
        "/v1/inbox?offset=-1",
        "/v1/inbox?offset=1000001",
        "/v1/inbox?limit=201",
        "/v1/inbox?whose=mine&whose=all",
        "/v1/inbox?frob=1",
        long.as_str(),
        "/v1/directives?kind=grants",
        "/v1/directives?state=pending",
        "/v1/directives?after=a%20b",
        "/v1/directives?limit=0",
        "/v1/directives?order=random",
        "/v1/directives/grant?x=1",
        "/v1/approvals/events?from=1",
        "/v1/calls/call-1/timeline?limit=1",
    ] {
        let reply = api.get_as("ben", path).await;
        assert_eq!(reply.refusal(), "400 VALIDATION_ERROR", "{path}");
    }
}

#[tokio::test]
async fn a_list_of_entries_is_of_one_kind_and_names_the_next_page() {
    let api = TestApi::new().await;
    let mut ids = Vec::new();
    for name in ["one", "two", "three"] {
        ids.push(freeze(&api, name).await["directive_id"].clone());
        api.world.store.advance_ms(1);
    }
    let duty = json!({ "kind": "delegation", "to": "cy", "groups": ["approvers"] });
    api.arrange("ben", duty).await;
    let list = async |query: &str| {
        let list = api.get_as("ben", &format!("/v1/directives?{query}")).await.json();
        let entries = list["entries"].as_array().unwrap().iter();
        let shown: Vec<Value> = entries.map(|entry| entry["directive_id"].clone()).collect();
        (shown, list.get("next_after").cloned())
    };
    assert_eq!(list("kind=freeze&state=open").await, (ids.clone(), None));
    assert_eq!(list("").await.0.len(), 4);
    let first = list("kind=freeze&order=newest&limit=2").await;
    let newest = vec![ids[2].clone(), ids[1].clone()];
    assert_eq!(first, (newest, Some(ids[1].clone())));
    let after = ids[1].as_str().unwrap();
    let rest = list(&format!("kind=freeze&order=newest&limit=2&after={after}")).await;
    assert_eq!(rest, (vec![ids[0].clone()], None));
}

async fn freeze(api: &TestApi, name: &str) -> Value {
    api.arrange("ben", json!({ "kind": "freeze", "name": name })).await
}

#[tokio::test]
async fn an_edit_is_handed_on_whole_and_its_refusal_comes_back() {
    let api = TestApi::new().await;
    let held = api.held("one").await;
    let path = format!("/v1/approvals/{}/edits", held.approval);
    let args = json!({ "path": "b", "count": 7 });
    let edit = json!({ "args": args, "reason": "less", "digest": held.digest });
    let edited = api.post_as("ben", &path, edit.clone()).await.json();
    assert_eq!((&edited["approval_id"], &edited["edits"]), (&json!(held.approval), &json!(1)));
    let shown = api.get_as("ben", &format!("/v1/approvals/{}", held.approval)).await.json();
    assert_eq!(shown["proposal"]["evidence"]["preview"], args);
    assert_eq!(shown["proposal"]["evidence"]["edited"]["reason"], "less");
    assert_eq!(api.post_as("cy", &path, edit).await.refusal(), "400 VALIDATION_ERROR");
}

#[tokio::test]
async fn what_is_not_the_form_of_a_deed_is_refused_and_nothing_is_done() {
    let api = TestApi::new().await;
    let held = api.held("one").await;
    let entry = freeze(&api, "night").await["directive_id"].as_str().unwrap().to_owned();
    let before = api.state().await;
    let digest = &held.digest;
    let edits = format!("/v1/approvals/{}/edits", held.approval);
    let acts = format!("/v1/directives/{entry}/acts");
    let freeze = json!({ "kind": "freeze", "name": "n" });
    for (path, body) in [
        (edits.as_str(), json!({ "args": [], "reason": "r", "digest": digest })),
        (&edits, json!({ "args": {}, "reason": "r" })),
        (&edits, json!({ "args": {}, "reason": "r", "digest": "sha256:00" })),
        (&edits, json!({ "args": {}, "reason": "r", "digest": digest, "force": true })),
        ("/v1/approvals/decisions", json!({ "decision": "maybe", "reason": "r", "approvals": [] })),
        (
            "/v1/approvals/decisions",
            json!({ "decision": "approve", "reason": "r", "approvals": [held.approval] }),
        ),
        ("/v1/directives", json!({ "arrange": { "kind": "party" }, "reason": "r", "lasts_ms": 1 })),
        ("/v1/directives", json!({ "arrange": freeze, "reason": "r" })),
        ("/v1/directives", json!({ "arrange": freeze, "reason": "r", "lasts_ms": -1 })),
        (&acts, json!({ "act": "decide", "decision": "approve", "reason": "r" })),
        (&acts, json!({ "act": "extend", "reason": "r" })),
    ] {
        let reply = api.post_as("ben", path, body.clone()).await;
        assert_eq!(reply.refusal(), "400 VALIDATION_ERROR", "{body}");
    }
    let doubled = r#"{"act":"end","reason":"a","reason":"b"}"#;
    let doubled = api.send(api.request("ben", Method::POST, &acts, doubled)).await;
    assert_eq!(doubled.refusal(), "400 VALIDATION_ERROR");
    assert_eq!(api.state().await, before);
}

#[tokio::test]
async fn a_decision_on_several_says_of_each_what_came_of_it() {
    let api = TestApi::new().await;
    let (one, two) = (api.held("one").await, api.held("two").await);
    let request = json!({ "decision": "approve", "reason": "both", "approvals": [
        { "approval_id": one.approval, "digest": one.digest },
        { "approval_id": two.approval, "digest": Digest::of(b"something else") },
    ]});
    let view = api.post_as("ben", "/v1/approvals/decisions", request).await.json();
    assert_eq!(view["decided"][0]["approval_id"], one.approval);
    assert_eq!(view["refused"][0]["approval_id"], two.approval);
    assert!(view["refused"][0]["code"].is_string(), "{view}");
}

/// `decisions` is a route, and never the id of an approval.
#[tokio::test]
async fn a_name_that_is_a_route_is_not_taken_for_an_id() {
    let api = TestApi::new().await;
    assert_eq!(api.get("/v1/approvals/decisions").await.status, 405);
    assert_eq!(api.post(EVENTS, "{}").await.status, 405);
}

async fn follow(api: &TestApi) -> Body {
    super::follow(api, api.request("ben", Method::GET, EVENTS, "")).await
}

#[tokio::test]
async fn what_happens_after_the_head_of_the_answer_is_an_event() {
    let api = TestApi::new().await;
    let mut body = follow(&api).await;
    let held = api.held("one").await;
    let event = frame(&mut body).await.unwrap();
    let data = event.strip_prefix("event: approvals\ndata: ").unwrap().trim_end();
    let data: Value = serde_json::from_str(data).unwrap();
    assert_eq!((&data["kind"], &data["groups"]), (&json!("asked"), &json!(["approvers"])));
    assert_eq!(data["approval_id"], held.approval);
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_the_approval_service_comments_while_it_is_quiet_and_ends_when_its_time_is_up()
{
    let config = ServerConfig {
        heartbeat_ms: Bounded(15_000),
        stream_ms_max: Bounded(40_000),
        ..ServerConfig::default()
    };
    let api = TestApi::with(config).await;
    let before = Instant::now();
    let mut body = follow(&api).await;
    assert_eq!(frame(&mut body).await.unwrap(), ": alive\n\n");
    assert_eq!(frame(&mut body).await.unwrap(), ": alive\n\n");
    assert_eq!(frame(&mut body).await, None);
    let lasted = before.elapsed();
    assert!(lasted >= Duration::from_secs(40) && lasted < Duration::from_secs(45), "{lasted:?}");
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_the_approval_service_ends_with_the_token_that_it_was_opened_with() {
    let api = TestApi::new().await;
    let before = Instant::now();
    let mut body = super::follow(&api, api.lasting(api.reading(EVENTS), 20)).await;
    let mut last = String::new();
    while let Some(next) = frame(&mut body).await {
        last = next;
    }
    assert!(last.starts_with("event: ended\n") && last.contains("CREDENTIAL_EXPIRED"), "{last}");
    let lasted = before.elapsed();
    assert!(lasted >= Duration::from_secs(20) && lasted < Duration::from_secs(25), "{lasted:?}");
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_the_approval_service_whose_readers_token_is_revoked_says_so_and_ends_at_once()
{
    let api = TestApi::new().await;
    let cy = api.request("cy", Method::GET, EVENTS, "");
    let mut body = super::follow(&api, cy).await;
    api.revoke("cy").await;
    api.held("one").await;
    let last = frame(&mut body).await.unwrap();
    assert!(last.starts_with("event: ended\n") && last.contains("CREDENTIAL_EXPIRED"), "{last}");
    assert_eq!(frame(&mut body).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_the_approval_service_ends_when_the_listeners_close() {
    let api = TestApi::new().await;
    let mut body = follow(&api).await;
    let close = async {
        sleep(Duration::from_secs(1)).await;
        api.phase.send_replace(Phase::Draining);
    };
    let (end, ()) = tokio::join!(frame(&mut body), close);
    assert_eq!(end, None);
}
