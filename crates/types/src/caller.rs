//! Who calls and how they proved it, for auditors and approvers (TM-04).
//!
//! Owns the form. Decides nothing. Invariant: no token and no handle to one is in here.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    proof::{AuthType, CallerProof},
    run_context::{RunAgent, RunUser},
};

/// The identity of a call's caller, as it was when it was recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CallerIdentity {
    /// The caller, as a URN.
    pub agent_urn: String,
    /// The caller's workload identity, as a SPIFFE id; absent if it did not prove one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload_identity: Option<String>,
    /// The caller's role: its first class in the directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Whether the caller may act: `active`, `suspended`, or `unlisted` if it is not in the directory.
    pub lifecycle: String,
    /// How the caller proved its identity.
    pub auth_type: AuthType,
    /// Whether the workload's identity was verified.
    pub attested: bool,
    /// How a user's authority reached the caller; absent if it acts on its own authority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegation: Option<DelegationIdentity>,
}

/// How a user's authority reached the caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DelegationIdentity {
    /// How the user's authority was proved.
    pub auth_type: AuthType,
    /// The user's subject, as the token's issuer names it.
    pub subject: String,
    /// The scopes that the user granted.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub scopes: BTreeSet<String>,
}

impl CallerIdentity {
    /// The identity of the parties of a run, without their tokens.
    pub fn of(agent: &RunAgent, user: Option<&RunUser>, proof: &CallerProof) -> Self {
        Self {
            agent_urn: agent.agent_urn.clone(),
            workload_identity: agent.workload_identity.clone(),
            role: agent.role.clone(),
            lifecycle: agent.lifecycle.clone(),
            auth_type: proof.actor.auth_type,
            attested: proof.attested,
            delegation: user.map(|user| DelegationIdentity {
                auth_type: user.delegation.auth_type,
                subject: user.delegation.subject.clone(),
                scopes: user.delegation.scopes.iter().cloned().collect(),
            }),
        }
    }
}
