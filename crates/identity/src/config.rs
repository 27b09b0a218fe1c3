//! Which issuers are trusted, for which tenant, and for what.
//!
//! Owns the configuration's form, its defaults and its check at start. Does not load keys. Invariant: a checked configuration trusts no
//! issuer without an audience, an algorithm and a bound on lifetimes, and cannot name a symmetric algorithm.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::PathBuf,
};

use placet_egress::{Destination, PrivateRanges};
use placet_types::{
    ids::{PrincipalId, TenantId},
    principal::PrincipalKind,
};
use schemars::JsonSchema;
use serde::{
    Deserialize, Serialize,
    de::{self, value::StrDeserializer},
};
use url::Url;

use crate::error::SetupError;

/// The most claims of one issuer that policies see.
pub(crate) const SHOWN_MAX: usize = 32;
const SCOPE_BYTES_MAX: usize = 256;
mod people;
mod warnings;
mod workloads;

pub use workloads::{ActingRule, ClientAuthority, TrustDomainConfig, WorkloadNames};
use workloads::{NameSpace, of_authority, of_domain};

/// The claim in which an issuer says what kind of principal a token is for.
pub const KIND_CLAIM: &str = "placet_kind";

/// The most that the clock of an issuer may differ from ours.
pub const LEEWAY_S_MAX: u64 = 5;
const LIFETIME_S_CEILING: u64 = 24 * 60 * 60;
const ISSUER_BYTES_MAX: usize = 256;

/// A signature algorithm. Symmetric ones are not supported, because anyone who can verify a token could also sign one.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum Algorithm {
    /// ECDSA over P-256 with SHA-256.
    #[serde(rename = "ES256")]
    Es256,
    /// ECDSA over P-384 with SHA-384.
    #[serde(rename = "ES384")]
    Es384,
    /// RSA PKCS#1 v1.5 with SHA-256.
    #[serde(rename = "RS256")]
    Rs256,
    /// RSA PKCS#1 v1.5 with SHA-384.
    #[serde(rename = "RS384")]
    Rs384,
    /// RSA PKCS#1 v1.5 with SHA-512.
    #[serde(rename = "RS512")]
    Rs512,
    /// RSA-PSS with SHA-256.
    #[serde(rename = "PS256")]
    Ps256,
    /// RSA-PSS with SHA-384.
    #[serde(rename = "PS384")]
    Ps384,
    /// RSA-PSS with SHA-512.
    #[serde(rename = "PS512")]
    Ps512,
    /// Ed25519.
    #[serde(rename = "EdDSA")]
    EdDsa,
}

impl Algorithm {
    /// The algorithm of this name in a token's header (RFC 7518, RFC 8037); `none` and the symmetric ones have no entry.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::deserialize(StrDeserializer::<de::value::Error>::new(name)).ok()
    }
}

/// Where an issuer's public keys come from, as a JSON Web Key Set (RFC 7517).
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeySource {
    /// A file. Changes take effect without a restart.
    File(PathBuf),
    /// A URL from which they are fetched.
    Url(#[schemars(with = "String")] Url),
    /// The key set itself.
    Inline(serde_json::Value),
    /// The SPIFFE Workload API that `spiffe` names. Only for the `bundle` of a trust domain.
    WorkloadApi,
}

impl fmt::Debug for KeySource {
    /// An inline set is not shown: somebody may have put a private key there by mistake.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Url(url) => f.debug_tuple("Url").field(&url.host_str()).finish(),
            Self::Inline(_) => f.debug_tuple("Inline").finish_non_exhaustive(),
            Self::WorkloadApi => f.write_str("WorkloadApi"),
        }
    }
}

/// The kinds of principal that an issuer may identify.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KindRule {
    /// Every token is for a principal of this kind.
    Fixed(PrincipalKind),
    /// The token names the kind in the claim `placet_kind`; only these kinds are accepted.
    Claim(BTreeSet<PrincipalKind>),
}

impl KindRule {
    /// Whether a token may be for a principal of such a kind.
    pub(crate) fn allows(&self, is_such: impl Fn(PrincipalKind) -> bool) -> bool {
        match self {
            Self::Fixed(kind) => is_such(*kind),
            Self::Claim(kinds) => kinds.iter().any(|kind| is_such(*kind)),
        }
    }
}

/// A trusted issuer of tokens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IssuerConfig {
    /// The issuer identifier, compared exactly with the `iss` claim.
    pub issuer: String,
    /// The tenant of everyone who has a token of this issuer.
    pub tenant: TenantId,
    /// The names of this service at the issuer. A token's `aud` must contain one of them exactly.
    pub audiences: BTreeSet<String>,
    /// The accepted signature algorithms, whatever a token's header names.
    #[serde(default = "default_algorithms")]
    pub algorithms: Vec<Algorithm>,
    /// The source of the issuer's public keys.
    pub keys: KeySource,
    /// Whether the host of a key URL may have an address in a private range.
    #[serde(default)]
    pub keys_private_network: bool,
    /// The maximum time between `iat` and `exp`, in seconds: 1 to 86400.
    #[serde(default = "default_lifetime")]
    pub lifetime_s_max: u64,
    /// Also accepts tokens with `typ: JWT`, for issuers that do not set `at+jwt` (RFC 9068).
    #[serde(default)]
    pub accept_typ_jwt: bool,
    /// The claim with the principal's name.
    #[serde(default = "default_principal_claim")]
    pub principal_claim: String,
    /// A prefix for the names of principals, so that two issuers of one tenant cannot name the same principal.
    #[serde(default)]
    pub principal_prefix: String,
    /// Confirms that this issuer and others of its tenant name the same people and agents.
    #[serde(default)]
    pub shared_principals: bool,
    /// The claim that lists the principal's groups. Absent: groups come from the directory only.
    #[serde(default)]
    pub groups_claim: Option<String>,
    /// The kinds of principal that the issuer may identify.
    pub kinds: KindRule,
    /// The maximum time since the user logged in (`auth_time`), in seconds. Absent: not checked.
    #[serde(default)]
    pub auth_age_s_max: Option<u64>,
    /// OAuth clients of this issuer (`client_id`, `azp`), each with the principal of the tenant that it stands for.
    #[serde(default)]
    pub clients: BTreeMap<String, PrincipalId>,
    /// OAuth clients of this issuer that people use themselves, such as a command line. A user's token of any other client, or of none,
    /// does not prove that the user is present: without an agent's token it is refused. If the list is empty, so is every user's token.
    /// Console sign-in does not need an entry here. No agent may have a token of such a client.
    #[serde(default)]
    pub person_clients: BTreeSet<String>,
    /// Lets every agent of the tenant use a user's token that names neither an actor nor a client. Anyone who obtains such a token can act
    /// with it.
    #[serde(default)]
    pub delegations_for_anybody: bool,
    /// Claims that every token must have. If values are listed, the claim must be one of them, or a list that contains one of them.
    #[serde(default)]
    pub required_claims: BTreeMap<String, BTreeSet<String>>,
    /// Confirms that this issuer verifies the workload that it issues a token to, for example by platform attestation. Its tokens then
    /// count as verified workload identity (`context.req.attested`), which the shipped policies require of every agent, service and
    /// automation. SVIDs, client certificates and certificate-bound tokens (`cnf`) count without it.
    #[serde(default)]
    pub attests_workloads: bool,
    /// The claims that policies see, at most 32, as tags of `context.req.claims` and `context.req.delegation.claims`. If a token has one,
    /// it must be a string or a list of strings. These claims are recorded with held calls, so they must not contain secrets.
    #[serde(default)]
    pub policy_claims: BTreeSet<String>,
    /// Accepts one token in `Authorization` for both: its subject is the user, the actor in `act` the agent. Absent: such tokens are
    /// refused.
    #[serde(default)]
    pub act: Option<ActingRule>,
    /// Whether the public metadata document lists this issuer as an authorization server.
    #[serde(default = "yes")]
    pub advertised: bool,
    /// Whether it is the issuer of development tokens, whose users have no clients. No file can say so.
    #[serde(skip)]
    pub(crate) is_for_development: bool,
}

const fn yes() -> bool {
    true
}

fn default_algorithms() -> Vec<Algorithm> {
    vec![Algorithm::Es256, Algorithm::Rs256, Algorithm::EdDsa]
}

const fn default_lifetime() -> u64 {
    60 * 60
}

fn default_principal_claim() -> String {
    "sub".to_owned()
}

impl IssuerConfig {
    /// An issuer with the defaults of the configuration file.
    pub fn new(
        issuer: impl Into<String>,
        tenant: TenantId,
        audiences: BTreeSet<String>,
        keys: KeySource,
        kinds: KindRule,
    ) -> Self {
        Self {
            issuer: issuer.into(),
            tenant,
            audiences,
            algorithms: default_algorithms(),
            keys,
            keys_private_network: false,
            lifetime_s_max: default_lifetime(),
            accept_typ_jwt: false,
            principal_claim: default_principal_claim(),
            principal_prefix: String::new(),
            shared_principals: false,
            groups_claim: None,
            kinds,
            auth_age_s_max: None,
            clients: BTreeMap::new(),
            person_clients: BTreeSet::new(),
            delegations_for_anybody: false,
            required_claims: BTreeMap::new(),
            attests_workloads: false,
            policy_claims: BTreeSet::new(),
            act: None,
            advertised: true,
            is_for_development: false,
        }
    }

    fn check(&self) -> Result<(), SetupError> {
        let problem = if self.issuer.is_empty() || self.issuer.len() > ISSUER_BYTES_MAX {
            "its name is empty or too long"
        } else if self.audiences.is_empty() || self.audiences.contains("") {
            "it needs at least one audience, and none may be empty"
        } else if self.algorithms.is_empty() {
            "it needs at least one algorithm"
        } else if !(1..=LIFETIME_S_CEILING).contains(&self.lifetime_s_max) {
            "`lifetime_s_max` must be 1 to 86400"
        } else if matches!(&self.kinds, KindRule::Claim(kinds) if kinds.is_empty()) {
            "it may assert no kind of principal"
        } else if self.principal_claim.is_empty() || self.groups_claim.as_deref() == Some("") {
            "the name of a claim is empty"
        } else if !self.principal_prefix.is_empty()
            && PrincipalId::new(self.principal_prefix.as_str()).is_err()
        {
            "`principal_prefix` cannot start a principal's name"
        } else if self.keys == KeySource::WorkloadApi {
            "only a trust domain's bundle comes from the Workload API"
        } else if self.contradicts_itself() {
            "a client in `person_clients` stands for an agent in `clients` or `act.principals`"
        } else if self.required_claims.keys().any(String::is_empty) {
            "the name of a required claim is empty"
        } else if self.policy_claims.len() > SHOWN_MAX || self.policy_claims.contains("") {
            "`policy_claims` must be at most 32 names, and none may be empty"
        } else if let Some(problem) = self.act.as_ref().and_then(ActingRule::problem) {
            problem
        } else {
            return Ok(());
        };
        Err(self.problem(problem))
    }

    /// The names that its principals can bear: those of its subjects, and those of the actors it vouches for.
    fn name_spaces(&self) -> impl Iterator<Item = NameSpace<'_>> {
        let space = |prefix| NameSpace {
            owner: self.issuer.clone(),
            tenant: &self.tenant,
            prefix,
            shared: self.shared_principals,
        };
        let actors = self.act.as_ref().map(|act| act.principal_prefix.as_str());
        std::iter::once(self.principal_prefix.as_str()).chain(actors).map(space)
    }

    pub(crate) fn problem(&self, problem: impl Into<String>) -> SetupError {
        SetupError::Issuer { issuer: self.issuer.clone(), problem: problem.into() }
    }
}

/// Everything the verifier is told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct IdentityConfig {
    /// The trusted issuers.
    pub issuers: Vec<IssuerConfig>,
    /// The trusted SPIFFE trust domains.
    pub trust_domains: Vec<TrustDomainConfig>,
    /// Whose client certificates name agents.
    pub client_authorities: Vec<ClientAuthority>,
    /// The socket of the agent of the SPIFFE Workload API, for trust domains whose bundle it has.
    pub workload_api: Option<PathBuf>,
    /// How far clocks may differ, 5 at most.
    pub leeway_s: u64,
    /// How old a fetched key set may grow before it is fetched again. A file is looked at more often.
    pub keys_refresh_s: u64,
    /// The shortest time between two fetches that tokens with unknown keys can cause.
    pub keys_retry_s_min: u64,
    /// How long keys are used on when they cannot be fetched any more.
    pub keys_stale_s_max: u64,
}

impl Default for IdentityConfig {
    fn default() -> Self {
        Self {
            issuers: Vec::new(),
            trust_domains: Vec::new(),
            client_authorities: Vec::new(),
            workload_api: None,
            leeway_s: LEEWAY_S_MAX,
            keys_refresh_s: 300,
            keys_retry_s_min: 10,
            keys_stale_s_max: 3_600,
        }
    }
}

impl IdentityConfig {
    /// Checks everything that can be checked without loading a key.
    ///
    /// # Errors
    /// [`SetupError`] for the first problem.
    pub fn check(&self) -> Result<(), SetupError> {
        let limits = |problem| Err(SetupError::Limits(problem));
        if self.leeway_s > LEEWAY_S_MAX {
            return limits("`leeway_s` must be at most 5");
        }
        if self.keys_retry_s_min == 0 || self.keys_refresh_s < self.keys_retry_s_min {
            return limits(
                "`keys_retry_s_min` must be at least 1 and `keys_refresh_s` no less than it",
            );
        }
        if self.keys_stale_s_max < self.keys_refresh_s || self.keys_stale_s_max > LIFETIME_S_CEILING
        {
            return limits(
                "`keys_stale_s_max` must be no less than `keys_refresh_s` and at most 86400",
            );
        }
        self.check_each()?;
        self.check_names()
    }

    /// Whether the configuration lets anybody authenticate.
    pub fn trusts_somebody(&self) -> bool {
        !(self.issuers.is_empty()
            && self.trust_domains.is_empty()
            && self.client_authorities.is_empty())
    }

    /// The trust domains whose bundle the agent of the Workload API has.
    pub(crate) fn of_workload_api(&self) -> impl Iterator<Item = &TrustDomainConfig> {
        self.trust_domains.iter().filter(|domain| domain.bundle == KeySource::WorkloadApi)
    }

    fn check_each(&self) -> Result<(), SetupError> {
        self.issuers.iter().try_for_each(IssuerConfig::check)?;
        self.trust_domains.iter().try_for_each(TrustDomainConfig::check)?;
        self.client_authorities.iter().try_for_each(ClientAuthority::check)?;
        if let Some(domain) = self.of_workload_api().next()
            && self.workload_api.is_none()
        {
            let problem = "its bundle is from the Workload API, and no `spiffe.socket` says where the agent is";
            return Err(domain.as_issuer().problem(problem));
        }
        let issuers = self.issuers.iter().map(|issuer| issuer.issuer.clone());
        let domains = self.trust_domains.iter().map(|domain| domain.as_issuer().issuer);
        let authorities = self.client_authorities.iter().map(ClientAuthority::issuer);
        let mut seen = BTreeSet::new();
        for issuer in issuers.chain(domains).chain(authorities) {
            if !seen.insert(issuer.clone()) {
                let problem = "it is there twice".to_owned();
                return Err(SetupError::Issuer { issuer, problem });
            }
        }
        Ok(())
    }

    fn check_names(&self) -> Result<(), SetupError> {
        let issuers = self.issuers.iter().flat_map(IssuerConfig::name_spaces);
        let domains = self.trust_domains.iter().filter_map(of_domain);
        let authorities = self.client_authorities.iter().filter_map(of_authority);
        let spaces: Vec<NameSpace<'_>> = issuers.chain(domains).chain(authorities).collect();
        for (at, space) in spaces.iter().enumerate() {
            let earlier = spaces.iter().take(at);
            if let Some(other) = earlier.clone().find(|earlier| space.collides_with(earlier)) {
                let problem = format!(
                    "its principals could bear the names of those of `{}`; set `principal_prefix`, or \
                     `shared_principals` if they are the same",
                    other.owner
                );
                return Err(SetupError::Issuer { issuer: space.owner.clone(), problem });
            }
        }
        Ok(())
    }

    /// The destinations of the key URLs, for the egress client's allow-list.
    ///
    /// # Errors
    /// [`SetupError`] when a URL cannot be a destination, such as `http:` outside private ranges.
    pub fn key_destinations(&self) -> Result<Vec<Destination>, SetupError> {
        let destination = |issuer: &IssuerConfig| match &issuer.keys {
            KeySource::Url(url) => {
                let private = if issuer.keys_private_network {
                    PrivateRanges::Allowed
                } else {
                    PrivateRanges::Refused
                };
                Some(
                    Destination::from_url(url, private)
                        .map_err(|error| issuer.problem(error.to_string())),
                )
            }
            KeySource::File(_) | KeySource::Inline(_) | KeySource::WorkloadApi => None,
        };
        let domains: Vec<IssuerConfig> =
            self.trust_domains.iter().map(TrustDomainConfig::as_issuer).collect();
        self.issuers.iter().chain(&domains).filter_map(destination).collect()
    }
}

/// A scope token of RFC 6749.
pub(crate) fn is_scope(word: &str) -> bool {
    (1..=SCOPE_BYTES_MAX).contains(&word.len())
        && word.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\')
}
