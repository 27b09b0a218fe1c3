//! Log lines in both forms.

use std::{collections::BTreeMap, io};

use serde_json::Value;

use super::build;
use super::trace_id_of;
use crate::export::{LogFormat, TelemetryConfig};
use crate::testing::{Capture, CapturedLog};
use crate::trace::{CallFields, Stage, call_span, record_call, stage_span};

const CANARY: &str = "c4n4ry-7f3a9b2e";

fn capture(log_format: LogFormat, log_filter: &str) -> Capture {
    let log_filter = log_filter.to_owned();
    let config = TelemetryConfig { log_format, log_filter, ..TelemetryConfig::default() };
    Capture::start(&config).unwrap()
}

fn logged(log_format: LogFormat, log_filter: &str, test: impl FnOnce()) -> String {
    let capture = capture(log_format, log_filter);
    tracing::dispatcher::with_default(&capture.dispatch, test);
    capture.log.text()
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn leak() {
    let jwt = "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJ1In0.c4n4ry-7f3a9b2e";
    tracing::info!(authorization = CANARY, client_secret = ?Some(CANARY), note = %jwt, "first");
    tracing::info!("the header was authorization: Basic {CANARY}");
    tracing::info!(error = %format!("GET https://u:{CANARY}@host/?token={CANARY} failed"), "third");
    tracing::info!(session_id = CANARY, note = %format!("mcp-session-id: {CANARY}"), "a session");
    tracing::info!(headers = ?BTreeMap::from([("mcp-session-id", CANARY)]), "session_id={CANARY}");
    let refused = io::Error::other(format!("sent Bearer {CANARY}"));
    let refused: &(dyn std::error::Error + 'static) = &refused;
    tracing::info!(error = refused, "fourth");
    let fields = CallFields { tool: Some("Bearer c4n4ry-7f3a9b2e"), ..CallFields::default() };
    let call = call_span(None, None, &fields);
    call.in_scope(|| tracing::info!("in a span"));
}

#[test]
fn no_secret_reaches_a_line_in_either_form() {
    for format in [LogFormat::Json, LogFormat::People] {
        let text = logged(format, "info", leak);
        assert_eq!(text.lines().count(), 7, "{text}");
        assert!(!text.contains("c4n4ry"), "{text}");
        assert_eq!(text.matches("[redacted]").count(), 12, "{text}");
    }
}

#[test]
fn a_json_line_carries_its_call_and_its_trace() {
    let mut trace_id = None;
    let text = logged(LogFormat::Json, "info", || {
        let fields = CallFields { tenant: Some("acme"), ..CallFields::default() };
        let call = call_span(None, None, &fields);
        record_call(&call, &CallFields { tool_call_id: Some("call_1"), ..CallFields::default() });
        let gate = stage_span(&call, Stage::Gate);
        trace_id = trace_id_of(&gate);
        gate.in_scope(|| tracing::warn!(attempt = 2, held = true, "waits for people"));
    });
    let line = &lines(&text)[0];
    assert_eq!(line["level"], "WARN");
    assert_eq!(line["message"], "waits for people");
    assert_eq!(line["fields"], serde_json::json!({"attempt": 2, "held": true}));
    assert_eq!(line["span"], "placet.gate");
    assert_eq!(line["call"]["placet.tenant"], "acme");
    assert_eq!(line["call"]["placet.tool_call_id"], "call_1");
    assert!(line["call"].get("otel.kind").is_none());
    assert_eq!(line["trace_id"].as_str(), trace_id.as_deref());
    let timestamp = line["timestamp"].as_str().unwrap();
    assert!(timestamp.starts_with("20") && timestamp.ends_with('Z'), "{timestamp}");
}

#[test]
fn a_line_for_people_reads_from_left_to_right() {
    let text = logged(LogFormat::People, "info", || {
        let fields = CallFields { tool: Some("files__read"), ..CallFields::default() };
        call_span(None, None, &fields).in_scope(|| tracing::info!(path = "a b", size = 3, "done"));
    });
    assert!(
        text.contains("  INFO placet_telemetry::tests::logs: done path=\"a b\" size=3"),
        "{text}"
    );
    assert!(text.contains(" | placet.call "), "{text}");
    assert!(text.contains(" gen_ai.tool.name=files__read trace_id="), "{text}");
}

#[test]
fn a_line_cannot_be_forged_from_within() {
    let evil = "a\n2026-01-01 INFO placet: all is well\u{1b}[2J\u{202e}\u{2028}";
    for format in [LogFormat::Json, LogFormat::People] {
        let text = logged(format, "info", || tracing::info!(evil, "x{evil}"));
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }
    let text = logged(LogFormat::People, "info", || tracing::info!("x{evil}"));
    assert!(!text.contains(['\u{202e}', '\u{2028}']), "{text}");
}

#[test]
fn a_long_text_is_cut_off_and_a_secret_at_the_cut_is_masked() {
    let jwt = "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJ1In0.c4n4ry-7f3a9b2e";
    let long = format!("{} {jwt} {}", "ä".repeat(2_030), "b".repeat(100_000));
    let text = logged(LogFormat::Json, "info", || tracing::info!(long, "x"));
    assert!(text.len() < 5_000, "{}", text.len());
    assert!(text.contains("[redacted]…") && !text.contains("eyJ"), "{text}");
}

#[test]
fn other_crates_cannot_log_payloads_below_info_whatever_the_filter_says() {
    let text = logged(LogFormat::Json, "trace", || {
        tracing::trace!(target: "rmcp::service", arguments = CANARY, "received");
        tracing::debug!(target: "hyper::proto", body = CANARY, "sent");
        tracing::info!(target: "rmcp::service", "connected");
        tracing::debug!(target: "placet_engine::gate", "decided");
        drop(tracing::info_span!(target: "rmcp", "serve", arguments = CANARY).entered());
    });
    let messages: Vec<Value> = lines(&text).iter().map(|line| line["message"].clone()).collect();
    assert_eq!(messages, ["connected", "decided"]);
    assert!(!text.contains(CANARY));
}

#[test]
fn the_filter_chooses_by_target_and_level() {
    let text = logged(LogFormat::Json, "warn,placet_engine=debug", || {
        tracing::info!(target: "placet_api", "not this");
        tracing::debug!(target: "placet_engine", "this");
        call_span(None, None, &CallFields { tenant: Some("acme"), ..CallFields::default() })
            .in_scope(|| tracing::warn!(target: "placet_api", "and this"));
    });
    let lines = lines(&text);
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[1]["call"]["placet.tenant"], "acme", "spans stand beside every line");
}

/// A standard error stream that was closed.
#[derive(Debug)]
struct Closed;

impl io::Write for Closed {
    fn write(&mut self, _piece: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_log_that_cannot_be_written_breaks_nothing_and_is_counted() {
    let (dispatch, guard) = build(&TelemetryConfig::default(), None, || Closed).unwrap();
    tracing::dispatcher::with_default(&dispatch, || tracing::info!("lost"));
    assert!(guard.metrics().encode().contains("placet_log_lines_lost_total 1"));
    assert_eq!(CapturedLog::default().text(), "");
}
