//! Attempts that are refused before there is a call: invalid tokens, requests that a lax parser would read differently, callers that are
//! not active, calls after too many refused ones.
//!
//! Owns their counts, and the audit entries that report them. Invariants: a minute adds at most one entry for each caller or address, for a
//! bounded number of them; no entry contains what was sent.

use std::{collections::BTreeMap, net::IpAddr};

use parking_lot::Mutex;

use placet_approvals::audit;
use placet_identity::VerifiedCaller;
use placet_ledger::audit::{AuditEvent, AuditKind};
use placet_types::{
    error::ErrorCode,
    json::{JsonError, JsonFault},
};
use serde_json::Value;

/// How many callers, and how many addresses, are counted separately within that time.
const ROWS_MAX: usize = 100;

/// What a verified caller tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// A request that two readers could take differently.
    Ambiguous,
    /// Anything at all, while the directory says that the caller is not active.
    Inactive,
    /// A call after too many others that were refused.
    Refused,
}

impl Attempt {
    /// What a caller tried with a document that another parser might have accepted.
    pub fn of(document: &Result<Value, JsonError>) -> Option<Self> {
        let is_ambiguous = match document {
            // A batch in the place of a request.
            Ok(document) => document.is_array(),
            Err(error) => !matches!(error.fault(), JsonFault::Syntax | JsonFault::Shape),
        };
        is_ambiguous.then_some(Self::Ambiguous)
    }

    const fn told(self) -> &'static str {
        match self {
            Self::Ambiguous => "requests that two readers could take differently",
            Self::Inactive => "requests of a caller that is not active",
            Self::Refused => "calls after too many that were refused",
        }
    }

    const fn code(self) -> ErrorCode {
        match self {
            Self::Ambiguous => ErrorCode::ValidationError,
            Self::Inactive => ErrorCode::PolicyDenied,
            Self::Refused => ErrorCode::RateLimited,
        }
    }
}

/// What was counted since it was last written.
#[derive(Debug, Default)]
pub(crate) struct Attempts(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    callers: Rows,
    peers: Rows,
    is_scheduled: bool,
}

#[derive(Debug, Default)]
struct Rows {
    by_key: BTreeMap<String, Row>,
    /// Attempts of those beyond [`ROWS_MAX`].
    further: u64,
}

#[derive(Debug)]
struct Row {
    event: AuditEvent,
    what: String,
    times: u64,
}

impl Rows {
    fn count(&mut self, key: String, make: impl FnOnce() -> Row) {
        if self.by_key.len() >= ROWS_MAX && !self.by_key.contains_key(&key) {
            self.further = self.further.saturating_add(1);
            return;
        }
        let row = self.by_key.entry(key).or_insert_with(make);
        row.times = row.times.saturating_add(1);
    }

    fn into_events(self, further: &str) -> impl Iterator<Item = AuditEvent> {
        let what = further.to_owned();
        let event = AuditEvent::new(AuditKind::Security);
        let further = (self.further > 0).then_some(Row { event, what, times: self.further });
        self.by_key.into_values().chain(further).map(|Row { mut event, what, times }| {
            event.note = Some(format!("refused within a minute: {times} {what}"));
            event
        })
    }
}

impl Attempts {
    /// Counts a refused token by the address it came from. Returns whether it is the first since the counts were last written.
    pub(crate) fn of_peer(&self, peer: IpAddr) -> bool {
        let mut counts = self.0.lock();
        counts.peers.count(peer.to_string(), || {
            let mut event = AuditEvent::new(AuditKind::Security);
            event.code = Some(ErrorCode::Unauthenticated);
            Row { event, what: format!("tokens from {peer}"), times: 0 }
        });
        !std::mem::replace(&mut counts.is_scheduled, true)
    }

    /// Counts an attempt of a verified caller. Returns whether it is the first since the counts were last written.
    pub(crate) fn of_caller(&self, caller: &VerifiedCaller, attempt: Attempt) -> bool {
        let chain = caller.chain();
        let (actor, told) = (&chain.actor, attempt.told());
        let key = format!("{} {} {} {told}", actor.tenant_id, actor.kind.as_str(), actor.id);
        let mut counts = self.0.lock();
        counts.callers.count(key, || {
            let mut event = audit::of_caller(AuditKind::Security, caller);
            event.code = Some(attempt.code());
            Row { event, what: told.to_owned(), times: 0 }
        });
        !std::mem::replace(&mut counts.is_scheduled, true)
    }

    /// The audit entries for what was counted; resets the counts.
    pub(crate) fn take(&self) -> Vec<AuditEvent> {
        let Counts { callers, peers, .. } = std::mem::take(&mut *self.0.lock());
        let callers = callers.into_events("requests of further callers");
        callers.chain(peers.into_events("tokens from further addresses")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Attempts, AuditEvent, AuditKind, ROWS_MAX, Row};

    fn row() -> Row {
        Row {
            event: AuditEvent::new(AuditKind::Security),
            what: "tokens from x".to_owned(),
            times: 0,
        }
    }

    #[test]
    fn each_address_has_one_entry_with_its_count() {
        let attempts = Attempts::default();
        for key in ["a", "b", "a", "a"] {
            attempts.0.lock().peers.count(key.to_owned(), row);
        }
        let notes: Vec<String> = attempts.take().into_iter().filter_map(|one| one.note).collect();
        assert_eq!(
            notes,
            [
                "refused within a minute: 3 tokens from x",
                "refused within a minute: 1 tokens from x"
            ]
        );
        assert!(attempts.take().is_empty());
    }

    #[test]
    fn many_addresses_leave_a_bounded_number_of_entries() {
        let attempts = Attempts::default();
        for number in 0..10_000 {
            attempts.0.lock().peers.count(format!("{number}"), row);
        }
        let events = attempts.take();
        assert_eq!(events.len(), ROWS_MAX + 1);
        let last = events.last().and_then(|event| event.note.as_deref());
        assert_eq!(last, Some("refused within a minute: 9900 tokens from further addresses"));
    }
}
