//! Batches: the calls of one turn of a model, made together.
//!
//! Owns how they are sent and awaited. [`crate::runs`] decides which of them are made; each that is made is a call like any other.
//! Invariant: a batch runs to its end in a task of its own, and is counted, whether or not its caller still waits.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::future::join_all;
use tokio::{
    sync::oneshot,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use placet_adapter::adapter::Example;
use placet_identity::VerifiedCaller;
use placet_ledger::{
    record::{EffectRecord, EffectState},
    refusal::internal,
};
use placet_types::{
    contract::file::TransportFile,
    digest::Digest,
    envelope::result::{ResultError, ResultStatus, ToolResultEnvelope},
    error::{ErrorCode, Refusal},
    ids::{CapabilityId, IdempotencyKey, RecordId, RequestId, RunId, StepId},
    run_context::RunRequest,
    run_history::RunHistory,
};

use super::{Engine, queries::usable, runs::open_of};
use crate::{
    call::InBatch,
    result::{error_of, in_ms},
    runs::{
        batch::{self, Place, Step},
        batch_views::{
            Batch, BatchCall, BatchDebug, BatchHistory, BatchView, CallResult, Reference,
        },
        kept::Open,
        offer::Tools,
    },
    stages::build::derived_key,
    submission::{Inbound, Submission},
};

/// A batch as it was sent.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) caller: Arc<VerifiedCaller>,
    pub(super) batch: Batch,
    /// The calls of its session before it.
    pub(super) examples: Arc<[Example]>,
    pub(super) inbound: Inbound,
    pub(super) making: Making,
    /// Cancelled when the caller no longer waits for the batch.
    pub(super) gone: CancellationToken,
}

impl Asked {
    /// A batch that a caller waits for and that belongs to no session.
    pub(super) fn of(
        caller: Arc<VerifiedCaller>,
        batch: Batch,
        inbound: Inbound,
        making: Making,
    ) -> Self {
        let (examples, gone) = (Arc::default(), CancellationToken::new());
        Self { caller, batch, examples, inbound, making, gone }
    }
}

/// How calls are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Making {
    /// With their effects.
    Real,
    /// Without effects: apart from tools that a model simulates, only read-only tools are called.
    Simulated,
}

/// Everything that the calls of a batch have in common.
#[derive(Debug)]
struct Sending {
    asked: Asked,
    run: RunRequest,
    history: RunHistory,
}

impl Sending {
    /// The ids of the batch's calls that stay the same when it is sent again.
    fn ids(&self) -> Result<Option<(RequestId, StepId)>, Refusal> {
        let Some(batch) = &self.asked.batch.batch_id else { return Ok(None) };
        Ok(Some((request_of(batch)?, StepId::new("batch").map_err(internal)?)))
    }

    /// The key of a call, where it is the same each time the batch is sent.
    fn key_of(&self, number: usize, call: &BatchCall) -> Result<Option<IdempotencyKey>, Refusal> {
        if let Some(key) = &call.idempotency_key {
            return Ok(Some(key.clone()));
        }
        let Some((request, step)) = self.ids()? else { return Ok(None) };
        let ordinal = u32::try_from(number).map_err(internal)?;
        derived_key(&self.run.run_id, &request, &step, ordinal).map(Some)
    }
}

/// How long a batch that is sent again waits for its first try.
const REPEAT_WAIT: Duration = Duration::from_secs(30);

impl Engine {
    /// Makes the calls of one turn of a run's model. They continue when the future is dropped.
    ///
    /// # Errors
    /// [`ErrorCode::RunNotFound`] for runs that are not open here, or not the caller's; [`ErrorCode::InProgress`] while another batch of the
    /// run is under way; [`ErrorCode::IdempotencyConflict`] and [`ErrorCode::ValidationError`] for what is no batch. Everything else is the
    /// outcome of one call.
    pub async fn batch(
        &self,
        caller: Arc<VerifiedCaller>,
        run_id: &RunId,
        batch: Batch,
        inbound: Inbound,
    ) -> Result<BatchView, Refusal> {
        let open = open_of(&self.context, &caller, run_id)?;
        let in_run = Arc::clone(&open);
        let asked = Asked::of(caller, batch, inbound, Making::Real);
        let id = asked.batch.batch_id.clone();
        self.alone(&open, id, |engine, gone| async move {
            engine.take_turn(&in_run, Asked { gone, ..asked }).await
        })
        .await
    }

    /// Runs `work` while nothing else runs in the run, in a task that continues when the caller no longer waits.
    pub(super) async fn alone<
        T: Send + 'static,
        F: Future<Output = Result<T, Refusal>> + Send + 'static,
    >(
        &self,
        open: &Open,
        id: Option<IdempotencyKey>,
        work: impl FnOnce(Self, CancellationToken) -> F,
    ) -> Result<T, Refusal> {
        let busy = || {
            Refusal::new(ErrorCode::InProgress, "another batch of the run is under way")
                .with_retry_after_ms(1_000)
        };
        let is_same = id.is_some() && *open.doing.lock() == id;
        let turn = match Arc::clone(&open.turn).try_lock_owned() {
            Ok(turn) => turn,
            // A batch that is sent again waits for its end, as a call does.
            Err(_busy) if is_same => {
                let waited = timeout(REPEAT_WAIT, Arc::clone(&open.turn).lock_owned()).await;
                waited.map_err(|_elapsed| busy())?
            }
            Err(_busy) => return Err(busy()),
        };
        *open.doing.lock() = id;
        let (answer, answered) = oneshot::channel();
        let gone = CancellationToken::new();
        let _waits = gone.clone().drop_guard();
        let work = work(self.clone(), gone);
        self.context.registry.spawn(async move {
            let done = work.await;
            drop(turn);
            if answer.send(done).is_err() {
                tracing::debug!("nobody waited for the end of a batch");
            }
        });
        answered.await.unwrap_or_else(|_dropped| Err(internal("the task of a batch ended early")))
    }

    /// The batches of a run.
    ///
    /// # Errors
    /// [`ErrorCode::RunNotFound`] for runs that are not open here, or not the caller's.
    pub fn batches(
        &self,
        caller: &VerifiedCaller,
        run_id: &RunId,
    ) -> Result<BatchHistory, Refusal> {
        let open = open_of(&self.context, caller, run_id)?;
        let batches = open.state.lock().turns.records();
        Ok(BatchHistory { run_id: run_id.clone(), batches })
    }

    pub(super) async fn take_turn(&self, open: &Open, asked: Asked) -> Result<BatchView, Refusal> {
        let started = Instant::now();
        let tools = usable(&self.context, &asked.caller);
        let (begun, mut places, sending) = {
            let run = open.state.lock();
            let begun = run.begin(&asked.batch, &tools)?;
            let mut places = batch::plan(&asked.batch.calls, &tools, &begun.turn)?;
            if let Some(only) = &begun.only {
                batch::narrow(&mut places, only);
            }
            if asked.making == Making::Simulated {
                self.refuse_effects(&mut places, &begun.turn.offered);
            }
            let mut request = run.request.clone();
            request.taint.extend(asked.batch.taint.iter().copied());
            (begun, places, Sending { asked, run: request, history: run.history.clone() })
        };
        if sending.asked.making == Making::Real {
            self.make_known(&sending, &mut places).await?;
        }
        let mut results = self.made(&sending, &places).await;
        let took_ms = in_ms(started.elapsed());
        let debug = counted(&places, &results, took_ms);
        let mut run = open.state.lock();
        let (iteration, repeated) = (begun.iteration, begun.repeated);
        let batch = sending.asked.batch;
        run.end(&batch, begun, &places, &mut results, &tools, debug);
        Ok(BatchView {
            run_id: run.request.run_id.clone(),
            batch_id: batch.batch_id,
            iteration,
            repeated,
            references: references(&results),
            results,
            evaluation_checks: run.evaluation_checks.clone(),
            debug,
        })
    }

    /// Has calls made that this iteration would refuse, but that the ledger knows from an earlier time: it answers what became of them.
    async fn make_known(&self, sending: &Sending, places: &mut [Place]) -> Result<(), Refusal> {
        let Asked { caller, batch, .. } = &sending.asked;
        for (number, (place, call)) in (0_usize..).zip(places.iter_mut().zip(&batch.calls)) {
            let (Step::Refuse(_), Some(capability)) = (&place.step, &place.meant) else { continue };
            let Some(key) = sending.key_of(number, call)? else { continue };
            let record_id = RecordId::derive(&caller.chain().key_scope(capability), &key);
            let record = self.context.ledger.store().effect(record_id).await;
            let record = record.map_err(|error| self.context.lookup_failed(error))?;
            // What was not executed and may be tried again is not tried again against the rules of the iteration.
            let is_retriable =
                |record: &EffectRecord| matches!(record.state, EffectState::FailedRetriable { .. });
            if record.is_some_and(|record| !is_retriable(&record)) {
                place.make_again();
            }
        }
        Ok(())
    }

    /// Makes the calls that are to be made, concurrently, and returns a result for every place.
    async fn made(&self, sending: &Sending, places: &[Place]) -> Vec<CallResult> {
        let Asked { batch, gone, .. } = &sending.asked;
        let wait_ms = batch.wait_ms.unwrap_or(0);
        let calls = || (0_usize..).zip(places.iter().zip(&batch.calls));
        let made = calls().filter(|(_, (place, _))| place.step == Step::Make);
        let made = made.map(|(number, (place, call))| async move {
            let outcome = match self.sent(sending, number, place, call) {
                Ok(mut ticket) => {
                    let settled = gone.run_until_cancelled(ticket.settled(wait_ms)).await;
                    let answer = match settled {
                        Some(answer) => answer,
                        // Stops waiting for approvals, but not for what is being executed.
                        None => ticket.settled(0).await,
                    };
                    Ok(answer.envelope().clone())
                }
                Err(refusal) => Err(refusal),
            };
            (number, outcome)
        });
        let mut outcomes: BTreeMap<usize, Result<ToolResultEnvelope, Refusal>> =
            join_all(made).await.into_iter().collect();
        let mut results: Vec<CallResult> = Vec::new();
        for (number, (place, call)) in calls() {
            let result = match &place.step {
                Step::Make => told(call, place, outcomes.remove(&number)),
                Step::Refuse(refusal) => told(call, place, Some(Err(refusal.as_ref().clone()))),
                Step::CopyOf(original) => match results.get(*original) {
                    Some(original) => copied(call, original),
                    None => told(call, place, None),
                },
            };
            results.push(result);
        }
        results
    }

    /// Refuses every call that would change something.
    fn refuse_effects(&self, places: &mut [Place], offered: &Tools) {
        let active = self.context.current.active();
        for place in places.iter_mut().filter(|place| place.step == Step::Make) {
            let Some(capability) = place.capability.as_ref().and_then(|id| offered.get(id)) else {
                continue;
            };
            let port = active.ports.of(capability.id.adapter());
            let is_simulated = port
                .is_some_and(|port| matches!(port.contract.transport, TransportFile::Lm { .. }));
            if capability.is_write_class() && !is_simulated {
                let message = "not executed: a simulation calls no tool that changes something";
                place.step =
                    Step::Refuse(Box::new(Refusal::new(ErrorCode::ValidationError, message)));
            }
        }
    }

    /// Submits one call, with ids that stay the same when its batch is sent again.
    fn sent(
        &self,
        sending: &Sending,
        number: usize,
        place: &Place,
        call: &BatchCall,
    ) -> Result<crate::ticket::Ticket, Refusal> {
        let asked = &sending.asked;
        let (request_id, step_id) = sending.ids()?.unzip();
        let own = place.capability.as_ref().map(CapabilityId::tool_name);
        let submission = Submission {
            tool: own.unwrap_or_else(|| place.tool.clone()),
            args: place.args.clone(),
            step_id,
            request_id,
            ordinal: u32::try_from(number).map_err(internal)?,
            idempotency_key: call.idempotency_key.clone(),
            approval_mode_requested: call.approval_mode_requested,
            wait_ms: None,
            callback: None,
            run: sending.run.clone(),
            evidence_refs: call.evidence_refs.clone(),
            metadata: None,
        };
        let in_batch = InBatch {
            history: sending.history.clone(),
            examples: Arc::clone(&asked.examples),
            is_simulated: asked.making == Making::Simulated,
        };
        let (caller, inbound) = (Arc::clone(&asked.caller), asked.inbound.clone());
        self.take_in(caller, submission, inbound, Some(Box::new(in_batch)))
    }
}

/// The request id for a batch's calls: a digest, since batch ids may be longer.
fn request_of(batch: &IdempotencyKey) -> Result<RequestId, Refusal> {
    let digest = Digest::of(batch.as_str().as_bytes()).to_string();
    let hex = digest.rsplit(':').next().unwrap_or_default();
    RequestId::new(format!("batch-{hex}")).map_err(internal)
}

/// One call's result: of the call, or its refusal before there was one.
fn told(
    call: &BatchCall,
    place: &Place,
    outcome: Option<Result<ToolResultEnvelope, Refusal>>,
) -> CallResult {
    let outcome = outcome.unwrap_or_else(|| Err(internal("a call of a batch has no outcome")));
    match outcome {
        Ok(result) => CallResult {
            id: call.id.clone(),
            tool: place.tool.clone(),
            status: result.status,
            result: Some(ToolResultEnvelope { error: result.error.map(in_batch), ..result }),
            error: None,
            duplicate_of: None,
            warning: None,
            exposure: None,
        },
        Err(refusal) => CallResult { tool: place.tool.clone(), ..refused(call, &refusal) },
    }
}

/// The result of a call that was refused before there was one.
pub(super) fn refused(call: &BatchCall, refusal: &Refusal) -> CallResult {
    CallResult {
        id: call.id.clone(),
        tool: call.name().to_owned(),
        status: crate::result::status_of(refusal),
        result: None,
        error: Some(in_batch(error_of(refusal))),
        duplicate_of: None,
        warning: None,
        exposure: None,
    }
}

/// What to do about a call of a batch, which is repeated with its batch and is one of the run's own tools.
fn in_batch(mut error: ResultError) -> ResultError {
    let code = error.error_code;
    if error.remediation != code.remediation() {
        return error;
    }
    if matches!(code, ErrorCode::ApprovalPending | ErrorCode::InProgress) {
        error.remediation =
            "Send the same batch again, with its `batch_id`, to collect the result.".to_owned();
    } else if code == ErrorCode::ToolNotFound {
        error.remediation =
            "List the tools of the next iteration with GET /v1/runs/{id}/tools.".to_owned();
    }
    error
}

/// The result of an equal call, with a warning that it is a copy.
fn copied(call: &BatchCall, original: &CallResult) -> CallResult {
    let warning = format!("equal to call `{}` of the batch, which counts for both", original.id);
    CallResult {
        id: call.id.clone(),
        duplicate_of: Some(original.id.clone()),
        warning: Some(warning),
        ..original.clone()
    }
}

fn references(results: &[CallResult]) -> Vec<Reference> {
    let originals = results.iter().filter(|result| result.duplicate_of.is_none());
    let named = originals.flat_map(|result| {
        let citations = result.result.iter().flat_map(|envelope| &envelope.citations);
        citations.map(|one| Reference {
            id: result.id.clone(),
            uri: one.uri.clone(),
            title: one.title.clone(),
        })
    });
    named.collect()
}

fn counted(places: &[Place], results: &[CallResult], took_ms: u64) -> BatchDebug {
    let count = |fits: &dyn Fn(&Place, &CallResult) -> bool| {
        let fitting = places.iter().zip(results).filter(|(place, result)| fits(place, result));
        u32::try_from(fitting.count()).unwrap_or(u32::MAX)
    };
    let with = |wanted: ResultStatus| {
        count(&|_, result| result.status == wanted && result.duplicate_of.is_none())
    };
    BatchDebug {
        made: count(&|place, _| place.step == Step::Make),
        duplicates: count(&|_, result| result.duplicate_of.is_some()),
        refused: with(ResultStatus::Refused),
        pending: with(ResultStatus::Pending),
        took_ms,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_of_a_batch_is_repeated_with_its_batch() {
        let told = |code| in_batch(error_of(&Refusal::new(code, ""))).remediation;
        assert!(told(ErrorCode::ApprovalPending).starts_with("Send the same batch again"));
        assert!(told(ErrorCode::ToolNotFound).contains("GET /v1/runs/{id}/tools"));
        assert_eq!(told(ErrorCode::RateLimited), ErrorCode::RateLimited.remediation());
        let own = ResultError {
            remediation: "Bring a token.".to_owned(),
            ..error_of(&Refusal::new(ErrorCode::ApprovalPending, ""))
        };
        assert_eq!(in_batch(own).remediation, "Bring a token.");
    }
}
