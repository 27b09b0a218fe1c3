//! Result envelopes (TM-03): one place that fills their fields.
//!
//! Owns the shape of every answer that reports what became of an effect. Does not decide what became of it.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use serde_json::{Map, Value};

use placet_adapter::outcome::Answer as AdapterAnswer;
use placet_ledger::{
    approval::{ApprovalRecord, ApprovalState},
    parked::{ParkedCall, ParkedEdit},
    record::EffectRecord,
};
use placet_types::{
    approval::Requirement,
    clock::Timestamp,
    contract::Capability,
    envelope::result::{
        Cost, Latency, Mutation, PendingApproval, ResultError, ResultStatus, ResultVersion,
        ToolResultEnvelope,
    },
    error::{ErrorCode, Execution, Refusal},
    ids::{ApprovalId, CapabilityId, DecisionId, IdempotencyKey, RunId, SessionId, ToolCallId},
};

use crate::{
    answer::{Answer, Held, RefusedCall},
    submission::Submission,
};

/// What to do about an approved call that waits for its caller.
const CALL_AGAIN: &str = "Repeat the same call with the same key and a new token.";
/// When to ask again about a call in flight, in milliseconds.
const ASK_AGAIN_MS: u64 = 1_000;

/// The call that a result is about.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    pub(crate) call_id: ToolCallId,
    pub(crate) run_id: Option<RunId>,
    pub(crate) trace_id: String,
    pub(crate) session_id: Option<SessionId>,
    pub(crate) capability: Option<CapabilityId>,
    pub(crate) key: Option<IdempotencyKey>,
    pub(crate) decision_id: Option<DecisionId>,
    pub(crate) approval_id: Option<ApprovalId>,
    pub(crate) traceparent: Option<String>,
    pub(crate) accepted_at: Timestamp,
    /// The arguments that ran instead of the agent's, where an approver edited them.
    pub(crate) edited: Option<EditedArgs>,
}

/// Arguments that an approver edited, as the agent is told about them.
#[derive(Debug, Clone)]
pub(crate) struct EditedArgs {
    /// With sensitive fields masked.
    pub(crate) args: Value,
    /// The paths of masked values that changed.
    pub(crate) masked: BTreeSet<String>,
}

impl EditedArgs {
    /// What the agent is told about the edit. Null arguments where no schema says what may be shown.
    pub(crate) fn of(edit: &ParkedEdit, shown: Option<Value>) -> Self {
        Self { args: shown.unwrap_or(Value::Null), masked: edit.masked.clone() }
    }

    /// The edit that a result reports.
    pub(crate) fn in_result(result: &ToolResultEnvelope) -> Option<Self> {
        let args = result.edited_args.clone()?;
        Some(Self { args, masked: result.edited_masked.clone() })
    }
}

/// Why an approved call has not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// Its caller has to repeat it with a new token.
    Credential,
    /// Its tool cannot be reached.
    Unreachable,
}

impl Subject {
    /// The subject of a new call: says nothing about whether there is such a tool.
    pub(crate) fn of_submission(
        call_id: ToolCallId,
        submission: &Submission,
        accepted_at: Timestamp,
    ) -> Self {
        Self {
            call_id,
            run_id: Some(submission.run.run_id.clone()),
            trace_id: String::new(),
            session_id: submission.run.session_id.clone(),
            capability: CapabilityId::from_tool_name(&submission.tool).ok(),
            key: submission.idempotency_key.clone(),
            decision_id: None,
            approval_id: None,
            traceparent: None,
            accepted_at,
            edited: None,
        }
    }

    /// The subject of a recorded call; the rest comes from what was parked, if that can be read.
    pub(crate) fn of_record(record: &EffectRecord, parked: Option<&ParkedCall>) -> Self {
        Self {
            call_id: record.call_id.clone(),
            run_id: Some(record.run_id.clone()),
            trace_id: parked.map(|p| p.envelope.trace_id.clone()).unwrap_or_default(),
            session_id: parked.and_then(|p| p.envelope.session_id.clone()),
            capability: Some(record.scope.capability.clone()),
            key: Some(record.key.clone()),
            decision_id: parked.and_then(|p| p.envelope.policy_decision_id.clone()),
            approval_id: None,
            traceparent: parked.and_then(|p| p.traceparent.clone()),
            accepted_at: record.created_at,
            edited: None,
        }
    }

    /// The subject of a call of which only the approval is left.
    pub(crate) fn of_approval(approval: &ApprovalRecord) -> Self {
        Self {
            call_id: approval.call_id.clone(),
            run_id: None,
            trace_id: String::new(),
            session_id: None,
            capability: Some(approval.capability.clone()),
            key: None,
            decision_id: None,
            approval_id: Some(approval.approval_id.clone()),
            traceparent: None,
            accepted_at: approval.created_at,
            edited: None,
        }
    }

    /// The subject as far as an earlier answer about the same call tells.
    pub(crate) fn of_answer(result: &ToolResultEnvelope, accepted_at: Timestamp) -> Self {
        Self {
            call_id: result.tool_call_id.clone(),
            run_id: result.run_id.clone(),
            trace_id: result.trace_id.clone(),
            session_id: result.session_id.clone(),
            capability: result.capability_id.clone(),
            key: result.idempotency_key.clone(),
            decision_id: result.policy_decision_id.clone(),
            approval_id: result.approval_id.clone(),
            traceparent: result.trace_context.clone(),
            accepted_at,
            edited: None,
        }
    }

    /// The answer for a call in flight.
    pub(crate) fn in_progress(self) -> Answer {
        let at = self.accepted_at;
        let mut result = self.result(ResultStatus::Pending, at);
        let refusal = Refusal::new(ErrorCode::InProgress, "the call is being executed")
            .with_retry_after_ms(ASK_AGAIN_MS);
        result.error = Some(error_of(&refusal));
        Answer::InProgress(Arc::new(result))
    }

    /// The answer for a call that was refused, or whose outcome is not known.
    pub(crate) fn refused(self, refusal: Refusal, at: Timestamp) -> Answer {
        let mut result = self.result(status_of(&refusal), at);
        result.error = Some(error_of(&refusal));
        Answer::Refused(Box::new(RefusedCall { refusal, result }))
    }

    /// The answer for a call that waits for approval, or for its caller.
    pub(crate) fn held(
        mut self,
        approval: &ApprovalRecord,
        obstacle: Option<Obstacle>,
        at: Timestamp,
    ) -> Held {
        self.approval_id = Some(approval.approval_id.clone());
        let call_id = self.call_id.clone();
        let mut result = self.result(ResultStatus::Pending, at);
        let message = match (&approval.state, obstacle) {
            (_, Some(Obstacle::Credential)) => {
                "people have agreed, and the call waits for its caller to repeat it with a new token"
            }
            (_, Some(Obstacle::Unreachable)) => {
                "people have agreed, and the tool cannot be reached; the call is tried again until the approval expires"
            }
            (ApprovalState::Approved, None) => "people have agreed, and the call has not run yet",
            (_, None) => "the call waits for people",
        };
        let mut error = error_of(&Refusal::new(ErrorCode::ApprovalPending, message));
        if obstacle == Some(Obstacle::Credential) {
            error.remediation = CALL_AGAIN.to_owned();
        }
        result.error = Some(error);
        result.pending_approval = Some(PendingApproval {
            state: approval.state.name().to_owned(),
            awaits_credential: obstacle == Some(Obstacle::Credential),
            unreachable: obstacle == Some(Obstacle::Unreachable),
            requirement: Requirement { reasons: Vec::new(), ..approval.requirement.clone() },
            expires_at: approval.expires_at,
        });
        Held {
            call_id,
            approval_id: approval.approval_id.clone(),
            requirement: approval.requirement.clone(),
            result,
        }
    }

    /// A result for this call.
    pub(crate) fn result(self, status: ResultStatus, at: Timestamp) -> ToolResultEnvelope {
        let (edited_args, edited_masked) =
            self.edited.map_or_else(Default::default, |edited| (Some(edited.args), edited.masked));
        ToolResultEnvelope {
            envelope_version: ResultVersion::V1,
            tool_call_id: self.call_id,
            run_id: self.run_id,
            trace_id: self.trace_id,
            session_id: self.session_id,
            capability_id: self.capability,
            idempotency_key: self.key,
            status,
            output: Value::Null,
            citations: Vec::new(),
            mutations: Vec::new(),
            policy_decision_id: self.decision_id,
            approval_id: self.approval_id,
            pending_approval: None,
            latency: Latency {
                total_ms: u64::try_from(at.since_ms(self.accepted_at)).unwrap_or(0),
                adapter_ms: 0,
            },
            retries: 0,
            cost: Cost::default(),
            replayed: false,
            error: None,
            trace_context: self.traceparent,
            edited_args,
            edited_masked,
        }
    }
}

/// A time in whole milliseconds.
pub(crate) fn in_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// About how many bytes of memory a document takes.
pub(crate) fn weight(value: &Value) -> usize {
    let inside = match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(weight).sum(),
        Value::Object(members) => {
            members.iter().map(|(name, value)| name.len().saturating_add(weight(value))).sum()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    inside.saturating_add(size_of::<Value>())
}

/// Arguments as they may be shown, with sensitive fields masked.
pub(crate) fn shown_args(capability: &Capability, args: &Map<String, Value>) -> Option<Value> {
    let schema = capability.arguments.as_ref().ok()?;
    Some(schema.redact(&Value::Object(args.clone())))
}

/// The subject as far as the record alone tells it.
pub(crate) fn subject_alone(record: &EffectRecord) -> Subject {
    as_sent(Subject::of_record(record, None), record)
}

/// The subject with the approval and the decision that the call was sent under.
pub(crate) fn as_sent(mut subject: Subject, record: &EffectRecord) -> Subject {
    if let Some(attempt) = record.state.attempt() {
        subject.approval_id.clone_from(&attempt.approval_id);
        subject.decision_id = Some(attempt.decision_id.clone());
    }
    if let Some(approval_id) = record.state.approval_id() {
        subject.approval_id = Some(approval_id.clone());
    }
    subject
}

/// Puts an adapter's answer into a result; a write that reports no mutation gets one that names its capability.
pub(crate) fn fill(result: &mut ToolResultEnvelope, answer: AdapterAnswer, writes: bool) {
    result.output = answer.output;
    result.citations = answer.citations;
    result.mutations = answer.mutations;
    if writes && result.mutations.is_empty() && result.status == ResultStatus::Succeeded {
        result.mutations.push(Mutation { action: "write".to_owned(), target: named(result) });
    }
}

/// The operation of a result, in readable form.
pub(crate) fn named(result: &ToolResultEnvelope) -> String {
    result.capability_id.as_ref().map(ToString::to_string).unwrap_or_default()
}

/// The status of a call that is answered with a refusal (TM-03).
pub(crate) fn status_of(refusal: &Refusal) -> ResultStatus {
    match (refusal.code, refusal.execution) {
        (ErrorCode::ApprovalPending | ErrorCode::InProgress, _) => ResultStatus::Pending,
        (_, Execution::ExecutedAndFailed) => ResultStatus::Failed,
        (_, Execution::Unknown) => ResultStatus::Unknown,
        (ErrorCode::ToolChanged, Execution::NotExecuted) => ResultStatus::Failed,
        (_, Execution::NotExecuted) => ResultStatus::Refused,
    }
}

/// The error of an envelope for a refusal.
pub(crate) fn error_of(refusal: &Refusal) -> ResultError {
    ResultError {
        error_code: refusal.code,
        message: refusal.message.clone(),
        retryable: refusal.code.retryable(),
        remediation: refusal.code.remediation().to_owned(),
        execution: refusal.execution,
        problems: refusal.problems.clone(),
        retry_after_ms: refusal.retry_after_ms,
    }
}

/// The refusal for the error of an envelope.
pub(crate) fn refusal_of(error: &ResultError) -> Refusal {
    let mut refusal = Refusal::new(error.error_code, error.message.clone())
        .with_problems(error.problems.clone())
        .with_execution(error.execution);
    refusal.retry_after_ms = error.retry_after_ms;
    refusal
}

/// A result for an unknown outcome.
pub(crate) fn unknown(subject: Subject, at: Timestamp) -> ToolResultEnvelope {
    let mut result = subject.result(ResultStatus::Unknown, at);
    let refusal = Refusal::new(
        ErrorCode::OutcomeUnknown,
        "the call was sent and its outcome is not known; it will not be sent again by itself",
    )
    .with_execution(Execution::Unknown);
    result.error = Some(error_of(&refusal));
    result
}

/// The answer for a result: the envelope if something was executed, else its refusal.
pub(crate) fn answer_of(mut result: ToolResultEnvelope, replayed: bool) -> Answer {
    result.replayed = replayed;
    let executed = match (result.status, &result.error) {
        (ResultStatus::Succeeded, _) | (_, None) => true,
        (_, Some(error)) => error.execution == Execution::ExecutedAndFailed,
    };
    let refusal = result.error.as_ref().filter(|_| !executed).map(refusal_of);
    match refusal {
        Some(refusal) => Answer::Refused(Box::new(RefusedCall { refusal, result })),
        None => Answer::Finished(Arc::new(result)),
    }
}
