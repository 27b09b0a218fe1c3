//! The `trust` section: additional roots for our own connections, and the certificates that identify us to others.
//!
//! Owns the form and the reading of the files at start. Invariant: a certificate is for one destination, which is written down.

use std::path::{Path, PathBuf};

use placet_egress::{ClientIdentity, Destination, PrivateRanges, Trust};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::yaml::FileProblem;

/// The maximum size of all roots.
const ROOTS_BYTES_MAX: usize = 1024 * 1024;

/// Additional root certificates for outgoing connections, and the client certificates that Placet presents on them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TrustFile {
    /// PEM files with root certificates to trust in addition to the platform's. Read at start.
    pub(crate) roots: Vec<PathBuf>,
    /// Client certificates for destinations that ask for one.
    pub(crate) certificates: Vec<OwnCertificateFile>,
}

/// The client certificate for one destination.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OwnCertificateFile {
    /// The destination that gets the certificate, such as `https://tools.example` or `https://tools.example:8443`.
    #[serde(rename = "for")]
    #[schemars(with = "String", extend("format" = "uri"))]
    pub(crate) destination: url::Url,
    /// The PEM file with the certificate and its intermediate certificates. A changed file takes effect without a restart.
    pub(crate) certificate: PathBuf,
    /// The PEM file with the private key of the certificate.
    pub(crate) key: PathBuf,
}

impl TrustFile {
    /// Reads the files.
    pub(crate) fn read(&self, file: &Path, base: &Path) -> Result<Trust, FileProblem> {
        let mut trust = Trust::default();
        for (at, path) in self.roots.iter().enumerate() {
            let key = format!("trust.roots.{at}");
            let pem = std::fs::read(base.join(path)).map_err(|error| {
                FileProblem::at(file, &key, format!("`{}`: {error}", path.display()))
            })?;
            if trust.roots_pem.len().saturating_add(pem.len()) > ROOTS_BYTES_MAX {
                return Err(FileProblem::at(file, key, "makes too many roots"));
            }
            trust.roots_pem.extend(pem);
            trust.roots_pem.push(b'\n');
        }
        for (at, own) in self.certificates.iter().enumerate() {
            let key = format!("trust.certificates.{at}");
            let is_origin = own.destination.scheme() == "https" && own.destination.path() == "/";
            if !is_origin || own.destination.query().is_some() {
                let problem = "must be for `https://name` or `https://name:port`";
                return Err(FileProblem::at(file, format!("{key}.for"), problem));
            }
            let destination = Destination::from_url(&own.destination, PrivateRanges::Allowed)
                .map_err(|error| FileProblem::at(file, format!("{key}.for"), error))?;
            let (certificate, secret) = (base.join(&own.certificate), base.join(&own.key));
            let identity = ClientIdentity::from_files(certificate, secret)
                .map_err(|error| FileProblem::at(file, key, error))?;
            trust.identities.push((destination, identity));
        }
        Ok(trust)
    }
}
