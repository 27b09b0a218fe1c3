//! One call, one trace: from the caller's span through the stages to the server behind the adapter.
//!
//! Owns the span tree as a collector sees it. What must not be in it is in `secrets`.

use std::fs;

use http::Method;
use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind};
use serde_json::{Value, json};

use crate::harness::{
    client::text,
    npm,
    otlp::{self, Received, attributes, hex},
    setup::{Setup, plan},
};

/// A trace that began somewhere else, in the form of the header.
struct Remote {
    trace: String,
    span: String,
}

impl Remote {
    fn new(number: u8) -> Self {
        Self {
            trace: format!("{number:02x}").repeat(16),
            span: format!("{:02x}", number | 0x80).repeat(8),
        }
    }

    fn header(&self) -> String {
        format!("00-{}-{}-01", self.trace, self.span)
    }
}

fn exporting(setup: Setup, endpoint: &url::Url, protocol: &str) -> Setup {
    setup.with(
        "telemetry",
        json!({ "otlp": { "endpoint": endpoint.as_str(), "protocol": protocol } }),
    )
}

fn child_of(child: &Span, parent: &Span) {
    assert_eq!(
        hex(&child.parent_span_id),
        hex(&parent.span_id),
        "`{}` is not a child of `{}`",
        child.name,
        parent.name
    );
}

fn lies_within(child: &Span, parent: &Span) {
    let fits = parent.start_time_unix_nano <= child.start_time_unix_nano
        && child.end_time_unix_nano <= parent.end_time_unix_nano;
    assert!(fits, "`{}` does not lie within `{}`", child.name, parent.name);
}

/// One call over one protocol of export.
async fn one_call_is_one_trace(collector: (Received, url::Url), protocol: &str) {
    let (received, endpoint) = collector;
    let setup = exporting(Setup::new(), &endpoint, protocol);
    setup.put("a.txt", "x");
    let placet = setup.start().await;
    let remote = Remote::new(0x1a);
    let read = plan("files__read", "s1", json!({ "path": "a.txt" }));
    let result = setup
        .agent(&placet)
        .await
        .call_with(&read, "traceparent", &remote.header())
        .await
        .succeeded();
    assert_eq!(result["trace_id"], remote.trace);
    let trace = received.trace(&remote.trace, "placet.call", 1).await;
    assert_eq!(
        trace.names(),
        [
            "placet.adapter",
            "placet.broker",
            "placet.build",
            "placet.call",
            "placet.gate",
            "placet.invoke",
            "placet.return"
        ]
    );

    let call = trace.one("placet.call");
    assert_eq!(hex(&call.parent_span_id), remote.span, "the caller's span is the parent");
    assert_eq!(call.kind(), SpanKind::Server);
    for stage in ["placet.build", "placet.broker", "placet.gate", "placet.invoke", "placet.return"]
    {
        child_of(trace.one(stage), call);
        lies_within(trace.one(stage), call);
    }
    let adapter = trace.one("placet.adapter");
    child_of(adapter, trace.one("placet.invoke"));
    lies_within(adapter, trace.one("placet.invoke"));
    assert_eq!(adapter.kind(), SpanKind::Client);

    let said = attributes(call);
    let expected = [
        ("contextos.action.approval_mode_effective", "read_only"),
        ("contextos.action.policy_decision_id", &text(&result, "policy_decision_id")),
        ("gen_ai.operation.name", "execute_tool"),
        ("gen_ai.tool.name", "files__read"),
        ("placet.tool_call_id", &text(&result, "tool_call_id")),
        ("placet.run_id", "run"),
        ("placet.tenant", "local"),
        ("placet.status", "succeeded"),
    ];
    for (name, value) in expected {
        assert_eq!(said.get(name).map(String::as_str), Some(value), "{name} in {said:#?}");
    }
    let said = attributes(adapter);
    assert_eq!((said["placet.adapter"].as_str(), said["placet.attempt"].as_str()), ("files", "1"));
    placet.stop().await;
}

#[tokio::test]
async fn a_call_is_one_trace_over_grpc() {
    one_call_is_one_trace(otlp::grpc().await, "grpc").await;
}

#[tokio::test]
async fn a_call_is_one_trace_over_http() {
    one_call_is_one_trace(otlp::http().await, "http/protobuf").await;
}

#[tokio::test]
async fn a_call_without_a_trace_starts_one_and_a_malformed_one_never_fails_a_call() {
    let (received, endpoint) = otlp::http().await;
    let setup = exporting(Setup::new(), &endpoint, "http/protobuf");
    setup.put("a.txt", "x");
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    let mut seen = Vec::new();
    for (number, header) in ["", "00-not-a-trace-01", &"f".repeat(4_000)].into_iter().enumerate() {
        let read = plan("files__read", &format!("s{number}"), json!({ "path": "a.txt" }));
        let reply = if header.is_empty() {
            agent.call(&read).await
        } else {
            agent.call_with(&read, "traceparent", header).await
        };
        let id = text(&reply.succeeded(), "trace_id");
        assert!(
            id.len() == 32 && id.bytes().any(|byte| byte != b'0') && !seen.contains(&id),
            "{id}"
        );
        let trace = received.trace(&id, "placet.call", 1).await;
        assert!(trace.one("placet.call").parent_span_id.is_empty());
        seen.push(id);
    }
}

#[tokio::test]
async fn a_refused_call_says_so_in_its_span() {
    let (received, endpoint) = otlp::http().await;
    let setup = exporting(Setup::new(), &endpoint, "http/protobuf");
    let placet = setup.start().await;
    let problem = setup
        .agent(&placet)
        .await
        .call(&plan("files__read", "s1", json!({})))
        .await
        .refused(400, "VALIDATION_ERROR");
    let trace = received.trace(&text(&problem, "trace_id"), "placet.call", 1).await;
    let said = attributes(trace.one("placet.call"));
    assert_eq!(
        said.get("placet.error_code").map(String::as_str),
        Some("VALIDATION_ERROR"),
        "{said:#?}"
    );
    assert_eq!(
        trace.one("placet.call").status.as_ref().unwrap().code,
        2,
        "the span is marked as an error"
    );
}

#[tokio::test]
async fn a_held_call_stays_in_its_trace_until_it_has_run() {
    let (received, endpoint) = otlp::grpc().await;
    let setup = exporting(Setup::new(), &endpoint, "grpc");
    setup.put("a.txt", "x");
    let placet = setup.start().await;
    let (agent, ben) = (setup.agent(&placet).await, setup.ben(&placet).await);
    let remote = Remote::new(0x2b);
    let delete = plan("files__delete", "s1", json!({ "path": "a.txt" }));
    let held = agent.call_with(&delete, "traceparent", &remote.header()).await.held();
    assert_eq!(held["trace_id"], remote.trace);
    ben.decide(&held, "approve").await.ok();
    let result = agent.end_of(&text(&held, "call_id")).await.succeeded();
    assert_eq!(result["trace_id"], remote.trace);
    let trace = received.trace(&remote.trace, "placet.adapter", 1).await;
    let call = trace.one("placet.call");
    let said = attributes(call);
    assert_eq!(
        said.get("approval.id"),
        held["approval_id"].as_str().map(str::to_owned).as_ref(),
        "{said:#?}"
    );
    assert_eq!(
        said.get("contextos.action.approval_mode_effective").map(String::as_str),
        Some("destructive")
    );
    trace.one("placet.adapter");
}

/// What the stub was sent as calls, once there is one.
fn calls_in(record: &std::path::Path) -> Vec<Value> {
    let text = fs::read_to_string(record).unwrap();
    let messages = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let is_call = |entry: &Value| {
        entry["method"] == "tools/call" || entry["message"]["method"] == "tools/call"
    };
    messages.filter(is_call).collect()
}

#[tokio::test]
async fn a_tool_gets_the_tracestate_only_by_its_contract() {
    let setup = Setup::new().with("contracts", json!("contracts"));
    let record = setup.path("record");
    let import =
        ["adapters", "import", "--name", "stub", "--stdio", "--mode-default", "local_write", "--"];
    let (node, script) = (npm::node(), npm::stub());
    let server = [node.as_str(), &script, "good", record.to_str().unwrap()];
    setup.configured(&[&import[..], &server].concat()).await.ok();
    for (number, passes) in [(0x4d_u8, false), (0x5e, true)] {
        if passes {
            let file = setup.contract_file("stub");
            let contract = fs::read_to_string(&file).unwrap();
            let changed =
                contract.replacen("capabilities:", "pass_tracestate: true\ncapabilities:", 1);
            assert_ne!(contract, changed);
            fs::write(&file, changed).unwrap();
        }
        let placet = setup.start().await;
        let agent = setup.agent(&placet).await;
        let remote = Remote::new(number);
        let note = plan("stub__note", &format!("s{number}"), json!({ "what": "x" }));
        let request = agent
            .request(Method::POST, "/v1/calls")
            .header("content-type", "application/json")
            .header("traceparent", remote.header())
            .header("tracestate", "vendor=chosen-by-the-caller");
        let body = serde_json::to_vec(&note).unwrap();
        agent.send(request.body(body.into()).unwrap()).await.succeeded();
        placet.stop().await;
        let calls = calls_in(&record);
        let meta = &calls.last().unwrap()["params"]["_meta"];
        assert!(text(meta, "traceparent").contains(&remote.trace), "{meta:#}");
        let wanted = if passes { json!("vendor=chosen-by-the-caller") } else { Value::Null };
        assert_eq!(meta["tracestate"], wanted, "{meta:#}");
    }
}

#[tokio::test]
async fn a_server_over_stdio_is_handed_the_trace_of_the_attempt() {
    let (received, endpoint) = otlp::grpc().await;
    let setup = exporting(Setup::new().with("contracts", json!("contracts")), &endpoint, "grpc");
    let record = setup.path("record");
    let import =
        ["adapters", "import", "--name", "stub", "--stdio", "--mode-default", "local_write", "--"];
    let (node, script) = (npm::node(), npm::stub());
    setup
        .configured(&[&import[..], &[&node, &script, "good", record.to_str().unwrap()]].concat())
        .await
        .ok();
    let placet = setup.start().await;
    let remote = Remote::new(0x3c);
    let note = plan("stub__note", "s1", json!({ "what": "x" }));
    setup.agent(&placet).await.call_with(&note, "traceparent", &remote.header()).await.succeeded();
    let trace = received.trace(&remote.trace, "placet.call", 1).await;
    let adapter = trace.one("placet.adapter");
    let calls = calls_in(&record);
    let meta = &calls[0]["params"]["_meta"];
    assert_eq!(
        meta["traceparent"],
        format!("00-{}-{}-01", remote.trace, hex(&adapter.span_id)),
        "{calls:#?}"
    );
    assert!(
        !text(meta, "dev.placet/idempotency-key").is_empty(),
        "a write carries its token: {meta:#}"
    );
    let said = attributes(adapter);
    assert_eq!(
        (said["mcp.server.id"].as_str(), said["mcp.method.name"].as_str()),
        ("stub", "tools/call")
    );
}
