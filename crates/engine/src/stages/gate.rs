//! Gate: the active policies decide, now, with the latest facts (TM-07).
//!
//! Owns the order: fix the run, take the key, decide, then permit, hold or refuse. Decides nothing itself. A retry, a resumed call and a
//! call whose permit went stale all pass through here again.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tokio::time::Instant;

use placet_approvals::redecision::never_again;
use placet_ledger::{
    approval::ApprovalRecord,
    ledger::{Ledger, LedgerError},
    record::{EffectRecord, EffectState, RECORD_VERSION},
    refusal::{ledger_refusal, lookup_refusal},
    store::{ClaimAnswer, StoreError},
};
use placet_policy::{
    decision::{Decision, DenialKind},
    facts::BudgetView,
    permit::Permit,
    verdict::{Denial, Hold, Verdict},
};
use placet_telemetry::{metrics::Metrics, trace::record_decision};
use placet_types::{
    digest::Digest,
    error::{ErrorCode, Execution, Refusal},
    mode::ApprovalMode,
};

use crate::{
    active::Current,
    call::{Brokered, Call, Gated},
    context::Context,
    lifecycle::{
        codes::Cause,
        transitions::{AfterRepeat, Repeated, step},
    },
    outcome::recorded,
    stages::{
        duplicate,
        facts::{self, budget_of},
        hold, references,
        refuse::{self, Refused},
        retry, run,
    },
};

/// The longest wait for current directives, in milliseconds.
const DECIDED_WITHIN_MS_MAX: u64 = 10_000;

/// Decides a brokered call and sends it where the verdict says.
pub(crate) async fn gate(context: &Arc<Context>, mut call: Call<Brokered>) {
    if let Err(refusal) = renew(&context.current, &mut call.stage) {
        return refuse(context, call, refusal).await;
    }
    let run = match run::open(context, &mut call.stage).await {
        Ok(run) => run,
        Err(refusal) => return refuse(context, call, refusal).await,
    };
    let resumed = call.stage.built.resumed.as_ref().map(|resumed| resumed.record.clone());
    let first = resumed.is_none() && call.stage.built.deadline.is_none();
    let record = match resumed.or_else(|| call.stage.claimed.take()) {
        Some(record) => Some(record),
        None if call.stage.built.target.capability.is_write_class() => {
            match claim(context, &mut call).await {
                Ok(Claim::Ours(record)) => Some(record),
                // Boxed because it is rare: otherwise every call's task would have room for it.
                Ok(Claim::Taken(record)) => return Box::pin(taken(context, call, record)).await,
                Err(refusal) => return refuse(context, call, refusal).await,
            }
        }
        None => None,
    };
    if let Some(refusal) = context.node.health().cannot_decide() {
        return refuse(context, call, refusal).await;
    }
    if let Err(refusal) = context.approvals.must_be_current(patience_of(&call.stage)).await {
        return refuse(context, call, refusal).await;
    }
    if let Err(refusal) = references::resolve(context, &mut call.stage).await {
        return refuse(context, call, refusal).await;
    }
    let decided = match facts::decide_call(context, &call.stage, &run, record.as_ref()).await {
        Ok(decided) => decided,
        Err(refusal) => return refuse(context, call, refusal).await,
    };
    record_on_span(&context.metrics, &call, &decided.verdict, first);
    let broken = decided.broken;
    match decided.verdict {
        Verdict::Permit(permit) => {
            if let Some(approved) = risen(&call.stage, &permit) {
                let decision = permit.decision().clone();
                let refusal = Refusal::new(
                    ErrorCode::ModeUpgraded,
                    "the call has become stronger than the one that people agreed to",
                )
                .with_detail(format_args!(
                    "{} since {}",
                    permit.mode_effective().as_str(),
                    approved.as_str()
                ));
                let refused = Refused::of(refusal, Some(&decision));
                return refuse::brokered(context, call, refused).await;
            }
            context.routes.invoke(call.advance(|brokered| Gated {
                brokered,
                permit,
                record,
                broken,
            }));
        }
        Verdict::Hold(held) => {
            Box::pin(held_by_policy(context, call, record, held, budget_of(&run))).await;
        }
        Verdict::Deny(denial) => denied(context, call, denial).await,
    }
}

/// How long a decision may wait: the time that the caller gives the tool, or what is left of it.
fn patience_of(stage: &Brokered) -> Duration {
    let given = stage.run.run_budget.tool_latency_ms_max.clamp(1, DECIDED_WITHIN_MS_MAX);
    let given = Duration::from_millis(given);
    let left = stage.built.deadline.map(|at| at.saturating_duration_since(Instant::now()));
    left.map_or(given, |left| left.min(given))
}

enum Claim {
    Ours(EffectRecord),
    Taken(EffectRecord),
}

/// Takes the key for this call (T1).
async fn claim(context: &Context, call: &mut Call<Brokered>) -> Result<Claim, Refusal> {
    let record = fresh_record(&context.ledger, call);
    call.responder.attach_record(record.record_id);
    match context.ledger.claim(record.clone()).await {
        Ok(ClaimAnswer::Claimed) => {
            // Only now: a known key is answered from its record, however old it is.
            let now = context.ledger.store().now();
            let retention = &context.settings.ledger.retention;
            match retention.refuse_key(&record.scope.tenant, &record.key, now) {
                Some(refusal) => Err(refusal),
                None => Ok(Claim::Ours(record)),
            }
        }
        Ok(ClaimAnswer::Taken(existing)) => {
            call.responder.detach_record();
            Ok(Claim::Taken(*existing))
        }
        Err(error) => {
            call.responder.detach_record();
            context.node.noticed(&error);
            // This call did not get the key, so it was not executed.
            let unreachable = matches!(error, LedgerError::Store(StoreError::Unreachable(_)));
            Err(if unreachable { ledger_refusal(&error) } else { lookup_refusal(&error) })
        }
    }
}

fn fresh_record(ledger: &Ledger, call: &Call<Brokered>) -> EffectRecord {
    let stage = &call.stage;
    let now = ledger.store().now();
    EffectRecord {
        version: RECORD_VERSION,
        record_id: stage.record_id,
        scope: stage.identity.chain.key_scope(&stage.binding.capability),
        key: stage.built.key.clone(),
        call_id: call.responder.subject.call_id.clone(),
        run_id: stage.run.run_id.clone(),
        requested_digest: stage.built.requested_digest,
        parked: Digest::of(b""),
        created_at: now,
        updated_at: now,
        rev: 0,
        arm: 0,
        attempts: 0,
        unknown: None,
        state: EffectState::Claimed { epoch: ledger.store().epoch() },
    }
}

/// The key is taken: a failed attempt that may be repeated is repeated, anything else is answered from the record.
async fn taken(context: &Arc<Context>, mut call: Call<Brokered>, record: EffectRecord) {
    let is_same = duplicate::is_same(&record, &call.stage);
    let repeated = Repeated { is_same, may_take_up: true };
    if step(context.state_of(&record), repeated) != AfterRepeat::TakeUp {
        return duplicate::answer(context, call, record).await;
    }
    let is_rearmed = matches!(record.state, EffectState::Rearmed { .. });
    match retry::resumed_of(&context.ledger, record).await {
        Ok(resumed) => {
            let approved = retry::as_approved(&mut call.stage, &resumed.parked);
            call.stage.built.resumed = Some(Box::new(resumed));
            if let Err(refusal) = approved {
                return refuse(context, call, refusal).await;
            }
            // In a task of its own: deciding needs stack, and half of this one's is used.
            context.routes.gate(call);
        }
        Err(error) if is_rearmed => {
            let refusal = ledger_refusal(&error).with_execution(Execution::Unknown);
            refuse(context, call, refusal).await;
        }
        Err(error) => refuse(context, call, ledger_refusal(&error)).await,
    }
}

/// The approved mode, if the call has become stronger since (TM-15).
fn risen(stage: &Brokered, permit: &Permit) -> Option<ApprovalMode> {
    let approval = stage.built.resumed.as_ref()?.approval.as_ref()?;
    let used = permit.approval_id() == Some(&approval.approval_id);
    (used && permit.mode_effective() > approval.mode).then_some(approval.mode)
}

/// `first`: whether this is the call's first decision; a call counts once, however often it is decided again.
fn record_on_span(metrics: &Metrics, call: &Call<Brokered>, verdict: &Verdict, first: bool) {
    let decision = verdict.decision();
    record_decision(&call.responder.span, decision.mode_effective, decision.id.as_str());
    if first && decision.is_misclassified() {
        metrics.count_mode_misclassified();
    }
}

/// Policy holds the call: a new one is parked; one whose approval no longer suffices goes back to its approvers.
async fn held_by_policy(
    context: &Arc<Context>,
    mut call: Call<Brokered>,
    record: Option<EffectRecord>,
    held: Hold,
    budget: BudgetView,
) {
    let waiting = call.stage.built.resumed.as_ref().and_then(|resumed| {
        let waits = matches!(
            resumed.record.state,
            EffectState::Approved { .. } | EffectState::PendingApproval { .. }
        );
        let approval = resumed.approval.clone().filter(|_| waits)?;
        Some((resumed.record.clone(), approval))
    });
    if let Some((_, approval)) = &waiting
        && let Some(why) = never_again(approval, &held.requirement)
    {
        let refused = Refused::of(Refusal::new(ErrorCode::ApprovalVoid, why), Some(&held.decision));
        return refuse::brokered(context, call, refused).await;
    }
    if let Some((record, approval)) = waiting {
        return reopen(context, call, record, approval, held).await;
    }
    let failed =
        |record: &EffectRecord| matches!(record.state, EffectState::FailedRetriable { .. });
    if record.as_ref().is_some_and(failed)
        && let Some(resumed) = &mut call.stage.built.resumed
    {
        let was_approved = resumed.approval.take().is_some();
        if retry::as_sent(&mut call.stage) || was_approved {
            // What was approved no longer suffices: it is decided again as if there had been no approval.
            return context.routes.gate(call);
        }
    }
    let record = match record {
        // Already sent: it is too late to ask for approval.
        Some(record)
            if !matches!(
                record.state,
                EffectState::Claimed { .. }
                    | EffectState::Rearmed { .. }
                    | EffectState::FailedRetriable { .. }
            ) =>
        {
            let refusal = Refusal::new(
                ErrorCode::ApprovalVoid,
                "the approval this call ran under is over; send it as a new step or with a new key",
            );
            let refused = Refused::of(refusal, Some(&held.decision));
            return refuse::brokered(context, call, refused).await;
        }
        Some(record) => record,
        None => match claim(context, &mut call).await {
            Ok(Claim::Ours(record)) => record,
            Ok(Claim::Taken(record)) => return taken(context, call, record).await,
            Err(refusal) => return refuse(context, call, refusal).await,
        },
    };
    if call.stage.built.edited.is_some() {
        // In a new approval the edited arguments would not be attributed, and their author could approve them.
        let refusal = Refusal::new(
            ErrorCode::ApprovalVoid,
            "an approver wrote these arguments; send the call again as a new step or with a new key",
        );
        let refused = Refused::of(refusal, Some(&held.decision));
        return refuse::brokered(context, call, refused).await;
    }
    hold::park(context, call, record, held, budget).await;
}

async fn reopen(
    context: &Context,
    call: Call<Brokered>,
    record: EffectRecord,
    approval: ApprovalRecord,
    held: Hold,
) {
    let mut event =
        refuse::event_of(placet_ledger::audit::AuditKind::Held, &call.responder, &call.stage);
    event.approval_id = Some(approval.approval_id.clone());
    event.decision = refuse::decision_json(&held.decision);
    let now = context.ledger.store().now();
    let policy = &call.stage.built.active.policy;
    let lapsed = policy.lapsed(&approval.chain, &held.requirement, &approval.votes, now);
    let fresh = lapsed.difference(&approval.lapsed).count();
    let taint = &call.stage.taint;
    let is_stale = approval.is_stale(taint);
    let more = "the active policies ask for more than was agreed";
    event.note = Some(match fresh {
        _ if is_stale => {
            "more is in the run's context than they knew who agreed; no agreement counts any more"
                .to_owned()
        }
        0 => more.to_owned(),
        lapsed => format!("{more}; agreements that count no more: {lapsed}"),
    });
    let mut responder = call.responder;
    let requirement = held.requirement.clone();
    match context.ledger.reopen_approval(&approval, requirement, &lapsed, taint, event).await {
        Ok(reopened) => {
            context.approvals.moved(&reopened);
            responder.detach_record();
            let subject = responder.subject.clone();
            responder.park(recorded::held_of(context, &record, &reopened, subject));
        }
        Err(error) => {
            tracing::warn!(%error, approval_id = %approval.approval_id, "an approval could not be put back to its approvers");
            refuse::wait_on(context, responder, &record, &approval).await;
        }
    }
}

/// What a caller is told about a denial: its kind and the modes that were compared. Of policies only their reasons for agents.
fn told(kind: DenialKind, decision: &Decision, ceiling: ApprovalMode) -> String {
    let mode = decision.mode_effective;
    let words = match kind {
        DenialKind::ModeUpgraded => {
            let asked = decision.mode_requested;
            return format!(
                "the call is stronger than the mode it asked for: it is `{mode}`, and asked for `{asked}`"
            );
        }
        DenialKind::Ceiling => {
            return format!(
                "the call is stronger than its run may be: it is `{mode}`, and the run's `safety_mode` is `{ceiling}`"
            );
        }
        DenialKind::Budget => "the run has used up its budget",
        DenialKind::Error => "a policy could not be evaluated for this call, so it is refused",
        DenialKind::Lockdown => "Placet is in lockdown: no call runs until it is lifted",
        DenialKind::Policy => "policy does not allow this call",
        DenialKind::NobodyToAsk => "there is nobody who could agree to this call",
        DenialKind::ApprovalRefused => "people denied this call",
        DenialKind::ApprovalExpired => "the approval of this call has run out of time",
        DenialKind::ApprovalChanged => "what was approved is not what would run",
    };
    words.to_owned()
}

async fn denied(context: &Arc<Context>, call: Call<Brokered>, denial: Denial) {
    let mut message = told(denial.kind, &denial.decision, call.stage.run.safety_mode);
    let words: BTreeSet<&str> = denial.words_for_agent().collect();
    if !words.is_empty() {
        let words: Vec<&str> = words.into_iter().collect();
        message = format!("{message}: {}", words.join(" "));
    }
    if denial.kind == DenialKind::Error {
        let (decision_id, capability) = (&denial.decision.id, &denial.decision.capability);
        let errors = denial.decision.errors.join("; ");
        tracing::error!(%decision_id, %capability, %errors, "policy evaluation failed; the call is denied");
    }
    if matches!(denial.kind, DenialKind::Policy | DenialKind::NobodyToAsk | DenialKind::Ceiling) {
        context.metrics.count_permission_violation();
    }
    let refusal = Refusal::new(denial.code, message).with_detail(denial.kind);
    let cause = if denial.kind == DenialKind::Lockdown { Cause::Lockdown } else { Cause::Code };
    let refused = Refused { refusal, decision: Some(&denial.decision), cause };
    refuse::brokered(context, call, refused).await;
}

async fn refuse(context: &Arc<Context>, call: Call<Brokered>, refusal: Refusal) {
    refuse::brokered(context, call, Refused::of(refusal, None)).await;
}

/// Moves a call to what is active now, if its tool and its caller are described in the same way there. If not, it is refused: what was
/// checked and bound under one value is not decided under another.
pub(crate) fn renew(current: &Current, stage: &mut Brokered) -> Result<(), Refusal> {
    let now = current.active();
    let before = &stage.built.active;
    if Arc::ptr_eq(&now, before) {
        return Ok(());
    }
    let chain = &stage.identity.chain;
    let target = now.catalog.resolve(chain.tenant(), &stage.binding.capability);
    let target = target.filter(|target| {
        target.contract.digest == stage.built.target.contract.digest
            && now.describes_alike(before, chain)
    });
    let Some(target) = target else {
        return Err(Refusal::new(
            ErrorCode::Overloaded,
            "the tool's contract or the caller's entry in the directory was reloaded while this call was on its way; nothing was executed; repeat it",
        )
        .with_retry_after_ms(50));
    };
    stage.built.target = target;
    stage.built.active = now;
    Ok(())
}
