//! Client certificates: whose they are, by the authority that issued them (mutual TLS; X.509-SVIDs of SPIFFE).
//!
//! Owns the authorities' files and the mapping from a chain to a principal. Does not speak TLS: the handshake proves that the peer holds
//! the key. Invariants: a chain is valid only under the authority whose names it uses, so that one authority cannot name another's
//! workloads; an authority whose file is gone stays in use for a bounded time.

use std::{
    fmt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;

use arc_swap::ArcSwap;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use der::{
    AnyRef, Decode as _, Reader as _, SliceReader, Tag, Tagged as _,
    asn1::{GeneralizedTime, UtcTime},
};
use placet_egress::{file_digest, read_bounded};
use placet_types::{
    clock::Timestamp,
    digest::Digest,
    ids::{PrincipalId, TenantId},
    principal::{Principal, PrincipalKind},
    proof::AuthType,
};
use rustls::{
    RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, UnixTime, pem::PemObject as _},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};
use tokio::time::Instant;
use webpki::EndEntityCert;

use crate::{
    config::ClientAuthority,
    error::{IdentityError, KeyError, SetupError},
    spiffe::{SPIFFE_SCHEME, SpiffeId},
    token::{TokenRole, VerifiedToken, Workload},
};

const BUNDLE_BYTES_MAX: usize = 256 * 1024;
const CERTIFICATES_MAX: usize = 100;
const NAMES_MAX: usize = 64;
const NAME_BYTES_MAX: usize = 512;

/// A certificate whose key the peer proved to hold in its handshake, with its chain.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    chain: Arc<[CertificateDer<'static>]>,
}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCertificate")
            .field("thumbprint", &self.thumbprint())
            .finish_non_exhaustive()
    }
}

impl ClientCertificate {
    /// The chain of a finished handshake, the peer's own certificate first. None where the peer showed none.
    pub fn of_handshake(chain: &[CertificateDer<'_>]) -> Option<Self> {
        chain.first()?;
        let chain = chain.iter().map(|certificate| certificate.clone().into_owned()).collect();
        Some(Self { chain })
    }

    /// The SHA-256 of the certificate, as tokens that are bound to it say it (`x5t#S256`, RFC 8705).
    pub fn thumbprint(&self) -> String {
        let own = self.chain.first().map(|own| Digest::of(own.as_ref()));
        own.map(|digest| URL_SAFE_NO_PAD.encode(digest.as_bytes())).unwrap_or_default()
    }
}

/// Every authority whose certificates name agents. Clones share what was loaded.
#[derive(Clone)]
pub struct ClientAuthorities {
    inner: Arc<Inner>,
}

struct Inner {
    config: Vec<ClientAuthority>,
    loaded: ArcSwap<Loaded>,
    generation: AtomicU64,
    /// In the order of the configuration.
    files: Mutex<Vec<Seen>>,
    /// How long an authority stays in use after its file has become unusable.
    stale_age: Duration,
}

/// What is known of an authority's file.
#[derive(Debug, Clone, Copy)]
struct Seen {
    /// When its content last matched what was loaded.
    at: Instant,
    /// Whether the last check failed.
    is_failing: bool,
}

impl Seen {
    fn now() -> Self {
        Self { at: Instant::now(), is_failing: false }
    }
}

struct Loaded {
    /// In the order of the configuration.
    each: Vec<Arc<Authority>>,
    any: Arc<dyn ClientCertVerifier>,
}

/// An authority, as its file was read.
struct Authority {
    certificates: Vec<CertificateDer<'static>>,
    verifier: Arc<dyn ClientCertVerifier>,
    digest: Option<Digest>,
}

impl fmt::Debug for ClientAuthorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.inner.config.iter().map(|one| one.name.as_str()).collect();
        f.debug_struct("ClientAuthorities").field("names", &names).finish_non_exhaustive()
    }
}

impl ClientAuthorities {
    /// Reads the authorities' files. None where the configuration names no authority.
    pub(crate) fn load(
        config: &[ClientAuthority],
        stale_age: Duration,
    ) -> Result<Option<Self>, SetupError> {
        if config.is_empty() {
            return Ok(None);
        }
        let each = config.iter().map(|one| Authority::read(one).map(Arc::new));
        let loaded = ArcSwap::from_pointee(Loaded::of(each.collect::<Result<_, _>>()?)?);
        Ok(Some(Self {
            inner: Arc::new(Inner {
                config: config.to_vec(),
                loaded,
                generation: AtomicU64::new(0),
                files: Mutex::new(vec![Seen::now(); config.len()]),
                stale_age,
            }),
        }))
    }

    /// The verifier for handshakes: a certificate is optional, and must then be from one of the authorities.
    pub fn handshake_verifier(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::clone(&self.inner.loaded.load().any)
    }

    /// Incremented by each reload that changed something: anyone who holds a handshake verifier then fetches a new one.
    pub fn generation(&self) -> u64 {
        self.inner.generation.load(Ordering::Acquire)
    }

    /// Reloads the files that have changed. An unusable file has no effect for a while, and never on the other authorities: its authority
    /// stays in use for `keys_stale_s_max` (an hour) after the file last matched, and then identifies nobody.
    ///
    /// # Errors
    /// [`SetupError`] naming the first file that cannot be used; the others were read all the same.
    pub fn reload_if_changed(&self) -> Result<bool, SetupError> {
        let known = self.inner.loaded.load_full();
        let (mut each, mut seen) = (known.each.clone(), self.inner.files.lock().clone());
        let (mut has_changed, mut problem) = (false, None);
        let places = each.iter_mut().zip(&mut seen).zip(&self.inner.config);
        for ((read, seen), authority) in places {
            let digest = file_digest(&authority.ca, BUNDLE_BYTES_MAX);
            if digest.is_some() && digest == read.digest {
                *seen = Seen::now();
                continue;
            }
            match Authority::read(authority) {
                Ok(fresh) => (*read, *seen, has_changed) = (Arc::new(fresh), Seen::now(), true),
                Err(error) => {
                    seen.is_failing = true;
                    problem.get_or_insert(error);
                }
            }
        }
        *self.inner.files.lock() = seen;
        if has_changed {
            self.inner.loaded.store(Arc::new(Loaded::of(each)?));
            self.inner.generation.fetch_add(1, Ordering::AcqRel);
        }
        problem.map_or(Ok(has_changed), Err)
    }

    /// The files do not answer, as on a mount that hangs.
    pub(crate) fn are_silent(&self) {
        self.inner.files.lock().iter_mut().for_each(|seen| seen.is_failing = true);
    }

    /// Whether one of the tenant's authorities has this name as an issuer.
    pub(crate) fn has_issuer(&self, tenant: &TenantId, name: &str) -> bool {
        let mut own = self.inner.config.iter().filter(|authority| authority.tenant == *tenant);
        own.any(|authority| authority.issuer() == name)
    }

    /// The authorities with unusable files, as issuers: those still in use, or those no longer in use.
    pub(crate) fn without_files(&self, used_on: bool) -> Vec<String> {
        let files = self.inner.files.lock().clone();
        let failing = self.inner.config.iter().zip(files).filter(|(_, seen)| {
            seen.is_failing && (seen.at.elapsed() <= self.inner.stale_age) == used_on
        });
        failing.map(|(authority, _)| authority.issuer()).collect()
    }

    fn is_stale(&self, authority: usize) -> bool {
        let seen = self.inner.files.lock().get(authority).copied();
        seen.is_none_or(|seen| seen.is_failing && seen.at.elapsed() > self.inner.stale_age)
    }

    /// Identifies the owner of a certificate.
    pub(crate) fn verify(
        &self,
        certificate: &ClientCertificate,
        now: Timestamp,
    ) -> Result<VerifiedToken, IdentityError> {
        let refused = |problem| IdentityError::CertificateRefused(problem);
        let (own, between) =
            certificate.chain.split_first().ok_or_else(|| refused("there is none"))?;
        let since = Duration::from_millis(u64::try_from(now.as_ms()).unwrap_or_default());
        let at = UnixTime::since_unix_epoch(since);
        let loaded = self.inner.loaded.load();
        let mut known = false;
        for (place, (authority, read)) in self.inner.config.iter().zip(&loaded.each).enumerate() {
            if read.verifier.verify_client_cert(own, between, at).is_err() {
                continue;
            }
            known = true;
            let Some((names, principal)) = named(authority, own) else { continue };
            if self.is_stale(place) {
                return Err(IdentityError::KeysUnavailable(authority.issuer()));
            }
            let expires_at = not_after(own).ok_or_else(|| refused("its end is not known"))?;
            return Ok(verified(authority, certificate, names, principal, now, expires_at));
        }
        let problem = if known { "its owner has no name here" } else { "it is of no authority" };
        Err(refused(problem))
    }
}

fn verified(
    authority: &ClientAuthority,
    certificate: &ClientCertificate,
    names: Vec<String>,
    id: PrincipalId,
    issued_at: Timestamp,
    expires_at: Timestamp,
) -> VerifiedToken {
    let (kind, tenant_id): (PrincipalKind, _) = (authority.kind, authority.tenant.clone());
    let mut names = names.into_iter();
    let handle: String = certificate.thumbprint().chars().take(16).collect();
    let auth_type = match authority.trust_domain {
        Some(_) => AuthType::X509Svid,
        None => AuthType::X509,
    };
    let token = VerifiedToken::of_workload(Workload {
        role: TokenRole::Actor,
        auth_type,
        principal: Principal { kind, id, tenant_id, display: None },
        issuer: authority.issuer(),
        subject: names.next().unwrap_or_default(),
        issued_at,
        expires_at,
        token_ref: format!("crt_{handle}"),
    });
    // The time of the handshake does not tell when the key was issued, so every revocation hits it.
    VerifiedToken { is_undated: true, further_subjects: names.collect(), ..token }
}

/// The names in a certificate that the authority's configuration knows, and their principal. `None` if they belong to two.
fn named(
    authority: &ClientAuthority,
    own: &CertificateDer<'_>,
) -> Option<(Vec<String>, PrincipalId)> {
    let parsed = EndEntityCert::try_from(own).ok()?;
    let uris: Vec<&str> = parsed.valid_uri_names().take(NAMES_MAX).collect();
    if let Some(trust_domain) = &authority.trust_domain {
        let [uri] = uris.as_slice() else { return None };
        let id = SpiffeId::parse(uri).filter(|id| id.trust_domain() == trust_domain)?;
        return Some((vec![id.text().to_owned()], authority.workloads.of_spiffe(&id)?));
    }
    // A SPIFFE id counts only if the configuration assigns that trust domain to the authority.
    let mut found: Option<(Vec<String>, PrincipalId)> = None;
    let names = uris.into_iter().chain(parsed.valid_dns_names().take(NAMES_MAX));
    for name in names.filter(|n| !n.starts_with(SPIFFE_SCHEME) && n.len() <= NAME_BYTES_MAX) {
        let Some(principal) = authority.workloads.names.get(name) else { continue };
        if found.as_ref().is_some_and(|(_, other)| other != principal) {
            return None;
        }
        found.get_or_insert_with(|| (Vec::new(), principal.clone())).0.push(name.to_owned());
    }
    found
}

/// The end of a certificate's validity (RFC 5280, section 4.1.2.5). It finds the field and checks nothing else.
pub fn not_after(certificate: &CertificateDer<'_>) -> Option<Timestamp> {
    const VERSION: u8 = 0xa0;
    let whole = AnyRef::from_der(certificate.as_ref()).ok()?;
    let mut inside = SliceReader::new(whole.value()).ok()?;
    let mut fields = SliceReader::new(AnyRef::decode(&mut inside).ok()?.value()).ok()?;
    if fields.peek_byte()? == VERSION {
        AnyRef::decode(&mut fields).ok()?;
    }
    // Its serial number, the algorithm, the issuer.
    for _ in 0..3 {
        AnyRef::decode(&mut fields).ok()?;
    }
    let mut validity = SliceReader::new(AnyRef::decode(&mut fields).ok()?.value()).ok()?;
    AnyRef::decode(&mut validity).ok()?;
    let end = AnyRef::decode(&mut validity).ok()?;
    let since = if end.tag() == Tag::UtcTime {
        end.decode_as::<UtcTime>().ok()?.to_unix_duration()
    } else {
        end.decode_as::<GeneralizedTime>().ok()?.to_unix_duration()
    };
    Some(Timestamp::from_ms(i64::try_from(since.as_millis()).ok()?))
}

impl Authority {
    /// Reads its file. The digest is taken before: a change in between causes one read too many, not one too few.
    fn read(authority: &ClientAuthority) -> Result<Self, SetupError> {
        let digest = file_digest(&authority.ca, BUNDLE_BYTES_MAX);
        let unusable = |problem: String| SetupError::Issuer { issuer: authority.issuer(), problem };
        let certificates = certificates(&authority.ca).map_err(unusable)?;
        let mut roots = RootCertStore::empty();
        for certificate in &certificates {
            let added = roots.add(certificate.clone());
            added.map_err(|_bad| {
                unusable("a certificate of it cannot be an authority".to_owned())
            })?;
        }
        let verifier = verifier(roots).map_err(unusable)?;
        Ok(Self { certificates, verifier, digest })
    }
}

impl Loaded {
    fn of(each: Vec<Arc<Authority>>) -> Result<Self, SetupError> {
        let none =
            |problem| SetupError::Issuer { issuer: "client_authorities".to_owned(), problem };
        let mut all = RootCertStore::empty();
        let certificates = each.iter().flat_map(|authority| &authority.certificates);
        for certificate in certificates {
            all.add(certificate.clone()).map_err(|error| none(error.to_string()))?;
        }
        let provider = Arc::new(ring::default_provider());
        let any = WebPkiClientVerifier::builder_with_provider(Arc::new(all), provider)
            .allow_unauthenticated()
            .build()
            .map_err(|error| none(error.to_string()))?;
        Ok(Self { each, any })
    }
}

fn verifier(roots: RootCertStore) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let provider = Arc::new(ring::default_provider());
    let built = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
    built.map_err(|error| error.to_string())
}

/// The certificates of a PEM file.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let unreadable = |error: std::io::Error| KeyError::unreadable(path, error.kind()).to_string();
    let pem = read_bounded(path, BUNDLE_BYTES_MAX).map_err(unreadable)?;
    let found: Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(&pem).take(CERTIFICATES_MAX.saturating_add(1)).collect();
    found.ok().filter(|found| (1..=CERTIFICATES_MAX).contains(&found.len())).ok_or_else(|| {
        format!("`{}` must hold 1 to {CERTIFICATES_MAX} certificates", path.display())
    })
}
