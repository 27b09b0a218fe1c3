//! Taking up a parked call: verify every digest, then through broker and gate again (decisions.md 2).
//!
//! Owns the way from data back to a call, and the ends of an approval that nobody used. Invariant (design, promise 2): a byte that
//! changed on disk, or a contract that changed, makes the approval void; it never runs.

use std::sync::Arc;

use serde_json::Value;

use placet_ledger::{
    approval::{ApprovalRecord, ApprovalState},
    audit::{AuditEvent, AuditKind},
    ledger::LedgerError,
    parked::ParkedCall,
    record::{EffectRecord, EffectState},
    store::StoreError,
};
use placet_telemetry::trace::{CallFields, Stage, continue_span};
use placet_types::{
    error::{ErrorCode, Refusal},
    ids::ApprovalId,
    json::canonical_digest,
};

use crate::{
    answer::{Answer, RefusedCall},
    call::{Built, Call, Caller, Identity, Passage, Resumed},
    context::Context,
    registry::Owner,
    stages::recorded,
};

/// Takes up the call of an approval that was agreed to. Does nothing when it is over, or being taken up already.
pub(crate) async fn resume(
    context: &Arc<Context>,
    approval_id: &ApprovalId,
    renewed: Option<Box<Identity>>,
) {
    let Some(guard) = context.resuming.enter(approval_id) else { return };
    let (approval, record) = match waiting(context, approval_id).await {
        Ok(Some(found)) => found,
        Ok(None) => return,
        Err(error) => {
            tracing::warn!(%error, %approval_id, "an approved call could not be read");
            return context.routes.retry_later(approval_id);
        }
    };
    match context.ledger.parked(&record).await {
        Ok(parked) => take_up(context, (approval, record, parked), renewed, guard),
        Err(LedgerError::Store(
            error @ (StoreError::ContentAltered(_)
            | StoreError::ContentMissing(_)
            | StoreError::Damaged(_)),
        )) => {
            void(context, &approval, &record, &error.to_string()).await;
        }
        Err(error) => {
            tracing::warn!(%error, %approval_id, "an approved call could not be read");
            context.routes.retry_later(approval_id);
        }
    }
}

async fn waiting(
    context: &Context,
    approval_id: &ApprovalId,
) -> Result<Option<(ApprovalRecord, EffectRecord)>, StoreError> {
    let store = context.ledger.store();
    let Some(approval) = store.approval(approval_id).await? else { return Ok(None) };
    if approval.state != ApprovalState::Approved {
        return Ok(None);
    }
    let Some(record) = store.effect(approval.record_id).await? else { return Ok(None) };
    let waits =
        matches!(&record.state, EffectState::Approved { approval_id: id, .. } if id == approval_id);
    Ok(waits.then_some((approval, record)))
}

fn take_up(
    context: &Arc<Context>,
    (approval, record, parked): (ApprovalRecord, EffectRecord, ParkedCall),
    renewed: Option<Box<Identity>>,
    guard: ResumeGuard,
) {
    let owner = Owner::of(&parked.envelope.principal_chain);
    drop(context.registry.enter(
        &record.call_id,
        owner,
        Answer::InProgress(record.call_id.clone()),
    ));
    match restore(context, (&approval, &record, parked), renewed) {
        Ok(built) => {
            let mut passage = passage(context, &record, &built);
            passage.resumed_under(guard);
            context.routes.broker(context, Call { passage, stage: built });
        }
        Err(reason) => {
            let context = Arc::clone(context);
            let owner = Arc::clone(&context);
            owner.registry.spawn(async move { void(&context, &approval, &record, &reason).await });
        }
    }
}

fn passage(context: &Arc<Context>, record: &EffectRecord, built: &Built) -> Passage {
    let traceparent = built.resumed.as_ref().and_then(|resumed| resumed.parked.traceparent.clone());
    let tool = record.scope.capability.tool_name();
    let fields = CallFields {
        tenant: Some(record.scope.tenant.as_str()),
        run_id: Some(record.run_id.as_str()),
        tool_call_id: Some(record.call_id.as_str()),
        tool: Some(&tool),
    };
    let span =
        continue_span(traceparent.as_deref().unwrap_or_default(), None, Stage::Approval, &fields);
    let mut passage = Passage::new(Arc::clone(context), record.call_id.clone(), span, None);
    passage.accepted_at = record.created_at;
    passage.runs_under(record.record_id);
    passage
}

/// `Call::<Built>` from what was parked, every digest verified; else why the approval is void.
fn restore(
    context: &Context,
    (approval, record, parked): (&ApprovalRecord, &EffectRecord, ParkedCall),
    renewed: Option<Box<Identity>>,
) -> Result<Built, String> {
    let envelope = &parked.envelope;
    let args_digest = canonical_digest(&Value::Object(envelope.args.clone()));
    if parked.binding.effective_args_digest != args_digest {
        return Err("the arguments are not the approved ones".to_owned());
    }
    if parked.binding.digest() != approval.request_digest {
        return Err("the request is not the approved one".to_owned());
    }
    if envelope.principal_chain != parked.binding.principal_chain
        || envelope.tool_call_id != record.call_id
        || envelope.capability_id != record.scope.capability
    {
        return Err("the call is not the approved one".to_owned());
    }
    let target = context
        .catalog
        .resolve(&record.scope.tenant, &record.scope.capability)
        .ok_or("the tool is not offered any more")?;
    if target.contract.digest != parked.binding.contract_digest {
        return Err("the contract is not the approved one".to_owned());
    }
    let identity = renewed.map_or_else(|| recorded_identity(&parked), |fresh| *fresh);
    Ok(Built {
        target,
        args: envelope.args.clone(),
        requested_digest: parked.requested_digest,
        args_digest,
        key: record.key.clone(),
        mode_requested: envelope.approval_mode_requested,
        run: placet_types::run_context::RunRequest {
            run_id: parked.run.run_id.clone(),
            session_id: envelope.session_id.clone(),
            safety_mode: parked.run.safety_mode,
            run_budget: parked.run.run_budget,
        },
        step_id: parked.step_id.clone(),
        request_id: parked.request_id.clone(),
        evidence_refs: envelope.evidence_refs.clone(),
        metadata: envelope.metadata.clone(),
        caller: Caller::Recorded(Box::new(identity)),
        resumed: Some(Box::new(Resumed {
            record: record.clone(),
            approval: Some(approval.clone()),
            parked,
        })),
        retries: 0,
    })
}

/// Who called, as recorded when the call was parked.
pub(crate) fn recorded_identity(parked: &ParkedCall) -> Identity {
    Identity {
        chain: parked.envelope.principal_chain.clone(),
        user_groups: parked.user_groups.clone(),
        groups_as_of: parked.groups_as_of,
        authority_until: parked.authority_until,
        auth_ref: parked.envelope.auth_ref.clone().unwrap_or(
            placet_types::envelope::call::AuthRef {
                delegated_user_token_ref: None,
                agent_token_ref: String::new(),
            },
        ),
    }
}

/// Ends an approval because what was approved is no longer what would run.
pub(crate) async fn void(
    context: &Context,
    approval: &ApprovalRecord,
    record: &EffectRecord,
    reason: &str,
) {
    let mut event = ending(approval, record);
    event.code = Some(ErrorCode::ApprovalVoid);
    event.note = Some(reason.to_owned());
    let end = ApprovalState::Void { reason: reason.to_owned() };
    match context.ledger.end_approval(approval, end, event).await {
        Ok(_) => {
            context.metrics.approval_ended("void", approval, context.ledger.store().now().as_ms());
            let refusal = Refusal::new(
                ErrorCode::ApprovalVoid,
                "what was approved is no longer what would run; it was not executed",
            )
            .with_detail(reason);
            // A void approval gives its key back, so that after a restart nothing but this entry knows the call.
            let begun = Answer::InProgress(record.call_id.clone());
            drop(context.registry.enter(&record.call_id, Owner::of_scope(&record.scope), begun));
            publish(context, record, refusal);
        }
        Err(error) => {
            tracing::warn!(%error, approval_id = %approval.approval_id, "an approval could not be made void")
        }
    }
}

/// Ends an approval whose time is over.
pub(crate) async fn expire(context: &Arc<Context>, approval_id: &ApprovalId) {
    let store = context.ledger.store();
    let Ok(Some(approval)) = store.approval(approval_id).await else { return };
    if !matches!(approval.state, ApprovalState::Pending | ApprovalState::Approved) {
        return;
    }
    if approval.expires_at > store.now() {
        return context.routes.approval_asked(approval_id, approval.expires_at);
    }
    let Ok(Some(record)) = store.effect(approval.record_id).await else { return };
    let mut event = ending(&approval, &record);
    event.code = Some(ErrorCode::ApprovalExpired);
    match context.ledger.end_approval(&approval, ApprovalState::Expired, event).await {
        Ok(_) => {
            context.metrics.approval_ended("expired", &approval, store.now().as_ms());
            publish(context, &record, recorded::denied(ErrorCode::ApprovalExpired));
        }
        Err(error) => tracing::info!(%error, %approval_id, "an approval moved on as it expired"),
    }
}

fn ending(approval: &ApprovalRecord, record: &EffectRecord) -> AuditEvent {
    let mut event = AuditEvent::new(AuditKind::ApprovalEnded);
    event.tenant = Some(record.scope.tenant.clone());
    event.call_id = Some(record.call_id.clone());
    event.run_id = Some(record.run_id.clone());
    event.capability = Some(record.scope.capability.clone());
    event.chain = Some(approval.chain.clone());
    event.record_id = Some(record.record_id);
    event.approval_id = Some(approval.approval_id.clone());
    event.digests.insert("request".to_owned(), approval.request_digest);
    event
}

/// Tells whoever waits for the call.
pub(crate) fn publish(context: &Context, record: &EffectRecord, refusal: Refusal) {
    let answer = Answer::Refused(Box::new(RefusedCall {
        call_id: record.call_id.clone(),
        refusal,
        decision_id: None,
        trace_id: None,
    }));
    context.registry.publish(&record.call_id, answer);
}

/// Approvals that are being taken up: each by one task at a time.
#[derive(Debug, Default)]
pub(crate) struct Resuming {
    held: Arc<std::sync::Mutex<std::collections::HashSet<ApprovalId>>>,
}

/// The right to take up an approval's call, given back on drop.
#[derive(Debug)]
pub(crate) struct ResumeGuard {
    held: Arc<std::sync::Mutex<std::collections::HashSet<ApprovalId>>>,
    approval_id: ApprovalId,
}

impl Resuming {
    fn enter(&self, approval_id: &ApprovalId) -> Option<ResumeGuard> {
        let mut held = self.held.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        held.insert(approval_id.clone())
            .then(|| ResumeGuard { held: Arc::clone(&self.held), approval_id: approval_id.clone() })
    }
}

impl Drop for ResumeGuard {
    fn drop(&mut self) {
        self.held
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .remove(&self.approval_id);
    }
}
