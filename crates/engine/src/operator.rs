//! Operators: people who inspect the ledger and resolve unknown outcomes.
//!
//! Owns who that is (people of the tenant in the operators' group) and what they may do. A resolution needs evidence in words and is
//! kept with the operator's name.

use placet_approvals::reviewer;
use placet_identity::VerifiedCaller;
use placet_ledger::{
    audit::{AuditEvent, AuditKind},
    ledger::Outcome,
    record::{EffectRecord, EffectState, Resolution},
    refusal::{known_state, ledger_refusal, lookup_refusal},
    store::EffectQuery,
};
use serde_json::Value;

use placet_types::{
    envelope::result::{Mutation, ResultStatus},
    error::{ErrorCode, Problem, Refusal},
    ids::{RecordId, ToolCallId},
};

use crate::{
    context::Context,
    outcome::{Outcomes, recorded::subject_of, resolve},
    result::shown_args,
    views::{RearmView, RecordView, ResolutionRequest, ResolvedOutcome},
};

/// The longest evidence, in bytes.
const EVIDENCE_BYTES_MAX: usize = 2_000;

/// One record, for its owner or an operator.
pub(crate) async fn show(
    context: &Context,
    caller: &VerifiedCaller,
    record_id: RecordId,
) -> Result<RecordView, Refusal> {
    let record = find(context, caller, record_id).await?;
    Ok(view_of(context, &record).await)
}

/// The records of the tenant, for operators.
pub(crate) async fn list(
    context: &Context,
    caller: &VerifiedCaller,
    state: Option<&str>,
    after: Option<RecordId>,
    limit: usize,
) -> Result<Vec<RecordView>, Refusal> {
    must_be_operator(context, caller)?;
    known_state(state, &EffectState::NAMES)?;
    let query = EffectQuery {
        tenant: Some(caller.tenant().clone()),
        state: state.map(str::to_owned),
        after,
        limit,
        ..EffectQuery::default()
    };
    let records = context
        .ledger
        .store()
        .effects(&query)
        .await
        .map_err(|error| ledger_refusal(&error.into()))?;
    Ok(records.iter().map(brief).collect())
}

/// Resolves an unknown outcome.
pub(crate) async fn resolve(
    context: &Context,
    caller: &VerifiedCaller,
    record_id: RecordId,
    request: ResolutionRequest,
) -> Result<RecordView, Refusal> {
    must_be_operator(context, caller)?;
    check_evidence(&request.evidence)?;
    let record = find(context, caller, record_id).await?;
    if !matches!(record.state, EffectState::Indeterminate { .. }) {
        return Err(Refusal::new(
            ErrorCode::ValidationError,
            format!(
                "the record is {}: only an indeterminate one can be resolved",
                record.state.name()
            ),
        ));
    }
    let subject = subject_of(context, &record).await.map_err(|error| ledger_refusal(&error))?;
    let now = context.ledger.store().now();
    let (found, (outcome, result)) = match request.outcome {
        ResolvedOutcome::Happened => {
            let mut result = subject.result(ResultStatus::Succeeded, now);
            result.output = request.output;
            result.mutations.push(Mutation {
                action: "write".to_owned(),
                target: record.scope.capability.to_string(),
            });
            ("happened", (Outcome::Succeeded, result))
        }
        ResolvedOutcome::DidNotHappen => {
            let found = "an operator found that the effect did not happen";
            ("did not happen", resolve::did_not_happen(subject, found, now))
        }
    };
    let by = Resolution::Operator { operator: caller.actor.principal().id.clone() };
    let mut event = event_of(AuditKind::Resolved, caller, &record);
    event.note = Some(format!("{found}: {}", request.evidence));
    let resolved = resolve::with(context, &record, outcome, by, &result, event)
        .await
        .map_err(|error| ledger_refusal(&error))?;
    Ok(view_of(context, &resolved).await)
}

/// What an operator did, for the audit.
pub(crate) fn event_of(
    kind: AuditKind,
    caller: &VerifiedCaller,
    record: &EffectRecord,
) -> AuditEvent {
    let mut event = AuditEvent::new(kind);
    event.tenant = Some(caller.tenant().clone());
    event.call_id = Some(record.call_id.clone());
    event.run_id = Some(record.run_id.clone());
    event.capability = Some(record.scope.capability.clone());
    event.chain = Some(caller.chain());
    event.audiences = caller.several_audiences();
    event.record_id = Some(record.record_id);
    event
}

/// The record of a call, for its owner or an operator.
pub(crate) async fn behind(
    outcomes: &Outcomes,
    caller: &VerifiedCaller,
    call_id: &ToolCallId,
) -> Result<EffectRecord, Refusal> {
    let found = outcomes.ledger.store().effect_of_call(call_id).await;
    let record = found.map_err(|error| lookup_refusal(&error))?;
    let mine = record.filter(|record| may_see(outcomes, caller, record));
    mine.ok_or_else(|| Refusal::new(ErrorCode::NotFound, "there is no such call"))
}

fn may_see(outcomes: &Outcomes, caller: &VerifiedCaller, record: &EffectRecord) -> bool {
    let owns = caller.chain().key_scope(&record.scope.capability) == record.scope;
    owns || record.scope.tenant == *caller.tenant()
        && reviewer::is_operator(&outcomes.approvals, caller)
}

/// A record, for its owner or an operator.
pub(crate) async fn find(
    outcomes: &Outcomes,
    caller: &VerifiedCaller,
    record_id: RecordId,
) -> Result<EffectRecord, Refusal> {
    let unknown = || Refusal::new(ErrorCode::NotFound, "there is no such record");
    let record = outcomes
        .ledger
        .store()
        .effect(record_id)
        .await
        .map_err(|error| ledger_refusal(&error.into()))?
        .ok_or_else(unknown)?;
    if may_see(outcomes, caller, &record) { Ok(record) } else { Err(unknown()) }
}

/// Refuses everyone but operators.
pub(crate) fn must_be_operator(context: &Context, caller: &VerifiedCaller) -> Result<(), Refusal> {
    if reviewer::is_operator(&context.approvals, caller) {
        return Ok(());
    }
    Err(Refusal::new(
        ErrorCode::PolicyDenied,
        format!("only people in the group `{}` may do this", context.settings.operators),
    ))
}

/// Refuses evidence that is empty or too long.
pub(crate) fn check_evidence(evidence: &str) -> Result<(), Refusal> {
    if evidence.trim().is_empty() || evidence.len() > EVIDENCE_BYTES_MAX {
        return Err(Refusal::new(ErrorCode::ValidationError, "this needs evidence").with_problems(
            vec![Problem {
                pointer: "/evidence".to_owned(),
                problem: format!("must be 1 to {EVIDENCE_BYTES_MAX} bytes of text"),
            }],
        ));
    }
    Ok(())
}

/// A record with its result.
pub(crate) async fn view_of(outcomes: &Outcomes, record: &EffectRecord) -> RecordView {
    let mut view = brief(record);
    view.args = args_of(outcomes, record).await;
    if let Some(digest) = record.state.result() {
        match outcomes.ledger.result(record, digest).await {
            Ok(result) => view.result = Some(result),
            Err(error) => view.reason = Some(format!("the result cannot be read: {error}")),
        }
    }
    view
}

/// The arguments, masked as the tool's schema says. `None` where no schema says what is sensitive.
async fn args_of(outcomes: &Outcomes, record: &EffectRecord) -> Option<Value> {
    let parked = outcomes.ledger.parked(record).await.ok()?;
    let scope = &record.scope;
    let target = outcomes.current.active().catalog.resolve(&scope.tenant, &scope.capability)?;
    shown_args(&target.capability, &parked.envelope.args)
}

fn brief(record: &EffectRecord) -> RecordView {
    let mut view = RecordView {
        record_id: record.record_id,
        call_id: record.call_id.clone(),
        capability_id: record.scope.capability.clone(),
        agent: record.scope.agent.to_string(),
        on_behalf_of: record.scope.on_behalf_of.as_ref().map(ToString::to_string),
        state: record.state.name().to_owned(),
        attempts: record.attempts,
        arm: record.arm,
        code: record.state.code(),
        rearm: None,
        resolved_by: None,
        settled_at: None,
        dispatch_token: record.state.attempt().map(|attempt| attempt.token.clone()),
        reason: record.unknown.as_ref().map(|unknown| unknown.reason.clone()),
        created_at: record.created_at,
        updated_at: record.updated_at,
        args: None,
        result: None,
    };
    match &record.state {
        EffectState::Indeterminate { reason, rearm, .. } => {
            view.reason = Some(reason.clone());
            view.rearm = rearm.as_deref().map(|word| RearmView {
                by: word.operator.to_string(),
                evidence: word.evidence.clone(),
                at: word.at,
            });
        }
        EffectState::Succeeded { resolved_by, .. }
        | EffectState::FailedFinal { resolved_by, .. } => {
            view.resolved_by = resolved_by.as_ref().map(brought_by);
            view.reason = None;
        }
        EffectState::Tombstone { was, settled_at, .. } => {
            view.reason = Some(format!("it was {was}; its result is no longer kept"));
            view.settled_at = Some(*settled_at);
        }
        EffectState::Claimed { .. }
        | EffectState::PendingApproval { .. }
        | EffectState::Approved { .. }
        | EffectState::Dispatched(_)
        | EffectState::Rearmed { .. }
        | EffectState::FailedRetriable { .. }
        | EffectState::Denied { .. } => {}
    }
    view
}

fn brought_by(by: &Resolution) -> String {
    match by {
        Resolution::LateAnswer { attempt } => format!("late_answer attempt {attempt}"),
        Resolution::Probe { attempt } => format!("probe attempt {attempt}"),
        Resolution::Operator { operator } => format!("operator {operator}"),
    }
}
