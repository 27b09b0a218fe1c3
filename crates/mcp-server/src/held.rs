//! The pending call of each run's equal calls, so that repeating a call later collects its outcome.
//!
//! Owns that memory, bounded. After a restart it is empty: `placet__await` with the handle finds every call, since the ledger does.

use std::time::Duration;

use moka::sync::Cache;

use placet_types::{digest::Digest, ids::ToolCallId};

/// How many pending calls are remembered, and for how long: no approval lives longer.
const KEPT_MAX: u64 = 100_000;
const KEPT_FOR: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Pending calls by what they are equal in: caller, run, tool and arguments.
#[derive(Debug)]
pub(crate) struct HeldCalls(Cache<Digest, ToolCallId>);

impl Default for HeldCalls {
    fn default() -> Self {
        Self(Cache::builder().max_capacity(KEPT_MAX).time_to_live(KEPT_FOR).build())
    }
}

impl HeldCalls {
    pub(crate) fn find(&self, request: &Digest) -> Option<ToolCallId> {
        self.0.get(request)
    }

    pub(crate) fn remember(&self, request: Digest, call: ToolCallId) {
        self.0.insert(request, call);
    }

    /// Its outcome was collected: the next equal call is a new one.
    pub(crate) fn forget(&self, request: &Digest) {
        self.0.invalidate(request);
    }
}
