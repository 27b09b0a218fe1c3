//! Asking adapters what became of a token: for calls that were taken over, and for outcomes that are already unknown.
//!
//! Owns when an answer counts: "committed" at any time, "not found" only once the settle delay after the deadline has passed (F16).
//! Invariant: a question has no effect, and an adapter that breaks, hangs or does not know leaves the outcome unknown.

use std::{collections::BTreeMap, sync::Arc};

use futures::future::join_all;

use tokio::time::{Duration, Instant};

use placet_adapter::{
    adapter::{Adapter, Inquiry},
    outcome::{Answer as AdapterAnswer, Probe},
};
use placet_ledger::{
    ledger::{LedgerError, Outcome},
    record::{Attempt, EffectRecord, EffectState, Resolution},
    store::EffectQuery,
};
use placet_types::ids::{AdapterName, RecordId};

use crate::{
    adapters::ports::{Connection, backoff},
    context::Context,
    lifecycle::transitions::{AfterProbe, Probed, step},
    outcome::{Outcomes, recorded::subject_of, resolve, settle, settlement_retry},
};

/// How long recovery waits for an adapter that it has to ask, in milliseconds.
const ASK_MS: u64 = 30_000;
/// How much of that the adapter is given, so that an answer after its own timeout still arrives.
const ANSWER_MS: u64 = 29_000;
/// How often a call that was taken over is asked about before its outcome is called unknown.
const ASKED_MAX: u32 = 3;
/// How long a call that was taken over is kept in flight until "not found" counts, in milliseconds; later it is asked about as unknown.
const SETTLE_WAIT_MS: i64 = 600_000;
/// How many unknown outcomes are read in one round, the most that are asked about.
const PAGE: usize = 100;
/// How many unknown outcomes are read at a time to be counted, and how often: no more than 10,000 are counted.
const COUNTED_PAGE: usize = 500;
const COUNTED_PAGES_MAX: usize = 20;
/// After how many questions in a row without an answer an adapter is skipped until the next round; taking [`SLOW`] to say that it does not
/// know counts as no answer.
const SILENT_MAX: u32 = 2;
const SLOW: Duration = Duration::from_secs(1);
/// The most that an attempt may take, in milliseconds.
const ATTEMPT_MS_MAX: i64 = 600_000;

/// Milliseconds until "not found" counts, which it does at 0 or less. Two clocks must agree: the wall clock, which may have been set
/// forward, that the deadline and the delay have passed, and the monotonic one that as much time has passed since this process first knew
/// of the attempt.
fn until_settled_ms(
    context: &Context,
    record_id: RecordId,
    attempt: &Attempt,
    settle_delay_ms: u64,
) -> i64 {
    let delay = i64::try_from(settle_delay_ms).unwrap_or(i64::MAX);
    let by_wall = attempt.deadline_at.plus_ms(delay).since_ms(context.ledger.store().now());
    let took_ms = attempt.deadline_at.since_ms(attempt.first_dispatched_at);
    let known = context.rounds.asked.known_for(record_id, attempt).as_millis();
    let known_ms = i64::try_from(known).unwrap_or(i64::MAX);
    let must_pass = took_ms.clamp(0, ATTEMPT_MS_MAX).saturating_add(delay);
    by_wall.max(must_pass.saturating_sub(known_ms))
}

/// Asks about a call that was taken over until its outcome is known or the limit is reached.
pub(crate) async fn until_known(context: &Arc<Context>, record: EffectRecord) {
    let EffectState::Dispatched(attempt) = &record.state else { return };
    let (state, mut asked) = (context.state_of(&record), 0_u32);
    let delay_ms = context.settle_delay_ms(&record, attempt).unwrap_or(u64::MAX);
    loop {
        let wait_ms = until_settled_ms(context, record.record_id, attempt, delay_ms);
        let found = ask(context, &record, attempt).await;
        let (may_ask, pause) = if matches!(found, Probe::NotFound) {
            let pause_ms = u64::try_from(wait_ms).unwrap_or(0).clamp(50, 5_000);
            (wait_ms <= SETTLE_WAIT_MS, Duration::from_millis(pause_ms))
        } else {
            asked = asked.saturating_add(1);
            (asked < ASKED_MAX, backoff(asked))
        };
        let probed = Probed {
            found: Some(&found),
            is_settled: wait_ms <= 0,
            after_unknown: attempt.after_unknown,
            may_ask,
        };
        let told = match (step(state, probed), found) {
            (AfterProbe::Happened, Probe::Committed(answer)) => {
                settle::late(&context.outcomes, &record, answer).await
            }
            (AfterProbe::DidNotHappen, _) => settle::not_found(&context.outcomes, &record).await,
            (AfterProbe::AskAgain, _) => {
                if !context.pause(pause).await {
                    return;
                }
                continue;
            }
            (AfterProbe::Happened | AfterProbe::GiveUp, _) => {
                let reason = "the adapter could not say whether the effect happened";
                settlement_retry::give_up(&context.outcomes, &record, reason).await
            }
        };
        return context.registry.publish(&record.call_id, told);
    }
}

/// Asks once, if a connection is available in time.
async fn ask(outcomes: &Outcomes, record: &EffectRecord, attempt: &Attempt) -> Probe {
    let active = outcomes.current.active();
    let Some(port) = active.ports.of(record.scope.capability.adapter()) else {
        return Probe::Unknown;
    };
    port.wake();
    let deadline = Instant::now() + Duration::from_millis(ASK_MS);
    loop {
        if let Connection::Up(adapter) = port.connection() {
            return question(adapter, record, attempt).await.unwrap_or(Probe::Unknown);
        }
        if Instant::now() >= deadline || !outcomes.pause(Duration::from_millis(100)).await {
            return Probe::Unknown;
        }
    }
}

/// Asks once. `None`: there was no answer in time, or the adapter failed.
async fn question(
    adapter: Arc<dyn Adapter>,
    record: &EffectRecord,
    attempt: &Attempt,
) -> Option<Probe> {
    let inquiry = Inquiry {
        capability: record.scope.capability.clone(),
        token: attempt.token.clone(),
        timeout_ms: ANSWER_MS,
    };
    // In a task of its own with a timeout: an adapter that panics or hangs keeps no one waiting.
    let probing = tokio::spawn(async move { adapter.probe(&inquiry).await });
    match tokio::time::timeout(Duration::from_millis(ASK_MS), probing).await {
        Ok(Ok(probe)) => Some(probe),
        Ok(Err(_)) | Err(_) => None,
    }
}

/// Counts the unknown outcomes of the ledger for the metrics, up to a limit.
pub(crate) async fn count(context: &Context) {
    let state = Some("indeterminate".to_owned());
    let mut query = EffectQuery { state, limit: COUNTED_PAGE, ..EffectQuery::default() };
    let mut calls = 0_usize;
    for _ in 0..COUNTED_PAGES_MAX {
        let page = match context.ledger.store().effects(&query).await {
            Ok(page) => page,
            Err(error) => return context.node.noticed(&error.into()),
        };
        calls = calls.saturating_add(page.len());
        query.after = page.last().map(EffectRecord::place);
        if page.len() < COUNTED_PAGE {
            break;
        }
    }
    context.metrics.set_outcomes_unknown(calls);
}

/// One round over unknown outcomes (T8 by probe). Each adapter is asked separately, so that one that hangs delays only its own calls.
pub(crate) async fn round(context: &Arc<Context>) {
    let page = match context.rounds.asking.next(context.ledger.store(), "indeterminate", PAGE).await
    {
        Ok(page) => page,
        Err(error) => return context.node.noticed(&error.into()),
    };
    let mut by_adapter: BTreeMap<AdapterName, Vec<EffectRecord>> = BTreeMap::new();
    for record in page {
        by_adapter.entry(record.scope.capability.adapter().clone()).or_default().push(record);
    }
    let asking = by_adapter.into_values().map(|records| async move {
        let mut silent = 0_u32;
        for record in &records {
            if context.node.is_stopping() || silent >= SILENT_MAX {
                return;
            }
            silent =
                if about_unknown(context, record).await { 0 } else { silent.saturating_add(1) };
        }
    });
    join_all(asking).await;
}

/// Asks about one call if it is due. Returns whether its adapter can be asked further questions.
async fn about_unknown(context: &Arc<Context>, record: &EffectRecord) -> bool {
    let EffectState::Indeterminate { attempt, .. } = &record.state else { return true };
    let Some(delay_ms) = context.settle_delay_ms(record, attempt) else { return true };
    // The time counts from the first look, not from the first question.
    let until_ms = until_settled_ms(context, record.record_id, attempt, delay_ms);
    let active = context.current.active();
    let Some(port) = active.ports.of(record.scope.capability.adapter()) else { return true };
    let Connection::Up(adapter) = port.connection() else {
        port.wake();
        return true;
    };
    if port.is_shut() || !context.rounds.asked.is_due(record.record_id) {
        return true;
    }
    let began = Instant::now();
    let probe = question(adapter, record, attempt).await;
    // An adapter that timed out itself says that it does not know.
    let is_silent = match probe {
        None => true,
        Some(Probe::Unknown) => began.elapsed() >= SLOW,
        Some(Probe::Committed(_) | Probe::NotFound) => false,
    };
    let probed = Probed {
        found: probe.as_ref(),
        is_settled: until_ms <= 0,
        after_unknown: attempt.after_unknown,
        may_ask: true,
    };
    let happened = match (step(context.state_of(record), probed), probe) {
        (AfterProbe::Happened, Some(Probe::Committed(answer))) => Some(answer),
        (AfterProbe::DidNotHappen, _) => None,
        // The next round asks again.
        (AfterProbe::Happened | AfterProbe::AskAgain | AfterProbe::GiveUp, _) => return !is_silent,
    };
    if let Err(error) = resolved(context, record, attempt, happened).await {
        context.node.noticed(&error);
        tracing::info!(%error, record_id = %record.record_id, "what a probe found could not be recorded");
    }
    !is_silent
}

/// Records what a probe found: the adapter's answer, or that nothing happened.
async fn resolved(
    outcomes: &Outcomes,
    record: &EffectRecord,
    attempt: &Attempt,
    happened: Option<AdapterAnswer>,
) -> Result<(), LedgerError> {
    let subject = subject_of(outcomes, record).await?;
    let (outcome, result) = match happened {
        Some(answer) => (Outcome::Succeeded, settle::found(outcomes, record, subject, answer)),
        None => {
            let now = outcomes.ledger.store().now();
            resolve::did_not_happen(subject, "the tool says that the call did not happen", now)
        }
    };
    let by = Resolution::Probe { attempt: attempt.number };
    let note = format!("the adapter was asked about attempt {}", attempt.number);
    let event = resolve::event_of(record, &result, note);
    resolve::with(outcomes, record, outcome, by, &result, event).await.map(drop)
}
