//! `Engine`: the handle that the listeners and the command line use.
//!
//! Owns start and stop, and the admission of calls. What else can be asked is in the modules below, by subject.

mod activation;
pub(crate) mod assembly;
mod authentication;
mod batches;
mod decisions;
pub mod evidence;
mod fault_injection;
mod operator;
mod queries;
mod runs;
mod sessions;

use std::{fmt, sync::Arc, time::Duration};

use placet_approvals::service::Approvals;
use placet_credentials::Broker;
use placet_identity::{Secrets, VerifiedCaller, Verifier};
use placet_ledger::{
    audit::{AuditEvent, AuditKind},
    ledger::{Ledger, LedgerError},
    policies::{Activation, ReplacedPolicies},
    store::{Durability, StoreError},
};
use placet_policy::snapshot::Snapshot;
use placet_store::notary::Notary;
use placet_telemetry::{
    metrics::Metrics,
    trace::{CallFields, call_span},
    traceparent::TraceParent,
};
use placet_types::{
    clock::{Clock, IdSource},
    contract::Contract,
    digest::Digest,
    directory::Directory,
    error::{ErrorCode, Refusal},
};
use tokio::sync::watch;

pub use crate::adapters::assembly::Connectors;
use crate::{
    active::Active,
    actors::{root, tree::Tree},
    adapters::ports::Connection,
    attempts::Attempt,
    call::{Call, InBatch, Planned},
    context::{Context, ending_refusal},
    policies::{self, Next},
    recovery,
    registry::Owner,
    reload::Files,
    responder::Responder,
    result::Subject,
    settings::Settings,
    submission::{Inbound, Submission},
    ticket::Ticket,
};

/// How long a stop waits for calls in flight.
const DRAIN: Duration = Duration::from_secs(20);

/// Everything an engine is made of.
#[derive(Debug)]
pub struct EngineParts {
    /// The settings of the pipeline.
    pub settings: Settings,
    /// The ledger.
    pub ledger: Ledger,
    /// The verifier of tokens.
    pub verifier: Verifier,
    /// Static secrets for outbound calls.
    pub secrets: Arc<Secrets>,
    /// The broker that mints credentials for outbound calls.
    pub broker: Broker,
    /// The contracts of the environment.
    pub contracts: Vec<Arc<Contract>>,
    /// The directory.
    pub directory: Arc<Directory>,
    /// The policies, compiled for these contracts and this directory.
    pub policies: Arc<Snapshot>,
    /// The connectors to adapters.
    pub connectors: Connectors,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The source of fresh identifiers.
    pub ids: Arc<dyn IdSource>,
    /// The metrics.
    pub metrics: Metrics,
    /// Signs receipts and checkpoints; without it there are none.
    pub notary: Option<Arc<Notary>>,
    /// The digest of what the configuration says about issuers.
    pub issuers: Digest,
    /// What a reload reads; without it nothing can be reloaded.
    pub files: Option<Arc<dyn Files>>,
}

/// Why an engine does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// They were active before and were replaced by a later activation: this node was left behind with old files.
    #[error("what this node has was active before and is not brought back by a start: {0}")]
    Replaced(Box<ReplacedPolicies>),
    /// The ledger cannot be written.
    #[error("the ledger cannot be used: {0}")]
    Ledger(String),
    /// The actors do not come up.
    #[error("the actors do not come up: {0}")]
    Actors(String),
}

impl StartError {
    fn of_activation(error: LedgerError) -> Self {
        if let LedgerError::Store(StoreError::PoliciesReplaced(replaced)) = error {
            return Self::Replaced(replaced);
        }
        Self::Ledger(error.to_string())
    }
}

/// A running engine; cheap to clone.
#[derive(Clone)]
pub struct Engine {
    context: Arc<Context>,
    tree: Arc<Tree>,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("tree", &self.tree).finish_non_exhaustive()
    }
}

impl Engine {
    /// Starts an engine: policies activated, open records recovered, actors up.
    ///
    /// # Errors
    /// [`StartError`]; nothing runs then.
    pub async fn start(parts: EngineParts) -> Result<Self, StartError> {
        let bundle_digest = parts.policies.digest();
        let context = assembly::context_of(parts);
        let kept = |error: &dyn fmt::Display| StartError::Ledger(error.to_string());
        let by = Activation::Start { rolls_back: context.settings.ledger.rolls_back };
        let active = Active::clone(&context.current.active());
        let first = Next { active, issuers: None, by, note: None };
        policies::activate(&context, first).await.map_err(StartError::of_activation)?;
        let mut event = AuditEvent::new(AuditKind::Started);
        event.digests.insert("bundle".to_owned(), bundle_digest);
        for contract in context.current.active().catalog.contracts() {
            event.digests.insert(format!("contract:{}", contract.adapter), contract.digest);
        }
        context.ledger.note(event, Durability::Synced).await.map_err(|error| kept(&error))?;
        // Before any call is admitted: revocations stay in force over a restart.
        context.approvals.load().await.map_err(|error| kept(&error))?;
        let adopted = recovery::adopt_orphans(&context.ledger).await;
        if let Some(error) = adopted.failed {
            // The adopted calls belong to this epoch, which ends with this process: the next start adopts them again.
            return Err(kept(&error));
        }
        let tree = Arc::new(Tree::default());
        root::start(&context, &tree)
            .await
            .map_err(|error| StartError::Actors(error.to_string()))?;
        let recovered = recovery::recover(&context, adopted.records).await;
        if recovered.unknown > 0 || recovered.queued > 0 {
            let (unknown, queued) = (recovered.unknown, recovered.queued);
            tracing::warn!(
                unknown,
                queued,
                "calls were under way when the process ended; `placet ledger list --state indeterminate` shows those with an unknown outcome"
            );
            let mut event = AuditEvent::new(AuditKind::Started);
            event.note = Some(format!(
                "of the calls under way, {unknown} have an unknown outcome and {queued} are asked about or sent again"
            ));
            context.note(event).await;
        }
        Ok(Self { context, tree })
    }

    /// The approval service of this node.
    pub fn approvals(&self) -> &Arc<Approvals> {
        &self.context.approvals
    }

    /// Admits a call. It runs to its end whether or not a caller waits.
    ///
    /// # Errors
    /// [`ErrorCode::Overloaded`] when nothing more is admitted; [`ErrorCode::RateLimited`] after too many refused calls.
    pub fn submit(
        &self,
        caller: impl Into<Arc<VerifiedCaller>>,
        submission: Submission,
        inbound: Inbound,
    ) -> Result<Ticket, Refusal> {
        self.take_in(caller.into(), submission, inbound, None)
    }

    /// The same, also for a call of a batch, with the run's history.
    fn take_in(
        &self,
        caller: Arc<VerifiedCaller>,
        submission: Submission,
        inbound: Inbound,
        batch: Option<Box<InBatch>>,
    ) -> Result<Ticket, Refusal> {
        let context = &self.context;
        if context.node.is_ending() {
            return Err(ending_refusal());
        }
        let places = context.callers.admission.admit(&caller.chain().actor);
        let places = places.inspect_err(|refusal| {
            if refusal.code == ErrorCode::RateLimited {
                self.attempted(&caller, Attempt::Refused);
            }
        })?;
        let call_id = context.fresh_call_id()?;
        let parent = inbound.traceparent.as_deref().and_then(TraceParent::parse);
        let fields = CallFields {
            tenant: Some(caller.tenant().as_str()),
            run_id: Some(submission.run.run_id.as_str()),
            tool_call_id: Some(call_id.as_str()),
            tool: None,
        };
        let span = call_span(parent.as_ref(), inbound.tracestate.as_deref(), &fields);
        let owner = Owner::of(&caller.chain());
        let now = context.ledger.store().now();
        let subject = Subject::of_submission(call_id.clone(), &submission, now);
        let responder = Responder::new(Arc::clone(&context.callers), subject, span)
            .admitted(places)
            .attaches_for(submission.wait_ms);
        let told = responder.subject.clone().in_progress();
        let progress = context.registry.enter(&call_id, owner.clone(), told);
        let stage = Planned { submission, caller, batch };
        context.routes.build(Call::new(Box::new(responder), stage));
        Ok(Ticket::new(Arc::clone(&context.outcomes), call_id, owner, progress))
    }

    /// Notifies when callers' tools may have changed: with the policies, contracts and directory. Nothing else changes them.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.context.current.changes()
    }

    /// The metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.context.metrics
    }

    /// How many calls have come since the start, and how many are under way or wait for people.
    pub fn use_made(&self) -> (u64, usize) {
        let registry = &self.context.registry;
        let waiting = self.context.approvals.pending.pending();
        (registry.begun(), registry.in_flight().saturating_add(waiting))
    }

    /// Resolves with the reason when the engine cannot continue: the process must end.
    pub async fn stopped(&self) -> String {
        self.context.node.died().await
    }

    /// Ends the engine because of an outside failure, such as that of the ledger's writer: the process must end.
    pub fn die(&self, reason: &str) {
        self.context.node.die(reason);
    }

    /// Sends no more calls; call it as soon as the process is asked to stop. What is with an adapter runs to its end and its callers are
    /// answered; approved and re-armed calls wait for the next start, and all other calls on their way are refused as not executed.
    pub fn begin_stop(&self) {
        self.context.node.end();
    }

    /// Admits no more calls, waits for those in flight, and closes the ledger. What does not end in time is recovered at the next start.
    pub async fn shutdown(&self) {
        self.begin_stop();
        self.context.node.stop();
        self.context.callers.admission.close();
        if !self.context.registry.drain(DRAIN).await {
            tracing::warn!(
                calls = self.context.registry.in_flight(),
                "calls were still under way at the stop"
            );
        }
        for port in self.context.current.active().ports.all() {
            if let Connection::Up(adapter) = port.connection() {
                adapter.close().await;
            }
        }
        self.tree.stop();
        authentication::write_attempts(&self.context).await;
        if let Err(error) = self.context.ledger.store().close().await {
            tracing::error!(%error, "the ledger did not close cleanly; the next start recovers");
        }
    }
}
