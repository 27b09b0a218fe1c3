//! Which events count as what.

use serde_json::{Value, json};

use super::{Happened, Reading, ReportView, Timestamp, p99};

fn report(events: Vec<(i64, Value)>) -> ReportView {
    let range = (Timestamp::from_ms(0), Timestamp::from_ms(1_000_000));
    let mut reading = Reading::new("acme".parse().ok(), range);
    reading.happened = events
        .into_iter()
        .map(|(at_ms, event)| Happened { at_ms, ..serde_json::from_value(event).unwrap() })
        .collect();
    reading.view(|_| None)
}

fn event(kind: &str, call: &str, more: &Value) -> Value {
    let mut event =
        json!({ "kind": kind, "tenant": "acme", "call_id": call, "capability": "files/read" });
    event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    event
}

#[test]
fn five_metrics_are_counted_by_capability() {
    let modes = |asked: &str| json!({ "decision": { "mode_requested": asked, "mode_effective": "read_only" } });
    let report = report(vec![
        (10, event("read_dispatched", "c1", &modes("read_only"))),
        (110, event("read_settled", "c1", &json!({}))),
        (200, event("read_dispatched", "c2", &modes("network"))),
        (500, event("read_settled", "c2", &json!({ "code": "ADAPTER_FAILED" }))),
        (600, event("refused", "c3", &json!({ "code": "POLICY_DENIED" }))),
        (610, event("refused", "c3", &json!({ "code": "POLICY_DENIED" }))),
        (620, event("refused", "c4", &json!({ "code": "TOOL_NOT_FOUND" }))),
        (630, event("refused", "c5", &json!({ "code": "TOOL_NOT_FOUND", "capability": null }))),
        (640, event("replayed", "c6", &json!({}))),
        (650, event("replayed", "c7", &json!({ "code": "LEDGER_UNAVAILABLE" }))),
        (660, event("refused", "c8", &json!({ "code": "IDEMPOTENCY_CONFLICT" }))),
    ]);
    let names: Vec<&str> = report.rows.iter().map(|row| row.capability.as_str()).collect();
    assert_eq!(names, ["unresolved", "read"]);
    let read = &report.rows[1].numbers;
    assert_eq!((read.calls, read.succeeded, read.failed, read.refused), (7, 1, 1, 3));
    assert_eq!(read.success_rate, Some(0.5));
    assert_eq!((read.misclassified, read.misclassification_rate), (1, Some(0.5)));
    assert_eq!(read.violations, 2);
    assert_eq!((read.latency_mean_ms, read.latency_p99_ms), (Some(200), Some(300)));
    assert_eq!((read.replayed, read.replays_differed, read.conflicts), (1, 1, 1));
    assert_eq!(read.replay_correctness, Some(0.5));
    // By adapter, too: a mean and a percentile do not follow from those of its capabilities.
    assert_eq!(report.adapters.len(), 2);
    assert_eq!(report.adapters[1].numbers, *read);
    let total = &report.total;
    assert_eq!((total.calls, total.refused, total.violations), (8, 4, 2));
    assert_eq!(total.violation_rate, Some(0.25));
}

#[test]
fn a_refused_attempt_after_a_dispatch_is_not_a_refused_call() {
    let report = report(vec![
        (1, event("dispatched", "c1", &json!({}))),
        (2, event("security", "c1", &json!({ "code": "VALIDATION_ERROR" }))),
        (3, event("settled", "c1", &json!({ "note": "failed_retriable" }))),
    ]);
    let numbers = &report.total;
    assert_eq!((numbers.calls, numbers.refused, numbers.not_executed), (1, 0, 1));
    assert_eq!(numbers.success_rate, None);
}

#[test]
fn p99_is_the_nearest_rank() {
    let hundred: Vec<u64> = (1..=100).collect();
    assert_eq!((p99(&hundred), p99(&[7]), p99(&[])), (Some(99), Some(7), None));
}
