//! Deferred: a call that was sent before, and that something keeps from being sent again for the moment.
//!
//! Owns when it is tried again. Invariants: what passes by itself never makes the outcome of a keyed call unknown while its target still
//! knows the token; nothing is sent from here, every try goes through the gate; and a process that ends leaves it to the next one.

use std::{sync::Arc, time::Duration};

use tokio::{task::JoinHandle, time::Instant};

use placet_adapter::outcome::Outcome;
use placet_ledger::record::{Attempt, EffectRecord, EffectState};
use placet_types::error::{ErrorCode, Execution, Refusal};

use crate::{
    adapters::ports::backoff,
    answer::Answer,
    call::{Brokered, Call},
    context::Context,
    outcome::{recorded, settlement_retry},
    recovery,
    responder::Responder,
    stages::retry,
};

/// After how many tries they become rare, and how rare: an obstacle that has lasted for some ten minutes may last for hours.
const SOON_MAX: u32 = 30;
const LATER: Duration = Duration::from_secs(300);
/// How long before the window closes the last try is made.
const LAST_TRY: Duration = Duration::from_secs(3);

/// Has a keyed call whose target did not answer sent again, now or later, and settles nothing then; any other one is given back. A call that
/// was taken over is tried until its window closes, any other one a few times within its latency budget.
pub(crate) async fn unanswered(
    context: &Arc<Context>,
    call: Call<Brokered>,
    record: Option<EffectRecord>,
    outcome: &Outcome,
    late: Option<&JoinHandle<Option<Outcome>>>,
) -> Option<Call<Brokered>> {
    let open = |record: &EffectRecord| matches!(&record.state, EffectState::Dispatched(attempt) if recovery::is_within_window(&context.ledger, attempt));
    let Some(record) = record.filter(open) else { return Some(call) };
    let is_unknown = matches!(outcome, Outcome::Unknown(_));
    if call.stage.built.recovered && retry::is_unanswered(outcome) {
        late.inspect(|task| task.abort());
        deferrals(context, call, record, "its target did not answer").await;
    } else if is_unknown && context.node.is_ending() {
        late.inspect(|task| task.abort());
        leave(call.responder);
    } else if is_unknown && late.is_none() && retry::may_repeat_keyed(context, &call.stage, &record)
    {
        retry::send_again(context, call, record).await;
    } else {
        return Some(call);
    }
    None
}

/// Has a call that was sent before tried again after a while. One that this process sent first has a caller who waits for it, and only as
/// long as its latency budget lasts; one that was taken over is tried until its window closes.
pub(crate) async fn deferrals(
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
        // Its last try may have been kept though nobody could be told so; and somebody may have ended it.
        match context.ledger.store().effect(record.record_id).await {
            Ok(Some(now)) => record = now,
            Ok(None) => break,
            Err(error) => {
                context.node.noticed(&error.into());
                continue;
            }
        }
        let EffectState::Dispatched(attempt) = &record.state else { break };
        if !recorded::is_ours(&context.ledger, &record) {
            break;
        }
        let attempt: Attempt = attempt.clone();
        if !recovery::is_within_window(&context.ledger, &attempt) {
            // Before the passage lets go: a call that nothing owns is recovered by the one who looks for such ones.
            let _hand = context.callers.in_flight.take(record.record_id);
            responder.release();
            return recovery::by_class(context, record, &attempt).await;
        }
        if brokered.built.recovered {
            brokered.built.deadline = None;
        }
        if let Some(resumed) = &mut brokered.built.resumed {
            resumed.record = record;
        }
        return context.routes.gate(Call { responder, stage: brokered });
    }
    match recorded::now(context, &record).await {
        // Somebody else works on it, and tells; if that is another node, the ledger does.
        Answer::Held(_) | Answer::InProgress(_) => {
            drop(context.watch(&record));
            responder.release();
        }
        end @ (Answer::Finished(_) | Answer::Refused(_)) => responder.finish(end),
    }
}

/// How long a call waits for its next try, of a window that is open for so many milliseconds still: a pause that would outlast it ends a
/// moment before it closes, for one last try, and after that one as it closes.
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
pub(crate) fn leave(responder: Responder) {
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
        // The last try was made: what is left is waited for.
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
