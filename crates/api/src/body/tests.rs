//! Bodies that are refused, each with the reason a client can act on.

use std::{convert::Infallible, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use futures::stream;
use serde_json::json;

use placet_types::bounded::Bounded;

use crate::{
    config::ServerConfig,
    testing::{TestApi, submission},
};

#[tokio::test]
async fn a_body_that_is_not_strict_json_of_the_right_form_names_the_place() {
    let api = TestApi::new().await;
    let cases: [(&[u8], &str); 14] = [
        (b"", ""),
        (b"{\"tool\":", "/tool"),
        (b"\xef\xbb\xbf{}", ""),
        (b"{} {}", ""),
        (b"[{\"tool\":\"files__read\",\"run\":{\"run_id\":\"r\"}}]", ""),
        (b"[\"files__read\",{}]", ""),
        (b"null", ""),
        (b"{\"tool\":\"a__b\",\"tool\":\"c__d\",\"run\":{\"run_id\":\"r\"}}", "/tool"),
        (
            b"{\"tool\":\"a__b\",\"args\":{\"n\":9007199254740993},\"run\":{\"run_id\":\"r\"}}",
            "/args/n",
        ),
        (b"{\"tool\":7,\"run\":{\"run_id\":\"r\"}}", "/tool"),
        (b"{\"tool\":\"a__b\",\"run\":{\"run_id\":\"\"}}", "/run/run_id"),
        (b"{\"tool\":\"a__b\",\"run\":{\"run_id\":\"r\"},\"user\":\"root\"}", "/user"),
        (b"{\"tool\":\"a__b\"}", ""),
        (b"{\"tool\":\"a__b\",\"args\":{\"s\":\"\\ud800\"},\"run\":{\"run_id\":\"r\"}}", "/args/s"),
    ];
    for (body, pointer) in cases {
        let reply = api.post("/v1/calls", body).await;
        let text = String::from_utf8_lossy(body);
        assert_eq!(reply.refusal(), "400 VALIDATION_ERROR", "{text}");
        assert_eq!(reply.json()["problems"][0]["pointer"], pointer, "{text}: {}", reply.text());
    }
    assert!(api.world.witness.executed.lock().is_empty());
    // A body that a lax parser would misread is a security event of its caller.
    api.world.engine.shutdown().await;
    let noted: Vec<String> =
        api.world.store.audit().into_iter().filter_map(|event| event.note).collect();
    let told = ": 7 requests that two readers could take differently";
    assert!(noted.iter().any(|note| note.ends_with(told)), "{noted:?}");
}

#[tokio::test]
async fn a_document_nested_too_deeply_is_refused() {
    let api = TestApi::new().await;
    let nested = format!("{{\"args\":{}{}}}", "[".repeat(200_000), "]".repeat(200_000));
    let reply = api.post("/v1/calls", nested).await;
    assert_eq!(reply.refusal(), "400 VALIDATION_ERROR");
    assert!(reply.text().contains("nested too deeply"), "{}", reply.text());
}

#[tokio::test]
async fn a_body_over_the_limit_is_413_whether_its_length_was_announced_or_not() {
    let api = TestApi::new().await;
    let ten_mib = || vec![b' '; 10 * 1024 * 1024];
    let announced = api.post("/v1/calls", ten_mib()).await;
    assert_eq!((announced.status.as_u16(), announced.code().as_str()), (413, "VALIDATION_ERROR"));

    let chunks = ten_mib()
        .chunks(16 * 1024)
        .map(|chunk| Ok::<_, Infallible>(Bytes::copy_from_slice(chunk)))
        .collect::<Vec<_>>();
    let streamed = api.post("/v1/calls", Body::from_stream(stream::iter(chunks))).await;
    assert_eq!((streamed.status.as_u16(), streamed.code().as_str()), (413, "VALIDATION_ERROR"));
    assert_eq!(streamed.json()["execution"], "not_executed");
}

#[tokio::test]
async fn a_body_of_exactly_the_limit_is_read() {
    let config = ServerConfig { body_bytes_max: Bounded(512), ..ServerConfig::default() };
    let api = TestApi::with(config).await;
    let padded = |bytes: usize| format!("{:bytes$}", submission().to_string());
    assert_eq!(api.post("/v1/calls", padded(512)).await.status, 200);
    assert_eq!(api.post("/v1/calls", padded(513)).await.status, 413);
}

#[tokio::test]
async fn an_endless_body_is_given_up() {
    let api = TestApi::new().await;
    let endless = stream::repeat_with(|| Ok::<_, Infallible>(Bytes::from_static(&[b' '; 65_536])));
    assert_eq!(api.post("/v1/calls", Body::from_stream(endless)).await.status, 413);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_arrive_is_given_up() {
    let api = TestApi::new().await;
    let stuck = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
    let reply =
        tokio::time::timeout(Duration::from_secs(60), api.post("/v1/calls", stuck)).await.unwrap();
    assert_eq!(reply.refusal(), "408 DEADLINE_EXCEEDED");
}

#[tokio::test]
async fn only_plain_json_is_taken() {
    let api = TestApi::new().await;
    let body = || Body::from(submission().to_string());
    let with = |name: &'static str, value: &'static str| {
        let mut request = api.posting("/v1/calls", body());
        request.headers_mut().insert(name, value.parse().unwrap());
        request
    };
    for taken in [
        "application/json",
        "application/json; charset=utf-8",
        "Application/JSON;charset=\"UTF-8\"",
    ] {
        assert_eq!(api.send(with("content-type", taken)).await.status, 200, "{taken}");
    }
    for refused in [
        "text/plain",
        "",
        "application/x-www-form-urlencoded",
        "application/json; charset=utf-7",
        "application/jsonp",
    ] {
        let reply = api.send(with("content-type", refused)).await;
        assert_eq!(reply.refusal(), "415 VALIDATION_ERROR", "{refused}");
    }
    assert_eq!(api.send(with("content-encoding", "gzip")).await.status, 415);

    let mut twice = api.posting("/v1/calls", body());
    twice.headers_mut().append("content-type", "text/plain".parse().unwrap());
    assert_eq!(api.send(twice).await.status, 415);
    let mut untyped = api.posting("/v1/calls", body());
    untyped.headers_mut().remove("content-type");
    assert_eq!(api.send(untyped).await.status, 415);
}

#[tokio::test]
async fn an_unknown_member_of_a_decision_is_refused() {
    let api = TestApi::new().await;
    let held = api.held("one").await;
    let decision = json!({
        "decision": "approve", "reason": "ok", "approver": "somebody-else", "digest": held.digest,
    });
    let path = format!("/v1/approvals/{}/decisions", held.approval);
    let reply = api.post_as("ben", &path, decision).await;
    assert_eq!(reply.code(), "VALIDATION_ERROR");
    let state = api.get_as("ben", &format!("/v1/approvals/{}", held.approval)).await.json();
    assert_eq!(state["approval"]["state"], "pending");
}
