//! How the composition root configures the listeners.
//!
//! Owns the values and their defaults. Does not load them; each limit is checked where it is used.

use std::net::{Ipv4Addr, SocketAddr};

use url::Url;

/// The port of the HTTP API.
pub const PORT: u16 = 7411;
/// The port of the admin listener.
pub const ADMIN_PORT: u16 = 7412;

/// How the listeners behave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerConfig {
    /// Where callers come in; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The address of `/healthz`, `/readyz` and `/metrics`; port 0 picks a free one.
    pub admin_listen: SocketAddr,
    /// The host names of this service, `name` or `name:port`; the loopback names, and the bound address if it is one, are
    /// always included.
    pub allowed_hosts: Vec<String>,
    /// Web origins whose scripts may call, `https://name`; a request with any other `Origin` is refused.
    pub allowed_origins: Vec<String>,
    /// The largest body.
    pub body_bytes_max: usize,
    /// How long a TLS handshake or the head of a request may take, and how long a connection may be idle, in milliseconds.
    pub header_timeout_ms: u64,
    /// How long a body may take to arrive, and a query to be answered, in milliseconds. Calls have their own limits.
    pub request_timeout_ms: u64,
    /// Connections open at the same time; more wait in the operating system's queue. Of the requests in progress on them, one principal has
    /// a quarter at most (but at least four), one tenant three quarters; one more is `OVERLOADED`.
    pub connections_max: u32,
    /// The most of those that one address (of IPv6: one /64) may have; any further connection is closed.
    pub connections_per_address_max: u32,
    /// How long a connection may last, in milliseconds. Then it accepts no more requests; those in progress may take as long as a stream.
    pub connection_ms_max: u64,
    /// How long a peer may leave a write blocked, in milliseconds, before its connection is closed.
    pub write_timeout_ms: u64,
    /// Event streams of calls open at the same time, and as many of the approval service; one more is `OVERLOADED`. One principal has a
    /// quarter of them at most (but at least four), one tenant three quarters.
    pub streams_max: usize,
    /// How often a silent event stream sends a comment, in milliseconds.
    pub heartbeat_ms: u64,
    /// How long one event stream may last, in milliseconds; its reader comes again with a token that is still valid.
    pub stream_ms_max: u64,
    /// How long open requests may take to end after the listeners were asked to close, in milliseconds.
    pub drain_ms: u64,
    /// Whether the API is served over TLS. [`crate::listen::Bound::with_tls`] sets it.
    pub is_tls: bool,
    /// Our address as seen from outside; absent: the `Host` of each request.
    pub public_url: Option<Url>,
    /// Our name in tokens, where it is a URL; published in the metadata document.
    pub resource: Option<String>,
    /// The issuers named in the metadata document.
    pub authorization_servers: Vec<String>,
}

impl Default for ServerConfig {
    /// On loopback, on the published ports.
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)),
            admin_listen: SocketAddr::from((Ipv4Addr::LOCALHOST, ADMIN_PORT)),
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            body_bytes_max: 1024 * 1024,
            header_timeout_ms: 10_000,
            request_timeout_ms: 30_000,
            connections_max: 1_024,
            connections_per_address_max: 256,
            connection_ms_max: 3_600_000,
            write_timeout_ms: 30_000,
            streams_max: 256,
            heartbeat_ms: 15_000,
            stream_ms_max: 3_600_000,
            drain_ms: 30_000,
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
