//! Runs, as the listeners use them.
//!
//! Owns the way from a caller to its open run. What a run may use up is fixed in the ledger, as a first call would fix it.

use std::sync::Arc;

use placet_identity::VerifiedCaller;
use placet_ledger::{
    refusal::lookup_refusal,
    run::{RunKey, RunRecord},
};
use placet_types::{error::Refusal, ids::RunId};

use super::{Engine, queries::usable};
use crate::{
    context::Context,
    registry::Owner,
    result::in_ms,
    runs::{
        batch_views::{BatchDebug, OpenRunView, OpenRuns},
        definitions::{self, choice_as, forced_as},
        kept::{Listed, Open},
        offer::Tool,
        sessions::Session,
        state::Run,
        views::{OpenRun, RunTools, RunView, ToolsChange, ToolsChanged, ToolsFormat},
    },
    sight::Sight,
    stages::{build, run},
};

/// The most runs that are listed.
const LISTED_MAX: usize = 200;

impl Engine {
    /// Opens a run of the caller on this node.
    ///
    /// # Errors
    /// [`placet_types::error::ErrorCode::RunTaken`] where one of this name is open; [`placet_types::error::ErrorCode::ToolNotFound`] for tools that are not the
    /// caller's; [`placet_types::error::ErrorCode::ValidationError`] where it was opened with another ceiling or budget before.
    pub async fn open_run(
        &self,
        caller: &VerifiedCaller,
        request: OpenRun,
    ) -> Result<RunView, Refusal> {
        let run_id = request.run.run_id.clone();
        self.open_as(caller, request, None).await?;
        self.run(caller, &run_id).await
    }

    /// Opens a run, with or without a session.
    pub(super) async fn open_as(
        &self,
        caller: &VerifiedCaller,
        request: OpenRun,
        session: Option<Session>,
    ) -> Result<(), Refusal> {
        let context = &self.context;
        let owner = Owner::of(&caller.chain());
        build::check_run(&request.run)?;
        context.runs.must_be_free(&owner, &request.run.run_id)?;
        let opened = Run { session, ..Run::opened(request, &usable(context, caller))? };
        let directory = &context.current.active().directory;
        run::open_for(&context.outcomes, directory, &caller.chain(), &opened.request).await?;
        context.runs.open(owner, opened)
    }

    /// The open runs of this node that the caller may see, most recently used first: those with one id, with their batches, or all.
    ///
    /// # Errors
    /// [`placet_types::error::ErrorCode::LedgerUnavailable`] where their usage cannot be read.
    pub async fn runs(
        &self,
        caller: &VerifiedCaller,
        run_id: Option<&RunId>,
    ) -> Result<OpenRuns, Refusal> {
        let context = &self.context;
        let sight = Sight::of(context, caller);
        let mut listed = context
            .runs
            .list(|owner, id| run_id.is_none_or(|wanted| wanted == id) && sight.sees(owner));
        let more = listed.len() > LISTED_MAX;
        listed.truncate(LISTED_MAX);
        let mut runs = Vec::new();
        for one in listed {
            let key = RunKey {
                tenant: one.owner.tenant.clone(),
                agent: one.owner.actor.clone(),
                on_behalf_of: one.owner.on_behalf_of.clone(),
                run_id: one.run_id.clone(),
            };
            let known = context.ledger.store().run(&key).await;
            let known = known.map_err(|error| lookup_refusal(&error))?;
            runs.extend(known.map(|known| shown(&one, known, run_id.is_some())));
        }
        Ok(OpenRuns { runs, more })
    }

    /// The state of an open run of the caller.
    ///
    /// # Errors
    /// [`placet_types::error::ErrorCode::RunNotFound`] for runs that are not open here, or not the caller's.
    pub async fn run(&self, caller: &VerifiedCaller, run_id: &RunId) -> Result<RunView, Refusal> {
        let context = &self.context;
        let open = open_of(context, caller, run_id)?;
        let key = run::key_for(&caller.chain(), run_id);
        let known = context.ledger.store().run(&key).await;
        let known = known.map_err(|error| context.lookup_failed(error))?;
        let known = known.ok_or_else(|| {
            Refusal::new(
                placet_types::error::ErrorCode::RunNotFound,
                "the run is not kept any more",
            )
        })?;
        let known =
            run::within_classes(&context.current.active().directory, &caller.chain(), known);
        let run = open.state.lock();
        let usable = usable(context, caller);
        let offered = run.offered(&usable);
        let wanted = &run.wanted;
        Ok(RunView {
            run_id: run_id.clone(),
            agent: key.agent,
            on_behalf_of: key.on_behalf_of,
            session_id: run.request.session_id.clone(),
            safety_mode: known.safety_mode,
            run_budget: known.budget,
            calls_used: known.calls_used,
            cents_used: known.cents_used,
            taint: known.taint,
            iteration: run.iteration,
            calls_per_batch_max: run.calls_per_batch_max,
            tool_choice: choice_as(&run.choice(&offered), &usable, ToolsFormat::Plain),
            forced_tools: forced_as(&run, &offered, ToolsFormat::Plain),
            excluded_tools: wanted.excluded.iter().map(|id| id.tool_name()).collect(),
            tools: offered.values().map(Tool::name).collect(),
            evaluation_checks: run.evaluation_checks.clone(),
        })
    }

    /// What the model of a run is offered at its next turn.
    ///
    /// # Errors
    /// As for [`Engine::run`]; [`placet_types::error::ErrorCode::ValidationError`] where two tools have one name in this form.
    pub fn run_tools(
        &self,
        caller: &VerifiedCaller,
        run_id: &RunId,
        format: ToolsFormat,
    ) -> Result<RunTools, Refusal> {
        let open = open_of(&self.context, caller, run_id)?;
        let run = open.state.lock();
        definitions::of_run(&run, &usable(&self.context, caller), format)
    }

    /// Forces and excludes tools of a run: all of the change or nothing.
    ///
    /// # Errors
    /// As for [`Engine::run`]; [`placet_types::error::ErrorCode::ToolNotFound`] where a tool to be forced is not the caller's.
    pub fn change_run_tools(
        &self,
        caller: &VerifiedCaller,
        run_id: &RunId,
        change: &ToolsChange,
    ) -> Result<ToolsChanged, Refusal> {
        let open = open_of(&self.context, caller, run_id)?;
        let mut run = open.state.lock();
        let usable = usable(&self.context, caller);
        let excluded = run.change(change, &usable)?;
        let forced_tools = forced_as(&run, &run.offered(&usable), ToolsFormat::Plain);
        Ok(ToolsChanged { forced_tools, excluded })
    }
}

/// An open run with its record in the ledger.
fn shown(listed: &Listed, known: RunRecord, with_batches: bool) -> OpenRunView {
    let run = listed.run.state.lock();
    let batches = run.turns.records();
    let total = |of: fn(&BatchDebug) -> u32| {
        batches.iter().fold(0_u32, |sum, batch| sum.saturating_add(of(&batch.debug)))
    };
    OpenRunView {
        run_id: known.key.run_id,
        agent: known.key.agent,
        on_behalf_of: known.key.on_behalf_of,
        is_session: run.session.is_some(),
        iteration: run.iteration,
        calls: total(|debug| debug.made),
        pending: total(|debug| debug.pending),
        safety_mode: known.safety_mode,
        run_budget: known.budget,
        calls_used: known.calls_used,
        cents_used: known.cents_used,
        taint: known.taint,
        idle_ms: in_ms(listed.idle),
        batches: if with_batches { batches } else { Vec::new() },
    }
}

pub(super) fn open_of(
    context: &Context,
    caller: &VerifiedCaller,
    run_id: &RunId,
) -> Result<Arc<Open>, Refusal> {
    context.runs.of(&Owner::of(&caller.chain()), run_id)
}
