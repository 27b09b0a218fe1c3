//! What all requests share, and who makes one.
//!
//! Owns nothing but the bundle.

use std::{sync::Arc, time::Duration};

use http::{Extensions, HeaderMap};
use tokio_util::sync::CancellationToken;

use placet_engine::engine::Engine;
use placet_identity::VerifiedCaller;
use placet_types::{
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

/// How the front end behaves.
#[derive(Debug, Clone)]
pub struct McpSettings {
    /// How long a request waits for people before it is answered as pending.
    pub hold: Duration,
    /// How long a tool may take where a client's run names no time, in milliseconds.
    pub tool_latency_ms_max: u64,
    /// The most sessions at a time.
    pub sessions_max: u64,
    /// The largest request, in bytes.
    pub request_bytes_max: usize,
    /// How long the body of a request may take to arrive.
    pub body_within: Duration,
    /// Where clients are sent to see an approval; absent: nowhere.
    pub pages: Option<ApprovalPages>,
}

impl Default for McpSettings {
    fn default() -> Self {
        Self {
            hold: Duration::from_secs(50),
            tool_latency_ms_max: 60_000,
            sessions_max: 2_000,
            request_bytes_max: 1024 * 1024,
            body_within: Duration::from_secs(30),
            pages: None,
        }
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
