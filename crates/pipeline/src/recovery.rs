//! Recovery: what happens at start to calls that were under way.
//!
//! Owns the rule by class: a read and a keyed call may be sent again with a new permit and the same token, a queryable one is asked
//! about, anything else is unknown. Never guesses.

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
    call::{Built, Call, Passage, Resumed},
    context::Context,
    desk::resume::recorded_identity,
    registry::Owner,
    stages::{recorded, settle},
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

/// The calls that were under way when the process before this one ended: read before anything is dispatched in this one.
pub(crate) async fn under_way(context: &Context) -> Result<Vec<EffectRecord>, StoreError> {
    let mut found = Vec::new();
    let mut query = EffectQuery { open_only: true, limit: PAGE, ..EffectQuery::default() };
    loop {
        let page = context.ledger.store().effects(&query).await?;
        let Some(last) = page.last() else { return Ok(found) };
        query.after = Some(last.record_id);
        let dispatched = |record: &EffectRecord| matches!(record.state, EffectState::Dispatched(_));
        found.extend(page.into_iter().filter(dispatched));
    }
}

/// Goes through them: what is certain is recorded at once, what needs an adapter is queued.
pub(crate) async fn recover(context: &Arc<Context>, under_way: Vec<EffectRecord>) -> Recovered {
    let mut done = Recovered::default();
    for record in under_way {
        if let EffectState::Dispatched(attempt) = &record.state {
            let attempt = attempt.clone();
            recover_one(context, record, attempt, &mut done).await;
        }
    }
    done
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
        Some(id) => match context.ledger.store().approval(id).await {
            Ok(approval) => approval,
            Err(error) => {
                tracing::warn!(%error, "the approval of a call that was under way cannot be read");
                None
            }
        },
        None => None,
    };
    passage.in_trace_of(&parked.envelope.trace_id);
    let identity = recorded_identity(&parked);
    let built = Built::restored(target, identity, Resumed { record, approval, parked });
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
    let token = attempt.token.clone();
    // In a task of its own and for a while only: an adapter that breaks or hangs leaves nobody waiting.
    let probing = tokio::spawn(async move { adapter.probe(&token).await });
    let probe = match tokio::time::timeout(Duration::from_millis(ASK_MS), probing).await {
        Ok(Ok(probe)) => probe,
        Ok(Err(_)) | Err(_) => Probe::Unknown,
    };
    let answer = match probe {
        Probe::Committed(answer) => settle::late(context, &record, answer).await,
        Probe::NotFound => settle::not_found(context, &record).await,
        Probe::Unknown => {
            let reason = "the adapter does not know whether the effect happened";
            return unknown(context, &record, reason).await;
        }
    };
    context.registry.publish(&record.call_id, answer);
}
