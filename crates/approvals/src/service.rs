//! The approval service: its dependencies, and what follows when an approval or an arrangement moves.
//!
//! Owns the index of pending approvals, their events and the view of the directives in force. Cedar decides who may decide; the ledger
//! keeps it; the engine executes calls ([`Calls`]). All that is held here can be read from the ledger again.

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

/// When to retry while pending approvals are still being read, in milliseconds.
const READ_AGAIN_MS: u64 = 1_000;

/// How the approval service behaves.
#[derive(Debug, Clone)]
pub struct ApprovalSettings {
    /// The group whose members may resolve unknown outcomes.
    pub operators: GroupId,
    /// How often a node reads what others changed, in milliseconds.
    pub fleet_every_ms: u64,
}

/// Everything the approval service is made of.
pub struct ApprovalParts {
    /// How it behaves.
    pub settings: ApprovalSettings,
    /// The ledger.
    pub ledger: Ledger,
    /// The active policies.
    pub policies: Arc<Policies>,
    /// The node it runs on.
    pub node: Arc<Node>,
    /// Enforces revocations.
    pub broker: Broker,
    /// The audit chain, where there is one to show.
    pub audit: Option<Arc<dyn AuditLog>>,
    /// Fresh identifiers.
    pub ids: Arc<dyn IdSource>,
    /// The metrics.
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
    /// The index of held calls.
    pub pending: PendingIndex,
    /// The directives in force.
    pub rules: EffectiveRules,
    /// Held while an entry is made, until it is in force: so that concurrent requests cannot exceed the limits.
    pub(crate) entering: tokio::sync::Mutex<()>,
    pub(crate) events: Events,
    pub(crate) sent_calls: SentCalls,
    /// Whether all pending approvals have been read once since the start.
    is_read: AtomicBool,
    /// Whether held calls have to be decided again.
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
    /// A service for these calls, which has read nothing yet.
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

    /// The active policies.
    pub fn policies(&self) -> Arc<Policies> {
        self.policies.load_full()
    }

    /// Uses these policies from now on.
    pub fn adopt(&self, policies: Arc<Policies>) {
        self.policies.store(policies);
    }

    /// The calls, while the engine exists.
    pub(crate) fn calls(&self) -> Option<Arc<dyn Calls>> {
        self.calls.upgrade()
    }

    /// Whether the target of a held call cannot be reached now.
    pub(crate) fn is_unreachable(&self, approval: &ApprovalRecord) -> bool {
        self.calls().is_some_and(|calls| calls.is_unreachable(approval))
    }

    /// Whether a token of the caller is revoked.
    pub(crate) fn is_revoked(&self, caller: &VerifiedCaller) -> bool {
        self.broker.is_caller_revoked(caller)
    }

    /// Records an event that nothing depends on; a failure is only logged.
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

    /// Whether an approval is not what it was when it was read.
    pub(crate) async fn has_moved(&self, approval: &ApprovalRecord) -> Result<bool, Refusal> {
        let now = self.read_approval(&approval.approval_id).await?;
        Ok(now.is_none_or(|now| now.rev != approval.rev))
    }

    /// The record under the key of an approval's call, which may be of a later call.
    pub(crate) async fn read_record(
        &self,
        approval: &ApprovalRecord,
    ) -> Result<Option<EffectRecord>, Refusal> {
        read(self.ledger.store().effect(approval.record_id).await)
    }

    /// What was written; `None` where it moved between reading and writing: read it again.
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

    /// Notes that all pending approvals have been read since the start.
    pub fn was_read(&self) {
        self.is_read.store(true, Ordering::SeqCst);
    }

    /// Whether all pending approvals have been read.
    pub fn is_read(&self) -> bool {
        self.is_read.load(Ordering::SeqCst)
    }

    /// Has held calls decided again soon: what they were held under has changed.
    pub fn decide_again(&self) {
        self.is_outdated.store(true, Ordering::SeqCst);
    }

    /// Whether held calls have to be decided again; resets it.
    pub fn take_outdated(&self) -> bool {
        self.is_outdated.swap(false, Ordering::SeqCst)
    }

    /// Refuses queries of pending approvals until all of them have been read.
    ///
    /// # Errors
    /// A transient [`Refusal`] until then.
    pub(crate) fn must_be_read(&self) -> Result<(), Refusal> {
        if self.is_read() {
            return Ok(());
        }
        let why = "what waits for people is still being read after the start";
        Err(Refusal::new(ErrorCode::Overloaded, why).with_retry_after_ms(READ_AGAIN_MS))
    }

    /// An approval has moved, here or on another node: updates the index and notifies listeners.
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

    /// Handles a vote, an edit or another decision that was just recorded here.
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

    /// An approval ended here without success; `record` is as it was before.
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

    /// Counts an approval that was approved or has ended.
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

    /// An entry was made or has moved here: reads the directives again.
    pub(crate) async fn arranged(&self, entry: Directive) {
        let told = self.read_again().await;
        if entry.kind() == DirectiveKind::Revocation {
            // Even if the directives could not be read again.
            self.enforce(Some(&entry));
        }
        // An entry that is not open from the start, or that could not be read, is an event all the same.
        if !told.iter().any(|one| one.directive_id == entry.directive_id) {
            self.events.entry(&Arc::new(entry), self.ledger.store().now());
        }
    }

    /// Reads the directives in force, before any call is admitted.
    ///
    /// # Errors
    /// [`LedgerError`] when it cannot be read.
    pub async fn load(&self) -> Result<(), LedgerError> {
        self.rules.renew(self.ledger.store(), |_| false).await?;
        self.observe();
        Ok(())
    }

    /// Reads the directives again, as they may have changed.
    pub async fn follow(&self) {
        self.read_again().await;
    }

    async fn read_again(&self) -> Vec<Arc<Directive>> {
        // A reading that began after this request is enough: after a freeze many calls ask at once.
        let asked = Instant::now();
        self.renew(|rules| rules.read_at().is_some_and(|began| began >= asked)).await
    }

    /// Makes sure that the view of the directives is current: a freeze or an end that was acknowledged on another node applies here. Waits
    /// no longer than `patience`, whichever task reads.
    ///
    /// # Errors
    /// A transient [`Refusal`] when they cannot be read.
    pub async fn must_be_current(self: &Arc<Self>, patience: Duration) -> Result<(), Refusal> {
        if self.are_rules_current() {
            return Ok(());
        }
        // In a task of its own: a caller that runs out of patience does not cancel a reading that others wait for.
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
                let why = error.to_string();
                self.node.noticed(&error.into());
                if !self.node.health().is_ledger_lost() {
                    tracing::warn!(
                        error = why,
                        "freezes, grants and revocations could not be read"
                    );
                }
                Vec::new()
            }
        }
    }

    /// Enforces the directives that were read.
    fn observe(&self) {
        let read = self.rules.open();
        self.enforce(None);
        self.rules.is_observed(&read);
    }

    /// Enforces the revocations in force, and `another` if it is one, from now on, and drops what they cover.
    fn enforce(&self, another: Option<&Directive>) {
        // One at a time, so that an older reading never replaces a newer one.
        let _one_at_a_time = self.enforcing.lock();
        let now = self.ledger.store().now();
        let mut revoked = self.rules.open().revocations(now);
        revoked.extend(another.and_then(|entry| rules::revoked(entry, now)));
        // Called every second: what is kept is searched only if there is a new revocation.
        if let Some(dropped) = self.broker.enforce(revoked) {
            if let Some(calls) = self.calls() {
                calls.revoked();
            }
            tracing::warn!(
                dropped,
                "tokens of further subjects are revoked; what was minted for them is dropped"
            );
        }
        self.metrics.set_subjects_revoked(self.broker.subjects_revoked());
    }
}
