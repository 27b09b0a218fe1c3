//! News of the approval service: what moved, for anyone who may see it.
//!
//! Owns the channel from the approval service to the listeners. It is bounded: who falls behind is told so and looks at everything again. Invariant: news
//! go out after the commit they are of, say what to look at and never what is in it, and reach only those who may see it.

use std::sync::Arc;

use tokio::sync::broadcast::{self, error::RecvError};

use placet_identity::VerifiedCaller;
use placet_ledger::{approval::ApprovalRecord, desk::DeskEntry};
use placet_types::{clock::Timestamp, ids::TenantId};

use super::{entries, external, reviewer};
use crate::{
    context::Context,
    views::desk::{DeskEvent, DeskEventKind},
};

/// How many news are kept for those who read slowly.
const KEPT: usize = 1_024;

/// Where news go out.
#[derive(Debug)]
pub(crate) struct Bell(broadcast::Sender<Arc<News>>);

impl Default for Bell {
    fn default() -> Self {
        Self(broadcast::Sender::new(KEPT))
    }
}

/// One piece of news, and what it is of.
#[derive(Debug)]
struct News {
    event: DeskEvent,
    of: Of,
}

#[derive(Debug)]
enum Of {
    Approval(Box<ApprovalRecord>),
    Entry(Arc<DeskEntry>),
}

impl Bell {
    /// Something happened to an approval.
    pub(crate) fn approval(&self, kind: DeskEventKind, approval: &ApprovalRecord, at: Timestamp) {
        if self.0.receiver_count() == 0 {
            return;
        }
        let event = DeskEvent {
            kind,
            approval_id: Some(approval.approval_id.clone()),
            call_id: Some(approval.call_id.clone()),
            capability_id: Some(approval.capability.clone()),
            desk_id: None,
            groups: approval.asked().into_iter().cloned().collect(),
            at,
        };
        let news = News { event, of: Of::Approval(Box::new(approval.clone())) };
        // Nobody may be left who hears it.
        drop(self.0.send(Arc::new(news)));
    }

    /// An entry of the approval service changed.
    pub(crate) fn entry(&self, entry: &Arc<DeskEntry>, at: Timestamp) {
        if self.0.receiver_count() == 0 {
            return;
        }
        let event = DeskEvent {
            kind: DeskEventKind::Entry,
            approval_id: None,
            call_id: None,
            capability_id: None,
            desk_id: Some(entry.desk_id.clone()),
            groups: entry.requirement.groups.keys().cloned().collect(),
            at,
        };
        drop(self.0.send(Arc::new(News { event, of: Of::Entry(Arc::clone(entry)) })));
    }

    /// The news that `caller` may see, from now on.
    pub(crate) fn listen(&self, context: &Arc<Context>, caller: &VerifiedCaller) -> DeskFeed {
        DeskFeed { context: Arc::clone(context), caller: caller.clone(), news: self.0.subscribe() }
    }
}

/// News of the approval service for one caller.
#[derive(Debug)]
pub struct DeskFeed {
    context: Arc<Context>,
    caller: VerifiedCaller,
    news: broadcast::Receiver<Arc<News>>,
}

impl DeskFeed {
    /// The next piece of news; nothing when some were missed, so that everything has to be looked at again.
    pub async fn next(&mut self) -> Option<DeskEvent> {
        loop {
            let stopping = self.context.stopping.clone();
            let news = tokio::select! {
                () = stopping.cancelled() => return None,
                news = self.news.recv() => news,
            };
            match news {
                Ok(news) if self.may_see(&news) => return Some(self.told(&news)),
                Ok(_) => {}
                Err(RecvError::Lagged(_) | RecvError::Closed) => return None,
            }
        }
    }

    /// Whether nothing will come any more, because the engine stops.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.context.stopping()
    }

    /// An external approver is told of the groups of their own tenant.
    fn told(&self, news: &News) -> DeskEvent {
        let mut event = news.event.clone();
        if let Of::Approval(approval) = &news.of
            && external::is_external(&self.caller, approval)
        {
            event.groups.retain(|group| group.external_tenant() == Some(self.caller.tenant()));
        }
        event
    }

    fn may_see(&self, news: &News) -> bool {
        if self.context.is_revoked(&self.caller) {
            // The API saw a token that counted; a feed may stay open for long.
            return false;
        }
        match &news.of {
            Of::Approval(approval) => {
                reviewer::may_view(&self.context, &self.caller, approval)
                    && (!external::is_external(&self.caller, approval)
                        || is_for_external_tenants(news.event.kind, approval, self.caller.tenant()))
            }
            Of::Entry(entry) => entries::may_see(&self.context, &self.caller, entry),
        }
    }
}

/// Whether an external approver hears of it: not who else decided, and not what became of the call.
fn is_for_external_tenants(
    kind: DeskEventKind,
    approval: &ApprovalRecord,
    tenant: &TenantId,
) -> bool {
    match kind {
        DeskEventKind::Asked
        | DeskEventKind::Edited
        | DeskEventKind::Approved
        | DeskEventKind::Denied
        | DeskEventKind::Expired
        | DeskEventKind::Withdrawn
        | DeskEventKind::Void => true,
        DeskEventKind::Voted => {
            approval.votes.last().is_some_and(|vote| vote.tenant.as_ref() == Some(tenant))
        }
        DeskEventKind::Escalated => {
            approval.asked().iter().any(|group| group.external_tenant() == Some(tenant))
        }
        DeskEventKind::Dispatched | DeskEventKind::Settled | DeskEventKind::Entry => false,
    }
}
