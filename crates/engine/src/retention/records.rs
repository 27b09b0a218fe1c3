//! Records whose result, or whose tombstone, is past its retention, and what approvers were shown of approvals that are void.
//!
//! Owns which of them are due, and how they are moved.

use std::collections::BTreeSet;

use placet_ledger::{
    keys::time_of,
    ledger::LedgerError,
    record::{EffectRecord, EffectState},
    store::{ApprovalQuery, EffectQuery, StoreError},
};
use placet_types::{
    clock::Timestamp,
    ids::{RecordId, TenantId},
};

use crate::{
    context::Context,
    recovery,
    rounds::{BATCHES_MAX, List, PAUSE, Place},
    settings::Retention,
};

/// A turn of the approvals that are void. They have no record any more, so what was shown of them is dropped here once it has expired.
/// They themselves stay for longer. Says whether the end of the list was reached.
pub(super) async fn proposals(context: &Context) -> Result<bool, LedgerError> {
    let retention = &context.settings.ledger.retention;
    let store = context.ledger.store();
    let mut query = ApprovalQuery {
        state: Some("void".to_owned()),
        limit: retention.batch.clamp(1, 1_000),
        after: context.rounds.swept.approval(&List::Void),
        ..ApprovalQuery::default()
    };
    for _ in 0..BATCHES_MAX {
        if context.node.is_stopping() {
            return Ok(true);
        }
        let page = store.approvals(&query).await?;
        query.after = page.last().map(|last| last.approval_id.clone());
        let now = store.now();
        let mut due = Vec::new();
        for approval in page {
            let tenant = approval.chain.tenant();
            let over = approval.expires_at < retention.results_since(tenant, now);
            // Of most it is gone since an earlier round.
            let is_there =
                |found: &Result<_, _>| !matches!(found, Err(StoreError::ContentMissing(_)));
            if over && is_there(&store.content(tenant, approval.proposal).await) {
                due.push(approval);
            }
        }
        if !due.is_empty() {
            context.ledger.forget_proposals(&due).await?;
        }
        context.rounds.swept.goes_on(List::Void, query.after.clone().map(Place::Approval));
        if query.after.is_none() {
            return Ok(true);
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(false)
}

/// A turn of the records in a state: those of a tenant whose time is shorter than everybody's, or all that are past everybody's. Says
/// whether the end of the list was reached.
pub(super) async fn records(
    context: &Context,
    state: &'static str,
    tenant: Option<&TenantId>,
) -> Result<bool, LedgerError> {
    let list = List::Records(state, tenant.cloned());
    let retention = &context.settings.ledger.retention;
    let store = context.ledger.store();
    let due = match state {
        "tombstone" => retention.tombstones_due(tenant, store.now()),
        _ => retention.results_due(tenant, store.now()),
    };
    let mut query = EffectQuery {
        tenant: tenant.cloned(),
        state: Some(state.to_owned()),
        settled_before: Some(due),
        limit: retention.batch.clamp(1, 1_000),
        after: context.rounds.swept.record(&list),
        ..EffectQuery::default()
    };
    let (mut moved, mut is_through) = (0_usize, false);
    for _ in 0..BATCHES_MAX {
        if context.node.is_stopping() {
            break;
        }
        let page = store.effects(&query).await?;
        is_through = page.is_empty();
        if is_through {
            query.after = None;
            break;
        }
        let now = store.now();
        let seen: Vec<RecordId> = page.iter().map(|record| record.record_id).collect();
        let due = page.into_iter().filter(|record| is_due(retention, record, now)).collect();
        let gone = move_on(context, due).await?;
        moved = moved.saturating_add(gone.len());
        // What has moved is no place to go on from: its store may not know any more where it stood.
        let stays = seen.into_iter().rev().find(|record_id| !gone.contains(record_id));
        query.after = stays.or(query.after);
        tokio::time::sleep(PAUSE).await;
    }
    context.rounds.swept.goes_on(list, query.after.map(Place::Record));
    if moved > 0 {
        tracing::info!(records = moved, state, "records past their retention were moved");
    }
    Ok(is_through || context.node.is_stopping())
}

fn is_due(retention: &Retention, record: &EffectRecord, now: Timestamp) -> bool {
    let tenant = &record.scope.tenant;
    if let EffectState::Tombstone { .. } = &record.state {
        let since = retention.forgotten_since(tenant, now);
        let key_is_refused = time_of(&record.key).is_some_and(|made_at| made_at < since);
        return record.may_be_forgotten() && key_is_refused && record.updated_at < since;
    }
    record.state.is_settled() && record.updated_at < retention.results_since(tenant, now)
}

/// Moves all of a batch at once; one by one when one of them cannot be moved. Answers which were.
async fn move_on(
    context: &Context,
    due: Vec<EffectRecord>,
) -> Result<BTreeSet<RecordId>, LedgerError> {
    if due.is_empty() {
        return Ok(BTreeSet::new());
    }
    match end(context, &due).await {
        Ok(()) => return Ok(due.iter().map(|record| record.record_id).collect()),
        Err(error) if recovery::concerns_all(&error) => return Err(error),
        Err(_) => {}
    }
    let mut moved = BTreeSet::new();
    for record in due {
        match end(context, std::slice::from_ref(&record)).await {
            Ok(()) => drop(moved.insert(record.record_id)),
            // A retry was faster, or another node.
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
        // What is told of it from here on is the ledger's.
        context.registry.forget(&record.call_id);
    }
    Ok(())
}
