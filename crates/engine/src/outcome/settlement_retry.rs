//! Calls of which nobody can say how they ended, and what could not be written while the ledger could not be reached, tried again until it
//! can.
//!
//! Owns those tries, and what is told meanwhile. Invariant I13: no record of this process stays dispatched for ever because the ledger was away for a while; what
//! does not get in before the process ends is taken over by the next one, by class.

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
        recorded::{self, complete, subject_of},
    },
    result::{answer_of, subject_alone, unknown},
};

/// What became of a dispatch, and waits to be kept.
#[derive(Debug)]
pub(crate) struct Finding {
    pub(crate) outcome: Outcome,
    /// The probe that found it out, if one did.
    pub(crate) by: Option<Resolution>,
    pub(crate) result: ToolResultEnvelope,
}

/// Tries to keep an outcome that its caller was not told of.
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
                        owner.metrics.indeterminate();
                    }
                    return owner.registry.forget(&kept.call_id);
                }
                Err(error) if error.is_transient() => {}
                // It was kept when the connection broke, or somebody else has ended it.
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
    });
}

/// Waits before the next try; a stopping engine tries no more.
async fn rest(outcomes: &Outcomes, tries: &mut u32) -> bool {
    let time = backoff(*tries).min(Duration::from_secs(5));
    *tries = tries.saturating_add(1);
    outcomes.pause(time).await
}

/// Records that the outcome of a dispatch is unknown, and answers so.
pub(crate) async fn give_up(
    outcomes: &Arc<Outcomes>,
    record: &EffectRecord,
    reason: &str,
) -> Answer {
    let at = outcomes.ledger.store().now();
    let (result, kept) = match subject_of(outcomes, record).await {
        Ok(subject) => {
            let result = unknown(subject, at);
            let outcome = Outcome::Unknown(reason.to_owned());
            let kept = outcomes.ledger.settle_recorded(record, outcome, None, &result).await;
            (result, kept)
        }
        // Nothing is recorded that would say less than is known, for as long as that can be read later.
        Err(error) => (unknown(subject_alone(record), at), Err(error)),
    };
    match kept {
        Ok(_) => {
            outcomes.metrics.indeterminate();
            answer_of(result, false)
        }
        // It was settled otherwise, or it is another one's by now.
        Err(LedgerError::Store(StoreError::Conflict)) => recorded::now(outcomes, record).await,
        Err(error) => {
            outcomes.node.noticed(&error);
            if error.is_transient() {
                let outcome = Outcome::Unknown(reason.to_owned());
                let result = result.clone();
                let finding = Finding { outcome, by: None, result };
                keep_trying(outcomes, record.clone(), finding);
            }
            recorded::refused(record, unrecorded(&error), result.policy_decision_id.clone())
        }
    }
}

/// What was sent, and of which nothing could be recorded since (I6).
pub(crate) fn unrecorded(error: &LedgerError) -> Refusal {
    Refusal::new(
        ErrorCode::LedgerUnavailable,
        "the call was sent, but its outcome could not be recorded; ask again with the same key after a restart",
    )
    .with_execution(Execution::Unknown)
    .with_detail(error)
}

/// Takes the re-arm back: the outcome is unknown as before.
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

/// Records that nobody can say, and tells the waiters.
pub(crate) async fn end_unknown(outcomes: &Arc<Outcomes>, record: &EffectRecord, reason: &str) {
    let answer = give_up(outcomes, record, reason).await;
    outcomes.registry.publish(&record.call_id, answer);
}
