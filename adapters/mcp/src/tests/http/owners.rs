//! Sessions and their owners: servers that take the identity of a session from its first call, and servers that bind it to its creator.

use std::{sync::Arc, time::Duration};

use serde_json::json;
use tokio::time::{Instant, sleep};

use placet_adapter::{
    adapter::{Adapter, Conditions, Connector, Credential, PrepareRequest},
    outcome::{AdapterError, Outcome},
};
use placet_types::contract::Contract;

use super::{
    peer::{Binding, Manner, Peer, Seen},
    sessions::over,
};
use crate::{
    connector::SessionLimits,
    tests::support::{connector_with, dispatch, done, in_seconds, owner, send_for, within},
};

pub(super) fn bound(binding: Binding) -> Manner {
    Manner { binding, ..Manner::default() }
}

pub(super) async fn connect(contract: &Arc<Contract>, limits: SessionLimits) -> Box<dyn Adapter> {
    let connector = connector_with(&std::env::temp_dir(), limits);
    connector.connect(Arc::clone(contract)).await.unwrap()
}

/// The conditions of a call for somebody whose current token is `token`.
pub(super) fn holding(token: &str) -> Conditions {
    let credential = Credential {
        header: "authorization".to_owned(),
        value: format!("Bearer {token}").into(),
        origin: None,
        ends: None,
    };
    Conditions { credential: Some(credential), ..within(10_000) }
}

async fn echo(adapter: &dyn Adapter, contract: &Contract, name: &str) -> Outcome {
    send_for(adapter, dispatch(contract, "echo", json!({})), holding(name), owner(name)).await
}

/// In whose name the server did a call.
pub(super) fn doer(outcome: Outcome) -> String {
    let answer = done(outcome);
    answer.output["structured"]["doer"].as_str().unwrap().to_owned()
}

pub(super) fn begun(peer: &Peer) -> Vec<Seen> {
    peer.seen().into_iter().filter(|seen| seen.method() == "initialize").collect()
}

pub(super) async fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = in_seconds(5);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn each_owner_has_a_session_of_its_own_that_begins_with_its_credential() {
    for binding in [Binding::FirstCall, Binding::Beginner] {
        let peer = Peer::start(bound(binding)).await;
        let contract = over(&peer, |_| {});
        let adapter = connect(&contract, SessionLimits::default()).await;
        for name in ["alice", "gina", "alice", "bob", "gina"] {
            let outcome = echo(adapter.as_ref(), &contract, name).await;
            assert_eq!(doer(outcome), format!("Bearer {name}"), "{binding:?}");
        }
        let shown: Vec<_> = begun(&peer)
            .iter()
            .map(|seen| seen.header("authorization").map(str::to_owned))
            .collect();
        let bearer = |name: &str| Some(format!("Bearer {name}"));
        assert_eq!(shown, [None, bearer("alice"), bearer("gina"), bearer("bob")], "{binding:?}");
        // Lists go through the contract's own session, which belongs to nobody.
        adapter.discover().await.unwrap();
        let listed = peer.seen().into_iter().find(|seen| seen.method() == "tools/list").unwrap();
        assert_eq!(
            (listed.header("mcp-session-id"), listed.header("authorization")),
            (Some("session-1"), None)
        );
        adapter.close().await;
        let ended = peer.seen().into_iter().filter(|seen| seen.http_method == "DELETE");
        let ended: Vec<_> =
            ended.map(|seen| seen.header("authorization").map(str::to_owned)).collect();
        assert_eq!(ended.len(), 4, "{ended:?}");
        for name in ["alice", "gina", "bob"] {
            assert!(ended.contains(&bearer(name)), "{ended:?}");
        }
    }
}

#[tokio::test]
async fn a_session_is_there_before_its_call_is_dispatched_and_no_call_goes_without_one() {
    let peer = Peer::start(bound(Binding::Beginner)).await;
    let contract = over(&peer, |_| {});
    let adapter = connect(&contract, SessionLimits::default()).await;
    let echoed = || dispatch(&contract, "echo", json!({}));
    let ready = || async {
        let (conditions, owner) = (holding("alice"), owner("alice"));
        let credential = conditions.credential.as_ref();
        let approach = PrepareRequest { timeout_ms: 10_000, credential, owner };
        let seat = adapter.prepare(approach).await.unwrap();
        Conditions { seat, ..conditions }
    };
    let unready = holding("alice");
    let outcome = adapter.invoke(echoed(), unready).await;
    let is_none =
        |outcome: &Outcome| matches!(outcome, Outcome::NotExecuted(AdapterError::NoSession(_)));
    assert!(is_none(&outcome), "{outcome:?}");
    assert_eq!(begun(&peer).len(), 1, "a session was begun after the dispatch");

    let seated = ready().await;
    assert_eq!((begun(&peer).len(), peer.calls().len()), (2, 0));
    assert_eq!(doer(adapter.invoke(echoed(), seated).await), "Bearer alice");
    // A preparation in another connection is worthless here.
    let seated = ready().await;
    let other = connect(&contract, SessionLimits::default()).await;
    assert!(is_none(&other.invoke(echoed(), seated).await));
    assert_eq!(peer.calls().len(), 1);
    other.close().await;
    adapter.close().await;
}

#[tokio::test]
async fn the_end_of_one_session_ends_nobody_elses_call() {
    let peer = Peer::start(bound(Binding::Beginner)).await;
    let contract = over(&peer, |_| {});
    let adapter = connect(&contract, SessionLimits::default()).await;
    assert_eq!(doer(echo(adapter.as_ref(), &contract, "bob").await), "Bearer bob");
    let slow = dispatch(&contract, "slow", json!({"ms": 600}));
    let alices = send_for(adapter.as_ref(), slow, holding("alice"), owner("alice"));
    let bobs = async {
        until("alice's call arrives", || peer.calls().len() == 2).await;
        peer.forget_those_of("bob");
        let outcome = echo(adapter.as_ref(), &contract, "bob").await;
        assert!(matches!(outcome.not_executed(), Some(AdapterError::NoSession(_))), "{outcome:?}");
        assert!(adapter.is_alive());
        assert_eq!(doer(echo(adapter.as_ref(), &contract, "bob").await), "Bearer bob");
    };
    let (alices, ()) = tokio::join!(alices, bobs);
    done(alices);
    let before = begun(&peer).len();
    assert_eq!(doer(echo(adapter.as_ref(), &contract, "alice").await), "Bearer alice");
    assert_eq!((before, begun(&peer).len()), (4, 4), "alice's session was begun again");
    adapter.close().await;
}

#[tokio::test]
async fn calls_under_way_outlive_the_connection_that_is_replaced() {
    let peer = Peer::start(bound(Binding::Beginner)).await;
    let contract = over(&peer, |_| {});
    let adapter = connect(&contract, SessionLimits::default()).await;
    let slow = dispatch(&contract, "slow", json!({"ms": 600}));
    let alices = send_for(adapter.as_ref(), slow, holding("alice"), owner("alice"));
    let closing = async {
        until("alice's call arrives", || peer.calls().len() == 1).await;
        adapter.close().await;
        let outcome = echo(adapter.as_ref(), &contract, "bob").await;
        assert!(matches!(outcome, Outcome::NotExecuted(_)), "{outcome:?}");
    };
    let (alices, ()) = tokio::join!(alices, closing);
    done(alices);
    let is_ended = |seen: &Seen| {
        seen.http_method == "DELETE" && seen.header("authorization") == Some("Bearer alice")
    };
    until("her session is ended after it", || peer.seen().iter().any(is_ended)).await;
}

#[tokio::test]
async fn a_session_that_refused_its_owner_is_begun_again_with_the_next_credential() {
    for code in [401, 403] {
        let peer = Peer::start(Manner::default()).await;
        let contract = over(&peer, |_| {});
        let adapter = connect(&contract, SessionLimits::default()).await;
        let status = dispatch(&contract, "status", json!({"code": code}));
        let refused = send_for(adapter.as_ref(), status, holding("old"), owner("alice")).await;
        assert!(refused.not_executed().is_some(), "{refused:?}");
        let echoed = dispatch(&contract, "echo", json!({}));
        done(send_for(adapter.as_ref(), echoed, holding("new"), owner("alice")).await);
        let begun = begun(&peer);
        assert_eq!(begun.last().unwrap().header("authorization"), Some("Bearer new"));
        // A later token of hers is used in it from now on.
        let echoed = dispatch(&contract, "echo", json!({}));
        done(send_for(adapter.as_ref(), echoed, holding("newer"), owner("alice")).await);
        adapter.close().await;
        assert_eq!(begun.len(), 3);
        let ended = peer.seen().into_iter().filter(|seen| seen.http_method == "DELETE");
        let ended: Vec<_> =
            ended.map(|seen| seen.header("authorization").map(str::to_owned)).collect();
        assert!(ended.contains(&Some("Bearer newer".to_owned())), "{ended:?}");
    }
}

#[tokio::test]
async fn there_are_no_more_sessions_than_the_limit_says() {
    let peer = Peer::start(bound(Binding::Beginner)).await;
    let contract = over(&peer, |_| {});
    let limits = SessionLimits { sessions_max: 1, ..SessionLimits::default() };
    let adapter = connect(&contract, limits).await;
    let slow = dispatch(&contract, "slow", json!({"ms": 600}));
    let alices = send_for(adapter.as_ref(), slow, holding("alice"), owner("alice"));
    let bobs = async {
        until("alice's call arrives", || peer.calls().len() == 1).await;
        let outcome = echo(adapter.as_ref(), &contract, "bob").await;
        assert!(matches!(outcome, Outcome::NotExecuted(AdapterError::NoSession(_))), "{outcome:?}");
        assert_eq!(peer.calls().len(), 1);
    };
    let (alices, ()) = tokio::join!(alices, bobs);
    done(alices);
    // Hers is idle now: it makes place for his, and is ended first.
    assert_eq!(doer(echo(adapter.as_ref(), &contract, "bob").await), "Bearer bob");
    let seen = peer.seen();
    let of = |name: &str, is: &dyn Fn(&Seen) -> bool| {
        let shown = format!("Bearer {name}");
        seen.iter().position(|one| is(one) && one.header("authorization") == Some(&shown))
    };
    let ended = of("alice", &|one| one.http_method == "DELETE").unwrap();
    let began = of("bob", &|one| one.method() == "initialize").unwrap();
    assert!(ended < began);
    adapter.close().await;
}

#[tokio::test]
async fn a_session_that_is_idle_is_ended_and_one_that_was_silent_is_asked_first() {
    let peer = Peer::start(bound(Binding::Beginner)).await;
    let contract = over(&peer, |_| {});
    let limits = SessionLimits { silent: Duration::ZERO, ..SessionLimits::default() };
    let adapter = connect(&contract, limits).await;
    done(echo(adapter.as_ref(), &contract, "alice").await);
    peer.forget_those_of("alice");
    // The call is posted once, in an existing session.
    done(echo(adapter.as_ref(), &contract, "alice").await);
    assert_eq!((begun(&peer).len(), peer.calls().len()), (3, 2));
    adapter.close().await;

    let limits = SessionLimits { idle: Duration::from_millis(100), ..SessionLimits::default() };
    let adapter = connect(&contract, limits).await;
    done(echo(adapter.as_ref(), &contract, "bob").await);
    let is_ended = |seen: &Seen| {
        seen.http_method == "DELETE" && seen.header("authorization") == Some("Bearer bob")
    };
    until("an idle session is ended", || peer.seen().iter().any(is_ended)).await;
    done(echo(adapter.as_ref(), &contract, "bob").await);
    adapter.close().await;
}

#[tokio::test]
async fn a_server_without_sessions_is_asked_for_none() {
    let peer = Peer::start(Manner { stateless: true, ..Manner::default() }).await;
    let contract = over(&peer, |_| {});
    let adapter = connect(&contract, SessionLimits::default()).await;
    for name in ["alice", "bob"] {
        assert_eq!(doer(echo(adapter.as_ref(), &contract, name).await), format!("Bearer {name}"));
    }
    assert_eq!(begun(&peer).len(), 1);
    adapter.close().await;
}
