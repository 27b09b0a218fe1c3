//! Taking up an approved call: through broker and gate again.
//!
//! Owns who takes it up, and when. A call that cannot be restored as it was approved makes its approval void and never runs.

use std::{sync::Arc, time::Duration};

use placet_ledger::{
    approval::{ApprovalRecord, ApprovalState},
    ledger::LedgerError,
    record::{EffectRecord, EffectState},
    store::StoreError,
};
use placet_telemetry::trace::{Stage, record_approval};
use placet_types::{
    contract::credential::CredentialKind,
    ids::{ApprovalId, RecordId},
};

use crate::{call::Identity, context::Context, in_flight::Work, recovery};

/// How long the node that has a call's tokens is given to take it up before another node reports that they are missing, in milliseconds: it
/// learns of the approval within seconds, and may have to ask a token service.
const WITH_TOKENS_FIRST_MS: i64 = 10_000;

/// Takes up the call of an approved approval. Does nothing if it has ended; tries later if it is being taken up already.
pub(crate) async fn resume(
    context: &Arc<Context>,
    approval_id: &ApprovalId,
    renewed: Option<Box<Identity>>,
) {
    let work = Work::Approved(approval_id.clone());
    let Some(guard) = context.callers.in_flight.take_alone(work) else {
        // The task that has it may be about to give up.
        return context.routes.retry_later(approval_id);
    };
    let (approval, record) = match waiting(context, approval_id).await {
        Ok(Some(found)) => found,
        Ok(None) => return,
        Err(error) => {
            tracing::warn!(%error, %approval_id, "an approved call could not be read");
            return context.routes.retry_later(approval_id);
        }
    };
    if renewed.is_none() && context.tokens.is_lacking(record.record_id) {
        return await_caller(context, approval_id, record.record_id);
    }
    if renewed.is_none()
        && let Some(wait) = for_others(context, &approval, &record)
    {
        return context.routes.others_first(approval_id, wait);
    }
    match context.ledger.parked(&record).await {
        Ok(parked) => {
            context.enter(&record);
            let renewed = renewed.map(|renewed| *renewed);
            let renewed = renewed.or_else(|| context.tokens.renewed(record.record_id));
            let under = Some(approval.clone());
            match recovery::restored(context, &record, parked, under, renewed, Stage::Approval) {
                Ok(mut call) => {
                    record_approval(&call.responder.span, approval_id.as_str(), Some("approved"));
                    call.responder.resumed_under(guard);
                    context.routes.broker(call);
                }
                Err(reason) => context.approvals.void(&approval, &record, reason).await,
            }
        }
        Err(LedgerError::Store(
            error @ (StoreError::ContentAltered(_)
            | StoreError::ContentMissing(_)
            | StoreError::Damaged(_)),
        )) => {
            context.approvals.void(&approval, &record, &error.to_string()).await;
        }
        Err(error) => {
            tracing::warn!(%error, %approval_id, "an approved call could not be read");
            context.routes.retry_later(approval_id);
        }
    }
}

/// Lets a call wait until its caller comes back; then it is taken up with the caller's new token. The message of a caller who is back already
/// was handled before this one, so the call is tried again.
pub(crate) fn await_caller(context: &Context, approval_id: &ApprovalId, record_id: RecordId) {
    context.routes.approval_over(approval_id);
    if context.tokens.renewed(record_id).is_some() {
        context.routes.retry_later(approval_id);
    }
}

/// How long a call is left to other nodes: it needs tokens that are not here, and the node that may have them has not had enough time to
/// take it up. Until then no node reports that they are missing.
fn for_others(
    context: &Context,
    approval: &ApprovalRecord,
    record: &EffectRecord,
) -> Option<Duration> {
    let store = context.ledger.store();
    let agreed = approval.votes.last().map_or(approval.created_at, |vote| vote.at);
    let left_ms = WITH_TOKENS_FIRST_MS.saturating_sub(store.now().since_ms(agreed));
    let left_ms = u64::try_from(left_ms).ok().filter(|left_ms| *left_ms > 0)?;
    if !store.is_shared() || context.tokens.has(record.record_id) {
        return None;
    }
    let active = context.current.active();
    let target = active.catalog.resolve(&record.scope.tenant, &record.scope.capability)?;
    let is_exchanged = target.contract.credential.as_ref()?.kind == CredentialKind::TokenExchange;
    is_exchanged.then(|| Duration::from_millis(left_ms))
}

/// The call that waits for this approval. If the approval has ended, the approval service is told its state.
async fn waiting(
    context: &Context,
    approval_id: &ApprovalId,
) -> Result<Option<(ApprovalRecord, EffectRecord)>, StoreError> {
    let store = context.ledger.store();
    let Some(approval) = store.approval(approval_id).await? else {
        context.approvals.pending.forget(approval_id);
        context.routes.approval_over(approval_id);
        return Ok(None);
    };
    let record = match approval.state {
        ApprovalState::Pending => return Ok(None),
        ApprovalState::Approved => store.effect(approval.record_id).await?,
        ApprovalState::Denied
        | ApprovalState::Expired
        | ApprovalState::Withdrawn { .. }
        | ApprovalState::Void { .. }
        | ApprovalState::Consumed { .. } => None,
    };
    let waits = |record: &EffectRecord| matches!(&record.state, EffectState::Approved { approval_id: id, .. } if id == approval_id);
    let Some(record) = record.filter(waits) else {
        // If it was approved, it moved on between the two reads.
        context.approvals.moved(&approval);
        context.routes.approval_over(approval_id);
        return Ok(None);
    };
    Ok(Some((approval, record)))
}
