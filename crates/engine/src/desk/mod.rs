//! The approval service: what waits for people, and what happens when they have decided.
//!
//! Owns the board of what waits, the news of it, what people arrange beside single decisions, taking up parked calls, and the ends of an
//! approval. Who may decide is Cedar's answer, never ours; what is kept is the ledger's.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use std::time::Duration;

use parking_lot::Mutex;

use placet_ledger::{
    approval::{ApprovalRecord, ApprovalState},
    desk::DeskEntry,
    ledger::LedgerError,
    store::StoreError,
};
use placet_types::{
    desk::DeskKind,
    error::{ErrorCode, Refusal},
};

use crate::{context::Context, views::desk::DeskEventKind};

pub(crate) mod acts;
pub(crate) mod arrange;
pub(crate) mod board;
pub(crate) mod decide;
pub(crate) mod drift;
pub(crate) mod edit;
pub(crate) mod effective_rules;
pub(crate) mod entries;
pub mod events;
pub(crate) mod external;
pub(crate) mod finished;
pub(crate) mod freezes;
mod hints;
pub(crate) mod inbox;
mod masking;
pub(crate) mod outcome;
pub(crate) mod people;
pub(crate) mod permitted_actions;
pub(crate) mod propose;
pub(crate) mod quotas;
pub(crate) mod redecide;
pub(crate) mod resume;
pub(crate) mod reviewer;
pub(crate) mod show;
pub(crate) mod similar;
mod single_flight;
pub(crate) mod summary;
pub(crate) mod timeline;
pub(crate) mod timers;
pub(crate) mod watch;
pub(crate) mod withdraw;

/// When to ask again for what waits while it is being read, in milliseconds.
const READ_AGAIN_MS: u64 = 1_000;

/// What the approval service has at hand. All of it can be read from the ledger again.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    pub(crate) board: board::Board,
    pub(crate) force: effective_rules::Force,
    pub(crate) rooms: quotas::Rooms,
    pub(crate) bell: events::Bell,
    pub(crate) watch: watch::Watch,
    /// Whether all that waits has been read once since the start.
    is_read: AtomicBool,
    /// Whether what waits has to be decided again.
    is_outdated: AtomicBool,
    enforcing: Mutex<()>,
}

impl Desk {
    /// Everything that waits has been read since the start.
    pub(crate) fn was_read(&self) {
        self.is_read.store(true, Ordering::SeqCst);
    }

    /// Whether the board has everything that waits.
    pub(crate) fn is_read(&self) -> bool {
        self.is_read.load(Ordering::SeqCst)
    }

    /// What waits is to be decided again soon: what it was held under has changed.
    pub(crate) fn decide_again(&self) {
        self.is_outdated.store(true, Ordering::SeqCst);
    }

    /// Whether what waits has to be decided again, for anyone who does it now.
    pub(crate) fn take_outdated(&self) -> bool {
        self.is_outdated.swap(false, Ordering::SeqCst)
    }

    /// What is said to those who ask for what waits before all of it was read.
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

    /// An approval has moved, here or on another node: the board takes note, and the one who listens hears of it.
    pub(crate) fn moved(&self, context: &Context, approval: &ApprovalRecord) {
        let over = match approval.state {
            ApprovalState::Pending | ApprovalState::Approved | ApprovalState::Consumed { .. } => {
                false
            }
            ApprovalState::Denied
            | ApprovalState::Expired
            | ApprovalState::Withdrawn { .. }
            | ApprovalState::Void { .. } => true,
        };
        if over {
            // Nothing of this call will be exchanged any more.
            context.tokens.forget(approval.record_id);
        }
        self.watch.begin(approval, false);
        let now = context.ledger.store().now();
        if let Some(news) = self.board.moved(approval, &context.active().directory, now) {
            self.bell.approval(news, approval, now);
        }
    }

    /// The call of an approval has come to an end: told once for each, by [`watch::ended`].
    fn settled(&self, context: &Context, approval: &ApprovalRecord) {
        let now = context.ledger.store().now();
        self.bell.approval(DeskEventKind::Settled, approval, now);
    }

    /// An entry was made or has moved here: what is in force is read again.
    pub(crate) async fn arranged(&self, context: &Context, entry: DeskEntry) {
        self.renew(context).await;
        if entry.kind() == DeskKind::Revocation {
            // Also where what is in force could not be read again.
            self.enforce(context, Some(&entry));
        }
        // One that is over from the beginning, or that nobody could read, is news all the same.
        self.bell.entry(&Arc::new(entry), context.ledger.store().now());
    }

    /// Reads what is in force, before anything is taken in.
    pub(crate) async fn load(&self, context: &Context) -> Result<(), LedgerError> {
        self.force.renew(context).await?;
        self.observe(context);
        Ok(())
    }

    /// Reads what is in force again, where other nodes may have changed it.
    pub(crate) async fn follow(&self, context: &Context) {
        for entry in self.renewed(context, self.force.renew_once(context).await) {
            self.bell.entry(&entry, context.ledger.store().now());
        }
    }

    /// Makes sure that what is in force is known: a freeze or an end that was acknowledged elsewhere counts here. Waits for that no longer
    /// than `patience`, no matter who reads it.
    ///
    /// # Errors
    /// A [`Refusal`] that may pass, when it cannot be read.
    pub(crate) async fn must_be_current(
        &self,
        context: &Arc<Context>,
        patience: Duration,
    ) -> Result<(), Refusal> {
        if self.force.is_current(context) {
            return Ok(());
        }
        // In a task of its own: anyone who runs out of patience takes nobody else's reading with them.
        let owner = Arc::clone(context);
        let caught_up = tokio::spawn(async move { owner.desk.catch_up(&owner).await });
        if let Ok(Err(error)) = tokio::time::timeout(patience, caught_up).await {
            tracing::error!(%error, "reading freezes, grants and revocations failed");
        }
        if self.force.is_current(context) {
            return Ok(());
        }
        let why = "freezes, grants and revocations cannot be read now; nothing was executed";
        Err(Refusal::new(ErrorCode::LedgerUnavailable, why).with_retry_after_ms(READ_AGAIN_MS))
    }

    async fn catch_up(&self, context: &Context) {
        for entry in self.renewed(context, self.force.catch_up(context).await) {
            self.bell.entry(&entry, context.ledger.store().now());
        }
    }

    async fn renew(&self, context: &Context) -> Vec<Arc<DeskEntry>> {
        self.renewed(context, self.force.renew(context).await)
    }

    fn renewed(
        &self,
        context: &Context,
        read: Result<Vec<Arc<DeskEntry>>, StoreError>,
    ) -> Vec<Arc<DeskEntry>> {
        match read {
            Ok(changed) => {
                let now = context.ledger.store().now();
                context.metrics.reviews_due(self.force.open().all_reviews_due(now));
                if changed.iter().any(|entry| freezes::is_over(entry, now)) {
                    self.decide_again();
                }
                self.observe(context);
                changed
            }
            Err(error) => {
                tracing::warn!(%error, "freezes, grants and revocations could not be read");
                context.noticed(&error.into());
                Vec::new()
            }
        }
    }

    /// What was read counts from here on.
    fn observe(&self, context: &Context) {
        let read = self.force.open();
        self.enforce(context, None);
        self.force.is_observed(&read);
    }

    /// Has the revocations that are in force, and `another` if it is, observed from now on.
    fn enforce(&self, context: &Context, another: Option<&DeskEntry>) {
        // One at a time, so that what was read before never replaces what was read after it.
        let _one_at_a_time = self.enforcing.lock();
        let now = context.ledger.store().now();
        let mut revoked = self.force.open().revocations(now);
        revoked.extend(another.and_then(|entry| effective_rules::revoked(entry, now)));
        context.enforce_revocations(revoked);
    }
}
