//! The names and help texts under which the metrics are registered, and their buckets.
//!
//! Owns nothing else. The suffixes `_total` and `_seconds` are added by the registry.

use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry, Unit};

use super::{Inner, Labelled, Labels};

/// From half a millisecond, a read that is governed in memory, to the longest budget of a tool.
const CALL_SECONDS: [f64; 16] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0,
    300.0,
];
/// Decisions and disk syncs.
const SHORT_SECONDS: [f64; 12] =
    [0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 1.0];
/// Waiting for people.
const WAIT_SECONDS: [f64; 11] =
    [1.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 86_400.0, 259_200.0, 604_800.0];
const BATCH_SIZES: [f64; 10] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];

/// A registry whose methods return what they register.
struct Register(Registry);

impl Register {
    fn metric<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M {
        self.0.register(name, help, metric.clone());
        metric
    }

    fn count<M: Metric + Clone + Default>(&mut self, name: &str, help: &str) -> M {
        self.metric(name, help, M::default())
    }

    fn seconds(&mut self, name: &str, help: &str, buckets: &[f64]) -> Histogram {
        let metric = Histogram::new(buckets.iter().copied());
        self.0.register_with_unit(name, help, Unit::Seconds, metric.clone());
        metric
    }

    /// A counter or gauge with labels.
    fn counts<const N: usize, M>(
        &mut self,
        name: &str,
        names: [&'static str; N],
        help: &str,
    ) -> Labelled<N, M>
    where
        M: Metric + Clone + Default,
        Family<Labels<N>, M>: Metric,
        fn() -> M: MetricConstructor<M>,
    {
        let make: fn() -> M = M::default;
        let family = self.metric(name, help, Family::new_with_constructor(make));
        Labelled { names, family }
    }

    /// A histogram of times with labels.
    fn times<const N: usize>(
        &mut self,
        name: &str,
        names: [&'static str; N],
        help: &str,
    ) -> Labelled<N, Histogram> {
        let make: fn() -> Histogram = || Histogram::new(CALL_SECONDS);
        let family = Family::new_with_constructor(make);
        self.0.register_with_unit(name, help, Unit::Seconds, family.clone());
        Labelled { names, family }
    }
}

impl Inner {
    pub(super) fn registered() -> Self {
        let mut r = Register(Registry::with_prefix("placet"));
        let calls = [ADAPTER, "capability", "status", "code"];
        let by_capability = [ADAPTER, "capability"];
        Self {
            calls: r.counts("calls", calls, "Calls that ended, by how"),
            call_seconds: r.times("call", [ADAPTER], CALL),
            adapter_seconds: r.times("adapter", by_capability, "Time of one attempt at an adapter"),
            stage_seconds: r.times("stage", ["stage"], "Time that calls spend in a stage"),
            retries: r.counts("retries", by_capability, "Attempts that were repeated"),
            inflight: r.counts("inflight", [ADAPTER], "Calls that are with an adapter now"),
            breaker_state: r.counts(
                "breaker_state",
                [ADAPTER],
                "Circuit breaker: 0 closed, 1 open",
            ),
            approvals: r.counts("approvals", ["result"], "Approvals that ended, by their result"),
            approvals_pending: r.count("approvals_pending", "Approvals that wait for people now"),
            approval_wait_seconds: r.seconds("approval_wait", WAIT, &WAIT_SECONDS),
            grants_used: r.count("grants_used", "Calls that a standing grant let pass"),
            break_glass_reviews_due: r.count("break_glass_reviews_due", REVIEWS),
            credentials: r.counts(
                "credentials",
                ["what"],
                "Credentials of token services, by result",
            ),
            subjects_revoked: r
                .count("subjects_revoked", "Subjects whose earlier tokens are revoked now"),
            decision_seconds: r.seconds("decision", "Time of a policy decision", &SHORT_SECONDS),
            mode_misclassified: r.count("mode_misclassified", MISCLASSIFIED),
            permission_violations: r.count("permission_violations", VIOLATIONS),
            replays_checked: r.counts("replays_checked", ["what"], CHECKED),
            duplicates: r.counts("duplicates", ["what"], "Repeated calls, by what they met"),
            indeterminate: r.count("indeterminate", "Calls whose outcome became unknown"),
            outcomes_unknown: r.count("outcomes_unknown", "Calls whose outcome is unknown now"),
            journal_sync_seconds: r.seconds(
                "journal_sync",
                "Time of a journal sync",
                &SHORT_SECONDS,
            ),
            journal_batch_size: r.metric("journal_batch_size", BATCH, Histogram::new(BATCH_SIZES)),
            actor_restarts: r.counts("actor_restarts", ["actor"], "Actors that were started again"),
            notifications: r.counts("notifications", ["channel", "result"], NOTIFICATIONS),
            notifications_waiting: r.counts("notifications_waiting", ["channel"], WAITING),
            spans_exported: r.count("spans_exported", "Spans that the collector took"),
            spans_dropped: r
                .count("spans_dropped", "Spans that were dropped because too many waited"),
            spans_failed: r.count("spans_failed", "Spans that were lost in failed exports"),
            export_failures: r.count("export_failures", "Exports to the collector that failed"),
            log_lines_lost: r.count("log_lines_lost", "Log lines that could not be written"),
            registry: r.0,
        }
    }
}

const ADAPTER: &str = "adapter";
const CALL: &str = "Time from the arrival of a call to its result, without the time it was held";
const WAIT: &str = "Time that approvals wait for people";
const REVIEWS: &str = "Break-glass records that wait for their review now";
const MISCLASSIFIED: &str =
    "Calls that asked for another approval mode than the one that governs them";
const VIOLATIONS: &str = "Calls that were refused because their principal may not make them";
const CHECKED: &str = "Stored results compared with their digest before they were given again";
const BATCH: &str = "Entries that reach the disk together";
const NOTIFICATIONS: &str = "Messages to people, by channel and result";
const WAITING: &str = "Messages to people that wait for a channel now";
