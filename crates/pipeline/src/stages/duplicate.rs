//! Duplicates: the same key again (ledger.md, "What a duplicate receives").
//!
//! Owns who attaches to what. Never executes: a duplicate gets the outcome of the original, or is told how it stands.

use placet_ledger::{
    audit::AuditKind,
    record::{EffectRecord, EffectState},
};
use placet_telemetry::metrics::Duplicate;
use placet_types::error::{ErrorCode, Refusal};

use crate::{
    answer::Answer,
    call::{Brokered, Call},
    context::Context,
    registry::Owner,
    stages::{recorded, refuse},
};

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
            // After a restart nobody follows the original yet; and an approved call may wait for this very caller.
            let standing = recorded::answer(context, &record, false).await;
            drop(context.registry.enter(
                &record.call_id,
                Owner::of(&stage.identity.chain),
                standing,
            ));
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
    let passage = call.passage;
    let Some(mut original) = context.registry.follow_original(&record.call_id) else {
        let refusal = Refusal::new(ErrorCode::InProgress, "the same call is being executed")
            .with_retry_after_ms(500);
        return refuse::tell(context, passage, refusal, None);
    };
    loop {
        let answer = original.borrow_and_update().clone();
        match answer {
            Answer::Finished(mut result) => {
                result.replayed = true;
                return passage.finish(Answer::Finished(result));
            }
            Answer::Refused(refused) => return passage.finish(Answer::Refused(refused)),
            Answer::Held(held) => passage.tell(Answer::Held(held)),
            Answer::InProgress(_) => {}
        }
        if original.changed().await.is_err() {
            return passage.finish(recorded::answer(context, record, true).await);
        }
    }
}
