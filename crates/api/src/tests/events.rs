//! Event streams: their form on the wire, their end, their number.

use std::time::Duration;

use axum::{body::Body, response::Response};
use http_body_util::BodyExt as _;
use serde_json::json;
use tokio::time::{Instant, sleep};

use placet_types::error::{ErrorCode, Refusal};

use crate::{
    api::Phase,
    config::ServerConfig,
    testing::{Fake, Reply, TestApi, finished, get, held, in_progress, refused},
};

const EVENTS: &str = "/v1/calls/call-1/events";

/// The next piece of a stream; none at its end.
async fn frame(body: &mut Body) -> Option<String> {
    let frame = body.frame().await?.unwrap().into_data().unwrap();
    Some(String::from_utf8(frame.to_vec()).unwrap())
}

async fn follow(api: &TestApi) -> Body {
    let response: Response = api.open(get(EVENTS)).await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    assert_eq!(response.headers()["cache-control"], "no-store");
    response.into_body()
}

#[tokio::test]
async fn a_finished_call_is_one_event_and_the_end() {
    let api = TestApi::new();
    let mut body = follow(&api).await;
    let event = frame(&mut body).await.unwrap();
    let data = event.strip_prefix("event: finished\ndata: ").unwrap().strip_suffix("\n\n").unwrap();
    let plain = api.get("/v1/calls/call-1").await;
    assert_eq!(data.as_bytes(), plain.body);
    assert_eq!(frame(&mut body).await, None);
}

#[tokio::test]
async fn a_call_is_followed_through_its_states_to_the_end() {
    let api = TestApi::new();
    api.fake.call.send_replace(held());
    let mut body = follow(&api).await;
    assert!(
        frame(&mut body)
            .await
            .unwrap()
            .starts_with("event: held\ndata: {\"envelope_version\":\"contextos.tool_result.v1\"")
    );
    api.fake.call.send_replace(in_progress());
    let running = frame(&mut body).await.unwrap();
    assert!(
        running.starts_with("event: in_progress\n")
            && running.contains("\"error_code\":\"IN_PROGRESS\"")
    );
    api.fake.call.send_replace(refused(
        Refusal::new(ErrorCode::ApprovalDenied, "people said no").with_detail("by bob"),
    ));
    let last = frame(&mut body).await.unwrap();
    assert!(
        last.starts_with("event: refused\n")
            && last.contains("APPROVAL_DENIED")
            && !last.contains("bob")
    );
    assert_eq!(frame(&mut body).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_comments_and_ends_when_its_time_is_up() {
    let config =
        ServerConfig { heartbeat_ms: 15_000, stream_ms_max: 40_000, ..ServerConfig::default() };
    let api = TestApi::with(Fake::new(), config);
    api.fake.call.send_replace(held());
    let before = Instant::now();
    let mut body = follow(&api).await;
    assert!(frame(&mut body).await.unwrap().starts_with("event: held"));
    assert_eq!(frame(&mut body).await.unwrap(), ": alive\n\n");
    assert_eq!(frame(&mut body).await.unwrap(), ": alive\n\n");
    assert_eq!(frame(&mut body).await, None);
    assert!(
        before.elapsed() >= Duration::from_secs(40) && before.elapsed() < Duration::from_secs(45)
    );
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_with_the_token_that_it_was_opened_with() {
    let fake = Fake { expires_in: Duration::from_secs(20), ..Fake::new() };
    let api = TestApi::with(fake, ServerConfig::default());
    api.fake.call.send_replace(held());
    let before = Instant::now();
    let mut body = follow(&api).await;
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
    let api = TestApi::new();
    api.fake.call.send_replace(held());
    let before = Instant::now();
    let mut body = follow(&api).await;
    assert!(frame(&mut body).await.unwrap().starts_with("event: held"));
    api.fake.revoked.send_replace(true);
    // What happens from then on is not theirs to see.
    api.fake.call.send_replace(finished());
    let last = frame(&mut body).await.unwrap();
    let data = last.strip_prefix("event: ended\ndata: ").unwrap();
    let problem: serde_json::Value = serde_json::from_str(data).unwrap();
    assert_eq!(
        (&problem["error_code"], &problem["status"]),
        (&json!("CREDENTIAL_EXPIRED"), &json!(401))
    );
    assert_eq!(problem["call_id"], "call-1");
    assert!(!last.contains("operator"), "{last}");
    assert_eq!(frame(&mut body).await, None);
    assert_eq!(before.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_when_the_listeners_close() {
    let api = TestApi::new();
    api.fake.call.send_replace(held());
    let mut body = follow(&api).await;
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
    let api =
        TestApi::with(Fake::new(), ServerConfig { streams_max: 2, ..ServerConfig::default() });
    api.fake.call.send_replace(held());
    let (first, _second) = (follow(&api).await, follow(&api).await);
    let third = Reply::of(api.open(get(EVENTS)).await).await;
    assert_eq!((third.status.as_u16(), third.code().as_str()), (503, "OVERLOADED"));
    assert_eq!(third.header("retry-after"), Some("5"));
    drop(first);
    drop(follow(&api).await);
    api.fake.call.send_replace(finished());
    let mut again = follow(&api).await;
    assert!(frame(&mut again).await.unwrap().starts_with("event: finished"));
}

#[tokio::test]
async fn a_stream_of_a_forgotten_call_ends_instead_of_repeating_itself() {
    let api = TestApi::with(Fake { forgetful: true, ..Fake::new() }, ServerConfig::default());
    api.fake.call.send_replace(held());
    let mut body = follow(&api).await;
    assert!(frame(&mut body).await.unwrap().starts_with("event: held"));
    assert_eq!(frame(&mut body).await, None);
}

#[tokio::test]
async fn an_answer_that_is_given_twice_is_sent_once() {
    let api = TestApi::new();
    api.fake.call.send_replace(held());
    let mut body = follow(&api).await;
    frame(&mut body).await.unwrap();
    api.fake.call.send_replace(held());
    let finish = async {
        tokio::task::yield_now().await;
        api.fake.call.send_replace(finished());
    };
    let (next, ()) = tokio::join!(frame(&mut body), finish);
    assert!(next.unwrap().starts_with("event: finished"));
}
