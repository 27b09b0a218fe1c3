//! Connections for protocols other than HTTP: what is sent before TLS and after it, and what is never opened.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustls::crypto::ring;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use url::Url;

use super::support::{Server, policy, with_roots};
use crate::{EgressClient, EgressError, EgressStream, Limits, PrivateRanges};

/// A server that replies `y` to a `t`, starts TLS, and echoes each byte.
async fn upgrading() -> (Server, String) {
    let certified = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der()));
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let server = Server::start(move |mut stream| {
        let acceptor = acceptor.clone();
        async move {
            if stream.read_u8().await.is_ok_and(|said| said == b't') {
                stream.write_all(b"y").await.unwrap();
                if let Ok(mut stream) = acceptor.accept(stream).await {
                    while let Ok(byte) = stream.read_u8().await {
                        stream.write_all(&[byte]).await.unwrap();
                        stream.flush().await.unwrap();
                    }
                }
            }
        }
    })
    .await;
    (server, certified.cert.pem())
}

fn url(server: &Server, scheme: &str) -> Url {
    format!("{scheme}://{}/", server.address).parse().unwrap()
}

fn client(server: &Server, scheme: &str, root_pem: &str) -> EgressClient {
    let url = url(server, scheme);
    let policy = policy(&[(url.as_str(), PrivateRanges::Allowed)]);
    with_roots(policy, Limits::default(), root_pem.as_bytes()).unwrap()
}

async fn agree(mut stream: TcpStream) -> Result<TcpStream, EgressError> {
    stream.write_all(b"t").await.unwrap();
    assert_eq!(stream.read_u8().await.unwrap(), b'y');
    Ok(stream)
}

async fn echoes(mut stream: EgressStream) -> bool {
    stream.write_all(b"x").await.unwrap();
    stream.flush().await.unwrap();
    stream.read_u8().await.unwrap() == b'x'
}

#[tokio::test]
async fn a_connection_that_begins_in_the_open_is_secret_from_the_agreed_word_on() {
    let (server, root_pem) = upgrading().await;
    let client = client(&server, "https", &root_pem);
    let stream = client.connect_upgraded(&url(&server, "https"), agree).await.unwrap();
    assert!(format!("{stream:?}").contains("Tls"), "{stream:?}");
    assert!(echoes(stream).await);
}

#[tokio::test]
async fn a_peer_whose_certificate_is_not_trusted_hears_nothing_after_the_agreed_word() {
    let (server, _) = upgrading().await;
    let (_, other_root) = upgrading().await;
    let client = client(&server, "https", &other_root);
    let refused = client.connect_upgraded(&url(&server, "https"), agree).await.unwrap_err();
    assert!(matches!(refused, EgressError::TlsFailed { .. }), "{refused:?}");
    assert!(refused.nothing_was_sent());
}

#[tokio::test]
async fn nothing_is_said_to_what_is_not_named_or_is_named_without_tls() {
    let (server, root_pem) = upgrading().await;
    let asked = AtomicBool::new(false);
    let never = |stream: TcpStream| {
        asked.store(true, Ordering::SeqCst);
        async move { Ok(stream) }
    };
    let plain = client(&server, "http", &root_pem);
    let refused = plain.connect_upgraded(&url(&server, "http"), never).await.unwrap_err();
    assert!(matches!(refused, EgressError::UrlUnusable { .. }), "{refused:?}");
    for refused in [
        plain.connect_upgraded(&url(&server, "https"), never).await.unwrap_err(),
        plain.connect(&url(&server, "https")).await.unwrap_err(),
    ] {
        assert!(matches!(refused, EgressError::DestinationRefused { .. }), "{refused:?}");
    }
    assert!(!asked.load(Ordering::SeqCst));
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn a_plain_connection_is_the_one_that_was_named() {
    let server = Server::start(|mut stream| async move {
        let byte = stream.read_u8().await.unwrap();
        stream.write_all(&[byte]).await.unwrap();
    })
    .await;
    let (_, root_pem) = upgrading().await;
    let client = client(&server, "http", &root_pem);
    assert!(echoes(client.connect(&url(&server, "http")).await.unwrap()).await);
}

#[tokio::test]
async fn a_peer_that_never_answers_the_wish_for_tls_has_a_limit() {
    let server = Server::start(|stream| async move {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    let (_, root_pem) = upgrading().await;
    let target = url(&server, "https");
    let policy = policy(&[(target.as_str(), PrivateRanges::Allowed)]);
    let limits = Limits { connect_timeout_ms: 200, ..Limits::default() };
    let client = with_roots(policy, limits, root_pem.as_bytes()).unwrap();
    let refused = client.connect_upgraded(&target, agree).await.unwrap_err();
    assert!(matches!(refused, EgressError::ConnectTimeout { timeout_ms: 200, .. }), "{refused:?}");
}
