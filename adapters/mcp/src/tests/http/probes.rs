//! Probing for a token over HTTP.

use placet_adapter::{adapter::Inquiry, outcome::Probe};
use serde_json::json;

use super::{
    peer::{Manner, Peer},
    sessions::over,
};
use crate::tests::support::{TOKEN, connect, make_write};

#[tokio::test]
async fn a_question_carries_the_contracts_credential_and_no_calls() {
    let peer = Peer::start(Manner { wants_credential: true, ..Manner::default() }).await;
    let mut pin = None;
    for pinned in [false, true] {
        let contract = over(&peer, |file| {
            let probe = json!({
                "tool": "echo_0", "argument": "token", "args": {"say": "committed"},
                "state": "/structured/args/say", "committed": ["committed"], "not_found": ["none"],
            });
            let dedup = json!({"class": "queryable", "settle_delay_ms": 0, "probe": probe});
            make_write(file, "slow", dedup);
            file["capabilities"]["echo_0"] = json!({"input_schema": {"type": "object"}, "mode": "read_only", "effect": "none", "pin": pin});
            file["credential"] = json!({"secret": "known"});
        });
        let adapter = connect(&contract).await.unwrap();
        let capability = contract.capabilities[&"slow".parse().unwrap()].id.clone();
        let inquiry = Inquiry { capability, token: TOKEN.to_owned(), timeout_ms: 5_000 };
        let found = adapter.probe(&inquiry).await;
        assert_eq!(matches!(found, Probe::Committed(_)), pinned, "{found:?}");
        let again = adapter.probe(&inquiry).await;
        assert_eq!(matches!(again, Probe::Committed(_)), pinned, "{again:?}");
        let tools = adapter.discover().await.unwrap();
        pin = Some(tools[0].digest(&contract.adapter).to_string());
        adapter.close().await;
    }
    let calls = peer.calls();
    assert_eq!(calls.len(), 2, "what was not pinned was asked");
    for call in &calls {
        assert_eq!(call.header("authorization"), Some("Bearer s3cret-canary"));
        assert_eq!(call.message["params"]["arguments"]["token"], json!(TOKEN));
    }
    let sessions = [0, 1].map(|number| calls[number].header("mcp-session-id"));
    assert!(sessions[0].is_some());
    assert_ne!(sessions[0], sessions[1], "one may go on as what was rotated away since");
}
