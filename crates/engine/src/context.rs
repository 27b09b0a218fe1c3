//! What every stage has at hand: the ledger, the active policies, the catalog, identity, waiters.
//!
//! Owns nothing but the bundle of handles, and what happens to a call whose stage died. No actor references in here: stages
//! reach each other through [`crate::actors::routes::Routes`].

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use parking_lot::Mutex;

use arc_swap::ArcSwap;
use tokio::sync::{Semaphore, watch};

use placet_approvals::{node::Node, service::Approvals};
use placet_credentials::Broker;
use placet_identity::{Secrets, VerifiedCaller, VerifiedToken, Verifier};
use placet_ledger::{
    audit::{AuditEvent, AuditKind},
    ledger::{Ledger, LedgerError},
    record::{EffectRecord, EffectState},
    refusal::{internal, lookup_refusal},
    store::Durability,
};
use placet_policy::snapshot::Snapshot;
use placet_store::notary::Notary;
use placet_types::{
    clock::{Clock, IdSource},
    error::{ErrorCode, Execution, Refusal},
    ids::{ApprovalId, CapabilityId, DecisionId, GroupId, RecordId, ToolCallId},
    mode::EngineMode,
    principal::PrincipalChain,
};

use crate::{
    active::{Active, Disk},
    actors::routes::Routes,
    adapters::known_secrets::KnownSecrets,
    admission::Admission,
    answer::Answer,
    attempts::Attempts,
    credential_faults::CredentialFaults,
    engine::Connectors,
    fleet,
    in_flight::InFlight,
    metrics::EngineMetrics,
    rearm::Rearming,
    recovery::asking::Asked,
    registry::{Owner, Registry},
    reload::Files,
    resume::Resuming,
    retention::Swept,
    settings::Settings,
    stages::{recorded, result::Subject},
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
    pub(crate) registry: Registry,
    pub(crate) admission: Admission,
    pub(crate) handed: KnownSecrets,
    pub(crate) routes: Routes,
    pub(crate) approvals: Arc<Approvals>,
    pub(crate) resuming: Resuming,
    pub(crate) hands: InFlight,
    pub(crate) rearming: Rearming,
    pub(crate) surfaces: Surfaces,
    pub(crate) node: Arc<Node>,
    pub(crate) promotions: tokio::sync::Mutex<()>,
    pub(crate) late: Arc<Semaphore>,
    pub(crate) asked: Asked,
    pub(crate) notary: Option<Arc<Notary>>,
    pub(crate) credential_faults: CredentialFaults,
    pub(crate) attempts: Attempts,
    pub(crate) swept: Swept,
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
        self.registry.watch(&record.call_id, owner, record.record_id, recorded::in_progress(record))
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

    /// Answers for a call whose stage died: with what the ledger knows to be true.
    pub(crate) fn abandoned(self: &Arc<Self>, call: Abandoned) {
        let context = Arc::clone(self);
        self.registry.spawn(async move {
            let answer = context.answer_for_abandoned(&call).await;
            context.registry.publish(&call.subject.call_id, answer);
        });
    }

    async fn answer_for_abandoned(self: &Arc<Self>, call: &Abandoned) -> Answer {
        let call_id = &call.subject.call_id;
        let refused =
            |refusal: Refusal| call.subject.clone().refused(refusal, self.ledger.store().now());
        let fault = || {
            Refusal::new(
                ErrorCode::Internal,
                "a part of the engine failed while it held this call; nothing was executed",
            )
        };
        let Some(record_id) = call.record_id else {
            return refused(if call.sent { lost_read() } else { fault() });
        };
        match self.ledger.store().effect(record_id).await {
            Ok(None) => refused(fault()),
            Ok(Some(record)) if record.call_id != *call_id => refused(fault()),
            Ok(Some(record)) => match &record.state {
                EffectState::Claimed { .. } => {
                    self.release_abandoned(&record).await;
                    refused(fault())
                }
                EffectState::Dispatched(_) if !fleet::is_ours(self, &record) => {
                    drop(self.watch(&record));
                    recorded::answer(self, &record, false).await
                }
                EffectState::Dispatched(_) => {
                    recorded::give_up(
                        self,
                        &record,
                        "a part of the engine failed while the call was under way",
                    )
                    .await
                }
                EffectState::PendingApproval { approval_id, .. } => {
                    self.routes.approval_asked(approval_id);
                    recorded::answer(self, &record, false).await
                }
                EffectState::Rearmed { .. } => {
                    // The keeper takes it up again.
                    recorded::answer(self, &record, false).await
                }
                EffectState::Approved { approval_id, .. } => {
                    // Nobody else takes it up again.
                    self.routes.retry_later(approval_id);
                    recorded::answer(self, &record, false).await
                }
                EffectState::Succeeded { .. }
                | EffectState::FailedFinal { .. }
                | EffectState::FailedRetriable { .. }
                | EffectState::Indeterminate { .. }
                | EffectState::Tombstone { .. }
                | EffectState::Denied { .. } => recorded::answer(self, &record, false).await,
            },
            Err(error) => refused(lookup_refusal(&error)),
        }
    }

    async fn release_abandoned(&self, record: &EffectRecord) {
        let mut event = AuditEvent::new(AuditKind::Refused);
        event.tenant = Some(record.scope.tenant.clone());
        event.call_id = Some(record.call_id.clone());
        event.capability = Some(record.scope.capability.clone());
        event.record_id = Some(record.record_id);
        event.code = Some(ErrorCode::Internal);
        if let Err(error) = self.ledger.release(record.record_id, event).await {
            tracing::error!(%error, "the release of an abandoned claim could not be kept");
        }
    }
}

/// A call whose stage died while it held it.
#[derive(Debug)]
pub(crate) struct Abandoned {
    pub(crate) subject: Subject,
    pub(crate) record_id: Option<RecordId>,
    /// Whether it has no record and was with its adapter.
    pub(crate) sent: bool,
}

fn lost_read() -> Refusal {
    Refusal::new(
        ErrorCode::Internal,
        "a part of the engine failed after the tool was asked; its answer is lost, and the call changed nothing",
    )
    .with_execution(Execution::Unknown)
}

/// Surfaces already computed, for the active policies.
#[derive(Debug, Default)]
pub(crate) struct Surfaces {
    known: Mutex<HashMap<SurfaceKey, (u64, Surface)>>,
}

type SurfaceKey = (PrincipalChain, BTreeSet<GroupId>);
type Surface = Arc<BTreeSet<CapabilityId>>;

/// How many surfaces are remembered; beyond that they are computed again.
const SURFACES_MAX: usize = 10_000;

impl Surfaces {
    fn of(
        &self,
        chain: PrincipalChain,
        groups: BTreeSet<GroupId>,
        snapshot: &Snapshot,
    ) -> Arc<BTreeSet<CapabilityId>> {
        let key = (chain, groups);
        let lock = || self.known.lock();
        if let Some((epoch, surface)) = lock().get(&key)
            && *epoch == snapshot.epoch()
        {
            return Arc::clone(surface);
        }
        let surface = Arc::new(snapshot.surface(&key.0, &key.1));
        let mut known = lock();
        if known.len() >= SURFACES_MAX {
            known.clear();
        }
        known.insert(key, (snapshot.epoch(), Arc::clone(&surface)));
        surface
    }

    pub(crate) fn clear(&self) {
        self.known.lock().clear();
    }
}

/// A refusal because the process was asked to stop.
pub(crate) fn ending_refusal() -> Refusal {
    Refusal::new(ErrorCode::Overloaded, "the engine is stopping; nothing was executed")
        .with_retry_after_ms(1_000)
}
