//! Execute: permit to dispatch, durable; the adapter; the settlement, durable; all in one task that nothing cancels.
//!
//! Owns the stretch in which an effect can happen. Runs in a task of the execution registry, never in an actor's handler, so no kill
//! or restart loses an outcome (ledger.md, "Design consequences").

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use tracing::Instrument as _;

use placet_adapter::{
    adapter::{Conditions, Credential},
    outcome::{Answer as AdapterAnswer, Outcome as AdapterOutcome},
};
use placet_ledger::{
    audit::AuditKind,
    dispatch::{Armed, Dispatch, Intent, Settlement},
    ledger::{LedgerError, Outcome},
    record::EffectState,
    run::{Reservation, RunKey},
    store::Durability,
};
use placet_telemetry::trace::AdapterFields;
use placet_types::{
    contract::{Dedup, file::TransportFile},
    envelope::result::{Cost, ResultStatus, ToolResultEnvelope},
    error::{ErrorCode, Execution, Refusal},
};

use crate::{
    adapters::ports::Lease,
    call::{Brokered, Call, Gated, Invoked, Passage},
    context::{Context, ledger_refusal},
    stages::{
        hold::{envelope_of, parked_of},
        invoke::{trace_headers, unavailable},
        recorded,
        refuse::{self, Refused},
        result::{Subject, error_of, fill, unknown},
    },
};

/// How often a call is tried again where its contract makes that safe.
const RETRIES_MAX: u32 = 2;
/// The pause before a retry, in milliseconds; doubles with each.
const RETRY_PAUSE_MS: u64 = 50;
/// How much longer than its deadline an adapter may take to say that it is over, in milliseconds.
const GRACE_MS: u64 = 1_000;

/// What `prepare` got ready.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) lease: Lease,
    pub(crate) credential: Option<Credential>,
    pub(crate) deadline: Instant,
}

/// What is kept of a call while its permit and arguments are with the adapter.
struct Executing {
    brokered: Brokered,
    subject: Subject,
}

/// Dispatches, executes and settles one permitted call.
pub(crate) async fn execute(context: &Arc<Context>, call: Call<Gated>, ready: Ready) {
    let Call { mut passage, stage: Gated { brokered, permit, record } } = call;
    let subject = subject_of(&passage, &brokered, &permit);
    let intent = intent_of(context, &passage, &brokered, (&permit, ready.deadline));
    let armed = match &record {
        Some(record) => {
            passage.runs_under(record.record_id);
            let mut envelope = envelope_of(&passage, &brokered);
            envelope.approval_mode_effective = permit.mode_effective();
            envelope.policy_decision_id = Some(permit.decision().id.clone());
            let parked = parked_of(&passage, &brokered, envelope);
            let parked = matches!(record.state, EffectState::Claimed { .. }).then_some(parked);
            let dedup = &brokered.built.target.capability.dedup;
            context.ledger.dispatch(permit, intent, record, parked.as_ref(), dedup).await
        }
        None => {
            let durability = if context.settings.durable_reads {
                Durability::Synced
            } else {
                Durability::Written
            };
            context.ledger.dispatch_read(permit, intent, durability).await
        }
    };
    match armed {
        Ok(armed) => {
            dispatched(context, passage, Executing { brokered, subject }, (armed, ready)).await
        }
        Err(LedgerError::PolicyMoved) => {
            context.routes.gate(context, Call { passage, stage: brokered })
        }
        Err(error) => {
            let refusal = ledger_refusal(&error);
            let passing = refusal.code != ErrorCode::Internal;
            let call = Call { passage, stage: brokered };
            refuse::brokered(context, call, Refused { refusal, decision: None, passing }).await;
        }
    }
}

/// The adapter is called: from here on the outcome is recorded whatever happens.
async fn dispatched(
    context: &Arc<Context>,
    passage: Passage,
    executing: Executing,
    (armed, ready): (Armed, Ready),
) {
    let Armed { dispatch, settlement } = armed;
    let started = Instant::now();
    let outcome = call_adapter(&executing.brokered, dispatch, ready).await;
    let adapter_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    let capability = &executing.brokered.binding.capability;
    context.metrics.adapter_took(capability, started.elapsed());
    if let Some(port) = context.ports.of(capability.adapter()) {
        context.metrics.breaker(capability.adapter(), port.is_open());
    }
    let retries = executing.brokered.built.retries;
    let again = retries < RETRIES_MAX && may_repeat(&executing.brokered, &outcome);
    let (outcome, mut result) = conclude(context, &executing, outcome);
    result.latency.adapter_ms = adapter_ms;
    result.retries = retries;
    if again {
        return repeat(context, passage, executing, (settlement, outcome, result)).await;
    }
    match context.ledger.settle(settlement, outcome, &result).await {
        Ok(_) => context.routes.give_back(context, Call { passage, stage: Invoked { result } }),
        Err(error) => unsettled(context, passage, &result, &error),
    }
}

/// Calls the adapter in a task of its own, so that its panic is an unknown outcome and not ours.
async fn call_adapter(brokered: &Brokered, dispatch: Dispatch, ready: Ready) -> AdapterOutcome {
    let Ready { lease, credential, deadline } = ready;
    let timeout = deadline.saturating_duration_since(Instant::now());
    let span = adapter_span(brokered, dispatch.attempt());
    let conditions = Conditions {
        timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
        credential,
        trace: trace_headers(&span),
    };
    let connection = lease.connection();
    let task =
        tokio::spawn(async move { connection.invoke(dispatch, conditions).await }.instrument(span));
    let limit = timeout.saturating_add(Duration::from_millis(GRACE_MS));
    let outcome = match tokio::time::timeout(limit, task).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(failed)) => AdapterOutcome::Unknown(format!("the adapter failed: {failed}")),
        Err(_elapsed) => AdapterOutcome::Unknown(
            "the adapter did not answer within its latency budget".to_owned(),
        ),
    };
    lease.report(&outcome);
    outcome
}

/// The span of one attempt, below the invoke stage's.
fn adapter_span(brokered: &Brokered, attempt: u32) -> tracing::Span {
    let id = &brokered.binding.capability;
    let is_mcp =
        !matches!(brokered.built.target.contract.transport, TransportFile::Internal { .. });
    let fields = AdapterFields {
        adapter: id.adapter().as_str(),
        mcp_server_id: is_mcp.then(|| id.adapter().as_str()),
        mcp_method: is_mcp.then_some("tools/call"),
        tool: id.capability().as_str(),
        attempt,
    };
    placet_telemetry::trace::adapter_span(&tracing::Span::current(), &fields)
}

/// Whether the contract makes it safe to try again by itself.
fn may_repeat(brokered: &Brokered, outcome: &AdapterOutcome) -> bool {
    let unreachable = matches!(
        outcome,
        AdapterOutcome::NothingHappened(placet_adapter::outcome::AdapterError::Unavailable(_))
    );
    match &brokered.built.target.capability.dedup {
        Dedup::ReadOnly => unreachable,
        Dedup::Keyed { .. } | Dedup::Queryable { .. } | Dedup::Opaque => false,
    }
}

/// Tries a read again: through the gate, since every try needs a permit of its own (decisions.md 2).
async fn repeat(
    context: &Arc<Context>,
    passage: Passage,
    executing: Executing,
    (settlement, outcome, result): (Settlement, Outcome, ToolResultEnvelope),
) {
    let Executing { mut brokered, .. } = executing;
    if settlement.record_id().is_some() {
        // A read that people agreed to has a record: it is settled, and its caller may repeat it.
        return match context.ledger.settle(settlement, outcome, &result).await {
            Ok(_) => context.routes.give_back(context, Call { passage, stage: Invoked { result } }),
            Err(error) => unsettled(context, passage, &result, &error),
        };
    }
    if let Err(error) = context.ledger.settle(settlement, outcome, &result).await {
        return unsettled(context, passage, &result, &error);
    }
    let pause = RETRY_PAUSE_MS.saturating_mul(1_u64 << brokered.built.retries.min(8));
    tokio::time::sleep(Duration::from_millis(pause)).await;
    brokered.built.retries = brokered.built.retries.saturating_add(1);
    context.routes.gate(context, Call { passage, stage: brokered });
}

/// The outcome is known but could not be recorded: nobody is told a result that a restart would not know of (I6).
fn unsettled(
    context: &Context,
    passage: Passage,
    result: &ToolResultEnvelope,
    error: &LedgerError,
) {
    let refusal = Refusal::new(
        ErrorCode::LedgerUnavailable,
        "the call was sent, but its outcome could not be recorded; ask again with the same key after a restart",
    )
    .with_execution(Execution::Unknown)
    .with_detail(error);
    refuse::tell(context, passage, refusal, result.policy_decision_id.clone());
}

/// What the adapter's outcome means for the record and for the caller.
fn conclude(
    context: &Context,
    executing: &Executing,
    outcome: AdapterOutcome,
) -> (Outcome, ToolResultEnvelope) {
    let now = context.ledger.store().now();
    let capability = &executing.brokered.built.target.capability;
    let writes = capability.is_write_class();
    let subject = executing.subject.clone();
    let answered = |status: ResultStatus, answer: AdapterAnswer| {
        let mut result = subject.clone().result(status, now);
        fill(&mut result, answer, writes);
        result.cost = Cost { cents: capability.cost_cents };
        result
    };
    match outcome {
        AdapterOutcome::Done(answer) => {
            (Outcome::Succeeded, answered(ResultStatus::Succeeded, answer))
        }
        AdapterOutcome::Failed(answer) => {
            let mut result = answered(ResultStatus::Failed, answer);
            let refusal =
                Refusal::new(ErrorCode::AdapterFailed, "the tool reports that the call failed")
                    .with_execution(Execution::ExecutedAndFailed);
            result.error = Some(error_of(&refusal));
            (Outcome::FailedFinal(ErrorCode::AdapterFailed), result)
        }
        AdapterOutcome::NothingHappened(error) => {
            let refusal = unavailable(&error);
            let mut result = subject.clone().result(ResultStatus::Refused, now);
            result.error = Some(error_of(&refusal));
            tracing::info!(%error, capability = %capability.id, "the adapter did nothing");
            (Outcome::FailedRetriable(refusal.code), result)
        }
        AdapterOutcome::Unknown(reason) => {
            tracing::warn!(%reason, capability = %capability.id, "the outcome of a call is unknown");
            if writes {
                context.metrics.indeterminate();
                return (Outcome::Unknown(reason), unknown(subject.clone(), now));
            }
            let mut result = subject.clone().result(ResultStatus::Failed, now);
            let refusal =
                Refusal::new(ErrorCode::AdapterFailed, "the tool gave no usable answer in time")
                    .with_execution(Execution::ExecutedAndFailed);
            result.error = Some(error_of(&refusal));
            (Outcome::FailedFinal(ErrorCode::AdapterFailed), result)
        }
    }
}

fn subject_of(
    passage: &Passage,
    brokered: &Brokered,
    permit: &placet_policy::permit::Permit,
) -> Subject {
    Subject {
        call_id: passage.call_id.clone(),
        run_id: brokered.run.run_id.clone(),
        trace_id: passage.trace_id.clone(),
        session_id: brokered.built.run.session_id.clone(),
        capability: brokered.binding.capability.clone(),
        key: brokered.built.target.capability.is_write_class().then(|| brokered.built.key.clone()),
        decision_id: Some(permit.decision().id.clone()),
        approval_id: permit.approval_id().cloned(),
        traceparent: placet_telemetry::trace::traceparent_of(&passage.span),
        accepted_at: passage.accepted_at,
    }
}

fn intent_of(
    context: &Context,
    passage: &Passage,
    brokered: &Brokered,
    (permit, deadline): (&placet_policy::permit::Permit, Instant),
) -> Intent {
    let left_ms = i64::try_from(deadline.saturating_duration_since(Instant::now()).as_millis())
        .unwrap_or(i64::MAX);
    let chain = &brokered.identity.chain;
    let mut audit = refuse::event_of(AuditKind::Dispatched, passage, brokered);
    audit.decision = refuse::decision_json(permit.decision());
    audit.digests.insert("args".to_owned(), brokered.built.args_digest);
    Intent {
        call_id: passage.call_id.clone(),
        args: brokered.built.args.clone(),
        binding: brokered.binding.clone(),
        deadline_at: context.ledger.store().now().plus_ms(left_ms),
        reserve: Reservation {
            run: RunKey {
                tenant: chain.tenant().clone(),
                agent: chain.actor.id.clone(),
                on_behalf_of: chain.on_behalf_of.as_ref().map(|user| user.id.clone()),
                run_id: brokered.run.run_id.clone(),
            },
            cents: brokered.built.target.capability.cost_cents,
        },
        audit,
    }
}

/// Settles a call of an earlier epoch whose outcome an adapter could still tell.
pub(crate) async fn settle_late(
    context: &Context,
    record: &placet_ledger::record::EffectRecord,
    answer: AdapterAnswer,
) -> crate::answer::Answer {
    let parked = context.ledger.parked(record).await.ok();
    let mut result = Subject::of_record(record, parked.as_ref())
        .result(ResultStatus::Succeeded, context.ledger.store().now());
    fill(&mut result, answer, true);
    match context.ledger.settle_recovered(record, Outcome::Succeeded, &result).await {
        Ok(_) => recorded::of_result(result, false),
        Err(error) => recorded::refused(
            record,
            ledger_refusal(&error).with_execution(Execution::Unknown),
            None,
        ),
    }
}

/// Settles a call of an earlier epoch of which the adapter knows that it did not happen.
pub(crate) async fn settle_not_found(
    context: &Context,
    record: &placet_ledger::record::EffectRecord,
) -> crate::answer::Answer {
    let parked = context.ledger.parked(record).await.ok();
    let mut result = Subject::of_record(record, parked.as_ref())
        .result(ResultStatus::Refused, context.ledger.store().now());
    let refusal = Refusal::new(
        ErrorCode::AdapterUnavailable,
        "the process ended while the call was under way; the tool says that it did not happen",
    );
    result.error = Some(error_of(&refusal));
    match context
        .ledger
        .settle_recovered(record, Outcome::FailedRetriable(refusal.code), &result)
        .await
    {
        Ok(_) => recorded::of_result(result, false),
        Err(error) => recorded::refused(
            record,
            ledger_refusal(&error).with_execution(Execution::Unknown),
            None,
        ),
    }
}
