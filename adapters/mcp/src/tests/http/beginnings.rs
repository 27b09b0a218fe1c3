//! What failed beginnings leave behind: no request, no session at the server, and nobody who waits for them. And sessions that
//! fall silent, or forbid something.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use serde_json::json;
use tokio::time::{Instant, sleep};

use placet_adapter::{
    adapter::{Adapter, Conditions, PrepareRequest, SessionLease},
    outcome::AdapterError,
};
use placet_types::contract::Contract;

use super::{
    owners::{begun, bound, connect, doer, holding, until},
    peer::{Beginning, Binding, Manner, Peer},
    sessions::over,
    shares::{ended, is_for_them, is_outage, seat},
};
use crate::{
    connector::SessionLimits,
    tests::support::{dispatch, done, owner, send_for},
};

/// A contract for `peer` whose connections may take this long.
fn within(peer: &Peer, connect_ms_max: u64) -> Arc<Contract> {
    over(peer, |file| file["limits"] = json!({"connect_ms_max": connect_ms_max}))
}

/// Prepares a seat for somebody whose current token is `token`.
async fn ready(
    adapter: &dyn Adapter,
    name: &str,
    token: &str,
    timeout_ms: u64,
) -> Result<SessionLease, AdapterError> {
    let (conditions, owner) = (holding(token), owner(name));
    let credential = conditions.credential.as_ref();
    adapter.prepare(PrepareRequest { timeout_ms, credential, owner }).await
}

fn begun_with(peer: &Peer, token: &str) -> usize {
    let shown = format!("Bearer {token}");
    begun(peer).iter().filter(|seen| seen.header("authorization") == Some(&shown)).count()
}

#[tokio::test]
async fn a_beginning_that_nobody_waits_for_is_one_request_that_ends_in_its_time() {
    let peer = Peer::start(Manner { ginas: Beginning::Silence, ..Manner::default() }).await;
    let adapter = connect(&within(&peer, 1_000), SessionLimits::default()).await;
    for _ in 0..4 {
        let hasty = ready(adapter.as_ref(), "gina", "gina", 100).await;
        assert!(is_for_them(&hasty), "{hasty:?}");
    }
    assert_eq!((begun_with(&peer, "gina"), peer.unanswered()), (1, 1));
    // The additional second is for an answer that is a little late.
    until("its socket is let go", || peer.unanswered() == 0).await;
    adapter.close().await;
}

#[tokio::test]
async fn a_session_that_takes_longer_than_one_call_has_is_there_for_the_next_one() {
    let manner = Manner { begins_in_ms: 1_000, ..bound(Binding::Beginner) };
    let peer = Peer::start(manner).await;
    let contract = within(&peer, 10_000);
    let adapter = connect(&contract, SessionLimits::default()).await;
    for _ in 0..2 {
        let hasty = ready(adapter.as_ref(), "alice", "alice", 300).await;
        assert!(is_for_them(&hasty), "{hasty:?}");
    }
    // It comes while nobody waits for it, and stays.
    sleep(Duration::from_millis(1_000)).await;
    drop(ready(adapter.as_ref(), "alice", "alice", 300).await.unwrap());
    let echoed = dispatch(&contract, "echo", json!({}));
    let outcome = send_for(adapter.as_ref(), echoed, holding("alice"), owner("alice")).await;
    assert_eq!(doer(outcome), "Bearer alice");
    assert_eq!((begun_with(&peer, "alice"), ended(&peer).len()), (1, 0));
    adapter.close().await;
    assert!(ended(&peer).contains(&"Bearer alice".to_owned()), "{:?}", ended(&peer));
}

#[tokio::test]
async fn a_session_that_comes_too_late_or_is_not_completed_is_ended_at_the_server() {
    for manner in [
        Manner { begins_in_ms: 900, ..Manner::default() },
        Manner { ginas: Beginning::Deafness, ..Manner::default() },
    ] {
        let peer = Peer::start(manner).await;
        let adapter = connect(&within(&peer, 500), SessionLimits::default()).await;
        let stalled = seat(adapter.as_ref(), "globex", "gina", 10_000).await;
        assert!(is_outage(&stalled), "{stalled:?}");
        until("it is ended", || ended(&peer) == ["Bearer gina"]).await;
        until("nothing waits in it", || peer.unanswered() == 0).await;
        adapter.close().await;
    }
}

#[tokio::test]
async fn those_who_wait_for_one_beginning_hear_of_its_end_at_once_and_it_is_not_begun_again_soon() {
    let peer = Peer::start(Manner { ginas: Beginning::Silence, ..Manner::default() }).await;
    let adapter = connect(&within(&peer, 1_000), SessionLimits::default()).await;
    let began = Instant::now();
    let all = join_all((0..6).map(|_| ready(adapter.as_ref(), "gina", "gina", 10_000))).await;
    assert!(began.elapsed() < Duration::from_millis(2_000), "{:?}", began.elapsed());
    // One owner is one sign of an outage, however many of its calls have waited.
    assert_eq!(all.iter().filter(|one| is_outage(one)).count(), 1, "{all:?}");
    assert_eq!(all.iter().filter(|one| is_for_them(one)).count(), 5, "{all:?}");
    let began = Instant::now();
    let again = ready(adapter.as_ref(), "gina", "gina", 10_000).await;
    assert!(is_for_them(&again), "{again:?}");
    assert!(began.elapsed() < Duration::from_millis(500), "{:?}", began.elapsed());
    assert_eq!(begun_with(&peer, "gina"), 1);
    // Others are not concerned.
    drop(ready(adapter.as_ref(), "alice", "alice", 10_000).await.unwrap());

    sleep(Duration::from_millis(3_100)).await;
    // It is tried again, and one call waits for that.
    let tried = ready(adapter.as_ref(), "gina", "gina", 10_000);
    let other = async {
        until("it is tried again", || begun_with(&peer, "gina") == 2).await;
        let began = Instant::now();
        let other = ready(adapter.as_ref(), "gina", "gina", 10_000).await;
        assert!(is_for_them(&other) && began.elapsed() < Duration::from_millis(500), "{other:?}");
    };
    let (tried, ()) = tokio::join!(tried, other);
    assert!(tried.is_err(), "{tried:?}");
    adapter.close().await;
}

#[tokio::test]
async fn what_is_refused_to_one_credential_is_tried_with_that_of_the_next_call() {
    let manner =
        Manner { ginas: Beginning::Status(401), begins_in_ms: 300, ..bound(Binding::Beginner) };
    let peer = Peer::start(manner).await;
    let adapter = connect(&over(&peer, |_| {}), SessionLimits::default()).await;
    let (old, new) = tokio::join!(
        ready(adapter.as_ref(), "gina", "gina's old one", 10_000),
        ready(adapter.as_ref(), "gina", "a new one", 10_000),
    );
    assert!(matches!(old, Err(AdapterError::CredentialRefused(_))), "{old:?}");
    drop(new.unwrap());
    assert_eq!(begun_with(&peer, "a new one"), 1);
    adapter.close().await;
}

#[tokio::test]
async fn a_look_that_was_not_answered_is_no_sign_of_life() {
    let peer = Peer::start(bound(Binding::Beginner)).await;
    let contract = over(&peer, |_| {});
    let silent = Duration::from_millis(400);
    let adapter = connect(&contract, SessionLimits { silent, ..SessionLimits::default() }).await;
    let echo = || dispatch(&contract, "echo", json!({}));
    let sent = send_for(adapter.as_ref(), echo(), holding("alice"), owner("alice")).await;
    assert_eq!(doer(sent), "Bearer alice");
    peer.deafen_those_of("alice");
    sleep(silent).await;
    // Its whole time is spent on checking whether the session still exists.
    let hasty = ready(adapter.as_ref(), "alice", "alice", 200).await;
    assert!(is_for_them(&hasty), "{hasty:?}");
    let sent = send_for(adapter.as_ref(), echo(), holding("alice"), owner("alice")).await;
    assert_eq!(doer(sent), "Bearer alice");
    assert_eq!((begun_with(&peer, "alice"), peer.calls().len()), (2, 2));
    until("the one that is silent is ended", || ended(&peer) == ["Bearer alice"]).await;
    adapter.close().await;
}

#[tokio::test]
async fn what_is_forbidden_to_one_call_stops_no_other_one_in_the_same_session() {
    let peer = Peer::start(bound(Binding::Beginner)).await;
    let contract = over(&peer, |_| {});
    let adapter = connect(&contract, SessionLimits::default()).await;
    let echo = || dispatch(&contract, "echo", json!({}));
    let seat = ready(adapter.as_ref(), "all of acme", "acme", 10_000).await.unwrap();
    let status = dispatch(&contract, "status", json!({"code": 403}));
    let sent = send_for(adapter.as_ref(), status, holding("acme"), owner("all of acme")).await;
    assert!(matches!(sent.not_executed(), Some(AdapterError::Forbidden(_))), "{sent:?}");
    // It was dispatched before, by another agent.
    let seated = holding("acme");
    let sent = adapter.invoke(echo(), Conditions { seat, ..seated }).await;
    assert_eq!(doer(sent), "Bearer acme");
    assert_eq!(begun_with(&peer, "acme"), 1);
    // The next ones have another session.
    done(send_for(adapter.as_ref(), echo(), holding("acme"), owner("all of acme")).await);
    assert_eq!(begun_with(&peer, "acme"), 2);
    adapter.close().await;
}
