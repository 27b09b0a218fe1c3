//! Answers to calls that came over MCP.
//!
//! Owns parsing a `tools/call` result as a client does: from the bytes alone, with none of Placet's types.

use serde_json::{Value, json};

use super::{
    canonical::fingerprint,
    request::{Answer, Reply, ResultSeen, leaks, of_problem, text},
};

/// The protocol error for a tool that does not exist, or not for this caller, as MCP defines it.
const UNKNOWN_TOOL: i64 = -32_602;
/// Where a result, or an error, names its call and the call's state.
const CALL: [&str; 2] = ["/result/_meta/io.placet~1call", "/error/data/io.placet~1call"];

impl Reply {
    /// Reads an answer of `/mcp`. Anything but a tool's result, such as a problem document, is read as for other endpoints.
    pub(crate) fn read_over_mcp(
        request: u64,
        status: u16,
        body: &[u8],
        secrets: &[(String, String)],
    ) -> Self {
        let document: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
        let Some(call) = CALL.iter().find_map(|place| document.pointer(place)) else {
            let mut read = Self::read(request, status, body, secrets);
            if document.pointer("/error/code").and_then(Value::as_i64) == Some(UNKNOWN_TOOL) {
                read.answer = Answer::Refused;
                read.code = Some("TOOL_NOT_FOUND".to_owned());
                read.execution = Some("not_executed".to_owned());
            }
            return read;
        };
        let error = call.get("error").unwrap_or(&Value::Null);
        let code = text(error, "error_code");
        let answer = match call.get("status").and_then(Value::as_str) {
            Some("succeeded") => Answer::Succeeded,
            Some("failed") => Answer::Failed,
            _ => of_problem(status, code.as_deref(), call),
        };
        Self {
            request,
            status,
            answer,
            code,
            execution: text(error, "execution"),
            replayed: call.get("replayed").and_then(Value::as_bool).unwrap_or(false),
            call_id: text(call, "handle"),
            approval_id: text(call, "approval_id"),
            result: matches!(answer, Answer::Succeeded | Answer::Failed).then(|| said(&document)),
            leaks: leaks(body, secrets),
        }
    }
}

/// The tool's content.
fn said(document: &Value) -> ResultSeen {
    let part = |name: &str| document.pointer(&format!("/result/{name}"));
    let said = part("structuredContent").unwrap_or(&Value::Null);
    let kept = json!([part("content"), said, part("isError")]);
    ResultSeen { digest: fingerprint(&kept), token: text(said, "token"), args: text(said, "args") }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Answer, Reply};

    fn read(call: &Value, structured: &Value) -> Reply {
        let body = json!({"jsonrpc": "2.0", "id": 1, "result": {
            "content": [], "structuredContent": structured, "isError": false, "_meta": {"io.placet/call": call},
        }});
        Reply::read_over_mcp(1, 200, body.to_string().as_bytes(), &[])
    }

    #[test]
    fn a_replay_has_the_digest_of_the_first_answer_and_nothing_else_has() {
        let call = |replayed: bool| json!({"status": "succeeded", "handle": "call_1", "replayed": replayed});
        let said = |token: &str| json!({"token": token, "args": "sha256:00"});
        let (first, replay) = (read(&call(false), &said("a")), read(&call(true), &said("a")));
        assert_eq!((first.answer, first.replayed), (Answer::Succeeded, false));
        assert_eq!((replay.answer, replay.replayed), (Answer::Succeeded, true));
        assert_eq!(first.call_id.as_deref(), Some("call_1"));
        assert_eq!(first.result, replay.result);
        assert_ne!(first.result, read(&call(true), &said("b")).result);
    }

    #[test]
    fn a_call_without_a_result_is_read_by_its_code() {
        for (status, code, answer) in [
            ("refused", "IDEMPOTENCY_CONFLICT", Answer::Conflict),
            ("unknown", "OUTCOME_UNKNOWN", Answer::Unknown),
            ("pending", "IN_PROGRESS", Answer::InProgress),
            ("pending", "APPROVAL_PENDING", Answer::Pending),
            ("refused", "APPROVAL_DENIED", Answer::Denied),
            ("refused", "OVERLOADED", Answer::Refused),
            ("unknown", "LEDGER_UNAVAILABLE", Answer::Refused),
        ] {
            let error = json!({"error_code": code, "execution": "not_executed"});
            let reply = read(&json!({"status": status, "handle": "c", "error": error}), &json!({}));
            assert_eq!((reply.answer, reply.result), (answer, None), "{code}");
            assert_eq!(reply.execution.as_deref(), Some("not_executed"));
        }
    }

    #[test]
    fn what_is_no_result_of_a_tool_is_read_as_everywhere() {
        let read = |document: Value| {
            Reply::read_over_mcp(1, 503, document.to_string().as_bytes(), &[]).answer
        };
        assert_eq!(read(json!({"error_code": "OVERLOADED"})), Answer::Refused);
        assert_eq!(
            read(json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32602}})),
            Answer::Refused
        );
        assert_eq!(
            read(json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32603}})),
            Answer::InvalidResponse
        );
        let error = json!({"error_code": "LEDGER_UNAVAILABLE", "execution": "unknown"});
        let data = json!({"io.placet/call": {"status": "refused", "error": error}});
        let unanswered =
            json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "data": data}});
        assert_eq!(read(unanswered), Answer::Refused);
    }
}
