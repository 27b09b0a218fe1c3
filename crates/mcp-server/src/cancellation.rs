//! Clients that cancel a request of theirs (`notifications/cancelled`), so that a call that people were asked about is withdrawn.
//!
//! Invariant: only the client's own cancellation withdraws a call; a lost connection, a closed session or a stop of this process does not,
//! and what was sent to its tool is not undone.

use std::sync::Arc;

use rmcp::model::RequestId;

use placet_engine::answer::Answer;
use placet_identity::VerifiedCaller;
use placet_types::{error::Refusal, ids::ToolCallId};

use crate::shared::Shared;

/// How many characters of a client's reason are kept.
const REASON_CHARS_MAX: usize = 500;

/// Handles a client's cancellation of a request: withdraws its call, unless it was already sent. An unknown request is ignored (MCP,
/// "Cancellation").
pub(crate) async fn cancel(
    shared: &Shared,
    caller: &Arc<VerifiedCaller>,
    session: &str,
    id: RequestId,
    reason: Option<&str>,
) {
    let Some(open) = shared.requests.cancelled(session, id) else { return };
    // First: an equal call that comes meanwhile is a new one.
    shared.held.forget(&open.request);
    if let Err(refusal) = withdraw(shared, caller, &open.call, reason).await {
        tracing::info!(call_id = %open.call, code = %refusal.code, "a cancelled call was not withdrawn");
    }
}

/// Waits until the call is held or has ended, and withdraws it if it is held.
async fn withdraw(
    shared: &Shared,
    caller: &VerifiedCaller,
    call: &ToolCallId,
    reason: Option<&str>,
) -> Result<(), Refusal> {
    let mut ticket = shared.engine.follow(caller, call).await?;
    if matches!(ticket.settled(0).await, Answer::Held(_)) {
        shared.engine.withdraw(caller, ticket.call_id(), &reason_of(reason)).await?;
    }
    Ok(())
}

fn reason_of(reason: Option<&str>) -> String {
    let legible: String = reason
        .unwrap_or_default()
        .chars()
        .filter(|one| !one.is_control())
        .take(REASON_CHARS_MAX)
        .collect();
    let said = "the client cancelled its request";
    if legible.is_empty() { said.to_owned() } else { format!("{said}: {legible}") }
}
