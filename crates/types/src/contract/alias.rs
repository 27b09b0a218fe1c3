//! Aliases of read-only tools (TM-13): `mcp_<adapter>_<capability>`.
//!
//! Owns which capabilities may have one. Contracts that give capabilities the key `alias` are the allow-list. Not here: which of them
//! score well enough; the engine's `aliases` does that. Invariant: only read-only capabilities have an alias.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ensure, feature::Feature, file::CapabilityFile};
use crate::{
    ids::CapabilityId,
    mode::{ApprovalMode, Effect},
};

/// The longest alias: the limit of function calling.
const NAME_BYTES_MAX: usize = 64;

/// Allows a capability to be called by a short name, and says from when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AliasFile {
    /// The condition for having the alias.
    pub when: AliasWhen,
}

/// The condition for a capability to have its alias.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AliasWhen {
    /// The capability's definition is pinned.
    Pinned,
    /// In addition, its recent calls went well: at least 20 in the last days, of which at least 95 percent succeeded.
    Scored,
}

/// An alias as its contract allows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alias {
    /// `mcp_<adapter>_<capability>`.
    pub name: String,
    /// The condition for having it.
    pub when: AliasWhen,
}

impl Alias {
    /// The alias that the file allows.
    ///
    /// # Errors
    /// The reason, if this capability may have none.
    pub(super) fn of(id: &CapabilityId, file: &CapabilityFile) -> Result<Option<Self>, String> {
        let Some(AliasFile { when }) = file.alias.clone() else { return Ok(None) };
        let only_network = BTreeSet::from([ApprovalMode::Network]);
        let only_reads = file.mode == ApprovalMode::ReadOnly
            && file.effect == Effect::None
            && file.also.is_subset(&only_network);
        let is_feature = file.tool.as_deref().and_then(Feature::of_method).is_some();
        let name = format!("mcp_{}_{}", id.adapter(), id.capability());
        ensure(only_reads, "only a capability with `mode: read_only` may have one")?;
        ensure(!is_feature, "only a tool may have one")?;
        ensure(name.len() <= NAME_BYTES_MAX, "its name is longer than 64 bytes")?;
        Ok(Some(Self { name, when }))
    }
}
