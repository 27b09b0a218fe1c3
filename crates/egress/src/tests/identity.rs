//! Client certificates against a server that asks for one.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, generate_simple_self_signed,
};
use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;
use url::Url;

use super::support::{Answers, Server, get, policy};
use crate::{ClientIdentity, Destination, EgressClient, EgressError, Limits, PrivateRanges, Trust};

/// An authority for clients, a server that asks for its certificates, and a folder for files.
struct World {
    folder: TempDir,
    authority: Issuer<'static, KeyPair>,
    server: Server,
    root_pem: String,
}

impl World {
    /// The server answers with the serial number of the certificate it was shown, or with `nobody`.
    async fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(params.self_signed(&key).unwrap().der().clone()).unwrap();
        let provider = Arc::new(ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
                .allow_unauthenticated()
                .build()
                .unwrap();
        let own = generate_simple_self_signed(["tools.test".to_owned()]).unwrap();
        let own_key =
            PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(own.signing_key.serialize_der()));
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![own.cert.der().clone()], own_key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let server = Server::start(move |stream| {
            let acceptor = acceptor.clone();
            async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
                let shown = shown.map_or("nobody".to_owned(), |own| fingerprint(own));
                let mut head = [0; 4_096];
                drop(stream.read(&mut head).await);
                let length = shown.len();
                let answer = format!(
                    "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{shown}"
                );
                drop(stream.write_all(answer.as_bytes()).await);
                drop(stream.shutdown().await);
            }
        })
        .await;
        let folder = tempfile::tempdir().unwrap();
        Self { folder, authority: Issuer::new(params, key), server, root_pem: own.cert.pem() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a certificate of the authority, and says how the server will know it.
    fn write(&self, certificate: &str, key: &str) -> String {
        let own = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["placet.test".to_owned()]).unwrap();
        let made = params.signed_by(&own, &self.authority).unwrap();
        std::fs::write(self.path(certificate), made.pem()).unwrap();
        std::fs::write(self.path(key), own.serialize_pem()).unwrap();
        fingerprint(made.der())
    }

    fn identity(&self) -> Result<ClientIdentity, EgressError> {
        ClientIdentity::from_files(self.path("cert.pem"), self.path("key.pem"))
    }

    fn url(&self, host: &str) -> String {
        format!("https://{host}:{}/", self.server.address.port())
    }

    fn client(&self, identity: Option<(&str, ClientIdentity)>) -> EgressClient {
        let policy = policy(&[(&self.url("tools.test"), PrivateRanges::Allowed)]);
        let identities = identity.map(|(url, identity)| {
            let url = Url::parse(url).unwrap();
            (Destination::from_url(&url, PrivateRanges::Allowed).unwrap(), identity)
        });
        let trust = Trust {
            roots_pem: self.root_pem.clone().into_bytes(),
            identities: identities.into_iter().collect(),
        };
        EgressClient::with_trust(policy, Limits::default(), &trust)
            .unwrap()
            .with_resolver(Answers::new(&[&["127.0.0.1"]]))
    }

    async fn seen_by_the_server(&self, client: &EgressClient) -> String {
        let reply = client.send(get(&self.url("tools.test"))).await.unwrap();
        String::from_utf8(reply.into_body().to_vec()).unwrap()
    }
}

/// Enough of a certificate to tell it from another.
fn fingerprint(certificate: &[u8]) -> String {
    let tail = certificate.rchunks(24).next().unwrap();
    tail.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn a_certificate_is_shown_to_the_destination_it_is_for_and_to_no_other() {
    let world = World::new().await;
    let own = world.write("cert.pem", "key.pem");
    let identity = world.identity().unwrap();
    let here = world.url("tools.test");
    let client = world.client(Some((&here, identity.clone())));
    assert_eq!(world.seen_by_the_server(&client).await, own);
    for elsewhere in ["https://tools.test/", "https://other.test/"] {
        let client = world.client(Some((elsewhere, identity.clone())));
        assert_eq!(world.seen_by_the_server(&client).await, "nobody", "{elsewhere}");
    }
    assert_eq!(world.seen_by_the_server(&world.client(None)).await, "nobody");
    let shown = format!("{client:?} {identity:?}");
    assert!(!shown.contains("PRIVATE") && !shown.contains("Certified"), "{shown}");
}

#[tokio::test]
async fn a_renewed_certificate_is_shown_without_a_new_client_and_half_a_renewal_is_not() {
    let world = World::new().await;
    let old = world.write("cert.pem", "key.pem");
    let client = world.client(Some((&world.url("tools.test"), world.identity().unwrap())));
    assert_eq!(world.seen_by_the_server(&client).await, old);
    let new = world.write("next.pem", "next-key.pem");
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    std::fs::rename(world.path("next.pem"), world.path("cert.pem")).unwrap();
    assert_eq!(world.seen_by_the_server(&client).await, old, "the key does not fit yet");
    std::fs::rename(world.path("next-key.pem"), world.path("key.pem")).unwrap();
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    assert_eq!(world.seen_by_the_server(&client).await, new);
}

#[tokio::test]
async fn files_that_are_no_identity_are_refused_without_their_text() {
    let world = World::new().await;
    assert!(world.identity().is_err(), "nothing is there");
    world.write("cert.pem", "key.pem");
    world.write("other.pem", "other-key.pem");
    let pair = |certificate: &str, key: &str| {
        ClientIdentity::from_files(world.path(certificate), world.path(key)).map(drop)
    };
    assert!(pair("cert.pem", "key.pem").is_ok());
    for (certificate, key) in [
        ("cert.pem", "other-key.pem"),
        ("key.pem", "key.pem"),
        ("cert.pem", "cert.pem"),
        (".", "key.pem"),
    ] {
        let refused = pair(certificate, key).unwrap_err();
        assert!(matches!(refused, EgressError::IdentityUnusable { .. }), "{certificate} {key}");
        assert!(!refused.to_string().contains("BEGIN"), "{refused}");
        assert!(refused.nothing_was_sent());
    }
}
