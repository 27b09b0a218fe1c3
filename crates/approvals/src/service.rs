//! The approval service: what it has at hand, and what follows when an approval or an arrangement moves.
//!
//! Owns the index of what is pending, the events about it and the view of what is in force. Who may decide is Cedar's answer, never ours; what is kept
//! is the ledger's; what becomes of a call is the engine's ([`Calls`]). All that is held here can be read from the ledger again.

use std::{
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::time::Instant;

use placet_credentials::Broker;
use placet_identity::VerifiedCaller;
use placet_ledger::{
    approval::{ApprovalRecord, ApprovalState},
    audit::AuditEvent,
    directive::Directive,
    ledger::{Ledger, LedgerError},
    log::AuditLog,
    record::EffectRecord,
    refusal::ledger_refusal,
    store::{Durability, StoreError},
};
use placet_policy::policies::Policies;
use placet_telemetry::{metrics::Metrics, trace::Stage};
use placet_types::{
    clock::IdSource,
    directive::DirectiveKind,
    error::{ErrorCode, Refusal},
    ids::{ApprovalId, GroupId},
};

use crate::{
    calls::Calls,
    events::Events,
    node::Node,
    pending::PendingIndex,
    refusals::{not_counted, read},
    rules::{self, EffectiveRules},
    sent_calls::SentCalls,
};

/// When to ask again for what waits while it is being read, in milliseconds.
const READ_AGAIN_MS: u64 = 1_000;

/// How the approval service behaves.
#[derive(Debug, Clone)]
pub struct ApprovalSettings {
    /// The group whose people may resolve unknown outcomes.
    pub operators: GroupId,
    /// How often a node looks at what others changed, in milliseconds.
    pub fleet_every_ms: u64,
}

/// Everything the approval service is made of.
pub struct ApprovalParts {
    /// How it behaves.
    pub settings: ApprovalSettings,
    /// Where it keeps.
    pub ledger: Ledger,
    /// What decides.
    pub policies: Arc<Policies>,
    /// The node it runs on.
    pub node: Arc<Node>,
    /// Where revocations are observed.
    pub broker: Broker,
    /// The audit chain, where there is one to show.
    pub audit: Option<Arc<dyn AuditLog>>,
    /// Fresh identifiers.
    pub ids: Arc<dyn IdSource>,
    /// Where numbers go.
    pub metrics: Metrics,
}

/// The approval service of a node.
pub struct Approvals {
    pub(crate) settings: ApprovalSettings,
    pub(crate) ledger: Ledger,
    pub(crate) node: Arc<Node>,
    pub(crate) broker: Broker,
    pub(crate) audit: Option<Arc<dyn AuditLog>>,
    pub(crate) ids: Arc<dyn IdSource>,
    pub(crate) metrics: Metrics,
    calls: Weak<dyn Calls>,
    policies: ArcSwap<Policies>,
    /// What waits for people.
    pub pending: PendingIndex,
    /// What is in force.
    pub rules: EffectiveRules,
    /// Held while an entry is made, until it is in force: nobody else is counted meanwhile.
    pub(crate) entering: tokio::sync::Mutex<()>,
    pub(crate) events: Events,
    pub(crate) sent_calls: SentCalls,
    /// Whether all that waits has been read once since the start.
    is_read: AtomicBool,
    /// Whether what waits has to be decided again.
    is_outdated: AtomicBool,
    enforcing: Mutex<()>,
}

impl fmt::Debug for ApprovalParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApprovalParts").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl fmt::Debug for Approvals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Approvals").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Approvals {
    /// A service for these calls, that has read nothing yet.
    #[must_use]
    pub fn new(parts: ApprovalParts, calls: Weak<dyn Calls>) -> Self {
        Self {
            settings: parts.settings,
            ledger: parts.ledger,
            node: parts.node,
            broker: parts.broker,
            audit: parts.audit,
            ids: parts.ids,
            metrics: parts.metrics,
            calls,
            policies: ArcSwap::new(parts.policies),
            pending: PendingIndex::default(),
            rules: EffectiveRules::default(),
            entering: tokio::sync::Mutex::default(),
            events: Events::default(),
            sent_calls: SentCalls::default(),
            is_read: AtomicBool::new(false),
            is_outdated: AtomicBool::new(false),
            enforcing: Mutex::default(),
        }
    }

    /// What decides at this moment.
    #[must_use]
    pub fn policies(&self) -> Arc<Policies> {
        self.policies.load_full()
    }

    /// Decides by these from now on.
    pub fn adopt(&self, policies: Arc<Policies>) {
        self.policies.store(policies);
    }

    /// The calls, while there is an engine.
    pub(crate) fn calls(&self) -> Option<Arc<dyn Calls>> {
        self.calls.upgrade()
    }

    /// Whether the target of a held call cannot be reached now.
    pub(crate) fn is_unreachable(&self, approval: &ApprovalRecord) -> bool {
        self.calls().is_some_and(|calls| calls.is_unreachable(approval))
    }

    /// Whether a token that somebody calls with is revoked.
    pub(crate) fn is_revoked(&self, caller: &VerifiedCaller) -> bool {
        self.broker.is_caller_revoked(caller)
    }

    /// Keeps an event and says in the log when that fails; for events that nothing depends on.
    pub(crate) async fn note(&self, event: AuditEvent) {
        if let Err(error) = self.ledger.note(event, Durability::Written).await {
            self.node.noticed(&error);
            tracing::error!(%error, "an audit event could not be kept");
        }
    }

    pub(crate) async fn read_approval(
        &self,
        approval_id: &ApprovalId,
    ) -> Result<Option<ApprovalRecord>, Refusal> {
        read(self.ledger.store().approval(approval_id).await)
    }

    /// The record under the key of an approval's call, which may be of a later call.
    pub(crate) async fn read_record(
        &self,
        approval: &ApprovalRecord,
    ) -> Result<Option<EffectRecord>, Refusal> {
        read(self.ledger.store().effect(approval.record_id).await)
    }

    /// What was written; nothing where it moved on between reading and writing: how, the next look says.
    pub(crate) fn written<T>(&self, written: Result<T, LedgerError>) -> Result<Option<T>, Refusal> {
        match written {
            Ok(next) => Ok(Some(next)),
            Err(LedgerError::Store(StoreError::Conflict) | LedgerError::WrongState(_)) => Ok(None),
            Err(LedgerError::Vote(error)) => Err(not_counted(&error)),
            Err(error) => {
                self.node.noticed(&error);
                Err(ledger_refusal(&error))
            }
        }
    }

    /// Everything that waits has been read since the start.
    pub fn was_read(&self) {
        self.is_read.store(true, Ordering::SeqCst);
    }

    /// Whether everything that waits is known.
    #[must_use]
    pub fn is_read(&self) -> bool {
        self.is_read.load(Ordering::SeqCst)
    }

    /// What waits is to be decided again soon: what it was held under has changed.
    pub fn decide_again(&self) {
        self.is_outdated.store(true, Ordering::SeqCst);
    }

    /// Whether what waits has to be decided again, for anyone who does it now.
    pub fn take_outdated(&self) -> bool {
        self.is_outdated.swap(false, Ordering::SeqCst)
    }

    /// What those are told who ask for what waits before all of it was read.
    ///
    /// # Errors
    /// A [`Refusal`] that may be asked again in a moment, until then.
    pub(crate) fn must_be_read(&self) -> Result<(), Refusal> {
        if self.is_read() {
            return Ok(());
        }
        let why = "what waits for people is still being read after the start";
        Err(Refusal::new(ErrorCode::Overloaded, why).with_retry_after_ms(READ_AGAIN_MS))
    }

    /// An approval has moved, here or on another node: the index follows, and anyone who listens hears of it.
    pub fn moved(&self, approval: &ApprovalRecord) {
        if !approval.state.is_open()
            && !approval.is_consumed()
            && let Some(calls) = self.calls()
        {
            calls.over(approval);
        }
        self.sent_calls.begin(approval, false);
        let now = self.ledger.store().now();
        if let Some(kind) = self.pending.moved(approval, &self.policies().directory, now) {
            self.events.approval(kind, approval, now);
        }
    }

    /// What follows from a vote, an edit or another decision that was just recorded here.
    pub(crate) async fn decided(&self, approval: &ApprovalRecord) {
        self.moved(approval);
        match approval.state {
            ApprovalState::Approved => {
                self.count_ended("approved", approval);
                if let Some(calls) = self.calls() {
                    calls.approved(approval).await;
                }
            }
            ApprovalState::Denied | ApprovalState::Withdrawn { .. } => {
                self.count_ended(approval.state.name(), approval);
                if let Ok(Some(record)) = self.ledger.store().effect(approval.record_id).await {
                    self.tell_ended(approval, &record).await;
                }
            }
            ApprovalState::Pending
            | ApprovalState::Expired
            | ApprovalState::Void { .. }
            | ApprovalState::Consumed { .. } => {}
        }
    }

    /// An approval came to nothing here: its record was as `record` says until then.
    pub async fn ended(&self, approval: &ApprovalRecord, record: &EffectRecord) {
        self.moved(approval);
        self.count_ended(approval.state.name(), approval);
        self.tell_ended(approval, record).await;
    }

    async fn tell_ended(&self, approval: &ApprovalRecord, record: &EffectRecord) {
        if let Some(calls) = self.calls() {
            calls.ended(approval, record).await;
        }
    }

    /// Counts that people have agreed, or that an approval has ended without that.
    pub fn count_ended(&self, result: &'static str, approval: &ApprovalRecord) {
        let waited_ms = self.ledger.store().now().since_ms(approval.created_at);
        let waited = Duration::from_millis(u64::try_from(waited_ms).unwrap_or(0));
        self.metrics.record_approval(result, waited);
        self.metrics.record_stage(Stage::Approval, waited);
    }

    /// Reports how many approvals wait.
    pub fn count_pending(&self) {
        self.metrics.set_approvals_pending(self.pending.pending());
    }

    /// An entry was made or has moved here: what is in force is read again.
    pub(crate) async fn arranged(&self, entry: Directive) {
        let told = self.read_again().await;
        if entry.kind() == DirectiveKind::Revocation {
            // Also where what is in force could not be read again.
            self.enforce(Some(&entry));
        }
        // One that is over from the beginning, or that nobody could read, is news all the same.
        if !told.iter().any(|one| one.directive_id == entry.directive_id) {
            self.events.entry(&Arc::new(entry), self.ledger.store().now());
        }
    }

    /// Reads what is in force, before anything is taken in.
    ///
    /// # Errors
    /// [`LedgerError`] when it cannot be read.
    pub async fn load(&self) -> Result<(), LedgerError> {
        self.rules.renew(self.ledger.store(), |_| false).await?;
        self.observe();
        Ok(())
    }

    /// Reads what is in force again, where it may have changed.
    pub async fn follow(&self) {
        self.read_again().await;
    }

    async fn read_again(&self) -> Vec<Arc<Directive>> {
        // A reading that began after this was asked for is enough: after a freeze many calls ask at once.
        let asked = Instant::now();
        self.renew(|rules| rules.read_at().is_some_and(|began| began >= asked)).await
    }

    /// Makes sure that what is in force is known: a freeze or an end that was acknowledged elsewhere counts here. Waits for that no longer
    /// than `patience`, no matter who reads it.
    ///
    /// # Errors
    /// A [`Refusal`] that may pass, when it cannot be read.
    pub async fn must_be_current(self: &Arc<Self>, patience: Duration) -> Result<(), Refusal> {
        if self.are_rules_current() {
            return Ok(());
        }
        // In a task of its own: anyone who runs out of patience takes nobody else's reading with them.
        let owner = Arc::clone(self);
        let caught_up =
            tokio::spawn(async move { owner.renew(|_| owner.are_rules_current()).await });
        if let Ok(Err(error)) = tokio::time::timeout(patience, caught_up).await {
            tracing::error!(%error, "reading freezes, grants and revocations failed");
        }
        if self.are_rules_current() {
            return Ok(());
        }
        let why = "freezes, grants and revocations cannot be read now; nothing was executed";
        Err(Refusal::new(ErrorCode::LedgerUnavailable, why).with_retry_after_ms(READ_AGAIN_MS))
    }

    fn are_rules_current(&self) -> bool {
        let round = Duration::from_millis(self.settings.fleet_every_ms);
        self.rules.is_current(self.ledger.store(), round)
    }

    async fn renew(&self, is_enough: impl FnOnce(&EffectiveRules) -> bool) -> Vec<Arc<Directive>> {
        match self.rules.renew(self.ledger.store(), is_enough).await {
            Ok(changed) => {
                let now = self.ledger.store().now();
                self.metrics.set_reviews_due(self.rules.open().reviews_due(now).count());
                if changed.iter().any(|entry| rules::is_ended_freeze(entry, now)) {
                    self.decide_again();
                }
                self.observe();
                for entry in &changed {
                    self.events.entry(entry, now);
                }
                changed
            }
            Err(error) => {
                tracing::warn!(%error, "freezes, grants and revocations could not be read");
                self.node.noticed(&error.into());
                Vec::new()
            }
        }
    }

    /// What was read counts from here on.
    fn observe(&self) {
        let read = self.rules.open();
        self.enforce(None);
        self.rules.is_observed(&read);
    }

    /// Has the revocations that are in force, and `another` if it is, observed from now on, and drops what they are about.
    fn enforce(&self, another: Option<&Directive>) {
        // One at a time, so that what was read before never replaces what was read after it.
        let _one_at_a_time = self.enforcing.lock();
        let now = self.ledger.store().now();
        let mut revoked = self.rules.open().revocations(now);
        revoked.extend(another.and_then(|entry| rules::revoked(entry, now)));
        // Looked at every second: what is kept is gone through only where something is new.
        if let Some(dropped) = self.broker.enforce(revoked) {
            if let Some(calls) = self.calls() {
                calls.revoked();
            }
            tracing::warn!(
                dropped,
                "tokens of further subjects are revoked; what was minted for them is dropped"
            );
        }
        self.metrics.set_subjects_revoked(self.broker.counts().revoked);
    }
}
