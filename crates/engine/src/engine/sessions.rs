//! Sessions, as the listeners use them (EN-01).
//!
//! Owns the order of a session's calls: one after the other, so that each sees the results of those before it. Every call belongs to a run
//! and goes through the five stages. Invariant: a simulation happens in a copy of the session, whose calls it leaves as they were.

use std::{sync::Arc, time::Duration};

use placet_identity::VerifiedCaller;
use placet_ledger::refusal::internal;
use placet_types::{
    envelope::result::ResultStatus,
    error::{ErrorCode, Refusal},
    ids::{IdempotencyKey, RunId},
    run_context::RunRequest,
};
use tokio::time::Instant;

use super::{
    Engine,
    batches::{Asked, Making, refused},
    queries::usable,
    runs::open_of,
};
use crate::{
    registry::Owner,
    result::in_ms,
    runs::{
        batch::{arguments, check},
        batch_views::{Batch, BatchCall, BatchView, CallResult, Reference},
        kept::Open,
        names,
        sessions::{
            Kept, OpenSession, Session, SessionResults, SessionView, conversation, session_of,
        },
        views::{CALLS_PER_BATCH_MAX, OpenRun},
    },
    submission::Inbound,
};

impl Engine {
    /// Opens a session of the caller on this node: a run of the same id that keeps its calls.
    ///
    /// # Errors
    /// As for [`Engine::open_run`]; [`ErrorCode::ValidationError`] for namespaces that stand for nothing the caller may use.
    pub async fn open_session(
        &self,
        caller: &VerifiedCaller,
        request: OpenSession,
    ) -> Result<SessionView, Refusal> {
        let OpenSession { session_id, safety_mode, run_budget, taint, namespaces } = request;
        let session = Session::new(namespaces, &usable(&self.context, caller))?;
        let run = RunRequest {
            session_id: Some(conversation(&session_id)?),
            run_id: session_id.clone(),
            safety_mode,
            ceiling_if_new: None,
            tool_latency_ms_if_new: None,
            run_budget,
            taint,
        };
        self.open_as(caller, OpenRun::of_all(run, CALLS_PER_BATCH_MAX), Some(session)).await?;
        self.session(caller, &session_id)
    }

    /// A session of the caller, with its calls.
    ///
    /// # Errors
    /// [`placet_types::error::ErrorCode::RunNotFound`] for sessions that are not open here, or not the caller's.
    pub fn session(
        &self,
        caller: &VerifiedCaller,
        session_id: &RunId,
    ) -> Result<SessionView, Refusal> {
        let open = open_of(&self.context, caller, session_id)?;
        let mut run = open.state.lock();
        let session = session_of(run.session.as_mut())?;
        Ok(SessionView {
            session_id: session_id.clone(),
            namespaces: session.namespaces.clone(),
            calls: session.calls().collect(),
        })
    }

    /// Closes a session of the caller, or any other run it has open here; does nothing if it is not open.
    pub fn close_session(&self, caller: &VerifiedCaller, session_id: &RunId) {
        self.context.runs.close(Owner::of(&caller.chain()), session_id);
    }

    /// Makes calls in a session, one after the other, and keeps them with their results. They continue when the future is dropped.
    ///
    /// # Errors
    /// As for [`Engine::batch`].
    pub async fn execute(
        &self,
        caller: Arc<VerifiedCaller>,
        session_id: &RunId,
        batch: Batch,
        inbound: Inbound,
    ) -> Result<SessionResults, Refusal> {
        self.in_session(session_id, Asked::of(caller, batch, inbound, Making::Real)).await
    }

    /// Makes calls as [`Engine::execute`] does, but keeps nothing of them in the session. Tools that change something are not called,
    /// unless a model simulates them.
    ///
    /// # Errors
    /// As for [`Engine::batch`].
    pub async fn simulate(
        &self,
        caller: Arc<VerifiedCaller>,
        session_id: &RunId,
        mut batch: Batch,
        inbound: Inbound,
    ) -> Result<SessionResults, Refusal> {
        // A simulated call must never share the key of the real one.
        let id = format!("simulation-{}", self.context.fresh_call_id()?);
        batch.batch_id = Some(IdempotencyKey::new(id).map_err(internal)?);
        batch.calls.iter_mut().for_each(|call| call.idempotency_key = None);
        self.in_session(session_id, Asked::of(caller, batch, inbound, Making::Simulated)).await
    }

    async fn in_session(
        &self,
        session_id: &RunId,
        asked: Asked,
    ) -> Result<SessionResults, Refusal> {
        let open = open_of(&self.context, &asked.caller, session_id)?;
        session_of(open.state.lock().session.as_mut())?;
        let (session_id, original) = (session_id.clone(), Arc::clone(&open));
        let id = asked.batch.batch_id.clone();
        self.alone(&open, id, |engine, gone| async move {
            let session = match asked.making {
                Making::Real => original,
                Making::Simulated => {
                    let run = original.state.lock().clone();
                    Arc::new(Open { closed: original.closed.clone(), ..Open::new(run) })
                }
            };
            let (results, references) = engine.in_order(&session, Asked { gone, ..asked }).await?;
            Ok(SessionResults { session_id, results, references })
        })
        .await
    }

    /// Makes the calls one after the other. Returns their results and the sources that these name.
    async fn in_order(
        &self,
        open: &Open,
        asked: Asked,
    ) -> Result<(Vec<CallResult>, Vec<Reference>), Refusal> {
        check(&asked.batch.calls)?;
        check_id(asked.batch.batch_id.as_ref())?;
        self.check_control(open, &asked)?;
        let (mut results, mut references): (Vec<CallResult>, Vec<Reference>) = Default::default();
        let until = Instant::now() + Duration::from_millis(asked.batch.wait_ms.unwrap_or(0));
        for (number, call) in (0_usize..).zip(&asked.batch.calls) {
            match self.next(open, &asked, Numbered { number, call }, until).await {
                Ok(Next { result, named }) => {
                    results.push(result);
                    references.extend(named);
                }
                Err(refusal) if results.is_empty() => return Err(refusal),
                // What was made before is told all the same, and nothing after it is made.
                Err(refusal) => {
                    let left = asked.batch.calls.iter().skip(number);
                    results.extend(left.map(|call| refused(call, &refusal)));
                    break;
                }
            }
        }
        Ok((results, references))
    }

    /// Makes one call of a session, or returns what it ended with before.
    async fn next(
        &self,
        open: &Open,
        asked: &Asked,
        call: Numbered<'_>,
        until: Instant,
    ) -> Result<Next, Refusal> {
        if open.closed.is_cancelled() {
            let message = "the session was ended; this call was not made";
            return Err(Refusal::new(ErrorCode::RunNotFound, message));
        }
        let Asked { caller, batch, inbound, making, gone, .. } = asked;
        let Numbered { number, call } = call;
        let key = batch.batch_id.as_ref().map(|id| format!("{id}/{number}"));
        let args = arguments(call).unwrap_or_default();
        let (call, examples) = {
            let mut run = open.state.lock();
            let session = session_of(run.session.as_mut())?;
            let call = session.routed(call.clone());
            if let Some(ended) = session.ended(key.as_ref(), &call, &args)? {
                return Ok(Next { result: ended, named: Vec::new() });
            }
            (call, session.examples())
        };
        let written = call.name().to_owned();
        let one = Batch {
            batch_id: key.as_ref().map(IdempotencyKey::new).transpose().map_err(internal)?,
            calls: vec![call],
            wait_ms: Some(in_ms(until.saturating_duration_since(Instant::now()))),
            taint: batch.taint.clone(),
        };
        let asked = Asked {
            caller: Arc::clone(caller),
            batch: one,
            examples: examples.into(),
            inbound: inbound.clone(),
            making: *making,
            gone: gone.clone(),
        };
        let BatchView { results, references: named, .. } = self.take_turn(open, asked).await?;
        let none = || internal("a call of a session has no result");
        let result = results.into_iter().next().ok_or_else(none)?;
        if result.status != ResultStatus::Pending {
            let may_change = may_change(&result);
            let kept = Kept { key, may_change, written, args, result: result.clone() };
            session_of(open.state.lock().session.as_mut())?.keep(kept);
        }
        Ok(Next { result, named })
    }

    /// Refuses calls of which one takes control and has to be alone (TS-05).
    fn check_control(&self, open: &Open, asked: &Asked) -> Result<(), Refusal> {
        let tools = usable(&self.context, &asked.caller);
        let mut run = open.state.lock();
        let session = session_of(run.session.as_mut())?;
        let named = asked.batch.calls.iter().map(|call| session.routed(call.clone()));
        let takes_control = |call: &BatchCall| {
            let tool = names::named(&tools, call.name()).and_then(|id| tools.get(id));
            tool.is_some_and(|tool| tool.takes_control)
        };
        let name = named.filter(takes_control).map(|call| call.name().to_owned()).next();
        match name.filter(|_| asked.batch.calls.len() > 1) {
            None => Ok(()),
            Some(name) => Err(Refusal::new(
                ErrorCode::ControlConflict,
                format!("`{name}` takes control and has to be called alone; nothing was executed"),
            )),
        }
    }
}

/// A call, and its place in the request.
struct Numbered<'a> {
    number: usize,
    call: &'a BatchCall,
}

/// The result of a call, and the sources that it names.
struct Next {
    result: CallResult,
    named: Vec<Reference>,
}

/// Whether the same call may be answered otherwise when it is sent again.
fn may_change(result: &CallResult) -> bool {
    let error = result.result.as_ref().and_then(|envelope| envelope.error.as_ref());
    result.status == ResultStatus::Unknown
        || error.or(result.error.as_ref()).is_some_and(|error| error.retryable)
}

/// The longest id of a batch in a session, in bytes: each of its calls adds its place.
const BATCH_ID_BYTES_MAX: usize = 240;

fn check_id(id: Option<&IdempotencyKey>) -> Result<(), Refusal> {
    if id.is_none_or(|id| id.as_str().len() <= BATCH_ID_BYTES_MAX) {
        return Ok(());
    }
    let problem = format!("has at most {BATCH_ID_BYTES_MAX} bytes in a session");
    Err(Refusal::new(ErrorCode::ValidationError, "the id of the batch is too long")
        .with_problem("/batch_id", problem))
}
