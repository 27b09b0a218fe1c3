//! What decides on a node, and how the files on disk differ from it.
//!
//! Owns the form; it holds digests and names of configuration keys, nothing of what is in the files.

use placet_types::{clock::Timestamp, digest::Digest, mode::EngineMode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the files on disk stand to what is active.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DiskState {
    /// They are those that were read for it.
    Same,
    /// They have changed since: a reload would read them.
    Differs,
    /// They cannot be read.
    Unreadable,
    /// Nobody has compared them.
    #[default]
    Unknown,
}

impl DiskState {
    /// It, for people to read.
    #[must_use]
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::Same => "the same",
            Self::Differs => "different from what is active",
            Self::Unreadable => "cannot be read",
            Self::Unknown => "not compared",
        }
    }
}

/// What decides on this node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StatusView {
    /// The digest of the policies.
    pub bundle: Digest,
    /// The digest of policies, contracts, directory and issuers together: the same on every node that decides.
    pub active: Digest,
    /// The epoch of its activation in the ledger.
    pub epoch: u64,
    /// Since when this node decides by it.
    pub since: Timestamp,
    /// How the files on disk stand to it, looked at every few seconds.
    pub disk: DiskState,
    /// The keys of the configuration whose change counts from the next start on, as of the last reload.
    pub needs_restart: Vec<String>,
    /// `lockdown` while a lockdown of every adapter is in force in any tenant.
    pub mode: EngineMode,
    /// Whether this node decides: not while it cannot reach the ledger, or while another node has activated what it does not have.
    pub decides: bool,
    /// The epoch of what another node has activated and this one does not have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch_elsewhere: Option<u64>,
}

/// What a reload is asked to do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReloadRequest {
    /// Where nodes share a ledger: lets files that were active before and were replaced become active again, in the place of those of
    /// this epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roll_back: Option<u64>,
}

/// What a reload changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReloadView {
    /// The digest of policies, contracts, directory and issuers before.
    pub before: Digest,
    /// What is different from before: `policies`, `directory`, `issuers`, and `contract NAME` with `new`, `changed` or `removed`.
    pub changed: Vec<String>,
    /// What decides on this node now.
    pub status: StatusView,
}
