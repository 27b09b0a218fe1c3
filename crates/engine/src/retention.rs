//! Retention: results become tombstones, what approvers were shown goes with them, and tombstones whose keys tell their age are
//! dropped (T10, decision 27); so is what has been over in the approval service for as long.
//!
//! Owns which records are due. Not here: what is over in the approval service (`approvals`), and in which order the lists take their turns (`lists`).
//! Invariants: a key that had an effect is never free again, unless it is refused as too old from then on; every turn is bounded and no
//! call waits for one, each list goes on where it stopped, and what cannot be moved keeps nothing else from it.

use std::{collections::BTreeSet, time::Duration};

use placet_ledger::{
    keys::time_of,
    ledger::LedgerError,
    record::{EffectRecord, EffectState},
    store::{ApprovalQuery, EffectQuery, StoreError},
};
use placet_types::{
    clock::Timestamp,
    error::{ErrorCode, Problem, Refusal},
    ids::{IdempotencyKey, RecordId, TenantId},
};

use crate::{context::Context, recovery};

mod approvals;
mod lists;

pub(crate) use lists::{Swept, sweep};

use lists::{List, Place};

/// How many batches a list is given in one turn.
const BATCHES_MAX: usize = 200;
/// The pause between two batches, in which calls come first.
const PAUSE: Duration = Duration::from_millis(20);
/// How far ahead of the ledger's clock a key may say it was made, in milliseconds.
const AHEAD_MS_MAX: i64 = 24 * 60 * 60 * 1_000;
/// How much longer than its horizon a tombstone is kept, in milliseconds: nodes may differ in their settings for a moment.
const MARGIN_MS: i64 = 24 * 60 * 60 * 1_000;

/// Why a key that nobody remembers is not taken.
pub(crate) fn refuse_key(
    context: &Context,
    tenant: &TenantId,
    key: &IdempotencyKey,
) -> Option<Refusal> {
    let made_at = time_of(key)?;
    let now = context.ledger.store().now();
    if made_at < context.settings.ledger.retention.keys_since(tenant, now) {
        return Some(Refusal::new(
            ErrorCode::KeyTooOld,
            "the key says that it was made longer ago than the ledger remembers keys; nothing was executed now",
        ));
    }
    (made_at.since_ms(now) > AHEAD_MS_MAX).then(|| {
        Refusal::new(ErrorCode::ValidationError, "the key says that it was made in the future")
            .with_problems(vec![Problem {
                pointer: "/idempotency_key".to_owned(),
                problem: "must not be dated more than a day ahead".to_owned(),
            }])
    })
}

/// A turn of the approvals that are void. They have no record any more, so what was shown of them is dropped here once it has expired.
/// They themselves stay for longer. Says whether the end of the list was reached.
async fn drop_proposals(context: &Context) -> Result<bool, LedgerError> {
    let retention = &context.settings.ledger.retention;
    let store = context.ledger.store();
    let mut query = ApprovalQuery {
        state: Some("void".to_owned()),
        limit: retention.batch.clamp(1, 1_000),
        after: context.swept.approval(&List::Void),
        ..ApprovalQuery::default()
    };
    for _ in 0..BATCHES_MAX {
        if context.stopping() {
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
        context.swept.goes_on(List::Void, query.after.clone().map(Place::Approval));
        if query.after.is_none() {
            return Ok(true);
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(false)
}

/// A turn of the records in a state: those of a tenant whose time is shorter than everybody's, or all that are past everybody's. Says
/// whether the end of the list was reached.
async fn go_through(
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
        after: context.swept.record(&list),
        ..EffectQuery::default()
    };
    let (mut moved, mut is_through) = (0_usize, false);
    for _ in 0..BATCHES_MAX {
        if context.stopping() {
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
        let due = page.into_iter().filter(|record| is_due(context, record, now)).collect();
        let gone = move_on(context, due).await?;
        moved = moved.saturating_add(gone.len());
        // What has moved is no place to go on from: its store may not know any more where it stood.
        let stays = seen.into_iter().rev().find(|record_id| !gone.contains(record_id));
        query.after = stays.or(query.after);
        tokio::time::sleep(PAUSE).await;
    }
    context.swept.goes_on(list, query.after.map(Place::Record));
    if moved > 0 {
        tracing::info!(records = moved, state, "records past their retention were moved");
    }
    Ok(is_through || context.stopping())
}

fn is_due(context: &Context, record: &EffectRecord, now: Timestamp) -> bool {
    let retention = &context.settings.ledger.retention;
    let tenant = &record.scope.tenant;
    if let EffectState::Tombstone { .. } = &record.state {
        let since = retention.keys_since(tenant, now).plus_ms(MARGIN_MS.saturating_neg());
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
