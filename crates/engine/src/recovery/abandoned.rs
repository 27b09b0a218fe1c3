//! Calls whose stage died while it held them: answered with what the ledger knows to be true.
//!
//! Owns that answer. Invariant: an admitted call is always answered, whatever dies.

use std::sync::Arc;

use placet_ledger::{
    audit::{AuditEvent, AuditKind},
    ledger::Ledger,
    record::{EffectRecord, EffectState},
    refusal::lookup_refusal,
};
use placet_types::error::{ErrorCode, Execution, Refusal};

use crate::{
    answer::Answer,
    context::Context,
    outcome::{recorded, settlement_retry},
    responder::{Abandoned, Fallback},
};

impl Fallback for Context {
    fn abandoned(self: Arc<Self>, call: Abandoned) {
        let context = Arc::clone(&self);
        self.registry.spawn(async move {
            let answer = answer_for(&context, &call).await;
            context.registry.publish(&call.subject.call_id, answer);
        });
    }
}

async fn answer_for(context: &Arc<Context>, call: &Abandoned) -> Answer {
    let call_id = &call.subject.call_id;
    let refused =
        |refusal: Refusal| call.subject.clone().refused(refusal, context.ledger.store().now());
    let fault = || {
        Refusal::new(
            ErrorCode::Internal,
            "a part of the engine failed while it held this call; nothing was executed",
        )
    };
    let Some(record_id) = call.record_id else {
        return refused(if call.sent { lost_read() } else { fault() });
    };
    match context.ledger.store().effect(record_id).await {
        Ok(None) => refused(fault()),
        Ok(Some(record)) if record.call_id != *call_id => refused(fault()),
        Ok(Some(record)) => match &record.state {
            EffectState::Claimed { .. } => {
                release(&context.ledger, &record).await;
                refused(fault())
            }
            EffectState::Dispatched(_) if !recorded::is_ours(&context.ledger, &record) => {
                drop(context.watch(&record));
                recorded::answer(context, &record, false).await
            }
            EffectState::Dispatched(_) => {
                settlement_retry::give_up(
                    &context.outcomes,
                    &record,
                    "a part of the engine failed while the call was under way",
                )
                .await
            }
            EffectState::PendingApproval { approval_id, .. } => {
                context.routes.approval_asked(approval_id);
                recorded::answer(context, &record, false).await
            }
            EffectState::Rearmed { .. } => {
                // The keeper takes it up again.
                recorded::answer(context, &record, false).await
            }
            EffectState::Approved { approval_id, .. } => {
                // Nobody else takes it up again.
                context.routes.retry_later(approval_id);
                recorded::answer(context, &record, false).await
            }
            EffectState::Succeeded { .. }
            | EffectState::FailedFinal { .. }
            | EffectState::FailedRetriable { .. }
            | EffectState::Indeterminate { .. }
            | EffectState::Tombstone { .. }
            | EffectState::Denied { .. } => recorded::answer(context, &record, false).await,
        },
        Err(error) => refused(lookup_refusal(&error)),
    }
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
