//! Another arm for a call whose outcome is unknown (T9): asked for by operators, sent by the engine.
//!
//! Owns who may ask, and the way from a re-armed record back to a call. Invariants: nothing is sent without a new permit, and a
//! re-armed call that may not be sent is of unknown outcome again, never "not executed".

use std::sync::Arc;

use placet_identity::VerifiedCaller;
use placet_ledger::{
    audit::AuditKind,
    ledger::{Ledger, LedgerError},
    record::{EffectRecord, EffectState, Rearm},
    refusal::ledger_refusal,
    store::StoreError,
};
use placet_types::{
    error::{ErrorCode, Refusal},
    ids::RecordId,
};

use crate::{
    context::Context,
    operator,
    outcome::settlement_retry,
    recovery::{self, NotTaken},
    views::{RearmRequest, RecordView},
};

/// How often a re-arm is tried again when the record moved meanwhile.
const TRIES: usize = 4;
/// How many re-armed records are read in one round.
const PAGE: usize = 100;

/// Records an operator's request that a call be sent again.
pub(crate) async fn ask(
    context: &Arc<Context>,
    caller: &VerifiedCaller,
    record_id: RecordId,
    request: RearmRequest,
) -> Result<RecordView, Refusal> {
    operator::must_be_operator(context, caller)?;
    operator::check_evidence(&request.evidence)?;
    for _ in 0..TRIES {
        let record = operator::find(context, caller, record_id).await?;
        may_be_rearmed(&context.ledger, &record)?;
        let word = Rearm {
            operator: caller.actor.principal().id.clone(),
            evidence: request.evidence.clone(),
            at: context.ledger.store().now(),
        };
        let mut event = operator::event_of(AuditKind::Rearmed, caller, &record);
        event.note = Some(request.evidence.clone());
        let two_people = context.settings.ledger.rearm_people != 1;
        match context.ledger.rearm(&record, word, two_people, event).await {
            Ok(next) => {
                if matches!(next.state, EffectState::Rearmed { .. }) {
                    // Earlier answers about the previous arm no longer hold.
                    context.registry.forget(&next.call_id);
                    send(context, next.clone()).await;
                }
                return Ok(operator::view_of(context, &next).await);
            }
            Err(LedgerError::Store(StoreError::Conflict)) => {}
            Err(error) => {
                context.node.noticed(&error);
                return Err(ledger_refusal(&error));
            }
        }
    }
    Err(Refusal::new(
        ErrorCode::InProgress,
        "others work on this record at this moment; look again",
    ))
}

fn may_be_rearmed(ledger: &Ledger, record: &EffectRecord) -> Result<(), Refusal> {
    let refuse = |message: String| Err(Refusal::new(ErrorCode::ValidationError, message));
    let EffectState::Indeterminate { attempt, .. } = &record.state else {
        return refuse(format!(
            "the record is {}: only an indeterminate one can be sent again",
            record.state.name()
        ));
    };
    // A fenced node may resume and send until the deadline; after it, the node refuses to. Where nothing is shared the node is gone:
    // otherwise this process could not have opened the store.
    let store = ledger.store();
    let may_live = store.is_shared() && attempt.adopted_by.is_some();
    if may_live && store.now() < attempt.deadline_at {
        return refuse(format!(
            "the node that sent it may not have stopped: wait until {}, when it expires",
            attempt.deadline_at
        ));
    }
    Ok(())
}

/// Sends re-armed calls that wait: after a restart, after another node died, or because they could not be sent before.
pub(crate) async fn send_waiting(context: &Arc<Context>) {
    let page = context.rounds.rearmed.next(&context.ledger, "rearmed", PAGE).await;
    let waiting = match page {
        Ok(waiting) => waiting,
        Err(error) => return context.node.noticed(&error.into()),
    };
    for record in waiting {
        send(context, record).await;
    }
}

/// Sends a re-armed call; of several nodes that try, one wins the dispatch.
async fn send(context: &Arc<Context>, record: EffectRecord) {
    if context.node.is_ending() || context.node.health().cannot_decide().is_some() {
        return;
    }
    let Some(guard) = context.callers.resuming.enter_record(record.record_id) else { return };
    context.enter(&record);
    match recovery::take_up(context, &record, Some(guard)).await {
        Ok(()) => {}
        // The keeper tries again.
        Err(NotTaken::Passing(why)) => {
            tracing::info!(%why, record_id = %record.record_id, "a re-armed call could not be read");
        }
        Err(NotTaken::Final(reason)) => {
            drop(settlement_retry::disarm(context, &record, &reason).await)
        }
    }
}
