//! Sessions, as the listeners use them (EN-01).
//!
//! Owns the order of a session's calls: one after the other, so that each sees the results of those before it. Every call belongs to a run
//! and goes through the five stages. Invariant: a simulation happens in a copy of the session and leaves nothing behind.

use std::sync::Arc;

use parking_lot::Mutex;
use placet_identity::VerifiedCaller;
use placet_ledger::refusal::internal;
use placet_types::{
    envelope::result::ResultStatus,
    error::Refusal,
    ids::{IdempotencyKey, RunId},
    run_context::RunRequest,
};

use super::{
    Engine,
    batches::{Asked, Making},
    runs::open_of,
};
use crate::{
    registry::Owner,
    runs::{
        batch::{arguments, check},
        batch_views::{Batch, BatchView, CallResult, Reference},
        kept::Open,
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
    /// As for [`Engine::open_run`].
    pub async fn open_session(
        &self,
        caller: &VerifiedCaller,
        request: OpenSession,
    ) -> Result<SessionView, Refusal> {
        let OpenSession { session_id, safety_mode, run_budget, taint, namespaces } = request;
        let session = Session::new(namespaces)?;
        let run = RunRequest {
            session_id: Some(conversation(&session_id)?),
            run_id: session_id.clone(),
            safety_mode,
            ceiling_if_new: None,
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
        self.alone(&open, |engine, gone| async move {
            let session = match asked.making {
                Making::Real => original,
                Making::Simulated => {
                    let state = Mutex::new(original.state.lock().clone());
                    Arc::new(Open { state, turn: Arc::default() })
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
        let Asked { caller, batch, inbound, making, gone, .. } = asked;
        check(&batch.calls)?;
        let (mut results, mut references) = (Vec::new(), Vec::new());
        for (place, call) in (0_usize..).zip(batch.calls) {
            let key = batch.batch_id.as_ref().map(|id| format!("{id}/{place}"));
            let args = arguments(&call).unwrap_or_default();
            let (call, examples) = {
                let mut run = open.state.lock();
                let session = session_of(run.session.as_mut())?;
                let call = session.routed(call);
                if let Some(ended) = session.ended(key.as_ref(), &call, &args)? {
                    results.push(ended);
                    continue;
                }
                (call, session.examples())
            };
            let one = Batch {
                batch_id: key.as_ref().map(IdempotencyKey::new).transpose().map_err(internal)?,
                calls: vec![call],
                wait_ms: batch.wait_ms,
                taint: batch.taint.clone(),
            };
            let asked = Asked {
                caller: Arc::clone(&caller),
                batch: one,
                examples: examples.into(),
                inbound: inbound.clone(),
                making,
                gone: gone.clone(),
            };
            let BatchView { results: made, references: named, .. } =
                self.take_turn(open, asked).await?;
            for result in made {
                if result.status != ResultStatus::Pending {
                    let kept =
                        Kept { key: key.clone(), args: args.clone(), result: result.clone() };
                    session_of(open.state.lock().session.as_mut())?.keep(kept);
                }
                results.push(result);
            }
            references.extend(named);
        }
        Ok((results, references))
    }
}
