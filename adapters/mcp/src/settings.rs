//! The settings of connections: those that all of them share, and the endpoint of one.
//!
//! Owns these forms and the limits of sessions and messages. Does nothing with them.

use std::{fmt, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use placet_egress::Trust;
use placet_types::{
    contract::{
        credential::CredentialFile,
        file::{LimitsFile, TransportFile},
    },
    ids::AdapterName,
};
use secrecy::{ExposeSecret as _, SecretString};

/// Finds secrets of the configuration by name, at the moment a connection needs them.
#[async_trait]
pub trait SecretLookup: Send + Sync + fmt::Debug {
    /// The secret called `name`. Does not block the thread, and ends in time also where its source does not answer.
    ///
    /// # Errors
    /// Why it is not available, without any part of it.
    async fn secret(&self, name: &str) -> Result<SecretVersions, String>;
}

/// The versions of a secret that are valid at the same time.
#[derive(Debug, Clone)]
pub struct SecretVersions {
    /// The one to use.
    pub newest: SecretString,
    /// The one before, while a server may still know only that one.
    pub previous: Option<SecretString>,
}

impl SecretVersions {
    /// The version to try when a server has refused `used`: the newest, if it is a different one by now, else the previous one.
    pub fn other_than(self, used: &SecretString) -> Option<SecretString> {
        let is_other = |one: &SecretString| one.expose_secret() != used.expose_secret();
        Some(self.newest).into_iter().chain(self.previous).find(is_other)
    }
}

/// What every connection of this kind shares.
#[derive(Debug, Clone)]
pub struct McpSettings {
    /// The data folder: relative working directories are under it.
    pub data_dir: PathBuf,
    /// The name we give ourselves to servers.
    pub client_name: String,
    /// The version we give ourselves to servers.
    pub client_version: String,
    /// Secrets for the environment of child processes, and for servers that want a credential before they list their tools.
    pub secrets: Arc<dyn SecretLookup>,
    /// Additional trust roots for `https:`, and our certificates for servers that ask for one.
    pub trust: Trust,
    /// Our own listeners, which no contract can lead a call to.
    pub own_listeners: Vec<SocketAddr>,
    /// The limits for sessions of a connection over HTTP.
    pub sessions: SessionLimits,
}

/// What is needed to connect to a server that may not have a contract yet.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// The adapter's name.
    pub adapter: AdapterName,
    /// How it is reached.
    pub transport: TransportFile,
    /// The credential that the server may want.
    pub credential: Option<CredentialFile>,
    /// Its limits.
    pub limits: LimitsFile,
}

/// How many sessions a connection has with its server, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionLimits {
    /// Concurrent sessions besides the contract's own; at least 1. A further one replaces an idle one, or fails.
    pub sessions_max: usize,
    /// After how long without a call one is ended.
    pub idle: Duration,
    /// After how long without an answer in one the server is asked whether it still knows it, before a call is posted in it.
    pub silent: Duration,
}

impl Default for SessionLimits {
    fn default() -> Self {
        Self { sessions_max: 1_024, idle: Duration::from_mins(5), silent: Duration::from_secs(5) }
    }
}

/// The longest message of a server that is read: an oversized result can still be distinguished from garbage, and a list of a thousand
/// tools fits.
pub(crate) fn message_bytes_max(limits: &LimitsFile) -> usize {
    const LIST_BYTES_MAX: u64 = 8 * 1024 * 1024;
    let result = limits.result_bytes_max.saturating_mul(2).saturating_add(1024 * 1024);
    usize::try_from(result.max(LIST_BYTES_MAX)).unwrap_or(usize::MAX)
}
