//! Spans on their way to a collector that works, is down, or hangs.

use std::time::Duration;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span as Exported;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use placet_egress::{EgressClient, EgressPolicy, Limits};
use placet_types::envelope::result::ResultStatus;
use placet_types::error::ErrorCode;
use placet_types::mode::ApprovalMode;
use tokio::time::{Instant, timeout};
use tracing::Span;

use super::build;
use super::collectors::{self, Received};
use crate::export::{OtlpProtocol, TelemetryConfig, TelemetryError, TelemetryGuard};
use crate::names::attribute;
use crate::testing::CapturedLog;
use crate::trace::{
    AdapterFields, CallFields, Stage, adapter_span, call_span, record_decision, record_outcome,
    stage_span, traceparent_of,
};
use crate::traceparent::TraceParent;

const REMOTE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const CANARY: &str = "c4n4ry-7f3a9b2e";
const SOON: Duration = Duration::from_secs(5);
/// 200 calls that each waited for the collector would take at least four times as long.
const UNBLOCKED: Duration = Duration::from_secs(10);

/// One governed call, as the pipeline makes it. Returns what the adapter was given.
fn one_call(tool: &str) -> String {
    let parent = TraceParent::parse(REMOTE);
    let fields = CallFields {
        tenant: Some("acme"),
        run_id: Some("run_1"),
        tool_call_id: Some("call_1"),
        tool: Some(tool),
    };
    let call = call_span(parent.as_ref(), Some("vendor=abc"), &fields);
    for stage in [Stage::Build, Stage::Broker] {
        drop(stage_span(&call, stage));
    }
    let gate = stage_span(&call, Stage::Gate);
    record_decision(&gate, ApprovalMode::LocalWrite, "dec_1");
    record_decision(&call, ApprovalMode::LocalWrite, "dec_1");
    drop(gate);
    let invoke = stage_span(&call, Stage::Invoke);
    let fields = AdapterFields {
        adapter: "everything",
        mcp_method: Some("tools/call"),
        tool: "echo",
        attempt: 1,
    };
    let adapter = adapter_span(&invoke, &fields);
    let passed_on = traceparent_of(&adapter).unwrap();
    drop((adapter, invoke));
    let end = stage_span(&call, Stage::Return);
    end.in_scope(|| tracing::info!(access_token = CANARY, "settled, Bearer {CANARY}"));
    record_outcome(&call, ResultStatus::Failed, Some(ErrorCode::ValidationError));
    passed_on
}

fn attribute_of(span: &Exported, key: &str) -> Option<Value> {
    let found = span.attributes.iter().find(|attribute| attribute.key == key)?;
    found.value.clone()?.value
}

fn text_of(span: &Exported, key: &str) -> String {
    match attribute_of(span, key) {
        Some(Value::StringValue(text)) => text,
        other => panic!("{key} is {other:?}"),
    }
}

fn named<'a>(spans: &'a [Exported], name: &str) -> &'a Exported {
    let mut found = spans.iter().filter(|span| span.name == name);
    let first = found.next().unwrap_or_else(|| panic!("no span {name}"));
    assert!(found.next().is_none(), "two spans {name}");
    first
}

fn check_tree(received: &Received, passed_on: &str) {
    let spans = received.spans();
    let call = named(&spans, "placet.call");
    assert_eq!(hex(&call.trace_id), "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(hex(&call.parent_span_id), "00f067aa0ba902b7");
    assert_eq!(call.trace_state, "vendor=abc");
    for stage in ["placet.build", "placet.broker", "placet.gate", "placet.invoke", "placet.return"]
    {
        let stage = named(&spans, stage);
        assert_eq!(stage.parent_span_id, call.span_id);
        assert_eq!(stage.trace_id, call.trace_id);
    }
    let adapter = named(&spans, "placet.adapter");
    assert_eq!(adapter.parent_span_id, named(&spans, "placet.invoke").span_id);
    let ids = format!("00-{}-{}-01", hex(&adapter.trace_id), hex(&adapter.span_id));
    assert_eq!(passed_on, ids);
    assert_eq!(spans.len(), 7);

    assert_eq!(call.kind, i32::from(SpanKind::Server));
    assert_eq!(adapter.kind, i32::from(SpanKind::Client));
    for span in [call, named(&spans, "placet.gate")] {
        assert_eq!(text_of(span, attribute::MODE_EFFECTIVE), "local_write");
        assert_eq!(text_of(span, attribute::POLICY_DECISION_ID), "dec_1");
    }
    assert_eq!(text_of(call, attribute::TENANT), "acme");
    assert_eq!(text_of(call, attribute::RUN_ID), "run_1");
    assert_eq!(text_of(call, attribute::TOOL_CALL_ID), "call_1");
    assert_eq!(text_of(call, attribute::TOOL_NAME), "everything__echo");
    assert_eq!(text_of(call, attribute::STATUS), "failed");
    assert_eq!(text_of(call, attribute::ERROR_CODE), "VALIDATION_ERROR");
    assert_eq!(call.status.as_ref().map(|status| status.code), Some(2));
    assert_eq!(text_of(adapter, attribute::MCP_METHOD), "tools/call");
    assert_eq!(text_of(adapter, attribute::MCP_SERVER_ID), "everything");
    assert_eq!(attribute_of(adapter, attribute::ATTEMPT), Some(Value::IntValue(1)));
    // What nobody recorded is not there, and nothing says which file or thread made a span.
    assert_eq!(attribute_of(call, attribute::REPLAYED), None);
    let rest = spans.iter().flat_map(|span| &span.attributes).any(|attribute| {
        attribute.key.starts_with("code.") || attribute.key.starts_with("thread.")
    });
    assert!(!rest);
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn contains(bytes: &[u8], needle: &str) -> bool {
    bytes.windows(needle.len()).any(|window| window == needle.as_bytes())
}

async fn a_call_is_exported(protocol: OtlpProtocol) {
    let (received, address) = match protocol {
        OtlpProtocol::Grpc => collectors::grpc().await,
        OtlpProtocol::HttpProtobuf => collectors::http().await,
    };
    let (config, egress) = collectors::config(address, protocol, SOON);
    let config = TelemetryConfig {
        resource_attributes: vec![
            ("deployment.environment.name".to_owned(), "test".to_owned()),
            ("some.secret".to_owned(), CANARY.to_owned()),
        ],
        ..config
    };
    let log = CapturedLog::default();
    let writer = log.clone();
    let (dispatch, guard) = build(&config, Some(&egress), move || writer.clone()).unwrap();
    let passed_on = tracing::dispatcher::with_default(&dispatch, || one_call("everything__echo"));
    let metrics = guard.metrics();
    timeout(SOON, guard.shutdown()).await.unwrap().unwrap();

    check_tree(&received, &passed_on);
    assert_eq!(received.api_keys(), ["collector-key"]);
    let resource = received.resource();
    for part in ["service.name", "placet", "deployment.environment.name"] {
        assert!(resource.contains(part), "{resource}");
    }
    assert!(!contains(&received.bytes(), CANARY));
    assert!(contains(&received.bytes(), "everything__echo"), "the search would find a canary");
    assert!(log.text().contains("settled"));
    assert!(!log.text().contains(CANARY) && !log.text().contains("collector-key"));
    assert!(metrics.encode().contains("placet_spans_exported_total 7"));
}

#[tokio::test]
async fn a_call_is_exported_over_grpc() {
    a_call_is_exported(OtlpProtocol::Grpc).await;
}

#[tokio::test]
async fn a_call_is_exported_over_http() {
    a_call_is_exported(OtlpProtocol::HttpProtobuf).await;
}

#[tokio::test]
async fn a_secret_that_got_into_a_span_does_not_leave_it() {
    let (received, address) = collectors::grpc().await;
    let (config, egress) = collectors::config(address, OtlpProtocol::Grpc, SOON);
    let (dispatch, guard) = build(&config, Some(&egress), std::io::sink).unwrap();
    tracing::dispatcher::with_default(&dispatch, || {
        let _passed_on = one_call(&format!("https://user:{CANARY}@example.com/"));
        // A span of another crate, and one that a careless `instrument` would make here.
        drop(tracing::info_span!(target: "rmcp", "request", arguments = CANARY));
        drop(tracing::info_span!(target: "placet_engine", "handle", arguments = CANARY));
    });
    timeout(SOON, guard.shutdown()).await.unwrap().unwrap();
    assert_eq!(received.spans().len(), 7);
    assert!(!contains(&received.bytes(), CANARY));
    assert!(contains(&received.bytes(), "https://[redacted]@example.com/"));
}

async fn calls_go_on(
    config: &TelemetryConfig,
    egress: &EgressClient,
) -> (TelemetryGuard, Duration) {
    let (dispatch, guard) = build(config, Some(egress), std::io::sink).unwrap();
    let started = Instant::now();
    tracing::dispatcher::with_default(&dispatch, || {
        for _ in 0..200 {
            let _passed_on = one_call("everything__echo");
        }
    });
    (guard, started.elapsed())
}

#[tokio::test]
async fn a_collector_that_is_down_costs_spans_and_nothing_else() {
    for protocol in [OtlpProtocol::Grpc, OtlpProtocol::HttpProtobuf] {
        let limit = Duration::from_millis(300);
        let (config, egress) = collectors::config(collectors::nobody().await, protocol, limit);
        let (guard, took) = calls_go_on(&config, &egress).await;
        assert!(took < UNBLOCKED, "{took:?}");
        let metrics = guard.metrics();
        let _incomplete = timeout(4 * SOON, guard.shutdown()).await.expect("it ends in time");
        assert!(counter(&metrics.encode(), "placet_export_failures_total") >= 1);
        assert_eq!(counter(&metrics.encode(), "placet_spans_exported_total"), 0);
    }
}

#[tokio::test]
async fn a_collector_that_hangs_costs_spans_and_nothing_else() {
    for protocol in [OtlpProtocol::Grpc, OtlpProtocol::HttpProtobuf] {
        let limit = Duration::from_millis(200);
        let (config, egress) = collectors::config(collectors::hanging().await, protocol, limit);
        let (guard, took) = calls_go_on(&config, &egress).await;
        assert!(took < UNBLOCKED, "{took:?}");
        let metrics = guard.metrics();
        let _incomplete = timeout(4 * SOON, guard.shutdown()).await.expect("it ends in time");
        assert!(counter(&metrics.encode(), "placet_export_failures_total") >= 1);
    }
}

fn counter(text: &str, name: &str) -> u64 {
    let line = text.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap();
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

#[tokio::test]
async fn a_collector_that_egress_does_not_allow_is_not_reached() {
    let (received, address) = collectors::http().await;
    let limit = Duration::from_millis(300);
    let (config, _egress) = collectors::config(address, OtlpProtocol::HttpProtobuf, limit);
    let egress = EgressClient::new(EgressPolicy::default(), Limits::default()).unwrap();
    let (guard, _took) = calls_go_on(&config, &egress).await;
    let metrics = guard.metrics();
    let _incomplete = timeout(4 * SOON, guard.shutdown()).await.expect("it ends in time");
    assert!(counter(&metrics.encode(), "placet_export_failures_total") >= 1);
    assert!(received.spans().is_empty());
}

#[tokio::test]
async fn a_configuration_that_cannot_work_is_refused_at_start() {
    let address = collectors::nobody().await;
    let (config, egress) = collectors::config(address, OtlpProtocol::Grpc, SOON);
    let refused = |config: &TelemetryConfig, egress: Option<&EgressClient>| {
        build(config, egress, std::io::sink).unwrap_err()
    };
    assert!(matches!(refused(&config, None), TelemetryError::Unusable("endpoint", _)));

    let bad = |change: fn(&mut TelemetryConfig)| {
        let mut config = config.clone();
        change(&mut config);
        refused(&config, Some(&egress))
    };
    assert!(matches!(bad(|c| c.log_filter = "a=b=c".into()), TelemetryError::LogFilter(_)));
    for ratio in [-0.1, 1.1, f64::NAN] {
        let config = TelemetryConfig { sample_ratio: ratio, ..TelemetryConfig::default() };
        assert!(matches!(refused(&config, None), TelemetryError::Unusable(..)), "{ratio}");
    }
    let header = bad(|c| {
        let otlp = c.otlp.as_mut().unwrap();
        otlp.headers = vec![("x-api-key".into(), "c4n4ry-7f3a9b2e\n".into())];
    });
    assert!(matches!(header, TelemetryError::Unusable("headers", _)));
    assert!(!header.to_string().contains(CANARY));
    let timeout = bad(|c| c.otlp.as_mut().unwrap().timeout_ms = 0);
    assert!(matches!(timeout, TelemetryError::Unusable("timeout_ms", _)));
}

#[tokio::test]
async fn the_configuration_does_not_show_its_headers() {
    let address = collectors::nobody().await;
    let (config, _egress) = collectors::config(address, OtlpProtocol::Grpc, SOON);
    let shown = format!("{config:?}");
    assert!(shown.contains("x-api-key") && !shown.contains("collector-key"), "{shown}");
}

#[test]
fn an_exporter_outside_of_a_runtime_is_refused() {
    let address = "127.0.0.1:1".parse().unwrap();
    let (config, egress) = collectors::config(address, OtlpProtocol::Grpc, SOON);
    let refused = build(&config, Some(&egress), std::io::sink).unwrap_err();
    assert!(matches!(refused, TelemetryError::Unusable("endpoint", _)));
}

#[test]
fn without_a_subscriber_spans_do_nothing() {
    tracing::dispatcher::with_default(&tracing::Dispatch::none(), || {
        let span: Span = call_span(None, None, &CallFields::default());
        assert_eq!(traceparent_of(&span), None);
        assert_eq!(traceparent_of(&stage_span(&span, Stage::Gate)), None);
    });
}
