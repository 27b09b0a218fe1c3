//! Real handshakes: our certificate, the callers' certificates, and files that change.

use std::{fs, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use placet_identity::DevKey;
use placet_types::bounded::Bounded;
use rcgen::{
    BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType, date_time_ymd,
    generate_simple_self_signed,
};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{
        CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, pem::PemObject as _,
    },
};
use serde_json::json;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::oneshot,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use super::{Looked, TlsError, TlsListener, TlsSettings};
use crate::{
    config::ServerConfig,
    listen::{ServerError, bind},
    testing::{People, World},
};

/// An authority for clients, and the folder with everybody's files.
struct Handshakes {
    folder: TempDir,
    authority: Issuer<'static, KeyPair>,
    world: World,
}

impl Handshakes {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let ca = folder.path().join("ca.pem");
        fs::write(&ca, params.self_signed(&key).unwrap().pem()).unwrap();
        let authority = serde_json::from_value(json!({
            "name": "mesh", "ca": ca, "tenant": "acme", "trust_domain": "prod.example",
            "workloads": { "below": "/agent/" },
        }));
        let people = People::of(DevKey::generate().unwrap(), vec![authority.unwrap()]);
        let (authority, world) = (Issuer::new(params, key), World::new(people).await);
        let made = Self { folder, authority, world };
        made.renew();
        made
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A new certificate of ours, and what clients have to trust for it.
    fn renew(&self) -> CertificateDer<'static> {
        let made = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        fs::write(self.path("key.pem"), made.signing_key.serialize_pem()).unwrap();
        fs::write(self.path("cert.pem"), made.cert.pem()).unwrap();
        made.cert.der().clone()
    }

    fn trusted(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_file(self.path("cert.pem")).unwrap()
    }

    fn settings(&self) -> TlsSettings {
        TlsSettings {
            certificate: self.path("cert.pem"),
            key: self.path("key.pem"),
            authorities: self.world.people.verifier.client_authorities().cloned(),
        }
    }

    async fn serve(&self, config: ServerConfig) -> Served {
        let free = "127.0.0.1:0".parse().unwrap();
        let config = ServerConfig { listen: free, admin_listen: free, ..config };
        let bound = bind(config).await.unwrap().with_tls(self.settings()).unwrap();
        let (main, admin) = (bound.address(), bound.admin_address());
        let (close, closed) = oneshot::channel::<()>();
        let engine = self.world.engine.clone();
        drop(tokio::spawn(bound.serve(engine, async move { drop(closed.await) })));
        Served { main, admin, _close: close }
    }

    /// The header with the agent's token.
    fn token(&self) -> String {
        format!("Authorization: Bearer {}\r\n", self.world.people.token("bot"))
    }

    fn client(&self, issuer: &Issuer<'_, KeyPair>) -> Identity {
        let mut params = CertificateParams::default();
        let id = "spiffe://prod.example/agent/bot".try_into().unwrap();
        params.subject_alt_names = vec![SanType::URI(id)];
        let key = KeyPair::generate().unwrap();
        let made = params.signed_by(&key, issuer).unwrap();
        (made.der().clone(), key.serialize_der())
    }
}

type Identity = (CertificateDer<'static>, Vec<u8>);

struct Served {
    main: SocketAddr,
    admin: SocketAddr,
    _close: oneshot::Sender<()>,
}

/// Asks over TLS; an error where there is no session.
async fn ask(
    to: SocketAddr,
    trusted: &CertificateDer<'static>,
    own: Option<Identity>,
    path: &str,
    more: &str,
) -> std::io::Result<String> {
    let stream = TcpStream::connect(to).await?;
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match own {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => {
            let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key));
            config.with_client_auth_cert(vec![certificate], key).unwrap()
        }
    };
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    let port = to.port();
    let head =
        format!("GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: close\r\n{more}\r\n");
    stream.write_all(head.as_bytes()).await?;
    let mut reply = Vec::new();
    let read = timeout(Duration::from_secs(20), stream.read_to_end(&mut reply)).await.unwrap();
    // A peer that closes silently has answered nothing.
    read.or_else(|error| if reply.is_empty() { Err(error) } else { Ok(0) })?;
    Ok(String::from_utf8(reply).unwrap())
}

#[tokio::test]
async fn callers_speak_tls_and_plain_http_is_not_answered() {
    let tls = Handshakes::new().await;
    let served = tls.serve(ServerConfig::default()).await;
    let reply = ask(served.main, &tls.trusted(), None, "/v1/tools", &tls.token()).await.unwrap();
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    let mut plain = TcpStream::connect(served.main).await.unwrap();
    plain.write_all(b"GET /v1/tools HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    drop(timeout(Duration::from_secs(10), plain.read_to_end(&mut answer)).await.unwrap());
    assert!(!String::from_utf8_lossy(&answer).contains("HTTP"), "{answer:?}");
    // The admin listener has no callers to identify, and stays plain.
    let mut admin = TcpStream::connect(served.admin).await.unwrap();
    let head =
        format!("GET /healthz HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", served.admin);
    admin.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    admin.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn the_certificate_of_a_handshake_says_who_calls_and_nothing_else_does() {
    let tls = Handshakes::new().await;
    let served = tls.serve(ServerConfig::default()).await;
    let trusted = tls.trusted();
    let bot = tls.client(&tls.authority);
    let reply = ask(served.main, &trusted, Some(bot), "/v1/tools", "").await.unwrap();
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    let nobody = ask(served.main, &trusted, None, "/v1/tools", "").await.unwrap();
    assert!(nobody.starts_with("HTTP/1.1 401"), "{nobody}");
    // Headers in which proxies tell of certificates are not believed.
    let said =
        "X-Forwarded-Client-Cert: URI=spiffe://prod.example/agent/bot\r\nX-SSL-Client-Cert: x\r\n";
    let nobody = ask(served.main, &trusted, None, "/v1/tools", said).await.unwrap();
    assert!(nobody.starts_with("HTTP/1.1 401"), "{nobody}");
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let stranger = Issuer::new(params, KeyPair::generate().unwrap());
    let forged =
        ask(served.main, &trusted, Some(tls.client(&stranger)), "/v1/tools", &tls.token()).await;
    assert!(forged.is_err(), "the handshake of an unknown authority ends: {forged:?}");
}

#[tokio::test]
async fn a_renewed_certificate_is_served_without_a_restart() {
    let tls = Handshakes::new().await;
    let served = tls.serve(ServerConfig::default()).await;
    let old = tls.trusted();
    assert!(ask(served.main, &old, None, "/", "").await.is_ok());
    // Certificate and key do not match in between: the old pair stays.
    fs::write(tls.path("cert.pem"), "-----BEGIN CERTIFICATE-----\nAAAA").unwrap();
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert!(ask(served.main, &old, None, "/", "").await.is_ok());
    let new = tls.renew();
    let renewed = async {
        while ask(served.main, &new, None, "/", "").await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(Duration::from_secs(20), renewed).await.expect("the new certificate is served");
    assert!(ask(served.main, &old, None, "/", "").await.is_err());
}

#[tokio::test]
async fn a_new_authority_is_welcome_in_handshakes_anyone_who_reads_its_file_first() {
    let tls = Handshakes::new().await;
    let served = tls.serve(ServerConfig::default()).await;
    let trusted = tls.trusted();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    fs::write(tls.path("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
    let newcomer = Issuer::new(params, key);
    assert!(tls.world.people.verifier.refresh().await.is_empty());
    let welcome = async {
        let ask = || ask(served.main, &trusted, Some(tls.client(&newcomer)), "/v1/tools", "");
        while !ask().await.is_ok_and(|reply| reply.starts_with("HTTP/1.1 200")) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(Duration::from_secs(20), welcome).await.expect("the new authority is welcome");
    let old = ask(served.main, &trusted, Some(tls.client(&tls.authority)), "/v1/tools", "").await;
    assert!(old.is_err(), "the old one is not");
}

#[tokio::test]
async fn a_handshake_that_does_not_end_is_cut() {
    let tls = Handshakes::new().await;
    let served = tls
        .serve(ServerConfig { header_timeout_ms: Bounded(300), ..ServerConfig::default() })
        .await;
    let mut silent = TcpStream::connect(served.main).await.unwrap();
    silent.write_all(&[0x16, 0x03, 0x01]).await.unwrap();
    let mut rest = Vec::new();
    let cut = timeout(Duration::from_secs(10), silent.read_to_end(&mut rest)).await;
    assert!(cut.is_ok(), "still open");
}

#[tokio::test]
async fn files_that_cannot_be_used_stop_the_start() {
    let tls = Handshakes::new().await;
    let other = KeyPair::generate().unwrap();
    fs::write(tls.path("other.pem"), other.serialize_pem()).unwrap();
    fs::write(tls.path("empty.pem"), "").unwrap();
    let refused = |change: &dyn Fn(&mut TlsSettings)| {
        let mut settings = tls.settings();
        change(&mut settings);
        super::TlsListener::new(settings).map(drop)
    };
    assert!(refused(&|_| {}).is_ok());
    let mismatch = refused(&|settings| settings.key = tls.path("other.pem")).unwrap_err();
    assert!(matches!(mismatch, TlsError::Mismatch { .. }), "{mismatch}");
    for name in ["nowhere.pem", "empty.pem", "key.pem"] {
        let error = refused(&|settings| settings.certificate = tls.path(name)).unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
    }
    for name in ["nowhere.pem", "empty.pem", "cert.pem"] {
        let error = refused(&|settings| settings.key = tls.path(name)).unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
    }
    let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
    params.not_after = date_time_ymd(2026, 1, 2);
    let expired = params.self_signed(&other).unwrap().pem();
    fs::write(tls.path("expired.pem"), expired).unwrap();
    let error = refused(&|settings| settings.certificate = tls.path("expired.pem")).unwrap_err();
    assert!(error.to_string().ends_with("expired at 2026-01-02T00:00:00.000Z"), "{error}");
    let free = "127.0.0.1:0".parse().unwrap();
    let config = ServerConfig { listen: free, admin_listen: free, ..ServerConfig::default() };
    let mut settings = tls.settings();
    settings.key = tls.path("other.pem");
    let refused = bind(config).await.unwrap().with_tls(settings).unwrap_err();
    assert!(matches!(refused, ServerError::Tls(_)), "{refused}");
}

#[tokio::test]
async fn broken_file_is_refused_until_it_changes() {
    let made = Handshakes::new().await;
    let api = TlsListener::new(made.settings()).unwrap();
    let first = Looked { used: api.first, refused: None };
    fs::write(made.path("cert.pem"), "no certificate").unwrap();
    let broken = api.look(first);
    assert!(broken.used == api.first && broken.refused.is_some());
    assert_eq!(api.look(broken), broken, "it would be logged again");
    made.renew();
    let renewed = api.look(broken);
    assert!(renewed.used != api.first && renewed.refused.is_none());
}
