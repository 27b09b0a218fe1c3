//! Recovery: what happens at start to calls that were under way (ledger.md, T7).
//!
//! Owns the rule by class: a read and a keyed call may be sent again with a new permit and the same token, a queryable one is asked
//! about, anything else is unknown. Never guesses (design, promise 3).

use std::sync::Arc;

use placet_adapter::outcome::Probe;
use placet_ledger::{
    record::{Attempt, Class, EffectRecord, EffectState},
    store::{EffectQuery, StoreError},
};
use placet_telemetry::trace::{CallFields, Stage, continue_span};
use tokio::time::{Duration, Instant};

use crate::{
    adapters::ports::Connection,
    answer::Answer,
    call::{Built, Call, Caller, Passage, Resumed},
    context::Context,
    desk::resume::recorded_identity,
    registry::Owner,
    stages::{execute, recorded},
};

/// How many records are read at a time.
const PAGE: usize = 1_000;
/// How long recovery waits for an adapter that it has to ask, in milliseconds.
const ASK_MS: u64 = 30_000;
/// What is kept back from a key's window, in milliseconds, for clocks that differ.
const WINDOW_MARGIN_MS: i64 = 5_000;

/// What recovery did at start.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Recovered {
    pub(crate) unknown: usize,
    pub(crate) queued: usize,
}

/// Goes through every open record: what is certain is recorded at once, what needs an adapter is queued.
pub(crate) async fn recover(context: &Arc<Context>) -> Result<Recovered, StoreError> {
    let mut done = Recovered::default();
    let mut query = EffectQuery { open_only: true, limit: PAGE, ..EffectQuery::default() };
    loop {
        let page = context.ledger.store().effects(&query).await?;
        let Some(last) = page.last() else { return Ok(done) };
        query.after = Some(last.record_id);
        for record in page {
            if let EffectState::Dispatched(attempt) = &record.state {
                let attempt = attempt.clone();
                recover_one(context, record, attempt, &mut done).await;
            }
        }
    }
}

async fn recover_one(
    context: &Arc<Context>,
    record: EffectRecord,
    attempt: Attempt,
    done: &mut Recovered,
) {
    let owner = owner_of(&record);
    drop(context.registry.enter(
        &record.call_id,
        owner,
        Answer::InProgress(record.call_id.clone()),
    ));
    if attempt.class == Class::Opaque {
        done.unknown = done.unknown.saturating_add(1);
        let reason = "the process ended between sending the call and recording its outcome";
        let answer = recorded::give_up(context, &record, reason).await;
        return context.registry.publish(&record.call_id, answer);
    }
    done.queued = done.queued.saturating_add(1);
    let context = Arc::clone(context);
    let owner = Arc::clone(&context);
    owner.registry.spawn(async move {
        match attempt.class {
            Class::ReadOnly => again(&context, record).await,
            Class::Keyed { window_ms } => {
                let window =
                    i64::try_from(window_ms).unwrap_or(i64::MAX).saturating_sub(WINDOW_MARGIN_MS);
                let age = context.ledger.store().now().since_ms(attempt.first_dispatched_at);
                if age < window {
                    again(&context, record).await;
                } else {
                    unknown(&context, &record, "the target no longer remembers the key").await;
                }
            }
            Class::Queryable { settle_delay_ms } => {
                ask(&context, record, &attempt, settle_delay_ms).await
            }
            Class::Opaque => {
                unknown(&context, &record, "nothing is known about repeating this call").await
            }
        }
    });
}

fn owner_of(record: &EffectRecord) -> Owner {
    Owner::of_scope(&record.scope)
}

async fn unknown(context: &Context, record: &EffectRecord, reason: &str) {
    let answer = recorded::give_up(context, record, reason).await;
    context.registry.publish(&record.call_id, answer);
}

/// Sends the call again: from what was parked, through broker and gate, with the same token.
async fn again(context: &Arc<Context>, record: EffectRecord) {
    let parked = match context.ledger.parked(&record).await {
        Ok(parked) => parked,
        Err(error) => {
            return unknown(context, &record, &format!("what was sent cannot be read: {error}"))
                .await;
        }
    };
    let Some(target) = context.catalog.resolve(&record.scope.tenant, &record.scope.capability)
    else {
        return unknown(context, &record, "the tool is not offered any more").await;
    };
    if target.contract.digest != parked.binding.contract_digest {
        return unknown(context, &record, "the contract has changed since the call was sent").await;
    }
    let tool = record.scope.capability.tool_name();
    let fields = CallFields {
        tenant: Some(record.scope.tenant.as_str()),
        run_id: Some(record.run_id.as_str()),
        tool_call_id: Some(record.call_id.as_str()),
        tool: Some(&tool),
    };
    let span = continue_span(
        parked.traceparent.as_deref().unwrap_or_default(),
        None,
        Stage::Invoke,
        &fields,
    );
    let mut passage = Passage::new(Arc::clone(context), record.call_id.clone(), span, None);
    passage.accepted_at = record.created_at;
    passage.runs_under(record.record_id);
    let approval = match record.state.approval_id() {
        Some(id) => context.ledger.store().approval(id).await.ok().flatten(),
        None => None,
    };
    let built = Built {
        target,
        args: parked.envelope.args.clone(),
        requested_digest: parked.requested_digest,
        args_digest: parked.binding.effective_args_digest,
        key: record.key.clone(),
        mode_requested: parked.envelope.approval_mode_requested,
        run: placet_types::run_context::RunRequest {
            run_id: parked.run.run_id.clone(),
            session_id: parked.envelope.session_id.clone(),
            safety_mode: parked.run.safety_mode,
            run_budget: parked.run.run_budget,
        },
        step_id: parked.step_id.clone(),
        request_id: parked.request_id.clone(),
        evidence_refs: parked.envelope.evidence_refs.clone(),
        metadata: parked.envelope.metadata.clone(),
        caller: Caller::Recorded(Box::new(recorded_identity(&parked))),
        resumed: Some(Box::new(Resumed { record, approval, parked })),
        retries: 0,
    };
    context.routes.broker(context, Call { passage, stage: built });
}

/// Asks the adapter whether the effect happened; «not found» counts only after the settle delay.
async fn ask(
    context: &Arc<Context>,
    record: EffectRecord,
    attempt: &Attempt,
    settle_delay_ms: u64,
) {
    let delay = i64::try_from(settle_delay_ms).unwrap_or(i64::MAX);
    let settled_at = attempt.deadline_at.plus_ms(delay);
    let wait_ms = settled_at.since_ms(context.ledger.store().now());
    tokio::time::sleep(Duration::from_millis(u64::try_from(wait_ms).unwrap_or(0))).await;
    let Some(port) = context.ports.of(record.scope.capability.adapter()) else {
        return unknown(context, &record, "the tool's adapter is not running").await;
    };
    port.wake();
    let deadline = Instant::now() + Duration::from_millis(ASK_MS);
    let adapter = loop {
        if let Connection::Up(adapter) = port.connection() {
            break adapter;
        }
        if Instant::now() >= deadline {
            return unknown(context, &record, "the adapter could not be asked").await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    match adapter.probe(&attempt.token).await {
        Probe::Committed(answer) => {
            let answer = execute::settle_late(context, &record, answer).await;
            context.registry.publish(&record.call_id, answer);
        }
        Probe::NotFound => {
            let answer = execute::settle_not_found(context, &record).await;
            context.registry.publish(&record.call_id, answer);
        }
        Probe::Unknown => {
            unknown(context, &record, "the adapter does not know whether the effect happened").await
        }
    }
}
