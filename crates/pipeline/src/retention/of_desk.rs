//! Retention at the desk: approvals that came to their end, and grants, handovers, freezes, revocations and break-glass records that are
//! over, are kept for as long as their tenant keeps tombstones; the chain keeps what they were.
//!
//! Owns which of them are due. Invariants: nothing goes that something may still become of: no call that waits or runs, no break-glass
//! record before its review; every round is bounded.

use placet_ledger::{
    approval::ApprovalRecord,
    desk::DeskEntry,
    ledger::LedgerError,
    record::EffectState,
    store::{ApprovalQuery, DeskQuery, StoreError},
};
use placet_types::{clock::Timestamp, ids::TenantId};

use super::{BATCHES_MAX, MARGIN_MS, PAUSE};
use crate::context::Context;

/// One round.
pub(super) async fn sweep(context: &Context) -> Result<(), LedgerError> {
    approvals(context).await?;
    entries(context).await
}

/// Until when something of a tenant has to be over to be due.
fn since(context: &Context, tenant: &TenantId, now: Timestamp) -> Timestamp {
    let retention = &context.settings.ledger.retention;
    retention.keys_since(tenant, now).plus_ms(MARGIN_MS.saturating_neg())
}

/// What is younger than this is nobody's that is due.
fn youngest(context: &Context, now: Timestamp) -> Timestamp {
    context.settings.ledger.retention.tombstones_due(now)
}

async fn approvals(context: &Context) -> Result<(), LedgerError> {
    let store = context.ledger.store();
    let limit = context.settings.ledger.retention.batch.clamp(1, 1_000);
    let mut query = ApprovalQuery { limit, ..ApprovalQuery::default() };
    for _ in 0..BATCHES_MAX {
        if context.stopping() {
            break;
        }
        let (page, now) = (store.approvals(&query).await?, store.now());
        let is_last = page.last().is_none_or(|last| last.created_at >= youngest(context, now));
        let (mut due, mut kept) = (Vec::new(), None);
        for approval in page {
            if is_due(context, &approval, now).await? {
                due.push(approval);
            } else {
                kept = Some(approval.approval_id);
            }
        }
        // What is gone is no place to go on from.
        query.after = kept.or(query.after);
        dropped(context, &due, &[]).await?;
        if is_last {
            break;
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

/// Whether an approval is over, for long enough, and no call is on its way with it.
async fn is_due(
    context: &Context,
    approval: &ApprovalRecord,
    now: Timestamp,
) -> Result<bool, LedgerError> {
    // It came to its end no later than it would have expired.
    let is_old = approval.expires_at < since(context, approval.chain.tenant(), now);
    if !is_old || !approval.may_be_forgotten() {
        return Ok(false);
    }
    let record = context.ledger.store().effect(approval.record_id).await?;
    let record = record.filter(|record| record.call_id == approval.call_id);
    Ok(record.is_none_or(|record| matches!(record.state, EffectState::Tombstone { .. })))
}

async fn entries(context: &Context) -> Result<(), LedgerError> {
    let store = context.ledger.store();
    let limit = context.settings.ledger.retention.batch.clamp(1, 1_000);
    let mut query = DeskQuery { limit, ..DeskQuery::default() };
    for _ in 0..BATCHES_MAX {
        if context.stopping() {
            break;
        }
        let (page, now) = (store.desk_entries(&query).await?, store.now());
        let is_last = page.last().is_none_or(|last| last.created_at >= youngest(context, now));
        let is_due = |entry: &DeskEntry| {
            let since = since(context, &entry.tenant, now);
            entry.over_since().is_some_and(|over| over < since) && !entry.is_open(now)
        };
        let (due, kept): (Vec<DeskEntry>, Vec<DeskEntry>) = page.into_iter().partition(is_due);
        query.after = kept.into_iter().next_back().map(|entry| entry.desk_id).or(query.after);
        dropped(context, &[], &due).await?;
        if is_last {
            break;
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

async fn dropped(
    context: &Context,
    approvals: &[ApprovalRecord],
    entries: &[DeskEntry],
) -> Result<(), LedgerError> {
    if approvals.is_empty() && entries.is_empty() {
        return Ok(());
    }
    match context.ledger.forget_desk(approvals, entries).await {
        Ok(()) => {
            let (approvals, entries) = (approvals.len(), entries.len());
            tracing::info!(approvals, entries, "what was over at the desk was dropped");
            Ok(())
        }
        // Another node was faster; the next round finds what is left.
        Err(LedgerError::Store(StoreError::Conflict)) => Ok(()),
        Err(error) => Err(error),
    }
}
