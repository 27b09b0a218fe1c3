//! The sessions of one owner, and of one tenant, do not affect any others. And when sessions end.

use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep};

use placet_adapter::{
    adapter::{Adapter, Credential, PrepareRequest, SessionLease, SessionOwner},
    outcome::{AdapterError, Outcome},
};
use placet_types::contract::Contract;

use super::{
    owners::{begun, bound, connect, doer, holding, until},
    peer::{Beginning, Binding, Manner, Peer, Seen},
    sessions::over,
};
use crate::{
    connector::SessionLimits,
    tests::support::{dispatch, done, in_seconds, owner, owner_in, send_for},
};

/// A credential that expires in so many milliseconds.
fn ending(name: &str, in_ms: u64) -> Credential {
    Credential {
        header: "authorization".to_owned(),
        value: format!("Bearer {name}").into(),
        origin: None,
        ends: Instant::now().into_std().checked_add(Duration::from_millis(in_ms)),
    }
}

/// Prepares a seat for somebody in a tenant.
pub(super) async fn seat(
    adapter: &dyn Adapter,
    tenant: &str,
    name: &str,
    timeout_ms: u64,
) -> Result<SessionLease, AdapterError> {
    let credential = ending(name, 600_000);
    let owner = owner_in(tenant, name);
    adapter.prepare(PrepareRequest { timeout_ms, credential: Some(&credential), owner }).await
}

pub(super) fn is_for_them(result: &Result<SessionLease, AdapterError>) -> bool {
    matches!(result, Err(AdapterError::NoSession(_)))
}

pub(super) fn is_outage(result: &Result<SessionLease, AdapterError>) -> bool {
    matches!(result, Err(AdapterError::Unavailable(_)))
}

/// Whose sessions the server was told to end, in order.
pub(super) fn ended(peer: &Peer) -> Vec<String> {
    let is_end = |seen: &Seen| seen.http_method == "DELETE";
    let of = |seen: Seen| seen.header("authorization").unwrap_or_default().to_owned();
    peer.seen().into_iter().filter(is_end).map(of).collect()
}

#[tokio::test]
async fn what_a_server_does_when_one_owner_begins_is_no_outage_for_the_others() {
    for ginas in [
        Beginning::Status(429),
        Beginning::Status(500),
        Beginning::Status(503),
        Beginning::Garbage,
        Beginning::OtherVersion,
    ] {
        let peer = Peer::start(Manner { ginas, ..bound(Binding::Beginner) }).await;
        let adapter = connect(&over(&peer, |_| {}), SessionLimits::default()).await;
        let ginas_seat = seat(adapter.as_ref(), "globex", "gina", 10_000).await;
        assert!(is_for_them(&ginas_seat), "{ginas:?}: {ginas_seat:?}");
        assert!(adapter.is_alive(), "{ginas:?}");
        seat(adapter.as_ref(), "acme", "alice", 10_000).await.unwrap();
        adapter.close().await;
    }
}

#[tokio::test]
async fn one_tenant_that_gets_no_answer_is_one_sign_of_an_outage_and_a_short_time_is_none() {
    let peer = Peer::start(Manner { ginas: Beginning::Silence, ..Manner::default() }).await;
    let contract = over(&peer, |file| file["limits"] = json!({"connect_ms_max": 1_500}));
    let adapter = connect(&contract, SessionLimits::default()).await;
    let ginas = async |name: &str, ms: u64| seat(adapter.as_ref(), "globex", name, ms).await;
    // More than a second, and less than a connection may take.
    let hasty = ginas("gina", 1_100).await;
    assert!(is_for_them(&hasty), "{hasty:?}");
    let first = ginas("gina", 10_000).await;
    assert!(is_outage(&first), "{first:?}");
    for name in ["gina", "gina's colleague"] {
        let more = ginas(name, 10_000).await;
        assert!(is_for_them(&more), "{more:?}");
    }
    let others = seat(adapter.as_ref(), "initech", "gina of initech", 10_000).await;
    assert!(is_outage(&others), "{others:?}");
    // A new session for anybody shows that the server is there; a later failure is news again.
    seat(adapter.as_ref(), "acme", "alice", 10_000).await.unwrap();
    assert!(is_outage(&ginas("gina", 10_000).await));
    adapter.close().await;
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_is_out_for_everybody() {
    let peer = Peer::start(Manner::default()).await;
    let adapter = connect(&over(&peer, |_| {}), SessionLimits::default()).await;
    peer.stop();
    let out = async {
        // Open sockets still serve for a while.
        let mut number = 0_u32;
        while !is_outage(&seat(adapter.as_ref(), "acme", &number.to_string(), 1_000).await) {
            number = number.saturating_add(1);
            sleep(Duration::from_millis(2_200)).await;
        }
    };
    tokio::time::timeout_at(in_seconds(20), out).await.expect("it is no outage");
    adapter.close().await;
}

#[tokio::test]
async fn a_tenant_pushes_out_its_own_sessions_and_those_of_tenants_beyond_their_share() {
    let peer = Peer::start(bound(Binding::Beginner)).await;
    let limits = SessionLimits { sessions_max: 4, ..SessionLimits::default() };
    let adapter = connect(&over(&peer, |_| {}), limits).await;
    let come = async |tenant: &str, name: &str| {
        drop(seat(adapter.as_ref(), tenant, name, 10_000).await.unwrap());
        // A place's age is counted from its last use.
        sleep(Duration::from_millis(2)).await;
    };
    come("acme", "alice").await;
    for number in 1..=6 {
        come("globex", &format!("u{number}")).await;
    }
    // Hers was the one that had been idle for the longest.
    assert_eq!(ended(&peer), ["Bearer u1", "Bearer u2", "Bearer u3"]);
    come("acme", "bob").await;
    come("acme", "carol").await;
    assert_eq!(ended(&peer)[3..], ["Bearer u4", "Bearer alice"]);
    adapter.close().await;
}

#[tokio::test]
async fn a_tenant_without_a_session_gets_one_also_where_there_are_more_tenants_than_places() {
    let peer = Peer::start(bound(Binding::Beginner)).await;
    let limits = SessionLimits { sessions_max: 2, ..SessionLimits::default() };
    let adapter = connect(&over(&peer, |_| {}), limits).await;
    let come = async |tenant: &str, name: &str| {
        let seat = seat(adapter.as_ref(), tenant, name, 10_000).await;
        sleep(Duration::from_millis(2)).await;
        seat
    };
    drop(come("acme", "alice").await.unwrap());
    let in_use = come("globex", "gustav").await.unwrap();
    drop(come("initech", "ines").await.unwrap());
    assert_eq!(ended(&peer), ["Bearer alice"]);
    // A place in use is taken from nobody.
    let hers = come("umbrella", "uma").await.unwrap();
    assert_eq!(ended(&peer), ["Bearer alice", "Bearer ines"]);
    let none = come("acme", "alice").await;
    assert!(is_for_them(&none), "{none:?}");
    drop((in_use, hers));
    adapter.close().await;
}

#[tokio::test]
async fn nobody_gets_a_session_whose_number_another_one_has() {
    let peer = Peer::start(Manner { one_number: true, ..Manner::default() }).await;
    let contract = over(&peer, |_| {});
    let adapter = connect(&contract, SessionLimits::default()).await;
    let echo = async |name: &str| {
        let echoed = dispatch(&contract, "echo", json!({}));
        send_for(adapter.as_ref(), echoed, holding(name), owner(name)).await
    };
    assert_eq!(doer(echo("alice").await), "Bearer alice");
    let bobs = echo("bob").await;
    assert!(matches!(bobs, Outcome::NotExecuted(AdapterError::NoSession(_))), "{bobs:?}");
    assert_eq!(doer(echo("alice").await), "Bearer alice");
    assert_eq!((begun(&peer).len(), peer.calls().len(), ended(&peer).len()), (3, 2, 0));
    adapter.close().await;
    // Once it has ended, its id may be used by anybody.
    let adapter = connect(&contract, SessionLimits::default()).await;
    let echoed = dispatch(&contract, "echo", json!({}));
    done(send_for(adapter.as_ref(), echoed, holding("bob"), owner("bob")).await);
    adapter.close().await;
}

async fn slowly(
    adapter: &dyn Adapter,
    contract: &Contract,
    who: SessionOwner,
    credential: Credential,
    ms: u64,
) -> Outcome {
    let conditions = holding("nobody");
    let conditions =
        placet_adapter::adapter::Conditions { credential: Some(credential), ..conditions };
    send_for(adapter, dispatch(contract, "slow", json!({"ms": ms})), conditions, who).await
}

#[tokio::test]
async fn a_session_is_ended_while_its_credential_is_good_and_never_with_one_that_is_over() {
    let peer = Peer::start(bound(Binding::Beginner)).await;
    let contract = over(&peer, |_| {});
    let adapter = connect(&contract, SessionLimits::default()).await;
    let alice = owner_in("acme", "alice");
    let began = Instant::now();
    done(slowly(adapter.as_ref(), &contract, alice, ending("alice", 5_000), 0).await);
    until("her session is ended", || ended(&peer) == ["Bearer alice"]).await;
    assert!(began.elapsed() < Duration::from_secs(5), "her credential is over");

    // In use until after that: its end can no longer be sent, and no call carries an expired credential.
    let bob = owner_in("acme", "bob");
    done(slowly(adapter.as_ref(), &contract, bob, ending("bob", 400), 800).await);
    let calls = peer.calls().len();
    let over = slowly(adapter.as_ref(), &contract, bob, ending("bob", 0), 0).await;
    assert!(matches!(over, Outcome::NotExecuted(AdapterError::NoSession(_))), "{over:?}");
    adapter.close().await;
    assert_eq!(
        (peer.calls().len(), ended(&peer).contains(&"Bearer bob".to_owned())),
        (calls, false)
    );
}

#[tokio::test]
async fn an_earlier_credential_does_not_take_the_place_of_a_later_one() {
    let peer = Peer::start(Manner::default()).await;
    let contract = over(&peer, |_| {});
    let adapter = connect(&contract, SessionLimits::default()).await;
    let alice = owner_in("acme", "alice");
    for (name, in_ms) in [("first", 100_000), ("newer", 300_000), ("older", 200_000)] {
        done(slowly(adapter.as_ref(), &contract, alice, ending(name, in_ms), 0).await);
    }
    adapter.close().await;
    assert!(ended(&peer).contains(&"Bearer newer".to_owned()), "{:?}", ended(&peer));
}
