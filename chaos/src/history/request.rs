//! Requests of clients and their answers.
//!
//! Owns the forms, and parsing an answer of `POST /v1/calls` or `GET /v1/calls/{id}` as a client does: from the bytes
//! alone, with none of Placet's types. Answers of `/mcp` are read in [`super::over_mcp`].

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Class, canonical::fingerprint};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sent {
    /// Numbers the requests of a run.
    pub(crate) request: u64,
    pub(crate) client: u32,
    pub(crate) node: u32,
    pub(crate) over: Protocol,
    pub(crate) tenant: String,
    pub(crate) agent: String,
    pub(crate) user: Option<String>,
    /// Which tool, by its wire name.
    pub(crate) tool: String,
    pub(crate) class: Class,
    pub(crate) needs_approval: bool,
    pub(crate) run_id: String,
    /// The idempotency key; `None` for reads.
    pub(crate) key: Option<String>,
    /// The [`fingerprint`] of the arguments.
    pub(crate) args: String,
    pub(crate) why: Why,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Protocol {
    /// `/v1`.
    Http,
    /// `/mcp`.
    Mcp,
    /// `/v1/runs/{id}/batches`, as a batch of its own.
    Batch,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Why {
    /// It is the first of its key.
    New,
    /// A duplicate, sent at once.
    Immediately,
    /// A duplicate, sent while the first is in flight.
    InFlight,
    /// A duplicate, sent after a success.
    AfterSuccess,
    /// A duplicate, sent after a failure.
    AfterFailure,
    /// A duplicate, sent after a node came back.
    AfterRestart,
    /// A duplicate, sent after the client lost the answer.
    AfterLoss,
    /// The same key with other arguments.
    ChangedArgs,
    /// The same arguments in another form.
    EqualForm,
    /// The same key from another principal or tenant: a key of its own.
    OtherPrincipal,
    /// Not a call: a poll of one.
    Poll,
    /// A duplicate, sent at the end to learn the state of the key.
    Final,
}

impl Why {
    /// Whether it is another copy of a call that was sent before.
    pub(crate) const fn is_duplicate(self) -> bool {
        !matches!(self, Self::New | Self::OtherPrincipal | Self::Poll)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reply {
    pub(crate) request: u64,
    pub(crate) status: u16,
    pub(crate) answer: Answer,
    pub(crate) code: Option<String>,
    /// Its statement about the effect: `not_executed`, `executed_and_failed` or `unknown`.
    pub(crate) execution: Option<String>,
    /// Whether it is marked as a result recorded earlier.
    pub(crate) replayed: bool,
    pub(crate) call_id: Option<String>,
    pub(crate) approval_id: Option<String>,
    pub(crate) result: Option<ResultSeen>,
    /// Names of the secrets in its bytes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) leaks: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    Succeeded,
    /// The upstream was called, and reported a failure.
    Failed,
    /// Waits for people.
    Pending,
    InProgress,
    Unknown,
    /// The key belongs to another call.
    Conflict,
    /// The key is known, its result is gone.
    Expired,
    /// Denied, or not approved in time.
    Denied,
    /// Not executed, for some other reason.
    Refused,
    /// Not an answer of Placet's.
    InvalidResponse,
}

/// A result as received by a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ResultSeen {
    /// The digest of everything that must be equal in two replays.
    pub(crate) digest: String,
    /// The dispatch token that the witness wrote into it.
    pub(crate) token: Option<String>,
    /// The fingerprint of the arguments that the witness wrote into it.
    pub(crate) args: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lost {
    pub(crate) request: u64,
    pub(crate) how: Loss,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Loss {
    /// The connection was refused: nothing was sent.
    NotConnected,
    /// The connection broke.
    Broken,
    /// The client's timeout passed.
    TimedOut,
    /// The client went away on purpose.
    Abandoned,
}

/// Fields that may differ between two answers with the same result.
const OF_THE_ANSWER: [&str; 3] = ["replayed", "trace_context", "trace_id"];

impl Reply {
    /// Reads an answer. `secrets` are the names and texts that must not occur in it.
    pub(crate) fn read(
        request: u64,
        status: u16,
        body: &[u8],
        secrets: &[(String, String)],
    ) -> Self {
        let document: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
        let error = document.get("error").unwrap_or(&document);
        let code = text(error, "error_code");
        let is_result = document.get("envelope_version").is_some();
        let answer = if is_result {
            of_envelope(&document)
        } else {
            of_problem(status, code.as_deref(), &document)
        };
        let call_id = text(&document, "tool_call_id").or_else(|| text(&document, "call_id"));
        Self {
            request,
            status,
            answer,
            code,
            execution: text(error, "execution"),
            replayed: document.get("replayed").and_then(Value::as_bool).unwrap_or(false),
            call_id,
            approval_id: text(&document, "approval_id"),
            result: matches!(answer, Answer::Succeeded | Answer::Failed)
                .then(|| ResultSeen::read(&document)),
            leaks: leaks(body, secrets),
        }
    }
}

impl ResultSeen {
    fn read(document: &Value) -> Self {
        let mut kept = document.clone();
        if let Some(fields) = kept.as_object_mut() {
            fields.retain(|name, _| !OF_THE_ANSWER.contains(&name.as_str()));
        }
        let said = document.pointer("/output/structured").unwrap_or(&Value::Null);
        Self { digest: fingerprint(&kept), token: text(said, "token"), args: text(said, "args") }
    }
}

pub(super) fn text(document: &Value, name: &str) -> Option<String> {
    document.get(name)?.as_str().map(str::to_owned)
}

fn of_envelope(document: &Value) -> Answer {
    match document.get("status").and_then(Value::as_str) {
        Some("succeeded") => Answer::Succeeded,
        Some("failed") => Answer::Failed,
        Some("pending") => Answer::Pending,
        Some("unknown") => Answer::Unknown,
        Some("refused") => Answer::Refused,
        _ => Answer::InvalidResponse,
    }
}

pub(super) fn of_problem(status: u16, code: Option<&str>, document: &Value) -> Answer {
    match code {
        Some("IDEMPOTENCY_CONFLICT") => Answer::Conflict,
        Some("OUTCOME_UNKNOWN") => Answer::Unknown,
        Some("IN_PROGRESS") => Answer::InProgress,
        Some("RESULT_EXPIRED" | "KEY_TOO_OLD") => Answer::Expired,
        Some("APPROVAL_DENIED" | "APPROVAL_EXPIRED") => Answer::Denied,
        Some("APPROVAL_PENDING") => Answer::Pending,
        Some(_) => Answer::Refused,
        None if status == 202 && document.get("approval_id").is_some() => Answer::Pending,
        None => Answer::InvalidResponse,
    }
}

/// The names of the secrets in `bytes`.
pub(crate) fn leaks(bytes: &[u8], secrets: &[(String, String)]) -> Vec<String> {
    let holds = |secret: &str| {
        !secret.is_empty() && bytes.windows(secret.len()).any(|window| window == secret.as_bytes())
    };
    secrets.iter().filter(|(_, secret)| holds(secret)).map(|(name, _)| name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Answer, Reply};

    fn read(status: u16, document: &Value) -> Reply {
        let secrets = [("key".to_owned(), "hunter2".to_owned())];
        Reply::read(1, status, document.to_string().as_bytes(), &secrets)
    }

    fn envelope(replayed: bool) -> Value {
        json!({
            "envelope_version": "contextos.tool_result.v1", "tool_call_id": "call_1", "status": "succeeded",
            "trace_id": if replayed { "b" } else { "a" }, "replayed": replayed, "retries": 0,
            "output": {"structured": {"token": "plc_1", "args": "sha256:00"}},
        })
    }

    #[test]
    fn a_replay_has_the_digest_of_the_first_answer_and_nothing_else_has() {
        let (first, replay) = (read(200, &envelope(false)), read(200, &envelope(true)));
        assert_eq!(
            (first.answer, first.replayed, replay.replayed),
            (Answer::Succeeded, false, true)
        );
        assert_eq!(first.result.as_ref().unwrap().digest, replay.result.unwrap().digest);
        let mut other = envelope(true);
        other["output"]["structured"]["token"] = json!("plc_2");
        let other = read(200, &other).result.unwrap();
        assert_ne!(first.result.unwrap().digest, other.digest);
        assert_eq!(other.token.as_deref(), Some("plc_2"));
    }

    #[test]
    fn a_problem_is_read_by_its_code() {
        for (status, code, answer) in [
            (422, "IDEMPOTENCY_CONFLICT", Answer::Conflict),
            (409, "OUTCOME_UNKNOWN", Answer::Unknown),
            (409, "IN_PROGRESS", Answer::InProgress),
            (410, "KEY_TOO_OLD", Answer::Expired),
            (403, "APPROVAL_DENIED", Answer::Denied),
            (503, "OVERLOADED", Answer::Refused),
        ] {
            let document = json!({"error_code": code, "execution": "not_executed", "call_id": "c"});
            let reply = read(status, &document);
            assert_eq!((reply.answer, reply.call_id.as_deref()), (answer, Some("c")), "{code}");
        }
        let held = json!({"call_id": "c", "approval_id": "a", "state": "pending"});
        assert_eq!(read(202, &held).answer, Answer::Pending);
        assert_eq!(read(502, &json!("<html>")).answer, Answer::InvalidResponse);
    }

    #[test]
    fn a_secret_in_the_bytes_is_named() {
        assert_eq!(read(200, &json!({"output": "it is hunter2."})).leaks, ["key"]);
        assert!(read(200, &json!({"output": "it is hunter3."})).leaks.is_empty());
    }
}
