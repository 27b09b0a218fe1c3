//! Duplicates: the same key again.
//!
//! Owns which duplicate attaches to which call. Never executes: a duplicate gets the outcome of the original, or its state.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use tokio::{sync::watch, time::Instant};

use placet_ledger::{
    audit::AuditKind,
    ledger::Ledger,
    record::{EffectRecord, EffectState},
    store::StoreError,
};
use placet_telemetry::metrics::Duplicate;
use placet_types::{
    digest::DigestBuilder,
    error::{ErrorCode, Execution, Refusal},
    ids::{ApprovalId, ToolCallId},
    principal::PrincipalChain,
};

use crate::{
    answer::Answer,
    call::{Brokered, Call},
    context::Context,
    lifecycle::transitions::{AfterRepeat, Repeated, step},
    outcome::recorded,
    registry::Registry,
    responder::Responder,
    stages::{credential, refuse, run},
};

/// How often, and at what interval, a duplicate looks for an attempt that has just begun.
const LOOKS: u32 = 50;
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// How often a duplicate checks that its caller still waits.
const STILL_WAITED_FOR: Duration = Duration::from_millis(250);

/// Answers a call whose key is taken by `record`. Boxed, as [`refuse::brokered`] is.
pub(crate) fn answer(
    context: &Context,
    call: Call<Brokered>,
    record: EffectRecord,
) -> BoxFuture<'_, ()> {
    Box::pin(answer_duplicate(context, call, record))
}

async fn answer_duplicate(context: &Context, call: Call<Brokered>, record: EffectRecord) {
    let Call { mut responder, stage } = call;
    responder.detach_record();
    let (action, record) = match kept(context, &stage, record).await {
        Ok(Some(found)) => found,
        Ok(None) => return responder.refuse(moved_on(), None),
        Err(error) => return responder.refuse(context.lookup_failed(error), None),
    };
    if action == AfterRepeat::Conflict {
        return conflict(context, Call { responder, stage }, &record).await;
    }
    if let Err(refusal) = run::tell_of(context, &responder, &stage, &record).await {
        return responder.refuse(refusal, None);
    }
    match action {
        AfterRepeat::Attach | AfterRepeat::AttachToHeld => {
            context.metrics.count_duplicate(Duplicate::Joined);
            if let (AfterRepeat::AttachToHeld, Some(approval_id)) =
                (action, record.state.approval_id())
            {
                let standing = recorded::standing(context, &record).await;
                if standing.is_final() {
                    return end_of(context, responder, &stage, &record, standing.clone(), standing)
                        .await;
                }
                renew(context, &stage, &record, approval_id).await;
            }
            attach(context, Call { responder, stage }, &record).await;
        }
        AfterRepeat::TellExpired => {
            let mut event = refuse::event_of(AuditKind::Refused, &responder, &stage);
            event.record_id = Some(record.record_id);
            event.code = Some(ErrorCode::ResultExpired);
            context.note(event).await;
            context.metrics.count_duplicate(Duplicate::Expired);
            responder.finish(recorded::answer(context, &record, false).await);
        }
        AfterRepeat::Replay
        | AfterRepeat::TakeUp
        | AfterRepeat::Conflict
        | AfterRepeat::LookAgain => {
            let mut event = refuse::event_of(AuditKind::Replayed, &responder, &stage);
            event.record_id = Some(record.record_id);
            let answer = recorded::answer(context, &record, true).await;
            event.code = not_as_recorded(&answer);
            context.note(event).await;
            context.metrics.count_duplicate(Duplicate::Replayed);
            responder.finish(answer);
        }
    }
}

/// A caller who repeats a held call under the same principal chain renews its tokens.
async fn renew(
    context: &Context,
    stage: &Brokered,
    record: &EffectRecord,
    approval_id: &ApprovalId,
) {
    if !is_of_same_chain(&context.ledger, approval_id, stage).await {
        return;
    }
    let was_lacking = context.tokens.is_lacking(record.record_id);
    context.tokens.renew(record.record_id, &stage.identity, credential::needs_tokens(stage));
    // An approved call may be waiting for this very caller.
    if matches!(record.state, EffectState::Approved { .. }) {
        // From here on it no longer waits for its caller, and those who follow it hear that first.
        if was_lacking
            && let standing @ Answer::Held(_) = recorded::held(context, record, approval_id).await
        {
            context.registry.publish(&record.call_id, standing);
        }
        context.routes.renewed(approval_id, stage.identity.clone());
    }
}

/// The key was used for a call with other arguments.
async fn conflict(context: &Context, call: Call<Brokered>, record: &EffectRecord) {
    let Call { responder, stage } = call;
    let mut event = refuse::event_of(AuditKind::Refused, &responder, &stage);
    event.record_id = Some(record.record_id);
    event.code = Some(ErrorCode::IdempotencyConflict);
    context.note(event).await;
    context.metrics.count_duplicate(Duplicate::Conflict);
    let refusal = Refusal::new(
        ErrorCode::IdempotencyConflict,
        "this key was used for a call with other arguments; nothing was executed",
    );
    responder.refuse(refusal, None);
}

/// Whether a call is that of the record: the same arguments as sent (I5).
pub(crate) fn is_same(record: &EffectRecord, stage: &Brokered) -> bool {
    record.requested_digest == stage.built.requested_digest
}

/// Whether the approval was requested under this very chain. A caller with another chain may see the call's state, but cannot renew it:
/// that would not be what was approved.
async fn is_of_same_chain(ledger: &Ledger, approval_id: &ApprovalId, stage: &Brokered) -> bool {
    let digest = |chain: &PrincipalChain| {
        chain.digest_into(DigestBuilder::new("placet.same_chain.v1")).finish()
    };
    let approval = ledger.store().approval(approval_id).await;
    let chain = approval.ok().flatten().map(|approval| digest(&approval.chain));
    chain == Some(digest(&stage.identity.chain))
}

/// The record that a call is a duplicate of, and what to do. A claim may be released, or lose to one that another node made of the same
/// key, perhaps for this very call: if a claim does not match, this waits for what the ledger records. `None`: it recorded nothing, or
/// nothing yet.
async fn kept(
    context: &Context,
    stage: &Brokered,
    mut record: EffectRecord,
) -> Result<Option<(AfterRepeat, EffectRecord)>, StoreError> {
    for _ in 0..LOOKS {
        let repeated = Repeated { is_same: is_same(&record, stage), may_take_up: false };
        let action = step(context.state_of(&record), repeated);
        if action != AfterRepeat::LookAgain {
            return Ok(Some((action, record)));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
        let Some(now) = context.ledger.store().effect(record.record_id).await? else {
            return Ok(None);
        };
        record = now;
    }
    Ok(None)
}

fn moved_on() -> Refusal {
    Refusal::new(ErrorCode::InProgress, "a call of this key moved on at this moment; repeat it")
        .with_retry_after_ms(50)
}

/// A commit found that `before` is no longer current: another call or node was faster. The call becomes its duplicate, or waits for its own
/// outcome.
pub(crate) async fn overtaken(context: &Arc<Context>, call: Call<Brokered>, before: EffectRecord) {
    let Call { mut responder, stage } = call;
    responder.detach_record();
    let store = context.ledger.store();
    if matches!(before.state, EffectState::Claimed { .. }) {
        store.release(before.record_id).await;
    }
    match store.effect(before.record_id).await {
        Ok(Some(moved)) if moved.call_id != responder.subject.call_id => {
            answer(context, Call { responder, stage }, moved).await;
        }
        Ok(Some(moved)) => match recorded::answer(context, &moved, false).await {
            Answer::Held(held) => responder.park(*held),
            Answer::InProgress(_) => {
                // Another task works on it and reports; if it is on another node, the ledger is polled.
                drop(context.watch(&moved));
                responder.release();
            }
            end @ (Answer::Finished(_) | Answer::Refused(_)) => responder.finish(end),
        },
        Ok(None) => responder.refuse(moved_on(), None),
        Err(error) => responder.refuse(context.lookup_failed(error), None),
    }
}

/// Gives the duplicate the original's answer, if there is one while it waits. Waiting takes no admission place.
async fn attach(context: &Context, call: Call<Brokered>, record: &EffectRecord) {
    let Call { mut responder, stage } = call;
    let Some((_place, until)) = responder.attach(stage.identity.chain.tenant()) else {
        return under_way(context, responder, record).await;
    };
    if !recorded::is_told_here(&context.ledger, record) {
        // The node that works on it does not know of waiters here: the ledger is polled for them.
        drop(context.watch(record));
    }
    for _ in 0..LOOKS {
        let Some(original) = context.registry.follow_original(&record.call_id) else { break };
        let told = original.borrow().clone();
        if told.is_final() {
            // The answer is of an earlier attempt, or of this one a moment ago: the ledger knows which.
            match recorded::now(context, record).await {
                Answer::InProgress(_) | Answer::Held(_) => {}
                end @ (Answer::Finished(_) | Answer::Refused(_)) => {
                    return end_of(context, responder, &stage, record, told, end).await;
                }
            }
            tokio::time::sleep(LOOK_AGAIN).await;
            continue;
        }
        match follow(&context.registry, &responder.subject.call_id, original, until).await {
            Followed::To(Answer::Held(held)) => return responder.park(*held),
            Followed::To(end) => {
                return end_of(context, responder, &stage, record, end.clone(), end).await;
            }
            Followed::LongEnough => return under_way(context, responder, record).await,
            Followed::Forgotten => {}
        }
    }
    // No task here reports on it, or only on an earlier attempt. It may have been held since its record was read, which a duplicate that
    // does not wait learns only from the ledger.
    match recorded::now(context, record).await {
        Answer::Held(held) => return responder.park(*held),
        Answer::InProgress(_) | Answer::Finished(_) | Answer::Refused(_) => {}
    }
    // Another node works on it, so the ledger is polled.
    context.registry.forget(&record.call_id);
    match follow(&context.registry, &responder.subject.call_id, context.watch(record), until).await
    {
        Followed::To(Answer::Held(held)) => responder.park(*held),
        Followed::To(end) => end_of(context, responder, &stage, record, end.clone(), end).await,
        Followed::LongEnough | Followed::Forgotten => under_way(context, responder, record).await,
    }
}

/// Tells a duplicate that its original is still in flight, and by which id to ask about it.
async fn under_way(context: &Context, responder: Box<Responder>, record: &EffectRecord) {
    let refusal = Refusal::new(
        ErrorCode::InProgress,
        "the same call is being executed, and did not end while this one waited",
    )
    .with_execution(Execution::Unknown)
    .with_retry_after_ms(1_000);
    responder.count_refusal(&refusal);
    responder.finish(recorded::refused(context, record, refusal).await);
}

/// The result of following a call.
enum Followed {
    /// It is held, or has ended.
    To(Answer),
    /// It did not end while the duplicate waited, or the duplicate's caller has gone.
    LongEnough,
    /// No task here reports on it any more.
    Forgotten,
}

/// Waits until a call is held or has ended, for a duplicate of it.
async fn follow(
    registry: &Registry,
    duplicate: &ToolCallId,
    mut original: watch::Receiver<Answer>,
    until: Instant,
) -> Followed {
    loop {
        let answer = original.borrow_and_update().clone();
        if !matches!(answer, Answer::InProgress(_)) {
            return Followed::To(answer);
        }
        let look = until.min(Instant::now() + STILL_WAITED_FOR);
        match tokio::time::timeout_at(look, original.changed()).await {
            Ok(Ok(())) => {}
            Ok(Err(_closed)) => return Followed::Forgotten,
            Err(_elapsed) if Instant::now() >= until => return Followed::LongEnough,
            Err(_elapsed) if registry.is_deserted(duplicate) => {
                return Followed::LongEnough;
            }
            Err(_elapsed) => {}
        }
    }
}

/// Tells a duplicate the end of its original: what the ledger has recorded, else what its waiters were told.
async fn end_of(
    context: &Context,
    responder: Box<Responder>,
    stage: &Brokered,
    record: &EffectRecord,
    told: Answer,
    recorded: Answer,
) {
    // A released claim leaves nothing in the ledger.
    let gone = matches!(&recorded, Answer::Refused(refused) if refused.refusal.code == ErrorCode::ApprovalVoid);
    let end = if gone { told } else { recorded };
    let kept = context.ledger.store().effect(record.record_id).await.ok().flatten();
    let recorded = kept.as_ref().and_then(|kept| kept.state.result());
    let is_other = match (&end, recorded) {
        (Answer::Finished(result), Some(digest)) => {
            !recorded::is_identical(&context.metrics, result, digest)
        }
        _ => false,
    };
    let mut end = if is_other { recorded::now(context, record).await } else { end };
    if let Err(refusal) =
        run::tell_end(context, &responder, stage, record, kept.as_ref(), &end).await
    {
        return responder.refuse(refusal, None);
    }
    let mut event = refuse::event_of(AuditKind::Replayed, &responder, stage);
    if is_other {
        event.code = Some(ErrorCode::LedgerUnavailable);
        context.note(event).await;
        return responder.finish(end);
    }
    if let Answer::Finished(result) = &mut end {
        Arc::make_mut(result).replayed = true;
    }
    context.note(event).await;
    responder.finish(end);
}

/// The code with which a recorded result could not be replayed as recorded (TM-21).
fn not_as_recorded(answer: &Answer) -> Option<ErrorCode> {
    let Answer::Refused(refused) = answer else { return None };
    Some(refused.refusal.code).filter(|code| *code == ErrorCode::LedgerUnavailable)
}
