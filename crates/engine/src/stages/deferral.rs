//! Deferral: a call that was sent before, and that an obstacle keeps from being sent again for now.
//!
//! Owns when it is tried again. Invariants: a passing obstacle never makes the outcome of a keyed call unknown while its target still knows
//! the token; nothing is sent from here, every attempt goes through the gate; and a process that ends leaves the call to the next one.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use placet_ledger::record::EffectRecord;
use placet_types::error::{ErrorCode, Execution, Refusal};

use crate::{
    adapters::ports::backoff,
    answer::Answer,
    call::{Brokered, Call},
    context::Context,
    lifecycle::transitions::{AfterPause, Due, Recourse, State, step},
    outcome::{recorded, settlement_retry},
    recovery,
    responder::Responder,
};

/// After how many attempts they become rare, and how rare: an obstacle that has lasted for some ten minutes may last for hours.
const SOON_MAX: u32 = 30;
const LATER: Duration = Duration::from_secs(300);
/// How long before the window closes the last attempt is made.
const LAST_TRY: Duration = Duration::from_secs(3);

/// Defers a call that was sent before. One that this process sent first has a waiting caller, and is deferred only within its latency
/// budget; one that was taken over is tried until its window closes.
pub(crate) async fn defer(
    context: &Arc<Context>,
    call: Call<Brokered>,
    mut record: EffectRecord,
    why: &str,
) {
    let Call { responder, stage: mut brokered } = call;
    loop {
        let tries = brokered.built.deferrals;
        let left_ms =
            record.state.attempt().map_or(0, |sent| context.ledger.may_repeat_for_ms(sent));
        let pause = pause_before(tries, left_ms);
        let late = |deadline: Instant| deadline <= Instant::now() + pause;
        if !brokered.built.recovered && brokered.built.deadline.is_none_or(late) {
            let reason = format!("sending it again was refused: {why}");
            return responder
                .finish(settlement_retry::give_up(&context.outcomes, &record, &reason).await);
        }
        tokio::select! {
            biased;
            () = context.node.ended() => return leave(responder),
            () = tokio::time::sleep(pause) => {}
        }
        brokered.built.deferrals = tries.saturating_add(1);
        brokered.built.decided_again = 0;
        // Its last attempt may have been recorded without an answer, and it may have been ended by someone else.
        let state = match context.ledger.store().effect(record.record_id).await {
            Ok(Some(now)) => {
                record = now;
                context.state_of(&record)
            }
            Ok(None) => State::Absent,
            Err(error) => {
                context.node.noticed(&error.into());
                continue;
            }
        };
        match step(state, Due) {
            // Restored from its record, under what is active now: what it was recovered under would be refused at each attempt.
            AfterPause::TryAgain
                if brokered.built.recovered
                    && !context.current.is_active(&brokered.built.active) =>
            {
                return recovery::leave_to(context, responder, record, Recourse::SendAgain).await;
            }
            AfterPause::TryAgain => {
                if brokered.built.recovered {
                    brokered.built.deadline = None;
                }
                if let Some(resumed) = &mut brokered.built.resumed {
                    resumed.record = record;
                }
                return context.routes.gate(Call { responder, stage: brokered });
            }
            AfterPause::Recover(recourse) => {
                return recovery::leave_to(context, responder, record, recourse).await;
            }
            AfterPause::Tell => break,
        }
    }
    match recorded::now(context, &record).await {
        // Another task works on it and reports; if it is on another node, the ledger is polled.
        Answer::Held(_) | Answer::InProgress(_) => {
            drop(context.watch(&record));
            responder.release();
        }
        end @ (Answer::Finished(_) | Answer::Refused(_)) => responder.finish(end),
    }
}

/// How long a call waits for its next attempt when its window closes in `left_ms`: a pause that would outlast the window ends shortly
/// before it closes, for one last attempt, and the pause after that one ends as it closes.
fn pause_before(tries: u32, left_ms: i64) -> Duration {
    let pause = if tries < SOON_MAX { backoff(tries) } else { LATER };
    let left = Duration::from_millis(u64::try_from(left_ms).unwrap_or(0));
    match left.checked_sub(LAST_TRY) {
        Some(until_last) if until_last > Duration::ZERO => pause.min(until_last),
        // Not at once, whatever the clock says.
        Some(_) | None => pause.min(left).max(backoff(0)),
    }
}

/// The process ends: the next one, or another node, takes the call over and sends it again.
pub(crate) fn leave(responder: Box<Responder>) {
    let message = "the call was sent, and the engine stops before it is known how it ended; repeat it with the same key";
    let refusal = Refusal::new(ErrorCode::InProgress, message)
        .with_execution(Execution::Unknown)
        .with_retry_after_ms(1_000);
    responder.refuse(refusal, None);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{LAST_TRY, LATER, SOON_MAX, pause_before};
    use crate::adapters::ports::backoff;

    const DAY_MS: i64 = 24 * 60 * 60 * 1_000;

    #[test]
    fn while_the_window_is_open_for_long_the_pauses_grow() {
        assert_eq!(pause_before(3, DAY_MS), backoff(3));
        assert_eq!(pause_before(SOON_MAX, DAY_MS), LATER);
        assert_eq!(pause_before(SOON_MAX, i64::MAX), LATER);
    }

    #[test]
    fn no_pause_outlasts_the_window_without_a_last_try() {
        assert_eq!(pause_before(SOON_MAX, 100_000), Duration::from_millis(100_000) - LAST_TRY);
        assert_eq!(pause_before(SOON_MAX, 3_001), Duration::from_millis(1));
        // The last attempt was made: wait for the rest of the window.
        assert_eq!(pause_before(SOON_MAX, 3_000), Duration::from_secs(3));
        assert_eq!(pause_before(SOON_MAX, 2_500), Duration::from_millis(2_500));
    }

    #[test]
    fn a_window_that_is_closed_is_looked_at_soon_and_not_at_once() {
        for left_ms in [0, -1, i64::MIN] {
            assert_eq!(pause_before(SOON_MAX, left_ms), backoff(0));
        }
    }
}
