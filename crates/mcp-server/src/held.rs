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
pub(crate) struct HeldCalls {
    calls: Cache<Digest, ToolCallId>,
    /// The same the other way round, since an outcome may be collected by the id of its call.
    requests: Cache<ToolCallId, Digest>,
}

impl Default for HeldCalls {
    fn default() -> Self {
        Self {
            calls: Cache::builder().max_capacity(KEPT_MAX).time_to_live(KEPT_FOR).build(),
            requests: Cache::builder().max_capacity(KEPT_MAX).time_to_live(KEPT_FOR).build(),
        }
    }
}

impl HeldCalls {
    pub(crate) fn find(&self, request: &Digest) -> Option<ToolCallId> {
        self.calls.get(request)
    }

    pub(crate) fn remember(&self, request: Digest, call: ToolCallId) {
        self.requests.insert(call.clone(), request);
        self.calls.insert(request, call);
    }

    /// Its outcome was collected: the next equal call is a new one.
    pub(crate) fn forget(&self, request: &Digest) {
        self.calls.invalidate(request);
    }

    /// The same for the id of a call. A later equal call that is remembered is another one, and stays.
    pub(crate) fn forget_call(&self, call: &ToolCallId) {
        let Some(request) = self.requests.remove(call) else { return };
        if self.find(&request).as_ref() == Some(call) {
            self.forget(&request);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(last: u8) -> ToolCallId {
        format!("call_01ARZ3NDEKTSV4RRFFQ69G5FA{}", char::from(last)).parse().unwrap()
    }

    #[test]
    fn a_call_collected_by_its_id_is_forgotten() {
        let (held, request) = (HeldCalls::default(), Digest::of(b"request"));
        held.remember(request, call(b'V'));
        held.forget_call(&call(b'W'));
        assert_eq!(held.find(&request), Some(call(b'V')));
        held.forget_call(&call(b'V'));
        assert_eq!(held.find(&request), None);
    }

    #[test]
    fn collecting_a_call_keeps_a_later_equal_one() {
        let (held, request) = (HeldCalls::default(), Digest::of(b"request"));
        held.remember(request, call(b'V'));
        held.remember(request, call(b'W'));
        held.forget_call(&call(b'V'));
        assert_eq!(held.find(&request), Some(call(b'W')));
    }
}
