//! Ports from contracts: the connector through which an adapter is reached, and its wrapper.
//!
//! Owns which kind of contract goes to which connector. Connects nothing itself.

use std::sync::Arc;

use placet_adapter::adapter::Connector;
use placet_telemetry::metrics::Metrics;
use placet_types::contract::{Contract, file::TransportFile};

use crate::adapters::{
    known_secrets::KnownSecrets,
    ports::{Port, Ports},
    wrapper::WrappingConnector,
};

/// Which connector makes connections of which kind.
#[derive(Debug, Clone)]
pub struct Connectors {
    /// For adapters that are compiled in.
    pub internal: Arc<dyn Connector>,
    /// For MCP servers.
    pub mcp: Arc<dyn Connector>,
    /// For services and models over HTTP.
    pub http: Arc<dyn Connector>,
}

/// What ports are made with.
#[derive(Clone, Copy)]
pub(crate) struct Makers<'a> {
    pub(crate) connectors: &'a Connectors,
    pub(crate) handed: &'a KnownSecrets,
    pub(crate) metrics: &'a Metrics,
}

/// A port for each contract: the existing one from `known`, else a new one.
pub(crate) fn ports(
    contracts: &[Arc<Contract>],
    makers: Makers<'_>,
    known: impl Fn(&Contract) -> Option<Arc<Port>>,
) -> Ports {
    let Makers { connectors, handed, metrics } = makers;
    Ports::new(contracts.iter().filter_map(|contract| {
        if let Some(port) = known(contract) {
            return Some(port);
        }
        let connector = match &contract.transport {
            TransportFile::Internal { .. } => &connectors.internal,
            TransportFile::McpStdio { .. } | TransportFile::McpHttp { .. } => &connectors.mcp,
            TransportFile::Rest { .. } | TransportFile::A2a { .. } | TransportFile::Lm { .. } => {
                &connectors.http
            }
        };
        let given = handed.to(contract)?;
        let connector = WrappingConnector::new(Arc::clone(connector), given);
        Some(Arc::new(Port::new(Arc::clone(contract), Arc::new(connector), metrics.clone())))
    }))
}
