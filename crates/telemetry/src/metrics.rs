//! The metrics of a process, in OpenMetrics text.
//!
//! Owns their names, help texts and labels. Does not own the listener that serves them. Invariant: the number of series is
//! bounded: labels are enums, names of our own, or adapters and capabilities of loaded contracts; nothing that a caller wrote.
//!
//! TM-21 reads them as follows. Success rate by adapter and capability: `placet_calls_total` by `status`. Misclassified modes:
//! `placet_mode_misclassified_total` over `placet_calls_total`. Permission violations: `placet_permission_violations_total` over the
//! same. Mean and p99 latency by adapter: `placet_adapter_seconds`. Replay correctness: `placet_duplicates_total` by
//! `what`, and `placet_replays_checked_total`, where `mismatch` must be zero. `placet report` computes the same from the audit chain.

use std::sync::Arc;
use std::time::Duration;

use placet_types::envelope::result::ResultStatus;
use placet_types::error::ErrorCode;
use placet_types::ids::CapabilityId;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::trace::Stage;

mod registration;

/// The adapter and the capability of a call that never resolved to one.
const UNRESOLVED: &str = "unresolved";

/// What a repeated call met (TM-12, TM-16).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duplicate {
    /// The stored result.
    Replayed,
    /// The first one, still being executed.
    Joined,
    /// The same key with other arguments.
    Conflict,
    /// The result for the key is no longer stored.
    Expired,
}

impl Duplicate {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Replayed => "replayed",
            Self::Joined => "joined",
            Self::Conflict => "conflict",
            Self::Expired => "expired",
        }
    }
}

/// The labels of one series, in the order of their names.
type Labels<const N: usize> = [(&'static str, String); N];

/// A metric with `N` labels.
#[derive(Debug)]
struct Labelled<const N: usize, M, C = fn() -> M> {
    names: [&'static str; N],
    family: Family<Labels<N>, M, C>,
}

impl<const N: usize, M: Clone, C: MetricConstructor<M>> Labelled<N, M, C> {
    /// The series of these values.
    fn of(&self, values: [&str; N]) -> M {
        let mut values = values.into_iter();
        let labels = self.names.map(|name| (name, values.next().unwrap_or_default().to_owned()));
        self.family.get_or_create_owned(&labels)
    }
}

/// The metrics. Clones are handles to the same ones.
#[derive(Clone, Debug)]
pub struct Metrics {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    registry: Registry,
    calls: Labelled<4, Counter>,
    call_seconds: Labelled<1, Histogram>,
    adapter_seconds: Labelled<2, Histogram>,
    stage_seconds: Labelled<1, Histogram>,
    retries: Labelled<2, Counter>,
    inflight: Labelled<1, Gauge>,
    breaker_state: Labelled<1, Gauge>,
    approvals_pending: Gauge,
    approvals: Labelled<1, Counter>,
    approval_wait_seconds: Histogram,
    grants_used: Counter,
    break_glass_reviews_due: Gauge,
    credentials: Labelled<1, Counter>,
    subjects_revoked: Gauge,
    decision_seconds: Histogram,
    mode_misclassified: Counter,
    permission_violations: Counter,
    replays_checked: Labelled<1, Counter>,
    duplicates: Labelled<1, Counter>,
    indeterminate: Counter,
    outcomes_unknown: Gauge,
    journal_sync_seconds: Histogram,
    journal_batch_size: Histogram,
    actor_restarts: Labelled<1, Counter>,
    notifications: Labelled<2, Counter>,
    notifications_waiting: Labelled<1, Gauge>,
    pub(crate) spans_exported: Counter,
    pub(crate) spans_dropped: Counter,
    pub(crate) spans_failed: Counter,
    pub(crate) export_failures: Counter,
    pub(crate) log_lines_lost: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Metrics that are all zero, in a registry of their own.
    pub fn new() -> Self {
        let inner = Inner::registered();
        for stage in Stage::ALL {
            drop(inner.stage_seconds.of([stage.as_str()]));
        }
        for what in ["replayed", "joined", "conflict", "expired"] {
            drop(inner.duplicates.of([what]));
        }
        for what in ["minted", "reused", "refused", "untyped"] {
            drop(inner.credentials.of([what]));
        }
        for what in ["identical", "mismatch"] {
            drop(inner.replays_checked.of([what]));
        }
        Self { inner: Arc::new(inner) }
    }

    /// The OpenMetrics text, to be served as `application/openmetrics-text; version=1.0.0; charset=utf-8`.
    pub fn encode(&self) -> String {
        let mut text = String::new();
        // Only the formatter can fail, and a `String` takes everything; half a text would be worse than none.
        if encode(&mut text, &self.inner.registry).is_err() {
            text.clear();
        }
        text
    }

    /// A call ended, after this time without that in which it was held. It may never have resolved to a capability.
    pub fn record_call(
        &self,
        capability: Option<&CapabilityId>,
        status: ResultStatus,
        code: Option<ErrorCode>,
        took: Duration,
    ) {
        let adapter = capability.map_or(UNRESOLVED, |id| id.adapter().as_str());
        let capability = capability.map_or(UNRESOLVED, |id| id.capability().as_str());
        let code = code.map_or("none", ErrorCode::as_str);
        self.inner.calls.of([adapter, capability, status.as_str(), code]).inc();
        self.inner.call_seconds.of([adapter]).observe(took.as_secs_f64());
    }

    /// An adapter answered or failed. The time is that of one attempt.
    pub fn record_adapter(&self, adapter: &str, capability: &str, took: Duration) {
        self.inner.adapter_seconds.of([adapter, capability]).observe(took.as_secs_f64());
    }

    /// An attempt was repeated.
    pub fn count_retry(&self, adapter: &str, capability: &str) {
        self.inner.retries.of([adapter, capability]).inc();
    }

    /// A stage of a call ended.
    pub fn record_stage(&self, stage: Stage, took: Duration) {
        self.inner.stage_seconds.of([stage.as_str()]).observe(took.as_secs_f64());
    }

    /// A call is with an adapter until the guard is dropped.
    pub fn enter_adapter(&self, adapter: &str) -> Inflight {
        let gauge = self.inner.inflight.of([adapter]);
        gauge.inc();
        Inflight { gauge }
    }

    /// The breaker of an adapter opened, so that calls are refused but for one that may try, or closed.
    pub fn set_breaker(&self, adapter: &str, is_open: bool) {
        self.inner.breaker_state.of([adapter]).set(i64::from(is_open));
    }

    /// How many approvals wait now.
    pub fn set_approvals_pending(&self, pending: usize) {
        set(&self.inner.approvals_pending, pending);
    }

    /// An approval ended after waiting this long.
    pub fn record_approval(&self, result: &'static str, waited: Duration) {
        self.inner.approvals.of([result]).inc();
        self.inner.approval_wait_seconds.observe(waited.as_secs_f64());
    }

    /// A standing grant let a call pass.
    pub fn count_grant_used(&self) {
        self.inner.grants_used.inc();
    }

    /// How many break-glass records wait for their review now.
    pub fn set_reviews_due(&self, due: usize) {
        set(&self.inner.break_glass_reviews_due, due);
    }

    /// A credential was `minted` or `reused` for a call, or `refused`; a minted one was `untyped`, where its service may leave out the
    /// type.
    pub fn count_credential(&self, what: &'static str) {
        self.inner.credentials.of([what]).inc();
    }

    /// How many subjects have tokens that are revoked now.
    pub fn set_subjects_revoked(&self, subjects: usize) {
        set(&self.inner.subjects_revoked, subjects);
    }

    /// Policy decided, within this time.
    pub fn record_decision(&self, took: Duration) {
        self.inner.decision_seconds.observe(took.as_secs_f64());
    }

    /// A call asked for another mode than the one that governs it (TM-21).
    pub fn count_mode_misclassified(&self) {
        self.inner.mode_misclassified.inc();
    }

    /// A call was refused because its principal may not make it (TM-21).
    pub fn count_permission_violation(&self) {
        self.inner.permission_violations.inc();
    }

    /// A repeated call met something (TM-12, TM-16).
    pub fn count_duplicate(&self, what: Duplicate) {
        self.inner.duplicates.of([what.as_str()]).inc();
    }

    /// A replayed result was compared with its stored digest (TM-21).
    pub fn count_replay_checked(&self, identical: bool) {
        self.inner.replays_checked.of([if identical { "identical" } else { "mismatch" }]).inc();
    }

    /// A call ended with an unknown outcome.
    pub fn count_indeterminate(&self) {
        self.inner.indeterminate.inc();
    }

    /// How many calls have an unknown outcome now.
    pub fn set_outcomes_unknown(&self, calls: usize) {
        set(&self.inner.outcomes_unknown, calls);
    }

    /// The journal was synchronised with the disk, with this many entries.
    pub fn record_journal_sync(&self, entries: u32, took: Duration) {
        self.inner.journal_sync_seconds.observe(took.as_secs_f64());
        self.inner.journal_batch_size.observe(f64::from(entries));
    }

    /// An actor was started again. The name is the role in the tree, or of a contract.
    pub fn count_actor_restart(&self, actor: &str) {
        self.inner.actor_restarts.of([actor]).inc();
    }

    /// A message to people was `sent`, has `failed` and is tried again, or was `given_up`.
    pub fn count_notification(&self, channel: &str, result: &'static str) {
        self.inner.notifications.of([channel, result]).inc();
    }

    /// How many messages wait for a channel now.
    pub fn set_notifications_waiting(&self, channel: &str, waiting: usize) {
        set(&self.inner.notifications_waiting.of([channel]), waiting);
    }
}

fn set(gauge: &Gauge, number: usize) {
    gauge.set(i64::try_from(number).unwrap_or(i64::MAX));
}

/// A call that is with an adapter.
#[derive(Debug)]
pub struct Inflight {
    gauge: Gauge,
}

impl Drop for Inflight {
    fn drop(&mut self) {
        self.gauge.dec();
    }
}

#[cfg(test)]
mod tests;
