//! Retention: results become tombstones, evidence for approvers is dropped with them, and tombstones whose keys tell their age are dropped
//! (T10, decision 27); so is what ended as long ago in the approval service.
//!
//! Owns which of them are due, and how they are moved. Invariants: a key that had an effect never becomes free again, unless it is refused
//! as too old from then on; nothing is dropped that may still change: no call that waits or runs, no break-glass record before its review;
//! no call waits for a round; and what cannot be read or moved does not block the other lists.

use std::time::Duration;

use placet_ledger::{
    approval::ApprovalRecord,
    directive::Directive,
    keys::time_of,
    ledger::{Ledger, LedgerError},
    record::{EffectRecord, EffectState},
    store::{ApprovalQuery, DirectiveQuery, EffectQuery, StoreError},
};
use placet_types::{clock::Timestamp, ids::TenantId};

use crate::{context::Context, recovery, settings::Retention};

/// The states whose records have a result that may be due.
const SETTLED: [&str; 4] = ["succeeded", "failed_final", "failed_retriable", "denied"];
const TOMBSTONE: &str = "tombstone";
/// The pause between two pages of a list, to give way to calls.
const PAUSE: Duration = Duration::from_millis(20);

/// One round: goes through every list to its end.
pub(crate) async fn sweep(context: &Context) {
    let retention = &context.settings.ledger.retention;
    for state in SETTLED.into_iter().chain([TOMBSTONE]) {
        // First each tenant with a retention of its own, then the default for all.
        for tenant in retention.tenants.keys().map(Some).chain([None]) {
            if !goes_on(context, state, records(context, state, tenant).await) {
                return;
            }
        }
    }
    if goes_on(context, "void approvals", proposals(context).await)
        && goes_on(context, "approvals", approvals(context).await)
    {
        goes_on(context, "entries", entries(context).await);
    }
}

/// Logs that a list could not be processed to its end; returns whether to try the next one.
fn goes_on(context: &Context, list: &str, swept: Result<(), LedgerError>) -> bool {
    let Err(error) = swept else { return true };
    context.node.noticed(&error);
    tracing::warn!(%error, list, "what is past its retention could not be gone through to the end");
    !recovery::concerns_all(&error)
}

fn page_size(retention: &Retention) -> usize {
    retention.batch.clamp(1, 1_000)
}

/// The records in a state that are past the retention of a tenant, or of all tenants.
async fn records(
    context: &Context,
    state: &str,
    tenant: Option<&TenantId>,
) -> Result<(), LedgerError> {
    let retention = &context.settings.ledger.retention;
    let store = context.ledger.store();
    let due = match state {
        TOMBSTONE => retention.keys_since(tenant, store.now()),
        _ => retention.results_since(tenant, store.now()),
    };
    let mut query = EffectQuery {
        tenant: tenant.cloned(),
        state: Some(state.to_owned()),
        settled_before: Some(due),
        limit: page_size(retention),
        ..EffectQuery::default()
    };
    let mut moved = 0_usize;
    loop {
        let page = store.effects(&query).await?;
        let Some(last) = page.last() else { break };
        query.after = Some(last.place());
        let now = store.now();
        let due = page.into_iter().filter(|record| is_due(retention, record, now)).collect();
        moved = moved.saturating_add(move_on(context, due).await?);
        if !context.pause(PAUSE).await {
            break;
        }
    }
    if moved > 0 {
        tracing::info!(records = moved, state, "records past their retention were moved");
    }
    Ok(())
}

fn is_due(retention: &Retention, record: &EffectRecord, now: Timestamp) -> bool {
    let tenant = &record.scope.tenant;
    if let EffectState::Tombstone { .. } = &record.state {
        let since = retention.forgotten_since(tenant, now);
        let key_is_refused = time_of(&record.key).is_some_and(|made_at| made_at < since);
        return record.may_be_forgotten() && key_is_refused && record.updated_at < since;
    }
    record.state.is_settled() && record.updated_at < retention.results_since(Some(tenant), now)
}

/// Moves a whole page at once; one by one if one of them cannot be moved. Returns how many were moved.
async fn move_on(context: &Context, due: Vec<EffectRecord>) -> Result<usize, LedgerError> {
    if due.is_empty() {
        return Ok(0);
    }
    match end(context, &due).await {
        Ok(()) => return Ok(due.len()),
        Err(error) if recovery::concerns_all(&error) => return Err(error),
        Err(_) => {}
    }
    let mut moved = 0_usize;
    for record in due {
        match end(context, std::slice::from_ref(&record)).await {
            Ok(()) => moved = moved.saturating_add(1),
            // A retry or another node was faster.
            Err(LedgerError::Store(StoreError::Conflict | StoreError::Illegal(_))) => {}
            Err(error) if recovery::concerns_all(&error) => return Err(error),
            Err(error) => {
                tracing::warn!(%error, record_id = %record.record_id, "a record that is past its retention could not be moved");
            }
        }
    }
    Ok(moved)
}

async fn end(context: &Context, records: &[EffectRecord]) -> Result<(), LedgerError> {
    let are_tombstones =
        records.first().is_some_and(|record| matches!(record.state, EffectState::Tombstone { .. }));
    if are_tombstones {
        return context.ledger.forget(records).await;
    }
    context.ledger.bury(records).await?;
    for record in records {
        // From here on the ledger has its state.
        context.registry.forget(&record.call_id);
    }
    Ok(())
}

/// Void approvals. They have no record any more, so what was shown of them is dropped here once it has expired. The approvals themselves
/// are kept for longer.
async fn proposals(context: &Context) -> Result<(), LedgerError> {
    let retention = &context.settings.ledger.retention;
    let store = context.ledger.store();
    let mut query = ApprovalQuery {
        state: Some("void".to_owned()),
        limit: page_size(retention),
        ..ApprovalQuery::default()
    };
    loop {
        let page = store.approvals(&query).await?;
        let Some(last) = page.last() else { break };
        query.after = Some(last.approval_id.clone());
        let now = store.now();
        let mut due = Vec::new();
        for approval in page {
            let tenant = approval.chain.tenant();
            let over = approval.expires_at < retention.results_since(Some(tenant), now);
            // For most of them it was dropped in an earlier round.
            let is_there =
                |found: &Result<_, _>| !matches!(found, Err(StoreError::ContentMissing(_)));
            if over && is_there(&store.content(tenant, approval.proposal).await) {
                due.push(approval);
            }
        }
        if !due.is_empty() {
            context.ledger.forget_proposals(&due).await?;
        }
        if !context.pause(PAUSE).await {
            break;
        }
    }
    Ok(())
}

/// Approvals that have ended.
async fn approvals(context: &Context) -> Result<(), LedgerError> {
    let retention = &context.settings.ledger.retention;
    let store = context.ledger.store();
    let mut query = ApprovalQuery { limit: page_size(retention), ..ApprovalQuery::default() };
    loop {
        let (page, now) = (store.approvals(&query).await?, store.now());
        let Some(last) = page.last() else { break };
        let is_end = last.created_at >= retention.tombstones_due_first(now);
        let last = last.approval_id.clone();
        let (mut due, mut kept) = (Vec::new(), None);
        for approval in page {
            if is_over(context, &approval, now).await? {
                due.push(approval);
            } else {
                kept = Some(approval.approval_id);
            }
        }
        // A dropped approval cannot be a cursor.
        let stays = if dropped(&context.ledger, &due, &[]).await? { kept } else { Some(last) };
        query.after = stays.or(query.after);
        if is_end || !context.pause(PAUSE).await {
            break;
        }
    }
    Ok(())
}

/// Whether an approval ended long enough ago, and no call is still using it.
async fn is_over(
    context: &Context,
    approval: &ApprovalRecord,
    now: Timestamp,
) -> Result<bool, LedgerError> {
    // It ended no later than its expiry.
    let is_old = approval.expires_at
        < context.settings.ledger.retention.forgotten_since(approval.chain.tenant(), now);
    if !is_old || !approval.may_be_forgotten() {
        return Ok(false);
    }
    let record = match context.ledger.store().effect(approval.record_id).await {
        Ok(record) => record,
        Err(error) if error.is_transient() => return Err(error.into()),
        Err(error) => {
            // Whether a call is using it is unknown; the others need not wait for that.
            tracing::warn!(%error, approval_id = %approval.approval_id, "an approval that is past its retention is kept, for its record cannot be read");
            return Ok(false);
        }
    };
    let record = record.filter(|record| record.call_id == approval.call_id);
    Ok(record.is_none_or(|record| matches!(record.state, EffectState::Tombstone { .. })))
}

/// Grants, delegations, freezes, revocations and break-glass records that have ended.
async fn entries(context: &Context) -> Result<(), LedgerError> {
    let retention = &context.settings.ledger.retention;
    let store = context.ledger.store();
    let mut query = DirectiveQuery { limit: page_size(retention), ..DirectiveQuery::default() };
    loop {
        let (page, now) = (store.directives(&query).await?, store.now());
        let Some(last) = page.last() else { break };
        let is_end = last.created_at >= retention.tombstones_due_first(now);
        let last = last.directive_id.clone();
        let is_over = |entry: &Directive| {
            let since = retention.forgotten_since(&entry.tenant, now);
            entry.over_since().is_some_and(|over| over < since) && !entry.is_open(now)
        };
        let (due, mut kept): (Vec<Directive>, Vec<Directive>) = page.into_iter().partition(is_over);
        let kept = kept.pop().map(|entry| entry.directive_id);
        let stays = if dropped(&context.ledger, &[], &due).await? { kept } else { Some(last) };
        query.after = stays.or(query.after);
        if is_end || !context.pause(PAUSE).await {
            break;
        }
    }
    Ok(())
}

/// Drops them; returns whether they are gone, which they are not if another node was faster with one of them.
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
