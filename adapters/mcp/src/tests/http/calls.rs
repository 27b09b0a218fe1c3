//! The outcomes of calls over HTTP.

use std::time::Duration;

use futures::future::join_all;
use serde_json::json;
use tokio::time::Instant;

use placet_adapter::{
    adapter::{Conditions, Credential},
    outcome::{AdapterError, Outcome},
};

use super::{
    peer::{Manner, Peer, Seen},
    sessions::over,
};
use crate::tests::support::{
    TOKEN, TRACEPARENT, call, connect, dispatch, done, in_seconds, make_write, owner, send,
    send_for, within,
};

#[tokio::test]
async fn a_call_carries_its_trace_its_token_and_its_credential() {
    let peer = Peer::start(Manner::default()).await;
    let contract = over(&peer, |_| {});
    let adapter = connect(&contract).await.unwrap();
    let credential = Credential {
        header: "authorization".to_owned(),
        value: "Bearer c4nary".into(),
        origin: None,
        ends: None,
    };
    let conditions = Conditions { credential: Some(credential), ..within(10_000) };
    let answer = done(
        send(adapter.as_ref(), dispatch(&contract, "echo", json!({"path": "p"})), conditions).await,
    );
    assert_eq!(answer.output["structured"]["args"], json!({"path": "p"}));
    assert_eq!(answer.output["structured"]["meta"]["dev.placet/idempotency-key"], json!(TOKEN));
    assert_eq!(answer.output["structured"]["meta"]["traceparent"], json!(TRACEPARENT));
    assert_eq!(answer.mutations[0].target, "peer/echo path=p");
    let calls = peer.calls();
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].header("authorization"), Some("Bearer c4nary"));
    assert_eq!(calls[0].header("traceparent"), Some(TRACEPARENT));
    assert_eq!(calls[0].header("tracestate"), Some("a=b"));
    assert_eq!(calls[0].header("mcp-protocol-version"), Some("2025-11-25"));
    assert_eq!(calls[0].header("mcp-session-id"), Some("session-2"));
    adapter.close().await;
}

#[tokio::test]
async fn a_resource_is_read_as_a_tool_is_called_and_no_other_answer_is_taken() {
    let peer = Peer::start(Manner::default()).await;
    let contract = over(&peer, |file| {
        file["capabilities"]["read_resource"] = json!({
            "tool": "resources/read", "mode": "read_only", "effect": "none", "input_schema": {"type": "object"},
        });
    });
    let adapter = connect(&contract).await.unwrap();
    let read = async |uri: &str| {
        let credential = Credential {
            header: "authorization".to_owned(),
            value: "Bearer c4nary".into(),
            origin: None,
            ends: None,
        };
        let conditions = Conditions { credential: Some(credential), ..within(10_000) };
        let read = dispatch(&contract, "read_resource", json!({ "uri": uri }));
        send_for(adapter.as_ref(), read, conditions, owner("alice")).await
    };
    let answer = done(read("peer://a").await);
    let contents = json!([{ "uri": "peer://a", "mimeType": "text/plain", "text": "hello" }]);
    assert_eq!(answer.output, json!({ "contents": contents }));
    assert_eq!(answer.citations[0].uri, "peer://a");
    let seen = peer.seen();
    let sent = seen.iter().find(|seen| seen.method() == "resources/read").unwrap();
    assert_eq!(sent.header("authorization"), Some("Bearer c4nary"));
    assert_eq!(sent.header("traceparent"), Some(TRACEPARENT));
    let garbled = read("peer://garbled").await;
    assert!(matches!(garbled, Outcome::Unknown(_)), "{garbled:?}");
    let large = done(read("peer://large").await);
    assert_eq!(large.output["withheld"], true, "{large:?}");
    adapter.close().await;
    let canaries: Vec<_> =
        peer.seen().into_iter().filter(|seen| seen.headers.contains_key("authorization")).collect();
    let session = canaries.iter().find_map(|seen| seen.header("mcp-session-id"));
    for seen in &canaries {
        let is_in_it = seen.method() == "initialize" || seen.header("mcp-session-id") == session;
        assert!(is_in_it, "{seen:?}");
    }
}

#[tokio::test]
async fn the_credential_of_a_call_is_on_no_request_of_another_owner() {
    let peer = Peer::start(Manner::default()).await;
    let contract = over(&peer, |_| {});
    let adapter = connect(&contract).await.unwrap();
    let credential = Credential {
        header: "x-api-key".to_owned(),
        value: "c4nary".into(),
        origin: None,
        ends: None,
    };
    let secret = send_for(
        adapter.as_ref(),
        dispatch(&contract, "slow", json!({"ms": 300})),
        Conditions { credential: Some(credential), ..within(10_000) },
        owner("alice"),
    );
    let plain = join_all((0..8).map(|_| call(adapter.as_ref(), &contract, "echo", json!({}))));
    let (secret, plain, tools) = tokio::join!(secret, plain, adapter.discover());
    done(secret);
    plain.into_iter().for_each(|outcome| {
        done(outcome);
    });
    tools.unwrap();
    adapter.close().await;
    let with_key: Vec<_> =
        peer.seen().into_iter().filter(|seen| seen.headers.contains_key("x-api-key")).collect();
    // Its session, from its beginning to its end, and nothing else.
    let calls: Vec<_> = with_key.iter().filter(|seen| seen.method() == "tools/call").collect();
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].message["params"]["name"], json!("slow"));
    let session = calls[0].header("mcp-session-id");
    assert!(session.is_some());
    for seen in &with_key {
        let is_in_it = seen.method() == "initialize" || seen.header("mcp-session-id") == session;
        assert!(is_in_it, "{seen:?}");
        assert_eq!(seen.header("traceparent").is_some(), seen.method() == "tools/call");
    }
    let in_it = |seen: &&Seen| seen.header("mcp-session-id") == session;
    assert!(peer.seen().iter().filter(in_it).all(|seen| seen.header("x-api-key").is_some()));
    let canaries =
        peer.seen().iter().filter(|seen| format!("{:?}", seen.headers).contains("c4nary")).count();
    assert_eq!(canaries, with_key.len());
}

#[tokio::test]
async fn an_answer_as_a_stream_of_events_is_read() {
    let peer = Peer::start(Manner::default()).await;
    let contract = over(&peer, |_| {});
    let adapter = connect(&contract).await.unwrap();
    let before = adapter.generation();
    let answer = done(call(adapter.as_ref(), &contract, "stream", json!({})).await);
    assert_eq!(answer.output["content"][0]["text"], json!("done"));
    let deadline = in_seconds(5);
    while adapter.generation() == before {
        assert!(Instant::now() < deadline, "the change within the stream was not noticed");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    adapter.close().await;
}

#[tokio::test]
async fn a_stream_that_ends_before_its_answer_is_taken_up_again() {
    let peer = Peer::start(Manner::default()).await;
    let contract = over(&peer, |_| {});
    let adapter = connect(&contract).await.unwrap();
    let answer = done(call(adapter.as_ref(), &contract, "broken", json!({})).await);
    assert_eq!(answer.output["content"][0]["text"], json!("done"));
    let calls = peer.calls();
    assert_eq!(calls.len(), 1, "a call was posted twice");
    let again: Vec<_> =
        peer.seen().into_iter().filter(|seen| seen.header("last-event-id").is_some()).collect();
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].header("last-event-id"), Some("0/7"));
    assert_eq!(again[0].header("mcp-session-id"), calls[0].header("mcp-session-id"));
    adapter.close().await;
}

#[tokio::test]
async fn a_server_that_asks_for_something_before_it_answers_is_refused_and_answers() {
    let peer = Peer::start(Manner::default()).await;
    let contract = over(&peer, |_| {});
    let adapter = connect(&contract).await.unwrap();
    done(call(adapter.as_ref(), &contract, "asks", json!({})).await);
    let refused = peer.seen().into_iter().find(|seen| seen.message["id"] == json!("q")).unwrap();
    assert_eq!(refused.message["error"]["code"], json!(-32_601));
    assert_eq!(refused.header("mcp-session-id"), peer.calls()[0].header("mcp-session-id"));
    adapter.close().await;
}

#[tokio::test]
async fn statuses_say_whether_something_may_have_happened() {
    let peer = Peer::start(Manner { stateless: true, ..Manner::default() }).await;
    let contract = over(&peer, |file| {
        // A read, and a write whose contract knows better.
        file["capabilities"]["status_read"] =
            json!({"input_schema": {"type": "object"}, "mode": "read_only", "effect": "none"});
        make_write(file, "status_known", json!({"class": "opaque"}));
        file["capabilities"]["status_known"]["not_executed"] = json!({"http": [409, 503]});
    });
    let adapter = connect(&contract).await.unwrap();
    let plain = json!({});
    let challenge = json!({"challenge": true});
    let later = json!({"retry_after": true});
    let answered = json!({"retry_after": true, "json_rpc": true});
    let mut sent = 0;
    for (status, with, read, write, known) in [
        (400, &plain, true, false, false),
        (401, &plain, true, true, true),
        (402, &plain, false, false, false),
        (403, &plain, true, false, false),
        (403, &challenge, true, true, true),
        (404, &plain, true, false, false),
        (405, &plain, true, true, true),
        (406, &plain, true, false, false),
        (408, &plain, false, false, false),
        (409, &plain, false, false, true),
        (413, &plain, true, true, true),
        (415, &plain, true, false, false),
        (422, &plain, false, false, false),
        (429, &plain, true, false, false),
        (429, &later, true, true, true),
        (429, &answered, true, false, false),
        (500, &plain, false, false, false),
        (502, &plain, false, false, false),
        (503, &later, false, false, true),
        (504, &plain, false, false, false),
        (302, &plain, false, false, false),
        (307, &plain, false, false, false),
    ] {
        for (tool, not_executed) in
            [("status_read", read), ("status", write), ("status_known", known)]
        {
            let mut args = with.clone();
            args["code"] = json!(status);
            let outcome = call(adapter.as_ref(), &contract, tool, args).await;
            sent += 1;
            let what = format!("{tool} {status} {with}: {outcome:?}");
            assert!(!what.contains("c4nary"), "{what}");
            let Some(error) = outcome.not_executed() else {
                assert!(matches!(outcome, Outcome::Unknown(_)) && !not_executed, "{what}");
                continue;
            };
            assert!(not_executed, "{what}");
            assert_eq!(
                matches!(error, AdapterError::CredentialRefused(_)),
                status == 401,
                "{what}"
            );
            assert_eq!(matches!(error, AdapterError::Forbidden(_)), status == 403, "{what}");
            let is_away = matches!(error, AdapterError::Unavailable(_));
            assert_eq!(is_away, [429, 503].contains(&status), "{what}");
        }
    }
    assert_eq!(peer.calls().len(), sent, "a call was posted twice");
    assert!(adapter.is_alive());
    adapter.close().await;
}

#[tokio::test]
async fn an_answer_that_is_none_leaves_the_call_unknown_at_once() {
    let peer = Peer::start(Manner::default()).await;
    let contract = over(&peer, |_| {});
    let adapter = connect(&contract).await.unwrap();
    for tool in ["garbage", "html", "stranger", "cut", "truncated", "huge"] {
        let begun = Instant::now();
        let outcome = call(adapter.as_ref(), &contract, tool, json!({})).await;
        assert!(matches!(outcome, Outcome::Unknown(_)), "{tool}: {outcome:?}");
        assert!(
            begun.elapsed() < Duration::from_secs(8),
            "{tool} was found out only by its deadline"
        );
    }
    assert_eq!(peer.calls().len(), 6, "a call was posted twice");
    done(call(adapter.as_ref(), &contract, "echo", json!({})).await);
    adapter.close().await;
}

#[tokio::test]
async fn a_late_answer_is_unknown_and_the_server_is_told() {
    let peer = Peer::start(Manner::default()).await;
    let contract = over(&peer, |_| {});
    let adapter = connect(&contract).await.unwrap();
    for tool in ["slow", "accepted"] {
        let begun = Instant::now();
        let outcome =
            send(adapter.as_ref(), dispatch(&contract, tool, json!({"ms": 5_000})), within(200))
                .await;
        assert!(matches!(outcome, Outcome::Unknown(_)), "{tool}: {outcome:?}");
        assert!(begun.elapsed() < Duration::from_secs(3));
    }
    let deadline = in_seconds(5);
    while peer.seen().iter().filter(|seen| seen.method() == "notifications/cancelled").count() < 2 {
        assert!(Instant::now() < deadline, "the server was not told");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    adapter.close().await;
}

#[tokio::test]
async fn a_server_that_is_gone_was_not_reached() {
    let peer = Peer::start(Manner { stateless: true, ..Manner::default() }).await;
    let contract = over(&peer, |_| {});
    let adapter = connect(&contract).await.unwrap();
    peer.stop();
    let deadline = in_seconds(10);
    // A connection that is still open may break within the first call.
    loop {
        let outcome = call(adapter.as_ref(), &contract, "echo", json!({})).await;
        if matches!(outcome, Outcome::NotExecuted(AdapterError::Unavailable(_))) {
            break;
        }
        assert!(Instant::now() < deadline, "{outcome:?}");
    }
    let refused = connect(&contract).await.unwrap_err();
    assert!(matches!(refused, AdapterError::Unavailable(_)), "{refused}");
}

#[tokio::test]
async fn a_header_that_cannot_be_sent_stops_the_call_before_it_is_sent() {
    let peer = Peer::start(Manner::default()).await;
    let contract = over(&peer, |_| {});
    let adapter = connect(&contract).await.unwrap();
    let credential = Credential {
        header: "host".to_owned(),
        value: "evil.example".into(),
        origin: None,
        ends: None,
    };
    let conditions = Conditions { credential: Some(credential), ..within(10_000) };
    let outcome = send(adapter.as_ref(), dispatch(&contract, "echo", json!({})), conditions).await;
    assert!(matches!(outcome, Outcome::NotExecuted(AdapterError::Misconfigured(_))));
    assert!(peer.calls().is_empty());
    adapter.close().await;
}

#[tokio::test]
async fn many_calls_run_at_the_same_time() {
    let peer = Peer::start(Manner::default()).await;
    let contract = over(&peer, |_| {});
    let adapter = connect(&contract).await.unwrap();
    let begun = Instant::now();
    let calls = (0..16).map(|_| call(adapter.as_ref(), &contract, "slow", json!({"ms": 500})));
    join_all(calls).await.into_iter().for_each(|outcome| {
        done(outcome);
    });
    assert!(begun.elapsed() < Duration::from_secs(6));
    adapter.close().await;
}
