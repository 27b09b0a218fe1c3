//! The state of a call as told to a model: content to read, structured content to act on, and Placet's own statement about the call.
//!
//! Owns the words. A refusal is a result with `isError`, since a model can act on that; protocol errors are only for faults of the
//! protocol. Invariant: the result of a call that may have had an effect never reads as "not executed".

use axum::response::{IntoResponse as _, Response};
use http::{StatusCode, header};
use rmcp::{
    ErrorData,
    model::{
        CallToolRequestParams, CallToolResult, CompleteRequestParams, ContentBlock, CustomRequest,
        ErrorCode as RpcCode, GetPromptRequestParams, GetTaskParams, MetaObject,
        ReadResourceRequestParams, RequestId, ServerJsonRpcMessage, ServerResult,
    },
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use placet_engine::{
    answer::{Answer, Held},
    engine::Engine,
};
use placet_identity::VerifiedCaller;
use placet_types::{
    envelope::result::{ResultStatus, ToolResultEnvelope},
    error::{ErrorCode, Execution, Refusal},
};

use crate::{meta::CALL, tools::AWAIT};

/// What comes before a result that does not have the form that its tool declares.
const DONE: &str = "The call WAS executed and succeeded: do not repeat it. Its result does not have the form that the tool declares, so it is given as text.";

/// What comes before the note of a result that is withheld.
const WITHHELD: &str = "The call WAS executed and succeeded: do not repeat it. Its result is too large or cannot be kept, so it is withheld.";
const WITHHELD_READ: &str = "The call was executed and changed nothing, but its result is too large or cannot be kept, so it is withheld. Call again for less of it, such as a page or a part.";
const WITHHELD_FAILURE: &str = "The call WAS executed and failed, as the tool reports. Its result is too large or cannot be kept, so it is withheld.";

/// The most characters that are said of what is wrong with parameters, which may quote them.
const FAULT_CHARS_MAX: usize = 256;

/// The tool that a result belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Of<'a> {
    pub(crate) tool: &'a str,
    pub(crate) engine: &'a Engine,
    pub(crate) caller: &'a VerifiedCaller,
}

impl Of<'_> {
    /// Whether the tool declares an output schema. Clients then reject any other structured content, so Placet's own statements go into
    /// `_meta` and the text.
    fn declares_output(self) -> bool {
        self.tool != AWAIT && self.engine.declares_output(self.caller, self.tool)
    }
}

/// The result of a call.
///
/// # Errors
/// A protocol error for a tool that does not exist, or that this caller may not use: both alike.
pub(crate) fn result_of(answer: &Answer, of: Of<'_>) -> Result<CallToolResult, ErrorData> {
    match answer {
        Answer::Finished(result) => {
            let has_output = result.status == ResultStatus::Succeeded || !result.output.is_null();
            Ok(if has_output {
                executed(result, of.declares_output())
            } else {
                refusal(result, of)
            })
        }
        Answer::Held(held) => Ok(pending(&awaited(held), &held.result, of)),
        Answer::InProgress(result) => {
            Ok(pending("the call is being executed and has not ended yet", result, of))
        }
        Answer::Refused(refused) if refused.refusal.code == ErrorCode::ToolNotFound => {
            Err(unknown_tool(of.tool))
        }
        Answer::Refused(refused) => Ok(refusal(&refused.result, of)),
    }
}

/// The error for an unknown tool.
pub(crate) fn unknown_tool(name: &str) -> ErrorData {
    let shown: String = name.chars().take(128).collect();
    ErrorData::invalid_params(format!("unknown tool: {shown}"), None)
}

/// The error for a request that the SDK knows only as one of an unknown method: it falls back to that for one whose parameters it cannot
/// read.
pub(crate) fn unreadable(request: CustomRequest) -> ErrorData {
    let CustomRequest { method, params, .. } = request;
    let params = params.unwrap_or_default();
    let fault = match method.as_str() {
        "tools/call" => fault_of::<CallToolRequestParams>(params),
        "resources/read" => fault_of::<ReadResourceRequestParams>(params),
        "prompts/get" => fault_of::<GetPromptRequestParams>(params),
        "completion/complete" => fault_of::<CompleteRequestParams>(params),
        "tasks/get" | "tasks/cancel" | "tasks/update" => fault_of::<GetTaskParams>(params),
        _ => {
            let message = format!("there is no method `{method}` here");
            return ErrorData::new(RpcCode::METHOD_NOT_FOUND, message, None);
        }
    };
    let fault: String = fault.unwrap_or_default().chars().take(FAULT_CHARS_MAX).collect();
    ErrorData::invalid_params(format!("the parameters of `{method}` are not valid: {fault}"), None)
}

fn fault_of<T: DeserializeOwned>(params: Value) -> Option<String> {
    serde_json::from_value::<T>(params).err().map(|error| error.to_string())
}

/// Who is awaited, in a sentence.
pub(crate) fn awaited(held: &Held) -> String {
    let message = held.result.error.as_ref().map_or("", |error| error.message.as_str());
    let groups: Vec<String> = held
        .requirement
        .groups
        .iter()
        .map(|(group, count)| format!("{count} of {group}"))
        .collect();
    let mut said = message.to_owned();
    if !groups.is_empty() {
        said = format!("{said}; who has to agree: {}", groups.join(", "));
    }
    said
}

/// A call that was executed: the tool's output, in the form that an MCP server gave it, if one did.
fn executed(result: &ToolResultEnvelope, declares_output: bool) -> CallToolResult {
    let has_failed = result.status != ResultStatus::Succeeded;
    let (mut content, structured) = told(&result.output);
    let conforms = result.output.get("conforms").is_none_or(|conforms| conforms == true);
    let fits = has_failed || (structured.is_some() && conforms) || !declares_output;
    if !fits {
        content.extend(structured.as_ref().map(|said| ContentBlock::text(said.to_string())));
    }
    let is_withheld = result.output.get("withheld").is_some_and(|withheld| withheld == true);
    // Without these words a client would take the result for that of a call that failed, and call again.
    let first = match (is_withheld, has_failed) {
        (true, true) => Some(WITHHELD_FAILURE),
        (true, false) if result.mutations.is_empty() => Some(WITHHELD_READ),
        (true, false) => Some(WITHHELD),
        (false, _) => (!fits).then_some(DONE),
    };
    if let Some(first) = first {
        content.insert(0, ContentBlock::text(first));
    }
    let mut said = CallToolResult::success(content);
    said.structured_content = structured.filter(|_| fits);
    said.is_error = Some(has_failed || first.is_some());
    said.meta = Some(meta_of(result));
    said
}

/// The content and the structured content of an adapter's answer.
fn told(output: &Value) -> (Vec<ContentBlock>, Option<Value>) {
    if let Some(object) = output.as_object()
        && let Some(content) = blocks(object)
    {
        return (content, object.get("structured").cloned());
    }
    let text = match output {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            output.to_string()
        }
    };
    let structured = output.is_object().then(|| output.clone());
    (vec![ContentBlock::text(text)], structured)
}

/// The content of an MCP server's result, as the adapter keeps it.
fn blocks(object: &Map<String, Value>) -> Option<Vec<ContentBlock>> {
    let is_ours = object.keys().all(|key| {
        matches!(
            key.as_str(),
            "content" | "structured" | "notes" | "error" | "withheld" | "conforms"
        )
    });
    if !is_ours || object.is_empty() {
        return None;
    }
    let mut content: Vec<ContentBlock> = match (object.get("content"), object.get("structured")) {
        (Some(content), _) => serde_json::from_value(content.clone()).ok()?,
        (None, Some(structured)) => vec![ContentBlock::text(structured.to_string())],
        (None, None) => Vec::new(),
    };
    if let Some(Value::Array(notes)) = object.get("notes") {
        content.extend(notes.iter().filter_map(Value::as_str).map(ContentBlock::text));
    }
    Some(content)
}

/// A call that has not ended yet. This is not an error: nothing went wrong.
fn pending(why: &str, result: &ToolResultEnvelope, of: Of<'_>) -> CallToolResult {
    let handle = &result.tool_call_id;
    let waits_for_caller =
        result.pending_approval.as_ref().is_some_and(|pending| pending.awaits_credential);
    let (next, remediation) = if waits_for_caller {
        (
            "To have it executed call the same tool with the same arguments again.".to_owned(),
            "Call the same tool with the same arguments, with a new token.".to_owned(),
        )
    } else {
        (
            format!(
                "To get its result call `{AWAIT}` with {{\"handle\": \"{handle}\"}}, or the same tool with the same arguments."
            ),
            format!("Call `{AWAIT}` with the handle to collect the result."),
        )
    };
    let text = format!(
        "PENDING: {why}. The call has NOT been executed yet. Do not repeat it with other arguments. {next}"
    );
    let mut said = result.clone();
    if let Some(error) = &mut said.error {
        // Its own words are for clients of the HTTP API.
        error.remediation = remediation;
    }
    with_envelope(CallToolResult::success(vec![ContentBlock::text(text)]), &said, of)
}

/// The remediation as lines of a text, with the time that `Retry-After` has over HTTP: a model sees no header.
fn what_to_do(remediation: &str, retry_after_ms: Option<u64>) -> String {
    let mut text = String::new();
    if !remediation.is_empty() {
        text.push_str(&format!("\nWhat to do: {remediation}"));
    }
    if let Some(ms) = retry_after_ms {
        text.push_str(&format!("\nRetry-After: in {} s", ms.div_ceil(1_000)));
    }
    text
}

/// What to do about a key that was used before.
const OTHER_KEY: &str = "For a new call send another `io.placet/idempotency-key` in `_meta`, for a retry the original arguments.";

/// The result, with the key named as clients of MCP send it.
fn with_own_key(mut result: ToolResultEnvelope) -> ToolResultEnvelope {
    if let Some(error) = &mut result.error
        && error.error_code == ErrorCode::IdempotencyConflict
    {
        error.remediation = OTHER_KEY.to_owned();
    }
    result
}

/// A call that was refused, or whose outcome is unknown.
fn refusal(result: &ToolResultEnvelope, of: Of<'_>) -> CallToolResult {
    let result = &with_own_key(result.clone());
    let text = match &result.error {
        Some(error) => {
            let mut text = format!("{}: {}", error.error_code, error.message);
            for problem in &error.problems {
                text.push_str(&format!("\n{}: {}", problem.pointer, problem.problem));
            }
            text.push_str(&what_to_do(&error.remediation, error.retry_after_ms));
            text
        }
        None => "the call was refused".to_owned(),
    };
    with_envelope(CallToolResult::error(vec![ContentBlock::text(text)]), result, of)
}

fn with_envelope(
    mut said: CallToolResult,
    result: &ToolResultEnvelope,
    of: Of<'_>,
) -> CallToolResult {
    if of.declares_output() {
        // A client takes a result without structured content from such a tool only as an error.
        said.is_error = Some(true);
    } else {
        said.structured_content = Some(envelope(result));
    }
    let mut meta = meta_of(result);
    meta.0.insert(CALL.to_owned(), envelope(result));
    said.meta = Some(meta);
    said
}

/// What a program acts on.
fn envelope(result: &ToolResultEnvelope) -> Value {
    json!({
        "status": result.status,
        "handle": result.tool_call_id,
        "error": result.error,
        "approval_id": result.approval_id,
        "pending_approval": result.pending_approval,
        "policy_decision_id": result.policy_decision_id,
    })
}

pub(crate) fn meta_of(result: &ToolResultEnvelope) -> MetaObject {
    let mut meta = MetaObject::new();
    let mut said = json!({
        "status": result.status,
        "handle": result.tool_call_id,
        "replayed": result.replayed,
        "policy_decision_id": result.policy_decision_id,
        "approval_id": result.approval_id,
    });
    if let (Some(error), Some(fields)) = (&result.error, said.as_object_mut()) {
        fields.insert("error".to_owned(), json!(error));
    }
    meta.insert(CALL.to_owned(), said);
    meta
}

/// The response to a request of a session.
pub(crate) fn response(id: RequestId, result: Result<CallToolResult, ErrorData>) -> Response {
    let message = match result {
        Ok(mut result) => {
            // These revisions do not have it.
            result.result_type = None;
            ServerJsonRpcMessage::response(ServerResult::CallToolResult(result), id)
        }
        Err(error) => ServerJsonRpcMessage::error(error, Some(id)),
    };
    match serde_json::to_vec(&message) {
        Ok(body) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Err(error) => {
            tracing::error!(%error, "an answer could not be written");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// The engine's refusal to accept a call at all.
pub(crate) fn refused(refusal: &Refusal, of: Of<'_>) -> CallToolResult {
    let remediation = if of.tool == AWAIT && refusal.code == ErrorCode::NotFound {
        "Use the `handle` of a pending result, as it was given."
    } else {
        refusal.code.remediation()
    };
    let what_to_do = what_to_do(remediation, refusal.retry_after_ms);
    let text = format!("{}: {}{what_to_do}", refusal.code, refusal.message);
    let said = json!({
        "status": "refused",
        "error": {
            "error_code": refusal.code,
            "message": refusal.message,
            "retryable": refusal.code.retryable(),
            "remediation": remediation,
            "execution": refusal.execution,
            "retry_after_ms": refusal.retry_after_ms,
        },
    });
    let mut result = CallToolResult::error(vec![ContentBlock::text(text)]);
    let mut meta = MetaObject::new();
    meta.insert(CALL.to_owned(), said.clone());
    result.meta = Some(meta);
    if !of.declares_output() {
        result.structured_content = Some(said);
    }
    result
}

/// The error for a request that nobody is left to answer, since its session or the service ends: what became of a call is found out by
/// repeating it.
pub(crate) fn unanswered() -> ErrorData {
    let code = ErrorCode::LedgerUnavailable;
    let message = "the session or the service ended before this was answered";
    let said = json!({
        "status": "refused",
        "error": {
            "error_code": code,
            "message": message,
            "retryable": code.retryable(),
            "remediation": code.remediation(),
            "execution": Execution::Unknown,
        },
    });
    let text = format!("{code}: {message}. What to do: {}", code.remediation());
    ErrorData::internal_error(text, Some(json!({ CALL: said })))
}

/// The refusal of a malformed handle.
pub(crate) fn no_handle() -> Refusal {
    Refusal::new(
        ErrorCode::ValidationError,
        "`handle` is missing or not the handle of a pending result",
    )
}

#[cfg(test)]
mod tests {
    use placet_types::envelope::result::{Mutation, ToolResultEnvelope};
    use serde_json::{Value, json};

    use super::{executed, what_to_do, with_own_key};

    fn result(status: &str, output: &Value) -> ToolResultEnvelope {
        let result = json!({
            "envelope_version": "contextos.tool_result.v1", "tool_call_id": "tc_01ARZ3NDEKTSV4RRFFQ69G5FAV",
            "trace_id": "", "status": status, "output": output, "citations": [], "mutations": [],
            "latency": { "total_ms": 1, "adapter_ms": 1 }, "retries": 0, "cost": { "cents": 0 }, "replayed": false,
        });
        serde_json::from_value(result).unwrap()
    }

    #[test]
    fn a_withheld_result_says_first_that_the_call_was_executed() {
        let note = json!([{ "type": "text", "text": "[result withheld: it is large]" }]);
        let output = json!({ "content": note, "withheld": true });
        for declares_output in [false, true] {
            for (status, first) in [
                ("succeeded", "The call WAS executed and succeeded: do not repeat it."),
                ("failed", "The call WAS executed and failed"),
            ] {
                let mut written = result(status, &output);
                let (action, target) = ("write".to_owned(), "ledger".to_owned());
                written.mutations.push(Mutation { action, target });
                let said = executed(&written, declares_output);
                let said = serde_json::to_value(said).unwrap();
                let text = said["content"][0]["text"].as_str().unwrap();
                assert!(text.starts_with(first) && text.ends_with("withheld."), "{said:#}");
                assert_eq!(said["content"][1], note[0]);
                assert_eq!(said["isError"], true);
            }
        }
        let read = serde_json::to_value(executed(&result("succeeded", &output), false)).unwrap();
        let advice = read["content"][0]["text"].as_str().unwrap();
        assert!(advice.contains("changed nothing") && advice.contains("Call again"), "{advice}");
        let whole = json!({ "content": [{ "type": "text", "text": "paid" }] });
        let said = serde_json::to_value(executed(&result("succeeded", &whole), false)).unwrap();
        assert_eq!(
            (&said["content"][0]["text"], &said["isError"]),
            (&json!("paid"), &json!(false))
        );
    }

    #[test]
    fn a_conflict_names_the_key_as_clients_send_it() {
        let told = |code: &str| {
            let mut result = serde_json::to_value(result("refused", &Value::Null)).unwrap();
            result["error"] = json!({
                "error_code": code, "message": "m", "retryable": false, "remediation": "r", "execution": "not_executed",
            });
            with_own_key(serde_json::from_value(result).unwrap()).error.unwrap().remediation
        };
        assert!(told("IDEMPOTENCY_CONFLICT").contains("`io.placet/idempotency-key`"));
        assert_eq!(told("POLICY_DENIED"), "r");
    }

    #[test]
    fn a_refusal_names_the_time_to_wait_in_its_text() {
        let said = what_to_do("Wait for the time named in Retry-After.", Some(11_001));
        let expected =
            "\nWhat to do: Wait for the time named in Retry-After.\nRetry-After: in 12 s";
        assert_eq!(said, expected);
        assert_eq!(what_to_do("Repeat it.", None), "\nWhat to do: Repeat it.");
    }
}
