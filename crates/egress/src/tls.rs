//! TLS: trust roots and client settings.
//!
//! It owns the choice of provider, versions and roots. It does not own sockets. Invariant: the peer's certificate is
//! always verified against the roots and the name; there is no setting that turns this off.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::destination::{Destination, EgressPolicy};
use crate::error::EgressError;
use crate::identity::{ClientIdentity, Showing};

/// The protocol a connection will speak, as it is offered in the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

impl Protocol {
    pub(crate) fn alpn(self) -> &'static [u8] {
        match self {
            Self::Http1 => b"http/1.1",
            Self::Http2 => b"h2",
        }
    }
}

/// The platform's roots and the extra ones. The platform is not asked when no destination has TLS.
pub(crate) fn load_roots(
    policy: &EgressPolicy,
    extra_roots_pem: &[u8],
) -> Result<Arc<RootCertStore>, EgressError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(extra_roots_pem) {
        let unusable =
            EgressError::TrustRootsUnusable { reason: "an extra root is not a certificate" };
        let added = certificate.ok().and_then(|certificate| roots.add(certificate).ok());
        added.ok_or(unusable)?;
    }
    if !extra_roots_pem.is_empty() && roots.is_empty() {
        return Err(EgressError::TrustRootsUnusable {
            reason: "the extra roots hold no certificate",
        });
    }
    if policy.names_https() {
        // Roots that do not parse are left out, as every platform does: trust only becomes smaller.
        let (_added, _ignored) =
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            return Err(EgressError::TrustRootsUnusable { reason: "the platform has none" });
        }
    }
    Ok(Arc::new(roots))
}

/// The settings of a client's handshakes: with its certificate for the destinations that have one, without for all others.
pub(crate) struct Handshakes {
    anonymous: Arc<ClientConfig>,
    identified: BTreeMap<String, (ClientIdentity, Arc<ClientConfig>)>,
}

impl Handshakes {
    pub(crate) fn new(
        roots: &Arc<RootCertStore>,
        identities: &[(Destination, ClientIdentity)],
        protocol: Protocol,
    ) -> Result<Arc<Self>, EgressError> {
        let anonymous = Arc::new(client_config(roots, None, protocol)?);
        let mut identified = BTreeMap::new();
        for (destination, identity) in identities {
            let config = client_config(roots, Some(identity), protocol)?;
            identified.insert(destination.to_string(), (identity.clone(), Arc::new(config)));
        }
        Ok(Arc::new(Self { anonymous, identified }))
    }

    /// The same without naming a protocol in the handshake.
    pub(crate) fn unnamed(&self) -> Self {
        let without = |config: &Arc<ClientConfig>| {
            let mut config = ClientConfig::clone(config);
            config.alpn_protocols.clear();
            Arc::new(config)
        };
        let each = self.identified.iter();
        let each = each.map(|(name, (own, config))| (name.clone(), (own.clone(), without(config))));
        Self { anonymous: without(&self.anonymous), identified: each.collect() }
    }

    /// The settings for a connection that begins now.
    pub(crate) async fn with(&self, destination: &Destination) -> Arc<ClientConfig> {
        let Some((identity, own)) = self.identified.get(&destination.to_string()) else {
            return Arc::clone(&self.anonymous);
        };
        identity.follow().await;
        Arc::clone(own)
    }
}

fn client_config(
    roots: &Arc<RootCertStore>,
    identity: Option<&ClientIdentity>,
    protocol: Protocol,
) -> Result<ClientConfig, EgressError> {
    let building = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|_unsupported| EgressError::TrustRootsUnusable {
            reason: "no tls version is available",
        })?
        .with_root_certificates(Arc::clone(roots));
    let mut config = match identity {
        Some(identity) => {
            let mut config =
                building.with_client_cert_resolver(Arc::new(Showing(identity.clone())));
            // A resumed session would keep the identity it was opened with.
            config.resumption = Resumption::disabled();
            config
        }
        None => building.with_no_client_auth(),
    };
    config.alpn_protocols = vec![protocol.alpn().to_vec()];
    Ok(config)
}
