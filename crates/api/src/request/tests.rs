//! Header rules: credentials, key and trace.

use axum::extract::FromRequestParts as _;
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use placet_types::error::ErrorCode;

use super::{CallHeaders, Credentials, Failure};
use crate::testing::submission;

fn headers(list: &[(&'static str, &[u8])]) -> HeaderMap {
    let pair = |(name, value): &(&'static str, &[u8])| {
        (HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap())
    };
    let mut headers = HeaderMap::new();
    for (name, value) in list.iter().map(pair) {
        headers.append(name, value);
    }
    headers
}

async fn call_headers(list: &[(&'static str, &[u8])]) -> Result<CallHeaders, Failure> {
    let (mut parts, ()) = Request::post("/v1/calls").body(()).unwrap().into_parts();
    parts.headers = headers(list);
    CallHeaders::from_request_parts(&mut parts, &()).await
}

#[test]
fn credentials_are_taken_as_they_are_and_never_twice() {
    let both = headers(&[("authorization", b"Bearer a"), ("placet-delegation", b"b")]);
    let credentials = Credentials::of(&both).unwrap();
    assert_eq!((credentials.authorization, credentials.delegation), (Some("Bearer a"), Some("b")));

    let none = HeaderMap::new();
    assert!(Credentials::of(&none).unwrap().authorization.is_none());

    for list in [
        &[("authorization", &b"Bearer a"[..]), ("authorization", b"Bearer a")][..],
        &[("authorization", b"Bearer a"), ("placet-delegation", b"b"), ("placet-delegation", b"c")],
        &[("authorization", b"Bearer \xff")],
    ] {
        let refused = Credentials::of(&headers(list)).map(|_| ()).unwrap_err();
        assert_eq!(refused.code, ErrorCode::Unauthenticated);
    }
}

#[tokio::test]
async fn header_and_body_must_not_name_two_keys() {
    let with_key = |key: &str| {
        let mut call = submission();
        call["idempotency_key"] = key.into();
        serde_json::from_value(call).unwrap()
    };
    let without = || serde_json::from_value(submission()).unwrap();
    let key = |list: &'static [(&'static str, &[u8])]| call_headers(list);

    let (completed, _) =
        key(&[("idempotency-key", b"k1")]).await.unwrap().complete(without()).unwrap();
    assert_eq!(completed.idempotency_key.unwrap().as_str(), "k1");
    let (completed, _) =
        key(&[("idempotency-key", b"k1")]).await.unwrap().complete(with_key("k1")).unwrap();
    assert_eq!(completed.idempotency_key.unwrap().as_str(), "k1");
    let (completed, _) = key(&[]).await.unwrap().complete(with_key("k2")).unwrap();
    assert_eq!(completed.idempotency_key.unwrap().as_str(), "k2");
    let (completed, _) = key(&[]).await.unwrap().complete(without()).unwrap();
    assert!(completed.idempotency_key.is_none());

    let refused =
        key(&[("idempotency-key", b"k1")]).await.unwrap().complete(with_key("k2")).unwrap_err();
    assert_eq!(refused.document().error_code, ErrorCode::ValidationError);
    assert_eq!(refused.document().problems[0].pointer, "/idempotency_key");
}

#[tokio::test]
async fn a_key_that_is_no_key_or_there_twice_is_refused() {
    let long = "k".repeat(257);
    for list in [
        &[("idempotency-key", &b""[..])][..],
        &[("idempotency-key", b"two words")],
        &[("idempotency-key", b"\xc3\xa9")],
        &[("idempotency-key", long.as_bytes())],
        &[("idempotency-key", b"k1"), ("idempotency-key", b"k1")],
    ] {
        let refused = call_headers(list).await.unwrap_err();
        assert_eq!(refused.document().error_code, ErrorCode::ValidationError);
    }
}

#[tokio::test]
async fn the_trace_goes_along_unless_its_headers_break_their_own_rules() {
    const PARENT: &[u8] = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let inbound = |list: Vec<(&'static str, &'static [u8])>| async move {
        let inbound = call_headers(&list).await.unwrap().inbound;
        (inbound.traceparent.is_some(), inbound.tracestate)
    };
    let joined =
        inbound(vec![("traceparent", PARENT), ("tracestate", b"a=1"), ("tracestate", b"b=2")])
            .await;
    assert_eq!(joined, (true, Some("a=1,b=2".to_owned())));
    assert_eq!(inbound(vec![("tracestate", b"a=1")]).await, (false, None));
    assert_eq!(
        inbound(vec![("traceparent", PARENT), ("traceparent", PARENT)]).await,
        (false, None)
    );
    assert_eq!(inbound(vec![("traceparent", &[b'0'; 129])]).await, (false, None));
    assert_eq!(
        inbound(vec![("traceparent", PARENT), ("tracestate", &[b'a'; 513])]).await,
        (true, None)
    );
    assert_eq!(inbound(Vec::new()).await, (false, None));
}
