//! How spans join traces.

use super::trace_id_of;
use crate::export::TelemetryConfig;
use crate::names::attribute;
use crate::testing::Capture;
use crate::trace::{
    CallFields, Stage, call_span, continue_span, record_approval, record_replayed, stage_span,
    traceparent_of, tracestate_of,
};
use crate::traceparent::TraceParent;

const REMOTE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn capture() -> Capture {
    Capture::start(&TelemetryConfig::default()).unwrap()
}

fn without_collector<T>(config: &TelemetryConfig, test: impl FnOnce() -> T) -> T {
    let (dispatch, _guard) = super::build(config, None, std::io::sink).unwrap();
    tracing::dispatcher::with_default(&dispatch, test)
}

fn nothing_known() -> CallFields<'static> {
    CallFields::default()
}

#[test]
fn every_call_has_a_trace_id_without_a_collector() {
    without_collector(&TelemetryConfig::default(), || {
        let (one, other) =
            (call_span(None, None, &nothing_known()), call_span(None, None, &nothing_known()));
        let ids = [trace_id_of(&one).unwrap(), trace_id_of(&other).unwrap()];
        assert_ne!(ids[0], ids[1]);
        for id in &ids {
            assert!(TraceParent::parse(&format!("00-{id}-00f067aa0ba902b7-01")).is_some(), "{id}");
        }
        assert!(traceparent_of(&one).unwrap().ends_with("-01"));
    });
}

#[test]
fn a_log_filter_that_is_off_does_not_turn_trace_ids_off() {
    let config = TelemetryConfig { log_filter: "off".to_owned(), ..TelemetryConfig::default() };
    without_collector(&config, || {
        assert!(trace_id_of(&call_span(None, None, &nothing_known())).is_some());
    });
}

#[test]
fn calls_that_are_not_sampled_have_ids_too_and_say_so() {
    let config = TelemetryConfig { sample_ratio: 0.0, ..TelemetryConfig::default() };
    without_collector(&config, || {
        let parent = traceparent_of(&call_span(None, None, &nothing_known())).unwrap();
        assert!(parent.ends_with("-00"), "{parent}");
        // The decision of a remote parent stands.
        let remote = TraceParent::parse(REMOTE);
        let joined = traceparent_of(&call_span(remote.as_ref(), None, &nothing_known())).unwrap();
        assert!(joined.ends_with("-01"), "{joined}");
    });
}

#[test]
fn a_remote_trace_is_joined_with_its_state() {
    without_collector(&TelemetryConfig::default(), || {
        let remote = TraceParent::parse(REMOTE);
        let call = call_span(remote.as_ref(), Some("vendor=abc"), &nothing_known());
        let stage = stage_span(&call, Stage::Invoke);
        for span in [&call, &stage] {
            assert_eq!(trace_id_of(span), remote.map(|remote| remote.trace_id()));
            assert_eq!(tracestate_of(span).as_deref(), Some("vendor=abc"));
            assert!(!traceparent_of(span).unwrap().contains("00f067aa0ba902b7"));
        }
        // Nothing is exported, so the call's span stands for its stages.
        assert_eq!(traceparent_of(&call), traceparent_of(&stage));
    });
}

#[test]
fn a_remote_trace_that_is_not_recorded_is_not_recorded_here() {
    let capture = capture();
    let guard = tracing::dispatcher::set_default(&capture.dispatch);
    let remote = TraceParent::parse(&REMOTE.replace("-01", "-00"));
    let call = call_span(remote.as_ref(), None, &nothing_known());
    assert_eq!(trace_id_of(&call), remote.map(|remote| remote.trace_id()));
    assert!(traceparent_of(&call).unwrap().ends_with("-00"));
    drop((call, guard));
    flush(&capture);
    assert!(capture.spans.all().is_empty());
}

#[test]
fn a_malformed_traceparent_starts_a_new_trace() {
    without_collector(&TelemetryConfig::default(), || {
        let malformed = "00-00000000000000000000000000000000-00f067aa0ba902b7-01";
        let call = call_span(TraceParent::parse(malformed).as_ref(), None, &nothing_known());
        let id = trace_id_of(&call).unwrap();
        assert_ne!(id, "0".repeat(32));
        let resumed = continue_span(malformed, None, Stage::Invoke, &nothing_known());
        assert!(trace_id_of(&resumed).is_some_and(|other| other != id));
    });
}

#[test]
fn a_call_does_not_join_a_span_that_happens_to_be_entered() {
    without_collector(&TelemetryConfig::default(), || {
        let first = call_span(None, None, &nothing_known());
        let second = first.in_scope(|| call_span(None, None, &nothing_known()));
        assert_ne!(trace_id_of(&first), trace_id_of(&second));
    });
}

#[test]
fn a_held_call_goes_on_in_its_trace_in_another_process() {
    let kept = without_collector(&TelemetryConfig::default(), || {
        traceparent_of(&call_span(None, None, &nothing_known())).unwrap()
    });
    let capture = capture();
    let guard = tracing::dispatcher::set_default(&capture.dispatch);
    let fields = CallFields { tool_call_id: Some("call_1"), ..CallFields::default() };
    let approval = continue_span(&kept, None, Stage::Approval, &fields);
    record_approval(&approval, "apr_1", Some("approved"));
    record_replayed(&approval);
    drop((stage_span(&approval, Stage::Invoke), approval, guard));
    flush(&capture);

    let spans = capture.spans.all();
    let named = |name: &str| spans.iter().find(|span| span.name == name).unwrap();
    let (approval, invoke) = (named("placet.approval"), named("placet.invoke"));
    let (trace, parent) = (approval.span_context.trace_id(), approval.parent_span_id);
    assert!(kept.starts_with(&format!("00-{trace}-{parent}-")), "{kept}");
    assert_eq!(invoke.parent_span_id, approval.span_context.span_id());
    let value = |key: &str| {
        let found = approval.attributes.iter().find(|attribute| attribute.key.as_str() == key);
        found.unwrap().value.to_string()
    };
    assert_eq!(value(attribute::APPROVAL_ID), "apr_1");
    assert_eq!(value(attribute::APPROVAL_RESULT), "approved");
    assert_eq!(value(attribute::TOOL_CALL_ID), "call_1");
    assert_eq!(value(attribute::REPLAYED), "true");
}

#[test]
fn every_stage_has_its_span() {
    let capture = capture();
    let guard = tracing::dispatcher::set_default(&capture.dispatch);
    let call = call_span(None, None, &nothing_known());
    for stage in
        [Stage::Build, Stage::Broker, Stage::Gate, Stage::Invoke, Stage::Return, Stage::Approval]
    {
        drop(stage_span(&call, stage));
        flush(&capture);
        let spans = capture.spans.all();
        let last = spans.last().unwrap().name.to_string();
        assert_eq!(last, format!("placet.{}", stage.as_str()));
    }
    drop((call, guard));
}

/// Without a runtime the guard cannot flush.
fn flush(capture: &Capture) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(capture.guard.flush()).unwrap();
}
