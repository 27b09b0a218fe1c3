//! How the composition root configures the listeners.
//!
//! Owns the values, their bounds and their defaults. Does not load them.

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, SocketAddr},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use placet_types::bounded::Bounded;

/// The port of the HTTP API.
pub const PORT: u16 = 7411;
/// The port of the admin listener.
pub const ADMIN_PORT: u16 = 7412;

/// How the listeners behave: the `http` section of the configuration file, and what other sections say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ServerConfig {
    /// Where callers come in; port 0 takes a free one.
    #[serde(skip)]
    pub listen: SocketAddr,
    /// The address of `/healthz`, `/readyz` and `/metrics`; port 0 picks a free one.
    #[serde(skip)]
    pub admin_listen: SocketAddr,
    /// Host names of this service, `name` or `name:port`. Loopback names are always accepted.
    pub allowed_hosts: BTreeSet<String>,
    /// Web origins whose scripts may call the API, such as `https://console.example`.
    pub allowed_origins: BTreeSet<String>,
    /// The largest request body, in bytes.
    pub body_bytes_max: Bounded<1_024, 16_777_216>,
    /// Connections that may be open at the same time; more wait in the operating system's queue. It also limits open requests, and streams
    /// that last while nothing happens: a quarter of it for each (but at least four) for one principal, three quarters for both together
    /// for one tenant. Streams leave a quarter to requests. Further ones get `OVERLOADED`.
    pub connections_max: Bounded<1, 65_536>,
    /// Connections that one client address (for IPv6: one /64) may have open; further ones are closed. Must not exceed `connections_max`.
    /// Behind a proxy or load balancer, which has one address for all callers, set it to `connections_max`.
    pub connections_per_address_max: Bounded<1, 65_536>,
    /// How long a connection accepts requests, in milliseconds. Requests in progress then have `stream_ms_max` to end.
    pub connection_ms_max: Bounded<1_000, 86_400_000>,
    /// How long a caller may read nothing of what it is sent before its connection is closed, in milliseconds.
    pub write_timeout_ms: Bounded<1_000, 600_000>,
    /// How long a request head or a TLS handshake may take, and how long a connection may be idle, in milliseconds.
    pub header_timeout_ms: Bounded<1_000, 600_000>,
    /// How long a request body may take to arrive, and a query to be answered, in milliseconds. Calls have their own limits.
    pub request_timeout_ms: Bounded<1_000, 3_600_000>,
    /// How often an idle event stream sends a comment, in milliseconds. Must be shorter than the idle timeout of any proxy in between.
    pub heartbeat_ms: Bounded<1_000, 600_000>,
    /// How long an event stream may last, in milliseconds. Its reader then reconnects.
    pub stream_ms_max: Bounded<60_000, 86_400_000>,
    /// How long open requests may take to end after the process was asked to stop, in milliseconds.
    pub drain_ms: Bounded<1, 3_600_000>,
    /// Whether the API is served over TLS. [`crate::listen::Bound::with_tls`] sets it.
    #[serde(skip)]
    pub is_tls: bool,
    /// Our address as seen from outside; absent: the `Host` of each request.
    #[serde(skip)]
    pub public_url: Option<Url>,
    /// Our name in tokens, where it is a URL; published in the metadata document.
    #[serde(skip)]
    pub resource: Option<String>,
    /// The issuers named in the metadata document.
    #[serde(skip)]
    pub authorization_servers: Vec<String>,
}

impl Default for ServerConfig {
    /// On loopback, on the published ports.
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)),
            admin_listen: SocketAddr::from((Ipv4Addr::LOCALHOST, ADMIN_PORT)),
            allowed_hosts: BTreeSet::new(),
            allowed_origins: BTreeSet::new(),
            body_bytes_max: Bounded(1_048_576),
            connections_max: Bounded(1_024),
            connections_per_address_max: Bounded(256),
            connection_ms_max: Bounded(3_600_000),
            write_timeout_ms: Bounded(30_000),
            header_timeout_ms: Bounded(10_000),
            request_timeout_ms: Bounded(30_000),
            heartbeat_ms: Bounded(15_000),
            stream_ms_max: Bounded(3_600_000),
            drain_ms: Bounded(30_000),
            is_tls: false,
            public_url: None,
            resource: None,
            authorization_servers: Vec::new(),
        }
    }
}

impl ServerConfig {
    /// `https` or `http`.
    pub(crate) const fn scheme(&self) -> &'static str {
        if self.is_tls { "https" } else { "http" }
    }
}

/// Why the configuration of the listeners cannot be used, for the operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// An entry of the host allow-list is no host.
    #[error("the allowed host `{entry}` is not of the form `name` or `name:port`")]
    Host {
        /// The entry.
        entry: String,
    },
    /// An entry of the origin allow-list is no web origin.
    #[error(
        "the allowed origin `{entry}` is not of the form `https://name` or `https://name:port`"
    )]
    Origin {
        /// The entry.
        entry: String,
    },
}

#[cfg(test)]
mod tests {
    use super::ServerConfig;

    #[test]
    fn the_defaults_are_on_loopback() {
        let config = ServerConfig::default();
        assert!(config.listen.ip().is_loopback() && config.admin_listen.ip().is_loopback());
        assert_ne!(config.listen.port(), config.admin_listen.port());
    }
}
