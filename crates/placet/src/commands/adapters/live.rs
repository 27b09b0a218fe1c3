//! Asking a live adapter what it offers, before it has a contract or for comparison with it.
//!
//! Owns the connection of the import and of the comparison. It can list tools; it cannot call them.

use std::{collections::BTreeMap, sync::Arc};

use placet_adapter::{
    adapter::{Adapter, Connector as _},
    outcome::AdapterError,
};
use placet_adapter_files::files::{FilesConnector, FilesSettings};
use placet_adapter_mcp::connector::Endpoint;
use placet_types::contract::{Contract, LiveTool, file::TransportFile, process::ChildNetwork};
use secrecy::SecretString;

use super::servers::is_private;
use crate::{
    compose::{data_folder, mcp_connector},
    config::load::Config,
    failure::{Attempted as _, Failure},
    svids,
};

/// What a live adapter says about itself.
#[derive(Debug, Clone)]
pub(crate) struct Live {
    /// The protocol version that was negotiated.
    pub(crate) protocol_version: String,
    /// The name it gives itself; not to be trusted.
    pub(crate) server: Option<String>,
    /// Its tools.
    pub(crate) tools: Vec<LiveTool>,
}

/// Asks an endpoint that may not have a contract yet.
pub(crate) async fn ask(
    endpoint: &Endpoint,
    secrets: BTreeMap<String, SecretString>,
    config: &Config,
) -> Result<Live, Failure> {
    let _svids = svids::open(config).await?;
    let connector = mcp_connector(config, data_folder(config)?, secrets, Vec::new());
    let what = format!("the adapter `{}` cannot be asked", endpoint.adapter);
    let target = endpoint.transport.http();
    let is_refused_as_private =
        target.is_some_and(|target| !target.private_network && is_private(target.url));
    let connected = connector.connect_any(endpoint).await.map_err(|error| {
        let is_silent = matches!(error, AdapterError::Unavailable(_));
        let failure = Failure::new(what.clone()).because(error);
        if is_refused_as_private {
            failure.try_this("--private-network, if that host is meant to be private")
        } else if is_silent && is_without_tcp(&endpoint.transport) {
            failure.try_this("if its program needs TCP connections, as `npx` does to download: --network-unconfined, or `process: { network: unconfined }` in its contract")
        } else {
            failure
        }
    })?;
    let tools = tools_of(connected.adapter.as_ref()).await.attempted(what)?;
    Ok(Live { protocol_version: connected.protocol_version, server: connected.server, tools })
}

/// Lets a child process open any connection.
pub(super) fn unconfine(transport: &mut TransportFile) {
    if let TransportFile::McpStdio { process, .. } = transport {
        process.network = Some(ChildNetwork::Unconfined);
    }
}

/// What an operator has to know of a child process.
pub(super) fn note_on(transport: &TransportFile) -> Option<&'static str> {
    let note = "its process may open no TCP connection, so that a tool that needs one fails; with --network-unconfined it may";
    is_without_tcp(transport).then_some(note)
}

/// Whether it is a child process that may not open TCP connections.
fn is_without_tcp(transport: &TransportFile) -> bool {
    matches!(transport, TransportFile::McpStdio { process, .. } if process.network.is_none())
}

/// Asks the adapter of a contract that does not define its tools itself, whatever version it speaks now.
pub(crate) async fn ask_contracted(
    contract: &Arc<Contract>,
    config: &Config,
) -> Result<Live, Failure> {
    if matches!(contract.transport, TransportFile::Internal { .. }) {
        let what = format!("the adapter `{}` cannot be asked", contract.adapter);
        let files = FilesConnector::new(config.data.clone(), FilesSettings::default());
        let adapter = files.connect(Arc::clone(contract)).await.attempted(what.clone())?;
        let tools = tools_of(adapter.as_ref()).await.attempted(what)?;
        let protocol_version = contract.protocol_version.clone();
        return Ok(Live { protocol_version, server: None, tools });
    }
    let endpoint = Endpoint {
        adapter: contract.adapter.clone(),
        transport: contract.transport.clone(),
        credential: contract.credential.clone(),
        limits: contract.limits.clone(),
    };
    ask(&endpoint, BTreeMap::new(), config).await
}

async fn tools_of(adapter: &dyn Adapter) -> Result<Vec<LiveTool>, String> {
    let tools = adapter.discover().await.map_err(|error| error.shortened().to_string());
    adapter.close().await;
    tools
}
