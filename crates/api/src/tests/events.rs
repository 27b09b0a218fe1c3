//! Event streams of calls: their form on the wire, their end, their number.

use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use serde_json::json;
use tokio::time::{Instant, sleep};

use placet_types::bounded::Bounded;

use super::frame;
use crate::{
    config::ServerConfig,
    state::Phase,
    testing::{Reply, TestApi, call},
};

async fn follow(api: &TestApi, call: &str) -> Body {
    super::follow(api, api.reading(&format!("/v1/calls/{call}/events"))).await
}

#[tokio::test]
async fn a_finished_call_is_one_event_and_the_end() {
    let api = TestApi::new().await;
    let done = api.post("/v1/calls", call("write", "one").to_string()).await.json();
    let id = done["tool_call_id"].as_str().unwrap();
    let mut body = follow(&api, id).await;
    let event = frame(&mut body).await.unwrap();
    let data = event.strip_prefix("event: finished\ndata: ").unwrap().strip_suffix("\n\n").unwrap();
    let plain = api.get(&format!("/v1/calls/{id}")).await;
    assert_eq!(data.as_bytes(), plain.body);
    assert_eq!(frame(&mut body).await, None);
}

#[tokio::test]
async fn a_call_is_followed_through_its_states_to_the_end() {
    let api = TestApi::new().await;
    let held = api.held("one").await;
    let mut body = follow(&api, &held.call).await;
    let first = frame(&mut body).await.unwrap();
    assert!(
        first.starts_with("event: held\ndata: {\"envelope_version\":\"contextos.tool_result.v1\""),
        "{first}"
    );
    assert_eq!(api.approve(&held).await.status, 200);
    let mut last = frame(&mut body).await.unwrap();
    while last.starts_with("event: held\n") {
        assert!(last.contains("\"state\":\"approved\""), "{last}");
        last = frame(&mut body).await.unwrap();
    }
    assert!(last.starts_with("event: finished\n"), "{last}");
    assert_eq!(frame(&mut body).await, None);
}

#[tokio::test]
async fn a_call_that_is_executed_says_so_until_it_is_finished() {
    let api = TestApi::new().await;
    let running = api.running("one").await;
    let mut body = follow(&api, &running).await;
    let first = frame(&mut body).await.unwrap();
    assert!(
        first.starts_with("event: in_progress\n")
            && first.contains("\"error_code\":\"IN_PROGRESS\""),
        "{first}"
    );
    api.world.witness.let_go();
    let last = frame(&mut body).await.unwrap();
    assert!(last.starts_with("event: finished\n"), "{last}");
    assert_eq!(frame(&mut body).await, None);
}

#[tokio::test]
async fn a_denied_call_ends_with_its_refusal_and_without_who_denied_it() {
    let api = TestApi::new().await;
    let held = api.held("one").await;
    let mut body = follow(&api, &held.call).await;
    frame(&mut body).await.unwrap();
    let path = format!("/v1/approvals/{}/decisions", held.approval);
    let denial = json!({ "decision": "deny", "reason": "no", "digest": held.digest });
    assert_eq!(api.post_as("ben", &path, denial).await.status, 200);
    let last = frame(&mut body).await.unwrap();
    assert!(
        last.starts_with("event: refused\n")
            && last.contains("APPROVAL_DENIED")
            && !last.contains("ben"),
        "{last}"
    );
    assert_eq!(frame(&mut body).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_comments_and_ends_when_its_time_is_up() {
    let config = ServerConfig {
        heartbeat_ms: Bounded(15_000),
        stream_ms_max: Bounded(40_000),
        ..ServerConfig::default()
    };
    let api = TestApi::with(config).await;
    let held = api.held("one").await;
    let before = Instant::now();
    let mut body = follow(&api, &held.call).await;
    assert!(frame(&mut body).await.unwrap().starts_with("event: held"));
    assert_eq!(frame(&mut body).await.unwrap(), ": alive\n\n");
    assert_eq!(frame(&mut body).await.unwrap(), ": alive\n\n");
    assert_eq!(frame(&mut body).await, None);
    let lasted = before.elapsed();
    assert!(lasted >= Duration::from_secs(40) && lasted < Duration::from_secs(45), "{lasted:?}");
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_with_the_token_that_it_was_opened_with() {
    let api = TestApi::new().await;
    let held = api.held("one").await;
    let before = Instant::now();
    let path = format!("/v1/calls/{}/events", held.call);
    let mut body = super::follow(&api, api.lasting(api.reading(&path), 20)).await;
    assert!(frame(&mut body).await.unwrap().starts_with("event: held"));
    assert_eq!(frame(&mut body).await.unwrap(), ": alive\n\n");
    let last = frame(&mut body).await.unwrap();
    assert!(last.starts_with("event: ended\n") && last.contains("CREDENTIAL_EXPIRED"), "{last}");
    assert_eq!(frame(&mut body).await, None);
    let lasted = before.elapsed();
    assert!(lasted >= Duration::from_secs(20) && lasted < Duration::from_secs(25), "{lasted:?}");
}

#[tokio::test(start_paused = true)]
async fn a_stream_whose_readers_token_is_revoked_says_so_and_ends_at_once() {
    let api = TestApi::new().await;
    let held = api.held("one").await;
    let mut body = follow(&api, &held.call).await;
    assert!(frame(&mut body).await.unwrap().starts_with("event: held"));
    api.revoke("bot").await;
    // They may not see what happens from then on.
    assert_eq!(api.approve(&held).await.status, 200);
    let last = frame(&mut body).await.unwrap();
    let data = last.strip_prefix("event: ended\ndata: ").unwrap();
    let problem: serde_json::Value = serde_json::from_str(data).unwrap();
    assert_eq!(
        (&problem["error_code"], &problem["status"]),
        (&json!("CREDENTIAL_EXPIRED"), &json!(401))
    );
    assert_eq!(problem["call_id"], held.call);
    assert!(!last.contains("operator"), "{last}");
    assert_eq!(frame(&mut body).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_when_the_listeners_close() {
    let api = TestApi::new().await;
    let held = api.held("one").await;
    let mut body = follow(&api, &held.call).await;
    frame(&mut body).await.unwrap();
    let close = async {
        sleep(Duration::from_secs(1)).await;
        api.phase.send_replace(Phase::Draining);
    };
    let (end, ()) = tokio::join!(frame(&mut body), close);
    assert_eq!(end, None);
}

#[tokio::test]
async fn streams_are_counted_and_a_dropped_one_makes_room() {
    let config = ServerConfig { connections_max: Bounded(16), ..ServerConfig::default() };
    let api = TestApi::with(config).await;
    let held = api.held("one").await;
    let asking = || {
        let mut request = api.reading(&format!("/v1/calls/{}/events", held.call));
        request.headers_mut().insert("accept", "text/event-stream".parse().unwrap());
        request
    };
    let mut open = Vec::new();
    for _ in 0..4 {
        open.push(super::follow(&api, asking()).await);
    }
    let one_more = Reply::of(api.open(asking()).await).await;
    assert_eq!(one_more.refusal(), "503 OVERLOADED");
    assert_eq!(one_more.header("retry-after"), Some("5"));
    // They leave their reader its requests.
    assert_eq!(api.get("/v1/tools").await.status, 200);
    open.pop();
    drop(super::follow(&api, asking()).await);
    let mut again = super::follow(&api, asking()).await;
    assert!(frame(&mut again).await.unwrap().starts_with("event: held"));
}

#[tokio::test]
async fn a_response_that_is_still_streamed_counts_as_a_request() {
    let config = ServerConfig { connections_max: Bounded(16), ..ServerConfig::default() };
    let api = TestApi::with(config).await;
    let held = api.held("one").await;
    let mut open = Vec::new();
    for _ in 0..4 {
        open.push(follow(&api, &held.call).await);
    }
    assert_eq!(api.get("/v1/tools").await.refusal(), "503 OVERLOADED");
    assert_eq!(api.get_as("ben", "/v1/inbox").await.status, 200);
    open.pop();
    let answer = api.open(api.reading("/v1/tools")).await;
    assert_eq!(answer.status(), 200);
    assert!(answer.body().size_hint().exact().is_some(), "its length is known");
}
