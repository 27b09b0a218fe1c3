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
    /// How the credential was obtained.
    pub kind: CredentialKind,
    /// The name of the secret or token service that the credential came from.
    pub source: String,
    /// The subject of the credential, as its issuer names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The actor named in the credential, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// The audience of the credential: who accepts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    /// The URI of the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// The scopes that were granted.
    #[serde(default)]
    pub scopes: Vec<String>,
    /// When the credential expires; absent if its issuer did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// The digest of the token, by which two uses of one are told to be so. Of a secret, which could be guessed from that, it is a mark of
    /// its version under a key that only the memory of the process has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// Whether an earlier call had already used the credential.
    #[serde(default)]
    pub reused: bool,
}

/// Everything about a call that an approval binds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RequestBinding {
    /// The caller, its tenant, and the user it acts for.
    pub principal_chain: PrincipalChain,
    /// The capability that is called.
    pub capability: CapabilityId,
    /// The digest of the pinned contract.
    pub contract_digest: Digest,
    /// The digest of the arguments that will run, after defaults and edits.
    pub effective_args_digest: Digest,
    /// The target of the call, as the contract names it.
    pub target: String,
    /// The credential that will be attached.
    pub credential: CredentialPlan,
}

impl RequestBinding {
    /// The digest an approval is given for.
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
