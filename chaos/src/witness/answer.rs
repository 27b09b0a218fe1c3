//! What the witness answers: results, and the bytes of JSON-RPC around them.

use serde_json::{Value, json};

use super::{
    http::{Reaction, Then},
    state::Applied,
};

const JSON: &str = "application/json";

pub(super) fn result(id: &Value, result: &Value) -> Reaction {
    let document = json!({"jsonrpc": "2.0", "id": id, "result": result});
    Reaction::answer(200, JSON, document.to_string().as_bytes())
}

pub(super) fn error(id: &Value, code: i32, message: &str) -> Reaction {
    let error = json!({"code": code, "message": message});
    let document = json!({"jsonrpc": "2.0", "id": id, "error": error});
    Reaction::answer(200, JSON, document.to_string().as_bytes())
}

/// A result and then an error, both as the answer of one call.
pub(super) fn twice(id: &Value, result: &Value) -> Reaction {
    let first = json!({"jsonrpc": "2.0", "id": id, "result": result});
    let second =
        json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32_603, "message": "again"}});
    let body = format!("event: message\ndata: {first}\n\nevent: message\ndata: {second}\n\n");
    Reaction::answer(200, "text/event-stream", body.as_bytes())
}

/// Half an answer, the connection closed as if that were all.
pub(super) fn truncated(id: &Value, whole: &Value) -> Reaction {
    let whole = result(id, whole);
    let half = whole.bytes.len().saturating_sub(24);
    whole.cut(half, Then::Close)
}

/// The result of an effect: the same for every answer about it.
pub(super) fn of_effect(applied: &Applied) -> Value {
    let said = json!({
        "token": applied.arrival.token,
        "args": applied.arrival.args,
        "tool": applied.arrival.tool,
        "effect": applied.effect,
    });
    of_structured(&said, "done")
}

pub(super) fn of_structured(structured: &Value, text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}], "structuredContent": structured})
}

/// A failure result, as a tool reports it.
pub(super) fn of_failure() -> Value {
    json!({"content": [{"type": "text", "text": "the item is locked"}], "isError": true})
}
