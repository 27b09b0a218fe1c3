//! Asking a live adapter what it offers, before or beside its contract.
//!
//! Owns the connection of the import and of the comparison. It can list tools; it cannot call them.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use placet_adapter::{
    adapter::{Adapter, Connector},
    outcome::AdapterError,
};
use placet_adapter_files::files::{FilesConnector, FilesSettings};
use placet_adapter_http::{HttpConnector, HttpSettings};
use placet_adapter_mcp::connector::{
    Endpoint, McpConnector, McpSettings, SecretLookup, SecretVersions, SessionLimits,
};
use placet_types::contract::{Contract, LiveTool, file::TransportFile};
use secrecy::SecretString;

use super::servers::is_private;
use crate::{
    compose::{ConfiguredSecrets, data_folder},
    config::load::Config,
    failure::{Attempted as _, Failure},
    svids,
};

/// What a live adapter says about itself.
#[derive(Debug, Clone)]
pub(crate) struct Live {
    /// The protocol version that was negotiated.
    pub(crate) protocol_version: String,
    /// What it calls itself; not to be trusted.
    pub(crate) server: Option<String>,
    /// Its tools.
    pub(crate) tools: Vec<LiveTool>,
}

/// Secrets of an import: those in hand, before those of the configuration.
#[derive(Debug)]
struct InHand {
    secrets: BTreeMap<String, SecretString>,
    configured: ConfiguredSecrets,
}

#[async_trait]
impl SecretLookup for InHand {
    async fn secret(&self, name: &str) -> Result<SecretVersions, String> {
        match self.secrets.get(name) {
            Some(value) => Ok(SecretVersions { newest: value.clone(), previous: None }),
            None => self.configured.secret(name).await,
        }
    }
}

/// Asks an endpoint for which there may be no contract yet.
///
/// # Errors
/// [`Failure`] when it cannot be asked.
pub(crate) async fn ask(
    endpoint: &Endpoint,
    secrets: BTreeMap<String, SecretString>,
    config: &Config,
) -> Result<Live, Failure> {
    let _svids = svids::open(config).await?;
    let lookup = InHand { secrets, configured: ConfiguredSecrets::new(&config.secrets) };
    let data_dir = data_folder(config)?;
    let connector = McpConnector::new(McpSettings {
        data_dir,
        client_name: "placet".to_owned(),
        client_version: env!("CARGO_PKG_VERSION").to_owned(),
        secrets: Arc::new(lookup),
        trust: config.trust.clone(),
        own_listeners: Vec::new(),
        sessions: SessionLimits::default(),
    });
    let what = format!("the adapter `{}` cannot be asked", endpoint.adapter);
    let private = is_refused_as_private(&endpoint.transport);
    let connected = connector.connect_any(endpoint).await.map_err(|error| {
        let started = !matches!(error, AdapterError::Misconfigured(_));
        let failure = Failure::new(what.clone()).because(error);
        if private {
            failure.try_this("--private-network, if that host is meant to be private")
        } else if started && is_without_tcp(&endpoint.transport) {
            failure.try_this("if its program needs TCP connections, as `npx` does to download: `process: { network: unconfined }` in the contract, `--network-unconfined` of `placet adapters import`")
        } else {
            failure
        }
    })?;
    let tools = tools_of(connected.adapter.as_ref())
        .await
        .map_err(|why| Failure::new(what).because(why))?;
    Ok(Live { protocol_version: connected.protocol_version, server: connected.server, tools })
}

/// Whether it is a child process that may open no TCP connection.
fn is_without_tcp(transport: &TransportFile) -> bool {
    match transport {
        TransportFile::McpStdio { process, .. } => process.network.is_none(),
        TransportFile::McpHttp { .. }
        | TransportFile::Rest { .. }
        | TransportFile::A2a { .. }
        | TransportFile::Lm { .. }
        | TransportFile::Internal { .. } => false,
    }
}

/// Whether the transport names a private place without saying so.
fn is_refused_as_private(transport: &TransportFile) -> bool {
    transport.http().is_some_and(|target| !target.private_network && is_private(target.url))
}

/// Asks the adapter of a contract, whatever version it speaks now.
///
/// # Errors
/// [`Failure`] when it cannot be asked.
pub(crate) async fn ask_contracted(
    contract: &Arc<Contract>,
    config: &Config,
) -> Result<Live, Failure> {
    match &contract.transport {
        TransportFile::Internal { .. } => {
            let files = FilesConnector::new(config.data.clone(), FilesSettings::default());
            return ask_over(&files, contract).await;
        }
        TransportFile::Rest { .. } | TransportFile::A2a { .. } | TransportFile::Lm { .. } => {
            let settings = HttpSettings { trust: config.trust.clone(), own_listeners: Vec::new() };
            return ask_over(&HttpConnector::new(settings), contract).await;
        }
        TransportFile::McpStdio { .. } | TransportFile::McpHttp { .. } => {}
    }
    let endpoint = Endpoint {
        adapter: contract.adapter.clone(),
        transport: contract.transport.clone(),
        credential: contract.credential.clone(),
        limits: contract.limits.clone(),
    };
    ask(&endpoint, BTreeMap::new(), config).await
}

async fn ask_over(connector: &dyn Connector, contract: &Arc<Contract>) -> Result<Live, Failure> {
    let what = format!("the adapter `{}` cannot be asked", contract.adapter);
    let adapter = connector.connect(Arc::clone(contract)).await.attempted(what.clone())?;
    let tools = tools_of(adapter.as_ref()).await.map_err(|why| Failure::new(what).because(why))?;
    Ok(Live { protocol_version: contract.protocol_version.clone(), server: None, tools })
}

async fn tools_of(adapter: &dyn Adapter) -> Result<Vec<LiveTool>, String> {
    let tools = adapter.discover().await.map_err(|error| error.shortened().to_string());
    adapter.close().await;
    tools
}
