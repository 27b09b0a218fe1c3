//! Execute: permit to durable dispatch, the adapter call, the durable settlement, all in one task that nothing cancels.
//!
//! Owns the stretch in which an effect can happen. Runs in a task of the execution registry, never in an actor's handler, so no kill
//! or restart loses an outcome.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tokio::{task::JoinHandle, time::Instant};

use placet_adapter::outcome::{AdapterError, Outcome as AdapterOutcome};
use placet_ledger::{
    approval::ApprovalRecord,
    audit::AuditKind,
    dispatch::{DispatchGuard, Intent, Settlement},
    ledger::{Ledger, LedgerError},
    record::EffectRecord,
    refusal::ledger_refusal,
    reservation::Reservation,
    store::Durability,
};
use placet_policy::permit::Permit;
use placet_types::{
    envelope::result::ResultStatus,
    error::ErrorCode,
    ids::{ApprovalId, ToolCallId},
    taint::Taint,
};

use crate::{
    adapters::errors,
    call::{Brokered, Call, Gated, Invoked},
    context::{Context, ending_refusal},
    drift,
    lifecycle::transitions::{
        AfterAnswer, AfterUnrecorded, Answered, Reply, State, Unrecorded, step,
    },
    outcome::{
        recorded,
        resolve::{self, Late},
        settle,
    },
    policies,
    responder::Responder,
    result::{self, EditedArgs, Subject, in_ms},
    routes::Routes,
    stages::{
        credential::{self, Proof},
        deferral, duplicate, facts, meters,
        refuse::{self, Refused},
        retry, run,
        sending::{self, Called, Ready},
    },
};

/// How often a call is decided again because policies or directives changed meanwhile.
const DECIDED_AGAIN_MAX: u32 = 20;
/// The pause before it is decided again because of directives.
const DIRECTIVE_PAUSE: Duration = Duration::from_millis(25);

/// How much earlier than its time ends a call may be given up: adapters get it in whole milliseconds.
const TICK: Duration = Duration::from_millis(1);

/// What is kept of a call while its permit and arguments are with the adapter.
struct Executing {
    brokered: Box<Brokered>,
    subject: Subject,
}

/// Dispatches, executes and settles one permitted call.
pub(crate) async fn execute(context: &Arc<Context>, call: Call<Gated>, ready: Ready) {
    let Call { mut responder, stage } = call;
    let Gated { brokered, permit, record, broken } = *stage;
    if facts::is_locked_down(context, &brokered) {
        // A lockdown was declared since the decision, perhaps while the call waited for a place or a connection.
        drop(permit);
        return decide_again(&context.routes, responder, brokered, record);
    }
    if context.node.is_ending() {
        drop(permit);
        let refused = Refused::of(ending_refusal(), None);
        return refuse::brokered(context, Call { responder, stage: brokered }, refused).await;
    }
    let call_id =
        record.as_ref().map_or_else(|| responder.subject.call_id.clone(), |r| r.call_id.clone());
    let subject = subject_of(&responder, &brokered, &permit, &call_id);
    let brings = run::brings_as(&brokered, record.is_some());
    let mut intent =
        intent_of(&context.ledger, &responder, &brokered, &permit, ready.deadline, call_id, brings);
    // Makes every use of a break-glass record traceable by its id.
    intent.audit.directives.extend(broken);
    intent.audit.credential = ready.proof.used.clone().map(Box::new);
    let granted = permit.grant().is_some();
    let approval_id = permit.approval_id().cloned();
    let armed = match &record {
        Some(record) => {
            responder.attach_record(record.record_id);
            let parked =
                retry::parked_again(&context.ledger, &responder, &brokered, &permit, record).await;
            let dedup = &brokered.built.target.capability.dedup;
            Box::pin(context.ledger.dispatch(permit, intent, record, parked.as_ref(), dedup)).await
        }
        None => {
            let is_synced = context.settings.durable_reads;
            let durability = if is_synced { Durability::Synced } else { Durability::Written };
            Box::pin(context.ledger.dispatch_read(permit, intent, durability)).await
        }
    };
    match armed {
        Ok(armed) => {
            match &record {
                // From here on a failure of this process is answered from the record.
                Some(record) => {
                    responder.continue_as(&record.call_id);
                    context.tokens.forget(record.record_id);
                }
                None => responder.is_sent(),
            }
            if granted {
                context.metrics.count_grant_used();
            }
            if let Some(id) = approval_id {
                consumed(context, &id).await;
            }
            let executing = Executing { brokered, subject };
            Box::pin(dispatched(context, responder, executing, armed, ready)).await;
        }
        Err(error) => {
            drop(ready);
            context.node.noticed(&error);
            // Boxed because it is rare: otherwise every call's task would have room for it.
            Box::pin(not_dispatched(context, responder, brokered, record, error)).await;
        }
    }
}

/// An approval was consumed: the approval service is done with it.
async fn consumed(context: &Context, approval_id: &ApprovalId) {
    context.routes.approval_over(approval_id);
    match context.ledger.store().approval(approval_id).await {
        Ok(Some(approval)) => context.approvals.moved(&approval),
        Ok(None) => context.approvals.pending.forget(approval_id),
        // The next round finds it.
        Err(error) => context.node.noticed(&error.into()),
    }
}

fn approval_of(brokered: &Brokered) -> Option<&ApprovalRecord> {
    brokered.built.resumed.as_ref().and_then(|resumed| resumed.approval.as_ref())
}

/// Back to the gate, with the key that this call has claimed.
pub(crate) fn decide_again(
    routes: &Routes,
    responder: Box<Responder>,
    mut brokered: Box<Brokered>,
    record: Option<EffectRecord>,
) {
    brokered.built.decided_again = brokered.built.decided_again.saturating_add(1);
    if brokered.built.resumed.is_none() {
        brokered.claimed = record;
    }
    routes.gate(Call { responder, stage: brokered });
}

/// Nothing was recorded, so nothing is sent.
async fn not_dispatched(
    context: &Arc<Context>,
    responder: Box<Responder>,
    mut brokered: Box<Brokered>,
    record: Option<EffectRecord>,
    error: LedgerError,
) {
    let now = context.ledger.store().now();
    let is_expired = approval_of(&brokered).is_some_and(|approval| approval.expires_at <= now);
    let may_decide = brokered.built.decided_again < DECIDED_AGAIN_MAX;
    let state = record.as_ref().map_or(State::Absent, |record| context.state_of(record));
    let exhausted = meters::refusal(&error, now);
    let mut refusal = exhausted.unwrap_or_else(|| ledger_refusal(&error));
    match step(state, Unrecorded { error: &error, is_expired, may_decide }) {
        AfterUnrecorded::TellInDoubt => return refuse::uncertain(responder, &error),
        AfterUnrecorded::RefuseExpired => {
            refusal = recorded::denied(ErrorCode::ApprovalExpired);
        }
        AfterUnrecorded::DecideWithoutApproval => {
            if let Some(resumed) = &mut brokered.built.resumed {
                resumed.approval = None;
            }
            let _was_edited = retry::as_sent(&mut brokered);
            return decide_again(&context.routes, responder, brokered, record);
        }
        AfterUnrecorded::DecideWithoutGrants => {
            context.approvals.follow().await;
            brokered.built.without_grants = true;
            return decide_again(&context.routes, responder, brokered, record);
        }
        AfterUnrecorded::DecideByDirectives => {
            context.approvals.follow().await;
            if brokered.built.decided_again > 0 {
                // The directive may have been recorded and not be readable yet.
                tokio::time::sleep(DIRECTIVE_PAUSE).await;
            }
            return decide_again(&context.routes, responder, brokered, record);
        }
        // Changed here, or on another node, which may have other policies.
        AfterUnrecorded::DecideByPolicies => match policies::follow(context).await {
            Ok(true) if may_decide => {
                return decide_again(&context.routes, responder, brokered, record);
            }
            Ok(_) => refusal = context.node.health().cannot_decide().unwrap_or(refusal),
            Err(error) => {
                context.node.noticed(&error);
                refusal = ledger_refusal(&error);
            }
        },
        AfterUnrecorded::BecomeDuplicate => {
            if let Some(record) = record {
                let call = Call { responder, stage: brokered };
                return duplicate::overtaken(context, call, record).await;
            }
        }
        AfterUnrecorded::Refuse => {}
    }
    let refused = Refused::of(refusal, None);
    refuse::brokered(context, Call { responder, stage: brokered }, refused).await;
}

/// Calls the adapter: from here on the outcome is recorded whatever happens.
async fn dispatched(
    context: &Arc<Context>,
    responder: Box<Responder>,
    executing: Executing,
    armed: DispatchGuard,
    ready: Ready,
) {
    let DispatchGuard { dispatch, settlement } = armed;
    let (started, budget_ends) = (Instant::now(), ready.deadline);
    let record = settlement.record();
    let deadline =
        retry::within_window(&context.ledger, &executing.brokered, record, ready.deadline);
    let ready = Ready { deadline, ..ready };
    let Called { outcome, late, proof } =
        sending::call(context, &executing.brokered, dispatch, ready).await;
    let took = started.elapsed();
    let has_another = note_credential(context, &executing.brokered, &outcome, &proof).await;
    note_answer(context, &responder, &executing.brokered, &outcome, took).await;
    let Executing { mut brokered, subject } = executing;
    brokered.built.adapter_time = brokered.built.adapter_time.saturating_add(took);
    let record = settlement.record().cloned();
    let state = record.as_ref().map_or(State::Absent, |record| context.state_of(record));
    let answered = Answered {
        reply: Reply::of(&outcome),
        has_tries: retry::has_tries(&brokered),
        is_recovered: brokered.built.recovered,
        has_another,
        is_listening: late.is_some(),
        is_ending: context.node.is_ending(),
    };
    let action = step(state, answered);
    let is_open = !matches!(action, AfterAnswer::Settle | AfterAnswer::SettleAndTryAgain);
    if let (true, Some(record)) = (is_open, record) {
        // The next attempt, or the process that takes the call over, finds out what became of this one.
        late.inspect(JoinHandle::abort);
        let call = Call { responder, stage: brokered };
        return Box::pin(unsettled(context, call, record, action)).await;
    }
    let (again, record_id) = (action == AfterAnswer::SettleAndTryAgain, settlement.record_id());
    let late = late.and_then(|task| listened_to(task, &brokered, &settlement, &subject));
    let (capability, kind) = (&brokered.built.target.capability, brokered.binding.credential.kind);
    let is_over = budget_ends.saturating_duration_since(started) <= took.saturating_add(TICK);
    let over_ms = is_over.then_some(brokered.run.run_budget.tool_latency_ms_max);
    let (outcome, mut result) =
        settle::conclude(&context.ledger, capability, kind, subject, outcome, over_ms);
    result.latency.adapter_ms = in_ms(brokered.built.adapter_time);
    result.retries = brokered.built.retries;
    let kept = settle::keep(context, settlement, outcome, result).await;
    if let Some(late) = late {
        let limit_ms = context.settings.ledger.late_answers_ms;
        resolve::await_answer(&context.outcomes, late, limit_ms);
    }
    match kept {
        Err(unsettled) => Box::pin(unsettled.tell(&context.outcomes, responder)).await,
        Ok(_) if again && retry::goes_on(context, &mut brokered, record_id).await => {
            Box::pin(retry::repeat(context, Call { responder, stage: brokered })).await;
        }
        Ok(result) => {
            if let Some(approval) = approval_of(&brokered) {
                context.approvals.call_ended(approval, result.status == ResultStatus::Unknown);
            }
            context.routes.reply(Call::new(responder, Invoked { result }))
        }
    }
}

/// The late answer to listen for, if the call has a record.
fn listened_to(
    task: JoinHandle<Option<AdapterOutcome>>,
    brokered: &Brokered,
    settlement: &Settlement,
    subject: &Subject,
) -> Option<Late> {
    let (record, now) = (settlement.record()?, Instant::now());
    Some(Late {
        task,
        began: now.checked_sub(brokered.built.adapter_time).unwrap_or(now),
        retries: brokered.built.retries,
        record_id: record.record_id,
        attempt: record.attempts,
        subject: subject.clone(),
        capability: Arc::clone(&brokered.built.target.capability),
        kind: brokered.binding.credential.kind,
    })
}

/// A call whose outcome is not settled because it is sent again.
async fn unsettled(
    context: &Arc<Context>,
    call: Call<Brokered>,
    record: EffectRecord,
    action: AfterAnswer,
) {
    match action {
        AfterAnswer::Defer => {
            deferral::defer(context, call, record, "its target did not answer").await;
        }
        AfterAnswer::Leave => deferral::leave(call.responder),
        AfterAnswer::TryAgain | AfterAnswer::Settle | AfterAnswer::SettleAndTryAgain => {
            retry::send_again(context, call, record).await;
        }
    }
}

/// Metrics and events for an adapter's answer.
async fn note_answer(
    context: &Arc<Context>,
    responder: &Responder,
    brokered: &Brokered,
    outcome: &AdapterOutcome,
    took: Duration,
) {
    let capability = &brokered.binding.capability;
    let (adapter, tool) = (capability.adapter().as_str(), capability.capability().as_str());
    context.metrics.record_adapter(adapter, tool, took);
    if let Some(AdapterError::SchemaMismatch(_)) = outcome.not_executed() {
        drift::drifted(&context.outcomes, capability);
        let mut event = refuse::event_of(AuditKind::Security, responder, brokered);
        event.code = Some(ErrorCode::ToolChanged);
        event.note = Some("the tool is not what its contract says".to_owned());
        context.note(event).await;
    }
}

/// Notes what an answer says about the credential, and returns whether the call is sent again with another one. If there is none, somebody
/// has to fix it, unless it was minted for one user.
async fn note_credential(
    context: &Context,
    brokered: &Brokered,
    outcome: &AdapterOutcome,
    proof: &Proof,
) -> bool {
    let Some(error) = outcome.not_executed() else { return false };
    if matches!(error, AdapterError::CredentialRefused(_))
        && credential::refused(&context.credentials, brokered, proof).await
        && brokered.built.retries == 0
        && retry::has_tries(brokered)
    {
        tracing::warn!(capability = %brokered.binding.capability, "a target refused the credential; the call is sent again with another one");
        return true;
    }
    let kind = brokered.binding.credential.kind;
    if errors::is_ours(kind)
        && let Some(problem) = errors::fault_of(error)
    {
        let code = errors::unavailable(error, kind).code;
        credential::note_fault(context, brokered, code, problem).await;
    }
    false
}

fn subject_of(
    responder: &Responder,
    brokered: &Brokered,
    permit: &Permit,
    call_id: &ToolCallId,
) -> Subject {
    Subject {
        call_id: call_id.clone(),
        run_id: Some(brokered.run.run_id.clone()),
        capability: Some(brokered.binding.capability.clone()),
        key: brokered.built.target.capability.is_write_class().then(|| brokered.built.key.clone()),
        decision_id: Some(permit.decision().id.clone()),
        approval_id: permit.approval_id().cloned(),
        edited: edited(brokered),
        ..responder.subject.clone()
    }
}

/// The arguments as an approver edited them.
fn edited(brokered: &Brokered) -> Option<EditedArgs> {
    let built = &brokered.built;
    let shown = || result::shown_args(&built.target.capability, &built.args);
    built.edited.as_ref().map(|edit| EditedArgs::of(edit, shown()))
}

fn intent_of(
    ledger: &Ledger,
    responder: &Responder,
    brokered: &Brokered,
    permit: &Permit,
    deadline: Instant,
    call_id: ToolCallId,
    brings: BTreeSet<Taint>,
) -> Intent {
    let left_ms = i64::try_from(deadline.saturating_duration_since(Instant::now()).as_millis())
        .unwrap_or(i64::MAX);
    let mut audit = refuse::event_of(AuditKind::Dispatched, responder, brokered);
    audit.call_id = Some(call_id.clone());
    audit.decision = refuse::decision_json(permit.decision());
    audit.digests.insert("args".to_owned(), brokered.built.args_digest);
    Intent {
        call_id,
        args: brokered.built.args.clone(),
        binding: brokered.binding.clone(),
        deadline_at: ledger.store().now().plus_ms(left_ms),
        reserve: Reservation {
            run: run::key_of(brokered),
            cents: brokered.built.target.capability.cost_cents,
            meters: meters::of(ledger, brokered),
            session: brokered.built.run.session_id.clone(),
            brings,
        },
        audit,
    }
}
