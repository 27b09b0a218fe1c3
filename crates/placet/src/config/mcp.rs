//! The `mcp` section: the endpoint that MCP clients connect to.
//!
//! Owns the form.

use std::time::Duration;

use placet_mcp_server::McpSettings;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::file::Bounded;

/// The MCP endpoint, `/mcp` on the listener of the callers.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct McpFile {
    /// Whether it is served.
    pub(crate) enabled: bool,
    /// How long a call that waits for people keeps its request open before it is answered as pending, in milliseconds.
    pub(crate) hold_ms: Bounded<0, 600_000>,
    /// Sessions at the same time, of clients whose revision of MCP has sessions; half of them for one caller. Each takes about 140 KiB.
    pub(crate) sessions_max: Bounded<1, 100_000>,
}

impl Default for McpFile {
    fn default() -> Self {
        let McpSettings { hold, sessions_max, .. } = McpSettings::default();
        let hold_ms = u64::try_from(hold.as_millis()).unwrap_or(u64::MAX);
        Self { enabled: true, hold_ms: Bounded(hold_ms), sessions_max: Bounded(sessions_max) }
    }
}

impl McpFile {
    /// What the endpoint is served with.
    pub(crate) fn settings(&self) -> McpSettings {
        McpSettings {
            hold: Duration::from_millis(self.hold_ms.0),
            sessions_max: self.sessions_max.0,
            ..McpSettings::default()
        }
    }
}
