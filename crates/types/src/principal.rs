//! Who calls: principals and the chain from the agent to the user it acts for (TM-04).
//!
//! Owns the shape. Does not verify anything: a chain is made from verified tokens only, by the broker.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    digest::DigestBuilder,
    ids::{CapabilityId, IdempotencyKey, PrincipalId, RecordId, TenantId},
};

crate::named_enum! {
    /// The kind of a principal.
    #[derive(JsonSchema)]
    pub enum PrincipalKind {
        /// A person.
        User = "user",
        /// A service that acts on its own authority.
        Service = "service",
        /// An AI agent's workload.
        Agent = "agent",
        /// A scheduled or triggered job.
        Automation = "automation",
    }
}

/// The scope of a key: no other tenant, agent, user or capability can reach a record through the same key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KeyScope {
    /// The tenant the call belongs to.
    pub tenant: TenantId,
    /// What calls: a person and an agent of the same name are two callers.
    pub kind: PrincipalKind,
    /// The agent that calls.
    pub agent: PrincipalId,
    /// The user it calls for, where there is one.
    pub on_behalf_of: Option<PrincipalId>,
    /// The operation called.
    pub capability: CapabilityId,
}

impl RecordId {
    /// The record of `key` within `scope`.
    pub fn derive(scope: &KeyScope, key: &IdempotencyKey) -> Self {
        Self(
            DigestBuilder::new("placet.record.v1")
                .field("tenant", scope.tenant.as_str().as_bytes())
                .field("kind", scope.kind.as_str().as_bytes())
                .field("agent", scope.agent.as_str().as_bytes())
                .optional(
                    "on_behalf_of",
                    scope.on_behalf_of.as_ref().map(|u| u.as_str().as_bytes()),
                )
                .field("capability", scope.capability.to_string().as_bytes())
                .field("key", key.as_str().as_bytes())
                .finish(),
        )
    }
}

/// A user, service, agent or automation.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Principal {
    /// The kind of principal.
    pub kind: PrincipalKind,
    /// The principal's id within its tenant.
    pub id: PrincipalId,
    /// The tenant that the principal belongs to.
    pub tenant_id: TenantId,
    /// A display name. No decision depends on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display: Option<String>,
}

/// The audiences of a caller's tokens, if one of them is for several services: all audiences of each such token, sorted, by the token's
/// handle. The token is as good at each of those services as it is here, so auditors are told. Decides nothing, and is not part of what
/// an approval binds.
pub type TokenAudiences = BTreeMap<String, BTreeSet<String>>;

/// Audiences of tokens, for people to read.
pub fn listed(audiences: &TokenAudiences) -> String {
    let named = |(token, audiences): (&String, &BTreeSet<String>)| {
        let audiences: Vec<&str> = audiences.iter().map(String::as_str).collect();
        format!("{token} is for {}", audiences.join(", "))
    };
    audiences.iter().map(named).collect::<Vec<_>>().join("; ")
}

/// The calling workload and, if there is one, the user it acts for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PrincipalChain {
    /// The calling workload: an agent, a service or an automation.
    pub actor: Principal,
    /// The user that the caller acts for; absent if it acts on its own authority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_behalf_of: Option<Principal>,
    /// Who acted for the user before the caller, latest first, as named by the issuer of the user's token (RFC 8693 `act`). Grants no
    /// rights.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub via: Vec<String>,
}

impl PrincipalChain {
    /// The tenant of the call: the actor's.
    pub fn tenant(&self) -> &TenantId {
        &self.actor.tenant_id
    }

    /// Whether another chain is of the same caller: the same agent for the same user.
    pub fn is_same_caller(&self, other: &Self) -> bool {
        let user = |chain: &Self| chain.on_behalf_of.as_ref().map(|user| user.id.clone());
        self.tenant() == other.tenant()
            && self.actor.kind == other.actor.kind
            && self.actor.id == other.actor.id
            && user(self) == user(other)
    }

    /// How many times the user's authority was handed on: 0 without a user, 1 when it came to the actor directly.
    pub fn delegation_depth(&self) -> u8 {
        let before = u8::try_from(self.via.len()).unwrap_or(u8::MAX);
        u8::from(self.on_behalf_of.is_some()).saturating_add(before)
    }

    /// The scope in which this chain's keys for `capability` are unique.
    pub fn key_scope(&self, capability: &CapabilityId) -> KeyScope {
        KeyScope {
            tenant: self.actor.tenant_id.clone(),
            kind: self.actor.kind,
            agent: self.actor.id.clone(),
            on_behalf_of: self.on_behalf_of.as_ref().map(|user| user.id.clone()),
            capability: capability.clone(),
        }
    }

    /// Adds every link's kind, tenant and id to a digest; display names are left out.
    pub fn digest_into(&self, builder: DigestBuilder) -> DigestBuilder {
        let links = std::iter::once(&self.actor).chain(&self.on_behalf_of);
        let parts: Vec<&[u8]> = links
            .flat_map(|p| {
                [
                    p.kind.as_str().as_bytes(),
                    p.tenant_id.as_str().as_bytes(),
                    p.id.as_str().as_bytes(),
                ]
            })
            .collect();
        let builder = builder.list("principal_chain", parts);
        if self.via.is_empty() {
            return builder;
        }
        builder
            .list("principal_chain_via", self.via.iter().map(String::as_bytes).collect::<Vec<_>>())
    }
}
