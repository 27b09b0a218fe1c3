//! Retention: results become tombstones, what approvers were shown goes with them, and tombstones whose keys tell their age are
//! dropped (T10, decision 27); so is what has been over at the desk for as long.
//!
//! Owns which records are due. Invariants: a key that had an effect is never free again, unless it is refused as too old from then on;
//! every round is bounded, and no call waits for one.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use placet_ledger::{
    keys::time_of,
    ledger::LedgerError,
    record::{EffectRecord, EffectState},
    store::{ApprovalQuery, EffectQuery, StoreError},
};
use placet_types::{
    clock::Timestamp,
    error::{ErrorCode, Problem, Refusal},
    ids::{ApprovalId, IdempotencyKey, TenantId},
};

use crate::context::Context;

mod of_desk;

/// How many batches one state is given in a round.
const BATCHES_MAX: usize = 200;
/// The pause between two batches, in which calls come first.
const PAUSE: Duration = Duration::from_millis(20);
/// How far ahead of the ledger's clock a key may say it was made, in milliseconds.
const AHEAD_MS_MAX: i64 = 24 * 60 * 60 * 1_000;
/// How much longer than its horizon a tombstone is kept, in milliseconds: nodes may differ in their settings for a moment.
const MARGIN_MS: i64 = 24 * 60 * 60 * 1_000;
/// What a record is called whose result is due.
const SETTLED: [&str; 4] = ["succeeded", "failed_final", "failed_retriable", "denied"];

/// Where the rounds stand that go on where the one before stopped.
#[derive(Debug, Default)]
pub(crate) struct Swept {
    /// The last void approval that was looked at; nothing: the next round begins with the oldest.
    void: Mutex<Option<ApprovalId>>,
}

impl Swept {
    fn void(&self) -> Option<ApprovalId> {
        self.void.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn void_to(&self, place: Option<ApprovalId>) {
        *self.void.lock().unwrap_or_else(PoisonError::into_inner) = place;
    }
}

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

/// One round through what is due.
pub(crate) async fn sweep(context: &Context) {
    for state in SETTLED {
        if let Err(error) = go_through(context, state).await {
            context.noticed(&error);
            return tracing::warn!(%error, state, "what is past its retention could not be moved");
        }
    }
    if let Err(error) = go_through(context, "tombstone").await {
        context.noticed(&error);
        tracing::warn!(%error, "tombstones could not be dropped");
    }
    if let Err(error) = drop_proposals(context).await {
        context.noticed(&error);
        tracing::warn!(%error, "what approvers were shown could not be dropped");
    }
    if let Err(error) = of_desk::sweep(context).await {
        context.noticed(&error);
        tracing::warn!(%error, "what is over at the desk could not be dropped");
    }
}

/// Approvals that are void have no record any more, so what was shown of them is dropped here once its time is over. They themselves
/// stay for longer, so each round goes on where the one before stopped: however many there are, none is left out.
async fn drop_proposals(context: &Context) -> Result<(), LedgerError> {
    let retention = &context.settings.ledger.retention;
    let store = context.ledger.store();
    let mut query = ApprovalQuery {
        state: Some("void".to_owned()),
        limit: retention.batch.clamp(1, 1_000),
        after: context.swept.void(),
        ..ApprovalQuery::default()
    };
    for _ in 0..BATCHES_MAX {
        if context.stopping() {
            break;
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
        context.swept.void_to(query.after.clone());
        if query.after.is_none() {
            break;
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

async fn go_through(context: &Context, state: &'static str) -> Result<(), LedgerError> {
    let retention = &context.settings.ledger.retention;
    let store = context.ledger.store();
    let due = |now: Timestamp| match state {
        "tombstone" => retention.tombstones_due(now),
        _ => retention.results_due(now),
    };
    let mut query = EffectQuery {
        state: Some(state.to_owned()),
        settled_before: Some(due(store.now())),
        limit: retention.batch.clamp(1, 1_000),
        ..EffectQuery::default()
    };
    let mut moved = 0_usize;
    for _ in 0..BATCHES_MAX {
        if context.stopping() {
            break;
        }
        let page = store.effects(&query).await?;
        let Some(last) = page.last() else { break };
        query.after = Some(last.record_id);
        let now = store.now();
        let due: Vec<_> = page.into_iter().filter(|record| is_due(context, record, now)).collect();
        moved = moved.saturating_add(move_on(context, due).await?);
        tokio::time::sleep(PAUSE).await;
    }
    if moved > 0 {
        tracing::info!(records = moved, state, "records past their retention were moved");
    }
    Ok(())
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

/// Moves all of a batch at once; one by one when one of them has moved meanwhile.
async fn move_on(context: &Context, due: Vec<EffectRecord>) -> Result<usize, LedgerError> {
    if due.is_empty() {
        return Ok(0);
    }
    match end(context, &due).await {
        Ok(()) => return Ok(due.len()),
        Err(LedgerError::Store(StoreError::Conflict | StoreError::Illegal(_))) => {}
        Err(error) => return Err(error),
    }
    let mut moved = 0_usize;
    for record in due {
        match end(context, std::slice::from_ref(&record)).await {
            Ok(()) => moved = moved.saturating_add(1),
            // A retry was faster, or another node.
            Err(LedgerError::Store(StoreError::Conflict | StoreError::Illegal(_))) => {}
            Err(error) => return Err(error),
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
