//! The one digest an approval binds: what was approved is what runs.
//!
//! Owns the list of bound fields. Invariant: two requests that differ in any of them have different digests.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    clock::Timestamp,
    contract::credential::{CredentialKind, CredentialPlan},
    digest::{Digest, DigestBuilder},
    ids::CapabilityId,
    principal::PrincipalChain,
};

/// Which credential a call was sent with, for its record: what it said, and the digest of what it was. Never the credential.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CredentialUse {
    /// How it came about.
    pub kind: CredentialKind,
    /// The secret or the token service it came from.
    pub source: String,
    /// For whom, as its issuer names them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Who acts, where that is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// Who accepts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    /// The target as a URI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// The scopes that were granted.
    #[serde(default)]
    pub scopes: Vec<String>,
    /// When it expires; absent: not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// The digest of the token, by which two uses of one are told to be so. Of a secret, which could be guessed from that, it is a mark of
    /// its version under a key that only the memory of the process has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// Whether it had served another call before.
    #[serde(default)]
    pub reused: bool,
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
        let builder = self
            .principal_chain
            .digest_into(builder)
            .field("capability", self.capability.to_string().as_bytes())
            .field("contract", self.contract_digest.as_bytes())
            .field("args", self.effective_args_digest.as_bytes())
            .field("target", self.target.as_bytes());
        self.credential.digest_into(builder).finish()
    }
}
