//! What every stage has at hand: the ledger, the active policies, the catalog, identity, waiters.
//!
//! Owns nothing but the bundle of handles, and what happens to a call whose stage died. No actor references in here: stages
//! reach each other through [`crate::routes::Routes`].

use std::{collections::BTreeSet, sync::Arc};

use parking_lot::Mutex;

use arc_swap::ArcSwap;
use tokio::sync::{Semaphore, watch};

use placet_approvals::{node::Node, service::Approvals};
use placet_credentials::Broker;
use placet_identity::{Secrets, VerifiedCaller, VerifiedToken, Verifier};
use placet_ledger::{
    audit::AuditEvent,
    ledger::{Ledger, LedgerError},
    record::EffectRecord,
    refusal::internal,
    store::Durability,
};
use placet_store::notary::Notary;
use placet_types::{
    clock::{Clock, IdSource},
    error::{ErrorCode, Refusal},
    ids::{ApprovalId, CapabilityId, DecisionId, ToolCallId},
    mode::EngineMode,
};

use crate::{
    active::{Active, Disk, Surfaces},
    adapters::{assembly::Connectors, known_secrets::KnownSecrets},
    answer::Answer,
    attempts::Attempts,
    credential_faults::CredentialFaults,
    in_flight::Resuming,
    metrics::EngineMetrics,
    registry::{Owner, Registry},
    reload::Files,
    responder::Callers,
    result::Subject,
    rounds::Rounds,
    routes::Routes,
    settings::Settings,
    tokens::Tokens,
};

/// The handles of a running engine.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) settings: Settings,
    pub(crate) ledger: Ledger,
    pub(crate) verifier: Verifier,
    pub(crate) secrets: Arc<Secrets>,
    pub(crate) broker: Broker,
    pub(crate) tokens: Tokens,
    pub(crate) connectors: Connectors,
    pub(crate) files: Option<Arc<dyn Files>>,
    pub(crate) disk: Disk,
    pub(crate) active: ArcSwap<Active>,
    pub(crate) engine_mode: Mutex<EngineMode>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<dyn IdSource>,
    pub(crate) metrics: EngineMetrics,
    pub(crate) registry: Arc<Registry>,
    pub(crate) callers: Arc<Callers>,
    pub(crate) handed: KnownSecrets,
    pub(crate) routes: Routes,
    pub(crate) approvals: Arc<Approvals>,
    pub(crate) resuming: Resuming,
    pub(crate) surfaces: Surfaces,
    pub(crate) node: Arc<Node>,
    pub(crate) promotions: tokio::sync::Mutex<()>,
    pub(crate) late: Arc<Semaphore>,
    pub(crate) rounds: Rounds,
    pub(crate) notary: Option<Arc<Notary>>,
    pub(crate) credential_faults: CredentialFaults,
    pub(crate) attempts: Attempts,
    /// Told where further revocations are in force.
    pub(crate) revoking: watch::Sender<()>,
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

    /// What is active at this moment. A call takes it once, when it is built.
    pub(crate) fn active(&self) -> Arc<Active> {
        self.active.load_full()
    }

    /// Whether this is what is active at this moment.
    pub(crate) fn is_active(&self, active: &Arc<Active>) -> bool {
        Arc::ptr_eq(active, &*self.active.load())
    }

    /// The engine's mode.
    pub(crate) fn engine_mode(&self) -> EngineMode {
        *self.engine_mode.lock()
    }

    /// Whether nothing is sent any more, since somebody asked the process to stop. What is under way goes on to its end.
    pub(crate) fn is_ending(&self) -> bool {
        self.node.is_ending()
    }

    /// Whether the engine is being stopped: what still goes on by itself ends.
    pub(crate) fn stopping(&self) -> bool {
        self.node.is_stopping()
    }

    /// Draws what follows from a failure of the ledger, for this node as a whole.
    pub(crate) fn noticed(&self, error: &LedgerError) {
        self.node.noticed(error);
    }

    /// Whether a token that somebody calls with is revoked.
    pub(crate) fn is_revoked(&self, caller: &VerifiedCaller) -> bool {
        self.broker.is_caller_revoked(caller)
    }

    /// Whether the call of this record may move on another node, or nobody here tells its waiters.
    pub(crate) fn watch(&self, record: &EffectRecord) -> watch::Receiver<Answer> {
        let owner = Owner::of_scope(&record.scope);
        self.registry.watch(
            &record.call_id,
            owner,
            record.record_id,
            Subject::of_record(record, None).in_progress(),
        )
    }

    /// The tools that some circumstance could let `caller` call.
    pub(crate) fn surface(
        &self,
        active: &Active,
        caller: &VerifiedCaller,
    ) -> Arc<BTreeSet<CapabilityId>> {
        let groups =
            caller.delegation.as_ref().map(VerifiedToken::groups).cloned().unwrap_or_default();
        self.surfaces.of(caller.chain(), groups, &active.policy)
    }

    /// Ends the process: what is recorded is taken up by the next start.
    pub(crate) fn die(&self, reason: impl Into<String>) {
        self.node.die(reason);
    }

    /// Keeps an event and says in the log when that fails; for events that nothing depends on.
    pub(crate) async fn note(&self, event: AuditEvent) {
        if let Err(error) = self.ledger.note(event, Durability::Written).await {
            self.noticed(&error);
            tracing::error!(%error, "an audit event could not be kept");
        }
    }
}

/// A refusal because the process was asked to stop.
pub(crate) fn ending_refusal() -> Refusal {
    Refusal::new(ErrorCode::Overloaded, "the engine is stopping; nothing was executed")
        .with_retry_after_ms(1_000)
}
