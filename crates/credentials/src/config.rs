//! The form of the `sts` section: the token services that contracts may name.
//!
//! Owns the form, its defaults and its checks. Holds names of secrets, never their values. Invariant: a client cannot be configured without
//! authentication, and no parameter can be configured that the exchange itself sets.

use std::collections::{BTreeMap, BTreeSet};

use placet_egress::{Destination, PrivateRanges, Scheme};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

/// Parameters that the request sets itself, so that no configuration may.
const RESERVED: [&str; 15] = [
    "grant_type",
    "subject_token",
    "subject_token_type",
    "actor_token",
    "actor_token_type",
    "requested_token_type",
    "audience",
    "resource",
    "scope",
    "client_id",
    "client_secret",
    "client_assertion",
    "client_assertion_type",
    "assertion",
    "refresh_token",
];
const PARAMS_MAX: usize = 16;
const TEXT_BYTES_MAX: usize = 512;
const TIMEOUT_MS_DEFAULT: u64 = 10_000;
const LIFETIME_MS_DEFAULT: u64 = 300_000;

/// How Placet authenticates to a token service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "method", rename_all = "snake_case", deny_unknown_fields)]
pub enum ClientAuth {
    /// A signed assertion (RFC 7523). Preferred.
    PrivateKeyJwt {
        /// The name of the secret with the private key: P-256, PKCS #8, in PEM form.
        key: String,
        /// The key's id at the token service (`kid`).
        #[serde(default)]
        key_id: Option<String>,
        /// The audience of the assertion.
        #[serde(default)]
        audience: AssertionAudience,
    },
    /// A client secret in the `Authorization` header.
    ClientSecretBasic {
        /// The name of the secret.
        secret: String,
    },
    /// A client secret in the request body, for services that accept it only there.
    ClientSecretPost {
        /// The name of the secret.
        secret: String,
    },
    /// A JWT-SVID of Placet's own, from the SPIFFE Workload API.
    SpiffeJwt {
        /// The name of the secret with the SVID.
        svid: String,
    },
    /// The client certificate of the connection (RFC 8705), the one in `trust.certificates` for the token endpoint.
    TlsClientAuth {},
}

impl ClientAuth {
    /// Whether it has a token that names us, which can name us as acting too.
    pub const fn names_us(&self) -> bool {
        matches!(self, Self::PrivateKeyJwt { .. } | Self::SpiffeJwt { .. })
    }

    /// The name of the secret that it needs, if it needs one.
    pub fn secret(&self) -> Option<&str> {
        match self {
            Self::PrivateKeyJwt { key: name, .. }
            | Self::ClientSecretBasic { secret: name }
            | Self::ClientSecretPost { secret: name }
            | Self::SpiffeJwt { svid: name } => Some(name),
            Self::TlsClientAuth {} => None,
        }
    }
}

/// The audience of a client assertion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "snake_case")]
pub enum AssertionAudience {
    /// The URL of the token endpoint.
    #[default]
    TokenEndpoint,
    /// The issuer identifier of the token service.
    Issuer,
}

/// The token types of RFC 8693, section 3.
pub(crate) const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";
pub(crate) const JWT: &str = "urn:ietf:params:oauth:token-type:jwt";

/// The token type that is stated for the caller's token (`subject_token_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "snake_case")]
pub enum PresentedAs {
    /// `urn:ietf:params:oauth:token-type:access_token`.
    #[default]
    AccessToken,
    /// `urn:ietf:params:oauth:token-type:jwt`.
    Jwt,
}

impl PresentedAs {
    pub(crate) const fn uri(self) -> &'static str {
        match self {
            Self::AccessToken => ACCESS_TOKEN,
            Self::Jwt => JWT,
        }
    }
}

/// A check of a token service's responses that can be disabled.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Leniency {
    /// The response need not state the type of the token (`issued_token_type`), which RFC 8693 requires.
    IssuedType,
    /// A token that can be parsed may name another audience than the requested one, or further audiences.
    Audience,
    /// A token that can be parsed may name the user in another way than the user's own token does.
    Subject,
    /// A token that can be parsed need not name the actor.
    Actor,
}

/// A token service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StsConfig {
    /// The name that contracts use for the token service.
    pub name: String,
    /// Its issuer identifier.
    pub issuer: String,
    /// The URL of the token endpoint.
    pub token_endpoint: String,
    /// Placet's client id at the token service.
    pub client_id: String,
    /// How Placet authenticates.
    pub client_auth: ClientAuth,
    /// Whether the host may be in a private or loopback range; plain `http:` is then allowed.
    #[serde(default)]
    pub private_network: bool,
    /// The token type that is stated for the caller's token (`subject_token_type`).
    #[serde(default)]
    pub subject_token_type: PresentedAs,
    /// Omits `requested_token_type` from requests, for services that reject it.
    #[serde(default)]
    pub omit_requested_token_type: bool,
    /// The checks of its responses that are disabled.
    #[serde(default)]
    pub lenient: BTreeSet<Leniency>,
    /// Additional parameters for every request, sent as they are.
    #[serde(default)]
    pub params: BTreeMap<String, String>,
    /// The timeout of one request, in milliseconds.
    #[serde(default = "timeout_ms")]
    #[schemars(range(min = 100, max = 10_000))]
    pub timeout_ms: u64,
    /// The maximum time that a token is used, even if it is valid for longer, in milliseconds.
    #[serde(default = "lifetime_ms_max")]
    #[schemars(range(min = 20_000, max = 300_000))]
    pub lifetime_ms_max: u64,
}

const fn timeout_ms() -> u64 {
    TIMEOUT_MS_DEFAULT
}

const fn lifetime_ms_max() -> u64 {
    LIFETIME_MS_DEFAULT
}

/// What is wrong with a token service's section.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("token service `{name}`: `{key}` {problem}")]
pub struct ConfigError {
    /// The token service.
    pub name: String,
    /// The key.
    pub key: &'static str,
    /// What is wrong with it.
    pub problem: String,
}

impl StsConfig {
    /// Checks the section.
    ///
    /// # Errors
    /// [`ConfigError`] for the first key that cannot be used.
    pub fn check(&self) -> Result<(), ConfigError> {
        let problem = |key, problem: &str| {
            Err(ConfigError { name: self.name.clone(), key, problem: problem.to_owned() })
        };
        let texts = [
            ("name", &self.name),
            ("issuer", &self.issuer),
            ("client_id", &self.client_id),
            ("token_endpoint", &self.token_endpoint),
        ];
        if let Some((key, _)) = texts.into_iter().find(|(_, text)| !is_text(text)) {
            return problem(key, "is empty, too long or not printable ASCII");
        }
        if self.client_auth.secret().is_some_and(str::is_empty) {
            return problem("client_auth", "names no secret");
        }
        let reserved = |name: &String| RESERVED.contains(&name.to_ascii_lowercase().as_str());
        if let Some(name) = self.params.keys().find(|name| reserved(name)) {
            return problem("params", &format!("may not set `{name}`"));
        }
        let usable = |text: &String| text.len() <= TEXT_BYTES_MAX;
        if self.params.len() > PARAMS_MAX
            || !self.params.iter().all(|(name, value)| is_text(name) && usable(value))
        {
            return problem("params", "are too many or too long");
        }
        if !(100..=TIMEOUT_MS_DEFAULT).contains(&self.timeout_ms) {
            return problem("timeout_ms", "must be 100 to 10,000");
        }
        if !(20_000..=LIFETIME_MS_DEFAULT).contains(&self.lifetime_ms_max) {
            return problem("lifetime_ms_max", "must be 20,000 to 300,000");
        }
        let destination = self.destination()?;
        if self.client_auth == (ClientAuth::TlsClientAuth {}) && destination.scheme != Scheme::Https
        {
            return problem("token_endpoint", "has no certificates without https");
        }
        Ok(())
    }

    /// Where it is dialled, for the egress client's allow-list.
    ///
    /// # Errors
    /// [`ConfigError`] when the endpoint cannot be dialled, such as `http:` outside private ranges.
    pub fn destination(&self) -> Result<Destination, ConfigError> {
        let problem = |problem: String| ConfigError {
            name: self.name.clone(),
            key: "token_endpoint",
            problem,
        };
        let private =
            if self.private_network { PrivateRanges::Allowed } else { PrivateRanges::Refused };
        let url = Url::parse(&self.token_endpoint)
            .map_err(|error| problem(format!("is not a url: {error}")))?;
        if url.fragment().is_some() {
            return Err(problem("has a fragment".to_owned()));
        }
        Destination::from_url(&url, private)
            .map_err(|error| problem(format!("cannot be dialled: {error}")))
    }
}

/// Checks all token services: each by itself, and that no two have one name.
///
/// # Errors
/// [`ConfigError`] for the first that cannot be used.
pub fn check_all(services: &[StsConfig]) -> Result<(), ConfigError> {
    let mut names = BTreeSet::new();
    for service in services {
        service.check()?;
        if !names.insert(service.name.as_str()) {
            let problem = "is another one's name too".to_owned();
            return Err(ConfigError { name: service.name.clone(), key: "name", problem });
        }
    }
    Ok(())
}

fn is_text(text: &str) -> bool {
    (1..=TEXT_BYTES_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}
