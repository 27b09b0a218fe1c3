//! Collectors on loopback that keep every span they are sent.
//!
//! Owns receiving and the lookup of spans. Does not judge them: the tests of traces do.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;

use axum::{Router, body::Bytes, extract::State, http::HeaderMap, routing::post};
use opentelemetry_proto::tonic::{
    collector::trace::v1::{
        ExportTraceServiceRequest, ExportTraceServiceResponse,
        trace_service_server::{TraceService, TraceServiceServer},
    },
    common::v1::any_value::Value as AnyValue,
    trace::v1::Span,
};
use prost::Message as _;
use tokio::net::TcpListener;
use tonic::transport::{Server, server::TcpIncoming};
use url::Url;

use super::{setup::local, until};

/// What a collector has received.
#[derive(Debug, Clone, Default)]
pub(crate) struct Received(Arc<Mutex<Vec<ExportTraceServiceRequest>>>);

#[tonic::async_trait]
impl TraceService for Received {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
        self.0.lock().push(request.into_inner());
        Ok(tonic::Response::new(ExportTraceServiceResponse::default()))
    }
}

/// A collector for OTLP over gRPC.
pub(crate) async fn grpc() -> (Received, Url) {
    let received = Received::default();
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = incoming.local_addr().unwrap().port();
    let service = TraceServiceServer::new(received.clone());
    tokio::spawn(Server::builder().add_service(service).serve_with_incoming(incoming));
    (received, local(port, ""))
}

/// A collector for OTLP over HTTP.
pub(crate) async fn http() -> (Received, Url) {
    let received = Received::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let router = Router::new().route("/v1/traces", post(take)).with_state(received.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (received, local(port, ""))
}

async fn take(State(received): State<Received>, headers: HeaderMap, body: Bytes) -> Vec<u8> {
    assert_eq!(headers["content-type"], "application/x-protobuf");
    let request = ExportTraceServiceRequest::decode(body).unwrap();
    received.0.lock().push(request);
    ExportTraceServiceResponse::default().encode_to_vec()
}

/// The spans of one trace.
#[derive(Debug)]
pub(crate) struct Trace(Vec<Span>);

impl Received {
    fn spans(&self) -> Vec<Span> {
        let requests = self.0.lock();
        let resources = requests.iter().flat_map(|request| &request.resource_spans);
        resources
            .flat_map(|resource| &resource.scope_spans)
            .flat_map(|scope| scope.spans.clone())
            .collect()
    }

    /// The trace of this id (hexadecimal), once it has the span `last` this many times.
    pub(crate) async fn trace(&self, id: &str, last: &str, times: usize) -> Trace {
        let of_trace =
            || Trace(self.spans().into_iter().filter(|span| hex(&span.trace_id) == id).collect());
        until(&format!("{times} spans `{last}` of trace {id}"), || async {
            of_trace().all(last).len() >= times
        })
        .await;
        of_trace()
    }

    /// Everything that was received, in a form in which a word would be found.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.0.lock().iter().flat_map(prost::Message::encode_to_vec).collect()
    }
}

impl Trace {
    /// The spans of this name.
    pub(crate) fn all(&self, name: &str) -> Vec<&Span> {
        self.0.iter().filter(|span| span.name == name).collect()
    }

    /// The only span of this name.
    pub(crate) fn one(&self, name: &str) -> &Span {
        let all = self.all(name);
        assert_eq!(all.len(), 1, "spans named `{name}` among {:?}", self.names());
        all[0]
    }

    /// The names of all spans, sorted.
    pub(crate) fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.0.iter().map(|span| span.name.as_str()).collect();
        names.sort_unstable();
        names
    }
}

/// The attributes of a span, as text.
pub(crate) fn attributes(span: &Span) -> BTreeMap<String, String> {
    let text = |value: &AnyValue| {
        if let AnyValue::StringValue(text) = value {
            return text.clone();
        }
        if let AnyValue::IntValue(number) = value {
            number.to_string()
        } else {
            format!("{value:?}")
        }
    };
    let pairs = span.attributes.iter().filter_map(|pair| {
        let value = pair.value.as_ref()?.value.as_ref()?;
        Some((pair.key.clone(), text(value)))
    });
    pairs.collect()
}

/// Bytes of an id as it is written.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
