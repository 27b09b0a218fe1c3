//! Problem documents: what is in them, what is not, and the headers beside them.

use axum::response::IntoResponse as _;
use placet_types::error::{ErrorCode, Problem, Refusal};

use super::Failure;
use crate::testing::{Reply, refused};
use placet_engine::answer::Answer;

async fn reply(failure: Failure) -> Reply {
    Reply::of(failure.into_response()).await
}

#[tokio::test]
async fn every_code_has_its_own_status_page_and_hint() {
    for code in ErrorCode::ALL {
        let reply = reply(Failure::new(Refusal::new(code, "in words"))).await;
        assert_eq!(reply.status.as_u16(), code.http_status(), "{code}");
        assert_eq!(reply.code(), code.as_str());
        let document = reply.json();
        assert_eq!(document["type"], format!("/errors/{code}"));
        assert_eq!(document["retryable"], code.retryable());
        assert_eq!(document["remediation"], code.remediation());
        assert_eq!(reply.header("www-authenticate").is_some(), code.http_status() == 401, "{code}");
    }
}

#[tokio::test]
async fn the_words_for_the_log_never_reach_the_caller() {
    let refusal = Refusal::new(ErrorCode::PolicyDenied, "not allowed")
        .with_detail("forbidden by secret-policy");
    let Answer::Refused(call) = refused(refusal.clone()) else { panic!("not refused") };
    for failure in [Failure::new(refusal.clone()), Failure::from(refusal), Failure::of_call(&call)]
    {
        let reply = reply(failure).await;
        assert!(!reply.text().contains("secret-policy"), "{}", reply.text());
        assert!(reply.text().contains("not allowed"));
    }
}

#[tokio::test]
async fn what_may_not_be_seen_reads_like_what_does_not_exist() {
    let of_others = Refusal::new(ErrorCode::NotFound, "call `7` is another tenant's")
        .with_detail("it is tenant-b's");
    let (theirs, none) = (reply(Failure::from(of_others)).await, reply(Failure::unknown()).await);
    assert_eq!(theirs.body, none.body);
    assert_eq!(theirs.headers, none.headers);
    assert_eq!(theirs.status, none.status);
}

#[tokio::test]
async fn a_known_moment_to_retry_is_a_header_in_whole_seconds() {
    for (ms, seconds) in [(1, "1"), (1_000, "1"), (1_001, "2"), (90_000, "90")] {
        let refusal =
            Refusal::new(ErrorCode::RateLimited, "too many calls").with_retry_after_ms(ms);
        let reply = reply(Failure::new(refusal)).await;
        assert_eq!(reply.header("retry-after"), Some(seconds));
        assert_eq!(reply.json()["retry_after_ms"], ms);
    }
    let plain = reply(Failure::new(Refusal::new(ErrorCode::PolicyDenied, "no"))).await;
    assert_eq!(plain.header("retry-after"), None);
}

#[tokio::test]
async fn a_refused_call_names_the_call_the_decision_and_the_places_to_repair() {
    let places =
        vec![Problem { pointer: "/args/path".to_owned(), problem: "is missing".to_owned() }];
    let refusal =
        Refusal::new(ErrorCode::ValidationError, "the arguments do not fit").with_problems(places);
    let Answer::Refused(call) = refused(refusal) else { panic!("not refused") };
    let document = reply(Failure::of_call(&call)).await.json();
    assert_eq!(document["call_id"], "call-1");
    assert_eq!(document["policy_decision_id"], "decision-1");
    assert_eq!(document["trace_id"], "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(document["problems"][0]["pointer"], "/args/path");
    assert_eq!(document["execution"], "not_executed");
}

#[tokio::test]
async fn a_missing_scope_is_named_with_all_that_are_needed() {
    let refusal = Refusal::new(ErrorCode::CredentialRefused, "the token lacks a scope")
        .with_scopes_needed(vec!["mail.read".to_owned(), "mail.send".to_owned()]);
    let Answer::Refused(call) = refused(refusal.clone()) else { panic!("not refused") };
    for failure in [Failure::new(refusal.clone()), Failure::from(refusal), Failure::of_call(&call)]
    {
        let reply = reply(failure).await;
        let said = "Bearer error=\"insufficient_scope\", scope=\"mail.read mail.send\"";
        assert_eq!((reply.status.as_u16(), reply.header("www-authenticate")), (403, Some(said)));
    }
}
