//! Duplicates: the same key again.
//!
//! Owns who attaches to what. Never executes: a duplicate gets the outcome of the original, or is told how it stands.

use std::time::Duration;

use placet_ledger::{
    audit::AuditKind,
    record::{EffectRecord, EffectState},
};
use placet_telemetry::metrics::Duplicate;
use placet_types::error::{ErrorCode, Refusal};

use crate::{
    answer::Answer,
    call::{Brokered, Call, Passage},
    context::Context,
    stages::{recorded, refuse},
};

/// How often, and how long apart, a duplicate looks for a try that has just begun.
const LOOKS: u32 = 50;
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Answers a call whose key is taken by `record`.
pub(crate) async fn answer(context: &Context, call: Call<Brokered>, record: EffectRecord) {
    let Call { mut passage, stage } = call;
    passage.leaves_record();
    if record.requested_digest != stage.built.requested_digest {
        let mut event = refuse::event_of(AuditKind::Refused, &passage, &stage);
        event.record_id = Some(record.record_id);
        event.code = Some(ErrorCode::IdempotencyConflict);
        context.note(event).await;
        context.metrics.duplicate(Duplicate::Conflict);
        let refusal = Refusal::new(
            ErrorCode::IdempotencyConflict,
            "this key was used for a call with other arguments; nothing was executed",
        );
        return refuse::tell(context, passage, refusal, None);
    }
    match &record.state {
        EffectState::Claimed { .. } | EffectState::Dispatched(_) => {
            context.metrics.duplicate(Duplicate::Joined);
            attach(context, Call { passage, stage }, &record).await;
        }
        EffectState::PendingApproval { approval_id, .. }
        | EffectState::Approved { approval_id, .. } => {
            context.metrics.duplicate(Duplicate::Joined);
            let standing = recorded::standing(context, &record).await;
            if standing.is_final() {
                return passage.finish(standing);
            }
            // An approved call may wait for this very caller.
            if matches!(record.state, EffectState::Approved { .. }) {
                context.routes.renewed(approval_id, stage.identity.clone());
            }
            attach(context, Call { passage, stage }, &record).await;
        }
        EffectState::Succeeded { .. }
        | EffectState::FailedFinal { .. }
        | EffectState::FailedRetriable { .. }
        | EffectState::Indeterminate { .. }
        | EffectState::Denied { .. } => {
            let mut event = refuse::event_of(AuditKind::Replayed, &passage, &stage);
            event.record_id = Some(record.record_id);
            context.note(event).await;
            context.metrics.duplicate(Duplicate::Replayed);
            passage.finish(recorded::answer(context, &record, true).await);
        }
    }
}

/// Gives the duplicate whatever the original gets.
async fn attach(context: &Context, call: Call<Brokered>, record: &EffectRecord) {
    let Call { passage, stage } = call;
    for _ in 0..LOOKS {
        let Some(mut original) = context.registry.follow_original(&record.call_id) else { break };
        let told = original.borrow().clone();
        if told.is_final() {
            // Told of an earlier try, or of this one a moment ago: the ledger knows which.
            match recorded::now(context, record).await {
                Answer::InProgress(_) | Answer::Held(_) => {}
                end @ (Answer::Finished(_) | Answer::Refused(_)) => {
                    return end_of(context, passage, &stage, (told, end)).await;
                }
            }
            tokio::time::sleep(LOOK_AGAIN).await;
            continue;
        }
        loop {
            let answer = original.borrow_and_update().clone();
            match answer {
                Answer::Finished(_) | Answer::Refused(_) => {
                    return end_of(context, passage, &stage, (answer.clone(), answer)).await;
                }
                Answer::Held(held) => return passage.park(*held),
                Answer::InProgress(_) => {}
            }
            if original.changed().await.is_err() {
                break;
            }
        }
    }
    let refusal = Refusal::new(ErrorCode::InProgress, "the same call is being executed")
        .with_retry_after_ms(500);
    refuse::tell(context, passage, refusal, None);
}

/// Tells a duplicate the end of its original: what the ledger keeps of it, else what its waiters were told.
async fn end_of(
    context: &Context,
    passage: Passage,
    stage: &Brokered,
    (told, recorded): (Answer, Answer),
) {
    // A claim that was given back has left nothing in the ledger.
    let gone = matches!(&recorded, Answer::Refused(refused) if refused.refusal.code == ErrorCode::ApprovalVoid);
    let mut end = if gone { told } else { recorded };
    if let Answer::Finished(result) = &mut end {
        result.replayed = true;
    }
    context.note(refuse::event_of(AuditKind::Replayed, &passage, stage)).await;
    passage.finish(end);
}
