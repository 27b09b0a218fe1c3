//! Evidence that a call offers: references of its caller, resolved and frozen by digest (TM-08, TM-09).
//!
//! Owns the form. Resolves nothing: the pipeline does. Invariant: an item names what was found, never what the caller says of it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    digest::Digest,
    ids::{CapabilityId, ToolCallId},
};

/// What a reference leads to.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum EvidenceKind {
    /// The result of an earlier call of the same run.
    Result,
}

impl EvidenceKind {
    /// The name on the wire and in policies.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Result => "result",
        }
    }
}

/// One piece of evidence, as it was found when the call was decided upon.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EvidenceItem {
    /// What it is.
    pub kind: EvidenceKind,
    /// The call whose result it is: the caller's reference.
    pub call_id: ToolCallId,
    /// The operation that was called.
    pub capability_id: CapabilityId,
    /// The digest of its output, as canonical JSON (RFC 8785).
    pub digest: Digest,
}
