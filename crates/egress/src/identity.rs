//! Client certificates: who we are to a peer that asks.
//!
//! Owns the certificate, its key, and that changed files apply to the next connection. Invariants: a key never leaves the TLS library; a
//! certificate is shown only to the destination it is for; unusable files never replace usable ones; files that hang delay one connection
//! for a moment at most, and block no worker of the runtime.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use placet_types::digest::Digest;

use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use tokio::time::Instant;
use zeroize::Zeroizing;

use crate::bounded_file::{file_digest, read_bounded};
use crate::destination::Destination;
use crate::error::EgressError;

/// How often files are checked, at most.
const LOOK: Duration = Duration::from_secs(1);
/// How long a connection waits for that check.
const ANSWER_MAX: Duration = Duration::from_secs(1);
const FILE_BYTES_MAX: usize = 256 * 1024;

/// Whom a client trusts beyond the platform's roots, and who it is itself.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// Further roots, in PEM form; may be empty.
    pub roots_pem: Vec<u8>,
    /// Our certificate for each of these destinations; none for the others.
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
    digests: [Option<Digest>; 2],
    looked: Instant,
    /// Whether a check is running: on a mount that hangs, for as long as it does.
    is_looked_at: bool,
}

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

    /// Checks whether the files have changed, unless that was done a moment ago; on a blocking thread, and waits only for a moment.
    pub(crate) async fn follow(&self) {
        let Some(look) = Look::begin(&self.inner) else { return };
        let looking = tokio::task::spawn_blocking(move || look.look());
        // What it finds later is for a later connection.
        let _late = tokio::time::timeout(ANSWER_MAX, looking).await.is_err();
    }

    /// The last pair that was on the disk.
    fn certified(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.inner.current().certified)
    }
}

impl Inner {
    // Nothing is read while the lock is held, and nothing can panic.
    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock()
    }
}

/// One check of the files. It ends when this is dropped, for whatever reason.
struct Look(Arc<Inner>);

impl Look {
    fn begin(inner: &Arc<Inner>) -> Option<Self> {
        let mut current = inner.current();
        let begins = !current.is_looked_at && current.looked.elapsed() >= LOOK;
        if begins {
            current.is_looked_at = true;
            current.looked = Instant::now();
        }
        begins.then(|| Self(Arc::clone(inner)))
    }

    fn look(self) {
        let inner = &self.0;
        let has_changed = inner.current().digests != digests(&inner.certificate, &inner.key);
        let fresh = has_changed.then(|| Current::read(&inner.certificate, &inner.key));
        if let Some(Ok(fresh)) = fresh {
            *inner.current() = Current { is_looked_at: true, ..fresh };
        }
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        self.0.current().is_looked_at = false;
    }
}

impl Current {
    fn read(certificate: &Path, key: &Path) -> Result<Self, EgressError> {
        let unusable = |reason| EgressError::IdentityUnusable { reason };
        let digests = digests(certificate, key);
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
        let certified = Arc::new(certified);
        Ok(Self { certified, digests, looked: Instant::now(), is_looked_at: false })
    }
}

fn bytes_of(path: &Path) -> Result<Zeroizing<Vec<u8>>, EgressError> {
    let reason = "one of its files cannot be read, or is not of a certificate's size";
    read_bounded(path, FILE_BYTES_MAX)
        .map_err(|_unreadable| EgressError::IdentityUnusable { reason })
}

fn digests(certificate: &Path, key: &Path) -> [Option<Digest>; 2] {
    [certificate, key].map(|path| file_digest(path, FILE_BYTES_MAX))
}

/// Presents the identity when the peer of one connection asks for it.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn files_that_do_not_answer_hold_up_nobody_but_the_first_for_a_moment() {
        let folder = tempfile::tempdir().unwrap();
        let own = rcgen::generate_simple_self_signed(["placet.test".to_owned()]).unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("cert.pem"), own.cert.pem()).unwrap();
        std::fs::write(path("key.pem"), own.signing_key.serialize_pem()).unwrap();
        let identity = ClientIdentity::from_files(path("cert.pem"), path("key.pem")).unwrap();
        tokio::time::sleep(LOOK).await;
        // A check is running, and gets no answer.
        let look = Look::begin(&identity.inner).unwrap();
        tokio::time::sleep(LOOK).await;
        assert!(
            Look::begin(&identity.inner).is_none(),
            "one thread waits, and not one for each connection"
        );
        let asked = Instant::now();
        identity.follow().await;
        assert_eq!(identity.certified().cert.len(), 1);
        assert!(asked.elapsed() < ANSWER_MAX, "who connects meanwhile does so as before");
        // The files answer.
        look.look();
        let look = Look::begin(&identity.inner).unwrap();
        // The check panics.
        let broken: tokio::task::JoinHandle<()> = tokio::task::spawn_blocking(move || {
            let _look = look;
            panic!("the files are odd");
        });
        assert!(broken.await.unwrap_err().is_panic());
        tokio::time::sleep(LOOK).await;
        assert!(Look::begin(&identity.inner).is_some(), "files are looked at after that too");
    }
}
