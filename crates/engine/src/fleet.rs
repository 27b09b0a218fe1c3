//! What a node does about the others: takes over from dead ones, follows their policies, tells waiters what they do.
//!
//! Owns those rounds; the keeper decides when they are due. Invariants: a dispatch is taken over by one survivor only (compare and swap),
//! and only from a node that is fenced; one poller serves all waiters, with a bounded number of look-ups in a round.

use std::sync::Arc;

use crate::{
    answer::Answer,
    context::Context,
    outcome::{Outcomes, recorded},
    policies, recovery,
    registry::Watched,
};

/// How many calls are looked up in one round.
const LOOKED_UP_MAX: usize = 500;

/// One round: is the ledger reachable, are the policies ours, has a node died?
pub(crate) async fn round(context: &Arc<Context>) {
    if let Err(error) = look(context).await {
        context.node.noticed(&error);
        // That the ledger cannot be reached was said when that began.
        if !context.node.health().is_ledger_lost() {
            tracing::warn!(%error, "cluster maintenance failed");
        }
    }
}

async fn look(context: &Arc<Context>) -> Result<(), placet_ledger::ledger::LedgerError> {
    policies::follow(context).await?;
    let store = context.ledger.store();
    if store.lease_has_expired() {
        // Reads work, and nothing can be written.
        let why = "the lease cannot be renewed: the database does not commit (is it locked, stopped, or waiting for a standby?)";
        context.node.health().ledger_lost(why);
    } else {
        context.node.health().ledger_found();
    }
    if !store.is_shared() {
        return Ok(());
    }
    let dead = store.fence_dead().await?;
    if !dead.is_empty() {
        tracing::warn!(epochs = ?dead, "nodes were silent for too long and are fenced");
    }
    if context.node.is_ending() {
        // A node that takes over a call has to finish it.
        return Ok(());
    }
    let adopted = recovery::adopt_orphans(&context.ledger).await;
    if !adopted.records.is_empty() {
        let recovered = recovery::recover(context, adopted.records).await;
        let (unknown, queued) = (recovered.unknown, recovered.queued);
        tracing::warn!(unknown, queued, "calls of nodes that died were taken over");
    }
    context.routes.look_again();
    adopted.failed.map_or(Ok(()), Err)
}

/// One round over the calls that have waiters here and whose progress no task here reports.
pub(crate) async fn poll(outcomes: &Outcomes) {
    for call in outcomes.registry.watched(LOOKED_UP_MAX) {
        if outcomes.node.is_stopping() || outcomes.node.health().is_ledger_lost() {
            return;
        }
        look_up(outcomes, &call).await;
    }
}

async fn look_up(outcomes: &Outcomes, call: &Watched) {
    match outcomes.ledger.store().effect(call.record_id).await {
        // Nothing has changed since the last answer.
        Ok(Some(record)) if record.rev == call.rev && record.call_id == call.call_id => {}
        Ok(Some(record)) if record.call_id == call.call_id => {
            let answer = recorded::answer(outcomes, &record, false).await;
            outcomes.registry.publish_watched(call, record.rev, answer);
        }
        // The key was released, and another call may have taken it.
        Ok(_) => {
            if let Some(end) = ended(outcomes, call).await {
                outcomes.registry.publish_watched(call, call.rev, end);
            }
        }
        Err(error) => outcomes.node.noticed(&error.into()),
    }
}

/// How a call ended whose record no longer exists.
async fn ended(outcomes: &Outcomes, call: &Watched) -> Option<Answer> {
    let approval = outcomes.ledger.store().approval_of_call(&call.call_id).await.ok()?;
    recorded::gone(outcomes, &call.call_id, approval.as_ref())
}
