//! Revision 2026-07-28: no `initialize`, no session.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use placet_adapter::outcome::AdapterError;

use super::{
    peer::{Beginning, Binding, Manner, Peer},
    sessions::over,
};
use crate::tests::support::{call, connect, connector, done, endpoint, in_seconds};

const MODERN: Manner = Manner {
    stateless: true,
    modern: true,
    wants_credential: false,
    forgets_with_400: false,
    binding: Binding::Nobody,
    begins_in_ms: 0,
    ginas: Beginning::Good,
    one_number: false,
};

fn pin(file: &mut Value) {
    file["protocol_version"] = json!("2026-07-28");
}

#[tokio::test]
async fn a_modern_server_is_discovered_listed_and_called() {
    let peer = Peer::start(MODERN).await;
    let contract = over(&peer, pin);
    let adapter = connect(&contract).await.unwrap();
    assert_eq!(adapter.discover().await.unwrap().len(), 1);
    done(call(adapter.as_ref(), &contract, "echo", json!({"path": "p"})).await);
    let seen = peer.seen();
    assert_eq!(seen[0].method(), "server/discover");
    assert!(seen.iter().all(|seen| seen.method() != "initialize"));
    let call = &peer.calls()[0];
    assert_eq!(call.header("mcp-method"), Some("tools/call"));
    assert_eq!(call.header("mcp-name"), Some("echo"));
    assert_eq!(call.header("mcp-protocol-version"), Some("2026-07-28"));
    assert_eq!(call.header("mcp-session-id"), None);
    adapter.close().await;
}

#[tokio::test]
async fn a_modern_server_announces_changes_to_its_subscribers() {
    let peer = Peer::start(MODERN).await;
    let adapter = connect(&over(&peer, pin)).await.unwrap();
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
async fn a_modern_server_under_an_older_pin_is_drift() {
    let peer = Peer::start(MODERN).await;
    let refused = connect(&over(&peer, |_| {})).await.unwrap_err();
    assert!(matches!(refused, AdapterError::SchemaMismatch(_)), "{refused}");
}

#[tokio::test]
async fn an_older_server_under_a_modern_pin_is_drift() {
    let peer = Peer::start(Manner::default()).await;
    let refused = connect(&over(&peer, pin)).await.unwrap_err();
    assert!(matches!(refused, AdapterError::SchemaMismatch(_)), "{refused}");
}

#[tokio::test]
async fn a_modern_server_can_be_imported() {
    let peer = Peer::start(MODERN).await;
    let contract = over(&peer, |_| {});
    let connected =
        connector(&std::env::temp_dir()).connect_any(&endpoint(&contract)).await.unwrap();
    assert_eq!(connected.protocol_version, "2026-07-28");
    assert_eq!(connected.server.as_deref(), Some("modern 2"));
    connected.adapter.close().await;
}
