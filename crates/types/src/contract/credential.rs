//! The `credential` section of a contract: how its calls authenticate, and for whom.
//!
//! Owns the form, its rules and the plan for one call. Holds names only: of a secret, of a token service. Invariant: a
//! section that passed [`CredentialFile::check`] requests no wildcard and names exactly what its kind needs.

mod header;

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::header::check_header;
use super::file::TransportFile;
use crate::{digest::DigestBuilder, ids::CapabilityName, json::is_default};

/// The most scopes of a section, and of one capability in it.
const SCOPES_MAX: usize = 64;
/// The longest scope, audience or resource, in bytes.
const TEXT_BYTES_MAX: usize = 512;

crate::named_enum! {
    /// How the credential of a call is obtained.
    #[derive(Default, JsonSchema)]
    pub enum CredentialKind {
        /// A configured secret, the same for every call.
        #[default]
        StaticSecret = "static_secret",
        /// The caller's token, exchanged at a token service for one that only the target accepts (RFC 8693).
        TokenExchange = "token_exchange",
        /// A token that Placet gets from a token service in its own name (RFC 6749, section 4.4).
        ClientCredentials = "client_credentials",
    }
}

crate::named_enum! {
    /// Who is named as the actor in an exchanged token.
    #[derive(Default, JsonSchema)]
    pub enum ActorSource {
        /// The agent, by its own token.
        #[default]
        Agent = "agent",
        /// Placet, by an assertion that it signs.
        Gateway = "gateway",
        /// No actor: the token presents the user as acting in person. Allowed only if a policy permits it.
        Nobody = "nobody",
    }
}

/// Whether a credential may be cached for further calls of the same kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "snake_case")]
pub enum CachePolicy {
    /// For a few minutes, for calls that agree in everything that the credential depends on.
    #[default]
    Short,
    /// Never: every call has its own.
    Never,
}

/// The credential that will be attached to a call, as planned before the call is decided on. Never the credential itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CredentialPlan {
    /// How the credential is obtained.
    #[serde(default, skip_serializing_if = "is_default")]
    pub kind: CredentialKind,
    /// The name of the secret or token service that the credential comes from; absent if the call has no credential.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The audience of the credential: who will accept it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    /// The URI of the target, if the token service requires it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// The scopes of the credential, sorted.
    #[serde(default)]
    pub scopes: Vec<String>,
    /// Who is named as the actor, if the caller's token is exchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<ActorSource>,
}

impl CredentialPlan {
    /// Whether the credential would present the user as acting in person.
    pub fn impersonates(&self) -> bool {
        self.actor == Some(ActorSource::Nobody)
    }

    pub(crate) fn digest_into(&self, builder: DigestBuilder) -> DigestBuilder {
        let bytes = |text: &Option<String>| text.as_ref().map(|text| text.clone().into_bytes());
        let builder = builder
            .optional("credential_source", bytes(&self.source).as_deref())
            .optional("audience", bytes(&self.audience).as_deref())
            .list("scopes", self.scopes.iter().map(|scope| scope.as_bytes()));
        if self.kind == CredentialKind::StaticSecret {
            // As before there were other kinds: what was approved then is still approved.
            return builder;
        }
        builder
            .field("credential_kind", self.kind.as_str().as_bytes())
            .optional("resource", bytes(&self.resource).as_deref())
            .optional("actor", self.actor.map(|actor| actor.as_str().as_bytes()))
    }
}

/// The credential attached to a contract's calls, after the gate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CredentialFile {
    /// How the credential is obtained.
    #[serde(rename = "type", default, skip_serializing_if = "is_default")]
    pub kind: CredentialKind,
    /// The name of a secret in the configuration: what a `static_secret` sends. Of the other kinds it is what goes along where no call is
    /// made, such as the listing of tools, if the server wants something there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// The HTTP header that carries the credential; sent as `Bearer` in `authorization`.
    #[serde(default = "CredentialFile::default_header")]
    pub header: String,
    /// Who accepts the credential; part of what is approved. For a token service: its name for the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    /// The target as an absolute URI (RFC 8707), if the token service requires it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// The scopes of the credential, all of them required; part of what is approved.
    #[serde(default)]
    pub scopes: BTreeSet<String>,
    /// Scopes that are also requested, but not required.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub scopes_optional: BTreeSet<String>,
    /// The scopes that a capability needs instead of `scopes`: a subset of them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub scopes_for: BTreeMap<CapabilityName, BTreeSet<String>>,
    /// States that the target has no scopes. Required if a token service is asked for none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub scopeless: bool,
    /// Requests no scope that the caller's own token lacks. A call whose token lacks a required scope is refused before anyone is asked to
    /// approve it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub scopes_of_caller: bool,
    /// The name of a token service in the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sts: Option<String>,
    /// Who is named as the actor in an exchanged token.
    #[serde(default, skip_serializing_if = "is_default")]
    pub actor: ActorSource,
    /// Whether a credential may be cached for further calls.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cache: CachePolicy,
}

impl CredentialFile {
    fn default_header() -> String {
        "authorization".to_owned()
    }

    /// A secret of the configuration, sent in `header`.
    pub fn secret(name: impl Into<String>, header: Option<String>) -> Self {
        Self {
            kind: CredentialKind::StaticSecret,
            secret: Some(name.into()),
            header: header.unwrap_or_else(Self::default_header),
            audience: None,
            resource: None,
            scopes: BTreeSet::new(),
            scopes_optional: BTreeSet::new(),
            scopes_for: BTreeMap::new(),
            scopeless: false,
            scopes_of_caller: false,
            sts: None,
            actor: ActorSource::Agent,
            cache: CachePolicy::Short,
        }
    }

    /// The scopes without which a call of `capability` is useless.
    pub fn scopes_needed(&self, capability: &CapabilityName) -> &BTreeSet<String> {
        self.scopes_for.get(capability).unwrap_or(&self.scopes)
    }

    /// The credential of one call of `capability`, as it is decided upon and approved.
    pub fn plan(&self, capability: &CapabilityName) -> CredentialPlan {
        let scopes = self.scopes_needed(capability).union(&self.scopes_optional);
        let source = match self.kind {
            CredentialKind::StaticSecret => &self.secret,
            CredentialKind::TokenExchange | CredentialKind::ClientCredentials => &self.sts,
        };
        CredentialPlan {
            kind: self.kind,
            source: source.clone(),
            audience: self.audience.clone(),
            resource: self.resource.clone(),
            scopes: scopes.cloned().collect(),
            actor: (self.kind == CredentialKind::TokenExchange).then_some(self.actor),
        }
    }

    /// The plan for a caller whose token has these scopes: narrower if the section says so.
    ///
    /// # Errors
    /// The needed scopes that the token lacks; all of them if it has none that could be requested: a token service that is asked for no
    /// scopes grants its default, which may be more than the token has.
    pub fn plan_within(
        &self,
        capability: &CapabilityName,
        granted: &BTreeSet<String>,
    ) -> Result<CredentialPlan, Vec<String>> {
        let mut plan = self.plan(capability);
        if !self.scopes_of_caller {
            return Ok(plan);
        }
        let lacking = self.scopes_needed(capability).difference(granted);
        let lacking: Vec<String> = lacking.cloned().collect();
        if !lacking.is_empty() {
            return Err(lacking);
        }
        let planned = plan.scopes.clone();
        plan.scopes.retain(|scope| granted.contains(scope));
        if plan.scopes.is_empty() && !planned.is_empty() { Err(planned) } else { Ok(plan) }
    }

    /// Checks the section for a contract with this transport and these capabilities.
    ///
    /// # Errors
    /// The key below `credential` (empty for the section as a whole), and what is wrong with it.
    pub fn check<'a>(
        &self,
        transport: &TransportFile,
        capabilities: impl Iterator<Item = &'a CapabilityName>,
    ) -> Result<(), (&'static str, &'static str)> {
        check_header(&self.header).map_err(|problem| ("header", problem))?;
        self.check_scopes(capabilities)?;
        match self.kind {
            CredentialKind::StaticSecret => self.check_static(transport),
            CredentialKind::TokenExchange | CredentialKind::ClientCredentials => {
                self.check_minted(transport)
            }
        }
    }

    fn check_static(&self, transport: &TransportFile) -> Result<(), (&'static str, &'static str)> {
        const MINTED: &str = "goes with a token service, not with a static secret";
        let is_internal = matches!(transport, TransportFile::Internal { .. });
        first_broken([
            (self.secret.is_none(), "secret", "a static secret is named here"),
            (is_internal, "", "an internal adapter takes no credential"),
            (self.sts.is_some(), "sts", MINTED),
            (self.resource.is_some(), "resource", MINTED),
            (!self.scopes_optional.is_empty(), "scopes_optional", MINTED),
            (!self.scopes_for.is_empty(), "scopes_for", MINTED),
            (self.scopeless, "scopeless", MINTED),
            (self.scopes_of_caller, "scopes_of_caller", MINTED),
            (self.actor != ActorSource::Agent, "actor", MINTED),
            (self.cache != CachePolicy::Short, "cache", MINTED),
        ])
    }

    fn check_minted(&self, transport: &TransportFile) -> Result<(), (&'static str, &'static str)> {
        let is_client = self.kind == CredentialKind::ClientCredentials;
        let no_audience = self.audience.as_ref().is_some_and(|text| !is_text(text));
        let no_resource = self.resource.as_ref().is_some_and(|text| !is_absolute_uri(text));
        let no_target = self.audience.is_none() && self.resource.is_none();
        let no_scopes = self.scopes.is_empty() || self.scopes_for.values().any(BTreeSet::is_empty);
        let no_service = self.sts.as_deref().is_none_or(str::is_empty);
        let acts = is_client && self.actor != ActorSource::Agent;
        let looks = is_client && self.scopes_of_caller;
        first_broken([
            (transport.http().is_none(), "type", "a minted credential is for one host over HTTP"),
            (no_service, "sts", "a token service of the configuration is named here"),
            (no_target, "audience", "`audience` or `resource` names the one target"),
            (no_audience, "audience", "it is empty, too long or not printable ASCII"),
            (no_resource, "resource", "it has to be an absolute URI without a fragment (RFC 8707)"),
            (acts, "actor", "nobody is acted for with `client_credentials`"),
            (looks, "scopes_of_caller", "`client_credentials` look at no token of the caller"),
            (
                no_scopes != self.scopeless,
                "scopes",
                "name the scopes that are needed, or say `scopeless: true`",
            ),
        ])
    }

    fn check_scopes<'a>(
        &self,
        capabilities: impl Iterator<Item = &'a CapabilityName>,
    ) -> Result<(), (&'static str, &'static str)> {
        let usable = |scope: &String| is_scope(scope) && !scope.contains('*');
        let sets = [("scopes", &self.scopes), ("scopes_optional", &self.scopes_optional)];
        let for_one = self.scopes_for.values().map(|set| ("scopes_for", set));
        for (key, set) in sets.into_iter().chain(for_one) {
            first_broken([
                (set.len() > SCOPES_MAX, key, "there are more than 64"),
                (
                    !set.iter().all(usable),
                    key,
                    "a scope may not be empty or hold a wildcard, a space or a quote",
                ),
            ])?;
        }
        let wider = self.scopes_for.values().any(|set| !set.is_subset(&self.scopes));
        let known = capabilities.filter(|name| self.scopes_for.contains_key(*name)).count();
        first_broken([
            (wider, "scopes_for", "it asks for more than `scopes` says"),
            (
                self.scopes_for.len() > known,
                "scopes_for",
                "it names a capability that is not there",
            ),
        ])
    }
}

/// The first broken rule, with its key.
fn first_broken<const N: usize>(
    rules: [(bool, &'static str, &'static str); N],
) -> Result<(), (&'static str, &'static str)> {
    let broken = rules.into_iter().find(|(is_broken, ..)| *is_broken);
    broken.map_or(Ok(()), |(_, key, problem)| Err((key, problem)))
}

/// Whether a text is a scope (RFC 6749, section 3.3).
fn is_scope(text: &str) -> bool {
    (1..=TEXT_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|byte| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e))
}

fn is_text(text: &str) -> bool {
    (1..=TEXT_BYTES_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn is_absolute_uri(text: &str) -> bool {
    let is_scheme = |scheme: &str| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
    };
    let split = text.split_once(':');
    is_text(text)
        && !text.contains('#')
        && split.is_some_and(|(scheme, rest)| is_scheme(scheme) && !rest.is_empty())
}

#[cfg(test)]
mod tests;
