//! The names and help texts under which the metrics are registered, and their buckets.
//!
//! Owns nothing else. The suffixes `_total` and `_seconds` are added by the registry.

use std::hash::Hash;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry, Unit};

use super::{Bounded, ChannelLabels, Inner, NoticeLabels, ResultLabels, WhatLabels};

/// From half a millisecond, a read that is governed in memory, to the longest budget of a tool.
const CALL_SECONDS: [f64; 16] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0,
    300.0,
];
/// Decisions and disk syncs.
const SHORT_SECONDS: [f64; 12] =
    [0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 1.0];
/// People.
const WAIT_SECONDS: [f64; 11] =
    [1.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 86_400.0, 259_200.0, 604_800.0];
const BATCH_SIZES: [f64; 10] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];

fn histograms<L: Clone + Hash + Eq>() -> Family<L, Histogram> {
    let make: fn() -> Histogram = || Histogram::new(CALL_SECONDS);
    Family::new_with_constructor(make)
}

/// A registry that hands out what it registers.
struct Register(Registry);

impl Register {
    fn metric<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M {
        self.0.register(name, help, metric.clone());
        metric
    }

    fn count<M: Metric + Clone + Default>(&mut self, name: &str, help: &str) -> M {
        self.metric(name, help, M::default())
    }

    fn seconds<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M {
        self.0.register_with_unit(name, help, Unit::Seconds, metric.clone());
        metric
    }
}

fn entries(r: &mut Register) -> (Counter, Gauge) {
    let grants_used = r.count("grants_used", "Calls that a standing grant let pass");
    let help = "Break-glass records that wait for their review now";
    (grants_used, r.count("break_glass_reviews_due", help))
}

fn credentials(r: &mut Register) -> (Family<WhatLabels, Counter>, Gauge) {
    let help = "Credentials that token services were asked for, by what came of it";
    let credentials = r.count("credentials", help);
    (credentials, r.count("subjects_revoked", "Subjects whose earlier tokens are revoked now"))
}

impl Inner {
    pub(super) fn registered() -> Self {
        let mut r = Register(Registry::with_prefix("placet"));
        let calls = r.count("calls", "Calls that ended, by how");
        let call_seconds = r.seconds(
            "call",
            "Time from the arrival of a call to its result, without the time it was held",
            histograms(),
        );
        let help = "Time of one attempt at an adapter";
        let adapter_seconds = r.seconds("adapter", help, histograms());
        let stage_seconds = r.seconds("stage", "Time that calls spend in a stage", histograms());
        let retries = r.count("retries", "Attempts at an adapter that were repeated");
        let inflight: Family<_, Gauge> = r.count("inflight", "Calls that are with an adapter now");
        let help = "Circuit breaker of an adapter: 0 closed, 1 open";
        let breaker_state: Family<_, Gauge> = r.count("breaker_state", help);
        let (approvals, approvals_pending, approval_wait_seconds) = approvals(&mut r);
        let (grants_used, break_glass_reviews_due) = entries(&mut r);
        let (credentials, subjects_revoked) = credentials(&mut r);
        let help = "Time that policy takes to decide";
        let decision_seconds = r.seconds("decision", help, Histogram::new(SHORT_SECONDS));
        let help = "Calls that asked for another approval mode than the one that governs them";
        let mode_misclassified = r.count("mode_misclassified", help);
        let help = "Calls that were refused because their principal may not make them";
        let permission_violations = r.count("permission_violations", help);
        let replays = r.count("replays", "Calls that were answered with a stored result");
        let help = "Stored results compared with their digest before they were given again";
        let replays_checked = r.count("replays_checked", help);
        let duplicates = r.count("duplicates", "Repeated calls, by what they met");
        let help = "Calls of which nobody knows whether their effect happened";
        let indeterminate = r.count("indeterminate", help);
        let help = "Time that the journal takes to reach the disk";
        let journal_sync_seconds = r.seconds("journal_sync", help, Histogram::new(SHORT_SECONDS));
        let help = "Entries that reach the disk together";
        let journal_batch_size = r.metric("journal_batch_size", help, Histogram::new(BATCH_SIZES));
        let actor_restarts = r.count("actor_restarts", "Actors that were started again");
        let (notifications, notifications_waiting) = notifications(&mut r);
        let exports = exports(&mut r);
        Self {
            calls: Bounded::new(calls),
            call_seconds: Bounded::new(call_seconds),
            adapter_seconds: Bounded::new(adapter_seconds),
            stage_seconds,
            retries: Bounded::new(retries),
            inflight: Bounded::new(inflight),
            breaker_state: Bounded::new(breaker_state),
            approvals_pending,
            approvals,
            approval_wait_seconds,
            grants_used,
            break_glass_reviews_due,
            credentials,
            subjects_revoked,
            decision_seconds,
            mode_misclassified,
            permission_violations,
            replays,
            replays_checked,
            duplicates,
            indeterminate,
            journal_sync_seconds,
            journal_batch_size,
            actor_restarts: Bounded::new(actor_restarts),
            notifications,
            notifications_waiting,
            spans_exported: exports.exported,
            spans_dropped: exports.dropped,
            spans_failed: exports.failed,
            export_failures: exports.failures,
            log_lines_lost: exports.log_lines_lost,
            registry: r.0,
        }
    }
}

fn approvals(r: &mut Register) -> (Family<ResultLabels, Counter>, Gauge, Histogram) {
    let approvals = r.count("approvals", "Approvals that ended, by their result");
    let pending = r.count("approvals_pending", "Approvals that wait for people now");
    let help = "Time that approvals wait for people";
    let wait = r.seconds("approval_wait", help, Histogram::new(WAIT_SECONDS));
    (approvals, pending, wait)
}

fn notifications(
    r: &mut Register,
) -> (Bounded<NoticeLabels, Counter>, Bounded<ChannelLabels, Gauge>) {
    let told = r.count("notifications", "Messages to people, by channel and result");
    let help = "Messages to people that wait for a channel now";
    let waiting = r.count("notifications_waiting", help);
    (Bounded::new(told), Bounded::new(waiting))
}

struct Exports {
    exported: Counter,
    dropped: Counter,
    failed: Counter,
    failures: Counter,
    log_lines_lost: Counter,
}

fn exports(r: &mut Register) -> Exports {
    let help = "Spans that were dropped because too many waited for their export";
    Exports {
        exported: r.count("spans_exported", "Spans that the collector took"),
        dropped: r.count("spans_dropped", help),
        failed: r.count("spans_failed", "Spans that were lost in failed exports"),
        failures: r.count("export_failures", "Exports to the collector that failed"),
        log_lines_lost: r.count("log_lines_lost", "Log lines that could not be written"),
    }
}
