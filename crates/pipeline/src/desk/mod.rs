//! The approval desk: what waits for people, and what happens when they have decided.
//!
//! Owns the board of what waits, the news of it, what people arrange beside single decisions, taking up parked calls, and the ends of an
//! approval. Who may decide is Cedar's answer, never ours; what is kept is the ledger's.

use std::sync::Arc;

use placet_ledger::{
    approval::{ApprovalRecord, ApprovalState},
    desk::DeskEntry,
};

use crate::{context::Context, views::desk::DeskEventKind};

pub(crate) mod acts;
pub(crate) mod arrange;
pub(crate) mod asker;
pub(crate) mod board;
pub(crate) mod decide;
pub(crate) mod deeds;
pub(crate) mod drift;
pub(crate) mod edit;
pub(crate) mod entries;
pub mod events;
pub(crate) mod force;
pub(crate) mod guest;
pub(crate) mod inbox;
pub(crate) mod people;
pub(crate) mod resume;
pub(crate) mod show;
pub(crate) mod similar;
pub(crate) mod summary;
pub(crate) mod timers;
pub(crate) mod trail;

/// What the desk has at hand. All of it can be read from the ledger again.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    pub(crate) board: board::Board,
    pub(crate) force: force::Force,
    pub(crate) bell: events::Bell,
}

impl Desk {
    /// An approval has moved, here or on another node: the board takes note, and whoever listens hears of it.
    pub(crate) fn moved(&self, context: &Context, approval: &ApprovalRecord) {
        let over = match approval.state {
            ApprovalState::Pending | ApprovalState::Approved | ApprovalState::Consumed { .. } => {
                false
            }
            ApprovalState::Denied | ApprovalState::Expired | ApprovalState::Void { .. } => true,
        };
        if over {
            // Nothing of this call will be exchanged any more.
            context.tokens.forget(approval.record_id);
        }
        let now = context.ledger.store().now();
        if let Some(news) = self.board.moved(approval, &context.directory, now) {
            self.bell.approval(news, approval, now);
        }
    }

    /// The call of an approval has come to its end.
    pub(crate) fn settled(&self, context: &Context, approval: &ApprovalRecord) {
        let now = context.ledger.store().now();
        self.bell.approval(DeskEventKind::Settled, approval, now);
    }

    /// An entry was made or has moved here: what is in force is read again.
    pub(crate) async fn arranged(&self, context: &Context, entry: DeskEntry) {
        self.renew(context).await;
        // One that is over from the beginning, or that nobody could read, is news all the same.
        self.bell.entry(&Arc::new(entry), context.ledger.store().now());
    }

    /// Reads what is in force again, where other nodes may have changed it.
    pub(crate) async fn follow(&self, context: &Context) {
        for entry in self.renew(context).await {
            self.bell.entry(&entry, context.ledger.store().now());
        }
    }

    async fn renew(&self, context: &Context) -> Vec<Arc<DeskEntry>> {
        match self.force.renew(context).await {
            Ok(changed) => {
                let now = context.ledger.store().now();
                context.metrics.reviews_due(self.force.open().all_reviews_due(now));
                changed
            }
            Err(error) => {
                context.noticed(&error);
                tracing::warn!(%error, "what is in force at the desk could not be read");
                Vec::new()
            }
        }
    }
}
