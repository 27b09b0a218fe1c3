//! The approval service over HTTP: what reaches the engine, what does not, and what happens as events.

use std::time::Duration;

use axum::body::Body;
use http_body_util::BodyExt as _;
use serde_json::json;
use tokio::time::{Instant, sleep};

use placet_approvals::views::{InboxOrder, InboxQuery, Whose};
use placet_types::{
    digest::Digest,
    error::{ErrorCode, Refusal},
    mode::ApprovalMode,
};

use crate::{
    api::Phase,
    config::ServerConfig,
    testing::{APPROVAL, Fake, Reply, TestApi, get},
};

const EVENTS: &str = "/v1/desk/events";

#[tokio::test]
async fn the_inbox_is_asked_for_exactly_what_the_query_says() {
    let api = TestApi::new();
    assert_eq!(api.get("/v1/inbox").await.json()["total"], 1);
    let query = "whose=mine&state=denied&mode=network&group=owners&search=ana%20b&order=risk&offset=7&after=apr_1&limit=9";
    assert_eq!(api.get(&format!("/v1/inbox?{query}")).await.status, 200);
    let asked = api.fake.desk.lock().asked.clone();
    let plain = InboxQuery { limit: 50, ..InboxQuery::default() };
    let full = InboxQuery {
        whose: Whose::Mine,
        state: Some("denied".to_owned()),
        mode: Some(ApprovalMode::Network),
        group: Some("owners".parse().unwrap()),
        search: Some("ana b".to_owned()),
        order: InboxOrder::Risk,
        offset: 7,
        after: Some("apr_1".parse().unwrap()),
        limit: 9,
    };
    assert_eq!(asked, [plain, full]);
}

#[tokio::test]
async fn a_query_of_the_approval_service_that_means_nothing_is_refused_and_asks_nobody() {
    let api = TestApi::new();
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
        "/v1/desk?kind=grants",
        "/v1/desk?state=pending",
        "/v1/desk?after=a%20b",
        "/v1/desk?limit=0",
        "/v1/desk?order=random",
        "/v1/desk/grant?x=1",
        "/v1/desk/events?from=1",
        "/v1/calls/call-1/timeline?limit=1",
    ] {
        let reply = api.get(path).await;
        assert_eq!(
            (reply.status.as_u16(), reply.code().as_str()),
            (400, "VALIDATION_ERROR"),
            "{path}"
        );
    }
    assert!(api.fake.desk.lock().asked.is_empty());
}

#[tokio::test]
async fn a_list_of_entries_is_of_one_kind_and_names_the_next_page() {
    let api = TestApi::new();
    let freezes = api.get("/v1/desk?kind=freeze&state=open").await.json();
    assert_eq!(freezes["entries"].as_array().unwrap().len(), 1);
    assert_eq!(freezes["entries"][0]["body"]["kind"], "freeze");
    assert!(freezes.get("next_after").is_none(), "{freezes}");
    let full = api.get("/v1/desk?limit=5").await.json();
    assert_eq!(full["next_after"], full["entries"][4]["desk_id"]);
    api.fake.desk.lock().over = 3;
    let newest = api.get("/v1/desk?kind=freeze&order=newest&limit=2").await.json();
    assert_eq!(newest["next_after"], "over-1");
    let rest = api.get("/v1/desk?kind=freeze&order=newest&limit=2&after=over-1").await.json();
    assert_eq!(rest["entries"][1]["desk_id"], "over-3");
}

#[tokio::test]
async fn a_timeline_that_may_lack_steps_is_marked() {
    let timeline = TestApi::new().get("/v1/calls/call-1/timeline").await.json();
    assert_eq!(
        (timeline["steps"].as_array().unwrap().len(), &timeline["incomplete"]),
        (1, &json!(true))
    );
}

#[tokio::test]
async fn an_edit_is_handed_on_whole_and_its_refusal_comes_back() {
    let api = TestApi::new();
    let path = format!("/v1/approvals/{APPROVAL}/edits");
    let edit = json!({ "args": { "path": "b", "deep": { "n": 1 } }, "reason": "less", "digest": Digest::of(b"shown") });
    assert_eq!(api.post(&path, edit.to_string()).await.json()["approval_id"], APPROVAL);
    let edits = api.fake.desk.lock().edits.clone();
    assert_eq!(serde_json::to_value(&edits[0]).unwrap(), edit);
    let stale = Refusal::new(ErrorCode::ValidationError, "that is not what is shown now");
    api.fake.desk.lock().refuses = Some(stale);
    assert_eq!(api.post(&path, edit.to_string()).await.code(), "VALIDATION_ERROR");
}

#[tokio::test]
async fn what_is_not_the_form_of_a_deed_is_refused_and_nothing_is_done() {
    let api = TestApi::new();
    let digest = Digest::of(b"shown");
    let edits = format!("/v1/approvals/{APPROVAL}/edits");
    for (path, body) in [
        (edits.as_str(), json!({ "args": [], "reason": "r", "digest": digest })),
        (&edits, json!({ "args": {}, "reason": "r" })),
        (&edits, json!({ "args": {}, "reason": "r", "digest": "sha256:00" })),
        (&edits, json!({ "args": {}, "reason": "r", "digest": digest, "force": true })),
        ("/v1/approvals/decisions", json!({ "decision": "maybe", "reason": "r", "approvals": [] })),
        (
            "/v1/approvals/decisions",
            json!({ "decision": "approve", "reason": "r", "approvals": [APPROVAL] }),
        ),
        ("/v1/desk", json!({ "arrange": { "kind": "party" }, "reason": "r", "lasts_ms": 1 })),
        ("/v1/desk", json!({ "arrange": { "kind": "freeze", "name": "n" }, "reason": "r" })),
        (
            "/v1/desk",
            json!({ "arrange": { "kind": "freeze", "name": "n" }, "reason": "r", "lasts_ms": -1 }),
        ),
        ("/v1/desk/grant/acts", json!({ "act": "decide", "decision": "approve", "reason": "r" })),
        ("/v1/desk/grant/acts", json!({ "act": "extend", "reason": "r" })),
    ] {
        let reply = api.post(path, body.to_string()).await;
        assert_eq!(
            (reply.status.as_u16(), reply.code().as_str()),
            (400, "VALIDATION_ERROR"),
            "{body}"
        );
    }
    let doubled = r#"{"act":"end","reason":"a","reason":"b"}"#;
    assert_eq!(api.post("/v1/desk/grant/acts", doubled).await.code(), "VALIDATION_ERROR");
    let desk = api.fake.desk.lock();
    assert!(desk.edits.is_empty() && desk.togethers.is_empty());
    assert!(desk.arranged.is_empty() && desk.acts.is_empty());
}

#[tokio::test]
async fn a_decision_on_several_says_of_each_what_came_of_it() {
    let api = TestApi::new();
    let digest = Digest::of(b"shown");
    let items = json!([{ "approval_id": APPROVAL, "digest": digest }, { "approval_id": "approval-2", "digest": digest }]);
    let request = json!({ "decision": "approve", "reason": "both", "approvals": items });
    let view = api.post("/v1/approvals/decisions", request.to_string()).await.json();
    assert_eq!(view["decided"][0]["approval_id"], APPROVAL);
    assert_eq!(
        (&view["refused"][0]["approval_id"], &view["refused"][0]["code"]),
        (&json!("approval-2"), &json!("APPROVAL_VOID"))
    );
}

/// `decisions` is a route, and no approval has that name.
#[tokio::test]
async fn a_name_that_is_a_route_is_not_taken_for_an_id() {
    let api = TestApi::new();
    assert_eq!(api.get("/v1/approvals/decisions").await.status, 405);
    assert_eq!(api.post(EVENTS, "{}").await.status, 405);
}

async fn frame(body: &mut Body) -> Option<String> {
    let frame = body.frame().await?.unwrap().into_data().unwrap();
    Some(String::from_utf8(frame.to_vec()).unwrap())
}

async fn follow(api: &TestApi) -> Body {
    let response = api.open(get(EVENTS)).await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    assert_eq!(response.headers()["cache-control"], "no-store");
    response.into_body()
}

#[tokio::test]
async fn what_happens_after_the_head_of_the_answer_is_an_event() {
    let api = TestApi::new();
    let mut body = follow(&api).await;
    api.fake.happening.happen();
    let event = frame(&mut body).await.unwrap();
    let data = event.strip_prefix("event: desk\ndata: ").unwrap().trim_end();
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    assert_eq!(data, json!({ "kind": "voted", "groups": ["owners"], "at": 1 }));
}

#[tokio::test]
async fn a_reader_that_fell_behind_is_told_and_goes_on() {
    let api = TestApi::new();
    let mut body = follow(&api).await;
    for _ in 0..5 {
        api.fake.happening.happen();
    }
    assert_eq!(frame(&mut body).await.unwrap(), "event: behind\ndata: {}\n\n");
    assert!(frame(&mut body).await.unwrap().starts_with("event: desk\n"));
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_the_approval_service_comments_while_it_is_quiet_and_ends_when_its_time_is_up()
{
    let config =
        ServerConfig { heartbeat_ms: 15_000, stream_ms_max: 40_000, ..ServerConfig::default() };
    let api = TestApi::with(Fake::new(), config);
    let before = Instant::now();
    let mut body = follow(&api).await;
    assert_eq!(frame(&mut body).await.unwrap(), ": alive\n\n");
    assert_eq!(frame(&mut body).await.unwrap(), ": alive\n\n");
    assert_eq!(frame(&mut body).await, None);
    assert!(
        before.elapsed() >= Duration::from_secs(40) && before.elapsed() < Duration::from_secs(45)
    );
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_the_approval_service_ends_with_the_token_that_it_was_opened_with() {
    let fake = Fake { expires_in: Duration::from_secs(20), ..Fake::new() };
    let api = TestApi::with(fake, ServerConfig::default());
    let before = Instant::now();
    let mut body = follow(&api).await;
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
    let api = TestApi::new();
    let before = Instant::now();
    let mut body = follow(&api).await;
    api.fake.revoked.send_replace(true);
    api.fake.happening.happen();
    let last = frame(&mut body).await.unwrap();
    assert!(last.starts_with("event: ended\n") && last.contains("CREDENTIAL_EXPIRED"), "{last}");
    assert_eq!(frame(&mut body).await, None);
    assert_eq!(before.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_the_approval_service_ends_when_the_listeners_close() {
    let api = TestApi::new();
    let mut body = follow(&api).await;
    let close = async {
        sleep(Duration::from_secs(1)).await;
        api.phase.send_replace(Phase::Draining);
    };
    let (end, ()) = tokio::join!(frame(&mut body), close);
    assert_eq!(end, None);
}

#[tokio::test]
async fn streams_of_the_approval_service_are_counted_apart_from_those_of_calls() {
    let api =
        TestApi::with(Fake::new(), ServerConfig { streams_max: 1, ..ServerConfig::default() });
    let first = follow(&api).await;
    let second = Reply::of(api.open(get(EVENTS)).await).await;
    assert_eq!((second.status.as_u16(), second.code().as_str()), (503, "OVERLOADED"));
    // Those who follow calls have places of their own, and take none from the one who decides.
    let of_calls = api.open(get("/v1/calls/call-1/events")).await;
    assert_eq!(of_calls.status().as_u16(), 200);
    drop(first);
    drop(follow(&api).await);
}
