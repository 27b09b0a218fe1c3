//! Settle: what an adapter's outcome means, recorded before any caller is told (I6).
//!
//! Owns the way from an outcome to a record and a result, for calls of this process and for those that recovery finds. Invariant: no call
//! is reported as "not executed" while an earlier attempt may have been, and no dispatched record is left open because its outcome cannot
//! be recorded as it is.

use std::sync::Arc;

use placet_adapter::outcome::{
    AdapterError, Answer as AdapterAnswer, Outcome as AdapterOutcome, Rejection,
};
use placet_ledger::{
    dispatch::Settlement,
    ledger::{Ledger, LedgerError, Outcome},
    record::{EffectRecord, Resolution},
    store::StoreError,
};
use placet_types::{
    clock::Timestamp,
    contract::{Capability, Dedup, credential::CredentialKind},
    envelope::result::{Cost, Mutation, ResultError, ResultStatus, ToolResultEnvelope},
    error::{ErrorCode, Execution, Refusal},
};
use serde_json::Value;

use crate::{
    adapters::errors::{logged, unavailable},
    answer::Answer,
    outcome::{
        Outcomes,
        recorded::{self, subject_of},
        settlement_retry::{self, Finding},
    },
    responder::Responder,
    result::{self, EditedArgs, Subject, error_of, fill, named, status_of, subject_alone, unknown},
};

/// What the adapter's outcome means for the record and for the caller, given the kind of credential it was sent with, and the call's whole
/// time, in milliseconds, if that is over.
pub(crate) fn conclude(
    ledger: &Ledger,
    capability: &Capability,
    kind: CredentialKind,
    subject: Subject,
    outcome: AdapterOutcome,
    over_ms: Option<u64>,
) -> (Outcome, ToolResultEnvelope) {
    let now = ledger.store().now();
    let writes = capability.is_write_class();
    let declared = Cost { cents: capability.cost_cents };
    let answered = |subject: Subject, status: ResultStatus, answer: AdapterAnswer| {
        let mut result = subject.result(status, now);
        result.cost = answer.cost_cents.map_or(declared, |cents| Cost { cents });
        fill(&mut result, answer, writes);
        result
    };
    match outcome {
        AdapterOutcome::Done(answer) => {
            (Outcome::Succeeded, answered(subject, ResultStatus::Succeeded, answer))
        }
        AdapterOutcome::Failed(answer) => {
            let mut result = answered(subject, ResultStatus::Failed, answer);
            let refusal =
                Refusal::new(ErrorCode::AdapterFailed, "the tool reports that the call failed")
                    .with_execution(Execution::ExecutedAndFailed);
            result.error = Some(error_of(&refusal));
            (Outcome::FailedFinal(ErrorCode::AdapterFailed), result)
        }
        // A target that does not accept the credential has not acted: the call may be sent again under its approval.
        AdapterOutcome::NotExecuted(error)
        | AdapterOutcome::Rejected(Rejection {
            error: error @ AdapterError::CredentialRefused(_),
            ..
        }) => {
            let (code, result) = not_executed(subject, capability, kind, &error, now);
            (Outcome::FailedRetriable(code), result)
        }
        AdapterOutcome::Rejected(Rejection { error, .. }) => {
            let (code, result) = not_executed(subject, capability, kind, &error, now);
            (Outcome::Declined(code), result)
        }
        AdapterOutcome::Unknown(reason) => {
            tracing::warn!(%reason, capability = %capability.id, "the outcome of a call is unknown");
            if writes {
                let mut result = unknown(subject, now);
                result.cost = declared;
                return (Outcome::Unknown(reason), result);
            }
            let mut result = unusable(subject, over_ms, reason, now);
            result.cost = declared;
            (Outcome::FailedFinal(ErrorCode::AdapterFailed), result)
        }
    }
}

/// The result of a read that was sent and gave no usable answer, for this reason if not because its time was over.
fn unusable(
    subject: Subject,
    over_ms: Option<u64>,
    reason: String,
    now: Timestamp,
) -> ToolResultEnvelope {
    let why = match over_ms {
        Some(ms) => {
            format!("no answer within {ms} ms, which is `tool_latency_ms_max` of the run's budget")
        }
        None => reason,
    };
    let message = format!(
        "the tool gave no usable answer: {why}; the call changes nothing, and a new one may be made"
    );
    // A call that was held has a record, whose end is replayed under the same key.
    let has_record = subject.key.is_some() || subject.approval_id.is_some();
    let again = if has_record { ", with another key if it has one" } else { "" };
    let (larger, then) = match over_ms {
        Some(_) => (", in a run with more time", ""),
        None => ("", " If it ends the same way, an operator has to look at the tool."),
    };
    let refusal = Refusal::new(ErrorCode::AdapterFailed, message)
        .with_execution(Execution::ExecutedAndFailed);
    let error = ResultError {
        retryable: subject.key.is_none(),
        remediation: format!("Make the call again{again}{larger}; it changes nothing.{then}"),
        ..error_of(&refusal)
    };
    let mut result = subject.result(ResultStatus::Failed, now);
    result.error = Some(error);
    result
}

/// The result of a call that was not executed.
fn not_executed(
    subject: Subject,
    capability: &Capability,
    kind: CredentialKind,
    error: &AdapterError,
    now: Timestamp,
) -> (ErrorCode, ToolResultEnvelope) {
    let refusal = unavailable(error, kind);
    let mut result = subject.result(status_of(&refusal), now);
    result.error = Some(error_of(&refusal));
    tracing::info!(error = %logged(error), capability = %capability.id, "call not executed");
    (refusal.code, result)
}

/// An outcome that could not be recorded.
#[derive(Debug)]
pub(crate) struct Unsettled {
    record: Option<EffectRecord>,
    error: LedgerError,
    outcome: Outcome,
    result: Box<ToolResultEnvelope>,
}

/// Records an outcome, and returns the result that the caller may be told.
pub(crate) async fn keep(
    outcomes: &Outcomes,
    settlement: Settlement,
    outcome: Outcome,
    result: ToolResultEnvelope,
) -> Result<ToolResultEnvelope, Unsettled> {
    let record = settlement.record().cloned();
    let (outcome, result) = spoken_for(&outcomes.ledger, record.as_ref(), outcome, result);
    let unsettled = |error, outcome, result| {
        let (record, result) = (record.clone(), Box::new(result));
        Unsettled { record, error, outcome, result }
    };
    match Box::pin(outcomes.ledger.settle(settlement, outcome.clone(), &result)).await {
        Ok(_) => {}
        Err(LedgerError::Store(StoreError::TooLarge(what))) if let Some(record) = &record => {
            tracing::warn!(%what, capability = named(&result), "a result is too large to be kept and is left out");
            let result = without_output(result);
            let again = outcomes.ledger.settle_recorded(record, outcome.clone(), None, &result);
            return match Box::pin(again).await {
                Ok(_) => Ok(result),
                Err(error) => Err(unsettled(error, outcome, result)),
            };
        }
        Err(error) => return Err(unsettled(error, outcome, result)),
    }
    if matches!(outcome, Outcome::Unknown(_)) {
        outcomes.metrics.count_indeterminate();
    }
    Ok(result)
}

/// The outcome and result that hold for the whole call: "nothing happened" and "it failed" are about the last attempt only, and after an
/// attempt without an outcome the call's outcome is unknown. A target that still works on the earlier attempt may refuse a second one with
/// the same token. What changes nothing has failed all the same.
fn spoken_for(
    ledger: &Ledger,
    record: Option<&EffectRecord>,
    outcome: Outcome,
    result: ToolResultEnvelope,
) -> (Outcome, ToolResultEnvelope) {
    let Some(record) = record else { return (outcome, result) };
    let attempt = record.state.attempt().filter(|attempt| attempt.after_unknown);
    let may_have_acted =
        record.unknown.is_some() || attempt.is_some_and(|attempt| attempt.class != Dedup::ReadOnly);
    let reason = match outcome {
        Outcome::FailedRetriable(_) | Outcome::Declined(_) if may_have_acted => {
            "this attempt had no effect, but an earlier one may have had"
        }
        Outcome::FailedFinal(_) if may_have_acted => {
            "this attempt failed, and an earlier one may have had an effect"
        }
        Outcome::Succeeded
        | Outcome::FailedFinal(_)
        | Outcome::FailedRetriable(_)
        | Outcome::Declined(_)
        | Outcome::Unknown(_) => return (outcome, result),
    };
    let mut subject = Subject::of_record(record, None);
    subject.edited = EditedArgs::in_result(&result);
    subject.trace_id = result.trace_id;
    subject.session_id = result.session_id;
    subject.decision_id = result.policy_decision_id;
    subject.traceparent = result.trace_context;
    let result = unknown(subject, ledger.store().now());
    (Outcome::Unknown(reason.to_owned()), result)
}

/// The result as small as it can be: that it happened matters more than its output.
fn without_output(mut result: ToolResultEnvelope) -> ToolResultEnvelope {
    result.output = Value::Null;
    result.citations.clear();
    if !result.mutations.is_empty() {
        let target = named(&result);
        result.mutations = vec![Mutation { action: "write".to_owned(), target }];
    }
    result
}

impl Unsettled {
    /// Tells the caller that the outcome is unknown, and closes the record as unknown where that is possible.
    pub(crate) async fn tell(self, outcomes: &Arc<Outcomes>, responder: Box<Responder>) {
        let Self { record, error, outcome, result } = self;
        tracing::error!(%error, call_id = %responder.subject.call_id, "an outcome could not be kept");
        outcomes.node.noticed(&error);
        let over = matches!(
            error,
            LedgerError::Store(
                StoreError::Stopped(_) | StoreError::Uncertain(_) | StoreError::Fenced
            )
        );
        match record {
            Some(record) if error.is_transient() => {
                let finding = Finding { outcome, by: None, result: (*result).clone() };
                settlement_retry::keep_trying(outcomes, record, finding);
            }
            Some(record) if !over => {
                let reason = format!("its outcome could not be kept: {error}");
                let answer = settlement_retry::give_up(outcomes, &record, &reason).await;
                return responder.finish(answer);
            }
            Some(_) | None => {}
        }
        let refusal = settlement_retry::unrecorded(&error);
        responder.refuse(refusal, result.policy_decision_id);
    }
}

/// Settles a call of an earlier epoch as succeeded, with the answer that its adapter gave when asked.
pub(crate) async fn late(
    outcomes: &Arc<Outcomes>,
    record: &EffectRecord,
    answer: AdapterAnswer,
) -> Answer {
    let make = |subject| found(outcomes, record, subject, answer);
    recovered(outcomes, record, Outcome::Succeeded, probe_of(record), make).await
}

/// The result for an answer that an adapter gave when asked later.
pub(crate) fn found(
    outcomes: &Outcomes,
    record: &EffectRecord,
    subject: Subject,
    answer: AdapterAnswer,
) -> ToolResultEnvelope {
    let mut result = subject.result(ResultStatus::Succeeded, outcomes.ledger.store().now());
    let declared = || {
        let active = outcomes.current.active();
        let target = active.catalog.resolve(&record.scope.tenant, &record.scope.capability);
        target.map_or(0, |target| target.capability.cost_cents)
    };
    result.cost = Cost { cents: answer.cost_cents.unwrap_or_else(declared) };
    fill(&mut result, answer, true);
    result
}

/// Settles a call of an earlier epoch that, according to its adapter, did not happen.
pub(crate) async fn not_found(outcomes: &Arc<Outcomes>, record: &EffectRecord) -> Answer {
    let refusal = Refusal::new(
        ErrorCode::AdapterUnavailable,
        "the process ended while the call was under way; the tool says that it did not happen",
    );
    let outcome = Outcome::FailedRetriable(refusal.code);
    let make = |subject: Subject| {
        let mut result = subject.result(ResultStatus::Refused, outcomes.ledger.store().now());
        result.error = Some(error_of(&refusal));
        result
    };
    recovered(outcomes, record, outcome, probe_of(record), make).await
}

/// The probe that found out what became of the last attempt.
fn probe_of(record: &EffectRecord) -> Option<Resolution> {
    record.state.attempt().map(|attempt| Resolution::Probe { attempt: attempt.number })
}

/// Records what was found out, once the subject of the result can be read: a result recorded without it would stay so for ever.
pub(crate) async fn recovered(
    outcomes: &Arc<Outcomes>,
    record: &EffectRecord,
    outcome: Outcome,
    by: Option<Resolution>,
    make: impl FnOnce(Subject) -> ToolResultEnvelope,
) -> Answer {
    let (subject, unread) = match subject_of(outcomes, record).await {
        Ok(subject) => (subject, None),
        Err(error) => (subject_alone(record), Some(error)),
    };
    let (outcome, result) = spoken_for(&outcomes.ledger, Some(record), outcome, make(subject));
    let kept = match unread {
        None => {
            let (outcome, by) = (outcome.clone(), by.clone());
            outcomes.ledger.settle_recorded(record, outcome, by, &result).await.map(drop)
        }
        Some(error) => Err(error),
    };
    match kept {
        Ok(()) => {
            if matches!(outcome, Outcome::Unknown(_)) {
                outcomes.metrics.count_indeterminate();
            }
            result::answer_of(result, false)
        }
        // It was settled otherwise, or belongs to another node by now.
        Err(LedgerError::Store(StoreError::Conflict)) => recorded::now(outcomes, record).await,
        Err(error) => {
            outcomes.node.noticed(&error);
            let decision_id = result.policy_decision_id.clone();
            if error.is_transient() {
                let finding = Finding { outcome, by, result };
                settlement_retry::keep_trying(outcomes, record.clone(), finding);
            }
            recorded::unread(record, settlement_retry::unrecorded(&error), decision_id)
        }
    }
}
