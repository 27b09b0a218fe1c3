//! The text that is served, read back line by line.

use std::collections::BTreeMap;
use std::time::Duration;

use placet_types::envelope::result::ResultStatus;
use placet_types::error::ErrorCode;

use super::{Duplicate, Metrics};
use crate::trace::Stage;

/// What a scraper would make of the text. It refuses what is not OpenMetrics.
struct Scraped {
    types: BTreeMap<String, String>,
    samples: BTreeMap<String, f64>,
}

impl Scraped {
    fn read(text: &str) -> Self {
        let mut scraped = Self { types: BTreeMap::new(), samples: BTreeMap::new() };
        let body = text.strip_suffix("# EOF\n").expect("the text ends with its mark");
        let mut helped = Vec::new();
        for line in body.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert!(helped.contains(&name.to_owned()), "{name} has no help text");
                scraped.types.insert(name.to_owned(), kind.to_owned());
            } else if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').unwrap();
                assert!(help.len() > 10, "{name}");
                helped.push(name.to_owned());
            } else if let Some(rest) = line.strip_prefix("# UNIT ") {
                let (name, unit) = rest.split_once(' ').unwrap();
                assert!(name.ends_with(unit), "{name}");
            } else {
                let (name, value) = line.rsplit_once(' ').unwrap();
                scraped.samples.insert(name.to_owned(), value.parse().unwrap());
            }
        }
        for sample in scraped.samples.keys() {
            let known = scraped.types.keys().any(|name| sample.starts_with(name.as_str()));
            assert!(known && sample.starts_with("placet_"), "{sample}");
        }
        scraped
    }

    fn sample(&self, name: &str) -> f64 {
        *self.samples.get(name).unwrap_or_else(|| panic!("no {name} in {:?}", self.samples.keys()))
    }
}

fn ended(metrics: &Metrics, adapter: &str, status: ResultStatus, code: Option<ErrorCode>) {
    let took = Duration::from_millis(20);
    let capability = format!("{adapter}/read").parse().unwrap();
    metrics.record_call(Some(&capability), status, code, took);
}

#[test]
fn everything_that_was_recorded_is_in_the_text() {
    let metrics = Metrics::new();
    ended(&metrics, "files", ResultStatus::Succeeded, None);
    ended(&metrics, "files", ResultStatus::Succeeded, None);
    ended(&metrics, "files", ResultStatus::Refused, Some(ErrorCode::ValidationError));
    metrics.record_adapter("files", "read", Duration::from_millis(2));
    metrics.record_stage(Stage::Gate, Duration::from_micros(300));
    metrics.set_breaker("files", true);
    metrics.set_approvals_pending(3);
    metrics.set_outcomes_unknown(2);
    metrics.count_grant_used();
    metrics.count_credential("reused");
    metrics.set_subjects_revoked(4);
    metrics.count_notification("ops", "sent");
    metrics.count_notification("ops", "sent");
    metrics.set_notifications_waiting("ops", 7);
    metrics.set_reviews_due(2);
    metrics.record_approval("approved", Duration::from_secs(90));
    metrics.count_duplicate(Duplicate::Replayed);
    metrics.count_duplicate(Duplicate::Conflict);
    metrics.record_journal_sync(17, Duration::from_millis(1));
    metrics.count_actor_restart("ledger");
    let held = metrics.enter_adapter("files");

    let scraped = Scraped::read(&metrics.encode());
    let call =
        |rest: &str| format!(r#"placet_calls_total{{adapter="files",capability="read",{rest}}}"#);
    for (sample, value) in [
        (call(r#"status="succeeded",code="none""#).as_str(), 2.0),
        (call(r#"status="refused",code="VALIDATION_ERROR""#).as_str(), 1.0),
        (r#"placet_call_seconds_count{adapter="files"}"#, 3.0),
        (r#"placet_call_seconds_bucket{le="0.025",adapter="files"}"#, 3.0),
        (r#"placet_call_seconds_bucket{le="0.01",adapter="files"}"#, 0.0),
        (r#"placet_adapter_seconds_sum{adapter="files",capability="read"}"#, 0.002),
        (r#"placet_stage_seconds_count{stage="gate"}"#, 1.0),
        (r#"placet_breaker_state{adapter="files"}"#, 1.0),
        (r#"placet_inflight{adapter="files"}"#, 1.0),
        ("placet_approvals_pending", 3.0),
        ("placet_outcomes_unknown", 2.0),
        ("placet_grants_used_total", 1.0),
        (r#"placet_credentials_total{what="reused"}"#, 1.0),
        (r#"placet_credentials_total{what="refused"}"#, 0.0),
        ("placet_subjects_revoked", 4.0),
        ("placet_break_glass_reviews_due", 2.0),
        (r#"placet_notifications_total{channel="ops",result="sent"}"#, 2.0),
        (r#"placet_notifications_waiting{channel="ops"}"#, 7.0),
        (r#"placet_approvals_total{result="approved"}"#, 1.0),
        (r#"placet_duplicates_total{what="replayed"}"#, 1.0),
        (r#"placet_duplicates_total{what="conflict"}"#, 1.0),
        ("placet_journal_batch_size_sum", 17.0),
        (r#"placet_actor_restarts_total{actor="ledger"}"#, 1.0),
        ("placet_permission_violations_total", 0.0),
    ] {
        assert!((scraped.sample(sample) - value).abs() < 1e-9, "{sample}");
    }
    drop(held);
    let after = Scraped::read(&metrics.encode());
    assert!(after.sample(r#"placet_inflight{adapter="files"}"#).abs() < 1e-9);
}

#[test]
fn fresh_metrics_are_a_valid_text_and_every_one_is_described() {
    let scraped = Scraped::read(&Metrics::new().encode());
    for name in [
        "placet_stage_seconds",
        "placet_decision_seconds",
        "placet_mode_misclassified",
        "placet_permission_violations",
        "placet_duplicates",
        "placet_indeterminate",
        "placet_journal_sync_seconds",
        "placet_export_failures",
        "placet_spans_dropped",
    ] {
        assert!(scraped.types.contains_key(name), "{name}");
    }
    // A metric that must stay zero can only be watched if it exists before its first event.
    assert!(scraped.sample(r#"placet_duplicates_total{what="expired"}"#).abs() < 1e-9);
    assert!(scraped.sample(r#"placet_stage_seconds_count{stage="approval"}"#).abs() < 1e-9);
}

#[test]
fn a_label_cannot_break_out_of_its_quotes() {
    let metrics = Metrics::new();
    metrics.count_retry("a\"} 1\nplacet_evil 2", "read");
    let text = metrics.encode();
    assert!(!text.contains("\nplacet_evil"));
    assert!(text.contains(r#"a\"} 1\nplacet_evil 2"#));
}
