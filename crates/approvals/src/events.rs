//! Events of the approval service: what moved.
//!
//! Owns the channel to the listeners. It is bounded: a listener that falls behind is told so and reads everything again. Invariant: an event
//! goes out after the commit it is of, and says what to look at, never what is in it. Who may see one is [`crate::feed`]'s.

use std::sync::Arc;

use tokio::sync::broadcast;

use placet_ledger::{approval::ApprovalRecord, directive::Directive};
use placet_types::clock::Timestamp;

use crate::views::{ApprovalEvent, ApprovalEventKind};

/// How many news are kept for those who read slowly.
const KEPT: usize = 1_024;

/// Where news go out.
#[derive(Debug)]
pub(crate) struct Events(broadcast::Sender<Arc<News>>);

impl Default for Events {
    fn default() -> Self {
        Self(broadcast::Sender::new(KEPT))
    }
}

/// One piece of news, and what it is of.
#[derive(Debug)]
pub(crate) struct News {
    pub(crate) event: ApprovalEvent,
    pub(crate) of: Of,
}

/// What an event is of.
#[derive(Debug)]
pub(crate) enum Of {
    Approval(Box<ApprovalRecord>),
    Entry(Arc<Directive>),
}

impl Events {
    /// Something happened to an approval.
    pub(crate) fn approval(
        &self,
        kind: ApprovalEventKind,
        approval: &ApprovalRecord,
        at: Timestamp,
    ) {
        if self.0.receiver_count() == 0 {
            return;
        }
        let event = ApprovalEvent {
            approval_id: Some(approval.approval_id.clone()),
            call_id: Some(approval.call_id.clone()),
            capability_id: Some(approval.capability.clone()),
            groups: approval.asked().into_iter().cloned().collect(),
            ..ApprovalEvent::new(kind, at)
        };
        self.send(event, Of::Approval(Box::new(approval.clone())));
    }

    /// An entry of the approval service changed.
    pub(crate) fn entry(&self, entry: &Arc<Directive>, at: Timestamp) {
        let event = ApprovalEvent {
            directive_id: Some(entry.directive_id.clone()),
            groups: entry.requirement.groups.keys().cloned().collect(),
            ..ApprovalEvent::new(ApprovalEventKind::Entry, at)
        };
        self.send(event, Of::Entry(Arc::clone(entry)));
    }

    fn send(&self, event: ApprovalEvent, of: Of) {
        // Nobody may be left who hears it.
        drop(self.0.send(Arc::new(News { event, of })));
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Arc<News>> {
        self.0.subscribe()
    }
}
