//! Collectors on loopback that keep what they are sent, as bytes and as spans.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::trace::v1::Span;
use placet_egress::{Destination, EgressClient, EgressPolicy, Limits, PrivateRanges};
use prost::Message;
use secrecy::SecretString;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use url::Url;

use crate::export::{OtlpConfig, OtlpProtocol, TelemetryConfig};

/// What a collector received.
#[derive(Clone, Debug, Default)]
pub(super) struct Received {
    requests: Arc<Mutex<Vec<ExportTraceServiceRequest>>>,
    api_keys: Arc<Mutex<Vec<String>>>,
}

impl Received {
    pub(super) fn spans(&self) -> Vec<Span> {
        let requests = self.requests.lock();
        let resources = requests.iter().flat_map(|request| &request.resource_spans);
        let scopes = resources.flat_map(|resource| &resource.scope_spans);
        scopes.flat_map(|scope| scope.spans.clone()).collect()
    }

    pub(super) fn resource(&self) -> String {
        let requests = self.requests.lock();
        format!("{:?}", requests[0].resource_spans[0].resource)
    }

    /// Everything, in a form in which a canary would be found.
    pub(super) fn bytes(&self) -> Vec<u8> {
        self.requests.lock().iter().flat_map(Message::encode_to_vec).collect()
    }

    pub(super) fn api_keys(&self) -> Vec<String> {
        self.api_keys.lock().clone()
    }

    fn keep(&self, request: ExportTraceServiceRequest, api_key: Option<&str>) {
        self.requests.lock().push(request);
        self.api_keys.lock().extend(api_key.map(str::to_owned));
    }
}

#[tonic::async_trait]
impl TraceService for Received {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
        let api_key = request.metadata().get("x-api-key").cloned();
        self.keep(request.into_inner(), api_key.as_ref().map(|key| key.to_str().unwrap()));
        Ok(tonic::Response::new(ExportTraceServiceResponse::default()))
    }
}

pub(super) async fn grpc() -> (Received, SocketAddr) {
    let received = Received::default();
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = incoming.local_addr().unwrap();
    let service = TraceServiceServer::new(received.clone());
    tokio::spawn(Server::builder().add_service(service).serve_with_incoming(incoming));
    (received, address)
}

pub(super) async fn http() -> (Received, SocketAddr) {
    let received = Received::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let collector = received.clone();
    tokio::spawn(async move {
        while let Ok((stream, _peer)) = listener.accept().await {
            tokio::spawn(answer(stream, collector.clone()));
        }
    });
    (received, address)
}

async fn answer(mut stream: TcpStream, received: Received) {
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let Ok(byte) = stream.read_u8().await else { return };
            head.push(byte);
        }
        let head = String::from_utf8(head).unwrap();
        assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
        assert_eq!(header(&head, "content-type"), Some("application/x-protobuf"));
        let length = header(&head, "content-length").unwrap().parse().unwrap();
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.unwrap();
        let request = ExportTraceServiceRequest::decode(body.as_slice()).unwrap();
        received.keep(request, header(&head, "x-api-key"));
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines()
        .filter_map(|line| line.split_once(": "))
        .find_map(|(key, value)| key.eq_ignore_ascii_case(name).then_some(value))
}

/// Takes connections and never answers.
pub(super) async fn hanging() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((stream, _peer)) = listener.accept().await {
            held.push(stream);
        }
    });
    address
}

/// An address at which nobody listens.
pub(super) async fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

pub(super) fn config(
    address: SocketAddr,
    protocol: OtlpProtocol,
    timeout: Duration,
) -> (TelemetryConfig, EgressClient) {
    let endpoint = Url::parse(&format!("http://{address}")).unwrap();
    let destination = Destination::from_url(&endpoint, PrivateRanges::Allowed).unwrap();
    let egress =
        EgressClient::new(EgressPolicy::new(vec![destination]), Limits::default()).unwrap();
    let timeout_ms = u64::try_from(timeout.as_millis()).unwrap();
    let headers = vec![("x-api-key".to_owned(), SecretString::from("collector-key"))];
    let otlp = OtlpConfig { endpoint, protocol, headers, timeout_ms };
    (TelemetryConfig { otlp: Some(otlp), ..TelemetryConfig::default() }, egress)
}
