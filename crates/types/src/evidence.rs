//! Evidence that a call offers: references of its caller, resolved and frozen by digest (TM-08, TM-09).
//!
//! Owns the form. Resolves nothing: the pipeline does. Invariant: an item names what was found, never what the caller says of it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    digest::Digest,
    ids::{CapabilityId, ToolCallId},
};

crate::named_enum! {
    /// The kind of a piece of evidence.
    #[derive(JsonSchema)]
    pub enum EvidenceKind {
        /// The result of an earlier call of the same run.
        Result = "result",
    }
}

/// A piece of evidence, as it was found when the call was decided on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EvidenceItem {
    /// The kind of evidence.
    pub kind: EvidenceKind,
    /// The call whose result is the evidence: the id that the caller gave as reference.
    pub call_id: ToolCallId,
    /// The capability that was called.
    pub capability_id: CapabilityId,
    /// The digest of the call's output, as canonical JSON (RFC 8785).
    pub digest: Digest,
}
