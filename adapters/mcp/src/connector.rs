//! Connecting: from a contract to a live connection.
//!
//! Owns the time limit of a connection's start and the agreement on the protocol version.
//! Does not restart anything: a supervisor does. Invariant: a connection whose server speaks another version than the contract
//! pins never comes up.

use std::{path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use rmcp::model::ProtocolVersion;
use tokio::time::timeout;

use placet_adapter::{
    adapter::{Adapter, Connector},
    outcome::AdapterError,
};
use placet_types::contract::{Contract, file::TransportFile};

use crate::{
    adapter::McpAdapter,
    handshake::{self, SUPPORTED},
    http::EgressHttp,
    link::Link,
    listener::Listener,
    sessions::{Opener, Sessions},
    stdio::{self, tail::Tail},
    text::{printable, whole},
};

use crate::settings::message_bytes_max;
pub use crate::settings::{Endpoint, McpSettings, SecretLookup, SecretVersions, SessionLimits};

/// The confinement that the contract of a child process asks for and that nothing on this machine enforces, as text for people (`which
/// files it reads and changes`). Empty for other transports, and if everything is enforced.
pub fn not_confined(transport: &TransportFile) -> Vec<&'static str> {
    match transport {
        TransportFile::McpStdio { process, .. } => stdio::sandbox::gaps(process),
        TransportFile::McpHttp { .. }
        | TransportFile::Rest { .. }
        | TransportFile::A2a { .. }
        | TransportFile::Lm { .. }
        | TransportFile::Internal { .. } => Vec::new(),
    }
}

/// The path of a child process's program, without starting it; `None` for other transports.
///
/// # Errors
/// [`AdapterError::Misconfigured`] when there is no such program.
pub fn program(transport: &TransportFile) -> Result<Option<PathBuf>, AdapterError> {
    let TransportFile::McpStdio { command, env, .. } = transport else { return Ok(None) };
    let program = stdio::child::program(command, env)?;
    if program.is_file() {
        return Ok(Some(program));
    }
    Err(AdapterError::Misconfigured(format!(
        "the command `{}` is no file",
        printable(command, 200)
    )))
}

/// A connection without a contract: it can list tools, it cannot call them.
#[derive(Debug)]
pub struct Connected {
    /// The connection.
    pub adapter: Box<dyn Adapter>,
    /// The protocol version that was negotiated, as a contract pins it.
    pub protocol_version: String,
    /// The server's name for itself; not to be trusted.
    pub server: Option<String>,
}

/// Makes connections to MCP servers.
#[derive(Debug, Clone)]
pub struct McpConnector {
    settings: Arc<McpSettings>,
}

impl McpConnector {
    /// A connector with these settings.
    pub fn new(settings: McpSettings) -> Self {
        Self { settings: Arc::new(settings) }
    }

    /// Connects without a pinned version and returns which was negotiated: the newest that the server's transport permits.
    ///
    /// # Errors
    /// [`AdapterError`] when it cannot; nothing had an effect then.
    pub async fn connect_any(&self, endpoint: &Endpoint) -> Result<Connected, AdapterError> {
        let tail = Tail::default();
        let connected = self.connect_with(endpoint, &tail).await;
        let Err(error) = connected else { return connected };
        let error = error.shortened();
        Err(match tail.lines().await {
            Some(said) => {
                error.map_text(|why| format!("{why}; its standard error ends with\n{said}"))
            }
            None => error,
        })
    }

    async fn connect_with(
        &self,
        endpoint: &Endpoint,
        tail: &Tail,
    ) -> Result<Connected, AdapterError> {
        let newest = &ProtocolVersion::LATEST_WITH_INITIALIZE;
        let handshake = self.open(endpoint, newest, Agreement::AnySupported, tail).await;
        let link = match handshake {
            Ok(opened) => opened.link,
            // A server of the newest revision has no `initialize`.
            Err(
                first @ (AdapterError::SchemaMismatch(_)
                | AdapterError::InvalidResponse(_)
                | AdapterError::Refused(_)),
            ) => {
                let second = self
                    .open(
                        endpoint,
                        &ProtocolVersion::V_2026_07_28,
                        Agreement::Exact,
                        &Tail::default(),
                    )
                    .await;
                second.map(|opened| opened.link).map_err(|_second| first)?
            }
            Err(error) => return Err(error),
        };
        let info = link.peer_info()?;
        let protocol_version = info.protocol_version.as_str().to_owned();
        let server = info
            .server_info
            .as_ref()
            .map(|server| printable(&format!("{} {}", server.name, server.version), 200));
        let adapter = McpAdapter::without_contract(link, endpoint.limits.clone());
        Ok(Connected { adapter: Box::new(adapter), protocol_version, server })
    }

    /// One handshake, within the time for a connection.
    async fn open(
        &self,
        endpoint: &Endpoint,
        version: &ProtocolVersion,
        agreement: Agreement,
        tail: &Tail,
    ) -> Result<Opened, AdapterError> {
        let ms_max = endpoint.limits.connect_ms_max;
        let opened = timeout(Duration::from_millis(ms_max), self.start(endpoint, version, tail))
            .await
            .unwrap_or_else(|_elapsed| {
                Err(AdapterError::Unavailable(format!("no completed handshake within {ms_max} ms")))
            })?;
        let negotiated = opened.link.peer_info()?.protocol_version.clone();
        let agreed = match agreement {
            Agreement::Exact => negotiated == *version,
            Agreement::AnySupported => SUPPORTED.contains(&negotiated),
        };
        if agreed {
            return Ok(opened);
        }
        opened.link.close().await;
        Err(AdapterError::SchemaMismatch(format!(
            "the server speaks protocol version `{}`, not `{version}`",
            whole(negotiated.as_str())
        )))
    }

    async fn start(
        &self,
        endpoint: &Endpoint,
        version: &ProtocolVersion,
        tail: &Tail,
    ) -> Result<Opened, AdapterError> {
        let listener = Listener::new(&endpoint.adapter, &self.settings, version);
        let bytes_max = message_bytes_max(&endpoint.limits);
        match &endpoint.transport {
            TransportFile::McpStdio { command, args, env, cwd, process } => {
                let cwd = cwd.as_deref();
                let launch = stdio::child::Launch { command, args, env, cwd, process };
                let (transport, child) =
                    stdio::start(&endpoint.adapter, &launch, &self.settings, bytes_max, tail)
                        .await?;
                let health = child.health();
                let service = handshake::shake(transport, listener.clone(), version)
                    .await
                    .map_err(|error| health.explain(error))?;
                let link = Link::new(service, &listener, health.closed(), Some(child));
                Ok(Opened { link, http: None })
            }
            TransportFile::McpHttp { .. } => {
                let http = EgressHttp::new(endpoint, &self.settings)?;
                let closed = http.closed();
                let service =
                    http.clone().begin(&endpoint.limits, listener.clone(), version).await?;
                let link = Link::new(service, &listener, closed, None).over(&http, &listener);
                Ok(Opened { link, http: Some((http, listener)) })
            }
            TransportFile::Internal { .. }
            | TransportFile::Rest { .. }
            | TransportFile::A2a { .. }
            | TransportFile::Lm { .. } => {
                Err(AdapterError::Misconfigured("it is no mcp server".to_owned()))
            }
        }
    }
}

#[async_trait]
impl Connector for McpConnector {
    async fn connect(&self, contract: Arc<Contract>) -> Result<Box<dyn Adapter>, AdapterError> {
        let pinned = &contract.protocol_version;
        let version =
            SUPPORTED.iter().find(|version| version.as_str() == pinned).ok_or_else(|| {
                let known =
                    SUPPORTED.iter().map(ProtocolVersion::as_str).collect::<Vec<_>>().join(", ");
                AdapterError::Misconfigured(format!(
                    "the protocol version `{}` is not supported, use one of {known}",
                    printable(pinned, 32)
                ))
            })?;
        let endpoint = Endpoint {
            adapter: contract.adapter.clone(),
            transport: contract.transport.clone(),
            credential: contract.credential.clone(),
            limits: contract.limits.clone(),
        };
        let tail = Tail::default();
        let opened = self.open(&endpoint, version, Agreement::Exact, &tail).await;
        if opened.is_err()
            && let Some(stderr) = tail.lines().await
        {
            tracing::warn!(adapter = %endpoint.adapter, stderr, "the server failed to start");
        }
        let Opened { link, http } = opened?;
        // A server without sessions distinguishes callers by the credential of each call.
        let sessions = http.filter(|(http, _)| http.has_session()).map(|(http, listener)| {
            let settings = Arc::clone(&self.settings);
            let version = version.clone();
            let opener = Opener { endpoint, settings, version, listener, http };
            Sessions::new(opener, self.settings.sessions)
        });
        Ok(Box::new(McpAdapter::under_contract(link, sessions, contract)))
    }
}

/// An established connection, and what further sessions over HTTP need.
struct Opened {
    link: Link,
    http: Option<(EgressHttp, Listener)>,
}

/// Which negotiated versions are acceptable.
#[derive(Debug, Clone, Copy)]
enum Agreement {
    Exact,
    AnySupported,
}
