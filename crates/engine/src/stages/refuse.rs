//! Refusals before sending: reported to the caller, recorded in the audit, and consistent with the record.
//!
//! Owns what happens to a claim or a parked approval when its call is refused before anything was sent.

use std::sync::Arc;

use futures::future::BoxFuture;
use placet_credentials::Remedy;
use placet_ledger::{
    approval::{ApprovalRecord, ApprovalState},
    audit::{AuditEvent, AuditKind, TRIED},
    ledger::LedgerError,
    record::EffectRecord,
    refusal::{internal, ledger_refusal},
};
use placet_policy::decision::Decision;
use placet_types::{
    caller::CallerIdentity,
    error::{ErrorCode, Execution, Refusal},
    ids::DecisionId,
};

use crate::{
    answer::Answer,
    call::{Brokered, Call},
    context::Context,
    credentials::CredentialFaults,
    lifecycle::{
        codes::{self, Cause, Prospect},
        transitions::{self, AfterRefusal, Recourse, State, step},
    },
    outcome::{Outcomes, recorded, settlement_retry},
    recovery,
    responder::Responder,
    resume,
    stages::deferral,
    tokens::Tried,
};

/// Ends a call that has no record: records the event and tells the caller.
pub(crate) async fn early(
    context: &Context,
    responder: Box<Responder>,
    mut event: AuditEvent,
    refusal: Refusal,
) {
    event.kind = if codes::is_security_event(refusal.code) {
        AuditKind::Security
    } else {
        AuditKind::Refused
    };
    event.call_id = Some(responder.subject.call_id.clone());
    event.trace_id = Some(responder.subject.trace_id.clone());
    event.code = Some(refusal.code);
    event.note.clone_from(&refusal.detail);
    count(context, &event);
    context.note(event).await;
    responder.refuse(refusal, None);
}

/// Counts a call of its caller that was refused.
fn count(context: &Context, event: &AuditEvent) {
    if let Some(chain) = &event.chain {
        context.callers.admission.refused(&chain.actor);
    }
}

/// The audit event for a brokered call.
pub(crate) fn event_of(kind: AuditKind, responder: &Responder, brokered: &Brokered) -> AuditEvent {
    let mut event = AuditEvent::new(kind);
    event.tenant = Some(brokered.identity.chain.tenant().clone());
    event.call_id = Some(responder.subject.call_id.clone());
    event.run_id = Some(brokered.run.run_id.clone());
    event.capability = Some(brokered.binding.capability.clone());
    event.chain = Some(brokered.identity.chain.clone());
    let (run, proof) = (&brokered.run, &brokered.identity.proof);
    event.caller = Some(Box::new(CallerIdentity::of(&run.agent, run.user.as_ref(), proof)));
    event.audiences.clone_from(&brokered.identity.audiences);
    event.taint.clone_from(&brokered.taint);
    event.trace_id = Some(responder.subject.trace_id.clone());
    event.digests.insert("request".to_owned(), brokered.request_digest);
    event.digests.insert("contract".to_owned(), brokered.binding.contract_digest);
    event
}

/// A policy decision as it is audited.
pub(crate) fn decision_json(decision: &Decision) -> Option<serde_json::Value> {
    serde_json::to_value(decision).ok()
}

/// Why a brokered call is refused.
#[derive(Debug)]
pub(crate) struct Refused<'a> {
    pub(crate) refusal: Refusal,
    pub(crate) decision: Option<&'a Decision>,
    /// What becomes of the call, together with the code.
    pub(crate) cause: Cause,
}

impl<'a> Refused<'a> {
    /// A refusal whose code alone decides what becomes of the call.
    pub(crate) const fn of(refusal: Refusal, decision: Option<&'a Decision>) -> Self {
        Self { refusal, decision, cause: Cause::Code }
    }
}

/// Refuses a brokered call before anything was sent. Boxed: most stages end here, and each would have room for all of it on its stack.
pub(crate) fn brokered<'a>(
    context: &'a Arc<Context>,
    call: Call<Brokered>,
    refused: Refused<'a>,
) -> BoxFuture<'a, ()> {
    Box::pin(refuse_brokered(context, call, refused))
}

async fn refuse_brokered(context: &Arc<Context>, call: Call<Brokered>, refused: Refused<'_>) {
    let Call { mut responder, stage } = call;
    let Refused { refusal, decision, cause } = refused;
    let prospect = codes::prospect(refusal.code, cause);
    let security = codes::is_security_event(refusal.code)
        || is_alarming(&context.credentials.faults, &stage, &refusal, cause);
    let kind = if security { AuditKind::Security } else { AuditKind::Refused };
    let mut event = event_of(kind, &responder, &stage);
    event.code = Some(refusal.code);
    event.note.clone_from(&refusal.detail);
    event.decision = decision.and_then(decision_json);
    // A recorded call is tried again by the engine, not by its caller.
    if stage.built.resumed.is_none() {
        count(context, &event);
    }
    let decision_id = decision.map(|decision| decision.id.clone());
    let record = stage.built.resumed.as_ref().map(|resumed| resumed.record.clone());
    let is_own = record.as_ref().is_some_and(|record| record.call_id == responder.subject.call_id);
    let is_ending = context.node.is_ending();
    let action = step(
        state_of(context, &responder, record.as_ref()),
        transitions::Refused { prospect, is_own, is_ending },
    );
    // The end of a claim or an approval is recorded with that end; and an obstacle is recorded in the chain once.
    let is_told_again = prospect == Prospect::Retry && stage.built.deferrals > 0;
    if !is_told_again && !matches!(action, AfterRefusal::Release | AfterRefusal::EndApproval) {
        context.note(event.clone()).await;
    }
    let Some(record) = record else {
        if action == AfterRefusal::Release
            && let Err(error) = context.ledger.release(stage.record_id, event).await
        {
            tracing::error!(%error, "a refusal could not be kept in the audit");
        }
        responder.detach_record();
        return responder.refuse(refusal, decision_id);
    };
    let refused = OfRecorded { action, event, refusal, decision_id, prospect };
    recorded_call(context, Call { responder, stage }, record, refused).await;
}

/// The refusal of a recorded call, and what becomes of it.
struct OfRecorded {
    action: AfterRefusal,
    event: AuditEvent,
    refusal: Refusal,
    decision_id: Option<DecisionId>,
    prospect: Prospect,
}

async fn recorded_call(
    context: &Arc<Context>,
    call: Call<Brokered>,
    record: EffectRecord,
    refused: OfRecorded,
) {
    let OfRecorded { action, refusal, .. } = &refused;
    match action {
        AfterRefusal::WaitOn | AfterRefusal::AwaitCaller | AfterRefusal::EndApproval => {
            return under_approval(context, call, refused).await;
        }
        AfterRefusal::Defer => {
            tracing::info!(call_id = %call.responder.subject.call_id, code = %refusal.code, "a call that was sent cannot be sent again now");
            return deferral::defer(context, call, record, refusal.code.as_str()).await;
        }
        AfterRefusal::Leave => return deferral::leave(call.responder),
        AfterRefusal::Ask => {
            return recovery::leave_to(context, call.responder, record, Recourse::Ask).await;
        }
        AfterRefusal::LetGo => {
            if context.ledger.store().is_shared() {
                // Another node may be the one that sends it.
                drop(context.watch(&record));
            }
            return call.responder.release();
        }
        AfterRefusal::GiveUp
        | AfterRefusal::Disarm
        | AfterRefusal::TellUnknown
        | AfterRefusal::Tell
        | AfterRefusal::Release => {}
    }
    let OfRecorded { action, refusal, decision_id, prospect, .. } = refused;
    let mut responder = call.responder;
    responder.detach_record();
    if action == AfterRefusal::GiveUp {
        let reason = format!("sending it again was refused: {}", refusal.code);
        responder.finish(settlement_retry::give_up(&context.outcomes, &record, &reason).await);
    } else if action == AfterRefusal::Disarm {
        let reason = format!("policy or contract refused it: {}", refusal.code);
        responder.finish(settlement_retry::disarm(context, &record, &reason).await);
    } else if action == AfterRefusal::TellUnknown {
        responder.refuse(of_rearmed(refusal, prospect), None);
    } else {
        responder.refuse(refusal, decision_id);
    }
}

/// The state of the call that is refused.
fn state_of(outcomes: &Outcomes, responder: &Responder, record: Option<&EffectRecord>) -> State {
    match record {
        Some(record) => outcomes.state_of(record),
        // Only a key that this call claimed may be released: it may be another call's, which is about to use it.
        None if responder.has_record() => State::Claimed,
        None => State::Absent,
    }
}

/// Whether to raise an alarm because an approved call gets no credential: each time if that ends it, rarely if it is tried again.
fn is_alarming(
    faults: &CredentialFaults,
    stage: &Brokered,
    refusal: &Refusal,
    cause: Cause,
) -> bool {
    let Some(resumed) = &stage.built.resumed else { return false };
    let Cause::Credential(remedy @ (Remedy::Operator | Remedy::None)) = cause else { return false };
    if remedy == Remedy::Operator && !faults.is_news_of(resumed.record.record_id) {
        return false;
    }
    let detail = refusal.detail.as_deref().unwrap_or_default();
    let capability = &stage.binding.capability;
    tracing::error!(%capability, code = %refusal.code, detail, "people agreed to a call that gets no credential");
    true
}

/// The ledger stopped during the commit: it may have been recorded, and the process that takes it up continues.
pub(crate) fn uncertain(mut responder: Box<Responder>, error: &LedgerError) {
    responder.detach_record();
    responder.refuse(ledger_refusal(error), None);
}

/// The refusal for a client that repeats a re-armed call which cannot be sent now. Never "not executed".
fn of_rearmed(refusal: Refusal, prospect: Prospect) -> Refusal {
    let message = if prospect == Prospect::End {
        format!(
            "{}; operators decided to send this call again, which stands, and whether its first try had an effect is not known",
            refusal.message
        )
    } else {
        "operators decided to send this call again, and it could not be sent now; whether its first try had an effect is not known".to_owned()
    };
    let mut told = Refusal::new(refusal.code, message).with_execution(Execution::Unknown);
    told.retry_after_ms = refusal.retry_after_ms;
    told.problems = refusal.problems;
    told.detail = refusal.detail;
    told
}

/// An approved call that cannot run now: it waits on, or its approval becomes void.
async fn under_approval(context: &Context, call: Call<Brokered>, refused: OfRecorded) {
    let Call { mut responder, stage } = call;
    let OfRecorded { action, mut event, refusal, .. } = refused;
    let (tried, with) = (Tried::of(&stage.identity), stage.identity.auth_ref.digest());
    responder.detach_record();
    let Some((record, Some(approval))) =
        stage.built.resumed.map(|resumed| (resumed.record, resumed.approval))
    else {
        return responder.refuse(internal("an approved record without its approval"), None);
    };
    if action == AfterRefusal::EndApproval {
        return end_approval(context, responder, &record, &approval, event, refusal).await;
    }
    if action == AfterRefusal::AwaitCaller
        && context.tokens.lacks(record.record_id, tried, approval.expires_at)
    {
        // Its caller may not be polling: this event is what the notifier reads.
        event.kind = AuditKind::AwaitsCredential;
        event.approval_id = Some(approval.approval_id.clone());
        event.note = None;
        event.digests.insert(TRIED.to_owned(), with);
        context.note(event).await;
        let execution =
            if record.unknown.is_some() { Execution::Unknown } else { refusal.execution };
        let refusal = refusal.with_execution(execution);
        resume::await_caller(context, &approval.approval_id, record.record_id);
        return wait_for_caller(context, responder, refusal);
    }
    wait_on(context, responder, &record, &approval).await;
}

/// An approved call that cannot run as approved: its approval ends.
async fn end_approval(
    context: &Context,
    responder: Box<Responder>,
    record: &EffectRecord,
    approval: &ApprovalRecord,
    event: AuditEvent,
    refusal: Refusal,
) {
    if event.kind == AuditKind::Security {
        // The end of the approval is an event of another kind.
        context.note(event.clone()).await;
    }
    let expired = refusal.code == ErrorCode::ApprovalExpired;
    // Shown to those who may see the approval, the caller included: nothing that only the log may contain.
    let reason = format!("{}: {}", refusal.code, refusal.message);
    let end = if expired { ApprovalState::Expired } else { ApprovalState::Void { reason } };
    let ended = match context.ledger.end_approval(approval, end, event).await {
        Ok(ended) => ended,
        Err(error) => {
            tracing::warn!(%error, approval_id = %approval.approval_id, "an approval could not be ended");
            return wait_on(context, responder, record, approval).await;
        }
    };
    context.approvals.moved(&ended);
    context.approvals.count_ended(if expired { "expired" } else { "void" }, approval);
    if record.unknown.is_some() {
        // Its first arm may have had an effect: its end is what is known of that.
        return responder.finish(recorded::now(context, record).await);
    }
    let told = if expired {
        recorded::denied(ErrorCode::ApprovalExpired)
    } else if refusal.code == ErrorCode::ModeUpgraded || refusal.code.lacks_credential() {
        // Two causes are named as such: that the call has become stronger (TM-15), and that it gets no credential.
        refusal
    } else {
        recorded::void().with_detail(&refusal)
    };
    responder.refuse(told, None);
}

/// An approved call that needs a new token of its caller (TM-17): those who ask now are told so, and the call waits on.
fn wait_for_caller(context: &Context, responder: Box<Responder>, refusal: Refusal) {
    let call_id = responder.subject.call_id.clone();
    responder.refuse(refusal, None);
    // The call has not ended: those who ask next get its state from the ledger.
    context.registry.forget(&call_id);
}

/// An approved call waits on and is tried again; if it has ended meanwhile, its end is reported.
pub(crate) async fn wait_on(
    context: &Context,
    responder: Box<Responder>,
    record: &EffectRecord,
    approval: &ApprovalRecord,
) {
    context.routes.retry_later(&approval.approval_id);
    match recorded::now(context, record).await {
        Answer::Held(held) => responder.park(*held),
        // Another task works on it and reports; if it is on another node, the ledger is polled.
        Answer::InProgress(_) => {
            if context.ledger.store().is_shared() {
                drop(context.watch(record));
            }
            responder.release();
        }
        // A ledger that cannot be read says nothing about the approval, which stands until it is ended.
        Answer::Refused(refused) if refused.refusal.code == ErrorCode::LedgerUnavailable => {
            let subject = responder.subject.clone();
            responder.park(recorded::held_of(context, record, approval, subject));
        }
        end @ (Answer::Finished(_) | Answer::Refused(_)) => responder.finish(end),
    }
}
