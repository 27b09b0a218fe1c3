//! What all requests share, and who makes one.
//!
//! Owns nothing but the bundle.

use std::{sync::Arc, time::Duration};

use http::{Extensions, HeaderMap};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use placet_engine::engine::Engine;
use placet_identity::VerifiedCaller;
use placet_types::{
    bounded::Bounded,
    clock::{Clock, IdSource},
    ids::AdapterName,
};

use crate::{
    elicitation::ApprovalPages, held::HeldCalls, requests::OpenRequests, results::Of,
    sessions::Sessions,
};

/// The header that names a session.
pub(crate) const SESSION: &str = "mcp-session-id";

/// The adapter whose tools alone are served at a path.
#[derive(Debug, Clone)]
pub(crate) struct Only(pub(crate) AdapterName);

/// The MCP endpoint, `/mcp` on the API's listener.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct McpSettings {
    /// Whether the MCP endpoint is served.
    pub enabled: bool,
    /// How long the request of a held call stays open before it is answered as pending, in milliseconds.
    pub hold_ms: Bounded<0, 600_000>,
    /// How long a tool may take for a call whose run names no `tool_latency_ms_max` of its own, in milliseconds. Counts for runs that begin
    /// later.
    pub tool_latency_ms_max: Bounded<1, 600_000>,
    /// The maximum number of sessions at the same time, for clients whose MCP revision has sessions. One agent may have half of them, one
    /// tenant three quarters. Each takes about 140 KiB.
    pub sessions_max: Bounded<1, 100_000>,
    /// The largest request, in bytes.
    #[serde(skip)]
    pub request_bytes_max: usize,
    /// How long the body of a request may take to arrive.
    #[serde(skip)]
    pub body_within: Duration,
    /// Where clients are sent to see an approval; absent: nowhere.
    #[serde(skip)]
    pub pages: Option<ApprovalPages>,
}

impl Default for McpSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            hold_ms: Bounded(50_000),
            tool_latency_ms_max: Bounded(60_000),
            sessions_max: Bounded(2_000),
            request_bytes_max: 1024 * 1024,
            body_within: Duration::from_secs(30),
            pages: None,
        }
    }
}

impl McpSettings {
    /// How long a request waits for people before it is answered as pending.
    pub(crate) const fn hold(&self) -> Duration {
        Duration::from_millis(self.hold_ms.0)
    }
}

/// What all requests share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) engine: Engine,
    pub(crate) settings: McpSettings,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<dyn IdSource>,
    pub(crate) held: HeldCalls,
    pub(crate) sessions: Sessions,
    pub(crate) requests: OpenRequests,
    /// Cancelled when only calls that are being executed are still awaited.
    pub(crate) closing: CancellationToken,
}

/// The caller of a request, and what it came through.
#[derive(Debug)]
pub(crate) struct Asking<'a> {
    pub(crate) caller: Arc<VerifiedCaller>,
    pub(crate) adapter: Option<&'a AdapterName>,
    pub(crate) session: Option<&'a str>,
    pub(crate) client: Option<String>,
}

impl<'a> Asking<'a> {
    /// The caller of a request with this head.
    pub(crate) fn of(
        headers: &'a HeaderMap,
        extensions: &'a Extensions,
        client: Option<String>,
    ) -> Option<Self> {
        let caller = extensions.get::<Arc<VerifiedCaller>>()?;
        Some(Self {
            caller: Arc::clone(caller),
            adapter: extensions.get::<Only>().map(|Only(adapter)| adapter),
            session: headers.get(SESSION).and_then(|value| value.to_str().ok()),
            client,
        })
    }
}

impl Shared {
    /// A tool, for the results that this caller gets.
    pub(crate) const fn of<'a>(&'a self, caller: &'a VerifiedCaller, tool: &'a str) -> Of<'a> {
        Of { tool, engine: &self.engine, caller }
    }
}
