//! What decides on a node.
//!
//! Owns the form; it holds digests and names of configuration keys, nothing of what is in the files.

use placet_types::{clock::Timestamp, digest::Digest, mode::EngineMode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is active on this node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StatusView {
    /// The digest of the policy bundle.
    pub bundle: Digest,
    /// The digest of policies, contracts, directory and issuers together. It is the same on every node that decides.
    pub active: Digest,
    /// The epoch at which they were activated in the ledger.
    pub epoch: u64,
    /// When they became active on this node.
    pub since: Timestamp,
    /// The configuration keys that have changed, as of the last reload, and take effect only after a restart.
    pub needs_restart: Vec<String>,
    /// `lockdown` while a lockdown is in force that covers every adapter: of the caller's tenant, and in `/readyz` of any.
    pub mode: EngineMode,
    /// Whether this node decides calls. It does not while it cannot reach the ledger, or while another node has activated something that
    /// this node lacks.
    pub decides: bool,
    /// The epoch of what another node has activated and this node lacks; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch_elsewhere: Option<u64>,
}

/// The options of a reload.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReloadRequest {
    /// For nodes that share a ledger: the epoch to roll back. Files that were active earlier may then replace those of this epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roll_back: Option<u64>,
}

/// The result of a reload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReloadView {
    /// The digest of policies, contracts, directory and issuers before the reload.
    pub before: Digest,
    /// What changed: `policies`, `directory`, `issuers`, and `contract NAME` with `new`, `changed` or `removed`. Contracts that are only for
    /// other tenants than the caller's are counted.
    pub changed: Vec<String>,
    /// What is active on this node now.
    pub status: StatusView,
}
