//! The protocol's side of the witness: one connection, one request after the other.
//!
//! Owns the methods that are not calls. It is stateless: there is no session to be lost with the process.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::{io::BufReader, net::TcpStream};

use super::{
    answer, call,
    http::{self, Reaction, Request, Then},
    state::Shared,
    tools,
};

pub(super) const PROTOCOL: &str = "2025-11-25";

/// Serves a connection to its end.
pub(super) async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    // Without the option the socket is slower, not wrong.
    stream.set_nodelay(true).unwrap_or_default();
    let mut stream = BufReader::new(stream);
    while let Ok(Some(request)) = http::read(&mut stream).await {
        let reaction = react(&request, &shared).await;
        if !matches!(reaction.send(&mut stream).await, Ok(true)) {
            return;
        }
    }
}

async fn react(request: &Request, shared: &Arc<Shared>) -> Reaction {
    match request.method.as_str() {
        "POST" => {}
        "DELETE" => return Reaction::empty(204),
        _ => return Reaction::empty(405),
    }
    let Ok(message) = serde_json::from_slice::<Value>(&request.body) else {
        return Reaction::empty(400);
    };
    let Some(id) = message.get("id").filter(|id| !id.is_null()) else {
        return Reaction::empty(202);
    };
    match message.get("method").and_then(Value::as_str).unwrap_or_default() {
        "initialize" => answer::result(id, &hello()),
        "ping" => answer::result(id, &json!({})),
        "tools/list" => answer::result(id, &json!({"tools": tools::listed()})),
        "tools/call" => {
            let call = call::Call::read(&message, id, request.header("authorization"));
            match call {
                Some(call) => call.take(shared).await.unwrap_or(Reaction::nothing(Then::Close)),
                None => answer::error(id, -32_602, "no such call"),
            }
        }
        _ => answer::error(id, -32_601, "no such method"),
    }
}

fn hello() -> Value {
    json!({
        "protocolVersion": PROTOCOL,
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "witness", "version": "1"},
    })
}
