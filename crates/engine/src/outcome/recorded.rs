//! Answers from the ledger: the state of a recorded call, for those who may see it.
//!
//! Owns the table "what a duplicate receives". Never executes anything.

use placet_ledger::{
    approval::{ApprovalRecord, ApprovalState},
    ledger::{Ledger, LedgerError},
    parked::ParkedCall,
    record::{EffectRecord, EffectState},
    refusal::{internal, lookup_refusal},
    store::StoreError,
};
use placet_telemetry::metrics::Metrics;
use placet_types::{
    digest::Digest,
    envelope::result::ToolResultEnvelope,
    error::{ErrorCode, Execution, Refusal},
    ids::{ApprovalId, DecisionId, ToolCallId},
};

use crate::{
    active::Current,
    answer::{Answer, Held},
    outcome::Outcomes,
    registry::Owner,
    result::{EditedArgs, Obstacle, Subject, answer_of, as_sent, shown_args, subject_alone},
};

/// The state of `record` as an answer. `replayed` marks the recorded result of an earlier call.
pub(crate) async fn answer(outcomes: &Outcomes, record: &EffectRecord, replayed: bool) -> Answer {
    match &record.state {
        EffectState::Claimed { .. } | EffectState::Dispatched(_) | EffectState::Rearmed { .. } => {
            readable(outcomes, record).await.in_progress()
        }
        EffectState::PendingApproval { approval_id, .. }
        | EffectState::Approved { approval_id, .. } => held(outcomes, record, approval_id).await,
        EffectState::Succeeded { result, .. }
        | EffectState::FailedFinal { result, .. }
        | EffectState::FailedRetriable { result, .. }
        | EffectState::Indeterminate { result, .. } => {
            match outcomes.ledger.result(record, *result).await {
                Ok(found) if replayed && !is_identical(&outcomes.metrics, &found, *result) => {
                    let altered = StoreError::ContentAltered(*result);
                    unreadable(record, &LedgerError::Store(altered))
                }
                Ok(found) => answer_of(found, replayed),
                Err(error) => {
                    if replayed {
                        outcomes.metrics.count_replay_checked(false);
                    }
                    unreadable(record, &error)
                }
            }
        }
        EffectState::Denied { code, .. } => refused(outcomes, record, denied(*code)).await,
        EffectState::Tombstone { was, code, .. } => {
            refused(outcomes, record, expired(was, *code)).await
        }
    }
}

/// Whether a result about to be replayed is byte for byte the recorded one (TM-21).
pub(crate) fn is_identical(
    metrics: &Metrics,
    result: &ToolResultEnvelope,
    recorded: Digest,
) -> bool {
    let written = if result.replayed {
        serde_json::to_vec(&ToolResultEnvelope { replayed: false, ..result.clone() })
    } else {
        serde_json::to_vec(result)
    };
    let identical = written.is_ok_and(|bytes| Digest::of(&bytes) == recorded);
    if !identical {
        tracing::error!(call_id = %result.tool_call_id, "a result is not what was recorded, and is not given again");
    }
    metrics.count_replay_checked(identical);
    identical
}

/// The current state of a record, read again.
pub(crate) async fn now(outcomes: &Outcomes, record: &EffectRecord) -> Answer {
    match outcomes.ledger.store().effect(record.record_id).await {
        Ok(Some(record)) => answer(outcomes, &record, false).await,
        // The key was released: the call has ended, and nothing happened.
        Ok(None) => refused(outcomes, record, void()).await,
        Err(error) => unread(record, lookup_refusal(&error), None),
    }
}

/// The state of an open record, registered so that waiters are told: after a restart a held call has no entry.
pub(crate) async fn standing(outcomes: &Outcomes, record: &EffectRecord) -> Answer {
    let answer = answer(outcomes, record, false).await;
    if answer.is_final() {
        return answer;
    }
    let owner = Owner::of_scope(&record.scope);
    drop(outcomes.registry.enter(&record.call_id, owner, answer.clone()));
    if outcomes.ledger.store().is_shared() {
        drop(outcomes.watch(record));
    }
    // It may have ended after it was read and before it was registered.
    let now = now(outcomes, record).await;
    if now.is_final() {
        outcomes.registry.publish(&record.call_id, now.clone());
        return now;
    }
    answer
}

/// What the caller is told about a denied, withdrawn or expired approval.
pub(crate) fn denied(code: ErrorCode) -> Refusal {
    let message = if code == ErrorCode::ApprovalExpired {
        // Either not approved in time, or approved but not run in time.
        "the approval of this call ran out of time; it was not executed"
    } else if code == ErrorCode::ApprovalWithdrawn {
        "this call was withdrawn; it was not executed"
    } else {
        "people denied this call; it was not executed"
    };
    Refusal::new(code, message)
}

/// What the caller is told about a key whose result is no longer kept.
pub(crate) fn expired(was: &str, code: Option<ErrorCode>) -> Refusal {
    let ended = code.map_or_else(|| was.to_owned(), |code| format!("{was} ({code})"));
    let execution = match was {
        "failed_retriable" | "denied" => Execution::NotExecuted,
        _ => Execution::Unknown,
    };
    Refusal::new(
        ErrorCode::ResultExpired,
        format!("this key was used before and its call ended as {ended}; the result is no longer kept, and nothing was executed now"),
    )
    .with_execution(execution)
}

/// What the caller is told about a void approval.
pub(crate) fn void() -> Refusal {
    Refusal::new(
        ErrorCode::ApprovalVoid,
        "what was approved is no longer what would run, or is no longer allowed; it was not executed",
    )
}

/// A held call, as its caller is told about it.
pub(crate) fn held_of(
    outcomes: &Outcomes,
    record: &EffectRecord,
    approval: &ApprovalRecord,
    subject: Subject,
) -> Held {
    let obstacle = if outcomes.tokens.is_lacking(record.record_id) {
        Some(Obstacle::Credential)
    } else {
        outcomes.current.active().ports.is_unreachable(approval).then_some(Obstacle::Unreachable)
    };
    subject.held(approval, obstacle, record.updated_at)
}

/// A recorded call in flight, as its caller is told about it while nothing more is read.
pub(crate) fn in_progress(record: &EffectRecord) -> Answer {
    subject_alone(record).in_progress()
}

/// The state of a held call.
pub(crate) async fn held(
    outcomes: &Outcomes,
    record: &EffectRecord,
    approval_id: &ApprovalId,
) -> Answer {
    match outcomes.ledger.store().approval(approval_id).await {
        Ok(Some(approval)) => {
            let parked = outcomes.ledger.parked(record).await;
            // Alteration is detected when it is taken up; here only the trace id is missing.
            let subject = Subject::of_record(record, parked.as_ref().ok());
            Answer::Held(Box::new(held_of(outcomes, record, &approval, subject)))
        }
        Ok(None) => unread(record, internal("the approval of a waiting record is absent"), None),
        Err(error) => unread(record, lookup_refusal(&error), None),
    }
}

/// How a call ended whose record no longer exists, for those who wait for it here; `None` where none do.
pub(crate) fn gone(
    outcomes: &Outcomes,
    call_id: &ToolCallId,
    approval: Option<&ApprovalRecord>,
) -> Option<Answer> {
    let refusal = approval.map_or_else(void, of_approval);
    let now = outcomes.ledger.store().now();
    let told = outcomes.registry.follow_original(call_id)?.borrow().clone();
    Some(Subject::of_answer(told.envelope(), now).refused(refusal, now))
}

/// Tells those who wait here how a call has ended; from then on the ledger has its state.
pub(crate) async fn tell_end(outcomes: &Outcomes, ended: &EffectRecord) {
    let end = answer(outcomes, ended, false).await;
    outcomes.registry.publish(&ended.call_id, end);
    outcomes.registry.forget(&ended.call_id);
}

/// A refusal of a recorded call.
pub(crate) async fn refused(
    outcomes: &Outcomes,
    record: &EffectRecord,
    refusal: Refusal,
) -> Answer {
    readable(outcomes, record).await.refused(refusal, record.updated_at)
}

/// The subject of a recorded call, as far as it can be read now.
async fn readable(outcomes: &Outcomes, record: &EffectRecord) -> Subject {
    let parked = outcomes.ledger.parked(record).await;
    as_sent(Subject::of_record(record, parked.as_ref().ok()), record)
}

/// A refusal of a recorded call of which nothing more can be read.
pub(crate) fn unread(
    record: &EffectRecord,
    refusal: Refusal,
    decision_id: Option<DecisionId>,
) -> Answer {
    let mut subject = subject_alone(record);
    subject.decision_id = decision_id.or(subject.decision_id);
    subject.refused(refusal, record.updated_at)
}

/// The outcome is recorded but its result cannot be read: the caller is told which, never a guess.
fn unreadable(record: &EffectRecord, error: &LedgerError) -> Answer {
    let message =
        format!("the call is recorded as {}, but its result cannot be read", record.state.name());
    // For a final state only the result says what happened.
    let execution = match record.state {
        EffectState::FailedRetriable { .. }
        | EffectState::Denied { .. }
        | EffectState::Claimed { .. }
        | EffectState::PendingApproval { .. }
        | EffectState::Approved { .. } => Execution::NotExecuted,
        EffectState::Succeeded { .. }
        | EffectState::FailedFinal { .. }
        | EffectState::Dispatched(_)
        | EffectState::Rearmed { .. }
        | EffectState::Tombstone { .. }
        | EffectState::Indeterminate { .. } => Execution::Unknown,
    };
    let refusal = Refusal::new(ErrorCode::LedgerUnavailable, message)
        .with_execution(execution)
        .with_detail(error);
    unread(record, refusal, None)
}

/// The refusal for a call whose record is gone, by its approval.
pub(crate) fn of_approval(approval: &ApprovalRecord) -> Refusal {
    match &approval.state {
        ApprovalState::Void { reason } => void().with_detail(reason),
        ApprovalState::Expired => denied(ErrorCode::ApprovalExpired),
        ApprovalState::Denied => denied(ErrorCode::ApprovalDenied),
        ApprovalState::Withdrawn { .. } => denied(ErrorCode::ApprovalWithdrawn),
        ApprovalState::Pending | ApprovalState::Approved | ApprovalState::Consumed { .. } => {
            expired("approved", None)
        }
    }
}

/// The current subject of a recorded call: the approval and the decision it was sent under, and the arguments that approvers edited.
/// What is damaged or gone is left out, but not what cannot be read at present: a result recorded without it would stay so for ever.
pub(crate) async fn subject_of(
    outcomes: &Outcomes,
    record: &EffectRecord,
) -> Result<Subject, LedgerError> {
    let parked = match outcomes.ledger.parked(record).await {
        Ok(parked) => Some(parked),
        Err(error) if error.is_transient() => return Err(error),
        Err(error) => {
            tracing::warn!(%error, record_id = %record.record_id, "what was sent cannot be read, and the result says less");
            None
        }
    };
    let mut subject = Subject::of_record(record, parked.as_ref());
    subject.edited = parked.as_ref().and_then(|parked| edited(&outcomes.current, record, parked));
    Ok(as_sent(subject, record))
}

/// Adds to a result what could not be read when it was made.
pub(crate) async fn complete(
    outcomes: &Outcomes,
    record: &EffectRecord,
    result: &mut ToolResultEnvelope,
) -> Result<(), LedgerError> {
    if result.edited_args.is_none() {
        let subject = subject_of(outcomes, record).await?;
        if let Some(EditedArgs { args, masked }) = subject.edited {
            result.edited_args = Some(args);
            result.edited_masked = masked;
        }
    }
    Ok(())
}

/// The arguments of a recorded call that an approver edited.
fn edited(current: &Current, record: &EffectRecord, parked: &ParkedCall) -> Option<EditedArgs> {
    let edit = parked.edited.as_ref()?;
    let target = current.active().catalog.resolve(&record.scope.tenant, &record.scope.capability);
    // A tool that no longer exists has no schema to say what may be shown.
    let shown = target.and_then(|target| shown_args(&target.capability, &parked.envelope.args));
    Some(EditedArgs::of(edit, shown))
}

/// Whether this process reports the end of a call: it has claimed it, or has it in flight.
pub(crate) fn is_told_here(ledger: &Ledger, record: &EffectRecord) -> bool {
    let own = ledger.store().epoch();
    !ledger.store().is_shared()
        || matches!(record.state, EffectState::Claimed { epoch } if epoch == own)
        || is_ours(ledger, record)
}

/// Whether this process has to settle a dispatch.
pub(crate) fn is_ours(ledger: &Ledger, record: &EffectRecord) -> bool {
    let own = ledger.store().epoch();
    record.state.attempt().is_some_and(|attempt| attempt.duty() == own)
}
