//! Answers from the ledger: how a recorded call stands, told to whoever may ask.
//!
//! Owns the table "what a duplicate receives" (ledger.md). Never executes anything.

use placet_ledger::{
    ledger::LedgerError,
    record::{EffectRecord, EffectState},
};
use placet_types::{
    envelope::result::{ResultStatus, ToolResultEnvelope},
    error::{ErrorCode, Execution, Refusal},
    ids::{ApprovalId, DecisionId},
};

use crate::{
    answer::{Answer, Held, RefusedCall},
    context::{Context, ledger_refusal},
    stages::result::{Subject, refusal_of, unknown},
};

/// How `record` stands, as an answer. `replayed` marks the recorded result of an earlier call.
pub(crate) async fn answer(context: &Context, record: &EffectRecord, replayed: bool) -> Answer {
    match &record.state {
        EffectState::Claimed { .. } | EffectState::Dispatched(_) => {
            Answer::InProgress(record.call_id.clone())
        }
        EffectState::PendingApproval { approval_id, .. }
        | EffectState::Approved { approval_id, .. } => held(context, record, approval_id).await,
        EffectState::Succeeded { result }
        | EffectState::FailedFinal { result, .. }
        | EffectState::FailedRetriable { result, .. }
        | EffectState::Indeterminate { result, .. } => {
            match context.ledger.result(record, *result).await {
                Ok(result) => of_result(result, replayed),
                Err(error) => unreadable(record, &error),
            }
        }
        EffectState::Denied { code, .. } => refused(record, denied(*code), None),
    }
}

/// An answer that carries a result: the envelope when something was executed, else the refusal in it.
pub(crate) fn of_result(mut result: ToolResultEnvelope, replayed: bool) -> Answer {
    result.replayed = replayed;
    let executed = match (result.status, &result.error) {
        (ResultStatus::Succeeded, _) | (_, None) => true,
        (_, Some(error)) => error.execution == Execution::ExecutedAndFailed,
    };
    match &result.error {
        Some(error) if !executed => Answer::Refused(Box::new(RefusedCall {
            call_id: result.tool_call_id.clone(),
            refusal: refusal_of(error),
            decision_id: result.policy_decision_id.clone(),
            trace_id: Some(result.trace_id.clone()),
        })),
        _ => Answer::Finished(Box::new(result)),
    }
}

/// What a denied or expired approval says to its caller.
pub(crate) fn denied(code: ErrorCode) -> Refusal {
    let message = if code == ErrorCode::ApprovalExpired {
        "nobody agreed to this call in time; it was not executed"
    } else {
        "people denied this call; it was not executed"
    };
    Refusal::new(code, message)
}

/// How a waiting call stands.
pub(crate) async fn held(
    context: &Context,
    record: &EffectRecord,
    approval_id: &ApprovalId,
) -> Answer {
    match context.ledger.store().approval(approval_id).await {
        Ok(Some(approval)) => Answer::Held(Box::new(Held {
            call_id: record.call_id.clone(),
            approval_id: approval_id.clone(),
            state: approval.state.name().to_owned(),
            requirement: approval.requirement.clone(),
            expires_at: approval.expires_at,
            trace_id: String::new(),
        })),
        Ok(None) => refused(
            record,
            crate::context::internal("the approval of a waiting record is absent"),
            None,
        ),
        Err(error) => refused(record, ledger_refusal(&error.into()), None),
    }
}

/// Records that the outcome of a dispatch is unknown, and answers so.
pub(crate) async fn give_up(context: &Context, record: &EffectRecord, reason: &str) -> Answer {
    let parked = context.ledger.parked(record).await.ok();
    let mut subject = Subject::of_record(record, parked.as_ref());
    if let EffectState::Dispatched(attempt) = &record.state {
        subject.approval_id.clone_from(&attempt.approval_id);
        subject.decision_id = Some(attempt.decision_id.clone());
    }
    let result = unknown(subject, context.ledger.store().now());
    match context.ledger.give_up(record, reason, &result).await {
        Ok(_) => {
            context.metrics.indeterminate();
            of_result(result, false)
        }
        Err(error) => refused(
            record,
            ledger_refusal(&error).with_execution(Execution::Unknown),
            result.policy_decision_id.clone(),
        ),
    }
}

/// A refusal of a recorded call.
pub(crate) fn refused(
    record: &EffectRecord,
    refusal: Refusal,
    decision_id: Option<DecisionId>,
) -> Answer {
    Answer::Refused(Box::new(RefusedCall {
        call_id: record.call_id.clone(),
        refusal,
        decision_id,
        trace_id: None,
    }))
}

/// The outcome is recorded but its text cannot be read: the caller learns which, never a guess.
fn unreadable(record: &EffectRecord, error: &LedgerError) -> Answer {
    let message =
        format!("the call is recorded as {}, but its result cannot be read", record.state.name());
    let execution = match record.state {
        EffectState::Succeeded { .. } | EffectState::FailedFinal { .. } => {
            Execution::ExecutedAndFailed
        }
        EffectState::FailedRetriable { .. }
        | EffectState::Denied { .. }
        | EffectState::Claimed { .. }
        | EffectState::PendingApproval { .. }
        | EffectState::Approved { .. } => Execution::NotExecuted,
        EffectState::Dispatched(_) | EffectState::Indeterminate { .. } => Execution::Unknown,
    };
    let refusal = Refusal::new(ErrorCode::LedgerUnavailable, message)
        .with_execution(execution)
        .with_detail(error);
    refused(record, refusal, None)
}

/// A ledger error as an operator reads it.
pub(crate) fn readable(error: &LedgerError) -> String {
    error.to_string()
}
