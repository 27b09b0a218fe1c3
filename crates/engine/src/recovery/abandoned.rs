//! Calls whose stage died while it held them: answered with what the ledger knows to be true.
//!
//! Owns that answer. Invariant: an admitted call is always answered, whatever dies.

use std::sync::Arc;

use placet_ledger::{
    audit::{AuditEvent, AuditKind},
    ledger::Ledger,
    record::EffectRecord,
    refusal::lookup_refusal,
};
use placet_types::error::{ErrorCode, Execution, Refusal};

use crate::{
    answer::Answer,
    context::Context,
    lifecycle::transitions::{self, AfterDeath, State, step},
    outcome::recorded,
    recovery,
    responder::{Abandoned, Fallback},
};

impl Fallback for Context {
    fn abandoned(self: Arc<Self>, call: Abandoned) {
        let context = Arc::clone(&self);
        self.registry.spawn(async move {
            if let Some(answer) = answer_for(&context, &call).await {
                context.registry.publish(&call.subject.call_id, answer);
            }
        });
    }
}

/// What its waiters are told; `None` where recovery tells them.
async fn answer_for(context: &Arc<Context>, call: &Abandoned) -> Option<Answer> {
    let refused = |refusal: Refusal| {
        Some(call.subject.clone().refused(refusal, context.ledger.store().now()))
    };
    let record = match call.record_id {
        Some(record_id) => match context.ledger.store().effect(record_id).await {
            Ok(record) => record.filter(|record| record.call_id == call.subject.call_id),
            Err(error) => return refused(lookup_refusal(&error)),
        },
        None => None,
    };
    let state = record.as_ref().map_or(State::Absent, |record| context.state_of(record));
    let action = step(state, transitions::Abandoned { was_sent: call.sent });
    let Some(record) = record else {
        return refused(if action == AfterDeath::TellLost { lost_read() } else { fault() });
    };
    match action {
        AfterDeath::Tell | AfterDeath::TellLost => return refused(fault()),
        AfterDeath::Release => {
            release(&context.ledger, &record).await;
            return refused(fault());
        }
        AfterDeath::Recover => {
            recovery::recover(context, vec![record]).await;
            return None;
        }
        AfterDeath::Watch => drop(context.watch(&record)),
        AfterDeath::NoteAsked => {
            record.state.approval_id().inspect(|id| context.routes.approval_asked(id));
        }
        AfterDeath::ResumeLater => {
            record.state.approval_id().inspect(|id| context.routes.retry_later(id));
        }
        AfterDeath::TellRecorded => {}
    }
    Some(recorded::answer(context, &record, false).await)
}

fn fault() -> Refusal {
    Refusal::new(
        ErrorCode::Internal,
        "a part of the engine failed while it held this call; nothing was executed",
    )
}

async fn release(ledger: &Ledger, record: &EffectRecord) {
    let mut event = AuditEvent::new(AuditKind::Refused);
    event.tenant = Some(record.scope.tenant.clone());
    event.call_id = Some(record.call_id.clone());
    event.capability = Some(record.scope.capability.clone());
    event.record_id = Some(record.record_id);
    event.code = Some(ErrorCode::Internal);
    if let Err(error) = ledger.release(record.record_id, event).await {
        tracing::error!(%error, "the release of an abandoned claim could not be kept");
    }
}

fn lost_read() -> Refusal {
    Refusal::new(
        ErrorCode::Internal,
        "a part of the engine failed after the tool was asked; its answer is lost, and the call changed nothing",
    )
    .with_execution(Execution::Unknown)
}
