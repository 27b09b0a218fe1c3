//! Everything that was measured, as one value.
//!
//! Owns the JSON form; [`crate::table`] owns the tables.

use anyhow::Result;
use serde::Serialize;

use crate::{
    machine::Machine,
    overhead::Comparison,
    policy::DecisionCost,
    writes::{ReplayRate, Writes},
};

/// The numbers of one run.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Report {
    /// What they were taken on.
    pub(crate) machine: Machine,
    /// Governed against direct.
    pub(crate) overhead: Vec<Comparison>,
    /// Durable writes against the disk.
    pub(crate) writes: Writes,
    /// Replays.
    pub(crate) replays: Vec<ReplayRate>,
    /// Decisions.
    pub(crate) decisions: Vec<DecisionCost>,
}

impl Report {
    /// One JSON document.
    pub(crate) fn json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)?)
    }
}
