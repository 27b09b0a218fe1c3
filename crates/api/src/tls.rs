//! TLS on the HTTP API: our certificate, and whose certificates are welcome.
//!
//! Owns the files, the handshake settings, and the reload of changed files without a restart. Does not know who owns a certificate: the
//! verifier determines that for every request. Invariants: an unusable file never replaces a usable one; a session is never resumed, so
//! that every connection presents its certificate.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use placet_identity::{ClientAuthorities, ClientCertificate, file_digest, not_after, read_bounded};
use placet_types::{clock::Timestamp, digest::Digest};
use rustls::{
    ServerConfig as Handshakes,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject as _},
    server::NoServerSessionStorage,
};
use tokio::{net::TcpStream, time::Instant};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use zeroize::Zeroizing;

/// How often the files are checked.
const LOOK: Duration = Duration::from_secs(1);
/// How often it is said that the certificate in use expires soon, or has expired.
const TELL_EVERY: Duration = Duration::from_secs(6 * 3_600);
/// How long before its end a certificate expires soon, in milliseconds.
pub const EXPIRES_SOON_MS: i64 = 14 * 24 * 3_600_000;
const FILE_BYTES_MAX: usize = 256 * 1024;

/// What TLS needs.
#[derive(Debug, Clone)]
pub struct TlsSettings {
    /// The file with our certificate and what lies between it and its authority, in PEM form.
    pub certificate: PathBuf,
    /// The file with its private key, in PEM form.
    pub key: PathBuf,
    /// Whose client certificates are accepted; if absent, none is requested.
    pub authorities: Option<ClientAuthorities>,
}

impl TlsSettings {
    /// Until when the files can be used, without opening the API.
    ///
    /// # Errors
    /// [`TlsError`] naming the file that cannot.
    pub fn check(&self) -> Result<Timestamp, TlsError> {
        handshakes(self)?;
        certificates(&self.certificate).map(|(_, until)| until)
    }

    /// Says so if the certificate expires soon, or has expired: while its file does not change, nothing else looks at it.
    fn tell_of_end(&self) {
        match self.check() {
            Err(error @ TlsError::Expired { .. }) => {
                tracing::error!(%error, "the certificate of the API has expired, and callers refuse it: renew it");
            }
            Ok(until) if until < now().plus_ms(EXPIRES_SOON_MS) => {
                tracing::warn!(%until, "the certificate of the API expires soon: renew it");
            }
            Ok(_) | Err(_) => {}
        }
    }
}

/// Why TLS cannot be set up, for the operator.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("`{}` cannot be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// A file is not what it should be.
    #[error("`{}` {problem}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The certificate's time is over: callers that check it would refuse every connection.
    #[error("the certificate `{}` expired at {at}", path.display())]
    Expired {
        /// The file.
        path: PathBuf,
        /// The end of its validity.
        at: Timestamp,
    },
    /// The key is not the certificate's.
    #[error("the key `{}` is not the key of the certificate `{}`, or of a kind that is not known", key.display(), certificate.display())]
    Mismatch {
        /// The certificate.
        certificate: PathBuf,
        /// The key.
        key: PathBuf,
    },
}

/// What the handshakes were made of: certificate, key, and the generation of the authorities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    certificate: Option<Digest>,
    key: Option<Digest>,
    authorities: u64,
}

impl Seen {
    fn of(settings: &TlsSettings) -> Self {
        let authorities = settings.authorities.as_ref();
        Self {
            certificate: file_digest(&settings.certificate, FILE_BYTES_MAX),
            key: file_digest(&settings.key, FILE_BYTES_MAX),
            authorities: authorities.map(ClientAuthorities::generation).unwrap_or_default(),
        }
    }
}

/// What the files were at the last look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Looked {
    /// When they could be used.
    used: Seen,
    /// If they cannot be used now.
    refused: Option<Seen>,
}

/// The handshakes of the API.
pub(crate) struct TlsListener {
    settings: TlsSettings,
    /// What the first handshakes were made of.
    first: Seen,
    current: tokio::sync::watch::Sender<Arc<Handshakes>>,
}

impl fmt::Debug for TlsListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsListener").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl TlsListener {
    pub(crate) fn new(settings: TlsSettings) -> Result<Self, TlsError> {
        // Taken before the files are read: a change in between causes one read too many, not one too few.
        let first = Seen::of(&settings);
        let current = tokio::sync::watch::Sender::new(handshakes(&settings)?);
        Ok(Self { settings, first, current })
    }

    /// What the next connection is taken with.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.current.borrow()))
    }

    /// Looks at the files for as long as the API is open.
    pub(crate) async fn follow_files(self: Arc<Self>) {
        let mut looked = Looked { used: self.first, refused: None };
        let mut told: Option<Instant> = None;
        loop {
            tokio::time::sleep(LOOK).await;
            let (api, last) = (Arc::clone(&self), looked);
            let is_due = told.is_none_or(|at| at.elapsed() >= TELL_EVERY);
            told = if is_due { Some(Instant::now()) } else { told };
            let now = tokio::task::spawn_blocking(move || {
                let looked = api.look(last);
                if is_due {
                    api.settings.tell_of_end();
                }
                looked
            });
            looked = now.await.unwrap_or(looked);
        }
    }

    /// Loads what has changed. Certificate and key are replaced one after the other, and do not match in between: then the old ones stay,
    /// and a later check finds both.
    fn look(&self, last: Looked) -> Looked {
        // The authorities are also reloaded elsewhere, so their generation tells whether they have changed.
        if let Some(Err(error)) =
            self.settings.authorities.as_ref().map(ClientAuthorities::reload_if_changed)
        {
            tracing::warn!(%error, "the client authorities stay as they were");
        }
        let seen = Seen::of(&self.settings);
        if seen == last.used {
            return Looked { refused: None, ..last };
        }
        match handshakes(&self.settings) {
            Ok(fresh) => {
                self.current.send_replace(fresh);
                tracing::info!("the certificates of the API were read again");
                Looked { used: seen, refused: None }
            }
            Err(error) => {
                // Read again every time, since reading may be what failed, and logged once.
                if last.refused != Some(seen) {
                    tracing::warn!(%error, "the certificates of the API stay as they were");
                }
                Looked { refused: Some(seen), ..last }
            }
        }
    }
}

/// The client certificate presented in a finished handshake.
pub(crate) fn shown_by(stream: &TlsStream<TcpStream>) -> Option<ClientCertificate> {
    let (_, session) = stream.get_ref();
    session.peer_certificates().and_then(ClientCertificate::of_handshake)
}

fn handshakes(settings: &TlsSettings) -> Result<Arc<Handshakes>, TlsError> {
    let (chain, _) = certificates(&settings.certificate)?;
    let key = PrivateKeyDer::from_pem_slice(&read(&settings.key)?)
        .or(Err(unusable(&settings.key, "holds no private key in PEM form")))?;
    let building = Handshakes::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .or(Err(unusable(&settings.certificate, "cannot be used: no version of TLS is there")))?;
    let building = match &settings.authorities {
        Some(authorities) => building.with_client_cert_verifier(authorities.handshake_verifier()),
        None => building.with_no_client_auth(),
    };
    let mut made = building.with_single_cert(chain, key).or(Err(TlsError::Mismatch {
        certificate: settings.certificate.clone(),
        key: settings.key.clone(),
    }))?;
    made.alpn_protocols = vec![b"http/1.1".to_vec()];
    made.session_storage = Arc::new(NoServerSessionStorage {});
    made.send_tls13_tickets = 0;
    Ok(Arc::new(made))
}

fn unusable(path: &Path, problem: &'static str) -> TlsError {
    TlsError::Unusable { path: path.to_owned(), problem }
}

/// The certificates in a file, ours first, and until when ours is valid.
fn certificates(path: &Path) -> Result<(Vec<CertificateDer<'static>>, Timestamp), TlsError> {
    let none = || unusable(path, "holds no certificate in PEM form");
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(path)?).collect();
    let chain = chain.map_err(|_not_pem| none())?;
    let own = chain.first().ok_or_else(none)?;
    let until =
        not_after(own).ok_or_else(|| unusable(path, "does not say until when it is valid"))?;
    if until < now() {
        return Err(TlsError::Expired { path: path.to_owned(), at: until });
    }
    Ok((chain, until))
}

fn now() -> Timestamp {
    let seconds = i64::try_from(UnixTime::now().as_secs()).unwrap_or(i64::MAX);
    Timestamp::from_ms(seconds.saturating_mul(1_000))
}

fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, TlsError> {
    read_bounded(path, FILE_BYTES_MAX).map_err(|source| {
        let path = path.to_owned();
        if matches!(source.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::FileTooLarge) {
            return TlsError::Unusable { path, problem: "is not a file of a certificate's size" };
        }
        TlsError::Unreadable { path, source }
    })
}

#[cfg(test)]
mod tests;
