//! Another arm for a call whose outcome is unknown (T9): asked for by operators, sent by the engine.
//!
//! Owns the way from a re-armed record back to a call. Invariants: nothing is sent without a new permit, and a re-armed call that may
//! not be sent is of unknown outcome again, never "not executed". Not here: who may ask (`engine::operator`).

use std::sync::Arc;

use placet_ledger::record::EffectRecord;

use crate::{
    context::Context,
    in_flight::Work,
    outcome::settlement_retry,
    recovery::{self, NotTaken},
};

/// How many re-armed records are read in one round.
const PAGE: usize = 100;

/// Sends re-armed calls that wait: after a restart, after another node died, or because they could not be sent before.
pub(crate) async fn send_waiting(context: &Arc<Context>) {
    let page = context.rounds.rearmed.next(context.ledger.store(), "rearmed", PAGE).await;
    let waiting = match page {
        Ok(waiting) => waiting,
        Err(error) => return context.node.noticed(&error.into()),
    };
    for record in waiting {
        send(context, record).await;
    }
}

/// Sends a re-armed call; of several nodes that try, one wins the dispatch.
pub(crate) async fn send(context: &Arc<Context>, record: EffectRecord) {
    if context.node.is_ending() || context.node.health().cannot_decide().is_some() {
        return;
    }
    let work = Work::Rearmed(record.record_id);
    let Some(guard) = context.callers.in_flight.take_alone(work) else { return };
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
