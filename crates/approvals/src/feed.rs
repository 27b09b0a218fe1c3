//! The feed of one caller: the events that they may see.
//!
//! Owns who sees which event. Invariants: an event reaches only those who may see what it is about; a caller whose tokens were revoked sees
//! none.

use std::sync::Arc;

use tokio::sync::broadcast::{self, error::RecvError};

use placet_identity::VerifiedCaller;
use placet_ledger::approval::ApprovalRecord;
use placet_types::ids::TenantId;

use crate::{
    entries,
    events::{News, Of},
    outcome,
    reviewer::{self, is_external},
    service::Approvals,
    views::{ApprovalEvent, ApprovalEventKind},
};

impl Approvals {
    /// The events that the caller may see, from now on.
    pub fn listen(self: &Arc<Self>, caller: &VerifiedCaller) -> EventFeed {
        let (service, caller) = (Arc::clone(self), caller.clone());
        EventFeed { news: service.events.subscribe(), next: None, service, caller }
    }
}

/// The events that one caller may see.
#[derive(Debug)]
pub struct EventFeed {
    service: Arc<Approvals>,
    caller: VerifiedCaller,
    news: broadcast::Receiver<Arc<News>>,
    /// An event that was received and not returned, because the future that would have returned it was dropped.
    next: Option<Arc<News>>,
}

impl EventFeed {
    /// The next event; `None` when some were missed, so that everything has to be read again.
    pub async fn next(&mut self) -> Option<ApprovalEvent> {
        loop {
            if let Some(news) = &self.next {
                let event = self.shown(news).await;
                self.next = None;
                return Some(event);
            }
            let news = tokio::select! {
                () = self.service.node.stopped() => return None,
                news = self.news.recv() => news,
            };
            match news {
                Ok(news) if self.may_see(&news) => self.next = Some(news),
                Ok(_) => {}
                Err(RecvError::Lagged(_) | RecvError::Closed) => return None,
            }
        }
    }

    /// Whether no more events will come, because the engine stops.
    pub fn is_over(&self) -> bool {
        self.service.node.is_stopping()
    }

    /// The event as the caller sees it: external approvers see only groups of their own tenant, others also how a call ended.
    async fn shown(&self, news: &News) -> ApprovalEvent {
        let mut event = news.event.clone();
        let Of::Approval(approval) = &news.of else { return event };
        if is_external(&self.caller, approval) {
            event.groups.retain(|group| group.external_tenant() == Some(self.caller.tenant()));
        } else if event.kind == ApprovalEventKind::Settled {
            event.outcome =
                Some(outcome::seen(&self.service, &self.caller, approval).await.to_owned());
        }
        event
    }

    fn may_see(&self, news: &News) -> bool {
        if self.service.is_revoked(&self.caller) {
            // The token was valid when the feed was opened, which may be long ago.
            return false;
        }
        match &news.of {
            Of::Approval(approval) => {
                reviewer::may_view(&self.service, &self.caller, approval)
                    && (!is_external(&self.caller, approval)
                        || is_for_external_tenants(news.event.kind, approval, self.caller.tenant()))
            }
            Of::Entry(entry) => entries::may_see(&self.service, &self.caller, entry),
        }
    }
}

/// Whether an external approver sees it: not other people's decisions, and not what became of the call.
fn is_for_external_tenants(
    kind: ApprovalEventKind,
    approval: &ApprovalRecord,
    tenant: &TenantId,
) -> bool {
    match kind {
        ApprovalEventKind::Asked
        | ApprovalEventKind::Edited
        | ApprovalEventKind::Approved
        | ApprovalEventKind::Denied
        | ApprovalEventKind::Expired
        | ApprovalEventKind::Withdrawn
        | ApprovalEventKind::Void => true,
        ApprovalEventKind::Voted => {
            approval.votes.last().is_some_and(|vote| vote.tenant.as_ref() == Some(tenant))
        }
        ApprovalEventKind::Escalated => {
            approval.asked().iter().any(|group| group.external_tenant() == Some(tenant))
        }
        ApprovalEventKind::Dispatched | ApprovalEventKind::Settled | ApprovalEventKind::Entry => {
            false
        }
    }
}
