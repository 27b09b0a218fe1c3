//! The five approval modes (TM-08) and their order; the engine's own modes.
//!
//! Owns the lattice: a mode is as strong as its place in the order, and the weaker of two is no stronger than either. Does not
//! decide which mode a call gets: that is policy.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

crate::named_enum! {
    /// What a call can do, from reading to irreversible changes (TM-08), weakest first.
    #[derive(JsonSchema)]
    pub enum ApprovalMode {
        /// Reads only and changes nothing. Allowed with audit.
        ReadOnly = "read_only",
        /// Changes something within this deployment. Needs an idempotency key and audit.
        LocalWrite = "local_write",
        /// Reaches another system. Needs an egress allow-list and a rate budget.
        Network = "network",
        /// Acts with a user's authority. Needs a valid delegation and evidence per call.
        Delegated = "delegated",
        /// Makes changes that cannot be undone.
        Destructive = "destructive",
    }
}

impl ApprovalMode {
    /// The strongest mode no stronger than either.
    #[must_use]
    pub fn meet(self, other: Self) -> Self {
        self.min(other)
    }
}

crate::named_enum! {
    /// The operating mode of the engine.
    #[derive(Default, JsonSchema)]
    pub enum EngineMode {
        /// Decisions are made and enforced.
        #[default]
        Enforce = "enforce",
        /// Every call is denied until an operator lifts the lockdown. Held approvals keep waiting.
        Lockdown = "lockdown",
    }
}

/// Whether a capability changes anything outside Placet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// It changes something: every call has an effect record and an idempotency key, whatever its mode.
    Write,
    /// It changes nothing.
    None,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::ApprovalMode;

    fn mode() -> impl Strategy<Value = ApprovalMode> {
        proptest::sample::select(ApprovalMode::ALL.to_vec())
    }

    proptest! {
        #[test]
        fn a_mode_survives_its_name(a in mode()) {
            prop_assert_eq!(a.as_str().parse::<ApprovalMode>(), Ok(a));
            prop_assert_eq!(serde_json::to_value(a).unwrap(), serde_json::json!(a.as_str()));
        }
    }
}
