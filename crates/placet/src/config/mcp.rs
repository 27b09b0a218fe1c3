//! The `mcp` section: the endpoint that MCP clients connect to.
//!
//! Owns the form.

use std::time::Duration;

use placet_mcp_server::McpSettings;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::file::Bounded;

/// The MCP endpoint, `/mcp` on the API's listener.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct McpFile {
    /// Whether the MCP endpoint is served.
    pub(crate) enabled: bool,
    /// How long the request of a held call stays open before it is answered as pending, in milliseconds.
    pub(crate) hold_ms: Bounded<0, 600_000>,
    /// How long a tool may take for a call whose run names no `tool_latency_ms_max` of its own, in milliseconds. Counts for runs that begin
    /// later.
    pub(crate) tool_latency_ms_max: Bounded<1, 600_000>,
    /// The maximum number of sessions at the same time, for clients whose MCP revision has sessions. One agent may have half of them, one
    /// tenant three quarters. Each takes about 140 KiB.
    pub(crate) sessions_max: Bounded<1, 100_000>,
}

impl Default for McpFile {
    fn default() -> Self {
        let McpSettings { hold, tool_latency_ms_max, sessions_max, .. } = McpSettings::default();
        let hold_ms = u64::try_from(hold.as_millis()).unwrap_or(u64::MAX);
        Self {
            enabled: true,
            hold_ms: Bounded(hold_ms),
            tool_latency_ms_max: Bounded(tool_latency_ms_max),
            sessions_max: Bounded(sessions_max),
        }
    }
}

impl McpFile {
    /// What the endpoint is served with.
    pub(crate) fn settings(&self) -> McpSettings {
        McpSettings {
            hold: Duration::from_millis(self.hold_ms.0),
            tool_latency_ms_max: self.tool_latency_ms_max.0,
            sessions_max: self.sessions_max.0,
            ..McpSettings::default()
        }
    }
}
