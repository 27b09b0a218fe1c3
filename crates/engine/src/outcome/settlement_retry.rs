//! Retries of settlements: outcomes that are unknown, or could not be written while the ledger was unreachable, are tried until they are
//! recorded.
//!
//! Owns those retries, and what callers are told meanwhile. Invariant I13: no record of this process stays dispatched for ever because the
//! ledger was unreachable for a while; what is not written before the process ends is taken over by the next one, by class.

use std::{sync::Arc, time::Duration};

use placet_ledger::{
    ledger::{LedgerError, Outcome},
    record::{EffectRecord, Resolution},
    store::StoreError,
};
use placet_types::{
    envelope::result::ToolResultEnvelope,
    error::{ErrorCode, Execution, Refusal},
};

use crate::{
    adapters::ports::backoff,
    answer::Answer,
    outcome::{
        Outcomes,
        recorded::{self, complete},
        settle,
    },
    result::unknown,
};

/// The outcome of a dispatch that is not recorded yet.
#[derive(Debug)]
pub(crate) struct Finding {
    pub(crate) outcome: Outcome,
    /// The probe that found it, if one did.
    pub(crate) by: Option<Resolution>,
    pub(crate) result: ToolResultEnvelope,
}

/// Retries recording an outcome that its caller was not told.
pub(crate) fn keep_trying(outcomes: &Arc<Outcomes>, record: EffectRecord, finding: Finding) {
    let owner = Arc::clone(outcomes);
    let hand = outcomes.callers.in_flight.take(record.record_id);
    outcomes.registry.spawn(async move {
        let _hand = hand;
        let Finding { outcome, by, mut result } = finding;
        let mut tries = 0_u32;
        while rest(&owner, &mut tries).await {
            if complete(&owner, &record, &mut result).await.is_err() {
                continue;
            }
            let is_unknown = matches!(outcome, Outcome::Unknown(_));
            let (outcome, by) = (outcome.clone(), by.clone());
            match owner.ledger.settle_recorded(&record, outcome, by, &result).await {
                Ok(kept) => {
                    if is_unknown {
                        owner.metrics.count_indeterminate();
                    }
                    return recorded::tell_end(&owner, &kept).await;
                }
                Err(error) if error.is_transient() => {}
                // It was recorded although the connection broke, or another task or node has ended it.
                Err(LedgerError::Store(StoreError::Conflict)) => return,
                Err(error) => {
                    owner.node.noticed(&error);
                    tracing::error!(%error, record_id = %record.record_id, "an outcome could not be kept");
                    let reason = format!("its outcome could not be kept: {error}");
                    let answer = give_up(&owner, &record, &reason).await;
                    return owner.registry.publish(&record.call_id, answer);
                }
            }
        }
        tracing::warn!(
            record_id = %record.record_id,
            "the engine stops before an outcome could be recorded: it is unknown until the next start looks for it"
        );
    });
}

/// Waits before the next attempt; returns `false` when the engine is stopping.
async fn rest(outcomes: &Outcomes, tries: &mut u32) -> bool {
    let time = backoff(*tries).min(Duration::from_secs(5));
    *tries = tries.saturating_add(1);
    outcomes.pause(time).await
}

/// Records that the outcome of a dispatch is unknown, and returns that answer.
pub(crate) async fn give_up(
    outcomes: &Arc<Outcomes>,
    record: &EffectRecord,
    reason: &str,
) -> Answer {
    let at = outcomes.ledger.store().now();
    let outcome = Outcome::Unknown(reason.to_owned());
    settle::recovered(outcomes, record, outcome, None, |subject| unknown(subject, at)).await
}

/// The refusal for a call that was sent and whose outcome could not be recorded (I6).
pub(crate) fn unrecorded(error: &LedgerError) -> Refusal {
    Refusal::new(
        ErrorCode::LedgerUnavailable,
        "the call was sent, but its outcome could not be recorded; ask again with the same key once the ledger can be reached",
    )
    .with_execution(Execution::Unknown)
    .with_detail(error)
}

/// Reverts the re-arm: the outcome is unknown as before.
pub(crate) async fn disarm(outcomes: &Outcomes, record: &EffectRecord, reason: &str) -> Answer {
    match outcomes.ledger.disarm(record, reason).await {
        Ok(before) => {
            let answer = recorded::answer(outcomes, &before, false).await;
            outcomes.registry.publish(&record.call_id, answer.clone());
            answer
        }
        Err(error) => {
            outcomes.node.noticed(&error);
            tracing::warn!(%error, record_id = %record.record_id, "a re-arm could not be taken back");
            recorded::now(outcomes, record).await
        }
    }
}

/// Records that the outcome is unknown, and tells the waiters.
pub(crate) async fn end_unknown(outcomes: &Arc<Outcomes>, record: &EffectRecord, reason: &str) {
    let answer = give_up(outcomes, record, reason).await;
    outcomes.registry.publish(&record.call_id, answer);
}
