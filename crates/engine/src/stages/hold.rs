//! Hold: a call that needs approval becomes data (TM-09).
//!
//! Owns the proposal and its frozen evidence. Invariant: the evidence is made from the very values that are digested, and is recorded in
//! the same commit as the approval.

use std::sync::Arc;

use serde_json::Value;

use placet_approvals::LIFETIME_MS_MAX;
use placet_ledger::{
    audit::AuditKind,
    ledger::LedgerError,
    record::{EffectRecord, EffectState},
    refusal::ledger_refusal,
    store::StoreError,
};
use placet_policy::{decision::Decision, facts::BudgetView, verdict::Hold};
use placet_types::{
    approval::Requirement,
    caller::CallerIdentity,
    envelope::proposal::{Evidence, ProposalVersion, SentBefore, ToolProposalEnvelope},
    error::{ErrorCode, Refusal},
    json::canonical_digest,
};

use crate::{
    adapters::errors,
    call::{Brokered, Call},
    context::Context,
    drift::{self, Asked},
    result::Subject,
    stages::{
        credential, duplicate,
        parked::{envelope_of, parked_of},
        refuse::{self, Refused},
    },
};

/// The retry delay for a caller whose agent has too many held calls, in milliseconds: people take their time.
const HELD_RETRY_MS: u64 = 30_000;

/// Parks a claimed call and asks for approval.
pub(crate) async fn park(
    context: &Arc<Context>,
    mut call: Call<Brokered>,
    claimed: EffectRecord,
    hold: Hold,
    budget: BudgetView,
) {
    // A drifted tool is refused until it is reviewed, whatever approvers say: do not ask them.
    if drift::is_drifted(context, &call.stage.binding.capability, Asked::ForPeople).await {
        let refused = Refused::of(errors::tool_changed(), Some(&hold.decision));
        return refuse::brokered(context, call, refused).await;
    }
    if call.stage.built.is_simulated {
        let refused = Refused::of(simulated(), Some(&hold.decision));
        return refuse::brokered(context, call, refused).await;
    }
    let chain = call.stage.identity.chain.clone();
    let held_max = context.settings.held_per_agent_max;
    // Held until the call is in the index, or is not parked after all.
    let place = context.approvals.pending.place_for(chain.tenant(), &chain.actor.id, held_max);
    let Some(_place) = place else {
        let refused = Refused::of(crowded(held_max), Some(&hold.decision));
        return refuse::brokered(context, call, refused).await;
    };
    // What is parked is the recorded call, even if another call repeats it.
    call.responder.continue_as(&claimed.call_id);
    let proposal = match proposal_of(context, &call, &hold, budget).await {
        Ok(proposal) => proposal,
        Err(refusal) => {
            let refused = Refused::of(refusal, Some(&hold.decision));
            return refuse::brokered(context, call, refused).await;
        }
    };
    let parked = parked_of(&call.responder, &call.stage, proposal.call.clone());
    let mut event = refuse::event_of(AuditKind::Held, &call.responder, &call.stage);
    event.approval_id = Some(proposal.approval_id.clone());
    event.record_id = Some(claimed.record_id);
    event.decision = refuse::decision_json(&hold.decision);
    match context.ledger.hold(&claimed, &parked, &proposal, event).await {
        Ok(approval) => {
            if let Some(tokens) = &call.stage.identity.tokens
                && credential::needs_tokens(&call.stage)
            {
                let (tenant, record_id) = (approval.chain.tenant(), claimed.record_id);
                context.tokens.keep(tenant, record_id, tokens);
            }
            context.approvals.moved(&approval);
            if context.ledger.store().is_shared() {
                // It may be approved on another node, which then executes it.
                drop(context.watch(&claimed));
            }
            let decision_id = Some(hold.decision.id.clone());
            let subject = Subject { decision_id, ..call.responder.subject.clone() };
            call.responder.park(subject.held(&approval, None, context.ledger.store().now()));
        }
        Err(LedgerError::Store(StoreError::Conflict)) => {
            duplicate::overtaken(context, call, claimed).await;
        }
        Err(error @ LedgerError::Store(StoreError::Uncertain(_))) => {
            context.node.noticed(&error);
            refuse::uncertain(call.responder, &error);
        }
        Err(error) => {
            context.node.noticed(&error);
            let refusal = ledger_refusal(&error);
            let refused = Refused::of(refusal, Some(&hold.decision));
            refuse::brokered(context, call, refused).await;
        }
    }
}

fn simulated() -> Refusal {
    let message =
        "not executed: people would have to approve this call, and a simulation asks nobody";
    Refusal::new(ErrorCode::ValidationError, message)
}

fn crowded(held_max: usize) -> Refusal {
    Refusal::new(
        ErrorCode::Overloaded,
        "too many calls of this agent wait for people; repeat it when some of them are decided",
    )
    .with_detail(format_args!("`limits.held_per_agent_max` is {held_max}"))
    .with_retry_after_ms(HELD_RETRY_MS)
}

async fn proposal_of(
    context: &Context,
    call: &Call<Brokered>,
    hold: &Hold,
    budget: BudgetView,
) -> Result<ToolProposalEnvelope, Refusal> {
    let stage = &call.stage;
    let requirement = Requirement {
        expires_in_ms: hold.requirement.expires_in_ms.clamp(1_000, LIFETIME_MS_MAX),
        ..hold.requirement.clone()
    };
    let lifetime_ms = i64::try_from(requirement.expires_in_ms).unwrap_or(i64::MAX);
    let envelope = envelope_of(&call.responder, stage, &hold.decision);
    let (chain, capability) = (&stage.identity.chain, &stage.built.target.capability.id);
    let similar = context.approvals.similar_calls(chain, capability, stage.request_digest).await;
    let mut evidence = evidence_of(stage, &hold.decision, budget);
    evidence.similar = similar;
    Ok(ToolProposalEnvelope {
        envelope_version: ProposalVersion::V1,
        approval_id: context.fresh_approval_id()?,
        evidence,
        call: envelope,
        requirement,
        expires_at: context.ledger.store().now().plus_ms(lifetime_ms),
    })
}

/// What the approvers of a call are shown, frozen.
pub(crate) fn evidence_of(stage: &Brokered, decision: &Decision, budget: BudgetView) -> Evidence {
    let args = Value::Object(stage.built.args.clone());
    let capability = &stage.built.target.capability;
    let schema = capability.arguments.as_ref();
    let preview = schema.map_or(Value::Null, |schema| schema.redact(&args));
    let preview_masked = schema.map(|schema| schema.sensitive_pointers(&args)).unwrap_or_default();
    Evidence {
        request_digest: stage.request_digest,
        effective_args_digest: stage.built.args_digest,
        preview_digest: canonical_digest(&preview),
        preview,
        preview_masked,
        contract_digest: stage.binding.contract_digest,
        target: stage.binding.target.clone(),
        credential: stage.binding.credential.clone(),
        bundle_digest: decision.bundle_digest,
        calls_left_after: budget.calls_left.saturating_sub(1),
        cents_left_after: budget.cents_left.saturating_sub(capability.cost_cents),
        taint: stage.taint.clone(),
        caller: Some(CallerIdentity::of(
            &stage.run.agent,
            stage.run.user.as_ref(),
            &stage.identity.proof,
        )),
        refs: stage.evidence.clone(),
        description: capability.description.clone(),
        similar: Vec::new(),
        edited: None,
        sent_before: stage.built.resumed.as_ref().and_then(|resumed| sent_before(&resumed.record)),
    }
}

fn sent_before(record: &EffectRecord) -> Option<SentBefore> {
    let unknown = record.unknown.as_ref()?;
    let operators =
        if let EffectState::Rearmed { by } = &record.state { by.clone() } else { Vec::new() };
    let (at, reason) = (unknown.attempt.first_dispatched_at, unknown.reason.clone());
    Some(SentBefore { at, reason, operators })
}
