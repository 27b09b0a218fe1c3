//! Secrets that are kept in a Vault or an OpenBao: where it is, how we prove there who we are, and which entry a secret is.
//!
//! Owns the configuration's form and its check. `wire` speaks the HTTP interface, `session` has the token, `reading` holds what was read,
//! `keeper` reads, renews and returns. No client library is used: those there are open sockets of their own, and every socket of ours
//! is opened by the egress client, to the one address that the configuration names.
//! Invariant: an entry's name cannot lead out of the interface's path for entries, whatever is written in it.

use std::{fmt, path::PathBuf, str::FromStr};

use placet_egress::{Destination, EgressError, Limits, PrivateRanges};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

mod error;
mod keeper;
mod reading;
mod session;
mod wire;

pub use error::VaultError;
pub use keeper::VaultKeeper;
pub(crate) use reading::Reading;

#[cfg(test)]
mod tests;

const NAMESPACE_BYTES_MAX: usize = 256;
const REFERENCE_BYTES_MAX: usize = 1_024;
const REFRESH_MS: std::ops::RangeInclusive<u64> = 1_000..=3_600_000;
const STALE_MS_MAX: u64 = 86_400_000;

/// Where the vault is, and how we prove there who we are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VaultConfig {
    /// Its address, such as `https://vault.example:8200`.
    #[serde(with = "crate::config::url_text")]
    #[schemars(with = "String", extend("format" = "uri"))]
    pub address: Url,
    /// The namespace that everything is in; absent: none.
    #[serde(default)]
    pub namespace: Option<String>,
    /// Whether its host may have an address in a private range; plain `http:` is only for those.
    #[serde(default)]
    pub private_network: bool,
    /// How we prove who we are.
    pub auth: VaultAuth,
    /// How often an entry without a lease is read again, in milliseconds.
    #[serde(default = "default_refresh")]
    #[schemars(range(min = 1_000, max = 3_600_000))]
    pub refresh_ms: u64,
    /// How long an entry without a lease is used on when it cannot be read again, in milliseconds. One with a lease is used until that ends.
    #[serde(default = "default_stale")]
    #[schemars(range(min = 1_000, max = 86_400_000))]
    pub stale_ms_max: u64,
}

const fn default_refresh() -> u64 {
    30_000
}

const fn default_stale() -> u64 {
    900_000
}

/// How we prove to the vault who we are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "method", rename_all = "snake_case", deny_unknown_fields)]
pub enum VaultAuth {
    /// A token in a file, which somebody else keeps fresh, such as the vault's agent. A changed file is noticed.
    TokenFile {
        /// The file.
        file: PathBuf,
    },
    /// A JWT in a file is exchanged for a token, which we renew. The methods `jwt` and `kubernetes` are asked the same way.
    Jwt {
        /// The role to log in as.
        role: String,
        /// The file with the JWT, read at each log-in, such as a projected token of a service account.
        file: PathBuf,
        /// Where the method is mounted.
        #[serde(default = "default_mount")]
        mount: String,
    },
}

fn default_mount() -> String {
    "jwt".to_owned()
}

impl VaultConfig {
    /// Checks everything that can be checked without asking.
    ///
    /// # Errors
    /// What is wrong, for the operator.
    pub fn check(&self) -> Result<(), String> {
        self.destination().map_err(|error| format!("`address`: {error}"))?;
        if self.address.path() != "/" || self.address.query().is_some() {
            return Err("`address` must be scheme, host and port alone".to_owned());
        }
        if let Some(namespace) = &self.namespace {
            let fine = namespace.len() <= NAMESPACE_BYTES_MAX
                && namespace.split('/').all(is_plain_segment)
                && namespace.bytes().all(|byte| byte.is_ascii_graphic());
            if !fine {
                return Err("`namespace` must be names with `/` between them".to_owned());
            }
        }
        if !REFRESH_MS.contains(&self.refresh_ms) {
            return Err("`refresh_ms` must be 1000 to 3600000".to_owned());
        }
        if self.stale_ms_max < self.refresh_ms || self.stale_ms_max > STALE_MS_MAX {
            return Err(
                "`stale_ms_max` must be no less than `refresh_ms` and at most 86400000".to_owned()
            );
        }
        match &self.auth {
            VaultAuth::TokenFile { .. } => Ok(()),
            VaultAuth::Jwt { role, mount, .. }
                if role.is_empty() || !mount.split('/').all(is_plain_segment) =>
            {
                Err("`auth` needs a `role`, and a `mount` without `.` and empty parts".to_owned())
            }
            VaultAuth::Jwt { .. } => Ok(()),
        }
    }

    /// The one place that is dialled.
    ///
    /// # Errors
    /// [`EgressError`] when the address cannot be a destination, such as `http:` outside private ranges.
    pub fn destination(&self) -> Result<Destination, EgressError> {
        let private =
            if self.private_network { PrivateRanges::Allowed } else { PrivateRanges::Refused };
        Destination::from_url(&self.address, private)
    }

    /// The limits of one request.
    #[must_use]
    pub fn limits() -> Limits {
        Limits {
            request_timeout_ms: 10_000,
            response_bytes_max: wire::ANSWER_BYTES_MAX,
            pool_idle_connections_max: 1,
            ..Limits::default()
        }
    }
}

/// Which field of which entry a secret is: `<mount>/data/<path>#<field>` for version 2 of the key-value engine, `<mount>/creds/<role>#<field>`
/// for credentials that are made on demand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VaultRef {
    path: String,
    field: String,
}

/// Why a text names no field of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "it must be `<path>#<field>`, such as `secret/data/tickets#key`: names with `/` between them, and the name of a field"
)]
pub struct VaultRefError;

impl VaultRef {
    /// The entry, without `/v1/` before it.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The field of it.
    #[must_use]
    pub fn field(&self) -> &str {
        &self.field
    }
}

impl FromStr for VaultRef {
    type Err = VaultRefError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (path, field) = text.split_once('#').ok_or(VaultRefError)?;
        // What Vault itself serves there is not an entry: logging in and renewing are ours, and a key of the server's is not a secret of ours.
        let own = ["sys", "auth"].contains(&path.split('/').next().unwrap_or_default());
        let fine = text.len() <= REFERENCE_BYTES_MAX
            && !text.chars().any(char::is_control)
            && path.contains('/')
            && path.split('/').all(is_plain_segment)
            && !own
            && !field.is_empty()
            && !field.contains('#');
        if fine {
            Ok(Self { path: path.to_owned(), field: field.to_owned() })
        } else {
            Err(VaultRefError)
        }
    }
}

impl fmt::Display for VaultRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.path, self.field)
    }
}

fn is_plain_segment(segment: &str) -> bool {
    !segment.is_empty() && segment != "." && segment != ".." && !segment.contains(['?', '\\'])
}
