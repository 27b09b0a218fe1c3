//! Execute: permit to dispatch, durable; the adapter; the settlement, durable; all in one task that nothing cancels.
//!
//! Owns the stretch in which an effect can happen. Runs in a task of the execution registry, never in an actor's handler, so no kill
//! or restart loses an outcome.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tokio::time::Instant;

use placet_adapter::{
    adapter::Seat,
    outcome::{AdapterError, Outcome as AdapterOutcome, Rejection},
};
use placet_ledger::{
    approval::ApprovalRecord,
    audit::AuditKind,
    dispatch::{Armed, Intent},
    ledger::LedgerError,
    record::{EffectRecord, EffectState},
    run::Reservation,
    sabotage::{Guard, removed},
    store::{Durability, StoreError},
};
use placet_policy::permit::Permit;
use placet_types::{
    envelope::result::ResultStatus,
    error::{ErrorCode, Refusal},
    ids::{ApprovalId, ToolCallId},
    taint::Taint,
};

use crate::{
    adapters::ports::Lease,
    call::{Brokered, Call, Gated, Invoked, Passage},
    context::{Context, ending_refusal, ledger_refusal},
    credential_faults,
    desk::{drift, freezes, watch},
    stages::{
        again,
        credential::{self, Proof},
        duplicate, invoke, meters, put_off, recorded,
        refuse::{self, Refused},
        resolve::{self, Late},
        result::{self, EditedArgs, Subject},
        run,
        sending::{self, Called, Leave, Second},
        settle, unsettled,
    },
};

/// How often a call is decided again because policies, or what is in force at the desk, changed on its way.
const DECIDED_AGAIN_MAX: u32 = 20;
/// The pause before it is decided again for the desk once more.
const DESK_PAUSE: Duration = Duration::from_millis(25);

/// What `prepare` got ready.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) lease: Lease,
    pub(crate) proof: Proof,
    pub(crate) seat: Seat,
    pub(crate) deadline: Instant,
}

/// What is kept of a call while its permit and arguments are with the adapter.
struct Executing {
    brokered: Brokered,
    subject: Subject,
}

/// Dispatches, executes and settles one permitted call.
pub(crate) async fn execute(context: &Arc<Context>, call: Call<Gated>, ready: Ready) {
    let Call { mut passage, stage: Gated { brokered, permit, record, broken } } = call;
    if freezes::is_locked_down(context, &brokered) {
        // Declared since the decision; a place and a connection may have been waited for.
        drop(permit);
        return decide_again(context, passage, brokered, record);
    }
    if context.is_ending() {
        drop(permit);
        return refuse_passing(context, passage, brokered, ending_refusal()).await;
    }
    let call_id = record.as_ref().map_or_else(|| passage.call_id.clone(), |r| r.call_id.clone());
    let subject = subject_of(&passage, &brokered, (&permit, &call_id));
    let brings = run::brings_as(&brokered, record.is_some());
    let mut intent =
        intent_of(context, &passage, &brokered, (&permit, ready.deadline, call_id), brings);
    // Every use of a break-glass record is found by its name.
    intent.audit.desk.extend(broken);
    intent.audit.credential = ready.proof.used.clone().map(Box::new);
    let granted = permit.grant().is_some();
    let approval_id = permit.approval_id().cloned();
    let armed = match &record {
        Some(record) => {
            passage.runs_under(record.record_id);
            let parked = again::parked_anew(context, &passage, &brokered, &permit, record).await;
            let dedup = &brokered.built.target.capability.dedup;
            context.ledger.dispatch(permit, intent, record, parked.as_ref(), dedup).await
        }
        None => {
            let durability = if context.settings.durable_reads {
                Durability::Synced
            } else {
                Durability::Written
            };
            context.ledger.dispatch_read(permit, intent, durability).await
        }
    };
    match armed {
        Ok(armed) => {
            match &record {
                // From here on a failure of ours is answered for from the record.
                Some(record) => {
                    passage.goes_on_as(&record.call_id);
                    context.tokens.forget(record.record_id);
                }
                None => passage.is_sent(),
            }
            if granted {
                context.metrics.grant_used();
            }
            if let Some(id) = approval_id {
                consumed(context, &id).await;
            }
            dispatched(context, passage, Executing { brokered, subject }, (armed, ready)).await;
        }
        Err(error) => {
            drop(ready);
            context.noticed(&error);
            if let (Some(record), Some(decision_id)) = (&record, subject.decision_id)
                && matches!(error, LedgerError::Store(StoreError::Unreachable(_)))
                // What is sent again is looked up before its next try.
                && !again::is_repeated(&brokered)
            {
                unsettled::take_back(context, record.record_id, decision_id);
            }
            not_dispatched(context, passage, (brokered, record), error).await;
        }
    }
}

/// An approval was used: the desk is done with it.
async fn consumed(context: &Context, approval_id: &ApprovalId) {
    context.routes.approval_over(approval_id);
    match context.ledger.store().approval(approval_id).await {
        Ok(Some(approval)) => context.desk.moved(context, &approval),
        Ok(None) => context.desk.board.forget(approval_id),
        // The next reading finds it.
        Err(error) => context.noticed(&error.into()),
    }
}

fn approval_of(brokered: &Brokered) -> Option<&ApprovalRecord> {
    brokered.built.resumed.as_ref().and_then(|resumed| resumed.approval.as_ref())
}

/// Back to the gate, with the key that this call has taken.
pub(crate) fn decide_again(
    context: &Arc<Context>,
    passage: Passage,
    mut brokered: Brokered,
    record: Option<EffectRecord>,
) {
    brokered.built.decided_again = brokered.built.decided_again.saturating_add(1);
    if brokered.built.resumed.is_none() {
        brokered.claimed = record;
    }
    context.routes.gate(context, Call { passage, stage: brokered });
}

/// Nothing was recorded, so nothing is sent.
async fn not_dispatched(
    context: &Arc<Context>,
    passage: Passage,
    (brokered, record): (Brokered, Option<EffectRecord>),
    error: LedgerError,
) {
    if matches!(error, LedgerError::Store(StoreError::Uncertain(_))) {
        // It may be recorded: whoever goes on from there may send it, so nothing is given back and nothing is said to be over.
        return refuse::uncertain(context, passage, &error);
    }
    let now = context.ledger.store().now();
    let expired = approval_of(&brokered).is_some_and(|approval| approval.expires_at <= now);
    let moved =
        matches!(error, LedgerError::WrongState(_) | LedgerError::Store(StoreError::Conflict));
    if expired && moved {
        return without_approval(context, passage, brokered, record).await;
    }
    if matches!(error, LedgerError::GrantSpent) {
        // Used up, or ended, since it was decided: people are asked as if there were none.
        context.desk.follow(context).await;
        let mut brokered = brokered;
        brokered.built.without_grants = true;
        return decide_again(context, passage, brokered, record);
    }
    if matches!(error, LedgerError::DeskMoved) && brokered.built.decided_again < DECIDED_AGAIN_MAX {
        // A freeze or a revocation that was acknowledged here or on another node, or one whose time has come.
        context.desk.follow(context).await;
        if brokered.built.decided_again > 0 {
            // It may have been decided, and not be readable yet.
            tokio::time::sleep(DESK_PAUSE).await;
        }
        return decide_again(context, passage, brokered, record);
    }
    let exhausted = meters::refusal(&error, now);
    let mut refusal = exhausted.unwrap_or_else(|| ledger_refusal(&error));
    if matches!(error, LedgerError::PolicyMoved) {
        // Here, or on another node; which may have other policies than this one.
        match context.follow_policies().await {
            Ok(true) if brokered.built.decided_again < DECIDED_AGAIN_MAX => {
                return decide_again(context, passage, brokered, record);
            }
            Ok(_) => refusal = context.standing.cannot_decide().unwrap_or(refusal),
            Err(error) => {
                context.noticed(&error);
                refusal = ledger_refusal(&error);
            }
        }
    }
    if let (LedgerError::Store(StoreError::Conflict), Some(record)) = (&error, &record)
        && !matches!(record.state, EffectState::Approved { .. })
    {
        // Of several who tried at once another one won, here or on another node.
        let call = Call { passage, stage: brokered };
        return duplicate::overtaken(context, call, record.clone()).await;
    }
    refuse_passing(context, passage, brokered, refusal).await;
}

/// The approval ran out on the way to the dispatch, and the policies permit the call without it. A call that waited for it ends with it;
/// what was tried before is decided once more as if nobody had been asked.
async fn without_approval(
    context: &Arc<Context>,
    passage: Passage,
    mut brokered: Brokered,
    record: Option<EffectRecord>,
) {
    if record.as_ref().is_some_and(|record| matches!(record.state, EffectState::Approved { .. })) {
        let refused = Refused::of(recorded::denied(ErrorCode::ApprovalExpired), None);
        return refuse::brokered(context, Call { passage, stage: brokered }, refused).await;
    }
    if let Some(resumed) = &mut brokered.built.resumed {
        resumed.approval = None;
    }
    let _was_edited = again::as_sent(&mut brokered);
    decide_again(context, passage, brokered, record);
}

/// Refuses a call that was not sent, for a reason that may pass.
async fn refuse_passing(
    context: &Arc<Context>,
    passage: Passage,
    brokered: Brokered,
    refusal: Refusal,
) {
    let transient = refuse::is_transient(refusal.code);
    let passing = refusal.code != ErrorCode::Internal;
    let refused = Refused { passing, transient, ..Refused::of(refusal, None) };
    refuse::brokered(context, Call { passage, stage: brokered }, refused).await;
}

/// The adapter is called: from here on the outcome is recorded whatever happens.
async fn dispatched(
    context: &Arc<Context>,
    passage: Passage,
    executing: Executing,
    (armed, ready): (Armed, Ready),
) {
    let second = second_of((&passage, &executing), &armed);
    let Armed { dispatch, mut settlement, .. } = armed;
    let started = Instant::now();
    let ready = again::within_window(context, &executing.brokered, settlement.record(), ready);
    let leave = Leave { dispatch, second, decision_id: executing.subject.decision_id.clone() };
    let Called { outcome, late, is_fresh, second } =
        sending::call(context, &executing.brokered, leave, ready).await;
    if let Some(used) = second {
        settlement.was_sent_with(used);
    }
    note_credential(context, &executing.brokered, (&outcome, is_fresh)).await;
    let adapter_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    note_answer(context, &passage, &executing.brokered, (&outcome, started.elapsed())).await;
    let Executing { brokered, subject } = executing;
    let (record, call) = (settlement.record().cloned(), Call { passage, stage: brokered });
    let unanswered = put_off::unanswered(context, call, record, &outcome, late.as_ref()).await;
    let Some(Call { passage, stage: mut brokered }) = unanswered else { return };
    let (retries, kind) = (brokered.built.retries, brokered.binding.credential.kind);
    let again = settlement.record_id().is_none()
        && retries < again::RETRIES_MAX
        && again::may_repeat(&brokered, &outcome);
    let late = late.zip(settlement.record().cloned()).map(|(task, record)| Late {
        task,
        record_id: record.record_id,
        attempt: record.attempts,
        subject: subject.clone(),
        capability: Arc::clone(&brokered.built.target.capability),
        kind,
    });
    let capability = &brokered.built.target.capability;
    let (outcome, mut result) = settle::conclude(context, (capability, kind), subject, outcome);
    result.latency.adapter_ms = adapter_ms;
    result.retries = retries;
    if removed(Guard::ResultBeforeCommit) {
        context.registry.publish(&passage.call_id, recorded::of_result(result.clone(), false));
    }
    let kept = settle::keep(context, settlement, outcome, result).await;
    if let Some(late) = late {
        resolve::await_answer(context, late);
    }
    match kept {
        Err(unsettled) => unsettled.tell(context, passage).await,
        Ok(_) if again => {
            // Through the gate, since every try needs a permit of its own.
            tokio::time::sleep(again::pause_before(retries)).await;
            brokered.built.retries = retries.saturating_add(1);
            context.routes.gate(context, Call { passage, stage: brokered });
        }
        Ok(result) => {
            if let Some(approval) = approval_of(&brokered) {
                watch::ended(context, approval, result.status == ResultStatus::Unknown);
            }
            context.routes.give_back(context, Call { passage, stage: Invoked { result } })
        }
    }
}

/// A second leave; none where no other credential could help.
fn second_of((passage, executing): (&Passage, &Executing), armed: &Armed) -> Option<Second> {
    executing.brokered.built.target.contract.credential.as_ref()?;
    let mut event = refuse::event_of(AuditKind::CredentialReplaced, passage, &executing.brokered);
    event.call_id = Some(executing.subject.call_id.clone());
    event.record_id = armed.settlement.record_id();
    Some(Second { spare: armed.spare(), event })
}

/// Figures and events of what an adapter answered.
async fn note_answer(
    context: &Arc<Context>,
    passage: &Passage,
    brokered: &Brokered,
    (outcome, took): (&AdapterOutcome, Duration),
) {
    let capability = &brokered.binding.capability;
    context.metrics.adapter_took(capability, took);
    if let Some(AdapterError::Drifted(_)) = outcome.not_executed() {
        drift::drifted(context, capability);
        let mut event = refuse::event_of(AuditKind::Security, passage, brokered);
        event.code = Some(ErrorCode::ToolChanged);
        event.note = Some("the tool is not what its contract says".to_owned());
        context.note(event).await;
    }
}

/// Whether the credential did: where not, somebody has to mend it, unless it was minted for one user.
async fn note_credential(
    context: &Context,
    brokered: &Brokered,
    (outcome, is_fresh): (&AdapterOutcome, bool),
) {
    match outcome {
        AdapterOutcome::NothingHappened(error)
        | AdapterOutcome::Rejected(Rejection { error, .. }) => {
            let kind = brokered.binding.credential.kind;
            if credential::is_ours(kind)
                && let Some(problem) = credential::fault_of(error)
            {
                let code = invoke::unavailable(error, kind).code;
                credential_faults::note(context, brokered, code, problem).await;
            }
        }
        AdapterOutcome::Unknown(_) => {}
        AdapterOutcome::Done(_) if is_fresh => credential_faults::mended(context, brokered),
        AdapterOutcome::Done(_) | AdapterOutcome::Failed(_) => {}
    }
}

fn subject_of(
    passage: &Passage,
    brokered: &Brokered,
    (permit, call_id): (&Permit, &ToolCallId),
) -> Subject {
    Subject {
        call_id: call_id.clone(),
        run_id: Some(brokered.run.run_id.clone()),
        trace_id: passage.trace_id.clone(),
        session_id: brokered.built.run.session_id.clone(),
        capability: Some(brokered.binding.capability.clone()),
        key: brokered.built.target.capability.is_write_class().then(|| brokered.built.key.clone()),
        decision_id: Some(permit.decision().id.clone()),
        approval_id: permit.approval_id().cloned(),
        traceparent: placet_telemetry::trace::traceparent_of(&passage.span),
        accepted_at: passage.accepted_at,
        edited: edited(brokered),
    }
}

/// What an approver made of the arguments.
fn edited(brokered: &Brokered) -> Option<EditedArgs> {
    let built = &brokered.built;
    let shown = || result::shown_args(&built.target.capability, &built.args);
    built.edited.as_ref().map(|edit| EditedArgs::of(edit, shown()))
}

fn intent_of(
    context: &Context,
    passage: &Passage,
    brokered: &Brokered,
    (permit, deadline, call_id): (&Permit, Instant, ToolCallId),
    brings: BTreeSet<Taint>,
) -> Intent {
    let left_ms = i64::try_from(deadline.saturating_duration_since(Instant::now()).as_millis())
        .unwrap_or(i64::MAX);
    let mut audit = refuse::event_of(AuditKind::Dispatched, passage, brokered);
    audit.call_id = Some(call_id.clone());
    audit.decision = refuse::decision_json(permit.decision());
    audit.digests.insert("args".to_owned(), brokered.built.args_digest);
    Intent {
        call_id,
        args: brokered.built.args.clone(),
        binding: brokered.binding.clone(),
        deadline_at: context.ledger.store().now().plus_ms(left_ms),
        reserve: Reservation {
            run: run::key_of(brokered),
            cents: brokered.built.target.capability.cost_cents,
            meters: meters::of(context, brokered),
            session: brokered.built.run.session_id.clone(),
            brings,
        },
        audit,
    }
}
