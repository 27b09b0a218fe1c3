//! What the parts of a node that process calls share: the handles for outcomes, credentials and routes.
//!
//! Owns nothing but the bundle of handles. No actor references in here: stages reach each other through [`crate::routes::Routes`]. What
//! only reports or keeps outcomes takes [`Outcomes`], what only makes credentials takes [`Credentials`].

use std::{ops::Deref, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::watch;

use placet_identity::Verifier;
use placet_ledger::refusal::internal;
use placet_store::notary::Notary;
use placet_types::{
    clock::IdSource,
    error::{ErrorCode, Refusal},
    ids::{ApprovalId, DecisionId, ToolCallId},
};

use crate::{
    adapters::assembly::Connectors, attempts::Attempts, credentials::Credentials,
    outcome::Outcomes, reload::Files, rounds::Rounds, routes::Routes, runs::kept::Runs,
    settings::Settings,
};

/// The handles of a running engine.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) outcomes: Arc<Outcomes>,
    pub(crate) credentials: Credentials,
    pub(crate) settings: Settings,
    pub(crate) verifier: Verifier,
    pub(crate) connectors: Connectors,
    pub(crate) files: Option<Arc<dyn Files>>,
    /// The configuration keys that had changed at the last reload, and take effect only after a restart.
    pub(crate) needs_restart: Mutex<Vec<String>>,
    pub(crate) ids: Arc<dyn IdSource>,
    pub(crate) routes: Routes,
    pub(crate) rounds: Rounds,
    pub(crate) notary: Option<Arc<Notary>>,
    pub(crate) attempts: Attempts,
    pub(crate) runs: Runs,
    /// Notified when further revocations are in force.
    pub(crate) revoking: watch::Sender<()>,
}

impl Deref for Context {
    type Target = Outcomes;

    fn deref(&self) -> &Outcomes {
        &self.outcomes
    }
}

impl Context {
    /// A fresh call id.
    pub(crate) fn fresh_call_id(&self) -> Result<ToolCallId, Refusal> {
        ToolCallId::new(format!("call_{}", self.ids.fresh())).map_err(internal)
    }

    /// A fresh decision id.
    pub(crate) fn fresh_decision_id(&self) -> Result<DecisionId, Refusal> {
        DecisionId::new(format!("dec_{}", self.ids.fresh())).map_err(internal)
    }

    /// A fresh approval id.
    pub(crate) fn fresh_approval_id(&self) -> Result<ApprovalId, Refusal> {
        ApprovalId::new(format!("apr_{}", self.ids.fresh())).map_err(internal)
    }
}

/// A refusal because the process was asked to stop.
pub(crate) fn ending_refusal() -> Refusal {
    Refusal::new(ErrorCode::Overloaded, "the engine is stopping; nothing was executed")
        .with_retry_after_ms(1_000)
}
