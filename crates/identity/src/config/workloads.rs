//! Workloads that prove themselves without an OAuth issuer: SPIFFE trust domains, client certificates, and agents that are
//! named inside a user's token.
//!
//! Owns the form of these sections and their checks. Does not load bundles. Invariants: none of them can assert a person;
//! a workload without a name of its own in the tenant is nobody.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use placet_types::{
    ids::{PrincipalId, TenantId},
    principal::PrincipalKind,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Algorithm, IssuerConfig, KeySource, KindRule, LIFETIME_S_CEILING, default_lifetime};
use crate::{
    error::SetupError,
    spiffe::{SpiffeId, is_trust_domain},
};

/// The principals of workloads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkloadNames {
    /// The principal of each workload, by the SPIFFE id, or by the DNS name or URI in the certificate.
    #[serde(default)]
    pub names: BTreeMap<String, PrincipalId>,
    /// A SPIFFE path such as `/agent/`. The part of a SPIFFE id's path that follows it is the principal's name. Absent: only `names` apply.
    #[serde(default)]
    pub below: Option<String>,
    /// A prefix for names that `below` yields.
    #[serde(default)]
    pub principal_prefix: String,
    /// Confirms that other identity sources of the tenant name the same agents.
    #[serde(default)]
    pub shared_principals: bool,
}

impl WorkloadNames {
    /// The principal of a SPIFFE id.
    pub(crate) fn of_spiffe(&self, id: &SpiffeId<'_>) -> Option<PrincipalId> {
        if let Some(named) = self.names.get(id.text()) {
            return Some(named.clone());
        }
        let rest = id.path().strip_prefix(self.below.as_deref()?)?;
        PrincipalId::new(format!("{}{rest}", self.principal_prefix))
            .ok()
            .filter(|_| !rest.is_empty())
    }

    fn problem(&self) -> Option<&'static str> {
        if self.names.is_empty() && self.below.is_none() {
            return Some("it gives no workload a name: set `names` or `below`");
        }
        let below = self.below.as_deref();
        if below.is_some_and(|path| !path.starts_with('/') || !path.ends_with('/')) {
            return Some("`below` must begin and end with `/`");
        }
        if !self.principal_prefix.is_empty()
            && PrincipalId::new(self.principal_prefix.as_str()).is_err()
        {
            return Some("`principal_prefix` cannot start a principal's name");
        }
        None
    }

    /// The prefix of its names, where they are not all listed.
    fn open_prefix(&self) -> Option<&str> {
        self.below.as_ref().map(|_| self.principal_prefix.as_str())
    }
}

/// A SPIFFE trust domain whose workloads may call with JWT-SVIDs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrustDomainConfig {
    /// The name of the trust domain, such as `prod.example`.
    pub trust_domain: String,
    /// The tenant of the workloads.
    pub tenant: TenantId,
    /// The names of this service. An SVID's `aud` must contain one of them exactly.
    pub audiences: BTreeSet<String>,
    /// The trust bundle. Only its keys for JWT-SVIDs are used.
    pub bundle: KeySource,
    /// Whether the host of a bundle's URL may have an address in a private range.
    #[serde(default)]
    pub keys_private_network: bool,
    /// The accepted signature algorithms. SPIFFE does not allow `EdDSA`.
    #[serde(default = "svid_algorithms")]
    pub algorithms: Vec<Algorithm>,
    /// The maximum lifetime of an SVID, in seconds: 1 to 86400. For an SVID without `iat`, the time that remains.
    #[serde(default = "default_lifetime")]
    pub lifetime_s_max: u64,
    /// The kind of principal of the workloads; not `user`.
    #[serde(default = "agents")]
    pub kind: PrincipalKind,
    /// The principals of the workloads.
    pub workloads: WorkloadNames,
}

fn svid_algorithms() -> Vec<Algorithm> {
    vec![Algorithm::Es256, Algorithm::Es384, Algorithm::Rs256, Algorithm::Ps256]
}

const fn agents() -> PrincipalKind {
    PrincipalKind::Agent
}

impl TrustDomainConfig {
    /// The trust domain as an issuer, for the checks that both share.
    pub(crate) fn as_issuer(&self) -> IssuerConfig {
        let mut issuer = IssuerConfig::new(
            format!("spiffe://{}", self.trust_domain),
            self.tenant.clone(),
            self.audiences.clone(),
            self.bundle.clone(),
            KindRule::Fixed(self.kind),
        );
        issuer.algorithms.clone_from(&self.algorithms);
        issuer.keys_private_network = self.keys_private_network;
        issuer.lifetime_s_max = self.lifetime_s_max;
        issuer
    }

    pub(super) fn check(&self) -> Result<(), SetupError> {
        let spiffe_algorithms = !self.algorithms.contains(&Algorithm::EdDsa);
        let foreign = |name: &String| {
            SpiffeId::parse(name).is_none_or(|id| id.trust_domain() != self.trust_domain)
        };
        let problem = if !is_trust_domain(&self.trust_domain) {
            "it is not the name of a trust domain"
        } else if self.audiences.is_empty() || self.audiences.contains("") {
            "it needs at least one audience, and none may be empty"
        } else if self.algorithms.is_empty() || !spiffe_algorithms {
            "it needs at least one algorithm, and EdDSA is none of SPIFFE's"
        } else if !(1..=LIFETIME_S_CEILING).contains(&self.lifetime_s_max) {
            "`lifetime_s_max` must be 1 to 86400"
        } else if self.kind == PrincipalKind::User {
            "a workload is not a person"
        } else if self.workloads.names.keys().any(foreign) {
            "a name in `workloads.names` is not a SPIFFE id of this trust domain"
        } else if let Some(problem) = self.workloads.problem() {
            problem
        } else {
            return Ok(());
        };
        Err(self.as_issuer().problem(problem))
    }
}

/// A certificate authority whose client certificates identify agents (mutual TLS).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClientAuthority {
    /// The name of the authority in records and logs: 1 to 64 letters, digits, `-` and `_`.
    pub name: String,
    /// The PEM file with the authority's certificates. Changes take effect without a restart.
    pub ca: PathBuf,
    /// The tenant of the workloads.
    pub tenant: TenantId,
    /// The SPIFFE trust domain of the authority. Each client certificate must then have exactly one URI, a SPIFFE id of that domain.
    #[serde(default)]
    pub trust_domain: Option<String>,
    /// The kind of principal of the workloads; not `user`.
    #[serde(default = "agents")]
    pub kind: PrincipalKind,
    /// The principals of the workloads.
    pub workloads: WorkloadNames,
}

impl ClientAuthority {
    /// The authority's name as an issuer.
    pub fn issuer(&self) -> String {
        format!("x509:{}", self.name)
    }

    pub(super) fn check(&self) -> Result<(), SetupError> {
        let named = !self.name.is_empty()
            && self.name.len() <= 64
            && self.name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        let problem = if !named {
            "its name must be 1 to 64 letters, digits, `-` and `_`"
        } else if self.trust_domain.as_deref().is_some_and(|domain| !is_trust_domain(domain)) {
            "it is not the name of a trust domain"
        } else if self.trust_domain.is_none() && self.workloads.below.is_some() {
            "`below` is for SPIFFE ids: it needs a `trust_domain`"
        } else if self.kind == PrincipalKind::User {
            "a certificate stands for a workload, not for a person"
        } else if let Some(problem) = self.workloads.problem() {
            problem
        } else {
            return Ok(());
        };
        Err(SetupError::Issuer { issuer: self.issuer(), problem: problem.to_owned() })
    }
}

/// How one token may identify both the user, its subject, and the agent that acts for the user, in `act` (RFC 8693).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ActingRule {
    /// The kind of principal of the actors; not `user`.
    #[serde(default = "agents")]
    pub kind: PrincipalKind,
    /// A prefix that is put before an actor's subject to form the principal's name.
    #[serde(default)]
    pub principal_prefix: String,
    /// The principals of actors whose names differ from their subjects, by subject.
    #[serde(default)]
    pub principals: BTreeMap<String, PrincipalId>,
    /// Treats a user's token without `act` as sent by the agent that its client stands for in the issuer's `clients`, as when a person
    /// signs in to an MCP client: the agent calls for the user. Otherwise such a token is refused.
    #[serde(default)]
    pub clients: bool,
}

impl Default for ActingRule {
    fn default() -> Self {
        let (principal_prefix, principals) = (String::new(), BTreeMap::new());
        Self { kind: agents(), principal_prefix, principals, clients: false }
    }
}

impl ActingRule {
    /// The principal that an actor is.
    pub(crate) fn principal(&self, subject: &str) -> Option<PrincipalId> {
        let named = self.principals.get(subject).cloned();
        named.or_else(|| PrincipalId::new(format!("{}{subject}", self.principal_prefix)).ok())
    }

    pub(super) fn problem(&self) -> Option<&'static str> {
        if self.kind == PrincipalKind::User {
            return Some("`act.kind`: a person cannot act for a person");
        }
        let prefix = self.principal_prefix.as_str();
        let unusable = !prefix.is_empty() && PrincipalId::new(prefix).is_err();
        unusable.then_some("`act.principal_prefix` cannot start a principal's name")
    }
}

/// A source of principals whose names are not all listed: their common prefix, and whether sharing it is intended.
pub(super) struct NameSpace<'a> {
    pub(super) owner: String,
    pub(super) tenant: &'a TenantId,
    pub(super) prefix: &'a str,
    pub(super) shared: bool,
}

impl NameSpace<'_> {
    /// Whether principals of the two could have the same name without the configuration saying so.
    pub(super) fn collides_with(&self, other: &Self) -> bool {
        self.owner != other.owner
            && self.tenant == other.tenant
            && !self.shared
            && !other.shared
            && (self.prefix.starts_with(other.prefix) || other.prefix.starts_with(self.prefix))
    }
}

pub(super) fn of_domain(domain: &TrustDomainConfig) -> Option<NameSpace<'_>> {
    Some(NameSpace {
        owner: format!("spiffe://{}", domain.trust_domain),
        tenant: &domain.tenant,
        prefix: domain.workloads.open_prefix()?,
        shared: domain.workloads.shared_principals,
    })
}

pub(super) fn of_authority(authority: &ClientAuthority) -> Option<NameSpace<'_>> {
    Some(NameSpace {
        // The two proofs of one trust domain name the same workloads.
        owner: authority
            .trust_domain
            .as_ref()
            .map_or_else(|| authority.issuer(), |domain| format!("spiffe://{domain}")),
        tenant: &authority.tenant,
        prefix: authority.workloads.open_prefix()?,
        shared: authority.workloads.shared_principals,
    })
}
