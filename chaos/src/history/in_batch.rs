//! Answers to batches of one call.
//!
//! Owns parsing that call's outcome as an orchestrator does: from the bytes alone, with none of Placet's types.

use serde_json::Value;

use super::request::{Answer, Reply, leaks, of_problem, text};

impl Reply {
    /// Reads an answer of `/v1/runs/{id}/batches`. Anything else, such as a problem document, is read as for other endpoints.
    pub(crate) fn read_in_batch(
        request: u64,
        status: u16,
        body: &[u8],
        secrets: &[(String, String)],
    ) -> Self {
        let document: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
        let Some(entry) = document.pointer("/results/0") else {
            let read = Self::read(request, status, body, secrets);
            // Another batch of the run is in progress, which says nothing about this call.
            let is_busy = read.answer == Answer::InProgress;
            return Self { answer: if is_busy { Answer::Refused } else { read.answer }, ..read };
        };
        let envelope = entry.get("result").unwrap_or(entry);
        let read = Self::read(request, status, envelope.to_string().as_bytes(), secrets);
        let code = read.code.as_deref();
        // Like any refusal: by its code.
        let is_executed =
            matches!(text(envelope, "status").as_deref(), Some("succeeded" | "failed"));
        let answer = if is_executed { read.answer } else { of_problem(status, code, envelope) };
        Self { answer, leaks: leaks(body, secrets), ..read }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Answer, Reply};

    fn read(entry: &Value) -> Reply {
        let body = json!({ "run_id": "r", "results": [entry] });
        Reply::read_in_batch(1, 200, body.to_string().as_bytes(), &[])
    }

    fn envelope(status: &str, code: Option<&str>) -> Value {
        json!({ "id": "1", "status": status, "result": {
            "envelope_version": "contextos.tool_result.v1", "tool_call_id": "call_1", "status": status, "replayed": true,
            "output": { "structured": { "token": "plc_1" } },
            "error": code.map(|code| json!({ "error_code": code, "execution": "not_executed" })),
        } })
    }

    #[test]
    fn the_outcome_of_the_call_is_read_and_not_that_of_the_batch() {
        let done = read(&envelope("succeeded", None));
        assert_eq!((done.answer, done.replayed), (Answer::Succeeded, true));
        assert_eq!(done.call_id.as_deref(), Some("call_1"));
        assert_eq!(done.result.unwrap().token.as_deref(), Some("plc_1"));
        for (status, code, answer) in [
            ("refused", "IDEMPOTENCY_CONFLICT", Answer::Conflict),
            ("unknown", "OUTCOME_UNKNOWN", Answer::Unknown),
            ("pending", "IN_PROGRESS", Answer::InProgress),
            ("pending", "APPROVAL_PENDING", Answer::Pending),
            ("refused", "APPROVAL_DENIED", Answer::Denied),
            ("refused", "OVERLOADED", Answer::Refused),
        ] {
            let reply = read(&envelope(status, Some(code)));
            assert_eq!((reply.answer, reply.result), (answer, None), "{code}");
            assert_eq!(reply.execution.as_deref(), Some("not_executed"));
        }
    }

    #[test]
    fn a_call_that_was_none_and_a_batch_that_was_none_are_refused() {
        let error = json!({ "error_code": "TOOL_NOT_FOUND", "execution": "not_executed" });
        let reply = read(&json!({ "id": "1", "status": "refused", "error": error }));
        assert_eq!(
            (reply.answer, reply.code.as_deref()),
            (Answer::Refused, Some("TOOL_NOT_FOUND"))
        );
        let problem = json!({ "error_code": "IN_PROGRESS", "execution": "not_executed" });
        let reply = Reply::read_in_batch(1, 409, problem.to_string().as_bytes(), &[]);
        assert_eq!((reply.answer, reply.code.as_deref()), (Answer::Refused, Some("IN_PROGRESS")));
    }
}
