//! Held calls as tasks, for clients that offer them (SEP-2663, the extension `io.modelcontextprotocol/tasks`).
//!
//! Owns the mapping of a call to a task. The task is the call: its id is the call's, and its state is read from the ledger, so that tasks
//! survive a restart. Invariant: an id is a locator and no credential; one of another caller answers as one that does not exist.

use rmcp::{
    ErrorData,
    model::{CreateTaskResult, DetailedTask, GetTaskResult, Task, TaskPayload, TaskStatus},
};
use serde_json::{Map, Value};

use placet_engine::answer::{Answer, Held};
use placet_types::{
    clock::Timestamp,
    error::{ErrorCode, Refusal},
    ids::ToolCallId,
};

use crate::{
    results::{self, result_of},
    shared::{Asking, Shared},
};

/// How often a client should ask, in milliseconds.
const POLL_MS: u64 = 5_000;

/// The task of a held call. Its record is durable: a call is reported as held only after that.
pub(crate) async fn created(shared: &Shared, asking: &Asking<'_>, held: &Held) -> CreateTaskResult {
    let task = task_of(shared, asking, &Answer::Held(Box::new(held.clone()))).await;
    CreateTaskResult::new(task).with_meta(results::meta_of(&held.result))
}

/// `tasks/get`.
pub(crate) async fn get(
    shared: &Shared,
    asking: &Asking<'_>,
    id: &str,
) -> Result<GetTaskResult, ErrorData> {
    let answer = call_of(shared, asking, id).await?;
    let task = task_of(shared, asking, &answer).await;
    if answer.is_final() {
        shared.held.forget_call(answer.call_id());
    }
    Ok(GetTaskResult::new(DetailedTask::new(task, payload(shared, asking, &answer)?)))
}

/// `tasks/update`: a task never requests input from its client, so there is nothing to accept.
pub(crate) async fn update(
    shared: &Shared,
    asking: &Asking<'_>,
    id: &str,
) -> Result<(), ErrorData> {
    call_of(shared, asking, id).await.map(drop)
}

/// `tasks/cancel`: withdraws what was not sent. `tasks/get` shows that the rest goes on.
pub(crate) async fn cancel(
    shared: &Shared,
    asking: &Asking<'_>,
    id: &str,
) -> Result<(), ErrorData> {
    let answer = call_of(shared, asking, id).await?;
    let reason = "the client cancelled the task";
    match shared.engine.withdraw(&asking.caller, answer.call_id(), reason).await {
        Ok(stands) => {
            if stands.is_final() {
                shared.held.forget_call(stands.call_id());
            }
            Ok(())
        }
        Err(refusal) => Err(fault(&refusal)),
    }
}

async fn call_of(shared: &Shared, asking: &Asking<'_>, id: &str) -> Result<Answer, ErrorData> {
    let unknown = || ErrorData::invalid_params("unknown task", None);
    let id: ToolCallId = id.parse().map_err(|_not_one| unknown())?;
    match shared.engine.call(&asking.caller, &id).await {
        Ok(answer) => Ok(answer),
        Err(refusal) if refusal.code == ErrorCode::NotFound => Err(unknown()),
        Err(refusal) => Err(fault(&refusal)),
    }
}

async fn task_of(shared: &Shared, asking: &Asking<'_>, answer: &Answer) -> Task {
    let id = answer.call_id();
    let record = shared.engine.settled(&asking.caller, id).await.ok();
    let began = began(id).unwrap_or_else(|| shared.clock.now());
    let moved = record.map_or(began, |record| record.updated_at);
    let mut task =
        Task::new(id.as_str(), TaskStatus::Working, began.to_string(), moved.to_string());
    match answer {
        Answer::Held(held) => {
            task = task.with_status_message(results::awaited(held)).with_poll_interval_ms(POLL_MS);
            let ends = held.result.pending_approval.as_ref().map(|pending| pending.expires_at);
            let lasts = ends.and_then(|ends| u64::try_from(ends.since_ms(began)).ok());
            task.ttl_ms = lasts;
            task
        }
        Answer::InProgress(_) => {
            task.with_status_message("the call is being executed").with_poll_interval_ms(POLL_MS)
        }
        Answer::Refused(refused) => task.with_status_message(refused.refusal.message.clone()),
        Answer::Finished(_) => task,
    }
}

/// When a call began, read from its id.
fn began(id: &ToolCallId) -> Option<Timestamp> {
    let ulid = id.as_str().strip_prefix("call_").and_then(|id| ulid::Ulid::from_string(id).ok())?;
    i64::try_from(ulid.timestamp_ms()).ok().map(Timestamp::from_ms)
}

fn payload(
    shared: &Shared,
    asking: &Asking<'_>,
    answer: &Answer,
) -> Result<TaskPayload, ErrorData> {
    match answer {
        Answer::Held(_) | Answer::InProgress(_) => return Ok(TaskPayload::Working),
        Answer::Refused(refused) if refused.refusal.code == ErrorCode::ApprovalWithdrawn => {
            return Ok(TaskPayload::Cancelled);
        }
        Answer::Refused(_) | Answer::Finished(_) => {}
    }
    let tool = answer.envelope().capability_id.as_ref().map(|id| id.tool_name());
    let tool = tool.unwrap_or_default();
    Ok(match result_of(answer, shared.of(&asking.caller, &tool)) {
        Ok(result) => TaskPayload::Completed { result: object_of(&result)? },
        Err(error) => TaskPayload::Failed { error: object_of(&error)? },
    })
}

fn object_of(told: &impl serde::Serialize) -> Result<Map<String, Value>, ErrorData> {
    match serde_json::to_value(told) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) | Err(_) => Err(ErrorData::internal_error("the result cannot be written", None)),
    }
}

fn fault(refusal: &Refusal) -> ErrorData {
    ErrorData::internal_error(format!("{}: {}", refusal.code, refusal.message), None)
}
