//! Recovery: what happens to calls in flight in a process that has ended, at start and when a node dies, and to those of this process
//! that no task works on.
//!
//! Owns who takes over which calls, and the way back from a record to a call; [`crate::lifecycle::transitions`] says what is left to do
//! about each (T7). Invariant: nothing is done about a dispatch before one survivor has taken over the duty for it.

mod abandoned;
pub(crate) mod asking;

use std::sync::Arc;

use futures::{StreamExt as _, stream};

use placet_ledger::{
    approval::ApprovalRecord,
    ledger::{Ledger, LedgerError},
    parked::ParkedCall,
    record::{EffectRecord, EffectState},
    store::{EffectQuery, StoreError},
};
use placet_telemetry::trace::{CallFields, Stage, continue_span};
use placet_types::contract::Dedup;

use crate::{
    adapters::ports::backoff,
    call::{Built, Call, Identity},
    context::Context,
    in_flight::WorkGuard,
    lifecycle::transitions::{Orphaned, Recourse, step},
    outcome::{recorded, settlement_retry},
    responder::{Callers, Responder},
    result::Subject,
};

/// How many records are read at a time.
const PAGE: usize = 1_000;
/// How many are processed at a time: their commits go to disk together.
const AT_A_TIME: usize = 256;
/// How long after its deadline a dispatch may have no task before it counts as overdue, in milliseconds.
const OVERDUE_MS: i64 = 2_000;

/// What recovery did.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Recovered {
    pub(crate) unknown: usize,
    pub(crate) queued: usize,
}

/// What was taken over, and the error that ended it.
#[derive(Debug, Default)]
pub(crate) struct Adopted {
    /// This process's duty from now on, whatever else failed.
    pub(crate) records: Vec<EffectRecord>,
    pub(crate) failed: Option<LedgerError>,
}

/// Takes over the calls that were in flight in processes that have ended. Where another survivor is faster, the call is left to it; one
/// that cannot be taken over does not keep the others from it.
pub(crate) async fn adopt_orphans(ledger: &Ledger) -> Adopted {
    let mut adopted = Adopted::default();
    let mut query = EffectQuery { orphaned: true, limit: PAGE, ..EffectQuery::default() };
    loop {
        let page = match ledger.store().effects(&query).await {
            Ok(page) => page,
            Err(error) => {
                adopted.failed.get_or_insert(error.into());
                return adopted;
            }
        };
        let Some(last) = page.last() else { return adopted };
        query.after = Some(last.place());
        let adopting = page.into_iter().map(|record| async move { ledger.adopt(&record).await });
        let taken: Vec<_> = stream::iter(adopting).buffer_unordered(AT_A_TIME).collect().await;
        for result in taken {
            match result {
                Ok(record) => adopted.records.push(record),
                Err(LedgerError::Store(StoreError::Conflict) | LedgerError::WrongState(_)) => {}
                Err(LedgerError::Store(StoreError::Illegal(error))) => {
                    tracing::error!(%error, "a call of a process that is over cannot be taken over");
                }
                Err(error) => {
                    adopted.failed.get_or_insert(error);
                }
            }
        }
        if adopted.failed.as_ref().is_some_and(concerns_all) {
            return adopted;
        }
    }
}

/// Whether the ledger would refuse the next operation as well.
pub(crate) const fn concerns_all(error: &LedgerError) -> bool {
    matches!(
        error,
        LedgerError::Store(
            StoreError::Unreachable(_)
                | StoreError::Fenced
                | StoreError::Stopped(_)
                | StoreError::Uncertain(_)
                | StoreError::NoSpace
        )
    )
}

/// Recovers what was taken over: what is certain is recorded at once, what needs an adapter is queued.
pub(crate) async fn recover(context: &Arc<Context>, orphans: Vec<EffectRecord>) -> Recovered {
    let recovering = orphans.into_iter().map(|record| recover_one(context, record));
    let queued: Vec<bool> = stream::iter(recovering).buffer_unordered(AT_A_TIME).collect().await;
    let waits = queued.iter().filter(|queued| **queued).count();
    Recovered { unknown: queued.len().saturating_sub(waits), queued: waits }
}

/// Recovers one call; returns whether an adapter is needed for it.
async fn recover_one(context: &Arc<Context>, record: EffectRecord) -> bool {
    let Some(recourse) = step(context.state_of(&record), Orphaned) else { return false };
    let hand = context.callers.in_flight.take(record.record_id);
    context.enter(&record);
    context.approvals.call_taken_over(&record).await;
    if recourse == Recourse::GiveUp {
        take(context, record, recourse).await;
        return false;
    }
    let owner = Arc::clone(context);
    context.registry.spawn(async move {
        let _hand = hand;
        take(&owner, record, recourse).await;
    });
    true
}

/// One search for dispatches that this process must settle and that no task holds any more, whatever became of their task: a commit that
/// succeeded without its answer, a part of the engine that failed, a read that the ledger refused (I13). They are recovered by class.
pub(crate) async fn find_overdue(context: &Arc<Context>) {
    if context.node.is_ending() || context.node.health().is_ledger_lost() {
        return;
    }
    let page = match context.rounds.overdue.next(context.ledger.store(), "dispatched", PAGE).await {
        Ok(page) => page,
        Err(error) => return context.node.noticed(&error.into()),
    };
    let overdue = page.into_iter().filter(|record| is_overdue(context, record));
    let dropped = context.callers.in_flight.dropped(overdue);
    if dropped.is_empty() {
        return;
    }
    tracing::warn!(
        calls = dropped.len(),
        "calls under way that nobody was at work on are recovered"
    );
    recover(context, dropped).await;
}

/// Whether this process has to settle it, and it is overdue.
fn is_overdue(context: &Context, record: &EffectRecord) -> bool {
    let EffectState::Dispatched(attempt) = &record.state else { return false };
    let over = attempt.deadline_at.plus_ms(OVERDUE_MS) < context.ledger.store().now();
    over && recorded::is_ours(&context.ledger, record)
}

/// Does what is left to do about a call that was sent, and tells its waiters the result.
async fn take(context: &Arc<Context>, record: EffectRecord, recourse: Recourse) {
    match recourse {
        Recourse::SendAgain => again(context, record).await,
        Recourse::Ask => asking::until_known(context, record).await,
        Recourse::GiveUp => {
            let class = record.state.attempt().map(|attempt| attempt.class);
            let reason = if matches!(class, Some(Dedup::Keyed { .. })) {
                "the target no longer remembers the key"
            } else {
                "the process ended between sending the call and recording its outcome"
            };
            settlement_retry::end_unknown(&context.outcomes, &record, reason).await;
        }
    }
}

/// The same for a call that still has its responder, which is released first.
pub(crate) async fn leave_to(
    context: &Arc<Context>,
    responder: Box<Responder>,
    record: EffectRecord,
    recourse: Recourse,
) {
    // Before the responder is released: a call without a guard counts as orphaned.
    let _hand = context.callers.in_flight.take(record.record_id);
    responder.release();
    take(context, record, recourse).await;
}

/// Sends the call again: from what was parked, through broker and gate, with the same token. While the ledger cannot be read it is tried
/// again for as long as the call may be sent.
async fn again(context: &Arc<Context>, record: EffectRecord) {
    let mut tries = 0_u32;
    loop {
        let reason = match take_up(context, &record, None).await {
            Ok(()) => return,
            Err(NotTaken::Final(reason)) => reason,
            Err(NotTaken::Passing(why)) => {
                if step(context.state_of(&record), Orphaned) == Some(Recourse::SendAgain) {
                    tries = tries.saturating_add(1);
                    if context.pause(backoff(tries)).await {
                        continue;
                    }
                    return;
                }
                why
            }
        };
        return settlement_retry::end_unknown(&context.outcomes, &record, &reason).await;
    }
}

/// Why a call cannot be taken up from its record.
#[derive(Debug)]
pub(crate) enum NotTaken {
    /// The ledger cannot be read now.
    Passing(String),
    /// It is not what was sent, or no longer offered.
    Final(String),
}

/// Sends a recorded call on its way through broker and gate, or says why it cannot be sent unchanged.
pub(crate) async fn take_up(
    context: &Arc<Context>,
    record: &EffectRecord,
    guard: Option<WorkGuard>,
) -> Result<(), NotTaken> {
    let parked = context.ledger.parked(record).await.map_err(|error| {
        let why = format!("what was sent cannot be read: {error}");
        if error.is_transient() { NotTaken::Passing(why) } else { NotTaken::Final(why) }
    })?;
    let approval = match record.state.approval_id() {
        Some(id) => match context.ledger.store().approval(id).await {
            Ok(approval) => approval,
            Err(error) if error.is_transient() => {
                return Err(NotTaken::Passing(format!("its approval cannot be read: {error}")));
            }
            Err(error) => {
                tracing::warn!(%error, "the approval of a call that was under way cannot be read");
                None
            }
        },
        None => None,
    };
    let mut call = restored(context, record, parked, approval, None, Stage::Invoke)
        .map_err(|reason| NotTaken::Final(reason.to_owned()))?;
    if let Some(guard) = guard {
        call.responder.resumed_under(guard);
    }
    context.routes.broker(call);
    Ok(())
}

/// A recorded call as it was parked, to go through broker and gate again in the trace that it began in; or why it cannot be sent unchanged.
pub(crate) fn restored(
    context: &Context,
    record: &EffectRecord,
    parked: ParkedCall,
    approval: Option<ApprovalRecord>,
    renewed: Option<Identity>,
    stage: Stage,
) -> Result<Call<Built>, &'static str> {
    let built = Built::restored(context.current.active(), record, approval, parked, renewed)?;
    let parked = built.resumed.as_ref().map(|resumed| &resumed.parked);
    let responder = responder_of(&context.callers, record, parked, stage);
    Ok(Call::new(responder, built))
}

fn responder_of(
    callers: &Arc<Callers>,
    record: &EffectRecord,
    parked: Option<&ParkedCall>,
    stage: Stage,
) -> Box<Responder> {
    let tool = record.scope.capability.tool_name();
    let fields = CallFields {
        tenant: Some(record.scope.tenant.as_str()),
        run_id: Some(record.run_id.as_str()),
        tool_call_id: Some(record.call_id.as_str()),
        tool: Some(&tool),
    };
    let traceparent = parked.and_then(|parked| parked.traceparent.as_deref()).unwrap_or_default();
    let span = continue_span(traceparent, None, stage, &fields);
    // It is decided again.
    let subject = Subject { decision_id: None, ..Subject::of_record(record, parked) };
    let mut responder = Box::new(Responder::new(Arc::clone(callers), subject, span));
    responder.known = Some(record.scope.capability.clone());
    responder.attach_record(record.record_id);
    responder
}
