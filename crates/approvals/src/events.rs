//! Events of the approval service: what moved.
//!
//! Owns the channel to the listeners. It is bounded: a listener that falls behind is told so and reads everything again. Invariant: an
//! event is sent after its commit, and says what to read, never what is in it. [`crate::feed`] decides who may see one.

use std::sync::Arc;

use tokio::sync::broadcast;

use placet_ledger::{approval::ApprovalRecord, directive::Directive};
use placet_types::clock::Timestamp;

use crate::views::{ApprovalEvent, ApprovalEventKind};

/// How many events are kept for slow readers.
const KEPT: usize = 1_024;

/// Where events are sent.
#[derive(Debug)]
pub(crate) struct Events(broadcast::Sender<Arc<News>>);

impl Default for Events {
    fn default() -> Self {
        Self(broadcast::Sender::new(KEPT))
    }
}

/// An event, and what it is about.
#[derive(Debug)]
pub(crate) struct News {
    pub(crate) event: ApprovalEvent,
    pub(crate) of: Of,
}

/// What an event is about.
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
        // There may be no receiver.
        drop(self.0.send(Arc::new(News { event, of })));
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Arc<News>> {
        self.0.subscribe()
    }
}
