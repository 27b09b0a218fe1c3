//! Retention in the approval service: approvals that came to their end, and grants, delegations, freezes, revocations and break-glass records that are
//! over, are kept for as long as their tenant keeps tombstones; the chain keeps what they were.
//!
//! Owns which of them are due. Invariants: nothing goes that something may still become of: no call that waits or runs, no break-glass
//! record before its review; every round is bounded.

use placet_ledger::{
    approval::ApprovalRecord,
    directive::Directive,
    ledger::{Ledger, LedgerError},
    record::EffectState,
    store::{ApprovalQuery, DirectiveQuery, StoreError},
};
use placet_types::clock::Timestamp;

use crate::{
    context::Context,
    rounds::{BATCHES_MAX, List, PAUSE, Place},
};

/// A turn of the approvals. Says whether the end of the list was reached.
pub(super) async fn approvals(context: &Context) -> Result<bool, LedgerError> {
    let store = context.ledger.store();
    let limit = context.settings.ledger.retention.batch.clamp(1, 1_000);
    let after = context.rounds.swept.approval(&List::Approvals);
    let mut query = ApprovalQuery { limit, after, ..ApprovalQuery::default() };
    let mut is_through = false;
    for _ in 0..BATCHES_MAX {
        if context.node.is_stopping() {
            return Ok(true);
        }
        let (page, now) = (store.approvals(&query).await?, store.now());
        is_through = page.last().is_none_or(|last| {
            last.created_at >= context.settings.ledger.retention.tombstones_due_first(now)
        });
        let last = page.last().map(|last| last.approval_id.clone());
        let (mut due, mut kept) = (Vec::new(), None);
        for approval in page {
            if is_due(context, &approval, now).await? {
                due.push(approval);
            } else {
                kept = Some(approval.approval_id);
            }
        }
        // What is gone is no place to go on from.
        let stays = if dropped(&context.ledger, &due, &[]).await? { kept } else { last };
        query.after = stays.or(query.after);
        if is_through {
            query.after = None;
            break;
        }
        tokio::time::sleep(PAUSE).await;
    }
    context.rounds.swept.goes_on(List::Approvals, query.after.map(Place::Approval));
    Ok(is_through)
}

/// Whether an approval is over, for long enough, and no call is on its way with it.
async fn is_due(
    context: &Context,
    approval: &ApprovalRecord,
    now: Timestamp,
) -> Result<bool, LedgerError> {
    // It came to its end no later than it would have expired.
    let is_old = approval.expires_at
        < context.settings.ledger.retention.forgotten_since(approval.chain.tenant(), now);
    if !is_old || !approval.may_be_forgotten() {
        return Ok(false);
    }
    let record = match context.ledger.store().effect(approval.record_id).await {
        Ok(record) => record,
        Err(error) if error.is_transient() => return Err(error.into()),
        Err(error) => {
            // Nobody can say whether a call is on its way with it; the others need not wait for that.
            tracing::warn!(%error, approval_id = %approval.approval_id, "an approval that is past its retention is kept, for its record cannot be read");
            return Ok(false);
        }
    };
    let record = record.filter(|record| record.call_id == approval.call_id);
    Ok(record.is_none_or(|record| matches!(record.state, EffectState::Tombstone { .. })))
}

/// A turn of the entries. Says whether the end of the list was reached.
pub(super) async fn entries(context: &Context) -> Result<bool, LedgerError> {
    let store = context.ledger.store();
    let limit = context.settings.ledger.retention.batch.clamp(1, 1_000);
    let after = context.rounds.swept.entry(&List::Entries);
    let mut query = DirectiveQuery { limit, after, ..DirectiveQuery::default() };
    let mut is_through = false;
    for _ in 0..BATCHES_MAX {
        if context.node.is_stopping() {
            return Ok(true);
        }
        let (page, now) = (store.directives(&query).await?, store.now());
        is_through = page.last().is_none_or(|last| {
            last.created_at >= context.settings.ledger.retention.tombstones_due_first(now)
        });
        let last = page.last().map(|last| last.directive_id.clone());
        let is_due = |entry: &Directive| {
            let since = context.settings.ledger.retention.forgotten_since(&entry.tenant, now);
            entry.over_since().is_some_and(|over| over < since) && !entry.is_open(now)
        };
        let (due, kept): (Vec<Directive>, Vec<Directive>) = page.into_iter().partition(is_due);
        let kept = kept.into_iter().next_back().map(|entry| entry.directive_id);
        let stays = if dropped(&context.ledger, &[], &due).await? { kept } else { last };
        query.after = stays.or(query.after);
        if is_through {
            query.after = None;
            break;
        }
        tokio::time::sleep(PAUSE).await;
    }
    context.rounds.swept.goes_on(List::Entries, query.after.map(Place::Entry));
    Ok(is_through)
}

/// Drops them; says whether they are gone, which they are not where another node was faster with one of them.
async fn dropped(
    ledger: &Ledger,
    approvals: &[ApprovalRecord],
    entries: &[Directive],
) -> Result<bool, LedgerError> {
    if approvals.is_empty() && entries.is_empty() {
        return Ok(true);
    }
    match ledger.forget_directive(approvals, entries).await {
        Ok(()) => {
            let (approvals, entries) = (approvals.len(), entries.len());
            tracing::info!(approvals, entries, "expired approvals and entries dropped");
            Ok(true)
        }
        // The next round finds what is left.
        Err(LedgerError::Store(StoreError::Conflict)) => Ok(false),
        Err(error) => Err(error),
    }
}
