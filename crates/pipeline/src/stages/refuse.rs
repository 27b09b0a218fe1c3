//! Refusals on the way: told to the caller, kept in the audit, and true about the record.
//!
//! Owns what happens to a claim or a parked approval when its call is refused before anything was sent.

use placet_ledger::{
    approval::ApprovalState,
    audit::{AuditEvent, AuditKind},
    record::EffectState,
};
use placet_policy::verdict::Decision;
use placet_types::{
    error::{ErrorCode, Refusal},
    ids::DecisionId,
};

use crate::{
    answer::{Answer, RefusedCall},
    call::{Brokered, Call, Passage},
    context::{Context, internal},
    stages::recorded,
};

/// Ends a call that has no record: the event is kept, the caller is told.
pub(crate) async fn early(
    context: &Context,
    passage: Passage,
    mut event: AuditEvent,
    refusal: Refusal,
) {
    event.kind = if is_security(refusal.code) { AuditKind::Security } else { AuditKind::Refused };
    event.call_id = Some(passage.call_id.clone());
    event.trace_id = Some(passage.trace_id.clone());
    event.code = Some(refusal.code);
    event.note.clone_from(&refusal.detail);
    context.note(event).await;
    tell(context, passage, refusal, None);
}

/// What an event says of a brokered call.
pub(crate) fn event_of(kind: AuditKind, passage: &Passage, brokered: &Brokered) -> AuditEvent {
    let mut event = AuditEvent::new(kind);
    event.tenant = Some(brokered.identity.chain.tenant().clone());
    event.call_id = Some(passage.call_id.clone());
    event.run_id = Some(brokered.run.run_id.clone());
    event.capability = Some(brokered.binding.capability.clone());
    event.chain = Some(brokered.identity.chain.clone());
    event.trace_id = Some(passage.trace_id.clone());
    event.digests.insert("request".to_owned(), brokered.request_digest);
    event.digests.insert("contract".to_owned(), brokered.binding.contract_digest);
    event
}

/// A policy decision as the audit keeps it.
pub(crate) fn decision_json(decision: &Decision) -> Option<serde_json::Value> {
    serde_json::to_value(decision).ok()
}

/// Why a brokered call is refused, and what that means for an approval it may have.
#[derive(Debug)]
pub(crate) struct Refused<'a> {
    pub(crate) refusal: Refusal,
    pub(crate) decision: Option<&'a Decision>,
    /// Whether the obstacle may go away: an approved call then stays approved and is tried again (decisions.md 21).
    pub(crate) passing: bool,
}

/// Refuses a brokered call before anything was sent.
pub(crate) async fn brokered(context: &Context, call: Call<Brokered>, refused: Refused<'_>) {
    let Call { mut passage, stage } = call;
    let Refused { refusal, decision, passing } = refused;
    let kind = if is_security(refusal.code) { AuditKind::Security } else { AuditKind::Refused };
    let mut event = event_of(kind, &passage, &stage);
    event.code = Some(refusal.code);
    event.note.clone_from(&refusal.detail);
    event.decision = decision.and_then(decision_json);
    let decision_id = decision.map(|decision| decision.id.clone());
    if let Some(resumed) = &stage.built.resumed {
        if matches!(
            resumed.record.state,
            EffectState::Approved { .. } | EffectState::PendingApproval { .. }
        ) {
            return approved(context, call_of(passage, stage), event, (refusal, passing)).await;
        }
        context.note(event).await;
        passage.leaves_record();
        return tell(context, passage, refusal, decision_id);
    }
    // Only a claim can be given back; for a read there is none, and giving back nothing is harmless.
    if let Err(error) = context.ledger.release(stage.record_id, event).await {
        tracing::error!(%error, "a refusal could not be kept in the audit");
    }
    passage.leaves_record();
    tell(context, passage, refusal, decision_id);
}

const fn call_of(passage: Passage, stage: Brokered) -> Call<Brokered> {
    Call { passage, stage }
}

/// An approved call that cannot run now: it waits on, or its approval is void.
async fn approved(
    context: &Context,
    call: Call<Brokered>,
    event: AuditEvent,
    why: (Refusal, bool),
) {
    let Call { mut passage, stage } = call;
    let (refusal, passing) = why;
    passage.leaves_record();
    let Some((record, Some(approval))) =
        stage.built.resumed.map(|resumed| (resumed.record, resumed.approval))
    else {
        return tell(context, passage, internal("an approved record without its approval"), None);
    };
    if passing {
        context.note(event).await;
        let answer = recorded::held(context, &record, &approval.approval_id).await;
        context.routes.retry_later(&approval.approval_id);
        return match answer {
            Answer::Held(held) => passage.park(*held),
            other @ (Answer::InProgress(_) | Answer::Finished(_) | Answer::Refused(_)) => passage.finish(other),
        };
    }
    let reason =
        format!("{}: {}", refusal.code, refusal.detail.as_deref().unwrap_or(&refusal.message));
    match context.ledger.end_approval(&approval, ApprovalState::Void { reason }, event).await {
        Ok(_) => {
            context.metrics.approval_ended("void", &approval, context.ledger.store().now().as_ms());
            let void = Refusal::new(
                ErrorCode::ApprovalVoid,
                "what was approved is no longer what would run, or is no longer allowed; it was not executed",
            )
            .with_detail(&refusal);
            tell(context, passage, void, None);
        }
        Err(error) => tell(context, passage, crate::context::ledger_refusal(&error), None),
    }
}

/// Tells the caller.
pub(crate) fn tell(
    context: &Context,
    passage: Passage,
    refusal: Refusal,
    decision_id: Option<DecisionId>,
) {
    if let Some(detail) = &refusal.detail {
        tracing::info!(call_id = %passage.call_id, code = %refusal.code, %detail, "call refused");
    }
    context.metrics.refused(refusal.code);
    let call_id = passage.call_id.clone();
    let trace_id = Some(passage.trace_id.clone());
    passage.finish(Answer::Refused(Box::new(RefusedCall {
        call_id,
        refusal,
        decision_id,
        trace_id,
    })));
}

/// Codes that a security team wants to hear of (TM-15).
const fn is_security(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::ModeUpgraded | ErrorCode::PolicyError)
}
