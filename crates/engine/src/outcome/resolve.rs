//! Resolve: evidence that comes after an outcome was called unknown (T8).
//!
//! Owns how late answers and the findings of probes get into the ledger. Invariant: evidence counts only for the attempt it is about, and a
//! caller who was told "unknown" gets the true outcome when it asks again.

use std::{sync::Arc, time::Duration};

use tokio::{task::JoinHandle, time::Instant};

use placet_adapter::outcome::Outcome as AdapterOutcome;
use placet_ledger::{
    audit::{AuditEvent, AuditKind},
    ledger::{LedgerError, Outcome},
    record::{EffectRecord, EffectState, Resolution},
    store::StoreError,
};
use placet_types::{
    clock::Timestamp,
    contract::{Capability, credential::CredentialKind},
    envelope::result::{ResultStatus, ToolResultEnvelope},
    error::{ErrorCode, Execution, Refusal},
    ids::RecordId,
};

use crate::{
    lifecycle::transitions::{AfterLateAnswer, AnsweredLate, step},
    outcome::{Outcomes, recorded, settle},
    result::{Subject, error_of, in_ms},
};

/// How often evidence is submitted again when the record moved meanwhile.
const TRIES: usize = 8;
/// How long an answer is kept while the ledger is unreachable, or until the end of its own attempt is written.
const KEPT_FOR_LEDGER: Duration = Duration::from_secs(600);
/// How long an answer is kept until another arm ends, and how often that is checked.
const KEPT_BACK: Duration = Duration::from_secs(1_200);
const REST: Duration = Duration::from_millis(500);

/// An adapter's task that did not end in time, and its attempt.
#[derive(Debug)]
pub(crate) struct Late {
    pub(crate) task: JoinHandle<Option<AdapterOutcome>>,
    /// When it began, less the time that earlier attempts took.
    pub(crate) began: Instant,
    pub(crate) retries: u32,
    pub(crate) record_id: RecordId,
    pub(crate) attempt: u32,
    pub(crate) subject: Subject,
    pub(crate) capability: Arc<Capability>,
    /// The kind of the credential that it was sent with.
    pub(crate) kind: CredentialKind,
}

/// Waits for a late answer for a limited time, and settles by it. The number of answers awaited is bounded.
pub(crate) fn await_answer(outcomes: &Arc<Outcomes>, late: Late, limit_ms: u64) {
    let Ok(place) = Arc::clone(&outcomes.late).try_acquire_owned() else {
        return tracing::warn!(record_id = %late.record_id, "too many answers are late; this one is not waited for");
    };
    let owner = Arc::clone(outcomes);
    outcomes.registry.spawn(async move {
        let Late { task, began, retries, record_id, attempt, subject, capability, kind } = late;
        let listening = task.abort_handle();
        let answered = tokio::select! {
            () = owner.node.stopped() => None,
            answered = tokio::time::timeout(Duration::from_millis(limit_ms), task) => answered.ok().and_then(Result::ok).flatten(),
        };
        if let Some(outcome) = answered {
            let told = settle::conclude(&owner.ledger, &capability, kind, subject.clone(), outcome, None);
            let (outcome, mut result) = for_good(told, subject, owner.ledger.store().now());
            result.latency.adapter_ms = in_ms(began.elapsed());
            result.retries = retries;
            bring(&owner, record_id, attempt, outcome, result).await;
        } else {
            // Its connection need not wait for an answer that no task awaits.
            listening.abort();
        }
        drop(place);
    });
}

/// Makes the end of an unknown outcome final: from then on no caller is told that the same call may be sent again.
fn for_good(
    told: (Outcome, ToolResultEnvelope),
    subject: Subject,
    at: Timestamp,
) -> (Outcome, ToolResultEnvelope) {
    let says_repeat = told.1.error.as_ref().is_some_and(|error| error.retryable);
    if matches!(told.0, Outcome::FailedRetriable(_))
        || (matches!(told.0, Outcome::Declined(_)) && says_repeat)
    {
        return did_not_happen(subject, "it turned out that the call was not executed", at);
    }
    told
}

async fn bring(
    outcomes: &Outcomes,
    record_id: RecordId,
    attempt: u32,
    outcome: Outcome,
    result: ToolResultEnvelope,
) {
    if matches!(outcome, Outcome::Unknown(_)) {
        return;
    }
    let (mut tries, since) = (0_usize, Instant::now());
    while tries < TRIES {
        let record = match outcomes.ledger.store().effect(record_id).await {
            Ok(Some(record)) => record,
            Ok(None) => return,
            Err(error) if error.is_transient() => {
                outcomes.node.noticed(&error.into());
                if since.elapsed() > KEPT_FOR_LEDGER || !outcomes.pause(REST).await {
                    return came_to_nothing(record_id, attempt, "the ledger is away");
                }
                continue;
            }
            Err(error) => return outcomes.node.noticed(&error.into()),
        };
        let happened = AnsweredLate {
            is_current: record.state.attempt().is_some_and(|sent| sent.number == attempt),
            is_of_earlier_arm: record.unknown.as_ref().is_some_and(|u| u.attempt.number == attempt),
            is_done: matches!(outcome, Outcome::Succeeded),
        };
        let kept = match step(outcomes.state_of(&record), happened) {
            AfterLateAnswer::Resolve => None,
            AfterLateAnswer::KeepForOwn => Some((KEPT_FOR_LEDGER, "its attempt has not ended")),
            AfterLateAnswer::KeepForArm => Some((KEPT_BACK, "another arm is under way still")),
        };
        if let Some((limit, why)) = kept {
            if since.elapsed() > limit || !outcomes.pause(REST).await {
                return came_to_nothing(record_id, attempt, why);
            }
            continue;
        }
        let by = Resolution::LateAnswer { attempt };
        let note = format!("the adapter answered attempt {attempt} late");
        let event = event_of(&record, &result, note);
        match with(outcomes, &record, outcome.clone(), by, &result, event).await {
            Ok(_resolved) => return,
            Err(LedgerError::Store(StoreError::Conflict)) => tries = tries.saturating_add(1),
            Err(error) if error.is_transient() => {
                outcomes.node.noticed(&error);
                if since.elapsed() > KEPT_FOR_LEDGER || !outcomes.pause(REST).await {
                    return came_to_nothing(record_id, attempt, "the ledger is away");
                }
            }
            Err(error) => {
                outcomes.node.noticed(&error);
                // It was resolved otherwise, or the answer is about only one attempt of several.
                return tracing::info!(%error, %record_id, "a late answer changes nothing");
            }
        }
    }
}

fn came_to_nothing(record_id: RecordId, attempt: u32, why: &str) {
    tracing::warn!(%record_id, attempt, why, "a late answer came to nothing");
}

/// Records evidence. Returns the record after that.
pub(crate) async fn with(
    outcomes: &Outcomes,
    record: &EffectRecord,
    outcome: Outcome,
    by: Resolution,
    result: &ToolResultEnvelope,
    event: AuditEvent,
) -> Result<EffectRecord, LedgerError> {
    let resolved = outcomes.ledger.resolve(record, outcome, by, result, event).await?;
    recorded::tell_end(outcomes, &resolved).await;
    // The approval that it waited for has ended: the outcome of its call is known now.
    if let EffectState::PendingApproval { approval_id, .. }
    | EffectState::Approved { approval_id, .. } = &record.state
    {
        outcomes.approvals.called_off(approval_id).await;
    }
    outcomes.approvals.call_resolved(&resolved.call_id).await;
    Ok(resolved)
}

/// The audit event for evidence from an adapter.
pub(crate) fn event_of(
    record: &EffectRecord,
    result: &ToolResultEnvelope,
    note: String,
) -> AuditEvent {
    let mut event = AuditEvent::new(AuditKind::Resolved);
    event.tenant = Some(record.scope.tenant.clone());
    event.call_id = Some(record.call_id.clone());
    event.run_id = Some(record.run_id.clone());
    event.capability = Some(record.scope.capability.clone());
    event.trace_id = Some(result.trace_id.clone());
    event.note = Some(note);
    event
}

/// The outcome and the result of a call whose effect did not happen, in the words of `found`.
pub(crate) fn did_not_happen(
    subject: Subject,
    found: &str,
    at: Timestamp,
) -> (Outcome, ToolResultEnvelope) {
    let mut result = subject.result(ResultStatus::Refused, at);
    let refusal = Refusal::new(
        ErrorCode::AdapterFailed,
        format!("{found}; send it as a new step or with a new key if it is still wanted"),
    )
    .with_execution(Execution::NotExecuted);
    result.error = Some(error_of(&refusal));
    (Outcome::FailedFinal(ErrorCode::AdapterFailed), result)
}
