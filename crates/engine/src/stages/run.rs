//! Run: what is fixed for the run of a call, and what it has in its context.
//!
//! Owns the opening of runs, and what enters a run's context other than by a result that is recorded for it. Invariant: nothing is decided
//! before the taint that the call declares is recorded, and no run is told another run's result before it has that result's taint.

use std::collections::BTreeSet;

use placet_ledger::{
    audit::{AuditEvent, AuditKind},
    ledger::LedgerError,
    record::{EffectRecord, EffectState},
    refusal::ledger_refusal,
    run::{RunKey, RunRecord, RunTaint},
};
use placet_types::{
    directory::Directory,
    error::{ErrorCode, Problem, Refusal},
    ids::RunId,
    mode::ApprovalMode,
    principal::PrincipalChain,
    run_context::{RunBudget, RunRequest},
    taint::Taint,
};

use crate::{
    answer::Answer, call::Brokered, outcome::Outcomes, responder::Responder, stages::refuse,
};

/// The run of a call.
pub(crate) fn key_of(stage: &Brokered) -> RunKey {
    key_for(&stage.identity.chain, &stage.run.run_id)
}

/// A run of a caller.
pub(crate) fn key_for(chain: &PrincipalChain, run_id: &RunId) -> RunKey {
    RunKey {
        tenant: chain.tenant().clone(),
        agent: chain.actor.id.clone(),
        on_behalf_of: chain.on_behalf_of.as_ref().map(|user| user.id.clone()),
        run_id: run_id.clone(),
    }
}

/// What the agent's classes allow any of its runs, whatever the run asks for.
#[derive(Debug, Default)]
pub(crate) struct ClassLimit {
    pub(crate) safety_mode: Option<ApprovalMode>,
    calls: Option<u32>,
    cents: Option<u64>,
}

impl ClassLimit {
    pub(crate) fn of(directory: &Directory, chain: &PrincipalChain) -> Self {
        let mut limit = Self::default();
        for class in directory.classes_of(chain.tenant(), &chain.actor.id) {
            limit.safety_mode = limit.safety_mode.into_iter().chain(class.safety_mode_max).min();
            limit.calls = limit.calls.into_iter().chain(class.calls_max).min();
            limit.cents = limit.cents.into_iter().chain(class.cost_cents_max).min();
        }
        limit
    }

    /// The ceiling of a run whose first call asks for this.
    pub(crate) fn first_ceiling(&self, asked: &RunRequest) -> ApprovalMode {
        let asked = asked.safety_mode.or(asked.ceiling_if_new);
        self.ceiling(asked.or(self.safety_mode).unwrap_or(ApprovalMode::ReadOnly))
    }

    pub(crate) fn ceiling(&self, asked: ApprovalMode) -> ApprovalMode {
        self.safety_mode.map_or(asked, |limit| asked.meet(limit))
    }

    pub(crate) fn budget(&self, asked: RunBudget) -> RunBudget {
        RunBudget {
            calls_max: self.calls.map_or(asked.calls_max, |limit| asked.calls_max.min(limit)),
            cost_cents_max: self
                .cents
                .map_or(asked.cost_cents_max, |c| asked.cost_cents_max.min(c)),
            ..asked
        }
    }
}

/// The run as its first call fixed it, with its whole context, whose taint is copied to the call. What the call leaves out stays as it was,
/// within what the agent's classes allow now.
pub(crate) async fn open(outcomes: &Outcomes, stage: &mut Brokered) -> Result<RunRecord, Refusal> {
    let wanted = RunRecord {
        key: key_of(stage),
        safety_mode: stage.run.safety_mode,
        budget: stage.run.run_budget,
        opened_at: outcomes.ledger.store().now(),
        calls_used: 0,
        cents_used: 0,
        taint: stage.run.taint.clone(),
    };
    let known = open_in_session(outcomes, &stage.built.run, &wanted).await?;
    stage.taint.clone_from(&known.taint);
    let limit = ClassLimit::of(&stage.built.active.directory, &stage.identity.chain);
    let known = as_fixed(known, &wanted, &stage.built.run, &limit)?;
    stage.run.safety_mode = known.safety_mode;
    stage.run.run_budget = known.budget;
    Ok(known)
}

/// Opens a run of a caller that makes no call yet: fixed as by a first call.
pub(crate) async fn open_for(
    outcomes: &Outcomes,
    directory: &Directory,
    chain: &PrincipalChain,
    asked: &RunRequest,
) -> Result<RunRecord, Refusal> {
    let limit = ClassLimit::of(directory, chain);
    let wanted = RunRecord {
        key: key_for(chain, &asked.run_id),
        safety_mode: limit.first_ceiling(asked),
        budget: limit.budget(asked.budget_if_new()),
        opened_at: outcomes.ledger.store().now(),
        calls_used: 0,
        cents_used: 0,
        taint: asked.taint.clone(),
    };
    let known = open_in_session(outcomes, asked, &wanted).await?;
    as_fixed(known, &wanted, asked, &limit)
}

/// The run within what its caller's classes allow now.
pub(crate) fn within_classes(
    directory: &Directory,
    chain: &PrincipalChain,
    known: RunRecord,
) -> RunRecord {
    within(known, &ClassLimit::of(directory, chain))
}

fn within(known: RunRecord, limit: &ClassLimit) -> RunRecord {
    RunRecord {
        safety_mode: limit.ceiling(known.safety_mode),
        budget: limit.budget(known.budget),
        ..known
    }
}

/// The run as it was fixed, if the request agrees with that.
fn as_fixed(
    known: RunRecord,
    wanted: &RunRecord,
    asked: &RunRequest,
    limit: &ClassLimit,
) -> Result<RunRecord, Refusal> {
    let asked_budget = limit.budget(asked.run_budget.over(known.budget));
    let differs = [
        (
            asked.safety_mode.is_some() && known.safety_mode != wanted.safety_mode,
            "/run/safety_mode",
        ),
        (known.budget != asked_budget && !asked.run_budget.is_empty(), "/run/run_budget"),
    ];
    let problems: Vec<Problem> = differs
        .into_iter()
        .filter(|(differs, _)| *differs)
        .map(|(_, pointer)| Problem {
            pointer: pointer.to_owned(),
            problem: "was fixed by the run's first call: leave it out, or begin another run"
                .to_owned(),
        })
        .collect();
    if !problems.is_empty() {
        return Err(Refusal::new(
            ErrorCode::ValidationError,
            "the run was opened with another ceiling or budget",
        )
        .with_problems(problems));
    }
    Ok(within(known, limit))
}

/// Opens the run and, if its caller names one, the session, each with the taint of both: what another run of the session has seen is in
/// this run's context.
async fn open_in_session(
    outcomes: &Outcomes,
    asked: &RunRequest,
    wanted: &RunRecord,
) -> Result<RunRecord, Refusal> {
    opened_in_session(outcomes, asked, wanted).await.map_err(|error| {
        outcomes.node.noticed(&error);
        ledger_refusal(&error)
    })
}

async fn opened_in_session(
    outcomes: &Outcomes,
    asked: &RunRequest,
    wanted: &RunRecord,
) -> Result<RunRecord, LedgerError> {
    let Some(session) = &asked.session_id else {
        return outcomes.ledger.open_run(wanted.clone()).await;
    };
    let shared = RunRecord { key: wanted.key.of_session(session), ..wanted.clone() };
    let (known, shared) = tokio::try_join!(
        outcomes.ledger.open_run(wanted.clone()),
        outcomes.ledger.open_run(shared)
    )?;
    let taint: BTreeSet<Taint> = known.taint.union(&shared.taint).copied().collect();
    if taint == known.taint && taint == shared.taint {
        return Ok(known);
    }
    let brought =
        RunTaint { run: known.key.clone(), session: Some(session.clone()), taint: taint.clone() };
    outcomes.ledger.taint_run(brought, AuditEvent::new(AuditKind::RunTainted)).await?;
    Ok(RunRecord { taint, ..known })
}

/// The taint that a result of the call brings into the run's context and that was not there at the decision. Nothing is ever removed from a
/// context, so the rest is still there.
pub(crate) fn brings(stage: &Brokered) -> BTreeSet<Taint> {
    stage.built.target.capability.result_taint.difference(&stage.taint).copied().collect()
}

/// The taint that the result of a dispatched call brings into contexts: all of it, since it may also be told to other runs, which have seen
/// less. For a read, which no other run is told, only what its run does not have yet.
pub(crate) fn brings_as(stage: &Brokered, is_recorded: bool) -> BTreeSet<Taint> {
    if is_recorded { stage.built.target.capability.result_taint.clone() } else { brings(stage) }
}

/// Before a call is told about `record`: the result's taint enters the context of the call's run first. The run's own call in flight brings
/// it when its result is recorded, and not if nothing happens.
pub(crate) async fn tell_of(
    outcomes: &Outcomes,
    responder: &Responder,
    stage: &Brokered,
    record: &EffectRecord,
) -> Result<(), Refusal> {
    let taint = brings(stage);
    if taint.is_empty() || brings_by_itself(outcomes, stage, record).await? {
        return Ok(());
    }
    bring(outcomes, responder, stage, record, taint).await
}

/// Before a call that waited for `record` is told its end. Since it attached, the record may have ended otherwise, by an attempt of another
/// run, so the answer itself counts. `kept` is the record as it stands now, if that can be read.
pub(crate) async fn tell_end(
    outcomes: &Outcomes,
    responder: &Responder,
    stage: &Brokered,
    record: &EffectRecord,
    kept: Option<&EffectRecord>,
    end: &Answer,
) -> Result<(), Refusal> {
    let taint = brings(stage);
    if taint.is_empty() || !has_words(end, kept) {
        return Ok(());
    }
    let known = outcomes.ledger.store().run(&key_of(stage)).await;
    let known = known.map_err(|error| outcomes.lookup_failed(error))?;
    if known.is_some_and(|known| taint.is_subset(&known.taint)) {
        return Ok(());
    }
    bring(outcomes, responder, stage, record, taint).await
}

/// Whether an end contains words of the target.
fn has_words(end: &Answer, kept: Option<&EffectRecord>) -> bool {
    match end {
        Answer::Finished(_) => true,
        // Some refusals with this code are in our words, which only the record knows.
        Answer::Refused(refused) => {
            refused.refusal.code == ErrorCode::AdapterFailed
                && kept.is_none_or(|kept| !kept.state.is_settled() || kept.state.has_words())
        }
        Answer::InProgress(_) | Answer::Held(_) => false,
    }
}

async fn bring(
    outcomes: &Outcomes,
    responder: &Responder,
    stage: &Brokered,
    record: &EffectRecord,
    taint: BTreeSet<Taint>,
) -> Result<(), Refusal> {
    let mut event = refuse::event_of(AuditKind::RunTainted, responder, stage);
    event.record_id = Some(record.record_id);
    let session = stage.built.run.session_id.clone();
    let brought = RunTaint { run: key_of(stage), session, taint };
    let tainted = outcomes.ledger.taint_run(brought, event).await;
    tainted.map_err(|error| outcomes.lookup_failed(error))
}

/// Whether the run of a call gets the taint of `record` anyway: it is told nothing of a result, or recording the result brings it to this
/// very run. A record belongs to the run of its first attempt; later ones may be of other runs.
async fn brings_by_itself(
    outcomes: &Outcomes,
    stage: &Brokered,
    record: &EffectRecord,
) -> Result<bool, Refusal> {
    Ok(match &record.state {
        EffectState::Dispatched(attempt) => {
            let reserve = attempt.reserve.as_ref();
            reserve.is_some_and(|reserve| reserve.run == key_of(stage))
        }
        // The scope of a key is one agent, for one user.
        EffectState::Claimed { .. } => {
            record.attempts == 0 && record.unknown.is_none() && record.run_id == stage.run.run_id
        }
        EffectState::PendingApproval { .. } | EffectState::Approved { .. } => {
            // A parked call belongs to the run that it is sent for. If it cannot be read, it counts as that of another run.
            match outcomes.ledger.parked(record).await {
                Ok(parked) => record.unknown.is_none() && parked.run.run_id == stage.run.run_id,
                Err(error) if error.is_transient() => {
                    return Err(outcomes.lookup_failed(error));
                }
                Err(_damaged) => false,
            }
        }
        EffectState::Rearmed { .. } => false,
        EffectState::Succeeded { .. }
        | EffectState::FailedFinal { .. }
        | EffectState::FailedRetriable { .. }
        | EffectState::Indeterminate { .. }
        | EffectState::Denied { .. }
        | EffectState::Tombstone { .. } => !record.state.has_words(),
    })
}
