//! A call as a message to another agent, over A2A 1.0 (JSON-RPC binding; TS-01).
//!
//! Owns which arguments form the message, and what the states of the agent's task mean for the call. The agent answers at once with a
//! task, which is polled until it ends or needs input. Invariant: a task that is still running when the call's time has expired has an
//! unknown outcome, if the call may have an effect.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, header};
use placet_adapter::{
    adapter::{Conditions, Dispatch},
    outcome::{AdapterError, Answer, Outcome, Rejection, cut},
};
use placet_types::{
    contract::{Capability, not_executed::ErrorAnswer},
    json::{JsonLimits, parse_strict},
};
use serde_json::{Map, Value, json};
use tokio::time::{Instant, timeout_at};

use crate::{
    rest,
    target::{Target, unreached},
};

/// The value of `A2A-Version`, which contracts pin.
pub(crate) const VERSION: &str = "1.0";
/// Arguments with a meaning of their own; all others are data.
const MESSAGE: &str = "message";
const TASK: &str = "task_id";
const CONTEXT: &str = "context_id";
/// How much of a task's id is kept in a reason.
const ID_BYTES_MAX: usize = 200;
/// The pause before a task is polled again: at first, and at most.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Sends the message and waits for the end of the task.
pub(crate) async fn call(
    target: &Target,
    capability: &Capability,
    dispatch: &Dispatch,
    conditions: &Conditions,
) -> Outcome {
    let headers = match headers(target, conditions) {
        Ok(headers) => headers,
        Err(error) => return Outcome::NotExecuted(error),
    };
    let Some(message) = message(dispatch) else {
        let why = "a message has `message`, or arguments that are sent as data".to_owned();
        return Outcome::NotExecuted(AdapterError::Refused(why));
    };
    let params = json!({ "message": message, "configuration": { "returnImmediately": true } });
    let deadline = Instant::now() + Duration::from_millis(conditions.timeout_ms);
    let until = deadline + Duration::from_millis(conditions.listen_ms);
    let agent = Agent { target, capability, headers, until };
    let sent = match agent.ask("SendMessage", &params, deadline).await {
        Ok(sent) => sent,
        Err(outcome) => return *outcome,
    };
    let Some(task) = sent.get("task").filter(|task| !task.is_null()) else {
        // An agent may answer with a message and no task.
        return match sent.get("message") {
            Some(message) => Outcome::Done(answer("completed", message, &[message])),
            None => {
                Outcome::Unknown("the agent answered with neither a task nor a message".to_owned())
            }
        };
    };
    timeout_at(until, agent.ended(task.clone()))
        .await
        .unwrap_or_else(|_elapsed| lost(task, "did not end in time"))
}

/// The outcome of a call whose task has none that is known. The task's id is what an operator can ask the agent about.
fn lost(task: &Value, why: &str) -> Outcome {
    let id = task.get("id").and_then(Value::as_str).unwrap_or_default();
    let id = cut(id.escape_debug().to_string(), ID_BYTES_MAX);
    Outcome::Unknown(format!("the agent's task `{id}` {why}"))
}

struct Agent<'a> {
    target: &'a Target,
    capability: &'a Capability,
    headers: HeaderMap,
    /// When nobody listens for an answer any more.
    until: Instant,
}

impl Agent<'_> {
    /// The outcome of a task, once it has ended or needs input.
    async fn ended(&self, mut task: Value) -> Outcome {
        let mut pause = PAUSE_MIN;
        loop {
            let state = task.pointer("/status/state").and_then(Value::as_str).unwrap_or_default();
            let state = state.trim_start_matches("TASK_STATE_").to_lowercase();
            let artifacts = task.get("artifacts").and_then(Value::as_array).into_iter().flatten();
            let said: Vec<&Value> =
                task.pointer("/status/message").into_iter().chain(artifacts).collect();
            match state.as_str() {
                // An agent that needs input has done its part: the caller continues with `task_id`.
                "completed" | "input_required" | "auth_required" => {
                    return Outcome::Done(answer(&state, &task, &said));
                }
                "failed" | "rejected" | "canceled" => {
                    return Outcome::Failed(answer(&state, &task, &said));
                }
                "submitted" | "working" => {}
                _ => {
                    return lost(&task, "is in a state that A2A does not have");
                }
            }
            let Some(id) = task.get("id").and_then(Value::as_str) else {
                return Outcome::Unknown("the agent's task has no id".to_owned());
            };
            tokio::time::sleep(pause).await;
            pause = pause.saturating_mul(2).min(PAUSE_MAX);
            match self.ask("GetTask", &json!({ "id": id }), self.until).await {
                Ok(next) => task = next,
                // Polling changes nothing: an agent that is away for a moment is polled again, until the call's time has expired.
                Err(outcome) if is_away(&outcome) => {}
                // The fate of the message is not known, whatever the agent answers to the poll.
                Err(_) => return lost(&task, "cannot be asked for"),
            }
        }
    }

    /// One request and its result. It is not sent after the deadline; its answer may take longer.
    async fn ask(
        &self,
        method: &str,
        params: &Value,
        deadline: Instant,
    ) -> Result<Value, Box<Outcome>> {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let mut request = Request::builder().method(Method::POST).uri(self.target.url.as_str());
        if let Some(headers) = request.headers_mut() {
            headers.extend(self.headers.clone());
        }
        let request = request.body(Bytes::from(body.to_string())).map_err(|_invalid| {
            let why = "the message cannot be sent".to_owned();
            Box::new(Outcome::NotExecuted(AdapterError::Refused(why)))
        })?;
        let response = self
            .target
            .client
            .send_listening(
                request,
                deadline.saturating_duration_since(Instant::now()),
                self.until.saturating_duration_since(deadline),
            )
            .await
            .map_err(|error| {
                Box::new(match unreached(&error) {
                    Some(error) => Outcome::NotExecuted(error),
                    None => Outcome::Unknown(error.to_string()),
                })
            })?;
        if !response.status().is_success() {
            return Err(Box::new(rest::refused(self.capability, &response)));
        }
        let unusable =
            || Box::new(Outcome::Unknown("the agent's answer is no json-rpc".to_owned()));
        let answer =
            parse_strict(response.body(), &JsonLimits::default()).map_err(|_garbage| unusable())?;
        let error = answer.get("error").filter(|error| !error.is_null());
        match (answer.get("result"), error) {
            (Some(result), None) => Ok(result.clone()),
            (_, Some(error)) => Err(Box::new(self.rejected(error))),
            (None, None) => Err(unusable()),
        }
    }

    /// The outcome of an error of the agent: for a call that changes nothing, a failure; for all others, whatever the contract says.
    fn rejected(&self, error: &Value) -> Outcome {
        let code = error.get("code").and_then(Value::as_i64).unwrap_or_default();
        let message = error.get("message").and_then(Value::as_str).unwrap_or_default();
        if !self.capability.is_write_class() {
            let output = json!({ "content": [{ "type": "text", "text": message }], "error": { "code": code } });
            return Outcome::Failed(Answer { output, ..Answer::default() });
        }
        let answer = ErrorAnswer::JsonRpc(i32::try_from(code).unwrap_or_default());
        let error = AdapterError::Refused(format!("code {code}: {message}"));
        Outcome::Rejected(Rejection { answer, error })
    }
}

/// Whether the agent may answer when it is asked again.
fn is_away(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Unknown(_))
        || matches!(outcome.not_executed(), Some(AdapterError::Unavailable(_)))
}

fn headers(target: &Target, conditions: &Conditions) -> Result<HeaderMap, AdapterError> {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    headers.insert("a2a-version", HeaderValue::from_static(VERSION));
    let traces = [
        ("traceparent", &conditions.trace.traceparent),
        ("tracestate", &conditions.trace.tracestate),
    ];
    for (name, value) in traces {
        if let Some(value) = value.as_ref().and_then(|value| HeaderValue::try_from(value).ok()) {
            headers.insert(name, value);
        }
    }
    if let Some(credential) = &conditions.credential {
        let (name, value) = target.header(credential)?;
        headers.insert(name, value);
    }
    Ok(headers)
}

/// The message of a call, under the token of its dispatch; `None` if there is nothing to send.
fn message(dispatch: &Dispatch) -> Option<Value> {
    let args = dispatch.args();
    let given = |name: &str| args.get(name).filter(|value| !value.is_null());
    let text = given(MESSAGE).map(
        |text| json!({ "text": text.as_str().map_or_else(|| text.to_string(), str::to_owned) }),
    );
    let data: Map<String, Value> = args
        .iter()
        .filter(|(name, _)| ![MESSAGE, TASK, CONTEXT].contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let data = (!data.is_empty()).then(|| json!({ "data": data }));
    let parts: Vec<Value> = text.into_iter().chain(data).collect();
    if parts.is_empty() {
        return None;
    }
    let mut message = Map::new();
    message.insert("messageId".to_owned(), json!(dispatch.token()));
    message.insert("role".to_owned(), json!("ROLE_USER"));
    message.insert("parts".to_owned(), json!(parts));
    for (argument, member) in [(TASK, "taskId"), (CONTEXT, "contextId")] {
        if let Some(id) = given(argument) {
            message.insert(member.to_owned(), id.clone());
        }
    }
    Some(Value::Object(message))
}

/// The agent's answer: its texts to read, and its data, addresses, state and ids to act on. Other content is counted and not kept.
fn answer(state: &str, of: &Value, said: &[&Value]) -> Answer {
    let parts: Vec<&Value> =
        said.iter().filter_map(|one| one.get("parts")?.as_array()).flatten().collect();
    let of_kind = |kind: &str| -> Vec<&Value> {
        parts.iter().filter_map(|part| part.get(kind).filter(|value| !value.is_null())).collect()
    };
    let (texts, data, urls) = (of_kind("text"), of_kind("data"), of_kind("url"));
    let content: Vec<Value> =
        texts.iter().map(|text| json!({ "type": "text", "text": text })).collect();
    let task = of.get("id").or_else(|| of.get("taskId"));
    let structured = json!({
        "state": state, "text": texts, "data": data, "urls": urls, "task_id": task,
        "context_id": of.get("contextId"),
    });
    let mut output = json!({ "content": content, "structured": structured });
    let kept = texts.len().saturating_add(data.len()).saturating_add(urls.len());
    let others = parts.len().saturating_sub(kept);
    if let Some(output) = output.as_object_mut().filter(|_| others > 0) {
        let note =
            format!("parts with other content than text, data or a url are not kept: {others}");
        output.insert("notes".to_owned(), json!([note]));
    }
    Answer { output, ..Answer::default() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use placet_adapter::outcome::Outcome;
    use serde_json::{Value, json};

    use super::message;
    use crate::tests::{contract, dispatch, endpoint, paid};

    fn task(state: &str) -> Value {
        let parts = json!([
            { "text": "booked" }, { "url": "https://a.example/1.pdf", "mediaType": "application/pdf" },
            { "raw": "AAAA" }, { "raw": "AAAB" },
        ]);
        json!({ "id": "t-1", "status": { "state": state }, "artifacts": [{ "parts": parts }] })
    }

    fn result(result: &Value) -> Value {
        json!({ "jsonrpc": "2.0", "id": 1, "result": result, "error": null })
    }

    #[tokio::test]
    async fn a_task_that_ends_late_is_heard_with_all_that_can_be_kept() {
        let begun = result(&json!({ "task": task("TASK_STATE_WORKING") }));
        let ended = result(&task("TASK_STATE_COMPLETED"));
        let url = endpoint(Duration::from_millis(10), &[begun, ended]).await;
        let Outcome::Done(answer) = paid("a2a", &url, 90, 20_000).await else {
            panic!("the end of the task is not heard");
        };
        let output = &answer.output;
        assert_eq!(output["structured"]["urls"], json!(["https://a.example/1.pdf"]), "{output:#}");
        assert_eq!(output["structured"]["text"], json!(["booked"]), "{output:#}");
        assert!(
            output["notes"][0].as_str().is_some_and(|note| note.ends_with(": 2")),
            "{output:#}"
        );
    }

    #[tokio::test]
    async fn a_task_that_does_not_end_is_named_in_the_reason() {
        let begun = result(&json!({ "task": task("TASK_STATE_WORKING") }));
        let still = result(&task("TASK_STATE_WORKING"));
        let url = endpoint(Duration::ZERO, &[begun, still]).await;
        let Outcome::Unknown(reason) = paid("a2a", &url, 1_000, 0).await else {
            panic!("a task without an end has an outcome");
        };
        assert!(reason.contains("`t-1`"), "{reason}");
    }

    #[test]
    fn an_argument_that_is_null_is_absent() {
        let contract = contract("a2a", "http://127.0.0.1:9/", |_| {});
        let sent = dispatch(&contract, &json!({ "message": "go on", "task_id": null }));
        let sent = message(&sent).unwrap();
        assert!(sent.get("taskId").is_none(), "{sent}");
        let nothing = dispatch(&contract, &json!({ "message": null }));
        assert!(message(&nothing).is_none());
    }
}
