//! TLS, and the connector for SDKs.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::crypto::ring;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tonic::transport::Endpoint;
use tower_service::Service;

use super::support::{Answers, Server, client, get, policy, with_roots};
use crate::{EgressClient, EgressError, Limits, PrivateRanges};

struct TlsServer {
    server: Server,
    root_pem: String,
}

/// Answers every request with the version of HTTP it came in.
async fn serve<I: AsyncRead + AsyncWrite + Unpin + Send + 'static>(io: I, h2: bool) {
    let answer = service_fn(|request: Request<hyper::body::Incoming>| async move {
        let version = format!("{:?}", request.version());
        Ok::<_, std::convert::Infallible>(Response::new(Full::new(Bytes::from(version))))
    });
    // A client that refuses the certificate ends the connection: not this server's concern.
    if h2 {
        let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        drop(serving.serve_connection(TokioIo::new(io), answer).await);
    } else {
        let serving = hyper::server::conn::http1::Builder::new();
        drop(serving.serve_connection(TokioIo::new(io), answer).await);
    }
}

impl TlsServer {
    async fn start(names: &[&str], alpn: &'static [u8]) -> Self {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let certified = rcgen::generate_simple_self_signed(names).unwrap();
        let key =
            PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der()));
        let mut config =
            rustls::ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(vec![certified.cert.der().clone()], key)
                .unwrap();
        if !alpn.is_empty() {
            config.alpn_protocols = vec![alpn.to_vec()];
        }
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let server = Server::start(move |stream| {
            let acceptor = acceptor.clone();
            async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    serve(stream, alpn == b"h2").await;
                }
            }
        })
        .await;
        Self { server, root_pem: certified.cert.pem() }
    }

    fn url(&self, host: &str) -> String {
        format!("https://{host}:{}/", self.server.address.port())
    }

    fn client(&self, host: &str) -> EgressClient {
        let policy = policy(&[(&self.url(host), PrivateRanges::Allowed)]);
        with_roots(policy, Limits::default(), self.root_pem.as_bytes())
            .unwrap()
            .with_resolver(Answers::new(&[&["127.0.0.1"]]))
    }
}

#[tokio::test]
async fn a_certificate_of_an_extra_root_for_the_right_name_is_accepted() {
    let server = TlsServer::start(&["tools.test", "127.0.0.1"], b"http/1.1").await;
    for host in ["tools.test", "127.0.0.1"] {
        let response = server.client(host).send(get(&server.url(host))).await.unwrap();
        assert_eq!(response.into_body(), "HTTP/1.1", "{host}");
    }
}

#[tokio::test]
async fn a_certificate_for_another_name_or_of_an_unknown_root_is_refused() {
    let server = TlsServer::start(&["canary.test"], b"").await;
    let wrong_name =
        server.client("tools.test").send(get(&server.url("tools.test"))).await.unwrap_err();
    let stranger =
        client(&[(&server.url("canary.test"), PrivateRanges::Allowed)], Limits::default())
            .with_resolver(Answers::new(&[&["127.0.0.1"]]));
    let unknown_root = stranger.send(get(&server.url("canary.test"))).await.unwrap_err();
    for refused in [&wrong_name, &unknown_root] {
        let reason = "the certificate of the peer was not accepted";
        assert!(
            matches!(refused, EgressError::TlsFailed { reason: text, .. } if *text == reason),
            "{refused}"
        );
        assert!(refused.nothing_was_sent());
    }
    assert!(!wrong_name.to_string().contains("canary"), "the certificate is not quoted");
}

#[tokio::test]
async fn a_peer_that_does_not_speak_tls_is_refused_before_the_request() {
    let server = Server::answering(&["HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"]).await;
    let silent = Server::start(|stream| async move {
        tokio::time::sleep(Duration::from_secs(60)).await;
        drop(stream);
    })
    .await;
    for (address, expects_timeout) in [(server.address, false), (silent.address, true)] {
        let url = format!("https://{address}/");
        let limits = Limits { connect_timeout_ms: 300, ..Limits::default() };
        let refused =
            client(&[(&url, PrivateRanges::Allowed)], limits).send(get(&url)).await.unwrap_err();
        // The plain server waits for the end of a request that never comes, so both may end by time.
        assert!(
            matches!(refused, EgressError::TlsFailed { .. } | EgressError::ConnectTimeout { .. }),
            "{refused}"
        );
        assert!(
            !expects_timeout || matches!(refused, EgressError::ConnectTimeout { .. }),
            "{refused}"
        );
        assert!(refused.nothing_was_sent());
    }
}

#[test]
fn extra_roots_that_are_not_certificates_are_refused() {
    for pem in ["not pem at all", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
    {
        let refused =
            with_roots(policy(&[]), Limits::default(), pem.as_bytes()).map(drop).unwrap_err();
        assert!(matches!(refused, EgressError::TrustRootsUnusable { .. }), "{pem}");
    }
}

/// Sends a request through a tonic channel over our connector and returns the version the server saw.
async fn through_tonic(url: &str, client: &EgressClient) -> Result<Bytes, tonic::transport::Error> {
    let endpoint = Endpoint::from_shared(url.to_owned()).unwrap();
    let mut channel = endpoint.connect_with_connector(client.connector()).await?;
    std::future::poll_fn(|cx| channel.poll_ready(cx)).await?;
    let request = Request::post(url).body(tonic::body::Body::empty()).unwrap();
    let response = channel.call(request).await?;
    Ok(response.into_body().collect().await.unwrap().to_bytes())
}

#[tokio::test]
async fn the_connector_carries_http2_with_prior_knowledge_to_loopback() {
    let server = Server::start(|stream| serve(stream, true)).await;
    let client = server.client(Limits::default());
    assert_eq!(through_tonic(&server.url("/"), &client).await.unwrap(), "HTTP/2.0");
}

#[tokio::test]
async fn the_connector_refuses_what_the_policy_does_not_name() {
    let server = Server::start(|stream| serve(stream, true)).await;
    let client = EgressClient::new(policy(&[]), Limits::default()).unwrap();
    assert!(through_tonic(&server.url("/"), &client).await.is_err());
    let refused = client.connector().call(server.url("/").parse().unwrap()).await.unwrap_err();
    assert!(matches!(refused, EgressError::DestinationRefused { .. }), "{refused}");
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn the_connector_demands_http2_over_tls() {
    let capable = TlsServer::start(&["tools.test"], b"h2").await;
    let url = capable.url("tools.test");
    assert!(capable.client("tools.test").connector().call(url.parse().unwrap()).await.is_ok());
    for alpn in [&b"http/1.1"[..], b""] {
        let old = TlsServer::start(&["tools.test"], alpn).await;
        let url = old.url("tools.test");
        let refused =
            old.client("tools.test").connector().call(url.parse().unwrap()).await.unwrap_err();
        assert!(matches!(refused, EgressError::TlsFailed { .. }), "{alpn:?}: {refused}");
    }
}
