//! Refusals on the way: told to the caller, kept in the audit, and true about the record.
//!
//! Owns what happens to a claim or a parked approval when its call is refused before anything was sent.

use std::sync::Arc;

use futures::future::BoxFuture;
use placet_credentials::Remedy;
use placet_ledger::{
    approval::{ApprovalRecord, ApprovalState},
    audit::{AuditEvent, AuditKind, TRIED},
    ledger::LedgerError,
    record::{Class, EffectRecord, EffectState},
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
    call::{Brokered, Call, Caller},
    context::Context,
    lifecycle::codes::{self, Cause, Prospect},
    outcome::{recorded, settlement_retry},
    responder::Responder,
    stages::deferral,
    tokens::{Tokens, Tried},
};

/// Ends a call that has no record: the event is kept, the caller is told.
pub(crate) async fn early(
    context: &Context,
    responder: Responder,
    mut event: AuditEvent,
    refusal: Refusal,
) {
    event.kind = if codes::is_security_event(refusal.code) {
        AuditKind::Security
    } else {
        AuditKind::Refused
    };
    event.call_id = Some(responder.call_id.clone());
    event.trace_id = Some(responder.trace_id.clone());
    event.code = Some(refusal.code);
    event.note.clone_from(&refusal.detail);
    context.note(event).await;
    responder.refuse(refusal, None);
}

/// What an event says of a brokered call.
pub(crate) fn event_of(kind: AuditKind, responder: &Responder, brokered: &Brokered) -> AuditEvent {
    let mut event = AuditEvent::new(kind);
    event.tenant = Some(brokered.identity.chain.tenant().clone());
    event.call_id = Some(responder.call_id.clone());
    event.run_id = Some(brokered.run.run_id.clone());
    event.capability = Some(brokered.binding.capability.clone());
    event.chain = Some(brokered.identity.chain.clone());
    let (run, proof) = (&brokered.run, &brokered.identity.proof);
    event.caller = Some(Box::new(CallerIdentity::of(&run.agent, run.user.as_ref(), proof)));
    event.audiences.clone_from(&brokered.identity.audiences);
    event.taint.clone_from(&brokered.taint);
    event.trace_id = Some(responder.trace_id.clone());
    event.digests.insert("request".to_owned(), brokered.request_digest);
    event.digests.insert("contract".to_owned(), brokered.binding.contract_digest);
    event
}

/// A policy decision as the audit keeps it.
pub(crate) fn decision_json(decision: &Decision) -> Option<serde_json::Value> {
    serde_json::to_value(decision).ok()
}

/// Why a brokered call is refused.
#[derive(Debug)]
pub(crate) struct Refused<'a> {
    pub(crate) refusal: Refusal,
    pub(crate) decision: Option<&'a Decision>,
    /// With the code, what becomes of the call.
    pub(crate) cause: Cause,
}

impl<'a> Refused<'a> {
    /// A refusal whose code says what becomes of the call.
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
        || is_alarming(&context.tokens, &stage, &refusal, cause);
    let kind = if security { AuditKind::Security } else { AuditKind::Refused };
    let mut event = event_of(kind, &responder, &stage);
    event.code = Some(refusal.code);
    event.note.clone_from(&refusal.detail);
    event.decision = decision.and_then(decision_json);
    let decision_id = decision.map(|decision| decision.id.clone());
    if let Some(resumed) = &stage.built.resumed {
        if matches!(
            resumed.record.state,
            EffectState::Approved { .. } | EffectState::PendingApproval { .. }
        ) {
            return approved(context, Call { responder, stage }, event, refusal, prospect).await;
        }
        let before = Before { event, refusal, decision_id, prospect };
        return recorded_before(context, Call { responder, stage }, before).await;
    }
    // Only what this call has claimed is its to return: the key may be another's, who is about to use it.
    if responder.has_record() {
        if let Err(error) = context.ledger.release(stage.record_id, event).await {
            tracing::error!(%error, "a refusal could not be kept in the audit");
        }
    } else {
        context.note(event).await;
    }
    responder.detach_record();
    responder.refuse(refusal, decision_id);
}

/// Whether somebody has to hear that people agreed to a call and there is no credential for it: each time where that ends it, once where it
/// is tried again.
fn is_alarming(tokens: &Tokens, stage: &Brokered, refusal: &Refusal, cause: Cause) -> bool {
    let Some(resumed) = &stage.built.resumed else { return false };
    let Cause::Credential(remedy @ (Remedy::Operator | Remedy::None)) = cause else { return false };
    let until = resumed.approval.as_ref().map_or(resumed.record.updated_at, |one| one.expires_at);
    if remedy == Remedy::Operator && !tokens.is_news(resumed.record.record_id, until) {
        return false;
    }
    let detail = refusal.detail.as_deref().unwrap_or_default();
    let capability = &stage.binding.capability;
    tracing::error!(%capability, code = %refusal.code, detail, "people agreed to a call that gets no credential");
    true
}

/// The refusal of a call that is recorded already.
struct Before {
    event: AuditEvent,
    refusal: Refusal,
    decision_id: Option<DecisionId>,
    prospect: Prospect,
}

/// Refuses a call that is recorded already and waits for nobody: one that was sent, is to be sent under another arm, or is tried again.
async fn recorded_before(context: &Arc<Context>, call: Call<Brokered>, before: Before) {
    let Call { mut responder, stage } = call;
    let Before { event, refusal, decision_id, prospect } = before;
    let Some(record) = stage.built.resumed.as_ref().map(|resumed| resumed.record.clone()) else {
        return responder.refuse(refusal, decision_id);
    };
    let is_tried_again = prospect == Prospect::Retry;
    if !is_tried_again || stage.built.deferrals == 0 {
        // Of one obstacle the chain says once that it was in the way.
        context.note(event).await;
    }
    if let EffectState::Dispatched(attempt) = &record.state {
        // It was sent before: that it may not be sent again says nothing about the first time.
        if is_tried_again && context.node.is_ending() {
            return deferral::leave(responder);
        }
        if is_tried_again && matches!(attempt.class, Class::Keyed { .. }) {
            tracing::info!(call_id = %responder.call_id, code = %refusal.code, "a call that was sent cannot be sent again now");
            let call = Call { responder, stage };
            return deferral::deferrals(context, call, record, refusal.code.as_str()).await;
        }
        responder.detach_record();
        let reason = format!("sending it again was refused: {}", refusal.code);
        let answer = settlement_retry::give_up(&context.outcomes, &record, &reason).await;
        return responder.finish(answer);
    }
    responder.detach_record();
    if matches!(record.state, EffectState::Rearmed { .. }) {
        let is_own = matches!(stage.built.caller, Caller::Recorded(_));
        return rearmed(context, responder, &record, refusal, prospect, is_own).await;
    }
    responder.refuse(refusal, decision_id);
}

/// The ledger stopped while it kept what happens to the call: that may be kept, and the one who takes it up from there goes on.
pub(crate) fn uncertain(mut responder: Responder, error: &LedgerError) {
    responder.detach_record();
    responder.refuse(ledger_refusal(error), None);
}

/// A re-armed call that cannot be sent: it waits on, or its outcome is unknown as before. Never "not executed". What operators decided
/// is taken back by the engine's own try alone: a client that repeats the call may ask for less, or under another run, and is only told.
async fn rearmed(
    context: &Context,
    mut responder: Responder,
    record: &EffectRecord,
    refusal: Refusal,
    prospect: Prospect,
    is_own: bool,
) {
    let ends = prospect == Prospect::End;
    if ends && is_own {
        let reason = format!("policy or contract refused it: {}", refusal.code);
        let answer = settlement_retry::disarm(context, record, &reason).await;
        return responder.finish(answer);
    }
    if responder.call_id == record.call_id {
        // The engine's own try: the keeper tries again, or another node does.
        if context.ledger.store().is_shared() {
            drop(context.watch(record));
        }
        return responder.release();
    }
    responder.detach_record();
    let message = if !ends {
        "operators decided to send this call again, and it could not be sent now; whether its first try had an effect is not known".to_owned()
    } else {
        format!(
            "{}; operators decided to send this call again, which stands, and whether its first try had an effect is not known",
            refusal.message
        )
    };
    let mut told = Refusal::new(refusal.code, message).with_execution(Execution::Unknown);
    told.retry_after_ms = refusal.retry_after_ms;
    told.problems = refusal.problems;
    told.detail = refusal.detail;
    responder.refuse(told, None);
}

/// An approved call that cannot run now: it waits on, or its approval is void.
async fn approved(
    context: &Context,
    call: Call<Brokered>,
    mut event: AuditEvent,
    refusal: Refusal,
    prospect: Prospect,
) {
    let Call { mut responder, stage } = call;
    let (tried, with) = (Tried::of(&stage.identity), stage.identity.auth_ref.digest());
    responder.detach_record();
    let Some((record, Some(approval))) =
        stage.built.resumed.map(|resumed| (resumed.record, resumed.approval))
    else {
        return responder.refuse(internal("an approved record without its approval"), None);
    };
    if prospect == Prospect::AwaitCaller {
        context.note(event.clone()).await;
        if context.tokens.lacks(record.record_id, tried, approval.expires_at) {
            // Its caller may not ask: anyone who tells callers reads of it there.
            event.kind = AuditKind::AwaitsCredential;
            event.approval_id = Some(approval.approval_id.clone());
            event.note = None;
            event.digests.insert(TRIED.to_owned(), with);
            context.note(event).await;
            let execution =
                if record.unknown.is_some() { Execution::Unknown } else { refusal.execution };
            let refusal = refusal.with_execution(execution);
            return wait_for_caller(context, responder, &approval, refusal);
        }
        return wait_on(context, responder, &record, &approval).await;
    }
    if prospect == Prospect::Retry {
        context.note(event).await;
        return wait_on(context, responder, &record, &approval).await;
    }
    if event.kind == AuditKind::Security {
        // The end of the approval is an event of its own kind.
        context.note(event.clone()).await;
    }
    let expired = refusal.code == ErrorCode::ApprovalExpired;
    // Shown to the one who may see the approval, the caller included: nothing that only the log may know.
    let reason = format!("{}: {}", refusal.code, refusal.message);
    let end = if expired { ApprovalState::Expired } else { ApprovalState::Void { reason } };
    match context.ledger.end_approval(&approval, end, event).await {
        Ok(ended) => {
            let name = if expired { "expired" } else { "void" };
            context.approvals.moved(&ended);
            context.approvals.count_ended(name, &approval);
            if record.unknown.is_some() {
                // Its first arm may have had an effect: what is known of that is its end.
                let end = recorded::now(context, &record).await;
                return responder.finish(end);
            }
            let told = if expired {
                recorded::denied(ErrorCode::ApprovalExpired)
            } else if refusal.code == ErrorCode::ModeUpgraded || refusal.code.lacks_credential() {
                // That the call has become stronger is said as such (TM-15), and so is that it gets no credential.
                refusal
            } else {
                recorded::void().with_detail(&refusal)
            };
            responder.refuse(told, None);
        }
        Err(error) => {
            tracing::warn!(%error, approval_id = %approval.approval_id, "an approval could not be ended");
            wait_on(context, responder, &record, &approval).await;
        }
    }
}

/// An approved call whose caller has to come back with a new token (TM-17): anyone who asks at this moment is told so, and the call waits on.
fn wait_for_caller(
    context: &Context,
    responder: Responder,
    approval: &ApprovalRecord,
    refusal: Refusal,
) {
    context.routes.approval_waits(&approval.approval_id);
    let call_id = responder.call_id.clone();
    responder.refuse(refusal, None);
    // That was no end of the call: anyone who asks next is told from the ledger how it stands.
    context.registry.forget(&call_id);
}

/// An approved call waits on, and is tried again; unless it has ended meanwhile, and then its end is told.
pub(crate) async fn wait_on(
    context: &Context,
    responder: Responder,
    record: &EffectRecord,
    approval: &ApprovalRecord,
) {
    context.routes.retry_later(&approval.approval_id);
    match recorded::now(context, record).await {
        Answer::Held(held) => responder.park(*held),
        // Somebody else works on it, and tells; if that is another node, the ledger does.
        Answer::InProgress(_) => {
            if context.ledger.store().is_shared() {
                drop(context.watch(record));
            }
            responder.release();
        }
        // A ledger that cannot be read says nothing about the approval, which stands until it is ended.
        Answer::Refused(refused) if refused.refusal.code == ErrorCode::LedgerUnavailable => {
            let subject = responder.subject();
            responder.park(recorded::held_of(context, record, approval, subject));
        }
        end @ (Answer::Finished(_) | Answer::Refused(_)) => responder.finish(end),
    }
}
