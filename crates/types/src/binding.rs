//! The one digest an approval binds: what was approved is what runs.
//!
//! Owns the list of what is bound. Invariant: two requests that differ in any of it have different digests.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    digest::{Digest, DigestBuilder},
    ids::CapabilityId,
    principal::PrincipalChain,
};

/// The credential that will be attached, as planned before the gate: never the credential itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CredentialPlan {
    /// Where the credential comes from: absent for none, else the name of a secret in the contract.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Who will accept it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    /// Its scopes, sorted.
    #[serde(default)]
    pub scopes: Vec<String>,
}

/// Everything about a call that an approval binds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RequestBinding {
    /// Who calls, in which tenant, for whom.
    pub principal_chain: PrincipalChain,
    /// The operation.
    pub capability: CapabilityId,
    /// The contract as pinned.
    pub contract_digest: Digest,
    /// The arguments that will run: after defaults and edits.
    pub effective_args_digest: Digest,
    /// Where the call goes, as the contract names it.
    pub target: String,
    /// The credential that will be attached.
    pub credential: CredentialPlan,
}

impl RequestBinding {
    /// The digest an approval is given for.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let builder = DigestBuilder::new("placet.request.v1")
            .field("tenant", self.principal_chain.tenant().as_str().as_bytes());
        self.principal_chain
            .digest_into(builder)
            .field("capability", self.capability.to_string().as_bytes())
            .field("contract", self.contract_digest.as_bytes())
            .field("args", self.effective_args_digest.as_bytes())
            .field("target", self.target.as_bytes())
            .optional("credential_source", self.credential.source.as_ref().map(|s| s.as_bytes()))
            .optional("audience", self.credential.audience.as_ref().map(|s| s.as_bytes()))
            .list("scopes", self.credential.scopes.iter().map(|s| s.as_bytes()))
            .finish()
    }
}
