//! Client certificates: who we are to a peer that asks.
//!
//! Owns the certificate, its key, and that changed files count for the next connection. Invariants: a key never leaves the TLS
//! library; a certificate is shown only to the destination it is for; files that cannot be used never replace some that could.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use tokio::time::Instant;

use crate::destination::Destination;
use crate::error::EgressError;

/// How often files are looked at, at most.
const LOOK: Duration = Duration::from_secs(1);
const FILE_BYTES_MAX: u64 = 256 * 1024;

/// Whom a client trusts beyond the platform's roots, and who it is itself.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// Further roots, in PEM form; may be empty.
    pub roots_pem: Vec<u8>,
    /// Who we are to each of these destinations; nobody to the others.
    pub identities: Vec<(Destination, ClientIdentity)>,
}

/// A certificate and its key, from files. Clones share what was read.
#[derive(Clone)]
pub struct ClientIdentity {
    inner: Arc<Inner>,
}

struct Inner {
    certificate: PathBuf,
    key: PathBuf,
    current: Mutex<Current>,
}

struct Current {
    certified: Arc<CertifiedKey>,
    stamps: [Stamp; 2],
    looked: Instant,
}

type Stamp = Option<(SystemTime, u64)>;

impl fmt::Debug for ClientIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ClientIdentity")
            .field("certificate", &self.inner.certificate)
            .finish_non_exhaustive()
    }
}

impl ClientIdentity {
    /// Reads a certificate, with what lies between it and its authority, and its key; both in PEM form. Changed files are
    /// read again for a later connection.
    ///
    /// # Errors
    ///
    /// [`EgressError::IdentityUnusable`] when they cannot be read or do not belong together.
    pub fn from_files(certificate: PathBuf, key: PathBuf) -> Result<Self, EgressError> {
        let current = Mutex::new(Current::read(&certificate, &key)?);
        Ok(Self { inner: Arc::new(Inner { certificate, key, current }) })
    }

    /// The pair that is on the disk; while that is not a pair, the last that was.
    fn certified(&self) -> Arc<CertifiedKey> {
        let Inner { certificate, key, current } = &*self.inner;
        let mut current = current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.looked.elapsed() >= LOOK {
            current.looked = Instant::now();
            if current.stamps != [stamp(certificate), stamp(key)]
                && let Ok(fresh) = Current::read(certificate, key)
            {
                *current = fresh;
            }
        }
        Arc::clone(&current.certified)
    }
}

impl Current {
    fn read(certificate: &Path, key: &Path) -> Result<Self, EgressError> {
        let unusable = |reason| EgressError::IdentityUnusable { reason };
        let stamps = [stamp(certificate), stamp(key)];
        let chain: Vec<CertificateDer<'static>> =
            CertificateDer::pem_slice_iter(&bytes_of(certificate)?)
                .collect::<Result<_, _>>()
                .ok()
                .filter(|chain: &Vec<_>| !chain.is_empty())
                .ok_or(unusable("its file holds no certificate in pem form"))?;
        let key = PrivateKeyDer::from_pem_slice(&bytes_of(key)?)
            .map_err(|_not_pem| unusable("its key file holds no private key in pem form"))?;
        let certified =
            CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(|_mismatch| {
                unusable("its key is not the certificate's, or of an unknown kind")
            })?;
        Ok(Self { certified: Arc::new(certified), stamps, looked: Instant::now() })
    }
}

fn bytes_of(path: &Path) -> Result<Vec<u8>, EgressError> {
    let unusable = |reason| EgressError::IdentityUnusable { reason };
    let metadata = std::fs::metadata(path)
        .map_err(|_unreadable| unusable("one of its files cannot be read"))?;
    // A pipe would block the opening for ever.
    if !metadata.is_file() || metadata.len() > FILE_BYTES_MAX {
        return Err(unusable("one of its files is not of a certificate's size"));
    }
    std::fs::read(path).map_err(|_unreadable| unusable("one of its files cannot be read"))
}

fn stamp(path: &Path) -> Stamp {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

/// Shows the identity to whoever asks on one connection.
#[derive(Debug)]
pub(crate) struct Showing(pub(crate) ClientIdentity);

impl ResolvesClientCert for Showing {
    fn resolve(&self, _hints: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.0.certified())
    }

    fn has_certs(&self) -> bool {
        true
    }
}
