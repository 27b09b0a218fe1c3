//! The open requests of each session, with the calls they wait for.
//!
//! Owns their bound. Requests without a session are not included: their clients name a call by its handle or its task.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use moka::sync::Cache;
use rmcp::model::RequestId;

use placet_types::{digest::Digest, ids::ToolCallId};

/// How many open requests are remembered, and for how long: no request is open for longer.
const REQUESTS_MAX: u64 = 100_000;
const KEPT_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// A request that waits for its call.
#[derive(Debug)]
pub(crate) struct OpenRequest {
    pub(crate) call: ToolCallId,
    /// The digest that equal calls share.
    pub(crate) request: Digest,
    cancelled: AtomicBool,
}

impl OpenRequest {
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }
}

/// The open requests of all sessions.
#[derive(Debug)]
pub(crate) struct OpenRequests(Cache<(String, RequestId), Arc<OpenRequest>>);

impl Default for OpenRequests {
    fn default() -> Self {
        Self(Cache::builder().max_capacity(REQUESTS_MAX).time_to_live(KEPT_FOR).build())
    }
}

impl OpenRequests {
    /// Notes what a request waits for.
    pub(crate) fn opened(
        &self,
        session: &str,
        id: &RequestId,
        call: &ToolCallId,
        request: Digest,
    ) -> Arc<OpenRequest> {
        let open =
            Arc::new(OpenRequest { call: call.clone(), request, cancelled: AtomicBool::default() });
        self.0.insert((session.to_owned(), id.clone()), Arc::clone(&open));
        open
    }

    /// The request was answered.
    pub(crate) fn answered(&self, session: &str, id: &RequestId) {
        self.0.invalidate(&(session.to_owned(), id.clone()));
    }

    /// It was cancelled: nobody waits for it any more.
    pub(crate) fn cancelled(&self, session: &str, id: RequestId) -> Option<Arc<OpenRequest>> {
        let open = self.0.remove(&(session.to_owned(), id))?;
        open.cancelled.store(true, Ordering::Release);
        Some(open)
    }
}
