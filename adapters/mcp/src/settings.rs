//! What connections are made with: the settings that all of them share, and the endpoint of one.
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
    /// Why it cannot be had, without any part of it.
    async fn secret(&self, name: &str) -> Result<SecretVersions, String>;
}

/// The versions of a secret that are live at the same time.
#[derive(Debug, Clone)]
pub struct SecretVersions {
    /// The one to use.
    pub newest: SecretString,
    /// The one before, while a server may still know only that one.
    pub previous: Option<SecretString>,
}

impl SecretVersions {
    /// The version to try when a server has refused `used`: the newest, if there is a newer one by now, else the one before.
    #[must_use]
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
    /// Further trust roots for `https:`, and who we are to servers that ask for a certificate.
    pub trust: Trust,
    /// Our own listeners, which no contract can lead a call to.
    pub own_listeners: Vec<SocketAddr>,
    /// How many sessions a connection over HTTP has with a server that keeps some.
    pub sessions: SessionLimits,
}

/// What is needed to reach a server for which there may be no contract yet.
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
    /// Sessions at the same time beside the contract's own; at least 1. One more than that takes the place of one that is idle, or there is none.
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

/// The longest message of a server that is read: a result above its limit is still told from garbage, and a list of a thousand
/// tools fits.
pub(crate) fn message_bytes_max(limits: &LimitsFile) -> usize {
    const LIST_BYTES_MAX: u64 = 8 * 1024 * 1024;
    let result = limits.result_bytes_max.saturating_mul(2).saturating_add(1024 * 1024);
    usize::try_from(result.max(LIST_BYTES_MAX)).unwrap_or(usize::MAX)
}
