//! Facts: what a decision about a call is made from, and the decision itself (TM-07).
//!
//! Owns what the gate tells policy about approvals, standing grants, freezes and break-glass. Decides nothing itself. Invariant: a standing
//! grant is looked for only where approval would be required, and what it allows is a permit of the active policies with the grant's votes.

use serde_json::Value;

use placet_approvals::refusals;
use placet_ledger::{
    approval::{ApprovalRecord, Ballot, Tally},
    directive::{Directive, DirectiveState},
    ledger::Ledger,
    parked::ParkedToken,
    record::{EffectRecord, EffectState},
    run::RunRecord,
};
use placet_policy::{
    facts::{ApprovalFacts, ApprovalScope, BreakGlassFacts, BudgetView, Facts},
    snapshot::Snapshot,
    verdict::Verdict,
};
use placet_types::{
    approval::VoteChoice,
    clock::Timestamp,
    directive::{DirectiveBasis, DirectiveBody},
    error::{ErrorCode, Refusal},
    ids::{DirectiveId, RecordId},
    mode::EngineMode,
    principal::PrincipalChain,
};

use placet_credentials::{Bearer, Broker};

use crate::{call::Brokered, context::Context, stages::retry};

/// The greatest age of the claims that make a user a member of a group.
const CLAIMS_AGE_MS_MAX: i64 = 24 * 60 * 60 * 1_000;
/// How many standing grants are tried for one call.
const GRANTS_MAX: usize = 8;

/// The facts around a call that it is decided with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Circumstances<'a> {
    pub(crate) run: &'a RunRecord,
    pub(crate) record: Option<RecordId>,
    pub(crate) approval: Option<&'a ApprovalFacts>,
}

/// A decision, and the break-glass record behind it.
#[derive(Debug)]
pub(crate) struct Decided {
    pub(crate) verdict: Verdict,
    /// The break-glass record that policy was given.
    pub(crate) broken: Option<DirectiveId>,
}

/// Decides a call: with its approval, if it has one; if approval would be required, with a standing grant that covers it.
pub(crate) async fn decide_call(
    context: &Context,
    stage: &Brokered,
    run: &RunRecord,
    record: Option<&EffectRecord>,
) -> Result<Decided, Refusal> {
    let approval = stage.built.resumed.as_ref().and_then(|resumed| resumed.approval.as_ref());
    let sent = matches!(record.map(|record| &record.state), Some(EffectState::Dispatched(_)));
    let approval = approval.map(|approval| {
        let mut facts = approval_facts(approval);
        // The approvers agreed to something else. A call that was already sent is not affected.
        if approval.is_stale(&run.taint) && !sent {
            facts.votes.retain(|vote| vote.choice != VoteChoice::Approve);
        }
        facts
    });
    let circumstances = Circumstances {
        run,
        record: record.map(|record| record.record_id),
        approval: approval.as_ref(),
    };
    let decided = decide(context, stage, &circumstances)?;
    let Verdict::Hold(hold) = &decided.verdict else { return Ok(decided) };
    if hold.requirement.once_only || approval.is_some() || stage.built.without_grants {
        return Ok(decided);
    }
    for entry in grants_for(context, stage, record).await? {
        let DirectiveBody::Grant(grant) = &entry.body else { continue };
        let facts = grant_facts(stage, &entry);
        let tried =
            decide(context, stage, &Circumstances { approval: Some(&facts), ..circumstances })?;
        if let Verdict::Permit(permit) = &tried.verdict
            && permit.mode_effective() <= grant.mode
        {
            return Ok(tried);
        }
    }
    Ok(decided)
}

/// Whether a lockdown is in force for a call.
pub(crate) fn is_locked_down(context: &Context, brokered: &Brokered) -> bool {
    let tenant = brokered.identity.chain.tenant();
    let adapter = brokered.binding.capability.adapter();
    let now = context.ledger.store().now();
    context.approvals.rules.open().is_locked_down(tenant, adapter, now)
}

/// Has the active policies decide.
pub(crate) fn decide(
    context: &Context,
    stage: &Brokered,
    circumstances: &Circumstances<'_>,
) -> Result<Decided, Refusal> {
    let now = context.ledger.store().now();
    let args = Value::Object(stage.built.args.clone());
    let capability = &stage.built.target.capability;
    let chain = &stage.identity.chain;
    let (open, rev) = context.approvals.rules.basis();
    let (tenant, adapter) = (chain.tenant(), capability.id.adapter());
    authority_holds(&context.credentials.broker, stage, now)?;
    let broken = open.broken(chain, &capability.id, now);
    let stricter_at = [
        open.stricter_at(chain.tenant(), capability.id.adapter(), now),
        broken.map(|(entry, _)| entry.expires_at),
        authority_until(stage),
    ];
    let directives = DirectiveBasis { rev, until: stricter_at.into_iter().flatten().min() };
    let glass = broken.map(|(entry, glass)| BreakGlassFacts {
        ticket: glass.ticket.clone(),
        actor: entry.by.clone(),
        until: entry.expires_at,
    });
    let is_locked_down = open.is_locked_down(tenant, adapter, now);
    let engine_mode = if is_locked_down { EngineMode::Lockdown } else { EngineMode::Enforce };
    let facts = Facts {
        chain,
        user_groups: &stage.identity.user_groups,
        contract: &stage.built.target.contract,
        capability,
        args: &args,
        binding: &stage.binding,
        mode_requested: stage.built.mode_requested,
        safety_mode: circumstances.run.safety_mode,
        engine_mode,
        budget: budget_for(stage, circumstances.run),
        taint: &circumstances.run.taint,
        history: &stage.run.history,
        evidence: &stage.evidence,
        now,
        approval: circumstances.approval,
        frozen: open.freezes(tenant, adapter, now).next().is_some(),
        break_glass: glass.as_ref(),
        directives,
        proof: &stage.identity.proof,
        key: circumstances.record,
    };
    let started = tokio::time::Instant::now();
    let verdict = stage.built.active.policy.decide(&facts, context.fresh_decision_id()?);
    context.metrics.record_decision(started.elapsed());
    Ok(Decided { verdict, broken: broken.map(|(entry, _)| entry.directive_id.clone()) })
}

/// The budget that a call may use. What its first dispatch took, it does not need again when it is sent once more.
fn budget_for(stage: &Brokered, run: &RunRecord) -> BudgetView {
    let left = budget_of(run);
    if !retry::is_repeated(stage) {
        return left;
    }
    let taken = stage.built.target.capability.cost_cents;
    BudgetView {
        calls_left: left.calls_left.saturating_add(1),
        cents_left: left.cents_left.saturating_add(taken),
        ..left
    }
}

fn approval_facts(approval: &ApprovalRecord) -> ApprovalFacts {
    ApprovalFacts {
        approval_id: Some(approval.approval_id.clone()),
        scope: ApprovalScope::Once,
        request_digest: approval.request_digest,
        shown_digest: approval.proposal,
        expires_at: approval.expires_at,
        votes: approval.standing_votes().cloned().collect(),
        requirement: approval.requirement.clone(),
        escalated: approval.escalated,
        args_edited: !approval.edits.is_empty(),
    }
}

fn grant_facts(stage: &Brokered, entry: &Directive) -> ApprovalFacts {
    ApprovalFacts {
        approval_id: None,
        scope: ApprovalScope::Standing(entry.directive_id.clone()),
        request_digest: stage.request_digest,
        shown_digest: entry.terms(),
        expires_at: entry.expires_at,
        votes: entry.votes.clone(),
        requirement: entry.requirement.clone(),
        escalated: 0,
        args_edited: stage.built.edited.is_some(),
    }
}

/// Whether enough of the votes for a grant still count.
fn is_still_agreed(
    ledger: &Ledger,
    policy: &Snapshot,
    chain: &PrincipalChain,
    entry: &Directive,
) -> bool {
    let now = ledger.store().now();
    let lapsed = policy.lapsed(chain, &entry.requirement, &entry.votes, now);
    let ballot = Ballot::of(&entry.requirement, 0, entry.terms(), &entry.votes);
    Ballot { lapsed: &lapsed, ..ballot }.tally() == Tally::Satisfied
}

/// The standing grants that may be used for a call: the one of its earlier attempt, which it already consumed a use of, else those in
/// force.
async fn grants_for(
    context: &Context,
    stage: &Brokered,
    record: Option<&EffectRecord>,
) -> Result<Vec<std::sync::Arc<Directive>>, Refusal> {
    let now = context.ledger.store().now();
    let chain = &stage.identity.chain;
    let capability = &stage.built.target.capability.id;
    match record.map(|record| &record.state) {
        Some(EffectState::Dispatched(attempt)) => {
            let Some(directive_id) = &attempt.grant else { return Ok(Vec::new()) };
            // A read error does not mean that there is none: no approval is asked for and nothing is given up because of it.
            let entry = context.ledger.store().directive(directive_id).await;
            let entry = entry.map_err(|error| context.lookup_failed(error))?;
            // It does not matter if it is used up by now: this very call used it.
            let counts = |entry: &Directive| {
                entry.state == DirectiveState::Active
                    && entry.starts_at <= now
                    && now < entry.expires_at
            };
            Ok(entry.filter(counts).map(std::sync::Arc::new).into_iter().collect())
        }
        // What operators re-armed needs an approval.
        Some(EffectState::Rearmed { .. }) => Ok(Vec::new()),
        _ => {
            let args = Value::Object(stage.built.args.clone());
            let (contract, policy) = (stage.binding.contract_digest, &stage.built.active.policy);
            let open = context.approvals.rules.open();
            let mut grants = open.grants(chain, capability, contract, &args, now);
            // Before truncation, so that unusable grants do not hide a usable one.
            grants.retain(|entry| is_still_agreed(&context.ledger, policy, chain, entry));
            grants.truncate(GRANTS_MAX);
            Ok(grants)
        }
    }
}

/// What a run may still use.
pub(crate) fn budget_of(run: &RunRecord) -> BudgetView {
    BudgetView {
        calls_left: run.calls_left(),
        cents_left: run.cents_left(),
        // A run has no window: its budget counts over its whole life.
        window_ends: run.opened_at.plus_ms(i64::from(u32::MAX).saturating_mul(1_000)),
    }
}

/// A call for a user needs a delegation that is still valid, however long it waited (TM-08, TM-17), and no call may use a token that was
/// revoked.
pub(crate) fn authority_holds(
    broker: &Broker,
    stage: &Brokered,
    now: Timestamp,
) -> Result<(), Refusal> {
    let tenant = stage.identity.chain.tenant();
    let is_revoked = |token: &ParkedToken| {
        let (issuer, subject) = (token.issuer.as_str(), token.subject.as_str());
        let bearer = Bearer { issuer, subject, issued_at: token.issued_at };
        broker.is_revoked(tenant, bearer)
    };
    if stage.identity.bearers.iter().any(is_revoked) {
        return Err(refusals::revoked());
    }
    if is_delegated(stage) && stage.identity.authority_until <= now {
        return Err(Refusal::new(
            ErrorCode::CredentialExpired,
            "the user's delegation has expired; get a new token and repeat the same call",
        ));
    }
    let claims_age_ms = now.since_ms(stage.identity.groups_as_of);
    if !stage.identity.user_groups.is_empty() && claims_age_ms > CLAIMS_AGE_MS_MAX {
        return Err(Refusal::new(
            ErrorCode::CredentialExpired,
            "the user's groups were learnt more than a day ago; get a new token and repeat the same call",
        ));
    }
    Ok(())
}

/// Whether the call uses a user's authority, whatever the tool's mode.
fn is_delegated(stage: &Brokered) -> bool {
    stage.identity.chain.on_behalf_of.is_some() || stage.built.target.capability.is_delegated()
}

/// When [`authority_holds`] ends by time alone.
pub(crate) fn authority_until(stage: &Brokered) -> Option<Timestamp> {
    let identity = &stage.identity;
    let delegation = is_delegated(stage).then_some(identity.authority_until);
    // The first moment at which the claims are too old.
    let groups = (!identity.user_groups.is_empty())
        .then(|| identity.groups_as_of.plus_ms(CLAIMS_AGE_MS_MAX.saturating_add(1)));
    delegation.into_iter().chain(groups).min()
}
