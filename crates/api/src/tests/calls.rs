//! Sending and asking about calls: how long a request waits, and that nothing ends because a caller goes away.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::response::IntoResponse as _;
use http::Method;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use crate::{
    problem::Failure,
    state::Phase,
    testing::{Reply, TestApi, call, submission},
};

fn waiting(tool: &str, step: &str, wait_ms: u64) -> String {
    let mut call = call(tool, step);
    call["wait_ms"] = wait_ms.into();
    call.to_string()
}

fn asked(call: &str) -> String {
    format!("/v1/calls/{call}?wait_ms=600000")
}

#[tokio::test]
async fn a_call_that_is_executed_is_answered_with_its_result() {
    let api = TestApi::new().await;
    let reply = api.post("/v1/calls", submission().to_string()).await;
    assert_eq!((reply.status.as_u16(), &reply.json()["status"]), (200, &json!("succeeded")));
    assert_eq!(*api.world.witness.executed.lock(), ["read"]);
}

#[tokio::test(start_paused = true)]
async fn a_held_call_is_answered_at_once_or_after_the_wait_that_was_asked_for() {
    let api = TestApi::new().await;
    for (step, wait_ms) in [("one", 0), ("two", 5_000)] {
        let before = Instant::now();
        let reply = api.post("/v1/calls", waiting("delete", step, wait_ms)).await;
        let place = format!("/v1/calls/{}", reply.json()["tool_call_id"].as_str().unwrap());
        assert_eq!((reply.status.as_u16(), reply.header("location")), (202, Some(place.as_str())));
        let waited = before.elapsed();
        assert!(
            waited >= Duration::from_millis(wait_ms)
                && waited < Duration::from_millis(wait_ms + 1_000),
            "{waited:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_approved_during_the_wait_is_answered_with_its_result() {
    let api = TestApi::new().await;
    let held = api.held("one").await;
    let approve = async {
        sleep(Duration::from_secs(3)).await;
        assert_eq!(api.approve(&held).await.status, 200);
    };
    // The same call again: it waits with the first.
    let request = waiting("delete", "one", 600_000);
    let (reply, ()) = tokio::join!(api.post("/v1/calls", request), approve);
    assert_eq!(reply.status, 200, "{}", reply.text());
}

#[tokio::test]
async fn a_wait_beyond_ten_minutes_is_refused_before_the_call_is_taken() {
    let api = TestApi::new().await;
    let reply = api.post("/v1/calls", waiting("read", "one", 600_001)).await;
    assert_eq!(reply.code(), "VALIDATION_ERROR");
    assert_eq!(reply.json()["problems"][0]["pointer"], "/wait_ms");
    assert!(api.world.witness.executed.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn asking_about_a_call_waits_no_longer_than_it_says_even_while_it_is_executed() {
    let api = TestApi::new().await;
    let running = api.running("one").await;
    let now = api.get(&format!("/v1/calls/{running}")).await;
    assert_eq!(now.refusal(), "409 IN_PROGRESS");
    let before = Instant::now();
    let later = api.get(&format!("/v1/calls/{running}?wait_ms=2000")).await;
    assert_eq!(later.code(), "IN_PROGRESS");
    let waited = before.elapsed();
    assert!(waited >= Duration::from_secs(2) && waited < Duration::from_secs(4), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_call_with_a_token_that_is_revoked() {
    let api = TestApi::new().await;
    let held = api.held("one").await;
    let running = api.running("two").await;
    let before = Instant::now();
    let revoke = async {
        sleep(Duration::from_secs(1)).await;
        api.revoke("bot").await;
    };
    let (path, other) = (asked(&held.call), asked(&running));
    let (of_held, of_running, sent, ()) = tokio::join!(
        api.get(&path),
        api.get(&other),
        api.post("/v1/calls", waiting("delete", "three", 600_000)),
        revoke
    );
    assert!(before.elapsed() < Duration::from_secs(2));
    for (reply, execution) in
        [(&of_held, "not_executed"), (&sent, "not_executed"), (&of_running, "unknown")]
    {
        assert_eq!(reply.refusal(), "401 CREDENTIAL_EXPIRED");
        assert_eq!(reply.json()["execution"], execution);
    }
    assert_eq!(of_held.json()["call_id"], held.call);
    assert_eq!(of_running.json()["call_id"], running);
}

#[tokio::test(start_paused = true)]
async fn waiting_for_people_ends_with_the_token_and_an_execution_is_still_answered() {
    let api = TestApi::new().await;
    let held = api.held("one").await;
    let before = Instant::now();
    let send = |step| api.posting("/v1/calls", waiting("delete", step, 600_000));
    let (posted, got) = tokio::join!(
        api.send(api.lasting(send("two"), 20)),
        api.send(api.lasting(api.reading(&asked(&held.call)), 20)),
    );
    for reply in [posted, got] {
        assert_eq!(reply.refusal(), "401 CREDENTIAL_EXPIRED");
    }
    let lasted = before.elapsed();
    assert!(lasted >= Duration::from_secs(20) && lasted < Duration::from_secs(22), "{lasted:?}");

    api.world.witness.hold();
    let finish = async {
        sleep(Duration::from_secs(25)).await;
        api.world.witness.let_go();
    };
    let request = api.posting("/v1/calls", waiting("write", "three", 600_000));
    let (executed, ()) = tokio::join!(api.send(api.lasting(request, 20)), finish);
    assert_eq!(executed.status, 200, "who asked for it had a token that counted");
}

#[tokio::test(start_paused = true)]
async fn a_token_in_its_last_moments_asks_and_only_waits_for_nothing() {
    let api = TestApi::new().await;
    let held = api.held("one").await;
    let done = api.post("/v1/calls", call("write", "two").to_string()).await.json();
    let done = done["tool_call_id"].as_str().unwrap();
    // Within the leeway the API still accepts the token; by the clock of the ledger it has expired.
    api.world.store.advance_ms(60 * 60 * 1_000);
    assert_eq!(api.get(&format!("/v1/calls/{done}")).await.status, 200);
    assert_eq!(api.get(&format!("/v1/calls/{}", held.call)).await.status, 202);
    let waited = api.get(&asked(&held.call)).await;
    assert_eq!(waited.refusal(), "401 CREDENTIAL_EXPIRED");
    assert_eq!(api.get(&asked(done)).await.status, 200, "there is nothing to wait for");
}

#[tokio::test(start_paused = true)]
async fn closing_listeners_end_the_waiting_for_people_but_not_for_an_execution() {
    let api = TestApi::new().await;
    let held = api.held("one").await;
    let close = async {
        sleep(Duration::from_secs(1)).await;
        api.phase.send_replace(Phase::Draining);
    };
    let before = Instant::now();
    let path = asked(&held.call);
    let (posted, got, ()) = tokio::join!(
        api.post("/v1/calls", waiting("delete", "two", 600_000)),
        api.get(&path),
        close
    );
    assert_eq!((posted.status.as_u16(), got.status.as_u16()), (202, 202));
    assert!(before.elapsed() < Duration::from_secs(2));

    api.world.witness.hold();
    let finish = async {
        sleep(Duration::from_secs(1)).await;
        api.world.witness.let_go();
    };
    let (executed, ()) = tokio::join!(api.post("/v1/calls", waiting("write", "three", 0)), finish);
    assert_eq!(executed.status, 200);
}

/// A write that takes this long, and whether it was completed.
fn deed(takes: Duration) -> (impl Future<Output = ()> + Send, Arc<AtomicBool>) {
    let done = Arc::new(AtomicBool::new(false));
    let marks = Arc::clone(&done);
    let deed = async move {
        sleep(takes).await;
        marks.store(true, Ordering::SeqCst);
    };
    (deed, done)
}

async fn reply(failure: Failure) -> Reply {
    Reply::of(failure.into_response()).await
}

#[tokio::test(start_paused = true)]
async fn what_writes_is_carried_through_when_its_caller_goes_away() {
    let api = TestApi::new().await;
    let (deed, done) = deed(Duration::from_secs(5));
    assert!(timeout(Duration::from_secs(1), api.api.write(deed)).await.is_err());
    assert!(!done.load(Ordering::SeqCst));
    sleep(Duration::from_secs(10)).await;
    assert!(done.load(Ordering::SeqCst));
}

#[tokio::test(start_paused = true)]
async fn what_takes_too_long_is_unknown_to_its_caller_and_still_carried_through() {
    let api = TestApi::new().await;
    let (deed, done) = deed(Duration::from_secs(60));
    let told = reply(api.api.write(deed).await.unwrap_err()).await;
    assert_eq!(told.refusal(), "504 DEADLINE_EXCEEDED");
    assert_eq!(told.json()["execution"], "unknown");
    sleep(Duration::from_secs(60)).await;
    assert!(done.load(Ordering::SeqCst));
}

#[tokio::test]
async fn a_panic_of_what_writes_does_not_claim_to_know_the_effect() {
    let api = TestApi::new().await;
    let deed = async {
        if true {
            panic!("a bug")
        }
    };
    let told = reply(api.api.write(deed).await.unwrap_err()).await;
    assert_eq!(told.refusal(), "500 INTERNAL");
    assert_eq!(told.json()["execution"], "unknown");
    assert!(!told.text().contains("bug"), "{}", told.text());
}

#[tokio::test]
async fn head_answers_like_get_without_a_body() {
    let api = TestApi::new().await;
    let reply = api.send(api.request("bot", Method::HEAD, "/v1/tools", "")).await;
    assert_eq!((reply.status.as_u16(), reply.body.len()), (200, 0));
    let mut anonymous = api.request("bot", Method::HEAD, "/v1/tools", "");
    anonymous.headers_mut().remove("authorization");
    assert_eq!(api.send(anonymous).await.status, 401);
}
