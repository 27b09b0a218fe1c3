//! Sending and asking about calls: how long a request waits, and that nothing ends because a caller goes away.

use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use placet_types::digest::Digest;

use crate::{
    api::Phase,
    config::ServerConfig,
    testing::{Fake, TestApi, finished, get, held, in_progress, post, submission},
};

fn waiting(wait_ms: u64) -> String {
    let mut call = submission();
    call["wait_ms"] = wait_ms.into();
    call.to_string()
}

#[tokio::test]
async fn a_call_that_is_executed_is_answered_with_its_result() {
    let api = TestApi::new();
    let reply = api.post("/v1/calls", submission().to_string()).await;
    assert_eq!((reply.status.as_u16(), &reply.json()["status"]), (200, &json!("succeeded")));
    assert_eq!(api.fake.submitted.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_held_call_is_answered_at_once_or_after_the_wait_that_was_asked_for() {
    let api = TestApi::new();
    api.fake.call.send_replace(held());
    for wait_ms in [0, 5_000] {
        let before = Instant::now();
        let reply = api.post("/v1/calls", waiting(wait_ms)).await;
        assert_eq!(
            (reply.status.as_u16(), reply.header("location")),
            (202, Some("/v1/calls/call-1"))
        );
        let waited = before.elapsed();
        assert!(
            waited >= Duration::from_millis(wait_ms)
                && waited < Duration::from_millis(wait_ms.max(10) * 2),
            "{waited:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_approved_during_the_wait_is_answered_with_its_result() {
    let api = TestApi::new();
    api.fake.call.send_replace(held());
    let approve = async {
        sleep(Duration::from_secs(3)).await;
        api.fake.call.send_replace(in_progress());
        sleep(Duration::from_secs(3)).await;
        api.fake.call.send_replace(finished());
    };
    let (reply, ()) = tokio::join!(api.post("/v1/calls", waiting(600_000)), approve);
    assert_eq!(reply.status, 200);
}

#[tokio::test]
async fn a_wait_beyond_ten_minutes_is_refused_before_the_call_is_taken() {
    let api = TestApi::new();
    let reply = api.post("/v1/calls", waiting(600_001)).await;
    assert_eq!(reply.code(), "VALIDATION_ERROR");
    assert_eq!(reply.json()["problems"][0]["pointer"], "/wait_ms");
    assert!(api.fake.submitted.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn asking_about_a_call_waits_no_longer_than_it_says_even_while_it_is_executed() {
    let api = TestApi::new();
    api.fake.call.send_replace(in_progress());
    let now = api.get("/v1/calls/call-1").await;
    assert_eq!((now.status.as_u16(), now.code().as_str()), (409, "IN_PROGRESS"));
    let before = Instant::now();
    let later = api.get("/v1/calls/call-1?wait_ms=2000").await;
    assert_eq!(later.code(), "IN_PROGRESS");
    assert!(
        before.elapsed() >= Duration::from_secs(2) && before.elapsed() < Duration::from_secs(4)
    );
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_call_with_a_token_that_is_revoked() {
    for standing in [held(), in_progress()] {
        let api = TestApi::new();
        api.fake.call.send_replace(standing.clone());
        let revoke = async {
            sleep(Duration::from_secs(1)).await;
            api.fake.revoked.send_replace(true);
        };
        let before = Instant::now();
        let (posted, asked, ()) = tokio::join!(
            api.post("/v1/calls", waiting(600_000)),
            api.get("/v1/calls/call-1?wait_ms=600000"),
            revoke
        );
        for reply in [posted, asked] {
            assert_eq!((reply.status.as_u16(), reply.code().as_str()), (401, "CREDENTIAL_EXPIRED"));
            assert_eq!(reply.json()["call_id"], "call-1");
            let execution = if standing == held() { "not_executed" } else { "unknown" };
            assert_eq!(reply.json()["execution"], execution);
        }
        assert!(before.elapsed() < Duration::from_secs(2));
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_for_people_ends_with_the_token_and_an_execution_is_still_answered() {
    let fake = Fake { expires_in: Duration::from_secs(20), ..Fake::new() };
    let api = TestApi::with(fake, ServerConfig::default());
    api.fake.call.send_replace(held());
    let before = Instant::now();
    let (posted, asked) = tokio::join!(
        api.post("/v1/calls", waiting(600_000)),
        api.get("/v1/calls/call-1?wait_ms=600000"),
    );
    for reply in [posted, asked] {
        assert_eq!((reply.status.as_u16(), reply.code().as_str()), (401, "CREDENTIAL_EXPIRED"));
    }
    let lasted = before.elapsed();
    assert!(lasted >= Duration::from_secs(20) && lasted < Duration::from_secs(22), "{lasted:?}");

    api.fake.call.send_replace(in_progress());
    let finish = async {
        sleep(Duration::from_secs(30)).await;
        api.fake.call.send_replace(finished());
    };
    let (executed, ()) = tokio::join!(api.post("/v1/calls", waiting(600_000)), finish);
    assert_eq!(executed.status, 200, "who asked for it had a token that counted");
}

#[tokio::test(start_paused = true)]
async fn a_token_in_its_last_moments_asks_and_only_waits_for_nothing() {
    // The API took it by the leeway; by the clock it has expired.
    let fake = Fake { expires_in: Duration::ZERO, ..Fake::new() };
    let api = TestApi::with(fake, ServerConfig::default());
    for (standing, status) in [(finished(), 200), (held(), 202)] {
        api.fake.call.send_replace(standing);
        assert_eq!(api.get("/v1/calls/call-1").await.status, status);
    }
    let waited = api.get("/v1/calls/call-1?wait_ms=600000").await;
    assert_eq!((waited.status.as_u16(), waited.code().as_str()), (401, "CREDENTIAL_EXPIRED"));
    api.fake.call.send_replace(finished());
    let ended = api.get("/v1/calls/call-1?wait_ms=600000").await;
    assert_eq!(ended.status, 200, "there is nothing to wait for");
}

#[tokio::test(start_paused = true)]
async fn closing_listeners_end_the_waiting_for_people_but_not_for_an_execution() {
    let api = TestApi::new();
    api.fake.call.send_replace(held());
    let close = async {
        sleep(Duration::from_secs(1)).await;
        api.phase.send_replace(Phase::Draining);
    };
    let before = Instant::now();
    let (posted, asked, ()) = tokio::join!(
        api.post("/v1/calls", waiting(600_000)),
        api.get("/v1/calls/call-1?wait_ms=600000"),
        close
    );
    assert_eq!((posted.status.as_u16(), asked.status.as_u16()), (202, 202));
    assert!(before.elapsed() < Duration::from_secs(2));

    api.fake.call.send_replace(in_progress());
    let finish = async {
        sleep(Duration::from_secs(1)).await;
        api.fake.call.send_replace(finished());
    };
    let (executed, ()) = tokio::join!(api.post("/v1/calls", waiting(0)), finish);
    assert_eq!(executed.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_decision_is_carried_through_when_its_caller_goes_away() {
    let fake = Fake { decision_takes: Duration::from_secs(5), ..Fake::new() };
    let api = TestApi::with(fake, ServerConfig::default());
    let decision =
        json!({ "decision": "deny", "reason": "no", "digest": Digest::of(b"shown") }).to_string();
    let left =
        timeout(Duration::from_secs(1), api.post("/v1/approvals/approval-1/decisions", decision))
            .await;
    assert!(left.is_err());
    assert!(api.fake.decided.lock().is_empty());
    sleep(Duration::from_secs(10)).await;
    assert_eq!(api.fake.decided.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_decision_that_takes_too_long_is_unknown_to_its_caller_and_still_carried_through() {
    let fake = Fake { decision_takes: Duration::from_secs(60), ..Fake::new() };
    let api = TestApi::with(fake, ServerConfig::default());
    let decision =
        json!({ "decision": "deny", "reason": "no", "digest": Digest::of(b"shown") }).to_string();
    let reply = api.post("/v1/approvals/approval-1/decisions", decision).await;
    assert_eq!((reply.status.as_u16(), reply.code().as_str()), (504, "DEADLINE_EXCEEDED"));
    assert_eq!(reply.json()["execution"], "unknown");
    sleep(Duration::from_secs(60)).await;
    assert_eq!(api.fake.decided.lock().len(), 1);
}

#[tokio::test]
async fn head_answers_like_get_without_a_body() {
    let api = TestApi::new();
    let mut request = get("/v1/tools");
    *request.method_mut() = http::Method::HEAD;
    let reply = api.send(request).await;
    assert_eq!((reply.status.as_u16(), reply.body.len()), (200, 0));
    let mut anonymous = post("/v1/tools", "");
    *anonymous.method_mut() = http::Method::HEAD;
    anonymous.headers_mut().remove("authorization");
    assert_eq!(api.send(anonymous).await.status, 401);
}
