//! Sessions, credentials of a connection, and where a connection may lead.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::time::Instant;

use placet_adapter::{
    adapter::Connector,
    outcome::{AdapterError, Outcome},
};
use placet_types::contract::Contract;

use super::peer::{Manner, Peer};
use crate::{
    connector::{McpConnector, McpSettings, SessionLimits},
    tests::support::{self, Secrets, call, connect, done, in_seconds, make_write},
};

/// A contract for `peer` whose tools are writes, so that the strictest rules apply.
pub(super) fn over(peer: &Peer, change: impl FnOnce(&mut Value)) -> Arc<Contract> {
    let transport = json!({"type": "mcp_http", "url": peer.url, "private_network": true});
    support::contract(transport, |file| {
        for tool in [
            "echo",
            "stream",
            "broken",
            "asks",
            "status",
            "slow",
            "garbage",
            "html",
            "stranger",
            "cut",
            "truncated",
            "huge",
        ] {
            make_write(file, tool, json!({"class": "opaque"}));
        }
        for tool in ["accepted", "forget"] {
            make_write(file, tool, json!({"class": "opaque"}));
        }
        change(file);
    })
}

#[tokio::test]
async fn closing_ends_the_session() {
    let peer = Peer::start(Manner::default()).await;
    let adapter = connect(&over(&peer, |_| {})).await.unwrap();
    adapter.close().await;
    let seen = peer.seen();
    let deletes: Vec<_> = seen.iter().filter(|seen| seen.http_method == "DELETE").collect();
    assert_eq!(deletes.len(), 1);
    assert_eq!(deletes[0].header("mcp-session-id"), Some("session-1"));
    assert!(!adapter.is_alive());
}

#[tokio::test]
async fn after_a_forgotten_session_another_begins_and_no_call_repeats() {
    for (forgets_with_400, declared) in [(false, true), (true, true), (false, false), (true, false)]
    {
        let peer = Peer::start(Manner { forgets_with_400, ..Manner::default() }).await;
        let contract = over(&peer, |file| {
            if declared {
                file["capabilities"]["echo"]["not_executed"] = json!({"http": [400, 404]});
            }
        });
        let adapter = connect(&contract).await.unwrap();
        done(call(adapter.as_ref(), &contract, "echo", json!({})).await);
        peer.forget_sessions();
        let outcome = call(adapter.as_ref(), &contract, "echo", json!({})).await;
        let is_none = matches!(outcome.not_executed(), Some(AdapterError::NoSession(_)));
        assert_eq!(is_none, declared, "{outcome:?}");
        assert_eq!(matches!(outcome, Outcome::Unknown(_)), !declared, "{outcome:?}");
        assert_eq!(peer.calls().len(), 2, "a call was posted again in a new session");
        // It was not the connection's own session; the connection ends only with that one.
        assert!(adapter.is_alive());
        let forgotten = adapter.discover().await.unwrap_err();
        assert!(matches!(forgotten, AdapterError::NoSession(_)), "{forgotten}");
        assert!(!adapter.is_alive());
        adapter.close().await;
    }
}

#[tokio::test]
async fn a_change_announced_outside_of_calls_is_counted() {
    let peer = Peer::start(Manner::default()).await;
    let adapter = connect(&over(&peer, |_| {})).await.unwrap();
    let deadline = in_seconds(5);
    while !peer.has_listener() {
        assert!(Instant::now() < deadline, "nobody listens");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let before = adapter.generation();
    peer.announce_change();
    while adapter.generation() == before {
        assert!(Instant::now() < deadline, "the change was not noticed");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    adapter.close().await;
}

#[tokio::test]
async fn a_list_is_never_taken_from_a_cache() {
    let peer = Peer::start(Manner::default()).await;
    let adapter = connect(&over(&peer, |_| {})).await.unwrap();
    // The peer allows its list to be cached for ten minutes.
    assert_eq!(adapter.discover().await.unwrap()[0].name, "echo_0");
    peer.announce_change();
    assert_eq!(adapter.discover().await.unwrap()[0].name, "echo_1");
    adapter.close().await;
}

#[tokio::test]
async fn a_server_that_wants_a_credential_for_everything_gets_the_contracts_one_when_it_asks() {
    let peer = Peer::start(Manner { wants_credential: true, ..Manner::default() }).await;
    let contract = over(&peer, |file| file["credential"] = json!({"secret": "known"}));
    let adapter = connect(&contract).await.unwrap();
    assert_eq!(adapter.discover().await.unwrap().len(), 1);
    // A call carries its own credential, here none, and so does its session.
    let outcome = call(adapter.as_ref(), &contract, "echo", json!({})).await;
    assert!(
        matches!(outcome, Outcome::NotExecuted(AdapterError::CredentialRefused(_))),
        "{outcome:?}"
    );
    adapter.close().await;
    let seen = peer.seen();
    assert_eq!(seen[0].header("authorization"), None);
    assert_eq!(seen[1].header("authorization"), Some("Bearer s3cret-canary"));
    assert_eq!(peer.calls().len(), 0);
    let begun: Vec<_> = seen.iter().filter(|seen| seen.method() == "initialize").collect();
    assert_eq!(begun.last().unwrap().header("authorization"), None);
}

#[tokio::test]
async fn a_credential_that_nobody_asked_for_is_not_shown() {
    let peer = Peer::start(Manner::default()).await;
    let contract = over(&peer, |file| file["credential"] = json!({"secret": "known"}));
    let adapter = connect(&contract).await.unwrap();
    adapter.discover().await.unwrap();
    adapter.close().await;
    assert!(peer.seen().iter().all(|seen| !seen.headers.contains_key("authorization")));
}

#[tokio::test]
async fn a_server_that_wants_a_credential_where_there_is_none_refuses_the_connection() {
    let peer = Peer::start(Manner { wants_credential: true, ..Manner::default() }).await;
    let refused = connect(&over(&peer, |_| {})).await.unwrap_err();
    assert!(matches!(refused, AdapterError::CredentialRefused(_)), "{refused}");
    let contract = over(&peer, |file| file["credential"] = json!({"secret": "unknown"}));
    let refused = connect(&contract).await.unwrap_err();
    assert!(matches!(refused, AdapterError::Misconfigured(_)), "{refused}");
}

#[tokio::test]
async fn a_private_address_is_dialled_only_if_the_contract_names_it_as_one() {
    let peer = Peer::start(Manner::default()).await;
    // Over plain http the contract itself is refused.
    let transport = json!({"type": "mcp_http", "url": peer.url.replace("http:", "https:")});
    let refused = connect(&support::contract(transport, |_| {})).await.unwrap_err();
    assert!(matches!(refused, AdapterError::Unavailable(_)), "{refused}");
    assert!(peer.seen().is_empty());
}

#[tokio::test]
async fn our_own_listener_is_no_server() {
    let peer = Peer::start(Manner::default()).await;
    let own = peer.url.trim_start_matches("http://").trim_end_matches("/mcp").parse().unwrap();
    let connector = McpConnector::new(McpSettings {
        data_dir: std::env::temp_dir(),
        client_name: "placet".to_owned(),
        client_version: "0.0.0".to_owned(),
        secrets: Arc::new(Secrets),
        trust: placet_egress::Trust::default(),
        own_listeners: vec![own],
        sessions: SessionLimits::default(),
    });
    let refused = connector.connect(over(&peer, |_| {})).await.unwrap_err();
    assert!(matches!(refused, AdapterError::Unavailable(_)), "{refused}");
    assert!(peer.seen().is_empty());
}

#[tokio::test]
async fn a_url_that_could_lead_elsewhere_is_refused() {
    for url in [
        "ftp://h/mcp",
        "http://user:pass@127.0.0.1/mcp",
        "/mcp",
        "http://127.0.0.1/mcp#x",
        "file:///etc/passwd",
    ] {
        let transport = json!({"type": "mcp_http", "url": url, "private_network": true});
        let refused = connect(&support::contract(transport, |_| {})).await.unwrap_err();
        assert!(matches!(refused, AdapterError::Misconfigured(_)), "{url}: {refused}");
        assert!(!refused.to_string().contains("pass@"));
    }
}
